"""Rematerialization between fusions, with weights and pins.

If one fusion reads an output of another, the first is the consumer, and the second is the producer. For each such pair,
the pass checks whether the consumer may recompute values. If so, a minimum cut decides which values the producer passes
on. The consumer recomputes all other values that it needs.

By default, the result equals that of `thunder.core.rematerialization.rematerialize`, including the order of statements.
The docstring of this module's `rematerialize` lists the exceptions. If several cuts are minimum cuts, the pass uses the
cut nearest to the consumer, as Thunder does.

The pass is fast for three reasons. It flattens a statement once, and not once for each pair. It rebuilds the index from
names to a fusion's statements only after a change. The search for a cut begins at the values that the consumer reads,
and ends at the values that the producer must output or receives as inputs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from workbench.compiler.fusion.cut_solver import Network
from workbench.compiler.fusion.fusion_crossings import is_tagged, is_tagged_by_thunder
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    NumberProxy,
    Proxy,
    TensorProxy,
    TraceCtx,
    TraceProvenance,
    from_trace,
    prims,
)
from workbench.compiler.trace.bsym_memo import identity, made_names, names_in, read_names
from workbench.compiler.trace.copy_sets import MemoryWrites, count_copies_and_fences, is_copy, leaves
from workbench.compiler.trace.segments import attach_again, segments_of

STOCK_ARGUMENT_WEIGHT = 0.5
"""Weight that Thunder gives to an argument of the producer. It is half the normal weight, because the argument is
already in memory.
"""


_UNIT = 1 << 12
"""Units of capacity per byte of a variable's data type. Capacities are integers, and do not depend on shapes."""


_RELUCTANT = 1 << 24
"""Capacity of a variable that is pinned to ``recompute``: more than any sum of normal capacities, and less than
`cut_solver.INFINITE`.
"""


type Once = Callable[[Hashable, Any, Callable[[], Any]], Any]
"""Signature of `workbench.compiler.trace.bsym_memo.PlanMemo.get_or_make`."""


def _make_uncached(key: Hashable, alive: Any, make: Callable[[], Any]) -> Any:
    """Call `make` without a cache."""
    return make()


_READS_NOTHING = {prims.PrimIDs.DEL, prims.PrimIDs.COMMENT, prims.PrimIDs.UNPACK_TRIVIAL}


@dataclasses.dataclass(frozen=True)
class RematOptions:
    """Options of the cuts between fusions.

    Attributes
    ----------
    enabled : bool
        If False, the pass changes no fusion.
    argument_weight : float
        Weight of an argument of the producer. A value that the producer computes has weight 1.
    pins : mapping of str to str
        Maps a variable's name to ``save`` or ``recompute``.
    repeats_draws : bool
        If True, repeat random draws of `randn` and `randint`, as Thunder's own pass does.
    """

    enabled: bool = True
    argument_weight: float = STOCK_ARGUMENT_WEIGHT
    pins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    repeats_draws: bool = False

    @property
    def key(self) -> Hashable:
        """Return a key of all options on which the cuts depend."""
        return self.enabled, self.argument_weight, tuple(self.pins.items()), self.repeats_draws


@dataclasses.dataclass
class RematReport:
    """Findings of a pass about its cuts.

    Attributes
    ----------
    ties : dict of str to str
        For two cuts with the same cost: maps each variable of the used cut to a text that names both cuts.
    failed : dict of str to str
        Maps a variable that is pinned to ``recompute`` to the reason why it had to be saved.
    """

    ties: dict[str, str] = dataclasses.field(default_factory=dict)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(slots=True, eq=False)
class _Member:
    """A flattened statement inside a fusion.

    `key` is the same for statements that Thunder considers equal. `made` are the names of `outs`, except names that the
    statement only passes on. `names` are all names in the statement, in the order of Thunder's `order_proxies`.
    `copied` are the names of the results of in-place copies in the statement.
    """

    bsym: BoundSymbol
    key: int
    args: tuple[str, ...]
    outs: tuple[Proxy, ...]
    made: tuple[str, ...]
    names: tuple[str, ...]
    tagged: bool
    copied: tuple[str, ...]


