"""Rematerialization between fusions gives Thunder's result for all weights, finds cuts of least cost, and obeys pins.

A cut is the set of values that one fusion passes to another. The weight scales the cost of cutting at arguments of
the producing fusion. A pin is a choice to pass a value or to recompute it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from itertools import combinations
from random import Random
from typing import Any
from unittest import mock

import networkx
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from thunder.core import rematerialization as thunders
from thunder.core import utils

import workbench
from tests.strategies import RandomProgram, programs
from tests.trial_counts import amount
from workbench.compiler.api import Hooks
from workbench.compiler.fusion.cut_solver import Network
from workbench.compiler.fusion.fusion_crossings import crossings
from workbench.compiler.fusion.rematerialize import (
    Members,
    RematOptions,
    RematReport,
    _CutFusion,
    _Producer,
    rematerialize,
)
from workbench.compiler.trace.bsym_memo import PlanMemo
from workbench.errors import ProgramError

FULL = settings.default.max_examples > 100
PROGRAMS = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def partitioned(bench: workbench.Workbench) -> Any:
    """Return the trace with its fusions, as it is before rematerialization between them."""
    hooks = Hooks("torchcompile", {})
    with bench._captured.thunder_state():
        trace = hooks.edit(bench._captured.context)
        executor = next(e for e in hooks.executors() if "torchcompile" in str(e.name))
        return executor._partition(trace)


def of_program(program: RandomProgram) -> Any:
    function, args, _ = program.build()
    try:
        bench = workbench.open(function, *args, executor="torchcompile")
    except ProgramError:
        assume(False)
    return partitioned(bench)


def whole(trace: Any) -> list[str]:
    """Return the statements of a trace and their members as text."""
    return [line for bsym in trace.bound_symbols for line in (str(bsym), *map(str, bsym.subsymbols))]


def thunders_find_cut(weight: float) -> Callable[..., tuple[str, ...]]:
    """Return Thunder's `find_cut` with another weight for arguments of the producer, as in nvFuser's issue 2916."""
    source = inspect.getsource(thunders.find_cut)
    assert source.count("weight / 2.0") == 1
    namespace = dict(vars(thunders))
    exec(source.replace("weight / 2.0", f"weight * {weight}"), namespace)
    return namespace["find_cut"]


def find_cut(external: Any, producer: Any, consumer: Any, options: RematOptions) -> tuple[str, ...]:
    """Return the values that a producer passes to a consumer, as Thunder's `find_cut` does."""
    fusions, names = Members(), [proxy.name for proxy in external]
    cut = _CutFusion.from_bsym(consumer, fusions)
    return _Producer(_CutFusion.from_bsym(producer, fusions)).find_cut(cut, names, options, (), None)


