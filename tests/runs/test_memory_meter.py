"""The measured peak memory equals the count by hand, and allocations are attributed to statements."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import workbench
from workbench.compiler.driver.statement_timers import Tick, TimedStatement
from workbench.runs.log import event_log
from workbench.runs.log.event_log import EventLog
from workbench.runs.log.events import MemorySample
from workbench.runs.measure import memory_meter
from workbench.runs.measure.accuracy import Stepper
from workbench.runs.measure.memory_meter import MemoryEvent
from workbench.runs.process.request import RunOptions

FLOAT_BYTES = 4


def test_the_peak_of_an_mlp_equals_the_count_by_hand() -> None:
    """The eager model has 4 blocks 256 → 1024 → 256 without biases. The peak is in the backward of the last tanh."""
    batch, narrow, wide, blocks = 512, 256, 1024, 4
    layers: list[nn.Module] = []
    for _ in range(blocks):
        layers += [nn.Linear(narrow, wide, bias=False), nn.Tanh(), nn.Linear(wide, narrow, bias=False)]
    model, x = nn.Sequential(*layers), torch.randn(batch, narrow)
    stepper = Stepper(model, (x,), {})
    stepper.step()
    peak = memory_meter.measure_peak(stepper)

    weights = blocks * 2 * narrow * wide
    assert peak.baseline_bytes == (weights + batch * narrow) * FLOAT_BYTES
    # Each block saves the result of tanh and its own result.
    kept = blocks * (batch * wide + batch * narrow)
    # At the peak, three gradients are alive: the gradients of the last matrix, of tanh's output, and of tanh's input.
    # The backward of tanh reads the second gradient and writes the third.
    backward = narrow * wide + 2 * batch * wide
    # The gradient of the output is not in the count, because it was allocated before the measured step.
    counted = peak.baseline_bytes + (kept + backward) * FLOAT_BYTES
    assert peak.measured_peak_bytes == counted
    assert max(peak.live_bytes) == counted
    # After the step, the gradients of all weights and the output are alive.
    assert peak.live_bytes[-1] == peak.baseline_bytes + (weights + batch * narrow) * FLOAT_BYTES


def test_the_peak_of_a_function_without_grad_equals_the_count_by_hand() -> None:
    x = torch.randn(1000)
    peak = memory_meter.measure_peak(Stepper(lambda x: torch.tanh(torch.exp(x)), (x,), {}))
    assert (peak.baseline_bytes, peak.measured_peak_bytes) == (4000, 12000)


def test_a_tensor_that_the_step_before_made_is_freed_when_the_step_replaces_it() -> None:
    kept: dict[str, Any] = {"optimizer": torch.optim.SGD([nn.Parameter(torch.zeros(3))])}

    def step(x: torch.Tensor) -> None:
        kept["last"] = None
        kept["last"] = x.exp()

    stepper = Stepper(step, (torch.randn(1000),), {})
    stepper.step()
    for _ in range(2):  # the profiler itself sees the second free, because it has seen the allocation
        peak = memory_meter.measure_peak(stepper)
        assert (peak.baseline_bytes, peak.measured_peak_bytes) == (8012, 8012)
        assert peak.live_bytes == [8012, 4012, 8012]


def test_an_input_given_twice_counts_once() -> None:
    x = torch.randn(1000)
    assert Stepper(lambda x, y: x * y, (x, x[:10]), {}).baseline_bytes() == 4000


def test_downsampling_keeps_the_highest_point() -> None:
    times, live = [float(i) for i in range(1000)], [i % 7 for i in range(1000)]
    live[501] = 99
    thin_times, thin_live = memory_meter.thin_out(times, live, 100)
    assert len(thin_times) == len(thin_live) <= 100
    assert thin_live[thin_times.index(501.0)] == 99
    assert thin_times == sorted(thin_times)


def test_memory_is_sampled_at_least_twenty_times_a_second(tmp_path: Path) -> None:
    sampler = memory_meter.MemorySampler(EventLog(tmp_path / event_log.LOG_FILE), 0.025)
    sampler.start()
    time.sleep(0.5)
    sampler.stop()
    samples = [event for event in event_log.read_events(tmp_path) if isinstance(event, MemorySample)]
    assert len(samples) >= 10
    assert all(sample.rss_bytes > 1 << 20 for sample in samples)
    assert [s.t_s for s in samples] == sorted(s.t_s for s in samples)


def test_memory_is_sampled_while_a_call_holds_the_interpreter_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nvFuser compiles a fusion, it holds the lock, so a thread of this process cannot take samples."""
    stats = {"allocated_bytes.all": 3, "reserved_bytes.all": 5, "inactive_split_bytes.all": 2}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: {f"{key}.current": value for key, value in stats.items()})
    log = EventLog(tmp_path / event_log.LOG_FILE)
    sampler = memory_meter.MemorySampler(log, 0.025, apart=True)
    sampler.start()
    give_up_s = time.monotonic() + 30
    while not event_log.read_events(tmp_path) and time.monotonic() < give_up_s:
        time.sleep(0.01)
    begun_s = log.now_s()
    ctypes.PyDLL(None).usleep(900_000)
    ended_s = log.now_s()
    sampler.stop()
    samples = [event for event in event_log.read_events(tmp_path) if isinstance(event, MemorySample)]
    within = [sample for sample in samples if begun_s <= sample.t_s <= ended_s]
    assert len(within) >= 10
    assert all(sample.rss_bytes > 1 << 20 for sample in samples)
    told = within[-1]
    assert (told.allocated_bytes, told.reserved_bytes, told.fragmented_bytes) == (3, 5, 2)
    # After `stop`, the sampler writes no more samples, so that none can follow the log's last event.
    count = len(samples)
    time.sleep(0.2)
    assert len(event_log.read_events(tmp_path)) == count


