"""For each choice, `bench.worth` gives the gain of its plan, marks estimates, and explains an unchanged peak memory."""

from __future__ import annotations

import pytest
import torch

import workbench
from workbench import Workbench
from workbench.bench.fit.choice_ranking import options_of
from workbench.bench.fit.fitter import Fitter
from workbench.runs.measure import measured_rates
from workbench.ui.tabs import ranking_tab
from workbench.ui.tabs.ranking_tab import RankingTask
from workbench.util.planning_lock import Superseded


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x @ w)
    z = torch.exp(torch.sin(y)) * y
    return (torch.sigmoid(z) @ w).cos().sum()


@pytest.fixture(scope="module")
def bench() -> Workbench:
    given = torch.randn(64, 32, requires_grad=True), torch.randn(32, 32, requires_grad=True)
    return workbench.open(program, *given, device="cpu", executor="torch", capture="interpreter")


@pytest.fixture(autouse=True)
def known_rates(monkeypatch):
    """Give the machine the rates of an H100, so that no test measures rates."""
    monkeypatch.setattr(measured_rates, "machine_by_name", lambda name, ranks=1: workbench.analysis.cost.machines.H100)


def choices_of(bench: Workbench) -> list[dict[str, str]]:
    return [choice for site in bench.sites() for choice in options_of([site])]


def test_gains_that_are_not_marked_as_estimates_equal_those_of_the_plan(bench):
    worth = bench.worth()
    found = {tuple(choice.items()): worth.quick(choice) for choice in choices_of(bench)}
    exact = {key: gain for key, gain in found.items() if gain is not None and not gain.estimated}
    assert len(exact) >= 4
    for key, gain in exact.items():
        plan = bench.plan_under(dict(key))
        assert gain.peak_bytes == plan.peak_bytes - bench.plan.peak_bytes
        assert gain.saved_bytes == plan.saved_bytes - bench.plan.saved_bytes
        assert gain.step_s >= 0, "a choice must not shorten the step"
        assert worth.exact(dict(key)).peak_bytes == gain.peak_bytes
    assert all(gain.estimated for key, gain in found.items() if gain is not None and key[0][1] == "offload")


def test_a_choice_that_does_not_lower_the_peak_gives_the_reason(bench):
    worth = bench.worth()
    gains = [gain for choice in choices_of(bench) if (gain := worth.quick(choice)) is not None]
    assert {bool(gain.why) for gain in gains} == {True, False}
    held = {row["value"] for row in bench.plan.alive_at_peak()}
    for gain in gains:
        assert bool(gain.why) == (gain.peak_bytes == 0)
        values = {value for id in gain.choices for value in bench.site(id).values}
        if gain.why:
            assert ("this value is not alive there" in gain.why) == (not values & held)
            assert "test_choice_ranking.py:" in gain.why


def test_many_chosen_values_at_an_unchanged_peak_are_counted_and_few_are_named(bench):
    held = {row["value"] for row in bench.plan.alive_at_peak()}
    alive = {site.id: site.values[0] for site in bench.sites("saved") if held.intersection(site.values)}
    assert len(alive) > 3
    worth = bench.worth()
    assert f", with {len(alive)} of the chosen values still alive." in worth.why_peak(dict.fromkeys(alive, "recompute"))
    id, value = next(iter(alive.items()))
    assert f", with {value} still alive." in worth.why_peak({id: "recompute"})


def test_a_ranking_plans_only_what_arithmetic_cannot_predict(bench, monkeypatch):
    worth, planned = bench.worth(), []
    exact = worth.exact
    monkeypatch.setattr(worth, "exact", lambda choices: planned.append(choices) or exact(choices))
    ranking = RankingTask(worth, [[site] for site in bench.sites()])
    assert ranking.content()["left"] == len(choices_of(bench))
    lefts = []
    while ranking.step():
        lefts.append(ranking.content()["left"])
    assert lefts == sorted(lefts, reverse=True), "the number of pending choices grew"
    rows = ranking.content()["rows"]
    assert [row["choices"] for row in rows] == choices_of(bench)
    assert ranking.content()["left"] == 0
    assert {row["state"] for row in rows} == {"exact"}
    assert planned
    assert {"lever": "saved", "option": "recompute"} not in [
        {"lever": bench.site(id).lever, "option": option} for choice in planned for id, option in choice.items()
    ]


