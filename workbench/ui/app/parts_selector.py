"""`PartsApp`: the app of a program with several graphs. A row of buttons selects the part that is shown."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import ipywidgets

from workbench.summary import coverage_words, part_time_words, place_text, run_line
from workbench.ui.app.app import App
from workbench.ui.app.places import find
from workbench.ui.controls.messages import app_name

if TYPE_CHECKING:
    from workbench.bench.session.multi_graph import OpaquePart, Part, PartsBench


class PartsApp:
    """The screen of a program with several graphs. It shows one part at a time, in an `App`.

    The `App` of a part is made when the part is first shown.

    Parameters
    ----------
    bench : PartsBench
    tab : bool
        Whether to open the app also in a tab of the page.
    place : str
        Name of the tab, or top-level tab, that is open first in the app of each part.

    Attributes
    ----------
    root : ipywidgets.VBox
        The displayed widget.
    row : ipywidgets.ToggleButtons
        A button for each part.
    told : ipywidgets.HTML
        Text with the part's position, the reason for the graph break after the part, and the program's latest run.
    """

    def __init__(self, bench: PartsBench, *, tab: bool = False, place: str = "") -> None:
        self.bench = bench
        if place:
            find(place)  # refuse a wrong name at once, not when the first app is made
        self._tab, self._place = tab, place
        self._apps: dict[str, App] = {}
        self.row = ipywidgets.ToggleButtons(
            options=[(f"{part.name}, opaque" if part.opaque else part.name, part.name) for part in bench.parts],
            value=bench.benches[0].name,
            style=ipywidgets.ToggleButtonsStyle(button_width="auto"),
        )
        self.row.add_class("wb-parts")
        self.told = ipywidgets.HTML()
        self._shown = ipywidgets.VBox(layout=ipywidgets.Layout(width="100%"))
        self.root = ipywidgets.VBox(
            [self.row, self.told, self._shown], layout=ipywidgets.Layout(width="100%", grid_gap="6px")
        )
        self.root.add_class("wb-of-parts")
        self.row.observe(lambda _: self._show(), names="value")
        self._forget = bench.observe(self._follow)
        self.root.observe(lambda _: self.close(), names="comm")
        self._show()

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.root)

    def close(self) -> None:
        """Stop observing the bench and its parts."""
        self._forget()
        for app in self._apps.values():
            app.close()

    @property
    def shown_part(self) -> Part | OpaquePart:
        """The part on the screen."""
        return next(part for part in self.bench.parts if part.name == self.row.value)

    def _show(self) -> None:
        part = self.shown_part
        if not part.opaque and part.name not in self._apps:
            bench = next(each for each in self.bench.benches if each.name == part.name)
            # Request a tab only once: the tab also shows the buttons that select the other parts.
            self._apps[part.name] = app = App(
                bench, tab=self._tab and not self._apps, place=self._place, on_run_news=self._tell
            )
            app.controls.app_name, app.controls.app = app_name(self.bench.program), str(self.root.model_id)
        self._shown.children = () if part.opaque else (self._apps[part.name].root,)
        self._tell()

    def _follow(self) -> None:
        for app in self._apps.values():
            app.follow_latest_run()
        self._tell()

    def _tell(self) -> None:
        part = self.shown_part
        lines = [f"{place_text(part.source, part.calls)}{part.words}"]
        if part.refusal:
            lines.append(f"Opaque because {part.refusal}")
        elif part.cut:
            lines.append(f"Cut at {part.cut}")
        if words := self.bench.peak_words:
            lines.append(f"Peak of the whole program: {words}")
        if self.bench.runs:
            run = self.bench.runs[-1]
            if words := part_time_words(run.part_times, part.name):
                lines.append(f"{part.name}: {words}")
            lines.append(f"Latest run of the whole program: {run_line(run)}")
            if words := coverage_words(run.coverage):
                lines.append(f"Coverage: {words}")
        told = "".join(f"<div>{html.escape(line)}</div>" for line in lines)
        self.told.value = f'<div style="line-height: 1.5; overflow-wrap: anywhere">{told}</div>'
