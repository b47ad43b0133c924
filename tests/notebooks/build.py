"""``make notebooks``: turn each source into a notebook, run the notebook in a kernel, and write it with its outputs.

``python -m tests.notebooks.build [--text] [NAME ...]`` builds the notebooks whose path contains one of the names. With
``--text``, no code runs: text cells are updated, and outputs stay. If the code of a source has changed, ``--text``
refuses this source.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tests.notebooks.run import executed
from tests.notebooks.source import NOTEBOOKS, notebook_of, read, sources, write


def retold(source: Path) -> NotebookNode:
    """Return the existing notebook, with its outputs, after replacing its text cells by those of the source.

    Raises
    ------
    ValueError
        If the code of the source differs from the notebook's. Then the notebook must run.
    """
    notebook, old = read(source), nbformat.read(notebook_of(source), as_version=4)
    codes = [[cell for cell in each.cells if cell.cell_type == "code"] for each in (notebook, old)]
    if [cell.source for cell in codes[0]] != [cell.source for cell in codes[1]]:
        raise ValueError(f"{source.name}: code changed; build it without --text")
    for new, ran in zip(*codes, strict=True):
        new.update(outputs=ran.outputs, execution_count=ran.execution_count)
    return notebook


def main(arguments: list[str]) -> int:
    """Build notebooks. Return an exit status."""
    names = [argument for argument in arguments if argument != "--text"]
    wanted = [source for source in sources() if not names or any(name in str(source) for name in names)]
    if not wanted:
        print(f"no path of a source contains {' or '.join(names)}", file=sys.stderr)
        return 2
    for source in wanted:
        if "--text" in arguments:
            write(retold(source), notebook_of(source))
            continue
        with tempfile.TemporaryDirectory(prefix="notebook-") as folder:
            notebook, took = executed(read(source), Path(folder))
        write(notebook, notebook_of(source))
        print(
            f"{notebook_of(source).relative_to(NOTEBOOKS)}: {took['seconds']:.0f} s, {took['cpu_s']:.0f} s of CPU, "
            f"{took['peak_bytes'] / 1e9:.2f} GB at most",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
