"""A rank on a CPU: trains a small module under many orders of its collectives, and compares each with stock and eager.

``torchrun … orders_on_ranks.py FOLDER PLACEMENTS SEED``: besides every policy as many random legal placements by hand.
Each rank writes into the folder what it found: per order the tensor that is nearest to, or farthest beyond, its
tolerance.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import thunder
import torch
import torch.distributed as dist
from thunder.common import transform_to_torch_types
from torch import Tensor, nn

from workbench.compiler import parallel, pipeline
from workbench.compiler.validate import validate
from workbench.levers.waits import Waits, site_ids
from workbench.runs import accuracy, training

ISSUE = ("stock", "earliest", "consumer", "just_in_time", "in_flight(2)")
WAIT = ("stock", "late", "early")
GRADIENTS = ("stock", "earliest")
ALONE = "not shared"
"""Each rank trained by itself: what the comparison has to notice."""


class Net(nn.Module):
    """Batch norm's statistics and a count of its own are written in place; no number of ranks divides 5 or 7."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 5, 1)
        self.norm = nn.BatchNorm2d(5)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 7), nn.Tanh(), nn.Linear(7, 16)) for _ in range(2))
        self.register_buffer("seen", torch.zeros(16))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` of shape (batch, 3, 4, 4); one row for each image and channel out."""
        x = torch.relu(self.norm(self.stem(x))).flatten(2)
        self.seen.add_(x.detach().sum((0, 1)))
        for block in self.blocks:
            x = x + block(x)
        return x


def build(rank: int) -> tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]:
    """The module, the same on all ranks, and the rank's own batch."""
    torch.manual_seed(0)
    module = Net()
    torch.manual_seed(1 + rank)
    return module, (torch.randn(2, 3, 4, 4),), {}


class Reordered:
    """A module compiled once, whose collectives are put into one order after another.

    Parameters
    ----------
    shared : Ranks
    module, args
        The program.
    """

    def __init__(self, shared: parallel.Ranks, module: nn.Module, args: tuple[Any, ...]) -> None:
        hooks = pipeline.Hooks("torch", {})
        first, *rest = hooks.transforms()
        group = parallel.transforms(shared, torch.device("cpu"), dist.group.WORLD)
        self.jitted = thunder.jit(module, executors=hooks.executors(), transforms=[first, *group, *rest])
        self._start = {name: tensor.detach().clone() for name, tensor in self._state()}
        self.jitted(*args)
        assert hooks.stage is not None
        self.stage = hooks.stage
        self.gathers = "forward" in self.stage.communication
        self.entry = self.jitted._lc_cs.interpreter_cache[-1]

    def _state(self) -> Iterator[tuple[str, Tensor]]:
        return itertools.chain(self.jitted.named_parameters(), self.jitted.named_buffers())

    def under(self, choices: dict[str, str]) -> Callable[..., Any]:
        """The compiled module under other choices, its state as it was at first."""
        self.order(choices)
        for name, tensor in self._state():
            tensor.data = self._start[name].clone()
        return self.jitted

    def order(self, choices: dict[str, str]) -> None:
        """Have the next calls run under other choices."""
        self.jitted._lc_cs.interpreter_cache[-1] = self.entry_of(choices)

    def entry_of(self, choices: dict[str, str]) -> Any:
        """The compiled module under other choices, as Thunder keeps it in its cache."""
        lever = Waits()
        forward, backward = (
            lever.after_split(traces[-1], choices, self.stage)
            for traces in (self.entry.computation_traces, self.entry.backward_traces)
        )
        validate(forward, backward)
        return self.entry._replace(
            computation_fn=transform_to_torch_types(forward).python_callable(),
            backward_fn=backward.python_callable(),
        )

    def placement(self, draw: random.Random) -> dict[str, str]:
        """Any legal place for each collective and its wait."""
        choices = {}
        for schedule in self.stage.communication.values():
            names = (*schedule.names, "end")
            for collective in schedule.collectives:
                low, high = schedule.low[collective.issue], schedule.high[collective.wait]
                slots = sorted(draw.randint(low, high) for _ in range(2))
                choices |= {id: f"at({names[slot]})" for id, slot in zip(site_ids(collective), slots, strict=True)}
        return choices


def compared(name: str, ours: training.Trained, references: dict[str, training.Trained]) -> dict[str, Any]:
    """The outcome of one order."""
    errors = [
        error
        for against, expected in references.items()
        for error in accuracy.compare(ours.tensors, expected.tensors, against)
    ]
    worst = max(errors, key=lambda error: error.severity)
    return {
        "order": name,
        "ok": all(error.ok for error in errors),
        "names": [error.name for error in errors],
        "worst": f"{worst.name} against {worst.against}",
        "error": worst.max_abs_error,
        "tolerance": worst.tolerance,
    }


def orders(compiled: Reordered, placements: int, seed: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Every policy for issues with every one for waits, those for gradients in turns; then placements by hand."""
    pairs = itertools.product(ISSUE if compiled.gathers else ISSUE[:1], WAIT)
    for (issue, wait), gradients in zip(pairs, itertools.cycle(GRADIENTS), strict=False):
        options = (issue, wait, gradients)
        choices = dict(zip(("waits.issue", "waits.wait", "waits.gradients"), options, strict=True))
        yield ", ".join(options), {id: option for id, option in choices.items() if option != "stock"}
    draw = random.Random(seed)
    for number in range(placements):
        yield f"by hand {number}", compiled.placement(draw)


def under(compiled: Reordered, choices: dict[str, str], _: nn.Module) -> Callable[..., Any]:
    """In place of compiling the module: the one compiled before."""
    return compiled.under(choices)


def main() -> None:
    """Go through both ways to share and all orders."""
    folder, placements, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    # An order that is not the same on all ranks hangs: better to fail soon.
    patience = datetime.timedelta(seconds=120)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'tmp' / 'ranks'}", rank=rank, world_size=count, timeout=patience
    )
    found, begun = [], time.monotonic()
    for kind in ("fsdp", "ddp"):
        shared = parallel.Ranks(count, kind)

        def stock(module: nn.Module, shared: parallel.Ranks = shared) -> Any:
            transforms = parallel.transforms(shared, torch.device("cpu"), dist.group.WORLD)
            return pipeline.unmodified(module, transforms)

        references = {
            "thunder.jit": training.train(stock, lambda: build(rank)),
            "eager": training.train(training.replicated, lambda: build(rank)),
        }
        alone = training.train(lambda module: module, lambda: build(rank))
        found.append({"kind": kind, **compared(ALONE, alone, {"eager": references["eager"]})})
        compiled = Reordered(shared, *build(rank)[:2])
        for name, choices in orders(compiled, placements, seed):
            ours = training.train(functools.partial(under, compiled, choices), lambda: build(rank))
            found.append({"kind": kind, **compared(name, ours, references)})
    (folder / f"{rank}.json").write_text(json.dumps({"seconds": time.monotonic() - begun, "orders": found}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
