"""Train a small module on ranks of a CPU under many orders of its collectives.

Compare the results of each order with unmodified Thunder and eager PyTorch. ``python orders_on_ranks.py FOLDER RANKS
TOGETHER IN_PAIRS POLICIES PLACEMENTS SEED`` tries two kinds of orders under each parallel mode. POLICIES is the number
of combinations of options of the settings ``waits.*``. PLACEMENTS is the number of random legal placements of
collectives. First, all ranks train together under each mode in TOGETHER. Then the same processes train in pairs, and
each mode in IN_PAIRS is given to one pair. Each rank writes its results into FOLDER: for each order, the tensor with
the largest error relative to its tolerance.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from thunder.common import transform_to_torch_types
from torch import Tensor, nn

from tests.levers.waits import forked
from workbench.compiler import api
from workbench.compiler.frontend import fake_process_group
from workbench.compiler.lowering import patch_context
from workbench.compiler.trace.validate import validate
from workbench.levers.waits import Waits
from workbench.levers.waits.positions import site_ids
from workbench.runs.measure import accuracy, rank_training, tensor_diff

ISSUE = ("stock", "earliest", "consumer", "just_in_time", "in_flight(2)")
WAIT = ("stock", "late", "early")
GRADIENTS = ("stock", "earliest")
BUCKET = ("none", "layer", "1MiB")
KINDS = "fsdp,fsdp_zero3,ddp"
PAIR = 2
POLICIES = len(ISSUE) * len(WAIT) * len(GRADIENTS) * len(BUCKET)
ALONE = "not shared"
"""Name of a case that must fail, so that the comparison itself is tested: each rank trains without the others."""


class Net(nn.Module):
    """A module that writes batch norm's statistics and a buffer in place.

    Some parameters have 5 or 7 rows, so that their shards for 2 or 4 ranks need padding.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 5, 1)
        self.norm = nn.BatchNorm2d(5)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 7), nn.Tanh(), nn.Linear(7, 16)) for _ in range(2))
        self.register_buffer("seen", torch.zeros(16))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``x`` of shape (batch, 3, 4, 4) to one row of features for each image and channel of the convolution."""
        x = torch.relu(self.norm(self.stem(x))).flatten(2)
        self.seen.add_(x.detach().sum((0, 1)))
        for block in self.blocks:
            x = x + block(x)
        return x


def build(rank: int) -> tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]:
    """Return a module with the same parameters on all ranks, and a batch of this rank's own."""
    torch.manual_seed(0)
    module = Net()
    torch.manual_seed(1 + rank)
    return module, (torch.randn(2, 3, 4, 4),), {}


class Reordered:
    """A module that is compiled once. Choices then reorder its collectives without compiling again.

    Parameters
    ----------
    shared : Ranks
    module, args
        The program.
    """

    def __init__(self, shared: fake_process_group.Ranks, module: nn.Module, args: tuple[Any, ...]) -> None:
        hooks = api.Hooks("torch", {}, parallel=shared.parallel)
        first, *rest = hooks.transforms()
        group = fake_process_group.transforms(shared, torch.device("cpu"), dist.group.WORLD)
        self.jitted = patch_context.jit(module, executors=hooks.executors(), transforms=[first, *group, *rest])
        self._start = {name: tensor.detach().clone() for name, tensor in self._state()}
        self.jitted(*args)
        assert hooks.context is not None
        self.context, self.outcome = hooks.context, hooks.outcome
        self.gathers = "forward" in self.outcome.communication
        self.entry = self.jitted._lc_cs.interpreter_cache[-1]

    def _state(self) -> Iterator[tuple[str, Tensor]]:
        return itertools.chain(self.jitted.named_parameters(), self.jitted.named_buffers())

    def under(self, choices: dict[str, str]) -> Callable[..., Any]:
        """Apply choices, and restore the initial parameters and buffers. Return the compiled module."""
        self.order(choices)
        for name, tensor in self._state():
            tensor.data = self._start[name].clone()
        return self.jitted

    def order(self, choices: dict[str, str]) -> None:
        """Reorder collectives by the choices. Later calls run in this order."""
        self.jitted._lc_cs.interpreter_cache[-1] = self.entry_of(choices)

    def entry_of(self, choices: dict[str, str]) -> Any:
        """Return an entry for Thunder's cache. Its functions call collectives in the order of the choices."""
        lever = Waits()
        forward, outcome = lever.after_split(self.entry.computation_traces[-1], choices, self.context, self.outcome)
        backward, self.outcome = lever.after_split(self.entry.backward_traces[-1], choices, self.context, outcome)
        validate(forward, backward)
        return self.entry._replace(
            computation_fn=transform_to_torch_types(forward).python_callable(),
            backward_fn=backward.python_callable(),
        )

    def placement(self, draw: random.Random) -> dict[str, str]:
        """Return choices that give each collective and each wait a random legal position."""
        self.order({})
        choices = {}
        for schedule in self.outcome.communication.values():
            names = (*schedule.names, "end")
            for collective in schedule.collectives:
                low, high = schedule.low[collective.issue], schedule.high[collective.wait]
                slots = sorted(draw.randint(low, high) for _ in range(2))
                choices |= {id: f"at({names[slot]})" for id, slot in zip(site_ids(collective), slots, strict=True)}
        return choices


