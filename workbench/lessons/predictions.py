"""`Predict` and `PredictNumber`: questions whose answer is shown only after a prediction is locked in."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from workbench.errors import LessonError, short_repr, suggest_names
from workbench.lessons.exercises import RIGHT, WRONG, Verdict, Wrong
from workbench.lessons.notebook_text import Text, plain


class LockedPrediction:
    """A question and the student's prediction. The prediction is first locked in, and then compared with the answer.

    Parameters
    ----------
    question : str
        The question's text. Backticks mark code; asterisks mark emphasis.
    answer : callable
        Finds the answer with the workbench; called once, after a prediction is locked in.
    why : str or callable
        Explanation beside the answer, for right and for wrong predictions. A callable receives the answer.
    """

    def __init__(self, question: str, answer: Callable[[], Any], why: str | Callable[[Any], str] = "") -> None:
        self.question = question
        self._find = answer
        self._why = why
        self._lock = threading.Lock()
        self._locked: Any = None
        self._verdict: Verdict | None = None
        self._observers: list[Callable[[], None]] = []

    @property
    def locked(self) -> bool:
        """Whether a prediction is locked in."""
        return self._locked is not None

    @property
    def given(self) -> list[Any]:
        """The arguments with which the student locked in the prediction; empty if none is locked in."""
        return [] if self._locked is None else self._list(self._locked)

    @property
    def verdict(self) -> Verdict | None:
        """Outcome of the prediction; None until the answer was shown."""
        return self._verdict

    def observe(self, callback: Callable[[], None]) -> None:
        """Call `callback` after the prediction is locked in, and after the answer is shown."""
        self._observers.append(callback)

    def lock(self, *given: Any) -> Text:
        """Lock in a prediction. It cannot be changed afterwards.

        Parameters
        ----------
        *given
            The prediction: names of options, or one number.

        Returns
        -------
        Text
            A text that repeats the prediction.

        Raises
        ------
        LessonError
            If the prediction is not an answer to the question, or a different prediction is already locked in.
        """
        wanted = self._parse_answer(given)
        with self._lock:
            if self._locked is not None and self._locked != wanted:
                raise LessonError(
                    f"{self._text_of(self._locked)} is locked in and cannot be changed; given "
                    f"{self._text_of(wanted)}. For a new prediction, run the question's cell again"
                )
            self._locked = wanted
        self._notify()
        return Text(f"Locked in: {self._text_of(wanted)}")

    def reveal(self) -> Verdict:
        """Compare the prediction with the workbench's answer. Without a prediction, the verdict asks for one."""
        if self._locked is None:
            return Verdict(None, "Lock in a prediction first, and then run this again.")
        if self._verdict is None:
            answer = self._find()
            why = self._why if isinstance(self._why, str) else self._why(answer)
            self._verdict = self._judge(self._locked, answer, why)
            self._notify()
        return self._verdict

    def see(self, view: Any) -> Any:
        """Return a view that reveals the answer. Without a prediction, return a verdict that asks for one.

        Parameters
        ----------
        view : Any
            The object to show. A callable is called only after a prediction is locked in, and returns the object.
        """
        if self._locked is None:
            return self.reveal()
        found = view() if callable(view) else view
        return Text(found) if isinstance(found, str) else found

    def _notify(self) -> None:
        for callback in tuple(self._observers):
            callback()

    def _ipython_display_(self) -> None:
        from workbench.ui.controls.lesson import show_prediction

        show_prediction(self)

    def __repr__(self) -> str:
        state = (
            f"Locked in: {self._text_of(self._locked)}"
            if self.locked
            else f"Lock in your prediction: {self._instruction()}"
        )
        return plain("\n".join([self.question, *self._lines(), state]))

    # Methods that a kind of question defines or overrides.

    def _parse_answer(self, values: tuple[Any, ...]) -> Any:
        raise NotImplementedError

    def _list(self, value: Any) -> list[Any]:
        return [value]

    def _text_of(self, value: Any) -> str:
        raise NotImplementedError

    def _instruction(self) -> str:
        raise NotImplementedError

    def form(self) -> dict[str, Any]:
        """Return a description of the input fields for a page: ``kind``, and ``options`` or ``unit``."""
        raise NotImplementedError

    def _lines(self) -> list[str]:
        return []

    def _judge(self, prediction: Any, answer: Any, why: str) -> Verdict:
        raise NotImplementedError


