"""Runs of plain `torch.compile`: measured like other runs, but never taken for measurements of Thunder's plan."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import workbench as wb
from tests.ui.apps import shown, until
from workbench.errors import RunError
from workbench.runs.process import request, run_store
from workbench.runs.process.request import RunOptions
from workbench.summary import human_bytes, human_seconds
from workbench.ui.app.app import App

FAST = RunOptions(samples=3, warmup=1, sampling_s=0.5, clocks=False, cold=False)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 512), torch.nn.Linear(512, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.silu(self.up(x))).square().mean()


@pytest.fixture(scope="module")
def bench() -> wb.Workbench:
    opened = wb.open(Net(), torch.randn(256, 64), device="cpu", executor="torch")
    opened.choose({"saved:up/linear": "recompute"})
    return opened


@pytest.fixture
def app(bench: wb.Workbench) -> Iterator[App]:
    app = App(bench)
    yield app
    app.close()


@pytest.mark.slow
def test_a_run_measures_the_predicted_peak_and_is_compared_with_torch_compile_and_eager(
    app: App, bench: wb.Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The box of Export starts the run. Before the run, the box has predicted figures, and then measured ones too."""
    predicted, stock = bench.torch_prediction(), bench.torch_prediction(stock=True)
    assert predicted.saved_bytes < stock.saved_bytes
    assert {each["name"]: (each["value"], each["base"]) for each in shown(app, "torch")["figures"]} == {
        "Peak, predicted": (human_bytes(predicted.peak_bytes), f"without choices: {human_bytes(stock.peak_bytes)}"),
        "Saved for backward, predicted": (
            human_bytes(predicted.saved_bytes),
            f"without choices: {human_bytes(stock.saved_bytes)}",
        ),
    }
    assert shown(app, "torch_eager")["figures"] == []

    monkeypatch.setattr(bench, "run", functools.partial(bench.run, folder=tmp_path / "run", options=FAST))
    app._on_message({"type": "run_torch", "peak": ""})
    until(lambda: bench.runs)
    run = bench.runs[-1].wait()
    assert run.state == "done", run.error
    assert run.ok, run.error
    assert run.accuracy is not None
    assert run.accuracy.against == "torch.compile and eager"
    assert {each.against for each in run.accuracy.tensors} == {"torch.compile", "eager", "float64"}
    assert run.memory["predicted_peak_bytes"] == predicted.peak_bytes
    assert run.memory["measured_peak_bytes"] == pytest.approx(predicted.peak_bytes, rel=0.03)
    assert run.name == "torch.compile, 1 recomputed"
    assert run not in bench.own_runs
    assert run_store.choices_of(run) is None
    assert "by plain torch.compile" in repr(bench)

    until(lambda: app.controls.exported == {})  # the page asks again
    figures = {each["name"]: each["value"] for each in shown(app, "torch")["figures"]}
    assert figures["Peak, measured"] == human_bytes(run.memory["measured_peak_bytes"])
    assert figures["Step, measured"] == human_seconds(run.step_s)
    assert "torch.compile" in figures["Results"]
    # The figures of Thunder's plan are not those of this run.
    kinds = {value.get("kind") for each in app.strip.content["figures"] for value in each["values"]}
    assert "measured" not in kinds


@pytest.mark.long
@pytest.mark.slow
def test_a_choice_that_finds_no_operator_is_a_warning_of_the_run(bench: wb.Workbench, tmp_path: Path) -> None:
    folder = request.prepare(
        tmp_path / "run",
        bench.program,
        options=RunOptions(samples=0, warmup=0, clocks=False, check_accuracy=False, measure_peak=False, cold=False),
        torch=request.TorchTarget.of({("", "silu_", 3): "recompute"}),
    )
    run = bench.start(folder, wait=True)
    assert run.state == "done", run.error
    (told,) = run.warnings
    assert "this call has no such operator; the nearest is ('', 'silu', 0)" in told


def test_a_request_keeps_its_choices_and_its_budget(bench: wb.Workbench, tmp_path: Path) -> None:
    target = request.TorchTarget.of({("up", "linear", 0): "save", ("", "silu", 0): "recompute"}, 0.5)
    folder = request.prepare(tmp_path / "run", bench.program, torch=target)
    assert request.read_request(folder).torch == target
    assert target.by_key == {("up", "linear", 0): "save", ("", "silu", 0): "recompute"}
    record = json.loads((folder / request.REQUEST_FILE).read_text())
    record["torch"]["choices"][0] = ["up", "linear"]
    (folder / request.REQUEST_FILE).write_text(json.dumps(record))
    with pytest.raises(RunError, match=r"torch\.choices\.0"):
        request.read_request(folder)


def test_other_targets_are_refused(bench: wb.Workbench) -> None:
    with pytest.raises(RunError, match="a run has no target 'torch_eager'; legal: thunder, torch"):
        bench.run(target="torch_eager")
    with pytest.raises(RunError, match="a CUDA graph needs a CUDA device"):
        bench.run(target="torch", options=RunOptions(cuda_graph=True))
