"""The outline of the source, as a tab and beside the graph.

The outline shows each module, line and statement with its cost and its options. An option applies to all sites inside.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import traitlets

from workbench.bench.report.source_outline import choices_to_turn, count_turns, outline
from workbench.ui.widgets.panel import Panel, esm

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.bench.report.source_outline import OutlineNode
    from workbench.compiler.api import Plan
    from workbench.core.lever import Site

_LOGGER = logging.getLogger(__name__)


class OutlineTab(Panel):
    """A tree of the outline's nodes. A node is a module, a line or a statement, and is called a part here.

    In `content`, ``parts`` are from `part_row`, and ``machine`` names the machine model for the times. The page
    receives the visible parts and the level below them, so that it can open a part at once. The content of a part that
    was opened once is always sent.

    Parameters
    ----------
    bench : Workbench
    shown_ids : callable
        Returns, for each statement of the plan's graph, the id of the node that shows it, or an empty string.
    go : callable
        Called with the id of a node to show in the graph.
    choose : callable
        Called with choices.
    preview : callable
        Called with the choices of the option under the pointer, and their description. When the pointer leaves the
        option, called without choices.
    """

    _esm = esm("outline_tab")
    selected = traitlets.Unicode("").tag(sync=True)
    beside = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self,
        bench: Workbench,
        shown_ids: Callable[[], list[str]],
        go: Callable[[str], None],
        choose: Callable[[dict[str, str]], None],
        preview: Callable[[dict[str, str], str], None],
    ) -> None:
        super().__init__(self._receive, content={"parts": [], "machine": ""})
        self._bench, self._shown_ids, self._go, self._choose, self._preview = bench, shown_ids, go, choose, preview
        self._lock = threading.Lock()
        self._opened: set[str] = set()
        self._outlined: tuple[Plan | None, tuple[OutlineNode, ...], str] = (None, (), "")
        self.observe(lambda _: self._open_selected(), names="selected")

    def show_plan(self) -> None:
        """Show the current plan at once, and the times of its statements when they are known."""
        plan = self._bench.plan
        self._set_outline(plan, outline(plan), "")
        self.in_thread("outline", self._time)

    def _time(self) -> None:
        worth = self._bench.worth()
        parts = outline(worth.plan, worth.statement_s)
        if self._bench.plan is worth.plan:
            self._set_outline(worth.plan, parts, worth.machine.name)

    def _set_outline(self, plan: Plan | None, parts: tuple[OutlineNode, ...], machine: str) -> None:
        if plan is None:
            return
        with self._lock:
            self._outlined = plan, parts, machine
            sent = parts_in_reach(parts, self._opened)
            number = {part: row for row, part in enumerate(sent)}
            leads = {part.parent for part in parts}
            ids, sites = self._shown_ids(), plan.site_of
            self.content = {
                "parts": [
                    part_row(parts[part], ids, sites)
                    | {"parent": number.get(parts[part].parent, -1), "leads": part in leads}
                    for part in sent
                ],
                "machine": machine,
            }

    def _open(self, keys: Iterable[str]) -> None:
        if not self._opened.issuperset(keys := set(keys)):
            self._opened |= keys
            self._set_outline(*self._outlined)

    def _open_selected(self) -> None:
        """Open the parts that contain the selected statement."""
        plan, parts, _ = self._outlined
        if plan is None or not self.selected:
            return
        ids, found = self._shown_ids(), -1
        for number, part in enumerate(parts):
            if part.kind == "statement" and 0 <= part.statement < len(ids) and ids[part.statement] == self.selected:
                found = number
        above = []
        while found >= 0 and (found := parts[found].parent) >= 0:
            above.append(parts[found].key)
        self._open(above)

    def _receive(self, message: dict[str, Any]) -> None:
        if message.get("type") == "go":
            self._go(message["id"])
        elif message.get("type") == "open":
            self._open([message["key"]])
        elif message.get("type") == "choose_in":
            part, choices = self._choices_in(message)
            if part is not None:
                self._choose(choices)
        elif message.get("type") == "preview":
            part, choices = self._choices_in(message)
            self._preview(choices, f"{message['option']} for all in {part.label}" if part is not None else "")

    def _choices_in(self, message: dict[str, Any]) -> tuple[OutlineNode | None, dict[str, str]]:
        """Return the part that a message names, and the choices that set all its sites to the message's option."""
        plan = self._bench.plan
        shown, parts, _ = self._outlined
        parts = parts if shown is plan else outline(plan)
        part = next((part for part in parts if part.key == message.get("key")), None)
        return part, {} if part is None else choices_to_turn([plan.site_of[id] for id in part.sites], message["option"])


class OutlinePane(OutlineTab):
    """The outline beside the graph. The user can open and close it.

    Only an app in a JupyterLab tab or on the full screen shows the outline beside the graph.

    Attributes
    ----------
    looked_at : bool
        Whether the outline is open and visible. The page sets this. A hidden outline is not computed.
    """

    beside = traitlets.Bool(True).tag(sync=True)
    looked_at = traitlets.Bool(False).tag(sync=True)


OPEN_DEPTH = 2
"""Modules at a smaller depth than this are open at first. ``outline_tab.js`` uses the same number."""


def parts_in_reach(parts: Sequence[OutlineNode], open_keys: Collection[str]) -> list[int]:
    """Return the indices of the visible parts and of their children. One further click can show a child."""
    reach: dict[int, int] = {-1: 2}
    for number, part in enumerate(parts):
        left = reach.get(part.parent, 0)
        is_open = part.key in open_keys or (part.kind == "module" and part.depth < OPEN_DEPTH)
        if left:
            reach[number] = left if left == 2 and is_open else left - 1
    del reach[-1]
    return list(reach)


def part_row(part: OutlineNode, ids: list[str], sites: Mapping[str, Site]) -> dict[str, Any]:
    """Return the page's data for a part."""
    here = [sites[id] for id in part.sites if id in sites]
    return {
        "key": part.key,
        "kind": part.kind,
        "label": part.label,
        "source": part.source,
        "depth": part.depth,
        "parent": part.parent,
        "id": ids[part.statement] if 0 <= part.statement < len(ids) else "",
        "side": "backward" if part.backward else "forward",
        "saved_bytes": part.saved_bytes,
        "peak_bytes": part.peak_bytes,
        "step_s": part.step_s,
        "choices": len(here),
        "made": sum(site.choice != site.default for site in here),
        "turns": [{"option": option, "count": count} for option, count in count_turns(here).items()],
    }
