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

FOLDER = Path(__file__).parent


def run_alone(model: str, file: Path, backend: str) -> dict[str, Any]:
    command = [sys.executable, "-I", str(FOLDER / "alone.py"), str(FOLDER), model, str(file), backend]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def open_with_random_choices(model: str, seed: int) -> wb.Workbench:
    """Open a model, and choose to recompute a random half of the saved storages for which that is legal."""
    module, inputs = make(model)
    bench = wb.open(module, kwargs=inputs)
    legal = [s.id for s in bench.sites("saved") if s.id.startswith("saved:") and "recompute" not in s.illegal]
    for id in random.Random(seed).sample(legal, len(legal) // 2):
        bench.choose({id: "recompute"})
    return bench


ORDER = ["llama", "vit", *(name for name in MODELS if name not in ("llama", "vit"))]


@pytest.mark.slow
@pytest.mark.parametrize("model", beyond(1, ORDER))
def test_gradients_are_equal_and_saved_bytes_and_peak_are_as_predicted(model: str, tmp_path: Path) -> None:
    bench = open_with_random_choices(model, 0)
    found, stock = bench.torch_prediction(), bench.torch_prediction(stock=True)
    file = bench.export(tmp_path / "choices.py", target="torch")
    for backend in ("aot_eager", "inductor"):
        alone = run_alone(model, file, backend)
        assert alone["modules"] == []
        assert alone["equal"] or (backend == "inductor" and alone["largest_difference"] < 1e-6), alone
        if backend == "inductor":
            assert (alone["before_bytes"], alone["after_bytes"]) == (stock.saved_bytes, found.saved_bytes)
            assert alone["peak_bytes"] == pytest.approx([stock.peak_bytes, found.peak_bytes], abs=64)
            assert alone["told"] == list(found.unapplied)
        else:
            # Without Inductor's decompositions, a dropout is one operator that draws random numbers, so it stays saved.
            assert all("draws random" in told for told in alone["told"] if told not in found.unapplied)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", beyond(2, ["llama", "vit", *(name for name in MODELS if name not in ("llama", "vit"))])
)
def test_gradients_without_a_compiler_are_equal(model: str, tmp_path: Path) -> None:
    file = open_with_random_choices(model, 0).export(tmp_path / "choices.py", target="torch_eager")
    alone = run_alone(model, file, "eager")
    assert alone["modules"] == []
    assert alone["equal"], alone
    assert alone["after_bytes"] < alone["before_bytes"]
