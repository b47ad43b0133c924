"""The quickstart: run from top to bottom it shows what was measured, and `make lab` opens a copy of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest

from tests.notebooks.run import session, text_of
from tests.notebooks.source import NOTEBOOKS, ROOT

BINDER_BYTES = 2e9
"""What Binder gives a session; JupyterLab itself takes some 0.1 GB of it."""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_run_all_shows_figures_and_not_none(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOKS / "quickstart.ipynb", as_version=4)
    with session(notebook, tmp_path) as kernel:
        kernel.run_all()
        shown = [text_of(cell) for cell in notebook.cells if cell.cell_type == "code"]
        assert kernel.value("run.state") == "done"
        assert kernel.value("run.memory['measured_peak_bytes']") > 0
        assert kernel.peak_bytes < BINDER_BYTES
    memory, accuracy = shown[-2:]
    assert "measured_peak_bytes" in memory
    assert "None" not in memory
    assert accuracy.startswith("(True, ")


def test_make_lab_leaves_the_checkout_as_it_is_and_a_person_s_copies_as_they_are(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    names = ("lessons/1_a.ipynb", "lessons/2_b.ipynb", "quickstart.ipynb", "stories/1_c.ipynb")
    for name in names:
        (tmp_path / "notebooks" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "notebooks" / name).write_text(name)

    def copies() -> dict[str, str]:
        subprocess.run(["make", "-s", "copies"], cwd=tmp_path, check=True)
        folder = tmp_path / "playground"
        return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.ipynb"))}

    same = {name: name for name in names}
    assert copies() == same
    (tmp_path / "playground" / "quickstart.ipynb").write_text("mine")
    (tmp_path / "notebooks" / "quickstart.ipynb").write_text("newer")
    assert copies() == same | {"quickstart.ipynb": "mine"}
    ignored = subprocess.run(["git", "check-ignore", "playground/quickstart.ipynb"], cwd=ROOT, check=False)
    assert ignored.returncode == 0
    made = subprocess.run(["make", "-n", "lab"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "/lab/tree/playground/quickstart.ipynb" in made
