"""`Exporter`: writes the choices of a bench into a file for Thunder or for plain PyTorch, and shows the file first."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from workbench.bench.report import torch_file
from workbench.errors import PlanError, WorkbenchError
from workbench.runs.process.request import TorchTarget
from workbench.summary import human_bytes, human_seconds
from workbench.ui.controls.messages import choices_file, module_file, other_choices_in
from workbench.ui.graph.counterparts import counterpart_key

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.bench.fit.torch_fit import TorchFit
    from workbench.compiler.driver.torch_prediction import TorchPrediction
    from workbench.runs.process.follow_run import Run
    from workbench.ui.controls.controls import Controls

_MOST_LINES = 2_000
"""Maximum number of lines of a file that are shown."""

_TARGETS = {
    "thunder": ("Thunder", "A config: the workbench loads it, and compiles the program with Thunder."),
    "torch": ("torch.compile", "A module that needs nothing but PyTorch. It compiles a model with these choices."),
    "torch_eager": ("PyTorch, not compiled", "The same without a compiler: the backward recomputes what you chose."),
    "plan": (
        "Saved plan",
        "A file for a colleague: JupyterLab draws it without a kernel, and wb.open opens it for further choices.",
    ),
    "report": (
        "HTML report",
        "One page that needs no network: graph, figures, choices, runs, and how to reproduce them.",
    ),
}
"""Name and description of each target."""

_DOCUMENTS = {"plan": "plan.json", "report": "html"}
"""Endings of the names of exported files that are not files of choices."""

_MODULES = {"torch": "torch", "torch_eager": "eager"}
"""Endings of the names of exported modules for plain PyTorch. They differ, so that no file replaces the other."""

_CANCELLED = "The fit was cancelled. Another fit uses the predictions that were made."

_SAVED = "Saved for backward, predicted"

_USES = {"torch": "fast = {}.compile({})", "torch_eager": "{}.checkpoint({})"}


type _Request = tuple[str, str, str, str]
"""Path, target, the page's name of the request, and the stated peak."""


class _Newer(Exception):
    """Ends a fit: it was cancelled, or the page waits for something else."""


class _ShowMessage(Protocol):
    def __call__(self, text: str | None, *, bad: bool = False) -> None: ...


