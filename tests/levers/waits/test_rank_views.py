"""For a program on ranks, the app shows exposed communication, the effects of choices, and a simulated timeline."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import workbench as wb
from workbench.errors import ConfigError
from workbench.runs.measure import measured_rates
from workbench.runs.measure.measured_rates import MACHINE_NAMES, THIS_CPU, machine_by_name
from workbench.summary import human_seconds
from workbench.ui.app.app import App
from workbench.ui.controls.figure_strip import Baseline, figures
from workbench.ui.controls.inspector import site_content
from workbench.ui.graph.collective_lanes import bars
from workbench.ui.graph.layout import compute
from workbench.ui.tabs.timeline_tab import simulated_lanes, timeline_content

pytestmark = pytest.mark.slow

QUICKER = {"waits.issue": "in_flight(2)", "waits.wait": "late", "waits.gradients": "earliest"}


def test_the_strip_shows_exposed_communication_and_its_change(planned: wb.Workbench) -> None:
    stock, plan = planned.stock_plan, planned.plan_under(QUICKER)
    shown = figures(plan, None, Baseline("stock", stock), same_choices=True)
    (overlap,) = (figure for figure in shown if figure["key"] == "overlap")
    exposed, step, bound, flight = overlap["values"]
    assert overlap["title"] == "Communication, simulated on H100"
    kinds = [value["kind"] for value in (exposed, step, bound, flight)]
    assert kinds == ["exposed", "step", "at least, in any order", "in flight"]
    assert exposed["delta"].startswith("−")
    assert exposed["delta_tone"] == "good"
    assert plan.overlap is not None
    assert bound["text"] == human_seconds(plan.overlap.lower_bound_s)
    assert flight["delta"].startswith("−")


def test_a_program_for_one_process_shows_no_communication(alone: wb.Workbench) -> None:
    plan = alone.plan
    shown = figures(plan, None, Baseline("stock", plan), same_choices=True)
    assert "overlap" not in [figure["key"] for figure in shown]


def test_the_inspector_shows_the_effect_on_the_simulated_step(planned: wb.Workbench) -> None:
    site = planned.site("waits.gradients")
    effects = {site.id: planned.effects(site.id)}
    (option,) = (o for o in site_content([site], effects, {})["sites"][0]["options"] if o["name"] == "earliest")
    assert "step, simulated on H100" in [figure["name"] for figure in option["figures"]]


def test_the_inspector_names_the_setting_that_a_collective_follows(planned: wb.Workbench) -> None:
    plan = planned.plan_under(QUICKER)
    notes = {
        site.id: site_content([site], {}, {})["sites"][0]["note"] for site in plan.sites if site.id.startswith("waits:")
    }
    assert {note for id, note in notes.items() if id.endswith("!wait")} == {"Currently late, set by waits.wait."}
    assert {note for id, note in notes.items() if not id.endswith("!wait")} == {
        "Currently in_flight(2), set by waits.issue.",
        "Currently earliest, set by waits.gradients.",
    }


def test_an_overlap_prints_its_figures_on_one_line(planned: wb.Workbench) -> None:
    text = repr(planned.overlap())
    assert text.startswith("Overlap(step_s=")
    assert "machine=H100, ranks=" in text
    assert len(text) < 500


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


def test_a_bar_runs_from_issue_to_wait_down_in_the_forward_and_up_in_the_backward(planned: wb.Workbench) -> None:
    plan = planned.plan
    layout = compute(plan.graph, plan.sites, unfolded={"transformer.h"})
    found = bars(plan.graph, layout, plan.sites)
    assert sum(found.count) == 34
    # The bars of collectives follow time, which runs down in the forward and up in the backward of the U-shaped graph.
    assert (found.y0 <= found.y1)[found.side == 0].all()
    assert (found.y0 >= found.y1)[found.side == 1].all()
    assert set(found.side.tolist()) == {0, 1}


def test_dragging_the_end_of_a_bar_to_a_node_moves_the_wait_before_its_statement(planned: wb.Workbench) -> None:
    """The site's range has the legal positions. A drag to a position outside the range is refused with a message."""
    id = "waits:lm_head_weight>all_gather!wait"
    said: list[tuple[str | None, bool]] = []
    app = App(planned)
    app._say = lambda text, bad=False: said.append((text, bad))

    def drag_to(row: int) -> None:
        app.graph._receive(app.graph, {"type": "place", "id": id, "node": app.graph.shown_ids()[row]}, [])
        assert app.choosing.settle(120)

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
    assert f"the latest position is {latest}" in str(said[-1][0])


@pytest.mark.parametrize(
    ("device", "executor", "parameter", "layers", "place"),
    [
        ("cpu", "torch", "attn_proj", range(2), "at(transformer.h.{}.attn/scaled_dot_product_attention>matmul.1)"),
        # The first layer has other fusions than the rest, so it is not folded with them. The bar ends at a fusion.
        ("planned", "nvfuser", "mlp_proj", range(1, 3), "at(transformer.h.{}.mlp/mul)"),
    ],
)
def test_dragging_a_bar_of_folded_layers_moves_the_gather_of_each_layer_and_keeps_the_layers_folded(
    device: str, executor: str, parameter: str, layers: range, place: str
) -> None:
    bench = wb.open("fsdp_llama", device=device, executor=executor, ranks=8, settings={"layers": layers.stop})
    bench.choose({"waits.issue": "just_in_time", "waits.wait": "late", "waits.gradients": "earliest"})
    ids = [f"waits:transformer_h_{layer}_{parameter}_weight>all_gather" for layer in layers]
    app = App(bench)

    def shown() -> int:
        found = bars(bench.plan.graph, app.graph.shown.layout, bench.plan.sites)
        (peers,) = (p for first, p in zip(found.issue, found.peers, strict=True) if bench.plan.sites[first].id in ids)
        assert [bench.plan.sites[peer[0]].id for peer in peers] == ids
        return app.graph.shown.layout.sections[-1].count

    assert shown() == len(layers)
    wanted = [place.format(layer) for layer in layers]
    parent = bench.plan.graph.statements.parent
    *_, row = (row for row in np.flatnonzero(parent < 0).tolist() if bench.plan.place(row) == wanted[0])
    app.graph._receive(app.graph, {"type": "place", "id": ids[0], "node": app.graph.shown_ids()[row]}, [])
    assert app.choosing.settle(120)
    app.close()
    assert [bench.choices[id] for id in ids] == wanted
    assert shown() == len(layers)


