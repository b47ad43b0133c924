"""The Passes tab: the program after each compilation pass, and the changes of each pass."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from workbench.summary import human_seconds
from workbench.ui.widgets.panel import Panel, esm

if TYPE_CHECKING:
    from workbench.compiler.api import Plan
    from workbench.compiler.pipeline.pass_log import TracePass

MOST_LINES = 6000
"""Maximum number of lines of a trace that are shown and compared. A comparison of more lines would take too long."""


class Passes(Panel):
    """A list of passes, and the trace after the chosen pass with the changed lines.

    The keys of `content` are ``names steps chosen lines``. ``steps`` describes each pass: its purpose, the statements
    and fusions after it, and its time. ``lines`` are computed in a separate thread.

    Parameters
    ----------
    on_value : callable, optional
        Called when the user clicks a line, with the name of the value that the line makes.
    """

    _esm = esm("passes_tab")

    def __init__(self, on_value: Callable[[str], None] | None = None, **traits: Any) -> None:
        super().__init__(self._receive, content={"names": [], "chosen": 0, "lines": []}, **traits)
        self._on_value = on_value
        self._plan: Plan | None = None
        self._chosen = -1
        self._lock = threading.Lock()

    def show_plan(self, plan: Plan) -> None:
        """Show the passes of a plan."""
        self._plan = plan
        self._work()

    def _receive(self, message: dict[str, Any]) -> None:
        if message.get("type") == "pass":
            self._chosen = int(message["index"])
            self._work()
        elif message.get("type") == "value" and self._on_value is not None:
            self._on_value(str(message["value"]))

    def _work(self) -> None:
        self.in_thread("passes", self._show)

    def _show(self) -> None:
        with self._lock:
            plan = self._plan
            if plan is None:
                return
            passes = plan.passes
            chosen = range(len(passes))[self._chosen] if -len(passes) <= self._chosen < len(passes) else 0
            before = passes[chosen - 1].text if chosen else ""
            if self._plan is plan:
                lines = changed_lines(before, passes[chosen].text)
                names = [one.name for one in passes]
                self.content = {"names": names, "steps": steps_of(passes), "chosen": chosen, "lines": lines}


def steps_of(passes: Sequence[TracePass]) -> list[dict[str, Any]]:
    """Describe each pass in words: its purpose, its result and its time."""
    fused = [f", {one.fusions} of them fusions" if one.fusions else "" for one in passes]
    counts = [f"{one.statements} statements{fusions}" for one, fusions in zip(passes, fused, strict=True)]
    seconds = ["" if one.seconds is None else human_seconds(one.seconds) for one in passes]
    return [
        {"about": one.about, "left": left, "took": took}
        for one, left, took in zip(passes, counts, seconds, strict=True)
    ]


def changed_lines(old_text: str, new_text: str) -> list[list[str]]:
    """Return the lines of both texts: ``+`` marks lines only in `new_text`, and ``-`` marks lines only in `old_text`.

    Parameters
    ----------
    old_text, new_text : str
        Texts of two traces. If `old_text` is empty, no line is marked.

    Returns
    -------
    list of [mark, line]
    """
    old, new = _body(old_text), _body(new_text)
    if not old:
        return [[" ", line] for line in new]
    found: list[list[str]] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for _, i0, i1, j0, j1 in matcher.get_opcodes():
        same = old[i0:i1] == new[j0:j1]
        found += [] if same else [["-", line] for line in old[i0:i1]]
        found += [[" " if same else "+", line] for line in new[j0:j1]]
    return found


def _body(text: str) -> list[str]:
    """Return the lines of a trace without imports and without the line with the date."""
    head = ("import ", "from ", "# Constructed by ")
    return [line for line in text.strip().splitlines() if not line.startswith(head)][:MOST_LINES]
