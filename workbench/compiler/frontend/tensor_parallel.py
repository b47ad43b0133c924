"""Tensor parallelism: split pairs of linear layers over the ranks, the first by its outputs, the second by its inputs.

Thunder's transforms split the layers. Between the two layers, each rank has only some of the hidden features.
Operators between the two layers must therefore not combine several features. Thunder does not check these operators, so
this module checks them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch

from workbench.compiler.interop.thunder_api import (
    ELEMENTWISE,
    BoundSymbol,
    TensorProxy,
    TraceCtx,
    Transform,
    TransformForColumnWiseParallel,
    TransformForRowWiseParallel,
    from_trace,
    prims,
)
from workbench.compiler.interop.thunder_api import distributed_prims as collectives
from workbench.compiler.trace.stable_ids import OriginTag, is_statement
from workbench.errors import ProgramError

type Pair = tuple[str, str]
"""Names of two linear layers. The first is split by its outputs, the second by its inputs."""

_APART = frozenset(getattr(prims.PrimIDs, name) for name in ELEMENTWISE)
"""Operators that process each element separately."""


def pairs_of(module: torch.nn.Module) -> list[Pair]:
    """Return pairs of consecutive linear layers of which the second takes as many features as the first returns."""
    found: list[Pair] = []
    for prefix, part in module.named_modules():
        waiting = ""
        for name, child in part.named_children():
            if type(child) is not torch.nn.Linear:
                continue
            path = f"{prefix}.{name}" if prefix else name
            if waiting and _linear(module, waiting).out_features == child.in_features:
                found.append((waiting, path))
                path = ""
            waiting = path
    return found


def _linear(module: torch.nn.Module, path: str) -> torch.nn.Linear:
    return cast("torch.nn.Linear", module.get_submodule(path))


def why_not(module: torch.nn.Module, ranks: int) -> str:
    """Return why a module cannot be split over `ranks` ranks, or an empty text if it can."""
    pairs = pairs_of(module)
    if not pairs:
        return (
            "no module contains two linear layers of which the second takes as many features as the first returns; "
            "share it by fsdp"
        )
    for first, second in pairs:
        features = _linear(module, first).out_features
        if features % ranks:
            return f"the {features} features between {first} and {second} cannot be divided by {ranks} ranks"
    return ""


class TensorParallel(Transform):
    """Transform for ``thunder.jit``: split every pair of linear layers over the ranks of a process group.

    Parameters
    ----------
    device : torch.device
        Device of this rank.
    group : torch.distributed.ProcessGroup
    """

    def __init__(self, device: torch.device, group: Any) -> None:
        self.device, self.group = device, group
        self.pairs: list[Pair] = []
        self.parts: tuple[Any, ...] = ()

    def transform_module(self, model: Any) -> None:
        """Split the parameters of the pairs."""
        self.pairs = pairs_of(model._model)
        rank, count = torch.distributed.get_rank(self.group), self.group.size()
        self.parts = tuple(
            transform(rank=rank, world_size=count, process_group=self.group, target_modules=targets)
            for transform, targets in zip(
                (TransformForColumnWiseParallel, TransformForRowWiseParallel),
                zip(*self.pairs, strict=True),
                strict=True,
            )
        )
        for part in self.parts:
            # Set the device, because Thunder would use the rank's GPU even if the program is on a CPU.
            part.device = self.device
            part.transform_module(model)

    def transform_traces_pre_prologue(
        self, prologue_trace: Any, computation_trace: Any, epilogue_trace: Any, **kwargs: Any
    ) -> Any:
        """Insert the collectives into the traces.

        Raises
        ------
        ProgramError
            If an operator between the two layers of a pair needs all features.
        """
        for pair in self.pairs:
            if reason := _why_not_between(computation_trace, *pair):
                raise ProgramError(f"{pair[0]} and {pair[1]} cannot be split over ranks by parallel='tensor': {reason}")
        traces = (prologue_trace, computation_trace, epilogue_trace)
        for part in self.parts:
            traces = part.transform_traces_pre_prologue(*traces, **kwargs)
        return traces[0], _restore_origins(traces[1], computation_trace), traces[2]

    def transform_state_dict_for_submodule(self, model: Any, submodule_name: str, state_dict: Any) -> Any:
        """Return the part of a state dict that belongs to this rank."""
        for part in self.parts:
            state_dict = part.transform_state_dict_for_submodule(model, submodule_name, state_dict)
        return state_dict

    def reverse_transform_state_dict_for_submodule(self, model: Any, submodule_name: str, state_dict: Any) -> Any:
        """Gather the whole state dict from all ranks."""
        for part in reversed(self.parts):
            state_dict = part.reverse_transform_state_dict_for_submodule(model, submodule_name, state_dict)
        return state_dict


def _why_not_between(trace: TraceCtx, first: str, second: str) -> str:
    """Return why two linear layers in a trace cannot be split over ranks, or an empty text if they can."""
    weights = [f"t_{name.replace('.', '_')}_weight" for name in (first, second)]
    uses = [[b for b in trace.bound_symbols if is_statement(b) and _reads(b, weight)] for weight in weights]
    for name, found in zip((first, second), uses, strict=True):
        if len(found) != 1 or found[0].sym.name != "linear":
            return f"{name} is used {len(found)} times, but only a weight that one linear layer uses once can be split"
    split = {uses[0][0].flat_proxy_outs[0].name}
    last = trace.bound_symbols[-1]
    for bsym in trace.bound_symbols:
        read = [a.name for a in bsym.flat_proxy_args if a.name in split]
        if bsym is last or not read:
            continue
        if bsym is uses[1][0]:
            continue
        if reason := _why_not_apart(bsym, split):
            return f"{bsym.sym.name} {reason}"
        split.update(out.name for out in bsym.flat_proxy_outs)
    if any(a.name in split for a in last.flat_proxy_args):
        return f"the result of {first} is also returned"
    return "" if uses[1][0].flat_proxy_args[0].name in split else f"{second} does not take the result of {first}"


def _reads(bsym: BoundSymbol, name: str) -> bool:
    return any(arg.name == name for arg in bsym.flat_proxy_args)


def _why_not_apart(bsym: BoundSymbol, split: set[str]) -> str:
    """Return why a statement cannot run on a rank that has only some of the features, or an empty text if it can."""
    for arg in bsym.flat_proxy_args:
        if isinstance(arg, TensorProxy) and arg.name not in split and arg.ndim:
            return f"also takes {arg.name}, which is not split over ranks"
    for leaf in _leaves(bsym):
        shapes = {tuple(p.shape) for p in (*leaf.flat_proxy_args, *leaf.flat_proxy_outs) if isinstance(p, TensorProxy)}
        if len(shapes - {()}) > 1 or leaf.sym.id not in _APART:
            return "does not compute each feature separately, but a rank has only a part of the features"
    return ""


def _leaves(bsym: BoundSymbol) -> Iterator[BoundSymbol]:
    if bsym.sym.is_prim or not bsym.subsymbols:
        yield bsym
        return
    for sub in bsym.subsymbols:
        yield from _leaves(sub)


_INSERTED = {
    collectives.PrimIDs.SYNCHRONIZE_TENSOR_PARALLEL_INPUT,
    collectives.PrimIDs.SYNCHRONIZE_TENSOR_PARALLEL_OUTPUT,
}


def _restore_origins(trace: TraceCtx, original: TraceCtx) -> TraceCtx:
    """Copy the origin tags and source lines from the statements of `original` to `trace`. Return the new trace.

    Thunder has created the statements of `trace` in the same order, but without the tags of the original statements.
    """
    waiting = [b for b in original.bound_symbols if is_statement(b)]
    tagged = from_trace(trace)
    origin, bias = waiting[0], False
    for bsym in trace.bound_symbols:
        if is_statement(bsym):
            if bsym.sym.id in _INSERTED:
                bias = bsym.sym.id is collectives.PrimIDs.SYNCHRONIZE_TENSOR_PARALLEL_OUTPUT and len(origin.args) > 2
                bias = bias and origin.args[2] is not None
            elif bias and bsym.sym.name == "add":
                # This statement adds the bias of a linear layer, after the sum over ranks. Keep the layer as `origin`.
                bias = False
            else:
                origin = waiting.pop(0)
            bsym = _copy_tags(bsym, origin)
        tagged.bound_symbols.append(bsym)
    return tagged


def _copy_tags(bsym: BoundSymbol, origin: BoundSymbol) -> BoundSymbol:
    tags = {tag for tag in origin.tags if isinstance(tag, OriginTag)}
    return bsym.from_bsym(
        tags=bsym.tags | tags,
        source_filename=origin.source_filename,
        source_positions=origin.source_positions,
        subsymbols=[_copy_tags(sub, origin) for sub in bsym.subsymbols],
    )
