"""A plan made again from the kept joint trace; where choices only order statements, from the split traces."""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.census import census
from workbench.analysis.equivalence import Proof, Prover
from workbench.analysis.machines import Machine
from workbench.analysis.memory import Prediction, timeline
from workbench.analysis.overlap import PACK, Simulation, simulate
from workbench.analysis.reordered import reordered, top_rows, with_members
from workbench.analysis.search import Search, tried_of
from workbench.analysis.search import search as find_order
from workbench.compiler import copies, devices, reorder
from workbench.compiler.capture import Capture
from workbench.compiler.facts import fusion_key
from workbench.compiler.fusion import (
    FusionOptions,
    compilations,
)
from workbench.compiler.hooks import Hooks, StageLog, StageTime, executed
from workbench.compiler.names import is_statement
from workbench.compiler.plan import UNPROVEN, Plan, Split
from workbench.compiler.reader import read_execution
from workbench.compiler.reorder import UNPACK
from workbench.compiler.stage import Stage
from workbench.compiler.thunder_api import (
    TraceCtx,
)
from workbench.compiler.validate import unequal, validate, validate_order
from workbench.errors import PlanError
from workbench.graph import Graph, Kind, StatementFlag
from workbench.levers import saved, waits
from workbench.levers.base import Site

UNORDERED_KEPT = 4
"""Plans kept with their stages, so that another order of collectives is planned in milliseconds."""


LARGE_STATEMENTS = 2000
"""Of a program that takes seconds to plan anyway: some four layers of a transformer among ranks."""


def plan(captured: Capture, choices: Mapping[str, str]) -> Plan:
    """Plan again from the kept joint trace under `choices`; where they only order statements, from the split traces.

    Raises
    ------
    PlanError
        If a pass made a trace that reads what it does not define, or the plan is not proven to compute what the stock
        plan does.
    ChoiceError
        If a choice is refused.
    """
    begun = time.perf_counter()
    known = _unordered(captured, choices)
    ordered = any(waits.orders(id, choices) for id in choices)
    made = known.ordered(choices, begun) if ordered else known.plan
    return made if made.proof.proven else _proven(captured, made)


def _proven(captured: Capture, made: Plan) -> Plan:
    """The plan with its proof.

    Raises
    ------
    PlanError
        If it does not compute what the stock plan does, naming the first statement that differs.
    """
    begun = time.perf_counter()
    if captured._prover is None:
        captured._prover = Prover(_unordered(captured, {}).plan.graph)
    proof = captured._prover.prove(made.graph)
    if not proof.proven:
        raise PlanError(unequal(proof, captured.program.name))
    stage = StageTime("prove", time.perf_counter() - begun)
    return dataclasses.replace(made, proof=proof, stages=(*made.stages, stage))


def search(
    captured: Capture,
    choices: Mapping[str, str],
    machine: Machine,
    limit_bytes: int | None = None,
    buckets: Sequence[str] = (),
) -> Search:
    """The best order of collectives, simulated, beside the other choices made.

    Parameters
    ----------
    captured : Capture
    choices : mapping of str to str
        In force.
    machine : Machine
    limit_bytes : int, optional
        Of results in flight that a statement is to read.
    buckets : sequence of str
        Options of ``waits.bucket`` to try; by default the one in force. Each takes a plan of its own.

    Raises
    ------
    PlanError
        If there are no collectives, or no order keeps the limit.
    """
    if not _unordered(captured, choices).stage.communication:
        raise PlanError(f"{captured.program.name} has no collectives to order")
    kept = {id: option for id, option in waits.free_of_order(choices).items() if not id.startswith("waits:")}
    followed = {id: waits.POLICY for id in choices if id.startswith("waits:")}
    if waits.STAGE in choices:
        # Before fusion each order is a plan of its own.
        followed[waits.STAGE] = waits.AFTER_FUSION

    def simulated(change: Mapping[str, str]) -> tuple[Simulation, float]:
        made = {id: option for id, option in change.items() if option not in _DEFAULTS}
        wanted = {**{id: option for id, option in kept.items() if id not in change}, **made}
        return _unordered(captured, wanted).simulated(wanted, machine)

    bucketed: list[dict[str, str]] = [{waits.BUCKET: option} for option in dict.fromkeys(buckets)] or [{}]
    candidates = [{**followed, **each, **order} for each in bucketed for order in waits.orders_to_try(limit_bytes)]
    now = tried_of(choices, *_unordered(captured, choices).simulated(choices, machine))
    return find_order(candidates, simulated, now, machine, limit_bytes)


_DEFAULTS = (waits.POLICY, waits.NONE, waits.AFTER_FUSION)


