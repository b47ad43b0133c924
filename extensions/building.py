"""Build widgets and JupyterLab extensions (`make extensions`). The build needs Node and npm; users need neither.

The TypeScript compiler checks types and compiles the extensions. The bundler makes the bundles. ``built.json`` has
digests of a bundle and of its sources, so that a test detects an outdated bundle.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def digest(files: Mapping[str, bytes]) -> str:
    """Return one digest of the names and contents of all files."""
    found = hashlib.sha256()
    for name, content in sorted(files.items()):
        found.update(f"{name}\0{len(content)}\0".encode() + content)
    return found.hexdigest()


def record(sources: Mapping[str, bytes], bundle: Path) -> dict[str, str]:
    """Return the content of a bundle's ``built.json``: the digest of its sources, and of its other files."""
    files = {
        path.relative_to(bundle).as_posix(): path.read_bytes()
        for path in bundle.rglob("*")
        if path.is_file() and path != bundle / "built.json"
    }
    return {"sources": digest(sources), "bundle": digest(files)}


def write_record(path: Path, content: Mapping[str, str]) -> None:
    """Write ``built.json``."""
    path.write_text(json.dumps(content, indent=2) + "\n")


def installed(folder: Path) -> str:
    """Install the packages of `folder` if they are missing; exit if Node is not installed.

    Returns
    -------
    str
        The path of npm.
    """
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("build.py: to build, put Node with npm on the PATH; the built files work without them")
    if not (folder / "node_modules").is_dir():
        # Install by the lock file. `npm ci` refuses a lock file that lacks packages for other platforms.
        subprocess.run([npm, "install", "--no-save"], cwd=folder, check=True)
    return npm


@dataclasses.dataclass(frozen=True)
class Extension:
    """One extension's folder, and its build.

    Parameters
    ----------
    folder : Path
        The extension's folder, with ``package.json``, ``src`` and ``style``.
    also : sequence of Path
        Sources that ``src`` imports from other folders of the repository.
    """

    folder: Path
    also: Sequence[Path] = ()

    @property
    def bundle(self) -> Path:
        """Folder of the bundle, which is committed and shipped."""
        return self.folder / "labextension"

    @property
    def record_path(self) -> Path:
        """File of the bundle's record."""
        return self.bundle / "built.json"

    def record(self) -> dict[str, str]:
        """Return the bundle's record: digests of its sources and of its files."""
        names = ["package.json", "package-lock.json", "tsconfig.json", "bundler.config.js", "build.py"]
        paths = [self.folder / name for name in names]
        paths += [path for part in ("src", "style") for path in (self.folder / part).iterdir()]
        sources = {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in paths}
        sources["building.py"] = Path(__file__).read_bytes()
        sources |= {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in self.also}
        return record(sources, self.bundle)

    def build(self) -> None:
        """Build; exit if Node is not installed."""
        npm = installed(self.folder)
        shutil.rmtree(self.folder / "lib", ignore_errors=True)
        shutil.rmtree(self.bundle, ignore_errors=True)
        # JupyterLab installs `jupyter-builder` into the environment of this Python.
        places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        subprocess.run([npm, "run", "build"], cwd=self.folder, check=True, env=os.environ | {"PATH": places})
        write_record(self.record_path, self.record())
