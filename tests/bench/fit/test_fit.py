"""`bench.fit` meets a limit on peak memory with the least added time, or reports the least possible peak memory."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import LinearConstraint
from torch import nn

import workbench
from tests.needs import needs_nvfuser
from tests.trial_counts import beyond
from workbench import Workbench, cli
from workbench.analysis.cost.machines import H100
from workbench.analysis.fit.budget_solver import Chooser
from workbench.analysis.fit.lp_bound import LimitedProgram
from workbench.analysis.fit.milp_process import solve, solve_whole
from workbench.analysis.fit.option_costs import OptionRates
from workbench.analysis.fit.rounding import SOLVED_TO
from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE, SAVE, JointGraphMemory, PeakPositions
from workbench.bench.fit.fitter import Fitter
from workbench.bench.session.fit_request import STORAGES, check_peak, size_bytes
from workbench.core.lever import lever_named
from workbench.errors import ChoiceError, PlanError
from workbench.summary import human_bytes
from workbench.ui.controls.inspector import site_content


def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x @ w)
    z = torch.exp(torch.sin(y)) * y
    return (torch.sigmoid(z) @ w).cos().sum()


def deep(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = torch.tanh(x @ w)
    return x.sum()


def blocks(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = x + torch.sin(torch.nn.functional.silu(x @ w) @ w)
    return (x @ w).tanh().exp().sum()


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(64, 32, requires_grad=True), torch.randn(32, 32, requires_grad=True)


@pytest.fixture
def bench() -> Workbench:
    return workbench.open(chain, *arguments(), device="cpu", executor="torch", capture="interpreter")


@pytest.fixture(scope="module")
def opened() -> Workbench:
    arguments = torch.randn(256, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    return workbench.open(blocks, *arguments, device="cpu", executor="torch", capture="interpreter")


@pytest.fixture
def tall(opened: Workbench) -> Workbench:
    """Return a bench without choices. Its program saves many storages, so a fit can free much memory."""
    while opened.can_undo:
        opened.undo()
    return opened


def chooser_of(bench: Workbench, *, hides: bool, seed: int = 0) -> Chooser:
    context = bench._captured.context
    work, values = context.recomputer, context.graph.values
    draw = np.random.default_rng(seed)
    rates = OptionRates(
        seconds=draw.uniform(0.1, 1.0, len(context.graph.statements)),
        offload_bytes_per_s=16e3,
        hides=hides,
    )
    places = PeakPositions(work, context.predictor)
    weigh = JointGraphMemory(work, context.predictor, places, {}, along=True, gather=False, ahead=4)
    free = {
        int(s): [o for o in (RECOMPUTE, OFFLOAD) if o != RECOMPUTE or not work.why_no_recompute(int(s))]
        for s in work.storages()
    }
    assert len(values.name) > len(free) >= 5
    return Chooser(work, places, rates, weigh, free, {}, quick=True)


@pytest.mark.slow
@pytest.mark.parametrize("hides", [False, True])
def test_no_combination_of_choices_is_faster(bench: Workbench, hides: bool) -> None:
    chooser = chooser_of(bench, hides=hides)
    options = {storage: [SAVE] for storage, _ in chooser.choices}
    for storage, option in chooser.choices:
        options[storage].append(option)
    points = [
        chooser.point({s: o for s, o in zip(options, taken, strict=True) if o != SAVE})
        for taken in itertools.product(*options.values())
    ]
    least = min(point.peak_bytes for point in points)
    assert chooser.least().peak_bytes == least
    assert chooser.fit(least - 1) is None
    for limit in np.linspace(least, chooser.stock.peak_bytes, 8).astype(int).tolist():
        best = min(point.added_s for point in points if point.peak_bytes <= limit)
        found = chooser.fit(limit)
        assert found is not None
        assert found.peak_bytes <= limit
        assert found.added_s == pytest.approx(best)
        assert chooser.bound(limit).added_s <= best + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("seed", [28, 35, 53, 56])
def test_no_rounding_puts_the_bound_above_the_time_of_the_choices(bench: Workbench, seed: int) -> None:
    # With these times, the solver's own sum for the choices exceeds the predicted sum in the last bit.
    chooser = chooser_of(bench, hides=False, seed=seed)
    for limit in np.linspace(chooser.least().peak_bytes, chooser.stock.peak_bytes, 8).astype(int).tolist():
        found = chooser.fit(limit)
        assert found is not None
        assert chooser.bound(limit).added_s <= found.added_s


@pytest.mark.slow
def test_the_plan_is_within_the_limit_and_tighter_limits_cost_more(bench: Workbench) -> None:
    stock, added, met = bench.plan.peak_bytes, [], 0
    for limit in range(stock, stock // 2, -2048):
        try:
            found = bench.fit(limit)
        except PlanError:
            break
        assert found.peak_bytes == bench.plan.peak_bytes <= limit
        assert bench.choices == dict(found.choices)
        assert bench.plan.proof.proven
        assert found.added_s >= found.bound.added_s
        added.append(found.added_s)
        met += bool(found.choices)
        bench.undo()
        assert bench.choices == {} or not found.choices
    assert met > 2
    assert added == sorted(added)


@pytest.mark.slow
def test_a_fit_of_fusions_makes_plans_until_one_is_within_the_limit() -> None:
    bench = workbench.open(deep, *arguments(), device="cpu", executor="torchcompile", capture="interpreter")
    stock = bench.plan
    found = bench.fit(stock.peak_bytes - 1)
    assert found.choices
    assert bench.plan.peak_bytes == found.peak_bytes <= found.limit_bytes
    assert bench.plan.proof.proven


@pytest.mark.slow
def test_a_fit_of_fusions_meets_a_peak_that_recomputing_everything_exceeds() -> None:
    arguments = torch.randn(256, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    bench = workbench.open(blocks, *arguments, device="cpu", executor="torchcompile", capture="interpreter")
    fitter = Fitter(bench, bench._captured, H100, using=("recompute",))
    stock = bench.plan.peak_bytes
    everything = fitter.chooser.point(dict(fitter.chooser.choices)).peak_bytes
    least = fitter.lowest_peak()[1].peak_bytes
    assert least < 0.9 * everything
    added = []
    for limit in np.linspace(least, stock, 4).astype(int).tolist():
        point, plan = fitter.fit_peak(limit)
        assert plan.peak_bytes <= limit
        assert plan.proof.proven
        assert point.options != dict(fitter.chooser.choices)
        added.append(point.added_s)
    assert added == sorted(added, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("using", [(RECOMPUTE, OFFLOAD), (RECOMPUTE,)])
def test_each_of_many_budgets_keeps_the_promises_of_fit(tall: Workbench, using: tuple[str, ...]) -> None:
    fitter = Fitter(tall, tall._captured, H100, using=using)
    everything = fitter.chooser.point({s: o for s, o in fitter.chooser.choices if o == RECOMPUTE})
    lowest, stock = fitter.lowest_peak()[1].peak_bytes, tall.plan.peak_bytes
    assert lowest < stock
    limits = np.linspace(lowest, stock, 12).astype(int).tolist()
    found = []
    for limit in limits:
        # Use a new fitter, so that no plan that was made for an earlier limit can help.
        alone = Fitter(tall, tall._captured, H100, using=using)
        found.append(alone.fit_peak(limit))
    points = [(plan.peak_bytes, point.added_s) for point, plan in found]
    assert all(peak_bytes <= limit for limit, (peak_bytes, _) in zip(limits, points, strict=True))
    for (_, longer_s), (_, added_s) in itertools.pairwise(points):
        assert added_s <= longer_s * (1 + SOLVED_TO)
    for peak_bytes, added_s in points:
        assert not any(p < peak_bytes and s < added_s * (1 - SOLVED_TO) for p, s in points)
    for limit in limits:
        fitter.fit_peak(limit)
    for limit, (peak_bytes, added_s) in zip(limits, points, strict=True):
        # The peak memory may be more than 1 % below the limit only if the search made no faster plan within the limit.
        best = fitter.chooser.fastest_known(limit)
        assert best is not None
        assert peak_bytes >= 0.99 * limit or added_s <= best.added_s * (1 + SOLVED_TO)
    assert not any(point.options == everything.options and plan.peak_bytes > lowest for point, plan in found)


@pytest.mark.slow
def test_nothing_is_solved_once_the_gap_is_close_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search ends as soon as the best plan so far is within the requested gap of the bound."""
    bench = workbench.open("llama", device="planned", executor="torch", layers=10)
    chooser = Fitter(bench, bench._captured, bench.machine).chooser
    limit, near, whole, alike = (
        chooser.least().peak_bytes,
        0.01,
        LimitedProgram.solve_integer,
        LimitedProgram.solve_merged,
    )
    enough: list[bool] = []

    def noted(solve: Any) -> Any:
        def solved(under: LimitedProgram, *given: Any, **options: Any) -> Any:
            enough.append(chooser._rounding.is_near_bound(limit, near))
            return solve(under, *given, **options)

        return solved

    monkeypatch.setattr(LimitedProgram, "solve_integer", noted(whole))
    monkeypatch.setattr(LimitedProgram, "solve_merged", noted(alike))
    found = chooser.fit(limit, gap=near)
    assert found is not None
    assert chooser.gap(found, limit) <= near
    assert enough
    assert not any(enough)


