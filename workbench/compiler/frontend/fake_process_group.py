"""Plan for several ranks in one process: run Thunder's sharding transforms on a fake process group."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

import torch
import torch.distributed as dist

from workbench.compiler.frontend import tensor_parallel
from workbench.compiler.interop.thunder_api import DDPTransform, FSDPTransform, Transform
from workbench.core.config import PARALLEL, Config
from workbench.errors import Advice, ConfigError, DeviceError, ProgramError, short_repr
from workbench.interop.torch_private import FakeStore

type Parallel = Literal["fsdp", "fsdp_zero3", "ddp", "tensor"]
"""Method by which ranks share a program. With ``fsdp``, parameters are sharded, and gathered once in a step. With
``fsdp_zero3``, parameters are sharded, and gathered again in the backward. With ``ddp``, parameters are replicated.
With ``tensor``, pairs of linear layers are split.
"""

ZERO3: Parallel = "fsdp_zero3"
SHARDED: tuple[Parallel, ...] = ("fsdp", ZERO3)

LEFT_ON_MODULE = (
    "use_fsdp",
    "use_ddp",
    "process_group_for_ddp",
    "bucketing_strategy",
    "sharding_strategy",
    "bucket_size_in_mb",
)
"""Attributes that Thunder's transforms leave on a module that they transform."""


@dataclasses.dataclass(frozen=True)
class Ranks:
    """Number of ranks that share a program, and the method by which they share it.

    Attributes
    ----------
    count : int
    parallel : {'fsdp', 'fsdp_zero3', 'ddp', 'tensor'}
    """

    count: int
    parallel: Parallel


def ranks_of(program: str, callable_: Any, count: int, parallel: str) -> Ranks | None:
    """Check and return the ranks that the user requested. Return None if no method of sharing is given.

    Any number of ranks can shard a parameter, because Thunder pads the parameter's first dimension to a multiple of the
    number of ranks.

    Raises
    ------
    ProgramError
        If the request is illegal, or if the program cannot be shared by the requested method.
    """
    legal = ", ".join(PARALLEL)
    if count < 1:
        raise ProgramError(f"ranks must be at least 1, given {count}")
    if parallel and parallel not in PARALLEL:
        raise ProgramError(f"parallel={short_repr(parallel)} is unknown; legal: {legal}")
    if not parallel:
        if count > 1:
            raise ProgramError(
                f"{program} does not say how {count} ranks share it",
                advice=Advice(f"give parallel= one of {legal}", f"give --parallel one of {legal}"),
            )
        return None
    if not isinstance(callable_, torch.nn.Module):
        raise ProgramError(
            f"{program} cannot be shared among ranks by {parallel}: it is a {type(callable_).__name__}, "
            "and a module with parameters is needed"
        )
    parameters = dict(callable_.named_parameters())
    if not parameters:
        raise ProgramError(f"{program} cannot be shared among ranks by {parallel}: the module has no parameters")
    scalars = [name for name, parameter in parameters.items() if parameter.ndim == 0]
    if parallel in SHARDED and scalars:
        raise ProgramError(
            f"{program} cannot be sharded: {scalars[0]} has no dimension to shard along; "
            "give it one (shape (1,)), or share it by ddp"
        )
    if parallel == "tensor" and (reason := tensor_parallel.why_not(callable_, count)):
        raise ProgramError(f"{program} cannot be split over {count} ranks by parallel='tensor': {reason}")
    return Ranks(count, cast("Parallel", parallel))


def transforms(ranks: Ranks, device: torch.device, group: Any) -> tuple[Transform, ...]:
    """Return the transforms with which ``thunder.jit`` shares a module among the ranks of a process group.

    Parameters
    ----------
    ranks : Ranks
    device : torch.device
        Device of this rank, including the device's index.
    group : torch.distributed.ProcessGroup
        Process group with `ranks.count` members. Planning uses a fake group.
    """
    if ranks.parallel == "tensor":
        return (tensor_parallel.TensorParallel(device, group),)
    if ranks.parallel in SHARDED:
        # Thunder no longer reads its flag for ZeRO-3. Instead, the lever `saved` makes the backward gather the
        # parameters again.
        return (FSDPTransform(device=device, process_group=group),)
    # Thunder requires a bucket size. 25 MB is the default of `thunder.distributed.ddp`.
    return (DDPTransform(process_group=group, bucket_size_in_mb=25.0, broadcast_from=None),)


def transforms_here(config: Config, module: Any) -> tuple[Transform, ...]:
    """Return the transforms that share a module among the ranks of this process's group, as a config says.

    Raises
    ------
    ConfigError
        If this process is not in a process group.
    ProgramError
        If the module cannot be shared among the ranks of the group as the config says.
    """
    if not dist.is_initialized():
        raise ConfigError(
            f"{config.ranks} ranks share {config.program} by {config.parallel!r}, but this process is not in a group "
            "of that size: start it with torchrun, and call torch.distributed.init_process_group first"
        )
    ranks = ranks_of(config.program, module, dist.get_world_size(), config.parallel)
    assert ranks is not None
    device = next(module.parameters()).device
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return transforms(ranks, device, dist.group.WORLD)


@contextlib.contextmanager
def fake_group(ranks: Ranks, module: Any, device: str) -> Iterator[Sequence[Transform]]:
    """Make this process rank 0 of a fake process group; yield the transforms for ``thunder.jit``.

    Collectives of PyTorch's fake group return at once, and send no data. On exit, this context removes the attributes
    that Thunder's transforms left on the module.

    Raises
    ------
    DeviceError
        If this process is already in a process group.
    """
    if dist.is_initialized():
        raise DeviceError(
            f"this process is in a process group of {dist.get_world_size()} already; "
            f"planning for {ranks.count} ranks needs a process without one"
        )
    before = {name: module.__dict__[name] for name in LEFT_ON_MODULE if name in module.__dict__}
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks.count)
    try:
        place = torch.device("cpu") if device == "cpu" else torch.device("cuda", 0)
        yield transforms(ranks, place, dist.group.WORLD)
    finally:
        dist.destroy_process_group()
        for name in LEFT_ON_MODULE:
            module.__dict__.pop(name, None)
        module.__dict__.update(before)
