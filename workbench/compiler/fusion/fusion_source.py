"""Source code of a fusion, as its compiler receives it: nvFuser's definition, or the statements for torch.compile."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Callable, Sequence
from typing import Any

import torch

from workbench.compiler.interop.devices import nvfuser_module
from workbench.compiler.interop.thunder_api import BoundSymbol, TensorProxy, TraceCtx, utils
from workbench.compiler.trace import copy_sets
from workbench.errors import PlanError, suggest_names


@dataclasses.dataclass(frozen=True)
class FusionCode:
    """Source code of a fusion, as its compiler receives it.

    Attributes
    ----------
    name : str
        Name of the fusion in the trace.
    kind : str
        Description of the text, such as ``nvFuser's definition``.
    text : str
        The source code.
    """

    name: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}, {self.kind}\n{self.text}"


def code_of(traces: tuple[TraceCtx, ...], name: str) -> FusionCode:
    """Return the source code of one fusion. Nothing is compiled.

    Parameters
    ----------
    traces : tuple of TraceCtx
        The fused traces that run.
    name : str
        Name of the fusion.

    Raises
    ------
    PlanError
        If the traces contain no fusion with this name, or if nvFuser refuses the fusion.
    """
    fusions = {bsym.sym.name: bsym for trace in traces for bsym in trace.bound_symbols if bsym.sym.is_fusion}
    if name not in fusions:
        if not fusions:
            raise PlanError(f"there is no fusion {name!r}: nothing is fused in this plan")
        raise PlanError(f"there is no fusion {name!r} in this plan{suggest_names(name, list(fusions))}")
    fusion = fusions[name]
    if fusion.sym.executor.name == "nvfuser":
        return FusionCode(name, "nvFuser's definition", definition(fusion).strip())
    lines = [line for member in fusion.subsymbols for line in member.python(indent=0, print_depth=1)]
    return FusionCode(name, "the statements that torch.compile is given", "\n".join(lines))


def definition(fusion: BoundSymbol, policy: str | None = None) -> str:
    """Return the text of the definition that nvFuser receives for a fusion with contiguous inputs. Compile nothing.

    Parameters
    ----------
    fusion : BoundSymbol
        A fusion of a plan under nvFuser.
    policy : str, optional
        The `set` policy for every in-place copy, even for copies that are wrong under this policy. By default, the
        policies of the plan apply.

    Returns
    -------
    str
        The definition, in the form that nvFuser's `print_math` prints.

    Raises
    ------
    PlanError
        If nvFuser refuses the fusion. The message contains nvFuser's reason.
    """
    if policy is None:
        return _math(fusion, fusion._call_ctx[fusion.sym.name].get_fd)
    word = {fact.output: policy for fact in copy_sets.copy_facts(fusion)}
    with copy_sets.skip_set(copy_sets.copies_without_set(fusion, word, unchecked=True)):
        return _math(fusion, _build(fusion, fusion.subsymbols))


def _build(fusion: BoundSymbol, members: Sequence[BoundSymbol]) -> Callable[[Any], Any]:
    outputs = [out for out in utils.sequencify(fusion.output) if out is not None]
    return lambda descriptors: nvfuser_module().create_fd(list(members), descriptors, list(fusion.args), outputs)


def _math(fusion: BoundSymbol, build: Callable[[Any], Any]) -> str:
    compute_contiguity = nvfuser_module().compute_contiguity
    descriptors = tuple(
        (*compute_contiguity(tuple(a.shape), torch.empty(tuple(a.shape), device="meta").stride()), ())
        if isinstance(a, TensorProxy)
        else None
        for a in fusion.args
    )
    # Discard the C++ and Python stack traces that nvFuser prints when it refuses a definition.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return str(build(descriptors).fusion.print_math())
        except RuntimeError as error:
            lines = str(error).strip().splitlines()
            reason = next((line for line in lines if line.startswith("Expected")), lines[0])
            raise PlanError(f"nvFuser refuses {fusion.sym.name}: {reason.strip()}") from error
