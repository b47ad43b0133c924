"""Rematerialization between fusions, with the cut in our hands: legality read off first, then a minimum cut per pair.

The pass does what `thunder.core.rematerialization.rematerialize` does and calls its functions that rewrite producer and
consumer; the cut itself is ours: weights and pins are inputs, and SciPy's maximum flow finds it. Of all cuts of least
cost the one nearest to the consumer is taken, which is the one that Thunder's NetworkX call returns.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow
from thunder.core import prims, utils
from thunder.core.proxies import NumberProxy, Proxy, TensorProxy
from thunder.core.rematerialization import (
    apply_rematerialization_for_consumer,
    apply_rematerialization_for_producer,
    find_external_consumer_inputs,
    find_external_producer_outputs,
    find_fusion_producer_consumer_pairs,
)
from thunder.core.symbol import BoundSymbol, has_tags
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace

from workbench.compiler.copies import Writes

STOCK_ARGUMENT_WEIGHT = 0.5
"""Thunder weighs a producer's own argument half: it is in memory anyway."""

_UNIT = 1 << 12
"""Capacities are whole numbers of 1/4096 byte."""
_RELUCTANT = 1 << 24
"""Capacity of a variable that shall not be saved: above any sum of real weights, below `_INFINITE`."""
_INFINITE = 1 << 30

_NEVER_RECOMPUTED = {prims.OpTags.REDUCTION_OP, prims.OpTags.RANDOM_OP, prims.OpTags.MATMUL_OP}
_SKIPPED = {
    prims.PrimIDs.UNPACK_SEQUENCE,
    prims.PrimIDs.UNPACK_TRIVIAL,
    prims.PrimIDs.UNPACK_KEY,
    prims.PrimIDs.RETURN,
}


@dataclasses.dataclass(frozen=True)
class RematOptions:
    """What the cuts shall be.

    Attributes
    ----------
    enabled : bool
        False leaves every fusion as partitioned.
    argument_weight : float
        Weight of a producer's own argument against 1 for what it computes.
    pins : mapping of str to str
        Variable name to ``save`` or ``recompute``.
    """

    enabled: bool = True
    argument_weight: float = STOCK_ARGUMENT_WEIGHT
    pins: Mapping[str, str] = dataclasses.field(default_factory=dict)


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


def _tagged(bsym: BoundSymbol) -> bool:
    return bool(has_tags(bsym, _NEVER_RECOMPUTED))


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
            elif _tagged(makers[value.name]):
                why_not = (
                    f"tagged: {makers[value.name].sym.name} is a reduction, random or matmul op, "
                    "too dear or not safe to repeat"
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


@dataclasses.dataclass
class Report:
    """What a pass found beside the trace.

    Attributes
    ----------
    ties : dict of str to str
        Variable of a cut to another cut of the same cost, where there is one.
    failed : dict of str to str
        Variable pinned to recompute to the reason why it had to be saved all the same.
    """

    ties: dict[str, str] = dataclasses.field(default_factory=dict)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)


class _Network:
    """Capacities by node pair: node 0 is the source, 1 the sink, 2i and 2i+1 the two halves of a variable."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.capacity: dict[tuple[int, int], int] = {}

    def halves(self, name: str) -> tuple[int, int]:
        i = 2 * (self.index.setdefault(name, len(self.index)) + 1)
        return i, i + 1

    def edge(self, start: int, end: int, capacity: int) -> None:
        self.capacity[start, end] = capacity

    def cuts(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the variables in the least cut nearest to the sink, and in the one nearest to the source."""
        n = 2 * (len(self.index) + 1)
        if not self.capacity:
            return (), ()
        ends = np.array(list(self.capacity), np.int32)
        matrix = csr_array((np.array(list(self.capacity.values()), np.int32), (ends[:, 0], ends[:, 1])), shape=(n, n))
        flow = maximum_flow(matrix, 0, 1).flow
        residual = matrix - flow
        residual.data[residual.data < 0] = 0
        residual.eliminate_zeros()
        before_sink = np.ones(n, bool)
        before_sink[breadth_first_order(residual.T.tocsr(), 1, return_predecessors=False)] = False
        from_source = np.zeros(n, bool)
        from_source[breadth_first_order(residual.tocsr(), 0, return_predecessors=False)] = True
        return self._crossed(before_sink), self._crossed(from_source)

    def _crossed(self, near: NDArray[np.bool_]) -> tuple[str, ...]:
        return tuple(sorted(name for name, i in self.index.items() if near[2 * (i + 1)] and not near[2 * (i + 1) + 1]))


def _bytes_of(variable: Proxy) -> float:
    if isinstance(variable, TensorProxy):
        return float(variable.dtype.bytes)
    return 0.0 if isinstance(variable, NumberProxy) else 1.0


