"""The pass between fusions: Thunder's own result, its own cuts at any weight, and pins that hold."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from thunder.core import rematerialization as thunders
from thunder.core import utils

import workbench
from tests.strategies import RandomProgram, programs
from workbench.compiler.pipeline import Hooks
from workbench.compiler.remat import RematOptions, find_cut, rematerialize
from workbench.errors import ProgramError

PROGRAMS = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def partitioned(bench: workbench.Workbench) -> Any:
    """The trace with regions made and nothing recomputed between them."""
    hooks = Hooks("torchcompile", {})
    with bench._captured._inside():
        trace = hooks.edit(bench._captured.fresh_stage())
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
    """Statements with what they are made of."""
    return [line for bsym in trace.bound_symbols for line in (str(bsym), *map(str, bsym.subsymbols))]


def thunders_find_cut(weight: float) -> Callable[..., tuple[str, ...]]:
    """Thunder's own cut with another weight of the producer's arguments, patched as nvFuser's issue 2916 does."""
    source = inspect.getsource(thunders.find_cut)
    assert source.count("weight / 2.0") == 1
    namespace = dict(vars(thunders))
    exec(source.replace("weight / 2.0", f"weight * {weight}"), namespace)
    return namespace["find_cut"]


def pairs(trace: Any) -> list[tuple[Any, Any, Any]]:
    """Every pair of fusions, with what the first one must hand out to others than the second."""
    consumers = utils.consumers(trace)
    return [
        (thunders.find_external_producer_outputs(consumers, (), producer, consumer), producer, consumer)
        for producer, consumer in thunders.find_fusion_producer_consumer_pairs(trace, proxy_to_consumers=consumers)
    ]


@PROGRAMS
@given(programs())
def test_the_pass_gives_what_thunders_own_gives(program: RandomProgram) -> None:
    trace = of_program(program)
    event("with pairs of fusions" if pairs(trace) else "without pairs of fusions")
    assert whole(rematerialize(trace, RematOptions())) == whole(thunders.rematerialize(trace))


@pytest.mark.timeout(900)
@settings(PROGRAMS, max_examples=max(10, settings.default.max_examples // 4))
@given(programs())
def test_cuts_of_random_programs_are_thunders_at_any_weight(program: RandomProgram) -> None:
    trace = of_program(program)
    for weight in (0.0, 0.25, 0.5, 1.0):
        theirs = thunders_find_cut(weight)
        for external, producer, consumer in pairs(trace):
            ours = find_cut(external, producer, consumer, RematOptions(argument_weight=weight))
            assert ours == theirs(external, producer, consumer)


def test_the_pass_can_be_off() -> None:
    trace = partitioned(workbench.open("residual_chain", layers=2, device="cpu", executor="torchcompile"))
    assert rematerialize(trace, RematOptions(enabled=False)) is trace


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("weight", ["0.0", "0.5", "1.0"])
def test_a_pinned_variable_becomes_what_it_is_pinned_to(weight: str, grad: bool) -> None:
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
