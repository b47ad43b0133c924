"""Compare selected plans and runs, in the top-level tab Experiments; see `workbench.bench.report.comparison`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.bench.report.comparison import (
    ColumnState,
    SideBySide,
    column_of_plan,
    column_of_run,
    compare_columns,
    unique_name,
)
from workbench.errors import RunError, WorkbenchError
from workbench.runs.process import follow_run, run_store
from workbench.ui.tabs import compared_page

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.compiler.api import Plan
    from workbench.runs.process.follow_run import Run

NOW, STOCK = "now", "stock"
_KEPT = "kept"
MOST_ROWS = 400
"""Maximum number of statements that the app lists; a page lists all statements."""


class ComparePanel:
    """Plans that can be compared with the runs of a bench, and the last comparison.

    Parameters
    ----------
    bench : Workbench

    Attributes
    ----------
    found : SideBySide or None
        The last comparison.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._kept: dict[str, dict[str, str]] = {}
        self._made = 0
        self.found: SideBySide | None = None

    def plans(self) -> list[dict[str, str]]:
        """Return the plans for the page's list: the current plan, the stock plan, and the kept plans."""
        listed = [{"key": NOW, "name": "the plan as it is now"}, {"key": STOCK, "name": "the plan without choices"}]
        return [*listed, *({"key": key, "name": key} for key in self._kept)]

    def keep(self) -> str:
        """Remember the choices of the current plan while the app is open; return the plan's name in the list."""
        self._made += 1
        key = f"{_KEPT} {self._made}"
        self._kept[key] = dict(self._bench.choices)
        return key

    def forget(self, key: str) -> None:
        """Forget a kept plan."""
        self._kept.pop(key, None)

    def compare(self, plans: Sequence[str], folders: Sequence[str], base: str = "") -> dict[str, Any]:
        """Compare plans and runs; return the data that the app shows.

        If the choices of a run still fit the program, the run is planned again to show its statements.

        Raises
        ------
        RunError, ChoiceError
            If there are fewer than two plans and runs, if a run cannot be read, or if a kept plan was removed.
        """
        sides = [column_of_plan(key, self._bench.program.name, self._plan(key)) for key in plans]
        for folder in folders:
            run = follow_run.follow(Path(folder))
            sides.append(self._measured_column(unique_name(run.name or run.run_dir.name, sides), run))
        self.found = compare_columns(sides, base if any(side.column.name == base for side in sides) else "")
        return compared_page.comparison_content(self.found, most_rows=MOST_ROWS)

    def write(self, path: str) -> Path:
        """Write the last comparison as an HTML page. An existing file is replaced only if it is such a page.

        Raises
        ------
        RunError
            If nothing was compared yet.
        ConfigError
            If the page cannot be written.
        """
        if self.found is None:
            raise RunError("nothing was compared yet: tick two plans or runs, and press Put side by side")
        return self.found.write(path)

    def _plan(self, key: str) -> Plan:
        if key == NOW:
            return self._bench.plan
        if key == STOCK:
            return self._bench.stock_plan
        if key not in self._kept:
            raise RunError(f"the plan {key} was removed: tick another")
        return self._bench.plan_with(self._kept[key])

    def _measured_column(self, name: str, run: Run) -> ColumnState:
        choices = run_store.choices_of(run)
        try:
            plan = None if choices is None else self._bench.plan_with(choices)
        except WorkbenchError:  # the program may have changed since the run
            plan = None
        if plan is None or plan.unmatched:
            return column_of_run(name, run)
        return column_of_plan(name, self._bench.program.name, plan, run)
