"""In a program of several graphs, each part has a plan or is opaque, and training equals eager PyTorch.

One config has the choices of all parts with plans.
"""

from __future__ import annotations

import copy
import gc
import re
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import workbench
from tests.trial_counts import beyond
from workbench.analysis.memory.multi_graph_memory import RecordedStep, StorageFreed
from workbench.bench import OpaquePart, Part, PartsBench
from workbench.compiler.frontend.graph_breaks import CompiledParts, GraphSplitter, parts_of
from workbench.compiler.interop.dynamo_cleanup import record_compiled
from workbench.compiler.interop.dynamo_patches import PROGRAM_FILE
from workbench.compiler.planner.kernel_identity import kernels_of
from workbench.errors import ChoiceError, ConfigError, ConfigWarning, PlanError, ProgramError
from workbench.interop.torch_private import eval_frame
from workbench.runs.measure import accuracy, part_times
from workbench.runs.process.request import RunOptions
from workbench.ui.app.parts_selector import PartsApp

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")

ELSEWHERE = ("part1:saved:forward/tanh", "part2:saved:forward/sin")


class Speaks(nn.Module):
    """A module with a `print`, at which the program is split into two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.up(x))
        print("half way", file=Quiet())
        return self.down(torch.sin(hidden)).sum()


class Quiet:
    """A stream that discards its text."""

    def write(self, text: str) -> int:
        return len(text)


def test_dynamo_does_not_trace_up_to_a_known_graph_break_again() -> None:
    called, keys = [], []
    # With `capture="parts"`, Dynamo does not know the graph break from an earlier trace.
    for front_end in ("parts", "auto"):
        compiled: list[CodeType] = []
        with record_compiled(compiled.append):
            bench = workbench.open(Speaks(), torch.ones(4, 6), device="cpu", capture=front_end)
        assert isinstance(bench, PartsBench)
        called.append([code.co_name for code in compiled if code.co_filename == PROGRAM_FILE])
        keys.append([part.piece.key for part in bench._parts_captured.parts])
    assert called == [["call"], []]
    assert keys[0] == keys[1]


LIBRARY = torch.library.Library("tests_parts", "DEF")
LIBRARY.define("mystery(Tensor x) -> Tensor[]")
# The workbench records no statement for this operator, because the operator returns a list.
LIBRARY.impl("mystery", lambda x: [x * 2], "CompositeImplicitAutograd")


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.tests_parts.mystery(torch.tanh(self.linear(x)))[0].sin()


class Mysterious(nn.Module):
    """A module of one Dynamo graph. Each of its two layers calls an operator that Thunder lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.sum()


def built(kind: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(5)
    return kind()


def batch(size: int = 4) -> torch.Tensor:
    return torch.randn(size, 6, generator=torch.Generator().manual_seed(size))


@pytest.fixture(scope="module")
def speaks() -> PartsBench:
    bench = workbench.open(built(Speaks), batch())
    assert isinstance(bench, PartsBench)
    return bench


@pytest.fixture(scope="module")
def mysterious() -> PartsBench:
    bench = workbench.open(built(Mysterious), batch())
    assert isinstance(bench, PartsBench)
    return bench


def assert_trains_as_eager(config: workbench.Config, kind: Callable[[], nn.Module]) -> Any:
    ours, theirs = built(kind), built(kind)
    compiled = config.jit(ours)
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.05) for module in (compiled, theirs)]
    for size in (4, 4, 7):
        losses = [module(batch(size)) for module in (compiled, theirs)]
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.testing.assert_close(*losses)
    torch.testing.assert_close(dict(compiled.named_parameters()), dict(theirs.named_parameters()))
    return compiled


def test_a_program_with_a_graph_break_opens_in_two_parts(speaks: PartsBench) -> None:
    assert (speaks.capture, speaks.config.capture) == ("parts", "parts")
    first, second = speaks.parts
    assert isinstance(first, Part)
    assert isinstance(second, Part)
    assert "test_graph_breaks.py:" in first.cut
    assert 'print("half way"' in first.cut
    assert second.cut == ""
    assert [part.plan.proof.proven for part in (first, second)] == [True, True]
    assert set(ELSEWHERE) < {site.id for site in speaks.sites("saved")}
    assert "in 2 parts" in repr(speaks)


@pytest.mark.slow
def test_opening_in_parts_does_not_change_the_model() -> None:
    class Counts(Speaks):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls = getattr(self, "calls", 0) + 1
            return super().forward(self.norm(x))

    model = built(Counts)
    before = copy.deepcopy(model.state_dict())
    assert workbench.open(model, batch()).capture == "parts"
    torch.testing.assert_close(model.state_dict(), before)
    assert not hasattr(model, "calls")


@pytest.mark.slow
def test_one_config_has_the_choices_of_all_parts_and_trains_as_eager(speaks: PartsBench, tmp_path: Path) -> None:
    stock = [part.plan.saved_bytes for part in speaks.benches]
    diff = speaks.choose(dict.fromkeys(ELSEWHERE, "recompute"))
    assert diff.saved_bytes == sum(part.plan.saved_bytes for part in speaks.benches) - sum(stock)
    assert speaks.benches[1].choices == {"saved:forward/sin": "recompute"}
    config = workbench.load(speaks.export(tmp_path / "choices.py"))
    assert config == speaks.config
    with warnings.catch_warnings(action="error", category=ConfigWarning):
        compiled = assert_trains_as_eager(config, Speaks)
        again = workbench.open(built(Speaks), batch(), config=config)
    assert len(compiled._workbench_proofs) == len(compiled._workbench_jitted) == 4  # two parts for two shapes each
    assert all(proof.proven for proof in compiled._workbench_proofs)
    assert again.choices == speaks.choices
    while speaks.can_undo:
        speaks.undo()
    assert speaks.choices == {}


