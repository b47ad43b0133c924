"""A comparison of plans and runs, with aligned statements, as one HTML page without scripts that needs no network."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from workbench.summary import human_bytes
from workbench.ui.widgets.panel import PAGE

if TYPE_CHECKING:
    from workbench.bench.report.comparison import ComparisonRow, SideBySide, Statement

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def comparison_page(comparison: SideBySide) -> str:
    """Return the text of the page, without its first line."""
    title = " · ".join(column.name for column in comparison.columns)
    tables = comparison.tables()
    parts = [_table(comparison, tables["Figures"], comparison.figures)] if comparison.figures else []
    if comparison.sites:
        parts += ["<h2>Sites that differ</h2>", _table(comparison, tables["Sites that differ"], comparison.sites)]
    if (runs := _runs(comparison)) is not None:
        parts += [
            "<h2>Runs</h2>",
            f"<p class='wb-muted'>{escape(runs['words'])}</p>",
            _plain(runs["heads"], runs["rows"]),
        ]
    if comparison.statements:
        parts += ["<h2>Statements in step</h2>", _steps(comparison)]
    style = "".join((PAGE / name).read_text() for name in ("style.css", "report_page.css", "compared_page.css"))
    notes = "".join(f"<p class='wb-bad'>{escape(note)}</p>" for note in comparison.notes)
    return f"""
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)}: Thunder Workbench</title>
<style>{style}</style></head>
<body data-jp-theme-light="true"><main class="wb-app wb-panel wb-report wb-compared">
<header><h1>{escape(title)}</h1><span class="wb-muted">changes are against {escape(comparison.base)}</span></header>
{notes}<h2>Figures</h2>
{"".join(parts)}
</main></body></html>
"""


def _table(comparison: SideBySide, rows: Sequence[tuple[str, ...]], marks: tuple[ComparisonRow, ...]) -> str:
    heads, *body = rows
    lines = []
    for cells, row in zip(body, marks, strict=True):
        name, kind, *values = cells
        marked = "".join(
            f"<td class='{mark}'>{escape(value)}</td>"
            for mark, value in zip(_marks(comparison, row), values, strict=True)
        )
        lines.append(
            f"<tr><td class='wb-site'>{escape(name)}</td><td class='wb-muted'>{escape(kind)}</td>{marked}</tr>"
        )
    return f"<div class='wb-scroll'><table>{_head(heads)}<tbody>{''.join(lines)}</tbody></table></div>"


def _plain(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<div class='wb-scroll'><table>{_head(heads)}<tbody>{body}</tbody></table></div>"


def _head(heads: Sequence[str]) -> str:
    return f"<thead><tr>{''.join(f'<th>{escape(cell)}</th>' for cell in heads)}</tr></thead>"


def _mark(comparison: SideBySide, i: int, differs: bool) -> str:
    return "wb-base" if i == comparison.base_index else "wb-differs" if differs else ""


def comparison_content(comparison: SideBySide, *, most_rows: int) -> dict[str, Any]:
    """Return the app's data for a comparison.

    Parameters
    ----------
    comparison : SideBySide
    most_rows : int
        Maximum number of statements to list. If there are more, statements that differ are listed first.
    """
    marks = {"Figures": comparison.figures, "Sites that differ": comparison.sites}
    tables = [
        {
            "title": title,
            "heads": list(heads),
            "rows": [
                {"cells": list(cells), "marks": _marks(comparison, row)}
                for cells, row in zip(rows, marks[title], strict=True)
            ],
        }
        for title, (heads, *rows) in comparison.tables().items()
        if title in marks
    ]
    steps = AlignedStatements.of(comparison) if comparison.statements else None
    return {
        "names": [column.name for column in comparison.columns],
        "base": comparison.base,
        "tables": tables,
        "runs": _runs(comparison),
        "steps": None if steps is None else steps.content(most_rows),
        "notes": list(comparison.notes),
    }


def _marks(comparison: SideBySide, row: ComparisonRow) -> list[str]:
    return [_mark(comparison, i, differs) for i, differs in enumerate(row.differs)]


def _runs(comparison: SideBySide) -> dict[str, Any] | None:
    if comparison.runs is None:
        return None
    rows = [
        [d.run, d.figure, f"{d.ratio:.3f}" if d.ratio is not None else "", d.verdict]
        for d in comparison.runs.differences
    ]
    return {
        "words": comparison.runs.words,
        "heads": ["run", "figure", f"over {comparison.runs.base}", "verdict"],
        "rows": rows,
    }


@dataclasses.dataclass(frozen=True)
class AlignedStatement:
    """A statement in one plan: its position, and its peak memory in percent of the maximum over all plans."""

    place: str
    share: float
    text: str
    mark: str


@dataclasses.dataclass(frozen=True)
class AlignedStatements:
    """Table of the aligned statements of all plans. A row has one statement, with a cell for each plan."""

    heads: tuple[str, ...]
    rows: tuple[tuple[ComparisonRow, tuple[AlignedStatement, ...]], ...]
    words: str

    @classmethod
    def of(cls, comparison: SideBySide) -> AlignedStatements:
        """Align the statements of the columns that have statements."""
        of = [i for i, column in enumerate(comparison.columns) if column.statements is not None]
        most = max(one.peak_bytes for i in of for one in comparison.columns[i].statements or ())
        rows = []
        for row in comparison.statements:
            texts = comparison.cells(row)
            rows.append(
                (row, tuple(_step(row.values[i], texts[i], most, _mark(comparison, i, row.differs[i])) for i in of))
            )
        words = (
            f"{len(rows)} statements, {len(comparison.differing_statements)} of which differ. A number is the position "
            "of a statement in that plan. A bar is the predicted peak inside the statement, as a share of the largest "
            f"such peak in all plans, {human_bytes(most)}."
        )
        return cls(("statement", "side", "line", *(comparison.columns[i].name for i in of)), tuple(rows), words)

    def content(self, most_rows: int) -> dict[str, Any]:
        """Return plain data with at most `most_rows` rows. Rows without a difference are left out first."""
        first = sorted(range(len(self.rows)), key=lambda i: not any(self.rows[i][0].differs))
        listed = [self.rows[i] for i in sorted(first[:most_rows])]
        more = len(self.rows) - len(listed)
        return {
            "heads": list(self.heads),
            "words": self.words + (f" {more} further statements are left out here; a page has them." if more else ""),
            "rows": [
                {
                    "name": row.name,
                    "side": row.kind,
                    "source": row.source,
                    "alike": not any(row.differs),
                    "cells": [dataclasses.asdict(step) for step in steps],
                }
                for row, steps in listed
            ],
        }


def _step(value: Statement | None, text: str, most: int, mark: str) -> AlignedStatement:
    if value is None:
        return AlignedStatement("–", 0.0, "", mark)
    place, _, moved = text.partition(" ")
    return AlignedStatement(
        place, round(100 * value.peak_bytes / max(most, 1), 1), f"{human_bytes(value.peak_bytes)} {moved}", mark
    )


def _steps(comparison: SideBySide) -> str:
    """Return an HTML table with a row for each statement: its position and its peak memory in each plan."""
    steps = AlignedStatements.of(comparison)
    lines = []
    for row, cells in steps.rows:
        drawn = "".join(f"<td class='{step.mark}'>{_step_cell(step)}</td>" for step in cells)
        alike = "" if any(row.differs) else " class='wb-alike'"
        lines.append(
            f"<tr{alike}><td>{escape(row.name)}</td><td class='wb-muted'>{row.kind}</td>"
            f"<td class='wb-source' title='{escape(row.source, quote=True)}'>{escape(row.source)}</td>{drawn}</tr>"
        )
    return (
        f"<p class='wb-muted'>{escape(steps.words)}</p>"
        "<label><input type='checkbox' class='wb-only'> only those that differ</label>"
        "<div class='wb-steps' tabindex='0' role='region' aria-label='Statements in step'>"
        f"<table>{_head(steps.heads)}<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _step_cell(step: AlignedStatement) -> str:
    at = f"<span class='wb-at'>{step.place}</span>"
    if not step.text:
        return at
    return f"{at}<span class='wb-inside'><i style='width:{step.share}%'></i></span>{step.text}"