class Members:
    """Flattened statements. A statement is flattened once for all fusions that contain it."""

    def __init__(self) -> None:
        self._known: dict[int, _Member] = {}
        self._alike: defaultdict[tuple[str, ...], list[_Member]] = defaultdict(list)

    def members_of(self, fusion: BoundSymbol) -> list[_Member]:
        """Return the statements inside a fusion."""
        return [self._known.get(identity(bsym)) or self._add(bsym) for bsym in fusion.subsymbols]

    def _add(self, bsym: BoundSymbol) -> _Member:
        args = read_names(bsym)
        outs = bsym.flat_proxy_outs
        alike = self._alike[made_names(bsym)]
        key = next((m.key for m in alike if hash(m.bsym) == hash(bsym) and m.bsym == bsym), identity(bsym))
        made = tuple(out.name for out in outs if out.name not in args)
        copied = (
            tuple(leaf.output.name for leaf in leaves([bsym]) if is_copy(leaf))
            if count_copies_and_fences(bsym)[0]
            else ()
        )
        member = _Member(bsym, key, args, outs, made, names_in(bsym), is_tagged(bsym), copied)
        alike.append(member)
        self._known[identity(bsym)] = member
        return member


class _FlatFusion:
    """The statements of a fusion, indexed by name. The index is valid until the statements change."""

    def __init__(self, members: Sequence[_Member]) -> None:
        self.members = members
        self.produced = [out for member in members for out in member.outs]
        self.proxies = {out.name: out for out in self.produced}
        self.makers: defaultdict[str, list[_Member]] = defaultdict(list)
        """Maps a name to every statement that has the name among its outputs."""
        self.producer: dict[str, _Member] = {}
        """Maps a name to the first statement that computes the name and does not receive it as an input."""
        for member in members:
            for out in member.outs:
                self.makers[out.name].append(member)
            for name in member.made:
                self.producer.setdefault(name, member)

    @functools.cached_property
    def copy_results(self) -> list[str]:
        """Return the names of the results of in-place copies.

        The copies write into memory from outside of the fusion.
        """
        return [name for member in self.members for name in member.copied]

    @functools.cached_property
    def order(self) -> dict[str, int]:
        """Return a number for each name, in order of first appearance."""
        names = dict.fromkeys(chain.from_iterable(member.names for member in self.members))
        return {name: i for i, name in enumerate(names)}

    def statements_leading_to(self, names: Iterable[str], stops: Collection[str]) -> dict[int, _Member]:
        """Return the statements from which `names` are computed, by the `key` of each statement.

        The search ends at the names in `stops`.
        """
        found: dict[int, _Member] = {}
        queue, seen = list(names), set(stops)
        while queue:
            member = self.producer.get(queue.pop())
            if member is None or member.key in found:
                continue
            found[member.key] = member
            for name in member.args:
                if name not in seen:
                    seen.add(name)
                    queue.append(name)
        return found

    def sorted_members(self, members: Collection[int]) -> list[_Member]:
        """Return the statements whose keys are in `members`, one for each key, in order."""
        left, found = set(members), []
        for member in self.members:
            if member.key in left:
                left.remove(member.key)
                found.append(member)
        return found


