"""A run measures the peak of a program whose steps differ, but does not time the program's statements."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import workbench
from workbench.compiler.driver.statement_timers import StatementClocks
from workbench.runs.log import events
from workbench.runs.measure import memory_meter, memory_snapshot
from workbench.runs.measure import statement_times as clocking
from workbench.runs.measure.accuracy import Stepper
from workbench.runs.process.request import RunOptions


class Counts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.linear(x).expand(self.calls, 2, 4).sum()


class Weighs(Counts):
    """A program that is captured twice, because no size depends on its counter."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.linear(x) * self.calls


class Grows(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before: list[torch.Tensor] = []
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.linear(x)
        self.before.append(made.detach())
        return made + sum(self.before)


class TakesTurns(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.odd = False
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.odd = not self.odd
        return self.linear(x).sin() if self.odd else self.linear(x).exp().cos()


@pytest.mark.slow
@pytest.mark.parametrize("program", [Counts, Grows, TakesTurns])
def test_a_program_without_repeated_steps_has_a_peak_and_no_statement_times(program: type[torch.nn.Module]) -> None:
    module, x = program(), torch.randn(2, 4)
    bench = workbench.open(module, x, device="cpu", executor="torch")
    stepper = Stepper(module, (x,), {}, bench.config.jit(module))
    for _ in range(2):
        stepper.step()
    peak = memory_meter.measure_peak(stepper, StatementClocks(stepper.run, time.time_ns, frees=True))
    assert peak.measured_peak_bytes > peak.baseline_bytes
    assert peak.statement_live_bytes == []
    taken = memory_snapshot.take_snapshot(stepper, StatementClocks(stepper.run, time.time_ns, frees=True))
    assert taken["device_traces"]
    clocks = StatementClocks(stepper.run)
    with pytest.raises(
        clocking.UnsteadyError, match=r"test_changing_programs\.py:\d+ .* no longer holds\. Values that change"
    ):
        clocking.measure(stepper, clocks, 1.0, [], time.monotonic)


class Remembers(torch.nn.Module):
    """A program whose second call reads the results of the first, as in Transformer-XL."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)
        self.memory: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = x if self.memory is None else torch.cat([self.memory, x])
        self.memory = whole[-64:].detach()
        return self.linear(whole).tanh().square().mean()


@pytest.mark.slow
def test_a_run_says_that_the_measured_peak_is_of_a_call_with_other_shapes(tmp_path: Path) -> None:
    bench = workbench.open(Remembers(), torch.randn(32, 16), device="cpu", executor="torch")
    run = bench.run(wait=True, folder=tmp_path, options=RunOptions(samples=0, clocks=False, check_accuracy=False))
    (warned,) = run.warnings
    assert "the predicted peak is that of the first call" in warned
    assert "'program.memory' size mismatch" in warned


@pytest.mark.slow
def test_the_reported_change_is_the_last_change_of_the_same_program() -> None:
    """Dynamo shares data between equal code objects, so `dynamo_session` gives each compiled program a unique one."""
    x = torch.randn(2, 4)
    module, other = Counts(), Grows()
    counting, growing = (
        workbench.open(program, x, device="cpu", executor="torch").config.jit(program) for program in (module, other)
    )
    for jitted in (growing, counting, growing):
        for _ in range(3):
            jitted(x)
    # The last call was captured again, because `calls` had changed since the call before.
    change = counting._last_change()
    assert change.endswith(f"(self.calls += 1), where program.calls == {module.calls - 2} no longer holds")
    assert "len(program.before)" in growing._last_change()


@pytest.mark.parametrize("program", [lambda: torch.nn.Linear(4, 4), Weighs], ids=["linear", "weighs"])
def test_a_program_that_recompiles_only_once_is_timed(program: Callable[[], torch.nn.Module]) -> None:
    x = torch.randn(2, 4)
    module = program()
    bench = workbench.open(module, x, device="cpu", executor="torch")
    stepper = Stepper(module, (x,), {}, bench.config.jit(module))
    stepper.step()
    if not isinstance(module, Weighs):
        module.eval()
    stepper.step()
    clocks = StatementClocks(stepper.run, time.time_ns, frees=True)
    assert len(memory_meter.measure_peak(stepper, clocks).statement_live_bytes) == len(clocks.statements)


@pytest.mark.slow
def test_a_run_of_an_unsteady_program_reports_the_line_that_changes(tmp_path: Path) -> None:
    bench = workbench.open(Counts(), torch.randn(2, 4), device="cpu", executor="torch")
    options = RunOptions(samples=3, warmup=1, check_accuracy=False)
    run = bench.run(wait=True, folder=tmp_path, options=options)
    assert run.state == "done"
    warned = [event.message for event in run.events if isinstance(event, events.Warned)]
    for message, told in zip(warned, ["the measured peak is that of a later", "no statement is timed"], strict=True):
        assert told in message
        assert "test_changing_programs.py" in message
        assert "program.calls ==" in message
    assert any(isinstance(event, events.PeakMeasured) for event in run.events)
