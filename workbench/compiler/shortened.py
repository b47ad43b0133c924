"""A program of few of its layers, in which what a choice comes to is found in a fraction of the time.

Of a claimed joint trace layers in the middle are left out, forward and backward: the layer after them reads the one
before them, and that one's backward the backward of the layer after them. Only where all of these are one as the other,
so that each value is read in the place of one like it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from workbench.compiler.facts import FactsCache
from workbench.compiler.layers import MOST_IN_TURNS, OtherwiseError, like, returned
from workbench.compiler.names import origin_of
from workbench.compiler.stage import Stage
from workbench.compiler.thunder_api import BoundSymbolTag, PrimIDs, TraceCtx, from_trace, variableify
from workbench.graph import Origin, layer_of


@dataclasses.dataclass(frozen=True)
class Run:
    """Layers that follow each other, and which of them are kept.

    Attributes
    ----------
    stem : str
        What their paths begin with, such as ``layers.``.
    all : tuple of int
        Their numbers, in the order of the program.
    turns : int
        How many kinds of layers take turns.
    before, after : int
        How many are kept at the beginning and at the end.
    """

    stem: str
    all: tuple[int, ...]
    turns: int
    before: int
    after: int

    @property
    def kept(self) -> tuple[int, ...]:
        """The numbers of those that are kept."""
        return (*self.all[: self.before], *self.all[-self.after :])

    @property
    def left_out(self) -> int:
        """How often all kinds are left out."""
        return (len(self.all) - self.before - self.after) // self.turns

    def place(self, at: int) -> int:
        """Which of those kept stands between neighbours like those of another layer; both counted from 0."""
        if at <= self.turns:
            return at
        if at >= len(self.all) - 1 - self.turns:
            return at - len(self.all) + self.before + self.after
        return self.turns + 1 + (at - self.turns - 1) % self.turns


@dataclasses.dataclass(frozen=True)
class Shortened:
    """A program without layers in its middle, under the names and origins of the whole one.

    Attributes
    ----------
    stage : Stage
    runs : tuple of Run
        What is kept of each run of layers.
    """

    stage: Stage
    runs: tuple[Run, ...]


def shortened(stage: Stage, longer: str = "") -> Shortened | None:
    """A program without the layers in the middle of each run; None where none can be left out.

    Parameters
    ----------
    stage : Stage
    longer : str
        The stem of a run of which one more of each kind is kept.
    """
    trace, found = stage.claimed, list[Run]()
    for stem, numbers in _runs(stage.origins):
        layers = _Layers(trace, _places(trace, stage.origins, stem, numbers), len(numbers))
        for turns in range(1, MOST_IN_TURNS + 1):
            before = 2 * turns + 1
            after = 2 * turns + (len(numbers) - before) % turns
            if before + after + turns > len(numbers):
                break
            if not layers.alike(range(before - turns, len(numbers) - after), turns):
                continue
            before += turns * (stem == longer)
            try:
                trace = layers.without(before, len(numbers) - after)
            except OtherwiseError:
                break
            found.append(Run(stem, tuple(numbers), turns, before, after))
            break
    if not found:
        return None
    return Shortened(dataclasses.replace(stage, claimed=trace, program=None, cache=FactsCache()), tuple(found))


_UNKNOWN = -2
"""Of what is read first is not known yet."""


def _runs(origins: Sequence[Origin]) -> Iterator[tuple[str, list[int]]]:
    """What paths of layers begin with, and the numbers of the layers, in the order of the program."""
    found: dict[str, dict[int, None]] = {}
    for layer in dict.fromkeys(layer_of(origin.scope) for origin in origins):
        stem, _, number = layer.rpartition(".")
        if number:
            found.setdefault(f"{stem}." if stem else "", {})[int(number)] = None
    for stem, numbers in found.items():
        if all(one < other for one, other in pairwise(numbers)):
            yield stem, list(numbers)


def _places(trace: TraceCtx, origins: Sequence[Origin], stem: str, numbers: Sequence[int]) -> list[int]:
    """The place of each statement's layer among `numbers`; -1 for what is in none.

    What stands between two layers belongs to the one before it. What has no origin, as where gradients are summed up,
    belongs where the last of what it reads was made; what reads arguments alone, as where a shard of them is gathered,
    where it is read first.
    """
    place_of = {f"{stem}{number}": place for place, number in enumerate(numbers)}
    of_origin = [place_of.get(layer_of(origin.scope), -1) for origin in origins]
    ends = max((index for index, place in enumerate(of_origin) if place >= 0), default=-1)
    for index in range(1, ends):
        if of_origin[index] < 0:
            of_origin[index] = of_origin[index - 1]
    made: dict[str, int] = {}
    places: list[int] = []
    of_arguments: list[int] = []
    for row, bsym in enumerate(trace.bound_symbols):
        origin = origin_of(bsym)
        place = of_origin[origin] if origin >= 0 else -1
        if origin < 0 and not _gives(bsym):
            place = next((made[arg.name] for arg in reversed(bsym.flat_proxy_args) if arg.name in made), _UNKNOWN)
        if place == _UNKNOWN:
            of_arguments.append(row)
        elif bsym.sym.id is not PrimIDs.UNPACK_TRIVIAL:
            made.update((out.name, place) for out in bsym.flat_proxy_outs)
        places.append(place)
    if of_arguments:
        read_at = {
            arg.name: row
            for row, bsym in reversed(list(enumerate(trace.bound_symbols)))
            if not _gives(bsym)
            for arg in bsym.flat_proxy_args
        }
        for row in reversed(of_arguments):
            readers = [read_at[out.name] for out in trace.bound_symbols[row].flat_proxy_outs if out.name in read_at]
            places[row] = places[min(readers)] if readers else -1
    return places


class _Layers:
    """The layers of a joint trace, some of which are to be left out.

    Parameters
    ----------
    trace : TraceCtx
    places : sequence of int
        Of each statement, the place of its layer.
    count : int
        How many layers there are.
    """

    def __init__(self, trace: TraceCtx, places: Sequence[int], count: int) -> None:
        self._trace, self._places = trace, places
        self._statements: list[list[Any]] = [[] for _ in range(count)]
        for bsym, place in zip(trace.bound_symbols, places, strict=True):
            if place >= 0:
                self._statements[place].append(bsym)

    def alike(self, places: Iterable[int], turns: int) -> bool:
        """Whether each of some layers is as the one so many further on."""
        pairs = ((self._statements[at], self._statements[at + turns]) for at in places)
        return all(len(one) == len(other) and all(map(like, one, other)) for one, other in pairs)

    def without(self, begin: int, end: int) -> TraceCtx:
        """The trace without some layers.

        Parameters
        ----------
        begin, end : int
            The first that is left out, and the first after it that is not; both, and the one before each, are alike.

        Raises
        ------
        OtherwiseError
            If anything else reads what is left out.
        """
        statements = list(zip(self._trace.bound_symbols, self._places, strict=True))
        gone = [bsym for bsym, place in statements if begin <= place < end]
        stay = [bsym for bsym, place in statements if not begin <= place < end]
        lost = {value.name for bsym in gone for value in bsym.flat_proxy_outs}
        read = {arg.name for bsym in stay if not _gives(bsym) for arg in bsym.flat_proxy_args}
        private = {arg.name for bsym in gone for arg in bsym.flat_proxy_args} - lost - read
        private &= {
            value.name for bsym in stay if bsym.sym.id is PrimIDs.UNPACK_TRIVIAL for value in bsym.flat_proxy_outs
        }
        renamed = {
            variableify(old): new
            for one, other, backward in ((end - 1, begin - 1, False), (begin, end, True))
            for old, new in self._pairs(one, other, backward=backward)
        }
        left, away = from_trace(self._trace), lost | private
        for bsym in stay:
            if bsym.sym.id is PrimIDs.UNPACK_TRIVIAL and any(out.name in private for out in bsym.flat_proxy_outs):
                continue
            if bsym.sym.id is PrimIDs.RETURN:
                bsym = returned(bsym, private)
            elif any(arg.name in lost for arg in bsym.flat_proxy_args):
                bsym = bsym.from_bsym_swap_proxies(renamed)
            if any(arg.name in away for arg in bsym.flat_proxy_args):
                raise OtherwiseError
            left.bound_symbols.append(bsym)
        left.names = set(self._trace.names)
        left.args = tuple(arg for arg in self._trace.args if arg.name not in private)
        return left

    def _pairs(self, one: int, other: int, *, backward: bool) -> Iterator[tuple[Any, Any]]:
        """Values that two layers make, one by one, forward or backward."""
        for a, b in zip(self._statements[one], self._statements[other], strict=True):
            if (BoundSymbolTag.BACKWARD in a.tags or origin_of(a) < 0) == backward:
                yield from zip(a.flat_proxy_outs, b.flat_proxy_outs, strict=True)


def _gives(bsym: Any) -> bool:
    """Whether a statement gives an argument to the trace, or results and gradients from it."""
    return bsym.sym.id in (PrimIDs.UNPACK_TRIVIAL, PrimIDs.RETURN)
