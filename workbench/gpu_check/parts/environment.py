"""Part `environment`: check the GPUs and the installed packages, and whether nvFuser fits this PyTorch and runs."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
from collections.abc import Iterator

import torch

from workbench import doctor
from workbench.core.executor import why_no_nvfuser
from workbench.gpu_check.parts import runs
from workbench.gpu_check.parts.check_part import WRONG, CheckStep, Conditions, Figures


def steps(conditions: Conditions) -> Iterator[CheckStep]:
    """Yield steps that list installed packages and GPUs, and that plan a program for nvFuser.

    Except in a rehearsal, a last step runs a small program.
    """
    yield CheckStep("installed", lambda _: _check_installed(), first=True)
    yield CheckStep("devices", lambda _: _devices(conditions), first=True)
    yield CheckStep("nvFuser builds", lambda _: _builds(conditions), first=True)
    if not conditions.rehearse:
        yield CheckStep("a program runs", lambda _: _runs(conditions), first=True)


def _check_installed() -> Figures:
    checks = doctor.examine()
    missing = [f"{check.name}: {check.note or 'missing'}" for check in checks if not check.ok]
    found = {check.name: check.found for check in checks if check.found}
    wrong = [f"{check.name}: {check.note}" for check in checks if check.essential and not check.ok]
    return {"found": found, "missing": missing, **({WRONG: "; ".join(wrong)} if wrong else {})}


def _devices(conditions: Conditions) -> Figures:
    gpus = []
    for i in range(torch.cuda.device_count() if conditions.device == "cuda" else 0):
        its = torch.cuda.get_device_properties(i)
        gpus.append(f"{its.name}, {its.total_memory / 2**30:.1f} GiB, sm_{its.major}{its.minor}")
    return {
        "gpus": gpus,
        "driver": _driver(),
        "cuda": torch.version.cuda or "",
        "torch": importlib.metadata.version("torch"),
    }


def _driver() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    asked = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30)
    return next(iter(answer.stdout.split()), "") if answer.returncode == 0 else ""


def _builds(conditions: Conditions) -> Figures:
    if reason := why_no_nvfuser():
        # A rehearsal uses nvFuser only for planning, and can do without it.
        return {"fusions": None, "reason": reason, **({} if conditions.rehearse else {WRONG: reason})}
    bench = runs.open_planned(conditions, "mlp", layers=1)
    assert bench is not None, "nvFuser is there"
    return {"fusions": bench.plan.census.count, "reason": ""}


def _runs(conditions: Conditions) -> Figures:
    bench = runs.open_program(conditions, "mlp", layers=1)
    run = runs.run_to_end(bench, runs.QUICK)
    return {
        "executor": conditions.executor,
        "fusions": bench.plan.census.count,
        "compile_s": run.compile_s,
        "step_s": run.step_s,
        **runs.memory_of(run),
        **runs.fault_of(run),
    }
