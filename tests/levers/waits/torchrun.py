"""Run a script on several ranks of this machine with `torchrun`, for benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from workbench.runs.process import rank_launcher, request


def torchrun(folder: Path, count: int, script: Path, *arguments: object, timeout_s: float = 1700.0) -> list[Any]:
    """Run a script on `count` ranks with one thread each. Return, in the order of ranks, the JSON documents they write.

    The script's first argument is the folder. Ranks can form a process group through a file in its subfolder
    `request.SCRATCH`.
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
