"""Notes about the tabs. `Help` shows the note about the open tab when the user presses its button."""

from __future__ import annotations

from workbench.ui.widgets.panel import Panel, esm

FUSION = "A fusion: its statements are compiled together, so that what only they read need not be written to memory."

TABS: dict[str, tuple[str, ...]] = {
    "Curve and peak": (
        "Memory over the statements of a step, forward then backward: predicted, and measured once it ran. On"
        " the right is what is alive at the peak.",
        "Click the curve, or a value of the list, to go to its statement in the graph. Only what is alive at "
        "the peak can lower it.",
    ),
    "Worth it": (
        "Every further choice, ranked by what the whole plan would gain: peak, saved bytes and step time, predicted.",
        "Click a heading to sort; search for a layer or a line. Choose takes one option; Choose all listed takes"
        " the best listed option of each site. A name leads to its place in the graph.",
    ),
    "Fit": (
        "What to save, recompute and offload so that the peak is at most what you state, in the least predicted time.",
        "Enter a peak and press Fit, or click the curve. Beside it is what was chosen, and why; Undo takes it back.",
    ),
    "Outline": (
        "The program as it was written, module by module and line by line: what each keeps, has at the peak, "
        "and takes.",
        "Open a row by the arrow, sort by a heading, and choose for all that is in it by the buttons above. "
        "Arrow keys walk.",
    ),
    "Compile": (
        "Where compile time goes, by stage and by fusion, while it happens and after.",
        "A run fills it. Point at a bar for its part and seconds.",
    ),
    "Timeline": (
        "One instrumented step, statement by statement; with ranks also the simulated one, with its collectives.",
        "ctrl + wheel zooms, dragging moves, a bar leads to its statement. Medians lists all steps with "
        "clocks; Write for Perfetto makes a file for ui.perfetto.dev.",
    ),
    "Fusions": (
        "Every fusion once, with those of the same structure together: these need to be compiled only once.",
        "A name leads to the fusion in the graph; there the inspector shows its code, and why it ends where it does. "
        "Weigh other cuts: compilations, memory and time if the backward recomputes more, or less; "
        "cancelled, it shows those weighed so far.",
    ),
    "Passes": (
        "The program after each step of its compilation, without steps that changed nothing.",
        "Press a step, then Next change; side by side shows it beside the step before. A line leads to its "
        "statement in the graph, and what is selected there is marked here.",
    ),
    "Runs": (
        "The runs of this program on disk. The peak is predicted; the rest is measured.",
        "Pin a run to compare with it. Rename, delete, or write a note; tick runs and "
        "plans to put them side by side, and write that as one page.",
    ),
    "Sites": (
        "Everything that can be chosen, with the choice, and what is in effect.",
        "Search by layer, symbol or line; choose in the row. A name leads to its place in the graph.",
    ),
    "Settings": (
        "What holds for the whole program, by lever, and what a run measures.",
        "What cannot be chosen here says why.",
    ),
    "Trace": (
        "What Thunder will execute, as text, with your own line beside each statement.",
        "Search it; a line leads to its statement in the graph, and what is selected there is marked here.",
    ),
}
"""Note about each tab, by the tab's title: what it shows, and what the user can do there."""


class Help(Panel):
    """A button at the end of the row of tabs that shows the note about the open tab.

    The keys of `content` are ``title lines``.
    """

    _esm = esm("help")

    def show(self, title: str) -> None:
        """Show the note about the tab called `title`."""
        if self.content.get("title") != title:
            self.content = {"title": title, "lines": list(TABS[title])}
