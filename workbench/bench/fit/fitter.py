"""`Fitter`: find the options of storages and the orders with the least step time within a limit on peak memory.

An option is to save, recompute or offload a storage. Orders are the order of statements and the order of collectives. A
limit is a limit on peak memory, or on reserved memory with `reserved`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.fit.option_costs import OptionCost
from workbench.analysis.memory.peak_by_statement import RECOMPUTE, SAVE, ExactMemory
from workbench.bench.fit import order_presets
from workbench.bench.fit.cut_search import compute_s, site_kind
from workbench.bench.fit.explain_fit import Explanation
from workbench.bench.fit.fit_result import Fit
from workbench.bench.fit.infeasible import (
    largest_at_peak,
    peak_line,
    peak_too_low,
    step_too_short,
    too_few_compilations,
)
from workbench.bench.fit.make_chooser import ChooserMaker, sort_sites
from workbench.bench.fit.order_presets import PresetPlan
from workbench.bench.fit.planned_points import PlannedPoints, fastest_first, other_choices_of, with_other_choices
from workbench.bench.session.fit_request import ORDER, STORAGES, WAITS, check_using
from workbench.core.lever import lever_of
from workbench.errors import PlanError
from workbench.util.gc_pause import paused_gc

if TYPE_CHECKING:
    from workbench.analysis.cost.machines import Machine
    from workbench.bench.session.workbench import Workbench
    from workbench.compiler.api import Capture, Plan

_TRIES = 8
"""Maximum number of limits that one search gives to the chooser."""
_TRIES_BESIDE = 4
"""Maximum number of new plans for one limit and one other order."""
_PLANNED_BESIDE = 4_000
"""Maximum total of statements in the plans that are computed to lower the peak memory under one order.

