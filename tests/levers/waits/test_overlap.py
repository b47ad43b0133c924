"""The simulated step takes the time that is computed by hand. No schedule is faster than the lower bound."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.small_graphs import graph as by_hand
from workbench.analysis.cost.collective_overlap import (
    COMMUNICATION,
    COMPUTE,
    StatementSeconds,
    costs,
    issue_order,
    lower_bound,
    overlap,
    simulate,
)
from workbench.analysis.cost.machines import MACHINES
from workbench.analysis.cost.roofline import calibrate
from workbench.core.graph import Graph, Kind, ValueFlag

KINDS = {"gather": Kind.COLLECTIVE, "reduce": Kind.COLLECTIVE, "wait": Kind.WAIT}


def graph(*lines: tuple[str, str, str], sizes: dict[str, int] | None = None) -> Graph:
    """Build a forward graph from lines (name, inputs, outputs). Inputs that begin with `w` or `x` are arguments."""
    arguments = {n: ValueFlag.ARGUMENT for _, inputs, _ in lines for n in inputs.split() if n[0] in "wx"}
    made = by_hand([(*line, "") for line in lines], flags=arguments, sizes=sizes)
    kinds = [KINDS.get(name.partition(".")[0], Kind.OP) for name, _, _ in lines]
    return dataclasses.replace(made, statements=dataclasses.replace(made.statements, kind=np.asarray(kinds, np.int8)))


def seconds(made: Graph, host: float = 0.0, compute: float = 4.0, communication: float = 10.0) -> StatementSeconds:
    kinds = made.statements.kind
    return StatementSeconds(
        np.full(len(kinds), host),
        np.where(kinds == Kind.OP, compute, 0.0),
        np.where(kinds == Kind.COLLECTIVE, communication, 0.0),
    )


ONE = (("gather", "w", "f"), ("wait", "f", "g"), ("matmul", "x g", "y"))


def test_one_gather_and_one_matmul_run_one_after_the_other() -> None:
    made = graph(*ONE)
    found = simulate(made, seconds(made))
    assert (found.step_s, found.exposed_communication_s, found.idle_compute_s) == (14.0, 10.0, 10.0)
    assert [(bar.stream, bar.start_s, bar.end_s) for bar in found.bars if bar.stream != "host"] == [
        (COMMUNICATION, 0.0, 10.0),
        (COMPUTE, 10.0, 14.0),
    ]


def test_compute_between_issue_and_wait_hides_part_of_the_gather() -> None:
    made = graph(("gather", "w", "f"), ("other", "x", "z"), ("wait", "f", "g"), ("matmul", "z g", "y"))
    found = simulate(made, seconds(made))
    assert (found.step_s, found.exposed_communication_s) == (14.0, 6.0)
    assert lower_bound(made, seconds(made)) == 14.0


def test_a_gather_starts_when_the_compute_before_its_issue_is_done() -> None:
    made = graph(("other", "x", "z"), ("gather", "w", "f"), ("wait", "f", "g"), ("matmul", "z g", "y"))
    assert simulate(made, seconds(made)).step_s == 18.0
    assert lower_bound(made, seconds(made)) == 14.0


def test_gathers_run_one_after_the_other_in_the_order_of_their_issue() -> None:
    first, second = ("gather", "w1", "f1"), ("gather", "w2", "f2")
    use = (("wait", "f1", "g1"), ("matmul", "x g1", "y"), ("wait", "f2", "g2"), ("matmul", "y g2", "z"))
    in_order, inverted = graph(first, second, *use), graph(second, first, *use)
    assert (issue_order(in_order).inversions, issue_order(inverted).inversions) == (0, 1)
    # If the gathers are issued in the order of their use, the first matmul overlaps with the second gather. In the
    # inverted order, both matmuls run after both gathers.
    assert simulate(in_order, seconds(in_order)).step_s == 24.0
    assert simulate(inverted, seconds(inverted)).step_s == 28.0


def test_the_host_limits_the_step_if_launching_takes_longest() -> None:
    made = graph(*ONE)
    found = simulate(made, seconds(made, host=100.0, compute=1.0, communication=1.0))
    assert found.step_s == 301.0
    assert lower_bound(made, seconds(made, host=100.0)) == 300.0


def test_bytes_are_in_flight_from_issue_to_wait() -> None:
    made = graph(
        ("gather", "w1", "f1"),
        ("gather", "w2", "f2"),
        ("wait", "f1", "g1"),
        ("wait", "f2", "g2"),
        sizes={"f1": 100, "f2": 20},
    )
    found = simulate(made, seconds(made))
    assert found.in_flight_bytes.tolist() == [100, 120, 20, 0]
    assert found.in_flight_peak_bytes == 120


def test_a_collective_without_compute_before_its_wait_is_counted() -> None:
    made = graph(*ONE, ("gather", "w2", "f2"), ("other", "y", "z"), ("wait", "f2", "g2"))
    report = issue_order(made)
    assert (report.collectives, report.without_compute, report.distances) == (2, 1, (0, 1))


def test_a_program_without_collectives_has_no_overlap() -> None:
    assert overlap(graph(("matmul", "x", "y")), ranks=8) is None


@pytest.mark.parametrize(("name", "factor"), [("gather.all_gather", 1), ("reduce.all_reduce", 2)])
def test_a_gather_sends_all_but_one_shard_and_an_all_reduce_twice_as_much(name: str, factor: int) -> None:
    machine = dataclasses.replace(MACHINES["H100"], latency_s=0.0, link_bytes_per_s=1.0)
    made = graph((name, "w", "f"), sizes={"w": 100, "f": 800})
    assert costs(made, machine, ranks=8).communication_s[0] == pytest.approx(factor * 700.0)


def test_half_precision_runs_at_its_own_rate() -> None:
    made = graph(("matmul", "x", "y"))
    made = dataclasses.replace(
        made,
        statements=dataclasses.replace(made.statements, flops=np.asarray([10**12])),
        values=dataclasses.replace(made.values, dtype=("thunder.dtypes.bfloat16",) * len(made.values)),
    )
    assert costs(made, MACHINES["H100"], ranks=8).compute_s[0] == pytest.approx(1 / 989)


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Graph, StatementSeconds]:
    """Draw a chain of matmuls and random durations. A matmul reads a gather that is issued anywhere before its wait."""
    count = draw(st.integers(1, 6))
    slots = [draw(st.integers(0, i)) for i in range(count)]
    lines: list[tuple[str, str, str]] = []
    for at in range(count):
        issued = draw(st.permutations([i for i in range(count) if slots[i] == at]))
        lines += [("gather", f"w{i}", f"f{i}") for i in issued]
        lines.append(("wait", f"f{at}", f"g{at}"))
        lines.append(("matmul", f"{'x' if at == 0 else f'y{at - 1}'} g{at}", f"y{at}"))
    made = graph(*lines)
    some = st.floats(0.0, 10.0)
    kinds = made.statements.kind
    return made, StatementSeconds(
        np.asarray([draw(st.floats(0.0, 1.0)) for _ in kinds]),
        np.asarray([draw(some) if kind == Kind.OP else 0.0 for kind in kinds]),
        np.asarray([draw(some) if kind == Kind.COLLECTIVE else 0.0 for kind in kinds]),
    )


@given(schedules())
def test_no_schedule_beats_the_lower_bound(given_: tuple[Graph, StatementSeconds]) -> None:
    made, cost = given_
    assert lower_bound(made, cost) <= simulate(made, cost).step_s + 1e-9


@given(schedules())
def test_every_stream_does_one_thing_at_a_time(given_: tuple[Graph, StatementSeconds]) -> None:
    found = simulate(*given_)
    for stream in ("host", COMPUTE, COMMUNICATION):
        bars = [bar for bar in found.bars if bar.stream == stream]
        assert all(one.end_s <= other.start_s + 1e-12 for one, other in itertools.pairwise(bars))
    assert found.exposed_communication_s <= found.idle_compute_s + 1e-9 <= found.step_s + 1e-9


def test_measured_kernel_times_replace_the_machines_rates() -> None:
    """Measured kernel times apply in all orders. Times of collectives are still computed from the machine's rates."""
    made = graph(("gather", "w", "f"), ("early", "x", "z"), ("wait", "f", "g"), ("matmul", "z g", "y"))
    machine = MACHINES["H100"]
    names, took_s = made.statements.name, [1e-6, 0.25, 1e-6, 0.5]
    found = costs(made, machine, 8, calibrate(made, names, took_s, step_s=1.0))
    assert found.compute_s.tolist() == [0.0, 0.25, 0.0, 0.5]
    assert np.array_equal(found.communication_s, costs(made, machine, 8).communication_s)

    later = graph(("early", "x", "z"), ("gather", "w", "f"), ("wait", "f", "g"), ("matmul", "z g", "y"))
    again = costs(later, machine, 8, calibrate(made, names, took_s, step_s=1.0))
    assert again.compute_s.tolist() == [0.25, 0.0, 0.0, 0.5]
    simulated = overlap(later, 8, machine, calibrate(made, names, took_s, step_s=1.0))
    assert simulated is not None
    assert simulated.simulation.step_s >= 0.75
