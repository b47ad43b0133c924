"""Memoized versions of Thunder's nvFuser passes over a partitioned trace.

Thunder processes every statement of every fusion for each plan. If a fusion has the same statements, arguments and
outputs as in an earlier plan, these versions reuse the result of the earlier plan; see `Regions`. The results equal
those of Thunder's passes, with two exceptions: equal random draws are not merged, and clones that need their own memory
are not fused.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, count
from operator import gt
from types import SimpleNamespace
from typing import Any

from workbench.compiler.fastpath.passes import has_none_of
from workbench.compiler.fusion.nvfuser_clone_hazards import find_hazardous_outputs, has_clone
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    DTensorProxy,
    Proxy,
    Region,
    TraceCtx,
    TraceProvenance,
    dead_code,
    dtypes,
    from_trace,
    fuse_bound_symbols,
    get_compile_option,
    prims,
    replace_uniform,
    tree_map,
    utils,
    variableify,
)
from workbench.compiler.lowering.call_normalization import draws_inside
from workbench.compiler.trace.bsym_memo import (
    SHARED,
    STRUCTURE,
    PlanMemo,
    Structure,
    identity,
    ids,
    made_names,
    names_in,
    read_names,
    structure_of,
)
from workbench.compiler.trace.dead_code import clean, remove_dead
from workbench.compiler.trace.proxy_traits import TOLD_APART_BY
from workbench.compiler.trace.segments import (
    Segment,
    attach,
    attached,
    changed,
    cut,
    ends_segment,
    keep_attached,
    segments_of,
)


def own_names(trace: TraceCtx) -> TraceCtx:
    """Return a copy of a trace. A pass over the copy does not change the names and the statement list of `trace`."""
    own = from_trace(trace)
    own.names = set(trace.names)
    own.bound_symbols = list(trace.bound_symbols)
    keep_attached(trace, own)
    return own


class Regions:
    """The passes over the fusions of one plan. A region is the group of statements from which a fusion is made.

    Parameters
    ----------
    memo : PlanMemo, optional
        Results of earlier plans of the program. None when a config is replayed.
    """

    def __init__(self, memo: PlanMemo | None) -> None:
        self._kept = memo

    def get_or_make(self, key: Hashable, alive: Any, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, or the result of an earlier plan if the memo contains one for `key`."""
        return make() if self._kept is None else self._kept.get_or_make(key, alive, make)

    def run_or_reuse(
        self, key: tuple[Hashable, ...], trace: TraceCtx, make: Callable[[], tuple[TraceCtx, Any]]
    ) -> tuple[TraceCtx, Any]:
        """Run a pass, or return its result from an earlier plan for a trace with the same statements.

        Parameters
        ----------
        key : tuple
            Name of the pass and its options. The result depends on this key and on the trace.
        trace : TraceCtx
        make : callable
            Runs the pass. Returns the new trace, and a further result such as a report, or None.
        """
        if self._kept is None:
            return make()

        def run() -> tuple[TraceCtx, Any]:
            done, told = make()
            return own_names(done), told

        statements = tuple(trace.bound_symbols)
        done, told = self._kept.get_or_make((*key, ids(statements), len(trace.names)), statements, run)
        return own_names(done), told

    def cut(self, trace: TraceCtx, ends: Callable[[BoundSymbol], bool]) -> Sequence[Segment]:
        """Return the segments of a trace; one segment without a memo. `ends` tells which statements end a segment."""
        bsyms = trace.bound_symbols
        if self._kept is None:
            return [Segment(bsyms)]
        known = attached(trace)
        if known is not None and all(ends(segment.bsyms[-1]) for segment in known[:-1]):
            return known
        return cut(bsyms, self._kept.get_or_make, [at for at, bsym in enumerate(bsyms, 1) if ends(bsym)])

    def changed(self, segment: Segment, bsyms: Sequence[BoundSymbol]) -> Segment:
        """Return the segment of the statements that a pass made of `segment`."""
        return changed(segment, bsyms, self.get_or_make)

    def without_dead(self, trace: TraceCtx) -> TraceCtx:
        """Return the trace without dead code."""
        return remove_dead(trace, self._kept)

    def number(self, bsyms: Sequence[BoundSymbol], default: int) -> int:
        """Return the number of a region: `default` without a memo, else a number that no other region has.

        Thunder counts the fusions of a trace, so a new fusion changes the names of all later fusions. The number of a
        region stays the same, so the passes over these later fusions find the results of earlier plans.
        """
        if self._kept is None:
            return default
        found: int = self._kept.get_or_make(("number", ids(bsyms)), tuple(bsyms), self._kept.numbers.__next__)
        return found

    def structure(self, inputs: Sequence[Any], outputs: Sequence[Any], bsyms: Sequence[BoundSymbol]) -> Structure:
        """Return the structure of a region's fusion. Regions that differ only in names share one structure.

        Parameters
        ----------
        inputs, outputs : sequence of Proxy
            Inputs and outputs of the region.
        bsyms : sequence of BoundSymbol
            Statements of the region.
        """
        if self._kept is None:
            return Structure()
        numbers: defaultdict[str, int] = defaultdict(count().__next__)
        number = numbers.__getitem__
        inside = [structure_of(bsym) for bsym in bsyms]
        of_operation = prims.OpTags
        key = (
            "alike",
            *[
                (
                    identity(structure),
                    *map(number, names_in(bsym)),
                    *[tag for tag in bsym.tags if type(tag) is of_operation],
                )
                for structure, bsym in zip(inside, bsyms, strict=True)
            ],
            tuple([numbers.get(proxy.name, -1) for proxy in inputs]),
            tuple([numbers.get(proxy.name, -1) for proxy in outputs]),
        )
        found: Structure = self._kept.get_or_make(key, inside, Structure)
        return found

    def map_fusions(
        self,
        trace: TraceCtx,
        done: TraceCtx,
        key: Hashable,
        change: Callable[[BoundSymbol, int], BoundSymbol],
        numbers: Mapping[int, int] | None = None,
    ) -> None:
        """Give `done` the statements of `trace`, with each fusion replaced by the result of `change`.

        `change` also gets the fusion's number in the new trace. `numbers` maps the number in a fusion's name to this
        number; by default, numbers stay the same. `key` names the change and all else on which it depends.
        """
        left = []
        for segment in segments_of(trace):
            known = segment.get_or_make("fusion numbers", partial(_fusion_numbers, segment))
            new = known if numbers is None else tuple([numbers[number] for number in known])

            def run(segment: Segment = segment, new: Sequence[int] = new) -> Segment:
                number = iter(new)
                bsyms = [change(bsym, next(number)) if bsym.sym.is_fusion else bsym for bsym in segment.bsyms]
                return self.changed(segment, bsyms)

            made = self.get_or_make((key, identity(segment), new), segment, run) if known else segment
            left.append(made)
        attach(done, left)

    def remove_repeats(self, trace: TraceCtx) -> TraceCtx:
        """Remove common subexpressions inside and outside of fusions, as ``nvFuserExecutor.cse`` does."""
        redundant = _Replacements(self.get_or_make)
        outside = _Outside(redundant)
        left = [self._remove_segment_repeats(segment, redundant, outside) for segment in segments_of(trace)]
        *before, end = left[-1].bsyms

        def return_again() -> BoundSymbol:
            returned = _map_proxies(end.args, redundant) if redundant.concerns(end) else end.args
            again: BoundSymbol = prims.python_return.bind(*returned, output=None)
            return again

        key, alive = redundant.key_of(read_names(end))
        bsym = self.get_or_make(("returned", identity(end), key), (end, alive), return_again)
        left[-1] = self.changed(left[-1], (*before, bsym))
        done = from_trace(trace)
        attach(done, left)
        done.set_provenance(TraceProvenance("Nvfuser Common Subexpression Elimination"))
        return done

    def _remove_segment_repeats(self, segment: Segment, redundant: _Replacements, outside: _Outside) -> Segment:
        """Return the segment without common subexpressions.

        The result depends on the replacements of the segment's values, and on what `outside` knows about its
        statements. It is stored with all that was looked up in `outside`.
        """
        key, alive = redundant.key_of(segment.names)
        stored: list[tuple[_Lookups, Segment, _Log]] = (
            self.get_or_make(("repeats in segment", identity(segment), key), (segment, alive), list)
            if segment.is_plain
            else []
        )
        for lookups, left, log in stored:
            if outside.has_same(lookups):
                redundant.enter(log)
                outside.enter(lookups)
                return left
        redundant.log, outside.lookups = [], {}
        kept = []
        for bsym in segment.bsyms:
            stays = self._remove_fusion_repeats(bsym, redundant) if bsym.sym.is_fusion else outside.remainder(bsym)
            if stays is not None:
                kept.append(stays)
        left = self.changed(segment, kept)
        # The newest results come first. One is dropped, so that their number stays small.
        stored[:] = [(outside.after(), left, tuple(redundant.log)), *stored[:3]]
        return left

    def remove_casts(self, trace: TraceCtx) -> TraceCtx:
        """Remove redundant casts, as nvFuser's ``remove_redundant_casts`` does."""
        done = from_trace(trace)
        replaced = _Replacements(self.get_or_make)
        originals: dict[str, Any] = {}
        left = []
        for segment in segments_of(trace):
            before = {name: originals[name] for name in originals.keys() & segment.names}
            key, alive = replaced.key_of(segment.names.union([value.name for value in before.values()]))
            known = frozenset([(name, identity(value)) for name, value in before.items()])

            def remove(segment: Segment = segment) -> tuple[Segment, _Log, dict[str, Any]]:
                return self._remove_segment_casts(segment, replaced, originals)

            made, log, after = (
                self.get_or_make(("casts in segment", identity(segment), key, known), (segment, alive, before), remove)
                if segment.is_plain
                else remove()
            )
            replaced.enter(log)
            originals.update(after)
            left.append(made)
        attach(done, left)
        done.set_provenance(TraceProvenance("Remove redundant casts"))
        return done

    def _remove_segment_casts(
        self, segment: Segment, replaced: _Replacements, originals: dict[str, Any]
    ) -> tuple[Segment, _Log, dict[str, Any]]:
        """Return the segment without redundant casts, the new replacements, and the originals of its values."""
        replaced.log = []
        bsyms: list[BoundSymbol] = []
        for bsym in segment.bsyms:
            if not bsym.sym.is_fusion:
                _append_unless_cast(bsym, bsyms, replaced, originals)
                continue
            here = replaced.input_replacements(bsym)
            made, more = self._run_on_fusion(bsym, "casts", here, _remove_fusion_casts)
            replaced.add_all(more)
            bsyms.append(made)
        after = {name: originals[name] for name in segment.made if name in originals}
        return self.changed(segment, bsyms), tuple(replaced.log), after

    def _remove_fusion_repeats(self, fusion: BoundSymbol, redundant: _Replacements) -> BoundSymbol:
        here = redundant.select(fusion)
        left, more = self._run_on_fusion(fusion, "cse", here, _remove_repeats)
        # Outside of this fusion, a replacement is valid only if this fusion outputs the replacement. If not, the name
        # of the replacement may denote a value of another fusion.
        given = {out.name for out in left.output}
        redundant.add_all({variable: proxy for variable, proxy in more.items() if proxy.name in given})
        return left

    def _run_on_fusion(
        self,
        fusion: BoundSymbol,
        name: str,
        replacements: dict[Any, Any],
        make: Callable[[BoundSymbol, Mapping[Any, Any], dict[int, int | None]], tuple[BoundSymbol, dict[Any, Any]]],
    ) -> tuple[BoundSymbol, dict[Any, Any]]:
        """Run a pass on a fusion. Return the new fusion, and the replacements of values that it no longer computes.

        Consider several fusions that differ only in names, with replacements that differ only in names. The pass
        changes all of these fusions or none, and the new fusions also differ only in names. Therefore the results are
        cached with the common structure.
        """
        if self._kept is None:
            return make(fusion, replacements, {})
        alike: Structure | None = fusion.__dict__.get(STRUCTURE)
        if alike is None:
            alike = fusion.__dict__[STRUCTURE] = self.structure(fusion.args, fusion.output, fusion.subsymbols)
        kind = (name, _number_replacements(fusion, replacements))
        if alike.get((*kind, "stays")):
            return fusion, {}

        def run() -> tuple[BoundSymbol, dict[Any, Any]]:
            left, more = make(fusion, replacements, alike.get_or_make((*kind, "repeats"), dict))
            first = alike.get_or_make(kind, lambda: left)
            for mine, its in zip(left.subsymbols, first.subsymbols, strict=True):
                mine.__dict__[STRUCTURE] = structure_of(its)
            if left is not fusion:
                own = (*kind, "left")
                whole = alike.get_or_make(own, lambda: self.structure(first.args, first.output, first.subsymbols))
                left.__dict__[STRUCTURE] = whole
                left.__dict__[_LEFT] = left.args, left.output, left.subsymbols, whole
            stays = not more and _contents_ids(fusion) == _contents_ids(left)
            return (fusion if alike.get_or_make((*kind, "stays"), lambda: stays) else left), more

        key = (name, *_fusion_key(fusion), tuple(replacements), ids(replacements.values()))
        found: tuple[BoundSymbol, dict[Any, Any]] = self.get_or_make(key, (fusion, replacements), run)
        return found