@pytest.mark.slow
@needs_nvfuser
@pytest.mark.parametrize("near", [False, True])
def test_no_plan_improves_a_result_that_is_near_the_bound(monkeypatch: pytest.MonkeyPatch, *, near: bool) -> None:
    bench = workbench.open("llama", device="planned", executor="nvfuser", layers=1)
    chooser = Fitter(bench, bench._captured, bench.machine).chooser
    monkeypatch.setattr(chooser._improvement, "_is_near_bound", lambda limit_bytes, gap: near)
    monkeypatch.setattr("workbench.analysis.fit.improvement.LEAST_PLANS", 1)
    monkeypatch.setattr("workbench.analysis.fit.fit_problem.FitProblem.plan_budget", 1)
    point = chooser.point(dict(chooser.choices))
    known = len(chooser.evaluations)
    found = chooser._improvement.save_again(point, bench.plan.peak_bytes)
    assert (found is point) is near
    assert (len(chooser.evaluations) == known) is near


@pytest.mark.slow
def test_choices_made_by_hand_stay(bench: Workbench) -> None:
    site = next(site for site in bench.sites("saved") if site.values)
    bench.choose({site.id: "offload"})
    found = bench.fit(bench.plan.peak_bytes - 1)
    assert site.id not in found.choices
    assert bench.choices == {site.id: "offload", **found.choices}


