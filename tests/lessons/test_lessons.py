"""Each lesson as a student does it, in a real kernel: unanswered, answered wrong, answered as the solutions say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lessons.student import Student, student
from tests.notebooks.source import NOTEBOOKS, SOURCES, notebook_of, read

CPU_S = 40
PEAK_BYTES = 2e9

WRONG = {
    "rematerialization": {
        "q1": [("4", "the cut goes through two"), ("64", "in bits"), ("32768", "knows no shapes"), ("5", "float32")],
        "q2": [
            ("'a', 'b'", "`a`, `b`: these two are what the program's text hands over"),
            ("'x', 'y'", "`x`, `y`: `x` and `y` together would do, and cost as much"),
            ("'s', 't'", "`t`: only the matmul reads `t`"),
            ("'x'", "`s` left out: both `a` and `b` are cheap to make from it"),
        ],
        "q3": [("'x and y'", "better choice by far"), ("'a and b'", "two variables cost more than one")],
        "e1": [
            ("0.5", "At 0.5 the second fusion reads s"),
            ("0.2", "still does"),
            ("2", "any number from 0 to 1"),
            ("None", "a weight is a number"),
        ],
        "e2": [
            ("{'remat.preset': 'off'}", "a setting of the whole lever"),
            ("{'remat:program/sin': 'recompute'}", "what Thunder does already"),
            ("{}", "still reads `s` alone"),
            ("{'remat:program/tan': 'save'}", "there is no site 'remat:program/tan'; did you mean"),
            ("'save'", "choices are a dict"),
        ],
        "e3": [
            ("lambda x, y, w: torch.sin(x + y) * x", "has 1 fusion(s): keep the matmul"),
            ("lambda x, y, w: torch.sin(x) @ w * x", "No sine crosses"),
            ("program", "may still be computed again"),
            ("lambda x, y, w: x.tolist()", "The workbench refuses this"),
            ("'mine'", "a function of 3 tensors"),
        ],
    },
}


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.slow) for name in WRONG])
def at_work(request: pytest.FixtureRequest) -> Iterator[tuple[str, Student]]:
    with student(request.param) as one:
        yield request.param, one


def test_a_lesson_run_unanswered_gives_nothing_away_and_is_small(at_work: tuple[str, Student]) -> None:
    name, one = at_work
    shown = one.shown()
    assert shown.count("Lock in a prediction first") >= sum(question.startswith("q") for question in one.asked)
    assert shown.count("No answer yet.") == sum(question.startswith("e") for question in one.asked)
    assert "the workbench says" not in shown
    assert one.kernel.cpu_s() < CPU_S
    assert one.kernel.peak_bytes < PEAK_BYTES
    assert set(one.asked) == set(WRONG[name])


def test_each_wrong_answer_gets_the_hint_that_fits_it(at_work: tuple[str, Student]) -> None:
    name, one = at_work
    for question, answers in WRONG[name].items():
        for answer, hint in answers:
            said = one.answers(question, answer)
            assert said.startswith("✗"), f"{question}: {answer}: {said}"
            assert hint in said, f"{question}: {answer}: {said}"


def test_the_folded_solutions_are_right(at_work: tuple[str, Student]) -> None:
    _, one = at_work
    for question in one.asked:
        said = one.solves(question)
        assert said.startswith("✓"), f"{question}: {said}"


@pytest.mark.parametrize("source", sorted((SOURCES / "lessons").glob("*.py")), ids=lambda path: path.stem)
def test_the_committed_notebook_has_the_source_s_cells_and_no_paths_of_a_machine(source: Path) -> None:
    committed = json.loads(notebook_of(source).read_text())
    fresh = read(source).cells
    assert [(c["cell_type"], "".join(c["source"])) for c in committed["cells"]] == [
        (c.cell_type, c.source) for c in fresh
    ]
    outputs = json.dumps([cell.get("outputs", []) for cell in committed["cells"]])
    for trace_of_a_machine in ("/tmp/", "/home/", "/root/", "ipykernel_", str(NOTEBOOKS)):
        assert trace_of_a_machine not in outputs
    assert '"output_type": "error"' not in outputs
