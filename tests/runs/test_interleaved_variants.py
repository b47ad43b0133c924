"""A run can interleave its steps with steps of other variants, and record a snapshot of a step's allocations."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch.cuda import _memory_viz

import workbench as wb
from workbench.compiler import api
from workbench.errors import ChoiceError, RunError
from workbench.runs.log import event_log, events
from workbench.runs.measure import cuda_graph, memory_snapshot
from workbench.runs.measure.memory_meter import Allocation, MemoryEvent
from workbench.runs.process import request, start_run
from workbench.runs.process.follow_run import Run
from workbench.runs.process.request import RunOptions
from workbench.runs.worker import worker


@pytest.fixture(scope="module")
def bench() -> wb.Workbench:
    bench = wb.open("mlp", layers=1, device="cpu")
    site = next(s for s in bench.sites("saved") if "recompute" in s.options and "recompute" not in s.illegal)
    bench.choose({site.id: "recompute"})
    return bench


@pytest.fixture(scope="module")
def run(bench: wb.Workbench, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return bench.run(
        wait=True,
        folder=tmp_path_factory.mktemp("runs") / "run",
        options=RunOptions(samples=5, threads=2, check_accuracy=False, memory_snapshot=True),
        against={"stock": {}, "thunder": None, "config": bench.config},
    )


@pytest.mark.slow
def test_each_variant_is_timed_interleaved_with_the_run(run: Run) -> None:
    assert run.ok, (run.error, run.detail)
    assert list(run.against) == ["stock", "thunder", "config"]
    own = events.last_of(run.events, events.StepTimes)
    assert own is not None
    for event in run.events:
        if isinstance(event, events.VariantTimes):
            # Each turn times one step of each variant, so all variants have the same number of samples.
            assert len(event.samples_s) == len(own.samples_s) == 5
            found = run.against[event.name]
            assert found["low"] <= found["ratio"] <= found["high"]
            assert found["step_s"] > 0
    assert run.to_json()["against"] == run.against


class Seen:
    """Records for each phase of a run whether compiled fusions are cached (`kept`), shared, or neither."""

    def __init__(self) -> None:
        self.phases: dict[str, str] = {}
        self._now = ""

    def phase(self, log: event_log.EventLog, name: str) -> None:
        self.phases[name] = self._now

    @contextlib.contextmanager
    def _inside(self, name: str) -> Iterator[None]:
        self._now = name
        yield
        self._now = ""

    def kept(self) -> contextlib.AbstractContextManager[None]:
        return self._inside("kept")

    def shared(self) -> contextlib.AbstractContextManager[None]:
        return self._inside("shared")


@pytest.mark.slow
@pytest.mark.long
def test_compilations_of_a_run_are_reused_for_references_and_variants(
    bench: wb.Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench.run(wait=True, folder=tmp_path / "run", options=RunOptions(samples=0, check_accuracy=False))
    asked = request.read_request(run.run_dir)
    again = dataclasses.replace(
        asked, options=RunOptions(samples=1, measure_peak=False, clocks=False), variants={"thunder": None}
    )
    compiled_for: list[str] = []
    unmodified = api.unmodified

    def noted(*args: Any, **kwargs: Any) -> Any:
        compiled_for.append(seen._now)
        return unmodified(*args, **kwargs)

    seen = Seen()
    monkeypatch.setattr(request, "read_request", lambda _: again)
    monkeypatch.setattr(api, "unmodified", noted)
    monkeypatch.setattr(worker, "_phase", seen.phase)
    monkeypatch.setattr(worker, "fusions_of", lambda device: seen)
    worker.run_program(run.run_dir, event_log.EventLog(tmp_path / "events.jsonl"))
    # While compilation is measured, fusions are cached but not shared. While steps are timed, fusions are neither
    # cached nor shared.
    assert seen.phases == {"build": "", "compile": "kept", "warmup": "", "time": "", "accuracy": ""}
    assert compiled_for == ["shared", "shared"]


def test_a_difference_is_noise_if_its_interval_contains_a_ratio_of_one() -> None:
    def verdict(ratio: float, low: float, high: float) -> str:
        return events.VariantTimes(
            t_s=0.0, name="", samples_s=[], step_s=1.0, ratio=ratio, ratio_low=low, ratio_high=high
        ).verdict

    assert verdict(1.2, 1.1, 1.3) == "slower"
    assert verdict(0.8, 0.7, 0.9) == "faster"
    assert verdict(1.2, 0.9, 1.3) == verdict(0.9, 0.8, 1.0) == "noise"


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"against": {"a": {"saved:nothing": "save"}}}, ChoiceError, "a: mlp has no site 'saved:nothing'"),
        ({"against": {"": {}}}, RunError, "needs a name"),
        ({"against": {"stock": {}}, "options": RunOptions(samples=0)}, RunError, "with samples=0 no step is timed"),
        ({"options": RunOptions(cuda_graph=True)}, RunError, "a CUDA graph needs a CUDA device, .* is for cpu"),
    ],
)
def test_incomparable_variants_are_refused_before_anything_starts(
    bench: wb.Workbench, asked: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        bench.run(folder=tmp_path / "run", **asked)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_variant_that_fails_is_named(bench: wb.Workbench, tmp_path: Path) -> None:
    folder = request.prepare(
        tmp_path / "run",
        bench.program,
        variants={"theirs": "exit(5)"},
        options=RunOptions(samples=3, measure_peak=False, clocks=False, check_accuracy=False, threads=2),
    )
    run = start_run.start(folder).wait(120)
    assert run.state == "failed"
    assert (run.error or "").startswith("theirs, to be timed interleaved with the run: theirs:1: contains code")


@pytest.mark.slow
def test_live_values_are_reported_for_prediction_and_measurement(run: Run) -> None:
    memory = run.to_json()["memory"]
    predicted, measured = memory["predicted_alive_at_peak"], memory["alive_at_peak"]
    assert sum(each["bytes"] for each in predicted) <= memory["predicted_peak_bytes"]
    in_all = memory["baseline_bytes"] + sum(each["bytes"] for each in measured)
    assert in_all == memory["measured_peak_bytes"]
    # A value that is in both lists has the same size in both. Some values are in one list only, because the lists may
    # name different values of a storage.
    sizes = {each["value"]: each["bytes"] for each in predicted}
    both = [each for each in measured if each["value"] in sizes]
    assert len(both) > len(measured) / 2
    assert all(each["bytes"] == sizes[each["value"]] for each in both)
    assert memory["peak_statement"]["name"]


@pytest.mark.slow
def test_a_snapshot_holds_the_measured_peak_with_statements_as_frames(run: Run, tmp_path: Path) -> None:
    snap = pickle.loads(memory_snapshot.write_snapshot(run, tmp_path / "snapshot.pickle").read_bytes())
    live = most = 0
    for entry in snap["device_traces"][0]:
        live += {"alloc": 1, "free_requested": -1}.get(entry["action"], 0) * entry["size"]
        most = max(most, live)
    memory = run.memory
    assert memory["baseline_bytes"] is not None
    assert memory["baseline_bytes"] + most == memory["measured_peak_bytes"]
    held = [segment for segment in snap["segments"] if segment["blocks"][0]["frames"][0]["name"].startswith("blocks.")]
    assert len(held) == 4  # the weights and biases of two linear layers
    assert any(frame["filename"] == "mlp.py" for entry in snap["device_traces"][0] for frame in entry["frames"])
    # PyTorch's own viewer accepts the snapshot.
    assert "<script" in _memory_viz.trace_plot(snap)


def test_a_snapshot_records_frees_and_lists_memory_that_was_not_freed() -> None:
    changes = [MemoryEvent(1000, 64, 0xA), MemoryEvent(2000, 32, 0xB), MemoryEvent(3000, -64, 0xA)]
    allocated = [(Allocation(0xA, 64, 0, 0, 2, True), []), (Allocation(0xB, 32, 0, 1, 3, True), [])]
    snap = memory_snapshot.snapshot_of_events(changes, allocated, [(0xC, 16, "weight")])
    actions = [(entry["action"], entry["addr"], entry["time_us"]) for entry in snap["device_traces"][0]]
    assert actions == [("alloc", 0xA, 1), ("alloc", 0xB, 2), ("free_requested", 0xA, 3), ("free_completed", 0xA, 3)]
    assert [(segment["address"], segment["total_size"]) for segment in snap["segments"]] == [(0xB, 32), (0xC, 16)]


def test_a_run_without_a_snapshot_reports_how_to_take_a_snapshot(bench: wb.Workbench, tmp_path: Path) -> None:
    run = Run(request.prepare(tmp_path / "run", bench.program))
    with pytest.raises(RunError, match=r"run it with RunOptions\(memory_snapshot=True\)"):
        memory_snapshot.write_snapshot(run, tmp_path / "s.pickle")


def test_a_step_on_the_cpu_cannot_be_a_cuda_graph() -> None:
    with pytest.raises(RunError, match="the program is on cpu"):
        cuda_graph.GraphedStepper(torch.tanh, (torch.ones(4),), {})


def test_a_failed_capture_reports_the_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error, ending the CUDA graph's capture raises a second error, which once hid the first one on a GPU."""
    captured: dict[str, Any] = {}

    class Ending:
        def __init__(self, graph: Any, **options: Any) -> None:
            captured.update(options)

        def __enter__(self) -> None:
            raise_from_capture()

        def __exit__(self, *_: Any) -> None:
            pass

    def raise_from_capture() -> None:
        try:
            raise RuntimeError("CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`\nmore")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(cuda_graph.GraphedStepper, "device", property(lambda _: torch.device("cuda")), raising=False)
    for name, made in {"Stream": mock.MagicMock(), "stream": mock.MagicMock(), "current_stream": mock.MagicMock(),
                       "CUDAGraph": mock.MagicMock(), "graph": Ending}.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, made)
    with pytest.raises(RunError, match="as a CUDA graph: CUBLAS_STATUS_NOT_INITIALIZED when calling"):
        cuda_graph.GraphedStepper(lambda x: x.sum(), (torch.ones(2),), {})
    assert captured == {"capture_error_mode": "thread_local"}


