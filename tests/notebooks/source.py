"""Convert the source of a notebook, a Python file, to a notebook.

In the source, each ``# %%`` line begins a cell. ``# %% [markdown]`` begins a text cell, whose lines are comments. A
JSON object on a ``# %%`` line is the cell's metadata: ``# %% {"jupyter": {"source_hidden": true}}`` folds a cell. Text
before the first cell states the notebook's purpose, and is not copied into the notebook.
"""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
from nbformat import NotebookNode, v4

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
SOURCES = NOTEBOOKS / "sources"

_MARKER = "# %%"
_TEXT = "[markdown]"
_METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def sources() -> list[Path]:
    """Return the paths of all sources, sorted."""
    return sorted(SOURCES.glob("*/*.py"))


def notebook_of(source: Path) -> Path:
    """Return the path of a source's notebook: ``sources/stories/x.py`` gives ``stories/x.ipynb``."""
    return (NOTEBOOKS / source.relative_to(SOURCES)).with_suffix(".ipynb")


def read(source: Path) -> NotebookNode:
    """Return the notebook of a source, without outputs.

    Raises
    ------
    ValueError
        If a line of a text cell is not a comment, or if a cell is empty. The message has the line number.
    """
    cells: list[NotebookNode] = []
    lines = source.read_text().splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith(_MARKER)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        rest = lines[start].removeprefix(_MARKER).strip()
        is_text = rest.startswith(_TEXT)
        metadata = json.loads(rest.removeprefix(_TEXT).strip() or "{}")
        body = lines[start + 1 : end]
        if is_text:
            body = [_uncommented(line, source, start + 2 + i) for i, line in enumerate(body)]
        text = "\n".join(body).strip()
        if not text:
            raise ValueError(f"{source}:{start + 1}: an empty cell")
        new = v4.new_markdown_cell if is_text else v4.new_code_cell
        cells.append(new(text, id=f"{source.stem.replace('_', '-')}-{len(cells):02d}", metadata=metadata))
    return v4.new_notebook(cells=cells, metadata=_METADATA)


def _uncommented(line: str, source: Path, number: int) -> str:
    if line and not line.startswith("#"):
        raise ValueError(f"{source}:{number}: a line of text begins with #, given {line!r}")
    return line.removeprefix("#").removeprefix(" ")


def write(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook with sorted keys, one space of indentation and a newline at the end, so that diffs are small."""
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.validate(notebook)
    path.write_text(json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