@dataclasses.dataclass(frozen=True, eq=False)
class _CutFusion:
    """State of a fusion between two cuts: its arguments, statements and outputs."""

    bsym: BoundSymbol
    args: tuple[Proxy, ...]
    outs: tuple[Proxy, ...]
    inside: _FlatFusion
    _takes_other: bool = False
    _gives_other: bool = False

    @classmethod
    def from_bsym(cls, bsym: BoundSymbol, members: Members) -> _CutFusion:
        """Return the state of a fusion that was not cut yet."""
        return cls(bsym, bsym.flat_proxy_args, bsym.flat_proxy_outs, _FlatFusion(members.members_of(bsym)))

    def with_outputs(self, outs: Iterable[Proxy]) -> _CutFusion:
        """Return the fusion with the outputs `outs`."""
        return dataclasses.replace(self, outs=tuple(outs), _gives_other=True)

    def with_members(self, args: Iterable[Proxy], members: Sequence[_Member]) -> _CutFusion:
        """Return the fusion with other statements and arguments. Arguments are sorted by their first use."""
        inside = _FlatFusion(members)
        taken = tuple(sorted(args, key=lambda a: inside.order[a.name]))
        return dataclasses.replace(self, args=taken, inside=inside, _takes_other=True)

    @functools.cached_property
    def is_equal_to_its_original(self) -> bool:
        """Return whether Thunder considers the fusion equal to the fusion before any cut.

        Thunder compares arguments and outputs, but not statements. For Thunder, a list of outputs differs from a tuple.
        """
        if self._takes_other and _names(self.args) != _names(self.bsym.flat_proxy_args):
            return False
        return not self._gives_other or (
            isinstance(self.bsym.output, tuple) and _names(self.outs) == _names(self.bsym.flat_proxy_outs)
        )

    def needed_names(self, outside: Collection[str]) -> tuple[set[str], set[str]]:
        """Return the names to compute, and the names that their computation reads.

        The first set contains the outputs, the names in `outside`, and all names that are computed on the way from
        `outside` to the outputs.
        """
        if any(name in self.inside.makers for name in outside):
            return self._needed_path(outside)
        wanted, reads = self._output_path
        return wanted.union(outside), reads

    @functools.cached_property
    def _output_path(self) -> tuple[set[str], set[str]]:
        return self._needed_path(())

    def _needed_path(self, outside: Collection[str]) -> tuple[set[str], set[str]]:
        # The results of in-place copies are needed like outputs, even if no statement reads them by name.
        outs, makers = [*_names(self.outs), *self.inside.copy_results], self.inside.makers
        path = self.inside.statements_leading_to(outs, outside).values()
        wanted = {*outs, *outside, *(out.name for member in path for out in member.outs)}
        return wanted, {a for name in wanted for member in makers.get(name, ()) for a in member.args}

    @functools.cached_property
    def names(self) -> dict[str, None]:
        """Names of all values that the fusion takes and makes."""
        return dict.fromkeys(chain(_names(self.args), self.inside.proxies))

    @functools.cached_property
    def statement(self) -> BoundSymbol:
        """Return the fusion as a Thunder statement."""
        changes: dict[str, Any] = {"output": self.outs} if self._gives_other else {}
        if self._takes_other:
            changes |= {"args": self.args, "subsymbols": [member.bsym for member in self.inside.members]}
        return dataclasses.replace(self.bsym, **changes) if changes else self.bsym


def _names(proxies: Iterable[Proxy]) -> list[str]:
    return [proxy.name for proxy in proxies]


def _bytes_of(variable: Proxy) -> float:
    if isinstance(variable, TensorProxy):
        return float(variable.dtype.bytes)
    return 0.0 if isinstance(variable, NumberProxy) else 1.0


