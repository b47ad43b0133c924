"""What the screen shows of ranks: the strip, the inspector's effects, the simulated timeline."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.ui.figures import Against, figures
from workbench.ui.inspector import site_content
from workbench.ui.timeline import simulated_lanes, timeline_content

QUICKER = {"waits.issue": "in_flight(2)", "waits.wait": "late", "waits.gradients": "earliest"}


def test_the_strip_shows_exposed_communication_and_its_change(planned: wb.Workbench) -> None:
    stock, plan = planned.stock_plan, planned.plan_under(QUICKER)
    shown = figures(plan, None, Against(stock, "unmodified Thunder", None, ""), same_choices=True)
    (overlap,) = (figure for figure in shown if figure["key"] == "overlap")
    exposed, step, flight = overlap["values"]
    assert "simulated" in exposed["kind"]
    assert exposed["delta"].startswith("−")
    assert exposed["delta_tone"] == "good"
    assert "no order takes less than" in step["tip"]
    assert flight["delta"].startswith("−")


def test_a_program_for_one_process_shows_none() -> None:
    plan = wb.open("mlp", device="cpu", executor="torch").plan
    shown = figures(plan, None, Against(plan, "unmodified Thunder", None, ""), same_choices=True)
    assert "overlap" not in [figure["key"] for figure in shown]


def test_the_inspector_tells_what_an_option_does_to_the_simulated_step(planned: wb.Workbench) -> None:
    site = planned.site("waits.gradients")
    effects = {site.id: planned.effects(site.id)}
    (option,) = (o for o in site_content([site], effects, {})["sites"][0]["options"] if o["name"] == "earliest")
    assert "step, simulated" in [figure["name"] for figure in option["figures"]]


def test_the_timeline_shows_three_simulated_lanes_in_order(planned: wb.Workbench) -> None:
    plan = planned.plan
    assert plan.overlap is not None
    lanes = simulated_lanes(plan.graph, plan.overlap, [""] * len(plan.graph.statements))
    content = timeline_content(None, {}, lanes, plan.overlap)
    assert [lane["name"] for lane in content["lanes"]] == ["host, sim.", "communication, sim.", "compute, sim."]
    assert content["says"] == "Simulated"
    assert content["step_s"] == pytest.approx(plan.overlap.simulation.step_s)
    for lane in lanes:
        assert all(a["end_s"] <= b["start_s"] + 1e-12 for a, b in zip(lane["bars"], lane["bars"][1:], strict=False))
    assert "simulated on 8 × H100" in content["head"]