def test_undo_reverts_the_last_change_of_any_part(speaks: PartsBench) -> None:
    for id in reversed(ELSEWHERE):
        speaks.choose({id: "recompute"})
    assert speaks.pinned == speaks.choices
    speaks.undo()
    assert list(speaks.choices) == [ELSEWHERE[1]]
    speaks.undo()
    assert not speaks.can_undo
    speaks.redo()
    assert list(speaks.choices) == [ELSEWHERE[1]]
    speaks.undo()


def test_choices_are_made_in_all_parts_or_in_none(speaks: PartsBench) -> None:
    with pytest.raises(ChoiceError, match="recompute"):
        speaks.choose({ELSEWHERE[0]: "recompute", "part2:saved.stage": "recompute"})
    assert speaks.choices == {}


def test_one_choose_in_several_parts_is_one_change(speaks: PartsBench) -> None:
    both = dict.fromkeys(ELSEWHERE, "recompute")
    speaks.choose(both)
    speaks.undo()
    assert (speaks.choices, speaks.can_undo) == ({}, False)
    speaks.redo()
    assert (speaks.choices, speaks.can_redo) == (both, False)
    speaks.undo()


def test_refused_choices_in_several_parts_leave_the_history_unchanged(speaks: PartsBench) -> None:
    speaks.choose({ELSEWHERE[1]: "recompute"})
    speaks.undo()
    with pytest.raises(ChoiceError, match="no site"):
        speaks.choose({ELSEWHERE[0]: "recompute", "part2:saved:nowhere": "recompute"})
    speaks.redo()
    assert speaks.choices == {ELSEWHERE[1]: "recompute"}
    speaks.undo()
    assert not speaks.can_undo


@pytest.mark.parametrize("of_part", [False, True])
def test_after_a_new_choice_in_one_part_no_part_can_redo(speaks: PartsBench, of_part: bool) -> None:
    speaks.choose({ELSEWHERE[1]: "recompute"})
    speaks.undo()
    if of_part:
        speaks.benches[0].choose({ELSEWHERE[0].partition(":")[2]: "recompute"})
    else:
        speaks.choose({ELSEWHERE[0]: "recompute"})
    assert not speaks.can_redo
    speaks.redo()
    assert speaks.choices == {ELSEWHERE[0]: "recompute"}
    speaks.undo()


def test_a_call_that_needs_a_single_plan_is_refused_with_the_parts_to_use(speaks: PartsBench) -> None:
    asked = (
        lambda: speaks.plan,
        lambda: speaks.context,
        lambda: speaks.plan_with({}),
        lambda: speaks.choose_found({}),
        lambda: speaks.fit("1 KiB"),
        lambda: speaks.save("never.plan.json"),
        speaks.worth,
        speaks.cuts,
        speaks.weigh_cuts,
    )
    for ask in asked:
        with pytest.raises(
            PlanError, match=r"Speaks has 2 parts, so it has no single .*: bench.parts\[0\], bench.parts\[1\]"
        ):
            ask()
    with pytest.raises(ChoiceError, match="ids begin with one of part1, part2"):
        speaks.choose({"saved:forward/tanh": "recompute"})


