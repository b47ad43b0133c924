"""What Thunder gets wrong of a program that its own interpreter traced; on the way through Dynamo it is put right."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch

from workbench.compiler.calls import refuse_lists
from workbench.compiler.names import read_line
from workbench.compiler.scalars import BROADCAST
from workbench.compiler.thunder_api import BoundSymbol, TensorProxy, TraceCtx, dtypes, is_constant_for_vjp, prims
from workbench.errors import ProgramError


def refuse_lost(trace: TraceCtx) -> None:
    """Refuse a program some of whose gradients Thunder loses.

    Parameters
    ----------
    trace : TraceCtx
        As interpreted.

    Raises
    ------
    ProgramError
        With the person's own line, and what to do.
    """
    for bsym, _ in _differentiated(trace):
        try:
            refuse_lists(bsym.sym, bsym.args)
        except NotImplementedError as error:
            raise ProgramError(
                f"{_place(bsym)}Thunder cannot differentiate {bsym.sym.name}: open it with capture='auto', or write it "
                f"without a list ({error})"
            ) from None


def doubts(trace: TraceCtx) -> Iterator[str]:
    """What is likely to come out wrong, a sentence for each line of the person's; see `scalars`.

    Parameters
    ----------
    trace : TraceCtx
        As interpreted.
    """
    told = set()
    for bsym, names in _differentiated(trace):
        tensors = [arg for arg in bsym.flat_proxy_args if isinstance(arg, TensorProxy)]
        alone = [x for x in tensors if not x.ndim and x.name in names and x.device.type == "cpu"]
        if bsym.sym.name not in BROADCAST or not alone or all(not x.ndim for x in tensors):
            continue
        place = _place(bsym)
        if place not in told:
            told.add(place)
            yield (
                f"{place}{bsym.sym.name} of a tensor without dimensions: on a CPU Thunder's gradient of it is wrong. "
                "Open it with capture='auto', or keep a dimension: x.sum(0, keepdim=True), or x.sum().reshape(1)"
            )


def _differentiated(trace: TraceCtx) -> Iterator[tuple[BoundSymbol, set[str]]]:
    """Statements that a gradient goes through, with the names of the values that have one before them.

    Of what is computed Thunder's values do not say so themselves before the program is differentiated.
    """
    if not torch.is_grad_enabled():
        return
    names: set[str] = set()
    for bsym in trace.bound_symbols:
        if bsym.sym.id is prims.PrimIDs.UNPACK_TRIVIAL:
            names.update(out.name for out in bsym.flat_proxy_outs if getattr(out, "requires_grad", False))
        elif any(arg.name in names for arg in bsym.flat_proxy_args) and not is_constant_for_vjp(bsym):
            yield bsym, names
            names.update(map(_name, filter(_is_inexact, bsym.flat_proxy_outs)))
            if bsym.sym.name.endswith("_"):  # what is written in place is read by its first name
                names.update(map(_name, filter(_is_inexact, bsym.flat_proxy_args[:1])))


_name = operator.attrgetter("name")


def _is_inexact(proxy: Any) -> bool:
    return isinstance(proxy, TensorProxy) and dtypes.is_inexact_dtype(proxy.dtype)


def _place(bsym: BoundSymbol) -> str:
    file: Any = bsym.source_filename
    line = getattr(file, "user_line", 0)
    return f"{file.user_file}:{line} ({read_line(file.user_file, line)}): " if line else ""
