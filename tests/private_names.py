"""List the private names that the workbench uses and versions of PyTorch lack, as a table for docs/upgrading.md.

``python -m tests.private_names 2.11.0 2.13.0`` installs each version into a folder of its own, and then imports it with
the other packages of this environment. A folder takes 5 GB, and is deleted before the next version is installed. If uv
is on the PATH, it installs, because it links files of its cache instead of copying them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

NAMES = """
from workbench.interop import torch_private
from workbench.compiler.interop import thunder_api
try:
    with thunder_api.SEAM.importing():
        import thunder
except Exception as error:
    thunder_api, reason = None, f"`{type(error).__name__}: {error}`"
for api in (torch_private, thunder_api):
    missing = api and api.SEAM.examine()
    total = api and len(api.SEAM.names) + sum(map(len, api.SEAM.members.values()))
    names = api and "".join(f"; `{each.name}`" for each in missing)
    print(f"{len(missing)} of {total}{names}" if api else f"does not import: {reason}")
"""


def _run(arguments: Sequence[str], folder: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([folder, os.getcwd()])
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def _uv_runs() -> bool:
    """Return whether uv is installed. A version manager may have put a program of this name on the PATH without it."""
    return (
        bool(shutil.which("uv"))
        and not subprocess.run(["uv", "--version"], capture_output=True, check=False).returncode
    )


def row(version: str) -> str:
    """Install a version of PyTorch, and return its row of the table."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        to_folder = ["install", "-q", "--target", folder, f"torch=={version}"]
        if _uv_runs():
            command = ["uv", "pip", *to_folder, "--python", sys.executable]
        else:
            command = [sys.executable, "-m", "pip", *to_folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"| {version} | not tried: {done.stderr.strip().splitlines()[-1]} | |"
        looked_up = _run(("-c", NAMES), folder)
        if looked_up.returncode:
            return f"| {version} | not tried: {looked_up.stderr.strip().splitlines()[-1]} | |"
        torch_names, thunder_names = looked_up.stdout.strip().splitlines()[-2:]
    return f"| {version} | {torch_names} | {thunder_names} |"


if __name__ == "__main__":
    print("| PyTorch | missing private names of PyTorch | missing private names of Thunder |\n|---|---|---|")
    for version in sys.argv[1:]:
        print(row(version), flush=True)