@dataclasses.dataclass(frozen=True)
class Parts:
    """The inputs and statements of a region that are also in its fusion.

    Attributes
    ----------
    inputs : tuple of int
        Indices of these inputs among the region's inputs.
    members : tuple of (tuple of int)
        For each statement of the fusion, its path in the region: the index of a statement of the region, then the
        indices of subsymbols.
    """

    inputs: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]

    @classmethod
    def from_fusion(
        cls, fusion: BoundSymbol, inputs: Sequence[Any], outputs: Sequence[Any], bsyms: Sequence[BoundSymbol]
    ) -> Parts | None:
        """Return the inputs and statements of a region that are also in its fusion.

        Return None if the fusion's outputs differ from `outputs`, or if the fusion has a statement that the region
        lacks.
        """
        paths: dict[int, tuple[int, ...]] = {}

        def enter(inside: Sequence[BoundSymbol], path: tuple[int, ...]) -> None:
            for at, bsym in enumerate(inside):
                paths.setdefault(identity(bsym), (*path, at))
                enter(bsym.subsymbols, (*path, at))

        enter(bsyms, ())
        names = [proxy.name for proxy in inputs]
        if ids(fusion.output) != ids(outputs) or not all(identity(member) in paths for member in fusion.subsymbols):
            return None
        left = tuple([names.index(proxy.name) for proxy in fusion.args])
        return cls(left, tuple([paths[identity(member)] for member in fusion.subsymbols]))

    def members_in(self, bsyms: Sequence[BoundSymbol]) -> list[BoundSymbol]:
        """Return the statements at these paths in a region with the same structure."""
        found = []
        for first, *more in self.members:
            member = bsyms[first]
            for at in more:
                member = member.subsymbols[at]
            found.append(member)
        return found


