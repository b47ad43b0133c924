"""`fit`: find choices that meet a limit. `FitterWithCuts` runs a `Fitter` for each of a few sets of cuts.

A cut is the set of values that one fusion passes to another. In `FitterWithCuts`, a limit is a limit on peak memory, or
on reserved memory with `reserved`. A result is a `PresetPlan`: options of storages, and choices of orders and cuts,
with the figures of their plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE
from workbench.bench.fit import order_presets
from workbench.bench.fit.cut_search import SHARED, Cuts, CutSearch, compute_s, worth_trying
from workbench.bench.fit.fit_result import Fit
from workbench.bench.fit.fitter import Fitter, peak_of, reserved_of
from workbench.bench.fit.infeasible import Unmet, peak_too_low, too_few_compilations
from workbench.bench.fit.order_presets import PresetPlan
from workbench.bench.fit.planned_points import fastest_first
from workbench.bench.session.fit_request import (
    CUTS,
    STORAGES,
    check_compilations,
    check_reserved,
    check_using,
    peak_bytes,
    step_seconds,
)
from workbench.errors import ChoiceError

if TYPE_CHECKING:
    from workbench.analysis.cost.machines import Machine
    from workbench.analysis.fit.lp_bound import Bound
    from workbench.bench.session.workbench import Workbench
    from workbench.compiler.api import Capture, Plan


class FitterWithCuts:
    """Like a `Fitter`, but also tries a few other sets of cuts between fusions.

    If `using` does not contain ``cuts``, no other cuts are tried, and the results equal the results of a `Fitter`. The
    added seconds of a result are relative to the plan that has only the choices made by hand.

    Parameters
    ----------
    bench, captured, machine, go_on, keep, using, compilations, reserved
        As in `Fitter`. With `compilations`, identical fusions are compiled once.
    reused : FitterWithCuts, optional
        An earlier instance for the same program, machine and choices made by hand. Its plans are reused. Another thread
        may use it meanwhile.

    Raises
    ------
    PlanError
        If the program has no backward.
    """

    def __init__(
        self,
        bench: Workbench,
        captured: Capture,
        machine: Machine,
        go_on: Callable[[], None] = lambda: None,
        *,
        keep: bool = True,
        using: Sequence[str] = STORAGES,
        reused: FitterWithCuts | None = None,
        compilations: int | None = None,
        reserved: bool = False,
    ) -> None:
        self._reserved = reserved
        self._bench, self.machine, self.using, self._most = bench, machine, check_using(using), compilations
        self._go_on, self._keep, self._captured, self._followers = go_on, keep, captured, reused
        self.before = bench.plan_with(bench.pinned)
        self.step_s = compute_s(bench, self.before, machine)
        once = compilations is not None and order_presets.may_share(self.before, bench.by_hand)
        self._bases: list[dict[str, str]] = [dict(SHARED) if once else {}]
        self._fitters: dict[int, Fitter] = {}
        self.table: Cuts | None = reused.table if reused is not None else None
        first = self._fitter(0)
        self.before_waiting_s = first.before_waiting_s
        if CUTS in self.using and self.before.census.count:
            if self.table is None:
                self.table = CutSearch(bench, machine, go_on, keep=keep).table()
            self._bases += [{**cut, **self._bases[0]} for cut in worth_trying(self.table, compilations)]

    @property
    def bench(self) -> Workbench:
        """The bench of the program."""
        return self._bench

    @property
    def limits_compilations(self) -> bool:
        """Whether the number of compilations is limited."""
        return self._most is not None

    def without_offloading(self) -> FitterWithCuts:
        """Return an instance that offloads nothing."""
        return FitterWithCuts(
            self._bench,
            self._captured,
            self.machine,
            self._go_on,
            keep=self._keep,
            using=tuple(name for name in self.using if name != OFFLOAD),
            compilations=self._most,
            reserved=self._reserved,
        )

    def _fitter(self, index: int) -> Fitter:
        if index not in self._fitters:
            base, after = self._bases[index], self._followers
            known = [
                fitter.points
                for fitter in (tuple(after._fitters.values()) if after is not None else ())
                if fitter.base == base
            ]
            self._fitters[index] = Fitter(
                self._bench,
                self._captured,
                self.machine,
                self._go_on,
                keep=self._keep,
                using=self.using,
                known_points=known[0] if known else (),
                base=base,
                compilations=self._most,
                reserved=self._reserved,
            )
        return self._fitters[index]

    def _all_fitters(self) -> Iterator[Fitter]:
        return (self._fitter(at) for at in range(len(self._bases)))

    def _lead_s(self, fitter: Fitter) -> float:
        return fitter.step_s - self.step_s

    def _from_stock(self, fitter: Fitter, point: PresetPlan) -> PresetPlan:
        """Add the fitter's cuts to its result, and convert the result's seconds to a difference from `self.before`."""
        return dataclasses.replace(
            point, recompute_s=point.recompute_s + self._lead_s(fitter), beside={**fitter.base, **point.beside}
        )

    def _split_result(self, point: PresetPlan) -> tuple[Fitter, PresetPlan]:
        """Undo `_from_stock`: return the fitter that found a result, and the result as this fitter has returned it."""
        fitter = max(
            (fitter for fitter in self._fitters.values() if fitter.base.items() <= point.beside.items()),
            key=lambda fitter: len(fitter.base),
        )
        beside = {id: option for id, option in point.beside.items() if id not in fitter.base}
        return fitter, dataclasses.replace(point, recompute_s=point.recompute_s - self._lead_s(fitter), beside=beside)

    def choices(self, point: PresetPlan) -> dict[str, str]:
        """Return the choices of a result, by site: options of storages, cuts, and orders."""
        fitter, own = self._split_result(point)
        return {**fitter.base, **fitter.choices(own)}

    def plan(self, point: PresetPlan) -> Plan:
        """Return the plan under the choices of a result and the pinned choices."""
        fitter, own = self._split_result(point)
        return fitter.plan(own)

    def bound(self, point: PresetPlan, limit_bytes: int) -> Bound:
        """Return a lower bound on the step time of all plans that have the result's cuts and are within the limit."""
        fitter, _ = self._split_result(point)
        return self._bound(fitter, limit_bytes)

    def _bound(self, fitter: Fitter, limit_bytes: int) -> Bound:
        bound = fitter.chooser.bound(limit_bytes)
        return dataclasses.replace(bound, added_s=bound.added_s + self._lead_s(fitter))

    def start(self) -> None:
        """Compute the plan that saves every storage: with the present cuts, and with each set of cuts to try."""
        for fitter in self._all_fitters():
            fitter.plan(fitter.chooser.stock)

    def fastest_planned(self, limit_bytes: int) -> PresetPlan | None:
        """Return the fastest result within a limit among the results with a plan so far; None if there is none."""
        found = ((fitter, fitter.fastest_planned(limit_bytes)) for fitter in self._fitters.values())
        return min(
            (self._from_stock(fitter, one) for fitter, one in found if one is not None), key=fastest_first, default=None
        )

    def lowest_peak(self) -> tuple[PresetPlan, Plan]:
        """Search for the lowest peak memory, at any step time. Return the best result found, and its plan."""
        lowest = min(
            (self._from_stock(fitter, fitter.lowest_peak()[0]) for fitter in self._all_fitters()),
            key=lambda found: (found.planned_bytes, found.whole_s),
        )
        return lowest, self.plan(lowest)

    def fit_peak(self, limit_bytes: int) -> tuple[PresetPlan, Plan]:
        """Search for the fastest result whose plan is within a limit. Return the best result found, and its plan.

        Raises
        ------
        PlanError
            If no computed plan is within the limits. The message names the least peak memory or the least number of
            compilations.
        """
        first, best = self._fitter(0), None

        def hoped_s(fitter: Fitter) -> float:
            return self._lead_s(fitter) + fitter.chooser.hoped_s(limit_bytes)

        # Start with the fitter that has the least estimated step time. Skip a fitter whose lower bound is not below the
        # time of the best result so far. With `below_s`, a fitter ends as soon as it cannot find a faster result.
        fitters = list(self._all_fitters())
        for fitter in sorted(fitters, key=hoped_s) if len(fitters) > 1 else fitters:
            if best is not None and best.whole_s <= self._bound(fitter, limit_bytes).added_s:
                continue
            below_s = float("inf") if best is None else best.whole_s - self._lead_s(fitter)
            found = fitter.find(limit_bytes, hard=fitter is first and best is None, below_s=below_s)
            told = None if found is None else self._from_stock(fitter, found)
            best = min(filter(None, (best, told)), key=fastest_first, default=None)
        if best is None:
            return self._best(lambda fitter: fitter.fit_peak(limit_bytes)[0], fastest_first)
        return best, self.plan(best)

    def fit_time(self, step_s: float) -> tuple[PresetPlan, Plan]:
        """Search for the lowest peak memory with a step time of at most `step_s`. Return the best result, and its plan.

        Raises
        ------
        PlanError
            If the step of every computed plan takes longer.
        """
        return self._best(
            lambda fitter: fitter.fit_time(step_s)[0], lambda found: (found.planned_bytes, *fastest_first(found))
        )

    def _best(
        self, find: Callable[[Fitter], PresetPlan], key: Callable[[PresetPlan], tuple[float, ...]]
    ) -> tuple[PresetPlan, Plan]:
        """Return the best result of all fitters, and its plan.

        If no fitter meets the limit, raise the error of the fitter whose result is nearest to the limit.
        """
        found, refused = [], []
        for fitter in self._all_fitters():
            try:
                found.append(self._from_stock(fitter, find(fitter)))
            except Unmet as error:
                refused.append(error)
        if not found:
            raise min(refused, key=lambda error: error.nearest)
        best = min(found, key=key)
        return best, self.plan(best)

    def fastest_all_saved(self) -> tuple[PresetPlan, Plan]:
        """Search for the fastest result within the maximum number of compilations. Return it, and its plan.

        Peak memory is not limited, so only plans that save every storage are computed.

        Raises
        ------
        PlanError
            If all computed plans have more compilations. The message names the least number.
        """
        assert self._most is not None
        self.start()
        found = self.fastest_planned(1 << 62)
        if found is None:
            fewest = min(one.compilations for fitter in self._fitters.values() for one in fitter.points)
            if self.table is not None:
                fewest = min(fewest, *(cut.compilations for cut in self.table))
            raise too_few_compilations(self._bench, self._most, None, fewest)
        return found, self.plan(found)

    def step_under(self, choices: Mapping[str, str]) -> float:
        """Return the seconds of a step under `choices`, a map from sites to options."""
        fitter, others = self._fitter_for(choices)
        own_s = fitter.plan_of_choices(others)[0].whole_s if fitter.before_waiting_s else fitter.point(others).added_s
        return fitter.step_s + own_s

    def plan_of_choices(self, choices: Mapping[str, str]) -> tuple[PresetPlan, Plan]:
        """Return the result that consists of `choices`, a map from sites to options, and its plan."""
        fitter, others = self._fitter_for(choices)
        found, plan = fitter.plan_of_choices(others)
        return self._from_stock(fitter, found), plan

    def _fitter_for(self, choices: Mapping[str, str]) -> tuple[Fitter, dict[str, str]]:
        """Return the fitter for the cuts in `choices`, and the remaining choices."""
        bases = [at for at, base in enumerate(self._bases) if base.items() <= choices.items()]
        fitter = self._fitter(max(bases, key=lambda at: len(self._bases[at]), default=0))
        return fitter, {id: option for id, option in choices.items() if id not in fitter.base}

    def explain(self, point: PresetPlan, plan: Plan, limit_bytes: int) -> Fit:
        """Convert a result to a `Fit`, which contains the reasons for its choices."""
        fitter, own = self._split_result(point)
        fit = fitter.explain(own, plan, limit_bytes)
        if not fitter.base:
            return fit
        beside = {**fitter.base, **fit.beside}
        still = {id: option for id, option in fit.choices.items() if id not in beside}
        without = self._bench.plan_with({**self._bench.pinned, **still}, keep=self._keep)
        return dataclasses.replace(
            fit,
            before_peak_bytes=self.before.peak_bytes,
            before_reserved_bytes=self.before.reserved.reserved_bytes if self.before.reserved is not None else None,
            before_compilations=self.before.counts["compilations"],
            choices={**fitter.base, **fit.choices},
            beside=beside,
            beside_peak_bytes=without.peak_bytes - plan.peak_bytes,
            step_s=self.step_s,
            added_s=point.added_s,
            bound=self.bound(point, limit_bytes),
            before_waiting_s=self.before_waiting_s,
        )


