"""The outline, as a tab and beside the graph: the program as written, what each part costs, a choice for all in it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import traitlets

from workbench.bench.outline import outline, turned
from workbench.ui.panel import Panel, esm

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.bench.outline import Part
    from workbench.lever import Site

_LOGGER = logging.getLogger(__name__)


class OutlineTab(Panel):
    """A tree with columns; content: ``parts``, as `part_row` makes them, and ``machine``, whose rates times rest on.

    Parameters
    ----------
    bench : Workbench
    shown_ids : callable
        Per statement of the plan's graph the node that shows it, or an empty string.
    go : callable
        Called with the id of what is to be shown in the graph.
    choose : callable
        Called with choices.
    preview : callable
        Called with choices that are pointed at and what they are in words; with none when that ends.
    """

    _esm = esm("outline.js")
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

    def show_plan(self) -> None:
        """Show the plan in force at once, and its times when they are known."""
        self._put(outline(self._bench.plan), "")
        threading.Thread(target=self._time, name="workbench-outline", daemon=True).start()

    def _time(self) -> None:
        try:
            worth = self._bench.worth()
            parts = outline(worth.plan, worth.statement_s)
            if self._bench.plan is worth.plan:
                self._put(parts, worth.machine.name)
        except Exception:
            _LOGGER.exception("the times of the program's parts could not be worked out")

    def _put(self, parts: tuple[Part, ...], machine: str) -> None:
        ids, sites = self._shown_ids(), self._bench.plan.site_of
        self.content = {"parts": [part_row(part, ids, sites) for part in parts], "machine": machine}

    def _receive(self, message: dict[str, Any]) -> None:
        if message.get("type") == "go":
            self._go(message["id"])
        elif message.get("type") == "choose_in":
            part, choices = self._chosen_in(message)
            if part is not None:
                self._choose(choices)
        elif message.get("type") == "preview":
            part, choices = self._chosen_in(message)
            self._preview(choices, f"{message['option']} for all in {part.label}" if part is not None else "")

    def _chosen_in(self, message: dict[str, Any]) -> tuple[Part | None, dict[str, str]]:
        """A part of the program, and what an option for all in it comes to."""
        plan = self._bench.plan
        part = next((part for part in outline(plan) if part.key == message.get("key")), None)
        return part, {} if part is None else turned([plan.site_of[id] for id in part.sites], message["option"])


class OutlinePane(OutlineTab):
    """The outline beside the graph, where all of the app is shown at once; a person opens and closes it.

    Attributes
    ----------
    looked_at : bool
        Whether it is open and in sight, as the page says: what nobody sees is not worked out.
    """

    beside = traitlets.Bool(True).tag(sync=True)
    looked_at = traitlets.Bool(False).tag(sync=True)


def part_row(part: Part, ids: list[str], sites: Mapping[str, Site]) -> dict[str, Any]:
    """A part as the page draws it."""
    here = [sites[id] for id in part.sites if id in sites]
    options = dict.fromkeys(option for site in here for option in site.options)
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
        "turns": [{"option": option, "count": len(turned(here, option))} for option in (*options, "stock")],
    }