class MemoizedPasses:
    """Memoized methods for nvFuser's executor. A subclass inherits from this class first, then from the executor."""

    control: Any
    """The `ExecutorState` of the current plan. Its `regions` contain the memo."""
    all_tagged: Callable[[BoundSymbol, Any], bool]
    """Thunder's function of the same name. It can be imported only if nvFuser is installed."""
    _apart: frozenset[str] = frozenset()

    def can_fuse(self, bsym: BoundSymbol) -> bool:
        """Return whether nvFuser can fuse a statement. The answer is cached with the statement's structure."""
        stock: Any = super()
        alike = structure_of(bsym)
        return bool(self._get_or_make(("can fuse", identity(alike)), alike, lambda: stock.can_fuse(bsym)))

    ready = False
    """Whether the statements to fuse are already flattened and free of dead code."""

    def flatten(self, bsym: BoundSymbol) -> list[BoundSymbol]:
        """Return the statements into which nvFuser decomposes a statement."""
        if self.ready:
            return [bsym]
        stock: Any = super()
        return list(self._get_or_make(("flat", identity(bsym)), bsym, lambda: stock.flatten(bsym)))

    def cse(self, trace: TraceCtx) -> TraceCtx:
        """Return the trace without common subexpressions."""
        return self.control.regions.remove_repeats(trace)

    def partition(self, trace: TraceCtx) -> tuple[TraceCtx, dict[int, int]]:
        """Partition a trace into fusions as Thunder does, without rematerialization. Fusions are not callable yet.

        The name of a fusion ends in the number of its region; see `Regions.number`. Also return a map from these
        numbers to Thunder's numbers, which count the fusions of the trace.
        """
        executor: Any = self
        regions = self.control.regions
        segments = regions.cut(trace, self._ends_segment)
        if any(segment.get_or_make("uniform", partial(_has_uniform, segment)) for segment in segments):
            trace = replace_uniform(trace)
            segments = regions.cut(trace, self._ends_segment)
        cloning = any(segment.get_or_make("clones", partial(_has_clones, segment)) for segment in segments)
        self._apart = find_hazardous_outputs(trace) if cloning else frozenset()
        shapes_alone = get_compile_option(
            "nv_enable_shape_only_fusion",
            "Allow nvFuser to create Fusion with shape only operations. Defaults to False.",
        )
        in_order = get_compile_option("fusion_type", "Choose the type of fusion to use") in (None, "consecutive")
        made = list(chain.from_iterable([segment.made for segment in segments]))
        if not in_order or len(set(made)) != len(made):
            segments = regions.cut(trace, lambda _: False)
        region_of, reads = self._region_finder(segments)
        kinds = [segment.get_or_make("kinds", partial(_kinds_read, segment)) for segment in segments]
        sharded = any(DTensorProxy in each for each in kinds)
        fusible = self._fusibility()
        mergeable = self._mergeable(sharded, fusible)

        def is_region(group: list[BoundSymbol]) -> bool:
            return fusible(group) and (shapes_alone or not all(map(self._is_shape_op, group)))

        def fuse(segment: Segment, first: int) -> tuple[Segment, list[int]]:
            alone, left, numbers = from_trace(trace), list[BoundSymbol](), list[int]()
            alone.bound_symbols = list(segment.bsyms)
            for group in fuse_bound_symbols(alone, mergeable):
                if not is_region(group) or not executor.get_fuel():
                    left.extend(group)
                    continue
                numbers.append(regions.number(group, first + len(numbers)))
                left.append(executor.fuse(region_of(group), numbers[-1]))
            return regions.changed(segment, left), numbers

        fused, numbers = list[Segment](), list[int]()
        options = shapes_alone, sharded, self.control.options.fusion_options
        for segment in segments:
            # Values that the rest of the trace reads are outputs of their fusions.
            outside = tuple(
                map(
                    gt,
                    map(reads.__getitem__, segment.made),
                    segment.get_or_make("reads", partial(_made_reads, segment)),
                )
            )
            apart = self._apart.intersection(segment.made)
            made_of, more = self._get_or_make(
                ("fused segment", identity(self), identity(segment), outside, apart, options),
                (self, segment),
                partial(fuse, segment, len(numbers)),
            )
            fused.append(made_of)
            numbers += more
        done = from_trace(trace)
        attach(done, fused)
        cleaned = regions.without_dead(self.cse(regions.remove_casts(done)))
        return cleaned, {number: at for at, number in enumerate(numbers)}

    def _ends_segment(self, bsym: BoundSymbol) -> bool:
        return ends_segment(bsym, self.can_fuse)

    def _region_finder(
        self, segments: Sequence[Segment]
    ) -> tuple[Callable[[list[BoundSymbol]], Any], Mapping[str, int]]:
        """Return a function that makes Thunder's `Region` of a group of statements; and how often each value is read.

        If each name has one maker, only the outputs depend on statements outside of the group: a value is an output if
        the trace reads it more often than the group does. All other facts are cached with the group.
        """
        reads = Counter[str]()
        for segment in segments:
            reads.update(segment.get_or_make("counted", partial(_counted_reads, segment.bsyms)))
        made = list(chain.from_iterable([segment.made for segment in segments]))
        if len(set(made)) != len(made):
            bsyms = [bsym for segment in segments for bsym in segment.bsyms]
            return partial(Region, *utils.producers_and_consumers(bsyms)), reads

        def region_of(group: list[BoundSymbol]) -> Any:
            inputs, values = self._get_or_make(("region", ids(group)), tuple(group), lambda: _region_values(group))
            outputs = [variable for name, variable, inside in values if reads[name] > inside]
            return SimpleNamespace(inputs=inputs, outputs=outputs, bound_symbols=group)

        return region_of, reads

    def _fusibility(self) -> Callable[[list[BoundSymbol]], bool]:
        """Return a function that decides whether a group may be a fusion."""
        known: dict[int, bool] = {}

        def fusible(group: list[BoundSymbol]) -> bool:
            if len(group) > 1:
                return True
            # Statements of equal structure are all fusible, or all not fusible, unless `_apart` contains names of
            # outputs.
            number = identity(group[0] if self._apart else structure_of(group[0]))
            found = known.get(number)
            if found is None:
                found = known[number] = self._fusible(group[0])
            return found

        return fusible

    def _mergeable(self, sharded: bool, fusible: Callable[[list[BoundSymbol]], bool]) -> Callable[[Any, Any], bool]:
        """Return a function that decides whether two groups may be in one fusion.

        No fusion mixes sharded tensors with other tensors. `sharded` says whether the trace has sharded tensors.
        """

        def mergeable(a: Any, b: Any) -> bool:
            if not (fusible(a.group_bsyms) and (a is b or fusible(b.group_bsyms))):
                return False
            if not sharded:
                return True
            kinds = [{type(arg) for arg in node.group_bsyms[0].flat_proxy_args} for node in (a, b)]
            return kinds[0] == kinds[1] or not any(DTensorProxy in each for each in kinds)

        return mergeable

    def _fusible(self, bsym: BoundSymbol) -> bool:
        if self._apart and any(out.name in self._apart for out in bsym.flat_proxy_outs):
            return False
        executor: Any = self
        ask, alike = executor.has_cuda_input_or_output, structure_of(bsym)
        return bool(self._get_or_make(("fusible", identity(alike)), alike, lambda: self.can_fuse(bsym) and ask(bsym)))

    def _is_shape_op(self, bsym: BoundSymbol) -> bool:
        return bool(
            self._get_or_make(("shape", identity(bsym)), bsym, lambda: self.all_tagged(bsym, prims.OpTags.SHAPE_OP))
        )

    def _dce_bsyms(self, input_list: list[Any], output: list[Any], bsyms: list[BoundSymbol]) -> list[BoundSymbol]:
        if self.ready:
            return clean(bsyms)
        stock: Any = super()

        def drop() -> tuple[list[BoundSymbol], list[Any]]:
            inputs = list(input_list)
            return stock._dce_bsyms(inputs, output, bsyms), inputs

        key = ("dce", ids(input_list), ids(output), ids(bsyms))
        left, input_list[:] = self._get_or_make(key, (list(input_list), list(output), bsyms), drop)
        return list(left)

    def _get_or_make(self, key: Hashable, alive: Any, make: Callable[[], Any]) -> Any:
        return self.control.regions.get_or_make(key, alive, make)


