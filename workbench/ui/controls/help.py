"""Short texts about each tab and each option. `Help` shows the text of a tab at the end of the row of tabs."""

from __future__ import annotations

from workbench.ui.widgets.panel import Panel, esm

OPTIONS = {
    ("saved", "save"): "Kept in memory from the forward until the backward has read it.",
    ("saved", "recompute"): "Not kept: the backward runs its statements again.",
    ("saved", "offload"): "Copied to the host's memory, and back before the backward reads it.",
    ("remat", "auto"): "Thunder's minimum cut between fusions decides.",
    ("remat", "save"): "Written to memory by the fusion that makes it, and read by the other.",
    ("remat", "recompute"): "Not written: the fusion that reads it makes it again.",
    ("copies", "in"): "The copy runs inside a region, with what is compiled there.",
    ("copies", "out"): "The copy runs by itself, between regions.",
    ("copies", "keep"): "A fence, kept: fusions end there, so that memory with two names is written in order.",
    ("copies", "drop"): "No fence: fusions reach across.",
    ("waits", "stock"): "As Thunder places it.",
    ("waits", "earliest"): "As soon as the value it sends exists.",
    ("waits", "consumer"): "As soon as the value it sends exists, in the order in which results are first read.",
    ("waits", "just_in_time"): "Right before its wait: fewest bytes in flight, and nothing hidden.",
    ("waits", "late"): "Waited for right before the first use.",
    ("waits", "early"): "Waited for right after the issue.",
}
"""A sentence about each option, by lever and option."""


def meaning(lever: str, option: str, note: str = "") -> str:
    """Explain an option of a lever in one or two sentences; empty if there is nothing to say."""
    told = f" {note[:1].upper()}{note[1:]}." if note else ""
    return OPTIONS.get((lever, option), "") + told


FUSION = "A fusion: its statements are compiled together, so that what only they read need not be written to memory."

TABS: dict[str, tuple[str, ...]] = {
    "Memory": (
        "Memory over the statements of a step, forward then backward: predicted, and measured once it ran. On"
        " the right is what is alive at the peak.",
        "Click the curve, or a value of the list, to go to its statement in the graph. Only what is alive at "
        "the peak can lower it.",
    ),
    "Worth it": (
        "Every further choice, ranked by what the whole plan would gain: peak, saved bytes and step time, predicted.",
        "Click a heading to sort; search for a layer or a line; Choose takes one, Choose all listed takes all"
        " of the list. A name leads to its place in the graph.",
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
    "Experiments": (
        "The runs of this program that are kept on disk: measured, but for the predicted peak.",
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
"""For each tab, its contents and the user's actions there."""


class Help(Panel):
    """A button at the end of the row of tabs, which shows a note about the open tab; content: ``title lines``."""

    _esm = esm("help")

    def show(self, title: str) -> None:
        """Show the note about the tab called `title`."""
        if self.content.get("title") != title:
            self.content = {"title": title, "lines": list(TABS[title])}
