"""How near the estimates are that a choice in one of identical layers gives for another one.

Every kind of choice that a layer of `llama` has, planned with nvFuser at 32 layers of 7B shapes: one layer is planned,
two others are estimated, and planned to compare. On the stock plan, and then with choices in force that stay.
``python -m benchmarks.bench_alike SECONDS``
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import workbench as wb
from benchmarks.size_point import SHAPES
from workbench.bench.alike import Alike
from workbench.compiler import pipeline
from workbench.errors import ChoiceError, PlanError
from workbench.graph import layer_of

LAYERS = 32
IN_FORCE = 3


def kinds_of(bench: wb.Workbench, drawn: random.Random) -> list[list[tuple[str, str]]]:
    """Per kind of choice the sites and options of three inner layers."""
    sites: dict[tuple[str, str], dict[int, wb.Site]] = {}
    for site in bench.plan.sites:
        place = site.id.partition(":")[2]
        layer = layer_of(place.partition("/")[0])
        if layer and site.values:
            sites.setdefault((site.lever, place.removeprefix(layer)), {})[int(layer.rpartition(".")[2])] = site
    found: list[list[tuple[str, str]]] = []
    for by_layer in sites.values():
        inner = [layer for layer in by_layer if 2 <= layer < LAYERS - 2]
        if len(inner) < 3:
            continue
        chosen = [by_layer[layer] for layer in drawn.sample(inner, 3)]
        found.extend(
            [(site.id, option) for site in chosen]
            for option in chosen[0].options
            if all(option != site.choice and option in site.options and option not in site.illegal for site in chosen)
        )
    return found


def compared(bench: wb.Workbench, kinds: list[list[tuple[str, str]]], in_force: dict[str, str], until: float) -> None:
    """Estimate, plan and compare; tells what came of it."""
    captured: Any = bench._captured
    before, alike = pipeline.plan(captured, in_force), Alike()
    shown, grey, wrong_sign, rows, took = 0, 0, 0, [], []
    for kind in kinds:
        for number, (id, option) in enumerate(kind):
            if time.process_time() > until:
                break
            if id not in before.site_of or before.site_of[id].choice == option:
                continue
            try:
                after = pipeline.plan(captured, {**in_force, id: option})
            except (ChoiceError, PlanError):
                continue
            exact = after.peak_bytes - before.peak_bytes, after.saved_bytes - before.saved_bytes
            if not number:
                alike.prepare(before)
                alike.learn(before, after, {id: option})
                continue
            begun = time.process_time()
            found = alike.estimate(before, {id: option})
            took.append(time.process_time() - begun)
            if found is None:
                grey += 1
                continue
            shown += 1
            estimate = found.peak_bytes, found.saved_bytes
            wrong_sign += any((e > 0) != (x > 0) or (e < 0) != (x < 0) for e, x in zip(estimate, exact, strict=True))
            rows.append((max(abs(e - x) for e, x in zip(estimate, exact, strict=True)), id, option, estimate, exact))
    rows.sort(key=lambda row: -row[0])
    largest = rows[0] if rows else None
    nonzero = sum(any(row[4]) for row in rows)
    print(
        f"{len(in_force)} choices in force: {shown} estimated ({nonzero} of what moves a figure), {grey} left grey, "
        f"{wrong_sign} wrong in sign, {sum(row[0] > 0 for row in rows)} not exact, largest error {largest}; "
        f"at most {1e3 * max(took, default=0.0):.1f} CPU ms",
        flush=True,
    )


def main() -> None:
    """Compare for as many CPU seconds as asked for."""
    until = time.process_time() + float(sys.argv[1])
    drawn = random.Random(5)
    bench = wb.open("llama", layers=LAYERS, device="planned", executor="nvfuser", **SHAPES)
    bench.warm()
    kinds = kinds_of(bench, drawn)
    drawn.shuffle(kinds)
    print(f"{len(kinds)} kinds of choices in inner layers")
    begun = time.process_time()
    compared(bench, kinds, {}, begun + (until - begun) / 2)
    in_force = dict(kind[0] for kind in drawn.sample(kinds, IN_FORCE))
    compared(bench, [kind[1:] + kind[:1] for kind in reversed(kinds)], in_force, until)


if __name__ == "__main__":
    main()