def compared(
    name: str,
    ours: rank_training.TrainingResult,
    references: dict[str, rank_training.TrainingResult],
    *,
    exact: bool = False,
) -> dict[str, Any]:
    """Compare the results of one order with the references. If `exact`, they must be bitwise equal to Thunder's."""
    errors = [
        error
        for against, expected in references.items()
        for error in tensor_diff.compare_tensors(
            ours.tensors, expected.tensors, against, exact=exact and against == accuracy.THUNDER
        )
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


def orders(compiled: Reordered, policies: int, placements: int, seed: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield names and choices: up to `policies` random combinations of policies, then random placements."""
    draw = random.Random(seed)
    every = list(itertools.product(ISSUE if compiled.gathers else ISSUE[:1], WAIT, GRADIENTS, BUCKET))
    for options in draw.sample(every, min(policies, len(every))):
        ids = ("waits.issue", "waits.wait", "waits.gradients", "waits.bucket")
        choices = dict(zip(ids, options, strict=True))
        yield ", ".join(options), {id: option for id, option in choices.items() if option not in ("stock", "none")}
    for number in range(placements):
        yield f"by hand {number}", compiled.placement(draw)


def under(compiled: Reordered, choices: dict[str, str], _: nn.Module) -> Callable[..., Any]:
    """Return the compiled module after applying choices to it."""
    return compiled.under(choices)


def join(meeting: Path, rank: int, count: int) -> None:
    """Form a process group of `count` ranks through the file `meeting`."""
    # If ranks run collectives in different orders, they wait forever. The short timeout ends this.
    patience = datetime.timedelta(seconds=120)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=count, timeout=patience)


def leave() -> None:
    """Wait for the other ranks, and leave the process group. If a rank left earlier, its messages could be lost."""
    dist.barrier()
    dist.destroy_process_group()


def trained(kinds: Sequence[fake_process_group.Parallel], *drawn: int) -> list[dict[str, Any]]:
    """Train under each parallel mode and order, on the ranks of this process group. Return the comparisons.

    Unmodified Thunder ignores its flag for ZeRO-3, so the reference for ZeRO-3 is Thunder's ZeRO-2.
    """
    rank, count = dist.get_rank(), dist.get_world_size()
    build_own = functools.partial(build, rank)
    eager = rank_training.train(rank_training.replicate_module, build_own)
    found = [
        {"ranks": count, **compared(ALONE, rank_training.train(lambda module: module, build_own), {"eager": eager})}
    ]
    stocks: dict[bool, rank_training.TrainingResult] = {}
    for kind in kinds:
        shared = fake_process_group.Ranks(count, kind)

        def stock(module: nn.Module, shared: fake_process_group.Ranks = shared) -> Any:
            transforms = fake_process_group.transforms(shared, torch.device("cpu"), dist.group.WORLD)
            return api.unmodified(module, transforms)

        sharded = kind in fake_process_group.SHARDED
        if sharded not in stocks:
            stocks[sharded] = rank_training.train(stock, build_own)
        compiled = Reordered(shared, *build(rank)[:2])
        assert ("all_gather" in compiled.entry.backward_traces[-1].python()) == (kind == fake_process_group.ZERO3)
        for name, choices in orders(compiled, *drawn):
            ours = rank_training.train(functools.partial(under, compiled, choices), build_own)
            # Without buckets, ranks send the same messages as under unmodified Thunder, so results must be bitwise
            # equal.
            exact = "waits.bucket" not in choices
            outcome = compared(name, ours, {accuracy.THUNDER: stocks[sharded], "eager": eager}, exact=exact)
            found.append({"ranks": count, "kind": kind, **outcome})
    return found


def main() -> None:
    """Train under parallel modes and orders, first on all ranks, then on pairs of ranks."""
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    together, in_pairs = (kinds.split(",") for kinds in sys.argv[3:5])
    drawn = [int(argument) for argument in sys.argv[5:]]

    def be(rank: int) -> None:
        torch.set_num_threads(1)
        begun = time.monotonic()
        join(folder / "all", rank, count)
        found = trained(together, *drawn)
        leave()
        pair = rank // PAIR
        join(folder / f"pair{pair}", rank % PAIR, PAIR)
        found += trained(in_pairs[pair :: count // PAIR], *drawn)
        leave()
        (folder / f"{rank}.json").write_text(json.dumps({"seconds": time.monotonic() - begun, "orders": found}))

    forked.be_ranks(count, be)


if __name__ == "__main__":
    main()
