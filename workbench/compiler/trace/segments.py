"""Cut traces into segments: runs of consecutive statements. Successive plans share the segments that did not change.

The end of a segment depends only on the statement before it. Therefore a statement that a choice adds or removes
changes the segment around it, and no other segment. A pass stores its results with a segment, together with what it
read from outside of the segment. In a later plan, it uses a stored result if it would read the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property, partial
from itertools import chain
from operator import is_
from typing import Any

from workbench.compiler.interop.thunder_api import CollectionProxy, NumberProxy, TraceCtx, prims
from workbench.compiler.trace.bsym_memo import (
    PlanMemo,
    ids,
    made_names,
    names_in,
    read_names,
    shared_of,
    structure_of,
)

LENGTH = 32
"""Mean number of statements that make values, in a segment."""

MOST_RESULTS = 16
"""Largest number of results that a segment stores. The oldest result is dropped first."""

ENDS = 5
"""One in `ENDS` of the statements that cannot be fused ends a segment of a joint trace. A segment then has about 80
statements.
"""

_LAST = "last of its segment"
_ENDS = "ends a segment of the joint trace"
_COLLECTS = "has collections"
_ATTACHED = "_workbench_segments"
"""Attribute in which a trace stores the result of `attach`."""


class Segment:
    """Consecutive statements of a trace, and what passes found about them.

    Attributes
    ----------
    bsyms : tuple of BoundSymbol
    """

    def __init__(self, bsyms: Sequence[Any]) -> None:
        self.bsyms = tuple(bsyms)
        self._known: dict[Hashable, Any] = {}

    def get_or_make(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the stored result for `key`. For a new key, call `make` and store its result."""
        if key not in self._known:
            if len(self._known) >= MOST_RESULTS:
                del self._known[next(iter(self._known))]
            self._known[key] = make()
        return self._known[key]

    def get(self, key: Hashable) -> Any:
        """Return the stored result for a key, or None."""
        return self._known.get(key)

    @cached_property
    def read(self) -> tuple[str, ...]:
        """Names of the inputs of the statements, in order, with repetitions."""
        return tuple(chain.from_iterable(map(read_names, self.bsyms)))

    @cached_property
    def made(self) -> tuple[str, ...]:
        """Names of the outputs of the statements, in order, with repetitions."""
        return tuple(chain.from_iterable(map(made_names, self.bsyms)))

    @cached_property
    def names(self) -> frozenset[str]:
        """All names in the statements, at any depth."""
        return frozenset(chain.from_iterable(map(names_in, self.bsyms)))

    @cached_property
    def makes_numbers(self) -> bool:
        """Whether a statement outputs a number. Several statements may make the same number."""
        kinds = set(map(type, chain.from_iterable([bsym.flat_outs for bsym in self.bsyms])))
        return any(issubclass(kind, NumberProxy) for kind in kinds)

    @cached_property
    def is_plain(self) -> bool:
        """Whether no statement reads or makes a collection, at any depth. A collection's contents may change."""
        return not any(map(has_collections, self.bsyms))


def has_collections(bsym: Any) -> bool:
    """Return whether a statement, at any depth, reads or makes a collection of values."""
    if not bsym.sym.is_fusion:
        return bool(structure_of(bsym).get_or_make("collections", lambda: _collects(bsym)))
    # Do not make a `Structure` for a fusion here: the passes give fusions that differ only in names a common one.
    known = shared_of(bsym)
    found: bool | None = known.get(_COLLECTS)
    if found is None:
        found = known[_COLLECTS] = _collects(bsym)
    return found


def _collects(bsym: Any) -> bool:
    held = any(isinstance(proxy, CollectionProxy) for proxy in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs))
    return held or any(map(_collects, bsym.subsymbols))


def attach(trace: TraceCtx, segments: Sequence[Segment]) -> None:
    """Make the statements of a trace those of `segments`, and store the segments for the next pass."""
    bsyms = list(chain.from_iterable([segment.bsyms for segment in segments]))
    trace.bound_symbols = bsyms
    trace.__dict__[_ATTACHED] = segments, tuple(bsyms)


