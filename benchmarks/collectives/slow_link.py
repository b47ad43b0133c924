"""Time a step of a program under several orders of its collectives, on CPU ranks with an artificially slow link.

``torchrun … slow_link.py FOLDER SPEC`` runs on each rank, which writes its times into FOLDER. SPEC is JSON; see `main`.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.levers.waits.orders_on_ranks import Reordered
from workbench.compiler.driver.statement_timers import StatementClocks
from workbench.compiler.frontend import fake_process_group
from workbench.programs import build
from workbench.runs.measure.accuracy import Stepper
from workbench.runs.measure.interleaved_timing import take_interleaved

CLOCKED_STEPS = 9


class SlowLink:
    """Wrappers of PyTorch's collectives. Each transfer takes as long as it would in a ring over the slow link.

    Transfers take place one after another, while the caller computes. Only a wait blocks the caller.
    """

    def __init__(self, bytes_per_s: float, latency_s: float) -> None:
        self.bytes_per_s, self.latency_s = bytes_per_s, latency_s
        self._free_s = 0.0
        for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce"):
            setattr(dist, name, functools.partial(self._collective, getattr(dist, name), name))

    def _collective(self, collective: Any, name: str, *args: Any) -> Any:
        handle = collective(*args)
        if handle is None:
            return None
        count = dist.get_world_size()
        full = max(arg.nbytes for arg in args if isinstance(arg, torch.Tensor))
        moved = full * (count - 1) / count * (2 if name == "all_reduce" else 1)
        self._free_s = max(self._free_s, time.perf_counter()) + self.latency_s + moved / self.bytes_per_s
        return Arriving(handle, self._free_s)


class Arriving:
    """A handle of a collective. Its `wait` returns only after the transfer over the slow link has ended."""

    def __init__(self, handle: Any, done_s: float) -> None:
        self._handle, self._done_s = handle, done_s

    def wait(self) -> None:
        """Block until the transfer has ended."""
        self._handle.wait()
        left_s = self._done_s - time.perf_counter()
        if left_s > 0:
            time.sleep(left_s)


def main() -> None:
    """Measure a step under each order, and write the times.

    SPEC has the keys ``program``, ``parallel``, ``orders`` (choices by name), ``turns``, ``bytes_per_s`` and
    ``latency_s``.
    """
    folder, spec = Path(sys.argv[1]), json.loads(sys.argv[2])
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'tmp' / 'ranks'}", rank=rank, world_size=count)
    module, args, kwargs = build(spec["program"])
    assert isinstance(module, torch.nn.Module)
    compiled = Reordered(fake_process_group.Ranks(count, spec["parallel"]), module, args)
    stepper = Stepper(module, args, kwargs, compiled.jitted)
    # Time statements without the slow link, so that no statement's time includes a transfer.
    clocks = StatementClocks(compiled.jitted)
    rows = []
    for _ in range(CLOCKED_STEPS):
        clocks.clear()
        clocks.start()
        stepper.clear_grads()
        dist.barrier()
        stepper.step()
        clocks.stop()
        rows.append([(b - a) / 1e9 for a, b in zip(clocks.times_ns, clocks.times_ns[1:], strict=False)])
    # The first tick begins the trace and ends no statement.
    ends = [tick.statement for tick in clocks.ticks][1:]
    seconds = {
        clocks.statements[statement].outputs[0]: statistics.median(column)
        for statement, *column in zip(ends, *rows, strict=True)
        if statement >= 0 and clocks.statements[statement].outputs
    }
    SlowLink(spec["bytes_per_s"], spec["latency_s"])

    def step(entry: Any) -> float:
        compiled.jitted._lc_cs.interpreter_cache[-1] = entry
        stepper.clear_grads()
        dist.barrier()
        begun_s = time.perf_counter()
        stepper.step()
        return time.perf_counter() - begun_s

    variants = {name: functools.partial(step, compiled.entry_of(choices)) for name, choices in spec["orders"].items()}
    for variant in variants.values():
        variant()
    samples = take_interleaved(variants, spec["turns"], float("inf"))
    (folder / f"{rank}.json").write_text(json.dumps({"seconds": seconds, "samples": samples}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
