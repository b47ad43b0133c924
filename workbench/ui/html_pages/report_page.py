"""A bench or a saved plan as one HTML page that needs no network: the page contains the widgets' modules and data."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from workbench.bench.report.html_report import CONFIG_NAME
from workbench.core.graph import BACKWARD
from workbench.runs.process.run_store import choices_of
from workbench.ui.controls.figure_strip import Baseline, figures
from workbench.ui.graph import layout as u_layout
from workbench.ui.graph.graph_view import DrawnGraph
from workbench.ui.graph.node_names import node_ids
from workbench.ui.html_pages import saved_view
from workbench.ui.tabs.compile_tab import Waterfall
from workbench.ui.tabs.experiments import run_row
from workbench.ui.tabs.memory_curve_svg import memory_curves
from workbench.ui.tabs.peak_table import measured_content, predicted_content
from workbench.ui.tabs.timeline_tab import timeline_content
from workbench.ui.widgets.panel import PAGE, esm

if TYPE_CHECKING:
    from workbench.bench import SavedPlan, Workbench
    from workbench.core.graph import Graph
    from workbench.core.lever import Site
    from workbench.runs.process.follow_run import Run

_GRAPH = """<div id="wb-strip"></div>
<h2>Graph</h2><p class="wb-muted">Forward on the left, backward on the right, saved tensors as arcs.
Ctrl and wheel zoom, the wheel moves, a click selects.</p>
<div id="wb-graph"></div><div id="wb-about" class="wb-about" aria-live="polite"></div>"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def bench_page(bench: Workbench, commands: Sequence[str]) -> str:
    """Return the text of a bench's page, without its first line.

    Parameters
    ----------
    bench : Workbench
    commands : sequence of str
        Command lines that plan and run the program again.
    """
    config, plan = bench.config, bench.plan
    run = next((run for run in reversed(bench.runs) if run.state == "done" and choices_of(run) == bench.choices), None)
    settings = ", ".join(f"{name}={value}" for name, value in config.settings.items())
    versions = ", ".join(f"{name} {version}" for name, version in config.versions.items())
    title = f"{bench.program.name}{f' ({settings})' if settings else ''}"
    place = f"on {config.device}, {bench.executor} executor"
    measured = "Nothing here is measured: no run had these choices."
    if run is not None:
        measured = f"Measured figures are from the run {escape(run.name or run.run_dir.name)} with these choices."
    body = f"""
<p class="wb-muted">{escape(versions)}. Changes are against the program without choices.
{measured}</p>
{"".join(f'<p class="wb-muted">{escape(str(correction))}</p>' for correction in plan.corrections)}
{"".join(f'<p class="wb-bad">{escape(warning)}</p>' for warning in plan.warnings)}
{_GRAPH}
<h2>Memory</h2><div class="wb-curve">{_curves(bench, run)}</div><div id="wb-alive"></div>
<section {"" if run else "hidden"}><h2>Compilation</h2><div id="wb-compile"></div></section>
<section {"" if run and run.statements else "hidden"}><h2>Timeline</h2><div id="wb-timeline"></div></section>
<h2>Choices</h2>{_choices(bench)}
<h2>Runs</h2>{_runs(bench)}
<h2>Reproduce</h2>{_replay_section(bench, commands)}"""
    return _page(title, place, body, _data(bench, run))


def saved_page(saved: SavedPlan) -> str:
    """Return the text of a saved plan's page, without its first line.

    Parameters
    ----------
    saved : SavedPlan
        A saved plan on which no further choices were made.
    """
    document, graph, sites = saved.document, saved.graph, saved.sites()
    settings = ", ".join(f"{name}={value}" for name, value in document["settings"].items())
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    ids = _statement_ids(graph, sites)
    peaks = {"predicted": saved.timeline.statement_peak_bytes[graph.statements.parent < 0].tolist()}
    statements = graph.statements
    forward = int(((statements.parent < 0) & (statements.side != BACKWARD)).sum())
    chosen = [(site.id, site.choice, site.default, site.source) for site in sites if site.choice != site.default]
    choices = '<p class="wb-muted">None.</p>'
    body = f"""
<p class="wb-muted">{escape(versions)}. Changes are against the program without choices.
A saved plan: nothing here is measured.</p>
{"".join(f'<p class="wb-muted">{escape(correction)}</p>' for correction in document.get("corrections", ()))}
{"".join(f'<p class="wb-bad">{escape(warning)}</p>' for warning in document["warnings"])}
{_GRAPH}
<h2>Memory</h2><div class="wb-curve">{memory_curves(peaks, forward=forward)}</div><div id="wb-alive"></div>
<section hidden><div id="wb-compile"></div><div id="wb-timeline"></div></section>
<h2>Choices</h2>{_table(("site", "choice", "default", "source"), chosen) if chosen else choices}"""
    data = {
        "strip": {"content": {"figures": document["view"]["figures"]}},
        "graph": _graph(saved_view.encode_graph(graph, sites)),
        "alive": {"content": {"predicted": predicted_content(saved, ids), "measured": None}},
        "sites": _sites(sites),
    }
    place = f"on {document['device']}, {document['executor']} executor"
    return _page(f"{document['program']}{f' ({settings})' if settings else ''}", place, body, data)


