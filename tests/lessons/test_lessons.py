"""A simulated student runs each lesson: without answers, then with wrong answers, then with the folded solutions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.forked_kernels import served
from tests.lessons.student import Student, student
from tests.notebooks.run import environment
from tests.notebooks.source import NOTEBOOKS, SOURCES, notebook_of, read
from workbench.lessons.notebook_text import plain

CPU_S = 35
"""Limit of CPU seconds for a lesson, without imports: kernels are forked from a process that imported all modules."""
PEAK_BYTES = 2e9

WRONG = {
    "reading_a_trace": {
        "q1": [("4", "the number of lines"), ("6", "easily overlooked"), ("9", "one kernel for all of it")],
        "q2": [
            ("'r', 'h * 2'", "`h * 2`: `h` is read once more"),
            ("'r', 'z'", "`z`: it is computed"),
            ("'r', 'softmax'", "`softmax`: it is computed"),
            ("", "`r` left out: a `reshape` of a contiguous tensor"),
        ],
        "q3": [
            ("'add'", "a name is not the memory"),
            ("'tanh'", "only computed there"),
            ("'reshape'", "reads `h` again"),
            ("'softmax'", "has memory of its own"),
        ],
        "e1": [
            ("'x'", "is an argument"),
            ("bench.plan.graph.values.name[bench.plan.graph.statements.outputs[3][0]]", "holds `h * 2`"),
            ("bench.plan.graph.values.name[bench.plan.graph.statements.outputs[0][0]]", "is made by `matmul`"),
            ("'nothing'", "the trace has no value 'nothing'"),
            ("7", "a name is a text"),
        ],
        "e2": [
            ("program", "is the same as before"),
            ("lambda x, w: (torch.softmax(torch.tanh(x @ w), -1), x.sum())", "The results differ"),
            (
                "lambda x, w: (torch.softmax((h := torch.tanh(x @ w)) + h + h + 0 * h, -1), h.sum())",
                "The results are right",
            ),
            ("lambda x: x", "The workbench refuses this"),
            ("'mine'", "a function of 2 tensor"),
        ],
    },
    "gradients": {
        "q1": [
            ("'x', 'w', 'a', 'b', 'c'", "`a`: who would need it?"),
            ("'w', 'b', 'c'", "`x` left out: the derivative of the sine"),
            ("'x', 'b', 'c'", "`w` left out"),
            ("'x', 'w', 'c'", "`b` left out: the derivative of tanh"),
            ("'x', 'w', 'b'", "`c` left out"),
        ],
        "q2": [("0", "`a` is read twice"), ("3", "for each reader but the first")],
        "e1": [
            ("lambda x: torch.zeros(3)", "no backward at all"),
            ("lambda x: (x * 2).sum()", "Thunder makes only 2 operation(s)"),
            ("lambda x: torch.tanh(x * 2 + 1).sum()", "The backward needs the result of `tanh`"),
            ("'f'", "a function of 1 tensor"),
        ],
        "e2": [
            ("lambda x: torch.tanh(x).sum()", "must return the result of `logistic`"),
            ("logistic", "The forward saves 2 tensors, the results of exp, add"),
            ("lambda x: torch.sigmoid(x).sum()", "a rule that needs only the operation's own result"),
        ],
    },
    "fusion": {
        "q1": [("1", "the product stands between them"), ("3", "lines stand apart"), ("0", "on each side")],
        "q2": [
            ("'sin', 'cos', 'add', 'mul'", "`sin`: the product needs it, through `b`"),
            ("'exp', 'cos', 'add', 'mul'", "`exp`: the product needs it"),
            ("'matmul', 'cos', 'add', 'mul'", "`matmul`: a matrix product has kernels of its own"),
            ("'add', 'mul'", "`cos` left out: it needs only `x`"),
            ("'cos', 'mul'", "`add` left out"),
            ("'cos', 'add'", "`mul` left out"),
        ],
        "q3": [("7", "how many there are"), ("1", "do not keep to blocks"), ("6", "the same every time")],
        "e1": [
            ("{}", "7 compilations for 3 different fusions"),
            ("{'remat.weight': '0.0'}", "This changes the fusions"),
            ("{'sharing.identical': 'same'}", "The workbench refuses this"),
            ("{'sharing': 'shared'}", "there is no site 'sharing'"),
        ],
        "e2": [
            ("mine", "There are operations before the product and after it: these are 2 fusions"),
            ("lambda x, w: torch.sin(torch.exp(torch.tanh(x)))", "This has 0 matrix products"),
            ("lambda x, w: x @ w", "no fusion holds at least three operations"),
        ],
    },
    "aliasing": {
        "q1": [
            ("'r', 't', 'c'", "`c`: a clone has memory of its own"),
            ("'r', 't', 's'", "`s`: a sum is computed once"),
            ("'t'", "`r` left out"),
            ("'r'", "`t` left out: a transpose moves nothing"),
        ],
        "q2": [("'what b held'", "computed before `a` was overwritten")],
        "q3": [
            ("2", "a compiler may drop a sum with zeros"),
            ("0", "What could go wrong"),
            ("3", "There are two copies"),
        ],
        "e1": [
            ("'copies:swap/copy_'", "may run inside"),
            ("'copies:swap/copy'", "is not the id of a copy's site; did you mean"),
            ("2", "a site's id is a text"),
        ],
        "e2": [
            ("mine", "One copy has to stay out"),
            ("lambda a, b: a.copy_(b)", "do not hold what the swap leaves"),
            ("'mine'", "a function of 2 tensor"),
        ],
    },
    "memory": {
        "q1": [("18", "only summed up"), ("6", "Go through a layer"), ("5", "More:"), ("24", "Fewer:")],
        "q2": [
            ("'tanh', 'exp'", "`exp`: the result of tanh is kept"),
            ("'tanh', 'sin'", "`sin`: the result of exp is kept"),
            ("", "`tanh` left out"),
        ],
        "q3": [
            ("'falls by half or more'", "which values does the first"),
            ("'falls by less'", "which values does the first"),
        ],
        "e1": [
            ("lesson.everything(bench)", "though nothing is saved"),
            ("choices", "Recompute more of them"),
            ("{'saved:program/exp': 'offload'}", "this exercise is about recomputation"),
            ("{'saved:program/sinh': 'recompute'}", "there is no site"),
            ("{'saved:program/exp': 'recomput'}", "'recomput' is not an option here; legal: save, recompute"),
        ],
        "e2": [
            ("{id: 'recompute' for id in lesson.everything(bench) if '/tanh' in id}", "6 matrix products run twice"),
            ("{'saved:program/exp': 'recompute'}", "Which other values are cheap"),
            ("{'saved:program/exp': 'offload'}", "this exercise is about recomputation"),
        ],
    },
    "overlap": {
        "q1": [("'up'", "needed first, so it should be gathered first"), ("'mix'", "neither needed first")],
        "q2": [
            ("'late', 'both', 'gradients'", "`late`: the first layer's weight is gathered last"),
            ("'consumer', 'both', 'gradients'", "`consumer`: the order is right"),
            ("'gradients'", "`both` left out"),
            ("'both'", "`gradients` left out"),
        ],
        "e1": [
            ("lesson.LATE", "still not issued in the order"),
            ("lesson.CONSUMER", "Where do the waits stand?"),
            ("{**lesson.LATE, **lesson.CONSUMER}", "sent at the end of the backward"),
            ("{'waits.issue': 'in_flight(1)', **lesson.LATE, **lesson.EARLIEST}", "are still exposed"),
            ("{'waits.issue': 'sooner'}", "The workbench refuses this"),
        ],
        "e2": [
            ("{**lesson.LATE, **lesson.CONSUMER, **lesson.EARLIEST}", "are in flight at once"),
            ("{'waits.issue': 'just_in_time'}", "One at a time, but"),
        ],
    },
    "rematerialization": {
        "q1": [("4", "the cut goes through two"), ("64", "in bits"), ("32768", "ignores shapes"), ("5", "float32")],
        "q2": [
            ("'a', 'b'", "`a`, `b`: the second half of the program reads these two"),
            ("'x', 'y'", "`x`, `y`: `x` and `y` together are enough too, and cost as much"),
            ("'s', 't'", "`t`: only the matmul reads `t`"),
            ("'x'", "`s` left out: `a` and `b` are cheap to compute from `s`"),
        ],
        "q3": [("'x and y'", "better choice by far"), ("'a and b'", "two variables cost more than one")],
        "e1": [
            ("0.5", "At 0.5 the second fusion reads s"),
            ("0.2", "still does"),
            ("0.495", "a whole number of hundredths"),
            ("'0.4999'", "a whole number of hundredths"),
            ("2", "any number from 0 to 1"),
            ("None", "a weight is a number"),
        ],
        "e2": [
            ("{'remat.preset': 'off'}", "a setting of the whole lever"),
            ("{'remat:program/sin': 'recompute'}", "what Thunder does already"),
            ("{}", "still reads `s` alone"),
            ("{'remat:program/tan': 'save'}", "there is no site 'remat:program/tan'; did you mean"),
            ("{'remat:program/sin': 'sav'}", "'sav' is not an option here; legal: auto, save, recompute"),
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


@pytest.fixture(scope="module")
def kernels() -> Iterator[None]:
    """Let notebooks run in kernels that are forked from one process."""
    with served(environment()) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", folder)
        yield


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.slow, *[pytest.mark.long] * (at > 1)]) for at, name in enumerate(WRONG)
    ],
)
def at_work(request: pytest.FixtureRequest, kernels: None) -> Iterator[tuple[str, Student]]:
    with student(request.param) as one:
        yield request.param, one


def test_an_unanswered_lesson_reveals_no_answer_and_needs_little_time_and_memory(at_work: tuple[str, Student]) -> None:
    name, one = at_work
    shown = one.shown()
    assert shown.count("Lock in a prediction first") >= sum(question.startswith("q") for question in one.asked)
    assert shown.count("No answer yet.") == sum(question.startswith("e") for question in one.asked)
    assert "the workbench says" not in shown
    assert one.kernel.cpu_s() < CPU_S
    assert PEAK_BYTES / 20 < one.kernel.peak_bytes < PEAK_BYTES
    assert set(one.asked) == set(WRONG[name])


def test_each_wrong_answer_gets_its_hint(at_work: tuple[str, Student]) -> None:
    name, one = at_work
    for question, answers in WRONG[name].items():
        for answer, hint in answers:
            said = one.answers(question, answer)
            assert said.startswith("✗"), f"{question}: {answer}: {said}"
            assert plain(hint) in said, f"{question}: {answer}: {said}"


def test_the_folded_solutions_are_right(at_work: tuple[str, Student]) -> None:
    _, one = at_work
    for question in one.asked:
        said = one.solves(question)
        assert said.startswith("✓"), f"{question}: {said}"


@pytest.mark.parametrize("source", sorted((SOURCES / "lessons").glob("*.py")), ids=lambda path: path.stem)
def test_the_committed_notebook_has_the_cells_of_its_source_and_no_local_paths(source: Path) -> None:
    committed = json.loads(notebook_of(source).read_text())
    fresh = read(source).cells
    assert [(c["cell_type"], "".join(c["source"])) for c in committed["cells"]] == [
        (c.cell_type, c.source) for c in fresh
    ]
    outputs = json.dumps([cell.get("outputs", []) for cell in committed["cells"]])
    for trace_of_a_machine in ("/tmp/", "/home/", "/root/", "ipykernel_", str(NOTEBOOKS)):
        assert trace_of_a_machine not in outputs
    assert '"output_type": "error"' not in outputs
