"""Builds trace-view: the widget's own files go into ``generated/``, and `building` does the rest."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from building import Extension  # noqa: E402  # in the folder above

from workbench.ui.graph.graph_view import MODULES  # noqa: E402  # this checkout's own
from workbench.ui.widgets.panel import PAGE, esm  # noqa: E402

del sys.path[:2]


def generated() -> dict[str, str]:
    """The widget's own files, by name: the same text that a kernel sends to a page."""
    return {
        "dom.js": f"{esm()}\nexport {{ h, panel }};\n",
        "graph_view.js": esm(*MODULES),
        "strip.js": esm("panels/strip.js"),
        "style.css": (PAGE / "style.css").read_text(),
    }


EXTENSION = Extension(HERE, generated)

if __name__ == "__main__":
    EXTENSION.build()
