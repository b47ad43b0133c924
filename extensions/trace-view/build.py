"""Builds the extension: `make extensions`. Needs Node and npm; who uses the extension needs neither.

The widget's own files go into `generated/`, TypeScript and the bundler do the rest, and `labextension/built.json` says
of which sources the bundle was made, so that a test finds out when it was not made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUNDLE = HERE / "labextension"
RECORD = BUNDLE / "built.json"


def generated() -> dict[str, str]:
    """The widget's own files, by name: the same text that a kernel sends to a page."""
    sys.path.insert(0, str(HERE.parents[1]))
    try:
        from workbench.ui.graph_view import MODULES
        from workbench.ui.panel import HERE as UI
        from workbench.ui.panel import esm
    finally:
        sys.path.pop(0)
    return {
        "dom.js": f"{esm()}\nexport {{ h, panel }};\n",
        "graph_view.js": esm(*MODULES),
        "strip.js": esm("strip.js"),
        "style.css": (UI / "style.css").read_text(),
    }


def digest(files: Mapping[str, bytes]) -> str:
    """One number for names and contents together."""
    found = hashlib.sha256()
    for name, content in sorted(files.items()):
        found.update(f"{name}\0{len(content)}\0".encode() + content)
    return found.hexdigest()


def record() -> dict[str, str]:
    """What the bundle's record has to say: of which sources it is made, and of which files it consists."""
    names = ["package.json", "package-lock.json", "tsconfig.json", "bundler.config.js", "build.py"]
    paths = [HERE / name for name in names]
    paths += [path for folder in ("src", "style") for path in (HERE / folder).iterdir()]
    sources = {path.relative_to(HERE).as_posix(): path.read_bytes() for path in paths}
    sources |= {f"generated/{name}": text.encode() for name, text in generated().items()}
    bundle = {
        path.relative_to(BUNDLE).as_posix(): path.read_bytes()
        for path in BUNDLE.rglob("*")
        if path.is_file() and path != RECORD
    }
    return {"sources": digest(sources), "bundle": digest(bundle)}


def main() -> None:
    """Build."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("build.py: needs Node with npm on the PATH to build the extension; using it needs neither")
    if not (HERE / "node_modules").is_dir():
        # As the lock file says. `npm ci` refuses one without the other platforms' parts of the bundler.
        subprocess.run([npm, "install", "--no-save"], cwd=HERE, check=True)
    (HERE / "generated").mkdir(exist_ok=True)
    for name, text in generated().items():
        (HERE / "generated" / name).write_text(text)
    shutil.rmtree(HERE / "lib", ignore_errors=True)
    shutil.rmtree(BUNDLE, ignore_errors=True)
    # `jupyter-builder` comes with JupyterLab, into the environment that runs this.
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    subprocess.run([npm, "run", "build"], cwd=HERE, check=True, env=os.environ | {"PATH": places})
    RECORD.write_text(json.dumps(record(), indent=2) + "\n")


if __name__ == "__main__":
    main()
