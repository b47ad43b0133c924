"""Train a few steps on ranks that share a program, and compare them with the same steps under reference compilers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from workbench.compiler.planner import kernel_identity
from workbench.errors import is_out_of_memory
from workbench.programs.placement import seed_all
from workbench.runs.measure import accuracy
from workbench.runs.measure.accuracy import Accuracy, Parts, Stepper
from workbench.runs.measure.tensor_diff import RecordedTensor, compare_tensors, tensors_with_other_bits

STEPS = 3

LEARNING_RATE = 0.1

type Compile = Callable[[torch.nn.Module], Callable[..., Any]]


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """Results of a few training steps.

    Attributes
    ----------
    tensors : dict of str to RecordedTensor
        ``parameter(name)`` after the last step, and ``grad(name)`` summed over the steps; parameters and gradients are
        gathered from the ranks' shards. Also the outputs of the last step, and this rank's buffers and inputs.
    random : bool
        Whether the steps drew random numbers. Only steps in eager PyTorch are watched; False for steps with Thunder.
    kernels : dict of str to str
        Kernels that ran, from `workbench.compiler.planner.kernel_identity.kernels_of`; empty if Thunder compiled
        nothing.
    """

    tensors: dict[str, RecordedTensor]
    random: bool = False
    kernels: dict[str, str] = dataclasses.field(default_factory=dict)


def check_training(
    compile_program: Compile,
    unmodified: Compile,
    stock: Compile,
    build: Callable[[], Parts],
    *,
    seed: int = 0,
    modes: Mapping[str, str] = MappingProxyType({}),
    draws_differ: Sequence[str] = (),
) -> Accuracy:
    """Train under a plan; compare with unmodified Thunder and with eager PyTorch under `DistributedDataParallel`.

    Unmodified Thunder shares the module among the ranks with the same transforms as the plan. All ranks must call this
    function, in a process group. If the program draws random numbers, the results are not compared with eager PyTorch,
    which draws different numbers.

    Parameters
    ----------
    compile_program : callable
        Compiles a module under the plan.
    unmodified : callable
        Compiles a module with unmodified Thunder and the transforms that share the module.
    stock : callable
        Compiles a module under a plan without choices. This plan is the reference for a program that draws random
        numbers if unmodified Thunder cannot compile the program or draws wrong numbers.
    build : callable
        Makes a new copy of this rank's program. All ranks have the same parameters; each rank has its own inputs.
    seed : int
        Seed of this rank.
    modes : mapping of str to str, optional
        PyTorch's modes in each forward; as in `workbench.core.config.MODES`.
    draws_differ : sequence of str, optional
        As in `workbench.runs.process.request.RunRequest`.

    Returns
    -------
    Accuracy
        Comparison of the tensors of `TrainingResult`.
    """
    trained = functools.partial(train, build=build, seed=seed, modes=modes)
    held_to = functools.partial(compare_tensors, least=accuracy.least_tolerance(modes))
    ours, eager = trained(compile_program), trained(replicate_module)
    random = _any_rank(eager.random)
    name, known, why = _reference(unmodified, stock, trained, random=random, draws_differ=draws_differ)
    if name == accuracy.THUNDER and not random:
        off = [error for error in held_to(known.tensors, eager.tensors, "eager") if not error.ok]
        right = all(error.ok for error in held_to(ours.tensors, eager.tensors, "eager"))
        is_off, is_right = _any_rank(bool(off)), not _any_rank(not right)
        if is_off and is_right:
            where = (
                f"{off[0].name} is off by {off[0].max_abs_error:.3g} from eager PyTorch's" if off else "on another rank"
            )
            name, why = "", f"{accuracy.THUNDER} is wrong here: {where}"
    references = ({name: known} if name else {}) | ({} if random else {"eager": eager})
    is_thunder, differ, unsteady = name == accuracy.THUNDER, frozenset[str](), frozenset[str]()
    changed: tuple[str, ...] | None = None
    if is_thunder:
        changed = tuple(dict.fromkeys(kernel for key, kernel in ours.kernels.items() if key not in known.kernels))
        differ = tensors_with_other_bits(ours.tensors, known.tensors)
        if not changed and _any_rank(bool(differ)):
            unsteady = tensors_with_other_bits(trained(unmodified).tensors, known.tensors)
    tensors = [
        error
        for against, expected in references.items()
        for error in held_to(
            ours.tensors,
            expected.tensors,
            against,
            exact=changed == () and against == accuracy.THUNDER,
            unsteady=unsteady,
        )
    ]
    return Accuracy(
        ok=all(tensor.ok for tensor in tensors),
        max_error=max((tensor.max_abs_error for tensor in tensors), default=0.0),
        against=" and ".join(references) if name else "PyTorch eager",
        tensors=tuple(tensors),
        bitwise=not differ if is_thunder else None,
        changed_kernels=changed,
        why=why,
    )


def _reference(
    unmodified: Compile,
    stock: Compile,
    trained: Callable[[Compile], TrainingResult],
    *,
    random: bool,
    draws_differ: Sequence[str],
) -> tuple[str, TrainingResult, str]:
    """Train with unmodified Thunder, or with a stock plan if Thunder refuses the program or draws wrong numbers.

    The stock plan is used only if the program draws random numbers. Return the reference's name, its result, and the
    reason why the reference is not ``thunder.jit``. The name is empty if eager PyTorch is the only reference.
    """
    from workbench.compiler.driver.stock_thunder import refusal

    why = "; ".join(draws_differ) if random else ""
    if not why:
        found = TrainingResult({})
        try:
            found = trained(unmodified)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            why = refusal(accuracy.THUNDER, error)
        if not _any_rank(bool(why)):
            return accuracy.THUNDER, found, ""
        why = why or f"{accuracy.THUNDER} refuses it on another rank"
    if random:
        return accuracy.STOCK, trained(stock), f"{why}; {accuracy.STOCK_IS}"
    return "", TrainingResult({}), why


def _any_rank(condition: bool) -> bool:
    """Return whether a condition is true on any rank; all ranks must call this."""
    found: list[bool] = [False] * dist.get_world_size()
    dist.all_gather_object(found, condition)
    return any(found)


def replicate_module(module: torch.nn.Module) -> Callable[..., Any]:
    """Return the module under `DistributedDataParallel`; each rank has its own buffers, as under Thunder."""
    return DistributedDataParallel(module, broadcast_buffers=False, find_unused_parameters=True)


def train(
    compile_program: Compile,
    build: Callable[[], Parts],
    *,
    seed: int = 0,
    modes: Mapping[str, str] = MappingProxyType({}),
) -> TrainingResult:
    """Build the program, train it for `STEPS` steps of SGD, and record the results.

    Parameters
    ----------
    compile_program : callable
    build : callable
    seed : int
        Random seed, which is set before the first step.
    modes : mapping of str to str, optional
        As for `check_training`.
    """
    module, args, kwargs = build()
    assert isinstance(module, torch.nn.Module)
    run = compile_program(module)
    eager = isinstance(run, DistributedDataParallel)
    stepper = Stepper(module, args, kwargs, run, seed=seed, modes=modes)
    trained = {name: p for name, p in stepper.parameters.items() if p.requires_grad}
    sums: dict[str, torch.Tensor] = {}
    outputs = None
    seed_all(seed)
    watch = accuracy.ForwardWatch() if eager else None
    for _ in range(STEPS):
        stepper.clear_grads()
        with watch or nullcontext():
            outputs = stepper.forward()
        stepper.backward(outputs)
        with torch.no_grad():
            for name, parameter in trained.items():
                if parameter.grad is not None:
                    sums[name] = sums[name] + parameter.grad if name in sums else parameter.grad.clone()
                    parameter -= LEARNING_RATE * parameter.grad
    stepper.synchronize()
    random = watch.random if watch is not None else False
    found = {
        name: entry
        for name, entry in stepper.record(outputs).items()
        if entry.kind != "parameter" and name not in {f"grad({each})" for each in trained}
    }
    held = {name: parameter.detach() for name, parameter in stepper.parameters.items()}
    if not eager:
        held = {name: _gather_parts(part, module, name) for name, part in held.items()}
        sums = {name: _gather_parts(part, module, name) for name, part in sums.items()}
    found |= {
        f"parameter({name})": RecordedTensor("parameter", tensor.to("cpu", copy=True)) for name, tensor in held.items()
    }
    found |= {
        f"grad({n})": RecordedTensor("grad", sums[n].to("cpu", copy=True) if n in sums else None) for n in trained
    }
    if eager:
        # `DistributedDataParallel` holds the module as its attribute `module`.
        found = {name.replace("(module.", "(", 1): entry for name, entry in found.items()}
    return TrainingResult(found, random, kernel_identity.kernels_of(run) if hasattr(run, "_lc_cs") else {})


def _gather_parts(part: torch.Tensor, module: torch.nn.Module, name: str) -> torch.Tensor:
    """Return a complete parameter or gradient, gathered from the ranks' shards without Thunder's padding.

    `part` is this rank's shard. If the parameter is not sharded, `part` is already complete and is returned.
    """
    shape = module.get_parameter(name).shape
    differs = [dim for dim in range(part.ndim) if part.shape[dim] != shape[dim]]
    # Thunder sets `use_fsdp` on a module with sharded parameters. The shape does not show whether a parameter is
    # sharded: a parameter with a single row is padded to one row for each rank. Each shard then has the same shape as
    # the complete parameter.
    dim = 0 if getattr(module, "use_fsdp", False) else next(iter(differs), None)
    if dim is None:
        return part
    parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part.contiguous())
    return torch.cat(parts, dim).narrow(dim, 0, shape[dim])