class _Producer:
    """A producer fusion. The cuts between it and its consumers are found one after the other."""

    def __init__(self, fusion: _CutFusion) -> None:
        self.fusion = fusion
        self.inside = fusion.inside
        self.tagged = {out.name for member in self.inside.members if member.tagged for out in member.outs}
        self.arguments = {a.name: a for a in fusion.args}
        self._known = {*self.arguments, *self.inside.proxies}
        self._kept: set[str] = set()

    def outside_inputs(self, consumer: _CutFusion) -> list[Proxy]:
        """Return the consumer's inputs that this producer neither computes nor receives as arguments."""
        given = {out.name for out in self.fusion.outs}
        return [a for a in consumer.args if a.name not in self._known and a.name not in given]

    def find_cut(
        self,
        consumer: _CutFusion,
        external: Collection[str],
        options: RematOptions,
        overwritten: Collection[str],
        report: RematReport | None,
    ) -> tuple[str, ...]:
        """Return the variables that this producer passes to a consumer, sorted by name.

        The consumer recomputes the other values that it needs. The result is empty if this pair is not cut; the
        consumer then stays unchanged.

        Parameters
        ----------
        consumer : _CutFusion
        external : collection of str
            Outputs of the producer that other statements also need.
        options : RematOptions
            Weights and pins.
        overwritten : collection of str
            Values whose memory is written between the two fusions. The consumer cannot recompute a value that is
            computed from one of them.
        report : RematReport or None
            Receives the ties.
        """
        tagged = self.tagged
        if options.repeats_draws:
            tagged = {
                out.name for member in self.inside.members if is_tagged_by_thunder(member.bsym) for out in member.outs
            }
        required = {*self.arguments, *external, *tagged}
        required.update(self._unrepeatable_names(consumer.bsym.sym.executor, overwritten))
        wanted, reads = consumer.needed_names(_names(self.outside_inputs(consumer)))
        if not wanted or not required.isdisjoint(wanted):
            return ()
        saved = {
            name
            for name in {out.name for out in self.fusion.outs}.intersection(_names(consumer.args))
            if options.pins.get(name) == "save"
        }

        def capacity(name: str) -> int:
            if name in self.arguments:
                return round(_bytes_of(self.arguments[name]) * options.argument_weight * _UNIT)
            if options.pins.get(name) == "recompute":
                return _RELUCTANT
            made = self.inside.proxies if name in self.inside.proxies else consumer.inside.proxies
            return round(_bytes_of(made[name]) * _UNIT)

        network = self._network(consumer, required | saved, wanted - saved, reads | saved, capacity)
        cut, other = network.cuts()
        if report is not None:
            # Another cut of the same cost may also pass on required values that the consumer does not need, if these
            # values have no cost.
            other.update(name for name in required if name not in network.capacity and not capacity(name))
            if other != cut:
                tie = f"{{{', '.join(sorted(cut))}}} and {{{', '.join(sorted(other))}}} cost the same"
                report.ties.update(dict.fromkeys(cut, tie))
        return tuple(sorted(cut))

    def _unrepeatable_names(self, executor: Any, overwritten: Collection[str]) -> Iterator[str]:
        foreign = executor != self.fusion.bsym.sym.executor
        if not foreign and not overwritten:
            return
        for member in self.inside.members:
            if (foreign and not executor.can_fuse(member.bsym)) or any(a in overwritten for a in member.args):
                yield from _names(member.outs)

    def _network(
        self,
        consumer: _CutFusion,
        required: Collection[str],
        needed: Collection[str],
        reads: Collection[str],
        capacity: Callable[[str], int],
    ) -> Network:
        """Return the network. The search for variables goes backward from the needed values to the required values."""
        drained = {*reads, *(a for name in needed for member in self.inside.makers.get(name, ()) for a in member.args)}
        drained.difference_update(needed)
        queue = list(drained)
        found = set(queue)
        edges = set()
        while queue:
            name = queue.pop()
            if name in required:
                continue
            for member in chain(self.inside.makers.get(name, ()), consumer.inside.makers.get(name, ())):
                for arg in member.args:
                    edges.add((arg, name))
                    if arg not in found:
                        found.add(arg)
                        queue.append(arg)
        capacities = {name: capacity(name) for name in found}
        return Network(capacities, edges, found.intersection(required), drained, self.inside.order)

    def hand_over(self, consumer: _CutFusion, cut: Collection[str], external: Collection[str]) -> _CutFusion:
        """Return the consumer after the cut.

        The consumer receives the values of the cut as arguments, and recomputes the other values that it received from
        this producer.

        This method also changes the outputs of this producer: they become the values of all its cuts so far, and the
        values in `external`.
        """
        outside = self.outside_inputs(consumer)
        taken = [*(p for p in chain(self.inside.produced, self.fusion.args) if p.name in cut), *outside]
        names = {a.name for a in taken}
        missing = [a.name for a in consumer.args if a.name not in names]
        if missing:
            again = self.inside.sorted_members(self.inside.statements_leading_to(missing, cut))
            members = [*again, *consumer.inside.members]
            made = {out.name for member in members for out in member.outs}
            read = set().union(*(member.args for member in members))
            taken += [a for a in self.fusion.args if a.name in read and a.name not in names and a.name not in made]
            consumer = consumer.with_members(taken, _sorted(members))
        self._kept.update(cut)
        given = {*external, *self._kept}.difference(self.arguments)
        order = self.inside.order
        outs = sorted((p for p in self.inside.produced if p.name in given), key=lambda p: order[p.name])
        self.fusion = self.fusion.with_outputs(outs)
        return consumer