def test_if_the_meter_process_ends_memory_sampling_continues(tmp_path: Path) -> None:
    sampler = memory_meter.MemorySampler(EventLog(tmp_path / event_log.LOG_FILE), 0.025, apart=True)
    assert sampler._meter is not None
    sampler._meter.kill()
    sampler._meter.wait()
    sampler.start()
    time.sleep(0.5)
    sampler.stop()
    assert len(event_log.read_events(tmp_path)) >= 8


def test_allocations_are_attributed_to_statements() -> None:
    """Two statements, each followed by a deletion. The second statement has 40 bytes of transient memory."""
    ticks = [(-1, False), (0, False), (0, True), (1, False), (1, True)]
    moments = [(5, 1), (12, 100), (25, -30), (31, 40), (33, -40), (34, 7), (45, -7)]
    changes = [MemoryEvent(at_ns, nbytes, 0) for at_ns, nbytes in moments]
    live, peak = memory_meter.by_statement(changes, 1000, ticks, [10, 20, 30, 40, 50])
    assert live == [1071, 1071]
    assert peak == [1101, 1111]


def test_live_values_at_the_peak_name_their_allocating_statement() -> None:
    ticks = [(-1, False), (0, False), (0, True), (1, False)]
    moments = [(5, 1, 0xA), (12, 100, 0xB), (25, -100, 0xB), (31, 70, 0xB), (33, 40, 0xC), (45, -40, 0xC)]
    changes = [MemoryEvent(*moment) for moment in moments]
    at_ns, alive = memory_meter.alive_at_peak(changes, ticks, [10, 20, 30, 40])
    assert at_ns == 33
    assert [(each.nbytes, each.statement) for each in alive] == [(70, 1), (40, 1), (1, -1)]


def test_a_transient_allocation_of_a_statement_is_not_its_value() -> None:
    """One statement makes three allocations: a transient one, a value at the same address, and a value freed later."""
    ticks = [(-1, False), (0, False), (0, True)]
    moments = [(12, 10, 0xA), (13, -10, 0xA), (14, 20, 0xA), (15, 30, 0xB), (25, -30, 0xB)]
    found = memory_meter.allocations([MemoryEvent(*moment) for moment in moments], ticks, [10, 20, 30])
    assert [(each.nbytes, each.statement, each.end, each.outlives_statement) for each in found] == [
        (10, 0, 1, False), (20, 0, 5, True), (30, 0, 4, True)
    ]  # fmt: skip


def test_without_allocations_nothing_is_alive_at_the_peak() -> None:
    assert memory_meter.alive_at_peak([], [], [])[1] == []


@pytest.mark.slow
def test_memory_of_statements_is_measured_even_if_they_are_not_timed(tmp_path: Path) -> None:
    """A run measures the peak of each statement even if it does not time statements, as in the GPU check."""
    options = RunOptions(samples=3, clocks=False, check_accuracy=False, threads=2)
    run = workbench.open("mlp", layers=1).run(wait=True, folder=tmp_path / "run", options=options)
    assert run.state == "done", run.error
    assert max(run.statement_peak_bytes) == run.memory["measured_peak_bytes"]
    assert run.to_json()["memory"]["peak_statement"]["name"]
    assert run.statements is None


def test_on_cuda_statements_are_measured_by_allocator_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of the allocator's events by statement give the allocator's peak. `torch.cuda` is simulated."""
    ticks = [Tick(-1, frees=False), Tick(0, frees=False), Tick(0, frees=True), Tick(1, frees=False)]
    changes = [
        MemoryEvent(12, 512, 0xA),
        MemoryEvent(25, -512, 0xA),
        MemoryEvent(31, 1024, 0xB),
        MemoryEvent(32, 512, 0xA),
    ]
    held, peak = 4096, 4096 + 1536
    stats = {"reserved_bytes.all.peak": 8192, "inactive_split_bytes.all.peak": 0}
    for name, given in {"memory_allocated": held, "max_memory_allocated": peak, "memory_stats": stats}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, given=given: given)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda *_: None)
    monkeypatch.setattr(memory_meter, "observe_step", lambda *_: (changes, []))
    statements = (TimedStatement("relu", 0, ("a",), "f.py:1"), TimedStatement("matmul", 0, ("b",), "f.py:2"))
    clocks: Any = SimpleNamespace(
        ticks=ticks, times_ns=[10, 20, 30, 40], statements=statements, complete=lambda: True, addresses={1: (0xB,)}
    )
    stepper: Any = SimpleNamespace(
        device=torch.device("cuda"), clear_grads=int, synchronize=int, baseline_bytes=lambda: 2048
    )
    found = memory_meter.measure_peak(stepper, clocks)
    assert found.method == "cuda allocator"
    assert found.statement_peak_bytes == [2048 + 512, 2048 + 1536]
    assert max(found.statement_peak_bytes) == found.measured_peak_bytes
    assert found.peak_statement["name"] == "matmul"
    assert [(each["bytes"], each["value"]) for each in found.alive] == [(1024, "b"), (512, "")]
