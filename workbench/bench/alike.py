"""What a choice did in one of identical layers, as an estimate for another, where fusions are made anew.

Arithmetic on a program's statements can be wrong by the sign where they are fused. A plan that was made says what a
choice comes to in its layer; in another layer that is the same, beside neighbours that are the same, it comes to the
same there. What it does to the peak is carried over as what it does to memory in each layer, before and after, so that
the peak is found where it is under the choices in force now.
"""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbench.graph import Graph, layer_of

if TYPE_CHECKING:
    from workbench.compiler.pipeline import Plan
    from workbench.lever import Site

type _Place = tuple[int, str]
"""A side, and a layer; outside of layers a module."""

_AFTER: _Place = (2, "")
"""After the last statement, while autograd copies gradients."""
_DIGITS = re.compile(r"\d+")
_KEPT = 4096
"""Changes that are remembered."""
_PLANS = 3
"""Plans of which it is remembered what is in their layers."""


@dataclasses.dataclass(frozen=True)
class Change:
    """What a choice in a layer came to, by a plan.

    Attributes
    ----------
    layer : str
    saved_bytes : int
    moved : dict of (int, str) to int
        Bytes by which the most that is alive there moved, by side and layer.
    """

    layer: str
    saved_bytes: int
    moved: dict[_Place, int]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a choice comes to as far as the same one in another layer says.

    Attributes
    ----------
    peak_bytes, saved_bytes : int
        Then minus now.
    like : str
        The layer in which it was planned.
    """

    peak_bytes: int
    saved_bytes: int
    like: str


class Layers:
    """A plan's layers: what is in each, and how much is alive there.

    Parameters
    ----------
    plan : Plan
    numbers : dict
        Of texts and shapes, the same for all plans that are compared.
    """

    def __init__(self, plan: Plan, numbers: dict[Hashable, int]) -> None:
        self.plan, self._numbers = plan, numbers

    @cached_property
    def _layer_of_origin(self) -> list[str]:
        return [layer_of(origin.scope) for origin in self.plan.graph.origins] + [""]

    @cached_property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """What is chosen for no layer."""
        return tuple((s.id, s.choice) for s in self.plan.sites if s.choice != s.default and not _layer(s))

    @cached_property
    def contents(self) -> dict[str, Hashable]:
        """Per layer its statements and its choices, the same for layers that are the same."""
        graph = self.plan.graph
        layers = np.asarray([self._number(layer) for layer in self._layer_of_origin])
        rows = _rows(graph, self._number)
        of_row = layers[graph.statements.origin]
        order = np.argsort(of_row, kind="stable")
        starts = np.flatnonzero(np.diff(of_row[order], prepend=-1))
        parts = np.split(rows[order], starts[1:]) if len(order) else []
        found = {number: part.tobytes() for number, part in zip(of_row[order][starts].tolist(), parts, strict=True)}
        sites: dict[str, list[Hashable]] = {}
        for site in self.plan.sites:
            if layer := _layer(site):
                local = _local(site.id, layer), site.choice, _local(site.outcome, layer), site.bytes
                sites.setdefault(layer, []).append(local)
        return {
            layer: (found.get(self._number(layer), b""), tuple(sites.get(layer, ())))
            for layer in {*self._layer_of_origin, *sites} - {""}
        }

    @cached_property
    def alive(self) -> dict[_Place, int]:
        """The most bytes alive inside any statement, by side and layer, and after the last."""
        graph, line = self.plan.graph, self.plan.timeline
        places = [
            layer or origin.scope for layer, origin in zip(self._layer_of_origin[:-1], graph.origins, strict=True)
        ]
        names = dict.fromkeys([*places, ""])
        number = {name: n for n, name in enumerate(names)}
        of_origin = np.asarray([number[place] for place in [*places, ""]], np.intp)
        key = of_origin[graph.statements.origin] * 2 + graph.statements.side.astype(np.intp)
        most = np.full(2 * len(number), -1, np.int64)
        np.maximum.at(most, key, line.statement_peak_bytes)
        found = {
            (n % 2, name): int(most[n]) for name, at in number.items() for n in (2 * at, 2 * at + 1) if most[n] >= 0
        }
        return {**found, _AFTER: line.after_bytes}

    def _number(self, of: Hashable) -> int:
        return self._numbers.setdefault(of, len(self._numbers))


class Alike:
    """Remembers what choices did in their layers, and says what the same come to in others like them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[Hashable, Change] = {}
        self._layers: list[Layers] = []

    def prepare(self, plan: Plan) -> None:
        """Look through a plan while nobody waits for it, so that what is estimated on top of it takes less time."""
        if plan.census.count:
            with self._lock:
                layers = self._look(plan)
                _ = layers.contents, layers.alive

    def learn(self, before: Plan, after: Plan, choices: Mapping[str, str]) -> None:
        """Remember what one choice did.

        Parameters
        ----------
        before, after : Plan
            They differ in `choices` and what came of them.
        choices : mapping of str to str
            Of more than one site nothing is learned, nor outside of layers, nor where nothing is fused.
        """
        with self._lock:
            key = self._key(before, choices)
            if key is None:
                return
            now, then = self._look(before), Layers(after, self._numbers)
            moved = {place: then.alive.get(place, 0) - now.alive.get(place, 0) for place in {*now.alive, *then.alive}}
            if len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            change = Change(_layer_of(before, choices), after.saved_bytes - before.saved_bytes, moved)
            self._known[key] = change

    def estimate(self, plan: Plan, choices: Mapping[str, str]) -> Estimate | None:
        """What further choices come to; None where nothing that was planned says it.

        Parameters
        ----------
        plan : Plan
            In force.
        choices : mapping of str to str
            On top of it.
        """
        with self._lock:
            change = self._known.get(key) if self._known and (key := self._key(plan, choices)) is not None else None
            if change is None:
                return None
            layer, alive = _layer_of(plan, choices), self._look(plan).alive
            most = max(most + _moved(change, place, layer, alive) for place, most in alive.items())
            peak_bytes = max(most, plan.timeline.baseline_bytes)
            return Estimate(peak_bytes - plan.peak_bytes, change.saved_bytes, change.layer)

    def _look(self, plan: Plan) -> Layers:
        """A plan's layers; those of the last few plans are kept."""
        found = next((layers for layers in self._layers if layers.plan is plan), None)
        if found is None:
            found = Layers(plan, self._numbers)
            self._layers = [*self._layers[1 - _PLANS :], found]
        return found

    def _key(self, plan: Plan, choices: Mapping[str, str]) -> Hashable | None:
        """All that says what a choice in a layer comes to; None where it is in none, or there are several."""
        if len(choices) != 1 or not plan.census.count:
            return None
        ((id, option),) = choices.items()
        site, layer = plan.site_of.get(id), _layer_of(plan, choices)
        if site is None or not layer:
            return None
        layers = self._look(plan)
        around = tuple(layers.contents.get(_beside(layer, by)) for by in (-1, 0, 1))
        # The first and the last have a neighbour that is none of them, which nothing is known of.
        if None in around:
            return None
        return (_stem(layer), _local(id, layer), site.choice, _local(option, layer), around, layers.settings)


