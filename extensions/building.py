"""How the extensions are built: `make extensions`. Needs Node and npm; who uses an extension needs neither.

TypeScript and the bundler do the work, and ``labextension/built.json`` says of which sources the bundle was made, so
that a test finds out when it was not made again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path


def digest(files: Mapping[str, bytes]) -> str:
    """One number for names and contents together."""
    found = hashlib.sha256()
    for name, content in sorted(files.items()):
        found.update(f"{name}\0{len(content)}\0".encode() + content)
    return found.hexdigest()


@dataclasses.dataclass(frozen=True)
class Extension:
    """One extension's folder, and what is built of it.

    Parameters
    ----------
    folder : Path
        With ``package.json``, ``src`` and ``style``.
    generated : callable
        Returns further sources by name; they are put into ``generated/``, where ``src`` finds them.
    """

    folder: Path
    generated: Callable[[], dict[str, str]] = dict

    @property
    def bundle(self) -> Path:
        """What is built and shipped."""
        return self.folder / "labextension"

    @property
    def record_path(self) -> Path:
        """Where the bundle says of what it is made."""
        return self.bundle / "built.json"

    def record(self) -> dict[str, str]:
        """What the bundle's record has to say: of which sources it is made, and of which files it consists."""
        names = ["package.json", "package-lock.json", "tsconfig.json", "bundler.config.js", "build.py"]
        paths = [self.folder / name for name in names]
        paths += [path for part in ("src", "style") for path in (self.folder / part).iterdir()]
        sources = {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in paths}
        sources["building.py"] = Path(__file__).read_bytes()
        sources |= {f"generated/{name}": text.encode() for name, text in self.generated().items()}
        bundle = {
            path.relative_to(self.bundle).as_posix(): path.read_bytes()
            for path in self.bundle.rglob("*")
            if path.is_file() and path != self.record_path
        }
        return {"sources": digest(sources), "bundle": digest(bundle)}

    def build(self) -> None:
        """Build; ends the program where there is no Node."""
        npm = shutil.which("npm")
        if npm is None:
            sys.exit("build.py: needs Node with npm on the PATH to build the extension; using it needs neither")
        if not (self.folder / "node_modules").is_dir():
            # As the lock file says. `npm ci` refuses one without the other platforms' parts of the bundler.
            subprocess.run([npm, "install", "--no-save"], cwd=self.folder, check=True)
        for name, text in self.generated().items():
            (self.folder / "generated").mkdir(exist_ok=True)
            (self.folder / "generated" / name).write_text(text)
        shutil.rmtree(self.folder / "lib", ignore_errors=True)
        shutil.rmtree(self.bundle, ignore_errors=True)
        # `jupyter-builder` comes with JupyterLab, into the environment that runs this.
        places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        subprocess.run([npm, "run", "build"], cwd=self.folder, check=True, env=os.environ | {"PATH": places})
        self.record_path.write_text(json.dumps(self.record(), indent=2) + "\n")
