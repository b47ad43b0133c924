"""On small graphs, no other order has a lower peak memory than the order that the search for the least peak finds."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import numpy as np
import pytest

from tests.analysis.small_graphs import graph
from workbench.analysis.graphs.reorder_graph import reorder_graph, top_rows, with_members
from workbench.analysis.memory.liveness import timeline
from workbench.analysis.order import min_peak_order, order_groups
from workbench.analysis.order.min_peak_order import (
    HalfStep,
    _beam_search,
    are_already_late,
    first_successors,
    half_step_of,
    just_in_time,
    least_peak,
    order_constraints,
    order_early,
    order_late,
    reorder_sides,
    unchanged_order,
)
from workbench.core.graph import BACKWARD, FORWARD, Graph, Kind, StatementFlag, ValueFlag

IN_OUT = {"x": ValueFlag.ARGUMENT, "y": ValueFlag.OUTPUT}


def drawn(seed: int, count: int = 7) -> Graph:
    """Return a random graph of a forward and a backward. It may have views, in-place writes and transient memory."""
    draw = random.Random(seed)
    values, views, sizes, transient, lines = ["x", "w"], {}, {"x": 3, "w": 2}, {}, []
    inplace = []
    for i in range(count):
        reads = draw.sample(values, min(len(values), draw.randint(1, 3)))
        made = f"v{i}"
        kind = draw.random()
        if kind < 0.2:
            views[made] = reads[0]
        elif kind < 0.35:
            views[made] = reads[0]
            inplace.append(f"f{i}")
        else:
            sizes[made] = draw.randint(1, 9)
        transient[f"f{i}"] = draw.choice((0, 0, 4))
        lines.append((f"f{i}", " ".join(reads), made))
        values.append(made)
    backward = draw.randint(2, count)
    held = {"x", "w", draw.choice(values[2:]), values[-1]}
    flags = {"x": ValueFlag.ARGUMENT, "w": ValueFlag.ARGUMENT}
    for name in sorted(held - flags.keys()):
        flags[name] = ValueFlag.GRADIENT if int(name[1:]) >= backward else ValueFlag.OUTPUT
    last = {name: i for i, (_, reads, made) in enumerate(lines) for name in (*reads.split(), made)}
    freed = [" ".join(name for name, at in last.items() if at == i and name not in held) for i in range(len(lines))]
    return graph(
        [(*line, gone) for line, gone in zip(lines, freed, strict=True)],
        backward=backward,
        flags=flags,
        views=views,
        sizes=sizes,
        transient=transient,
        inplace=inplace,
    )


def orders(half: HalfStep) -> Iterator[list[int]]:
    """Yield every legal order of one half, that is, of the forward or of the backward."""

    def further(order: list[int], done: int) -> Iterator[list[int]]:
        if len(order) == len(half.rows):
            yield order
        for one, before in enumerate(half.before):
            if not done >> one & 1 and not before & ~done:
                yield from further([*order, one], done | 1 << one)

    return further([], 0)


def is_legal(half: HalfStep, order: list[int]) -> bool:
    """Return whether the order has every statement once, and each after its predecessors."""
    done = 0
    for one in order:
        if half.before[one] & ~done:
            return False
        done |= 1 << one
    return sorted(order) == unchanged_order(half)


def side_peak(made: Graph, half: HalfStep, order: list[int]) -> int:
    """Put one half of the graph into this order. Return the most bytes that are alive at any statement of the half."""
    top = top_rows(made).copy()
    start = int(np.searchsorted(top, half.rows[0]))
    top[start : start + len(order)] = half.rows[order]
    found = timeline(reorder_graph(made, with_members(made, top)))
    return int(found.statement_peak_bytes[half.rows].max())


@pytest.mark.parametrize("seed", range(60))
def test_no_order_has_a_lower_peak_than_the_order_of_the_search(seed: int) -> None:
    made = drawn(seed)
    for side in (FORWARD, BACKWARD):
        half = half_step_of(made, side)
        if not len(half.rows):
            continue
        every = {tuple(order): side_peak(made, half, order) for order in orders(half)}
        found = least_peak(half)
        assert every[tuple(found)] == min(every.values())
        # Unlike `peak_bytes`, the timeline counts values that are alive at every statement. The two peaks therefore
        # differ by the same bytes in all orders.
        assert len({peak - half.peak_bytes(order) for order, peak in every.items()}) == 1


@pytest.mark.parametrize("seed", range(20))
def test_no_statement_moves_past_a_statement_without_results(seed: int) -> None:
    draw, lines, values, fixed = random.Random(seed), [], ["x"], []
    for place in range(60):
        makes = "" if draw.random() < 0.4 else f"v{place}"
        fixed += [] if makes else [place]
        lines.append((f"f{place}", " ".join(draw.sample(values, min(2, len(values)))), makes, ""))
        values += [makes] if makes else []
    held = order_constraints(graph(lines, flags={"x": ValueFlag.ARGUMENT}), FORWARD)
    everything = [0] * len(lines)
    for place, before in enumerate(held.predecessors):
        for one in before:
            everything[place] |= everything[one] | 1 << one
    for place in fixed:
        assert everything[place] == (1 << place) - 1
        assert all(everything[later] >> place & 1 for later in range(place + 1, len(lines)))
    # On average, a statement has at most four stored predecessors. All pairs would take a thousand entries.
    assert sum(map(len, held.predecessors)) <= 4 * len(lines)


@pytest.mark.parametrize("seed", range(30))
def test_a_beam_search_finds_a_legal_order(seed: int) -> None:
    half = half_step_of(drawn(seed, count=9), FORWARD)
    assert is_legal(half, _beam_search(half))


@pytest.mark.parametrize("seed", range(30))
def test_a_group_moves_as_late_or_early_as_its_dependencies_allow(seed: int) -> None:
    draw = random.Random(seed)
    half = half_step_of(drawn(seed, count=9), FORWARD)
    stock = unchanged_order(half)
    members = {one for one in stock if draw.random() < 0.5}
    rest = [one for one in stock if one not in members]
    later, sooner = order_late(half, stock, members), order_early(half, stock, members)
    for moved in (later, sooner):
        assert is_legal(half, moved)
        assert [one for one in moved if one not in members] == rest
    for one in members:
        # In the early order, only members are between a member and its last dependency. In the late order, only members
        # are between a member and its first dependent.
        if half.predecessors[one]:
            last = max(map(sooner.index, half.predecessors[one]))
            assert members >= set(sooner[last + 1 : sooner.index(one)])
        if half.successors[one]:
            first = min(map(later.index, half.successors[one]))
            assert members >= set(later[later.index(one) + 1 : first])
    assert order_late(half, stock, ()) == order_early(half, stock, ()) == stock


def test_a_group_is_already_late_if_moving_it_late_changes_nothing() -> None:
    draw, found = random.Random(0), set()
    for seed in range(40):
        made = drawn(seed, 9)
        held, first = order_constraints(made, FORWARD), first_successors(made, FORWARD)
        stock = unchanged_order(held)
        groups = [{one for one in stock if draw.random() < share} for share in (0.2, 0.5, 0.8) for _ in range(4)]
        for members in (*groups, *({one} for one in stock), set()):
            assert are_already_late(first, members) == (order_late(held, stock, members) == stock)
            found.add(are_already_late(first, members))
    assert found == {True, False}


@pytest.mark.parametrize("side", [FORWARD, BACKWARD])
def test_the_first_successor_is_that_of_the_order_constraints(side: int) -> None:
    for seed in range(60):
        made, draw = drawn(seed, 12), np.random.default_rng(seed)
        kinds = draw.choice([Kind.OP, Kind.FUSION, Kind.COLLECTIVE], len(made.statements), p=(0.6, 0.3, 0.1))
        inplace = made.statements.flags if seed % 2 else 0
        flags = inplace | draw.choice([0, int(StatementFlag.RANDOM)], len(made.statements), p=(0.7, 0.3))
        statements = dataclasses.replace(made.statements, kind=kinds.astype(np.int8), flags=flags.astype(np.int32))
        changed = dataclasses.replace(made, statements=statements)
        held = order_constraints(changed, side)
        expected = [min(after, default=len(held.rows)) for after in held.successors]
        assert first_successors(changed, side).tolist() == expected


@pytest.mark.parametrize("seed", range(30))
def test_a_plan_never_peaks_higher_than_stock(seed: int) -> None:
    made = drawn(seed, count=9)
    for way in (least_peak, just_in_time):
        found = reorder_sides(made, way, [FORWARD, BACKWARD])
        peak_bytes = timeline(reorder_graph(made, with_members(made, found.order))).peak_bytes
        assert found.peak_bytes == peak_bytes <= found.stock_peak_bytes == timeline(made).peak_bytes


def test_a_beam_search_over_many_ready_statements_keeps_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    chains = 40
    lines = [("wide", "x", f"a{at}", "") for at in range(chains)]
    lines += [("narrow", f"a{at}", f"b{at}", f"a{at}") for at in range(chains)]
    names = " ".join(f"b{at}" for at in range(chains))
    sizes = {f"{kind}{at}": 5 + 7 * at % 13 for at in range(chains) for kind in "ab"}
    half = half_step_of(graph([*lines, ("add", names, "y", names)], flags=IN_OUT, sizes=sizes), FORWARD)
    count, evaluate = 0, HalfStep.step

    def step(self: HalfStep, statement: int, done: int) -> tuple[int, int]:
        nonlocal count
        count += 1
        return evaluate(self, statement, done)

    monkeypatch.setattr(HalfStep, "step", step)
    monkeypatch.setattr(min_peak_order, "BEAM_STEPS", 50_000)
    assert is_legal(half, _beam_search(half))
    assert count <= 2 * min_peak_order.BEAM_STEPS


def two_branches() -> Graph:
    """Return a graph that reduces two large values. In the best order, the two are never alive at the same time."""
    return graph(
        [
            ("big", "x", "a", ""),
            ("big", "x", "b", ""),
            ("small", "a", "c", "a"),
            ("small", "b", "d", "b"),
            ("add", "c d", "y", "c d"),
        ],
        flags=IN_OUT,
        sizes={"a": 100, "b": 100},
    )


def test_statements_that_free_memory_run_before_statements_that_allocate() -> None:
    found = reorder_sides(two_branches(), least_peak, [FORWARD])
    assert found.order.tolist() in ([0, 2, 1, 3, 4], [1, 3, 0, 2, 4])
    assert (found.stock_peak_bytes, found.peak_bytes, found.moved) == (202, 103, 1)


def test_random_draws_keep_their_order() -> None:
    made = two_branches()
    made.statements.flags[[1, 2]] = StatementFlag.RANDOM
    found = reorder_sides(made, least_peak, [FORWARD])
    assert found.order.tolist().index(1) < found.order.tolist().index(2)


def test_reads_stay_on_their_side_of_an_in_place_write() -> None:
    made = graph(
        [
            ("read", "x", "a", ""),
            ("write_", "x", "b", ""),
            ("read", "b", "c", "b"),
            ("read", "a", "d", "a"),
        ],
        flags={"x": ValueFlag.ARGUMENT, "c": ValueFlag.OUTPUT, "d": ValueFlag.OUTPUT},
        views={"b": "x"},
        inplace=["write_"],
    )
    assert [list(order) for order in orders(half_step_of(made, FORWARD))] == [
        [0, 1, 2, 3],
        [0, 1, 3, 2],
        [0, 3, 1, 2],
    ]


def test_a_recomputed_value_waits_for_its_first_reader() -> None:
    made = graph(
        [
            ("again", "x", "a", ""),
            ("again", "a", "b", "a"),
            ("grad", "x", "c", ""),
            ("grad", "b c", "y", "b c"),
        ],
        flags=IN_OUT,
        sizes={"a": 10, "b": 10},
        transient={"grad": 10},
    )
    made.statements.flags[[0, 1]] = StatementFlag.CLONE
    found = reorder_sides(made, just_in_time, [FORWARD])
    assert found.order.tolist() == [2, 0, 1, 3]


def trained() -> Graph:
    """Return a backward of two layers. It computes both weight gradients late, and then updates a state in place."""
    return graph(
        [
            ("dx", "g w2", "d1", ""),
            ("dx", "d1 w1", "d0", ""),
            ("dw", "g a1", "gw2", "a1"),
            ("dw", "d1 a0", "gw1", "a0 d1"),
            ("mean", "d0", "m", "m d0"),
            ("mul", "s gw1", "u", ""),
            ("write_", "s u", "s1", "u"),
            ("return", "gw1 gw2", "", ""),
        ],
        backward=0,
        flags={
            **dict.fromkeys(("w1", "w2", "s"), ValueFlag.ARGUMENT),
            **dict.fromkeys(("gw1", "gw2"), ValueFlag.GRADIENT),
        },
        views={"s1": "s"},
        inplace=["write_"],
    )


def test_statements_that_finish_a_gradient_run_as_soon_as_possible() -> None:
    half = half_step_of(trained(), BACKWARD)
    assert order_groups.gradient_statements(trained(), half) == [2]
    # `gradient_statements` leaves out the statement that computes `gw1`, because the update reads `gw1` too.
    assert order_groups.update_statements(trained(), half) == [5, 6]
    moved = order_early(half, unchanged_order(half), {2, 3})
    assert moved == [0, 3, 1, 2, 4, 5, 6, 7]
    assert order_early(half, moved, {5, 6}) == [0, 3, 5, 6, 1, 2, 4, 7]