def _unordered(captured: Capture, choices: Mapping[str, str]) -> _Unordered:
    """The plan under the choices that do more than order statements."""
    others = waits.free_of_order(choices)
    key = tuple(sorted(others.items()))
    known = captured._unordered.get(key)
    if known is None:
        made, stage = plan_anew(captured, others)
        if others:
            made = _proven(captured, made)
        else:
            # What all others are held to.
            made = dataclasses.replace(made, proof=Proof(True))
        known = captured._unordered[key] = _Unordered(made, stage)
        if len(captured._unordered) > UNORDERED_KEPT:
            # The stock plan stays: every screen compares with it.
            del captured._unordered[next(kept for kept in captured._unordered if kept)]
        if known.stage.communication and len(known.plan.graph.statements) > LARGE_STATEMENTS:
            # Large programs leave millions of objects, which Python looks through once there are a quarter more:
            # for seconds, and in the middle of a move, were that not done now.
            gc.collect()
    else:
        captured._unordered.move_to_end(key)
    return known


@dataclasses.dataclass(frozen=True)
class _Unordered:
    """A plan to be put into other orders, in milliseconds: no statement changes, so that no trace is read again."""

    plan: Plan
    stage: Stage

    @cached_property
    def rows(self) -> dict[str, NDArray[np.intp]]:
        """For each statement of a schedule the row of the plan's graph, by side; other sides' rows as they are."""
        graph, split = self.plan.graph, self.plan.split
        top = top_rows(graph)
        first_backward = int(np.searchsorted(top, graph.first_backward))
        found = {"forward": top[:first_backward], "backward": top[first_backward:]}
        for side, trace in (("forward", split.forward), ("backward", split.backward)):
            schedule = self.stage.communication.get(side)
            if schedule is not None and trace is not None:
                place = {id(bsym): at for at, bsym in enumerate(filter(is_statement, trace.bound_symbols))}
                found[side] = found[side][[place[id(bsym)] for bsym in schedule.statements]]
        return found

    def orders(self, choices: Mapping[str, str]) -> dict[str, list[int]]:
        """The statements of each schedule in their order under `choices`."""
        schedules = self.stage.communication
        return {side: schedule.arrange(waits.keys(schedule, choices)) for side, schedule in schedules.items()}

    def in_order(self, orders: Mapping[str, list[int]]) -> NDArray[np.intp]:
        """The top-level rows of the plan's graph in their order under `orders`."""
        return np.concatenate([rows[orders[side]] if side in orders else rows for side, rows in self.rows.items()])

    def simulated(self, choices: Mapping[str, str], machine: Machine) -> tuple[Simulation, float]:
        """A step under `choices`, and what no order beats, without a plan."""
        known = self.plan.overlap_on(machine)
        assert known is not None
        order = self.in_order(self.orders(choices))
        return simulate(self.plan.graph, known.cost, order, known.links), known.lower_bound_s

    def ordered(self, choices: Mapping[str, str], begun: float) -> Plan:
        """The plan under `choices`, all of them; `begun` is when planning began."""
        schedules, split = self.stage.communication, self.plan.split
        sites = waits.sites_under(self.plan.sites, self.stage, choices)
        orders = self.orders(choices)
        arranged = time.perf_counter()
        order = self.in_order(orders)
        rows = with_members(self.plan.graph, order)
        graph = reordered(self.plan.graph, rows)
        validate_order(graph)
        read = time.perf_counter()

        def traces() -> tuple[TraceCtx, TraceCtx | None]:
            edited = {
                side: reorder.reordered(trace, schedules[side], orders[side]) if side in schedules else trace
                for side, trace in (("forward", split.forward), ("backward", split.backward))
                if trace is not None
            }
            validate(edited["forward"], edited.get("backward"))
            return edited["forward"], edited.get("backward")

        line = timeline(graph)
        fusions = np.flatnonzero(self.plan.graph.statements.kind == Kind.FUSION)
        moved = np.searchsorted(fusions, rows[graph.statements.kind == Kind.FUSION])
        return dataclasses.replace(
            self.plan,
            graph=graph,
            timeline=line,
            census=self.plan.census.reordered(moved.tolist()),
            sites=sites,
            split=Split(traces),
            unmatched=_unmatched(choices, sites),
            stages=(
                StageTime("order", arranged - begun),
                StageTime("read", read - arranged),
                StageTime("predict", time.perf_counter() - read),
            ),
            unordered=self.plan,
            rows=rows,
            proof=UNPROVEN,
        )


def _unmatched(choices: Mapping[str, str], sites: Sequence[Site]) -> tuple[str, ...]:
    return tuple(sorted(set(choices) - {site.id for site in sites}))


