"""The steps of a compilation: the program after each one that changed it, its description and its duration."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from workbench.compiler.interop.thunder_api import TraceCtx
from workbench.compiler.pipeline.stage_log import StageTime

_PROVENANCE = "# Constructed by"

_ABOUT = {
    "initial": (
        "The program as it was traced: the forward, each operator as the program calls it.",
        ("capture", "interpret", "origins", "prologue"),
    ),
    "gradients": (
        "Forward and backward as one trace: Thunder differentiates each statement. Saved tensors are not chosen yet.",
        ("grad",),
    ),
    "claimed by executors": (
        "Each statement has the executor that will run it; an operator that no executor takes is replaced by "
        "simpler operators.",
        ("claim",),
    ),
    "choices before fusion": (
        "Recomputations that you chose are inserted into the backward, before fusion.",
        ("edit",),
    ),
    "fused": (
        "Statements that can run as one kernel become one statement; values cross between fusions where that costs "
        "least.",
        ("partition", "remat"),
    ),
    "choices after fusion": ("Recomputations that you chose to insert after fusion: whole fusions run again.", ()),
    "split, and values freed": (
        "Forward and backward are two traces; values that the forward returns for the backward are saved. A del "
        "frees memory.",
        ("split",),
    ),
    "choices after the split": (
        "Choices that act on the split traces: offloading, positions of collectives and waits, the order of "
        "statements.",
        ("after split", "order"),
    ),
}
"""For each step, its description and the planning stages that are its duration; `fused` stands for every fusing
executor.
"""


@dataclasses.dataclass(frozen=True)
class TracePass:
    """A trace as Thunder prints it, after a step of the compilation that changed it.

    Attributes
    ----------
    name, text : str
        Name of the step, and the trace.
    about : str
        Description of the step, in a sentence or two.
    statements, fusions : int
        Number of statements without deletions, and number of fusions among these.
    seconds : float or None
        Duration of the step; None if this plan reuses the step from the previous plan, or if the step is not timed
        separately.
    """

    name: str
    text: str
    about: str = ""
    statements: int = 0
    fusions: int = 0
    seconds: float | None = dataclasses.field(default=None, compare=False)

    def __repr__(self) -> str:
        took = "" if self.seconds is None else f", {1e3 * self.seconds:.0f} ms"
        lines = f"{self.text.count(chr(10)) + 1} lines of .text"
        return f"{self.name}: {self.statements} statements, {self.fusions} fusions{took}, {lines}"


def passes_of(traces: Iterable[tuple[str, tuple[TraceCtx, ...]]], stages: Sequence[StageTime]) -> tuple[TracePass, ...]:
    """Return the program after each step that changed it.

    Parameters
    ----------
    traces : iterable of (str, tuple of TraceCtx)
        The traces after each step: one, then forward and backward.
    stages : sequence of StageTime
        Times of opening and planning, by stage.
    """
    found: list[TracePass] = []
    for name, made in traces:
        text = traces_text(*made)
        if found and _statements(text) == _statements(found[-1].text):
            continue
        about, own = _ABOUT["fused" if name.startswith("fused by ") else name]
        seconds = [stage.seconds for stage in stages if stage.name in own]
        computing = [
            bsym
            for trace in made
            for bsym in trace.bound_symbols
            if bsym.flat_proxy_outs and not _unpacks(bsym.sym.name)
        ]
        fusions = sum(bsym.sym.is_fusion for bsym in computing)
        found.append(TracePass(name, text, about, len(computing), fusions, sum(seconds) if seconds else None))
    return tuple(found)


def _unpacks(name: str) -> bool:
    return name.startswith("unpack_")


def traces_text(*traces: TraceCtx) -> str:
    """Print traces as Thunder does, one after the other."""
    # The first line names the pass that made the trace and its duration. With that line, no two plans would be equal.
    lines_of = (trace.python(print_depth=1).splitlines() for trace in traces)
    return "\n\n".join("\n".join(line for line in lines if not line.startswith(_PROVENANCE)) for lines in lines_of)


def _statements(text: str) -> list[str]:
    """Return the lines of a trace that compute, without its creation time and types."""
    lines = (line.partition("#")[0].rstrip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("import ", "from ", "@"))]
