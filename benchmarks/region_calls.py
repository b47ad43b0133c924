"""Where the CPU time of a step of fused regions goes: calls of regions, kernels, PyTorch's ops between them, the rest.

For a model of `fit_measured` under the stock plan of an executor with regions, on one thread: the step as it runs,
the step with all guards, and PyTorch's own `torch.compile` beside it; the statements of the step by their clocks, and
each region called again on the inputs that it had, in three ways.

``python -m benchmarks.region_calls [NAME] [--executor torchcompile_aten] [--scale 1] [--steps 60] [--json FILE]``
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import workbench
from benchmarks.fit_measured import MODELS, built, step_s
from workbench.compiler import fusion
from workbench.compiler.clocks import StatementClocks
from workbench.compiler.patches import inductor_noted
from workbench.runs.accuracy import Stepper

REPEATS = 200


@contextmanager
def all_guarded() -> Iterator[None]:
    """Inside, regions are called through `torch.compile`, as Thunder does it."""
    stock = fusion.LazyRegion.__call__

    def guarded(self: Any, *args: Any) -> Any:
        return self.compiled._guarded(*args)

    fusion.LazyRegion.__call__ = guarded  # type: ignore[method-assign]
    try:
        yield
    finally:
        fusion.LazyRegion.__call__ = stock  # type: ignore[method-assign]


def inputs_of(stepper: Stepper) -> list[tuple[Any, tuple[Any, ...]]]:
    """Each region that a step calls, with what it is given."""
    found = []
    stock = fusion.LazyRegion.__call__

    def noting(self: Any, *args: Any) -> Any:
        found.append((self.compiled, args))
        return stock(self, *args)

    fusion.LazyRegion.__call__ = noting  # type: ignore[method-assign]
    try:
        stepper.step()
    finally:
        fusion.LazyRegion.__call__ = stock  # type: ignore[method-assign]
    return found


def call_s(work: Callable[[], Any]) -> float:
    """CPU seconds of one call: the least of five rounds."""
    work()
    rounds = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(REPEATS // 5):
            work()
        rounds.append((time.process_time() - start) / (REPEATS // 5))
    return min(rounds)


def of_regions(stepper: Stepper) -> dict[str, float]:
    """CPU seconds of all regions of a step, called one by one the three ways."""
    sums = {"guarded": 0.0, "straight": 0.0, "code": 0.0}
    called = inputs_of(stepper)
    with torch.no_grad():
        for region, args in called:
            sums["guarded"] += call_s(lambda region=region, args=args: region._guarded(*args))
            sums["straight"] += call_s(lambda region=region, args=args: region(*args))
            with inductor_noted() as seen:
                region._guarded(*args)
            for call in seen:
                sums["code"] += call_s(lambda call=call: call.graph.current_callable(list(call.given)))
    return {"calls": len(called), **sums}


def of_statements(stepper: Stepper, steps: int) -> dict[str, float]:
    """CPU seconds of a step's statements by kind: the median of some steps."""
    clocks = StatementClocks(stepper.run, time.thread_time_ns)
    clocks.start()
    samples: dict[str, list[float]] = {"regions": [], "other statements": []}
    for _ in range(steps):
        stepper.clear_grads()
        clocks.clear()
        stepper.step()
        sums = dict.fromkeys(samples, 0.0)
        for tick, before, after in zip(clocks.ticks[1:], clocks.times_ns, clocks.times_ns[1:], strict=False):
            if tick.statement >= 0:
                name = clocks.statements[tick.statement].name
                sums["regions" if name.startswith("TorchCompile") else "other statements"] += (after - before) / 1e9
        for kind, seconds in sums.items():
            samples[kind].append(seconds)
    clocks.stop()
    return {kind: statistics.median(each) for kind, each in samples.items()}


def main() -> int:
    """Print the table; what a shell gets."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("name", nargs="?", choices=list(MODELS), default="llama")
    asked.add_argument("--executor", choices=("torchcompile", "torchcompile_aten"), default="torchcompile")
    asked.add_argument("--scale", type=int, default=1, help="times the width and the sequence")
    asked.add_argument("--steps", type=int, default=60)
    asked.add_argument("--json", type=Path)
    options = asked.parse_args()
    torch.set_num_threads(1)
    model, args = built(options.name, options.scale)
    config = workbench.open(model, *args, device="cpu", executor=options.executor).config
    model, args = built(options.name, options.scale)
    ours = Stepper(model, args, {}, config.jit(model))
    model, args = built(options.name, options.scale)
    theirs = Stepper(model, args, {}, torch.compile(model, dynamic=False))
    for _ in range(4):
        ours.step()
        theirs.step()
    samples: dict[str, list[float]] = {"as it runs": [], "guarded": [], "torch.compile": []}
    for _ in range(options.steps):
        samples["as it runs"].append(step_s(ours))
        with all_guarded():
            samples["guarded"].append(step_s(ours))
        samples["torch.compile"].append(step_s(theirs))
    steps = {name: statistics.median(each) for name, each in samples.items()}
    statements, regions = of_statements(ours, options.steps), of_regions(ours)
    rest = steps["as it runs"] - sum(statements.values())
    found = {"model": options.name, "step_s": steps, "statement_s": statements, "rest_s": rest, "region_s": regions}
    calls = regions["calls"]
    print(f"{options.name}: CPU ms of a step, the median of {options.steps}")
    for name, seconds in steps.items():
        print(f"  {name:18} {1e3 * seconds:7.2f}")
    print(f"of the step as it runs: {calls:.0f} regions, PyTorch's ops between them, all around the two traces")
    for name, seconds in (*statements.items(), ("the rest", rest)):
        print(f"  {name:18} {1e3 * seconds:7.2f}")
    print("regions called again one by one: CPU ms of all, µs of a call beside the code alone")
    for name in ("guarded", "straight", "code"):
        print(f"  {name:18} {1e3 * regions[name]:7.2f} {1e6 * (regions[name] - regions['code']) / calls:7.1f}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
