"""`Places`: the area below the graph. It has five top-level tabs, called places, and each place has tabs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import ipywidgets

from workbench.errors import ChoiceError, short_repr

PLACES: dict[str, tuple[str, ...]] = {
    "Memory": ("Curve and peak",),
    "Time": ("Compile", "Timeline"),
    "Choices": ("Single choices", "Fit", "Chosen", "Sites", "Settings"),
    "Program": ("Outline", "Fusions", "Passes", "Trace"),
    "Experiments": ("Runs",),
}
"""Titles of each place's tabs, by the place's title."""
_OTHER_NAMES = {
    "alive": "Curve and peak",
    "peak": "Curve and peak",
    "collectives": "Timeline",
    "worth": "Single choices",
    "worth it": "Single choices",
    "all sites": "Sites",
    "in force": "Chosen",
}
"""Further names of tabs, such as the name of what a tab shows."""


class Target(NamedTuple):
    """The place and the tab that a name stands for. An empty `tab` is the tab that was last open in the place."""

    place: str
    tab: str = ""


def find(name: str) -> Target:
    """Return the place or tab with the title `name`, in upper or lower case. Raise `ChoiceError` if there is none."""
    asked = str(name).strip().casefold()
    asked = _OTHER_NAMES.get(asked, asked).casefold()
    for place, tabs in PLACES.items():
        if place.casefold() == asked:
            return Target(place)
        for tab in tabs:
            if tab.casefold() == asked:
                return Target(place, tab)
    legal = ", ".join(f"{place} ({', '.join(tabs)})" for place, tabs in PLACES.items())
    raise ChoiceError(f"the app has no tab {short_repr(name)}; it has {legal}")


class Tab(NamedTuple):
    """A tab. The app calls `draw` to show the current plan, if the plan has changed and the tab is open."""

    widget: ipywidgets.Widget
    draw: Callable[[], None] | None = None


class Places:
    """A row of places, and below it the row of the open place's tabs.

    A place remembers the tab that was last open in it.

    Parameters
    ----------
    tabs : mapping of str to Tab
        Every tab of `PLACES`, by its title.
    on_opened : callable
        Called after another tab was opened.

    Attributes
    ----------
    root : ipywidgets.Tab
        The displayed widget.
    """

    def __init__(self, tabs: Mapping[str, Tab], on_opened: Callable[[], None]) -> None:
        self._rows = [self._row(titles, tabs) for titles in PLACES.values()]
        self.root = ipywidgets.Tab(self._rows, titles=list(PLACES))
        self.root.add_class("wb-places")
        for row in (self.root, *self._rows):
            row.observe(lambda _: on_opened(), names="selected_index")

    @staticmethod
    def _row(titles: Sequence[str], tabs: Mapping[str, Tab]) -> ipywidgets.Tab:
        row = ipywidgets.Tab([tabs[title].widget for title in titles], titles=list(titles))
        row.add_class("wb-place")
        return row

    @property
    def titles(self) -> list[str]:
        """Titles of all tabs, in the order of the screen."""
        return [title for titles in PLACES.values() for title in titles]

    @property
    def place(self) -> str:
        """Title of the open place."""
        return list(PLACES)[self.root.selected_index or 0]

    @property
    def tab(self) -> str:
        """Title of the open tab."""
        return PLACES[self.place][self._rows[self.root.selected_index or 0].selected_index or 0]

    def open(self, name: str) -> None:
        """Open the place or the tab that is called `name`; see `find`."""
        place, tab = find(name)
        index = list(PLACES).index(place)
        if tab:
            self._rows[index].selected_index = PLACES[place].index(tab)
        self.root.selected_index = index
