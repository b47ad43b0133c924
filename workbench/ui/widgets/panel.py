"""`Panel`: a widget that an ES module draws from plain data. Python sends these data as `content`."""

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
    """A widget that answers messages from the page while a cell runs."""

    def open(self) -> None:
        """Open the comm to the page."""
        super().open()
        # ipykernel 7.4 delivers the messages of a comm to the shell that last sent on the comm, and not to the shell
        # that the page has chosen. For a widget that a cell makes, the last sender is the main shell, where messages
        # wait for the running cell. Without the method `_reply_subshell_for`, messages go to the subshell that the page
        # has chosen, as in ipykernel 7.3.
        if hasattr(self.comm, "_reply_subshell_for"):
            self.comm._reply_subshell_for = None


class Panel(Answering):
    """A widget that sends its content to the page as one trait. The user's actions come back as messages.

    Subclasses set ``_esm``. The style of all panels of an app is that of `Controls`: the browser computes the page's
    layout again for each style that is added, and it would match each element with the rules of each copy.

    Parameters
    ----------
    on_message : callable, optional
        Called with each message, a dict with a ``type``.

    Attributes
    ----------
    content : dict
        Data on the screen. Each panel documents the keys.
    marked : list of str
        Ids of the selected nodes of the graph: a statement, or both ends of an arc. Panels that list statements
        highlight the selected statements.
    """

    _css: str | pathlib.Path = ""

    content = traitlets.Dict().tag(sync=True)
    marked = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(self, on_message: Callable[[dict[str, Any]], None] | None = None, **traits: Any) -> None:
        super().__init__(**traits)
        if on_message is not None:
            self.on_msg(lambda _widget, message, _buffers: on_message(message))

    def guard(self, act: Callable[[], Any]) -> Any:
        """Call `act` and log a failure. An app replaces this method, to show the failure in its message line."""
        try:
            return act()
        except Exception:
            _LOGGER.exception("%s could not be computed", type(self).__name__)
            return None

    def in_thread(self, name: str, act: Callable[[], Any]) -> None:
        """Run `act` in a separate thread, under `guard`."""
        threading.Thread(target=lambda: self.guard(act), name=f"workbench-{name}", daemon=True).start()


def esm(widget: str) -> str:
    """Return the source of a widget's ES module: the one file without imports that `make extensions` has bundled."""
    return (PAGE / "built" / f"{widget}.js").read_text()