def _has_uniform(segment: Segment) -> bool:
    return any(bsym.sym.id is prims.PrimIDs.UNIFORM for bsym in segment.bsyms)


def _has_clones(segment: Segment) -> bool:
    return any(map(has_clone, segment.bsyms))


def _kinds_read(segment: Segment) -> frozenset[type]:
    return frozenset(map(type, chain.from_iterable([bsym.flat_proxy_args for bsym in segment.bsyms])))


def _counted_reads(bsyms: Iterable[BoundSymbol]) -> tuple[str, ...]:
    """Return the names of the values that statements read, in order, with repetitions."""
    reading = [
        b for b in bsyms if b.sym.id is not prims.PrimIDs.COMMENT and b.sym.id is not prims.PrimIDs.UNPACK_TRIVIAL
    ]
    return tuple(chain.from_iterable(map(read_names, reading)))


def _made_reads(segment: Segment) -> tuple[int, ...]:
    """Return how often the statements of a segment read each of the names that the segment makes."""
    inside = Counter(_counted_reads(segment.bsyms))
    return tuple([inside[name] for name in segment.made])


def _region_values(group: Sequence[BoundSymbol]) -> tuple[tuple[Any, ...], tuple[tuple[str, Any, int], ...]]:
    """Return the inputs of a region. For each value that the region makes, return name, variable and number of reads.

    The reads are those in the region. The inputs and the values are in the order of Thunder's `Region`.
    """
    order = {name: at for at, name in enumerate(dict.fromkeys(chain.from_iterable(map(names_in, group))))}
    made = {out.name: out for bsym in group for out in bsym.flat_proxy_outs}
    read = {arg.name: arg for bsym in reversed(group) for arg in reversed(bsym.flat_proxy_args)}
    inside = Counter(_counted_reads(group))
    inputs = [variableify(read[name]) for name in sorted(inside.keys() - made.keys(), key=order.__getitem__)]
    values = [(name, variableify(made[name]), inside[name]) for name in sorted(made, key=order.__getitem__)]
    return tuple(inputs), tuple(values)


