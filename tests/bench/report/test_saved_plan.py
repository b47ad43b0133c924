"""A saved plan is a single document with a bench's current plan. The file is written completely or not at all."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

import workbench as wb
from workbench.analysis.memory.liveness import timeline
from workbench.core.graph import Graph
from workbench.errors import ConfigError


@pytest.fixture(scope="module")
def bench() -> wb.Workbench:
    bench = wb.open("mlp", device="cpu", executor="torch")
    site = next(site for site in bench.sites("saved") if site.values and not site.illegal)
    bench.choose({site.id: "recompute"})
    return bench


@pytest.fixture
def path(bench: wb.Workbench, tmp_path: Path) -> Path:
    return bench.save(tmp_path / "mlp.plan.json")


def test_a_saved_plan_holds_the_plan_in_force(bench: wb.Workbench, path: Path) -> None:
    saved, plan, stock = json.loads(path.read_text()), bench.plan, bench.stock_plan
    assert (saved["program"], saved["device"], saved["executor"]) == ("mlp", "cpu", "torch")
    assert (saved["choices"], saved["versions"]) == (bench.choices, dict(bench.config.versions))
    for figures, of in ((saved["figures"], plan), (saved["stock"], stock)):
        assert (figures["peak_bytes"], figures["saved_bytes"]) == (of.peak_bytes, of.saved_bytes)
        assert (figures["fusions"]["count"], figures["proven"]) == (of.census.count, of.proof.proven)
    assert saved["figures"]["saved_bytes"] < saved["stock"]["saved_bytes"]
    assert {site["id"]: (site["choice"], site["default"]) for site in saved["sites"]} == {
        site.id: (site.choice, site.default) for site in plan.sites
    }
    assert {site["id"]: site["illegal"] for site in saved["sites"]} == {s.id: dict(s.illegal) for s in plan.sites}
    (moved,) = (site["id"] for site in saved["sites"] if site["choice"] != site["default"])
    assert list(bench.choices) == [moved]


def test_the_config_of_a_saved_plan_is_the_config_of_its_bench(bench: wb.Workbench, path: Path) -> None:
    """With the fingerprint, a replay on a changed program warns."""
    config = wb.open(path).config
    assert config == bench.config
    assert config.fingerprint != ""
    # A document that an earlier version wrote has no fingerprint.
    document = json.loads(path.read_text())
    del document["fingerprint"]
    path.write_text(json.dumps(document))
    assert wb.open(path).config.fingerprint == ""


def test_the_graph_is_read_back_with_the_same_peak(bench: wb.Workbench, path: Path) -> None:
    graph = Graph.from_json(json.dumps(json.loads(path.read_text())["graph"]))
    assert graph.to_json() == bench.plan.graph.to_json()
    assert timeline(graph).peak_bytes == bench.plan.peak_bytes


def test_the_view_mentions_no_clicks_and_no_missing_measurements(path: Path) -> None:
    view = json.loads(path.read_text())["view"]
    assert not [text for text in view["graph"]["strings"] if "click: " in text or "Drag an end" in text]
    assert {"peak", "saved", "accuracy"} <= {figure["key"] for figure in view["figures"]}
    assert not [v for figure in view["figures"] for v in figure["values"] if "yet" in v["kind"]]


def test_a_saved_plan_holds_no_path_of_this_machine(path: Path) -> None:
    text = path.read_text()
    assert str(Path.home()) not in text
    assert str(Path(wb.__file__).parents[1]) not in text


def test_only_saved_plans_and_empty_files_are_replaced(bench: wb.Workbench, tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text('{"format": "mine"}')
    with pytest.raises(ConfigError) as error:
        bench.save(mine)
    assert str(error.value) == (
        f"cannot write {mine}: the file exists and is not a saved plan; nothing was written; give another name, or "
        "overwrite=True to replace it"
    )
    assert mine.read_text() == '{"format": "mine"}'
    bench.save(mine, overwrite=True)
    whole = mine.read_text()
    bench.save(mine)
    assert mine.read_text() == whole
    (tmp_path / "empty.plan.json").touch()
    assert bench.save(tmp_path / "empty.plan.json").read_text() == whole


def test_a_save_is_atomic_and_refuses_anything_but_a_regular_file(
    bench: wb.Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place, why in (
        (tmp_path / "pipe", r"it is a pipe \(FIFO\), not a regular file"),
        (tmp_path, "it is a folder, not a regular file"),
        (tmp_path / "gone" / "x.plan.json", "no such file or directory"),
        ("/dev/null", "it is a device, not a regular file"),
        ("", "no file name is given"),
    ):
        with pytest.raises(ConfigError, match=f"{why}; nothing was written"):
            bench.save(place, overwrite=True)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    path = bench.save(tmp_path / "x.plan.json")
    before = path.read_bytes()

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bench.save(path)
    assert path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["pipe", "x.plan.json"]
