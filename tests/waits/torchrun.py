"""Run a script on several ranks of this machine, for tests and benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from workbench.runs.process import rank_launcher, request


def torchrun(folder: Path, count: int, script: Path, *arguments: object, timeout_s: float = 1700.0) -> list[Any]:
    """Start a script on `count` ranks of one thread each; return the JSON document that each rank writes.

    The script's first argument is the folder. Ranks can meet in its subfolder `request.SCRATCH`.
    """
    (folder / request.SCRATCH).mkdir()
    started = [str(script), str(folder), *map(str, arguments)]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            *rank_launcher.torchrun_arguments(folder, count, script=started),
        ],
        check=True,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path),
        },
        timeout=timeout_s,
    )
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]
