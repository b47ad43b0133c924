"""``make notebooks``: each source becomes a notebook, is run from top to bottom in a kernel, and written with outputs.

``python -m tests.notebooks.build [NAME ...]`` builds those whose path holds one of the names.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.notebooks.run import executed
from tests.notebooks.source import NOTEBOOKS, notebook_of, read, sources, write


def main(names: list[str]) -> int:
    """Build; gives an exit status."""
    wanted = [source for source in sources() if not names or any(name in str(source) for name in names)]
    if not wanted:
        print(f"no source is named like {', '.join(names)}", file=sys.stderr)
        return 2
    for source in wanted:
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