class Exporter:
    """Writes and shows files with choices. Runs plain `torch.compile` with the choices of such a file.

    In the methods, `peak` is the user's limit on the peak of `torch.compile`. If it is not empty, the file has the
    choices of `Workbench.torch_fit`.

    Parameters
    ----------
    bench : Workbench
    controls : Controls
        Shows the file that would be written.
    act : callable
        Calls a function and returns its result; on failure, shows a message and returns None.
    say : callable
        Shows a line of text.
    """

    def __init__(
        self,
        bench: Workbench,
        controls: Controls,
        *,
        act: Callable[[Callable[[], Any]], Any],
        say: _ShowMessage,
    ) -> None:
        self._bench, self._controls, self._act, self._say = bench, controls, act, say
        self._lock = threading.Lock()
        # PyTorch's compiler can fail if two threads trace the program at once.
        self._tracing = threading.Lock()
        self._turn = 0
        self._pending: _Request | None = None
        """The request of the page that is not answered yet."""
        config = choices_file(bench.program)
        files = {"thunder": config, **{kind: module_file(bench.program, end) for kind, end in _MODULES.items()}}
        files |= {kind: config.removesuffix("choices.py") + end for kind, end in _DOCUMENTS.items()}
        controls.targets = [
            {"target": target, "name": name, "about": about, "file": files[target]}
            for target, (name, about) in _TARGETS.items()
        ]

    def write(self, path: str, target: str = "thunder", peak: str = "") -> None:
        """Write the file. A file with choices or the plan of another program is replaced only at the second request."""
        if not path:
            self._say(f"Export needs a file name, such as {choices_file(self._bench.program)}", bad=True)
            return
        bench = self._bench
        held = self._act(lambda: other_choices_in(path, bench.program, bench.config.fingerprint))
        question = {"text": f"{path} exists and holds {held}: Export again to replace it", "bad": True}
        # If the question is still shown, this is the second press: replace the file.
        if held and self._controls.content.get("message") != question:
            self._controls.update(message=question)
            return
        if target == "thunder":
            self._write(path, target)
            return
        # This takes seconds, and the app must answer clicks meanwhile.
        self._say(f"Writing {path}…")
        self._controls.in_thread("export", lambda: self._write(path, target, peak))

    def cancel(self) -> None:
        """End the fit that the page waits for. A later fit uses the predictions that were made."""
        with self._lock:
            pending, self._pending = self._pending, None
            if pending is None:
                return
            self._turn += 1
            self._controls.exported = {"refused": _CANCELLED, "asked": pending[2]}

    def run(self, peak: str = "") -> None:
        """Run plain `torch.compile` with the choices, in a process of its own."""
        bench = self._bench
        # This predicts the peak first, which takes seconds, and the app must answer clicks meanwhile.
        self._say("Predicting the peak of torch.compile…")

        def run() -> None:
            with self._tracing:
                started = self._act(lambda: bench.torch_fit(peak).run() if peak else bench.run(target="torch"))
            if started is not None:
                self._say(None)

        self._controls.in_thread("export-run", run)

    def plain_peak_bytes(self) -> int:
        """Predict the peak of plain `torch.compile` without choices."""
        with self._tracing:
            return self._bench.torch_prediction(stock=True).peak_bytes

    def _write(self, path: str, target: str, peak: str = "") -> None:
        bench, module, named = self._bench, Path(path).stem, self._bench.program.name_in_script
        writers: dict[str, Callable[[], Path]] = {
            "plan": lambda: bench.save(path),
            "report": lambda: bench.report(path),
        }
        if peak and target == "torch":
            writers["torch"] = lambda: bench.torch_fit(peak).export(path)
        with self._traces(target):
            written = self._act(writers.get(target, lambda: bench.export(path, target=target)))
        if written is None:
            return
        loaded = f"wb.load({json.dumps(path, ensure_ascii=False)})"
        uses = {
            "thunder": f" In a script: fast = {loaded}.jit({named})",
            "plan": f" In a notebook: wb.open({json.dumps(path, ensure_ascii=False)}); or double-click the file.",
            **{kind: f" In your script: import {module}; {use.format(module, named)}" for kind, use in _USES.items()},
        }
        text = f"Written to {written}.{uses.get(target, '')}"
        if target in _USES and not torch_file.can_import(path):
            text = f"Written to {written}, which Python cannot import: rename it, for example to choices.py"
        # The page makes a link of the file's name, where it can open the file.
        self._controls.update(message={"text": text, "bad": False, "file": str(written)})

    def show(self, path: str, target: str, asked: str, peak: str = "") -> None:
        """Show the file that `write` would write, and the choices that it would leave out, each with the reason.

        `asked` tells the page which of its requests is answered.
        """
        self._answer((path or "choices.py", target, asked, peak))

    def forget(self) -> None:
        """Drop the shown file, because the choices have changed. A request that is not answered yet begins again.

        A cancelled fit stays cancelled: without an answer, the page would ask for it again.
        """
        with self._lock:
            self._turn += 1
            if self._controls.exported.get("refused") != _CANCELLED:
                self._controls.exported = {}
            pending = self._pending
        if pending is not None:
            self._answer(pending)

    def _answer(self, request: _Request) -> None:
        with self._lock:
            self._turn += 1
            self._pending, turn = request, self._turn
        self._controls.in_thread("export-preview", lambda: self._show(turn, *request))

    def _show(self, turn: int, path: str, target: str, asked: str, peak: str) -> None:
        def go_on(progress: str) -> None:
            with self._lock:
                if turn != self._turn:
                    raise _Newer
                self._controls.exported = {"progress": progress}

        with self._traces(target):
            if turn != self._turn:  # while this request waited, there was another one
                return
            try:
                content = self._content(path, target, peak, go_on)
            except _Newer:
                return
            except WorkbenchError as error:
                content = {"refused": error.in_app()}
        with self._lock:
            if turn == self._turn:
                self._pending = None
                self._controls.exported = {**content, "asked": asked}

    def _traces(self, target: str) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which no other thread of this object traces, if the file of `target` needs a trace."""
        return self._tracing if target in _MODULES else contextlib.nullcontext()

    def _content(self, path: str, target: str, peak: str, go_on: Callable[[str], None]) -> dict[str, Any]:
        bench = self._bench
        choices, left_out, figures = dict(bench.choices), {}, list[dict[str, str]]()
        if target in _DOCUMENTS:
            return {"count": len(choices), "left_out_count": 0, "left_out": [], "text": "", "more": 0, "figures": []}
        if target == "thunder":
            text = bench.export_text(path)
        elif target == "torch" and peak:
            fit = bench.torch_fit(peak, go_on=go_on)
            left_out, figures = dict(fit._left_out), self._figures_of_fit(fit)
            text = torch_file.fit_text(bench, fit, Path(path).name)
        else:
            found = bench.torch_choices()
            left_out = found.left_out
            text = torch_file.file_text(bench, found, target, Path(path).name)
            figures = self._figures(TorchTarget.of(found.choices)) if target == "torch" else []
        lines = text.splitlines()
        alike: dict[tuple[str, str, str], list[str]] = {}
        for id, reason in left_out.items():
            alike.setdefault((counterpart_key(id) or id, choices.get(id, ""), reason), []).append(id)
        rows = [
            {"id": ids[0] if len(ids) == 1 else place, "option": option, "reason": reason, "count": len(ids)}
            for (place, option, reason), ids in alike.items()
        ]
        return {
            "count": len(choices),
            "left_out_count": len(left_out),
            "left_out": rows,
            "text": "\n".join(lines[:_MOST_LINES]),
            "more": max(0, len(lines) - _MOST_LINES),
            "figures": figures,
        }

    def _figures(self, target: TorchTarget) -> list[dict[str, str]]:
        """Return predicted and measured figures of plain `torch.compile` under the present choices."""
        bench = self._bench
        try:
            found, stock = bench.torch_prediction(), bench.torch_prediction(stock=True)
        except PlanError as error:
            return [_figure("Not predicted", str(error)), *self._measured(target)]
        return [
            _figure(_peak_label(found), human_bytes(found.peak_bytes), _without(human_bytes(stock.peak_bytes))),
            _figure(_SAVED, human_bytes(found.saved_bytes), _without(human_bytes(stock.saved_bytes))),
            *(_figure("Not applied", told) for told in found.unapplied),
            *self._measured(target),
        ]

    def _figures_of_fit(self, fit: TorchFit) -> list[dict[str, str]]:
        return [
            _figure(_peak_label(fit), human_bytes(fit.peak_bytes), _before(human_bytes(fit.before_peak_bytes))),
            _figure(_SAVED, human_bytes(fit.saved_bytes), _before(human_bytes(fit.before_saved_bytes))),
            _figure("Step, predicted", human_seconds(fit.step_s + fit.added_s), _before(human_seconds(fit.step_s))),
            *self._measured(TorchTarget.of(fit.choices, fit.budget)),
        ]

    def _measured(self, target: TorchTarget) -> list[dict[str, str]]:
        """Return the figures of the latest run of plain `torch.compile` with the choices of `target`."""
        runs = (run for run in reversed(self._bench.runs) if run.request.torch == target and run.state == "done")
        run = next(runs, None)
        if run is None:
            return []
        peak_bytes, step_s = run.memory["measured_peak_bytes"], run.step_s
        return [
            *([_figure("Peak, measured", human_bytes(peak_bytes))] if peak_bytes is not None else []),
            *([_figure("Step, measured", human_seconds(step_s))] if step_s is not None else []),
            *([_figure("Results", _results(run))] if run.accuracy is not None else []),
        ]


def _figure(name: str, value: str, base: str = "") -> dict[str, str]:
    """Return a figure for the page. `base` has the same figure without the choices, or before a fit."""
    return {"name": name, "value": value, "base": base}


def _peak_label(found: TorchPrediction | TorchFit) -> str:
    return "Peak, predicted, at least" if found.peak_at_least else "Peak, predicted"


def _without(value: str) -> str:
    return f"without choices: {value}"


def _before(value: str) -> str:
    return f"before the fit: {value}"


def _results(run: Run) -> str:
    """Compare a run of plain `torch.compile` with `torch.compile` without choices, and with eager, in a few words."""
    accuracy = run.accuracy
    assert accuracy is not None
    if not accuracy.ok:
        return f"wrong: {run.error}"
    compiled = [tensor for tensor in accuracy.tensors if tensor.against == "torch.compile"]
    if compiled and all(tensor.bitwise for tensor in compiled):
        return "every bit equals the result of torch.compile without choices"
    return f"largest error {accuracy.max_error:.1e} against {accuracy.against}"