def test_a_second_fit_is_independent_of_the_first(tall: Workbench) -> None:
    stock = tall.plan.peak_bytes
    alone = tall.fit(stock - 30000)
    tall.undo()
    first = tall.fit(stock - 1)
    assert first.choices
    assert tall.pinned == {}
    again = tall.fit(stock - 30000)
    assert again.choices == alone.choices == tall.choices
    assert again.before_peak_bytes == stock
    by_hand = next(site.id for site in tall.sites("saved") if site.values and site.id in again.choices)
    tall.choose({by_hand: again.choices[by_hand]})
    assert tall.pinned == {by_hand: again.choices[by_hand]}
    assert tall.fit("1 GiB").choices == {}
    assert tall.choices == tall.pinned


def test_why_gives_the_gain_of_each_choice(tall: Workbench) -> None:
    found = tall.fit(tall.plan.peak_bytes - 30000)
    assert found.held
    assert all("test_fit.py:" in held for held in found.held)
    for chosen in found.why:
        others = {id: option for id, option in found.choices.items() if id != chosen.id}
        assert tall.plan_under(others).peak_bytes - found.peak_bytes == chosen.peak_bytes
        assert chosen.saves_s >= 0
    for step, lower in ((found.looser, False), (found.tighter, True)):
        assert step is not None
        assert (step.peak_bytes < 0) is lower
        assert (step.step_s < 0) is not lower
        others = {id: option for id, option in found.choices.items() if id != step.id}
        then = tall.plan_under({**others, **({step.id: step.option} if step.option != SAVE else {})})
        assert then.peak_bytes - found.peak_bytes == step.peak_bytes
        assert re.fullmatch(rf"{'Lower' if lower else 'Raise'} the peak by \S+ \S+", step.label)
        assert step.effect.startswith(f"{step.id}={step.option}, step {'+' if lower else '−'}")
        assert step.effect_in_words.startswith(f"{step.option} {step.id.removeprefix('saved:')}, step ")
        assert repr(found).count(str(step)) == 1
    assert repr(found).startswith(f"Peak {human_bytes(found.before_peak_bytes)} → {human_bytes(found.peak_bytes)} (")
    assert "), step time optimal for this peak within 0." in found.lines[1]
    # Only one price of a lower peak is named.
    assert "each further KiB" not in found.lines[1]
    assert "; each further KiB below this peak costs" in dataclasses.replace(found, tighter=None).lines[1]
    assert json.loads(json.dumps(found.to_json()))["looser"]["id"] == found.looser.id  # type: ignore[union-attr]


def test_a_step_time_is_met_with_the_least_peak(tall: Workbench) -> None:
    tight = tall.fit(tall.plan.peak_bytes - 30000)
    allowed_s = tight.step_s + tight.added_s
    found = tall.fit(step_s=allowed_s)
    assert found.step_s + found.added_s <= allowed_s
    assert found.peak_bytes <= tight.peak_bytes
    with pytest.raises(
        PlanError, match=r"no plan of blocks has a step of .* or less by the rates of .*; if everything is"
    ):
        tall.fit(step_s=1e-12)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "fit takes either a peak, such as '24 GiB', or step_s="),
        ({"peak": "1 GiB", "step_s": 1.0}, "fit takes either a peak"),
        ({"step_s": 0}, "step_s is a number of seconds above zero; given 0"),
        ({"step_s": float("nan")}, "step_s is a number of seconds above zero; given nan"),
        ({"step_s": "1 s"}, "step_s is a number of seconds above zero; given '1 s'"),
        ({"peak_bytes": 0}, "a peak is a number of bytes above zero"),
        (
            {"peak": "0%"},
            "enter more than 0 % and at most 100 % of the stock peak; given '0%': every plan needs memory",
        ),
        ({"peak": "120%"}, "given '120%': the stock plan already meets that peak"),
        ({"peak": "-5%"}, "a peak is a number of bytes above zero"),
        ({"peak": "%"}, "a peak is a number of bytes above zero"),
    ],
)
def test_an_invalid_goal_is_refused(tall: Workbench, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ChoiceError, match=said):
        tall.fit(**given)
    assert tall.choices == {}