At least `_TRIES_BESIDE` plans are allowed, even if they have more statements.
"""
_HALVINGS = 12


class Fitter:
    """Finds choices for one limit after another, and reuses the results for earlier limits.

    A result is called a point: options of storages, choices for other sites, and their memory and time. The choices in
    `bench.by_hand` do not change. The fitter only finds choices: it does not add them to the bench.

    Parameters
    ----------
    bench : Workbench
    captured : Capture
        The bench's program.
    machine : Machine
        Machine model for the step time.
    go_on : callable, optional
        Called before each long computation. An exception from `go_on` ends the search.
    keep : bool
        Whether to cache the plans.
    using : sequence of str
        Allowed kinds of choices, from `workbench.bench.session.fit_request.USING`.
    known_points : iterable of PresetPlan
        Results of an earlier fitter for the same program, machine and choices made by hand.
    base : mapping of str to str
        Choices of cuts between fusions. They are part of all plans; see `workbench.bench.fit.fit_with_cuts`.
    compilations : int, optional
        Maximum number of compilations of a plan.
    reserved : bool
        Whether limits are for the predicted reserved memory of a plan, instead of its peak memory.
        `PresetPlan.planned_bytes` is then the reserved memory.

    Raises
    ------
    PlanError
        If the program has no backward.
    """

    @paused_gc()
    def __init__(
        self,
        bench: Workbench,
        captured: Capture,
        machine: Machine,
        go_on: Callable[[], None] = lambda: None,
        *,
        keep: bool = True,
        using: Sequence[str] = STORAGES,
        known_points: Iterable[PresetPlan] = (),
        base: Mapping[str, str] = MappingProxyType({}),
        compilations: int | None = None,
        reserved: bool = False,
    ) -> None:
        context = captured.context
        if not context.has_backward:
            raise PlanError(f"{bench.program.name} has no backward, so there is nothing to save or recompute")
        self._bench, self._context, self.machine, self._go_on = bench, context, machine, go_on
        self._limited_bytes, self._reserved = reserved_of if reserved else peak_of, reserved
        self._planned = functools.partial(bench.plan_with, keep=keep)
        self.using = check_using(using)
        self._options = (SAVE, *(option for option in STORAGES if option in self.using))
        self._points = PlannedPoints(known_points, compilations)
        self._least: OptionCost | None = None
        self.base = dict(base)
        self.pinned = {**bench.pinned, **base}
        self.before = bench.plan_with(self.pinned)
        self.before_waiting_s = self._waiting_s(self.before)
        self.step_s = self._compute_s(self.before)
        self._unchanged = bench.by_hand | self.pinned.keys()
        self._orders = order_presets.orders_to_try(self.before, self.using, self._unchanged)
        self._moves_waits = order_presets.may_move_waits(self.before, self.using, self._unchanged)
        self._captured = captured
        sites = sort_sites(context, self.before, self._unchanged, self._options)
        self._site_of, self._free, sizes = sites.site_of, sites.free, context.graph.storages.bytes
        self._by_bytes = sorted(self._free, key=lambda storage: -int(sizes[storage]))
        maker = ChooserMaker(bench, context, self.before, sites, machine, go_on)
        self._places, self._memory = maker.positions, maker.memory
        # Only a plan contains the memory that fusions need, and the order in which blocks are allocated and freed.
        self.chooser = maker.with_plans(self._plan_memory) if context.fuses or reserved else maker.quick()

    @property
    def points(self) -> tuple[PresetPlan, ...]:
        """All points found so far that a fit may return, including `known_points`."""
        return tuple(self._points)

    def choices(self, point: OptionCost) -> dict[str, str]:
        """Return the choices of a point: the option of each site, for storages and for other sites."""
        return {**{self._site_of[s].id: option for s, option in point.options.items()}, **other_choices_of(point)}

    def plan(self, point: OptionCost) -> Plan:
        """Return the plan under the choices of a point and the pinned choices."""
        self._go_on()
        return self._planned_point(point)[1]

    def _planned_point(self, point: OptionCost) -> tuple[PresetPlan, Plan]:
        made = self.choices(point)
        plan = self._planned({**self.pinned, **made}) if made else self.before
        compilations = plan.counts["compilations"]
        planned_bytes = self._limited_bytes(plan)
        return self._keep(point, other_choices_of(point), planned_bytes, self._waiting_s(plan), compilations), plan

    def _keep(
        self,
        point: OptionCost,
        other_choices: Mapping[str, str],
        planned_bytes: int,
        waiting_s: float,
        compilations: int,
    ) -> PresetPlan:
        found = dataclasses.replace(
            with_other_choices(point, other_choices),
            planned_bytes=planned_bytes,
            waiting_s=waiting_s,
            compilations=compilations,
        )
        if self._may_choose(found):
            self._points.add(found)
        return found

    def _may_choose(self, point: PresetPlan) -> bool:
        """Return whether all options of a point are among the options that this fitter may choose.

        If not, the point can be evaluated, but a fit never returns it.
        """
        levers = {ORDER, WAITS}.intersection(self.using)
        return all(option in self._free.get(storage, ()) for storage, option in point.options.items()) and all(
            lever_of(id) in levers for id in point.beside
        )

    def _compute_s(self, plan: Plan) -> float:
        return compute_s(self._bench, plan, self.machine)

    def _waiting_s(self, plan: Plan) -> float:
        known = plan.overlap_on(self.machine)
        return 0.0 if known is None else known.simulation.idle_compute_s

    @paused_gc()
    def lowest_peak(self) -> tuple[PresetPlan, Plan]:
        """Search for the lowest peak memory, at any step time. Return the best point found, and its plan."""
        if self._least is None:
            self._least = self.chooser.least()
            self.plan(self._least)
            for order in self._orders:
                self._lower_peak(order)
        lowest = min(self._points, key=lambda found: (found.planned_bytes, found.whole_s))
        return lowest, self.plan(lowest)

    def fastest_planned(self, limit_bytes: int) -> PresetPlan | None:
        """Return the fastest of the points found so far that are within a limit; None if no point is within it."""
        return self._points.fastest(limit_bytes)

    def _plan_in_order(self, point: OptionCost, order: Mapping[str, str]) -> PresetPlan:
        """Compute the plan of a point under an order of statements, and return the point with this order.

        If the fit may move collectives, compute a plan for each preset order of collectives. Return the point with the
        lowest peak memory.
        """
        planned = self._points.get(point.options, order)
        if planned is None:
            self._go_on()
            planned, _ = self._planned_point(with_other_choices(point, order))
        found = [planned]
        if self._moves_waits:
            made = {**self.pinned, **self.choices(found[0])}
            for waits, peak_bytes, waiting_s in order_presets.wait_orders(self._captured, made, self.machine):
                self._go_on()
                compilations = found[0].compilations
                found.append(self._keep(point, {**order, **waits}, peak_bytes, waiting_s, compilations))
        return min(found, key=lambda one: (one.planned_bytes, one.whole_s))

    def _try_orders(self, limit_bytes: int) -> None:
        """Search for faster plans within a limit under other orders of statements.

        Options of storages that exceed the limit under the present order may be within the limit under another order.
        """
        for order in self._orders:
            self._plan_in_order(self.chooser.stock, order)
            gained = (found.peak_bytes - found.planned_bytes for found in self.points if found.beside == order)
            low, high = limit_bytes, max(limit_bytes, self.chooser.stock.peak_bytes)
            aim, tries_left = min(limit_bytes + max(0, *gained, 0), high), _TRIES_BESIDE
            for _ in range(_TRIES):
                point = self.chooser.fit(aim) or self.chooser.least()
                best = self.fastest_planned(limit_bytes)
                over = False
                if best is None or point.added_s < (best.whole_s if self._moves_waits else best.added_s):
                    tries_left -= self._points.get(point.options, order) is None
                    over = self._plan_in_order(point, order).planned_bytes > limit_bytes
                low, high = (low, aim - 1) if over else (aim + 1, high)
                aim = (low + high) // 2
                if low > high or not tries_left:
                    break

    def _lower_peak(self, order: Mapping[str, str]) -> None:
        """Search for a lower peak memory under an order: recompute or offload one further storage at a time.

        Storages that free bytes at the peak are tried first.
        """
        assert self._least is not None
        starts = (self._plan_in_order(point, order) for point in (self._least, self.chooser.stock))
        lowest = min(starts, key=lambda found: found.planned_bytes)
        tries_left = max(_TRIES_BESIDE, _PLANNED_BESIDE // max(1, self._places.count))
        while True:
            start, at = lowest, int(np.argmax(self._peaks(self.plan(lowest))))
            # Storages that free no bytes at the peak under the original order may free bytes under this order. Try them
            # afterwards, the largest first.
            others = ((s, o) for s in self._by_bytes for o in self._free[s] if o != SAVE and s not in start.options)
            turns = dict.fromkeys((*self.chooser.helpful_choices(start, at), *others))
            for storage, option in [*turns][: max(0, tries_left)]:
                tries_left -= 1
                found = self._plan_in_order(self.chooser.point({**start.options, storage: option}), order)
                lowest = min(lowest, found, key=lambda found: found.planned_bytes)
            if lowest is start:
                break

    def point(self, choices: Mapping[str, str]) -> OptionCost:
        """Return the options of storages in `choices` as a point. Choices for other sites are ignored."""
        storages = {site.id: storage for storage, site in self._site_of.items()}
        free = {id: option for id, option in choices.items() if id in storages and id not in self._unchanged}
        options = {storages[id]: option for id, option in free.items()}
        return self.chooser.point({storage: option for storage, option in options.items() if option != SAVE})

    def plan_of_choices(self, choices: Mapping[str, str]) -> tuple[PresetPlan, Plan]:
        """Return the choices for storages and orders as a point, and the plan of this point. Ignore other choices."""
        moving = ("order.", "order:", "waits.", "waits:")
        beside = {id: option for id, option in choices.items() if id.startswith(moving) and id not in self._unchanged}
        self._go_on()
        return self._planned_point(with_other_choices(self.point(choices), beside))

    def _predict_memory(self, options: Mapping[int, str]) -> ExactMemory:
        self._go_on()
        return self._memory(options)

    def _plan_memory(self, options: Mapping[int, str]) -> ExactMemory:
        self._go_on()
        made = {self._site_of[storage].id: option for storage, option in options.items()}
        plan = self._planned({**self.pinned, **made}) if made else self.before
        unused_bytes = self._limited_bytes(plan) - plan.peak_bytes
        return ExactMemory(
            peak_bytes=plan.peak_bytes + unused_bytes,
            saved_bytes=plan.saved_bytes,
            peaks=self._peaks(plan) + unused_bytes,
            compute_s=self._compute_s(plan),
        )

    def _peaks(self, plan: Plan) -> NDArray[np.int64]:
        line = plan.timeline
        return self._places.peaks_of_plan(self._context.graph, plan.graph, line.statement_peak_bytes, line.after_bytes)

    def fit_peak(self, limit_bytes: int) -> tuple[PresetPlan, Plan]:
        """Search for the fastest point whose plan is within a limit. Return the best point found, and its plan.

        Raises
        ------
        Unmet
            If no computed plan is within the limits. The message names the least peak memory or the least number of
            compilations.
        """
        found = self.find(limit_bytes)
        if found is None:
            most, within = self._points.compilations, self._points.within(limit_bytes)
            if most is not None and within:
                least_count = min(found.compilations for found in within)
                raise too_few_compilations(self._bench, most, limit_bytes, least_count)
            least = self.lowest_peak()[1]
            raise peak_too_low(self._bench, limit_bytes, self.before, least, self.using, reserved=self._reserved)
        return found, self.plan(found)

    @paused_gc()
    def find(self, limit_bytes: int, *, hard: bool = True, below_s: float = np.inf) -> PresetPlan | None:
        """Search for the fastest point within a limit. Return the best point found; None if none is within the limit.

        Parameters
        ----------
        limit_bytes : int
        hard : bool
            Whether to search for the least peak memory if the first search finds no point.
        below_s : float
            The caller needs only points that add less than `below_s`; see `Chooser.fit`.
        """
        if not self._moves_waits:
            for order in self._orders:
                self._plan_in_order(self.chooser.stock, order)
            found = self.fastest_planned(limit_bytes)
            if found is not None and not found.options and self._limited_bytes(self.before) > limit_bytes:
                # Without fusions, no point is faster. With fusions, a point may be faster, but this search stops here.
                return found
        aim = limit_bytes
        for _ in range(_TRIES):
            point = self.chooser.fit(aim, below_s=below_s)
            if point is None:
                if hard:
                    self.lowest_peak()
                break
            over_bytes = self._limited_bytes(self.plan(point)) - limit_bytes
            if over_bytes <= 0:
                break
            # The plan's peak memory is a little higher than the peak memory that the chooser has computed. Lower the
            # limit by the difference.
            aim -= over_bytes
        self._try_orders(limit_bytes)
        found = self.fastest_planned(limit_bytes) or self._fastest_uniform(limit_bytes)
        if found is None:
            return None
        stock = self._points.get({}, {})
        fits = stock is not None and stock.planned_bytes <= limit_bytes and self._points.has_few_compilations(stock)
        return stock if stock is not None and fits and stock.whole_s <= found.whole_s else found

    def _fastest_uniform(self, limit_bytes: int) -> PresetPlan | None:
        """Return the fastest point within a limit and within the maximum number of compilations; None if there is none.

        If a known point recomputes a value in only some layers, first compute the plan that recomputes it in all
        layers. Then all layers have equal fusions, which are compiled only once.
        """
        if self._points.compilations is None:
            return None
        of_kind: dict[str, list[int]] = {}
        for storage in self._free:
            of_kind.setdefault(site_kind(self._site_of[storage].id), []).append(storage)
        for found in sorted(self._points.within(limit_bytes), key=fastest_first)[:_TRIES_BESIDE]:
            options = dict(found.options)
            for alike in of_kind.values():
                if any(found.options.get(storage) == RECOMPUTE for storage in alike):
                    options |= {storage: RECOMPUTE for storage in alike if RECOMPUTE in self._free[storage]}
            self._plan_in_order(self.chooser.point(options), found.beside)
        return self.fastest_planned(limit_bytes)

    @paused_gc()
    def fit_time(self, step_s: float) -> tuple[PresetPlan, Plan]:
        """Search for the lowest peak memory with a step time of at most `step_s`. Return the best point, and its plan.

        Raises
        ------
        PlanError
            If the step of every computed plan takes longer.
        """
        self.plan(self.chooser.stock)
        for order in self._orders:
            self._plan_in_order(self.chooser.stock, order)
        saved_s = self.step_s + min(found.waiting_s for found in self._points if not found.options)
        # With fusions, a plan that recomputes storages may be faster than the plan that saves all of them.
        if step_s < saved_s and not self._context.fuses:
            raise step_too_short(self._bench, step_s, saved_s, self.machine)
        low, high = self.chooser.least().peak_bytes, self.chooser.stock.peak_bytes
        for _ in range(_HALVINGS):
            middle = (low + high) // 2
            point = self.chooser.fit(middle)
            if point is not None and saved_s + point.added_s <= step_s:
                high = middle
            else:
                low = middle
        point = self.chooser.lowest_known(step_s, saved_s)
        self.fit_peak(point.peak_bytes)
        for order in self._orders:
            self._plan_in_order(point, order)
        quick = [
            found
            for found in self.points
            if self.step_s + found.whole_s <= step_s and self._points.has_few_compilations(found)
        ]
        if not quick:
            raise step_too_short(self._bench, step_s, saved_s, self.machine)
        found = min(quick, key=lambda found: (found.planned_bytes, *fastest_first(found)))
        return found, self.plan(found)

    @paused_gc()
    def explain(self, point: OptionCost, plan: Plan, limit_bytes: int) -> Fit:
        """Convert a point to a `Fit`, which contains the reasons for its choices."""
        beside = other_choices_of(point)
        still = {id: option for id, option in self.choices(point).items() if id not in beside}
        higher_bytes = self._planned({**self.pinned, **still}).peak_bytes - plan.peak_bytes if beside else 0
        explanation = Explanation(point, self.chooser, self._site_of, self._predict_memory, fuses=self._context.fuses)
        return Fit(
            limit_bytes=limit_bytes,
            peak_bytes=plan.peak_bytes,
            saved_bytes=plan.saved_bytes,
            before_peak_bytes=self.before.peak_bytes,
            peak_is_lower_bound=self.before.peak_at_least or plan.peak_at_least,
            limits_reserved=self._reserved,
            reserved_bytes=plan.reserved.reserved_bytes if plan.reserved is not None else None,
            before_reserved_bytes=self.before.reserved.reserved_bytes if self.before.reserved is not None else None,
            choices=self.choices(point),
            why=explanation.reasons(),
            step_s=self.step_s,
            added_s=point.added_s,
            bound=self.chooser.bound(limit_bytes),
            machine=self.machine.name,
            binding=peak_line(plan),
            held=tuple(largest_at_peak(plan)),
            looser=explanation.best_to_save(),
            tighter=explanation.best_to_release(),
            using=self.using,
            beside=beside,
            beside_peak_bytes=higher_bytes,
            before_compilations=self.before.counts["compilations"],
            compilations=plan.counts["compilations"],
            before_waiting_s=self.before_waiting_s,
            waiting_s=self._waiting_s(plan),
        )


def peak_of(plan: Plan) -> int:
    """Return the predicted peak memory of a plan."""
    return plan.peak_bytes


def reserved_of(plan: Plan) -> int:
    """Return the predicted reserved memory of a plan for a GPU."""
    assert plan.reserved is not None, "the plan has no reserved memory, because it is not for a GPU"
    return plan.reserved.reserved_bytes