def find_cut(
    external: Sequence[Proxy],
    producer: BoundSymbol,
    consumer: BoundSymbol,
    options: RematOptions,
    overwritten: Collection[str] = (),
    report: Report | None = None,
) -> tuple[str, ...]:
    """Names of the variables to hand from producer to consumer; the rest between them is computed again.

    Parameters
    ----------
    external : sequence of Proxy
        Outputs of the producer that others need too.
    producer, consumer : BoundSymbol
        Two fusions.
    options : RematOptions
        Weights and pins.
    overwritten : collection of str
        Values whose memory is written between the two: what is made of them cannot be made again later.
    report : Report, optional
        Told of ties.

    Returns
    -------
    tuple of str
        Sorted; empty where the pair cannot be cut.
    """
    argument_names = {a.name for a in producer.args if isinstance(a, Proxy)}
    required = [a for a in chain(producer.args, external) if isinstance(a, Proxy)]
    for sub in producer.subsymbols:
        foreign = producer.sym.executor != consumer.sym.executor and not consumer.sym.executor.can_fuse(sub)
        if _tagged(sub) or foreign or any(a.name in overwritten for a in sub.flat_proxy_args):
            required.extend(sub.flat_proxy_outs)

    outside = find_external_consumer_inputs(producer, consumer)
    consumer_trace = TraceCtx(None)
    consumer_trace.bound_symbols = consumer.subsymbols
    wanted = {x.name for x in consumer.flat_proxy_outs} | {x.name for x in outside}
    for sub in utils.find_producer_symbols(consumer_trace, consumer.output, outside):
        wanted.update(x.name for x in sub.flat_proxy_outs)
    if not wanted or any(x.name in wanted for x in required):
        return ()

    users: defaultdict[str, list[BoundSymbol]] = defaultdict(list)
    for sub in chain(producer.subsymbols, consumer.subsymbols):
        for arg in sub.flat_proxy_args:
            users[arg.name].append(sub)

    network = _Network()
    for name in wanted:
        network.edge(network.halves(name)[0], 1, _INFINITE)

    def add(variable: Proxy) -> None:
        start, end = network.halves(variable.name)
        weight = _bytes_of(variable) * (options.argument_weight if variable.name in argument_names else 1.0)
        reluctant = options.pins.get(variable.name) == "recompute" and variable.name not in argument_names
        network.edge(start, end, _RELUCTANT if reluctant else round(weight * _UNIT))
        for user in users.get(variable.name, ()):
            if user.sym.id not in _SKIPPED:
                for out in user.flat_proxy_outs:
                    network.edge(end, network.halves(out.name)[0], _INFINITE)

    for variable in required:
        network.edge(0, network.halves(variable.name)[0], _INFINITE)
        add(variable)
    for sub in chain(producer.subsymbols, consumer.subsymbols):
        for variable in sub.flat_proxy_outs:
            add(variable)
    handed_over = {x.name for x in producer.flat_proxy_outs} & {x.name for x in consumer.flat_proxy_args}
    for name in handed_over:
        if options.pins.get(name) == "save":
            start, end = network.halves(name)
            network.edge(0, start, _INFINITE)
            network.edge(end, 1, _INFINITE)
    cut, other = network.cuts()
    if report is not None and other != cut:
        for name in cut:
            report.ties[name] = f"{{{', '.join(cut)}}} and {{{', '.join(other)}}} cost the same"
    return cut


def rematerialize(trace: TraceCtx, options: RematOptions, report: Report | None = None) -> TraceCtx:
    """Recompute in each consumer fusion what a minimum cut says is cheaper than to hand over.

    Parameters
    ----------
    trace : TraceCtx
        Partitioned, before any rematerialization.
    options : RematOptions
        With the defaults the result is what Thunder's own pass gives, except where that moves a read past an in-place
        write: ``t = a.clone(); a.copy_(b); b.copy_(t)`` under nvFuser reads ``a`` too late. That exception can go when
        Thunder's pass looks at writes.
    report : Report, optional
        Filled with ties, and with pins that could not be kept.
    """
    if not options.enabled:
        return trace
    report = report if report is not None else Report()
    while True:
        done = _rematerialize(trace, options, report)
        lost = _undefined(done) & {name for name, pin in options.pins.items() if pin == "recompute"}
        if not lost:
            return done
        # A pair that cannot be cut goes on reading what the others made superfluous.
        for name in lost:
            report.failed[name] = "consumer: one of the fusions that read it cannot be given what it would need instead"
        options = dataclasses.replace(options, pins={n: pin for n, pin in options.pins.items() if n not in lost})


def _undefined(trace: TraceCtx) -> set[str]:
    """Names that fusions read and nothing makes."""
    made = {out.name for bsym in trace.bound_symbols for out in bsym.flat_proxy_outs}
    return {a.name for b in trace.bound_symbols if b.sym.is_fusion for a in b.flat_proxy_args if a.name not in made}


def _rematerialize(trace: TraceCtx, options: RematOptions, report: Report) -> TraceCtx:
    consumers = utils.consumers(trace)
    writes = Writes(trace)
    pairs = find_fusion_producer_consumer_pairs(trace, proxy_to_consumers=consumers)
    current = {fusion: fusion for pair in pairs for fusion in pair}
    following = [consumer for _, consumer in pairs]
    # Pairs are ordered by producer.
    last_of = {producer: i for i, (producer, _) in enumerate(pairs)}
    cuts: defaultdict[BoundSymbol, tuple[str, ...]] = defaultdict(tuple)
    for i, (producer, consumer) in enumerate(pairs):
        now_producer, now_consumer = current[producer], current[consumer]
        following_consumers = tuple(current[c] for c in following[i + 1 : last_of[producer] + 1])
        # A variable that several fusions read is external to each pair, unless all of them shall make it again.
        external = tuple(
            out
            for out in find_external_producer_outputs(consumers, following_consumers, now_producer, now_consumer)
            if options.pins.get(out.name) != "recompute"
        )
        overwritten = writes.between(producer, consumer)
        cut = find_cut(external, now_producer, now_consumer, options, overwritten, report)
        if not cut:
            continue
        external += cuts[producer]
        new_producer = apply_rematerialization_for_producer(external, now_producer, cut)
        new_consumer = apply_rematerialization_for_consumer(now_producer, now_consumer, cut)
        current[producer] = current[now_producer] = new_producer
        current[consumer] = current[now_consumer] = new_consumer
        cuts[producer] += cut
    done = from_trace(trace)
    done.bound_symbols = [current.get(bsym, bsym) for bsym in trace.bound_symbols]
    done.set_provenance(TraceProvenance("Rematerialization"))
    return done