def test_a_program_for_one_process_has_no_bars(alone: wb.Workbench) -> None:
    plan = alone.plan
    assert len(bars(plan.graph, compute(plan.graph, plan.sites), plan.sites)) == 0


@pytest.fixture
def app(planned: wb.Workbench) -> Iterator[App]:
    app = App(planned)
    yield app
    app.close()
    while planned.can_undo:
        planned.undo()
    planned.machine = "H100"


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def message(app: App) -> dict[str, object]:
    return app.controls.content.get("message") or {"text": "", "bad": False}


def ask(app: App, **message: str) -> None:
    """Send a message to the controls, as the page does. Wait until the app has handled it."""
    app.controls._handle_custom_msg(message, [])
    until(lambda: not app.controls.content["busy"])


def test_choosing_a_machine_changes_every_simulated_figure(app: App, planned: wb.Workbench) -> None:
    app.places.open("Timeline")
    before = planned.overlap()
    assert app.controls.content["machines"] == [*MACHINE_NAMES]
    ask(app, type="machine", name="PCIe box")
    after = planned.overlap()
    assert before is not None
    assert after is not None
    assert after.simulation.step_s > before.simulation.step_s
    assert app.controls.content["machine"] == "PCIe box"
    (figure,) = (figure for figure in app.strip.content["figures"] if figure["key"] == "overlap")
    assert figure["values"][1]["text"] == human_seconds(after.simulation.step_s)
    assert figure["title"] == "Communication, simulated on PCIe box"
    assert "simulated on 8 × PCIe box" in app.timeline.content["head"]
    assert app.timeline.content["step_s"] == pytest.approx(after.simulation.step_s)
    app.graph.selected = "waits:lm_head_weight>all_gather"
    until(lambda: "step, simulated on PCIe box" in json.dumps(app.inspector.content))
    changed = planned.choose({"waits.gradients": "earliest"}).overlap
    now = planned.overlap()
    assert now is not None
    assert changed is not None
    assert changed.step_s == pytest.approx(now.simulation.step_s - after.simulation.step_s)
    assert planned.search_waits().machine.name == "PCIe box"


def test_an_unknown_machine_is_refused_with_the_names_of_all_machines(app: App, planned: wb.Workbench) -> None:
    with pytest.raises(ConfigError, match="no machine 'h100'; legal: H100, H200, A100, PCIe box, this CPU"):
        planned.machine = "h100"
    with pytest.raises(ConfigError, match="no machine 'TPU'"):
        wb.open("mlp", device="cpu", machine="TPU")
    ask(app, type="machine", name="TPU")
    assert message(app)["bad"]
    assert planned.machine.name == "H100"


def test_two_threads_measure_the_rates_of_this_cpu_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stock, calls = machine_by_name(THIS_CPU), []

    @functools.cache
    def measure() -> object:
        calls.append(time.monotonic())
        time.sleep(0.1)  # so that the second thread begins while the first measures
        return dataclasses.replace(stock, launch_s=stock.launch_s * len(calls))

    monkeypatch.setattr(measured_rates, "_this_cpu", measure)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(machine_by_name, [THIS_CPU] * 2)
    assert first == second
    assert len(calls) == 1


def test_ranks_on_this_cpu_share_its_measured_rates() -> None:
    whole, half = machine_by_name(THIS_CPU), machine_by_name(THIS_CPU, 2)
    assert "measured here" in half.source
    assert half.bytes_per_s == pytest.approx(whole.bytes_per_s / 2)
    assert half.link_bytes_per_s == pytest.approx(whole.link_bytes_per_s / 2)
    # The measured rate of this CPU must be plausible: above 0.1 GFLOP/s, and below the rate of an H100.
    assert 1e8 < whole.flops_per_s["float32"] < 67e12
    assert 0 < whole.launch_s < whole.latency_s < 0.1


def test_the_app_searches_for_the_best_order_and_undo_reverts_the_order(app: App, planned: wb.Workbench) -> None:
    before = planned.overlap()
    ask(app, type="search", limit="")
    after = planned.overlap()
    assert before is not None
    assert after is not None
    assert after.simulation.step_s < before.simulation.step_s
    assert planned.choices["waits.wait"] == "late"
    step, bound = (human_seconds(s) for s in (after.simulation.step_s, after.lower_bound_s))
    reached = "the lower bound" if step == bound else f"lower bound {bound}"
    assert f" → {step}, {reached}; at most " in str(message(app)["text"])
    planned.undo()
    assert planned.choices == {}


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("0.001", "no order has at most 1048 bytes in flight; the least of all orders is"),
        ("-3", "enter a number of MiB above 0, or nothing for no limit; given '-3'"),
        ("much", "given 'much'"),
        ("inf", "given 'inf'"),
    ],
)
def test_an_impossible_limit_is_reported(app: App, planned: wb.Workbench, limit: str, said: str) -> None:
    ask(app, type="search", limit=limit)
    assert message(app)["bad"]
    assert said in str(message(app)["text"])
    assert planned.choices == {}
