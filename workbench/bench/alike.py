"""What a choice did in one of identical layers, as an estimate for another, where fusions are made anew.

Arithmetic on a program's statements can be wrong by the sign where they are fused. A plan that was made says what a
choice comes to in its layer; in another layer that is the same, beside neighbours that are the same, it comes to the
same there. What it does to the peak is carried over as what it does to memory in each layer, before and after, so that
the peak is found where it is under the choices in force now.

Where such a choice changed no statement outside of its layer, the same in several layers at once comes to the sum: what
it keeps adds up, and so does what it moves elsewhere. The first and last layers, whose neighbours are others, are taken
to be as the inner ones where they are few beside them, and where that cannot turn a figure's sign.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import threading
from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbench.graph import BACKWARD, FORWARD, Graph, Kind, layer_of
from workbench.remembered import Remembered

if TYPE_CHECKING:
    from workbench.compiler.pipeline import Plan, Sketch
    from workbench.lever import Site

type _Place = tuple[int, str]
"""A side, and a layer; outside of layers a module."""

_AFTER: _Place = (2, "")
"""After the last statement, while autograd copies gradients."""
_DIGITS = re.compile(r"\d+")
_KEPT = 4096
"""Changes that are remembered."""
_FEW = 4
"""So many times as many layers as are only taken to be alike have to be known."""
_PLANS = 3
"""Plans of which it is remembered what is in their layers."""


@dataclasses.dataclass(frozen=True)
class Change:
    """What a choice in a layer came to, by a plan.

    Attributes
    ----------
    layer : str
    at : int
        Which of the layers that follow each other it is.
    saved_bytes : int
    inside : dict of int to array of int
        Bytes by which the most that is alive in each of these layers moved, by side.
    moved : dict of (int, str) to int
        The same of all other places, by side and place.
    apart, near : bool
        Whether no statement is another one under it but in its layer; and in those beside it.
    """

    layer: str
    at: int
    saved_bytes: int
    inside: dict[int, NDArray[np.int64]]
    moved: dict[_Place, int]
    apart: bool
    near: bool

    def moved_in(self, side: int, at: NDArray[np.intp], of: int, count: int) -> NDArray[np.int64]:
        """Bytes by which the most alive in layers moves, where another one than `layer` is chosen.

        Parameters
        ----------
        side : int
        at : array of int
            The layers, counted from 0.
        of : int
            The one that is chosen.
        count : int
            How many layers follow each other there.
        """
        moved = self.inside[side]
        # As far from the choice there as here; the first and the last as these, and no other as one of them.
        known = np.clip(at - of + self.at, min(1, len(moved) - 1), max(len(moved) - 2, 0))
        known = np.where(at == 0, 0, np.where(at == count - 1, len(moved) - 1, known))
        return moved[known]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a choice comes to as far as the same one in another layer says.

    Attributes
    ----------
    peak_bytes, saved_bytes : int
        Then minus now.
    like : str
        The layer in which it was planned; or of how many layers.
    layers, supposed : int
        How often that is counted, and for how many layers that are only taken to be as that one.
    """

    peak_bytes: int
    saved_bytes: int
    like: str
    layers: int = 1
    supposed: int = 0

    @property
    def words(self) -> str:
        """What it goes by, to be read after "came to in"."""
        times = f", {self.layers} times" if self.layers > 1 else ""
        return self.like + times + (f"; {self.supposed} of these layers taken to be like it" if self.supposed else "")


