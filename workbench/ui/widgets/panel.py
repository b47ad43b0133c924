"""`Panel`: a widget with plain data from Python as content, drawn by its own small ES module."""

from __future__ import annotations

import logging
import pathlib
import threading
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

PAGE = pathlib.Path(__file__).parents[1] / "frontend"
"""Folder of the JavaScript and CSS of all widgets."""
_LOGGER = logging.getLogger(__name__)


class Answering(anywidget.AnyWidget):
    """A widget that answers messages while a cell runs."""

    def open(self) -> None:
        """Open the comm to the page."""
        super().open()
        # ipykernel 7.4 sends a comm's messages to the shell that last sent on the comm, not to the shell for which they
        # are meant. For a widget that a cell makes, this is the main shell, where messages wait for the running cell.
        # Without the method they go to the subshell chosen by the page; ipykernel 7.3 has no such method.
        if hasattr(self.comm, "_reply_subshell_for"):
            self.comm._reply_subshell_for = None


class Panel(Answering):
    """Content goes to the page as one trait; the user's actions come back as messages. Subclasses set ``_esm``.

    Parameters
    ----------
    on_message : callable, optional
        Called with each message, a dict with a ``type``.

    Attributes
    ----------
    content : dict
        Data on the screen; each panel documents its form.
    marked : list of str
        Nodes of the graph at the selection: a statement, or both ends of an arc. Panels that
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
        """Run a background action and report its failure; an app also shows the failure in its message line."""
        try:
            return act()
        except Exception:
            _LOGGER.exception("%s could not be worked out", type(self).__name__)
            return None

    def in_thread(self, name: str, act: Callable[[], Any]) -> None:
        """Run `act` in a separate thread, under `guard`."""
        threading.Thread(target=lambda: self.guard(act), name=f"workbench-{name}", daemon=True).start()


def esm(widget: str) -> str:
    """Return the source of a widget's ES module, without imports: `make extensions` bundles it from files in `PAGE`."""
    return (PAGE / "built" / f"{widget}.js").read_text()