def fusion_number(fusion: BoundSymbol) -> int:
    """Return the number at the end of a fusion's name."""
    return int(re.sub(r".*\D", "", fusion.sym.name))


def fusion_names(numbers: Mapping[int, int]) -> dict[str, str]:
    """Return the new names of nvFuser's fusions for `with_numbers`."""
    return {f"nvFusion{old}": f"nvFusion{new}" for old, new in numbers.items() if old != new}


def with_numbers(trace: TraceCtx, numbers: Mapping[int, int], regions: Regions) -> TraceCtx:
    """Return a trace with other numbers in the names of its fusions."""
    done = own_names(trace)
    regions.map_fusions(trace, done, "numbered", _with_number, numbers)
    done.set_provenance(trace.get_provenance())
    return done


def _with_number(bsym: BoundSymbol, number: int) -> BoundSymbol:
    if fusion_number(bsym) == number:
        return bsym
    name = f"{bsym.sym.name.removesuffix(str(fusion_number(bsym)))}{number}"
    renamed: BoundSymbol = object.__new__(BoundSymbol)
    calls = bsym._call_ctx and {name: bsym._call_ctx[bsym.sym.name]}
    renamed.__dict__ = bsym.__dict__ | {"sym": dataclasses.replace(bsym.sym, name=name), "_call_ctx": calls}
    renamed.__dict__.pop(SHARED, None)  # contains the name
    return renamed


