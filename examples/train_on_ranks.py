"""Train a small model on several ranks: with an exported order of collectives, and under PyTorch's own DDP.

``torchrun --nproc-per-node 2 examples/train_on_ranks.py [--config FILE] [--steps N]``
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from model import batch, model
from torch.nn.parallel import DistributedDataParallel

import workbench as wb

HERE = Path(__file__).parent


def train(run: Callable[..., torch.Tensor], parameters: list[torch.nn.Parameter], steps: int) -> list[float]:
    """Train, and return the loss of each step, averaged over the ranks. Each rank has its own batches."""
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    losses = []
    for step in range(steps):
        loss = run(*batch(step, dist.get_rank()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    return losses


def main() -> None:
    """Train twice from the same start. The first rank prints the losses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default=HERE / "choices_on_ranks.py", type=Path)
    parser.add_argument("--steps", default=5, type=int)
    given = parser.parse_args()

    dist.init_process_group("gloo")
    replicated = DistributedDataParallel(model())
    expected = train(replicated, list(replicated.parameters()), given.steps)

    # Each rank holds only its shards of the parameters, and the optimizer updates the shards.
    fast = wb.load(given.config).jit(model())
    shards = list(fast.parameters())
    losses = train(fast, shards, given.steps)

    if dist.get_rank() == 0:
        whole, held = (sum(p.numel() * p.element_size() for p in each) for each in (model().parameters(), shards))
        print(f"{'':<25}{'held, bytes':>14}  losses")
        for name, size, row in (("DDP", whole, expected), ("FSDP with the config", held, losses)):
            print(f"{name:<25}{size:>14,}  {' '.join(f'{loss:.6f}' for loss in row)}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