def _sorted(members: Sequence[_Member]) -> list[_Member]:
    """Return the statements in the order of Thunder's `toposort_bsym_dag`. The sort begins at the last statements."""
    maker: dict[str, int] = {}
    readers: defaultdict[str, list[int]] = defaultdict(list)
    for i, member in enumerate(members):
        for name in member.made:
            maker.setdefault(name, i)
        for name in member.args:
            readers[name].append(i)
    keys = [member.key for member in members]
    after = [{keys[i] for name in member.made for i in readers.get(name, ())} for member in members]
    eligible = deque(i for i, following in enumerate(after) if not following)
    done: set[int] = set()
    found = []
    while eligible:
        member = members[eligible.popleft()]
        found.append(member)
        done.add(member.key)
        for i in dict.fromkeys(maker[name] for name in member.args if name in maker):
            if after[i] <= done:
                eligible.append(i)
    found.reverse()
    return found


def rematerialize(
    trace: TraceCtx, options: RematOptions, report: RematReport | None = None, once: Once = _make_uncached
) -> TraceCtx:
    """Return a trace in which fusions recompute each value that a minimum cut finds cheaper to recompute than to pass.

    With the default options, the result equals that of Thunder's own pass, with three exceptions. Thunder's pass has
    these faults, and this pass does not:

    - Thunder's pass recomputes random draws that Thunder does not tag, such as `randn`. A second draw gives different
      numbers.
    - Thunder's pass moves a read past an in-place write. For ``t = a.clone(); a.copy_(b); b.copy_(t)`` under nvFuser,
      Thunder's result reads ``a`` too late.
    - A consumer may contain a copy whose result no statement reads by name, as after a batch norm. Thunder's pass then
      recomputes all values that the copy reads, including the results of earlier copies.

    The exceptions for writes can be removed when Thunder's pass considers writes.

    Parameters
    ----------
    trace : TraceCtx
        Partitioned trace before any rematerialization.
    options : RematOptions
    report : RematReport, optional
        Receives the ties, and the pins that the pass could not apply.
    once : callable, optional
        Cache of earlier plans of the program; see `workbench.compiler.trace.bsym_memo.PlanMemo.get_or_make`.
    """
    if not options.enabled:
        return trace
    report = report if report is not None else RematReport()
    while True:
        done = _rematerialize(trace, options, report, once)
        recomputed = {name for name, pin in options.pins.items() if pin == "recompute"}
        lost = _undefined_names(done) & recomputed if recomputed else ()
        if not lost:
            return done
        # A consumer that could not be cut still reads variables that the producer may no longer output. Cut again,
        # without the pins to recompute these variables.
        for name in lost:
            report.failed[name] = (
                "consumer: a fusion that reads it cannot get all inputs that are needed to recompute it"
            )
        options = dataclasses.replace(options, pins={n: pin for n, pin in options.pins.items() if n not in lost})


def _undefined_names(trace: TraceCtx) -> set[str]:
    """Return the names that fusions read and that no statement computes."""
    made = {out.name for bsym in trace.bound_symbols for out in bsym.flat_proxy_outs}
    return {a.name for b in trace.bound_symbols if b.sym.is_fusion for a in b.flat_proxy_args if a.name not in made}


def _readers(trace: TraceCtx) -> dict[str, list[int]]:
    """Return, for each name, the positions of the statements that read the value of this name."""
    readers: defaultdict[str, list[int]] = defaultdict(list)
    begin = 0
    for segment in segments_of(trace):
        for name, at in segment.get_or_make("readers", functools.partial(_reads, segment.bsyms)):
            readers[name].append(begin + at)
        begin += len(segment.bsyms)
    return readers


def _reads(bsyms: Iterable[BoundSymbol]) -> tuple[tuple[str, int], ...]:
    """Return each name that statements read, with the position of the statement."""
    reading = [(i, bsym) for i, bsym in enumerate(bsyms) if bsym.sym.id not in _READS_NOTHING]
    return tuple([(name, i) for i, bsym in reading for name in dict.fromkeys(read_names(bsym))])


