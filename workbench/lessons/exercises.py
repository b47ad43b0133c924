"""`Exercise`: a task with a hint for each kind of wrong answer. The workbench tries the student's answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from workbench.errors import LessonError, WorkbenchError
from workbench.lessons.notebook_text import Marked, plain

RIGHT, WRONG, OPEN = "✓", "✗", "…"


class Wrong(NamedTuple):
    """One kind of wrong answer.

    Attributes
    ----------
    when : callable
        Receives the answer and the object made from it; returns whether the answer is wrong in this way.
    hint : str or callable
        A hint at the next step. A callable receives the answer and the object made from it, and returns the hint.
    """

    when: Callable[[Any, Any], bool]
    hint: str | Callable[[Any, Any], str]

    def says(self, given: Any, outcome: Any) -> str:
        """Return the hint for the answer `given`."""
        return self.hint if isinstance(self.hint, str) else self.hint(given, outcome)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Judgement of an answer.

    Attributes
    ----------
    right : bool or None
        Whether the answer is right; None if there is no answer yet.
    text : str
        Text for the student: the explanation, or the hint.
    """

    right: bool | None
    text: str

    def __str__(self) -> str:
        return f"{OPEN if self.right is None else RIGHT if self.right else WRONG} {self.text}"

    def __repr__(self) -> str:
        return plain(str(self))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return Marked(self)._repr_mimebundle_()


class Exercise:
    """A task. The workbench tries the student's answer.

    Parameters
    ----------
    task : str
        The question; backticks mark code.
    attempt : callable
        Turns an answer into an object for the checks, such as the plan under the given choices. If it raises a
        `WorkbenchError`, the message is shown as a hint: it says what the workbench refuses, and why.
    wrong : sequence of Wrong
        Kinds of wrong answers, which are checked in this order. The first kind that applies gives the hint. If no kind
        applies, the answer is right.
    solved : str or callable
        Text for a right answer. A callable receives the answer and the object made from it, and returns the text.

    Examples
    --------
    >>> half = Exercise("What is half of 8?", lambda n: 2 * n, [Wrong(lambda n, twice: twice != 8, "Double it.")])
    >>> half.check(3)
    ✗ Double it.
    >>> half.check(4).right
    True
    """

    def __init__(
        self,
        task: str,
        attempt: Callable[[Any], Any],
        wrong: Sequence[Wrong],
        solved: str | Callable[[Any, Any], str] = "Right.",
    ) -> None:
        if not wrong:
            raise LessonError(f"the exercise {task!r} calls every answer right: give it ways to be wrong")
        self.task = task
        self._attempt = attempt
        self._wrong = tuple(wrong)
        self._solved = solved
        self.verdicts: list[Verdict] = []

    def __repr__(self) -> str:
        return plain(self.task)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return Marked(self.task)._repr_mimebundle_()

    def check(self, answer: Any = ...) -> Verdict:
        """Try an answer on the workbench.

        Parameters
        ----------
        answer : Any
            The answer, in the form that the task describes; ``...`` means that there is no answer yet.

        Returns
        -------
        Verdict
        """
        if answer is ...:
            return Verdict(None, "No answer yet.")
        verdict = self._judge(answer)
        self.verdicts.append(verdict)
        return verdict

    def _judge(self, answer: Any) -> Verdict:
        try:
            outcome = self._attempt(answer)
        except LessonError as error:
            return Verdict(False, f"{error}.")
        except WorkbenchError as error:
            return Verdict(False, f"The workbench refuses this: {error}.")
        for way in self._wrong:
            if way.when(answer, outcome):
                return Verdict(False, way.says(answer, outcome))
        solved = self._solved if isinstance(self._solved, str) else self._solved(answer, outcome)
        return Verdict(True, solved)