def _fusion_numbers(segment: Segment) -> tuple[int, ...]:
    return tuple([fusion_number(bsym) for bsym in segment.bsyms if bsym.sym.is_fusion])


_LEFT = "_workbench_left"
"""Name of an attribute that a pass sets on a fusion. The value contains the fusion's structure, and the objects from
which the structure was computed.
"""


def known_structure(fusion: BoundSymbol) -> Structure | None:
    """Return the `Regions.structure` that a pass stored for a fusion, or None if the fusion has changed since."""
    args, output, inside, found = fusion.__dict__.get(_LEFT, (None, None, None, None))
    same = args is fusion.args and output is fusion.output and inside is fusion.subsymbols
    return found if same else None


def _fusion_key(fusion: BoundSymbol) -> tuple[Hashable, ...]:
    """Return a key of a fusion's name, statements, arguments and outputs."""
    return fusion.sym.name, ids(fusion.subsymbols), ids(fusion.args), ids(fusion.output)


def _contents_ids(fusion: BoundSymbol) -> tuple[int, ...]:
    return ids((*fusion.args, *fusion.output, *fusion.subsymbols))


def _number_replacements(fusion: BoundSymbol, replacements: Mapping[Any, Any]) -> tuple[Hashable, ...]:
    """Return a fusion's replacements as a key with numbers instead of names.

    For two fusions with one structure, the keys are equal if the replacements change both fusions in the same way.
    """
    if not replacements:
        return ()
    numbers: dict[str, int] = {}
    for name in names_in(fusion):
        numbers.setdefault(name, len(numbers))
    return tuple(
        [
            (numbers[variable.proxy.name], numbers.setdefault(proxy.name, len(numbers)), *_traits(proxy))
            for variable, proxy in replacements.items()
        ]
    )


def _traits(proxy: Any) -> tuple[Hashable, ...]:
    told = [proxy.__dict__.get(name) for name in TOLD_APART_BY]
    found: tuple[Any, ...] = (type(proxy), *(frozenset(each) if isinstance(each, set) else each for each in told))
    return found


