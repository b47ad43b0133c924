"""Describe each pass of a compilation that changed the program: its resulting trace, purpose and duration."""

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
        "Choices that act on the joint trace before fusion: recomputation in the backward, in-place copies and fences, "
        "positions of collectives.",
        ("edit",),
    ),
    "fused": (
        "Statements that can run as one kernel become one statement. A minimum cut decides which values one fusion "
        "passes to another.",
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
"""For each pass, its description and the names of the planning stages that its duration includes. The entry `fused` is
used for each fusion executor.
"""


@dataclasses.dataclass(frozen=True)
class TracePass:
    """A pass of the compilation that changed the program, with the resulting trace.

    Attributes
    ----------
    name, text : str
        Name of the pass, and the resulting trace as Thunder prints it.
    about : str
        Description of the pass, in one or two sentences.
    statements, fusions : int
        Number of statements that compute values, and number of fusions among them.
    seconds : float or None
        Duration of the pass; None if it was not measured, or if this plan reuses the result of an earlier plan.
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
    """Return a `TracePass` for each pass that changed the program.

    Parameters
    ----------
    traces : iterable of (str, tuple of TraceCtx)
        The name of each pass, and the traces after the pass: one trace, or forward and backward.
    stages : sequence of StageTime
        Times of the stages of opening and planning.
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
    """Return the text of traces as Thunder prints them, one after the other."""
    # Omit the line that names the last pass and its duration, so that equal plans have equal texts.
    lines_of = (trace.python(print_depth=1).splitlines() for trace in traces)
    return "\n\n".join("\n".join(line for line in lines if not line.startswith(_PROVENANCE)) for lines in lines_of)


def _statements(text: str) -> list[str]:
    """Return the lines of a trace without comments, blank lines, imports and decorators."""
    lines = (line.partition("#")[0].rstrip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("import ", "from ", "@"))]
