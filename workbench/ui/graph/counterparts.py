"""Sites of different layers that have the same place in their layer, whether or not the layers are identical."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence

from workbench.core.graph import layer_of
from workbench.core.lever import Site


@functools.lru_cache(maxsize=1 << 14)
def counterpart_key(id: str) -> str:
    """Return a site's id with a star in place of the layer's number; empty if the site is in no layer."""
    lever, _, place = id.partition(":")
    layer = layer_of(place.partition("/")[0])
    if not layer:
        return ""
    # An id may name two places of one layer.
    starred = re.sub(rf"\b{re.escape(layer)}(?=[./]|$)", f"{layer.rpartition('.')[0]}.*", place)
    return f"{lever}:{starred}"


def counterparts(sites: Iterable[Site]) -> dict[str, list[Site]]:
    """Return the sites with each key, in order, without the key of sites that are in no layer."""
    found: dict[str, list[Site]] = {}
    for site in sites:
        if key := counterpart_key(site.id):
            found.setdefault(key, []).append(site)
    return found


def number_of(id: str) -> int:
    """Return the number of the layer in a site's id."""
    return int(layer_of(id.partition(":")[2].partition("/")[0]).rpartition(".")[2])


def layers_named(numbers: Sequence[int]) -> str:
    """Return words for the layers with these numbers, which are in order, such as ``layers 0, 2–5``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"layer{'s' * (len(numbers) > 1)} {shown}"
