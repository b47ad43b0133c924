"""Find the variables that cross between fusions, and pin every k-th variable of a chain, so that it is saved."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    TraceCtx,
    prims,
)
from workbench.compiler.lowering.call_normalization import draws_inside
from workbench.compiler.trace.bsym_memo import CROSSING, made_names, read_names
from workbench.compiler.trace.segments import Segment, segments_of

_NEVER_RECOMPUTED = {prims.OpTags.REDUCTION_OP, prims.OpTags.RANDOM_OP, prims.OpTags.MATMUL_OP}


@dataclasses.dataclass(frozen=True)
class Crossing:
    """A variable that one fusion computes and other fusions read, in a trace in which nothing is recomputed yet.

    Attributes
    ----------
    name : str
    producer : str
        Name of the fusion that computes the variable.
    consumers : tuple of str
        Names of the fusions that read the variable.
    why_not : str
        Reason why the variable cannot be recomputed; empty if it can. The text starts with ``external``, ``argument``
        or ``tagged``.
    depends_on : tuple of str
        Names of the other crossing variables from which the producer computes this variable.
    """

    name: str
    producer: str
    consumers: tuple[str, ...]
    why_not: str
    depends_on: tuple[str, ...]


def is_tagged(bsym: BoundSymbol) -> bool:
    """Return whether a statement is or contains a reduction, random draw or matmul. Fusions do not recompute these."""
    return is_tagged_by_thunder(bsym) or draws_inside(bsym)


def is_tagged_by_thunder(bsym: BoundSymbol) -> bool:
    """Return whether Thunder's tags forbid recomputing a statement. Thunder does not tag `randn` and `randint`."""
    if not (_NEVER_RECOMPUTED.isdisjoint(bsym.sym.tags or ()) and _NEVER_RECOMPUTED.isdisjoint(bsym.tags)):
        return True
    return any(map(is_tagged_by_thunder, bsym.subsymbols))


def crossings(trace: TraceCtx) -> list[Crossing]:
    """Return the variables that cross between fusions in a partitioned trace, in program order."""
    segments, users = segments_of(trace), defaultdict[str, list[tuple[str, bool]]](list)
    for segment in segments:
        for name, user in segment.get_or_make("users", partial(_users, segment)):
            users[name].append(user)
    found: dict[str, Crossing] = {}
    for segment in segments:
        made = segment.get_or_make("made by fusions", partial(_made_by_fusions, segment))
        read_by = tuple([tuple(users.get(name, ())) for name in made])
        known = frozenset(found.keys() & segment.names)
        make = partial(_segment_crossings, segment, users, known)
        found.update(segment.get_or_make(("crossings", read_by, known), make))
    return list(found.values())


def _users(segment: Segment) -> tuple[tuple[str, tuple[str, bool]], ...]:
    """Return each name that a statement reads, with the statement's name and whether the statement is a fusion."""
    ignored = prims.PrimIDs.DEL, prims.PrimIDs.COMMENT, prims.PrimIDs.UNPACK_TRIVIAL
    users = [bsym for bsym in segment.bsyms if bsym.sym.id not in ignored]
    return tuple([(name, (user.sym.name, user.sym.is_fusion)) for user in users for name in read_names(user)])


def _made_by_fusions(segment: Segment) -> tuple[str, ...]:
    return tuple([name for bsym in segment.bsyms if bsym.sym.is_fusion for name in made_names(bsym)])


def _segment_crossings(
    segment: Segment, users: Mapping[str, Sequence[tuple[str, bool]]], known: Collection[str]
) -> dict[str, Crossing]:
    """Return the crossing values that a segment makes. `known` are its crossing values of earlier segments."""
    found: dict[str, Crossing] = {}
    for fusion in segment.bsyms:
        if not fusion.sym.is_fusion:
            continue
        inside = _fusion_members(fusion)
        for name in made_names(fusion):
            fusions = [user for user, is_fusion in users.get(name, ()) if is_fusion]
            if not fusions:
                continue
            others = sorted({user for user, is_fusion in users[name] if not is_fusion})
            why_not = ""
            if others:
                where = "the program's return" if "return" in " ".join(others) else others[0]
                why_not = f"external: {where}, which is not a fusion, also reads it, so it is in memory anyway"
            else:
                why_not = inside.why_not(name)
            found[name] = Crossing(
                name=name,
                producer=fusion.sym.name,
                consumers=tuple(dict.fromkeys(fusions)),
                why_not=why_not,
                depends_on=tuple([each for each in inside.dependencies(name) if each in known or each in found]),
            )
    return found


class _FusionMembers:
    """The statements inside a fusion, indexed by the names that they make."""

    def __init__(self, bsyms: Sequence[BoundSymbol]) -> None:
        self._makers = {name: bsym for bsym in bsyms for name in made_names(bsym)}
        self._needed: dict[str, tuple[str, ...]] = {}

    def why_not(self, name: str) -> str:
        """Return the reason why an output of the fusion cannot be recomputed, or an empty text if it can."""
        if name not in self._makers:
            return "argument: its fusion only passes it on"
        maker = self._makers[name]
        return f"tagged: {maker.sym.name} {_TAGGED}" if is_tagged(maker) else ""

    def dependencies(self, name: str) -> tuple[str, ...]:
        """Return the names of the fusion's values and inputs on which a value depends."""
        if name not in self._needed:
            queue, seen = [name], {name: None}
            while queue:
                maker = self._makers.get(queue.pop())
                for arg in () if maker is None else read_names(maker):
                    if arg not in seen:
                        seen[arg] = None
                        queue.append(arg)
            del seen[name]
            self._needed[name] = tuple(seen)
        return self._needed[name]


_TAGGED = "is a reduction, random or matmul op, too expensive or unsafe to recompute"


def _fusion_members(fusion: BoundSymbol) -> _FusionMembers:
    bsyms, found = fusion.__dict__.get(CROSSING, (None, None))
    if found is None or bsyms is not fusion.subsymbols:
        found = _FusionMembers(fusion.subsymbols)
        fusion.__dict__[CROSSING] = fusion.subsymbols, found
    return found


def cut_every(k: int, candidates: Sequence[Crossing]) -> dict[str, str]:
    """Return pins that save the last variable of each chain of `k` variables.

    In a chain, each variable depends on the variable before it. Variables that cannot be recomputed do not count.

    Parameters
    ----------
    k : int
        Length of a chain, at least 1.
    candidates : sequence of Crossing
        Result of `crossings`.

    Returns
    -------
    dict of str to str
        Pins in the form of `RematOptions.pins`. Keys are names of variables, and all values are ``save``.
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