def _select(variables: Iterable[Any], replacements: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the replacements of `variables`."""
    return {v: replacements[v] for v in variables if v in replacements} if replacements else {}


def _remove_fusion_casts(
    fusion: BoundSymbol, replacements: Mapping[Any, Any], _: dict[int, int | None]
) -> tuple[BoundSymbol, dict[Any, Any]]:
    """Return a fusion without redundant casts, and the replacements of the outputs that it no longer computes."""
    fusion = fusion.from_bsym_swap_proxies(replacements, skip_output=True)
    replaced = _Replacements()
    originals: dict[str, Any] = {}
    members: list[BoundSymbol] = []
    for member in fusion.subsymbols:
        _append_unless_cast(member, members, replaced, originals)
    output = [replaced.get(variableify(out), out) for out in fusion.output]
    more = {v: replaced[v] for v in map(variableify, fusion.output) if v in replaced}
    return fusion.from_bsym(subsymbols=members, output=list(_distinct(output))), more


type _Log = Sequence[tuple[Any, Any]]
"""Variables and their replacements, in the order in which they were added."""


class _Replacements(dict[Any, Any]):
    """Maps variables to their replacements, with a quick test whether a statement reads a replaced variable."""

    def __init__(self, get_or_make: Callable[[Hashable, Any, Callable[[], Any]], Any] | None = None) -> None:
        super().__init__()
        self._by_name: dict[str, Any] = {}
        self._names = self._by_name.keys()
        self._get_or_make = get_or_make
        self.log: list[tuple[Any, Any]] = []
        """Variables and replacements that were added, in order."""

    def __setitem__(self, variable: Any, instead: Any) -> None:
        super().__setitem__(variable, instead)
        self._by_name[variable.proxy.name] = instead
        self.log.append((variable, instead))

    def enter(self, log: _Log) -> None:
        """Add the replacements of a log."""
        for variable, instead in log:
            self[variable] = instead

    def key_of(self, names: Iterable[str]) -> tuple[frozenset[tuple[str, int]], list[Any]]:
        """Return a key of the replacements of `names`, and of the replacements of these replacements.

        Also return the replacements, which must stay alive while the key is used.
        """
        found: dict[str, Any] = {}
        for name in self._names & names if self._by_name else ():
            while name not in found and name in self._by_name:
                found[name] = self._by_name[name]
                name = found[name].name
        return frozenset([(name, identity(instead)) for name, instead in found.items()]), list(found.values())

    def add_all(self, more: Mapping[Any, Any]) -> None:
        """Add replacements. The method `update` of a dict would not call `__setitem__`."""
        for variable, instead in more.items():
            self[variable] = instead

    def concerns(self, bsym: BoundSymbol) -> bool:
        """Return whether a statement reads a replaced value."""
        return not self._names.isdisjoint(read_names(bsym))

    def input_replacements(self, bsym: BoundSymbol) -> dict[Any, Any]:
        """Return the replacements of the values that a statement reads."""
        return _select(bsym.flat_variableified_proxy_args, self) if self.concerns(bsym) else {}

    def select(self, fusion: BoundSymbol) -> dict[Any, Any]:
        """Return the replacements of a fusion's inputs and outputs."""
        if self._names.isdisjoint(read_names(fusion)) and self._names.isdisjoint(made_names(fusion)):
            return {}
        return _select(map(variableify, (*fusion.args, *fusion.output)), self)

    def swap_inputs(self, bsym: BoundSymbol) -> BoundSymbol:
        """Return a statement with replaced inputs. The subsymbols read the replacements, too.

        Plans with the same replacements get the same new statement.
        """
        if has_none_of(bsym, self._names):
            return bsym
        concerned: dict[str, Any] = {}
        for name in names_in(bsym):
            # Thunder's swap follows chains of replacements.
            while name not in concerned and name in self._by_name:
                concerned[name] = self._by_name[name]
                name = concerned[name].name

        def swap() -> BoundSymbol:
            swapped: BoundSymbol = bsym.from_bsym_swap_proxies(self, skip_output=True)
            return swapped

        if self._get_or_make is None or not concerned:
            return swap()
        key = ("swap", identity(bsym), *concerned, *ids(concerned.values()))
        found: BoundSymbol = self._get_or_make(key, (bsym, concerned), swap)
        return found


def _append_unless_cast(
    bsym: BoundSymbol, left: list[BoundSymbol], replaced: _Replacements, originals: dict[str, Any]
) -> None:
    """Append a statement to `left`. Leave out a cast to the type that its value had before all earlier casts.

    Any other cast reads the value from before the earlier casts.
    """
    value, wanted = _float_cast(bsym)
    if value is None:
        left.append(replaced.swap_inputs(bsym) if replaced.concerns(bsym) else bsym)
        return
    original = originals[bsym.output.name] = originals.get(value.name, value)
    if dtypes.to_dtype(original) == wanted:
        replaced[variableify(bsym.output)] = original
    else:
        left.append(bsym if original is value else bsym.from_bsym(args=(original, wanted), kwargs={}))


def _float_cast(bsym: BoundSymbol) -> tuple[Any, Any]:
    """Return the value and the target type of a cast between float types, or (None, None) for other statements."""
    if bsym.sym.id is not prims.PrimIDs.CONVERT_ELEMENT_TYPE:
        return None, None
    given = dict(zip(("a", "dtype"), bsym.args, strict=False)) | bsym.kwargs
    value, wanted = given["a"], given["dtype"]
    floats = isinstance(value, Proxy) and dtypes.is_float_dtype(dtypes.to_dtype(value))
    return (value, wanted) if floats and dtypes.is_float_dtype(wanted) else (None, None)


class _Seen:
    """The statements outside of fusions that have one symbol and read the same values. An object is never changed.

    Attributes
    ----------
    first : (BoundSymbol, BoundSymbol) or None
        The only such statement, with replaced inputs and as it was; None if there are several.
    known : dict
        Maps the computation of each further statement to the statement.
    """

    __slots__ = ("first", "known")

    def __init__(self, first: tuple[BoundSymbol, BoundSymbol] | None, known: dict[Any, BoundSymbol]) -> None:
        self.first, self.known = first, known


type _Lookups = Mapping[Hashable, tuple[_Seen | None, _Seen | None]]
"""Maps each key that was looked up in `_Outside` to what was known before and after."""


class _Outside:
    """Finds repeated statements outside of fusions. Only statements that read the same values are compared.

    Parameters
    ----------
    redundant : dict
        Replacements of values. This class adds a replacement for each result of a repeated statement.
    """

    def __init__(self, redundant: _Replacements) -> None:
        self._redundant = redundant
        self._seen: dict[Hashable, _Seen] = {}
        self.lookups: dict[Hashable, _Seen | None] = {}
        """What was known before about each key that was looked up."""

    def has_same(self, lookups: _Lookups) -> bool:
        """Return whether what is known is what was known before `lookups`."""
        return all(self._seen.get(key) is before for key, (before, _) in lookups.items())

    def enter(self, lookups: _Lookups) -> None:
        """Add what was known after `lookups`."""
        self._seen.update([(key, after) for key, (_, after) in lookups.items() if after is not None])

    def after(self) -> _Lookups:
        """Return `lookups`, each with what is known now."""
        return {key: (before, self._seen.get(key)) for key, before in self.lookups.items()}

    def remainder(self, bsym: BoundSymbol) -> BoundSymbol | None:
        """Return the statement with replaced inputs, or None if it repeats an earlier statement."""
        if structure_of(bsym).get_or_make("not functional", lambda: bsym.sym.id in dead_code.NON_FUNCTIONAL_OPS):
            return bsym
        made = self._redundant.swap_inputs(bsym)
        key = bsym.sym.name, frozenset(read_names(made))
        seen = self._seen.get(key)
        self.lookups.setdefault(key, seen)
        if seen is None:
            self._seen[key] = _Seen((made, bsym), {})
            return made
        # Thunder's pass would merge two equal draws, except draws of `uniform`.
        if draws_inside(bsym):
            return made
        if seen.first is not None and draws_inside(seen.first[1]):
            self._seen[key] = _Seen((made, bsym), seen.known)
            return made
        known = dict(seen.known)
        if seen.first is not None and seen.first[1].sym.id != prims.PrimIDs.GET_GRAD:
            known[seen.first[0].rhs] = seen.first[1]
        stays = dead_code.cse_single_bsym(self._redundant, known, made) is not None
        if seen.first is not None or len(known) != len(seen.known):
            self._seen[key] = _Seen(None, known)
        return made if stays else None


class _StatementsByComputation(dict[Any, BoundSymbol]):
    """Maps computations to statements. `last` is the result of the last lookup."""

    last: BoundSymbol | None = None

    def get(self, key: Any, default: Any = None) -> Any:
        self.last = super().get(key, default)
        return self.last


def _remove_repeats(
    fusion: BoundSymbol, redundant: Mapping[Any, Any], repeats: dict[int, int | None]
) -> tuple[BoundSymbol, dict[Any, Any]]:
    """Return a fusion without common subexpressions, and replacements for values that it no longer computes.

    `repeats` maps the index of a statement to the index of an earlier statement with the same computation, or to None.
    If `repeats` is empty, this function fills it.
    """
    # Replace only arguments of the fusion. After rematerialization, the fusion may lack the replacements of other
    # values.
    here = {v: redundant[v] for v in map(variableify, fusion.args) if v in redundant}
    members, left = fusion.subsymbols, list[BoundSymbol]()
    if repeats:
        for at, member in enumerate(members):
            prior = repeats[at]
            if prior is None:
                looked_at = member.sym.id not in dead_code.NON_FUNCTIONAL_OPS
                left.append(member.from_bsym_swap_proxies(here, skip_output=True) if looked_at else member)
                continue
            for mine, its in zip(member.flat_outs, members[prior].flat_outs, strict=False):
                if variableify(mine) != variableify(its):
                    here[variableify(mine)] = its
    else:
        places, known = {identity(member): at for at, member in enumerate(members)}, _StatementsByComputation()
        found: dict[int, int | None] = {}
        for at, member in enumerate(members):
            if draws_inside(member):
                found[at] = None
                left.append(member.from_bsym_swap_proxies(here, skip_output=True))
                continue
            stays = dead_code.cse_single_bsym(here, known, member)
            found[at] = None if stays is not None else places[identity(known.last)]
            if stays is not None:
                left.append(stays)
        # Fill `repeats` in one step, because Ctrl-C may interrupt this function between two statements, and later
        # plans use `repeats`.
        repeats.update(found)
    inside = dead_code.replace_redundant_inputs(here, tuple(left))
    whole = {**redundant, **here}
    args, output = _distinct(_map_proxies(fusion.args, whole)), _distinct(_map_proxies(fusion.output, whole))
    return dataclasses.replace(fusion, args=args, subsymbols=inside, output=output), here


def _map_proxies(tree: Any, redundant: Mapping[Any, Any]) -> Any:
    return tree_map(lambda leaf: redundant.get(variableify(leaf), leaf) if isinstance(leaf, Proxy) else leaf, tree)


def _distinct(proxies: Sequence[Any]) -> tuple[Any, ...]:
    return tuple({variableify(proxy): proxy for proxy in proxies}.values())
