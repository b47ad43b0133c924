"""A student locks in a prediction before the answer is computed. Wrong predictions and exercises get a hint."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter

import workbench as wb
from workbench import lessons
from workbench.errors import ChoiceError, LessonError
from workbench.lessons import exercises, predictions
from workbench.ui.controls.lesson import Question


class Asked:
    """A function that returns the answer and counts its calls."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.count = 0

    def __call__(self) -> Any:
        self.count += 1
        return self.answer


def colours(asked: Asked) -> lessons.Predict:
    return lessons.Predict(
        "Which are `primary`?",
        {"red": "a colour", "green": "", "blue": "", "grey": ""},
        asked,
        wrong={"grey": "grey is a mix", "green": "of light, yes"},
        missed={"red": "red is one", "blue": "blue is one"},
        why="Mixed of nothing.",
    )


def test_no_answer_is_computed_before_a_prediction_is_locked_in() -> None:
    asked = Asked({"red", "blue"})
    question = colours(asked)
    assert question.reveal().right is None
    assert "Lock in a prediction first" in str(question.see(lambda: "the answer"))
    assert asked.count == 0
    question.lock("red", "blue")
    assert asked.count == 0
    assert question.reveal().right
    assert question.see(lambda: "line\nline").__repr__() == "line\nline"
    question.reveal()
    assert asked.count == 1


def test_a_locked_prediction_cannot_be_changed() -> None:
    question = colours(Asked({"red", "blue"}))
    assert question.given == []
    assert repr(question.lock("blue", "red")) == "Locked in: red, blue"
    question.lock("red", "blue")  # the same prediction again, as if the cell ran again
    with pytest.raises(LessonError, match=r"red, blue is locked in and cannot be changed; given red\."):
        question.lock("red")
    assert question.given == ["red", "blue"]
    question.reveal()
    with pytest.raises(LessonError, match="cannot be changed"):
        question.lock("grey")


def test_each_wrong_option_has_its_own_hint() -> None:
    question = colours(Asked({"red", "blue"}))
    question.lock("red", "grey", "green")
    text = str(question.reveal())
    assert text.startswith("✗ You predicted red, green, grey; the workbench says **red, blue**.")
    for hint in ("✓ `red`", "`grey`: grey is a mix", "`green`: of light, yes", "`blue` left out: blue is one", "Mixed"):
        assert hint in text
    assert "red is one" not in text


def test_options_that_are_wrong_for_the_same_reason_share_a_hint() -> None:
    question = lessons.Predict("?", ["a", "b", "c"], lambda: {"c"}, wrong={"a": "no", "b": "no"}, missed={"c": "yes"})
    question.lock("a", "b")
    assert str(question.reveal()).count("no") == 1
    assert "✗ `a`, `b`: no" in str(question.reveal())


def test_none_of_the_options_is_a_valid_prediction() -> None:
    question = colours(Asked(set()))
    question.lock()
    assert question.locked
    assert "You predicted none of them" in str(question.reveal())
    assert question.reveal().right


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("gren",), "'gren' is not one of the options; did you mean green"),
        ((3,), "3 is not one of the options"),
        ((["red"],), r"\['red'\] is not one of the options"),
    ],
)
def test_an_unknown_option_is_refused(given: tuple[Any, ...], message: str) -> None:
    question = colours(Asked({"red"}))
    with pytest.raises(LessonError, match=message):
        question.lock(*given)
    assert not question.locked


def test_a_single_answer_allows_a_single_option() -> None:
    question = lessons.Predict("?", ["a", "b"], lambda: {"b"}, wrong={"a": "look again"}, one=True)
    for given in ((), ("a", "b")):
        with pytest.raises(LessonError, match="exactly one option must be chosen"):
            question.lock(*given)
    question.lock("a")
    assert str(question.reveal()).endswith("✗ `a`: look again")


@pytest.mark.parametrize("answer", [set(), {"a", "b"}])
def test_a_wrong_number_of_answers_is_reported_as_the_authors_mistake(answer: set[str]) -> None:
    question = lessons.Predict("?", ["a", "b"], lambda: answer, wrong={"a": "", "b": ""}, one=True)
    question.lock("a")
    with pytest.raises(LessonError, match=f"the question has one answer, but the workbench found {len(answer)}: "):
        question.reveal()


def test_an_answer_that_is_not_an_option_is_reported_as_the_authors_mistake() -> None:
    question = lessons.Predict("?", ["a"], lambda: {"z"}, wrong={"a": ""})
    question.lock("a")
    with pytest.raises(LessonError, match="is not among the options"):
        question.reveal()


def bytes_of_a_float() -> lessons.PredictNumber:
    return lessons.PredictNumber(
        "How large?",
        lambda: 4,
        unit="bytes",
        wrong=[
            lessons.Wrong(lambda given, answer: given == 8 * answer, lambda given, answer: f"{given} are bits"),
            lessons.Wrong(lambda given, answer: given < answer, "more"),
            lessons.Wrong(lambda given, answer: True, "less"),
        ],
        why=lambda answer: f"{answer} it is.",
    )


@pytest.mark.parametrize(("given", "hint"), [(32, "32 are bits"), (1, "more"), (9, "less")])
def test_each_wrong_number_has_its_own_hint(given: float, hint: str) -> None:
    question = bytes_of_a_float()
    question.lock(given)
    verdict = question.reveal()
    assert verdict.right is False
    assert f"✗ {hint}" in str(verdict)
    assert "the workbench says **4 bytes**" in str(verdict)


