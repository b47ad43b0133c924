"""The top-level tab Experiments: a program's runs on disk, to compare, pin, rename, annotate and delete."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.bench.session.run_names import name_of_choices
from workbench.errors import RunError, WorkbenchError
from workbench.runs.log import event_log, untrusted_files
from workbench.runs.process import follow_run, request, run_store
from workbench.runs.sweep.compare import Difference, compare_runs
from workbench.summary import human_bytes, human_seconds, human_share
from workbench.ui.tabs.compare_panel import ComparePanel
from workbench.ui.widgets.panel import PAGE, Panel, esm

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.programs import Program
    from workbench.runs.process.follow_run import Run


_MOST_COMPARED = 10
_FIGURES = {
    "step_s": "step",
    "compile_s": "compile",
    "measured_peak_bytes": "peak, measured",
    "predicted_peak_bytes": "peak, predicted",
}


class Experiments(Panel):
    """A table of runs.

    In `content`, ``rows`` are from `run_row`, and ``unreadable`` lists folders that cannot be read, with reasons.
    ``compared`` is the comparison of runs with the pinned run, if the user has requested it. ``plans`` are the plans
    that the user can tick like runs. ``beside`` is the comparison of the ticked plans and runs. ``busy`` is the name
    of a task in progress.

    Parameters
    ----------
    program : Program
        The program whose runs are listed.
    on_pinned : callable
        Called when a different run is pinned, or the pinned run is unpinned.
    act : callable
        Calls a function that may fail, and reports its failure.
    bench : Workbench, optional
        Bench whose plans can be compared with runs; by default there are no plans.
    cannot_run : str
        Reason why nothing can run here, and what to do.
    """

    _esm = esm("experiments")
    _css = PAGE / "compared_page.css"

    def __init__(
        self,
        program: Program,
        *,
        on_pinned: Callable[[], None],
        act: Callable[[Callable[[], Any]], Any],
        bench: Workbench | None = None,
        cannot_run: str = "",
        **traits: Any,
    ) -> None:
        self._beside = None if bench is None else ComparePanel(bench)
        plans = [] if self._beside is None else self._beside.plans()
        content = {"rows": [], "unreadable": [], "loading": True, "plans": plans, "cannot_run": cannot_run}
        super().__init__(self._receive, content=content, **traits)
        self._program, self._on_pinned, self._act = program, on_pinned, act
        self._known: dict[Path, tuple[tuple[int, ...], dict[str, Any] | None]] = {}
        self._lock, self._showing = threading.Lock(), threading.Lock()
        self._again = False
        self.pinned: Run | None = None

    def refresh(self) -> None:
        """Reload the runs in another thread."""
        self.in_thread("experiments", self._load)

    def _load(self) -> None:
        self._again = True
        with self._lock:
            if not self._again:
                return
            self._again = False
            rows, unreadable, pinned = [], [], None
            for folder in run_store.folders():
                try:
                    row = self._row(folder)
                except (OSError, WorkbenchError) as error:
                    unreadable.append(
                        {"folder": str(folder), "name": folder.name, "error": untrusted_files.one_line(str(error))}
                    )
                    continue
                if row is None:
                    continue
                row = {**row, "pinned": run_store.is_pinned(folder), "note": run_store.note_of(folder)}
                rows.append(row)
                if row["pinned"]:
                    pinned = folder
            rows.sort(key=lambda row: (not row["pinned"], -row["created_s"]))
            self._show(rows=rows, unreadable=unreadable, loading=False, compared=None)
            before = self.pinned.run_dir if self.pinned is not None else None
            try:
                self.pinned = None if pinned is None else follow_run.follow(pinned)
            except WorkbenchError:  # the run may be deleted meanwhile
                self.pinned = pinned = None
        if before != pinned:
            self._on_pinned()

    def _row(self, folder: Path) -> dict[str, Any] | None:
        """Return the row of a folder's run; None for a run of a different program."""
        # Get the modification times before reading. If the run changes while it is read, the next call reads it again.
        written = untrusted_files.modified_times(folder, (request.REQUEST_FILE, event_log.LOG_FILE))
        known_written, known = self._known.get(folder, (None, None))
        if known_written == written:
            return known
        ours = request.read_request(folder).program.get("name") == self._program.name
        run = follow_run.follow(folder) if ours else None
        row = run_row(run) if run is not None else None
        if run is None or run.state in follow_run.FINAL_STATES:
            self._known[folder] = (written, row)
        return row

    def _receive(self, message: dict[str, Any]) -> None:
        folder = Path(message.get("folder", ""))
        acts: dict[str, Callable[[], None]] = {
            "pin": lambda: self._pin(folder, bool(message["pinned"])),
            "rename": lambda: run_store.rename(folder, message["name"]),
            "note": lambda: run_store.annotate(folder, message["note"]),
            "delete": lambda: run_store.delete(folder),
        }
        if message.get("type") == "compare":
            self._act(self._compare)
            return
        if message.get("type") in ("beside", "write", "keep", "forget") and self._beside is not None:
            self._receive_beside(self._beside, message)
            return
        act = acts.get(message.get("type", ""))
        if act is not None:
            self._act(act)
            self.refresh()

    def _receive_beside(self, beside: ComparePanel, message: dict[str, Any]) -> None:
        if message["type"] == "beside":
            plans, runs, base = message["plans"], message["runs"], message.get("base", "")
            self._show(busy="Putting them side by side…", written=None)

            def compare() -> None:
                found = self._act(lambda: beside.compare(plans, runs, base))
                self._show(busy="", **({"beside": found} if found is not None else {}))

            # Compare in a separate thread, because a plan that is not cached takes seconds.
            self.in_thread("beside", compare)
        elif message["type"] == "write":
            written = self._act(lambda: beside.write(message["path"]))
            self._show(written=None if written is None else str(written))
        else:
            self._act(beside.keep if message["type"] == "keep" else lambda: beside.forget(message["key"]))
            self._show(plans=beside.plans())

    def _show(self, **more: Any) -> None:
        with self._showing:
            self.content = {**self.content, **more}

    def _compare(self) -> None:
        """Compare the newest finished runs with the pinned run."""
        if self.pinned is None:
            raise RunError("no run is pinned: pin the run with which to compare the others")
        folders = [row["folder"] for row in self.content["rows"] if not row["pinned"] and row["state"] == "done"]
        if not folders:
            raise RunError("no other run has finished")
        found = compare_runs(self.pinned, *(follow_run.follow(Path(folder)) for folder in folders[:_MOST_COMPARED]))
        more = len(folders) - _MOST_COMPARED
        words = f"Compared with {found.base}; {found.words}" + (f" The newest {_MOST_COMPARED} runs." * (more > 0))
        self._show(compared={"words": words, "rows": list(map(_difference_row, found.differences))})

    def _pin(self, folder: Path, pinned: bool) -> None:
        """Unpin all runs of the program. Then, if `pinned` is set, pin the run in `folder`."""
        for row in self.content["rows"]:
            if row["pinned"]:
                run_store.pin(row["folder"], False)
        if pinned:
            run_store.pin(folder)


