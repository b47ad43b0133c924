"""`Workbench`: a program, the choices for it, the plan they give, and its runs; the whole product without a screen."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.cost.collective_overlap import Overlap
from workbench.analysis.cost.machines import H100, Machine
from workbench.bench.session.fit_request import used_on
from workbench.bench.session.history import History
from workbench.bench.session.machine_choice import machine_of, of_device
from workbench.bench.session.plan_diff import Effects, PlanDiff, diff, effect_of
from workbench.bench.session.planner import ChoiceRequest, Planner
from workbench.bench.session.site_table import Sites
from workbench.core.config import Config, installed_versions
from workbench.core.lever import Effect, Site, all_levers, check_choices, check_texts, no_site, widened
from workbench.errors import ChoiceError, RunError, shown

if TYPE_CHECKING:
    from workbench.analysis.memory.liveness import Prediction
    from workbench.analysis.order.collective_order_search import Search
    from workbench.bench.fit.choice_ranking import Worth
    from workbench.bench.fit.cut_search import Cuts
    from workbench.bench.fit.cut_search_task import CutSearchTask
    from workbench.bench.fit.fit_result import Fit
    from workbench.bench.fit.pareto_curve import Curve
    from workbench.bench.session.multi_graph import OpaquePart, Part
    from workbench.compiler.api import Capture, Plan
    from workbench.compiler.pipeline.lever_context import LeverContext
    from workbench.runs.process.request import RunOptions
    from workbench.runs.process.run_control import Run


class Workbench:
    """A program with its choices, plan and runs. Made by `workbench.open`.

    Parameters
    ----------
    captured : Capture
        The program, traced.
    choices : mapping of str to str
        To begin with.
    machine : str or Machine
        What ranks are simulated on; see `Workbench.machine`.

    Attributes
    ----------
    program : Program
    executor : str
    parts : tuple of Part or OpaquePart
        Those of a program of several graphs; empty where it is one, as here.
    unmatched : dict of str to str
        Choices of the config given that do not fit this program, each with the reason.
    """

    parts: tuple[Part | OpaquePart, ...] = ()

    def __init__(
        self, captured: Capture, choices: Mapping[str, str] | None = None, machine: str | Machine = H100
    ) -> None:
        self._captured = captured
        self._machine = machine_of(machine, self.ranks)
        self.program, self.executor = captured.program, captured.executor
        self.runs: tuple[Run, ...] = ()
        self._lock = threading.RLock()
        self._observers: list[Callable[[], None]] = []
        self._planner = Planner(self._captured)
        fitting, self.unmatched = self._planner.fitting(choices or {})
        self._history = History(fitting)

    def __repr__(self) -> str:
        from workbench.summary import text_summary

        return text_summary(self)

    def _ipython_display_(self) -> None:
        self.show()

    def show(self, *, tab: bool = False) -> None:
        """Display the app in a notebook, with `tab` in a tab of JupyterLab, too; a page without tabs keeps the cell."""
        from workbench.ui.html_pages.notebook_picture import show

        show(self, tab=tab)

    # How the program was captured.

    @property
    def capture(self) -> str:
        """How the program came in: ``dynamo``, ``interpreter`` or ``parts``."""
        return self._captured.way

    @property
    def capture_reason(self) -> str:
        """Why it came in that way."""
        return self._captured.why

    @property
    def on_disk(self) -> str:
        """``from disk`` where tracing was spared; else whether it is kept there for the next opening, or why not."""
        return self._captured.planned.on_disk

    # What is chosen.

    @property
    def choices(self) -> dict[str, str]:
        """The choices in force that differ from unmodified Thunder."""
        with self._lock:
            return self._history.choices

    @property
    def pinned(self) -> dict[str, str]:
        """Those of them that a person made; the others were found by `fit`."""
        with self._lock:
            return self._history.pinned

    @property
    def ranks(self) -> int:
        """Processes that the program is for."""
        return self._captured.ranks.count if self._captured.ranks is not None else 1

    @property
    def machine(self) -> Machine:
        """The machine that ranks are simulated on, given as one or by name.

        The names are `workbench.runs.measure.measured_rates.MACHINE_NAMES`.

        Raises
        ------
        ConfigError
            If there is no machine of the name given.
        """
        return self._machine

    @machine.setter
    def machine(self, machine: str | Machine) -> None:
        rates = machine_of(machine, self.ranks)
        with self._lock:
            if rates == self._machine:
                return
            self._machine = rates
        self._notify()

    def overlap(self, plan: Plan | None = None) -> Overlap | None:
        """Collectives beside compute, simulated on `machine`; None if there are none.

        Parameters
        ----------
        plan : Plan, optional
            Of this program; by default the one in force.
        """
        return (plan or self.plan).overlap_on(self.machine)

    @property
    def config(self) -> Config:
        """All choices, ready to be exported."""
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
        """What Thunder would execute under the choices in force."""
        return self._planner.plan(self.choices)

    @property
    def stage(self) -> LeverContext:
        """The joint trace with its graph, as levers see it."""
        return self._captured.stage

    @property
    def stock_plan(self) -> Plan:
        """What unmodified Thunder would execute."""
        return self._planner.plan({})

    def plan_under(self, choices: Mapping[str, str], *, keep: bool = True) -> Plan:
        """What Thunder would execute under other choices, all of them; those in force stay. `keep` it for later calls.

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
                raise ChoiceError(f"{id}: the other choices take the site away", id)
            raise no_site(self.program.name, id, plan.site_of)
        return plan

    def check_choices(self, choices: Mapping[str, str]) -> None:
        """Refuse choices, all of them, that `plan_under` refuses."""
        self.plan_under(choices)

    def plan_with(self, choices: Mapping[str, str], *, keep: bool = True) -> Plan:
        """The plan under choices that were checked when they were made, all of them.

        A choice that fits no site is left out, and named by the plan's `unmatched`.

        Raises
        ------
        ChoiceError
            If a choice is refused.
        """
        return self._planner.plan(choices, keep=keep)

    def sites(self, lever: str | None = None) -> Sites:
        """All sites under the choices in force, or those of one lever: a tuple that is shown as a table.

        Raises
        ------
        ChoiceError
            If there is no such lever.
        """
        names = [known.name for known in all_levers()]
        if lever is not None and lever not in names:
            raise ChoiceError(f"there is no lever {shown(lever)}; legal: {', '.join(names)}")
        return Sites(site for site in self.plan.sites if lever is None or site.lever == lever)

    def site(self, id: str) -> Site:
        """One site.

        Raises
        ------
        ChoiceError
            If this program has no such site now, naming the nearest.
        """
        return self._site_of(self.plan, id)

    def _site_of(self, plan: Plan, id: str) -> Site:
        known = plan.site_of
        if id not in known:
            raise no_site(self.program.name, id, known)
        return known[id]

    def choose(self, choices: Mapping[str, str]) -> PlanDiff:
        """Make choices, all or none; those asked for while others are planned are made together with them.

        Parameters
        ----------
        choices : mapping of str to str
            Site id to option.

        Returns
        -------
        PlanDiff
            What the whole plan gained or lost, and every site that moved.

        Raises
        ------
        ChoiceError
            If a site or option is unknown or refused; nothing is changed then.
        """
        check_texts(choices)
        self._history.pin(choices)
        return self._chosen(choices)

    def _chosen(self, choices: Mapping[str, str]) -> PlanDiff:
        done, made_here = self._planner.ask(choices, self._make)
        if made_here:
            self._notify()
        return done

    def _make(self, requests: Sequence[ChoiceRequest]) -> None:
        """Make the choices of requests, all in one plan, and answer them."""
        while True:
            in_force = self.choices
            before = self._planner.plan_unless_newer(in_force)
            wanted, given = dict(in_force), {id for request in requests for id in request.choices}
            for request in requests:
                for id, option in request.choices.items():
                    wanted[id] = option
                    if id in before.site_of:
                        widened(before.site_of[id], option).check(option)
                        if option == before.site_of[id].default:
                            del wanted[id]
            after = self._settle(wanted, given, self._planner.plan_unless_newer)
            with self._lock:
                # After an undo in the meantime, the choices are made on top of its result.
                if self._history.choices == in_force:
                    self._history.make(wanted)
                    break
        done = diff(before, after, self.machine)
        for request in requests:
            request.done = done

    def _settle(
        self, wanted: dict[str, str], given: Collection[str], planned: Callable[[Mapping[str, str]], Plan]
    ) -> Plan:
        """Plan without earlier choices in `wanted` whose site is gone or refuses them now; undo restores them."""
        while True:
            try:
                plan = planned(wanted)
            except ChoiceError as error:
                if error.site in given or error.site not in wanted:
                    raise
                del wanted[error.site]
                continue
            if not plan.unmatched:
                return plan
            for id in plan.unmatched:
                if id in given:
                    self._site_of(planned(self.choices), id)
                    raise ChoiceError(f"{id}: these choices conflict: with them, this site no longer exists", id)
                del wanted[id]

    def predict(self, choices: Mapping[str, str]) -> Prediction | Plan:
        """Memory if `choices` were made on top of those in force, without making them.

        Returns
        -------
        Prediction or Plan
            Both have ``peak_bytes``, ``saved_bytes``, ``saved_tensors``, ``flops`` and ``timeline``. Arithmetic alone
            where nothing is fused; otherwise the plan is made.
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
        """What the whole plan would gain or lose under each other legal option of a site."""
        site = self.site(id)
        options = (option for option in site.options if option != site.choice and option not in site.illegal)
        return Effects({option: self.effect({id: option}) for option in options})

    def effect(self, choices: Mapping[str, str]) -> Effect:
        """What the whole plan would gain or lose if `choices` were made on top of those in force."""
        from workbench.compiler.api import Plan

        now, then = self.predict({}), self.predict(choices)
        if isinstance(then, Plan):
            now = self.plan
        return effect_of(now, then, choices, self.machine)

    def worth(self) -> Worth:
        """What weighs further choices on top of those in force; shown as the best ten. Times by the device's rates."""
        from workbench.bench.fit.choice_ranking import Worth

        machine = of_device(self)
        choices, planned = self.choices, functools.partial(self._planner.plan_unless_newer, keep=False)
        return Worth(self._captured, choices, self._planner.plan(choices), machine, planned)

    def cuts(self, *, machine: str | Machine | None = None) -> Cuts:
        """Weigh cuts between fusions: compilations against peak, saved bytes and step; a table, and nothing is changed.

        What fusions hand to each other is made again, or the reverse, the same in all layers; and the presets of cuts.
        Plans are predicted with identical fusions compiled once, beside what was chosen by hand.

        Parameters
        ----------
        machine : str or Machine, optional
            As for `fit`.

        Raises
        ------
        PlanError
            If nothing is fused.
        """
        from workbench.bench.fit.cut_search import CutSearch

        return CutSearch(self, of_device(self, machine)).table()

    def weigh_cuts(self, *, machine: str | Machine | None = None) -> CutSearchTask:
        """Make the same table in the background, with progress and the best so far; it can be cancelled.

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
        """Find the best order of collectives, by simulation, beside the other choices in force; nothing is changed.

        Parameters
        ----------
        limit_bytes : int, optional
            The most bytes of results that may be on their way to a statement that reads them.
        machine : str or Machine, optional
            Another than `machine`, which it is by default.
        buckets : sequence of str
            Options of ``waits.bucket`` to try, too; each takes a plan of its own. By default the one in force.

        Returns
        -------
        Search
            Its ``choices`` are for `choose`; the lower bound stands beside them.

        Raises
        ------
        ConfigError
            If there is no such machine.
        ChoiceError
            If there is no such bucket.
        PlanError
            If there are no collectives, or no order keeps the limit.
        """
        from workbench.levers import collective_replanner

        rates = self.machine if machine is None else machine_of(machine, self.ranks)
        known = self.plan.site_of
        for option in buckets:
            site = known["waits.bucket"]
            widened(site, option).check(option)
        return collective_replanner.search(self._captured, self.choices, rates, limit_bytes, buckets)

    def fit(
        self,
        peak: int | str | None = None,
        *,
        peak_bytes: int | None = None,
        step_s: float | None = None,
        compilations: int | None = None,
        using: Sequence[str] | None = None,
        machine: str | Machine | None = None,
    ) -> Fit:
        """Choose what to save, recompute, offload and move: the least time under a peak, or the least peak in a time.

        What was chosen by hand stays; what an earlier `fit` chose does not. One `undo` takes it back.

        Parameters
        ----------
        peak, peak_bytes : int or str, optional
            Bytes, or a text such as ``'24 GiB'``, or ``'80%'`` of stock's peak; parameters and inputs are counted.
        step_s : float, optional
            Seconds of a step, in place of a peak.
        compilations : int, optional
            The most fusions to compile, beside either or alone; identical ones are compiled once, and ``cuts`` is used.
        using : sequence of str, optional
            What may be chosen: ``recompute``, ``offload``, ``cuts`` between fusions, ``order`` of statements, ``waits``
            of collectives. By default the first two; on the device ``cpu``, where offloading is a stand-in for a GPU's
            and frees nothing, ``recompute`` alone.
        machine : str or Machine, optional
            Machine model for the time of recomputation; by default `machine`, and on the CPU this machine.

        Raises
        ------
        ChoiceError, PlanError
            As `workbench.bench.fit.fit_with_cuts.fit`.
        """
        from workbench.bench.fit import fit_with_cuts

        given = peak if peak_bytes is None else peak_bytes
        using = used_on(self.program.device) if using is None else using
        found = fit_with_cuts.fit(self, self._captured, of_device(self, machine), given, step_s, using, compilations)
        self.choose_found(found.choices)
        return found

    def curve(
        self,
        *,
        points: int | None = None,
        using: Sequence[str] | None = None,
        each: bool = False,
        machine: str | Machine | None = None,
    ) -> Curve:
        """Step time against peak, down to the least: plans as `fit` finds them, in the background; nothing is changed.

        Parameters
        ----------
        points : int, optional
            At so many limits.
        using : sequence of str, optional
            As for `fit`.
        each : bool
            Whether what each of these adds to those before it is found, too, as a line of its own.
        machine : str or Machine, optional
            As for `fit`.

        Raises
        ------
        ChoiceError, PlanError
            If there are not at least two `points`, or nothing of that name to use; if the program has no backward.
        """
        from workbench.bench.fit.pareto_curve import Curve

        using = used_on(self.program.device) if using is None else using
        return Curve(self, self._captured, of_device(self, machine), points, using=using, each=each)

    def choose_found(self, choices: Mapping[str, str]) -> PlanDiff | None:
        """Replace earlier choices of `fit` by those of `fit` or of a `curve` point; choices by hand stay."""
        pinned, known = self.pinned, self.plan.site_of
        gone = {id: known[id].default for id in self.choices if id not in pinned and id not in choices}
        if not gone and not choices:
            return None
        # Before anyone is told of them.
        self._history.found(choices)
        return self._chosen({**gone, **choices})

    def undo(self) -> None:
        """Take the last change of choices back, if there is one."""
        self._go(-1)

    def redo(self) -> None:
        """Make the change that was last taken back again, if there is one."""
        self._go(1)

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to take back."""
        return self._history.can_go(-1)

    @property
    def can_redo(self) -> bool:
        """Whether there is a change to make again."""
        return self._history.can_go(1)

    def _go(self, by: int) -> None:
        with self._lock:
            if not self._history.can_go(by):
                return
            self._history.go(by)
        self._notify()

    # Who is told.

    def observe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every change of choices or runs; returns what ends that.

        What a callback raises goes to the log: the change is made, and other callbacks are called all the same.
        """
        self._observers.append(callback)

        def end() -> None:
            if callback in self._observers:
                self._observers.remove(callback)

        return end

    def _notify(self) -> None:
        from workbench.runs.process import callbacks

        for callback in tuple(self._observers):
            callbacks.call(callback, of=self.program.name)

    # What is run and taken away.

    def run(
        self,
        *,
        wait: bool = False,
        name: str = "",
        folder: str | Path | None = None,
        options: RunOptions | None = None,
        against: Mapping[str, Mapping[str, str] | Config | None] | None = None,
    ) -> Run:
        """Compile and run under the choices in force, in a process of its own.

        Parameters
        ----------
        wait : bool
            Return when it has ended; otherwise at once.
        name : str
            For people.
        folder : path, optional
            The run's folder; by default a new one in the runs folder.
        options : RunOptions, optional
        against : mapping, optional
            Variants of the run, by name, timed interleaved with it in the same process: choices, all of
            them, so that ``{}`` is the same executor's without any; a config; or None for `thunder.jit` as it comes.
            Their times are in `Run.against`.

        Returns
        -------
        Run

        Raises
        ------
        ChoiceError
            If choices to compare with are refused.
        RunError
            If it cannot be started.
        """
        from workbench.runs.process import run_control

        if self.ranks > 1 and self.program.device == "planned":
            raise RunError(
                f"{self.program.name} is planned as rank 0 of {self.ranks}; the others are not there: it cannot run"
            )
        run_control.check_device(self.program.device)
        run_dir = self.prepare(name=name, folder=folder, options=options, against=against)
        run = run_control.start(run_dir)
        with self._lock:
            self.runs = (*self.runs, run)
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
        """Make the folder of a run under the choices in force, and start nothing.

        The folder is all that a machine needs to carry the run out; see
        `workbench.runs.process.run_control.Run.command`.

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
            If choices to compare with are refused.
        RunError
            If it cannot be written, or requests a measurement that the device does not support.
        """
        from workbench.bench.session.prepare_run import prepare

        return prepare(self, name=name, folder=folder, options=options, against=against)

    # Files.

    def export(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the choices as a Python file that anyone can read, and `workbench.load` reads back.

        Parameters
        ----------
        path : path
        overwrite : bool
            Replace a file that is no config, too; a config is always replaced.

        Raises
        ------
        ConfigError
            If it cannot be written, and why; see `Config.write`.
        """
        return self.config.write(path, self.notes(), overwrite=overwrite)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write plan, choices and figures as one ``.plan.json``, which JupyterLab shows without a kernel.

        Parameters
        ----------
        path : path
        overwrite : bool
            Replace a file that is no saved plan, too; a saved plan is always replaced.

        Raises
        ------
        ConfigError
            If it cannot be written, and why.
        """
        from workbench.bench.report import saved_plan

        return saved_plan.write(self, path, overwrite=overwrite)

    def report(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write one HTML page that needs no network: graph, figures, plots, choices, runs, and how to have them again.

        Parameters
        ----------
        path : path
        overwrite : bool
            Replace a file that is no report, too; a report is always replaced.

        Raises
        ------
        ConfigError
            If it cannot be written, and why.

        Examples
        --------
        >>> bench.report("out.html")  # doctest: +SKIP
        PosixPath('out.html')
        """
        from workbench.bench.report import html_report

        return html_report.write(self, path, overwrite=overwrite)

    def notes(self) -> dict[str, str]:
        """What each site is, and the person's own line, as exported configs have them."""
        return {site.id: " ".join(t for t in (site.label, site.source) if t) for site in self.plan.sites}

    def app(self) -> Any:
        """The app, as a widget."""
        from workbench.ui.app.app import App

        return App(self)
