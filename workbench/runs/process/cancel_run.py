"""Cancel a run: kill its processes, and keep the event `Cancelled` as the reason for its end."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from workbench.errors import RunError
from workbench.runs.log import event_log, events
from workbench.runs.process import worker_process
from workbench.runs.process.worker_process import Worker

if TYPE_CHECKING:
    from workbench.runs.process.follow_run import Run


def cancel_run(run: Run) -> None:
    """Kill a run's processes, and return when they are gone; see `Run.cancel`."""
    if run._over.is_set():
        return
    assert run._worker is not None
    others = run._worker if isinstance(run._worker, Worker) and not run._worker.is_child else None
    if others is not None and not worker_process.may_signal(others.pid):
        raise RunError(f"run {run.name} cannot be cancelled: its process belongs to another user")
    with run._lock:
        earlier = run._stop
        run._stop = stop = earlier or events.Cancelled(t_s=run._now_s())
    if others is not None:
        # Write the event before the kill, so that the process that started the run knows why the run ended.
        with contextlib.suppress(OSError):
            event_log.append(run._tail.path, stop)
    try:
        run._worker.kill()
    except (OSError, RunError) as error:
        with run._lock:
            run._stop = earlier
        raise RunError(f"run {run.name} cannot be cancelled: {error}") from error
    run._conclude()
