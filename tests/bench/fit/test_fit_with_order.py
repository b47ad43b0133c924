"""A fit that may also reorder statements and collectives keeps the peak under the limit. Steps never get longer."""

from __future__ import annotations

import itertools

import pytest
import torch

import workbench
from workbench import Workbench
from workbench.analysis.cost.machines import H100
from workbench.analysis.memory.peak_by_statement import SAVE
from workbench.bench.fit.fitter import Fitter
from workbench.bench.session.fit_request import USING
from workbench.errors import ChoiceError, PlanError
from workbench.levers.waits import replanner

STORAGES, ORDERED = ("recompute", "offload"), ("recompute", "offload", "order")


def early_and_wide(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Compute two wide values. In program order, both values are alive at once; in another order, they are not."""
    a, b = (x @ w).repeat(1, 3), (x * 2).repeat(1, 3)
    return a.sin().sum(1).tanh().sum() + b.cos().sum(1).exp().tanh().sum()


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(64, 32, requires_grad=True), torch.randn(32, 32, requires_grad=True)


@pytest.fixture(scope="module")
def wide() -> Workbench:
    return workbench.open(early_and_wide, *arguments(), device="cpu", executor="torch", capture="interpreter")


@pytest.fixture(scope="module")
def sharded() -> Workbench:
    return workbench.open("fsdp_llama", device="planned", executor="torch", ranks=4, layers=1, sequence=16)


@pytest.fixture(params=["wide", pytest.param("sharded", marks=pytest.mark.slow)])
def bench(request: pytest.FixtureRequest) -> Workbench:
    found: Workbench = request.getfixturevalue(request.param)
    while found.can_undo:
        found.undo()
    return found


def fitter_of(bench: Workbench, *using: str) -> Fitter:
    return Fitter(bench, bench._captured, H100, using=using)


@pytest.mark.slow
@pytest.mark.long
def test_more_kinds_of_choices_never_make_a_step_longer_or_the_least_peak_higher(bench: Workbench) -> None:
    stock, before, least = bench.plan.peak_bytes, dict[int, float](), []
    for using in (STORAGES, ORDERED, USING):
        fitter = fitter_of(bench, *using)
        least.append(fitter.lowest_peak()[1].peak_bytes)
        for limit in range(stock, least[0] - 1, -max(1, (stock - least[0]) // 3)):
            found, plan = fitter.fit_peak(limit)
            assert plan.peak_bytes == found.planned_bytes <= limit
            assert plan.proof.proven
            assert found.whole_s <= before.get(limit, found.whole_s) * (1 + 1e-9)
            before[limit] = found.whole_s
    assert least == sorted(least, reverse=True)


@pytest.mark.slow
@pytest.mark.long
def test_a_fit_finds_the_least_peak_and_most_plans_that_are_faster_than_in_stock_order(wide: Workbench) -> None:
    fitter = fitter_of(wide, *ORDERED)
    legal: dict[int, list[str]] = {}
    for storage, option in fitter.chooser.choices:
        legal.setdefault(storage, [SAVE]).append(option)
    points = [
        fitter.chooser.point({s: o for s, o in zip(legal, taken, strict=True) if o != SAVE})
        for taken in itertools.product(*legal.values())
    ]
    assert 20 < len(points) < 400
    every = []
    for point, order in itertools.product(points, ({}, *fitter._orders)):
        plan = wide.plan_under({**fitter.choices(point), **order}, keep=False)
        every.append((plan.peak_bytes, point.added_s))
    stock_order = every[:: 1 + len(fitter._orders)]
    least = min(peak for peak, _ in every)
    assert least < min(peak for peak, _ in stock_order)
    assert fitter.lowest_peak()[1].peak_bytes == least
    gained, can = 0, 0
    for limit in sorted({peak for peak, _ in every}):
        found = fitter.fit_peak(limit)[0].added_s
        best = min(seconds for peak, seconds in every if peak <= limit)
        as_it_was = min((seconds for peak, seconds in stock_order if peak <= limit), default=float("inf"))
        assert best <= found * (1 + 1e-9)
        assert found <= as_it_was
        can += best < as_it_was
        gained += found < as_it_was
    assert can - 1 <= gained >= 5


@pytest.mark.slow
def test_orders_that_a_fit_chooses_are_explained_and_undone(wide: Workbench) -> None:
    least = fitter_of(wide, *STORAGES).lowest_peak()[1].peak_bytes
    lower = fitter_of(wide, *ORDERED).lowest_peak()[1].peak_bytes
    with pytest.raises(PlanError, match="no plan of"):
        wide.fit(lower)
    found = wide.fit(lower, using=ORDERED)
    assert wide.plan.peak_bytes == found.peak_bytes <= lower < least
    assert wide.choices == dict(found.choices)
    assert found.beside
    assert wide.pinned == {}
    still = {id: option for id, option in wide.choices.items() if id not in found.beside}
    assert found.beside_peak_bytes == wide.plan_under(still).peak_bytes - found.peak_bytes > 0
    assert "in another order (order." in repr(found)
    wide.undo()
    assert wide.choices == {}


def test_a_plan_within_the_limit_keeps_its_order(wide: Workbench) -> None:
    assert fitter_of(wide, *ORDERED).fit_time(1.0)[1].peak_bytes < wide.plan.peak_bytes
    assert not wide.fit(wide.plan.peak_bytes, using=ORDERED).choices


def test_an_order_chosen_by_hand_stays(wide: Workbench) -> None:
    wide.choose({"order.gradients": "at once"})
    found = wide.fit(wide.plan.peak_bytes - 1, using=ORDERED)
    assert not found.beside
    assert wide.choices["order.gradients"] == "at once"
    while wide.can_undo:
        wide.undo()


def test_a_fit_to_a_step_time_may_use_orders(bench: Workbench) -> None:
    without = fitter_of(bench, *STORAGES)
    step_s = 1.2 * (without.step_s + without.before_waiting_s)
    alone = without.fit_time(step_s)
    fitter = fitter_of(bench, *USING)
    found, plan = fitter.fit_time(step_s)
    assert fitter.step_s + found.whole_s <= step_s
    assert plan.peak_bytes <= alone[1].peak_bytes


@pytest.mark.slow
def test_a_replanners_estimate_equals_the_figures_of_the_plan(sharded: Workbench) -> None:
    for choices in replanner.FEW:
        simulation, peak_bytes = replanner.weigh(sharded._captured, choices, sharded.machine)
        plan = sharded.plan_under(choices)
        assert peak_bytes == plan.peak_bytes
        known = sharded.overlap(plan)
        assert known is not None
        assert simulation.step_s == pytest.approx(known.simulation.step_s)


def test_moving_collectives_shortens_the_step(sharded: Workbench) -> None:
    stock = sharded.plan.peak_bytes
    without, with_waits = (fitter_of(sharded, *using).fit_peak(stock)[0] for using in (ORDERED, USING))
    assert any(id.startswith("waits.") for id in with_waits.beside)
    assert with_waits.waiting_s < 0.98 * without.waiting_s
    assert with_waits.whole_s < without.whole_s


@pytest.mark.slow
def test_a_curve_has_a_line_for_each_kind_of_choices(wide: Workbench) -> None:
    curve = wide.curve(points=3, using=ORDERED, each=True).wait()
    assert [line.using for line in curve.lines] == [ORDERED[:1], ORDERED[:2], ORDERED]
    assert [line.name for line in curve.lines] == ["recompute", "with offload", "with order"]
    assert curve.points == curve.lines[-1].points
    assert (curve.done, curve.state) == (curve.count, "done") == (9, "done")
    for earlier, later in itertools.pairwise(curve.lines):
        for point in earlier.points:
            assert any(p.peak_bytes <= point.peak_bytes and p.step_s <= point.step_s for p in later.points)
    lowest = curve.points[0]
    assert lowest.beside
    assert curve.explain(lowest.choices).peak_bytes == lowest.peak_bytes
    assert curve.step_s(lowest.choices) == pytest.approx(lowest.step_s)


@pytest.mark.parametrize("using", [(), ("orders",), ("recompute", "")])
def test_unknown_or_empty_kinds_of_choices_are_refused(wide: Workbench, using: tuple[str, ...]) -> None:
    with pytest.raises(ChoiceError, match="a fit uses one or more of recompute, offload, cuts, order, waits"):
        wide.fit("1MiB", using=using)
