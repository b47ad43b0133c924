"""The inspector: the selected arc or statement, the effects of options, and the producers and readers of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.analysis.cost.collective_overlap import OverlapChange
from workbench.analysis.cost.machines import H100
from workbench.analysis.graphs.fusion_break_reasons import boundaries
from workbench.core.graph import Graph, Kind, ValueFlag, operator_name
from workbench.core.lever import Effect, Site, lever_named
from workbench.summary import count_name, human_bytes, human_change, human_count, human_seconds, human_shape
from workbench.ui.controls.help import FUSION
from workbench.ui.graph.composite_rows import parts_of
from workbench.ui.graph.node_names import label_in_layers, short_label
from workbench.ui.widgets.panel import Panel, esm

if TYPE_CHECKING:
    from workbench.bench.fit.choice_ranking import Gain
    from workbench.ui.graph.graph_view import Scope
    from workbench.ui.graph.layout_arrays import GraphLayout
    from workbench.ui.graph.module_labels import ModuleSpan

_MOST = 12
"""Maximum number of listed sites that change with a choice, and of listed readers of a value.

For a statement, at most twice as many sites are listed, and at most twice as many fusion boundaries.
"""


class Inspector(Panel):
    """The panel beside the graph. The functions of this module make its `content`."""

    _esm = esm("inspector")


def empty_content() -> dict[str, Any]:
    """Return the content for an empty selection, below which the page lists the keys of the graph."""
    hint = (
        "Arcs are values passed to the backward pass or between fusions; "
        "small labels on statements are choices too. Click one to select it; double-click it to change it."
    )
    return {"hint": hint}


def best_content(best: Sequence[tuple[Sequence[Site], Gain]]) -> dict[str, Any]:
    """Return the content for an empty selection, with choices that lower the peak, each with the sites that it sets."""
    rows = [
        {
            "name": label_in_layers(sites[0]) if len(sites) > 1 else short_label(sites[0]),
            "option": gain.choices[sites[0].id],
            "count": len(sites),
            "choices": dict(gain.choices),
            "peak": _change("", gain.peak_bytes, human_bytes),
            "saved": _change("", gain.saved_bytes, human_bytes),
        }
        for sites, gain in best
    ]
    return {**empty_content(), "best": rows, "waiting": False}


class EffectInLayers(NamedTuple):
    """The choices of an option in a group of layers, the group's name, and the effect of these choices."""

    name: str
    choices: Mapping[str, str]
    effect: Effect


type ByLayers = dict[str, dict[str, list[EffectInLayers]]]
"""Effects of a site's options in groups of layers, by site and option."""


class ScopeOfChoices(NamedTuple):
    """What a choice applies to; see the attribute `scope` of `workbench.ui.graph.graph_view.GraphView`.

    Attributes
    ----------
    peers : str
        Kind of the sites that are shown as one: identical ``layers``, identical ``repeats`` of a loop, or adjacent
        ``waits``.
    alike : int
        Number of sites that are shown as one.
    layers : int
        Number of layers with such a site, identical or not; 1 if the site is in no layer.
    scope : str
    """

    peers: str = "layers"
    alike: int = 1
    layers: int = 1
    scope: Scope = "alike"

    def content(self) -> dict[str, Any] | None:
        """Return the buttons as data for the page; None if there is only one legal scope."""
        waits = self.peers == "waits"
        shown = f"all {self.alike} adjacent waits" if waits else f"all {self.alike} identical {self.peers}"
        named = {"one": f"this {self.peers.removesuffix('s')} alone"}
        named |= {"alike": shown} if self.alike > 1 else {}
        named |= {"all": f"all {self.layers} layers"} if self.layers > self.alike else {}
        now = self.scope if self.scope in named else "alike" if "alike" in named else "one"
        return {"now": now, "named": named} if len(named) > 1 else None


