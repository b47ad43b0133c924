"""`Controls`: the buttons at the top of the app. `StatusLine`: the line with messages and the live readout of a run."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import traitlets

from workbench.summary import PHASES
from workbench.ui.widgets.panel import PAGE, Panel, esm
from workbench.version import __version__

if TYPE_CHECKING:
    from workbench.runs.log.events import Event
    from workbench.runs.process.follow_run import Run

SAMPLE_INTERVAL_S = 0.02
"""Minimum time between two messages with memory samples. A message has all samples since the previous message."""
STATE_INTERVAL_S = 0.2
_MEASURED = ("compiled", "peak_measured", "step_times", "statement_times", "part_times", "accuracy_checked")
"""Types of events that bring new figures."""

_MOST_STAGES = 12

_ENDS = {"done": "Done", "failed": "Failed", "cancelled": "Cancelled"}


class Controls(Panel):
    """The buttons, and the state of the app that they and the status line show.

    The keys of `content` are ``program place executor cannot_run can_undo can_redo in_turns message run ranks machine
    machines busy``. ``place`` has texts about the program; the page shows the first that fits.

    Attributes
    ----------
    app : str
        Model id of the app's root widget. Other places of the page show the app by this id.
    app_name : str
        Name of the app in these places; by default the program's name.
    tab_asked : bool
        Whether the first view opens a tab of the page.
    targets : list of dict
        Targets of an export, each with the keys ``target name about file``.
    exported : dict
        The file that *Export* would write, with the keys ``asked count left_out_count left_out text more figures``, or
        ``asked refused``; empty until the page asks for it. ``figures`` has figures of plain `torch.compile`, each with
        the keys ``name value base``.
    version : str
        Version of the workbench in the kernel.
    """

    _esm = esm("controls")
    _css = PAGE / "style.css"  # for all widgets of the app, of which this is the first
    file = traitlets.Unicode("").tag(sync=True)
    app = traitlets.Unicode("").tag(sync=True)
    app_name = traitlets.Unicode("").tag(sync=True)
    tab_asked = traitlets.Bool(False).tag(sync=True)
    targets = traitlets.List(traitlets.Dict()).tag(sync=True)
    exported = traitlets.Dict().tag(sync=True)
    version = traitlets.Unicode(__version__).tag(sync=True)

    def __init__(self, on_message: Callable[[dict[str, Any]], None] | None = None, **traits: Any) -> None:
        super().__init__(on_message, **traits)
        self._updating = threading.RLock()

    def update(self, **content: Any) -> None:
        """Update entries of the content. Any thread may call this, such as the thread that follows a run."""
        with self._updating:
            self.content = {**self.content, **content}


class StatusLine(Panel):
    """One line with the app's message, or the preview in its place, and with the live readout of a run.

    The keys of `content` are ``what figures how bad``. `content` is empty while there is no preview.

    Parameters
    ----------
    controls : Controls
        Supplies the message and the state of the run.

    Attributes
    ----------
    pointed : int
        Number of options at which the user has pointed so far. From this number, the page knows whether the message or
        the preview is newer, and shows the newer of the two.
    """

    _esm = esm("status_line")
    said = traitlets.Dict().tag(sync=True)
    samples = traitlets.Bytes(b"").tag(sync=True)
    pointed = traitlets.Int(0).tag(sync=True)

    def __init__(self, controls: Controls, on_message: Callable[[dict[str, Any]], None] | None = None) -> None:
        super().__init__(on_message)
        keys = ("message", "run", "cannot_run")
        traitlets.dlink(
            (controls, "content"), (self, "said"), lambda content: {key: content[key] for key in keys if key in content}
        )


class Readout:
    """Follows one run and updates the app, with at least `STATE_INTERVAL_S` between most updates.

    Parameters
    ----------
    controls : Controls
        Shows the state of the run.
    line : StatusLine
        Shows the memory samples of the run.
    run : Run
    on_news : callable
        Called with the run when the run has a new figure, and at the run's end.
    """

    def __init__(self, controls: Controls, line: StatusLine, run: Run, on_news: Any) -> None:
        self._controls, self._line, self._run, self._on_news = controls, line, run, on_news
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._within = ""
        self._all: list[bytes] = []
        self._unsent: list[bytes] = []
        self._sent_at = self._shown_at = 0.0
        self._stale = False
        line.samples = b""
        line.send({"type": "samples", "restart": True}, [b""])
        self._stopped = False
        self._show()
        self._end = run.observe(self._event)

    def stop(self) -> None:
        """Stop showing this run."""
        self._stopped = True
        self._end()

    def _event(self, event: Event) -> None:
        with self._lock:
            if self._stopped:
                return
            now = time.monotonic()
            if event.type == "memory_sample":
                used = getattr(event, "allocated_bytes", None) or getattr(event, "rss_bytes", 0)
                self._all.append(struct.pack("<dd", event.t_s, used))
                self._unsent.append(self._all[-1])
                if now - self._sent_at >= SAMPLE_INTERVAL_S:
                    self._send(now)
                # An event that came too soon after the last update is shown when a later sample arrives.
                if self._stale and now - self._shown_at >= STATE_INTERVAL_S:
                    self._show()
                return
            over = event.type in ("finished", "failed", "cancelled")
            if event.type == "fusion_begin":
                name, index, count = (getattr(event, field) for field in ("name", "index", "count"))
                self._within = f", fusion {index + 1} of {count}: {name}"
            elif event.type == "progress":
                self._within = _words_of_progress(*(getattr(event, field) for field in ("done", "count", "left_s")))
            elif event.type in ("fusion_end", "phase"):
                self._within = ""
            self._stale = True
            if over or event.type == "phase" or now - self._shown_at >= STATE_INTERVAL_S:
                self._show()
            if over:
                self._line.samples = b"".join(self._all)
        if over or event.type in _MEASURED:
            self._on_news(self._run)

    def _send(self, time_s: float) -> None:
        self._line.send({"type": "samples"}, [b"".join(self._unsent)])
        self._unsent.clear()
        self._sent_at = time_s

    def _show(self) -> None:
        run = self._run
        state = run.state
        busy = state not in _ENDS
        stages = sorted(run.stages, key=lambda stage: -stage["seconds"])[:_MOST_STAGES]
        text = f"{PHASES.get(run.phase, 'Starting')}{self._within}" if busy else _ENDS[state]
        if state == "failed":
            text = f"Failed: {run.error}"
        self._shown_at = time.monotonic()
        self._stale = False
        self._controls.update(
            run={
                "state": state,
                "busy": busy,
                "text": text,
                "stages": stages,
                "elapsed_s": self._shown_at - self._begun,
            }
        )


def _words_of_progress(done: int, count: int, left_s: float) -> str:
    left = f"{left_s:.0f} s" if left_s < 100 else f"{left_s / 60:.0f} min"
    return f", step {done} of {count}" + (f", about {left} left" if left_s >= 1 else "")
