"""Make plans from a program's joint trace, or from a base plan.

A base plan is a plan that was made from the joint trace. Some levers can edit the forward and backward traces of a base
plan, which is faster than to begin with the joint trace.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workbench.analysis.cost.collective_overlap import PACK, UNPACK
from workbench.analysis.equivalence.prove import Prover, fault
from workbench.analysis.graphs.fusion_census import Census, census
from workbench.analysis.memory.liveness import Prediction, timeline
from workbench.compiler.fusion.executors import (
    compilations,
    sharing_keys,
)
from workbench.compiler.fusion.fusion_passes import Regions, fusion_names, with_numbers
from workbench.compiler.interop import devices
from workbench.compiler.interop.thunder_api import BoundSymbol, TraceCtx
from workbench.compiler.memory.graph_builder import read_execution_and_strides
from workbench.compiler.pipeline import plan_corrections
from workbench.compiler.pipeline.compilation import Executed, Hooks, execution_traces, find_sites
from workbench.compiler.pipeline.lever_context import LeverContext, LeverOutcome
from workbench.compiler.pipeline.stage_log import StageLog, StageTime
from workbench.compiler.pipeline.value_check import lost_in_tracing
from workbench.compiler.planner.plan import UNPROVEN, Plan, SplitTraces, unmatched_choices
from workbench.compiler.trace import copy_sets
from workbench.compiler.trace.lazy_value import LazyValue
from workbench.compiler.trace.segments import Segment, segments_of
from workbench.compiler.trace.validate import inequality_message, validate
from workbench.core.executor import executor_named
from workbench.core.graph import Graph, Kind, StatementFlag
from workbench.core.lever import Lever, Replanner, all_levers, lever_of
from workbench.errors import PlanError
from workbench.util.gc_pause import paused_gc
from workbench.util.planning_lock import PLANNING, one_at_a_time

if TYPE_CHECKING:
    from workbench.compiler.driver.capture import Capture

BASES_KEPT = 4
"""Number of base plans that are cached for a program. They are cached because some levers can make a new plan from a
base plan in milliseconds.
"""


@one_at_a_time
@paused_gc()
def plan(captured: Capture, choices: Mapping[str, str], newer: Callable[[], bool] | None = None) -> Plan:
    """Return the plan under `choices`, with its proof.

    If a lever's replanner can apply some of the choices, it applies them to the base plan under the other choices.

    Parameters
    ----------
    captured : Capture
    choices : mapping of str to str
    newer : callable, optional
        Returns whether a newer choice is waiting to be planned. Planning calls it after each stage.

    Raises
    ------
    PlanError
        If a trace of the plan reads undefined values, or if the plan is not proven equal to the stock plan.
    ChoiceError
        If a choice is illegal.
    Superseded
        If a newer choice is waiting to be planned.
    """
    begun = time.perf_counter()
    for lever in reversed(all_levers()):
        if quick := lever.quick(choices):
            base = base_of(captured, {id: option for id, option in choices.items() if id not in quick}, newer)
            made = base.replanner(lever).plan(choices, begun)
            break
    else:
        made = base_of(captured, choices, newer).plan
    return made if made.proof.proven or made.proof.fault else _prove_plan(captured, made)


@dataclasses.dataclass(frozen=True)
class BasePlan:
    """A plan that was made from the joint trace, and the input that levers need to edit its split traces."""

    plan: Plan
    context: LazyValue[LeverContext]
    outcome: LazyValue[LeverOutcome]
    _replanners: dict[str, Replanner] = dataclasses.field(default_factory=dict)

    def replanner(self, lever: Lever) -> Replanner:
        """Return the replanner that applies choices of `lever` to the split traces of this plan."""
        with PLANNING:
            if lever.name not in self._replanners:
                self._replanners[lever.name] = lever.replanner(self.plan, self.context.value, self.outcome.value)
            return self._replanners[lever.name]


@one_at_a_time
def base_of(captured: Capture, choices: Mapping[str, str], newer: Callable[[], bool] | None = None) -> BasePlan:
    """Return the base plan under `choices`, from the cache or newly made from the joint trace.

    Raises
    ------
    PlanError, ChoiceError, Superseded
        In the same cases as in `plan`.
    """
    key = tuple(sorted(choices.items()))
    known = captured.planned.bases.get(key)
    if known is not None:
        captured.planned.bases.move_to_end(key)
        return known
    planned, outcome = replan(captured, choices, newer)
    # Prove the stock plan equal to the joint trace, and any other plan equal to the stock plan.
    planned = _prove_plan(captured, planned) if choices else _prove_stock_plan(captured, planned, outcome)
    known = BasePlan(planned, captured.lazy_context, LazyValue(lambda: outcome))
    captured.planned.bases[key] = known
    if captured.planned.entry is not None and not choices:
        captured.planned.on_disk = captured.planned.entry.keep(captured, known.plan)
    if len(captured.planned.bases) > BASES_KEPT:
        # Never drop the stock plan (its key is empty), because the user interface compares the current plan with it.
        del captured.planned.bases[next(kept for kept in captured.planned.bases if kept)]
    return known


def _prove_stock_plan(captured: Capture, stock: Plan, outcome: LeverOutcome) -> Plan:
    """Return the stock plan with its proof, its warnings and its corrections.

    The plan gets a warning if its results differ from those of the joint trace, or if the results of the joint trace
    differ from those of the program. It also gets the caveats of the program's `LeverContext`.
    """
    context = captured.context
    warned = []
    if lost := lost_in_tracing(context) if context.program is not None else "":
        warned.append(f"{lost}: Thunder's trace does not compute the same as the program, under any choices")
    if wrong := fault(context.graph, stock.graph):
        warned.append(f"{wrong}: Thunder's own plan does not compute the same as its trace, under any choices")
    captured.planned.prover = Prover(stock.graph)
    return dataclasses.replace(
        stock,
        proof=captured.planned.prover.of_stock(lost or wrong),
        warnings=(*context.caveats, *warned),
        corrections=plan_corrections.find_corrections(context, outcome, captured.initial),
    )


def _prove_plan(captured: Capture, candidate: Plan) -> Plan:
    """Return the plan `candidate` with its proof.

    Raises
    ------
    PlanError
        If `candidate` is not proven equal to the stock plan. The message describes the first difference.
    """
    begun = time.perf_counter()
    stock = base_of(captured, {}).plan
    if captured.planned.prover is None:
        captured.planned.prover = Prover(stock.graph)
    proof = captured.planned.prover.prove(candidate.graph)
    if not proof.proven:
        raise PlanError(inequality_message(proof, captured.program.name))
    stage = StageTime("prove", time.perf_counter() - begun)
    return dataclasses.replace(
        candidate,
        proof=proof.with_stock_fault(stock.proof.fault),
        stages=(*candidate.stages, stage),
        warnings=stock.warnings,
        corrections=stock.corrections,
    )


@one_at_a_time
def replan(
    captured: Capture, choices: Mapping[str, str], newer: Callable[[], bool] | None = None
) -> tuple[Plan, LeverOutcome]:
    """Make a plan from the joint trace under `choices`.

    Return the plan, which is not proven yet, and the results of the levers.

    Raises
    ------
    PlanError
        If a trace of the plan reads undefined values.
    ChoiceError
        If a choice is illegal.
    Superseded
        If a newer choice is waiting to be planned.
    """
    context = captured.context
    captured.kept.begin()
    with captured.thunder_state():
        if choices or captured.planned.stock is None:
            log = StageLog(newer)
            found = execution_traces(Hooks(captured.executor, choices, log, memo=captured.kept), context)
        else:
            (log, found), captured.planned.stock = captured.planned.stock, None
        hooks, forward, backward = found.hooks, found.forward, found.backward
        hooks.restart()
        validate(forward, backward)
        hooks.mark("after split")
        numbers = hooks.control.numbers
        graph, strides = read_execution_and_strides(forward, backward, context, fusion_names(numbers))
        outcome = dataclasses.replace(hooks.outcome, execution=graph)
        hooks.mark("read")
        sites = find_sites(choices, context, outcome)
        hooks.mark("sites")
    line = timeline(graph)
    ran = _counted(_segments(forward, backward))
    keys = sharing_keys(_fusions(ran), strides)
    counted = _census(graph, _fusions(ran), keys)
    counts = _counts(ran, keys, graph, outcome, captured.executor, captured.program.device)
    hooks.mark("predict")
    planned = Plan(
        program=captured.program.name,
        device=captured.program.device,
        executor=captured.executor,
        graph=graph,
        timeline=line,
        census=counted,
        sites=sites,
        stages=tuple(log.times),
        opening=captured.stages,
        split=SplitTraces(lambda: (_numbered(forward, numbers), backward and _numbered(backward, numbers))),
        counts=counts,
        unmatched=unmatched_choices(choices, sites),
        warnings=context.caveats,
        ranks=captured.rank_count,
        steps=LazyValue(lambda: _steps(captured, found)),
        capture=captured.way,
        capture_reason=captured.why,
        places={
            output: name
            for schedule in outcome.communication.values()
            for output, name in zip(schedule.outputs, schedule.names, strict=True)
        },
    )
    return planned, outcome


def _steps(captured: Capture, executed: Executed) -> tuple[tuple[str, tuple[TraceCtx, ...]], ...]:
    """Return the name of each pass up to the split, with the traces that the pass made."""
    numbers = executed.hooks.control.numbers
    return (
        ("initial", (captured.initial,)),
        ("gradients", (captured.context.joint,)),
        ("claimed by executors", (captured.context.claimed,)),
        ("choices before fusion", (executed.edited,)),
        *((name, tuple([_numbered(trace, numbers) for trace in traces])) for name, traces in executed.further),
    )


def _numbered(trace: TraceCtx, numbers: Mapping[int, int]) -> TraceCtx:
    """Return a trace with the numbers of fusions in the plan. `numbers` are those of `ExecutorState.numbers`."""
    return with_numbers(trace, numbers, Regions(None)) if numbers else trace


def plan_of_edited_split(
    plan: Plan,
    context: LeverContext,
    outcome: LeverOutcome,
    choices: Mapping[str, str],
    split: tuple[TraceCtx, TraceCtx | None],
    begun: float,
) -> Plan:
    """Return a plan for split traces that a lever has edited.

    Parameters
    ----------
    plan : Plan
        The plan before the edit.
    context : LeverContext
    outcome : LeverOutcome
        Results of the choices of `plan`.
    choices : mapping of str to str
        All choices, including those of the edit.
    split : (TraceCtx, TraceCtx or None)
        The forward and backward traces after the edit.
    begun : float
        The `time.perf_counter` at the start of planning.

    Raises
    ------
    PlanError
        If a trace reads undefined values.
    """
    forward, backward = split
    validate(forward, backward)
    edited = time.perf_counter()
    graph, strides = read_execution_and_strides(forward, backward, context)
    outcome = dataclasses.replace(outcome, execution=graph)
    sites = find_sites(choices, context, outcome)
    read = time.perf_counter()
    line, ran = timeline(graph), _counted(_segments(forward, backward))
    keys = sharing_keys(_fusions(ran), strides)
    return dataclasses.replace(
        plan,
        graph=graph,
        timeline=line,
        census=_census(graph, _fusions(ran), keys),
        counts=_counts(ran, keys, graph, outcome, plan.executor, plan.device),
        sites=sites,
        unmatched=unmatched_choices(choices, sites),
        split=SplitTraces(lambda: split),
        stages=(
            StageTime("after split", edited - begun),
            StageTime("read", read - edited),
            StageTime("predict", time.perf_counter() - read),
        ),
        proof=UNPROVEN,
    )


def _segments(forward: TraceCtx, backward: TraceCtx | None) -> list[Segment]:
    """Return the segments of both traces, forward before backward."""
    return [segment for trace in (forward, backward) if trace is not None for segment in segments_of(trace)]


class _Counted(NamedTuple):
    """The fusions of a segment, and the numbers of its in-place copies, fences and buckets."""

    fusions: tuple[BoundSymbol, ...]
    copies: int
    fences: int
    packs: int


def _count(segment: Segment) -> _Counted:
    inside = [copy_sets.count_copies_and_fences(bsym) for bsym in segment.bsyms]
    return _Counted(
        tuple([bsym for bsym in segment.bsyms if bsym.sym.is_fusion]),
        sum(count for count, _ in inside),
        sum(count for _, count in inside),
        sum(bsym.sym.name.startswith(PACK) for bsym in segment.bsyms),
    )


def _counted(segments: Iterable[Segment]) -> list[_Counted]:
    return [segment.get_or_make("counts", partial(_count, segment)) for segment in segments]


def _census(graph: Graph, fusions: Sequence[BoundSymbol], keys: Sequence[Hashable]) -> Census:
    """Return the census of `fusions`, which must be in the order of the graph's rows. `keys` are their keys."""
    side = graph.statements.side[graph.statements.kind == Kind.FUSION]
    return census(keys, side.tolist(), [len(fusion.subsymbols) for fusion in fusions])