def site_content(
    sites: Sequence[Site],
    effects: Mapping[str, Mapping[str, Effect]],
    labels: Mapping[str, str],
    scope: ScopeOfChoices | None = None,
    machine: str = H100.name,
    now: Mapping[str, Mapping[str, int]] | None = None,
    by_layers: ByLayers | None = None,
    reasons: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, Any]:
    """Describe an arc or a mark: its sites, and the effect of each option.

    Parameters
    ----------
    sites : sequence of Site
        The sites of one arc, or the site of one mark. A double click changes the first site.
    effects : mapping of str to mapping of str to Effect
        Known effects, by site and option.
    labels : mapping of str to str
        Labels of all sites by id. They name the sites that change as a consequence of a choice.
    scope : ScopeOfChoices
        What a choice applies to.
    machine : str
        Name of the machine on which effects are simulated.
    now : mapping of str to mapping of str to int, optional
        For each site, how often each option is chosen at the sites to which a choice would apply.
    by_layers : ByLayers, optional
        Known effects in groups of layers.
    reasons : mapping of str to mapping of str to str, optional
        For options that raise the peak, by site and option: the storages that come to be alive there.
    """
    first, scope = sites[0], scope or ScopeOfChoices()
    place, _, text = first.source.partition(" ")
    facts = [["value", first.values[0]]] if first.values else []
    if first.bytes:
        facts.append(
            [
                "size",
                human_bytes(first.bytes)
                + (f" in each of {scope.alike} {scope.peers}" if scope.alike > 1 and scope.peers != "waits" else ""),
            ]
        )
    if first.outcome and first.outcome != first.choice:
        facts.append(["outcome", first.outcome])
    return {
        "eyebrow": lever_named(first.lever).title,
        "title": first.label,
        "source": {"place": place, "text": text.strip()},
        "facts": facts,
        "scope": scope.content(),
        "sites": [
            {
                "id": site.id,
                "lever": lever_named(site.lever).title,
                "note": lever_named(site.lever).explain_outcome(site) if site.outcome not in ("", site.choice) else "",
                "options": [
                    {
                        **_option(site, option, effects, labels, machine, (now or {}).get(site.id)),
                        **_groups((by_layers or {}).get(site.id, {}).get(option, ())),
                        "why": (reasons or {}).get(site.id, {}).get(option, ""),
                    }
                    for option in site.options
                ],
            }
            for site in sites
        ],
    }


def _meaning(site: Site, option: str) -> str:
    """Explain an option in one or two sentences; return an empty text if the lever has no explanation."""
    note = site.notes.get(option, "")
    told = f" {note[:1].upper()}{note[1:]}." if note else ""
    return lever_named(site.lever).meanings.get(option, "") + told


def _option(
    site: Site,
    option: str,
    effects: Mapping[str, Mapping[str, Effect]],
    labels: Mapping[str, str],
    machine: str,
    now: Mapping[str, int] | None,
) -> dict[str, Any]:
    counts = now or {site.choice: 1}
    here, of = counts.get(option, 0), sum(counts.values())
    current = here == of
    reason = "" if current else site.illegal.get(option, "")
    shown: dict[str, Any] = {"name": option, "current": current, "reason": reason, "means": _meaning(site, option)}
    if 0 < here < of:
        shown["tag"] = f"now in {here} of {of}"
    if current or reason:
        return shown
    effect = effects.get(site.id, {}).get(option)
    if effect is None:
        return {**shown, "waiting": True}
    figures = [
        _change("peak, predicted", effect.peak_bytes, human_bytes),
        _change("saved bytes", effect.saved_bytes, human_bytes),
        _change("saved tensors", effect.saved_tensors, str),
        _change("operations", effect.flops, human_count),
        *([_change("fusions", effect.fusions, str)] if effect.fusions else []),
        *([_change("unique fusions", effect.unique_fusions, str)] if effect.unique_fusions else []),
        *(_count_row(name, by) for name, by in effect.counts.items()),
        *_overlap_rows(effect.overlap, machine),
    ]
    moved = [{"id": id, "label": labels.get(id, id)} for id in effect.changed[:_MOST]]
    return {**shown, "figures": figures, "moved": moved, "more": max(0, len(effect.changed) - _MOST)}


