"""`Split`: a bar between two parts of the app, to be dragged where all of the app is shown at once."""

from __future__ import annotations

import anywidget
import ipywidgets
import traitlets

from workbench.ui.widgets.panel import PAGE, esm


class Split(anywidget.AnyWidget):
    """A bar between the parts before and after it.

    Where a person puts it the page remembers; ``style.css`` has where it stands until then.

    Attributes
    ----------
    axis : str
        ``x`` between parts beside each other, ``y`` between parts above each other.
    """

    _esm = esm("split")
    _css = PAGE / "style.css"

    axis = traitlets.Enum(("x", "y"), "x").tag(sync=True)


def side_by_side(*parts: ipywidgets.Widget) -> ipywidgets.HBox:
    """Parts in a row, and under each other where there is no room for that."""
    return ipywidgets.HBox(parts, layout=ipywidgets.Layout(width="100%", flex_flow="row wrap", grid_gap="12px"))
