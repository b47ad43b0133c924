"""Measure the time saved by compiling identical fusions once, for the residual chain with gradients on the CPU.

Each figure is measured in a new process with empty caches. CPU seconds include compiler processes. An unrelated
function is compiled before the measurement, because Inductor first probes the compiler and precompiles headers, which
takes about 20 CPU seconds. `separate` compiles each fusion separately, as Thunder does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LAYERS = (4, 8, 16, 32)

COMPILE = """
import json, os, sys, time
import torch
import workbench
from workbench.core.config import Config
from workbench.programs import resolve

torch.set_num_threads(1)
program = resolve("residual_chain", device="cpu", layers=int(sys.argv[1]), grad=True)
config = Config(program="residual_chain", executor="torchcompile", device="cpu",
                choices={"sharing.identical": sys.argv[2]})
jitted = config.jit(program.callable)
torch.compile(lambda x: x + 1)(torch.ones(8))  # the toolchain, not the program
cpu, wall = os.times(), time.perf_counter()
jitted(*program.args).sum().backward()
now = os.times()
print(json.dumps({"cpu_s": sum(now[:4]) - sum(cpu[:4]), "wall_s": time.perf_counter() - wall}))
"""


def cold_compile(layers: int, sharing: str, folder: Path) -> dict[str, float]:
    """Return CPU seconds and elapsed seconds from the call of a jitted function to the end of its first backward."""
    caches = {name: str(folder / name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR")}
    for path in caches.values():
        Path(path).mkdir(parents=True)
    # Compile in a thread of the process and not in compile workers, so that the CPU seconds include the compilation.
    environment = {**os.environ, **caches, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(layers), sharing],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def slope(points: dict[int, float]) -> float:
    """Return the mean CPU seconds that a layer adds, from the smallest to the largest number of layers."""
    least, most = min(points), max(points)
    return (points[most] - points[least]) / (most - least)


@pytest.mark.timeout(1800)
def test_sharing_halves_the_compile_time_of_sixteen_layers_and_quarters_its_growth(
    benchmark: Any, tmp_path: Path
) -> None:
    def measure() -> dict[str, dict[int, float]]:
        return {
            sharing: {n: cold_compile(n, sharing, tmp_path / sharing / str(n))["cpu_s"] for n in LAYERS}
            for sharing in ("separate", "shared")
        }

    found = benchmark.pedantic(measure, rounds=1)
    stock, shared = found["separate"], found["shared"]
    benchmark.extra_info.update(found, ratio=stock[16] / shared[16], slopes=(slope(stock), slope(shared)))
    print(benchmark.extra_info)
    assert stock[16] / shared[16] >= 2
    assert slope(shared) < slope(stock) / 4
    # Growth is at most linear: above 16 layers, a layer adds no more time than below, except for noise.
    assert slope({n: shared[n] for n in (16, 32)}) <= 1.5 * max(slope({n: shared[n] for n in (4, 16)}), 0.02)
