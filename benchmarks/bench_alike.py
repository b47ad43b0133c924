"""How near the estimates are that a choice in one of identical layers gives for another one.

Every kind of choice that a layer of `llama` has, planned with nvFuser at 32 layers of 7B shapes: one layer is planned,
two others are estimated, and planned to compare. On the stock plan, and then with choices in force that stay. With
``several``: all layers at once, as a click on a folded row chooses, and a few inner ones that follow each other. With
``few``: what nothing is known of, in all layers and in one of them, by plans of few layers; with or without choices.
With ``click``: the same without plans to compare, for as many kinds as asked for: what a click at once waits for, and
a digest of the figures, which another version has to give, too; of any program that `size_point.OPENERS` names.
``python -m benchmarks.bench_alike SECONDS [several|few]`` or ``python -m benchmarks.bench_alike KINDS click [WHAT]``
"""

from __future__ import annotations

import functools
import hashlib
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import workbench as wb
from benchmarks.size_point import OPENERS
from workbench.bench.alike import Alike, Estimate
from workbench.bench.few import Few
from workbench.compiler import pipeline
from workbench.compiler.pipeline import Plan
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
    before, alike, found = pipeline.plan(captured, in_force), Alike(), Comparison()
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
            if not number:
                alike.prepare(before)
                alike.learn(before, after, {id: option})
                continue
            found.compare(functools.partial(alike.estimate, before, {id: option}), before, after, {id: option})
    found.tell(f"{len(in_force)} choices in force")


def several_compared(
    bench: wb.Workbench, kinds: list[list[tuple[str, str]]], drawn: random.Random, until: float
) -> None:
    """The same for several layers at once: all that have the site, and a few that follow each other."""
    captured: Any = bench._captured
    before, alike, of_all, of_some = pipeline.plan(captured, {}), Alike(), Comparison(), Comparison()
    alike.prepare(before)
    for (id, option), *_ in kinds:
        place = id.partition(":")[2]
        stem, _, number = layer_of(place.partition("/")[0]).rpartition(".")
        in_layer = [id.replace(f"{stem}.{number}", f"{stem}.{layer}") for layer in range(LAYERS)]
        able = {
            layer: one
            for layer, one in enumerate(in_layer)
            if (site := before.site_of.get(one)) and option in site.options and option not in site.illegal
        }
        first = drawn.randrange(2, LAYERS - 6)
        some = {layer: able[layer] for layer in range(first, first + 4) if layer in able}
        try:
            alike.learn(before, pipeline.plan(captured, {id: option}), {id: option})
            for found, chosen in ((of_all, able), (of_some, some)):
                if time.process_time() > until:
                    break
                choices = dict.fromkeys(chosen.values(), option)
                after = pipeline.plan(captured, choices)
                found.compare(functools.partial(alike.estimate, before, choices), before, after, choices)
        except (ChoiceError, PlanError):
            continue
    of_all.tell("all layers at once")
    of_some.tell("four inner layers at once")


def by_few_layers(
    bench: wb.Workbench, kinds: list[list[tuple[str, str]]], drawn: random.Random, until: float, what: str
) -> None:
    """Estimate what nothing is known of, in all layers and in one of them, by plans of few layers."""
    captured: Any = bench._captured
    before, few, in_all, in_one = bench.plan, Few(captured, Alike()), Comparison(), Comparison()
    begun = time.process_time()
    few.prepare()
    print(f"made ready in {time.process_time() - begun:.2f} CPU s", flush=True)
    for (id, option), *_ in kinds:
        stem, _, number = layer_of(id.partition(":")[2].partition("/")[0]).rpartition(".")
        able = [
            one
            for one in (id.replace(f"{stem}.{number}", f"{stem}.{layer}") for layer in range(LAYERS))
            if (site := before.site_of.get(one)) and option in site.options and option not in site.illegal
        ]
        for found, chosen in ((in_all, able), (in_one, [drawn.choice(able)])):
            choices = dict.fromkeys(chosen, option)
            if time.process_time() > until or choices.keys() & bench.choices.keys():
                break
            try:
                after = pipeline.plan(captured, {**bench.choices, **choices})
            except (ChoiceError, PlanError):
                continue
            found.compare(functools.partial(few.estimate, before, bench.choices, choices), before, after, choices)
    in_all.tell(f"all layers at once, {what}")
    in_one.tell(f"one layer, the first and the last included, {what}")


