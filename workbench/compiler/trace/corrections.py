"""Corrections of unmodified Thunder: the list in `docs/reference/corrections.md`, and the tags of corrected statements.

Code that corrects a statement during tracing also tags the statement. `pipeline.plan_corrections` finds all other
corrections in the traces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from workbench.compiler.interop.thunder_api import BoundSymbol


@dataclasses.dataclass(frozen=True)
class Correction:
    """A difference between a plan and unmodified Thunder.

    Attributes
    ----------
    name : str
        Name in `docs/reference/corrections.md`.
    reason : str
        Sentence that says what unmodified Thunder does and what the plan does.
    lines : tuple of str
        Affected lines of the program, ``FILE:LINE  TEXT``. A statement without a known line is listed by its id.
    """

    name: str
    reason: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        more = f"; {len(self.lines) - _SHOWN} more" if len(self.lines) > _SHOWN else ""
        return f"{self.reason} ({'; '.join(self.lines[:_SHOWN])}{more})"

    @property
    def changes_draws(self) -> bool:
        """Return whether unmodified Thunder draws wrong random numbers, so that its results cannot be a reference."""
        return self.name in DRAWS


_SHOWN = 3

CHECKPOINTED_DRAWS, CUT_DRAWS, MERGED_DRAWS = "checkpointed draws", "draws in fusions", "equal draws"
DRAWS = frozenset((CHECKPOINTED_DRAWS, CUT_DRAWS, MERGED_DRAWS))
OPERATORS, DECOMPOSITIONS, RANDOM = "operators", "decompositions", "random operators"
STALE, ALIASES, UNREAD = "overwritten memory", "writes by another name", "writes that nothing reads"
COMPLEX_PRODUCT, COMPLEX_VIEW, COMPLEX_PAD = "complex products", "complex views", "complex slices"
ZEROS, ARGMIN, EINSUM = "zeros without dimensions", "argmin", "order of einsum"
FLEX_ATTENTION = "flex_attention"
PARTS, OWN_MEMORY = "parts of one memory", "results in memory of their own"

KINDS: Mapping[str, tuple[str, str]] = {
    COMPLEX_PRODUCT: (
        "uses the gradient rule of real numbers for a product of complex numbers",
        "uses the conjugates of the factors",
    ),
    COMPLEX_VIEW: (
        "views a gradient as complex numbers although its memory is not in pairs, and fails",
        "makes the gradient contiguous first",
    ),
    COMPLEX_PAD: (
        "pads the gradient of a slice of complex numbers with a complex number, which PyTorch refuses",
        "pads with the real part of that number",
    ),
    ZEROS: ("calls `torch.zeros` without a shape for a gradient without dimensions", "passes the empty shape"),
    ARGMIN: (
        "refuses to differentiate a program that reads the result of `argmin`",
        "gives `argmin` no gradient, as Thunder does for `argmax`",
    ),
    STALE: (
        "computes a gradient from memory that was overwritten in the meantime",
        "omits the write if nothing else reads that memory",
    ),
    ALIASES: ("misses a write through an alias of the same memory", "repeats the missed write"),
    OWN_MEMORY: (
        "returns a view of older memory where PyTorch returns new memory, so that a later write in place fails or "
        "changes another value",
        "copies the result",
    ),
    PARTS: (
        "treats two inputs of one memory as the same tensor if they have equally many elements and the program writes "
        "in place",
        "reads each input",
    ),
    UNREAD: ("moves a write into the backward if nothing reads the memory afterwards", "omits the write"),
    OPERATORS: (
        "refuses or miscomputes some calls of operators that it supports",
        "replaces these calls by operators with the right results",
    ),
    DECOMPOSITIONS: (
        "does not know an operator, cannot differentiate it, or cannot fuse it",
        "replaces it by operators that Thunder can differentiate and fuse",
    ),
    FLEX_ATTENTION: (
        "does not know `flex_attention`, nor the `torch.vmap` with which PyTorch computes its mask",
        "replaces it by plain operators with the same result",
    ),
    RANDOM: (
        "does not know a random operator, or draws other numbers for its gradient",
        "draws once",
    ),
    CHECKPOINTED_DRAWS: (
        "ignores `preserve_rng_state` of `torch.utils.checkpoint` and draws new numbers when it recomputes a region in "
        "the backward, so gradients are wrong",
        "saves the drawn numbers",
    ),
    CUT_DRAWS: (
        "draws new numbers in a fusion that should read the numbers of another fusion, so gradients are wrong",
        "saves the drawn numbers",
    ),
    MERGED_DRAWS: (
        "merges random draws with the same arguments, if nvFuser is the executor",
        "draws each of them separately",
    ),
    EINSUM: (
        "contracts the dimensions of an `einsum` in an order that changes with each process",
        "contracts them in the order of their labels",
    ),
}
"""The rows of `docs/reference/corrections.md`: for each correction, what unmodified Thunder does and what a plan does.
"""


def correction(name: str, lines: Iterable[str]) -> Correction:
    """Return the correction `name` of `KINDS` with its affected lines, without repetitions."""
    alone, here = KINDS[name]
    reason = f"The plan differs from unmodified Thunder here: Thunder {alone}; the plan {here}."
    return Correction(name, reason.replace("`", ""), tuple(dict.fromkeys(lines)))


@dataclasses.dataclass(frozen=True)
class Corrected:
    """Tag of a statement that a correction made. If a correction removed a statement, a neighboring statement has it.

    Attributes
    ----------
    name : str
        Name of the correction.
    line : str
        Source line of the removed statement; empty if the correction made the tagged statement.
    """

    name: str
    line: str = ""


def mark(bsyms: Iterable[BoundSymbol], name: str, line: str = "") -> None:
    """Add a `Corrected` tag to each statement."""
    for bsym in bsyms:
        bsym.tags.add(Corrected(name, line))


def is_thunders_own(
    statements: list[BoundSymbol], target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """Return whether a call recorded exactly one statement, and unmodified Thunder would record the same statement.

    Parameters
    ----------
    statements : list of BoundSymbol
        The recorded statements.
    target : callable
        The PyTorch function that was called.
    args, kwargs
        Arguments of the call.
    """
    if len(statements) != 1 or statements[0].sym.name != getattr(target, "__name__", ""):
        return False
    given, taken = [*args, *kwargs.values()], [*statements[0].args, *statements[0].kwargs.values()]
    # The statement may also have arguments that the call left at their defaults.
    return all(any(one is other or _is_equal(one, other) for other in taken) for one in given)


def _is_equal(first: Any, second: Any) -> bool:
    plain = (bool, int, float, complex, str, tuple, list)
    return isinstance(first, plain) and type(first) is type(second) and repr(first) == repr(second)
