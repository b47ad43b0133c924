"""The code of a fusion: the definition that nvFuser is given, or the statements that torch.compile is given."""

from __future__ import annotations

import dataclasses

from workbench.compiler.fusion import definition
from workbench.compiler.thunder_api import TraceCtx
from workbench.errors import PlanError, nearest


@dataclasses.dataclass(frozen=True)
class FusionCode:
    """What a fusion is made of, as its compiler is given it; nothing is compiled for it.

    Attributes
    ----------
    name : str
        Of the fusion in the trace.
    kind : str
        Whose code it is.
    text : str
    """

    name: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}, {self.kind}\n{self.text}"


def code_of(traces: tuple[TraceCtx, ...], name: str) -> FusionCode:
    """The code of one fusion.

    Parameters
    ----------
    traces : tuple of TraceCtx
        Those that run, fused.
    name : str

    Raises
    ------
    PlanError
        If there is no such fusion, or nvFuser refuses it.
    """
    fusions = {bsym.sym.name: bsym for trace in traces for bsym in trace.bound_symbols if bsym.sym.is_fusion}
    if name not in fusions:
        if not fusions:
            raise PlanError(f"there is no fusion {name!r}: nothing is fused in this plan")
        raise PlanError(f"there is no fusion {name!r} in this plan{nearest(name, list(fusions))}")
    fusion = fusions[name]
    if fusion.sym.executor.name == "nvfuser":
        return FusionCode(name, "nvFuser's definition", definition(fusion).strip())
    lines = [line for member in fusion.subsymbols for line in member.python(indent=0, print_depth=1)]
    return FusionCode(name, "the statements that torch.compile is given", "\n".join(lines))