def _fusions(counted: Iterable[_Counted]) -> list[BoundSymbol]:
    return [bsym for each in counted for bsym in each.fusions]


def _counts(
    counted: Sequence[_Counted],
    keys: Sequence[Hashable],
    graph: Graph,
    outcome: LeverOutcome,
    executor: str,
    device: str,
) -> dict[str, int]:
    offloads = np.flatnonzero(graph.statements.kind == Kind.OFFLOAD)
    moved = sum(int(graph.values.bytes[graph.statements.outputs[row]].sum()) for row in offloads)
    options, sets = outcome.options, 0
    writing = [bsym for each in counted if each.copies for bsym in each.fusions]
    for fusion in writing if executor_named(executor).copies == "sets" else ():
        facts = copy_sets.copy_facts(fusion)
        policies = {fact.output: options.set_policies.get(fact.output, options.set_policy) for fact in facts}
        sets += len(facts) - len(copy_sets.copies_without_set(fusion, policies))
    packs = sum(each.packs for each in counted)
    return {
        "compilations": compilations(keys, share=options.share),
        "offloaded_bytes": moved,
        "offload_us": round(2e6 * moved / devices.copy_bandwidth(device)) if moved else 0,
        "copies": sum(each.copies for each in counted),
        "sets": sets,
        "fences": sum(each.fences for each in counted),
        "buckets": packs,
        "moved_statements": outcome.moved_statements,
        "bucket_copied_bytes": _bucket_copied_bytes(graph) if packs else 0,
    }


