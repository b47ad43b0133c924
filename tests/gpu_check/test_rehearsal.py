"""Rehearse all parts of the GPU check on the CPU, by the command that a user with a GPU runs.

`WORKBENCH_REHEARSAL` may name the folder of a finished rehearsal, such as one that `.ci/run` made with both cores
free. The command then finds all results in the folder and repeats no step, and the tests read these results.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.cli.schemas import held
from workbench.errors import DeviceError
from workbench.gpu_check import suite
from workbench.gpu_check.parts.part_list import PARTS


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_rehearsal_runs_all_parts_without_a_fault(tmp_path: Path) -> None:
    folder = Path(os.environ.get("WORKBENCH_REHEARSAL") or tmp_path)
    command = [sys.executable, "-m", "workbench.cli", "gpu-check", "--rehearse", "--out", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    result = json.loads(done.stdout)
    held("gpu-check", result)
    wrong = [
        (name, line["step"], line["error"] or line["figures"]["wrong"])
        for name, told in result["parts"].items()
        for line in told["steps"]
        if not suite.is_right(line)
    ]
    assert not wrong, done.stderr
    assert (done.returncode, result["ok"]) == (0, True)
    assert {name: told["state"] for name, told in result["parts"].items()} == {part.name: "done" for part in PARTS}
    assert all(told["steps"] for told in result["parts"].values())
    # The steps marked `first` of all parts ran before all other steps.
    conditions = suite.conditions_of(folder, rehearse=True)
    first = {(part.name, step.id) for part in PARTS for step in part.steps(conditions) if step.first}
    begun = {(name, line["step"]): line["at"] for name, told in result["parts"].items() for line in told["steps"]}
    assert {name for name, _ in first} == set(result["parts"])
    assert max(at for step, at in begun.items() if step in first) <= min(
        at for step, at in begun.items() if step not in first
    )
    # Some figures for a GPU need only a plan, so the rehearsal reports them, too.
    depth = {line["step"]: line["figures"] for line in result["parts"]["depth"]["steps"]}
    assert depth["8 layers, weight 0, cut every 4, shared"]["unique"] is not None
    page = (folder / suite.PAGE_FILE).read_text()
    assert all(f"### {part.title}" in page for part in PARTS)


def test_a_rehearsal_begins_with_the_longest_parts() -> None:
    known = suite.latest_recorded(rehearse=True)
    assert known is not None
    order = [part.name for part in suite.longest_first(PARTS)]
    assert order[0] == max(known.seconds, key=known.seconds.__getitem__) != PARTS[0].name
    assert sorted(order) == sorted(part.name for part in PARTS)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to check")
def test_without_a_gpu_the_command_suggests_the_rehearsal(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="no CUDA device is attached, so there is nothing to check; rehearse=True"):
        suite.run_check(tmp_path / "out")
    assert not (tmp_path / "out").exists()
