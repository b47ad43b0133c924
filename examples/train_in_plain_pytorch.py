"""Train a small model with choices in plain PyTorch: with torch.compile, and without a compiler.

``python examples/train_in_plain_pytorch.py [--steps N]``

The script first writes the two files, for which it needs the workbench. The training needs only PyTorch and the files.
"""

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

import torch
from model import batch, model
from train import saved_bytes, train


def export(folder: Path) -> None:
    """Write the choices of the config for both ways to train."""
    import workbench as wb

    bench = wb.open(model(), *batch(0), config=Path(__file__).with_name("choices.py"))
    bench.export(folder / "for_compile.py", target="torch")
    bench.export(folder / "for_eager.py", target="torch_eager")


def main() -> None:
    """Train four times from the same start, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", default=5, type=int)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        export(Path(folder))
        sys.path.insert(0, folder)
        compiled, eager = importlib.import_module("for_compile"), importlib.import_module("for_eager")
    ways = {
        "eager PyTorch": lambda network: network,
        "eager PyTorch with choices": eager.checkpoint,
        "torch.compile": torch.compile,
        "torch.compile with choices": compiled.compile,
    }
    for name, way in ways.items():
        torch._dynamo.reset()
        network = model()
        run = way(network)
        # Autograd calls only the innermost hooks, and an eager module with choices has hooks of its own.
        size = [] if "eager" in name else [saved_bytes(run, list(network.parameters()))]
        losses = train(network, run, given.steps)
        print(f"{name}: losses", *size, *(f"{loss:.6f}" for loss in losses))


if __name__ == "__main__":
    main()
