"""`Exporter`: writes the choices of a bench into a file for Thunder or for plain PyTorch, and shows the file first."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from workbench.bench.report import torch_file
from workbench.errors import WorkbenchError
from workbench.ui.controls.messages import choices_file, module_file, other_choices_in
from workbench.ui.graph.counterparts import counterpart_key

if TYPE_CHECKING:
    from workbench.bench import Workbench
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

_USES = {"torch": "fast = {}.compile(model)", "torch_eager": "{}.checkpoint(model)"}


class _ShowMessage(Protocol):
    def __call__(self, text: str | None, *, bad: bool = False) -> None: ...


class Exporter:
    """Writes and shows files with choices.

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
        self._asked = ""
        config = choices_file(bench.program)
        files = {"thunder": config, **dict.fromkeys(_USES, module_file(bench.program))}
        files |= {kind: config.removesuffix("choices.py") + end for kind, end in _DOCUMENTS.items()}
        controls.targets = [
            {"target": target, "name": name, "about": about, "file": files[target]}
            for target, (name, about) in _TARGETS.items()
        ]

    def write(self, path: str, target: str = "thunder") -> None:
        """Write the file. A file with the choices of another program is replaced only at the second request."""
        if not path:
            self._say(f"Export needs a file name, such as {choices_file(self._bench.program)}", bad=True)
            return
        bench = self._bench
        held = target not in _DOCUMENTS and self._act(
            lambda: other_choices_in(path, bench.program, bench.config.fingerprint)
        )
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
        self._controls.in_thread("export", lambda: self._write(path, target))

    def _write(self, path: str, target: str) -> None:
        bench, module = self._bench, Path(path).stem
        writers: dict[str, Callable[[], Path]] = {
            "plan": lambda: bench.save(path),
            "report": lambda: bench.report(path),
        }
        written = self._act(writers.get(target, lambda: bench.export(path, target=target)))
        if written is None:
            return
        loaded = f"wb.load({json.dumps(path, ensure_ascii=False)})"
        uses = {
            "thunder": f" In a script: fast = {loaded}.jit({bench.program.name_in_script})",
            "plan": f" In a notebook: wb.open({json.dumps(path, ensure_ascii=False)}); or double-click it.",
            **{kind: f" In your script: import {module}; {use.format(module)}" for kind, use in _USES.items()},
        }
        text = f"Written to {written}.{uses.get(target, '')}"
        # The page makes a link of the file's name, where it can open the file.
        self._controls.update(message={"text": text, "bad": False, "file": str(written)})

    def show(self, path: str, target: str, asked: str) -> None:
        """Show the file that `write` would write, and the choices that it would leave out, each with the reason.

        `asked` tells the page which of its requests is answered.
        """
        with self._lock:
            self._asked = asked
        self._controls.in_thread("export-preview", lambda: self._show(path or "choices.py", target, asked))

    def forget(self) -> None:
        """Drop the shown file, because the choices have changed."""
        with self._lock:
            self._asked = ""
            self._controls.exported = {}

    def _show(self, path: str, target: str, asked: str) -> None:
        try:
            content = self._content(path, target)
        except WorkbenchError as error:
            content = {"refused": error.in_app()}
        with self._lock:
            if asked == self._asked:
                self._controls.exported = {**content, "asked": asked}

    def _content(self, path: str, target: str) -> dict[str, Any]:
        bench = self._bench
        choices, left_out = dict(bench.choices), {}
        if target in _DOCUMENTS:
            return {"count": len(choices), "left_out_count": 0, "left_out": [], "text": "", "more": 0}
        if target == "thunder":
            text = bench.export_text(path)
        else:
            found = bench.torch_choices()
            left_out = found.left_out
            text = torch_file.file_text(bench, found, target, Path(path).name)
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
        }
