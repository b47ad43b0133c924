"""Build the extension trace-view. It imports the graph and the strip from the app's widgets."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from building import ROOT, Extension  # noqa: E402  # in the folder above

del sys.path[0]

PAGE = ROOT / "workbench" / "ui" / "frontend"
NAMES = ("package.json", "dom.js", "controls/figure_strip.js", "style.css")
EXTENSION = Extension(HERE, [*(PAGE / name for name in NAMES), *sorted((PAGE / "graph").glob("*.js"))])

if __name__ == "__main__":
    EXTENSION.build()
