"""A saved plan in a colleague's hands: looked at, toggled as far as arithmetic goes, compared, exported, replayed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import workbench
from workbench.bench import Workbench
from workbench.errors import ChoiceError, ConfigError


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return workbench.open("mlp", layers=1, executor="torch", device="cpu")


@pytest.fixture(scope="module")
def path(bench: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bench.save(tmp_path_factory.mktemp("handed") / "mlp.plan.json")


def test_it_shows_what_was_saved(bench: Workbench, path: Path) -> None:
    saved = workbench.open(path)
    assert saved.peak_bytes == bench.plan.peak_bytes
    assert [alive.name for alive in saved.alive_at_peak()]
    assert [(s.id, s.options, s.choice, dict(s.illegal)) for s in saved.sites()] == [
        (s.id, s.options, s.choice, dict(s.illegal)) for s in bench.sites()
    ]
    assert "saved plan of mlp" in repr(saved)


def test_an_order_chosen_there_is_predicted_as_the_owner_s_plan_has_it(bench: Workbench, path: Path) -> None:
    chosen = workbench.open(path).choose({"order.statements": "least peak"})
    bench.choose({"order.statements": "least peak"})
    try:
        assert chosen.peak_bytes == bench.plan.peak_bytes
        assert chosen.graph.statements.name == bench.plan.graph.statements.name
    finally:
        bench.undo()
    assert chosen.peak_bytes < workbench.open(path).peak_bytes
    assert chosen.choose({"order.statements": "stock"}).peak_bytes == bench.plan.peak_bytes


def test_what_arithmetic_cannot_predict_says_what_to_do_and_is_exported(
    bench: Workbench, path: Path, tmp_path: Path
) -> None:
    saved = workbench.open(path)
    site = next(s for s in saved.sites("saved") if "recompute" in s.options and "recompute" not in s.illegal)
    chosen = saved.choose({site.id: "recompute"})
    with pytest.raises(ChoiceError, match="export the config"):
        _ = chosen.peak_bytes
    assert chosen.compare(saved)["peak_bytes"] == (None, saved.peak_bytes)
    assert chosen.compare(saved)[site.id] == ("recompute", None)
    config = workbench.load(chosen.export(tmp_path / "choices.py"))
    owner = workbench.open("mlp", config=config)
    assert owner.choices == {site.id: "recompute"}
    assert owner.plan.proof.proven


def test_what_cannot_be_done_there_says_why(path: Path, tmp_path: Path) -> None:
    saved = workbench.open(path)
    with pytest.raises(ChoiceError, match="no site"):
        saved.choose({"saved:nowhere": "recompute"})
    refused = next(site for site in saved.sites() if site.illegal)
    option, reason = next(iter(refused.illegal.items()))
    with pytest.raises(ChoiceError) as caught:
        saved.choose({refused.id: option})
    assert reason in str(caught.value)
    with pytest.raises(ChoiceError, match="no program"):
        saved.run()
    with pytest.raises(ConfigError, match="opened alone"):
        workbench.open(path, device="cpu")
    for name, text in (("torn", "{"), ("other", "[]"), ("gone", None)):
        there = tmp_path / f"{name}.plan.json"
        if text is not None:
            there.write_text(text)
        with pytest.raises(ConfigError, match=name):
            workbench.open(there)


@pytest.mark.slow
def test_it_is_opened_without_thunder(path: Path) -> None:
    code = (
        "import sys, workbench; sys.modules['thunder'] = None; "
        f"print(workbench.open({str(path)!r}).choose({{'order.statements': 'least peak'}}).peak_bytes)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) > 0


def test_a_read_only_page_of_what_was_saved(path: Path, tmp_path: Path) -> None:
    saved = workbench.open(path)
    page = saved.report(tmp_path / "plan.html").read_text()
    data = json.loads(re.search('id="wb-data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    assert data["strip"]["content"]["figures"] == saved.document["view"]["figures"]
    assert data["graph"]["read_only"]
    assert data["graph"]["data"]["tables"] == saved.document["view"]["graph"]["tables"]
    assert [site["id"] for site in data["sites"]] == [site.id for site in saved.sites()]
    assert data["alive"]["content"]["predicted"]["rows"]
    with pytest.raises(ChoiceError, match="side by side"):
        saved.choose({"order.statements": "least peak"}).report(tmp_path / "changed.html")
    assert not (tmp_path / "changed.html").exists()
