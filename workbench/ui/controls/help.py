"""Notes about the tabs. `Help` shows the note about the open tab when the user presses its button."""

from __future__ import annotations

from workbench.ui.widgets.panel import Panel, esm

FUSION = (
    "A fusion: its statements are compiled together. Values that only these statements read need not be written to "
    "memory."
)

TABS: dict[str, tuple[str, ...]] = {
    "Curve and peak": (
        "Memory over the statements of a step, forward then backward: predicted and, after a run, measured. The list on"
        " the right has the values that memory holds at the peak.",
        "Click the curve, or a value of the list, to go to its statement in the graph. A choice lowers the peak only "
        "if it concerns values that memory holds at the peak.",
    ),
    "Single choices": (
        "Every further choice, ranked by its predicted effect on the whole plan: peak, saved bytes and step time.",
        "Click a heading to sort the list; search for a layer or a line. Scroll to compute further rows. Choose takes "
        "one option; Choose all listed "
        "takes the best listed option of each site. Click a name to go to its site in the graph.",
    ),
    "Fit": (
        "The choices to save, recompute or offload that keep the peak at or below a stated peak, and add the least "
        "predicted time.",
        "Enter a peak and press Fit, or click a point of the curve. The list beside the curve has the choices with "
        "their reasons; Undo takes the choices back.",
    ),
    "Outline": (
        "The program's source, module by module and line by line, with the saved bytes, the bytes at the peak, and "
        "the time of each.",
        "Click an arrow to open a row, and a heading to sort. The buttons above choose an option for all sites in the "
        "selected row. The arrow keys go from row to row.",
    ),
    "Compile": (
        "Compile time by stage and by fusion, during and after a compilation.",
        "Start a run to fill this tab. Point at a bar to see its name and its seconds.",
    ),
    "Timeline": (
        "One measured step, statement by statement. With ranks, also a simulated step with its collectives.",
        "Zoom with ctrl + wheel, drag to move, click a bar to go to its statement. Medians has the medians of all "
        "instrumented steps; Collectives lists the collectives and the time in which compute waits for each; Write for "
        "Perfetto makes a file for ui.perfetto.dev.",
    ),
    "Fusions": (
        "All fusions. Fusions of the same structure share a row, because they need to be compiled only once.",
        "Click a name to select the fusion in the graph. The inspector then shows its code, and why the fusion ends "
        "where it does. Weigh other cuts compares compilations, memory and time if the backward recomputes more or "
        "less. If you cancel the comparison, the table has the cuts that were compared before.",
    ),
    "Passes": (
        "The trace after each pass of the compilation. Passes that changed nothing are left out.",
        "Press a pass, then Next change. Side by side shows the traces before and after the pass. Click a line to go "
        "to its statement in the graph. A statement that is selected in the graph is marked here.",
    ),
    "Runs": (
        "The runs of this program on disk. Each peak is labelled as predicted or measured; all other figures are "
        "measured.",
        "Pin a run to compare all figures with it. You can rename a run, delete it, or write a note. Tick runs and "
        "plans to put them side by side, and write the comparison as one page.",
    ),
    "Chosen": (
        "The choices in force. Equal choices in several layers share a row.",
        "Revert takes back the choices of a row, Revert all those of all rows. Click a name to go to its site in the "
        "graph.",
    ),
    "Sites": (
        "All sites of the program, each with its choice and with the outcome in the plan.",
        "Search by layer, symbol or line; choose in the row. Click a name to go to the site in the graph.",
    ),
    "Settings": (
        "The settings of each lever for the whole program, and additional measurements of runs.",
        "For an option that cannot be chosen, the menu gives the reason.",
    ),
    "Trace": (
        "The trace that Thunder will execute, as text, with your source line beside each statement.",
        "Search the text. Click a line to go to its statement in the graph. A statement that is selected in the graph "
        "is marked here.",
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
