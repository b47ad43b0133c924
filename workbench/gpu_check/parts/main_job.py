"""Part `main`: plan, run and cancel one program, as a user would do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from workbench.errors import RunError
from workbench.gpu_check.parts import runs, time_spent
from workbench.gpu_check.parts.check_part import WRONG, CheckStep, Conditions, Figures
from workbench.runs.log.events import Cancelled, MemorySample
from workbench.runs.process.request import RunOptions

_LEAST_SAMPLES_PER_S = 15.0
_MOST_CANCEL_S = 2.0
_CANCEL_AT_S = 120.0


def steps(conditions: Conditions) -> Iterator[CheckStep]:
    """Yield steps that plan, run, cancel, and run with choices, in float32; and then a larger run in bfloat16."""
    small: dict[str, Any] = conditions.size({"layers": 2, "dim": 512, "heads": 8, "sequence": 256}, {"layers": 1})
    yield CheckStep("plan", lambda _: _plan(conditions, small), first=True)
    yield CheckStep("run, float32", lambda _: _run(conditions, small, {}), first=True)
    yield CheckStep("cancel", lambda _: _cancel(conditions, small), first=True)
    if not conditions.rehearse:
        yield CheckStep("run, recomputed", lambda _: _run_recomputed(conditions, small), first=True)
        large = {"layers": 4, "dim": 2048, "heads": 16, "batch": 2, "sequence": 2048, "dtype": "bfloat16"}
        yield CheckStep("run, bfloat16", lambda _: _run(conditions, large, {}))


def _program(conditions: Conditions) -> str:
    """Return the program's name. A rehearsal avoids attention, which takes minutes on a CPU."""
    return conditions.size("llama", "mlp")


def _plan(conditions: Conditions, settings: dict[str, Any]) -> Figures:
    begun = time.perf_counter()
    bench = runs.open_program(conditions, _program(conditions), **settings)
    seconds = time.perf_counter() - begun
    plan, proof = bench.plan, bench.plan.proof
    return {
        "open_s": seconds,
        "statements": len(plan.graph.statements),
        "fusions": plan.census.count,
        "unique": plan.census.unique,
        "sites": len(plan.sites),
        "predicted_peak_bytes": plan.peak_bytes,
        "saved_bytes": plan.saved_bytes,
        "proven": proof.proven,
    }


def _run(conditions: Conditions, settings: dict[str, Any], choices: dict[str, str]) -> Figures:
    bench = runs.open_program(conditions, _program(conditions), choices, **settings)
    run = runs.run_to_end(bench, RunOptions(samples=conditions.size(20, 5)))
    sampled = [event.t_s for event in run.events if isinstance(event, MemorySample)]
    lasted = sampled[-1] - sampled[0] if len(sampled) > 1 else 0.0
    rate = (len(sampled) - 1) / lasted if lasted else 0.0
    accuracy = run.accuracy
    found = runs.fault_of(run)
    if rate < _LEAST_SAMPLES_PER_S:
        slow = f"{rate:.1f} memory samples a second, {_LEAST_SAMPLES_PER_S:g} wanted"
        found = {WRONG: "; ".join(filter(None, (found.get(WRONG, ""), slow)))}
    return {
        "compile_s": run.compile_s,
        "attributed_share": run.compile_attributed,
        "step_s": run.step_s,
        **runs.memory_of(run),
        "bitwise": accuracy.bitwise if accuracy is not None else None,
        "max_error": accuracy.max_error if accuracy is not None else None,
        "memory samples a second": rate,
        "launches": run.statements.verdict if run.statements is not None else "",
        **found,
    }


def _run_recomputed(conditions: Conditions, settings: dict[str, Any]) -> Figures:
    """Recompute the first two storages for which this is legal, run, and return the figures."""
    bench = runs.open_program(conditions, _program(conditions), **settings)
    legal = [site for site in bench.sites("saved") if "recompute" in site.options and "recompute" not in site.illegal]
    return _run(conditions, settings, {site.id: "recompute" for site in legal[:2]})


def _cancel(conditions: Conditions, settings: dict[str, Any]) -> Figures:
    bench = runs.open_program(conditions, _program(conditions), **settings)
    run = bench.run()
    give_up_s = time.monotonic() + _CANCEL_AT_S
    while run.state != "compiling":
        if run.state in ("done", "failed") or time.monotonic() > give_up_s:
            raise RunError(f"the run was {run.state} before it could be cancelled: {run.error}")
        time.sleep(0.02)
    begun = time.perf_counter()
    run.cancel()
    seconds = time.perf_counter() - begun
    time_spent.add_run(run)
    wrong = [] if isinstance(run.events[-1], Cancelled) else [f"the run is {run.state}"]
    if seconds > _MOST_CANCEL_S:
        wrong.append(f"Cancel took {seconds:.1f} s, {_MOST_CANCEL_S:g} allowed")
    return {"cancel_s": seconds, "state": run.state, **({WRONG: "; ".join(wrong)} if wrong else {})}
