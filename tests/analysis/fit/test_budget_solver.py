"""For random durations of statements, the solver of a fit finds the best of all combinations of options."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

import workbench
from tests.strategies import drawn
from tests.trial_counts import amount, beyond
from workbench.analysis.cost.machines import H100
from workbench.analysis.fit import lp_bound, milp_process
from workbench.analysis.fit.budget_solver import Chooser
from workbench.analysis.fit.milp_process import solve_whole
from workbench.analysis.fit.option_costs import OptionRates
from workbench.analysis.fit.residency import Presence
from workbench.analysis.memory.peak_by_statement import (
    OFFLOAD,
    RECOMPUTE,
    SAVE,
    ExactMemory,
    JointGraphMemory,
    PeakPositions,
)
from workbench.bench.fit.fitter import Fitter
from workbench.compiler.pipeline.lever_context import LeverContext
from workbench.errors import ProgramError


def residual(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x = x + torch.sin(torch.nn.functional.silu(x @ w) @ w)
    return (x @ w).tanh().exp().sum()


def tower(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(5):
        x = torch.tanh(x @ w)
    return x.sum()


class Small:
    """A program's graph, and all combinations of options for its storages. Computed memory is kept for later tests."""

    def __init__(self, program: Callable[..., torch.Tensor]) -> None:
        arguments = torch.randn(256, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
        opened = workbench.open(program, *arguments, device="cpu", executor="torch", capture="interpreter")
        context = opened._captured.context
        self.work = work = context.recomputer
        self.places = PeakPositions(work, context.predictor)
        self._exactly = JointGraphMemory(work, context.predictor, self.places, {}, along=True, gather=False, ahead=4)
        self._known: dict[frozenset[tuple[int, str]], ExactMemory] = {}
        self.free = {
            int(s): (OFFLOAD,) if work.why_no_recompute(int(s)) else (RECOMPUTE, OFFLOAD) for s in work.storages()
        }
        self.everything = tuple(
            {s: o for s, o in zip(self.free, taken, strict=True) if o != SAVE}
            for taken in itertools.product(*((SAVE, *options) for options in self.free.values()))
        )

    def weigh(self, options: Mapping[int, str]) -> ExactMemory:
        key = frozenset(options.items())
        if key not in self._known:
            self._known[key] = self._exactly(options)
        return self._known[key]

    def chooser(self, rates: OptionRates) -> Chooser:
        return Chooser(self.work, self.places, rates, self.weigh, self.free, {}, quick=True)

    def rates(self, seed: int) -> OptionRates:
        draw = np.random.default_rng(seed)
        count = len(self.work.graph.statements)
        return OptionRates(
            seconds=draw.uniform(0.01, 1.0, count) * (draw.choice([0.0, 1.0], count) if draw.integers(2) else 1.0),
            offload_bytes_per_s=float(draw.choice([4e3, 16e3, 1e6])),
            hides=bool(draw.integers(2)),
        )


@pytest.fixture(scope="module", params=beyond(1, [tower, residual]), ids=lambda program: str(program.__name__))
def small(request: pytest.FixtureRequest) -> Small:
    found = Small(request.param)
    assert 4 <= len(found.free) <= 7
    return found


@pytest.mark.slow
@settings(max_examples=8)
@given(seed=st.integers(0, 10**6))
def test_no_combination_is_faster_under_any_limit(small: Small, seed: int) -> None:
    rates = small.rates(seed)
    other, chooser = small.chooser(rates), small.chooser(rates)
    points = [other.point(options) for options in small.everything]
    least, stock = min(point.peak_bytes for point in points), points[0].peak_bytes
    assert chooser.least().peak_bytes == least
    assert chooser.fit(least - 1) is None
    for limit in np.random.default_rng(seed).integers(least, stock + 1, 4).tolist():
        found = chooser.fit(limit)
        best = min(point.added_s for point in points if point.peak_bytes <= limit)
        assert found is not None
        assert found.peak_bytes <= limit
        assert found.added_s == pytest.approx(best, abs=1e-9)
        # The LP relaxation gives a bound. The search over integer choices proves a bound that is at least as high.
        assert small.chooser(rates).bound(limit).added_s <= chooser.bound(limit).added_s + 1e-9 <= best + 2e-6


@pytest.mark.slow
@pytest.mark.parametrize("small", [residual], indirect=True)
def test_recomputing_and_offloading_together_are_faster_than_either_alone(small: Small) -> None:
    # In the forward and in the backward, compute can hide the transfer of one storage, but not of two.
    seconds = np.full(len(small.work.graph.statements), 0.1)
    rates = OptionRates(seconds=seconds, offload_bytes_per_s=16384 / 0.8, hides=True)
    every = small.chooser(rates)
    points = [every.point(options) for options in small.everything]
    alone = [[p for p in points if set(p.options.values()) <= {option}] for option in (RECOMPUTE, OFFLOAD)]
    limit = max(min(p.peak_bytes for p in within) for within in alone)
    best = [min(p.added_s for p in within if p.peak_bytes <= limit) for within in alone]
    found = small.chooser(rates).fit(limit)
    assert found is not None
    assert set(found.options.values()) == {RECOMPUTE, OFFLOAD}
    assert found.added_s < 0.8 * min(best)


def viewed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x @ w + x
    return (y.reshape(16, 256) @ w.repeat(16, 1)).sum() + (y * 2).exp().tanh().sum()


@pytest.mark.slow
def test_plans_that_recompute_and_offload_have_the_predicted_peak() -> None:
    arguments = torch.randn(256, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    bench = workbench.open(viewed, *arguments, device="cpu", executor="torch", capture="interpreter")
    fitter = Fitter(bench, bench._captured, H100)
    free = dict.fromkeys(storage for storage, _ in fitter.chooser.choices)
    legal = {s: [SAVE, *(o for t, o in fitter.chooser.choices if t == s)] for s in free}
    tried = 0
    for taken in itertools.product(*legal.values()):
        point = fitter.chooser.point({s: o for s, o in zip(legal, taken, strict=True) if o != SAVE})
        if {RECOMPUTE, OFFLOAD} <= set(taken):
            plan = fitter.plan(point)
            assert (plan.peak_bytes, plan.saved_bytes) == (point.peak_bytes, point.saved_bytes), fitter.choices(point)
            assert plan.proof.proven
            tried += 1
    assert tried >= 6


def alike(xs: list[torch.Tensor], w: torch.Tensor) -> torch.Tensor:
    return torch.stack([x.sin().exp().sum() for x in xs]).sum() + (w.sin() * w).sum()


@pytest.mark.slow
def test_the_solver_tolerance_does_not_break_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    # HiGHS accepts plans that exceed a limit of gigabytes by kilobytes. Such plans exist here, because storages differ
    # by kilobytes.
    draw = np.random.default_rng(3)
    with torch.device("meta"):
        xs = [torch.empty(2**24 + 128 * int(more), requires_grad=True) for more in draw.integers(0, 40, 14)]
        w = torch.empty(2**29)
    bench = workbench.open(alike, xs, w, device="planned", executor="torch", capture="interpreter")
    chooser = Fitter(bench, bench._captured, H100).chooser
    again = [storage for storage, option in chooser.choices if option == RECOMPUTE]
    solved: list[int] = []

    def counted(*args: Any, **settings: Any) -> Any:
        solved.append(1)
        return solve_whole(*args, **settings)

    monkeypatch.setattr(lp_bound, "solve_whole", counted)
    for _ in range(4):
        half = {int(storage): RECOMPUTE for storage in draw.permutation(again)[:7]}
        limit = chooser.point(half).peak_bytes
        solved.clear()
        chooser._rounding.close_gap(limit)
        found = chooser.fastest_known(limit)
        assert found is not None
        assert found.peak_bytes <= limit
        assert len(found.options) == 7
        assert len(solved) <= 10


def test_solver_output_does_not_reach_standard_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    printing = "import os; os.write(1, b'HighsMipSolverData'); asked.send(0)"
    assert "asked.send(milp(*given, **options))" in milp_process._THERE
    monkeypatch.setattr(
        milp_process, "_THERE", milp_process._THERE.replace("asked.send(milp(*given, **options))", printing)
    )
    milp_process.end_idle()
    print("before", flush=True)
    assert solve_whole(lambda: None, nodes=1) == 0
    milp_process.end_idle()
    print("after", flush=True)
    assert capfd.readouterr().out.split() == ["before", "after"]


class Counted:
    """Lower bounds on the live bytes under given options, computed by the formula of the linear program."""

    def __init__(self, context: LeverContext, ahead: int) -> None:
        work = context.recomputer
        self.places = PeakPositions(work, context.predictor)
        self.free = {
            storage: [
                o for o, why in ((RECOMPUTE, work.why_no_recompute), (OFFLOAD, work.why_no_offload)) if not why(storage)
            ]
            for storage in work.storages().tolist()
        }
        self.exactly = JointGraphMemory(work, context.predictor, self.places, {}, along=True, gather=False, ahead=ahead)
        variables = [(storage, option) for storage, options in self.free.items() for option in options]
        self.presence = Presence(work, self.places.stock, variables, along=True, gather=False, ahead=ahead)
        self.stock, self._bytes = self.exactly({}).peaks, work.graph.storages.bytes

    def least(self, options: Mapping[int, str]) -> Any:
        """Return the lower bound on the live bytes at each statement of the schedule."""
        absent = {storage: np.zeros(len(self.stock), bool) for storage in {*options, *self.presence.beside}}
        present = self.presence.presence_of(options)
        for storage in options:
            if storage in self.presence.spans:
                start, end = self.presence.spans[storage]
                end = min(end, present[storage].place) if storage in present else end
                for place in range(start, end):
                    absent[storage][place] = not self.presence.is_reloaded(options, storage, place)
        for storage, beside in self.presence.beside.items():
            made = any(options.get(maker) == RECOMPUTE for maker in beside.makers)
            if made and options.get(storage) != RECOMPUTE:
                absent[storage][beside.start : beside.end] = True
        return self.stock - sum(self._bytes[storage] * places for storage, places in absent.items())


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.filterwarnings("ignore::workbench.errors.ProgramWarning")
@settings(max_examples=amount(5, 60, 600), suppress_health_check=list(HealthCheck), deadline=None)
@example(seed=15770, ahead=0)
@given(seed=st.integers(0, 10**6), ahead=st.sampled_from((0, 1, 4)))
def test_no_options_need_fewer_live_bytes_than_the_bound(seed: int, ahead: int) -> None:
    program = drawn(Random(seed), draws=seed % 3 == 0, writes=seed % 2 == 0, most_lines=10)
    function, arguments, _ = program.build()
    try:
        opened = workbench.open(function, *arguments, device="cpu", executor="torch", capture="interpreter")
    except ProgramError:
        assume(False)
    context = opened._captured.context
    assume(context.has_backward)
    every = Counted(context, ahead)
    assume(len(every.free) >= 2 and math.prod(1 + len(options) for options in every.free.values()) <= 1500)
    for taken in itertools.product(*((SAVE, *options) for options in every.free.values())):
        options = {s: o for s, o in zip(every.free, taken, strict=True) if o != SAVE}
        assert (every.exactly(options).peaks >= every.least(options)).all(), options
