"""Train a small model without and with an exported config. The losses are the same; the config saves fewer bytes.

``python examples/train.py [--config FILE] [--steps N]``
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from model import LanguageModel, batch, model

import workbench as wb

HERE = Path(__file__).parent


def saved_bytes(run: Callable[..., torch.Tensor], parameters: list[torch.Tensor]) -> int:
    """Return the bytes of the storages that one forward saves for the backward, without parameters and inputs."""
    inputs = batch(0)
    known = {tensor.untyped_storage().data_ptr() for tensor in (*parameters, *inputs)}
    found: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = run(*inputs)
    del loss
    return sum(found.values())


def train(network: LanguageModel, run: Callable[..., torch.Tensor], steps: int) -> list[float]:
    """Train `network`, and return the loss of each step. `run` is the network itself, or the compiled network."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        loss = run(*batch(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    """Train three times from the same start, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default=HERE / "choices.py", type=Path)
    parser.add_argument("--steps", default=5, type=int)
    given = parser.parse_args()

    config = wb.load(given.config)
    ways = {
        "eager PyTorch": lambda network: network,
        "Thunder without choices": wb.Config(program="", executor=config.executor, device=config.device).jit,
        "Thunder with the config": config.jit,
    }
    print(f"{'':<25}{'saved, bytes':>14}  losses")
    for name, compile_model in ways.items():
        network = model()
        run = compile_model(network)
        saved = saved_bytes(run, list(network.parameters()))
        print(f"{name:<25}{saved:>14,}  {' '.join(f'{loss:.6f}' for loss in train(network, run, given.steps))}")


if __name__ == "__main__":
    main()
