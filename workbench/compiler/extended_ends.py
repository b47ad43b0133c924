"""What goes into both halves of a program and comes out of them, written on from few of its layers to all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from workbench.compiler.accumulate import accumulation_order
from workbench.compiler.chains import Rows
from workbench.compiler.layers import OtherwiseError
from workbench.compiler.unfolded import Unfolder
from workbench.graph import BACKWARD, Ends, Graph, ValueFlag


class EndsOfAll:
    """The ends of few layers, written on.

    Parameters
    ----------
    few : Graph
        Of the program without the layers that are left out.
    unfolder : Unfolder
    tensors : mapping of str to Tensor
        Arguments of the whole program.
    home : array
        The layer that makes each value of the few.
    made : mapping of int to int
        What the layer before the gap makes, and what the one after it does.
    place : array
        The value of the whole program for each key; see `extended.py`.
    """

    def __init__(
        self,
        few: Graph,
        unfolder: Unfolder,
        tensors: Mapping[str, torch.Tensor],
        home: Rows,
        made: Mapping[int, int],
        place: Rows,
    ) -> None:
        self._few, self._unfolder, self._tensors = few, unfolder, tensors
        self._home, self._made, self._place = home, made, place

    def _key(self, value: int, further: int) -> int:
        return value * (self._unfolder.gap + 1) + further

    def of(self, graph: Graph) -> Ends:
        """What goes into both halves of the whole program, and comes out of them."""
        few, gap = self._few.ends, self._unfolder.gap
        mine = self._made.keys()

        def own(values: Sequence[int]) -> tuple[int, ...]:
            return tuple(int(self._place[self._key(v, 0)]) if v >= 0 else -1 for v in values)

        if few.given != few.received or few.given != _read_first(self._few, few.given):
            raise OtherwiseError
        handed = [int(self._place[self._key(v, s)]) for v in few.given for s in range(gap + 1 if v in mine else 1)]
        gradients, accumulated = self._gradients()
        return dataclasses.replace(
            few,
            outputs=own(few.outputs),
            cotangents=own(few.cotangents),
            given=(given := _read_first(graph, handed)),
            received=given,
            gradients=gradients,
            **accumulated,
        )

    def _gradients_of(self, given: Mapping[str, int]) -> dict[str, int]:
        """The key of the gradient of each argument: its layer makes it, or the one before, or the one after.

        Raises
        ------
        OtherwiseError
            If it is not the same one in all layers.
        """
        unfolder, made, home, gap = self._unfolder, self._made, self._home, self._unfolder.gap
        (one, other), private = unfolder.ends, unfolder.private
        found = {name: self._key(gradient, 0) if gradient >= 0 else -1 for name, gradient in given.items()}
        around = {name for names in private[one - 1 : other + 2] for name in names}
        if any(g >= 0 and home[g] in (one, other) for name, g in given.items() if name not in around):
            raise OtherwiseError
        back = {y: x for x, y in made.items()}
        between = zip(*unfolder.private_between, strict=True)
        for before, here, there, names in zip(*private[one - 1 : other + 1], between, strict=True):
            mine, theirs = given[here], given[there]
            if mine < 0 and theirs < 0:
                keys = [-1] * gap
            elif made.get(mine) == theirs:
                keys = [self._key(mine, at) for at in range(1, gap + 1)]
            elif mine in back and given[before] == back[mine] and home[theirs] == other + 1:
                keys = [*(self._key(back[mine], at) for at in range(2, gap + 1)), self._key(mine, 0)]
                found[here] = self._key(back[mine], 1)
            elif theirs in made and home[mine] == one - 1:
                keys = [self._key(theirs, at) for at in range(gap)]
                found[there] = self._key(theirs, gap)
            else:
                raise OtherwiseError
            found.update(zip(names, keys, strict=True))
        return found

    def _gradients(self) -> tuple[tuple[int, ...], dict[str, tuple[int, ...]]]:
        """The gradient of each argument, and the columns of `Ends` about those that autograd accumulates."""
        ends, storage = self._few.ends, self._few.values.storage
        whole, few = self._unfolder.differentiated
        if not ends.gradients:
            return (), {}
        given = dict(zip(few, ends.gradients, strict=True))

        def leaves(names: Sequence[str], gradients: Sequence[int]) -> list[int]:
            found = [
                gradient
                for name, gradient in zip(names, gradients, strict=True)
                if gradient >= 0 and (name not in self._tensors or self._tensors[name].is_leaf)
            ]
            return [found[at] for at in accumulation_order(len(found))]

        if tuple(leaves(few, ends.gradients)) != ends.accumulated:
            raise OtherwiseError
        # Of two that are one tensor, autograd takes the last: which that is depends on how many there are.
        if len({int(storage[gradient]) for gradient in ends.accumulated}) != len(ends.accumulated):
            raise OtherwiseError
        cost = dict(zip(ends.accumulated, zip(ends.copied_bytes, ends.copying_bytes, strict=True), strict=True))
        key_of = self._gradients_of(given)
        keys = [key_of[name] for name in whole]
        accumulated = leaves(whole, keys)
        costs = [cost[key // (self._unfolder.gap + 1)] for key in accumulated]
        return tuple(int(self._place[key]) if key >= 0 else -1 for key in keys), {
            "accumulated": tuple(int(self._place[key]) for key in accumulated),
            "copied_bytes": tuple(copied for copied, _ in costs),
            "copying_bytes": tuple(copying for _, copying in costs),
        }


def _read_first(graph: Graph, values: Sequence[int]) -> tuple[int, ...]:
    """Values in the order in which the backward reads them first, tensors before all else.

    Those that it does not read are left out.
    """
    statements, wanted = graph.statements, set(values)
    rows = np.flatnonzero((statements.parent < 0) & (statements.side == BACKWARD))
    found = dict.fromkeys(statements.inputs.taken(rows).items.tolist())
    tensor = (graph.values.flags & ValueFlag.TENSOR) != 0
    return tuple(sorted((value for value in found if value in wanted), key=lambda value: not tensor[value]))