def test_a_number_within_the_tolerance_is_right() -> None:
    question = bytes_of_a_float()
    question.lock(4.0)
    assert str(question.reveal()) == "✓ You predicted 4 bytes; the workbench says **4 bytes**. 4 it is."
    near = lessons.PredictNumber("?", lambda: 100.0, within=0.1, wrong=[lessons.Wrong(lambda *_: True, "no")])
    near.lock(109)
    assert near.reveal().right


@pytest.mark.parametrize("given", [(), ("4",), (1, 2), (True,), (float("nan"),), (None,)])
def test_a_prediction_that_is_not_a_number_is_refused(given: tuple[Any, ...]) -> None:
    with pytest.raises(LessonError, match=r"a prediction is one number \(bytes\); given"):
        bytes_of_a_float().lock(*given)


def test_an_attempt_without_a_listed_mistake_is_right() -> None:
    def attempt(choices: dict[str, str]) -> int:
        if "bad" in choices:
            raise ChoiceError("no site 'bad'")
        if "odd" in choices:
            raise LessonError("an even number, please")
        return len(choices)

    exercise = lessons.Exercise(
        "Choose **two**.",
        attempt,
        [
            lessons.Wrong(lambda choices, count: count == 0, "choose something"),
            lessons.Wrong(lambda choices, count: count != 2, lambda choices, count: f"{count} is not two"),
        ],
        lambda choices, count: f"{count} it is.",
    )
    assert exercise.check().right is None
    assert str(exercise.check(...)) == "… No answer yet."
    assert exercise.verdicts == []
    assert str(exercise.check({})) == "✗ choose something"
    assert str(exercise.check({"a": ""})) == "✗ 1 is not two"
    assert str(exercise.check({"bad": ""})) == "✗ The workbench refuses this: no site 'bad'."
    assert str(exercise.check({"odd": ""})) == "✗ an even number, please."
    assert str(exercise.check({"a": "", "b": ""})) == "✓ 2 it is."
    assert [verdict.right for verdict in exercise.verdicts] == [False, False, False, False, True]


def test_an_exercise_without_listed_mistakes_is_refused() -> None:
    with pytest.raises(LessonError, match="calls every answer right"):
        lessons.Exercise("?", lambda answer: answer, [])


def test_a_notebook_shows_markdown_and_a_terminal_shows_text() -> None:
    question = colours(Asked({"red"}))
    question.lock("red")
    question.reveal()
    bundle = question.reveal()._repr_mimebundle_()
    assert bundle["text/markdown"] == str(question.verdict)
    assert "the workbench says **red**." in bundle["text/markdown"]
    assert bundle["text/plain"] == repr(question.verdict)
    assert "the workbench says red." in bundle["text/plain"]
    asked = repr(colours(Asked(()))).splitlines()
    assert asked[:2] == ["Which are primary?", "  red: a colour"]
    assert asked[-1] == "Lock in your prediction: tick all that hold and press Lock in, or call .lock('red', 'green')"
    exercise = lessons.Exercise("Write `f` with **one** product, `x ** 2`.", abs, [exercises.Wrong(bool, "no")])
    assert repr(exercise) == exercise._repr_mimebundle_()["text/plain"] == "Write f with one product, x ** 2."


def test_the_text_of_a_picture_says_how_to_see_the_picture() -> None:
    picture = lessons.picture(wb.open("mlp", device="cpu", executor="torch", layers=1).plan)
    data, _ = DisplayFormatter().format(picture)
    assert data["image/svg+xml"].startswith("<svg")
    assert data["text/plain"].startswith(repr(picture))
    assert "trust the notebook" in data["text/plain"]


def test_the_text_of_a_saved_question_says_how_to_get_its_buttons(monkeypatch) -> None:
    kept: list[dict[str, Any]] = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: kept.append(bundle))
    colours(Asked(()))._ipython_display_()
    assert kept[0]["text/plain"].endswith("run the cells of this notebook from the first on.")


def test_the_widget_follows_the_prediction() -> None:
    asked = Asked({"red", "blue"})
    question = colours(asked)
    widget = Question(question)
    assert widget.content["kind"] == "several"
    assert widget.content["options"][0] == ("red", "a colour")
    assert not widget.content["locked"]
    widget._on_message({"type": "lock", "given": ["puce"]})
    assert "'puce' is not one of the options" in widget.content["error"]
    widget._on_message({"type": "lock", "given": ["red"]})
    assert widget.content["locked"]
    assert widget.content["given"] == ["red"]
    assert widget.content["error"] == ""
    assert widget.content["right"] is None
    assert asked.count == 0
    question.reveal()
    assert widget.content["right"] is False
    widget._on_message({"type": "lock", "given": ["red", "blue"]})
    assert "cannot be changed" in widget.content["error"]
    assert widget.content["given"] == ["red"]


def test_the_widget_accepts_a_number() -> None:
    question = bytes_of_a_float()
    widget = Question(question)
    assert widget.content["kind"] == "number"
    assert widget.content["unit"] == "bytes"
    widget._on_message({"type": "lock", "given": [4]})
    assert question.given == [4]


@pytest.mark.parametrize("module", [exercises, predictions])
def test_examples_in_docstrings_give_the_shown_output(module: Any) -> None:
    assert doctest.testmod(module).failed == 0
