"""Any number of plans and runs side by side: their figures, sites and statements, compared with a named baseline."""

from __future__ import annotations

import bisect
import dataclasses
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.memory.liveness import Timeline, timeline
from workbench.bench.report.saved_plan import write_document
from workbench.core.graph import BACKWARD, Graph, Kind
from workbench.errors import ChoiceError, short_repr
from workbench.runs.process import run_store
from workbench.runs.process.follow_run import Run
from workbench.runs.sweep import compare as of_runs
from workbench.summary import human_bytes, human_change, human_count, human_seconds

if TYPE_CHECKING:
    from workbench.compiler.api import Plan
    from workbench.core.lever import Site

BEGIN = b"<!doctype html><!-- thunder-workbench comparison -->"
"""First bytes of every page that a comparison wrote."""

_LOWER_BOUND = "the predicted peak is a lower bound"
PREDICTED = ("peak_bytes", "saved_bytes", "saved_tensors", "statements")
"""Figures that every plan has."""

_SHOWN_STATEMENTS = 40
"""Maximum number of differing statements that are printed as text; a page has all of them."""


@dataclasses.dataclass(frozen=True)
class Statement:
    """One statement of one plan.

    Attributes
    ----------
    key : str
        Text that identifies the statement in every plan. The text has the side (forward or backward), the id of the
        program's statement, the symbol, and a number. The number distinguishes statements with the same side, id and
        symbol.
    side : str
        ``forward`` or ``backward``.
    name, source : str
        Symbol, and the user's line if known.
    position : int
        Position among the plan's statements, from 0; members of fusions are left out.
    peak_bytes : int
        Predicted maximum of bytes alive during the statement.
    """

    key: str
    side: str
    name: str
    source: str
    position: int
    peak_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """One plan or run of a comparison.

    Attributes
    ----------
    name : str
        Unique among the columns.
    kind : str
        ``plan``, ``saved plan`` or ``run``.
    program : str
    predicted, measured : mapping of str to float or None
        Figures by name, with units in the names; None if a figure is missing.
    sites : mapping of str to str
        The choice of each site. `column_of_run` has only sites with a choice; `compare_columns` adds the other sites.
    statements : tuple of Statement or None
        None if the graph is unknown; a run does not store its graph.
    notes : tuple of str
        Errors, warnings, a plan's corrections, and reasons for missing figures.
    """

    name: str
    kind: str
    program: str
    predicted: Mapping[str, float | None]
    measured: Mapping[str, float | None]
    sites: Mapping[str, str]
    statements: tuple[Statement, ...] | None
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ComparisonRow:
    """One figure, site or statement, with its value in each column.

    Attributes
    ----------
    name : str
    kind : str
        ``predicted`` or ``measured``; ``site``; ``forward`` or ``backward``.
    values : tuple
        For each column, its value; None if the column has no value.
    differs : tuple of bool
        For each column, whether its value differs from the baseline's value. A statement differs if only one of the two
        columns has it, or if it moved relative to the statements that both columns have.
    source : str
        For a statement, the user's line.
    """

    name: str
    kind: str
    values: tuple[Any, ...]
    differs: tuple[bool, ...]
    source: str = ""