def _moved(change: Change, place: _Place, layer: str, alive: Mapping[_Place, int]) -> int:
    """By how much memory moves at a place where the choice is made in another layer."""
    side, here = place
    if _stem(here) != _stem(layer) or not layer_of(here):
        return change.moved.get(place, 0)
    from_there = _beside(here, _number(change.layer) - _number(layer))
    if (side, from_there) in change.moved:
        return change.moved[side, from_there]
    # Beyond the first or the last: as far from the choice as that is.
    numbers = [_number(one) for at, one in alive if at == side and layer_of(one) == one and _stem(one) == _stem(layer)]
    edge = min(numbers) if _number(from_there) < min(numbers) else max(numbers)
    return change.moved.get((side, f"{_stem(layer)}{edge}"), 0)


def _rows(graph: Graph, number: Callable[[Hashable], int]) -> NDArray[np.int64]:
    """Per statement all that tells it from others but the names of values, as numbers."""
    statements, values = graph.statements, graph.values
    names = {name: number(_DIGITS.sub("#", name)) for name in set(statements.name)}
    executors = {name: number(name) for name in set(statements.executor)}
    lines = [number((origin.symbol, origin.file, origin.line)) for origin in graph.origins]
    kinds = list(zip(values.shape, values.dtype, strict=True))
    tensors = {kind: number(kind) for kind in set(kinds)}
    of_value = np.append(np.asarray([tensors[kind] for kind in kinds], np.int64), -1)
    starts = statements.outputs.offsets
    made = np.diff(starts)
    first = np.where(made > 0, np.append(statements.outputs.items, -1)[starts[:-1]], -1)
    parent = statements.parent
    columns = (
        np.asarray([names[name] for name in statements.name], np.int64),
        np.asarray([executors[name] for name in statements.executor], np.int64),
        np.asarray([*lines, -1], np.int64)[statements.origin],
        of_value[first],
        made,
        np.diff(statements.inputs.offsets),
        statements.kind,
        statements.side,
        statements.flags,
        statements.transient_bytes,
        # Which statements are fused with the one before.
        np.where(parent >= 0, 1 + (parent == np.append(-1, parent[:-1])), 0),
    )
    return np.stack([np.asarray(column, np.int64) for column in columns], axis=1)


def _layer_of(plan: Plan, choices: Mapping[str, str]) -> str:
    """The layer of the first choice's site; empty for none."""
    site = plan.site_of.get(next(iter(choices)))
    return _layer(site) if site is not None else ""


def _layer(site: Site) -> str:
    """The layer that a site is in; empty for none."""
    return layer_of(site.id.partition(":")[2].partition("/")[0])


def _local(text: str, layer: str) -> str:
    """An id, or a choice that names a place, within its layer."""
    return text.replace(f"{layer}.", "#.").replace(f"{layer}/", "#/")


def _stem(layer: str) -> str:
    return layer[: len(layer) - len(str(_number(layer)))] if layer_of(layer) == layer and layer else layer


def _number(layer: str) -> int:
    return int(layer.rpartition(".")[2])


def _beside(layer: str, by: int) -> str:
    return f"{_stem(layer)}{_number(layer) + by}"
