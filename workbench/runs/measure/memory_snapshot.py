"""Record a step's allocations as a snapshot for PyTorch's memory_viz.

View a snapshot with ``python -m torch.cuda._memory_viz trace_plot``, or on https://pytorch.org/memory_viz.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.memory.allocator import dense_parts
from workbench.errors import RunError
from workbench.interop.torch_private import _record_memory_history, _snapshot
from workbench.runs.measure import memory_meter
from workbench.runs.measure.memory_meter import Allocation, MemoryEvent
from workbench.util import paths

if TYPE_CHECKING:
    from workbench.compiler.driver.statement_timers import StatementClocks
    from workbench.runs.measure.accuracy import Stepper
    from workbench.runs.process.follow_run import Run

SNAPSHOT_FILE = "memory_snapshot.pickle"

_BEYOND = "outside the statements: autograd, and code between the traces"


def take_snapshot(stepper: Stepper, clocks: StatementClocks | None) -> dict[str, Any]:
    """Step once and record every allocation.

    On CUDA, PyTorch makes the snapshot, and the stack of each allocation names lines of Thunder's generated code. On a
    CPU, PyTorch has allocation events but no snapshots, so this function converts the events to a snapshot. The stack
    of each allocation then names the statement that allocated the memory, and the statement's source line.

    Parameters
    ----------
    stepper : Stepper
        Stepper that has run a step before. The gradients of its program are cleared first.
    clocks : StatementClocks, optional
        As for `workbench.runs.measure.memory_meter.measure_peak`.
    """
    stepper.clear_grads()
    stepper.synchronize()
    if stepper.device.type == "cuda":
        _record_memory_history(stacks="python")
        try:
            stepper.step()
            stepper.synchronize()
            found: dict[str, Any] = _snapshot(stepper.device)
        finally:
            _record_memory_history(enabled=None)
        return found
    changes, _ = memory_meter.observe_step(stepper, clocks)
    if clocks is not None and not clocks.complete():
        clocks = None
    ticks = [(tick.statement, tick.frees) for tick in clocks.ticks] if clocks is not None else []
    allocated = memory_meter.allocations(changes, ticks, clocks.times_ns if clocks is not None else [])
    framed = [(each, _frames(memory_meter.describe_allocation(each, clocks))) for each in allocated]
    return snapshot_of_events(changes, framed, _named_storages(stepper))


def snapshot_of_events(
    changes: Sequence[MemoryEvent],
    allocated: Sequence[tuple[Allocation, list[dict[str, Any]]]],
    named_storages: Sequence[tuple[int, int, str]],
) -> dict[str, Any]:
    """Convert allocation events to a snapshot.

    Parameters
    ----------
    changes : sequence of MemoryEvent
        Allocations and frees in order of time.
    allocated : sequence of (Allocation, list of dict)
        The allocations among the changes, each with its stack frames.
    named_storages : sequence of (int, int, str)
        Address, bytes and name of storages that were allocated before the step.
    """
    trace: list[tuple[int, dict[str, Any]]] = []
    left = [(address, nbytes, [_frame(name)]) for address, nbytes, name in named_storages]
    for each, frames in allocated:
        entry = {"addr": each.address, "size": each.nbytes, "stream": 0, "frames": frames}
        trace.append((each.begin, {"action": "alloc", **entry}))
        if each.end < len(changes):
            trace += [(each.end, {"action": action, **entry}) for action in ("free_requested", "free_completed")]
        else:
            left.append((each.address, each.nbytes, frames))
    ordered = [
        {**entry, "time_us": changes[index].at_ns // 1000} for index, entry in sorted(trace, key=lambda pair: pair[0])
    ]
    segments = [_segment(address, nbytes, frames) for address, nbytes, frames in sorted(left, key=lambda one: one[0])]
    return {"device_traces": [ordered], "segments": segments}


def write_snapshot(run: Run, path: str | Path) -> Path:
    """Copy a run's snapshot to the file `path`, and return the file's path.

    Raises
    ------
    RunError
        If the run took no snapshot, or if the file cannot be written.
    """
    source = run.run_dir / SNAPSHOT_FILE
    if not source.exists():
        raise RunError(f"run {run.name} took no memory snapshot; run it with RunOptions(memory_snapshot=True)")
    try:
        return paths.write(path, source.read_bytes())
    except OSError as error:
        raise RunError(f"the memory snapshot {path} cannot be written: {paths.reason_of(error)}") from error


def save_snapshot(snapshot: dict[str, Any], run_dir: Path) -> None:
    """Write a snapshot into a run's folder."""
    with (run_dir / SNAPSHOT_FILE).open("wb") as file:
        pickle.dump(snapshot, file)


def _segment(address: int, nbytes: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    block = {
        "address": address,
        "size": nbytes,
        "requested_size": nbytes,
        "state": "active_allocated",
        "frames": frames,
    }
    return {
        "device": 0,
        "address": address,
        "total_size": nbytes,
        "allocated_size": nbytes,
        "active_size": nbytes,
        "requested_size": nbytes,
        "stream": 0,
        "segment_type": "large",
        "blocks": [block],
    }


def _frames(described: dict[str, Any]) -> list[dict[str, Any]]:
    if described["statement"] < 0:
        return [_frame(_BEYOND)]
    file, _, line = described["source"].rpartition(":")
    made = described["value"] or f"transient, for {', '.join(described['outputs'])}"
    return [_frame(f"{made} = {described['name']}", file, int(line or 0))]


def _frame(name: str, filename: str = "", line: int = 0) -> dict[str, Any]:
    return {"name": name, "filename": filename, "line": line}


def _named_storages(stepper: Stepper) -> list[tuple[int, int, str]]:
    named = {**stepper.parameters, **stepper.buffers, **stepper.inputs}
    found: dict[int, tuple[int, int, str]] = {}
    for name, tensor in named.items():
        for part in dense_parts(tensor):
            storage = part.untyped_storage()
            found.setdefault(storage.data_ptr(), (storage.data_ptr(), storage.nbytes(), name))
    return list(found.values())
