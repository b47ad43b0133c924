"""Sources, which are Python files, are converted to notebooks. Malformed sources are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebooks.source import read, write


def test_cells_have_their_text_their_metadata_and_ids(tmp_path: Path) -> None:
    source = tmp_path / "a_story.py"
    source.write_text('"""For."""\n\n# %% [markdown]\n# # Head\n#\n# text\n\n# %% {"tags": ["x"]}\nx = 1\n\nx\n')
    notebook = read(source)
    assert [(cell.cell_type, cell.id, cell.source) for cell in notebook.cells] == [
        ("markdown", "a-story-00", "# Head\n\ntext"),
        ("code", "a-story-01", "x = 1\n\nx"),
    ]
    assert notebook.cells[1].metadata == {"tags": ["x"]}
    write(notebook, tmp_path / "new" / "a_story.ipynb")
    assert (tmp_path / "new" / "a_story.ipynb").read_text().endswith("}\n")


def test_a_line_of_a_text_cell_that_is_not_a_comment_is_reported(tmp_path: Path) -> None:
    source = tmp_path / "x.py"
    source.write_text('"""X."""\n\n# %% [markdown]\n# A heading\nno comment\n')
    with pytest.raises(ValueError, match=r"x\.py:5: a line of text begins with #"):
        read(source)
    source.write_text('# %% {"jupyter": {"source_hidden": true}}\n1 + 1\n\n# %%\n\n')
    with pytest.raises(ValueError, match=r"x\.py:4: an empty cell"):
        read(source)