def _page(title: str, subtitle: str, body: str, widget_data: Mapping[str, Any]) -> str:
    # Escape every "<" in the data and every "</" in the source, so that no text can end the script element.
    data = json.dumps(widget_data, allow_nan=False).replace("<", "\\u003c")
    source = esm("report_page").replace("</", "<\\/")
    return f"""
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)}: Thunder Workbench</title>
<style>{(PAGE / "style.css").read_text()}{(PAGE / "report_page.css").read_text()}</style></head>
<body data-jp-theme-light="true"><main class="wb-app wb-panel wb-report">
<header><h1>{escape(title)}</h1><span class="wb-muted">{escape(subtitle)}</span>
<button id="wb-theme" type="button">Dark</button></header>
{body}
</main>
<script type="application/json" id="wb-data">{data}</script>
<script type="module">
{source}</script></body></html>
"""


def _data(bench: Workbench, run: Run | None) -> dict[str, Any]:
    """Return the data of each widget, and the texts that the page shows for a selected site."""
    plan = bench.plan
    stock = Baseline("no choices", bench.stock_plan, interleaved="stock")
    view = saved_view.view_content(plan, bench.stock_plan, bench.machine)
    ids = _statement_ids(plan.graph, plan.sites)
    named = {
        plan.graph.values.name[v]: ids[s] for s in range(len(ids)) for v in plan.graph.statements.outputs[s].tolist()
    }
    waterfall = Waterfall()
    for event in run.events if run is not None else ():
        waterfall.take(event)
    shown = view["figures"] if run is None else figures(plan, run, stock, same_choices=True, machine=bench.machine)
    times = run.statements if run is not None else None
    return {
        "strip": {"content": {"figures": shown}},
        "graph": _graph(view["graph"]),
        "alive": {
            "content": {
                "predicted": predicted_content(plan, ids, plan.reserved),
                "measured": measured_content(run, named),
            }
        },
        "compile": {"content": waterfall.content()},
        "timeline": {
            "content": timeline_content(times, named, step_s=run.step_s if run is not None else None) | {"still": True}
        },
        "sites": _sites(plan.sites),
    }


def _graph(graph_data: Mapping[str, Any]) -> dict[str, Any]:
    return {"data": graph_data, "selected": "", "height": 620, "dark": False, "read_only": True}


def _sites(sites: Sequence[Site]) -> list[dict[str, Any]]:
    return [
        {"id": s.id, "label": s.label, "source": s.source, "choice": s.choice, "default": s.default}
        | {"options": list(s.options), "illegal": dict(s.illegal)}
        for s in sites
    ]


def _statement_ids(graph: Graph, sites: tuple[Site, ...]) -> list[str]:
    """Return, for each statement, the id of the node that shows it."""
    layout = u_layout.compute(graph, sites)
    return DrawnGraph(graph, sites, layout, node_ids(graph, layout, sites)).statement_ids


def _curves(bench: Workbench, run: Run | None) -> str:
    def inside(plan: Any) -> list[int]:
        rows = plan.graph.statements.parent < 0
        curve: list[int] = plan.timeline.statement_peak_bytes[rows].tolist()
        return curve

    statements = bench.plan.graph.statements
    forward = int(((statements.parent < 0) & (statements.side != BACKWARD)).sum())
    curves = {"predicted": inside(bench.plan)}
    if bench.choices:
        curves["without choices"] = inside(bench.stock_plan)
    if run is not None and run.statement_peak_bytes:
        curves["measured, inside each statement"] = run.statement_peak_bytes
    return memory_curves(curves, forward=forward)


def _choices(bench: Workbench) -> str:
    if not bench.choices:
        return '<p class="wb-muted">None.</p>'
    sites = bench.plan.site_of
    rows = [
        (id, option, sites[id].default, "a setting of the lever" if sites[id].is_setting else sites[id].source)
        if id in sites
        else (id, option, "", "the plan has no such site")
        for id, option in bench.choices.items()
    ]
    return _table(("site", "choice", "default", "source"), rows)


def _runs(bench: Workbench) -> str:
    if not bench.runs:
        return '<p class="wb-muted">No run was made in this session.</p>'
    rows = []
    for row in map(run_row, bench.runs):
        choices = "; ".join(row["choices"]) or "none"
        beside = "; ".join(row["against"])
        cells = [row[name] for name in ("predicted", "measured", "compile", "step")]
        rows.append((row["name"], choices, *cells, beside, row["accuracy"], row["state"]))
    heads = (
        "run",
        "choices",
        "peak, predicted",
        "measured",
        "compile",
        "step",
        "beside, interleaved",
        "accuracy",
        "state",
    )
    return _table(heads, rows)


def _replay_section(bench: Workbench, commands: Sequence[str]) -> str:
    text = bench.config.text(bench.notes(), compiled=bench.program.name_in_script)
    link = f"data:text/x-python;base64,{base64.b64encode(text.encode(errors='backslashreplace')).decode()}"
    lines = "".join(f"<pre tabindex='0'>{escape(command)}</pre>" for command in commands)
    replay = (
        f"import workbench as wb\n\nfast = wb.load('{CONFIG_NAME}').jit({bench.program.name_in_script})"
        "  # thunder.jit with exactly these choices"
    )
    return (
        f"{lines}<pre tabindex='0'>{escape(replay)}</pre>"
        f"<p>Content of <a download='{CONFIG_NAME}' href='{link}'>{CONFIG_NAME}</a>:</p>"
        f"<pre class='wb-config' tabindex='0'>{escape(text)}</pre>"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<div class='wb-scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
