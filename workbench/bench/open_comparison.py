"""Open the subjects of a comparison as columns of `workbench.bench.report.comparison`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from workbench.bench.open_bench import open as open_bench
from workbench.bench.report import open_saved_plan
from workbench.bench.report.comparison import (
    PREDICTED,
    Column,
    ColumnState,
    SideBySide,
    column_of_plan,
    column_of_run,
    compare_columns,
    known_figures,
    statements_of,
    unique_name,
)
from workbench.bench.report.open_saved_plan import SavedPlan
from workbench.bench.session.workbench import Workbench
from workbench.core.config import Config, load
from workbench.errors import ChoiceError, short_repr
from workbench.runs.process import run_store
from workbench.runs.process.follow_run import Run

type Subject = Workbench | SavedPlan | Run | Config | str | os.PathLike[str]


def compare(*subjects: Subject, names: Sequence[str] = (), base: str = "") -> SideBySide:
    """Compare plans and runs side by side.

    Parameters
    ----------
    *subjects : Workbench, SavedPlan, Run, Config, str or path
        Two or more. A bench is compared with its present choices. A text is the path of a saved plan
        (``NAME.plan.json``) or of a config (``NAME.py``), or a run's folder or name. The program of a config is opened
        and planned, so it must have a name.
    names : sequence of str, optional
        Names of all columns; by default the names of the programs, files and runs.
    base : str, optional
        Name of the column with which the other columns are compared; by default the first column.

    Returns
    -------
    SideBySide

    Raises
    ------
    ChoiceError
        If there are fewer than two subjects, if `names` does not have a unique name for each of them, or if no column
        is called `base`.
    ConfigError, RunError, ProgramError
        If a text is not the path or name of a readable plan, config or run.
    """
    if names and (len(names) != len(subjects) or len(set(names)) < len(names)):
        raise ChoiceError(
            f"names must be {len(subjects)} different names, one for each column; given {short_repr(names)}"
        )
    sides = list[ColumnState]()
    for i, subject in enumerate(subjects):
        named, opened = _open_subject(subject)
        sides.append(_side(unique_name(names[i] if names else named, sides), opened))
    return compare_columns(sides, base)


def _open_subject(subject: Subject) -> tuple[str, Workbench | SavedPlan | Run]:
    """Return a default name for a subject's column, and the opened subject."""
    if isinstance(subject, Workbench):
        return subject.program.name, subject
    if isinstance(subject, SavedPlan):
        return str(subject.document["program"]), subject
    if isinstance(subject, Run):
        return subject.name or subject.run_dir.name, subject
    if isinstance(subject, Config):
        return subject.program, open_bench(subject.program, config=subject, settings=subject.settings)
    path = Path(subject)
    if path.name.endswith(".plan.json"):
        return path.name.removesuffix(".plan.json"), open_saved_plan.read_saved_plan(path)
    if path.suffix == ".py" and not path.is_dir():
        return path.stem, _open_subject(load(path))[1]
    run = run_store.open(str(subject))
    return run.name or run.run_dir.name, run


def _side(name: str, subject: Workbench | SavedPlan | Run) -> ColumnState:
    if isinstance(subject, Run):
        return column_of_run(name, subject)
    if isinstance(subject, Workbench):
        return column_of_plan(name, subject.program.name, subject.plan)
    return _column_of_saved(name, subject)


def _column_of_saved(name: str, subject: SavedPlan) -> ColumnState:
    whole = dict(subject.document["figures"])
    notes = [f"{id}: {reason}" for id, reason in subject.unpredicted.items()]
    over = subject.timeline if subject.has_statements else None
    figures: dict[str, float | None] = {}
    if not notes:
        figures = {**known_figures(whole), "peak_bytes": subject.peak_bytes, "saved_bytes": subject.saved_bytes}
        if subject.changed:
            # If only the order was changed after opening, the statements and the saved storages are the same. After
            # other changes, only the bytes are known.
            names = PREDICTED if over is not None else ("peak_bytes", "saved_bytes")
            figures = {name: figures[name] for name in names}
        if not subject.estimate.exact:
            notes.append("its figures are estimates; the owner's plan may differ slightly")
    column = Column(
        name=name,
        kind="saved plan",
        program=str(subject.document["program"]),
        predicted=figures,
        measured={},
        sites={site.id: site.choice for site in subject.sites()},
        statements=None if over is None else statements_of(subject.graph, over),
        notes=tuple(notes),
    )
    return ColumnState(column, subject.sites())
