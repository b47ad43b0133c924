"""What crosses from fusion to fusion in a partitioned trace, and which of it presets save."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from workbench.compiler.thunder_api import (
    BoundSymbol,
    TraceCtx,
    prims,
    utils,
)

_NEVER_RECOMPUTED = {prims.OpTags.REDUCTION_OP, prims.OpTags.RANDOM_OP, prims.OpTags.MATMUL_OP}


@dataclasses.dataclass(frozen=True)
class Crossing:
    """A variable that one fusion makes and another reads, before any rematerialization.

    Attributes
    ----------
    name : str
    producer : str
        Name of the fusion that makes it.
    consumers : tuple of str
        Names of the fusions that read it.
    why_not : str
        Reason why it cannot be recomputed, starting with ``external`` or ``tagged``; empty where it can.
    depends_on : tuple of str
        Other crossing variables that its producer needs to make it.
    """

    name: str
    producer: str
    consumers: tuple[str, ...]
    why_not: str
    depends_on: tuple[str, ...]


def tagged(bsym: BoundSymbol) -> bool:
    """Whether a statement is a reduction, a random op or a matmul, or has one inside: it is not computed again."""
    if not (_NEVER_RECOMPUTED.isdisjoint(bsym.sym.tags or ()) and _NEVER_RECOMPUTED.isdisjoint(bsym.tags)):
        return True
    return any(map(tagged, bsym.subsymbols))


def crossings(trace: TraceCtx) -> list[Crossing]:
    """Variables that cross from fusion to fusion in a partitioned trace, in program order."""
    consumers = utils.consumers(trace)
    found: dict[str, Crossing] = {}
    for fusion in trace.bound_symbols:
        if not fusion.sym.is_fusion:
            continue
        makers = {out.name: sub for sub in fusion.subsymbols for out in sub.flat_proxy_outs}
        for value in fusion.flat_proxy_outs:
            users = [user for user in consumers.get(value, ()) if user.sym.id is not prims.PrimIDs.DEL]
            fusions = [user.sym.name for user in users if user.sym.is_fusion]
            if not fusions:
                continue
            others = sorted({user.sym.name for user in users if not user.sym.is_fusion})
            why_not = ""
            if others:
                where = "the program's return" if "return" in " ".join(others) else others[0]
                why_not = f"external: {where}, which is no fusion, reads it too, so it is in memory anyway"
            elif value.name not in makers:
                why_not = "argument: its fusion only passes it on"
            elif tagged(makers[value.name]):
                why_not = (
                    f"tagged: {makers[value.name].sym.name} is a reduction, random or matmul op, "
                    "too expensive to recompute, or not safe to"
                )
            found[value.name] = Crossing(
                name=value.name,
                producer=fusion.sym.name,
                consumers=tuple(dict.fromkeys(fusions)),
                why_not=why_not,
                depends_on=_needed(makers, value.name, found),
            )
    return list(found.values())


def _needed(makers: Mapping[str, BoundSymbol], name: str, known: Mapping[str, Crossing]) -> tuple[str, ...]:
    needed, queue, seen = [], [name], {name}
    while queue:
        maker = makers.get(queue.pop())
        if maker is None:
            continue
        for arg in maker.flat_proxy_args:
            if arg.name not in seen:
                seen.add(arg.name)
                queue.append(arg.name)
                if arg.name in known:
                    needed.append(arg.name)
    return tuple(needed)


def cut_every(k: int, candidates: Sequence[Crossing]) -> dict[str, str]:
    """Pins that save a variable wherever k recomputed ones would hang on each other.

    Parameters
    ----------
    k : int
        Longest chain of recomputed variables, itself saved at the end; at least 1.
    candidates : sequence of Crossing
        From `crossings`.
    """
    depth: dict[str, int] = {}
    pins: dict[str, str] = {}
    for crossing in candidates:
        if crossing.why_not:
            continue
        depth[crossing.name] = 1 + max((depth.get(name, 0) for name in crossing.depends_on), default=0)
        if depth[crossing.name] >= k:
            depth[crossing.name] = 0
            pins[crossing.name] = "save"
    return pins
