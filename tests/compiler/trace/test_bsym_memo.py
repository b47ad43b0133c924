"""Under random choices, plans that reuse statements of earlier plans from a memo equal plans without a memo."""

from __future__ import annotations

import dataclasses
import functools
import random
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import workbench
from tests.trial_counts import beyond, combined
from workbench.analysis.equivalence.terms import Terms
from workbench.analysis.equivalence.value_numbering import ValueNumbering
from workbench.compiler import api
from workbench.compiler.fastpath import final_claim as last_pass_module
from workbench.compiler.fastpath.final_claim import claim_operators
from workbench.compiler.fastpath.split import split
from workbench.compiler.fusion import executors as fusion
from workbench.compiler.fusion import fusion_passes
from workbench.compiler.fusion.fusion_passes import MemoizedPasses, Regions
from workbench.compiler.interop.thunder_api import (
    Region,
    _transform_for_operator_executor_execution,
    dead_code,
    from_trace,
    last_backward_traces,
    last_traces,
    split_into_forward_and_backward,
    utils,
)
from workbench.compiler.pipeline import compilation
from workbench.compiler.trace.bsym_memo import PLANS, PlanMemo, Structure, ids, made_names, names_in, structure_of
from workbench.compiler.trace.stable_ids import is_statement
from workbench.core.graph import Graph
from workbench.errors import ChoiceError

SETS = 8

pytestmark = pytest.mark.slow


def outcome(make: Callable[[], Any]) -> list[Any] | str:
    """Make a plan and return its tables and figures. If a choice is refused, return the message."""
    try:
        plan = make()
    except ChoiceError as error:
        return str(error)
    assert_blocks_change_no_number(plan.graph)
    return [plan.text(), plan.graph.to_json(), plan.sites, plan.counts, plan.census, plan.peak_bytes, plan.proof]


def assert_blocks_change_no_number(graph: Graph) -> None:
    """Assert that numbering block by block, also from stored results, gives the numbers of numbering row by row."""
    terms = Terms()
    whole = dataclasses.replace(graph, blocks=None)
    expected, first, again = (ValueNumbering(terms, each, drops_casts=True).result() for each in (whole, graph, graph))
    assert first == again == expected


def random_choices(bench: workbench.Workbench, draw: random.Random) -> dict[str, str]:
    """Return random legal choices for one to six sites, of all levers."""
    able = [site for site in bench.stock_plan.sites if len(site.options) > 1]
    found = {}
    for site in draw.sample(able, draw.randint(1, 6)):
        legal = [option for option in site.options if option not in site.illegal]
        found[site.id] = draw.choice(legal)
    return found


