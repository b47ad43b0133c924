"""A choice changes few segments, and results that are stored with a segment are used only where they are valid."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import workbench
from tests.needs import needs_nvfuser
from workbench.analysis.equivalence import value_numbering
from workbench.analysis.equivalence.prove import Prover, prove
from workbench.compiler import api
from workbench.compiler.memory import views_and_writes
from workbench.compiler.memory.views_and_writes import FactsCache, trace_facts
from workbench.compiler.trace.segments import SegmentTable

pytestmark = needs_nvfuser


def bench_of(layers: int) -> workbench.Workbench:
    return workbench.open("llama", layers=layers, device="planned", executor="nvfuser")


def recomputable(bench: workbench.Workbench) -> list[str]:
    return [site.id for site in bench.sites("saved") if "recompute" in site.options and "recompute" not in site.illegal]


@pytest.mark.slow
@pytest.mark.parametrize("before", ["recompute", "offload"])
def test_a_second_choice_reads_and_numbers_only_the_segments_that_changed(
    before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    numbered: list[int] = []
    visit, number = views_and_writes._StorageWalk.visit, value_numbering.ValueNumbering._number_rows

    def counted_visit(self: Any, segment: Any) -> Any:
        read.append(len(segment.bsyms))
        return visit(self, segment)

    def counted_number(self: Any, begin: int, end: int) -> None:
        numbered.append(end - begin)
        number(self, begin, end)

    bench = bench_of(6)
    able, second = recomputable(bench), recomputable(bench)[-10]
    first = {able[10]: "recompute"} if before == "recompute" else {id: "offload" for id in able[::5] if id != second}
    bench.plan_under(first)
    monkeypatch.setattr(views_and_writes._StorageWalk, "visit", counted_visit)
    monkeypatch.setattr(value_numbering.ValueNumbering, "_number_rows", counted_number)
    plan = bench.plan_under({**first, second: "recompute"})
    statements = sum(len(trace.bound_symbols) for trace in (plan.split.forward, plan.split.backward))
    assert 0 < sum(read) < statements / 2
    assert 0 < sum(numbered) < len(plan.graph.statements) / 2
    assert plan.proof.proven


@pytest.mark.slow
def test_blocks_with_collectives_get_the_numbers_of_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = workbench.open("fsdp_llama", layers=4, ranks=2, device="planned", executor="nvfuser")
    stock, able = bench.stock_plan.graph, recomputable(bench)
    plans = [bench.plan_under({able[at]: "recompute"}).graph for at in (0, -1)]
    bucketed = bench.plan_under({"waits.bucket": "layer"}).graph
    prover = Prover(stock)
    numbered: list[int] = []
    number = value_numbering.ValueNumbering._number_rows

    def counted_number(self: Any, begin: int, end: int) -> None:
        numbered.append(end - begin)
        number(self, begin, end)

    monkeypatch.setattr(value_numbering.ValueNumbering, "_number_rows", counted_number)
    for graph in (*plans, bucketed):
        numbered.clear()
        of_blocks = prover._number_graph(graph)
        assert graph is bucketed or sum(numbered) < len(graph.statements) / 2
        assert of_blocks == prover._number_graph(dataclasses.replace(graph, blocks=None))
        assert len(of_blocks.rows) == len(of_blocks.reads) == len(graph.statements)


def test_effects_of_a_segment_are_not_reused_if_its_inputs_share_memory_in_another_way() -> None:
    captured = bench_of(1)._captured
    assert isinstance(captured, api.Capture)
    trace, arguments = captured.context.claimed, captured.context.arguments
    names = list(arguments)
    one, other = next(
        (a, b)
        for a in names
        for b in names
        if a < b and arguments[a].shape == arguments[b].shape and arguments[a].stride() == arguments[b].stride()
    )
    segments, cache = SegmentTable().cut(trace), FactsCache()
    for given in (arguments, {**arguments, other: arguments[one]}, arguments):
        expected = trace_facts(trace, cache=cache, arguments=given)
        found = trace_facts(trace, cache=cache, arguments=given, segments=segments)
        assert (found.storage_of, found.strides, found.views) == (expected.storage_of, expected.strides, expected.views)
        assert (found.storage_bytes, found.root) == (expected.storage_bytes, expected.root)
        tensors = [[facts.tensor_of[name] for name in facts.storage_of] for facts in (found, expected)]
        assert views_and_writes._equal_groups(tensors[0]) == views_and_writes._equal_groups(tensors[1])


def test_a_graph_with_edited_statements_is_not_proven_from_its_old_blocks() -> None:
    stock = bench_of(1).stock_plan.graph
    statements = stock.statements
    row = int(np.flatnonzero(statements.parent < 0)[-1])
    edited = list(statements.computes)
    edited[row] = edited[row].replace("(", "(7, ", 1)
    mutant = dataclasses.replace(stock, statements=dataclasses.replace(statements, computes=tuple(edited)))
    assert mutant.blocks is stock.blocks
    assert prove(stock, stock).proven
    assert not prove(stock, mutant).proven
