"""Build the app's widgets: check types, and write one ES module per widget to ``workbench/ui/frontend/built/``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from building import ROOT, installed, record, write_record  # noqa: E402  # in the folder above

del sys.path[0]

PAGE = ROOT / "workbench" / "ui" / "frontend"
TOOLS = HERE.parent / "trace-view"
"""Folder of the extension whose npm packages include the TypeScript compiler and the bundler."""


class Widgets:
    """The modules in ``workbench/ui/frontend/``, and their build."""

    bundle = PAGE / "built"
    record_path = bundle / "built.json"

    @staticmethod
    def sources() -> list[Path]:
        """Return the paths of the widgets' modules, sorted."""
        return sorted(path for path in PAGE.rglob("*.js") if Widgets.bundle not in path.parents)

    def record(self) -> dict[str, str]:
        """Return the bundles' record: digests of their sources and of their files."""
        tools = [TOOLS / "package-lock.json", HERE.parent / "building.py"]
        tools += [path for path in HERE.iterdir() if path.is_file()]
        files = [*self.sources(), PAGE / "package.json", *tools]
        return record({path.relative_to(ROOT).as_posix(): path.read_bytes() for path in files}, self.bundle)

    def build(self) -> None:
        """Build; exit if Node is not installed or a type is wrong."""
        installed(TOOLS)
        node = str(shutil.which("node"))
        compiler = TOOLS / "node_modules" / "typescript" / "bin" / "tsc"
        subprocess.run([node, str(compiler), "--project", str(HERE)], check=True)
        subprocess.run([node, str(HERE / "bundle.mjs"), str(PAGE), str(self.bundle)], check=True)
        write_record(self.record_path, self.record())


EXTENSION = Widgets()

if __name__ == "__main__":
    EXTENSION.build()