@dataclasses.dataclass(frozen=True)
class SideBySide:
    """Plans and runs side by side; `workbench.compare` returns one.

    Attributes
    ----------
    columns : tuple of Column
    base : str
        Name of the column with which the other columns are compared.
    figures, sites, statements : tuple of ComparisonRow
        Figures, without counts that are zero or missing in all columns; sites with different choices; all statements of
        the plans. Statements with the same `Statement.key` share a row.
    runs : workbench.runs.sweep.compare.Comparison or None
        Comparison of the runs among the columns, with intervals and verdicts; None if there are fewer than two runs.
    """

    columns: tuple[Column, ...]
    base: str
    figures: tuple[ComparisonRow, ...]
    sites: tuple[ComparisonRow, ...]
    statements: tuple[ComparisonRow, ...]
    runs: of_runs.Comparison | None = None

    @property
    def base_index(self) -> int:
        """Index of the baseline among the columns."""
        return [column.name for column in self.columns].index(self.base)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the columns, and reasons why the columns are hard to compare."""
        found = [f"{column.name}: {note}" for column in self.columns for note in column.notes]
        programs = dict.fromkeys(column.program for column in self.columns)
        if len(programs) > 1:
            found.append(f"the programs differ: {', '.join(programs)}")
        without = [column.name for column in self.columns if column.statements is None]
        if without and len(without) < len(self.columns):
            found.append(f"statements cannot be compared, because no graph was kept: {', '.join(without)}")
        return tuple(found)

    @property
    def differing_statements(self) -> tuple[ComparisonRow, ...]:
        """The statements that differ from the baseline in at least one column."""
        return tuple(row for row in self.statements if any(row.differs))

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain data for JSON, with only the statements that differ."""
        return {
            "base": self.base,
            "columns": [{"name": c.name, "kind": c.kind, "program": c.program} for c in self.columns],
            "figures": [dataclasses.asdict(row) for row in self.figures],
            "sites": [dataclasses.asdict(row) for row in self.sites],
            "statements": [
                dataclasses.asdict(row)
                | {"values": [None if at is None else dataclasses.asdict(at) for at in row.values]}
                for row in self.differing_statements
            ],
            "notes": list(self.notes),
        }

    def cells(self, row: ComparisonRow) -> list[str]:
        """Return the table cells of a row, one for each column. A figure also has its difference from the baseline."""
        of_base = row.values[self.base_index]
        found = []
        for value, differs in zip(row.values, row.differs, strict=True):
            if isinstance(value, Statement):
                found.append(f"{value.position + 1}{' moved' if differs and of_base is not None else ''}")
            elif row.kind == "site":
                found.append(value or "no such site")
            elif row.kind in ("forward", "backward"):
                found.append("–")
            else:
                found.append(_figure(row.name, value, of_base if differs else None))
        return found

    def tables(self) -> dict[str, list[tuple[str, ...]]]:
        """Return tables by title: figures, sites that differ, statements that differ. Headings are the first row."""
        names = tuple(f"{c.name} (baseline)" if c.name == self.base else c.name for c in self.columns)
        found = {
            "Figures": [("figure", "", *names), *((_words(r.name), r.kind, *self.cells(r)) for r in self.figures)],
            "Sites that differ": [("site", "", *names), *((r.name, "", *self.cells(r)) for r in self.sites)],
            "Statements that differ": [
                ("statement", "side", *names),
                *((f"{r.name} {r.source}".strip(), r.kind, *self.cells(r)) for r in self.differing_statements),
            ],
        }
        return {title: rows for title, rows in found.items() if len(rows) > 1}

    def __repr__(self) -> str:
        parts = []
        for title, rows in self.tables().items():
            listed = rows[: _SHOWN_STATEMENTS + 1]
            wide = [max(len(row[i]) for row in listed) for i in range(len(rows[0]))]
            lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, wide, strict=True)).rstrip() for row in listed]
            more = len(rows) - len(listed)
            parts.append("\n".join([title, *lines, *([f"and {more} more: see the page"] if more else [])]))
        parts += [f"note: {note}" for note in self.notes]
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        parts = []
        for title, (heads, *rows) in self.tables().items():
            head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
            listed = rows[:_SHOWN_STATEMENTS]
            body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in listed)
            more = f"<p>and {len(rows) - len(listed)} more</p>" if len(rows) > len(listed) else ""
            parts.append(f"<p>{title}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}")
        return "".join(parts) + "".join(f"<p>{escape(note)}</p>" for note in self.notes)

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write one HTML page that needs no network, with all statements of the plans aligned.

        Raises
        ------
        ConfigError
            If the page cannot be written, or `path` exists and is a different kind of file.
        """

        def text() -> str:
            from workbench.ui.tabs import compared_page

            return BEGIN.decode() + compared_page.comparison_page(self)

        return write_document(path, text, begin=BEGIN, kind="comparison", overwrite=overwrite)


@dataclasses.dataclass(frozen=True)
class ColumnState:
    """A column, with the sites and the run that `compare_columns` needs.

    Attributes
    ----------
    column : Column
    sites : sequence of Site
        Sites of the column's plan; empty if only a run is known.
    run : Run or None
    """

    column: Column
    sites: Sequence[Site] = ()
    run: Run | None = None


def compare_columns(sides: Sequence[ColumnState], base: str = "") -> SideBySide:
    """Put columns side by side; their names must be unique.

    Raises
    ------
    ChoiceError
        If there are fewer than two columns, or no column is called `base`.
    """
    if len(sides) < 2:
        raise ChoiceError(f"a comparison needs at least two plans or runs, given {len(sides)}")
    columns = [side.column for side in sides]
    found_runs = [side.run for side in sides if side.run is not None]
    defaults = {site.id: site.default for side in sides for site in side.sites}
    known = [column.name for column in columns]
    base = base or known[0]
    if base not in known:
        raise ChoiceError(
            f"there is no column {short_repr(base)} to compare the others with; legal: {', '.join(known)}"
        )
    columns = [_fill_defaults(column, columns, defaults) for column in columns]
    at = known.index(base)
    compared_runs = None
    if len(found_runs) > 1:
        first = sum(side.run is not None for side in sides[:at]) if sides[at].run is not None else 0
        compared_runs = of_runs.compare_runs(found_runs[first], *found_runs[:first], *found_runs[first + 1 :])
    return SideBySide(
        tuple(columns),
        base,
        _figures(columns, at),
        _sites(columns, at, defaults),
        _statements(columns, at),
        compared_runs,
    )


def unique_name(name: str, sides: Sequence[ColumnState]) -> str:
    """Return `name`, followed by a number if a column already has this name."""
    taken, number, found = {side.column.name for side in sides}, 1, name
    while found in taken:
        number += 1
        found = f"{name} ({number})"
    return found


def column_of_run(name: str, run: Run) -> ColumnState:
    """Return the column of a run, which has no graph."""
    memory, chosen = run.memory, run_store.choices_of(run)
    notes = [*([run.error] if run.error else []), *run.warnings]
    notes += ["by plain torch.compile"] if run.request.torch is not None else []
    if (bound := memory["peak_bound_bytes"]) is not None:
        notes.append(f"{_LOWER_BOUND}: {human_bytes(bound)}")
    notes += ["its choices cannot be read"] if chosen is None and run.request.torch is None else []
    column = Column(
        name=name,
        kind="run",
        program=str(run.request.program["name"]),
        predicted={"peak_bytes": memory["predicted_peak_bytes"]},
        measured={"peak_bytes": memory["measured_peak_bytes"], "step_s": run.step_s, "compile_s": run.compile_s},
        sites=chosen or {},
        statements=None,
        notes=tuple(notes),
    )
    return ColumnState(column, run=run)


def column_of_plan(name: str, program: str, plan: Plan, run: Run | None = None) -> ColumnState:
    """Return the column of a plan. With `run`, return the column of the run, with the plan's statements and sites."""
    column = Column(
        name=name,
        kind="plan",
        program=program,
        predicted=known_figures(plan.to_json()),
        measured={},
        sites={site.id: site.choice for site in plan.sites},
        statements=statements_of(plan.graph, plan.timeline),
        notes=(*plan.warnings, *map(str, plan.corrections), *([_LOWER_BOUND] if plan.peak_at_least else [])),
    )
    if run is None:
        return ColumnState(column, plan.sites)
    ran = column_of_run(name, run).column
    # Show the prediction that was made for the run, because the present version may predict something else.
    predicted = {**column.predicted, **{n: value for n, value in ran.predicted.items() if value is not None}}
    merged = dataclasses.replace(ran, predicted=predicted, sites=column.sites, statements=column.statements)
    return ColumnState(merged, plan.sites, run)


