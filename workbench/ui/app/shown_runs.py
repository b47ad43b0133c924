"""`ShownRuns`: the shown runs of a bench, the choices under which they ran, and the baseline of their figures."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from workbench.core.graph import Kind
from workbench.errors import WorkbenchError
from workbench.runs.process.run_store import choices_of
from workbench.ui.controls.figure_strip import Baseline

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.runs.process.follow_run import Run


class ShownRuns:
    """Keeps the latest run, and the latest runs that have measured statement times and a peak.

    Parameters
    ----------
    bench : Workbench

    Attributes
    ----------
    latest : Run or None
        The latest run of the program.
    clocked : Run or None
        The latest run with timed statements. It stays on the screen until a newer run has timed statements.
    peak : Run or None
        The latest run that measured its peak. It stays on the screen until a newer run has measured its peak.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._choices_of: dict[pathlib.Path, dict[str, str] | None] = {}
        self.latest: Run | None = None
        self.clocked: Run | None = None
        self.peak: Run | None = None

    def take_latest(self) -> Run | None:
        """Make the bench's latest run the shown run. Return it if it was not shown before, else None."""
        runs = self._bench.runs
        for run in runs:
            # Record the choices of each run, because the bench's choices may change later.
            self._choices_of.setdefault(run.run_dir, choices_of(run))
        if not runs or runs[-1] is self.latest:
            return None
        self.latest = runs[-1]
        return self.latest

    @property
    def measured(self) -> Run | None:
        """The latest run that measured this plan.

        In the app of a part it is None, because runs measure the whole program and not the part. A run of plain
        `torch.compile` measures another plan.
        """
        runs = self._bench.own_runs
        return runs[-1] if runs else None

    def keep_measured(self) -> bool:
        """Keep the shown run for its statement times and its peak, as far as the run has measured them.

        Return whether the shown peak comes from another run than before.
        """
        run, before = self.measured, self.peak
        if run is not None and run.statements is not None:
            self.clocked = run
        if run is not None and run.timeline is not None:
            self.peak = run
        return self.peak is not before

    def finished(self) -> list[Run]:
        """Return the runs that are done, oldest first."""
        return [run for run in self._bench.own_runs if run.state == "done"]

    def has_choices(self, run: Run | None) -> bool:
        """Return whether a run had the bench's present choices; True without a run."""
        return run is None or self._choices_of.get(run.run_dir) == self._bench.choices

    def baseline(self, pinned: Run | None, beside: Run | None) -> Baseline:
        """Return the baseline for the figures: the pinned run or, if no run is pinned, the stock plan.

        The measured figures of the stock plan are those of its latest finished run that is not `beside`.
        """
        if pinned is None:
            return Baseline("no choices", self._bench.stock_plan, self._stock_run(beside), interleaved="stock")
        choices = choices_of(pinned)
        try:
            plan = None if choices is None else self._bench.plan_with(choices)
        except WorkbenchError:
            plan = None
        name = f"pinned: {pinned.name or pinned.run_dir.name}"
        return Baseline(name, None if plan is None or plan.unmatched else plan, pinned)

    def _stock_run(self, beside: Run | None) -> Run | None:
        runs = [run for run in self.finished() if run is not beside]
        return next((run for run in reversed(runs) if self._choices_of.get(run.run_dir) == {}), None)

    def nodes_of(self, run: Run | None, shown_ids: Callable[[], Sequence[str]]) -> dict[str, str]:
        """Map a run's names of values and fusions to node ids; empty if the run's plan is not the shown plan.

        `shown_ids` returns the node id of each statement of the shown plan.
        """
        named: dict[str, str] = {}
        if run is None or not self.has_choices(run):
            return named
        graph, ids = self._bench.plan.graph, shown_ids()
        for statement in range(len(graph.statements)):
            for value in graph.statements.outputs[statement].tolist():
                named.setdefault(graph.values.name[value], ids[statement])
            if graph.statements.kind[statement] == Kind.FUSION:
                named[graph.statements.name[statement]] = ids[statement]
        return named
