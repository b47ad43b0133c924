"""Outline of the program's source: modules, lines and statements, each with its memory and time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from workbench.analysis.memory.liveness import alive_at
from workbench.core.graph import BACKWARD, Graph, Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workbench.compiler.api import Plan
    from workbench.core.lever import Site

_NO_WORK = (Kind.ARGUMENT, Kind.GET_GRAD, Kind.RETURN)


@dataclasses.dataclass(kw_only=True)
class OutlineNode:
    """A module, a line of a module, or a statement of a line. Its figures include all nodes inside it.

    Attributes
    ----------
    key : str
        Unique in the outline. The key of a module or a line is the same in each plan.
    kind : {'module', 'line', 'statement'}
    label, source : str
        `label` is the module's path below the enclosing module, the line's text or the statement's name. `source` is
        ``file.py:12`` for a line, and empty for other nodes.
    depth, parent : int
        Depth, 0 at the top; and index of the enclosing node, -1 at the top.
    statement : int
        Index, in the graph, of this node's first statement; -1 if unknown.
    backward : bool
        Whether this node is a statement of the backward.
    saved_bytes, peak_bytes : int
        Bytes of the tensors that this node makes. `saved_bytes` counts the tensors that are saved for the backward;
        `peak_bytes` counts the tensors that are alive at the predicted peak.
    step_s : float
        Predicted time of this node in a step.
    sites : list of str
        Ids of the sites in this node.
    """

    key: str
    kind: str
    label: str
    source: str = ""
    depth: int = 0
    parent: int = -1
    statement: int = -1
    backward: bool = False
    saved_bytes: int = 0
    peak_bytes: int = 0
    step_s: float = 0.0
    sites: list[str] = dataclasses.field(default_factory=list)


def outline(plan: Plan, seconds: NDArray[np.float64] | None = None) -> tuple[OutlineNode, ...]:
    """Return the nodes of a program's outline in the order of the program, each node before the nodes inside it.

    Parameters
    ----------
    plan : Plan
    seconds : (statements,) float64, optional
        Seconds of each top-level statement of the plan's graph. The seconds of a fusion are divided equally among its
        members.
    """
    graph = plan.graph
    tree = _OutlineTree(graph)
    rows = _rows(graph)
    leaves = {row: tree.statement(row) for row in rows}
    if seconds is not None:
        for leaf, step_s in zip(leaves.values(), _shares(graph, seconds)[rows].tolist(), strict=True):
            tree.add(leaf, step_s=step_s)
    maker = _makers(graph, rows)
    for storage in graph.saved_storages().tolist():
        made = leaves.get(maker.get(int(graph.storages.root[storage]), -1))
        if made is not None:
            tree.add(made, saved_bytes=int(graph.storages.bytes[storage]))
    if plan.timeline.peak_statement >= 0:
        for alive in alive_at(graph, plan.timeline.peak_statement):
            made = leaves.get(maker.get(alive.value, -1))
            if made is not None:
                tree.add(made, peak_bytes=alive.bytes)
    for site in plan.sites:
        tree.site(site)
    return tree.parts_in_order()


def _rows(graph: Graph) -> list[int]:
    """Return the statements that compute something and have an origin. Instead of a fusion, return its members."""
    statements = graph.statements
    fused = np.unique(statements.parent[statements.parent >= 0])
    works = ~np.isin(statements.kind, _NO_WORK) & (statements.origin >= 0)
    works[fused] = False
    return [int(row) for row in np.flatnonzero(works)]


def _makers(graph: Graph, rows: list[int]) -> dict[int, int]:
    """Return the index of the statement in `rows` that makes each value, by the value's index."""
    starts, made = graph.statements.outputs.offsets.tolist(), graph.statements.outputs.items.tolist()
    maker: dict[int, int] = {}
    for row in rows:
        for value in made[starts[row] : starts[row + 1]]:
            maker.setdefault(value, row)
    return maker


