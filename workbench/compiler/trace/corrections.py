"""Corrections of unmodified Thunder: the list in `docs/reference/corrections.md`, and the marks in a trace.

Code that corrects a statement during tracing marks it. `pipeline.plan_corrections` finds the other corrections in the
traces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from workbench.compiler.interop.thunder_api import BoundSymbol


@dataclasses.dataclass(frozen=True)
class Correction:
    """A difference between a plan and unmodified Thunder's.

    Attributes
    ----------
    name : str
        Name in `docs/reference/corrections.md`.
    reason : str
        Sentence on the behavior of unmodified Thunder and of the plan.
    lines : tuple of str
        Affected lines of the program, ``FILE:LINE  TEXT``; a statement's id if its line is not known.
    """

    name: str
    reason: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        more = f"; {len(self.lines) - _SHOWN} more" if len(self.lines) > _SHOWN else ""
        return f"{self.reason} ({'; '.join(self.lines[:_SHOWN])}{more})"

    @property
    def changes_draws(self) -> bool:
        """Return whether unmodified Thunder draws wrong random numbers, so that its values are not a reference."""
        return self.name in DRAWS


_SHOWN = 3

CHECKPOINTED_DRAWS, CUT_DRAWS, MERGED_DRAWS = "checkpointed draws", "draws in fusions", "equal draws"
DRAWS = frozenset((CHECKPOINTED_DRAWS, CUT_DRAWS, MERGED_DRAWS))
OPERATORS, DECOMPOSITIONS, RANDOM = "operators", "decompositions", "random operators"
STALE, ALIASES, UNREAD = "overwritten memory", "writes by another name", "writes that nothing reads"
COMPLEX_PRODUCT, COMPLEX_VIEW, COMPLEX_PAD = "complex products", "complex views", "complex slices"
ZEROS, ARGMIN, EINSUM = "zeros without dimensions", "argmin", "order of einsum"
FLEX_ATTENTION = "flex_attention"

KINDS: Mapping[str, tuple[str, str]] = {
    COMPLEX_PRODUCT: (
        "takes the gradient of a product of complex numbers as that of real numbers",
        "has the conjugates of the factors",
    ),
    COMPLEX_VIEW: (
        "views a gradient as complex numbers where its memory is not in pairs, and fails",
        "makes it contiguous first",
    ),
    COMPLEX_PAD: (
        "pads the gradient of a slice of complex numbers with a complex number, which PyTorch refuses",
        "pads with its real part",
    ),
    ZEROS: ("calls `torch.zeros` without a shape for a gradient without dimensions", "gives the empty shape"),
    ARGMIN: ("refuses what is read of `argmin` beside a gradient", "lets no gradient through, as of `argmax`"),
    STALE: (
        "computes a gradient from memory that was overwritten since",
        "leaves the write out where nobody else sees it",
    ),
    ALIASES: ("does not know of a write under another name of the same memory", "writes what it misses again"),
    UNREAD: ("moves a write that nothing reads behind it into the backward", "leaves it out"),
    OPERATORS: (
        "refuses or miscomputes some calls of operators that it knows",
        "writes these with operators that are right",
    ),
    DECOMPOSITIONS: (
        "does not know an operator, or cannot differentiate it",
        "writes it with operators that it can differentiate",
    ),
    FLEX_ATTENTION: (
        "does not know `flex_attention`, nor the `torch.vmap` by which PyTorch makes its mask",
        "writes it as the operators that it computes",
    ),
    RANDOM: (
        "does not know a random operator, or runs it again for its gradient, with other numbers",
        "draws once",
    ),
    CHECKPOINTED_DRAWS: (
        "ignores `preserve_rng_state` of `torch.utils.checkpoint`, draws other numbers in a region that is computed "
        "again in the backward, and has wrong gradients",
        "saves the draw",
    ),
    CUT_DRAWS: (
        "draws other numbers in a fusion that reads those drawn in another, and has wrong gradients",
        "saves the draw",
    ),
    MERGED_DRAWS: ("takes random draws with the same arguments for one under nvFuser", "draws each by itself"),
    EINSUM: (
        "contracts the dimensions of an `einsum` in an order that Python draws anew in each process",
        "takes them in the order of their labels",
    ),
}
"""Behavior of unmodified Thunder and of a plan, by name: the rows of `docs/reference/corrections.md`."""


def correction(name: str, lines: Iterable[str]) -> Correction:
    """Return a correction of one of `KINDS` with its affected lines, each once."""
    alone, here = KINDS[name]
    reason = f"Differs from unmodified Thunder here, because Thunder {alone}; this plan {here}."
    return Correction(name, reason.replace("`", ""), tuple(dict.fromkeys(lines)))


@dataclasses.dataclass(frozen=True)
class Corrected:
    """Tag of a statement that a correction made, or of a statement beside one that a correction removed.

    Attributes
    ----------
    name : str
        Name of the correction.
    line : str
        Line of a removed statement; empty if it is the statement's own line.
    """

    name: str
    line: str = ""


def mark(bsyms: Iterable[BoundSymbol], name: str, line: str = "") -> None:
    """Tag statements as made by a correction."""
    for bsym in bsyms:
        bsym.tags.add(Corrected(name, line))


def is_thunders_own(
    statements: list[BoundSymbol], target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """Return whether the statements that were recorded for a call are the single one that unmodified Thunder records.

    Parameters
    ----------
    statements : list of BoundSymbol
    target : callable
        The PyTorch function that was called.
    args, kwargs
        Its arguments.
    """
    if len(statements) != 1 or statements[0].sym.name != getattr(target, "__name__", ""):
        return False
    given, taken = [*args, *kwargs.values()], [*statements[0].args, *statements[0].kwargs.values()]
    # The statement may spell out arguments for which the call used the defaults.
    return all(any(one is other or _is_equal(one, other) for other in taken) for one in given)


def _is_equal(first: Any, second: Any) -> bool:
    plain = (bool, int, float, complex, str, tuple, list)
    return isinstance(first, plain) and type(first) is type(second) and repr(first) == repr(second)
