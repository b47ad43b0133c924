"""What choosing and weighing give back is a small table, in text and HTML."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.analysis.overlap import OverlapChange
from workbench.bench import PlanDiff


@pytest.fixture(scope="module")
def bench() -> wb.Workbench:
    return wb.open("mlp", device="cpu", executor="torch", layers=1)


def test_what_choose_returns_says_what_changed(bench: wb.Workbench) -> None:
    site = next(s for s in bench.sites("saved") if s.values and not s.illegal)
    found = bench.choose({site.id: "recompute"})
    bench.undo()
    lines = dict(line.split("  ", 1) for line in repr(found).splitlines())
    assert lines["saved"].strip().startswith("−")
    assert "<td>saved</td><td>−" in found._repr_html_()
    assert "0" not in [text.strip() for text in lines.values()]


def test_effects_are_a_line_for_each_option(bench: wb.Workbench) -> None:
    site = next(s for s in bench.sites("saved") if s.values and "recompute" not in s.illegal)
    found = bench.effects(site.id)
    assert [line.split()[0] for line in repr(found).splitlines()] == list(found)
    assert "saved −" in repr(found)
    assert "<td>recompute</td>" in found._repr_html_()


def test_nothing_that_changes_is_said_as_that() -> None:
    none = PlanDiff(peak_bytes=0, saved_bytes=0, saved_tensors=0, flops=0, fusions=0, counts={}, changed=())
    assert repr(none).split() == ["no", "figure", "changes"]
    overlap = OverlapChange(step_s=-1e-3, exposed_communication_s=0.0, in_flight_peak_bytes=0)
    moved = PlanDiff(
        peak_bytes=0, saved_bytes=0, saved_tensors=0, flops=0, fusions=0, counts={}, changed=(), overlap=overlap
    )
    assert repr(moved) == "step, simulated  −1 ms"
