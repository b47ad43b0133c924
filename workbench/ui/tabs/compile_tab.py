"""The Compile tab: the time of each stage and fusion of a compilation, updated while the compilation runs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from workbench.ui.widgets.panel import Panel, esm

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.runs.log.events import Event
    from workbench.runs.process.follow_run import Run

INTERVAL_S = 0.25
"""Interval between updates of the rows on the page. Between two updates, the page itself advances the elapsed time."""

MOST_FUSIONS = 400
"""Maximum number of fusions with a row. If there are more, the fusions with the longest times have rows."""


class CompileTab(Panel):
    """A waterfall of one run's compilation. `Waterfall.content` makes its `content`.

    Parameters
    ----------
    cannot_run : str
        Reason why nothing can run here, and what to do.
    """

    _esm = esm("compile_tab")

    def __init__(self, cannot_run: str = "", **traits: Any) -> None:
        super().__init__(content={**Waterfall().content(), "cannot_run": cannot_run}, **traits)
        self._lock = threading.Lock()
        self._shown: Waterfall | None = None
        self._shown_at = 0.0
        self._open = False
        self._end: Callable[[], None] | None = None

    def follow(self, run: Run) -> None:
        """Show the compilation of `run` instead of an earlier run's compilation."""
        waterfall = Waterfall()
        with self._lock:
            self._shown = waterfall
        if self._end is not None:
            self._end()
        self._end = run.observe(lambda event: self._event(waterfall, event))

    def look(self, is_open: bool) -> None:
        """Record whether the tab is open. While the tab is closed, only the end of a compilation is drawn."""
        with self._lock:
            self._open = is_open
            if is_open and self._shown is not None and self._shown.changed:
                self.content = self._shown.content()

    @property
    def compiled_s(self) -> dict[str, float]:
        """Compile time in seconds of each fusion that was compiled so far, by name."""
        with self._lock:
            return {} if self._shown is None else dict(self._shown.seconds_of)

    def _event(self, waterfall: Waterfall, event: Event) -> None:
        with self._lock:
            if self._shown is not waterfall:
                return
            waterfall.take(event)
            now = time.monotonic()
            due = self._open and waterfall.changed and now - self._shown_at >= INTERVAL_S
            if due or event.type in ("compiled", "finished", "failed", "cancelled"):
                self.content = waterfall.content()
                self._shown_at = now


class Waterfall:
    """Compilation data from the events of a run.

    Attributes
    ----------
    seconds_of : dict of str to float
        Compile time of each fusion that was compiled so far, by name.
    changed : bool
        Whether an event has changed the data since the last call of `content`.
    """

    def __init__(self) -> None:
        self.seconds_of: dict[str, float] = {}
        self.changed = False
        self._start_s: float | None = None
        self._end_s: float | None = None
        self._now_s = 0.0
        self._open: tuple[str, int, int, float] | None = None
        self._stages: dict[str, list[tuple[float, float]]] = {}
        self._fusions: list[dict[str, Any]] = []
        self._attributed: float | None = None
        self._ended = ""

    def take(self, event: Event) -> None:
        """Add an event of the run to the data."""
        self._now_s = max(self._now_s, event.t_s)
        get = vars(event).get
        kind = event.type
        if kind == "phase" and get("phase") == "compile":
            self._start_s = event.t_s
        elif self._start_s is None or (self._end_s is not None and kind not in ("failed", "cancelled")):
            return
        elif kind == "stage":
            name, seconds = str(get("name")), float(get("seconds", 0.0))
            self._stages.setdefault(name, []).append((event.t_s - seconds, event.t_s))
        elif kind == "fusion_begin":
            self._open = (str(get("name")), int(get("index", 0)), int(get("count", 0)), event.t_s)
        elif kind == "fusion_end":
            self._open = None
            self._fusion(str(get("name")), event.t_s, float(get("seconds", 0.0)), get("parts") or {}, get("cached"))
        elif kind == "compiled":
            self._end_s, self._open, self._attributed = event.t_s, None, get("attributed")
        elif kind in ("failed", "cancelled", "finished"):
            self._ended = self._ended or ("" if self._end_s is not None else kind)
            self._end_s, self._open = self._end_s or event.t_s, None
        else:
            return
        self.changed = True

    def _fusion(self, name: str, end_s: float, seconds: float, parts: dict[str, float], cached: Any) -> None:
        self.seconds_of[name] = seconds
        at, pieces = end_s - seconds, []
        for part, spent in (parts or {"": seconds}).items():
            pieces.append({"part": part, "start_s": at, "end_s": at + spent})
            at += spent
        self._fusions.append({"name": name, "seconds": seconds, "pieces": pieces, "cached": bool(cached)})

    def content(self) -> dict[str, Any]:
        """Return the tab's data. Times are seconds since the compilation began."""
        self.changed = False
        if self._start_s is None:
            return {"rows": [], "state": "none"}
        start = self._start_s
        end = self._end_s if self._end_s is not None else self._now_s

        def since(pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [{**p, "start_s": max(0.0, p["start_s"] - start), "end_s": p["end_s"] - start} for p in pieces]

        stages = [
            {
                "name": name,
                "kind": "stage",
                "seconds": sum(b - max(a, start) for a, b in spans),
                "pieces": since([{"part": "", "start_s": a, "end_s": b} for a, b in spans]),
            }
            for name, spans in self._stages.items()
            if spans[-1][1] > start
        ]
        longest = sorted(self._fusions, key=lambda one: -one["seconds"])[:MOST_FUSIONS]
        kept = {id(one) for one in longest}
        fusions = [
            {**one, "kind": "fusion", "pieces": since(one["pieces"])} for one in self._fusions if id(one) in kept
        ]
        rows = sorted([*stages, *fusions], key=lambda row: row["pieces"][0]["start_s"])
        content: dict[str, Any] = {
            "state": self._ended or ("done" if self._end_s is not None else "busy"),
            "rows": rows,
            "seconds": end - start,
            "fusions": len(self._fusions),
            "hidden": len(self._fusions) - len(fusions),
            "cached": sum(one["cached"] for one in self._fusions),
            "attributed": self._attributed,
        }
        if self._open is not None:
            name, index, count, began = self._open
            content["open"] = {"name": name, "index": index, "count": count, "start_s": began - start}
        return content
