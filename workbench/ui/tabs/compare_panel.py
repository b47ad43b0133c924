"""Compare the selected plans and runs in the Experiments tab, by `workbench.bench.report.comparison`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.bench.report.comparison import ColumnState, SideBySide, of_plan, of_run, side_by_side, unlike
from workbench.errors import RunError, WorkbenchError
from workbench.runs.process import run_control, run_store
from workbench.ui.tabs import compared_page

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.compiler.api import Plan
    from workbench.runs.process.run_control import Run

NOW, STOCK = "now", "stock"
_KEPT = "kept"
MOST_ROWS = 400
"""Statements that the app lists; a page has all."""


class ComparePanel:
    """What can be put side by side with the runs of a bench, and what was.

    Parameters
    ----------
    bench : Workbench

    Attributes
    ----------
    found : SideBySide or None
        What was compared last.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._kept: dict[str, dict[str, str]] = {}
        self._made = 0
        self.found: SideBySide | None = None

    def plans(self) -> list[dict[str, str]]:
        """The plans there are, as the page lists them: the one in force, stock, and those that were kept."""
        listed = [{"key": NOW, "name": "the plan as it is now"}, {"key": STOCK, "name": "stock"}]
        return [*listed, *({"key": key, "name": key} for key in self._kept)]

    def keep(self) -> str:
        """Keep the plan in force by its choices, under a name that is given back; for as long as the app is open."""
        self._made += 1
        key = f"{_KEPT} {self._made}"
        self._kept[key] = dict(self._bench.choices)
        return key

    def forget(self, key: str) -> None:
        """Keep that plan no longer."""
        self._kept.pop(key, None)

    def compare(self, plans: Sequence[str], folders: Sequence[str], base: str = "") -> dict[str, Any]:
        """Put plans and runs side by side, as the page shows it.

        A run is shown with the statements of the plan that its choices have now, where they still have one.

        Raises
        ------
        RunError, ChoiceError
            If there are fewer than two, a run cannot be read, or a plan is kept no longer.
        """
        sides = [of_plan(key, self._bench.program.name, self._plan(key)) for key in plans]
        for folder in folders:
            run = run_control.follow(Path(folder))
            sides.append(self._measured(unlike(run.name or run.run_dir.name, sides), run))
        self.found = side_by_side(sides, base if any(side.column.name == base for side in sides) else "")
        return compared_page.content(self.found, most_rows=MOST_ROWS)

    def write(self, path: str) -> Path:
        """Write what was compared as one page; over a page of before, and over nothing else.

        Raises
        ------
        RunError
            If nothing was compared yet.
        ConfigError
            If it cannot be written.
        """
        if self.found is None:
            raise RunError("nothing is side by side: tick two plans or runs, and press Put side by side")
        return self.found.write(path)

    def _plan(self, key: str) -> Plan:
        if key == NOW:
            return self._bench.plan
        if key == STOCK:
            return self._bench.stock_plan
        if key not in self._kept:
            raise RunError(f"the plan {key} is kept no longer: tick another")
        return self._bench.plan_with(self._kept[key])

    def _measured(self, name: str, run: Run) -> ColumnState:
        choices = run_store.choices_of(run)
        try:
            plan = None if choices is None else self._bench.plan_with(choices)
        except WorkbenchError:  # choices of a program that has changed since
            plan = None
        if plan is None or plan.unmatched:
            return of_run(name, run)
        return of_plan(name, self._bench.program.name, plan, run)