def fit(
    bench: Workbench,
    captured: Capture,
    machine: Machine,
    peak: int | str | None,
    step_s: float | None = None,
    using: Sequence[str] = STORAGES,
    compilations: int | None = None,
    *,
    reserved: bool = False,
) -> Fit:
    """Find choices that meet a limit, in addition to the pinned choices. The bench does not change.

    Parameters
    ----------
    bench : Workbench
    captured : Capture
        The bench's program.
    machine : Machine
        Machine model for the step time.
    peak : int or str, optional
        Limit on peak memory: a size, such as ``"4 GiB"``, or a share of the stock plan's peak memory, such as
        ``"70%"``.
    step_s : float, optional
        Limit on the step time in seconds, instead of peak memory.
    using : sequence of str
        As in `Fitter`.
    compilations : int, optional
        Maximum number of fusions to compile. This limit may be combined with `peak` or `step_s`. If it is the only
        limit, the result is the fastest plan that compiles no more fusions and saves every storage.
    reserved : bool
        Whether `peak` limits the predicted reserved memory. If `peak` is a share, it is a share of the stock plan's
        reserved memory.

    Raises
    ------
    ChoiceError
        If an argument is invalid, if both `peak` and `step_s` are given, or if no limit is given. Also if `reserved` is
        given without `peak`, or for a program whose reserved memory is not predicted.
    PlanError
        If no computed plan is within the limit; the message names the least value that was found. Also if the program
        has no backward.
    """
    asked = (peak is not None) + (step_s is not None)
    if asked > 1 or (not asked and compilations is None):
        raise ChoiceError(
            "fit takes either a peak, such as '24 GiB', or step_s=, the seconds of a step. compilations=, the largest "
            "number of compilations, is given alone, or with one of these two"
        )
    if compilations is not None:
        compilations, using = check_compilations(compilations), (*check_using(using), CUTS)
    if step_s is not None:
        step_s = step_seconds(step_s)
    if reserved:
        check_reserved(peak, bench.program.device, bench.ranks)
    limited_bytes = reserved_of if reserved else peak_of
    limit_bytes = None if peak is None else peak_bytes(peak, lambda: limited_bytes(bench.stock_plan))
    among = FitterWithCuts(bench, captured, machine, using=using, compilations=compilations, reserved=reserved)
    if limit_bytes is not None and reserved:
        return _fit_reserved(among, limit_bytes)
    if limit_bytes is not None:
        return among.explain(*among.fit_peak(limit_bytes), limit_bytes)
    found, plan = among.fastest_all_saved() if step_s is None else among.fit_time(step_s)
    return among.explain(found, plan, plan.peak_bytes)