def plan_anew(captured: Capture, choices: Mapping[str, str]) -> tuple[Plan, Stage]:
    """Plan again from the kept joint trace, whatever the choices; with the stage that the levers worked on.

    Raises
    ------
    PlanError
        If a pass made a trace that reads what it does not define.
    ChoiceError
        If a choice is refused.
    """
    log = StageLog()
    hooks = Hooks(captured.executor, choices, log)
    with captured.inside():
        hooks.restart()
        trace = hooks.edit(captured.fresh_stage())
        hooks.mark("edit")
        traces = [
            ("initial", (captured.initial,)),
            ("gradients", (captured.stage.joint,)),
            ("claimed by executors", (captured.stage.claimed,)),
            ("choices before fusion", (trace,)),
        ]
        forward, backward, further = executed(hooks, trace)
        traces += further
        ran = (forward, backward)
        split = Split(lambda: ran)
        validate(split.forward, split.backward)
        hooks.mark("after split")
        assert hooks.stage is not None
        graph = hooks.stage.execution = read_execution(split.forward, split.backward, hooks.stage)
        hooks.mark("read")
        sites = hooks.sites()
        hooks.mark("sites")
    statements = graph.statements
    rows = [i for i in range(len(statements)) if statements.kind[i] == Kind.FUSION]
    fusions = {
        bsym.sym.name: bsym
        for side in (split.forward, split.backward)
        if side is not None
        for bsym in side.bound_symbols
        if bsym.sym.is_fusion
    }
    counted = census(
        [fusion_key(fusions[statements.name[i]], gradients=True) for i in rows],
        [int(statements.side[i]) for i in rows],
        [len(fusions[statements.name[i]].subsymbols) for i in rows],
    )
    line = timeline(graph)
    hooks.mark("predict")
    made = Plan(
        program=captured.program.name,
        device=captured.program.device,
        executor=captured.executor,
        graph=graph,
        timeline=line,
        census=counted,
        sites=sites,
        stages=tuple(log.times),
        split=split,
        counts=_counts(split, graph, hooks.control.options, captured.executor, captured.program.device),
        unmatched=_unmatched(choices, sites),
        warnings=captured.stage.caveats,
        ranks=captured.ranks.count if captured.ranks is not None else 1,
        traces=tuple(traces),
        capture=captured.way,
        capture_reason=captured.why,
        places={
            output: name
            for schedule in hooks.stage.communication.values()
            for output, name in zip(schedule.outputs, schedule.names, strict=True)
        },
    )
    return made, hooks.stage


def _counts(split: Split, graph: Graph, options: FusionOptions, executor: str, device: str) -> dict[str, int]:
    offloads = np.flatnonzero(graph.statements.kind == Kind.OFFLOAD)
    moved = sum(int(graph.values.bytes[graph.statements.outputs[row]].sum()) for row in offloads)
    bsyms = [b for trace in (split.forward, split.backward) if trace is not None for b in trace.bound_symbols]
    fusions = [bsym for bsym in bsyms if bsym.sym.is_fusion]
    inside = list(copies.leaves(bsyms))
    sets = 0
    for fusion in fusions if executor == "nvfuser" else ():
        facts = copies.facts(fusion)
        policies = {fact.output: options.set_policies.get(fact.output, options.set_policy) for fact in facts}
        sets += len(facts) - len(copies.without_set(fusion, policies))
    packs = [b for b in bsyms if b.sym.name.startswith(PACK)]
    return {
        "compilations": compilations(fusions, share=options.share),
        "offloaded_bytes": moved,
        "offload_us": round(2e6 * moved / devices.copy_bandwidth(device)) if moved else 0,
        "copies": sum(copies.is_copy(leaf) for leaf in inside),
        "sets": sets,
        "fences": sum(copies.is_fence(leaf) for leaf in inside),
        "buckets": len(packs),
        "bucket_copied_bytes": _bucket_copied_bytes(graph) if packs else 0,
    }


def _bucket_copied_bytes(graph: Graph) -> int:
    """Bytes written by putting tensors into buckets, and by taking out those that are no views of them."""
    statements, written = graph.statements, 0
    for row in np.flatnonzero((statements.flags & StatementFlag.VIEW) == 0):
        if statements.name[row].startswith((PACK, UNPACK)):
            written += int(graph.values.bytes[statements.outputs[row]].sum())
    return written


def predict(captured: Capture, choices: Mapping[str, str]) -> Prediction | None:
    """Memory under `choices` by arithmetic alone, in milliseconds; None where it takes a plan to know.

    Fusions, offloading and collectives take a plan.
    """
    if captured.ranks is not None:
        return None
    if captured.executor != "torch" or any(c == "offload" and i.startswith("saved:") for i, c in choices.items()):
        return None
    stage = captured.stage
    with captured.inside():
        if not stage.has_backward:
            return stage.predictor.predict()
        return stage.predictor.predict(saved.edit(stage, choices).schedule(stage.graph))