class Layers:
    """A plan's layers: what is in each, and how much is alive there.

    Parameters
    ----------
    plan : Plan or Sketch
    numbers : dict
        Of texts and shapes, the same for all plans that are compared.
    remembered : Remembered
        Of other plans, to be taken over where nothing differs.
    """

    def __init__(self, plan: Plan | Sketch, numbers: dict[Hashable, int], remembered: Remembered) -> None:
        self.plan, self._numbers, self._remembered = plan, numbers, remembered

    @cached_property
    def _layer_of_origin(self) -> list[str]:
        return [layer_of(origin.scope) for origin in self.plan.graph.origins] + [""]

    @cached_property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """What is chosen for no layer."""
        return tuple((s.id, s.choice) for s in self.plan.sites if s.choice != s.default and not _layer(s))

    @cached_property
    def _told_apart(self) -> NDArray[np.int64]:
        return _rows(self.plan.graph, self._numbers, self._remembered)

    @cached_property
    def statements(self) -> dict[str, bytes]:
        """Per layer its statements, the same for layers that are the same; under an empty name those of none."""
        names = list(dict.fromkeys(self._layer_of_origin))
        number = {layer: n for n, layer in enumerate(names)}
        layers = np.asarray([number[layer] for layer in self._layer_of_origin])
        of_row = layers[self.plan.graph.statements.origin]
        order = np.argsort(of_row, kind="stable")
        starts = np.flatnonzero(np.diff(of_row[order], prepend=-1))
        parts = np.split(self._told_apart[order], starts[1:]) if len(order) else []
        return {names[n]: part.tobytes() for n, part in zip(of_row[order][starts].tolist(), parts, strict=True)}

    @cached_property
    def contents(self) -> dict[str, tuple[Hashable, ...]]:
        """Per layer its statements and its choices, the same for layers that are the same."""
        sites: dict[str, list[Hashable]] = {}
        for layer, local in self._remembered.each(_within_layer, self.plan.sites):
            if layer:
                sites.setdefault(layer, []).append(local)
        return {
            layer: (self.statements.get(layer, b""), tuple(sites.get(layer, ())))
            for layer in {*self.statements, *sites} - {""}
        }

    @cached_property
    def outside(self) -> bytes:
        """The statements that are in no layer, as far as they are the program's own."""
        graph = self.plan.graph
        free = np.asarray([not layer for layer in self._layer_of_origin], np.bool_)
        return self._told_apart[free[graph.statements.origin] & (graph.statements.origin >= 0)].tobytes()

    @cached_property
    def order(self) -> dict[str, tuple[str, ...]]:
        """The layers that follow each other, by what their paths begin with."""
        found: dict[str, list[str]] = {}
        for layer in self.contents:
            found.setdefault(_stem(layer), []).append(layer)
        return {stem: tuple(sorted(layers, key=_number)) for stem, layers in found.items()}

    def around(self, layer: str) -> tuple[Hashable, ...] | None:
        """What is in a layer and on both sides of it; None where nothing is known of that layer."""
        layers = self.order.get(_stem(layer), ())
        if layer not in layers:
            return None
        at = layers.index(layer)
        before, after = layers[max(at - 1, 0) : at], layers[at + 1 : at + 2]
        beside = [self.contents[one[0]] if one else self.outside for one in (before, after)]
        return (beside[0], self.contents[layer], beside[1])

    def differing(self, then: Layers) -> set[str]:
        """The layers whose statements are others in another plan."""
        return {layer for layer, made in self.statements.items() if layer and then.statements.get(layer) != made}

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


class Alike:
    """Remembers what choices did in their layers, and says what the same come to in others like them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[Hashable, Change] = {}
        self._layers: list[Layers] = []
        self._remembered = Remembered()

    def prepare(self, plan: Plan | Sketch) -> None:
        """Look through a plan while nobody waits for it, so that what is estimated on top of it takes less time."""
        if _fuses(plan):
            with self._lock:
                layers = self._look(plan)
                _ = layers.contents, layers.alive

    def knows(self, plan: Plan, choices: Mapping[str, str]) -> bool:
        """Whether it is remembered what one choice did in a layer like the one that it is made in."""
        with self._lock:
            key = self._key(plan, choices)
            return key is not None and key in self._known

    def learn(self, before: Plan | Sketch, after: Plan | Sketch, choices: Mapping[str, str]) -> Change | None:
        """Remember what one choice did, and give it.

        Parameters
        ----------
        before, after : Plan or Sketch
            They differ in `choices` and what came of them.
        choices : mapping of str to str
            Of more than one site nothing is learned, nor outside of layers, nor where nothing is fused.
        """
        with self._lock:
            key = self._key(before, choices)
            if key is None:
                return None
            now, then = self._look(before), self._look(after)
            moved = {place: then.alive.get(place, 0) - now.alive.get(place, 0) for place in {*now.alive, *then.alive}}
            layer = _layer_of(before, choices)
            layers = now.order[_stem(layer)]
            inside = {
                side: np.asarray([moved.pop((side, one), 0) for one in layers], np.int64)
                for side in (FORWARD, BACKWARD)
            }
            saved_bytes = after.saved_bytes - before.saved_bytes
            if len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            at, differing = layers.index(layer), now.differing(then)
            apart, near = differing <= {layer}, differing <= set(layers[max(at - 1, 0) : at + 2])
            change = self._known[key] = Change(layer, at, saved_bytes, inside, moved, apart, near)
            return change

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
            if not self._known or not plan.census.count or not choices:
                return None
            by_layer = {_layer_of(plan, {id: option}): (id, option) for id, option in choices.items()}
            of_kind = {
                (_stem(layer), local(id, layer), site.choice if site else None, local(option, layer))
                for layer, (id, option) in by_layer.items()
                for site in (plan.site_of.get(id),)
            }
            # Several in one layer, and different ones, may have to do with each other.
            if len(by_layer) != len(choices) or len(of_kind) != 1:
                return None
            found = {
                layer: self._known.get(key) if (key := self._key(plan, {id: option})) is not None else None
                for layer, (id, option) in by_layer.items()
            }
            known = {layer: change for layer, change in found.items() if change is not None}
            supposed = len(found) - len(known)
            if not known or _FEW * supposed > len(known):
                return None
            # What reaches further may do so all the way to the first layer, which is as far as it is from here.
            if not all(change.apart or (change.near and len(choices) == 1) for change in known.values()):
                return None
            like = next(iter(known.values()))
            changes = {layer: change or like for layer, change in found.items()}
            most = max(self._moved_to(plan, changes).values())
            peak_bytes = max(most, plan.timeline.baseline_bytes) - plan.peak_bytes
            saved_bytes = sum(change.saved_bytes for change in changes.values())
            # Where nothing moves in the others, those that are taken to be like them decide.
            if supposed and not (peak_bytes and saved_bytes):
                return None
            return Estimate(peak_bytes, saved_bytes, like.layer, len(changes), supposed)

    def _moved_to(self, plan: Plan, changes: Mapping[str, Change]) -> dict[_Place, int]:
        """The most that is alive at each place of a plan once changes are made in its layers."""
        looked = self._look(plan)
        alive = dict(looked.alive)
        layers = looked.order[_stem(next(iter(changes)))]
        inside = {(side, layer) for side in (FORWARD, BACKWARD) for layer in layers}
        every = np.arange(len(layers))
        by_change: dict[int, tuple[Change, list[int]]] = {}
        for layer, change in changes.items():
            by_change.setdefault(id(change), (change, []))[1].append(layers.index(layer))
        for change, chosen in by_change.values():
            for place in alive.keys() - inside:
                alive[place] += len(chosen) * change.moved.get(place, 0)
            for side in (FORWARD, BACKWARD):
                moved = sum(change.moved_in(side, every, of, len(layers)) for of in chosen)
                for layer, by in zip(layers, np.asarray(moved).tolist(), strict=True):
                    if (side, layer) in alive:
                        alive[side, layer] += by
        return alive

    def _look(self, plan: Plan | Sketch) -> Layers:
        """A plan's layers; those of the last few plans are kept."""
        found = next((layers for layers in self._layers if layers.plan is plan), None)
        found = found or Layers(plan, self._numbers, self._remembered)
        # What was asked for last is kept longest.
        self._layers = [*(layers for layers in self._layers if layers is not found), found][-_PLANS:]
        return found

    def _key(self, plan: Plan | Sketch, choices: Mapping[str, str]) -> Hashable | None:
        """All that says what a choice in a layer comes to; None where it is in none, or there are several."""
        if len(choices) != 1 or not _fuses(plan):
            return None
        ((id, option),) = choices.items()
        site, layer = plan.site_of.get(id), _layer_of(plan, choices)
        if site is None or not layer:
            return None
        layers = self._look(plan)
        around = layers.around(layer)
        if around is None:
            return None
        return (_stem(layer), local(id, layer), site.choice, local(option, layer), around, layers.settings)


