"""Fine-tune a small Llama in Hugging Face's `Trainer` with torch.compile, without and with exported choices.

``python examples/train_plain_in_trainer.py [--steps N] [--peak SHARE] [--backend inductor|aot_eager]``

The script first fits a peak of torch.compile and writes the file, for which it needs the workbench. The training needs
only PyTorch, Hugging Face's libraries and the file.
"""

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

import torch
from train_in_trainer import BATCH, llama, rows, train


def export(folder: Path, peak: str) -> None:
    """Fit a peak of torch.compile, and write the choices."""
    import workbench as wb

    batch = torch.utils.data.default_collate(rows(BATCH))
    bench = wb.open(llama(), device="cpu", kwargs=batch)
    fit = bench.torch_fit(peak)
    print(fit)
    fit.export(folder / "for_trainer.py")


def main() -> None:
    """Train twice from the same start, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", default=5, type=int)
    parser.add_argument("--peak", default="98%")
    parser.add_argument("--backend", default="inductor", choices=("inductor", "aot_eager"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        export(Path(folder), given.peak)
        sys.path.insert(0, folder)
        choices = importlib.import_module("for_trainer")
    torch._dynamo.reset()
    stock = train(torch.compile(llama(), backend=given.backend), given.steps)
    torch._dynamo.reset()
    chosen = train(choices.compile(llama(), backend=given.backend), given.steps)
    for name, losses in {"torch.compile": stock, "torch.compile with choices": chosen}.items():
        print(f"{name}: losses {' '.join(f'{loss:.4f}' for loss in losses)}")


if __name__ == "__main__":
    main()
