"""A program of few of its layers, in which what a choice comes to is found in a fraction of the time.

Of a claimed joint trace layers in the middle are left out, forward and backward: the layer after them reads the one
before them, and that one's backward the backward of the layer after them. Only where the layers at both ends of the gap
are one as the other, so that each value is read in the place of one like it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from workbench.compiler.layers import MOST_IN_TURNS, OtherwiseError, like
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
        for turns in range(1, MOST_IN_TURNS + 1):
            before = 2 * turns + 1
            after = 2 * turns + (len(numbers) - before) % turns
            before += turns * (stem == longer)
            if before + after >= len(numbers):
                break
            try:
                trace = _Gap(trace, _places(trace, stage.origins, stem, numbers), before, len(numbers) - after).left()
            except OtherwiseError:
                continue
            found.append(Run(stem, tuple(numbers), turns, before, after))
            break
    if not found:
        return None
    return Shortened(
        Stage(
            executor=stage.executor,
            origins=stage.origins,
            joint=stage.joint,
            claimed=trace,
            has_backward=stage.has_backward,
            arguments=stage.arguments,
            unread=stage.unread,
            gathers_again=stage.gathers_again,
        ),
        tuple(found),
    )


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
    belongs where the last of what it reads was made.
    """
    place_of = {f"{stem}{number}": place for place, number in enumerate(numbers)}
    of_origin = [place_of.get(layer_of(origin.scope), -1) for origin in origins]
    ends = max((index for index, place in enumerate(of_origin) if place >= 0), default=-1)
    for index in range(1, ends):
        if of_origin[index] < 0:
            of_origin[index] = of_origin[index - 1]
    made: dict[str, int] = {}
    places: list[int] = []
    for bsym in trace.bound_symbols:
        origin = origin_of(bsym)
        if origin >= 0:
            place = of_origin[origin]
        elif bsym.sym.id is PrimIDs.RETURN:
            place = -1
        else:
            place = next((made[arg.name] for arg in reversed(bsym.flat_proxy_args) if arg.name in made), -1)
        if bsym.sym.id is not PrimIDs.UNPACK_TRIVIAL:
            made.update((out.name, place) for out in bsym.flat_proxy_outs)
        places.append(place)
    return places


class _Gap:
    """Layers to be left out of a joint trace.

    Parameters
    ----------
    trace : TraceCtx
    places : sequence of int
        Of each statement, the place of its layer.
    begin, end : int
        The first place that is left out, and the first after it that is not.
    """

    def __init__(self, trace: TraceCtx, places: Sequence[int], begin: int, end: int) -> None:
        self._trace, self._places = trace, places
        gone = [begin <= place < end for place in places]
        statements = list(zip(trace.bound_symbols, gone, strict=True))
        self._left = [bsym for bsym, out in statements if not out]
        self._lost = {value.name for bsym, out in statements if out for value in bsym.flat_proxy_outs}
        read = {arg.name for bsym in self._left if not _gives(bsym) for arg in bsym.flat_proxy_args}
        self._private = {
            arg.name
            for bsym, out in statements
            if out
            for arg in bsym.flat_proxy_args
            if arg.name not in self._lost and arg.name not in read
        } - {value.name for bsym in self._left if not _gives(bsym) for value in bsym.flat_proxy_outs}
        self._renamed = {
            variableify(old): new
            for one, other, backward in ((end - 1, begin - 1, False), (begin, end, True))
            for old, new in self._pairs(one, other, backward=backward)
        }

    def _pairs(self, one: int, other: int, *, backward: bool) -> Iterator[tuple[Any, Any]]:
        """Values that two layers make, one by one, forward or backward.

        Raises
        ------
        OtherwiseError
            If they are not alike.
        """
        here, there = (
            [bsym for bsym, place in zip(self._trace.bound_symbols, self._places, strict=True) if place == at]
            for at in (one, other)
        )
        if len(here) != len(there) or not all(map(like, here, there)):
            raise OtherwiseError
        for a, b in zip(here, there, strict=True):
            if (BoundSymbolTag.BACKWARD in a.tags or origin_of(a) < 0) == backward:
                yield from zip(a.flat_proxy_outs, b.flat_proxy_outs, strict=True)

    def left(self) -> TraceCtx:
        """The trace without them.

        Raises
        ------
        OtherwiseError
            If anything else reads what is left out.
        """
        left, away = from_trace(self._trace), self._lost | self._private
        for bsym in self._left:
            if bsym.sym.id is PrimIDs.UNPACK_TRIVIAL:
                if any(out.name in self._private for out in bsym.flat_proxy_outs):
                    continue
            elif bsym.sym.id is PrimIDs.RETURN:
                bsym = self._returned(bsym)
            elif any(arg.name in self._lost for arg in bsym.flat_proxy_args):
                bsym = bsym.from_bsym_swap_proxies(self._renamed)
            if any(arg.name in away for arg in bsym.flat_proxy_args):
                raise OtherwiseError
            left.bound_symbols.append(bsym)
        left.names = set(self._trace.names)
        left.args = tuple(arg for arg in self._trace.args if arg.name not in self._private)
        return left

    def _returned(self, bsym: Any) -> Any:
        """What returns, less the arguments that are gone and their gradients.

        Raises
        ------
        OtherwiseError
            If it is not written as Thunder writes it.
        """
        if len(bsym.args) != 1 or not isinstance(bsym.args[0], dict) or "flat_args" not in bsym.args[0]:
            raise OtherwiseError
        given = bsym.args[0]
        stay = [getattr(arg, "name", None) not in self._private for arg in given["flat_args"]]
        returned = dict(given)
        returned["flat_args"] = [arg for arg, here in zip(given["flat_args"], stay, strict=True) if here]
        if "fw_flat_out" in given:
            returned["output"] = tuple(each for each, here in zip(given["output"], stay, strict=True) if here)
        return bsym.from_bsym(args=(returned,))


def _gives(bsym: Any) -> bool:
    """Whether a statement gives an argument to the trace, or results and gradients from it."""
    return bsym.sym.id in (PrimIDs.UNPACK_TRIVIAL, PrimIDs.RETURN)
