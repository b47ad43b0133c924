"""Part `memory`: predicted and measured memory for layers of a 7B model at long contexts, and the depth that fits."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from workbench.errors import RunError
from workbench.gpu_check.parts import runs
from workbench.gpu_check.parts.check_part import WRONG, CheckStep, Conditions, Figures, Known
from workbench.runs.process.request import RunOptions

if TYPE_CHECKING:
    from workbench.bench import Workbench

LLAMA_7B: dict[str, Any] = {"dim": 4096, "heads": 32, "hidden": 11008, "vocab": 32000, "dtype": "bfloat16"}
_REHEARSED: dict[str, Any] = {"width": 64, "hidden": 128}
"""Settings of `mlp`, which replaces the 7B model in a rehearsal, because attention takes minutes on a CPU."""
_AHEAD = ("0", "8")
_OFFLOADED = 4
_ABOUT_LAYERS = 6
"""Approximate number of layers that should fit in memory. The batch is chosen accordingly, because planning a hundred
layers would take minutes.
"""
_KEPT_SHARE = 0.04
"""Share of the free memory that is left for the allocator, libraries and kernels. No predicted peak includes them."""


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
    return run_bench(_bench(conditions, layers, sequence))


def run_bench(
    bench: Workbench,
    variants: Mapping[str, Any] | None = None,
    *,
    options: RunOptions = runs.QUICK,
    most_off_share: float = runs.MOST_OFF_SHARE,
) -> Figures:
    """Run a program; return its predicted and measured memory, its step time, and the variants' times relative to it.

    If the run also times each statement, the result has the share of transfers that compute hides.
    """
    run = runs.run_to_end(bench, options, variants)
    reserved = bench.plan.reserved
    return {
        "saved_bytes": bench.plan.saved_bytes,
        **runs.memory_of(run),
        **({"predicted_reserved_bytes": reserved.reserved_bytes} if reserved is not None else {}),
        "reserved_bytes": run.memory["reserved_bytes"],
        **({"hidden_share": hidden_share(run.statements.kernels)} if run.statements is not None else {}),
        "compile_s": run.compile_s,
        "step_s": run.step_s,
        **{f"{name}: takes times as long": outcome["ratio"] for name, outcome in run.against.items()},
        **runs.fault_of(run, most_off_share=most_off_share),
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
    return run_bench(bench, {"stock": {}})


def _run_offloaded(conditions: Conditions, sequence: int, ahead: str, _: Known) -> Figures:
    bench = _bench(conditions, 2, sequence)
    open_offloaded(bench, ahead)
    moved = bench.plan.counts.get("offloaded_bytes", 0)
    figures = run_bench(bench, {"stock": {}}, options=dataclasses.replace(runs.QUICK, clocks=True))
    return {"offloaded_bytes": moved, **figures}


def open_offloaded(bench: Workbench, ahead: str) -> Workbench:
    """Offload the largest storages of a bench, and begin to load them back `ahead` statements before their use."""
    bench.choose({**_largest(bench, "offload"), "saved.ahead": ahead})
    return bench


def hidden_share(kernels: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the share of the copies' time during which other work ran; None without copies between host and device.

    Parameters
    ----------
    kernels : sequence of mapping
        Work of the device in one step, as in `workbench.runs.log.events.StatementTimes`.
    """
    copies = [(each["start_s"], each["end_s"]) for each in kernels if _is_transfer(each["name"])]
    others = sorted((each["start_s"], each["end_s"]) for each in kernels if not _is_transfer(each["name"]))
    whole_s = sum(end - start for start, end in copies)
    if not whole_s:
        return None
    # Work on several streams may overlap; each moment counts once.
    work: list[tuple[float, float]] = []
    for start, end in others:
        if work and start <= work[-1][1]:
            work[-1] = work[-1][0], max(work[-1][1], end)
        else:
            work.append((start, end))
    covered_s = sum(max(0.0, min(b, d) - max(a, c)) for a, b in copies for c, d in work)
    return float(covered_s / whole_s)


def _is_transfer(name: str) -> bool:
    return name.startswith("Memcpy") and ("HtoD" in name or "DtoH" in name)


def _find_depth(conditions: Conditions, sequence: int, _: Known) -> Figures:
    """Plan several depths to find the largest depth whose predicted peak fits in memory. Then run this depth."""
    peaks = {
        (layers, batch): _bench(conditions, layers, sequence, batch).plan.peak_bytes
        for layers in (1, 2)
        for batch in (1, 2)
    }
    free = _free_bytes(conditions, peaks)
    # The peak is bilinear in layers and batch, so four plans determine it.
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
    run = runs.finish_run(bench, runs.QUICK)
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
        # Assume memory for three layers.
        return peaks[1, 1] + (peaks[2, 1] - peaks[1, 1]) * 2
    return int(torch.cuda.mem_get_info()[0] * (1 - _KEPT_SHARE))


def _run_deeper(conditions: Conditions, sequence: int, results: Known) -> Figures:
    """Run one layer more than predicted to fit; return the predicted peak, and whether the run succeeded."""
    found = results.get("depth that fits", {})
    if not found.get("layers"):
        raise RunError("the depth that fits is not known")
    bench = _bench(conditions, found["layers"] + 1, sequence, found["batch"])
    run = runs.finish_run(bench, runs.QUICK)
    return {
        "layers": found["layers"] + 1,
        "predicted_peak_bytes": bench.plan.peak_bytes,
        "ran": run.state == "done",
        "reason": run.error or "",
    }