def _groups(by_layers: Sequence[EffectInLayers]) -> dict[str, Any]:
    """Return the rows of the table of an option's effects in groups of layers."""
    rows = [
        {
            "name": name,
            "choices": dict(choices),
            "peak": _change("", effect.peak_bytes, human_bytes),
            "saved": _change("", effect.saved_bytes, human_bytes),
        }
        for name, choices, effect in by_layers
    ]
    return {"groups": rows} if rows else {}


def _overlap_rows(change: OverlapChange | None, machine: str) -> list[dict[str, Any]]:
    if change is None:
        return []
    where = f"simulated on {machine}"
    return [
        _change(f"step, {where}", round(change.step_s, 9), human_seconds),
        _change(f"exposed communication, {where}", round(change.exposed_communication_s, 9), human_seconds),
        _change(f"in flight, {where}", change.in_flight_peak_bytes, human_bytes),
    ]


def _change(name: str, change: float, write: Any) -> dict[str, Any]:
    if not change:
        return {"name": name, "text": "no change", "tone": ""}
    tone = "bad" if change > 0 else "good"
    return {"name": name, "text": f"{'+' if change > 0 else '−'}{write(abs(change))}", "tone": tone}


def _count_row(name: str, change: int) -> dict[str, Any]:
    return {"name": count_name(name), "text": human_change(name, change), "tone": "bad" if change > 0 else "good"}


def sites_of_statement(graph: Graph, sites: Sequence[Site], statement: int) -> list[dict[str, str]]:
    """Return the sites of a statement's outputs, then of its inputs. For a fusion, include the sites of its members."""
    statements = graph.statements
    members = [statement, *(row for row in range(len(statements)) if statements.parent[row] == statement)]
    return sites_of_statements(graph, sites, members)


def sites_of_statements(graph: Graph, sites: Sequence[Site], members: Sequence[int]) -> list[dict[str, str]]:
    """Return the sites of the statements' outputs, then of their inputs."""
    statements = graph.statements
    names: dict[str, str] = {}
    for word, columns in (("made", statements.outputs), ("read", statements.inputs)):
        for row in members:
            for value in columns[row].tolist():
                names.setdefault(graph.values.name[value], word)
    word_of = {site.id: next((names[value] for value in site.values if value in names), "") for site in sites}
    found = [
        {"id": site.id, "label": short_label(site), "choice": site.outcome or site.choice, "what": word}
        for word in ("made", "read")
        for site in sites
        if word_of[site.id] == word
    ]
    return found[: 2 * _MOST]


def module_content(module: ModuleSpan) -> dict[str, Any]:
    """Describe a module that is shown in place of its statements: their number, and the bytes that it saves."""
    counts = [("forward", module.forward), ("backward", module.backward)]
    return {
        "eyebrow": "Module",
        "title": module.scope,
        "about": "Double-click it, or press Enter, to zoom in to its statements.",
        "facts": [
            *([name, f"{count} statement{'s' * (count != 1)}"] for name, count in counts),
            ["saves", human_bytes(module.saved_bytes)],
        ],
    }


