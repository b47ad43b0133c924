"""Part `launches`: host, wall and device time by size, and a ranking that is wrong without synchronization."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from workbench.gpu_check.parts import runs
from workbench.gpu_check.parts.check_part import WRONG, CheckStep, Conditions, Figures, Known
from workbench.programs.builtin.sequence_parallel import Deception
from workbench.runs.measure import sync_ranking
from workbench.runs.measure.cuda_graph import NAME as GRAPHED
from workbench.runs.process.request import RunOptions

WIDTHS = (64, 256, 1024, 4096)
_FIRST = (64, 1024)
"""A launch-bound size, and a size that is not launch-bound."""
_CLOCKS_ALLOWED_SHARE = 0.05
CHUNKS, ROWS, WIDTH, HIDDEN = 64, 4096, 256, 4096
"""Number of shards of the product, rows of a shard, and the two sizes of the weight. With these sizes, the device needs
longer than the host takes to launch the chunks, and the copies of products take longer than the overlap saves.
"""
RANKING = "with syncs and without"


def steps(conditions: Conditions) -> Iterator[CheckStep]:
    """Yield a step for each size, from launch-bound to device-bound.

    The last step ranks two ways to compute the same product, with and without synchronization.
    """
    for width in conditions.size(WIDTHS, WIDTHS[:1]):
        yield CheckStep(f"mlp, width {width}", functools.partial(_sizes, conditions, width), first=width in _FIRST)
    yield CheckStep(RANKING, lambda _: _rank_variants(conditions), first=True)


def settings_of(width: int, layers: int = 4) -> dict[str, Any]:
    """Return the settings of `mlp` for a width."""
    return {"layers": layers, "width": width, "hidden": 4 * width, "batch": max(32, width)}


def _sizes(conditions: Conditions, width: int, _: Known) -> Figures:
    bench = runs.open_program(conditions, "mlp", **settings_of(width, layers=conditions.size(4, 1)))
    run = runs.run_to_end(
        bench, RunOptions(samples=conditions.size(20, 5), cuda_graph=not conditions.rehearse, check_accuracy=False)
    )
    times, clocked = run.times or {}, run.statements
    # On a CPU, the clocked statements are host work, so they have no device times.
    on_device = clocked if conditions.device == "cuda" else None
    device_s, busy_s = times.get("device_s"), on_device.device_busy_s if on_device is not None else None
    off = busy_s / device_s - 1 if busy_s and device_s else None
    graphed = run.against.get(GRAPHED, {})
    wrong = "" if off is None or off <= _CLOCKS_ALLOWED_SHARE else f"kernels add up to {off:+.1%} of the device's time"
    return {
        "host_s": times.get("host_s"),
        "step_s": times.get("step_s"),
        "device_s": device_s,
        "kernels_busy_s": busy_s,
        "bubbles_s": on_device.bubbles_s if on_device is not None else None,
        "head_gap_s": on_device.head_gap_s if on_device is not None else None,
        "launch bound": clocked.launch_bound if clocked is not None else None,
        "as one CUDA graph_s": graphed.get("step_s"),
        **({WRONG: wrong} if wrong else {}),
    }


def _rank_variants(conditions: Conditions) -> Figures:
    if conditions.rehearse:
        deception = Deception()
        found = sync_ranking.rank(deception.variants, deception.synchronize, samples=10, budget_s=2.0)
        deception.close()
    else:
        found = sync_ranking.rank(_stream_variants(), torch.cuda.synchronize)
    wrong = "" if conditions.rehearse or found.deceives else "both rankings are the same"
    return {
        "with syncs": list(found.names),
        "without": list(found.unsynced),
        "in words": found.words,
        "flips": found.deceives,
        **{f"{name}, with syncs_s": estimate.median for name, estimate in found.wall_s.items()},
        **{f"{name}, without_s": estimate.median for name, estimate in found.host_s.items()},
        **({WRONG: wrong} if wrong else {}),
    }


def _stream_variants() -> dict[str, Callable[[], object]]:
    """Return two ways to multiply gathered shards.

    ``whole`` gathers and multiplies all shards. Then the host reads a number of the result, and waits for it.
    ``chunked`` works shard by shard on two streams. Its host does not wait.
    """
    rows = ROWS
    weight = torch.randn(WIDTH, HIDDEN, device="cuda")
    shards = torch.randn(CHUNKS, rows, WIDTH, device="cuda")
    gathered = torch.empty_like(shards)
    output = torch.empty(CHUNKS * rows, HIDDEN, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(2)]

    def run_whole() -> None:
        torch.matmul(torch.cat(tuple(shards)), weight, out=output)
        output[0, 0].item()

    def run_chunked() -> None:
        for at in range(CHUNKS):
            copying, multiplying = streams
            with torch.cuda.stream(copying):
                gathered[at].copy_(shards[at])
            multiplying.wait_stream(copying)
            with torch.cuda.stream(multiplying):
                output[at * rows : (at + 1) * rows].copy_(gathered[at] @ weight)

    return {"whole": run_whole, "chunked": run_chunked}