def _bucket_copied_bytes(graph: Graph) -> int:
    """Return the number of bytes that are copied into and out of buckets. Views of a bucket are not copied."""
    statements, written = graph.statements, 0
    for row in np.flatnonzero((statements.flags & StatementFlag.VIEW) == 0):
        if statements.name[row].startswith((PACK, UNPACK)):
            written += int(graph.values.bytes[statements.outputs[row]].sum())
    return written


@one_at_a_time
def predict(captured: Capture, choices: Mapping[str, str]) -> Prediction | None:
    """Predict the memory under `choices` in milliseconds, without a plan; return None if the prediction needs a plan.

    The prediction needs a plan if the executor makes fusions, if ranks share the program, if the choices belong to
    several levers, or if their lever cannot predict them. It also needs a plan if a program without gradients writes in
    place, because Thunder makes a backward for a write that no statement reads.
    """
    context = captured.context
    if captured.ranks is not None or context.fuses:
        return None
    if not context.has_backward and (context.graph.statements.flags & StatementFlag.INPLACE).any():
        return None
    made_by = {lever_of(id) for id in choices}
    with captured.thunder_state():
        if not made_by:
            return context.predictor.predict()
        levers = [lever for lever in all_levers() if lever.name in made_by]
        return levers[0].predict(choices, context) if len(made_by) == len(levers) == 1 else None
