"""Make the `Chooser` of a fit, and its guides, from the sites and costs of a program.

Without fusions, a chooser predicts memory from the joint graph in milliseconds. With fusions, only a plan contains the
memory that fusions need, so each exact evaluation needs a plan. Guides predict for which assignments (an option for
each storage) a plan should be computed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from workbench.analysis.cost.collective_overlap import costs
from workbench.analysis.fit import fusion_costs
from workbench.analysis.fit.budget_solver import Chooser
from workbench.analysis.fit.fused_joint_graph import FusedJointGraph
from workbench.analysis.fit.guides import GUIDE_NODES
from workbench.analysis.fit.option_costs import OptionRates
from workbench.analysis.memory.liveness import Predictor
from workbench.analysis.memory.peak_by_statement import RECOMPUTE, SAVE, ExactMemory, JointGraphMemory, PeakPositions

if TYPE_CHECKING:
    from workbench.analysis.cost.machines import Machine
    from workbench.bench.session.workbench import Workbench
    from workbench.compiler.api import Plan
    from workbench.compiler.pipeline.lever_context import LeverContext
    from workbench.core.lever import Site


@dataclasses.dataclass(frozen=True)
class StorageSites:
    """The storages that have a site of the lever `saved`.

    Attributes
    ----------
    site_of : mapping of int to Site
        The site of each storage.
    free : mapping of int to tuple of str
        The legal options of each storage that a fit may change.
    fixed : mapping of int to str
        The option of each storage that a fit may not change and that is not saved.
    """

    site_of: Mapping[int, Site]
    free: Mapping[int, tuple[str, ...]]
    fixed: Mapping[int, str]


def sort_sites(context: LeverContext, before: Plan, pinned: Collection[str], options: Collection[str]) -> StorageSites:
    """Sort the sites of storages into those that a fit may change, and all others.

    Parameters
    ----------
    context : LeverContext
    before : Plan
        The plan before the fit.
    pinned : collection of str
        Ids of the sites that the fit may not change.
    options : collection of str
        The options that the fit may choose.
    """
    sites: dict[int, Site] = {}
    free: dict[int, tuple[str, ...]] = {}
    fixed: dict[int, str] = {}
    known = {site.values: site for site in before.sites if site.lever == "saved" and site.values}
    names = context.graph.values.name
    for storage in context.recomputer.storages().tolist():
        site = known.get(tuple(names[v] for v in context.recomputer.values_on(storage)))
        if site is None:
            continue
        sites[storage] = site
        if site.id not in pinned and site.default == SAVE:
            free[storage] = tuple(o for o in site.options if o in options and o not in site.illegal)
        elif site.choice != SAVE:
            fixed[storage] = site.choice
    return StorageSites(sites, free, fixed)


class _How(TypedDict):
    along: bool
    gather: bool
    ahead: int


class ChooserMaker:
    """Makes choosers for the storages of one program.

    Parameters
    ----------
    bench : Workbench
    context : LeverContext
    before : Plan
        The plan before the fit.
    sites : StorageSites
    machine : Machine
        Machine model for the times of statements.
    go_on : callable
        Called before each evaluation. An exception from `go_on` ends the search.

    Attributes
    ----------
    positions : PeakPositions
    memory : callable
        Predicts the memory under options of storages from the joint graph, without a plan.
    """

    def __init__(
        self,
        bench: Workbench,
        context: LeverContext,
        before: Plan,
        sites: StorageSites,
        machine: Machine,
        go_on: Callable[[], None],
    ) -> None:
        from workbench.compiler.interop.devices import copy_bandwidth

        self._context, self._before, self._machine, self._go_on = context, before, machine, go_on
        self._free, self._fixed = sites.free, sites.fixed
        cost = costs(context.graph, machine, bench.ranks)
        on_gpu = bench.program.device != "cpu"
        seconds = cost.compute_s + (0.0 if on_gpu else cost.host_s)
        again, self._least, self._remade = None, None, frozenset[int]()
        if context.fuses:
            found = fusion_costs.storages_remade(context.recomputer, before.graph)
            self._remade = frozenset(storage for storage in found if RECOMPUTE in sites.free.get(storage, ()))
            again, self._least = fusion_costs.recompute_costs(
                context.recomputer, before.graph, machine, seconds, self._remade
            )
        self._rates = OptionRates(
            seconds=seconds,
            offload_bytes_per_s=copy_bandwidth(bench.program.device),
            hides=on_gpu,
            again=again,
        )
        self._how = _How(
            along=before.site_of["saved.inputs"].choice == "along",
            gather=context.gathers_again,
            ahead=int(before.site_of["saved.ahead"].choice),
        )
        self.positions = PeakPositions(context.recomputer, context.predictor)
        self._fixed_and_remade = {**sites.fixed, **dict.fromkeys(self._remade, RECOMPUTE)}
        self.memory = self._memory(self._fixed_and_remade, self._how)

    def quick(self) -> Chooser:
        """Return a chooser that predicts memory from the joint graph."""
        return self._quick(self._free, self._fixed, self._how)

    def with_plans(self, plan_memory: Callable[[Mapping[int, str]], ExactMemory]) -> Chooser:
        """Return a chooser that evaluates assignments by `plan_memory`, which computes a plan. It has guides."""
        guides: tuple[Callable[[], Chooser], ...]
        if self._remade:
            guides = (self._nearest_guide, self._nearer_guide, self._further_guide)
        elif self._context.fuses:
            guides = (self._nearest_guide, self._further_guide)
        else:
            guides = (self._further_guide,)
        return Chooser(
            self._context.recomputer,
            self.positions,
            dataclasses.replace(self._rates, least=self._least),
            plan_memory,
            self._free,
            self._fixed,
            quick=False,
            go_on=self._go_on,
            guides=guides,
            remade=self._remade,
            **self._how,
        )

    # Guides: the first predicts the figures of plans most exactly, the last reaches lower peaks.

    def _nearest_guide(self) -> Chooser:
        """Return a guide for the joint graph with the fusions of the plan, each of which is one statement."""
        context, along, gather = self._context, self._how["along"], self._how["gather"]
        fused = FusedJointGraph(
            context.recomputer, self._before.graph, self._free, self._remade, along=along, gather=gather
        )
        how, predictor = self._fused_how(), Predictor(fused.work.graph)
        positions = PeakPositions(fused.work, predictor)
        again, _ = fusion_costs.recompute_costs(
            fused.work, self._before.graph, self._machine, self._rates.seconds, self._remade
        )
        memory = JointGraphMemory(fused.work, predictor, positions, self._fixed_and_remade, **how)
        return Chooser(
            fused.work,
            positions,
            dataclasses.replace(self._rates, again=again),
            self._stoppable(memory),
            fused.free,
            self._fixed_and_remade,
            quick=True,
            go_on=self._go_on,
            nodes=GUIDE_NODES,
            stands_for=fused.joint_options,
            **how,
        )

    def _nearer_guide(self) -> Chooser:
        """Return a guide that chooses nothing for the storages that fusions recompute anyway."""
        free = {storage: options for storage, options in self._free.items() if storage not in self._remade}
        return self._quick(free, self._fixed_and_remade, self._fused_how(), nodes=GUIDE_NODES, dragged=self._remade)

    def _further_guide(self) -> Chooser:
        """Return a guide that ignores fusions, except in the limit on how early a transfer may start (`saved.ahead`).

        For this limit, a fusion counts as one statement.
        """
        return self._quick(self._free, self._fixed, self._fused_how(), nodes=GUIDE_NODES)

    def _quick(
        self, free: Mapping[int, Sequence[str]], fixed: Mapping[int, str], how: _How, **settings: Any
    ) -> Chooser:
        return Chooser(
            self._context.recomputer,
            self.positions,
            self._rates,
            self._stoppable(self._memory(fixed, how)),
            free,
            fixed,
            quick=True,
            go_on=self._go_on,
            **how,
            **settings,
        )

    def _memory(self, fixed: Mapping[int, str], how: _How) -> JointGraphMemory:
        return JointGraphMemory(self._context.recomputer, self._context.predictor, self.positions, fixed, **how)

    def _fused_how(self) -> _How:
        ahead = self.positions.positions_ahead(self._before.graph, self._how["ahead"])
        return _How(**{**self._how, "ahead": ahead})

    def _stoppable(self, memory: JointGraphMemory) -> Callable[[Mapping[int, str]], ExactMemory]:
        def weigh(options: Mapping[int, str]) -> ExactMemory:
            self._go_on()
            return memory(options)

        return weigh
