"""Each committed notebook matches its source, was run from top to bottom, and has no path of a machine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest

from tests.notebooks.source import NOTEBOOKS, SOURCES, notebook_of, read, sources

LARGEST_BYTES = 1_500_000
MACHINE = re.compile(r"/(?:home|root|tmp|work|Users|var)/|site-packages|\.venv")

notebooks = pytest.mark.parametrize("source", sources(), ids=lambda source: str(source.relative_to(SOURCES)))


@notebooks
def test_a_notebook_has_the_cells_of_its_source_and_was_run_in_order(source: Path) -> None:
    text = notebook_of(source).read_text()
    committed, wanted = nbformat.reads(text, as_version=4), read(source)
    hint = "; make notebooks builds it anew"
    assert [(cell.id, cell.source) for cell in committed.cells] == [(c.id, c.source) for c in wanted.cells], hint
    counts = [cell.execution_count for cell in committed.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1)), hint
    assert len(text) < LARGEST_BYTES


@notebooks
def test_outputs_contain_no_path_of_a_machine_and_no_error_or_warning(source: Path) -> None:
    for cell in nbformat.read(notebook_of(source), as_version=4).cells:
        for output in cell.get("outputs", ()):
            assert output.output_type != "error"
            assert output.get("name") != "stderr", output.text
            assert not (found := MACHINE.search(json.dumps(output))), (cell.id, found)


def test_every_notebook_has_a_source() -> None:
    found = {path for folder in SOURCES.iterdir() for path in (NOTEBOOKS / folder.name).glob("*.ipynb")}
    assert found == {notebook_of(source) for source in sources()}
