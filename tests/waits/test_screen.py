"""What the screen shows of ranks: the strip, the inspector's effects, the simulated timeline."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.ui.app import App
from workbench.ui.figures import Against, figures
from workbench.ui.inspector import site_content
from workbench.ui.lanes import bars
from workbench.ui.layout import compute
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


def test_a_bar_runs_from_issue_to_wait_beside_its_column(planned: wb.Workbench) -> None:
    plan = planned.plan
    layout = compute(plan.graph, plan.sites, unfolded={"transformer.h"})
    found = bars(plan.graph, layout, plan.sites)
    assert sum(found.count) == 34
    # Forward downwards, backward upwards.
    assert (found.y0 <= found.y1)[found.side == 0].all()
    assert (found.y0 >= found.y1)[found.side == 1].all()
    assert set(found.side.tolist()) == {0, 1}


def test_an_end_is_put_before_the_statement_that_a_node_stands_for(planned: wb.Workbench) -> None:
    """As a drag does: the site's own range says which places are legal, and the others are refused with the bound."""
    id = "waits:lm_head_weight>all_gather!wait"
    said: list[tuple[str | None, bool]] = []
    app = App(planned)
    app._say = lambda text, bad=False: said.append((text, bad))

    def drag_to(row: int) -> None:
        app.graph._receive(app.graph, {"type": "place", "id": id, "node": app.graph.shown_ids()[row]}, [])

    graph, latest = planned.plan.graph, planned.site(id).range.rpartition(" to ")[2]
    rows = [row for row in range(graph.first_backward) if graph.statements.parent[row] < 0]
    last = next(row for row in rows if planned.plan.place(row) == latest and app.graph.shown_ids()[row])
    drag_to(last)
    assert planned.site(id).choice == latest
    beyond = next(row for row in rows if row > last and planned.plan.place(row) not in (latest, "at(end)"))
    drag_to(beyond)
    assert planned.site(id).choice == latest
    app.close()
    planned.undo()
    assert said[-1][1]
    assert f"the latest is {latest}" in str(said[-1][0])


def test_a_program_for_one_process_has_no_bars() -> None:
    plan = wb.open("mlp", device="cpu", executor="torch").plan
    assert len(bars(plan.graph, compute(plan.graph, plan.sites), plan.sites)) == 0