@pytest.mark.slow
def test_no_point_of_a_curve_is_dominated(tall: Workbench) -> None:
    told: list[int] = []
    curve = tall.curve(points=8)
    curve.observe(lambda: told.append(curve.done))
    points = curve.wait().points
    assert (curve.state, curve.done) == ("done", 8)
    assert told[-1] == 8
    assert len(points) > 2
    assert [p.peak_bytes for p in points] == sorted({p.peak_bytes for p in points})
    assert [p.step_s for p in points] == sorted({p.step_s for p in points}, reverse=True)
    assert tall.choices == {}
    for point in points:
        assert tall.plan_under(point.choices).peak_bytes == point.peak_bytes
        assert 0 <= point.gap < 1
    lowest = points[0]
    with pytest.raises(PlanError, match="The least peak found is"):
        tall.fit(lowest.peak_bytes - 1)
    tall.choose_found(lowest.choices)
    assert (tall.choices, tall.pinned) == (dict(lowest.choices), {})
    # The curve does not depend on the current choices.
    assert tall.curve(points=8).wait().points == points


@pytest.mark.slow
@pytest.mark.parametrize(
    ("using", "asked"),
    beyond(
        2,
        [
            (("recompute",), "offload"),
            (("offload",), "recompute"),
            (("recompute",), "order"),
            (("offload", "order"), "recompute"),
        ],
        rows=True,
    ),
)
def test_choices_of_unused_kinds_are_explained_but_never_found(using: tuple[str, ...], asked: str) -> None:
    given = torch.randn(256, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    bench = workbench.open(blocks, *given, device="planned", executor="torch", capture="interpreter")
    fast = dataclasses.replace(H100, bytes_per_s=1e9, flops_per_s={"float32": 1e9})  # slow compute hides transfers
    stock = bench.plan.peak_bytes
    fitter = Fitter(bench, bench._captured, fast if asked != "recompute" else H100, using=using)
    free = [s for s in bench.sites("saved") if s.values and asked in s.options and asked not in s.illegal]
    choices = {site.id: asked for site in free[::2]} if asked != "order" else {"order.statements": "least peak"}
    found, plan = fitter.plan_of_choices(choices)
    assert fitter.explain(found, plan, stock).choices == choices
    legal = {option for option in using if option in STORAGES}
    for limit in np.linspace(stock // 2, stock, 8).astype(int).tolist():
        fit = fitter.find(limit)
        assert fit is None or set(fit.options.values()) <= legal
        assert fit is None or not fit.beside or "order" in using
    least, _ = fitter.lowest_peak()
    assert set(least.options.values()) <= legal


@pytest.mark.slow
def test_a_curve_for_each_kind_is_completed_under_a_plan_with_another_kind() -> None:
    given = torch.randn(256, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    bench = workbench.open(blocks, *given, device="planned", executor="torch", capture="interpreter")
    slow = dataclasses.replace(H100, bytes_per_s=1e9, flops_per_s={"float32": 1e9})
    bench.fit("70%", using=("offload",), machine=slow)
    assert set(bench.choices.values()) == {"offload"}
    curve = bench.curve(using=("recompute", "offload", "order"), each=True, points=4, machine=slow)
    curve.observe(lambda: curve.step_s(bench.choices) and None)  # the Fit tab does the same
    assert curve.wait().state == "done"
    for line in curve.lines:
        for point in line.points:
            assert point.offloaded == 0 or "offload" in line.using
            assert not point.beside or "order" in line.using


def test_a_cancel_does_not_wait_for_a_solver() -> None:
    over, left = threading.Event(), 3

    def go_on() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        solve(go_on, over.wait, timeout=60)
    over.set()
    assert solve(lambda: None, max, 2, 3) == 3
    with pytest.raises(ZeroDivisionError):
        solve(lambda: None, divmod, 1, 0)


def market_split() -> dict[str, Any]:
    """Return an integer program, a market split problem, that branch and bound cannot solve in reasonable time."""
    draw = np.random.default_rng(0).integers(0, 100, (5, 40)).astype(float)
    split = LinearConstraint(draw, draw.sum(axis=1) // 2, draw.sum(axis=1) // 2)
    return {"constraints": [split], "integrality": np.ones(40), "bounds": (0, 1)}


def end_idle_solvers() -> None:
    """End idle solver processes, so that the next solve starts a new process."""
    workbench.analysis.fit.milp_process.end_idle()


@pytest.mark.slow
def test_a_solver_process_is_used_again_and_ends_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    end_idle_solvers()
    monkeypatch.setattr(workbench.analysis.fit.milp_process, "_IDLE_S", 0.5)
    before = set(os.listdir("/proc/self/fd"))
    small = {"constraints": [LinearConstraint(np.ones((1, 3)), 2, 3)], "integrality": np.ones(3), "bounds": (0, 1)}
    for _ in range(3):
        assert solve_whole(lambda: None, np.array([1.0, 2.0, 3.0]), **small, nodes=10).fun == 3
        assert len(workbench.analysis.fit.milp_process._idle) == 1
    until = time.monotonic() + 30
    while workbench.analysis.fit.milp_process._idle or set(os.listdir("/proc/self/fd")) != before:
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
def test_solvers_in_parallel_threads_give_the_right_results() -> None:
    end_idle_solvers()
    small = {"constraints": [LinearConstraint(np.ones((1, 3)), 2, 3)], "integrality": np.ones(3), "bounds": (0, 1)}
    found: list[float] = []

    def work(scale: float) -> None:
        found.append(solve_whole(lambda: None, scale * np.array([1.0, 2.0, 3.0]), **small, nodes=10).fun / scale)

    threads = [threading.Thread(target=work, args=(float(n),)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [3.0] * 4
    end_idle_solvers()


@pytest.mark.slow
def test_a_killed_solver_process_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    end_idle_solvers()
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(command, **options))
        return started[-1]

    def go_on() -> None:
        if started:
            started[0].kill()

    monkeypatch.setattr(subprocess, "Popen", start)
    before = time.monotonic()
    with pytest.raises(PlanError, match=r"the solver's process was killed by SIGKILL; nothing was chosen\. If memory"):
        solve_whole(go_on, np.ones(40), **market_split(), nodes=10**9)
    assert time.monotonic() - before < 30
    assert len(started) == 1


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ("import sys; sys.exit(3)", "ended with status 3; nothing was chosen"),
        ("raise MemoryError('no more')", "ended with status 1: MemoryError: no more; nothing was chosen"),
    ],
)
def test_a_failed_solver_process_reports_the_reason(monkeypatch: pytest.MonkeyPatch, there: str, said: str) -> None:
    end_idle_solvers()
    monkeypatch.setattr(workbench.analysis.fit.milp_process, "_THERE", there)
    with pytest.raises(PlanError, match=f"the solver's process {said}"):
        solve_whole(lambda: None, np.ones(40), **market_split(), nodes=10**9)


def test_a_solver_process_that_does_not_start_reports_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    end_idle_solvers()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(PlanError, match=r"the solver's process did not start: .*'/nowhere/python'; nothing was chosen"):
        solve_whole(lambda: None, np.ones(40), **market_split(), nodes=10**9)


@pytest.mark.slow
def test_a_slow_solver_ends_at_once_when_waiting_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    end_idle_solvers()
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(command, **options))
        return started[-1]

    def go_on() -> None:
        if started:
            raise InterruptedError

    monkeypatch.setattr(subprocess, "Popen", start)
    hard = market_split()
    with pytest.raises(InterruptedError):
        solve_whole(go_on, np.ones(40), **hard, nodes=10**9)
    assert started[0].poll() is not None
    started.clear()
    monkeypatch.setattr(workbench.analysis.fit.milp_process, "_LONGEST_S", 0.75)
    found = solve_whole(lambda: None, np.ones(40), **hard, nodes=10**9)
    assert len(started) == 1
    assert found.status == 1
    again = solve_whole(lambda: None, np.ones(40), **hard, nodes=10**9)
    assert len(started) == 1
    assert again.status == 1
    end_idle_solvers()
    assert started[0].poll() is not None


@pytest.mark.slow
@pytest.mark.parametrize(("device", "used"), [("cpu", ("recompute",)), ("planned", ("recompute", "offload"))])
def test_offloading_on_a_cpu_is_left_out_unless_requested(device: str, used: tuple[str, ...]) -> None:
    given = torch.randn(256, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    bench = workbench.open(blocks, *given, device=device, executor="torch", capture="interpreter")
    curve = bench.curve(points=3).wait()
    assert curve.using == used
    fit = bench.fit("80%")
    assert fit.using == used
    assert set(fit.choices.values()) <= set(used)
    bench.undo()
    asked = bench.fit("80%", using=("offload",))
    assert set(asked.choices.values()) == {"offload"}


@pytest.mark.slow
def test_sites_and_the_inspector_say_that_offloading_on_a_cpu_is_a_stand_in() -> None:
    sites = {
        device: workbench.open("mlp", device=device, executor="torch").sites("saved") for device in ("cpu", "planned")
    }
    (noted, *_) = (site for site in sites["cpu"] if site.notes)
    assert "frees no memory" in noted.notes["offload"]
    assert all(site.notes.keys() == {"offload"} - site.illegal.keys() for site in sites["cpu"] if site.bytes)
    assert "frees no memory" in repr(sites["cpu"])
    assert not any(site.notes for site in sites["planned"])
    shown = [site_content([site], {}, {})["sites"][0]["options"][-1]["means"] for site in (noted, sites["planned"][-1])]
    assert "frees no memory" in shown[0]
    assert shown[1] == lever_named("saved").meanings["offload"]


@pytest.mark.slow
def test_a_curve_can_be_cancelled(tall: Workbench) -> None:
    curve = tall.curve(points=500)
    curve.observe(curve.cancel)
    curve.wait(120)
    assert curve.state == "cancelled"
    assert 0 < curve.done < 500
    with pytest.raises(ChoiceError, match="a curve has at least 2 points; given 1"):
        tall.curve(points=1)


def test_a_limit_that_holds_already_changes_nothing(bench: Workbench) -> None:
    found = bench.fit("1 GiB")
    assert found.choices == {} == bench.choices
    assert repr(found).startswith("Nothing to change: peak ")


def test_an_unreachable_limit_is_refused_with_the_least_peak(bench: Workbench) -> None:
    with pytest.raises(
        PlanError,
        match=r"no plan of chain with a peak of 1\.00 KiB or less was found using recompute\. "
        r"The least peak found is .* KiB \(\d+ bytes\), "
        r"because parameters and inputs alone take 12\.0 KiB",
    ):
        bench.fit("1 KiB")
    baseline = bench.plan.baseline_bytes
    with pytest.raises(
        PlanError, match=r"The least peak found is .*, reached at .*test_fit\.py:\d+\. The largest values there are "
    ):
        bench.fit(baseline + 1)
    assert bench.choices == {}


@pytest.mark.slow
def test_a_refusal_names_no_statement_that_only_the_plan_has() -> None:
    with pytest.raises(PlanError, match=r"The largest values there are .* reloaded tensor") as refused:
        workbench.open("llama", layers=2, device="planned", executor="torch").fit("50%")
    assert not re.search(r"reload(ed)?_\d", str(refused.value))


@pytest.mark.parametrize("using", beyond(1, [("recompute",), ("offload",), ("recompute", "order")], pytest.mark.slow))
def test_a_refusal_names_the_used_kinds_and_kinds_that_may_reach_a_lower_peak(
    tall: Workbench, using: tuple[str, ...]
) -> None:
    with pytest.raises(PlanError) as refused:
        tall.fit(tall.plan.baseline_bytes, using=using)
    assert f"was found using {', '.join(using)}. The least peak found is " in str(refused.value)
    named = re.search(r"The least peak found is \S+ KiB \((\d+) bytes\)", str(refused.value))
    advised = re.search(r"the peak may be lower: using=(\(.*\))$", str(refused.value))
    assert (advised is None) == (using == ("recompute", "order"))
    if advised is not None:
        assert named is not None
        more = tuple(re.findall(r"'(\w+)'", advised[1]))
        assert set(more) > set(using)
        assert tall.fit(int(named[1]), using=more).peak_bytes <= int(named[1])


def test_the_least_peak_that_a_refusal_names_is_met_and_one_byte_less_is_refused(tall: Workbench) -> None:
    with pytest.raises(PlanError) as refused:
        tall.fit(1)
    named = re.search(r"The least peak found is \S+ KiB \((\d+) bytes\)", str(refused.value))
    assert named is not None
    least = int(named[1])
    assert tall.fit(least).peak_bytes == least
    tall.undo()
    with pytest.raises(PlanError, match=rf"with a peak of \S+ KiB \({least - 1} bytes\) .* \({least} bytes\)"):
        tall.fit(least - 1)


@pytest.mark.slow
def test_no_fit_goes_below_the_least_peak_that_a_refusal_names() -> None:
    bench = workbench.open("llama", device="cpu", executor="torch", layers=8)
    stock = bench.plan.peak_bytes
    met, named = [], []
    for percent in (76, 74, 72, 70, 68, 30):
        try:
            met.append(bench.fit(stock * percent // 100).peak_bytes)
        except PlanError as error:
            named += [int(found) for found in re.findall(r"The least peak found is .* \((\d+) bytes\)", str(error))]
    assert met
    assert named
    assert max(named) <= min(met)


def test_a_refusal_mentions_choices_made_by_hand(tall: Workbench) -> None:
    least_bytes = tall.curve(points=2).wait().points[0].peak_bytes
    by_hand = {next(s.id for s in tall.sites("saved") if s.values and "recompute" not in s.illegal): "recompute"}
    tall.choose(by_hand)
    with pytest.raises(
        PlanError, match=r"The least peak found is \S+ KiB \(\d+ bytes\) \(keeping 1 choice made by hand\)"
    ):
        tall.fit(least_bytes - 1)
    assert tall.choices == by_hand


@pytest.mark.slow
def test_a_fit_of_which_all_choices_are_made_by_hand_is_refused_with_the_peak(tall: Workbench) -> None:
    by_hand = {site.id: "recompute" for site in tall.sites("saved") if site.values and "recompute" not in site.illegal}
    tall.choose(by_hand)
    peak_bytes = tall.plan.peak_bytes
    assert [point.peak_bytes for point in tall.curve().wait().points] == [peak_bytes]
    with pytest.raises(PlanError, match=rf"found is \S+ KiB \({peak_bytes} bytes\) \(keeping {len(by_hand)} choices"):
        tall.fit(peak_bytes - 1)


def test_a_program_without_a_backward_is_refused() -> None:
    bench = workbench.open(torch.sin, torch.ones(3), device="cpu", executor="torch", capture="interpreter")
    with pytest.raises(PlanError, match="has no backward, so there is nothing to save or recompute"):
        bench.fit("1 GiB")


@pytest.mark.parametrize("given", beyond(1, ["80%", " 80 %", "80.0%"], pytest.mark.slow))
def test_a_share_is_relative_to_the_peak_of_unmodified_thunder(tall: Workbench, given: str) -> None:
    stock = tall.stock_plan.peak_bytes
    before = tall.fit("90%").peak_bytes
    found = tall.fit(given)
    assert found.peak_bytes <= 0.8 * stock < before <= 0.9 * stock
    assert found.choices == tall.fit(int(0.8 * stock)).choices
    assert tall.curve(points=2).fit(given).peak_bytes <= 0.8 * stock
    assert not tall.fit("100%").choices


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("24 GiB", 24 * 2**30),
        ("1.5kB", 1500),
        ("512 MB", 512 * 10**6),
        ("101", 101),
        ("7 B", 7),
        (7, 7),
        ("2TiB", 2**41),
        ("2 mib", 2**21),
        ("3gb", 3 * 10**9),
    ],
)
def test_sizes_are_parsed_to_bytes(given: int | str, meant: int) -> None:
    assert size_bytes(given) == meant


@pytest.mark.parametrize("given", ["75", " 0.5 ", "100"])
def test_a_peak_that_lacks_its_percent_sign_is_refused(given: str) -> None:
    with pytest.raises(ChoiceError, match=rf"has no unit, .*did you mean '{given.strip()}%' of the stock peak"):
        check_peak(given)


@pytest.mark.parametrize(
    "given", ["", "0", "GiB", "24 gigs", "-1 GiB", "1e9", "nan", 0, -5, 2.5, True, None, "１ GiB "[:1] + "x"]
)
def test_an_invalid_size_is_refused(given: object) -> None:
    with pytest.raises(ChoiceError, match="a peak is a number of bytes above zero, or a text such as '24 GiB'"):
        size_bytes(given)  # type: ignore[arg-type]


@pytest.fixture
def invoke(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Return a function that runs a command of `thunder-workbench`, and returns its exit status and its output."""

    def run(*arguments: str) -> tuple[int, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        wrote = capfd.readouterr()
        return int(stop.value.code or 0), wrote.out or wrote.err

    return run


@pytest.mark.slow
def test_the_command_finds_a_curve_and_meets_a_step_time(invoke: Callable[..., tuple[int, str]]) -> None:
    mlp = ("fit", "mlp", "--set", "layers=1", "--device", "planned", "--executor", "torch")
    status, out = invoke(*mlp, "--curve", "4", "--json")
    line = json.loads(out)
    assert (status, line["state"], line["predicted"]) == (0, "done", True)
    peaks = [point["peak_bytes"] for point in line["points"]]
    steps = [point["step_s"] for point in line["points"]]
    assert len(peaks) >= 2
    assert (peaks, steps) == (sorted(peaks), sorted(steps, reverse=True))
    status, out = invoke(*mlp, "--step", str(steps[0]), "--json")
    found = json.loads(out)
    assert status == 0
    assert found["step_s"] + found["added_s"] <= steps[0]
    assert found["peak_bytes"] <= peaks[0]
    assert found["choices"]
    status, out = invoke(*mlp, "--step", str(steps[0]))
    assert status == 0
    assert out.startswith("Peak ")
    assert "gelu" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "fit takes one of --peak SIZE, --step SECONDS and --curve POINTS"),
        (("--peak", "1GiB", "--step", "1"), "fit takes one of --peak SIZE, --step SECONDS and --curve POINTS"),
        (("--peak", "0"), "a peak is a number of bytes above zero, or a text such as '24 GiB', '512 MB', or '80%' of"),
        (("--peak", "0"), "given 0"),
        (("--peak", "much"), "or '80%' of the stock peak; given 'm"),
        (("--peak", "150 %"), "enter more than 0 % and at most 100 % of the stock peak; given '150 %'"),
        (
            ("--curve", "4", "--export", "x.py"),
            "--curve makes many plans and --export writes one: give --peak or --step",
        ),
    ],
)
def test_the_command_refuses_missing_conflicting_and_invalid_goals(
    invoke: Callable[..., tuple[int, str]], arguments: tuple[str, ...], said: str
) -> None:
    status, out = invoke("fit", "mlp", *arguments)
    assert status != 0
    assert said in " ".join(out.split())


@pytest.mark.slow
def test_the_command_writes_a_config_that_replays(tmp_path: Path, invoke: Callable[..., tuple[int, str]]) -> None:
    config = tmp_path / "fit.py"
    status, out = invoke("fit", "mlp", "--device", "cpu", "--peak", "1 GiB", "--json")
    stock = json.loads(out)
    assert (status, stock["choices"], stock["predicted"]) == (0, {}, True)
    limit = stock["peak_bytes"] - 1
    status, out = invoke("fit", "mlp", "--device", "cpu", "--peak", str(limit), "--export", str(config), "--json")
    found = json.loads(out)
    assert status == 0
    assert found["peak_bytes"] <= limit
    again = workbench.open("mlp", config=workbench.load(config))
    assert again.choices == found["choices"]
    assert again.plan.peak_bytes == found["peak_bytes"]


MLP = ("fit", "mlp", "--set", "layers=1", "--device", "planned", "--executor", "torch")
NO_SIZE = (
    "a peak is a number of bytes above zero, or a text such as '24 GiB', '512 MB', or '80%' of the stock peak; given "
)
NO_TIME = "step_s is a number of seconds above zero; given "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    beyond(
        3,
        [
            (("--peak", "-1"), f"{NO_SIZE}'-1'"),
            (("--step", "soon"), f"{NO_TIME}'soon'"),
            (("--curve", "1"), "a curve has at least 2 points; given 1"),
            (("--peak", "nan"), f"{NO_SIZE}'nan'"),
            (("--peak", "24 gigs"), f"{NO_SIZE}'24 gigs'"),
            (("--step", "0"), f"{NO_TIME}0.0"),
            (("--step", "-1"), f"{NO_TIME}-1.0"),
            (("--step", "nan"), f"{NO_TIME}nan"),
        ],
        rows=True,
    ),
)
def test_the_command_refuses_an_invalid_goal_in_one_line(
    invoke: Callable[..., tuple[int, str]], arguments: tuple[str, ...], said: str
) -> None:
    status, out = invoke(*MLP, *arguments)
    assert (status, out.strip()) == (2, f"thunder-workbench: {said}")


@pytest.mark.slow
def test_an_unreachable_step_time_is_reported_in_a_fitting_unit(invoke: Callable[..., tuple[int, str]]) -> None:
    status, out = invoke(*MLP, "--step", "1e-12")
    assert (status, "has a step of 1 ps or less" in " ".join(out.split())) == (1, True)


@pytest.mark.slow
def test_the_command_reports_the_least_peak(invoke: Callable[..., tuple[int, str]]) -> None:
    status, out = invoke(*MLP, "--peak", "1KiB")
    named = re.fullmatch(
        r"thunder-workbench: no plan of mlp with a peak of 1\.00 KiB or less was found using recompute, offload\. "
        r"The least peak found is \d+ KiB "
        r"\((\d+) bytes\), because parameters and inputs alone take \d+ KiB\s*",
        out,
    )
    assert status == 1
    assert named is not None
    least = int(named[1])
    status, out = invoke(*MLP, "--peak", str(least), "--json")
    assert (status, json.loads(out)["peak_bytes"]) == (0, least)
    # Choices made by hand stay, even if no plan with them meets the limit on peak memory.
    status, out = invoke(*MLP, "--choose", "saved:blocks.0/gelu>add=recompute", "--peak", str(least))
    assert status == 1
    assert re.search(r"The least peak found is \d+ KiB \(\d+ bytes\) \(keeping 1 choice made by hand\)", out)


@pytest.mark.slow
def test_recomputing_and_offloading_a_llama_is_faster_than_either_alone() -> None:
    bench = workbench.open("llama", device="planned", executor="torch")
    alone = [Fitter(bench, bench._captured, bench.machine, using=(option,)) for option in (RECOMPUTE, OFFLOAD)]
    both = Fitter(bench, bench._captured, bench.machine)
    lowest, stock = max(fitter.lowest_peak()[1].peak_bytes for fitter in alone), bench.plan.peak_bytes
    # A fit may end with a step up to 1 % longer than the best. Using both options may save less than this tolerance.
    least = min(fitter.fit_peak(lowest)[0].added_s for fitter in alone)
    assert both.fit_peak(lowest)[0].added_s <= least + 0.01 * both.step_s
    for share in (0.1, 0.3, 0.6):
        limit = round(lowest + (stock - lowest) * share)
        found, plan = both.fit_peak(limit)
        assert plan.peak_bytes <= limit
        assert set(found.options.values()) == {RECOMPUTE, OFFLOAD}
        assert found.added_s < 0.9 * min(fitter.fit_peak(limit)[0].added_s for fitter in alone)


@pytest.mark.slow
@pytest.mark.parametrize("goal", [("--peak", "1GiB"), ("--step", "1"), ("--curve", "3")])
def test_the_command_refuses_a_program_without_a_backward(
    tmp_path: Path, invoke: Callable[..., tuple[int, str]], goal: tuple[str, ...]
) -> None:
    file = tmp_path / "plain.py"
    file.write_text("import torch\n\n\ndef program():\n    return torch.sin, (torch.ones(3),)\n")
    status, out = invoke("fit", f"{file}:program", "--device", "cpu", "--executor", "torch", *goal)
    assert status == 1
    assert "has no backward, so there is nothing to save or recompute" in " ".join(out.split())
    assert out.count("thunder-workbench:") == 1


def test_no_fit_is_below_the_least_peak_that_another_fit_found() -> None:
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(24, 24), nn.Linear(24, 24)
            self.weight = nn.Parameter(torch.randn(24))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            left, right = self.second(self.first(torch.exp(-x * x)) * self.weight).chunk(2, -1)
            y = torch.cat([torch.tanh(left), right * left], -1)
            y = nn.functional.silu(torch.exp(-y * y))
            y = y - y.mean(-1, keepdim=True)
            return y.reshape(-1, 24).sin().reshape(x.shape)

    model, x = Chain(), torch.randn(4, 6, 24)
    with pytest.raises(PlanError, match="least peak found is") as refused:
        workbench.open(model, x, executor="torch").fit(peak_bytes=20_000, using=["recompute"])
    least_bytes = int(re.search(r"\((\d+) bytes\)", str(refused.value))[1])  # type: ignore[index]
    assert (
        workbench.open(model, x, executor="torch").fit(peak_bytes=least_bytes, using=["recompute"]).peak_bytes
        == least_bytes
    )
    with pytest.raises(PlanError, match="least peak found is"):
        workbench.open(model, x, executor="torch").fit(peak_bytes=least_bytes - 1, using=["recompute"])
