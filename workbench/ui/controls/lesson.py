"""A widget for a learner's prediction: options or a number, and a button that locks the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.errors import LessonError
from workbench.ui.widgets.panel import PAGE, Panel, esm

if TYPE_CHECKING:
    from workbench.lessons.predictions import LockedPrediction


class Question(Panel):
    """A form for a prediction.

    The keys of `content` are the keys of `LockedPrediction.form`, and ``question locked given right error``.

    Parameters
    ----------
    prediction : LockedPrediction
    """

    _esm = esm("lesson")
    _css = "\n".join((PAGE / name).read_text() for name in ("style.css", "controls/lesson.css"))

    def __init__(self, prediction: LockedPrediction) -> None:
        super().__init__(self._on_message)
        self._prediction = prediction
        self._error = ""
        prediction.observe(self._refresh)
        self._refresh()

    def _on_message(self, message: dict[str, Any]) -> None:
        if message.get("type") != "lock":
            return
        self._error = ""
        try:
            self._prediction.lock(*message["given"])
        except LessonError as error:
            self._error = str(error)
            self._refresh()

    def _refresh(self) -> None:
        prediction = self._prediction
        verdict = prediction.verdict
        self.content = {
            **prediction.form(),
            "question": prediction.question,
            "locked": prediction.locked,
            "given": prediction.given,
            "right": verdict.right if verdict is not None else None,
            "error": self._error,
        }


def show_prediction(prediction: LockedPrediction) -> None:
    """Display a prediction in a notebook. On a page without a kernel, a text says how to get the buttons."""
    from IPython.display import display

    drawn, _ = Question(prediction)._repr_mimebundle_() or ({}, {})
    text = f"{prediction!r}\nWithout buttons here, run the cells of this notebook from the first on."
    display({**drawn, "text/plain": text}, raw=True)