@pytest.mark.parametrize(
    ("program", "settings", "device", "executor"),
    beyond(
        2,
        [
            ("residual_chain", {"layers": 4, "grad": True}, "cpu", "torchcompile"),
            ("adam", {}, "planned", "nvfuser"),
            ("llama", {"layers": 1, "kv_heads": 2}, "planned", "nvfuser"),
            ("dropout_mlp", {"layers": 3}, "planned", "nvfuser"),
            ("mlp", {"layers": 3}, "cpu", "torch"),
        ],
        rows=True,
    ),
)
def test_a_plan_after_other_plans_equals_the_plan_without_a_memo(
    program: str, settings: dict[str, Any], device: str, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    # Let the memo hold only three plans, so that it drops entries that are then made again.
    monkeypatch.setattr("workbench.compiler.trace.bsym_memo.PLANS", 3)
    monkeypatch.setattr(compilation, "claim_operators", functools.partial(held_to_thunders, passes))
    monkeypatch.setattr(compilation, "split", split_held_to_thunders)
    bench, other = (workbench.open(program, device=device, executor=executor, **settings) for _ in range(2))
    captured = other._captured
    assert isinstance(captured, api.Capture)
    draw, planned = random.Random(7), 0
    for _ in range(SETS):
        choices = random_choices(bench, draw)
        planned_alone = dataclasses.replace(captured.planned, bases=OrderedDict(), prover=None)
        alone = dataclasses.replace(captured, kept=PlanMemo(), planned=planned_alone)
        expected = outcome(functools.partial(api.plan, alone, choices))
        assert outcome(functools.partial(bench.plan_under, choices)) == expected
        planned += not isinstance(expected, str)
    assert planned >= SETS // 2
    assert len(passes) > SETS


def test_statements_that_a_choice_does_not_touch_are_partitioned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = workbench.open("llama", layers=1, device="planned", executor="nvfuser")
    partitioned: list[int] = []
    cut: list[int] = []
    partition, rematerialize = MemoizedPasses.partition, fusion.rematerialize

    def counted(self: Any, trace: Any) -> Any:
        partitioned.append(len(trace.bound_symbols))
        return partition(self, trace)

    def counted_too(trace: Any, *others: Any) -> Any:
        cut.append(len(trace.bound_symbols))
        return rematerialize(trace, *others)

    monkeypatch.setattr(MemoizedPasses, "partition", counted)
    monkeypatch.setattr(fusion, "rematerialize", counted_too)

    def planned(lever: str, option: str) -> None:
        site = next(s for s in bench.stock_plan.sites if s.lever == lever and s.values and option not in s.illegal)
        bench.plan_under({site.id: option})

    planned("saved", "offload")
    assert (len(partitioned), len(cut)) == (0, 0)
    planned("remat", "save")
    assert (len(partitioned), len(cut)) == (0, 1)
    planned("saved", "recompute")
    assert (len(partitioned), len(cut)) == (1, 2)


def statements(trace: Any) -> list[Any]:
    """Return the lines of a trace, and the tags and source location of each statement."""
    lines = [line for line in str(trace).splitlines() if not line.startswith("# Constructed")]
    return lines + [(set(b.tags), b.source_filename, b.source_positions) for b in trace.bound_symbols]


def without_names(trace: Any) -> list[Any]:
    """Return `statements`, in which the number of its first appearance replaces each name of a value."""
    numbers: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"#{len(numbers)}") if found[0] in trace.names else found[0]

    found = statements(trace)
    # Remove line breaks, whose places depend on the length of names.
    text = re.sub(r"\\\n *", "", "\n".join([one for one in found if isinstance(one, str)]))
    return [re.sub(r"[A-Za-z_]\w*", number, text), [one for one in found if not isinstance(one, str)]]


