"""Training in plain Python under an exported config, and under PyTorch's memory budget, as the GPU check does it."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

import workbench
from workbench.gpu_check.parts import training
from workbench.programs import resolve

SMALL = {"layers": 2, "dim": 64, "heads": 4, "hidden": 128, "vocab": 64, "sequence": 64}


@pytest.mark.slow
def test_a_config_trains_in_plain_python_with_the_predicted_peak_and_the_losses_of_eager(tmp_path: Path) -> None:
    bench = workbench.open("llama", device="cpu", executor="torch", settings=SMALL)
    stock = bench.plan.peak_bytes
    sites = bench.sites("saved")
    legal = [site.id for site in sites if "recompute" in site.options and "recompute" not in site.illegal]
    bench.choose(dict.fromkeys(legal, "recompute"))
    assert bench.plan.peak_bytes < stock
    config = bench.export(tmp_path / "train.choices.py")
    figures = training.train(config, bench.program.build, bench.plan.peak_bytes, 0.01)
    assert "wrong" not in figures, figures
    losses = [figures[f"loss {step}"] for step in (1, 2, 3)]
    assert losses == pytest.approx([figures[f"eager loss {step}"] for step in (1, 2, 3)], rel=1e-4)
    assert losses[2] < losses[0]
    # A wrong prediction is reported.
    wrong = training.train(config, bench.program.build, 2 * bench.plan.peak_bytes, 0.01)["wrong"]
    assert wrong == "the predicted peak is +100.0% off, 1% allowed"


@pytest.mark.long
@pytest.mark.slow
def test_a_lower_memory_budget_lowers_the_measured_peak() -> None:
    settings = {"layers": 4, "width": 64, "hidden": 256, "batch": 1024}
    build = functools.partial(resolve("mlp", settings=settings, device="cpu").build, "cpu")
    whole, least = (training.run_with_budget(budget, build)["measured_peak_bytes"] for budget in (1.0, 0.0))
    assert least < whole
