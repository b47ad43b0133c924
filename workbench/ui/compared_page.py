"""Plans and runs side by side as one HTML page without a network and without a script, statements in step."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from workbench.summary import human_bytes
from workbench.ui.panel import HERE

if TYPE_CHECKING:
    from workbench.bench.compared import Row, SideBySide, Statement

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(found: SideBySide) -> str:
    """The page's text behind its first line."""
    title = " · ".join(column.name for column in found.columns)
    tables = found.tables()
    parts = [_table(found, tables["Figures"], found.figures)]
    if found.sites:
        parts += ["<h2>Sites that differ</h2>", _table(found, tables["Sites that differ"], found.sites)]
    if found.runs is not None:
        rows = [
            (d.run, d.figure, f"{d.ratio:.3f}" if d.ratio is not None else "", d.verdict)
            for d in found.runs.differences
        ]
        heads = ("run", "figure", f"over {found.runs.base}", "verdict")
        parts += ["<h2>Runs</h2>", f"<p class='wb-muted'>{escape(found.runs.words)}</p>", _plain(heads, rows)]
    if found.statements:
        parts += ["<h2>Statements in step</h2>", _steps(found)]
    style = "".join((HERE / name).read_text() for name in ("style.css", "report_page.css", "compared_page.css"))
    notes = "".join(f"<p class='wb-bad'>{escape(note)}</p>" for note in found.notes)
    return f"""
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)}: Thunder Workbench</title>
<style>{style}</style></head>
<body data-jp-theme-light="true"><main class="wb-app wb-panel wb-report wb-compared">
<header><h1>{escape(title)}</h1><span class="wb-muted">changes are against {escape(found.base)}</span></header>
{notes}<h2>Figures</h2>
{"".join(parts)}
</main></body></html>
"""


def _table(found: SideBySide, rows: Sequence[tuple[str, ...]], marks: tuple[Row, ...]) -> str:
    heads, *body = rows
    lines = []
    for cells, row in zip(body, marks, strict=True):
        name, kind, *values = cells
        marked = "".join(
            f"<td class='{_mark(found, i, row.differs[i])}'>{escape(value)}</td>" for i, value in enumerate(values)
        )
        lines.append(
            f"<tr><td class='wb-site'>{escape(name)}</td><td class='wb-muted'>{escape(kind)}</td>{marked}</tr>"
        )
    return f"<div class='wb-scroll'><table>{_head(heads)}<tbody>{''.join(lines)}</tbody></table></div>"


def _plain(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<div class='wb-scroll'><table>{_head(heads)}<tbody>{body}</tbody></table></div>"


def _head(heads: tuple[str, ...]) -> str:
    return f"<thead><tr>{''.join(f'<th>{escape(cell)}</th>' for cell in heads)}</tr></thead>"


def _mark(found: SideBySide, i: int, differs: bool) -> str:
    return "wb-base" if i == found.base_index else "wb-differs" if differs else ""


def _steps(found: SideBySide) -> str:
    """A row for each statement of any plan, with its place in each and what is alive inside it."""
    of = [i for i, column in enumerate(found.columns) if column.statements is not None]
    most = max(one.peak_bytes for i in of for one in found.columns[i].statements or ())
    lines = []
    for row in found.statements:
        texts = found.cells(row)
        cells = "".join(
            f"<td class='{_mark(found, i, row.differs[i])}'>{_step(row.values[i], texts[i], most)}</td>" for i in of
        )
        alike = "" if any(row.differs) else " class='wb-alike'"
        lines.append(
            f"<tr{alike}><td>{escape(row.name)}</td><td class='wb-muted'>{row.kind}</td>"
            f"<td class='wb-source' title='{escape(row.source, quote=True)}'>{escape(row.source)}</td>{cells}</tr>"
        )
    heads = _head(("statement", "side", "line", *(found.columns[i].name for i in of)))
    count = len(found.differing)
    return (
        f"<p class='wb-muted'>{len(lines)} statements of any plan, {count} of which differ. A number is where a "
        "statement stands in that plan; a bar is what is alive inside it, predicted, of "
        f"{escape(human_bytes(most))}, the most of all.</p>"
        "<label><input type='checkbox' id='wb-only'> only those that differ</label>"
        f"<div class='wb-steps'><table>{heads}<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _step(value: Statement | None, text: str, most: int) -> str:
    if value is None:
        return "<span class='wb-at'>–</span>"
    share = 100 * value.peak_bytes / max(most, 1)
    place, _, moved = text.partition(" ")
    return (
        f"<span class='wb-at'>{place}</span><span class='wb-inside'><i style='width:{share:.1f}%'></i></span>"
        f"{human_bytes(value.peak_bytes)} {moved}"
    )
