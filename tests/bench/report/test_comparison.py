"""A comparison shows figures of plans and runs, and the sites and statements that differ from those of a baseline."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import workbench
from tests.cli.schemas import held
from tests.runs.sweep.test_compare import recorded
from workbench import cli
from workbench.bench import SavedPlan, SideBySide, Workbench
from workbench.bench.report.comparison import ComparisonRow
from workbench.core.config import Config
from workbench.errors import ChoiceError, ConfigError

LEAST = {"order.statements": "least peak"}


@pytest.fixture(scope="module")
def recomputed(mlp_bench: Workbench) -> str:
    return next(s.id for s in mlp_bench.sites("saved") if "recompute" in s.options and "recompute" not in s.illegal)


@pytest.fixture(scope="module")
def found(
    mlp_bench: Workbench, saved_mlp: Path, recomputed: str, tmp_path_factory: pytest.TempPathFactory
) -> SideBySide:
    run = recorded(tmp_path_factory.mktemp("run") / "first", [1.0, 1.1], peak_bytes=2048)
    plan = workbench.open(saved_mlp)
    assert isinstance(plan, SavedPlan)
    mlp_bench.choose({recomputed: "recompute"})
    try:
        return workbench.compare(plan, plan.choose(LEAST), mlp_bench, run, names=("stock", "least", "again", "run"))
    finally:
        mlp_bench.undo()


def row(rows: tuple[ComparisonRow, ...], name: str, kind: str) -> ComparisonRow:
    return next(each for each in rows if (each.name, each.kind) == (name, kind))


def test_one_table_separates_predicted_from_measured_figures(mlp_bench: Workbench, found: SideBySide) -> None:
    predicted = row(found.figures, "peak_bytes", "predicted")
    assert predicted.values[0] == mlp_bench.plan.peak_bytes
    assert predicted.values[1] < predicted.values[0]
    assert predicted.differs == (False, True, True, True)
    measured = row(found.figures, "peak_bytes", "measured")
    assert measured.values == (None, None, None, 2048)
    # The baseline has no measured figure, so no measured figure is marked as different.
    assert not any(measured.differs)
    assert row(found.figures, "step_s", "measured").values[3] == pytest.approx(1.05)


def test_differing_choices_of_sites_are_listed(found: SideBySide, recomputed: str) -> None:
    assert {each.name: each.values for each in found.sites} == {
        recomputed: ("save", "save", "recompute", "save"),
        "order.statements": ("stock", "least peak", "stock", "stock"),
    }


def test_equal_statements_share_a_row_and_new_or_moved_statements_are_marked(found: SideBySide) -> None:
    for i, column in enumerate(found.columns):
        keys = [each.values[i].key for each in found.statements if each.values[i] is not None]
        assert sorted(keys) == sorted(one.key for one in column.statements or ())
    base = [each.values[0].position for each in found.statements if each.values[0] is not None]
    assert base == sorted(base)
    new = [each for each in found.statements if each.values[0] is None]
    assert len(new) == found.columns[2].predicted["statements"] - found.columns[0].predicted["statements"]  # type: ignore[operator]
    assert all(each.differs == (False, False, True, False) for each in new)
    # The second plan has every statement of the baseline. Only the order of the statements differs.
    moved = [each for each in found.statements if each.differs[1]]
    assert moved
    assert all(each.values[1] is not None for each in moved)
    still = [each.values[1].position for each in found.statements if each.values[1] and not each.differs[1]]
    assert still == sorted(still)


def test_another_baseline_inverts_the_differences(found: SideBySide, saved_mlp: Path, mlp_bench: Workbench) -> None:
    turned = workbench.compare(saved_mlp, workbench.open(saved_mlp).choose(LEAST), names=("a", "b"), base="b")
    predicted = row(turned.figures, "peak_bytes", "predicted")
    assert predicted.differs == (True, False)
    assert "(+" in turned.cells(predicted)[0]
    assert row(found.figures, "peak_bytes", "predicted").values[:2] == predicted.values


def test_equal_plans_have_no_differences(mlp_bench: Workbench, saved_mlp: Path) -> None:
    same = workbench.compare(mlp_bench, saved_mlp, mlp_bench)
    assert [column.name for column in same.columns] == ["mlp", "mlp (2)", "mlp (3)"]
    assert not same.sites
    assert not same.differing_statements
    assert not any(any(each.differs) for each in same.figures)


def test_figures_that_a_saved_plan_cannot_predict_are_empty_and_have_a_note(
    saved_mlp: Path, recomputed: str, tmp_path: Path
) -> None:
    document = json.loads(saved_mlp.read_text())
    # Remove the joint graph: a document of a plan with fusions has no joint graph.
    del document["joint"]
    path = tmp_path / "fused.plan.json"
    path.write_text(json.dumps(document))
    plan = workbench.open(path)
    assert isinstance(plan, SavedPlan)
    changed = plan.choose({recomputed: "recompute"})
    side = workbench.compare(plan, changed)
    assert row(side.figures, "peak_bytes", "predicted").values[1] is None
    assert any("only for programs without fusions" in note for note in side.notes)
    # Without predicted figures, the page has no table. It is still written.
    page = workbench.compare(changed, changed).write(tmp_path / "none.html").read_text()
    assert "only for programs without fusions" in page


def test_other_choices_of_a_saved_plan_have_figures_and_no_statements(saved_mlp: Path, recomputed: str) -> None:
    plan = workbench.open(saved_mlp)
    assert isinstance(plan, SavedPlan)
    changed = plan.choose({recomputed: "recompute"})
    side = workbench.compare(plan, changed)
    assert row(side.figures, "peak_bytes", "predicted").values == (plan.peak_bytes, changed.peak_bytes)
    assert row(side.figures, "saved_bytes", "predicted").differs == (False, True)
    assert row(side.figures, "statements", "predicted").values[1] is None
    assert any("statements cannot be compared" in note for note in side.notes)


def test_a_comparison_has_text_html_and_a_page(found: SideBySide, tmp_path: Path) -> None:
    assert "stock (baseline)" in repr(found)
    assert found._repr_html_().count("<table>") == 3
    wicked = dataclasses.replace(
        found, columns=tuple(dataclasses.replace(c, name=f"<b>{c.name}") for c in found.columns)
    )
    page = dataclasses.replace(wicked, base="<b>stock").write(tmp_path / "all.html").read_text()
    assert "<b>" not in page
    assert "<script" not in page
    assert page.count("<tr class='wb-alike'>") == len(found.statements) - len(found.differing_statements)
    other = tmp_path / "mine.html"
    other.write_text("mine")
    with pytest.raises(ConfigError, match="not a comparison"):
        found.write(other)
    assert other.read_text() == "mine"


def test_refusals_name_the_legal_values(mlp_bench: Workbench, saved_mlp: Path) -> None:
    with pytest.raises(ChoiceError, match="two plans or runs"):
        workbench.compare(mlp_bench)
    with pytest.raises(ChoiceError, match="legal: mlp, mlp"):
        workbench.compare(mlp_bench, saved_mlp, base="nowhere")
    with pytest.raises(ChoiceError, match="names must be 2 different names, one for each column"):
        workbench.compare(mlp_bench, saved_mlp, names=("a",))


def test_a_compared_config_is_planned(mlp_bench: Workbench, saved_mlp: Path) -> None:
    config = Config(**{name: getattr(mlp_bench.config, name) for name in ("program", "settings", "executor", "device")})
    same = workbench.compare(saved_mlp, config)
    assert not same.differing_statements
    assert same.columns[1].kind == "plan"


def test_the_command_compares(saved_mlp: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    least = workbench.open(saved_mlp).choose(LEAST).export(tmp_path / "least.py")
    run = recorded(tmp_path / "runs" / "first", [1.0, 1.1])
    page = tmp_path / "all.html"
    with pytest.raises(SystemExit) as ended:
        cli.main(
            ["compare", str(saved_mlp), str(least), str(run.run_dir), "--base", "least", "--html", str(page), "--json"]
        )
    assert not ended.value.code
    document = json.loads(capfd.readouterr().out)
    held("compare", document)
    assert document["base"] == "least"
    assert [each["kind"] for each in document["columns"]] == ["saved plan", "plan", "run"]
    assert page.read_text().startswith("<!doctype html>")