@pytest.mark.gpu
def test_a_step_as_a_cuda_graph_gives_what_the_step_gives() -> None:
    x = torch.ones(64, device="cuda", requires_grad=True)
    stepper = cuda_graph.GraphedStepper(lambda x: torch.tanh(x).sum(), (x,), {})
    x.data.fill_(0.5)
    outputs = stepper.step()
    stepper.synchronize()
    torch.testing.assert_close(outputs, torch.tanh(x).sum())


@pytest.mark.gpu
def test_a_run_on_cuda_is_timed_as_a_graph_and_tells_what_is_reserved(tmp_path: Path) -> None:
    run = wb.open("mlp", layers=1, device="cuda").run(
        wait=True, folder=tmp_path / "run", options=RunOptions(samples=5, cuda_graph=True, memory_snapshot=True)
    )
    assert run.ok, (run.error, run.detail)
    assert list(run.against) == [cuda_graph.NAME]
    memory = run.memory
    assert memory["reserved_bytes"] is not None
    assert memory["measured_peak_bytes"] is not None
    assert memory["reserved_bytes"] >= memory["measured_peak_bytes"] - (memory["baseline_bytes"] or 0)
    assert memory["fragmented_bytes"] is not None
    assert (run.run_dir / memory_snapshot.SNAPSHOT_FILE).exists()