def split_held_to_thunders(trace: Any, kept: PlanMemo | None) -> Any:
    """Run the workbench's split. Assert that both traces, with all names, equal those of Thunder's split."""
    theirs = split_into_forward_and_backward(trace)
    ours = split(trace, kept)
    for one, other in zip(ours, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert statements(one) == statements(other)
            assert (one.names, one.name_ctr, one.tags) == (other.names, other.name_ctr, other.tags)
            assert [proxy.name for proxy in one.bound_symbols[-1].flat_proxy_args] == [
                proxy.name for proxy in other.bound_symbols[-1].flat_proxy_args
            ]
    return ours


def held_to_thunders(passes: list[int], trace: Any, executors: Sequence[Any], kept: PlanMemo | None) -> Any:
    """Run the workbench's last pass. Assert that its trace equals that of Thunder's last pass, except for names."""
    own = from_trace(trace)
    own.names, own.bound_symbols = set(trace.names), list(trace.bound_symbols)
    theirs = _transform_for_operator_executor_execution(own, executors)
    ours = claim_operators(trace, executors, kept)
    assert without_names(ours) == without_names(theirs)
    assert ours.names >= {name for bsym in ours.bound_symbols for name in names_in(bsym)}
    passes.append(len(ours.bound_symbols))
    return ours


def test_if_the_last_pass_finds_an_unknown_statement_thunders_pass_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = workbench.open("mlp", layers=1, device="cpu")

    def unknown(*_: Any) -> Any:
        raise last_pass_module._UnsupportedStatementError

    monkeypatch.setattr(last_pass_module._ClaimWalk, "_executed_form", unknown)
    passes: list[int] = []
    monkeypatch.setattr(compilation, "claim_operators", functools.partial(held_to_thunders, passes))
    monkeypatch.setattr(compilation, "split", split_held_to_thunders)
    site = next(s for s in bench.sites("saved") if s.values and "recompute" not in s.illegal)
    bench.choose({site.id: "recompute"})
    assert passes


def test_the_last_pass_handles_programs_that_draw_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, statements read and write the random generator's state as a number."""
    bench = workbench.open("dropout_mlp", layers=2, device="planned", executor="nvfuser")
    monkeypatch.setattr(
        last_pass_module, "_transform_for_operator_executor_execution", lambda *_: pytest.fail("Thunder's pass ran")
    )
    passes: list[int] = []
    monkeypatch.setattr(compilation, "claim_operators", functools.partial(held_to_thunders, passes))
    monkeypatch.setattr(compilation, "split", split_held_to_thunders)
    site = next(s for s in bench.sites("saved") if s.values and "recompute" not in s.illegal)
    bench.choose({site.id: "recompute"})
    assert passes


def drawn(x: torch.Tensor) -> torch.Tensor:
    half = x * 0.5
    written = half.reshape(-1)
    written.copy_(x * 2.0)
    torch.nn.functional.dropout(half + 1.0, 0.5).add_(1.0)
    return written


def test_a_statement_whose_new_names_overlap_its_old_names_is_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversion has two results. In the second plan, one result gets the name that the other had before."""
    bench = workbench.open(
        drawn, torch.randn(8, requires_grad=True), device="cpu", executor="torchcompile", capture="interpreter"
    )
    passes: list[int] = []
    monkeypatch.setattr(compilation, "claim_operators", functools.partial(held_to_thunders, passes))
    monkeypatch.setattr(compilation, "split", split_held_to_thunders)
    bench.plan_under({"copies:drawn/copy_": "out", "remat:drawn/add": "recompute"})
    assert bench.plan_under({"copies:drawn/copy_": "out"}).proof.proven
    assert len(passes) >= 2


def test_most_fusions_of_a_plan_are_reused_from_the_plan_before() -> None:
    bench = workbench.open("llama", layers=3, device="planned", executor="nvfuser")
    able = [s for s in bench.sites("saved") if "recompute" in s.options and "recompute" not in s.illegal]

    before = fusions(bench.plan)
    bench.choose({able[-1].id: "recompute"})
    after = fusions(bench.plan)
    assert set(map(structure_of, after)) != set(map(structure_of, before))
    # For a fusion that the choice does not change, both plans have the same statement objects.
    kept = {ids(bsym.subsymbols) for bsym in after} & {ids(bsym.subsymbols) for bsym in before}
    assert len(kept) > len(after) / 2


def test_a_new_fusion_changes_the_names_of_later_fusions_only_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, other = (workbench.open("llama", layers=5, device="planned", executor="nvfuser") for _ in range(2))
    passed: list[str] = []
    stock = fusion_passes._remove_fusion_casts

    def noted(bsym: Any, *given: Any) -> Any:
        passed.append(bsym.sym.name)
        return stock(bsym, *given)

    able = [s for s in bench.sites("saved") if "recompute" in s.options and "recompute" not in s.illegal]
    before = [bsym.sym.name for bsym in fusions(bench.plan)]
    # Several sites of the first layer add a fusion. Take the first that does.
    for site in able:
        monkeypatch.setattr(fusion_passes, "_remove_fusion_casts", noted)
        passed.clear()
        plan = bench.plan_under({site.id: "recompute"})
        monkeypatch.undo()
        after = [bsym.sym.name for bsym in fusions(plan)]
        if len(after) > len(before):
            break
    assert len(after) > len(before) > 3 * len(passed)
    planned_alone = dataclasses.replace(other._captured.planned, bases=OrderedDict(), prover=None)
    alone = dataclasses.replace(other._captured, kept=PlanMemo(), planned=planned_alone)
    expected = outcome(lambda: api.plan(alone, {site.id: "recompute"}))
    assert outcome(lambda: bench.plan_under({site.id: "recompute"})) == expected


@pytest.mark.parametrize(
    ("case", "executor"),
    combined(
        [("llama", {"layers": 3}), ("adam", {"parameters": 3}), ("residual_chain", {"layers": 5, "grad": True})],
        ["nvfuser", "torchcompile"],
    ),
)
def test_a_region_is_fused_like_another_region_that_differs_only_in_names(
    case: tuple[str, dict[str, Any]], executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, settings = case
    device = "planned" if executor == "nvfuser" else "cpu"

    def outcomes() -> tuple[list[Any], set[Structure], int]:
        bench = workbench.open(program, device=device, executor=executor, **settings)
        draw = random.Random(0)
        made: list[Any] = [outcome(lambda: bench.plan)]
        found = [structure_of(bsym) for bsym in fusions(bench.plan)]
        for _ in range(3):
            choices = random_choices(bench, draw)
            made.append(outcome(lambda chosen=choices: api.plan(bench._captured, chosen)))  # type: ignore[misc]
        return made, set(found), len(found)

    found, alike, count = outcomes()
    monkeypatch.setattr(Regions, "structure", lambda *_: Structure())
    each, apart, _ = outcomes()
    assert found == each
    assert count == len(apart)
    # An optimizer is traced statement by statement, so equal statements for two parameters are not recognized as equal.
    assert (len(alike) < count) == (program != "adam")


def test_more_layers_do_not_add_structures_of_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    stock, stock_pass = Regions.structure, fusion_passes._remove_repeats
    found: list[Structure] = []
    searched: list[Any] = []

    def noted(self: Regions, *given: Any) -> Structure:
        found.append(stock(self, *given))
        return found[-1]

    def noted_pass(fusion: Any, redundant: Any, repeats: dict[int, int | None]) -> Any:
        searched.extend([] if repeats else [fusion])
        return stock_pass(fusion, redundant, repeats)

    monkeypatch.setattr(Regions, "structure", noted)
    monkeypatch.setattr(fusion_passes, "_remove_repeats", noted_pass)
    kinds, asked, searches = [], [], []
    for layers in (7, 9):
        found.clear()
        searched.clear()
        workbench.open("llama", layers=layers, device="planned", executor="nvfuser")
        kinds.append(len(set(found)))
        asked.append(len(found))
        searches.append(len(searched))
    assert kinds[0] == kinds[1]
    assert asked[0] < asked[1]
    assert searches[0] == searches[1] > 0


def test_the_stored_structure_of_a_fusion_equals_its_computed_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    stock, seen = fusion.known_structure, list[Structure]()

    def held(bsym: Any) -> Structure | None:
        found = stock(bsym)
        if found is not None:
            seen.append(found)
            assert bsym.sym.executor.control.regions.structure(bsym.args, bsym.output, bsym.subsymbols) is found
        return found

    monkeypatch.setattr(fusion, "known_structure", held)
    bench = workbench.open("llama", layers=7, dtype="bfloat16", device="planned", executor="nvfuser")
    assert 0 < 2 * len(set(seen)) < len(seen)
    draw = random.Random(0)
    for _ in range(3):
        choices = random_choices(bench, draw)
        outcome(lambda chosen=choices: api.plan(bench._captured, chosen))  # type: ignore[misc]


def fusions(plan: Any) -> list[Any]:
    """Return the fusions of a plan."""
    traces = [trace for trace in (plan.split.forward, plan.split.backward) if trace is not None]
    return [bsym for trace in traces for bsym in trace.bound_symbols if bsym.sym.is_fusion]


def test_memo_entries_that_recent_plans_do_not_use_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.compiler.trace.bsym_memo.PLANS", 1)
    kept, made = PlanMemo(), []

    def ask(key: object) -> Any:
        return kept.get_or_make(ids([key]), key, lambda: made.append(key) or len(made))

    a, b = object(), object()
    for asked in ([a, b], [a], [a, a], [a, b]):
        kept.begin()
        for key in asked:
            ask(key)
    assert made == [a, b, b], "b must be made again, because the last two plans did not use it"


def test_after_many_choices_the_memo_has_only_entries_of_the_last_plans() -> None:
    bench, draw, counts = workbench.open("mlp", layers=2, device="cpu"), random.Random(0), []
    kept = bench._captured.kept
    for number in range(6 * PLANS):
        site = draw.choice([site for site in bench.sites("saved") if len(site.options) > len(site.illegal) + 1])
        bench.choose({site.id: draw.choice([option for option in site.options if option not in site.illegal])})
        if number % PLANS == 0:
            counts.append(len(kept._known) + len(kept._older))
    assert max(counts[3:]) < 2 * max(counts[:3])


def test_duplicates_outside_fusions_are_found_as_in_thunder() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        one, other = x @ w, x @ w
        # The two equal products become one. Later statements use them in other ops and in another order.
        return (
            one @ w,
            other @ w,
            w @ other,
            torch.outer(x[0], w[0]),
            torch.outer(w[0], x[0]),
            torch.outer(x[0], w[0]),
        )

    bench = workbench.open(program, torch.randn(4, 4), torch.randn(4, 4), device="planned", executor="nvfuser")
    trace = bench._captured.context.claimed
    redundant: dict[Any, Any] = {}
    known: dict[Any, Any] = {}
    theirs = [
        None if left is None else (left.sym.name, [a.name for a in left.flat_proxy_args], left.output.name)
        for left in (dead_code.cse_single_bsym(redundant, known, bsym) for bsym in trace.bound_symbols[:-1])
    ]
    assert len(redundant) > 2
    ours = [
        (left.sym.name, [a.name for a in left.flat_proxy_args], left.output.name)
        for left in Regions(PlanMemo()).remove_repeats(trace).bound_symbols[:-1]
    ]
    assert ours == [each for each in theirs if each is not None]


@pytest.mark.parametrize(
    ("program", "settings"), [("llama", {"layers": 2}), ("adam", {}), ("dropout_mlp", {}), ("batch_norm", {})]
)
def test_a_cached_region_has_the_inputs_and_outputs_of_thunders_region(
    program: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    finder, held = MemoizedPasses._region_finder, list[int]()

    def checked(self: Any, segments: Any) -> tuple[Callable[[list[Any]], Any], Any]:
        (region_of, reads), bsyms = finder(self, segments), [bsym for segment in segments for bsym in segment.bsyms]
        theirs = functools.partial(Region, *utils.producers_and_consumers(bsyms))

        def compared(group: list[Any]) -> Any:
            ours, stock = region_of(group), theirs(group)
            assert (list(ours.inputs), list(ours.outputs)) == (list(stock.inputs), list(stock.outputs))
            assert ours.bound_symbols is group
            held.append(len(group))
            return ours

        return compared, reads

    monkeypatch.setattr(MemoizedPasses, "_region_finder", checked)
    bench = workbench.open(program, device="planned", executor="nvfuser", **settings)
    first, draw = len(held), random.Random(3)
    for _ in range(3):
        outcome(functools.partial(bench.plan_under, random_choices(bench, draw)))
    assert len(held) > first > 0


def looked_up(x: torch.Tensor, weight: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    rows = torch.nn.functional.embedding(tokens, weight).reshape(-1, 4)
    return torch.nn.functional.dropout(rows @ x, 0.5).reshape(-1).sum()


def test_a_run_gives_values_the_names_that_they_have_in_the_plan() -> None:
    inputs = (
        torch.randn(4, 3, requires_grad=True),
        torch.randn(5, 4, requires_grad=True),
        torch.tensor([[0, 1], [3, 4]]),
    )
    bench = workbench.open(looked_up, *inputs, device="cpu", executor="torch")
    jitted: Any = bench.config.jit(looked_up)
    jitted(*inputs).backward()
    traces = last_traces(jitted)[-1], last_backward_traces(jitted)[-1]
    run = {name for trace in traces for bsym in trace.bound_symbols if is_statement(bsym) for name in made_names(bsym)}
    graph = bench.plan.graph
    assert run == {graph.values.name[value] for value in graph.statements.outputs.items.tolist()}
