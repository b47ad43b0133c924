"""Without the program, a colleague opens a saved plan, compares it, exports its choices, and predicts other choices."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import workbench
from workbench.bench import Workbench
from workbench.errors import ChoiceError, ConfigError


def test_an_opened_plan_shows_what_was_saved(mlp_bench: Workbench, saved_mlp: Path) -> None:
    saved = workbench.open(saved_mlp)
    assert saved.peak_bytes == mlp_bench.plan.peak_bytes
    assert [alive.name for alive in saved.alive_at_peak()]
    assert [(s.id, s.options, s.choice, dict(s.illegal)) for s in saved.sites()] == [
        (s.id, s.options, s.choice, dict(s.illegal)) for s in mlp_bench.sites()
    ]
    assert "saved plan of mlp" in repr(saved)


def test_the_prediction_of_an_order_equals_the_owners_plan(mlp_bench: Workbench, saved_mlp: Path) -> None:
    chosen = workbench.open(saved_mlp).choose({"order.statements": "least peak"})
    mlp_bench.choose({"order.statements": "least peak"})
    try:
        assert chosen.peak_bytes == mlp_bench.plan.peak_bytes
        assert chosen.graph.statements.name == mlp_bench.plan.graph.statements.name
    finally:
        mlp_bench.undo()
    assert chosen.peak_bytes < workbench.open(saved_mlp).peak_bytes
    assert chosen.choose({"order.statements": "stock"}).peak_bytes == mlp_bench.plan.peak_bytes


def test_an_order_is_not_predicted_from_a_plan_that_was_saved_in_another_order(tmp_path: Path) -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a = torch.sin(x @ w)
        return (torch.exp(a) * torch.softmax(a, -1)).sum()

    bench = workbench.open(program, torch.randn(64, 16), torch.randn(16, 16, requires_grad=True), executor="torch")
    bench.choose({"order.statements": "least peak"})
    saved = workbench.open(bench.save(tmp_path / "least.plan.json"))
    # Each order is found from the stock order. From the saved order, another order with a lower peak would be found.
    for option in ("recompute just in time", "stock"):
        other = saved.choose({"order.statements": option})
        with pytest.raises(ChoiceError, match=r"order.statements: .*does not contain the stock order"):
            _ = other.estimate
        assert other.graph.statements.name == saved.graph.statements.name
    assert saved.choose({"order.statements": "least peak"}).estimate.peak_bytes == bench.plan.peak_bytes


def test_the_prediction_of_saved_tensors_equals_the_owners_plan(mlp_bench: Workbench, saved_mlp: Path) -> None:
    saved, tried = workbench.open(saved_mlp), set()
    for site in saved.sites("saved"):
        for option in {*site.options} - {site.choice, *site.illegal}:
            estimate = saved.choose({site.id: option}).estimate
            mlp_bench.choose({site.id: option})
            planned = mlp_bench.plan.peak_bytes, mlp_bench.plan.saved_bytes
            mlp_bench.undo()
            assert (estimate.peak_bytes, estimate.saved_bytes) == planned, (site.id, option)
            assert estimate.exact is (option != "offload")
            tried.add(option)
    assert tried >= {"recompute", "offload"}
    assert saved.saved_bytes == mlp_bench.plan.saved_bytes


def test_an_estimate_has_no_timeline_and_says_that_one_needs_a_new_plan(saved_mlp: Path) -> None:
    saved = workbench.open(saved_mlp)
    site = next(s for s in saved.sites("saved") if "offload" in s.options and "offload" not in s.illegal)
    chosen = saved.choose({site.id: "offload"})
    assert chosen.saved_bytes < saved.saved_bytes
    assert "estimated: the owner's plan may differ" in repr(chosen)
    with pytest.raises(ChoiceError, match="new plan by Thunder"):
        _ = chosen.timeline
    both = saved.choose({site.id: "offload", "order.statements": "least peak"})
    assert "depends on what is saved" in both.unpredicted["order.statements"]


def test_an_unpredictable_choice_is_refused_with_advice_and_can_be_exported(
    mlp_bench: Workbench, saved_mlp: Path, tmp_path: Path
) -> None:
    # Remove the joint graph: older documents, and documents of plans with fusions, have no joint graph.
    document = json.loads(saved_mlp.read_text())
    del document["joint"]
    without = tmp_path / "without.plan.json"
    without.write_text(json.dumps(document))
    saved = workbench.open(without)
    site = next(s for s in saved.sites("saved") if "recompute" in s.options and "recompute" not in s.illegal)
    chosen = saved.choose({site.id: "recompute"})
    with pytest.raises(ChoiceError, match=r"only for programs without fusions.*export the config"):
        _ = chosen.peak_bytes
    assert chosen.compare(saved)["peak_bytes"] == (None, saved.peak_bytes)
    assert chosen.compare(saved)[site.id] == ("recompute", None)
    config = workbench.load(chosen.export(tmp_path / "choices.py"))
    owner = workbench.open("mlp", config=config)
    assert owner.choices == {site.id: "recompute"}
    assert owner.plan.proof.proven


def test_impossible_actions_are_refused_with_a_reason(saved_mlp: Path, tmp_path: Path) -> None:
    saved = workbench.open(saved_mlp)
    with pytest.raises(ChoiceError, match="no site"):
        saved.choose({"saved:nowhere": "recompute"})
    refused = next(site for site in saved.sites() if site.illegal)
    option, reason = next(iter(refused.illegal.items()))
    with pytest.raises(ChoiceError) as caught:
        saved.choose({refused.id: option})
    assert reason in str(caught.value)
    with pytest.raises(ChoiceError, match="no program"):
        saved.run()
    with pytest.raises(ConfigError, match="opened without other arguments"):
        workbench.open(saved_mlp, device="cpu")
    for name, text in (("torn", "{"), ("other", "[]"), ("gone", None)):
        there = tmp_path / f"{name}.plan.json"
        if text is not None:
            there.write_text(text)
        with pytest.raises(ConfigError, match=name):
            workbench.open(there)


@pytest.mark.slow
def test_a_saved_plan_is_opened_shown_and_compared_without_thunder(saved_mlp: Path, tmp_path: Path) -> None:
    code = f"""
import sys, workbench
sys.modules["thunder"] = None
saved = workbench.open({str(saved_mlp)!r})
least = saved.choose({{"order.statements": "least peak"}})
again = saved.choose({{next(s.id for s in saved.sites("saved") if "recompute" in s.options): "recompute"}})
saved.report({str(tmp_path / "plan.html")!r})
workbench.compare(saved, least, again).write({str(tmp_path / "compared.html")!r})
print(least.peak_bytes, again.peak_bytes)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert all(int(peak) > 0 for peak in found.stdout.split())
    assert (tmp_path / "plan.html").exists()
    assert (tmp_path / "compared.html").exists()


def test_an_opened_plan_has_a_read_only_page(saved_mlp: Path, tmp_path: Path) -> None:
    saved = workbench.open(saved_mlp)
    page = saved.report(tmp_path / "plan.html").read_text()
    data = json.loads(re.search('id="wb-data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    assert data["strip"]["content"]["figures"] == saved.document["view"]["figures"]
    assert data["graph"]["read_only"]
    assert data["graph"]["data"]["tables"] == saved.document["view"]["graph"]["tables"]
    assert [site["id"] for site in data["sites"]] == [site.id for site in saved.sites()]
    assert data["alive"]["content"]["predicted"]["rows"]
    with pytest.raises(ChoiceError, match="shows both"):
        saved.choose({"order.statements": "least peak"}).report(tmp_path / "changed.html")
    assert not (tmp_path / "changed.html").exists()
