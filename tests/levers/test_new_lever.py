"""A single file can add a lever. The new lever appears in the sites, the config, the command line and the app."""

from __future__ import annotations

import importlib
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench
from workbench.bench import Workbench
from workbench.cli import main
from workbench.compiler import api
from workbench.compiler.planner.plan import Plan
from workbench.core.lever import unregister
from workbench.errors import ChoiceError, PlanError
from workbench.ui.app.app import App

TOY = '''
"""Lever `toy`: keep each tanh, pass it through a shallow copy, or negate it twice, which no rule of the proof allows.

The setting `toy.free` decides when the forward frees its values. A replanner applies this setting to the split traces.
"""

from workbench.compiler.planner.planner import plan_of_edited_split
from workbench.compiler.interop.thunder_api import BoundSymbolTag, TraceTag, from_trace, prims, tracectx
from workbench.core.lever import Lever, Setting, Site, register


def _tanhs(context):
    for bsym in context.claimed.bound_symbols:
        if bsym.sym.name == "tanh" and BoundSymbolTag.BACKWARD not in bsym.tags:
            yield f"toy:{context.value_id(bsym.output.name)}", bsym


def _freed(trace, choices):
    if choices.get("toy.free") != "late" or TraceTag.BACKWARD in trace.tags:
        return trace
    edited = from_trace(trace)
    *statements, returned = trace.bound_symbols
    gone = [bsym for bsym in statements if bsym.sym.id is prims.PrimIDs.DEL]
    edited.bound_symbols = [bsym for bsym in statements if bsym not in gone] + gone + [returned]
    return edited


class FromSplit:
    """Replanner that moves the deletions in the forward of an existing plan, without another fusion or split."""

    def __init__(self, *before):
        self.before = before

    def plan(self, choices, begun):
        plan, context, outcome = self.before
        split = _freed(plan.split.forward, choices), plan.split.backward
        return plan_of_edited_split(plan, context, outcome, choices, split, begun)


@register
class Toy(Lever):
    """Keep each tanh, hand it on by a shallow copy, or negate it twice."""

    name = "toy"
    title = "Toy"

    def settings(self):
        return (
            Setting(name="all", label="every tanh", default="keep", options=("keep", "hand_on", "negate")),
            Setting(name="free", label="memory of the forward", default="at_once", options=("at_once", "late")),
        )

    def after_split(self, trace, choices, context, outcome):
        return _freed(trace, choices), outcome

    def quick(self, choices):
        return [id for id in choices if id == "toy.free"]

    def replanner(self, plan, context, outcome):
        return FromSplit(plan, context, outcome)

    def sites(self, context, choices, outcome):
        found = []
        for id, bsym in _tanhs(context):
            label, source = context.describe(bsym.output.name)
            choice = choices.get(id, choices.get("toy.all", "keep"))
            found.append(
                Site(
                    id=id,
                    lever=self.name,
                    label=label,
                    source=source,
                    options=("keep", "hand_on", "negate", "forget"),
                    choice=choice,
                    outcome=choice,
                    default=choices.get("toy.all", "keep"),
                    illegal={"forget": "the program needs it"},
                    values=(bsym.output.name,),
                )
            )
        return found

    def before_fusion(self, trace, choices, context):
        ids = {bsym.output.name: id for id, bsym in _tanhs(context)}
        edited = from_trace(trace)
        edited.names = set(trace.names)
        for bsym in trace.bound_symbols:
            id = next((ids[out.name] for out in bsym.flat_proxy_outs if out.name in ids), None)
            option = "keep" if id is None else choices.get(id, choices.get("toy.all", "keep"))
            if option == "keep":
                edited.bound_symbols.append(bsym)
                continue
            with tracectx(edited):
                made, back = (bsym.output.replace_name(f"toy{i}_{bsym.output.name}") for i in range(2))
            edited.bound_symbols.append(bsym.from_bsym(output=made))
            if option == "hand_on":
                edited.bound_symbols.append(prims.shallow_copy.bind(made, output=bsym.output))
                continue
            edited.bound_symbols.append(prims.neg.bind(made, output=back))
            edited.bound_symbols.append(prims.neg.bind(back, output=bsym.output))
        return edited
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Write a file that registers a new lever, and import it."""
    (tmp_path / "toy_lever.py").write_text(textwrap.dedent(TOY))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("toy_lever")
    yield
    unregister("toy")
    del sys.modules["toy_lever"]


@pytest.fixture
def bench(toy: None) -> Workbench:
    return workbench.open("residual_chain", layers=2, grad=True, device="cpu", executor="torch")


def place(bench: Workbench) -> str:
    return next(site.id for site in bench.sites("toy") if ":" in site.id)


def statements(bench: Workbench, name: str) -> int:
    return list(bench.plan.graph.statements.name).count(name)


def test_sites_of_a_new_lever_are_listed(bench: Workbench) -> None:
    ids = [site.id for site in bench.sites("toy")]
    assert "toy.all" in ids
    assert "toy.free" in ids
    assert len(ids) == 6
    with pytest.raises(ChoiceError, match="the program needs it"):
        bench.choose({place(bench): "forget"})


def test_a_choice_of_a_new_lever_changes_the_plan_and_undo_restores_the_plan(bench: Workbench) -> None:
    before, shallow_copies = bench.plan.text(), statements(bench, "shallow_copy")
    moved = bench.choose({"toy.all": "hand_on"})
    assert len(moved.changed) >= 5
    assert statements(bench, "shallow_copy") == shallow_copies + 4
    bench.undo()
    assert bench.plan.text() == before


def test_rewrites_of_a_new_lever_are_proven_or_refused(bench: Workbench) -> None:
    bench.choose({"toy.all": "hand_on"})
    assert bench.plan.proof.proven
    assert "shallow copy" in bench.plan.proof.rules
    with pytest.raises(PlanError, match=r"residual_chain\.py:\d+ .*tanh"):
        bench.choose({"toy.all": "negate"})
    assert bench.choices == {"toy.all": "hand_on"}


def test_a_quick_change_of_a_new_lever_equals_a_full_replan(bench: Workbench) -> None:
    bench.choose({"toy.all": "hand_on"})
    before = bench.plan
    bench.choose({"toy.free": "late"})
    anew, _ = api.replan(bench._captured, bench.choices)
    assert "edit" in {stage.name for stage in anew.stages}
    assert "edit" not in {stage.name for stage in bench.plan.stages}
    assert bench.plan.text() == anew.text() != before.text()
    assert bench.plan.sites == anew.sites
    assert (bench.plan.timeline.live_bytes == anew.timeline.live_bytes).all()
    assert (bench.plan.timeline.live_bytes > before.timeline.live_bytes).any()
    assert bench.plan.counts == anew.counts
    assert bench.plan.proof.proven


def test_if_no_lever_predicts_a_choice_the_bench_plans_the_choice(bench: Workbench) -> None:
    saved = {site.id: "recompute" for site in bench.sites("saved") if "recompute" in site.options}
    assert not isinstance(bench.predict(saved), Plan)
    assert isinstance(bench.predict({"toy.all": "hand_on"}), Plan)
    assert isinstance(bench.predict({**saved, "toy.all": "hand_on"}), Plan)


def test_choices_of_a_new_lever_are_exported_and_replayed(bench: Workbench, tmp_path: Path) -> None:
    bench.choose({place(bench): "hand_on"})
    config = workbench.load(bench.export(tmp_path / "choices.py"))
    assert config.choices == {place(bench): "hand_on"}
    function, args, _ = bench.program.build()
    torch.testing.assert_close(config.jit(function)(*args), function(*args))
    again = workbench.open("residual_chain", layers=2, grad=True, device="cpu", executor="torch", config=config)
    assert list(again.plan.graph.statements.name) == list(bench.plan.graph.statements.name)


def test_the_command_line_makes_choices_of_a_new_lever(bench: Workbench, capfd: pytest.CaptureFixture[str]) -> None:
    program = ["residual_chain", "--set", "layers=2", "--set", "grad=true", "--device", "cpu", "--executor", "torch"]
    with pytest.raises(SystemExit) as ended:
        main(["plan", *program, "--choose", f"{place(bench)}=hand_on", "--sites", "toy", "--json"])
    assert ended.value.code == 0
    sites = {site["id"]: site for site in json.loads(capfd.readouterr().out)["sites"]}
    assert sites[place(bench)]["choice"] == "hand_on"
    assert sites[place(bench)]["illegal"] == {"forget": "the program needs it"}


def test_the_app_shows_and_changes_choices_of_a_new_lever(bench: Workbench) -> None:
    app = App(bench)
    try:
        app.graph._receive(None, {"type": "turn", "id": place(bench)}, [])
        assert app.choosing.settle(120)
        assert bench.choices == {place(bench): "hand_on"}
        app.graph.selected = place(bench)
        shown: dict[str, Any] = {site["id"]: site for site in app.inspector.content["sites"]}
        options = {option["name"]: option for option in shown[place(bench)]["options"]}
        assert options["hand_on"]["current"]
        assert options["forget"]["reason"] == "the program needs it"
    finally:
        app.close()