def _fuses(plan: Plan | Sketch) -> bool:
    return bool((plan.graph.statements.kind == Kind.FUSION).any())


def _within_layer(site: Site) -> tuple[str, Hashable]:
    """The layer of a site, empty for none, and all that tells it from others but which layer it is."""
    layer = _layer(site)
    return layer, (local(site.id, layer), site.choice, local(site.outcome, layer), site.bytes) if layer else ()


def _kinds(
    shapes: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...], numbers: dict[Hashable, int]
) -> NDArray[np.int64]:
    """Per value what tells it from others but its name; at last -1, for none."""
    kinds = list(zip(shapes, dtypes, strict=True))
    tensors = {kind: numbers.setdefault(kind, len(numbers)) for kind in set(kinds)}
    return np.append(np.asarray([tensors[kind] for kind in kinds], np.int64), -1)


def _rows(graph: Graph, numbers: dict[Hashable, int], remembered: Remembered) -> NDArray[np.int64]:
    """Per statement all that tells it from others but the names of values, as numbers."""
    statements, values = graph.statements, graph.values

    def number(of: Hashable) -> int:
        return numbers.setdefault(of, len(numbers))

    each, which = statements.names
    names = np.asarray([number(_DIGITS.sub("#", name)) for name in each], np.int64)[which]
    executors = {name: number(name) for name in set(statements.executor)}
    lines = [number((origin.symbol, origin.file, origin.line)) for origin in graph.origins]
    of_value = remembered.of(_kinds, values.shape, values.dtype, numbers)
    starts = statements.outputs.offsets
    made = np.diff(starts)
    first = np.where(made > 0, np.append(statements.outputs.items, -1)[starts[:-1]], -1)
    parent = statements.parent
    columns = (
        names,
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


def _layer_of(plan: Plan | Sketch, choices: Mapping[str, str]) -> str:
    """The layer of the first choice's site; empty for none."""
    site = plan.site_of.get(next(iter(choices)))
    return _layer(site) if site is not None else ""


def _layer(site: Site) -> str:
    """The layer that a site is in; empty for none."""
    return layer_in(site.id)


@functools.lru_cache(maxsize=1 << 15)
def layer_in(id: str) -> str:
    """The layer that a site is in, by its id; empty for none."""
    return layer_of(id.partition(":")[2].partition("/")[0])


@functools.lru_cache(maxsize=1 << 15)
def local(text: str, layer: str) -> str:
    """An id, or a choice that names a place, within its layer."""
    return text.replace(f"{layer}.", "#.").replace(f"{layer}/", "#/")


def _stem(layer: str) -> str:
    return layer[: len(layer) - len(str(_number(layer)))] if layer_of(layer) == layer and layer else layer


def _number(layer: str) -> int:
    return int(layer.rpartition(".")[2])