def clicked_at_once(bench: wb.Workbench, kinds: list[list[tuple[str, str]]], drawn: random.Random) -> None:
    """Estimate kinds that nothing is known of, in all layers and in one of them."""
    captured: Any = bench._captured
    before, few = bench.plan, Few(captured, Alike())
    few.prepare()
    took: dict[str, list[float]] = {"all layers at once": [], "one layer": []}
    figures: list[tuple[int, int] | None] = []
    for (id, option), *_ in kinds:
        stem, _, number = layer_of(id.partition(":")[2].partition("/")[0]).rpartition(".")
        able = [
            one
            for one in (id.replace(f"{stem}.{number}", f"{stem}.{layer}") for layer in range(LAYERS))
            if (site := before.site_of.get(one)) and option in site.options and option not in site.illegal
        ]
        for chosen, times in zip((able, [drawn.choice(able)]), took.values(), strict=True):
            begun = time.process_time()
            found = few.estimate(before, {}, dict.fromkeys(chosen, option))
            times.append(1e3 * (time.process_time() - begun))
            figures.append(found and (found.peak_bytes, found.saved_bytes))
    for what, times in took.items():
        print(f"{what}: {statistics.median(times):.0f} CPU ms (median), at most {max(times):.0f}")
    grey, digest = figures.count(None), hashlib.sha256(repr(figures).encode()).hexdigest()[:12]
    print(f"{len(figures)} estimates, {grey} of them grey, digest {digest}")


class Comparison:
    """Estimates beside plans."""

    def __init__(self) -> None:
        self._grey = self._wrong_sign = 0
        self._rows: list[tuple[int, dict[str, str], tuple[int, int], tuple[int, int]]] = []
        self._took: list[float] = []

    def compare(
        self, estimate: Callable[[], Estimate | None], before: Plan, after: Plan, choices: dict[str, str]
    ) -> None:
        """Estimate what choices come to, and note how far that is from their plan."""
        begun = time.process_time()
        found = estimate()
        self._took.append(time.process_time() - begun)
        if found is None:
            self._grey += 1
            return
        exact = after.peak_bytes - before.peak_bytes, after.saved_bytes - before.saved_bytes
        moved = found.peak_bytes, found.saved_bytes
        self._wrong_sign += any((e > 0) != (x > 0) or (e < 0) != (x < 0) for e, x in zip(moved, exact, strict=True))
        error = max(abs(e - x) for e, x in zip(moved, exact, strict=True))
        self._rows.append((error, choices, moved, exact))

    def tell(self, what: str) -> None:
        """Print what came of it."""
        rows = sorted(self._rows, key=lambda row: -row[0])
        nonzero = sum(any(exact) for *_, exact in rows)
        largest = (rows[0][0], *next(iter(rows[0][1].items())), *rows[0][2:]) if rows else None
        relative = max((error / max(map(abs, exact)) for error, _, _, exact in rows if any(exact)), default=0.0)
        print(
            f"{what}: {len(rows)} estimated ({nonzero} of what moves a figure), {self._grey} left grey, "
            f"{self._wrong_sign} wrong in sign, {sum(row[0] > 0 for row in rows)} not exact, largest error {largest}, "
            f"at most {relative:.1%}; "
            f"{1e3 * statistics.median(self._took or [0.0]):.1f} CPU ms (median), "
            f"at most {1e3 * max(self._took, default=0.0):.1f}",
            flush=True,
        )


def main() -> None:
    """Compare for as many CPU seconds as asked for."""
    until = time.process_time() + float(sys.argv[1])
    drawn = random.Random(5)
    how, what = [*sys.argv[2:4], *("", "workbench")[len(sys.argv) - 2 :]]
    bench = OPENERS[what](LAYERS)()
    bench.warm()
    kinds = kinds_of(bench, drawn)
    drawn.shuffle(kinds)
    if how == "click":
        clicked_at_once(bench, kinds[: int(sys.argv[1])], drawn)
        return
    print(f"{len(kinds)} kinds of choices in inner layers")
    begun = time.process_time()
    if how == "several":
        several_compared(bench, kinds, drawn, until)
        return
    if how == "few":
        by_few_layers(bench, kinds, drawn, begun + (until - begun) / 2, "no choices in force")
        bench.choose(dict(kind[0] for kind in drawn.sample(kinds, IN_FORCE)))
        by_few_layers(bench, kinds[::-1], drawn, until, f"{IN_FORCE} in force, each in one layer")
        return
    compared(bench, kinds, {}, begun + (until - begun) / 2)
    in_force = dict(kind[0] for kind in drawn.sample(kinds, IN_FORCE))
    compared(bench, [kind[1:] + kind[:1] for kind in reversed(kinds)], in_force, until)


if __name__ == "__main__":
    main()
