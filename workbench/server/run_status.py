"""`RunStatus`: a run as the panel shows it. Each event of the run's log updates it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from workbench.runs.log import events, untrusted_files
from workbench.runs.log.events import Event
from workbench.runs.process.follow_run import Run
from workbench.summary import PHASES

_STATES = {"finished": "done", "failed": "failed", "cancelled": "cancelled"}


@dataclasses.dataclass
class RunStatus:
    """The status of a run, and its measurements so far.

    Attributes
    ----------
    run_dir : Path
    name, program, place : str
        Texts for users. `place` is the device and, if ranks share the program, the number of ranks.
    created_s : float
        Time of the request for the run, in seconds since 1970.
    state : str
        ``starting`` or ``running``; after the end ``done``, ``failed`` or ``cancelled``.
    doing : str
        The phase in words.
    fusion : str
        The fusion that is being compiled; empty between fusions.
    fusions_done, fusions : int
        Number of compiled fusions, and number of all fusions.
    elapsed_s : float
        Time of the latest event, on the log's clock.
    memory_bytes, most_bytes : int
        Memory of the worker: the last sample, and the largest sample.
    compile_s, step_s : float, optional
    peak_bytes : int, optional
        Measured peak.
    accurate : bool, optional
        Whether the results passed the accuracy check; None until the check.
    error : str
        Reason why the run failed, in one line.
    """

    run_dir: Path
    name: str
    program: str
    place: str
    created_s: float
    state: str = "starting"
    doing: str = "Starting"
    fusion: str = ""
    fusions_done: int = 0
    fusions: int = 0
    elapsed_s: float = 0.0
    memory_bytes: int = 0
    most_bytes: int = 0
    compile_s: float | None = None
    step_s: float | None = None
    peak_bytes: int | None = None
    accurate: bool | None = None
    error: str = ""

    @classmethod
    def of(cls, run: Run) -> RunStatus:
        """Return the status of a run before its first event."""
        asked = run.request
        place = [str(asked.program.get("device", "")), *([f"{asked.ranks} ranks"] if asked.parallel else [])]
        return cls(
            run.run_dir,
            untrusted_files.one_line(asked.name or str(asked.program.get("name", ""))) or run.run_dir.name,
            untrusted_files.one_line(str(asked.program.get("name", ""))),
            untrusted_files.one_line(", ".join(filter(None, place))),
            asked.created_s,
        )

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.state in _STATES.values()

    def take(self, event: Event) -> None:
        """Update the status by one event of the log."""
        self.elapsed_s = max(self.elapsed_s, event.t_s)
        match event:
            case events.MemorySample():
                self.memory_bytes = event.allocated_bytes or event.rss_bytes
                self.most_bytes = max(self.most_bytes, self.memory_bytes)
            case events.Phase():
                self.state, self.fusion = "running", ""
                self.doing = PHASES.get(event.phase, event.phase)
            case events.FusionBegin():
                self.fusion, self.fusions_done, self.fusions = event.name, event.index, event.count
            case events.FusionEnd():
                self.fusion, self.fusions_done, self.fusions = "", event.index + 1, event.count
            case events.Compiled():
                self.compile_s = event.compile_s
            case events.StepTimes():
                self.step_s = event.step_s
            case events.PeakMeasured():
                self.peak_bytes = event.measured_peak_bytes
            case events.AccuracyChecked():
                self.accurate = event.ok
            case events.Finished() | events.Cancelled() | events.Failed():
                self.state, self.fusion, self.doing = _STATES[event.type], "", ""
                self.error = untrusted_files.one_line(event.reason) if isinstance(event, events.Failed) else ""

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as plain data for JSON."""
        found: dict[str, Any] = untrusted_files.finite({**dataclasses.asdict(self), "run_dir": str(self.run_dir)})
        return found


def log_text(run: Run) -> str:
    """Return a readable log of a run: its events, except memory samples and steps, and the worker's output."""
    lines = [f"{run.name}   {run.run_dir}", ""]
    for event in run.events:
        if isinstance(event, events.MemorySample | events.Step):
            continue
        fields = {name: value for name, value in vars(event).items() if name not in ("t_s", "type")}
        words = "  ".join(f"{name}={_shorten(value)}" for name, value in fields.items())
        lines.append(f"{event.t_s:9.3f} s  {event.type:16} {words}".rstrip())
    output = run.output.strip()
    return "\n".join([*lines, "", "What was printed last:", output or "nothing"])


def _shorten(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 120 or "\n" in text else f"{text[:117]}…"