def pairs(trace: Any) -> list[tuple[Any, Any, Any]]:
    """Return a tuple for each pair of fusions in which one, the consumer, reads values of the other, the producer.

    The tuple has the producer's values that statements outside of the consumer read, the producer, and the consumer.
    """
    consumers = utils.consumers(trace)
    return [
        (thunders.find_external_producer_outputs(consumers, (), producer, consumer), producer, consumer)
        for producer, consumer in thunders.find_fusion_producer_consumer_pairs(trace, proxy_to_consumers=consumers)
    ]


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.timeout(900)
@settings(PROGRAMS, max_examples=amount(6, 15, 400))
@given(programs())
def test_rematerialization_and_its_cuts_equal_those_of_thunder_at_any_weight(program: RandomProgram) -> None:
    trace = of_program(program)
    found = pairs(trace)
    event("with pairs of fusions" if found else "without pairs of fusions")
    for weight in (0.0, 0.25, 0.5, 1.0):
        theirs = thunders_find_cut(weight)
        for external, producer, consumer in found:
            ours = find_cut(external, producer, consumer, RematOptions(argument_weight=weight))
            assert ours == theirs(external, producer, consumer)
    for weight in (0.5, 0.0):
        with mock.patch.object(thunders, "find_cut", thunders_find_cut(weight)):
            theirs = thunders.rematerialize(trace)
        assert whole(rematerialize(trace, RematOptions(argument_weight=weight))) == whole(theirs)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Draw a network of variables in program order. A variable is an input or is computed from earlier variables."""
    count = draw(st.integers(1, 9))
    names = [f"t{i}" for i in range(count)]
    some = st.sets(st.sampled_from(names))
    fed, drained = draw(some) | {names[0]}, draw(some) | {names[-1]}
    edges = draw(st.sets(st.sampled_from(list(combinations(names, 2))))) if count > 1 else set()
    capacity = {name: draw(st.sampled_from((0, 1, 2, 4, 1 << 24))) for name in names}
    order = {name: i for i, name in enumerate(names)}
    return Network(capacity, {(a, b) for a, b in edges if b not in fed}, fed, drained, order)


def cost(network: Network, cut: Iterable[str]) -> int:
    return sum(network.capacity[name] for name in cut)


@pytest.mark.slow
@given(networks())
def test_both_cuts_of_a_network_are_the_minimum_cuts_of_networkx(network: Network) -> None:
    graph = networkx.DiGraph()
    graph.add_nodes_from(("source", "sink"))
    for name, capacity in network.capacity.items():
        graph.add_edge(f"{name} in", f"{name} out", capacity=capacity)
    graph.add_edges_from(("source", f"{name} in") for name in network.fed)
    graph.add_edges_from((f"{name} out", "sink") for name in network.drained)
    graph.add_edges_from((f"{a} out", f"{b} in") for a, b in network.edges)
    least, (_, near_sink) = networkx.minimum_cut(graph, "source", "sink")
    _, (far_sink, _) = networkx.minimum_cut(graph.reverse(), "sink", "source")
    cut, other = network.cuts()
    event("nothing flows" if not least else "two cuts" if cut != other else "one cut")
    assert cost(network, cut) == cost(network, other) == least
    assert cut == {n for n in network.capacity if f"{n} in" not in near_sink and f"{n} out" in near_sink}
    assert other == {n for n in network.capacity if f"{n} in" not in far_sink and f"{n} out" in far_sink}


def test_the_report_of_a_tie_names_the_other_cut() -> None:
    trace = partitioned(workbench.open("residual_chain", layers=1, device="cpu", executor="torchcompile"))
    ties = {weight: RematReport() for weight in (0.5, 0.6)}
    for weight, report in ties.items():
        rematerialize(trace, RematOptions(argument_weight=weight), report)
    # Passing the sum costs 4 bytes per element. At the stock weight, passing its two arguments costs 2 + 2 bytes, so
    # the cuts tie. At a higher weight, the arguments cost more.
    assert ties[0.5].ties
    assert all("cost the same" in tie and "{" + name + "}" in tie for name, tie in ties[0.5].ties.items())
    assert not ties[0.6].ties


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "layers"), [("residual_chain", 4), pytest.param("llama", 2, marks=pytest.mark.long)]
)
def test_cached_cuts_equal_cuts_that_are_computed_anew(program: str, layers: int) -> None:
    # All plans need cuts between the same fusions, but under random weights and pins.
    trace, kept, drawn = (
        partitioned(workbench.open(program, layers=layers, executor="torchcompile")),
        PlanMemo(),
        Random(3),
    )
    names = [crossing.name for crossing in crossings(trace)]
    made: list[str] = []

    def once(key: Any, alive: Any, make: Callable[[], Any]) -> Any:
        return kept.get_or_make(key, alive, lambda: (made.append(key[0]), make())[1])

    seen = set()
    for _ in range(40):
        pins = {name: drawn.choice(("save", "recompute")) for name in drawn.sample(names, drawn.randrange(3))}
        options = RematOptions(argument_weight=drawn.choice((0.0, 0.5, 1.0)), pins=pins)
        reports = RematReport(), RematReport()
        found, anew = rematerialize(trace, options, reports[0], once), rematerialize(trace, options, reports[1])
        assert whole(found) == whole(anew)
        assert reports[0] == reports[1]
        seen.add(tuple(whole(found)))
    assert len(seen) > 5
    # Most cuts of later plans are cached.
    fusions = sum(bsym.sym.is_fusion for bsym in trace.bound_symbols)
    assert made.count("to be cut") == fusions
    assert 0 < made.count("cuts") < 20 * fusions


def test_rematerialization_can_be_switched_off() -> None:
    trace = partitioned(workbench.open("residual_chain", layers=2, device="cpu", executor="torchcompile"))
    assert rematerialize(trace, RematOptions(enabled=False)) is trace


@pytest.mark.slow
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("weight", ["0.0", "0.5", "1.0"])
def test_a_pinned_variable_gets_its_pinned_state(weight: str, grad: bool) -> None:
    bench = workbench.open("residual_chain", layers=3, grad=grad, device="cpu", executor="torchcompile")
    bench.choose({"remat.weight": weight})
    free = [site for site in bench.sites("remat") if site.id.startswith("remat:") and not site.illegal]
    assert free
    for site in free:
        for option in ("save", "recompute"):
            bench.choose({site.id: option})
            assert bench.site(site.id).outcome == option
            bench.undo()


def test_every_free_variable_can_be_recomputed_at_once() -> None:
    bench = workbench.open("residual_chain", layers=4, device="cpu", executor="torchcompile")
    free = [site.id for site in bench.sites("remat") if site.id.startswith("remat:") and not site.illegal]
    bench.choose(dict.fromkeys(free, "recompute"))
    assert {bench.site(id).outcome for id in free} == {"recompute"}
    bench.choose(dict.fromkeys(free, "save"))
    assert {bench.site(id).outcome for id in free} == {"save"}