def known_figures(plan_record: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the figures of a plan from `Plan.to_json`, or from the figures of a saved plan."""
    found: dict[str, float | None] = {name: plan_record[name] for name in PREDICTED}
    fusions = plan_record["fusions"]
    if isinstance(fusions, Mapping):
        found |= {f"fusions_{name}": value for name, value in fusions.items() if isinstance(value, int)}
    return found | {name: value for name, value in plan_record["counts"].items() if isinstance(value, int | float)}


def _fill_defaults(column: Column, columns: Sequence[Column], defaults: Mapping[str, str]) -> Column:
    """Add to a run's column the sites for which the run has no choice.

    If a plan in the comparison has the site, add the stock option. If only another run has the site, add ``as stock``.
    """
    if column.kind != "run":
        return column
    chosen = dict.fromkeys(id for other in columns if other.kind == "run" for id in other.sites)
    stock = {**dict.fromkeys(chosen, "as stock"), **defaults}
    return dataclasses.replace(column, sites={**stock, **column.sites})


def statements_of(graph: Graph, over: Timeline | None = None) -> tuple[Statement, ...]:
    """Return the statements of a graph, without members of fusions."""
    over = over or timeline(graph)
    table, found, seen = graph.statements, list[Statement](), Counter[str]()
    for row in range(len(table)):
        if table.parent[row] >= 0:
            continue
        origin = graph.origins[table.origin[row]] if table.origin[row] >= 0 else None
        side = "backward" if table.side[row] == BACKWARD else "forward"
        # Leave out the number at the end of a fusion's name: it depends on the order of creation, which differs
        # between plans.
        name = table.name[row].rstrip("0123456789") if table.kind[row] == Kind.FUSION else table.name[row]
        key = f"{side} {origin.id if origin else ''} {name}"
        seen[key] += 1
        source = f"{origin.file}:{origin.line} {origin.text.strip()}" if origin and origin.file else ""
        peak_bytes = int(over.statement_peak_bytes[row])
        found.append(Statement(f"{key} {seen[key]}", side, name, source, len(found), peak_bytes))
    return tuple(found)


def _figures(columns: Sequence[Column], base: int) -> tuple[ComparisonRow, ...]:
    found = []
    for kind in ("measured", "predicted"):
        have: list[Mapping[str, float | None]] = [getattr(column, kind) for column in columns]
        for name in dict.fromkeys(name for each in have for name in each):
            values = tuple(each.get(name) for each in have)
            if all(value is None or (value == 0 and name not in PREDICTED) for value in values):
                continue
            differs = tuple(v is not None and values[base] is not None and v != values[base] for v in values)
            found.append(ComparisonRow(name, kind, values, differs))
    return tuple(found)


def _sites(columns: Sequence[Column], base: int, defaults: Mapping[str, str]) -> tuple[ComparisonRow, ...]:
    """Return sites with different choices.

    A site that some columns lack is included only if an option was chosen for it.
    """
    found = []
    for id in dict.fromkeys(id for column in columns for id in column.sites):
        values = tuple(column.sites.get(id) for column in columns)
        differs = tuple(value != values[base] for value in values)
        if any(differs) and {*values} - {None} != {defaults.get(id)}:
            found.append(ComparisonRow(id, "site", values, differs))
    return tuple(found)


def _statements(columns: Sequence[Column], base: int) -> tuple[ComparisonRow, ...]:
    """Return all statements in the baseline's order.

    A statement that the baseline lacks comes after the statement that precedes it in its own column.
    """
    tables = [{each.key: each for each in column.statements or ()} for column in columns]
    order: list[str] = []
    for table in (tables[base], *tables[:base], *tables[base + 1 :]):
        known, after = set(order), dict[str, list[str]]()
        before = ""
        for key in table:
            if key in known:
                before = key
            else:
                after.setdefault(before, []).append(key)
        order = [*after.get("", ()), *(key for old in order for key in (old, *after.get(old, ())))]
    stands = [_align_statements(table, tables[base]) for table in tables]
    found = []
    for key in order:
        values = tuple(table.get(key) for table in tables)
        differs = tuple(
            column.statements is not None and columns[base].statements is not None and key not in kept
            for column, kept in zip(columns, stands, strict=True)
        )
        # If both the column and the baseline lack the statement, they do not differ.
        differs = tuple(
            d and (value is not None or values[base] is not None) for d, value in zip(differs, values, strict=True)
        )
        one = next(value for value in values if value is not None)
        found.append(ComparisonRow(one.name, one.side, values, differs, one.source))
    return tuple(found)


def _align_statements(table: Mapping[str, Statement], base: Mapping[str, Statement]) -> set[str]:
    """Return the keys of the statements that did not move: the longest common subsequence with the baseline."""
    keys = [key for key in table if key in base]
    ends: list[int] = []
    last: list[int] = []
    previous: list[int] = []
    for i, key in enumerate(keys):
        position = base[key].position
        at = bisect.bisect_left(ends, position)
        previous.append(last[at - 1] if at else -1)
        ends[at : at + 1], last[at : at + 1] = [position], [i]
    found, i = set[str](), last[-1] if last else -1
    while i >= 0:
        found.add(keys[i])
        i = previous[i]
    return found


def _words(name: str) -> str:
    return name.removesuffix("_bytes").removesuffix("_us").removesuffix("_s").replace("_", " ")


def _figure(name: str, value: float | None, base: float | None) -> str:
    """Format a figure in its unit, with its difference from the baseline or, for seconds, its ratio to the baseline."""
    if value is None:
        return "–"
    if name.endswith("_s"):
        text = human_seconds(value)
        return text if not base else f"{text} (×{value / base:.3g})"
    if name.endswith("_us"):
        text = human_seconds(1e-6 * value)
    else:
        text = human_bytes(value) if name.endswith("_bytes") else human_count(int(value))
    return text if base is None else f"{text} ({human_change(name, int(value - base))})"
