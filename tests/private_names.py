"""List the private names that versions of PyTorch lack, as a table for docs/upgrading.md.

``python -m tests.private_names 2.11.0 2.13.0`` installs each version into a folder of its own, and then imports it with
the other packages of this environment. A version needs 5 GB until the next one is installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence

THUNDER = "import thunder, importlib.metadata; importlib.metadata.version('lightning-thunder')"
CHECK = ("-m", "workbench.compiler.interop.check_versions")
LINE = re.compile(r"^(\w+) \S+, made for \S+: (\d+) names looked up, (\d+) missing$", re.MULTILINE)


def _run(arguments: Sequence[str], folder: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([folder, os.getcwd()])
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def row(version: str) -> str:
    """Install a version of PyTorch, and return its row of the table."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--target", folder, f"torch=={version}"]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"| {version} | not tried: {done.stderr.strip().splitlines()[-1]} | | |"
        imported = _run(("-c", THUNDER), folder)
        thunder = "imports" if imported.returncode == 0 else f"`{imported.stderr.strip().splitlines()[-1]}`"
        text = _run(CHECK, folder).stdout
    counts = {package: f"{missing} of {names}" for package, names, missing in LINE.findall(text)}
    gone = [line.strip().partition(": ")[0] for line in text.partition("\nThunder ")[0].splitlines()[1:]]
    names = f" ({', '.join(f'`{name}`' for name in gone)})" if gone else ""
    return f"| {version} | {thunder} | {counts.get('PyTorch', '-')}{names} | {counts.get('Thunder', '-')} |"


if __name__ == "__main__":
    print("| PyTorch | Thunder | private names of PyTorch that are missing | of Thunder |\n|---|---|---|---|")
    for version in sys.argv[1:]:
        print(row(version), flush=True)
