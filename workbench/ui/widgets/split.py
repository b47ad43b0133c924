"""`Split`: a bar between two areas of the app. The user can drag it in a JupyterLab tab and on the full screen."""

from __future__ import annotations

import anywidget
import ipywidgets
import traitlets

from workbench.ui.widgets.panel import esm


class Split(anywidget.AnyWidget):
    """A bar between two areas of the app.

    The page remembers the position that the user chose. ``style.css`` has the initial position.

    Attributes
    ----------
    axis : str
        ``x`` between areas beside each other, ``y`` between areas below each other.
    """

    _esm = esm("split")

    axis = traitlets.Enum(("x", "y"), "x").tag(sync=True)


def side_by_side(*parts: ipywidgets.Widget) -> ipywidgets.HBox:
    """Arrange widgets in a row, or below each other if the row is too narrow."""
    return ipywidgets.HBox(parts, layout=ipywidgets.Layout(width="100%", flex_flow="row wrap", grid_gap="12px"))
