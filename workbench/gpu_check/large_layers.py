"""Part `memory`: layers of a 7B model at long contexts: predicted peaks, saved bytes, and the depth that fits."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from workbench.errors import RunError
from workbench.gpu_check import runs
from workbench.gpu_check.part import WRONG, CheckStep, Conditions, Figures, Known

if TYPE_CHECKING:
    from workbench.bench import Workbench

LLAMA_7B: dict[str, Any] = {"dim": 4096, "heads": 32, "hidden": 11008, "vocab": 32000, "dtype": "bfloat16"}
_REHEARSED: dict[str, Any] = {"width": 64, "hidden": 128}
"""Settings of `mlp`, which replaces the 7B model in a rehearsal, because attention would take minutes there."""
_AHEAD = ("0", "8")
_OFFLOADED = 4
_ABOUT_LAYERS = 6
"""For the largest depth, the batch is chosen so that about this many layers fit, because planning a hundred layers
takes minutes.
"""
_KEPT_SHARE = 0.04
"""Share of the free memory that is left for the allocator, libraries and kernels, which no prediction includes."""


def steps(conditions: Conditions) -> Iterator[CheckStep]:
    """Yield steps for depths and contexts: first without choices, then with recomputation and offloading.

    The last steps predict and run the largest depth that fits.
    """
    sequences = conditions.size((4096, 16384), (32,))
    for sequence in sequences:
        for layers in conditions.size((1, 2, 4, 8), ()):
            name = f"{layers} {'layer' if layers == 1 else 'layers'}, {sequence} tokens"
            first = layers == 1 and sequence == sequences[0]
            yield CheckStep(name, functools.partial(_stock, conditions, layers, sequence), first=first)
    for sequence in sequences:
        name = f"2 layers, {sequence} tokens"
        if not conditions.rehearse:
            act = functools.partial(_run_recomputed, conditions, sequence)
            yield CheckStep(f"{name}, recomputed", act, first=sequence == sequences[0])
        for ahead in conditions.size(_AHEAD, _AHEAD[:1]):
            act = functools.partial(_run_offloaded, conditions, sequence, ahead)
            yield CheckStep(f"{name}, offloaded, {ahead} ahead", act, first=conditions.rehearse)
    yield CheckStep("depth that fits", functools.partial(_find_depth, conditions, sequences[-1]))
    if not conditions.rehearse:
        yield CheckStep("one layer more", functools.partial(_run_deeper, conditions, sequences[-1]))


def _bench(conditions: Conditions, layers: int, sequence: int, batch: int = 1) -> Workbench:
    if conditions.rehearse:
        return runs.open_program(conditions, "mlp", layers=layers, batch=batch * sequence, **_REHEARSED)
    return runs.open_program(conditions, "llama", layers=layers, sequence=sequence, batch=batch, **LLAMA_7B)


def _stock(conditions: Conditions, layers: int, sequence: int, _: Known) -> Figures:
    return _run_bench(_bench(conditions, layers, sequence))


def _run_bench(bench: Workbench, variants: Mapping[str, Any] | None = None) -> Figures:
    run = runs.run_to_end(bench, runs.QUICK, variants)
    reserved = bench.plan.reserved
    return {
        "saved_bytes": bench.plan.saved_bytes,
        **runs.memory_of(run),
        **({"predicted_reserved_bytes": reserved.reserved_bytes} if reserved is not None else {}),
        "reserved_bytes": run.memory["reserved_bytes"],
        "compile_s": run.compile_s,
        "step_s": run.step_s,
        **{f"{name}: takes times as long": outcome["ratio"] for name, outcome in run.against.items()},
        **runs.fault_of(run),
    }


def _largest(bench: Workbench, option: str) -> dict[str, str]:
    legal = [site for site in bench.sites("saved") if option in site.options and option not in site.illegal]
    sizes = {site.id: sum(_bytes(bench, value) for value in site.values) for site in legal}
    ordered = sorted(sizes, key=lambda id: -sizes[id])
    return dict.fromkeys(ordered[:_OFFLOADED], option)


def _bytes(bench: Workbench, value: str) -> int:
    graph = bench.plan.graph
    index = graph.value_index.get(value)
    return 0 if index is None else int(graph.values.bytes[index])


def _run_recomputed(conditions: Conditions, sequence: int, _: Known) -> Figures:
    bench = _bench(conditions, 2, sequence)
    bench.choose(_largest(bench, "recompute"))
    return _run_bench(bench, {"stock": {}})


def _run_offloaded(conditions: Conditions, sequence: int, ahead: str, _: Known) -> Figures:
    bench = _bench(conditions, 2, sequence)
    bench.choose({**_largest(bench, "offload"), "saved.ahead": ahead})
    moved = bench.plan.counts.get("offloaded_bytes", 0)
    figures = _run_bench(bench, {"stock": {}})
    return {"offloaded_bytes": moved, **figures}


def _find_depth(conditions: Conditions, sequence: int, _: Known) -> Figures:
    """Return a batch, the depth whose predicted peak fits, and whether that depth fits; only plans are made."""
    peaks = {
        (layers, batch): _bench(conditions, layers, sequence, batch).plan.peak_bytes
        for layers in (1, 2)
        for batch in (1, 2)
    }
    free = _free_bytes(conditions, peaks)
    # The peak is bilinear in layers and batch, so four points determine it.
    per_layer = peaks[2, 1] - peaks[1, 1]
    per_layer_and_batch = peaks[2, 2] - peaks[1, 2] - per_layer
    per_batch = peaks[1, 2] - peaks[1, 1] - per_layer_and_batch
    rest = peaks[1, 1] - per_layer - per_batch

    def peak(layers: int, batch: int) -> int:
        return rest + per_layer * layers + (per_batch + per_layer_and_batch * (layers - 1)) * batch

    batch = 1
    while peak(_ABOUT_LAYERS, batch + 1) <= free:
        batch += 1
    layers = 1
    while peak(layers + 1, batch) <= free:
        layers += 1
    bench = _bench(conditions, layers, sequence, batch)
    while bench.plan.peak_bytes > free and layers > 1:
        layers -= 1
        bench = _bench(conditions, layers, sequence, batch)
    run = bench.run(wait=True, options=runs.QUICK)
    return {
        "free_bytes": free,
        "batch": batch,
        "layers": layers,
        **runs.memory_of(run),
        "ran": run.state == "done",
        **({} if run.state == "done" else {WRONG: f"predicted to fit, but did not fit: {run.error}"}),
    }


def _free_bytes(conditions: Conditions, peaks: Mapping[tuple[int, int], int]) -> int:
    if conditions.rehearse:
        # Assume memory for this many layers.
        return peaks[1, 1] + (peaks[2, 1] - peaks[1, 1]) * 2
    return int(torch.cuda.mem_get_info()[0] * (1 - _KEPT_SHARE))


def _run_deeper(conditions: Conditions, sequence: int, results: Known) -> Figures:
    """Run a depth that should not fit, and return how far the prediction is from the limit."""
    found = results.get("depth that fits", {})
    if not found.get("layers"):
        raise RunError("the depth that fits is not known")
    bench = _bench(conditions, found["layers"] + 1, sequence, found["batch"])
    run = bench.run(wait=True, options=runs.QUICK)
    return {
        "layers": found["layers"] + 1,
        "predicted_peak_bytes": bench.plan.peak_bytes,
        "ran": run.state == "done",
        "reason": run.error or "",
    }
