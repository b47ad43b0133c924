"""`make lab` opens a copy of the quickstart notebook. `tests/browser/test_quickstart.py` runs its cells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.notebooks.source import ROOT


def test_make_lab_changes_neither_the_checkout_nor_the_users_copies(tmp_path: Path) -> None:
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