def attached(trace: TraceCtx) -> Sequence[Segment] | None:
    """Return the segments of `attach`; None if there are none, or if the trace has other statements since."""
    found: tuple[Sequence[Segment], tuple[Any, ...]] | None = trace.__dict__.get(_ATTACHED)
    if found is None or len(found[1]) != len(trace.bound_symbols):
        return None
    return found[0] if all(map(is_, found[1], trace.bound_symbols)) else None


def segments_of(trace: TraceCtx) -> Sequence[Segment]:
    """Return the segments of `attached`; one segment if there are none."""
    return attached(trace) or (Segment(trace.bound_symbols),)


def returned_by(trace: TraceCtx) -> Any:
    """Return `trace.output`, which is searched from the first statement."""
    last = trace.bound_symbols[-1]
    if last.sym.id is not prims.PrimIDs.RETURN:
        return trace.output
    return last.args[0] if len(last.args) == 1 else last.args


def keep_attached(trace: TraceCtx, copy: TraceCtx) -> None:
    """Store the segments of a trace also for a copy with the same statements."""
    if _ATTACHED in trace.__dict__:
        copy.__dict__[_ATTACHED] = trace.__dict__[_ATTACHED]


type Once = Callable[[Hashable, Any, Callable[[], Any]], Any]
"""Signature of `PlanMemo.get_or_make`."""


def segment_of(bsyms: Sequence[Any], once: Once) -> Segment:
    """Return the segment of statements. The same statements always have the same segment."""
    inside = tuple(bsyms)
    found: Segment = once(("segment", *ids(inside)), inside, partial(Segment, inside))
    return found


def changed(segment: Segment, bsyms: Sequence[Any], once: Once) -> Segment:
    """Return the segment of `bsyms`, which a pass made of `segment`; `segment` itself if it changed nothing."""
    same = len(bsyms) == len(segment.bsyms) and all(map(is_, bsyms, segment.bsyms))
    return segment if same else segment_of(bsyms, once)


def attach_again(trace: TraceCtx, done: TraceCtx, bsyms: Sequence[Any], once: Once) -> None:
    """Make `bsyms` the statements of `done`, one for each statement of `trace`, in segments of the same lengths."""
    left, begin = [], 0
    for segment in segments_of(trace):
        left.append(changed(segment, bsyms[begin : begin + len(segment.bsyms)], once))
        begin += len(segment.bsyms)
    attach(done, left)


def cut(bsyms: Sequence[Any], once: Once, ends: Sequence[int]) -> list[Segment]:
    """Return the segments of a trace. Each of `ends` is the number of statements up to the end of a segment."""
    begin, found = 0, []
    for end in (*ends, len(bsyms)):
        if end > begin:
            found.append(segment_of(bsyms[begin:end], once))
        begin = end
    return found


class SegmentTable:
    """The segments of a program's plans."""

    def __init__(self) -> None:
        self._memo = PlanMemo()

    def begin(self) -> None:
        """Begin the next plan."""
        self._memo.begin()

    def cut(self, trace: TraceCtx) -> Sequence[Segment]:
        """Return the segments of a trace. Segments that an earlier plan also has are the same objects."""
        known = attached(trace)
        if known is not None:
            return known
        bsyms = trace.bound_symbols
        return cut(bsyms, self._memo.get_or_make, [at for at, bsym in enumerate(bsyms, 1) if _is_last(bsym)])


def _is_last(bsym: Any) -> bool:
    known = shared_of(bsym)
    found: bool | None = known.get(_LAST)
    if found is None:
        found = known[_LAST] = is_chosen(bsym, LENGTH)
    return found


def ends_segment(bsym: Any, can_fuse: Callable[[Any], bool]) -> bool:
    """Return whether a statement of a joint trace ends a segment. No fusion contains such a statement."""
    known = shared_of(bsym)
    found: bool | None = known.get(_ENDS)
    if found is None:
        found = known[_ENDS] = is_chosen(bsym, ENDS) and not can_fuse(bsym)
    return found


def known_ends(bsyms: Sequence[Any]) -> list[int]:
    """Return the ends, for `cut`, that `ends_segment` found in an earlier plan; none before the first plan."""
    return [at for at, bsym in enumerate(bsyms, 1) if shared_of(bsym).get(_ENDS)]


def is_chosen(bsym: Any, share: int) -> bool:
    """Return whether a statement is one of the `share`-th part of statements that is chosen by name."""
    names = made_names(bsym)
    return bool(names) and zlib.crc32(names[0].encode()) % share == 0
