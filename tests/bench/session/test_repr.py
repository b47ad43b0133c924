"""At a prompt and in a notebook cell, a bench's results appear as tables and a few lines, never as whole arrays."""

from __future__ import annotations

import re

import pytest
import torch

import workbench as wb
from workbench.analysis.cost.collective_overlap import OverlapChange
from workbench.bench import PlanDiff
from workbench.bench.session.site_table import MOST_SHOWN, Sites
from workbench.summary import chosen_text

MOST_CHARACTERS = 12_000


@pytest.fixture(scope="module")
def bench() -> wb.Workbench:
    return wb.open("mlp", layers=2, device="cpu", executor="torch")


def test_a_plan_is_shown_in_a_few_lines(bench: wb.Workbench) -> None:
    text = repr(bench.plan)
    assert text.splitlines()[0] == "plan of mlp on cpu, torch executor"
    assert re.search(r"^  peak memory  [\d.]+ KiB, predicted$", text, re.M)
    assert "choices      none" in text
    turned = next(site.id for site in bench.sites("saved") if site.values and "recompute" not in site.illegal)
    bench.choose({turned: "recompute"})
    try:
        assert f"choices      {turned}: recompute" in repr(bench.plan)
    finally:
        bench.undo()


def test_a_program_without_a_backward_says_that_it_saves_nothing() -> None:
    plan = wb.open(torch.sin, torch.ones(3), device="cpu", executor="torch").plan
    assert "saved        nothing: no input or parameter requires a gradient" in repr(plan)


def test_choices_are_named_as_far_as_they_fit_in_a_line() -> None:
    """Choices beyond one line are only counted: a notebook cell would break a longer line in the middle of a name."""
    short, long = [f"saved:layers.{at}/mul: recompute" for at in range(6)], [f"{at}{'-' * 70}" for at in range(3)]
    assert chosen_text([]) == "none"
    assert chosen_text(short[:2]) == "; ".join(short[:2])
    assert chosen_text(short) == f"{short[0]}; {short[1]}; {short[2]}; 3 more"
    assert chosen_text(long) == f"{long[0]}; 2 more"
    assert chosen_text([f"saved:{at}" for at in range(6)]) == "saved:0; saved:1; saved:2; saved:3; 2 more"


def test_a_graph_and_passes_are_shown_by_their_contents(bench: wb.Workbench) -> None:
    graph = bench.plan.graph
    forward, backward, saved = re.match(
        r"execution graph: (\d+) forward and (\d+) backward statements, \d+ values on \d+ storages, (\d+) saved$",
        repr(graph),
    ).groups()  # type: ignore[union-attr]  # the test checks the form of the text
    assert (int(forward) + int(backward), int(saved)) == (len(graph.statements), bench.plan.saved_tensors)
    for step in bench.plan.passes:
        assert repr(step).startswith(f"{step.name}: {step.statements} statements")
        assert repr(step).endswith(f"{len(step.text.splitlines())} lines of .text")


def test_sites_are_a_tuple_shown_as_a_table(bench: wb.Workbench) -> None:
    sites = bench.sites("saved")
    assert isinstance(sites, tuple)
    title, head, *rows = repr(sites).splitlines()
    placed = [site for site in sites if ":" in site.id]
    assert title == f"{len(placed)} sites and {len(sites) - len(placed)} settings"
    assert head.split() == ["site", "size", "choice", "legal", "source", "refused", "notes"]
    assert [row.split()[0] for row in rows] == [site.id for site in sites]
    html = sites._repr_html_()
    assert html.count("<tr>") == len(sites) + 1
    free = Sites(site for site in sites if not site.illegal)
    assert len(free) < len(sites)
    assert repr(free).splitlines()[1].split() == ["site", "size", "choice", "legal", "source", "notes"]
    many = Sites(sites * 20)
    assert len(repr(many).splitlines()) == MOST_SHOWN + 3
    assert repr(many).endswith(f"and {len(many) - MOST_SHOWN} more")
    assert repr(Sites(())) == "no sites"


def test_a_site_is_shown_by_what_a_user_chooses(bench: wb.Workbench) -> None:
    site = next(site for site in bench.sites("saved") if site.bytes)
    assert repr(site) == (
        f"Site({site.id!r}, choice='save', legal=('save', 'recompute', 'offload'), bytes={site.bytes}, "
        f"source={' '.join(site.source.split())!r})"
    )


def test_worth_is_ranked_and_shown(bench: wb.Workbench) -> None:
    worth = bench.worth()
    ranked = worth.ranked()
    peaks = [gain.peak_bytes for gain in ranked]
    assert peaks == sorted(peaks)
    assert peaks[0] < 0
    every = worth.ranked(most=1000)
    assert len(every) > len(ranked) == 10
    best = min((worth.exact(gain.choices) for gain in every), key=lambda gain: gain.peak_bytes)
    assert ranked[0].peak_bytes == best.peak_bytes
    lines = repr(worth).splitlines()
    assert lines[0].startswith("effect of one further choice, sorted by peak")
    assert lines[1].split() == ["peak", "saved", "step", "choice"]
    assert len(lines) == 12
    assert all(re.match(r"(≈ )?[−+][\d.]+ KiB ", line) for line in lines[2:4])
    assert ranked._repr_html_().count("<tr>") == 11


def test_no_repr_fills_the_screen(bench: wb.Workbench) -> None:
    looked_at = {
        "bench": bench, "plan": bench.plan, "graph": bench.plan.graph, "passes": bench.plan.passes,
        "sites": bench.sites(), "worth": bench.worth(), "curve": bench.curve(points=2).wait(),
        "effects": bench.effects(bench.sites("saved")[-1].id), "proof": bench.plan.proof,
    }  # fmt: skip
    assert {name: len(repr(each)) for name, each in looked_at.items() if len(repr(each)) > MOST_CHARACTERS} == {}


def test_the_result_of_choose_shows_the_changes(bench: wb.Workbench) -> None:
    site = next(s for s in bench.sites("saved") if s.values and not s.illegal)
    found = bench.choose({site.id: "recompute"})
    bench.undo()
    lines = dict(line.split("  ", 1) for line in repr(found).splitlines())
    assert lines["saved"].strip().startswith("−")
    assert "<td>saved</td><td>−" in found._repr_html_()
    assert "0" not in [text.strip() for text in lines.values()]


def test_effects_have_a_line_for_each_option(bench: wb.Workbench) -> None:
    site = next(s for s in bench.sites("saved") if s.values and "recompute" not in s.illegal)
    found = bench.effects(site.id)
    assert [line.split()[0] for line in repr(found).splitlines()] == list(found)
    assert "saved −" in repr(found)
    assert "<td>recompute</td>" in found._repr_html_()


def test_an_empty_difference_shows_no_figures() -> None:
    none = PlanDiff(peak_bytes=0, saved_bytes=0, saved_tensors=0, flops=0, fusions=0, counts={}, changed=())
    assert repr(none).split() == ["no", "figure", "changes"]
    overlap = OverlapChange(step_s=-1e-3, exposed_communication_s=0.0, in_flight_peak_bytes=0)
    moved = PlanDiff(
        peak_bytes=0, saved_bytes=0, saved_tensors=0, flops=0, fusions=0, counts={}, changed=(), overlap=overlap
    )
    assert repr(moved) == "step, simulated  −1 ms"
