"""A simulated student, who runs a lesson in a Jupyter kernel, and can then give answers or run the folded solutions."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.notebooks.run import Session, session, text_of
from tests.notebooks.source import SOURCES, read

_SOLUTION = re.compile(r"<summary>Solution</summary>\s*```python\n(.*?)```", re.DOTALL)
_ASKED = re.compile(r"^(\w+) = (lesson\.\w+\(.*\))$", re.MULTILINE)


def source_of(name: str) -> Path:
    (source,) = (SOURCES / "lessons").glob(f"?_{name}.py")
    return source


class Student:
    """A simulated student who works through a lesson in a Jupyter kernel.

    Attributes
    ----------
    asked : dict of str to str
        The code that makes each question or exercise, by the name of its variable.
    solutions : list of str
        Code of the lesson's folded solutions, in order.
    """

    def __init__(self, kernel: Session) -> None:
        self.kernel = kernel
        cells = kernel.notebook.cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        self.solutions: list[str] = _SOLUTION.findall(text)
        self.asked: dict[str, str] = dict(_ASKED.findall(code))

    def shown(self) -> str:
        """Return the outputs of all cells as text."""
        return "\n".join(text_of(cell) for cell in self.kernel.notebook.cells if cell.cell_type == "code")

    def answers(self, name: str, answer: str) -> str:
        """Run the code of the question or exercise `name` again. Answer it by the code `answer`. Return the reply."""
        self.kernel.run(f"{name} = {self.asked[name]}")
        if name.startswith("q"):
            self.kernel.run(f"{name}.lock({answer})")
            return self.kernel.run(f"{name}.reveal()")
        return self.kernel.run(f"{name}.check({answer})")

    def solves(self, name: str) -> str:
        """Run the code of the question or exercise `name` again, then its folded solution. Return the reply."""
        (solution,) = (code for code in self.solutions if re.search(rf"^{name}\.(lock|check)\(", code, re.MULTILINE))
        self.kernel.run(f"{name} = {self.asked[name]}")
        said = self.kernel.run(solution)
        return self.kernel.run(f"{name}.reveal()") if name.startswith("q") else said


@contextmanager
def student(name: str) -> Iterator[Student]:
    """Yield a student who has run all cells of the named lesson."""
    with (
        tempfile.TemporaryDirectory(prefix="lesson-") as folder,
        session(read(source_of(name)), Path(folder), forked=True) as kernel,
    ):
        kernel.run_all()
        yield Student(kernel)
