"""`Panel`: a widget whose content is plain data from Python, drawn by a small ES module of its own."""

from __future__ import annotations

import logging
import pathlib
import threading
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

PAGE = pathlib.Path(__file__).parents[1] / "frontend"
"""The JavaScript and CSS of all widgets."""
_LOGGER = logging.getLogger(__name__)


class Answering(anywidget.AnyWidget):
    """A widget whose messages are answered while a cell runs."""

    def open(self) -> None:
        """Open the comm to the page."""
        super().open()
        # ipykernel 7.4 sends a comm's messages to the shell that last sent on it, and not to the one that they are for:
        # of a widget made by a cell that is the main shell, where they wait for the cell that runs. Without the
        # method they go where the page sends them, to a subshell; 7.3 has no such method.
        if hasattr(self.comm, "_reply_subshell_for"):
            self.comm._reply_subshell_for = None


class Panel(Answering):
    """Content goes to the page as one trait; what a person does comes back as messages. Subclasses set ``_esm``.

    Parameters
    ----------
    on_message : callable, optional
        Called with each message, a dict with a ``type``.

    Attributes
    ----------
    content : dict
        What is shown; each panel says what stands in it.
    marked : list of str
        Nodes of the graph that what is selected there stands at: a statement, or both ends of an arc. Panels that
        show statements mark them.
    """

    _css: str | pathlib.Path = PAGE / "style.css"

    content = traitlets.Dict().tag(sync=True)
    marked = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(self, on_message: Callable[[dict[str, Any]], None] | None = None, **traits: Any) -> None:
        super().__init__(**traits)
        if on_message is not None:
            self.on_msg(lambda _widget, message, _buffers: on_message(message))

    def guard(self, act: Callable[[], Any]) -> Any:
        """Do something in the background whose failure is reported; an app reports it in its message line, too."""
        try:
            return act()
        except Exception:
            _LOGGER.exception("%s could not be worked out", type(self).__name__)
            return None

    def in_thread(self, name: str, act: Callable[[], Any]) -> None:
        """Do something in a thread of its own, under `guard`."""
        threading.Thread(target=lambda: self.guard(act), name=f"workbench-{name}", daemon=True).start()


def esm(widget: str) -> str:
    """The source of a widget's ES module, which imports nothing: `make extensions` builds it of the files in `PAGE`."""
    return (PAGE / "built" / f"{widget}.js").read_text()
