"""The app: one screen for a `Workbench`. It shows the bench's state and forwards the user's requests.

docs/extending.md has the steps to add a tab.
"""

from __future__ import annotations

import logging
import pathlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ipywidgets

from workbench.analysis.cost import chrome_trace
from workbench.bench.fit.choice_ranking import predicted_step_s
from workbench.bench.session.machine_choice import of_device
from workbench.errors import WorkbenchError
from workbench.runs.measure import statement_times
from workbench.runs.measure.measured_rates import MACHINE_NAMES
from workbench.runs.measure.memory_snapshot import SNAPSHOT_FILE
from workbench.runs.process.request import RunOptions
from workbench.summary import human_bytes
from workbench.ui.app.places import Places, Tab, find
from workbench.ui.app.selection import Selection
from workbench.ui.app.shown_runs import ShownRuns
from workbench.ui.controls import inspector
from workbench.ui.controls.choice_queue import ChoiceQueue
from workbench.ui.controls.controls import Controls, Readout
from workbench.ui.controls.export import Exporter
from workbench.ui.controls.figure_strip import OPENS, PreviousRun, Strip, figures, figures_while_planning
from workbench.ui.controls.help import Help
from workbench.ui.controls.messages import (
    NO_TAB,
    NOT_ATTACHED,
    app_name,
    choices_file,
    header_words,
    limit_bytes_of,
    versions_differ,
    why_not_run,
    words_of_search,
)
from workbench.ui.controls.preview import Preview
from workbench.ui.graph.graph_view import GraphView, Scope
from workbench.ui.tabs import tables
from workbench.ui.tabs.chosen_tab import Chosen, chosen_rows
from workbench.ui.tabs.compile_tab import CompileTab
from workbench.ui.tabs.experiments import Experiments
from workbench.ui.tabs.fit_tab import FitTab
from workbench.ui.tabs.fusions_tab import Fusions
from workbench.ui.tabs.memory_tab import MemoryTab
from workbench.ui.tabs.outline_tab import OutlinePane, OutlineTab
from workbench.ui.tabs.passes_tab import Passes
from workbench.ui.tabs.peak_table import Alive, eager_peak, measured_content, predicted_content
from workbench.ui.tabs.ranking_tab import WorthTab
from workbench.ui.tabs.tables import VARIANTS, RunsAsked
from workbench.ui.tabs.timeline_tab import (
    TimelineTab,
    collective_rows,
    first_content,
    simulated_lanes,
    timeline_content,
)
from workbench.ui.widgets.split import Split, side_by_side
from workbench.util.gc_pause import paused_gc

if TYPE_CHECKING:
    from workbench.analysis.cost.machines import Machine
    from workbench.bench import Workbench
    from workbench.compiler.api import Plan
    from workbench.runs.process.follow_run import Run

_LOGGER = logging.getLogger(__name__)

TRACE_FILE = "perfetto.json"
"""File in a run's folder that Perfetto opens."""