def _fit_reserved(among: FitterWithCuts, limit_bytes: int) -> Fit:
    """Return the fastest result within a limit on reserved memory.

    If recomputation and offloading are allowed, search also without offloading.
    A storage that is reloaded from the host gets a block of the stream that copies. Only reloaded storages can use such
    a block. Offloading may therefore raise the reserved memory although it lowers the peak memory.
    """
    tried = [among, *([among.without_offloading()] if {RECOMPUTE, OFFLOAD} <= {*among.using} else [])]
    found: list[tuple[PresetPlan, Plan, FitterWithCuts]] = []
    refused: list[Unmet] = []
    for each in tried:
        try:
            found.append((*each.fit_peak(limit_bytes), each))
        except Unmet as error:
            refused.append(error)
    if not found:
        nearest = min(refused, key=lambda error: error.nearest)
        if among.limits_compilations:
            raise nearest
        # The error names all kinds of choices that were allowed, and the least reserved memory of all fitters.
        _, least = min((each.lowest_peak() for each in tried), key=lambda lowest: lowest[0].planned_bytes)
        raise peak_too_low(among.bench, limit_bytes, among.before, least, among.using, reserved=True) from nearest
    best, plan, its = min(found, key=lambda one: fastest_first(one[0]))
    # The bound holds for all choices, including the choices that only `among` may make.
    return dataclasses.replace(
        its.explain(best, plan, limit_bytes), bound=among.bound(best, limit_bytes), using=among.using
    )
