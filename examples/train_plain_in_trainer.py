"""Fine-tune a small Llama in Hugging Face's `Trainer` with torch.compile, without and with exported choices.

``python examples/train_plain_in_trainer.py [--steps N] [--backend inductor|aot_eager]``

The script first makes choices and writes the file, for which it needs the workbench. The training needs
only PyTorch, Hugging Face's libraries and the file.
"""

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

import torch
from train_in_trainer import BATCH, llama, rows, train


def export(folder: Path) -> None:
    """Choose to recompute a product in each layer, and write the choices."""
    import workbench as wb

    batch = torch.utils.data.default_collate(rows(BATCH))
    bench = wb.open(llama(), device="cpu", kwargs=batch)
    bench.choose({f"saved:model.layers.{layer}.mlp/mul": "recompute" for layer in range(2)})
    bench.export(folder / "for_trainer.py", target="torch")


def main() -> None:
    """Train twice from the same start, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", default=5, type=int)
    parser.add_argument("--backend", default="inductor", choices=("inductor", "aot_eager"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        export(Path(folder))
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