def _shares(graph: Graph, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the seconds of each statement. The seconds of a fusion are divided equally among its members."""
    parent = graph.statements.parent
    member = parent >= 0
    members = np.bincount(parent[member], minlength=len(parent))
    shares = np.array(seconds, np.float64)
    shares[member] = seconds[parent[member]] / members[parent[member]]
    return shares


class _OutlineTree:
    """The nodes of an outline, found by their keys. A node is made when it is first requested."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._line_of: dict[int, int] = {}
        self._parts: list[OutlineNode] = []
        self._number: dict[str, int] = {}
        self._inside: dict[int, list[int]] = {}

    def statement(self, row: int) -> int:
        """Return the index of a statement's node."""
        statements = self._graph.statements
        line = self._line(int(statements.origin[row]))
        name = statements.name[row].rpartition(".")[2]
        number = self._part(f"{self._parts[line].key}|{row}", "statement", name, parent=line)
        self._parts[number].backward = bool(statements.side[row] == BACKWARD)
        at = number
        while at >= 0 and self._parts[at].statement < 0:
            self._parts[at].statement = row
            at = self._parts[at].parent
        return number

    def add(self, number: int, *, saved_bytes: int = 0, peak_bytes: int = 0, step_s: float = 0.0) -> None:
        """Add figures to a node and to all nodes that contain it."""
        while number >= 0:
            part = self._parts[number]
            part.saved_bytes += saved_bytes
            part.peak_bytes += peak_bytes
            part.step_s += step_s
            number = part.parent

    def site(self, site: Site) -> None:
        """Add a site's id to the node of its line and to all enclosing nodes.

        If the line has no node, use the innermost module that has a node.
        """
        scope = site.id.partition(":")[2].rpartition("/")[0].partition("/")[0]
        number = self._number.get(f"{scope}|{site.source.partition(' ')[0]}", -1)
        while number < 0 and scope:
            number = self._number.get(scope, -1)
            scope = scope.rpartition(".")[0]
        while number >= 0:
            self._parts[number].sites.append(site.id)
            number = self._parts[number].parent

    def parts_in_order(self) -> tuple[OutlineNode, ...]:
        """Return all nodes, each before the nodes inside it. If a module contains only a module, the two are merged."""
        found: list[OutlineNode] = []

        def add_in_order(number: int, parent: int, depth: int) -> None:
            part, inside = self._parts[number], self._inside.get(number, [])
            while part.kind == "module" and len(inside) == 1 and self._parts[inside[0]].kind == "module":
                part, inside = self._parts[inside[0]], self._inside.get(inside[0], [])
            part.parent, part.depth = parent, depth
            if part.kind == "module" and parent >= 0:
                part.label = part.key.removeprefix(f"{found[parent].key}.")
            found.append(part)
            here = len(found) - 1
            for each in inside:
                add_in_order(each, here, depth + 1)

        for top in self._inside.get(-1, []):
            add_in_order(top, -1, 0)
        return tuple(found)

    def _line(self, origin: int) -> int:
        """Return the index of the node for the source line with index `origin`."""
        if origin not in self._line_of:
            source = self._graph.origins[origin]
            place, text = f"{source.file}:{source.line}" if source.file else "", source.text.strip()
            parent = self._module(source.scope)
            self._line_of[origin] = self._part(
                f"{source.scope}|{place}", "line", text or place or "no source line", parent=parent, source=place
            )
        return self._line_of[origin]

    def _module(self, scope: str) -> int:
        if not scope:
            return -1
        above = self._module(scope.rpartition(".")[0])
        return self._part(scope, "module", scope, parent=above)

    def _part(self, key: str, kind: str, label: str, *, parent: int, source: str = "") -> int:
        if key not in self._number:
            self._number[key] = len(self._parts)
            self._inside.setdefault(parent, []).append(len(self._parts))
            self._parts.append(OutlineNode(key=key, kind=kind, label=label, source=source, parent=parent))
        return self._number[key]


def count_turns(sites: Sequence[Site]) -> dict[str, int]:
    """Return, for each option of the sites and for ``'stock'``, how many choices `choices_to_turn` would return."""
    found = dict.fromkeys((option for site in sites for option in site.options), 0)
    found["stock"] = 0
    for site in sites:
        for option in site.options:
            if option != site.choice and option not in site.illegal:
                # A site can have an option called `stock` that is not its default. No button stands for this option.
                found[option] += option != "stock"
                found["stock"] += option == site.default
    return found


def choices_to_turn(sites: Sequence[Site], option: str) -> dict[str, str]:
    """Return choices that set each site to `option`, if the option is legal there and not yet chosen.

    ``'stock'`` stands for each site's default.
    """
    wanted = {site.id: (site.default if option == "stock" else option) for site in sites}
    return {
        site.id: wanted[site.id]
        for site in sites
        if wanted[site.id] in site.options and wanted[site.id] not in site.illegal and wanted[site.id] != site.choice
    }
