"""Exported choices train models with plain PyTorch as predicted, in a process without Thunder and the workbench."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.plain_torch.small_models import MODELS, make
from tests.trial_counts import beyond
from workbench.errors import ChoiceError

FOLDER = Path(__file__).parent


def run_alone(model: str, backend: str, *files: Path) -> list[dict[str, Any]]:
    """Run a model in a process without Thunder and the workbench. Return the figures for each exported file."""
    command = [sys.executable, "-I", str(FOLDER / "alone.py"), str(FOLDER), model, backend, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()[-len(files) :]]


def choose_half(bench: wb.Workbench, seed: int) -> None:
    """Choose to recompute a random half of the saved storages for which that is legal."""
    legal = [s.id for s in bench.sites("saved") if s.id.startswith("saved:") and "recompute" not in s.illegal]
    chosen = dict.fromkeys(random.Random(seed).sample(legal, len(legal) // 2), "recompute")
    while chosen:
        try:
            bench.choose(chosen)
        except ChoiceError as error:  # another choice makes this one illegal
            del chosen[error.site]
        else:
            return


def open_with_random_choices(model: str, seed: int) -> wb.Workbench:
    module, inputs = make(model)
    bench = wb.open(module, kwargs=inputs)
    choose_half(bench, seed)
    return bench


ORDER = ["llama", "vit", *(name for name in MODELS if name not in ("llama", "vit"))]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("model", beyond(1, ORDER))
def test_gradients_are_equal_and_saved_bytes_and_peak_are_as_predicted(model: str, tmp_path: Path) -> None:
    bench = open_with_random_choices(model, 0)
    found, stock = bench.torch_prediction(), bench.torch_prediction(stock=True)
    file = bench.export(tmp_path / "choices.py", target="torch")
    for backend in ("aot_eager", "inductor"):
        (alone,) = run_alone(model, backend, file)
        assert alone["modules"] == []
        rounding = 1e-6 * max(1.0, alone["largest_gradient"])
        assert alone["equal"] or (backend == "inductor" and alone["largest_difference"] <= rounding), alone
        if backend == "inductor":
            assert (alone["before_bytes"], alone["after_bytes"]) == (stock.saved_bytes, found.saved_bytes)
            assert alone["peak_bytes"] == pytest.approx([stock.peak_bytes, found.peak_bytes], abs=64)
            assert alone["told"] == list(found.unapplied)
        else:
            # Without Inductor's decompositions, a dropout is one operator that draws random numbers, so it stays saved.
            assert all("draws random" in told for told in alone["told"] if told not in found.unapplied)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", beyond(1, ["vit", "llama", *(name for name in MODELS if name not in ("llama", "vit"))])
)
def test_gradients_without_a_compiler_are_equal(model: str, tmp_path: Path) -> None:
    file = open_with_random_choices(model, 0).export(tmp_path / "choices.py", target="torch_eager")
    (alone,) = run_alone(model, "eager", file)
    assert alone["modules"] == []
    assert alone["equal"], alone
    assert alone["after_bytes"] < alone["before_bytes"]