def composite_content(graph: Graph, layout: GraphLayout, node: int, sites: Sequence[Site]) -> dict[str, Any]:
    """Describe a composite that is shown as one row: the statements into which it was decomposed, and their sites."""
    rows = parts_of(graph, layout, node)
    statements, values = graph.statements, graph.values
    source = graph.origins[int(layout.blocks.origin[layout.nodes.block[node]])]

    def line(row: int) -> dict[str, str]:
        made = [value for value in statements.outputs[row].tolist() if values.flags[value] & ValueFlag.TENSOR]
        return {
            "name": operator_name(statements.name[row]),
            "value": ", ".join(f"{values.name[value]} {human_shape(values.shape[value])}" for value in made[:2]),
            "bytes": human_bytes(sum(int(values.bytes[value]) for value in made)),
        }

    flops = int(statements.flops[rows].sum())
    return {
        "eyebrow": f"{len(rows)} statements shown as one, {'backward' if layout.nodes.side[node] else 'forward'}",
        "title": source.symbol,
        "source": {"place": f"{source.file}:{source.line}  ·  {source.scope}", "text": source.text},
        "facts": [["operations", human_count(flops)]] if flops else [],
        "parts": [line(row) for row in rows],
        "here": sites_of_statements(graph, sites, rows),
    }


def statement_content(graph: Graph, layout: GraphLayout, statement: int, ids: Sequence[str]) -> dict[str, Any]:
    """Describe a statement: its inputs and outputs, with their producers and readers."""
    statements = graph.statements
    origin = int(statements.origin[statement])
    if origin < 0 and layout.node_of[statement] >= 0:
        origin = int(layout.blocks.origin[layout.nodes.block[layout.node_of[statement]]])
    source = graph.origins[origin] if origin >= 0 else None
    place = f"{source.file}:{source.line}  ·  {source.scope}" if source is not None and source.file else ""
    maker = {int(v): s for s in range(len(statements) - 1, -1, -1) for v in statements.outputs[s].tolist()}
    readers: dict[int, list[int]] = {}
    wanted = set(statements.outputs[statement].tolist())
    for reader, inputs in enumerate(statements.inputs):
        for value in wanted.intersection(inputs.tolist()):
            readers.setdefault(value, []).append(reader)

    # A fusion stands for its members.
    for value, rows_of in readers.items():
        readers[value] = [row for row in rows_of if int(statements.parent[row]) not in rows_of]

    def end(row: int) -> dict[str, str]:
        node = int(layout.node_of[row])
        return {"id": ids[node] if node >= 0 else "", "label": operator_name(statements.name[row])}

    def rows(values: list[int], ends: dict[int, list[int]]) -> list[dict[str, Any]]:
        return [
            {
                "name": graph.values.name[value],
                "shape": human_shape(graph.values.shape[value]),
                "dtype": graph.values.dtype[value].rpartition(".")[2],
                "bytes": human_bytes(int(graph.values.bytes[value])),
                "ends": [end(other) for other in ends.get(value, [])[:_MOST]],
            }
            for value in dict.fromkeys(values)
            if graph.values.flags[value] & ValueFlag.TENSOR
        ]

    facts = [["executor", statements.executor[statement]]] if statements.executor[statement] else []
    members = int((statements.parent == statement).sum())
    if members:
        facts.append(["statements", str(members)])
    if statements.flops[statement]:
        facts.append(["operations", human_count(int(statements.flops[statement]))])
    if statements.transient_bytes[statement]:
        facts.append(["transient", human_bytes(int(statements.transient_bytes[statement]))])
    side = "backward" if statements.side[statement] else "forward"
    edges = boundaries(graph, statement)[: 2 * _MOST] if members else ()
    return {
        "edges": [{**end(edge.statement), "before": edge.before, "reason": edge.reason} for edge in edges],
        "eyebrow": f"{'fusion' if members else 'statement'}, {side}",
        "about": FUSION if members else "",
        "fusion": statements.name[statement] if statements.kind[statement] == Kind.FUSION else "",
        "title": operator_name(statements.name[statement]),
        "source": {"place": place, "text": source.text if source is not None else ""},
        "facts": facts,
        "inputs": rows(
            statements.inputs[statement].tolist(),
            {v: [maker[v]] for v in statements.inputs[statement].tolist() if v in maker},
        ),
        "outputs": rows(statements.outputs[statement].tolist(), readers),
    }