def test_a_ranking_plans_further_rows_when_the_user_scrolls_to_them(bench, monkeypatch):
    monkeypatch.setattr(ranking_tab, "MOST_PLANS", 1)
    ranking = RankingTask(bench.worth(), [[site] for site in bench.sites()])
    while ranking.step():
        pass
    open_rows = [row for row in ranking.content()["rows"] if row["state"] != "exact"]
    assert len(open_rows) >= 2
    asked = [(row["id"], row["option"]) for row in open_rows[:2]]
    ranking.ask([*asked, ("no such site", "save")])
    ranking.ask(asked)
    assert ranking.content()["left"] == 2
    assert ranking.step()
    states = {(row["id"], row["option"]): row["state"] for row in ranking.content()["rows"]}
    assert [states[row] for row in asked] == ["exact", open_rows[1]["state"]], "the first row is computed first"
    assert ranking.step()
    assert not ranking.step()


def test_a_ranking_plans_rows_to_which_the_user_scrolled_before_the_first_plan(bench, monkeypatch):
    monkeypatch.setattr(ranking_tab, "MOST_PLANS", 1)
    ranking = RankingTask(bench.worth(), [[site] for site in bench.sites()])
    last = ranking.content()["rows"][-1]
    ranking.ask([(last["id"], last["option"])])
    while ranking.step():
        pass
    states = {(row["id"], row["option"]): row["state"] for row in ranking.content()["rows"]}
    assert states[last["id"], last["option"]] in ("exact", "refused")


def test_a_ranking_keeps_no_plans_and_a_newer_choice_ends_the_ranking(bench, monkeypatch):
    worth = bench.worth()
    kept = len(bench._planner._plans)
    choice = next(c for c in choices_of(bench) if "offload" in c.values())
    worth.exact(choice)
    assert len(bench._planner._plans) == kept
    monkeypatch.setattr(bench._planner, "_waiting", [object()])
    with pytest.raises(Superseded):
        worth.exact(next(c for c in choices_of(bench) if c != choice and "offload" in c.values()))


def test_fit_and_worth_count_the_same_seconds_for_a_transfer(bench):
    given = torch.randn(64, 32, requires_grad=True), torch.randn(32, 32, requires_grad=True)
    planned = workbench.open(program, *given, device="planned", executor="torch", capture="interpreter")
    for opened, hides in ((bench, False), (planned, True)):
        fitter, worth = Fitter(opened, opened._captured, workbench.analysis.cost.machines.H100), opened.worth()
        choices = {s.id: "offload" for s in opened.sites("saved") if "offload" in s.options and not s.illegal}
        point = fitter.point(choices)
        expected_s = point.added_s
        bare_s = sum(fitter.chooser.alone_s(storage, "offload") for storage in point.options)
        assert expected_s <= bare_s or expected_s == pytest.approx(bare_s), "the two sums may differ in rounding"
        assert (expected_s < 0.99 * bare_s) is hides, (
            "compute must hide a part of the transfers on a GPU, and none on a CPU"
        )
        assert worth.quick(choices).step_s == pytest.approx(expected_s)
        # In a plan, transfers take whole microseconds.
        assert worth.exact(choices).step_s == pytest.approx(expected_s, abs=1e-6)


def test_a_row_says_that_a_cpu_only_imitates_offloading():
    bench = workbench.open("mlp", device="cpu", executor="torch", layers=1)
    site = next(site for site in bench.sites("saved") if site.values and "offload" not in site.illegal)
    assert "on a CPU, this copies the value" in ranking_tab.row_of([site], {site.id: "offload"}, None)["why"]
    assert ranking_tab.row_of([site], {site.id: "recompute"}, None)["why"] == ""
