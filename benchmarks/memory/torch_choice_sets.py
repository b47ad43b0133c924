"""Export random legal choices of real models for plain PyTorch, and run the files without Thunder and the workbench.

Each model gets sets of random choices: half of the saved storages are recomputed. A process that cannot import Thunder
and the workbench runs a training step without choices, and one with each exported file. With ``aot_eager``, gradients
must be bitwise equal. With ``inductor``, the saved bytes must be as predicted, and the peak within 3 %.

``python -m benchmarks.memory.torch_choice_sets [NAME ...] [--sets 10] [--inductor 2] [--csv FILE]``
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

import workbench
from tests.plain_torch.small_models import MODELS, make
from tests.plain_torch.test_real_models import choose_half, run_alone
from workbench.bench.report import torch_file
from workbench.compiler.driver.torch_choices import torch_choices
from workbench.compiler.driver.torch_prediction import predict_torch

ROUNDING = 1e-6
"""Largest difference of gradients under Inductor, as a share of the largest gradient, or of 1 if that is more."""
WITHIN = 0.03
"""Largest share by which a measured peak may differ from the predicted peak."""
COLUMNS = (
    "model", "backend", "set", "choices", "gradients", "largest_difference", "saved_bytes", "stock_saved_bytes",
    "predicted_saved_bytes", "peak_bytes", "stock_peak_bytes", "predicted_peak_bytes", "ok",
)  # fmt: skip


def exported(bench: workbench.Workbench, file: Path, seed: int) -> dict[str, str]:
    """Make random choices in place of earlier ones, and export them. Return the choices of the bench."""
    while bench.can_undo:
        bench.undo()
    choose_half(bench, seed)
    # `export` would also predict, which takes longer than everything else.
    found = bench.torch_choices()
    file.write_text(torch_file.file_text(bench, found, "torch", file.name, ["", "Not predicted."]))
    return bench.choices


def rows_of(name: str, sets: int, with_inductor: int, folder: Path) -> list[dict[str, Any]]:
    """Return a row for each set and backend."""
    model, inputs = make(name)
    bench = workbench.open(model, device="cpu", kwargs=inputs)
    files = [folder / f"{name}_{seed}.py" for seed in range(max(sets, with_inductor))]
    made = [exported(bench, file, seed) for seed, file in enumerate(files)]
    rows = []
    for backend, count in (("aot_eager", sets), ("inductor", with_inductor)):
        found = run_alone(name, backend, *files[:count]) if count else []
        for seed, one in enumerate(found):
            choices = files[seed].read_text().count('): "recompute"')
            row = {
                "model": name, "backend": backend, "set": seed, "choices": choices,
                "gradients": "bitwise" if one["equal"] else "differ",
                "largest_difference": f"{one['largest_difference']:.1e}", "saved_bytes": one["after_bytes"],
                "stock_saved_bytes": one["before_bytes"], "peak_bytes": one["peak_bytes"][1],
                "stock_peak_bytes": one["peak_bytes"][0], "ok": one["equal"] and not one["modules"],
            }  # fmt: skip
            if backend == "inductor":
                predicted = predict_torch(bench._captured, torch_choices(bench._captured, made[seed]).choices)
                torch._dynamo.reset()
                row |= {
                    "predicted_saved_bytes": predicted.saved_bytes,
                    "predicted_peak_bytes": predicted.peak_bytes,
                    # Inductor may fuse other operators with choices, so gradients may differ by a rounding.
                    "ok": one["largest_difference"] <= ROUNDING * max(1.0, one["largest_gradient"])
                    and one["after_bytes"] == predicted.saved_bytes
                    and abs(one["peak_bytes"][1] - predicted.peak_bytes) <= WITHIN * predicted.peak_bytes,
                }
            rows.append(row)
    return rows


def main() -> int:
    """Print a row for each set of choices. Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(MODELS), metavar="NAME")
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--inductor", type=int, default=2)
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    writers = [csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")]
    writers[0].writeheader()
    wrong = 0
    for name in asked.names:
        with tempfile.TemporaryDirectory() as folder:
            rows = rows_of(name, asked.sets, asked.inductor, Path(folder))
        writers[0].writerows(rows)
        sys.stdout.flush()
        wrong += sum(not row["ok"] for row in rows)
        if asked.csv is not None:
            is_new = not asked.csv.exists()
            with asked.csv.open("a", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                if is_new:
                    writer.writeheader()
                writer.writerows(rows)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
