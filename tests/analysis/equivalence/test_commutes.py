"""`commutes` accepts an order only if no statement moves past a statement that it depends on or affects."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

import workbench as wb
from tests.analysis.small_graphs import graph
from workbench.analysis.equivalence.commutes import commutes
from workbench.analysis.equivalence.prove import Prover
from workbench.analysis.graphs.reorder_graph import reorder_graph, top_rows, with_members
from workbench.core.graph import Graph, Kind, StatementFlag, ValueFlag

TRIES = 60
ORDERS = {
    "fsdp_llama": {"layers": 1, "ranks": 2, "device": "planned", "executor": "torch"},
    "ddp_llama": {"layers": 1, "ranks": 2, "device": "planned", "executor": "torch"},
    "adam": {"device": "cpu", "executor": "torch"},
    "dropout_mlp": {"device": "cpu", "executor": "torch"},
    "residual_chain": {"layers": 2, "grad": True, "device": "cpu", "executor": "torchcompile"},
}


def shuffled(of: Graph, drawn: random.Random, moves: int) -> np.ndarray:
    """Return the rows of statements after `moves` random moves by up to three places, each inside one trace."""
    top = top_rows(of).tolist()
    for _ in range(moves):
        at = drawn.randrange(len(top))
        to = min(max(at + drawn.choice((-3, -2, -1, 1, 2, 3)), 0), len(top) - 1)
        if of.statements.side[top[at]] == of.statements.side[top[to]]:
            top.insert(to, top.pop(at))
    return with_members(of, top)


@pytest.mark.slow
@pytest.mark.parametrize("program", ORDERS)
def test_an_order_that_commutes_is_proven_and_some_orders_do_not_commute(program: str) -> None:
    of = wb.open(program, **ORDERS[program]).stock_plan.graph
    prover, drawn, found = Prover(of), random.Random(3), [0, 0]
    for _ in range(TRIES):
        rows = shuffled(of, drawn, drawn.choice((1, 1, 2, 4)))
        commuting = commutes(of, rows)
        found[commuting] += 1
        if commuting:
            assert prover.prove(reorder_graph(of, rows)).proven
    assert min(found) > 0


def kinds(of: Graph, given: dict[str, Kind], flags: dict[str, StatementFlag] | None = None) -> Graph:
    """Return a graph in which the named statements have other kinds and additional flags."""
    statements = of.statements
    kind, flag = statements.kind.copy(), statements.flags.copy()
    for row, name in enumerate(statements.name):
        kind[row] = given.get(name, kind[row])
        flag[row] |= (flags or {}).get(name, StatementFlag.NONE)
    return dataclasses.replace(of, statements=dataclasses.replace(statements, kind=kind, flags=flag))


INPUT = {"x": ValueFlag.ARGUMENT | ValueFlag.TENSOR, "y": ValueFlag.ARGUMENT | ValueFlag.TENSOR}


def order(of: Graph, names: str) -> bool:
    """Return whether `commutes` accepts this order of the statements."""
    return commutes(of, np.asarray([of.statements.name.index(name) for name in names.split()]))


def test_a_value_is_made_before_it_is_read() -> None:
    of = graph([("a", "x", "p", ""), ("b", "y", "q", ""), ("c", "p", "r", "")], flags=INPUT)
    assert order(of, "b a c")
    assert not order(of, "c a b")


def test_no_statement_moves_past_a_write_to_an_alias_of_what_it_reads() -> None:
    lines = [
        ("view", "x", "v", ""),
        ("read", "v", "p", ""),
        ("write", "x", "w", ""),
        ("late", "v", "q", ""),
        ("z", "y", "r", ""),
    ]
    of = kinds(graph(lines, flags=INPUT, views={"v": "x", "w": "x"}), {}, {"write": StatementFlag.INPLACE})
    assert order(of, "z view read write late")
    assert not order(of, "view write read late z")
    assert not order(of, "view read late write z")


def test_random_draws_keep_their_order() -> None:
    of = graph([("a", "x", "p", ""), ("b", "x", "q", ""), ("c", "x", "r", "")], flags=INPUT)
    drawing = kinds(of, {}, {"a": StatementFlag.RANDOM, "b": StatementFlag.RANDOM})
    assert order(drawing, "c a b")
    assert not order(drawing, "b a c")


def test_a_sent_value_is_not_written_before_the_wait() -> None:
    lines = [("issue", "x", "f", ""), ("wait", "f", "g", ""), ("write", "x", "w", ""), ("other", "y", "r", "")]
    of = graph(lines, flags=INPUT, views={"w": "x", "g": "f"})
    of = kinds(of, {"issue": Kind.COLLECTIVE, "wait": Kind.WAIT}, {"write": StatementFlag.INPLACE})
    assert order(of, "issue other wait write")
    assert not order(of, "issue write wait other")
    assert not order(of, "write issue wait other")


def test_collectives_without_a_wait_keep_their_order() -> None:
    of = kinds(graph([("a", "x", "p", ""), ("b", "y", "q", "")], flags=INPUT), dict.fromkeys("ab", Kind.COLLECTIVE))
    assert order(of, "a b")
    assert not order(of, "b a")


def test_members_stay_with_their_fusion_and_statements_on_their_side() -> None:
    lines = [("a", "x", "p", ""), ("m", "x", "p", ""), ("b", "y", "q", ""), ("c", "y", "r", "")]
    of = graph(lines, flags=INPUT, parents={1: 0}, backward=3)
    assert order(of, "b a m c")
    assert not order(of, "a b m c")
    assert not order(of, "a m c b")
    assert not commutes(of, np.asarray([0, 1, 2, 2]))


def test_no_statement_moves_past_a_write_to_a_value_without_memory() -> None:
    of = graph([("a", "x", "p", ""), ("b", "y", "q", "")], flags=INPUT)
    of = dataclasses.replace(of, values=dataclasses.replace(of.values, storage=np.full(len(of.values), -1, np.int32)))
    assert order(of, "b a")
    assert not order(kinds(of, {}, {"a": StatementFlag.INPLACE}), "b a")
