"""Plans of few layers say what choices come to in all of them."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import workbench as wb
from tests.amount import amount
from workbench.bench import few as few_module
from workbench.bench.alike import Alike
from workbench.bench.few import Few, _extended, _extended_by_one
from workbench.compiler import pipeline
from workbench.compiler.hooks import Superseded
from workbench.compiler.later import Later
from workbench.compiler.shortened import Run, shortened
from workbench.errors import ChoiceError

pytestmark = pytest.mark.slow

LAYERS = 20
SHAPES = {"dim": 64, "heads": 2, "hidden": 96, "vocab": 96, "sequence": 32, "dtype": "bfloat16", "device": "planned"}
_LAYER = re.compile(r"(?P<stem>\w+:layers\.)(?P<number>\d+)(?P<rest>[./].*)")


@pytest.fixture(scope="module")
def bench() -> wb.Workbench:
    return wb.open("llama", layers=LAYERS, executor="nvfuser", **SHAPES)


@pytest.fixture
def stock(bench: wb.Workbench) -> Iterator[wb.Workbench]:
    yield bench
    while bench.can_undo:
        bench.undo()


def kinds(bench: wb.Workbench) -> list[tuple[str, str]]:
    """Each kind of choice, as one in the third layer."""
    return [
        (site.id, option)
        for site in bench.plan.sites
        if site.values and (found := _LAYER.fullmatch(site.id)) and found["number"] == "2"
        for option in site.options
        if option != site.choice and option not in site.illegal
    ]


def in_layers(bench: wb.Workbench, id: str, option: str, layers: Any = range(LAYERS)) -> dict[str, str]:
    """A choice in some layers, as far as they have it."""
    found = _LAYER.fullmatch(id)
    assert found is not None
    ids = [f"{found['stem']}{layer}{found['rest']}" for layer in layers]
    sites = [site for id in ids if (site := bench.plan.site_of.get(id))]
    return {site.id: option for site in sites if option in site.options and option not in site.illegal}


def moved(bench: wb.Workbench, choices: dict[str, str]) -> tuple[int, int]:
    """What further choices come to by their plan."""
    now, then = bench.plan, bench.plan_under({**bench.choices, **choices})
    return then.peak_bytes - now.peak_bytes, then.saved_bytes - now.saved_bytes


def estimated(bench: wb.Workbench, choices: dict[str, str]) -> tuple[int, int] | None:
    found = Few(bench._captured, Alike()).estimate(bench.plan, bench.choices, choices)
    return (found.peak_bytes, found.saved_bytes) if found is not None else None


@pytest.mark.parametrize("longer", ["", "layers."])
def test_a_program_without_layers_in_its_middle_is_the_program_of_fewer_layers(
    bench: wb.Workbench, longer: str
) -> None:
    captured = bench._captured
    few = shortened(captured.stage, longer)
    assert few is not None
    (run,) = few.runs
    number = 6 if longer else 5
    assert run.kept == (0, 1, 2, 3, 18, 19) if longer else (0, 1, 2, 18, 19)
    alone = {"staged": Later(lambda: few.stage), "stock": None, "bases": type(captured.bases)()}
    made = pipeline.plan(dataclasses.replace(captured, **alone), {})
    other = wb.open("llama", layers=number, executor="nvfuser", **SHAPES).plan
    assert made.proof.proven
    assert [re.sub(r"\d+", "#", name) for name in made.graph.statements.name] == [
        re.sub(r"\d+", "#", name) for name in other.graph.statements.name
    ]
    assert made.timeline.statement_peak_bytes.tolist() == other.timeline.statement_peak_bytes.tolist()
    assert (made.peak_bytes, made.saved_bytes) == (other.peak_bytes, other.saved_bytes)


def test_a_layer_stands_for_those_whose_neighbours_are_like_its_own() -> None:
    run = Run("h.", tuple(range(40)), turns=2, before=5, after=5)
    assert run.kept == (0, 1, 2, 3, 4, 35, 36, 37, 38, 39)
    assert run.left_out == 15
    stand = [run.kept[run.place(at)] for at in range(40)]
    assert stand[:6] == [0, 1, 2, 3, 4, 3]
    assert stand[35:] == [3, 4, 37, 38, 39]
    # Of the same kind, and between layers that are kept.
    assert all(at % 2 == other % 2 for at, other in enumerate(stand))
    assert set(stand[3:37]) == {3, 4}


@pytest.mark.drawn
def test_a_sketch_is_its_plan_as_far_as_memory_goes(bench: wb.Workbench) -> None:
    drawn, captured = random.Random(5), bench._captured
    for id, option in drawn.sample(kinds(bench), amount(4, 10, 40)):
        layers = drawn.choice([[3], [0, 9], range(LAYERS)])
        choices = in_layers(bench, id, option, layers)
        try:
            made = pipeline.plan(captured, choices)
        except ChoiceError:
            with pytest.raises(ChoiceError):
                pipeline.sketch(captured, choices)
            continue
        sketch = pipeline.sketch(captured, choices)
        assert sketch.graph.to_json() == made.graph.to_json()
        assert sketch.timeline.statement_peak_bytes.tolist() == made.timeline.statement_peak_bytes.tolist()
        assert (sketch.saved_bytes, sketch.sites, sketch.unmatched) == (made.saved_bytes, made.sites, ())
        assert_is_without_what_is_inside_fusions(pipeline.sketch(captured, choices), made)
    assert pipeline.sketch(captured, {"saved:no.such": "save"}).unmatched == ("saved:no.such",)
    refused = next(site for site in bench.plan.sites if "recompute" in site.illegal)
    with pytest.raises(ChoiceError):
        pipeline.sketch(captured, {refused.id: "recompute"})


def assert_is_without_what_is_inside_fusions(sketch: pipeline.Sketch, made: pipeline.Plan) -> None:
    (graph, line), statements = sketch.on_top, made.graph.statements
    top = np.flatnonzero(statements.parent < 0)
    assert len(graph.statements) == len(top) < len(statements)
    assert [*graph.statements.name] == [statements.name[row] for row in top]
    for column in ("kind", "side", "origin", "flags", "transient_bytes", "flops"):
        assert getattr(graph.statements, column).tolist() == getattr(statements, column)[top].tolist(), column
    for column in ("live_bytes", "statement_peak_bytes"):
        assert getattr(line, column).tolist() == getattr(made.timeline, column)[top].tolist(), column
    for column in ("peak_bytes", "baseline_bytes", "after_bytes"):
        assert getattr(line, column) == getattr(made.timeline, column), column
    assert (sketch.saved_bytes, sketch.unmatched) == (made.saved_bytes, ())
    saved, of_plan = ({each.values.name[v] for v in each.saved()} for each in (graph, made.graph))
    assert saved == of_plan


@pytest.mark.drawn
@pytest.mark.parametrize("in_force", [0, 2])
def test_what_is_chosen_in_all_layers_comes_to_what_its_plan_does(stock: wb.Workbench, in_force: int) -> None:
    drawn, moving, said = random.Random(3), 0, 0
    if in_force:
        for id, option in drawn.sample(kinds(stock), in_force):
            stock.choose(in_layers(stock, id, option))
    few = Few(stock._captured, Alike())
    for id, option in drawn.sample(kinds(stock), amount(8, 20, 60)):
        choices = in_layers(stock, id, option)
        try:
            exact = moved(stock, choices)
        except ChoiceError:
            continue
        found = few.estimate(stock.plan, stock.choices, choices)
        if found is not None:
            said, moving = said + 1, moving + any(exact)
            assert (found.peak_bytes, found.saved_bytes) == exact, choices
            assert found.like == "plans of 5 and 6 of the 20 layers"
            assert few.known(stock.plan, choices) is found
    assert said >= 6
    assert moving >= 3


@pytest.mark.drawn
def test_one_program_says_what_two_do_or_nothing(bench: wb.Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, said = random.Random(13), 0
    programs = Few(bench._captured, Alike())._made()
    for id, option in drawn.sample(kinds(bench), amount(6, 20, 80)):
        try:
            two = _extended(programs, in_layers(bench, id, option), None)
        except ChoiceError:
            continue
        one = _extended_by_one(programs, in_layers(bench, id, option), None)
        assert one is None or one == two, (id, option)
        said += one is not None
    assert said >= 4
    # Where what a layer keeps is found otherwise than in its forward and backward.
    monkeypatch.setattr(few_module, "_kept_in", lambda *_: 0)
    assert _extended_by_one(programs, {}, None) is None
    assert _extended_by_one([*programs, programs[1]], {}, None) is None


def test_what_one_program_does_not_say_two_do(stock: wb.Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    id, option = "saved:layers.2.attention.qkv/linear", "recompute"
    choices, asked, by_one = in_layers(stock, id, option), [], _extended_by_one

    def none_of_what_is_chosen(programs: Any, chosen: Any, newer: Any) -> Any:
        asked.append(len(chosen))
        return None if chosen else by_one(programs, chosen, newer)

    monkeypatch.setattr(few_module, "_extended_by_one", none_of_what_is_chosen)
    assert estimated(stock, choices) == moved(stock, choices)
    assert asked == [0, len(choices)]
    # Where it says something else of the plan in force, it is not asked of another one.
    monkeypatch.setattr(few_module, "_extended_by_one", lambda *_: {(0, 0, 0): 0})
    assert estimated(stock, choices) == moved(stock, choices)


@pytest.mark.drawn
@pytest.mark.parametrize("in_force", [0, 3])
def test_what_is_chosen_in_one_layer_comes_to_what_its_plan_does(stock: wb.Workbench, in_force: int) -> None:
    """In any of them, the first and the last included, whatever is chosen elsewhere."""
    drawn, said, moving = random.Random(7), 0, 0
    for id, option in drawn.sample(kinds(stock), in_force):
        stock.choose(in_layers(stock, id, option, [drawn.randrange(LAYERS)]))
    few = Few(stock._captured, Alike())
    for id, option in drawn.sample(kinds(stock), amount(10, 30, 100)):
        choices = in_layers(stock, id, option, [drawn.choice([0, 1, 2, 9, 10, 18, 19])])
        if not choices or next(iter(choices)) in stock.choices:
            continue
        try:
            exact = moved(stock, choices)
        except ChoiceError:
            continue
        found = few.estimate(stock.plan, stock.choices, choices)
        if found is not None:
            said, moving = said + 1, moving + any(exact)
            assert (found.peak_bytes, found.saved_bytes) == exact, choices
    assert said >= 5
    assert moving >= 2


def test_layers_that_are_chosen_otherwise_are_taken_to_be_like_the_others_where_they_are_few(
    stock: wb.Workbench,
) -> None:
    id, option = "saved:layers.2.attention.qkv/linear", "recompute"
    elsewhere = [each for each in kinds(stock) if ".mlp" in each[0] and each[1] == "save"][:3]
    stock.choose({id: option for each in elsewhere for id, option in in_layers(stock, *each, layers=[9]).items()})
    choices = in_layers(stock, id, option)
    found = Few(stock._captured, Alike()).estimate(stock.plan, stock.choices, choices)
    assert found is not None
    assert (found.peak_bytes, found.saved_bytes) == moved(stock, choices)
    assert found.words == "plans of 5 and 6 of the 20 layers; 1 of these layers taken to be like it"
    # Six of twenty are too many.
    for layer in (4, 6, 8, 12, 14):
        stock.choose(in_layers(stock, *elsewhere[0], layers=[layer]))
    assert estimated(stock, choices) is None


def test_among_ranks_gathers_and_waits_of_left_out_layers_are_left_out() -> None:
    ranks = wb.open("fsdp_llama", device="planned", executor="nvfuser", layers=LAYERS, ranks=8)
    whole, few = ranks._captured.stage, shortened(ranks._captured.stage)
    assert few is not None
    counts = [sum("all_gather" in b.sym.name for b in stage.claimed.bound_symbols) for stage in (whole, few.stage)]
    assert counts == [3 + 7 * LAYERS, 3 + 7 * 5]
    moving = 0
    for site in ("attn.attn/linear", "mlp.fc_1/linear", "norm_2/mul.1"):
        for layers in (range(LAYERS), [0], [9]):
            choices = {f"saved:transformer.h.{layer}.{site}": "recompute" for layer in layers}
            exact = moved(ranks, choices)
            assert estimated(ranks, choices) == exact, choices
            moving += any(exact)
    assert moving >= 4


def test_of_plans_that_are_no_longer_in_force_nothing_is_kept(stock: wb.Workbench) -> None:
    few, (id, option) = Few(stock._captured, Alike()), kinds(stock)[0]
    choices, before = in_layers(stock, id, option), stock.plan
    few.estimate(before, {}, choices)
    assert few.known(before, choices) is not None
    later = dataclasses.replace(before)
    few.estimate(later, {}, choices)
    assert few.known(later, choices) is not None
    assert few.known(before, choices) is None
    assert not any(held is before for held in gc.get_referents(few._known))


def test_of_what_few_layers_do_not_say_nothing_is_said(stock: wb.Workbench) -> None:
    id, option = next(each for each in kinds(stock) if each[1] == "recompute")
    assert estimated(stock, {"no such": "site"}) is None
    assert estimated(stock, {}) is None
    # In some layers, of what reaches beyond its layer; in all that are left out, it is said.
    beyond = "saved:layers.2.attention_norm/convert_element_type"
    assert estimated(stock, in_layers(stock, beyond, "recompute", range(4, 9))) is None
    but_the_first = in_layers(stock, beyond, "recompute", range(1, LAYERS))
    assert estimated(stock, but_the_first) == moved(stock, but_the_first)
    few = Few(stock._captured, Alike())
    with pytest.raises(Superseded):
        few.estimate(stock.plan, {}, in_layers(stock, id, option), lambda: True)
    assert few.known(stock.plan, in_layers(stock, id, option)) is None
    assert few.estimate(stock.plan, {}, in_layers(stock, id, option)) is not None


class _Stack(torch.nn.Module):
    """Layers whose widths alternate, so that each is between others, or none is as any other."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        pairs = itertools.pairwise(widths)
        self.layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(a, b), torch.nn.GELU()) for a, b in pairs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.sum()


def test_kinds_that_take_turns_are_kept_together_and_others_are_not_left_out() -> None:
    turns = wb.open(_Stack([8, 16] * 22 + [8]), torch.ones(4, 8), device="planned", executor="nvfuser")
    few = shortened(turns._captured.stage)
    assert few is not None
    assert [(run.turns, len(run.kept)) for run in few.runs] == [(2, 10)]
    choices = {site.id: "recompute" for site in turns.plan.sites if site.lever == "saved" and ".1/" in site.id}
    choices = {id: option for id, option in choices.items() if option not in turns.site(id).illegal}
    assert estimated(turns, choices) == moved(turns, choices)
    differing = wb.open(_Stack(list(range(8, 32))), torch.ones(4, 8), device="planned", executor="nvfuser")
    assert shortened(differing._captured.stage) is None
    id = next(site.id for site in differing.plan.sites if site.lever == "saved" and "recompute" not in site.illegal)
    assert estimated(differing, {id: "recompute"}) is None
