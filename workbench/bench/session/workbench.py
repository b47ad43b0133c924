"""`Workbench`: a program, its choices, the resulting plan and its runs; the whole product without a user interface."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.cost.collective_overlap import Overlap
from workbench.analysis.cost.machines import H100, Machine
from workbench.bench.session.fit_request import check_peak, default_using
from workbench.bench.session.history import History
from workbench.bench.session.machine_choice import of_device, resolve_machine
from workbench.bench.session.plan_diff import Effects, PlanDiff, diff, effect_of
from workbench.bench.session.planner import ChoiceRequest, Planner
from workbench.bench.session.run_names import name_of_choices, name_of_fit
from workbench.bench.session.site_table import Sites
from workbench.core.config import Config, installed_versions
from workbench.core.lever import (
    Effect,
    Site,
    all_levers,
    check_choices,
    check_ids,
    check_texts,
    unknown_site_error,
    widen_site,
)
from workbench.errors import ChoiceError, PlanError, RunError, short_repr
from workbench.util.gc_pause import paused_gc

if TYPE_CHECKING:
    from workbench.analysis.memory.liveness import Prediction
    from workbench.bench.fit.choice_ranking import Worth
    from workbench.bench.fit.cut_search import Cuts
    from workbench.bench.fit.cut_search_task import CutSearchTask
    from workbench.bench.fit.fit_result import Fit
    from workbench.bench.fit.pareto_curve import Curve
    from workbench.bench.fit.torch_fit import TorchFit, TorchFitter
    from workbench.bench.session.multi_graph import OpaquePart, Part
    from workbench.compiler.api import Capture, Plan, TorchChoices
    from workbench.compiler.driver.torch_prediction import TorchPrediction
    from workbench.compiler.pipeline.lever_context import LeverContext
    from workbench.levers.waits.order_search import Search
    from workbench.plain_torch.operators import Key
    from workbench.runs.process.follow_run import Run
    from workbench.runs.process.request import RunOptions


PREDICTIONS_KEPT = 16
"""Number of cached predictions for plain `torch.compile`."""


@dataclasses.dataclass(frozen=True)
class Change:
    """A planned change of choices, which is not made yet.

    Attributes
    ----------
    in_force, choices : dict of str to str
        All choices before and after the change.
    before, after : Plan
        The plans under these choices.
    """

    in_force: dict[str, str]
    choices: dict[str, str]
    before: Plan
    after: Plan


class Workbench:
    """A program with its choices, plan and runs. `workbench.open` returns one.

    Parameters
    ----------
    captured : Capture
        The traced program.
    choices : mapping of str to str
        Initial choices.
    machine : str or Machine
        Machine model; see `Workbench.machine`.

    Attributes
    ----------
    program : Program
    executor : str
    parts : tuple of Part or OpaquePart
        Empty, because a `Workbench` has a program of one graph. The subclass `PartsBench` has the parts of a program
        with several graphs.
    unmatched : dict of str to str
        Choices of the given config that do not fit this program, each with the reason.
    """

    parts: tuple[Part | OpaquePart, ...] = ()

    def __init__(
        self, captured: Capture, choices: Mapping[str, str] | None = None, machine: str | Machine = H100
    ) -> None:
        self._captured = captured
        self._machine = resolve_machine(machine, self.ranks)
        self.program, self.executor = captured.program, captured.executor
        self._runs: tuple[Run, ...] = ()
        self._lock = threading.RLock()
        self._observers: list[Callable[[], None]] = []
        self._planner = Planner(self._captured)
        fitting, self.unmatched = self._planner.split_by_fit(choices or {})
        self._history = History(fitting)
        self._searches: dict[frozenset[tuple[str, str]], str] = {}
        self._torch_fitter: tuple[Machine, dict[str, str], TorchFitter] | None = None
        self._making_fitter = threading.Lock()
        self._torch_predictions: dict[frozenset[tuple[Key, str]], TorchPrediction] = {}

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs that this bench has started, oldest first."""
        return self._runs

    @property
    def own_runs(self) -> tuple[Run, ...]:
        """The runs whose measurements are about this bench's plan.

        Runs of plain `torch.compile` are left out. The bench of a part has none, because its runs measure the whole
        program.
        """
        return tuple(run for run in self.runs if run.request.torch is None)

    def __repr__(self) -> str:
        from workbench.summary import text_summary

        return text_summary(self)

    def _ipython_display_(self) -> None:
        self.show()

    def show(self, place: str = "", *, tab: bool = False) -> None:
        """Display the app in the notebook's cell.

        Parameters
        ----------
        place : str
            Name of the tab below the graph that is open first, such as ``"fit"``; or of the top-level tab, such as
            ``"memory"``. Upper and lower case are the same. By default, Memory is open.
        tab : bool
            Whether JupyterLab also opens the app in a tab.

        Examples
        --------
        >>> bench.show("fit")
        """
        from workbench.ui.html_pages.notebook_picture import show_bench

        show_bench(self, place, tab=tab)

    # Capture.

    @property
    def capture(self) -> str:
        """Method that captured the program: ``dynamo``, ``interpreter`` or ``parts``."""
        return self._captured.way

    @property
    def capture_reason(self) -> str:
        """Reason why this capture method was used."""
        return self._captured.why

    @property
    def on_disk(self) -> str:
        """Cache status of the trace.

        ``from disk`` if the trace was read from disk. If the trace was not read from disk, the text says that it was
        written to disk, or why it was not written.
        """
        return self._captured.planned.on_disk

    # Choices.

    @property
    def choices(self) -> dict[str, str]:
        """The current choices. If `choose` sets a site to its default option, the site has no choice."""
        with self._lock:
            return self._history.choices

    @property
    def pinned(self) -> dict[str, str]:
        """The current choices that the user made. Choices that a search, such as `fit`, made are left out."""
        with self._lock:
            return self._history.pinned

    @property
    def by_hand(self) -> frozenset[str]:
        """The sites whose options a search, such as `fit`, does not change, because the user chose them.

        These are the sites of `pinned`, and the sites whose default option the user chose. The latter have no choice in
        `choices` and in exported configs. `undo` takes such a choice back, and `release` lets searches change it.
        """
        with self._lock:
            return self._history.by_hand

    @property
    def ranks(self) -> int:
        """Number of processes that share the program."""
        return self._captured.rank_count

    @property
    def machine(self) -> Machine:
        """The machine model for collectives and for a GPU's step times. It can be set to a `Machine` or to a name.

        `workbench.runs.measure.measured_rates.MACHINE_NAMES` lists the names; ``this GPU``, the first attached GPU, is
        also a name.

        Raises
        ------
        ConfigError
            If no machine has the given name.
        """
        return self._machine

    @machine.setter
    def machine(self, machine: str | Machine) -> None:
        rates = resolve_machine(machine, self.ranks)
        with self._lock:
            if rates == self._machine:
                return
            self._machine = rates
        self._notify()

    def overlap(self, plan: Plan | None = None) -> Overlap | None:
        """Simulate on `machine` how collectives overlap with compute; None for a plan without collectives.

        Parameters
        ----------
        plan : Plan, optional
            A plan of this program; by default the current one.
        """
        return (plan or self.plan).overlap_on(self.machine)

    @property
    def config(self) -> Config:
        """The program's name and settings with all choices, ready to export."""
        return Config(
            program=self.program.name,
            executor=self.executor,
            device=self.program.device,
            choices=self.choices,
            fingerprint=self._captured.fingerprint,
            settings=dict(self.program.settings),
            versions=installed_versions(),
            ranks=self.ranks,
            parallel=self._captured.ranks.parallel if self._captured.ranks is not None else "",
            capture=self.capture,
            modes=self.program.modes,
        )

    @property
    def plan(self) -> Plan:
        """The plan that Thunder would execute under the current choices."""
        return self._planner.plan(self.choices)

    @property
    def context(self) -> LeverContext:
        """The joint trace and its graph, as levers receive them."""
        return self._captured.context

    @property
    def stock_plan(self) -> Plan:
        """The plan without choices. Apart from the `corrections` that it lists, it is unmodified Thunder's plan."""
        return self._planner.plan({})

    def plan_under(self, choices: Mapping[str, str], *, keep: bool = True) -> Plan:
        """Return the plan under `choices`; the current choices do not change. With `keep`, cache the plan.

        Raises
        ------
        ChoiceError
            If a site or option is unknown or refused.
        """
        known = self.stock_plan.site_of
        check_choices(choices, known, legal=False)
        plan = self.plan_with(choices, keep=keep)
        check_choices(choices, known, plan.site_of)
        for id in plan.unmatched:
            if id in known:
                raise ChoiceError(f"{id}: with the other choices, this site does not exist", id)
            raise unknown_site_error(self.program.name, id, plan.site_of)
        return plan

    def check_choices(self, choices: Mapping[str, str]) -> None:
        """Raise a `ChoiceError` if the program cannot be planned under `choices`, a complete set of choices."""
        self.plan_under(choices)

    def plan_with(self, choices: Mapping[str, str], *, keep: bool = True) -> Plan:
        """Return the plan under a complete set of choices, without checking that their sites exist.

        A choice without a site is left out and listed in the plan's `unmatched`.

        Raises
        ------
        ChoiceError
            If a choice is refused.
        """
        return self._planner.plan(choices, keep=keep)

    def sites(self, lever: str | None = None) -> Sites:
        """Return the sites under the current choices, as a tuple that is displayed as a table.

        With `lever`, return only the sites of this lever.

        Raises
        ------
        ChoiceError
            If the lever is unknown.
        """
        names = [known.name for known in all_levers()]
        if lever is not None and lever not in names:
            raise ChoiceError(f"there is no lever {short_repr(lever)}; legal: {', '.join(names)}")
        return Sites(site for site in self.plan.sites if lever is None or site.lever == lever)

    def site(self, id: str) -> Site:
        """Return one site by its id.

        Raises
        ------
        ChoiceError
            If the current plan has no such site; the message names the closest ids.
        """
        return self._site_of(self.plan, id)

    def _site_of(self, plan: Plan, id: str) -> Site:
        known = plan.site_of
        if id not in known:
            raise unknown_site_error(self.program.name, id, known)
        return known[id]

    @paused_gc()
    def choose(self, choices: Mapping[str, str], *, by_hand: bool = True) -> PlanDiff:
        """Make all choices, or none if one is refused.

        If another thread makes choices during planning, planning stops, and the choices of both are planned together.

        Parameters
        ----------
        choices : mapping of str to str
            Site id to option.
        by_hand : bool
            Whether the user makes the choices, so that searches, such as `fit`, do not change them.

        Returns
        -------
        PlanDiff
            Change of the whole plan's figures, and all sites that changed.

        Raises
        ------
        ChoiceError
            If a site or option is unknown or refused; then nothing changes.
        """
        check_texts(choices)
        done, made_here = self._planner.ask(choices, self._make, found=not by_hand)
        if made_here:
            self._notify()
        return done

    @property
    def is_choosing(self) -> bool:
        """Whether requested choices wait for a plan."""
        return self._planner.is_asked

    def wait_until_chosen(self) -> None:
        """Wait until all requested choices are made or refused."""
        self._planner.wait_until_answered()

    def _make(self, requests: Sequence[ChoiceRequest]) -> None:
        """Make the choices of all requests in one plan and answer the requests."""
        while True:
            change = self._plan_change(requests, self._planner.plan_unless_newer)
            with self._lock:
                # If choices changed in the meantime, for example by an undo, start again from the changed choices.
                if self._history.choices == change.in_force:
                    self._record(requests, change)
                    break
        done = diff(change.before, change.after, self.machine)
        for request in requests:
            request.done = done

    def _plan_change(self, requests: Sequence[ChoiceRequest], make_plan: Callable[[Mapping[str, str]], Plan]) -> Change:
        """Plan the choices of all requests together, without making them.

        Raises
        ------
        ChoiceError
            If a choice is refused.
        """
        in_force = self.choices
        before = make_plan(in_force)
        given = {id: option for request in requests for id, option in request.choices.items()}
        wanted, defaults = {**in_force, **given}, {}
        for id, option in (choice for request in requests for choice in request.choices.items()):
            if id in before.site_of:
                widen_site(before.site_of[id], option).check(option)
        for id, option in given.items():
            if id in before.site_of and option == before.site_of[id].default:
                defaults[id] = wanted.pop(id)
        after = self._settle(wanted, given, make_plan)
        # A setting among the choices can give other sites another default.
        others = {id: o for id, o in defaults.items() if id in after.site_of and after.site_of[id].default != o}
        if others:
            wanted |= others
            after = self._settle(wanted, given, make_plan)
        return Change(in_force, wanted, before, after)

    def _record(self, requests: Sequence[ChoiceRequest], change: Change, stamp: int | None = None) -> None:
        """Store a planned change in the history. The caller holds the lock."""
        # If several requests choose for the same site, the last request counts.
        searched = {id: request.found for request in requests for id in request.choices}
        self._history.make(
            change.choices,
            by_hand=[id for id, found in searched.items() if not found],
            found=[id for id, found in searched.items() if found],
            stamp=stamp,
        )

    def _settle(
        self, requested: dict[str, str], kept_sites: Collection[str], make_plan: Callable[[Mapping[str, str]], Plan]
    ) -> Plan:
        """Return the plan under `requested`, without earlier choices that no longer fit.

        An earlier choice does not fit if its site is gone or refuses the option. Such a choice is deleted from
        `requested`. Choices for `kept_sites` are never deleted: if one of them is refused, raise a `ChoiceError`. An
        undo restores deleted choices, because it goes back to an earlier state.
        """
        while True:
            try:
                plan = make_plan(requested)
            except ChoiceError as error:
                if error.site in kept_sites or error.site not in requested:
                    raise
                del requested[error.site]
                continue
            if not plan.unmatched:
                return plan
            for id in plan.unmatched:
                if id in kept_sites:
                    self._site_of(make_plan(self.choices), id)
                    raise ChoiceError(f"{id}: these choices conflict: with them, this site no longer exists", id)
                del requested[id]

    def predict(self, choices: Mapping[str, str]) -> Prediction | Plan:
        """Predict memory with `choices` added to the current choices, without making `choices`.

        Returns
        -------
        Prediction or Plan
            Both types have ``peak_bytes``, ``saved_bytes``, ``saved_tensors``, ``flops`` and ``timeline``. The result
            is a `Prediction` if arithmetic on the joint graph gives it; `workbench.compiler.api.predict` says when.
        """
        from workbench.compiler import api

        known = self.plan.site_of
        check_choices(choices, known)
        wanted = {**self.choices, **choices}
        if not choices.keys() <= known.keys():
            return self._settle(wanted, choices, self._planner.plan)
        quick = api.predict(self._captured, wanted)
        return quick if quick is not None else self._settle(wanted, choices, self._planner.plan)

    def effects(self, id: str) -> dict[str, Effect]:
        """Return, for each other legal option of a site, the change of the whole plan's figures."""
        site = self.site(id)
        options = (option for option in site.options if option != site.choice and option not in site.illegal)
        return Effects({option: self.effect({id: option}) for option in options})

    def effect(self, choices: Mapping[str, str]) -> Effect:
        """Return the change of the whole plan's figures if `choices` are added to the current choices."""
        from workbench.compiler.api import Plan

        now, then = self.predict({}), self.predict(choices)
        if isinstance(then, Plan):
            now = self.plan
        return effect_of(now, then, choices, self.machine)

    def worth(self) -> Worth:
        """Rank choices that could be added to the current choices; the display shows the best ten.

        Times are computed from the rates of `machine` or, for a CPU program, of this computer's CPU.
        """
        from workbench.bench.fit.choice_ranking import Worth

        machine = of_device(self)
        choices, planned = self.choices, functools.partial(self._planner.plan_unless_newer, keep=False)
        return Worth(self._captured, choices, self._planner.plan(choices), machine, planned)

    def cuts(self, *, machine: str | Machine | None = None) -> Cuts:
        """Return a table of alternative cuts: compilations, peak memory, saved bytes and step time. No choice changes.

        A cut is the set of values that fusions pass to one another; a fusion recomputes all other values that it
        needs. Each alternative recomputes values that are now passed, or saves values that are now recomputed, in the
        same way in all layers. The table also has the settings that Thunder offers for all cuts at once. Each row is
        a plan with the choices made by hand and the choices of the row. Identical fusions are compiled once.

        Parameters
        ----------
        machine : str or Machine, optional
            As in `fit`.

        Raises
        ------
        PlanError
            If nothing is fused.
        """
        from workbench.bench.fit.cut_search import CutSearch

        return CutSearch(self, of_device(self, machine)).table()

    def weigh_cuts(self, *, machine: str | Machine | None = None) -> CutSearchTask:
        """Make the table of `cuts` in the background.

        The search can be cancelled, and reports its progress and the best cuts so far.

        Parameters
        ----------
        machine : str or Machine, optional
            As for `fit`.
        """
        from workbench.bench.fit.cut_search_task import CutSearchTask

        return CutSearchTask(self, of_device(self, machine))

    def search_waits(
        self, *, limit_bytes: int | None = None, machine: str | Machine | None = None, buckets: Sequence[str] = ()
    ) -> Search:
        """Find the best order of collectives by simulation, under the other current choices. No choice changes.

        Parameters
        ----------
        limit_bytes : int, optional
            Limit of the bytes in flight. A collective's result is in flight from the issue of the collective to its
            wait. Only results that a later statement reads count.
        machine : str or Machine, optional
            Machine to simulate; by default `Workbench.machine`.
        buckets : sequence of str
            Options of ``waits.bucket`` to try, such as ``25MiB``. One plan is made for each option. A bucket is a group
            of parameters or gradients that share one collective. By default only the current option is tried.

        Returns
        -------
        Search
            ``choices``, which can be passed to `choose`, and a lower bound on the step time.

        Raises
        ------
        ConfigError
            If the machine is unknown.
        ChoiceError
            If an option in `buckets` is not legal.
        PlanError
            If the plan has no collectives, or no order is within the limit.
        """
        from workbench.levers.waits import replanner

        rates = self.machine if machine is None else resolve_machine(machine, self.ranks)
        known = self.plan.site_of
        for option in buckets:
            site = known["waits.bucket"]
            widen_site(site, option).check(option)
        return replanner.search_best_order(self._captured, self.choices, rates, limit_bytes, buckets)

    def fit(
        self,
        peak: int | str | None = None,
        *,
        peak_bytes: int | None = None,
        step_s: float | None = None,
        compilations: int | None = None,
        reserved: bool = False,
        using: Sequence[str] | None = None,
        machine: str | Machine | None = None,
    ) -> Fit:
        """Choose options for the least step time under a stated peak, or for the least peak under a stated step time.

        Choices made by hand do not change; choices of an earlier `fit` are replaced. One `undo` reverts the fit.

        Parameters
        ----------
        peak, peak_bytes : int or str, optional
            Limit on peak memory: bytes, or a text such as ``'24 GiB'`` or ``'80%'`` (a share of the stock plan's peak
            memory). The peak memory includes parameters and inputs.
        step_s : float, optional
            Limit on the step time in seconds, instead of peak memory.
        compilations : int, optional
            Maximum number of fusions to compile. This limit can be combined with a limit on peak memory or step time,
            or can be the only limit. With this argument, identical fusions are compiled once, and `using` also has
            ``cuts``.
        reserved : bool
            Whether `peak` limits the memory that PyTorch's allocator is predicted to reserve on a GPU, instead of the
            allocated bytes. A share is then a share of the stock plan's reserved memory.
        using : sequence of str, optional
            Kinds of choices that `fit` may make: ``recompute``, ``offload``, ``cuts`` between fusions, ``order`` of
            statements, ``waits`` of collectives. By default ``recompute`` and ``offload``. On the device ``cpu`` only
            ``recompute``, because offloading there only imitates a GPU and frees nothing.
        machine : str or Machine, optional
            Machine model for the step time. By default `Workbench.machine` or, for a CPU program, this computer's CPU.

        Raises
        ------
        ChoiceError, PlanError
            As in `workbench.bench.fit.fit_with_cuts.fit`.
        """
        from workbench.bench.fit import fit_with_cuts

        given = peak if peak_bytes is None else peak_bytes
        using = default_using(self.program.device) if using is None else using
        found = fit_with_cuts.fit(
            self, self._captured, of_device(self, machine), given, step_s, using, compilations, reserved=reserved
        )
        self.choose_found(found.choices, name_of_fit(given, found.limit_bytes))
        return found

    def curve(
        self,
        *,
        points: int | None = None,
        using: Sequence[str] | None = None,
        each: bool = False,
        machine: str | Machine | None = None,
    ) -> Curve:
        """Compute step time against peak memory in the background, with a fit for each limit. No choice changes.

        Parameters
        ----------
        points : int, optional
            Number of limits on peak memory; by default 24 or, with fusions, 8.
        using : sequence of str, optional
            As for `fit`.
        each : bool
            Whether to compute several lines: the fits of the first line use the first entry of `using`, the fits of the
            second line use the first two entries, and so on.
        machine : str or Machine, optional
            As for `fit`.

        Raises
        ------
        ChoiceError, PlanError
            If `points` is less than two, a name in `using` is unknown, or the program has no backward.
        """
        from workbench.bench.fit.pareto_curve import Curve

        using = default_using(self.program.device) if using is None else using
        return Curve(self, self._captured, of_device(self, machine), points, using=using, by_lever=each)

    def choose_found(self, choices: Mapping[str, str], search: str = "") -> PlanDiff | None:
        """Replace an earlier search's choices by `choices` from a fit or a curve. Choices made by hand stay.

        Runs under the resulting choices are named after `search`, such as ``fit 70 %``.
        """
        pinned, known = self.pinned, self.plan.site_of
        gone = {id: known[id].default for id in self.choices if id not in pinned and id not in choices}
        if not gone and not choices:
            return None
        made = self.choose({**gone, **choices}, by_hand=False)
        if chosen := self.choices:
            self._searches[frozenset(chosen.items())] = search
        return made

    def name_of(self, choices: Mapping[str, str]) -> str:
        """Return a name for a run under choices, such as ``fit 70 %: 34 recomputed``; ``stock`` without choices."""
        return name_of_choices(choices, self._searches.get(frozenset(choices.items()), ""))

    def release(self, sites: Iterable[str]) -> None:
        """Let searches, such as `fit`, change the options that the user chose at `sites`. No choice changes now.

        Raises
        ------
        ChoiceError
            If `sites` is a single text, or the program has no such site; then no site is released.
        """
        known = check_ids(sites)
        for id in known - self.by_hand:
            self.site(id)
        with self._lock:
            self._history.release(known)
        self._notify()

    def undo(self) -> None:
        """Revert the last change of choices, if there is one."""
        self._go(-1)

    def redo(self) -> None:
        """Restore the change that was last undone, if there is one."""
        self._go(1)

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to undo."""
        return self._history.can_go(-1)

    @property
    def can_redo(self) -> bool:
        """Whether there is a change to redo."""
        return self._history.can_go(1)

    def _go(self, steps: int) -> None:
        with self._lock:
            if not self._history.can_go(steps):
                return
            self._history.go(steps)
        self._notify()

    # Observers.

    def observe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every change of choices, machine or runs; return a function that ends the calls.

        If a callback fails, its error is logged. The change stays made, and the other callbacks are called.
        """
        self._observers.append(callback)

        def end() -> None:
            if callback in self._observers:
                self._observers.remove(callback)

        return end

    def _notify(self) -> None:
        from workbench.runs.process import callbacks

        for callback in tuple(self._observers):
            callbacks.call(callback, subject=self.program.name)

    # Runs.

    def run(
        self,
        *,
        wait: bool = False,
        name: str = "",
        folder: str | Path | None = None,
        options: RunOptions | None = None,
        against: Mapping[str, Mapping[str, str] | Config | None] | None = None,
        target: str = "thunder",
    ) -> Run:
        """Compile and run under the current choices, in a separate process.

        Parameters
        ----------
        wait : bool
            Whether to wait until the run has ended; by default, return at once.
        name : str
            Name shown for the run; by default what was chosen, such as ``fit 70 %: 34 recomputed``.
        folder : path, optional
            The run's folder; by default a new one in the runs folder.
        options : RunOptions, optional
        against : mapping, optional
            Variants of the run, by name. The run's process times steps of the variants in turn with steps under the
            current choices. A variant is a complete set of choices (``{}`` means no choices), a config, or None for
            unmodified `thunder.jit`. `Run.against` has the times of the variants.
        target : {'thunder', 'torch'}
            Compiler of the run. With ``torch``, plain `torch.compile` follows the choices that it can follow, as with
            an exported file. The results are compared with `torch.compile` without choices, and with eager PyTorch.

        Returns
        -------
        Run

        Raises
        ------
        ChoiceError
            If the choices of a variant are refused.
        RunError
            If the run cannot be started.
        PlanError
            If plain `torch.compile` cannot follow the choices; see `torch_choices`.
        """
        from workbench.bench.session.prepare_run import check_target, prepare_torch
        from workbench.runs.process import start_run

        check_target(target)

        if self.ranks > 1 and self.program.device == "planned":
            raise RunError(
                f"{self.program.name} is planned as rank 0 of {self.ranks}; it cannot run without the other ranks"
            )
        start_run.refuse_planned_device(self.program.device)
        if target == "thunder":
            run_dir = self.prepare(name=name, folder=folder, options=options, against=against)
        else:
            found = self.torch_choices()
            run_dir = prepare_torch(
                self,
                found.choices,
                predicted_peak_bytes=self._torch_peak_bytes(),
                chosen=name_of_choices({id: self.choices[id] for id in found.sites.values()}),
                name=name,
                folder=folder,
                options=options,
                against=against,
            )
        return self.start(run_dir, wait=wait)

    def _torch_peak_bytes(self) -> int | None:
        try:
            return self.torch_prediction().peak_bytes
        except PlanError:  # for example, the program is on a GPU
            return None

    def start(self, run_dir: Path, *, wait: bool = False) -> Run:
        """Start the run of a folder that was prepared, and add it to `runs`.

        Raises
        ------
        RunError
            If the run cannot be started.
        """
        from workbench.runs.process import start_run

        run = start_run.start(run_dir)
        with self._lock:
            self._runs = (*self._runs, run)
        self._notify()
        if wait:
            run.wait()
            self._notify()
        return run

    def prepare(
        self,
        *,
        name: str = "",
        folder: str | Path | None = None,
        options: RunOptions | None = None,
        against: Mapping[str, Mapping[str, str] | Config | None] | None = None,
    ) -> Path:
        """Make the folder of a run under the current choices, but start nothing.

        A machine needs only this folder to execute the run; see `workbench.runs.process.follow_run.Run.command`.

        Parameters
        ----------
        name, folder, options, against
            As in `run`.

        Returns
        -------
        Path

        Raises
        ------
        ChoiceError
            If the choices of a variant are refused.
        RunError
            If the folder cannot be written, or a requested measurement is not supported by the device.
        """
        from workbench.bench.session.prepare_run import prepare

        return prepare(self, name=name, folder=folder, options=options, against=against)

    # Files.

    def export(self, path: str | Path, *, target: str = "thunder", overwrite: bool = False) -> Path:
        """Write the choices as a readable Python file.

        Parameters
        ----------
        path : path
        target : {'thunder', 'torch', 'torch_eager'}
            Kind of file. ``thunder``: a config, which `workbench.load` reads back. ``torch``: a module that needs
            nothing but PyTorch, with a function ``compile``, which is ``torch.compile`` with the choices.
            ``torch_eager``: a module that needs nothing but PyTorch and no compiler, with a function ``checkpoint``,
            which changes a model so that the model's backward recomputes the chosen tensors. The docstring of a file
            for PyTorch lists the choices that PyTorch cannot follow, each with the reason.
        overwrite : bool
            Also replace a file of another kind; a file of the same kind is always replaced.

        Raises
        ------
        ConfigError
            If the file cannot be written; the message has the reason, see `Config.write`.
        PlanError
            If the target is ``torch_eager`` and the program is a function; also as in `torch_choices`.
        """
        from workbench.bench.report import torch_file

        torch_file.check_target(target)
        if target != "thunder":
            return torch_file.write(self, path, target, overwrite=overwrite)
        return self.config.write(path, self.notes(), overwrite=overwrite, compiled=self.program.name_in_script)

    def export_text(self, path: str | Path, *, target: str = "thunder") -> str:
        """Return the text of the file that `export` would write. No file is written."""
        from workbench.bench.report import torch_file

        torch_file.check_target(target)
        name = Path(path).name
        if target != "thunder":
            return torch_file.file_text(self, self.torch_choices(), target, name)
        return self.config.text(self.notes(), file=name, compiled=self.program.name_in_script)

    def torch_choices(self) -> TorchChoices:
        """Return the current choices that plain PyTorch can follow, and the reasons why it cannot follow the others.

        Raises
        ------
        PlanError
            If the program has several graphs, or ranks share it.
        ProgramError
            If Dynamo cannot capture the program as one graph.
        """
        from workbench.compiler import api

        if self.ranks > 1:
            raise PlanError(
                f"choices for plain PyTorch are for one process, but {self.ranks} ranks share {self.program.name}: "
                "open it with ranks=1"
            )
        return api.torch_choices(self._captured, self.choices)

    def torch_prediction(self, *, stock: bool = False) -> TorchPrediction:
        """Predict the memory of a step under plain `torch.compile` (Inductor) with the choices that PyTorch can follow.

        `plan` predicts the memory under Thunder. Even without choices, PyTorch's compiler may save other tensors than
        Thunder. The program is not run.

        Parameters
        ----------
        stock : bool
            Predict without choices.

        Raises
        ------
        PlanError
            If the program is planned for a GPU that is not attached, has no backward, has several graphs, or is shared
            by ranks.
        """
        from workbench.compiler.driver.torch_prediction import predict_torch

        followed = self.torch_choices().choices
        choices = {} if stock else followed
        key = frozenset(choices.items())
        if (known := self._torch_predictions.get(key)) is not None:
            return known
        found = predict_torch(self._captured, choices)
        with self._lock:
            self._torch_predictions[key] = found
            if len(self._torch_predictions) > PREDICTIONS_KEPT:
                del self._torch_predictions[next(iter(self._torch_predictions))]
        return found

    def torch_fit(
        self,
        peak: int | str,
        *,
        machine: str | Machine | None = None,
        go_on: Callable[[str], None] = lambda _: None,
    ) -> TorchFit:
        """Find choices for plain `torch.compile` with the least step time under a peak of `torch.compile` on the CPU.

        `fit` limits the peak of Thunder's plan. Here, `torch_prediction` predicts the peaks. The bench does not change:
        its choices that PyTorch can follow are part of the result, and the result is exported by itself. Results for
        the same choices of the bench share their predictions, also those that an interrupted fit has made. If another
        thread fits, this method waits for it.

        Parameters
        ----------
        peak : int or str
            Limit on peak memory, as in `fit`. A share such as ``'80%'`` is a share of the peak of `torch.compile`.
        machine : str or Machine, optional
            Machine model for the step time, as in `fit`.
        go_on : callable, optional
            Called before each prediction, with a line about the progress. An exception from it ends the fit.

        Raises
        ------
        ChoiceError
            If `peak` is neither a size nor a share.
        PlanError
            As in `torch_prediction`, and if no choices were found with which the peak is within the limit.

        Examples
        --------
        >>> bench.torch_fit("80%").export("choices.py")  # doctest: +SKIP
        """
        from workbench.bench.fit.torch_fit import TorchFitter

        check_peak(peak)
        self.torch_choices()  # raises an error if PyTorch cannot follow the program
        rates, choices = of_device(self, machine), self.choices
        with self._making_fitter:
            if self._torch_fitter is None or self._torch_fitter[:2] != (rates, choices):
                self._torch_fitter = rates, choices, TorchFitter(self, rates)
            fitter = self._torch_fitter[2]
        return fitter.fit(peak, go_on)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write plan, choices and figures as one ``.plan.json``, which JupyterLab shows without a kernel.

        Parameters
        ----------
        path : path
        overwrite : bool
            Also replace a file that is not a saved plan; a saved plan is always replaced.

        Raises
        ------
        ConfigError
            If the file cannot be written; the message has the reason.
        """
        from workbench.bench.report import saved_plan

        return saved_plan.write_plan(self, path, overwrite=overwrite)

    def report(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write one HTML page that needs no network: graph, figures, plots, choices, runs, and command lines.

        Parameters
        ----------
        path : path
        overwrite : bool
            Also replace a file that is not a report; a report is always replaced.

        Raises
        ------
        ConfigError
            If the file cannot be written; the message has the reason.

        Examples
        --------
        >>> bench.report("out.html")  # doctest: +SKIP
        PosixPath('out.html')
        """
        from workbench.bench.report import html_report

        return html_report.write_report(self, path, overwrite=overwrite)

    def notes(self) -> dict[str, str]:
        """Return the label and the user's line of each site, for the comments of an exported config."""
        return {site.id: " ".join(t for t in (site.label, site.source) if t) for site in self.plan.sites}

    def app(self) -> Any:
        """Return the app, a widget."""
        from workbench.ui.app.app import App

        return App(self)
