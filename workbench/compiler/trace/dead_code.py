"""Find and remove subsymbols without effect, as Thunder's dead code elimination does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.compiler.interop.thunder_api import prims
from workbench.compiler.trace.bsym_memo import CLEAN


def is_kept(bsym: Any) -> bool:
    """Return whether a statement or one of its subsymbols has the tag `DONT_DCE`, which forbids removal."""
    if prims.OpTags.DONT_DCE in (bsym.sym.tags or ()) or (bsym.tags and prims.OpTags.DONT_DCE in bsym.tags):
        return True
    return any(map(is_kept, bsym.subsymbols))


def remove_noops(bsym: Any) -> None:
    """Remove a statement's subsymbols without effect, at all levels. The statement is changed in place."""
    inside = bsym.subsymbols
    if bsym.__dict__.get(CLEAN) is inside or (type(inside) is list and not inside):
        return
    left = []
    for sub in inside:
        within = sub.subsymbols
        # Skip the call of `does_nothing` if its result is known. If a statement has outputs, and is a primitive or has
        # subsymbols, the result is False.
        if not (sub.flat_proxy_outs and (within or sub.sym.is_prim)) and does_nothing(sub, bsym):
            continue
        if within or type(within) is not list:
            remove_noops(sub)
        left.append(sub)
    if len(left) != len(inside) or not isinstance(inside, list):
        bsym.subsymbols = inside = left
    bsym.__dict__[CLEAN] = inside


def does_nothing(sub: Any, bsym: Any) -> bool:
    """Return whether dead code elimination removes the subsymbol `sub` of the statement `bsym`."""
    if not sub.subsymbols and not sub.sym.is_prim:
        return True
    return not sub.flat_proxy_outs and not is_kept(bsym)


def is_clean(bsym: Any) -> bool:
    """Return whether dead code elimination would remove no subsymbol of a statement, at any level."""
    inside = bsym.subsymbols
    if bsym.__dict__.get(CLEAN) is inside:
        return True
    return isinstance(inside, list) and not any(does_nothing(sub, bsym) or not is_clean(sub) for sub in inside)


def clean(bsyms: Sequence[Any]) -> list[Any]:
    """Apply `remove_noops` to each statement, and return the statements as a list."""
    for bsym in bsyms:
        remove_noops(bsym)
    return list(bsyms)