class Predict(LockedPrediction):
    """A question with several options. The student predicts which of them are true.

    Parameters
    ----------
    question : str
    options : mapping of str to str, or sequence of str
        Names to choose from, with their meanings.
    answer : callable
        Returns the names that are true.
    wrong : mapping of str to str
        For each name that is not true, the hint for a student who chose it.
    missed : mapping of str to str
        For each name that is true, the hint for a student who left it out.
    one : bool
        Whether exactly one name must be chosen.
    why : str or callable

    Examples
    --------
    >>> q = Predict("Which is even?", ["1", "2"], lambda: {"2"}, wrong={"1": "Halve it."}, missed={"2": "Halve it."})
    >>> q.reveal().right is None
    True
    >>> q.lock("1")
    Locked in: 1
    >>> q.reveal().right
    False
    """

    def __init__(
        self,
        question: str,
        options: Mapping[str, str] | Sequence[str],
        answer: Callable[[], Collection[str]],
        *,
        wrong: Mapping[str, str],
        missed: Mapping[str, str] | None = None,
        one: bool = False,
        why: str | Callable[[Collection[str]], str] = "",
    ) -> None:
        super().__init__(question, answer, why)
        self.options = dict(options) if isinstance(options, Mapping) else dict.fromkeys(options, "")
        self.one = one
        self._wrong = dict(wrong)
        self._missed = dict(missed or {})

    def _parse_answer(self, values: tuple[Any, ...]) -> frozenset[str]:
        for name in values:
            if not isinstance(name, str) or name not in self.options:
                near = suggest_names(name, list(self.options)) if isinstance(name, str) else ""
                raise LessonError(
                    f"{short_repr(name)} is not one of the options{near}; legal: {', '.join(self.options)}"
                )
        if self.one and len(set(values)) != 1:
            raise LessonError(
                f"exactly one option must be chosen, but {len(set(values))} were given; {self._instruction()}"
            )
        return frozenset(values)

    def form(self) -> dict[str, Any]:
        """Return ``kind``, which is ``one`` or ``several``, and ``options``, which are pairs of name and meaning."""
        return {"kind": "one" if self.one else "several", "options": list(self.options.items())}

    def _list(self, value: Collection[str]) -> list[str]:
        return [name for name in self.options if name in value]

    def _text_of(self, value: Collection[str]) -> str:
        return ", ".join(self._list(value)) or "none of them"

    def _instruction(self) -> str:
        names = list(self.options)
        if self.one:
            return f"choose one and press **Lock in**, or call `.lock({names[0]!r})`"
        return f"tick all that hold and press **Lock in**, or call `.lock({', '.join(map(repr, names[:2]))})`"

    def _lines(self) -> list[str]:
        return [f"  {name}: {text}" if text else f"  {name}" for name, text in self.options.items()]

    def _judge(self, prediction: Collection[str], answer: Collection[str], why: str) -> Verdict:
        answer = frozenset(answer)
        if not answer <= self.options.keys():
            raise LessonError(f"the workbench's answer, {short_repr(sorted(answer))}, is not among the options")
        if self.one and len(answer) != 1:
            raise LessonError(
                f"the question has one answer, but the workbench found {len(answer)}: {short_repr(sorted(answer))}"
            )
        head = f"You predicted {self._text_of(prediction)}; the workbench says **{self._text_of(answer)}**."
        if prediction == answer:
            return Verdict(True, " ".join(text for text in (head, why) if text))
        right, wrong, missed = (
            [name for name in self.options if (name in prediction, name in answer) == which]
            for which in ((True, True), (True, False), (False, True))
        )
        hints = [f"{RIGHT} {_join_names(right)}"] if right else []
        hints += [f"{WRONG} {_join_names(names)}: {hint}" for hint, names in _by_hint(wrong, self._wrong)]
        if not self.one:
            hints += [
                f"{WRONG} {_join_names(names)} left out: {hint}" for hint, names in _by_hint(missed, self._missed)
            ]
        return Verdict(False, "\n\n".join([head, *hints, *([why] if why else [])]))


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _by_hint(names: Sequence[str], hints: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Return each hint once, with the names to which it applies, in the order of the names."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(hints[name], []).append(name)
    return list(found.items())


class PredictNumber(LockedPrediction):
    """A question with a number as its answer.

    Parameters
    ----------
    question : str
    answer : callable
        Returns the number.
    unit : str
    within : float
        A prediction is right if it differs from the answer by at most this share of the answer.
    wrong : sequence of Wrong
        Kinds of wrong predictions. They receive the predicted number and the answer. The first kind that applies gives
        the hint. For every wrong number, at least one kind must apply.
    why : str or callable

    Examples
    --------
    >>> q = PredictNumber("How many bytes has a float32?", lambda: 4, wrong=[Wrong(lambda *_: True, "It has 32 bits.")])
    >>> q.lock(32), q.reveal().right
    (Locked in: 32, False)
    """

    def __init__(
        self,
        question: str,
        answer: Callable[[], float],
        *,
        wrong: Sequence[Wrong],
        unit: str = "",
        within: float = 0.0,
        why: str | Callable[[float], str] = "",
    ) -> None:
        super().__init__(question, answer, why)
        self.unit = unit
        self._within = within
        self._wrong = tuple(wrong)

    def _parse_answer(self, values: tuple[Any, ...]) -> float:
        number = values[0] if len(values) == 1 else values
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise LessonError(f"a prediction is one number{self._unit_text()}; given {short_repr(number)}")
        return number

    def _text_of(self, value: float) -> str:
        return " ".join(text for text in (f"{value:,.6g}" if value % 1 else f"{value:,.0f}", self.unit) if text)

    def _instruction(self) -> str:
        return f"enter a number{self._unit_text()} and press **Lock in**, or call `.lock(NUMBER)`"

    def form(self) -> dict[str, Any]:
        """Return ``kind``, which is ``number``, and ``unit``, which is shown after the input field."""
        return {"kind": "number", "unit": self.unit}

    def _unit_text(self) -> str:
        return f" ({self.unit})" if self.unit else ""

    def _judge(self, prediction: float, answer: float, why: str) -> Verdict:
        head = f"You predicted {self._text_of(prediction)}; the workbench says **{self._text_of(answer)}**."
        if abs(prediction - answer) <= self._within * abs(answer):
            return Verdict(True, " ".join(text for text in (head, why) if text))
        hint = next((way.says(prediction, answer) for way in self._wrong if way.when(prediction, answer)), None)
        if hint is None:
            raise LessonError(f"the question {short_repr(self.question)} has no hint for {self._text_of(prediction)}")
        return Verdict(False, "\n\n".join([head, f"{WRONG} {hint}", *([why] if why else [])]))
