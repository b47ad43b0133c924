"""Start a run in a worker process."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from workbench.errors import RunError
from workbench.runs.log import event_log
from workbench.runs.process import follow_run, rank_launcher, reaper, request, worker_process
from workbench.runs.process.follow_run import Run
from workbench.runs.process.request import SCRATCH
from workbench.runs.process.worker_process import KILL_TIMEOUT_S, Worker


def refuse_planned_device(device: str) -> None:
    """Refuse the device ``planned``. Callers check this before they make a run's folder.

    Raises
    ------
    RunError
        If the device is ``planned``; the message lists the legal devices.
    """
    if device == "planned":
        raise RunError("nothing runs on the device planned; legal: cpu, or cuda if a GPU is attached")


def start(run_dir: Path) -> Run:
    """Start the run of a folder that `workbench.runs.process.request.prepare` made.

    Parameters
    ----------
    run_dir : Path

    Returns
    -------
    Run
        The run that was started.

    Raises
    ------
    RunError
        If the folder has no request, if its run was already started, if the device does not support the run, if this
        machine has fewer GPUs than ranks, or if the worker cannot be started.
    """
    run_dir = run_dir.resolve()
    run = Run(run_dir)
    if (run_dir / event_log.LOG_FILE).exists():
        raise RunError(f"{run_dir} contains an earlier run, whose log would be lost")
    device = run.request.program.get("device", "")
    refuse_planned_device(device)
    request.check_options(run.request.options, device, run.request.variants, ranks=run.request.ranks)
    shared = bool(run.request.parallel)
    if shared and device == "cuda":
        _check_gpus(run_dir, run.request.ranks)
    scratch = run_dir / SCRATCH
    mark = worker_process.new_mark(run_dir)
    environment = {
        **os.environ,
        # Some objects are pickled as references to modules. The worker must find these modules on the same paths.
        "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path),
        "TMPDIR": str(scratch),
        reaper.MARK: mark,
    }
    if run.request.options.cold:
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(scratch / "inductor")
        environment["TRITON_CACHE_DIR"] = str(scratch / "triton")
        environment["CUDA_CACHE_PATH"] = str(scratch / "cuda")
    try:
        scratch.mkdir()
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                f"workbench.runs.{'process.rank_launcher' if shared else 'worker.worker'}",
                str(run_dir),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        # Delete the scratch folder, because an existing folder would make a second attempt to start this run fail at
        # `mkdir`.
        shutil.rmtree(scratch, ignore_errors=True)
        raise RunError(f"the worker of run {run.name} cannot be started: {error.strerror}") from error
    try:
        worker = Worker(run_dir, child.pid, mark, child)
    except BaseException as error:  # no free file descriptor, or no new thread, to follow the worker
        _give_up(child, mark, scratch)
        raise RunError(f"the worker of run {run.name} cannot be followed: {error}") from error
    try:
        worker_process.Note.of(child.pid, mark).write(run_dir)
        follow_run.follow_worker(run, worker)
    except BaseException as error:
        with contextlib.suppress(RunError):
            worker.kill()
        worker.close()
        if isinstance(error, OSError):
            raise RunError(f"the run's folder {run_dir} cannot be written: {error.strerror}") from error
        raise RunError(f"the worker of run {run.name} cannot be followed: {error}") from error
    return run


def _give_up(child: subprocess.Popen[bytes], mark: str, scratch: Path) -> None:
    reaper.reap(child.pid, mark, scratch, KILL_TIMEOUT_S)
    child.wait(KILL_TIMEOUT_S)
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()


def _check_gpus(run_dir: Path, count: int) -> None:
    import torch

    attached = torch.cuda.device_count()
    if attached < count:
        # `machines` is the number of machines that are needed. If no GPU is attached here, assume one GPU per machine.
        machines = next(n for n in range(1, count + 1) if count % n == 0 and count // n <= max(attached, 1))
        raise RunError(
            f"{count} ranks need {count} GPUs, but {attached} are attached here; "
            f"to use {machines} machines, start on each: {rank_launcher.command(run_dir, count, machines=machines)}"
        )
