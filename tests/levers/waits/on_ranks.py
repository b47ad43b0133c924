"""Train small modules on ranks of a CPU. Report how far their parameters are from those trained with eager PyTorch.

``python on_ranks.py FOLDER RANKS CASE…`` forks the ranks. A case has a module, a parallel mode and choices. The ranks
form a process group through a file in FOLDER, and each rank writes its results into FOLDER.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

RANKS, STEPS, RATE = 2, 3, 0.05

ORDER = {"waits.issue": "consumer", "waits.wait": "late", "waits.gradients": "earliest"}

BEFORE = {"waits.stage": "before_fusion"}


class Blocks(nn.Module):
    """Residual blocks. Some numbers of features are odd. A buffer is written in place, and a weight is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 6)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 6, bias=False)) for _ in range(2)
        )
        self.head = nn.Linear(6, 5, bias=False)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss for ``x`` of shape (batch, 5)."""
        x = self.embed(x)
        self.seen.add_(x.detach().sum(0))
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x).square().mean() + self.embed.weight.square().mean()


class Normed(nn.Module):
    """A batch norm, which writes its statistics in place, between two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss for ``x`` of shape (batch, 10), which is viewed as images."""
        return self.inner(x.view(-1, 2, 5, 1)).square().mean()


class Tied(nn.Module):
    """Three linears and a buffer. Two linears share a weight. Each call replaces the buffer by a new tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.between, self.last = nn.Linear(5, 5, bias=False), nn.Linear(5, 5), nn.Linear(5, 5, bias=False)
        self.last.weight = self.first.weight
        self.register_buffer("calls", torch.ones((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss for ``x`` of shape (batch, 5)."""
        self.calls = self.calls + 1
        return (self.last(torch.tanh(self.between(self.first(x)))) / self.calls).square().mean()


class Split(nn.Module):
    """Residual blocks of two linears, each with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 5)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss for ``x`` of shape (batch, 5)."""
        for layer in self.layers:
            x = x + layer(x)
        return x.square().mean()


@dataclasses.dataclass(frozen=True)
class Case:
    """A module to train, and its parallel mode, choices, executor and front end."""

    module: type[nn.Module]
    parallel: str
    choices: dict[str, str]
    executor: str = "torch"
    capture: str = "interpreter"


CASES = {
    "fsdp, by layer": Case(Blocks, "fsdp", {"waits.bucket": "layer"}),
    "fsdp, one bucket, ordered": Case(Blocks, "fsdp", {"waits.bucket": "1MiB", **ORDER}),
    "zero3, in flight": Case(Blocks, "fsdp_zero3", {**ORDER, "waits.issue": "in_flight(2)"}),
    "zero3, by layer, ordered": Case(Blocks, "fsdp_zero3", {"waits.bucket": "layer", **ORDER}),
    "zero3, one parameter kept": Case(Blocks, "fsdp_zero3", {"saved:head_weight>all_gather": "save"}),
    "ddp, batch norm, one bucket": Case(Normed, "ddp", {"waits.bucket": "1MiB", "waits.gradients": "earliest"}),
    "tensor, stock": Case(Split, "tensor", {}),
    "tensor, ordered": Case(Split, "tensor", ORDER | {"waits.issue": "earliest"}),
    "fsdp, before fusion": Case(Blocks, "fsdp", ORDER | BEFORE, "torchcompile"),
    "ddp, batch norm, before fusion": Case(Normed, "ddp", ORDER | BEFORE, "torchcompile"),
    "fsdp, by Dynamo": Case(Blocks, "fsdp", {"waits.bucket": "layer"}, capture="dynamo"),
    "zero3, by Dynamo": Case(Tied, "fsdp_zero3", ORDER, capture="dynamo"),
    "ddp, by Dynamo, before fusion": Case(Normed, "ddp", ORDER | BEFORE, "torchcompile", capture="dynamo"),
    "ddp, tied, by Dynamo": Case(Tied, "ddp", {"waits.bucket": "1MiB"}, capture="dynamo"),
    "tensor, by Dynamo": Case(Split, "tensor", ORDER, capture="dynamo"),
}
"""Cases by name. On each rank, the batch norm in `Normed` uses the statistics of the rank's own batch. Each copy in
`expected` does so, too.
"""


IN_TEST = (
    "fsdp, by layer",
    "zero3, by layer, ordered",
    "ddp, batch norm, one bucket",
    "tensor, ordered",
    "fsdp, before fusion",
    "fsdp, by Dynamo",
    "zero3, by Dynamo",
    "ddp, tied, by Dynamo",
    "tensor, by Dynamo",
)
"""Cases that run under the Hypothesis profile `ci`. They cover each parallel mode. `make long` runs all cases."""


def inputs(module: type[nn.Module], rank: int) -> list[Tensor]:
    """Return the batches of a rank, one for each step."""
    generator = torch.Generator().manual_seed(rank)
    features = 10 if module is Normed else 5
    return [torch.randn(4, features, dtype=torch.float64, generator=generator) for _ in range(STEPS)]


def step(parameters: list[nn.Parameter]) -> None:
    """Subtract each parameter's gradient, times `RATE`, from the parameter. Delete the gradient."""
    with torch.no_grad():
        for parameter in parameters:
            assert parameter.grad is not None
            parameter -= RATE * parameter.grad
            parameter.grad = None


def expected(module: nn.Module, parallel: str) -> dict[str, Tensor]:
    """Train one copy of a module for each rank with eager PyTorch, and average gradients. Return the parameters.

    Under tensor parallelism, all ranks have the same batch, so only one copy is trained.
    """
    seen = range(RANKS) if parallel != "tensor" else range(1)
    copies = [copy.deepcopy(module) for _ in seen]
    batches = [inputs(type(module), rank) for rank in seen]
    for at in range(STEPS):
        for one, given in zip(copies, batches, strict=True):
            one(given[at]).backward()
        for same in zip(*(one.parameters() for one in copies), strict=True):
            mean = torch.stack([p.grad for p in same]).mean(0)
            for parameter in same:
                parameter.grad = mean
        for one in copies:
            step(list(one.parameters()))
    return {name: parameter.detach() for name, parameter in copies[0].named_parameters()}


def difference(full: Tensor, mine: Tensor, rank: int) -> float:
    """Return the largest difference between a rank's shard of a parameter and the same rows or columns of `full`.

    Elements that Thunder adds to a shard as padding are ignored.
    """
    for dim in range(full.ndim):
        if mine.shape[dim] != full.shape[dim]:
            size = mine.shape[dim]
            there = min(size, full.shape[dim] - rank * size)
            full, mine = full.narrow(dim, rank * size, there), mine.narrow(dim, 0, there)
    return (full - mine).abs().max().item()


def error(case: Case, rank: int) -> float:
    """Train the module of a case. Return the largest difference of a parameter from `expected`.

    The difference is a share of the largest change of a parameter over all steps.
    """
    import workbench as wb

    torch.manual_seed(7)
    module = case.module().double()
    start = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    wanted = expected(module, case.parallel)
    config = wb.Config(
        program="p",
        executor=case.executor,
        device="cpu",
        choices=case.choices,
        ranks=RANKS,
        parallel=case.parallel,
        capture=case.capture,
    )
    jitted = config.jit(module)
    for given in inputs(case.module, rank if case.parallel != "tensor" else 0):
        jitted(given).backward()
        step(list(jitted.parameters()))
    came = max((wanted[name] - start[name]).abs().max().item() for name in wanted)
    return max(difference(wanted[name], mine, rank) for name, mine in jitted.named_parameters()) / came


def main() -> None:
    """Run the cases on all ranks. For each case, each rank writes the result of `error`, or a traceback."""
    # Import these modules before the ranks are forked. Otherwise, each rank would import them in its first case.
    from tests.levers.waits import forked
    from workbench.compiler import api  # noqa: F401

    folder, count, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    # Regions run their PyTorch functions without compiling: the cases test the order of statements, not the compiler.
    stock = torch.compile
    torch.compile = lambda function, **options: stock(function, **options) if "backend" in options else function

    def be(rank: int) -> None:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=count)
        found: dict[str, float | str] = {}
        for name in names:
            try:
                found[name] = error(CASES[name], rank)
            except Exception:  # noqa: BLE001 - the test shows the traceback of any error
                found[name] = traceback.format_exc()
        (folder / f"{rank}.json").write_text(json.dumps(found))
        dist.barrier()
        dist.destroy_process_group()

    forked.be_ranks(count, be)


if __name__ == "__main__":
    main()
