"""After each choice, a layout that reuses results of the last layout equals a layout without reuse."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.trial_counts import amount
from workbench.core.lever import Site
from workbench.errors import WorkbenchError
from workbench.ui.graph.layout import block_key, compute
from workbench.ui.graph.node_names import node_ids
from workbench.ui.graph.payload import payload
from workbench.util.last_call_cache import Remembered

STEPS = amount(6, 30, 100)
SHAPES: dict[str, Any] = {"device": "planned", "executor": "nvfuser"}
PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "waits": ("fsdp_llama", {"layers": 2, "ranks": 4, **SHAPES}),
    "saved and between fusions": ("llama", {"layers": 2, **SHAPES}),
    "nothing fused": ("llama", {"layers": 2, "device": "cpu", "executor": "torch"}),
}


def able(bench: wb.Workbench) -> list[tuple[Site, list[str]]]:
    """Return each site that can be changed, with its legal options except the current one."""
    found = []
    for site in bench.plan.sites:
        options = [option for option in site.options if option != site.choice and option not in site.illegal]
        if options and (site.values or site.lever == "waits"):
            found.append((site, options))
    return found


def places(bench: wb.Workbench, site: Site) -> list[str]:
    """Return options that place a wait at its first and last legal statement; an empty list for other sites."""
    if site.lever != "waits" or not site.values:
        return []
    low, _, high = site.range.removeprefix("at(STATEMENT) from ").partition(" to ")
    return [low, *([] if high == "at(end)" else [high])]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(amount(1, 2, 10)))
@pytest.mark.drawn
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "nothing fused" else pytest.mark.slow) for name in PROGRAMS]
)
def test_a_layout_does_not_depend_on_earlier_layouts(name: str, seed: int) -> None:
    program, settings = PROGRAMS[name]
    bench, drawn = wb.open(program, **settings), random.Random(seed)
    remembered, kept = Remembered(), {}
    for step in range(STEPS):
        if step:
            site, options = drawn.choice(able(bench))
            try:
                bench.choose({site.id: drawn.choice([*options, *places(bench, site)])})
            except WorkbenchError:
                continue
        graph, sites = bench.plan.graph, bench.plan.sites
        how: dict[str, Any] = {
            "unfolded": drawn.choice([(), ("layers", "transformer.h")]),
            "views": drawn.random() < 0.3,
            "composites": True,
            "earlier_heights": dict(kept),
        }
        after, anew = compute(graph, sites, **how, remembered=remembered), compute(graph, sites, **how)
        ids = node_ids(graph, after, sites)
        assert payload(graph, after, sites, ids, remembered=remembered) == payload(graph, anew, sites)
        assert np.array_equal(after.node_of, anew.node_of)
        assert (after.unplaced, after.hidden.tolist()) == (anew.unplaced, anew.hidden.tolist())
        heights = zip(after.blocks.origin.tolist(), after.blocks.height.tolist(), strict=True)
        kept |= {block_key(graph, origin): height for origin, height in heights}


def test_only_changed_results_are_computed_again() -> None:
    asked: list[Any] = []

    def of(*parts: Any) -> int:
        asked.append(parts)
        return len(asked)

    remembered, one, other = Remembered(), object(), object()
    assert [remembered.result_of(of, [one, other], "a", np.arange(3)) for _ in range(2)] == [1, 1]
    # A new list of the same objects, and a new array that is equal, count as unchanged.
    assert remembered.result_of(of, [one, other], "a", np.arange(3)) == 1
    for parts in (([other, one], "a", np.arange(3)), ([other, one], "b", np.arange(3)), ([other], "b", np.arange(4))):
        assert remembered.result_of(of, *parts) == len(asked)
    assert remembered.result_of(of, [object()], "b", np.arange(4)) == len(asked) == 5


def test_only_new_items_are_computed() -> None:
    asked: list[Any] = []

    def of(item: Any, factor: Any) -> tuple[Any, Any]:
        asked.append(item)
        return item, factor

    remembered, items, factor, other = Remembered(), [object() for _ in range(4)], object(), object()
    assert remembered.results_of_each(of, items[:3], factor) == [(item, factor) for item in items[:3]]
    assert remembered.results_of_each(of, [items[2], items[3], items[0]], factor) == [
        (items[n], factor) for n in (2, 3, 0)
    ]
    assert asked == [*items[:3], items[3]]
    # The argument that all items share has changed, so all items are computed again.
    assert remembered.results_of_each(of, items, other) == [(item, other) for item in items]
    assert len(asked) == 8