class App:
    """The screen of a bench.

    Parameters
    ----------
    bench : Workbench
    tab : bool
        Whether to open the app also in a tab of the page.
    place : str
        Name of the tab, or top-level tab, below the graph that is open first; see `workbench.ui.app.places.find`.
    on_run_news : callable, optional
        Called when the shown run has made progress.

    Attributes
    ----------
    root : ipywidgets.VBox
        The displayed widget.
    graph, controls, strip, memory
        Widgets of the app.
    """

    def __init__(
        self,
        bench: Workbench,
        *,
        tab: bool = False,
        place: str = "",
        on_run_news: Callable[[], None] | None = None,
    ) -> None:
        if place:
            find(place)
        self.bench = bench
        self._on_run_news = on_run_news
        self._lock = threading.RLock()
        self._runs = ShownRuns(bench)
        self._asked = RunsAsked()
        self._readout: Readout | None = None
        self._stale: set[str] = set()
        self.controls = Controls(
            self._on_message, tab_asked=tab, file=choices_file(bench.program), app_name=app_name(bench.program)
        )
        self.exporter = Exporter(bench, self.controls, act=self._act, say=self._say)
        self.strip = Strip(self._on_message)
        self.graph = GraphView(
            on_turn=lambda sites: self.choosing.turn(sites),
            on_undo=lambda: self.choosing.go(back=True),
            on_redo=lambda: self.choosing.go(back=False),
            on_choose=lambda choices: self.choosing.choose(choices),
            on_place=lambda rows: self.choosing.choose({id: bench.plan.place(row) for id, row in rows.items()}),
            on_preview=lambda message: self.preview.point(message),
            on_tab=lambda name: self._act(lambda: self.places.open(name)),
        )
        self.choosing = ChoiceQueue(bench, self.graph, act=self._act, say=self._say, show=self._show_asked)
        self.preview = Preview(bench, self.graph, self.choosing, self.controls, self._on_message)
        self.inspector = inspector.Inspector(self._on_inspector)
        self._selection = Selection(
            bench, self.graph, self.inspector, self.preview, lambda text: self._say(text, bad=True), self._lock
        )
        self.memory = MemoryTab(self._on_message)
        self.alive = Alive(self._on_message)
        self.worth = WorthTab(bench, self.graph.groups, self._on_message, self.preview.learn)
        self.fit = FitTab(bench, self._in_background, self._on_message, self._say)
        asks = (self.graph.shown_ids, self.graph.reveal, self.choosing.choose, self.preview.ask)
        self.outline, self.beside = OutlineTab(bench, *asks), OutlinePane(bench, *asks)
        self._cannot_run = why_not_run(bench.program)
        self.compile = CompileTab(self._cannot_run)
        self.fusions = Fusions(bench, self._in_background, self._on_message, self._say)
        self.passes = Passes(self.graph.reveal_value)
        self.timeline = TimelineTab(self._on_message, content=first_content(bench.ranks, self._cannot_run))
        self.experiments = Experiments(
            bench.program, on_pinned=self._on_pinned, act=self._act, bench=bench, cannot_run=self._cannot_run
        )
        self.chosen = Chosen(self._on_message)
        self.sites = tables.SitesTable(self._on_message)
        self.settings = tables.Settings(self._on_message)
        self.trace = tables.TraceText(self._on_message)
        self.help = Help()
        for panel in (self.worth, self.fit.panel, self.outline, self.beside, self.passes, self.experiments):
            panel.guard = self._act  # type: ignore[method-assign]
        tabs = {
            "Curve and peak": Tab(side_by_side(self.memory, self.alive), self._show_memory),
            "Compile": Tab(self.compile),
            "Timeline": Tab(self.timeline, self._show_times),
            "Single choices": Tab(self.worth, self.worth.show_plan),
            "Fit": Tab(side_by_side(self.fit.plot, self.fit.panel), self.fit.show_plan),
            "Chosen": Tab(self.chosen, self._show_chosen),
            "Sites": Tab(self.sites, self._show_sites_table),
            "Settings": Tab(self.settings, self._show_settings),
            "Outline": Tab(self.outline, self.outline.show_plan),
            "Fusions": Tab(self.fusions, self._show_fusions),
            "Passes": Tab(self.passes, lambda: self.passes.show_plan(bench.plan)),
            "Trace": Tab(self.trace, self._show_trace),
            "Runs": Tab(self.experiments),
        }
        self._drawn_by = {
            "beside": self.beside.show_plan,
            **{title: tab.draw for title, tab in tabs.items() if tab.draw},
        }
        self.places = Places(tabs, self._draw_open)
        if place:
            self.places.open(place)
        self.root = self._arrange()
        self.controls.app = self.root.model_id
        self.beside.observe(lambda _: self._draw_open(), names="looked_at")
        self.graph.observe(lambda _: self._select(), names="selected")
        self.graph.observe(lambda _: self._show_rows(), names="folds")
        for plot in (self.memory, self.fit.plot):
            self.graph.observe(lambda change, plot=plot: plot.paint(dark=change["new"]), names="dark")
        self.controls.content = {
            "program": bench.program.name,
            "place": header_words(bench),
            "executor": bench.executor,
            "cannot_run": NOT_ATTACHED if self._cannot_run else "",
            "ranks": bench.ranks,
        }
        self._refresh()
        self.experiments.refresh()
        self._forget = bench.observe(self._refresh)
        self._selection.start()
        self.root.observe(lambda _: self.close(), names="comm")
        if bench.program.device == "cpu":
            # Python waits for this thread at its end: PyTorch aborts the process if a thread still computes then.
            measuring = threading.Thread(target=lambda: self.strip.guard(self._measure_cpu), name="workbench-rates")
            measuring.start()

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.root)

    def close(self) -> None:
        """Stop following the bench."""
        self._forget()
        self._selection.close()
        self.fit.close()
        self.fusions.close()
        if self._readout is not None:
            self._readout.stop()

    def _arrange(self) -> ipywidgets.VBox:
        height = f"{self.graph.height}px"
        self.graph.layout = ipywidgets.Layout(flex="2 1 600px", min_width="0", width="auto", height=height)
        self.inspector.layout = ipywidgets.Layout(flex="1 1 300px", min_width="0", width="auto", max_height=height)
        self.memory.layout = ipywidgets.Layout(flex="3 1 480px", min_width="0", width="auto")
        self.alive.layout = ipywidgets.Layout(flex="2 1 340px", min_width="0", width="auto")
        middle = side_by_side(self.beside, self.graph, Split(axis="x"), self.inspector)
        root = ipywidgets.VBox(
            [self.controls, self.strip, middle, self.preview, Split(axis="y"), self.help, self.places.root],
            layout=ipywidgets.Layout(width="100%", grid_gap="10px"),
        )
        root.add_class("wb-app")
        return root

    # The user's requests.

    def _on_message(self, message: dict[str, Any]) -> None:
        acts: dict[str, Callable[[], None]] = {
            "run": self._run,
            "cancel": self._cancel,
            "undo": lambda: self.choosing.go(back=True),
            "redo": lambda: self.choosing.go(back=False),
            "export": lambda: self.exporter.write(
                message.get("path", self.controls.file), message.get("target", "thunder"), message.get("peak", "")
            ),
            "export_preview": lambda: self.exporter.show(
                message["path"], message["target"], message["asked"], message.get("peak", "")
            ),
            "export_cancel": self.exporter.cancel,
            "run_torch": lambda: self.exporter.run(message.get("peak", "")),
            "plain_peak": self._predict_plain,
            "dismiss": lambda: self._say(None),
            "place": lambda: self._act(lambda: self.places.open(message["name"])),
            "no_tab": lambda: self._say(NO_TAB),
            "versions_differ": lambda: self._say(versions_differ(message["lab"]), bad=True),
            "choose": lambda: self.choosing.choose({message["id"]: message["option"]}),
            "choose_all": lambda: self.choosing.choose(message["choices"]),
            "revert": lambda: self.choosing.choose(message["choices"], release=True),
            "release": lambda: self._act(lambda: self.bench.release(message["sites"])),
            "runs": lambda: self._ask_of_runs(message["against"], message["snapshot"]),
            "perfetto": lambda: self._act(self._write_trace),
            "scope": lambda: self._choose_scope(message["scope"]),
            "in_turns": lambda: self._time_in_turns(bool(message["on"])),
            "machine": lambda: self._in_background("simulating", lambda: self._simulate_on(message["name"])),
            "search": lambda: self._in_background("searching", lambda: self._search(message["limit"])),
            "preview": lambda: self.preview.point(message),
            "go": lambda: self.graph.reveal(message["id"]),
            "unveil": lambda: self.graph.unveil(message["id"]),
            "unfold": lambda: self.graph.fold(self.graph.selected),
            "code": lambda: self._in_background(
                "reading the code", lambda: self._selection.show_code(message["fusion"])
            ),
        }
        act = acts.get(message.get("type", ""))
        if act is not None:
            act()

    def _on_inspector(self, message: dict[str, Any]) -> None:
        if message.get("type") == "choose":
            # If identical layers are folded, one arc stands for an arc of each layer. The choice then applies to all
            # these arcs, unless the user has limited choices to the shown layer, or extended them to all layers.
            self.choosing.choose(self.graph.choices_at(message["id"], message["option"]))
        elif message.get("type") == "best":
            self._selection.ask_best()
        else:
            self._on_message(message)

    def _act(self, act: Callable[[], Any]) -> Any:
        """Call `act` and return its result. If it fails, show one line in the app and return None."""
        # Do not hold the app's lock here: `act` may take seconds, and other threads need the lock to draw the app.
        try:
            return act()
        except WorkbenchError as error:
            self._say(error.in_app(), bad=True)
        except OSError as error:
            self._say(f"{error.filename or 'file'}: {error.strerror}", bad=True)
        except Exception as error:
            # Log the traceback. The app must stay usable after any failure.
            _LOGGER.exception("the app could not do what was asked")
            self._say(f"{type(error).__name__}: {error}", bad=True)
        return None

    def _in_background(self, busy: str, act: Callable[[], None]) -> None:
        """Run `act` in a separate thread, because `act` takes seconds and the app must answer clicks meanwhile.

        Only one task runs at a time. Another task is refused with a message.
        """
        with self._lock:
            if self._busy:
                self._say(f"Wait until the app has finished {self._busy}", bad=True)
                return
            self._busy = busy
        under_way = {"text": f"{busy.capitalize()}…", "bad": False}
        self.controls.update(busy=busy, message=under_way)

        def run() -> None:
            try:
                self._act(act)
            finally:
                self._busy = ""
                # Clear the progress message if `act` did not replace it by another message.
                over = self.controls.content["message"] == under_way
                self.controls.update(busy="", **({"message": None} if over else {}))

        threading.Thread(target=run, name=f"workbench-{busy}", daemon=True).start()

    _plain_bytes: int | None = None
    """Predicted peak of plain `torch.compile` without choices; None until the user asks for it."""

    _busy = ""
    """Name of the task in the background; empty when idle."""

    def _simulate_on(self, name: str) -> None:
        self.bench.machine = name
        self._say(f"Ranks are now simulated on {name}: {self.bench.machine.source}.")

    def _search(self, limit: str) -> None:
        """Find the best order of collectives, and choose it as one change."""
        bench = self.bench
        asked, limit_bytes = bench.choices, limit_bytes_of(limit)
        found = bench.search_waits(limit_bytes=limit_bytes)
        if bench.choices != asked:
            self._say("The choices changed while the best order was searched for: search again", bad=True)
            return
        bench.choose(found.choices)
        self._say(words_of_search(found))

    def _say(self, text: str | None, *, bad: bool = False) -> None:
        self.controls.update(message=None if text is None else {"text": text, "bad": bad})

    def _show_asked(self) -> None:
        with self._lock:
            if self.bench.plan is not self._plan_shown:
                self._refresh()
            elif not self.choosing.pending:
                # The last request was refused, so its preview must not say that it is in force.
                self.preview.renew()
            self.graph.ask(self.choosing.pending)
            self._show_figures()

    def _ask_of_runs(self, variants: list[str], snapshot: bool) -> None:
        self._asked = RunsAsked(tuple(name for name in VARIANTS if name in variants), snapshot)
        self.controls.update(in_turns="stock" in variants)
        self._redraw("Settings")

    def _time_in_turns(self, on: bool) -> None:
        """Set whether runs interleave their steps with stock steps; update both of the app's check boxes for this."""
        others = [name for name in self._asked.against if name != "stock"]
        self._ask_of_runs([*others, "stock"] if on else others, self._asked.snapshot)

    def _run(self) -> None:
        asked = self._asked
        variants = {name: VARIANTS[name].choices for name in asked.against}
        options = RunOptions(memory_snapshot=asked.snapshot)
        self._act(lambda: self.bench.run(options=options, against=variants))

    def _cancel(self) -> None:
        if self._runs.latest is not None:
            self._act(self._runs.latest.cancel)

    def _choose_scope(self, scope: Scope) -> None:
        """Set whether a choice applies to one layer, to identical layers or to all layers. Then update the effects."""
        self.graph.scope = scope
        self._select()

    def _write_trace(self) -> None:
        """Write the Timeline's data for Perfetto: the measured run or, if there is none, the simulated step."""
        bench, run = self.bench, self._runs.clocked
        overlap = bench.overlap()
        if run is not None:
            written = statement_times.write_chrome_trace(run, run.run_dir / TRACE_FILE)
        elif overlap is not None:
            target = pathlib.Path(f"{bench.program.name}.{TRACE_FILE}")
            written = chrome_trace.write_trace(chrome_trace.simulated_step(bench.plan.graph, overlap), target)
        else:
            self._say(self._cannot_run or "Nothing was measured yet: press Compile & run first", bad=True)
            return
        self._say(f"Written to {written.absolute()}: open it in ui.perfetto.dev or chrome://tracing")

    # Display.

    @paused_gc()
    def _refresh(self) -> None:
        with self._lock:
            bench, plan = self.bench, self.bench.plan
            self.follow_latest_run()
            measured = self._runs.keep_measured()
            self.choosing.drop_planned(plan)
            # Draw the figures before the graph, because users look at the figures first and the graph takes longer.
            self._show_figures()
            if plan is not self._plan_shown:
                self._plan_shown = plan
                self.graph.show(plan.graph, plan.sites)
                self._redraw(*self._drawn_by)
                self.preview.renew()
                self.exporter.forget()
            else:
                if measured:
                    self._redraw("Curve and peak", "Timeline")
                elif bench.machine != self._machine_shown:
                    self._redraw("Timeline", "Fit")
                # The user may have chosen a default option, or released one: the plan is the same then.
                self._redraw("Chosen")
            self.graph.ask(self.choosing.pending)
            self._machine_shown = bench.machine
            self.controls.update(can_undo=bench.can_undo, can_redo=bench.can_redo, **_machines(bench))
            self._select()

    def follow_latest_run(self) -> None:
        """Show the state of the latest run, and update it while the run goes on."""
        with self._lock:
            latest = self._runs.take_latest()
            if latest is not None:
                if self._readout is not None:
                    self._readout.stop()
                self._readout = Readout(self.controls, self.preview, latest, self._on_news)
                self.compile.follow(latest)
                self.experiments.refresh()

    _plan_shown: Any = None
    _state_listed: Any = None
    """The latest run and its state, as the tab Runs lists it."""
    _machine_shown: Any = None

    def _on_news(self, run: Run) -> None:
        with self._lock:
            if run is not self._runs.latest:
                return
            if self._on_run_news is not None:
                self._on_run_news()
            self._show_figures()
            if self._runs.keep_measured():
                self._redraw("Curve and peak")
            self._redraw("Fusions", "Timeline")
            if (run, run.state) != self._state_listed:
                self._state_listed = run, run.state
                self.experiments.refresh()
            if run.state in ("done", "failed", "cancelled"):
                self._redraw("Fit")
                if run.request.torch is not None:
                    self.exporter.forget()  # the shown file now has measured figures
            if run.state == "done" and run.request.options.memory_snapshot:
                snapshot = run.run_dir / SNAPSHOT_FILE
                self._say(f"The memory snapshot of a step is in {snapshot}: open it at pytorch.org/memory_viz")
            if run.state == "failed" and run.error:
                self._say(f"The run failed: {run.error}", bad=True)

    def _redraw(self, *titles: str) -> None:
        """Redraw the tabs called `titles`: the open tab now, other tabs when they are opened."""
        self._stale.update(titles)
        self._draw_open()

    def _draw_open(self) -> None:
        with self._lock:
            title = self.places.tab
            self.help.show(title)
            for name, tab in (("Compile", self.compile), ("Single choices", self.worth), ("Fit", self.fit)):
                tab.look(title == name)
            for seen in self._stale & {title, "beside" if self.beside.looked_at else ""}:
                self._stale.remove(seen)
                self._drawn_by[seen]()

    def _show_rows(self) -> None:
        """Redraw all tabs after folding, because their links name nodes of the graph."""
        self._redraw(*self._drawn_by)
        self._select()

    def _show_chosen(self) -> None:
        bench = self.bench
        self.chosen.content = {"rows": chosen_rows(bench.choices, bench.by_hand, bench.plan.site_of)}

    def _show_sites_table(self) -> None:
        self.sites.content = {"rows": tables.site_rows(self.bench.plan.sites)}

    def _show_settings(self) -> None:
        runs = tables.runs_content(self._asked, self.bench.ranks, self._cannot_run)
        self.settings.content = {"rows": tables.setting_rows(self.bench.plan.sites), "runs": runs}

    def _show_figures(self) -> None:
        runs = self._runs.finished()
        latest = self._runs.measured
        if latest is not None and latest.state in ("failed", "cancelled") and runs:
            # If the latest run failed or was cancelled, show the measurements of the last finished run.
            latest = runs[-1]
        same, against = self._runs.has_choices(latest), self._runs.baseline(self.experiments.pinned, latest)
        before = PreviousRun(runs[-1], self._runs.has_choices(runs[-1])) if runs else None
        shown = figures(
            self.bench.plan,
            latest,
            against,
            same_choices=same,
            machine=self.bench.machine,
            rates=self._rates,
            previous=before,
            step_s=self._step_s,
        )
        if self.choosing.pending:
            shown = figures_while_planning(shown, self.bench.plan, self.choosing.estimate(), against)
        self.strip.content = {"figures": [{**one, "opens": OPENS.get(one["key"], "")} for one in shown]}

    @property
    def _step_s(self) -> Callable[[Plan], float] | None:
        """Predicts the step time of a plan; None while the rates of this computer's CPU are not measured."""
        machine, ranks = self._rates, self.bench.ranks
        if machine is None:
            return None

        def predicted(plan: Plan) -> float:
            # Figures are shown often; the plan and its baseline rarely change.
            known = next((s for of, by, s in self._steps_known if of is plan and by == machine), None)
            if known is None:
                known = predicted_step_s(plan, machine, ranks)
                self._steps_known = (*self._steps_known[-3:], (plan, machine, known))
            return known

        return predicted

    @property
    def _rates(self) -> Machine | None:
        """The machine by whose rates step times are predicted; None while they are not measured."""
        return self._cpu if self.bench.program.device == "cpu" else self.bench.machine

    _cpu: Machine | None = None

    def _measure_cpu(self) -> None:
        """Measure the rates of this computer's CPU, which takes a second, and show the predicted step time."""
        try:
            self._cpu = of_device(self.bench)
        except RuntimeError:
            # While Python ends, no thread can be started, and nobody looks at the app.
            if threading.main_thread().is_alive():
                raise
            return
        with self._lock:
            self._show_figures()

    _steps_known: tuple[tuple[Plan, Any, float], ...] = ()

    def _on_pinned(self) -> None:
        with self._lock:
            self._show_figures()
            self._redraw("Curve and peak")

    def _show_fusions(self) -> None:
        run = self._runs.measured
        # Fusions of different plans may have equal names. Use a run's compile times only for the run's own plan.
        seconds = self.compile.compiled_s if self._runs.has_choices(run) and run is self._runs.latest else {}
        self.fusions.show_plan(self.graph.own_ids(), seconds)

    def _show_times(self) -> None:
        plan, clocked = self.bench.plan, self._runs.clocked
        overlap = self.bench.overlap(plan)
        content = timeline_content(
            clocked.statements if clocked is not None else None,
            self._runs.nodes_of(clocked, self.graph.shown_ids),
            simulated_lanes(plan.graph, overlap, self.graph.shown_ids()) if overlap is not None else [],
            overlap,
            same_choices=self._runs.has_choices(clocked),
            step_s=clocked.step_s if clocked is not None else None,
            cannot_run=self._cannot_run,
        )
        if overlap is not None:
            content["collectives"] = collective_rows(plan.graph, overlap, self.graph.shown_ids())
        self.timeline.content = content

    def _show_memory(self) -> None:
        same = self._runs.has_choices(self._runs.peak)
        self.memory.show(
            self.bench.plan,
            self._runs.baseline(self.experiments.pinned, None),
            self._runs.peak,
            same_choices=same,
            ids=self.graph.shown_ids(),
        )
        measured = measured_content(self._runs.peak, self._runs.nodes_of(self._runs.peak, self.graph.own_ids))
        predicted = predicted_content(self.bench.plan, self.graph.own_ids(), self.bench.plan.reserved)
        self.alive.content = {
            "predicted": predicted,
            "measured": measured,
            "eager": eager_peak(self._runs.peak),
            "plain": self._plain_peak(),
        }

    def _plain_peak(self) -> str | None:
        """Return words for the predicted peak of plain `torch.compile`, as `Alive` shows them."""
        program = self.bench.program
        if self._plain_bytes is None:
            return None if program.device != "planned" and self.bench.ranks == 1 else ""
        return f"Plain torch.compile without choices: {human_bytes(self._plain_bytes)}, predicted"

    def _predict_plain(self) -> None:
        # This takes seconds or minutes. The app must answer clicks meanwhile, also those that take long.
        self._say("Predicting the peak of torch.compile…")

        def predict() -> None:
            self._plain_bytes = self._act(self.exporter.plain_peak_bytes)
            if self._plain_bytes is not None:
                self._say(None)
                self._show_memory()
                self.fit.plain_bytes = self._plain_bytes
                self._redraw("Fit")

        self.controls.in_thread("plain-peak", predict)

    def _show_trace(self) -> None:
        plan, shown = self.bench.plan, self.graph.shown
        assert shown is not None
        values, ids = plan.graph.values, shown.statement_ids
        makers = zip(values.name, values.producer.tolist(), strict=True)
        # A value of a folded layer, or of a hidden view, is mapped to the node that represents it.
        named = {value: ids[maker] for value, maker in makers if maker >= 0 and ids[maker]}
        named |= {id[2:]: id for id in shown.node_ids if id.startswith("t:")}
        self.trace.content = {"lines": tables.trace_lines(plan.text(), plan.graph, named, self.graph.own_ids())}

    def _select(self) -> None:
        selected = self.graph.selected
        for panel in (self.chosen, self.sites, self.trace, self.fusions, self.worth, self.outline, self.beside):
            panel.selected = selected
        marked = self.graph.marked_nodes(selected)
        for panel in (self.memory, self.timeline, self.passes, self.trace):
            panel.marked = marked
        self._selection.show()


def _machines(bench: Workbench) -> dict[str, Any]:
    """Return the controls' data about machines: the current one, the names to choose from, and the header's words."""
    name = bench.machine.name
    names = list(dict.fromkeys((*MACHINE_NAMES, name)))
    return {"machine": name, "machines": names, "place": header_words(bench)}