def count_values(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.bincount(x)


def test_if_pytorch_runs_the_whole_program_the_refusal_says_so() -> None:
    bench = workbench.open(count_values, torch.ones(4, dtype=torch.long))
    with pytest.raises(PlanError, match="PyTorch runs all of count_values, because no part of it can be compiled"):
        _ = bench.plan


def test_inherited_members_of_a_bench_of_parts_work_or_are_refused(speaks: PartsBench, tmp_path: Path) -> None:
    """`PartsBench` does not call `Workbench.__init__`, so it must set the state that inherited members need."""
    works: dict[str, Callable[[], Any]] = {
        "export": lambda: speaks.export(tmp_path / "choices.py"),
        "export_text": lambda: speaks.export_text("choices.py"),
        "observe": lambda: speaks.observe(list)(),
        "own_runs": lambda: speaks.own_runs,
        "parts": lambda: speaks.parts,
        "prepare": lambda: speaks.prepare(folder=tmp_path / "run"),
        "redo": speaks.redo,
        "runs": lambda: speaks.runs,
        "undo": speaks.undo,
    }
    refused = {
        "report": lambda: speaks.report(tmp_path / "page.html"),
        "torch_fit": lambda: speaks.torch_fit("80%"),
        "torch_prediction": speaks.torch_prediction,
    }
    of_any_bench = {name for name in dir(workbench.Workbench) if not name.startswith("_")}
    inherited = of_any_bench - vars(PartsBench).keys()
    assert inherited == {"run", "start", *works, *refused}  # `test_a_run_covers_all_parts` calls both
    for call in works.values():
        call()
    for call in refused.values():
        with pytest.raises(PlanError, match=r"Speaks has 2 (parts|graphs)"):
            call()
    plain = {name for name in vars(workbench.open("mlp", device="cpu", executor="torch")) if not name.startswith("_")}
    assert plain <= vars(speaks).keys()


def test_an_operator_unknown_to_thunder_is_a_part_that_pytorch_runs(mysterious: PartsBench) -> None:
    assert [part.opaque for part in mysterious.parts] == [False, True, False, True, False]
    opaque = mysterious.parts[1]
    assert isinstance(opaque, OpaquePart)
    assert "tests_parts.mystery" in opaque.refusal
    assert opaque.sites() == ()
    with pytest.raises(ChoiceError, match="part2 has nothing to choose: PyTorch runs this part unchanged"):
        mysterious.choose({"part2:saved:x": "recompute"})
    assert "part1:saved:layers.0/tanh" in {site.id for site in mysterious.sites()}
    assert "eager:" in mysterious.config.parts["part2"]


@pytest.mark.slow
def test_a_graph_that_is_split_into_parts_trains_as_eager(mysterious: PartsBench) -> None:
    chosen = {"part1:saved:layers.0/tanh": "recompute", "part3:saved:layers.1/tanh": "recompute"}
    mysterious.choose(chosen)
    assert_trains_as_eager(mysterious.config, Mysterious)
    mysterious.undo()


@pytest.mark.slow
def test_a_module_in_parts_obeys_modes_and_allows_several_forwards_before_a_backward(mysterious: PartsBench) -> None:
    ours, theirs = built(Mysterious), built(Mysterious)
    compiled = mysterious.config.jit(ours)
    for module in (compiled, theirs):
        # Run several forwards before the first backward.
        for loss in [module(batch(size)) for size in (4, 7, 4)]:
            loss.backward()
    torch.testing.assert_close(
        *({name: parameter.grad for name, parameter in module.named_parameters()} for module in (ours, theirs))
    )
    with torch.no_grad():
        torch.testing.assert_close(compiled(batch()), theirs(batch()))
        assert not compiled(batch()).requires_grad
    assert not compiled.eval().training
    assert not ours.training
    torch.testing.assert_close(compiled(batch()), theirs.eval()(batch()))


@pytest.mark.slow
def test_code_compiled_in_parts_is_freed_with_its_callable() -> None:
    model = built(Speaks)
    bench = workbench.open(model, batch())
    compiled = bench.config.jit(model)
    compiled(batch()).backward()
    gone = weakref.ref(model)
    del model, bench, compiled
    gc.collect()
    assert gone() is None


@pytest.mark.slow
def test_parts_are_planned_for_an_absent_gpu(speaks: PartsBench) -> None:
    planned = workbench.open(built(Speaks), batch(), device="planned", executor="torch")
    assert isinstance(planned, PartsBench)
    for part, here in zip(planned.benches, speaks.benches, strict=True):
        assert "cuda:0" in part.plan.text()
        assert part.plan.text().replace("cuda:0", "cpu") == here.plan.text()
    assert planned.config.parts == speaks.config.parts


@pytest.mark.slow
def test_a_run_covers_all_parts(tmp_path: Path) -> None:
    speaks = workbench.open(built(Speaks), batch())
    assert isinstance(speaks, PartsBench)
    options = RunOptions(samples=3, sampling_s=1.0)
    # The bench of a part also runs the whole program.
    run = speaks.benches[1].run(wait=True, folder=tmp_path / "run", options=options, against={"stock": {}})
    assert run.state == "done", run.error
    assert run.accuracy is not None
    assert run.accuracy.ok
    assert run.accuracy.bitwise
    assert run.memory["predicted_peak_bytes"] == pytest.approx(run.memory["measured_peak_bytes"], rel=0.01)
    assert run.memory["predicted_peak_bytes"] > speaks.largest_peak_bytes
    assert speaks.runs == (run,)
    assert "latest run  done" in repr(speaks)
    document = run.to_json()
    assert [(part["name"], part["opaque"]) for part in document["parts"]] == [("part1", False), ("part2", False)]
    assert all(part["forward_s"] > 0 and part["backward_s"] > 0 for part in document["parts"])
    assert 0 < document["coverage"]["step"] <= 1
    assert document["coverage"]["peak"] == pytest.approx(1, rel=0.01)
    assert re.search(
        r"coverage +\d+ % of the step is in planned parts \(measured\); the predicted peak is \d+ %", repr(speaks)
    )
    app = PartsApp(speaks)
    try:
        assert re.search(r"part1: forward .* and backward .*: \d+ % of a step, measured", app.told.value)
        assert "Coverage: " in app.told.value
        assert "done, compiled in" in app.told.value
        shown = app._apps["part1"]
        assert shown.controls.content["run"]["state"] == "done"
        # The run measured the whole program, so the app of a part does not show the run's figures.
        kinds = {value["kind"] for figure in shown.strip.content["figures"] for value in figure["values"]}
        assert {kind for kind in kinds if "measured" in kind} == {"not measured yet"}
    finally:
        app.close()


@pytest.mark.slow
def test_timers_distinguish_planned_parts_from_opaque_parts(mysterious: PartsBench) -> None:
    module = built(Mysterious)
    stepper = accuracy.Stepper(module, (batch(),), {}, mysterious.config.jit(module))
    stepper.step()
    names = {part.piece.key: part.name for part in mysterious._parts_captured.parts}
    compiled = parts_of(stepper.run)
    assert compiled is not None
    times = part_times.measure(stepper, compiled, names, 0.3, time.monotonic)
    assert times.names == [part.name for part in mysterious.parts]
    assert times.opaque == [part.opaque for part in mysterious.parts]
    assert all(seconds > 0 for seconds in times.forward_s)
    assert [seconds > 0 for seconds in times.backward_s] == [not part.opaque for part in mysterious.parts]
    assert 0 < times.planned_share < 1
    assert compiled.timer is None


@pytest.mark.slow
def test_parts_are_compared_with_unmodified_thunder_and_eager(mysterious: PartsBench) -> None:
    def build() -> accuracy.Parts:
        return built(Mysterious), (batch(),), {}

    module, args, kwargs = build()
    stepper = accuracy.Stepper(module, args, kwargs, mysterious.config.jit(module))
    checked = accuracy.check_first_step(accuracy.first_step(stepper, 0), build, capture="parts")
    assert checked.ok
    assert checked.against == "thunderfx and eager"


@pytest.mark.slow
def test_operators_that_pytorch_runs_count_as_changed_kernels() -> None:
    """PyTorch runs the sine here. Unmodified Thunder compiles it with Inductor, whose sine has other bits."""

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.sin(x) * x

    def build() -> accuracy.Parts:
        return scaled, (torch.randn(1000, generator=torch.Generator().manual_seed(0)),), {}

    bench = workbench.open(scaled, *build()[1])
    assert isinstance(bench, PartsBench)
    jitted = bench.config.jit(scaled)
    recorded = accuracy.first_step(accuracy.Stepper(*build(), jitted), 0)
    checked = accuracy.check_first_step(recorded, build, capture="parts", kernels=kernels_of(jitted))
    assert checked.against == "thunderfx and eager"
    assert not checked.bitwise
    assert checked.ok
    assert checked.changed_kernels == ("torch.ops.aten.sin",)


def test_the_reason_for_parts_does_not_advise_to_open_in_parts(speaks: PartsBench) -> None:
    assert "remove the call of print, input or open from the program" in speaks.capture_reason
    assert "capture=" not in speaks.capture_reason


def test_a_changed_program_is_compiled_without_choices_and_with_a_warning(speaks: PartsBench) -> None:
    class Changed(Speaks):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.tanh(self.up(x))
            print("half way", file=Quiet())
            return self.down(torch.cos(hidden)).sum()

    speaks.choose({ELSEWHERE[1]: "recompute"})
    model = built(Changed)
    with pytest.warns(ConfigWarning, match=r"test_graph_breaks.py:\d+ is not a part for which the config for 'Speaks'"):
        loss = speaks.config.jit(model)(batch())
    torch.testing.assert_close(loss, model(batch()))
    speaks.undo()


@pytest.mark.slow
def test_if_lines_move_or_shapes_change_the_keys_of_parts_stay_the_same(speaks: PartsBench) -> None:
    keys = speaks.config.parts
    assert workbench.open(built(Speaks), batch(9)).config.parts == keys

    class Speaks2(Speaks):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.tanh(self.up(x))

            print("half way, on another line", file=Quiet())

            return self.down(torch.sin(hidden)).sum()

    assert workbench.open(built(Speaks2), batch()).config.parts == keys


def test_equal_statements_between_graph_breaks_are_different_parts() -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        x = x.sin()
        print(file=Quiet())
        x = x.sin()
        print(file=Quiet())
        return x.sin()

    bench = workbench.open(twice, batch().requires_grad_())
    assert len(bench.parts) == len(set(bench.config.parts.values())) == 3
    bench.choose({"part2:saved.inputs": "cut"})
    bench.choose({"part3:order.gradients": "at once"})
    assert [part.choices for part in bench.parts] == [{}, {"saved.inputs": "cut"}, {"order.gradients": "at once"}]
    again = workbench.open(twice, batch().requires_grad_(), config=bench.config)
    assert [part.choices for part in again.parts] == [part.choices for part in bench.parts]


def test_sites_of_all_parts_can_be_released(speaks: PartsBench) -> None:
    for id in ELSEWHERE:
        speaks.choose({id: speaks.site(id).default})
    assert speaks.by_hand == {*ELSEWHERE}
    with pytest.raises(ChoiceError, match=r"given 'part1:saved:forward/tanh'"):
        speaks.release(ELSEWHERE[0])
    with pytest.raises(ChoiceError, match="part9:saved:forward/tanh"):
        speaks.release([ELSEWHERE[0], "part9:saved:forward/tanh"])
    with pytest.raises(ChoiceError, match="has no site 'saved:forward/tan'"):
        speaks.release([ELSEWHERE[1], "part1:saved:forward/tan"])
    assert speaks.by_hand == {*ELSEWHERE}
    speaks.release(ELSEWHERE)
    assert speaks.by_hand == frozenset()


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.one, self.other = nn.Parameter(torch.eye(6)), nn.Parameter(torch.eye(6))

    def on_one_line(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.exp(x @ self.one)) if x.sum() > 0 else torch.sin(torch.exp(x @ self.other))

    def by_methods(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x) if x.sum() > 0 else self.second(x)

    def of_three(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            y = self.first(x)
        elif x.sum() > 100:
            y = x
        else:
            y = self.first(x)
        return y

    def first(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.exp(self.inner(x)))

    def second(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.exp(self.inner(x)))


@pytest.mark.parametrize("name", ["on_one_line", "by_methods", "of_three"])
def test_equal_branches_have_different_keys_whichever_runs_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, stock = Branches(), GraphSplitter._key
    keys: list[str] = []
    monkeypatch.setattr(GraphSplitter, "_key", lambda *given: keys.append(stock(*given)) or keys[-1])
    found = []
    for signs in ((1, -1), (-1, 1)):
        compiled = CompiledParts(getattr(model, name), lambda piece: None)
        last = {}
        for sign in signs:
            compiled(sign * torch.ones(4, 6))
            last[sign] = keys[-1]
        found.append(last)
    assert found[0] == found[1]
    assert found[0][1] != found[0][-1]


EARLIER = """
import workbench as wb

config = wb.Config(
    format_version=1,
    program="f",
    settings={},
    device="cpu",
    executor="torch",
    ranks=1,
    capture="parts",
    parts={
        "part1": "thunder:1e422bc38157",
        "part2": "thunder:dd394a2a7e50",
    },
    choices={
        "part1:saved:f/exp": "recompute",
    },
    fingerprint="f2f2a1babe85da35",
)
"""
"""A config from before keys had functions and branches."""


def test_a_config_of_an_earlier_version_applies_to_the_same_parts(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin().exp()
        torch._dynamo.graph_break()
        return y.cos().exp().sum()

    (tmp_path / "earlier.py").write_text(EARLIER)
    config = workbench.load(tmp_path / "earlier.py")
    x = torch.randn(8, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConfigWarning)
        compiled = config.jit(f)
        compiled(x)
        bench = workbench.open(f, x, config=config)
    parts = parts_of(compiled)
    assert parts is not None
    assert (len(parts.jitted), parts.uncompiled) == (2, [])
    assert bench.choices == {"part1:saved:f/exp": "recompute"}
    assert bench.config.parts.keys() == config.parts.keys()


def test_equal_parts_that_an_earlier_config_does_not_list_stay_uncompiled() -> None:
    model = Branches()
    keys: list[str] = []
    opened = CompiledParts(model.by_methods, lambda piece: keys.append(piece.former_key))
    opened(torch.ones(4, 6))
    found: list[str] = []
    earlier = CompiledParts(model.by_methods, lambda piece: found.append(piece.key), copied=dict.fromkeys(keys, ()))
    earlier(torch.ones(4, 6))
    assert found == keys
    earlier(-torch.ones(4, 6))
    assert len(found) == len(keys) + 1
    assert found[-1] not in keys


def test_a_branch_that_was_not_opened_does_not_take_the_key_of_an_equal_branch() -> None:
    class Half(Branches):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(torch.exp(self.inner(x))) if x.sum() > 0 else self.second(x)

    model = Half()
    keys: list[str] = []
    CompiledParts(model, lambda piece: keys.append(piece.key))(torch.ones(4, 6))
    found: list[str] = []
    again = CompiledParts(model, lambda piece: found.append(piece.key), copied=dict.fromkeys(keys, ()))
    again(-torch.ones(4, 6))
    assert found[-1] not in keys
    again(torch.ones(4, 6))
    assert found[-1] == keys[-1]


def test_a_branch_on_values_is_refused_with_a_remedy_for_a_planned_gpu() -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if x.sum() > 0 else x.cos()

    with pytest.raises(
        ProgramError,
        match=r"test_graph_breaks.py:\d+ \(return x.sin.*cannot be opened in parts: .*between graphs: compute with "
        r"tensors only, as torch.where does.*open it with device='cpu', so that tensors have values",
    ):
        workbench.open(branches, batch(), capture="parts", device="planned")
    assert [part.opaque for part in workbench.open(branches, batch(), capture="parts").parts] == [False, False]


class Noisy(nn.Module):
    """A model that adds noise. If `broken`, the graph breaks before the noise is drawn."""

    def __init__(self, broken: bool) -> None:
        super().__init__()
        self.layer, self.broken = nn.Linear(6, 6), broken

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.broken:
            torch._dynamo.graph_break()
        noise = torch.randn(4, 6)
        noise = noise * 2
        return (self.layer(x) + noise).sum()


@pytest.mark.parametrize("broken", [False, True])
def test_a_tensor_on_the_cpu_is_reported_with_its_line_for_a_planned_gpu(broken: bool) -> None:
    at = r"\S*test_graph_breaks.py:\d+ "
    said = (
        rf"^{at}\(return \(self.layer\(x\) \+ noise\).sum\(\)\): an operator fails on its inputs, which are on cuda:0 "
        rf"and cpu; {at}\(noise = torch.randn\(4, 6\)\) makes a tensor on cpu: write device=x.device in that call"
    )
    with pytest.raises(ProgramError, match=said):
        workbench.open(Noisy(broken), batch(), device="planned", executor="torch")


@pytest.mark.slow
def test_python_code_between_graphs_may_use_an_absent_gpu() -> None:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    bench = workbench.open(step, batch(), device="planned", executor="torch")
    assert isinstance(bench, PartsBench)
    assert not torch.cuda.is_initialized() or torch.cuda.is_available()


def test_the_app_of_parts_refuses_an_unknown_place(mysterious: PartsBench) -> None:
    with pytest.raises(ChoiceError, match="the app has no tab 'fitt'"):
        PartsApp(mysterious, place="fitt")


def test_the_app_shows_one_part_at_a_time(mysterious: PartsBench) -> None:
    app = PartsApp(mysterious)
    try:
        assert [label for label, _ in app.row.options] == ["part1", "part2, opaque", "part3", "part4, opaque", "part5"]
        assert "Cut at" in app.told.value
        assert re.search(r"Peak of the whole program: (at least )?[\d.]+ \w+ (in part|between)", app.told.value)
        (first,) = app._shown.children
        assert {each.controls.app for each in app._apps.values()} == {app.root.model_id}
        app.row.value = "part2"
        assert app._shown.children == ()
        assert "Opaque because" in app.told.value
        assert "tests_parts.mystery" in app.told.value
        app.row.value = "part1"
        assert app._shown.children == (first,)
        saved = app.told.value
        mysterious.choose({"part1:saved:layers.0/tanh": "recompute"})
        assert app.told.value != saved
    finally:
        app.close()
        mysterious.undo()


def test_the_repr_of_a_program_in_parts_shows_each_part(speaks: PartsBench) -> None:
    told = re.sub(r"test_graph_breaks.py:\d+", "test_graph_breaks.py:N", repr(speaks)).replace(
        str(Path(__file__).parent), ""
    )
    assert told.splitlines()[0] == "Speaks on cpu, torch executor"
    assert told.splitlines()[2:] == [
        "  part1    test_graph_breaks.py:N: 10 statements, 1 site, this part's peak 1.17 KiB, saved 192 B, predicted",
        '           cut at /test_graph_breaks.py:N (print("half way", file=Quiet())): '
        + "Failed to trace builtin operator: "
        + told.splitlines()[3].partition("builtin operator: ")[2],
        "  part2    test_graph_breaks.py:N: 15 statements, 1 site, this part's peak 1.36 KiB, saved 192 B, predicted",
        "  peak     1.79 KiB in part2 backward, predicted for all parts",
        "  choices  none",
    ]


def test_a_config_with_missing_or_wrong_parts_is_refused() -> None:
    with pytest.raises(ConfigError, match="with capture='parts' needs parts="):
        workbench.Config(program="p", executor="torch", device="cpu", capture="parts")
    with pytest.raises(
        ConfigError, match=r"parts\['one'\] is 'torch:1'; legal: 'part1': 'thunder:KEY', 'eager:KEY', or"
    ):
        workbench.Config(program="p", executor="torch", device="cpu", capture="parts", parts={"one": "torch:1"})


def equal_branches(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return torch.sin(torch.exp(x @ weight))
    return torch.sin(torch.exp(x @ weight))


def test_equal_graphs_of_two_branches_have_different_keys_whichever_runs_first() -> None:
    weight = torch.randn(4, 4, requires_grad=True)
    above, below = (
        workbench.open(equal_branches, x, weight, executor="torch", capture="parts").config.parts
        for x in (torch.ones(4, 4), -torch.ones(4, 4))
    )
    assert above["part1"] == below["part1"]
    assert above["part2"] != below["part2"]


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = checkpoint(lambda y: torch.tanh(self.first(y)).sin(), x, use_reentrant=self.reentrant)
        return torch.tanh(self.second(x)).sum()


@pytest.mark.slow
def test_checkpointed_regions_are_reported_and_train_as_eager() -> None:
    bench = workbench.open(built(Checkpointed), batch())
    assert bench.capture == "dynamo"
    assert "; 1 region is checkpointed by torch.utils.checkpoint" in bench.capture_reason
    # The only site of a checkpointed region is the region's result, because all other values are recomputed anyway.
    sites = {site.id for site in bench.sites("saved") if ":" in site.id}
    assert sites == {"saved:Checkpointed/sin", "saved:Checkpointed/tanh.1"}
    assert_trains_as_eager(bench.config, Checkpointed)


def test_a_reentrant_checkpoint_of_inputs_without_gradients_is_not_in_one_graph() -> None:
    said = (
        r"test_graph_breaks.py:\d+ \(x = checkpoint\(.*: checkpoint without reentrant autograd: .*use_reentrant=False"
    )
    with pytest.raises(ProgramError, match=said):
        workbench.open(Checkpointed(reentrant=True), batch(), capture="dynamo")


class Quantized(nn.Module):
    """A module that replaces rows by the nearest rows of a codebook, and moves the codebook toward these rows."""

    def __init__(self, broken: bool) -> None:
        super().__init__()
        self.broken = broken
        self.into = nn.Linear(4, 4)
        self.register_buffer("codebook", torch.linspace(-1.0, 1.0, 32).reshape(8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.into(x)
        nearest = (self.codebook.pow(2).sum(1) - 2 * z @ self.codebook.t()).argmin(-1)
        if self.broken:
            torch._dynamo.graph_break()
        found = self.codebook[nearest]
        with torch.no_grad():
            self.codebook.mul_(0.9).index_add_(0, nearest, z, alpha=0.1)
        return (z + (found - z).detach()).pow(2).mean() + (z - found.detach()).pow(2).mean()


@pytest.mark.slow
@pytest.mark.parametrize("broken", [True, False], ids=["in two parts", "in one"])
def test_a_codebook_written_without_gradients_trains_as_eager(broken: bool) -> None:
    torch.manual_seed(0)
    model, x = Quantized(broken), torch.randn(16, 4)
    eager = copy.deepcopy(model)
    bench = workbench.open(model, x, device="cpu", executor="torch")
    assert isinstance(bench, PartsBench) == broken
    jitted = bench.config.jit(model)
    for _ in range(3):
        jitted(x).backward()
        eager(x).backward()
        torch.testing.assert_close(model.codebook, eager.codebook)
        for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)


@torch.library.custom_op("tests_parts::noise", mutates_args=())
def noise(x: torch.Tensor) -> torch.Tensor:
    return torch.rand_like(x)


noise.register_fake(torch.empty_like)


def writes_past_autograd(x: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x)
    y.data.mul_(2)
    return (y * x).sum()


def draws_twice(x: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x)
    first = noise(y.detach())
    second = noise(y.detach().sin())
    return ((second - 2 * first) * y).sum()


@pytest.mark.parametrize("program", beyond(1, [writes_past_autograd, draws_twice], pytest.mark.slow))
def test_pieces_of_a_graph_run_in_program_order(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Pieces keep their order: even without a data dependency, a write or a random draw can affect later pieces."""
    x = torch.randn(4, 4, requires_grad=True)
    bench = workbench.open(program, x, device="cpu", executor="torch")
    assert isinstance(bench, PartsBench)
    jitted = bench.config.jit(program)
    for seed in range(3):
        found = []
        for function in (jitted, program):
            torch.manual_seed(seed)
            result = function(x)
            found.append((result, *torch.autograd.grad(result, x)))
        torch.testing.assert_close(*found)


@pytest.mark.slow
def test_a_garbage_collection_during_a_compilation_removes_no_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo holds pointers to the compiled code of a function while it compiles the function again."""

    def broken(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x.sin().sum()

    x = torch.ones(4, requires_grad=True)
    config = workbench.open(broken, x, device="cpu", executor="torch").config
    gc.collect()
    unused: list[Any] = [config.jit(broken)]
    unused[0](x)
    unused.append(unused)
    reset, cut, removed = eval_frame.reset_code, GraphSplitter.cut, []

    def recorded(code: CodeType) -> None:
        removed.append(code.co_name)
        reset(code)

    def collect_and_cut(*args: Any) -> Any:
        nonlocal unused
        unused = []
        gc.collect()
        return cut(*args)

    monkeypatch.setattr(eval_frame, "reset_code", recorded)
    monkeypatch.setattr(GraphSplitter, "cut", collect_and_cut)
    again = config.jit(broken)
    torch.testing.assert_close(again(x), broken(x))
    assert not removed
    torch.testing.assert_close(again(x), broken(x))
    assert removed == ["call"]


def _store(into: torch.Tensor, made: torch.Tensor) -> None:
    into[..., :2] = made


def _add(into: torch.Tensor, made: torch.Tensor) -> None:
    into[..., :2] += made


def _add_to_view(into: torch.Tensor, made: torch.Tensor) -> None:
    into[..., :2].add_(made)


def _copy_to_flat_view(into: torch.Tensor, made: torch.Tensor) -> None:
    into.view(-1)[:8].copy_(made.reshape(-1))


@pytest.mark.slow
@pytest.mark.parametrize("from_zeros", [False, True])
@pytest.mark.parametrize("write", [_store, _add, _add_to_view, _copy_to_flat_view])
def test_a_value_that_a_later_part_writes_in_place_gets_its_gradient(
    write: Callable[[torch.Tensor, torch.Tensor], None], from_zeros: bool
) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        made = y.sin()
        torch._dynamo.graph_break()
        into = torch.zeros(4, 3) if from_zeros else x * 2
        write(into, made)
        return into.cos().sum() + x.sum()

    given = torch.rand(4, 3, requires_grad=True), torch.rand(4, 2, requires_grad=True)
    bench = workbench.open(program, *given, device="cpu", executor="torch")
    assert len(bench.parts) == 2
    found = torch.autograd.grad(bench.config.jit(program)(*given), given)
    for ours, expected in zip(found, torch.autograd.grad(program(*given), given), strict=True):
        torch.testing.assert_close(ours, expected)


def test_the_gradient_of_a_part_that_writes_into_a_constant_of_another_part_is_kept() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        into, made = torch.zeros(4, 3), y.sin()
        torch._dynamo.graph_break()
        into[..., :2] = made
        torch._dynamo.graph_break()
        return into.cos().sum() + x.sum()

    given = torch.rand(4, 3, requires_grad=True), torch.rand(4, 2, requires_grad=True)
    bench = workbench.open(program, *given, device="cpu", executor="torch")
    found = torch.autograd.grad(bench.config.jit(program)(*given), given)
    for ours, expected in zip(found, torch.autograd.grad(program(*given), given), strict=True):
        torch.testing.assert_close(ours, expected)


def test_each_member_of_a_written_list_keeps_its_gradient() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        first, second = x.sin(), y.cos()
        torch._dynamo.graph_break()
        into, other = torch.zeros(4), torch.zeros(4)
        torch._foreach_add_([into, other], [first, second])
        return (into * other).sum() + other.exp().sum()

    given = torch.rand(4, requires_grad=True), torch.rand(4, requires_grad=True)
    bench = workbench.open(program, *given, device="cpu", executor="torch")
    found = torch.autograd.grad(bench.config.jit(program)(*given), given)
    for ours, expected in zip(found, torch.autograd.grad(program(*given), given), strict=True):
        torch.testing.assert_close(ours, expected)


def adds(into: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    made = x.sin()
    into.add_(made)
    return made * 2


def adds_lists(into: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    made = x.sin()
    torch._foreach_add_([into], [made])
    return made * 2


def copies_what_got_a_gradient(into: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(8)
    made.add_(x.sin())
    into.copy_(made)
    return x.sin() * 2


@pytest.mark.parametrize(
    ("program", "capture"),
    [(adds, "auto"), (adds, "interpreter"), (adds_lists, "auto"), (copies_what_got_a_gradient, "interpreter")],
)
def test_an_input_that_gets_a_gradient_by_a_write_is_right_or_refused(
    program: Callable[..., torch.Tensor], capture: str
) -> None:
    def gradient(run: Callable[..., torch.Tensor]) -> torch.Tensor:
        x, into = torch.linspace(0, 1, 8, requires_grad=True), torch.zeros(8)
        return torch.autograd.grad(run(into, x).sum() + into.cos().sum(), x)[0]

    given = torch.zeros(8), torch.linspace(0, 1, 8, requires_grad=True)
    if capture == "interpreter":
        with pytest.raises(ProgramError, match="through the written input"):
            workbench.open(program, *given, device="cpu", executor="torch", capture=capture)
        return
    bench = workbench.open(program, *given, device="cpu", executor="torch")
    torch.testing.assert_close(gradient(bench.config.jit(program)), gradient(program))


@pytest.mark.slow
@pytest.mark.parametrize("viewed", [False, True], ids=["itself", "through a view"])
def test_a_part_knows_that_an_earlier_write_gave_its_argument_a_gradient(viewed: bool) -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        if x.sum() > 1e9:
            return out.sum()
        first = (out + x * w).sum()
        if first > 1e9:
            return first
        rows = torch.nonzero(x > 0)[:, 0]
        out.index_add_(0, rows, (x * w)[rows])
        given = out.view(2, 4) if viewed else out
        if first > 1e8:
            return first
        return (given * 2).sum() + first

    bench = workbench.open(program, torch.randn(8), torch.randn(8, requires_grad=True), device="cpu")
    assert isinstance(bench, PartsBench)
    last = bench.benches[-1].stock_plan.graph.ends.gradients
    assert len(last) == 2
    assert min(last) >= 0


def test_a_write_into_an_input_with_a_history_is_refused_with_its_reason() -> None:
    def scales(into: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        into.mul_(x)
        return (into * into).sum()

    given = torch.linspace(0, 1, 8, requires_grad=True) * 2, torch.rand(8)
    with pytest.raises(ProgramError, match=r"into.mul_\(x\).*through the written input"):
        workbench.open(scales, *given, device="cpu", executor="torch")


def test_a_write_that_cannot_give_a_gradient_stays_in_the_graph() -> None:
    def quantizes(codes: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        made = x.sin()
        codes.copy_(made * 127)
        return made * 2

    given = torch.zeros(8, dtype=torch.int32), torch.linspace(0, 1, 8, requires_grad=True)
    assert workbench.open(quantizes, *given, device="cpu", executor="torch").capture == "dynamo"


def test_a_reason_for_parts_says_how_a_write_stays_in_the_graph() -> None:
    given = torch.zeros(8), torch.linspace(0, 1, 8, requires_grad=True)
    reason = workbench.open(adds, *given, device="cpu", executor="torch").capture_reason
    assert "buffer.copy_(x.detach()), write under torch.no_grad()" in reason

    def detaches(into: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        made = x.sin()
        into.add_(made.detach())
        return made * 2

    assert workbench.open(detaches, *given, device="cpu", executor="torch").capture == "dynamo"


class AppendsLosses(nn.Module):
    """A loss of selected elements, as a detector has it. Dynamo compiles it in each step, because its list is new."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        losses = []
        for row in (x[:8], x[8:16]):
            losses.append(row[row > 0].sum() * self.weight.sum() + row[row < 0].sum())  # noqa: PERF401
        return losses[0] + losses[1]


@pytest.mark.slow
def test_a_step_that_compiles_each_time_frees_the_tensors_of_the_forward_before_the_backward() -> None:
    loss, repeats = AppendsLosses(), 1000

    def program(x: torch.Tensor) -> torch.Tensor:
        batch = x.repeat(repeats)
        torch._dynamo.graph_break()
        return loss(batch)

    memory = workbench.open(program, torch.linspace(-1, 1, 8), device="cpu", executor="torch").memory
    assert memory is not None
    batch_bytes = 8 * 4 * repeats
    assert memory.peak_bytes > batch_bytes
    ends = [int(bytes_) for where, bytes_ in zip(memory.where, memory.live_bytes, strict=True) if "backward" in where]
    assert ends
    assert max(ends) < batch_bytes


class Scripted(nn.Module):
    """A module that calls a TorchScript module twice."""

    def __init__(self, make: Callable[[nn.Module], Any]) -> None:
        super().__init__()
        self.up, self.scripted, self.down = nn.Linear(6, 6), make(nn.Linear(6, 6)), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.up(x))
        return self.down(self.scripted(hidden) + self.scripted(hidden.sin())).sum()


@pytest.mark.slow
@pytest.mark.parametrize("make", [torch.jit.script, lambda module: torch.jit.trace(module, batch())])
def test_only_the_calls_of_a_torchscript_module_are_without_a_plan(make: Callable[[nn.Module], Any]) -> None:
    model, x = built(lambda: Scripted(make)), batch()
    bench = workbench.open(lambda x: model(x), x)
    assert isinstance(bench, PartsBench)
    assert [type(part) for part in bench.parts] == [Part] * 3
    assert "the program calls a TorchScript module" in str(bench)
    bench.choose({"part1:saved:forward/tanh": "recompute"})
    losses, gradients = [], []
    for loss in (model, bench.config.jit(model)):
        model.zero_grad()
        losses.append(loss(x))
        losses[-1].backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert torch.equal(*losses)
    torch.testing.assert_close(*gradients)


def test_the_interpreter_refuses_torchscript_instead_of_ending_the_process() -> None:
    module = torch.jit.script(nn.Linear(6, 6))
    with pytest.raises(ProgramError, match=r"Thunder cannot trace.*instead found type 'TensorProxy'"):
        workbench.open(lambda x: module(x), batch(), capture="interpreter")
    bench = workbench.open(module, batch())
    assert isinstance(bench, PartsBench)
    assert [type(part) for part in bench.parts] == [OpaquePart]
    assert torch.equal(bench.config.jit(module)(batch()), module(batch()))


class Keeping(nn.Module):
    """A module that keeps an activation until the next call."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 300), nn.Linear(300, 6)
        self.kept: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = torch.tanh(self.up(x)).detach()
        print("kept", file=Quiet())
        return self.down(self.up(x)).sum()


def test_a_kept_activation_is_freed_when_the_next_call_replaces_it() -> None:
    bench = workbench.open(built(Keeping), batch(200), capture="parts")
    assert isinstance(bench, PartsBench)
    recorded = bench._parts_captured.recorded
    assert isinstance(recorded, RecordedStep)
    kept_bytes = 200 * 300 * 4
    held = {event.storage for event in recorded.baseline if event.bytes == kept_bytes}
    assert len(held) == 1
    freed = [event.storage for event in recorded.events if isinstance(event, StorageFreed)]
    assert held <= set(freed)
