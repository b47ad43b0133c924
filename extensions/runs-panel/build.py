"""Build the extension runs-panel. All of its sources are in its own folder."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from building import Extension  # noqa: E402  # in the folder above

del sys.path[0]

EXTENSION = Extension(HERE)

if __name__ == "__main__":
    EXTENSION.build()