def _difference_row(difference: Difference) -> dict[str, str]:
    """Return a difference as a table row. Only a difference with a verdict has a colour."""
    write = human_bytes if difference.figure.endswith("_bytes") else human_seconds
    tone = {"faster": "good", "less": "good", "slower": "bad", "more": "bad"}.get(difference.verdict, "")
    sampled = difference.low is not None and difference.high is not None and difference.low != difference.high
    verdict = {"noise": "within noise", "unknown": "no verdict"}.get(difference.verdict, difference.verdict)
    return {
        "run": difference.run,
        "figure": _FIGURES[difference.figure],
        "value": write(difference.value) if difference.value is not None else "",
        "base": write(difference.base) if difference.base is not None else "",
        "ratio": f"{difference.ratio:.3f}" if difference.ratio is not None else "",
        "interval": f"{difference.low:.3f} to {difference.high:.3f}" if sampled else "",
        "verdict": verdict,
        "tone": tone,
    }


def _variant_text(name: str, variant: dict[str, Any]) -> str:
    """Describe the time of a run's variant, compared with the run's own time, in a few words."""
    if variant["verdict"] == "noise":
        return f"{name}: within noise"
    return f"{name} takes {variant['ratio']:.2f} × this time: {variant['verdict']}"


def run_row(run: Run) -> dict[str, Any]:
    """Return a run as a row of the table."""
    choices = run_store.choices_of(run)
    memory, accuracy = run.memory, run.accuracy
    predicted, measured = memory["predicted_peak_bytes"], memory["measured_peak_bytes"]
    bound = memory["peak_bound_bytes"]
    chosen, listed = "", []
    if choices is not None:
        chosen, listed = name_of_choices(choices), [f"{id}: {option}" for id, option in sorted(choices.items())]
    elif run.request.torch is not None:
        # The choices of plain PyTorch name operators, not sites.
        listed = [f"{module} {name} {at}: {option}" for module, name, at, option in run.request.torch.choices]
    off = human_share(measured / predicted - 1) if predicted and measured else ""
    return {
        "folder": str(run.run_dir),
        "id": run.run_dir.name,
        "name": run.name or run.run_dir.name,
        "named": chosen if chosen not in run.name else "",
        "created_s": run.request.created_s,
        "created": time.strftime("%d %b %H:%M:%S", time.localtime(run.request.created_s)),
        "choices": listed,
        "unread": choices is None and run.request.torch is None,
        "predicted": human_bytes(predicted) if predicted else f"≥ {human_bytes(bound)}" if bound else "",
        "measured": human_bytes(measured) if measured else "",
        "off": off,
        "compile": human_seconds(run.compile_s) if run.compile_s is not None else "",
        "step": human_seconds(run.step_s) if run.step_s is not None else "",
        "against": [_variant_text(name, other) for name, other in run.against.items()],
        "accuracy": "" if accuracy is None else ("ok" if accuracy.ok else "differs"),
        "state": run.state,
        "error": run.error or "",
        "warnings": [*run.warnings, *filter(None, (run.beside_load,))],
    }
