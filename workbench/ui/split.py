"""`Split`: a bar between two parts of the app, to be dragged where all of the app is shown at once."""

from __future__ import annotations

import anywidget
import traitlets

from workbench.ui.panel import HERE, esm


class Split(anywidget.AnyWidget):
    """A bar between the parts before and after it.

    Where a person puts it the page remembers; ``style.css`` has where it stands until then.

    Attributes
    ----------
    axis : str
        ``x`` between parts beside each other, ``y`` between parts above each other.
    """

    _esm = esm("split.js")
    _css = HERE / "style.css"

    axis = traitlets.Enum(("x", "y"), "x").tag(sync=True)