def _rematerialize(trace: TraceCtx, options: RematOptions, report: RematReport, once: Once) -> TraceCtx:
    readers = _readers(trace)
    writes = MemoryWrites(trace)
    members = once("members", None, Members)
    fusions: dict[int, _CutFusion] = {
        i: once(("to be cut", identity(bsym)), bsym, functools.partial(_CutFusion.from_bsym, bsym, members))
        for i, bsym in enumerate(trace.bound_symbols)
        if bsym.sym.is_fusion
    }
    for at in fusions:
        fusion = fusions[at]
        reading = sorted({i for out in fusion.outs for i in readers.get(out.name, ()) if i in fusions})
        if not reading:
            continue
        number = {i: n for n, i in enumerate(reading)}
        pair = _Pairs(
            fusion,
            tuple([fusions[i] for i in reading]),
            {name: frozenset([number.get(i, -1) for i in readers[name]]) for name in fusion.names if name in readers},
            tuple([writes.writes_between(fusion.bsym, fusions[i].bsym) for i in reading]),
        )
        fusions[at], consumers, ties = once(*pair.key(options), functools.partial(pair.cut, options))
        fusions.update(zip(reading, consumers, strict=True))
        report.ties.update(ties)
    done = from_trace(trace)
    bsyms = [fusions[i].statement if i in fusions else bsym for i, bsym in enumerate(trace.bound_symbols)]
    attach_again(trace, done, bsyms, once)
    done.set_provenance(TraceProvenance("Rematerialization"))
    return done


@dataclasses.dataclass(frozen=True)
class _Pairs:
    """A fusion and its consumers, in program order, before any cut between them.

    Attributes
    ----------
    fusion : _CutFusion
    consumers : tuple of _CutFusion
    readers : dict of str to frozenset of int
        Maps a name that the fusion computes or receives to the indices of the consumers that read it. The index -1
        stands for all other readers.
    overwritten : tuple of frozenset of str
        For each consumer, the values whose memory is written between the fusion and the consumer.
    """

    fusion: _CutFusion
    consumers: tuple[_CutFusion, ...]
    readers: Mapping[str, frozenset[int]]
    overwritten: tuple[frozenset[str], ...]

    def key(self, options: RematOptions) -> tuple[Hashable, Any]:
        """Return the key of the cuts, and the objects to keep alive while the key is in use."""
        together = (self.fusion, *self.consumers)
        pins = options.pins
        concerned = [pins.keys() & fusion.names.keys() for fusion in together] if pins else []
        pinned = frozenset([(name, pins[name]) for name in frozenset().union(*concerned)])
        around = tuple(self.readers.items()), self.overwritten
        return (
            "cuts",
            *map(identity, together),
            *around,
            options.argument_weight,
            pinned,
            options.repeats_draws,
        ), together

    def cut(self, options: RematOptions) -> tuple[_CutFusion, list[_CutFusion], dict[str, str]]:
        """Return the fusion after the cuts, the consumers after the cuts, and the ties for `RematReport.ties`."""
        producer, report, found = _Producer(self.fusion), RematReport(), []
        times_read = Counter(_names(chain(self.fusion.args, *(consumer.args for consumer in self.consumers))))
        # After a consumer's arguments have changed, Thunder treats the consumer as a different fusion.
        known = {n for n, consumer in enumerate(self.consumers) if consumer.is_equal_to_its_original}

        def is_external(name: str, arguments: Collection[str]) -> bool:
            # If several fusions read a variable, the producer must output the variable for each pair. The exception
            # is a variable with a pin that makes all fusions recompute it.
            if options.pins.get(name) == "recompute":
                return False
            if times_read[name] > 1 or not known.issuperset(self.readers.get(name, ())):
                return True
            return times_read[name] == 1 and name not in arguments

        for number, consumer in enumerate(self.consumers):
            given = _names(consumer.args)
            external = [name for name in _names(producer.fusion.outs) if is_external(name, given)]
            cut = producer.find_cut(consumer, external, options, self.overwritten[number], report)
            found.append(producer.hand_over(consumer, cut, external) if cut else consumer)
            times_read.subtract(given)
            known.discard(number)
        return producer.fusion, found, report.ties
