"""Parse the texts of statements, and number terms, for value numbering.

A step is one line of a statement's text, and stands for one call. A term describes how a value was computed; see
`workbench.analysis.equivalence.prove`. A kind is the data type, shape and device of a value as text.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from workbench.core.graph import BlockKey, Graph, StatementFlag

# Actions: the effects that a step can have. `_action` finds the action of a step from its symbol.
PLAIN, COPY, FENCE, SHALLOW, CAST, SEND, WAIT, PACK, UNPACK, STORE, RELOAD, ARRIVE, DRAW, WRITES, MOVE = range(15)
_BY_NAME = {
    "copy_": COPY,
    "update_aliases": FENCE,
    "shallow_copy": SHALLOW,
    "to": CAST,
    "convert_element_type": CAST,
    "wait": WAIT,
    "torch_wait_prim_impl": WAIT,
}
_BY_PREFIX = (
    ("offload_", STORE),
    ("reloaded_", ARRIVE),
    ("reload_", RELOAD),
    ("bucket_pack", PACK),
    ("bucket_unpack", UNPACK),
)
_MAKING = frozenset((PLAIN, FENCE, SHALLOW, CAST, PACK, UNPACK, STORE, RELOAD, ARRIVE, DRAW, MOVE))
"""Actions of steps that output new values and write to no existing memory."""
_SENDING = ("all_gather", "all_reduce", "reduce_scatter", "broadcast_prim", "all_to_all")
_DRAWING = frozenset(
    (
        *("uniform", "bernoulli", "rand", "randn", "randint", "randperm", "normal", "multinomial", "exponential"),
        *("dropout", "get_and_update_rng_state"),
    )
)
_FLOAT_BITS = {
    # Number of exponent bits, and number of fraction bits.
    "float16": (5, 10),
    "bfloat16": (8, 7),
    "float32": (8, 23),
    "float64": (11, 52),
}


def _action(symbol: str) -> int:
    if symbol in _BY_NAME:
        return _BY_NAME[symbol]
    for prefix, action in _BY_PREFIX:
        if symbol.rpartition(".")[2].startswith(prefix):
            return action
    if any(word in symbol for word in _SENDING):
        return SEND
    if symbol in _DRAWING:
        return DRAW
    # By PyTorch's naming convention, an operator with a final underscore writes into its first argument.
    return WRITES if symbol.endswith("_") and not symbol.endswith("__") else PLAIN


def may_write_memory(symbol: str) -> bool:
    """Return whether an operator with this name may write memory that it has not allocated itself."""
    return _action(symbol) not in _MAKING


UNTOLD = 1 << 20
"""Flag of a statement that writes in place although no step of its text is known to write."""


class ParsedLine:
    """One step: a parsed line of a statement's text; see `workbench.compiler.trace.canonical_text`."""

    __slots__ = ("action", "call", "made", "moves", "operands", "shares", "symbol")

    def __init__(self, line: str) -> None:
        self.call, operands, shares, made, *moves = line.split("\t")
        self.symbol = self.call.partition("(")[0]
        self.moves = tuple(map(Move.parse, moves[0].split())) if moves else ()
        self.action = MOVE if self.moves else _action(self.symbol)
        self.operands = tuple(_ref(text) for text in operands.split())
        self.shares = tuple(_share(text) for text in shares.split())
        self.made = tuple(made.split())


@dataclasses.dataclass(frozen=True)
class Move:
    """A selection of elements of a source tensor by shape, strides and offset, as for a view.

    Attributes
    ----------
    taken, shape, strides : tuple of int
        Shape of the source, shape of the result, and strides of the result. A stride is the distance, in elements of
        the source, between neighbours in the result. Positions are counted as if the source were contiguous. The stride
        of a dimension of length one is 0.
    offset : int
        Position in the source of the first element of the result.
    """

    taken: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, base_shape: tuple[int, ...], shape: tuple[int, ...], strides: Sequence[int], offset: int) -> Move:
        """Return the canonical move. Moves that take the same elements in the same order have equal canonical moves."""
        if not all(shape):
            return cls(base_shape, shape, (0,) * len(shape), 0)
        steps = tuple(stride if length > 1 else 0 for length, stride in zip(shape, strides, strict=True))
        return cls(base_shape, shape, steps, offset)

    @classmethod
    def parse(cls, text: str) -> Move:
        """Return the move of one output, from a line's fifth field; see `workbench.compiler.trace.canonical_text`."""
        taken, shape, strides, offset = (tuple(int(n) for n in each.split(",") if n) for each in text.split(";"))
        return cls.of(taken, shape, strides, offset[0])

    @property
    def is_identity(self) -> bool:
        """Return whether the move selects all elements of the source, in the same shape."""
        return self.taken == self.shape and self == Move.of(self.taken, self.shape, contiguous(self.shape), 0)

    @functools.lru_cache(maxsize=1 << 14)  # noqa: B019 - moves are few, and small
    def compose(self, next_move: Move) -> Move | None:
        """Return one move that selects the same elements as this move followed by `next_move`.

        Return None if the result cannot be described by strides.
        """
        if next_move.taken != self.shape:
            return None
        if not all(next_move.shape):
            return Move.of(self.taken, next_move.shape, next_move.strides, 0)
        dims = _merge_dims(self.shape, self.strides)
        places = [_digits(step, dims) for step in (*next_move.strides, next_move.offset)]
        reach = [*(length - 1 for length in next_move.shape), 1]
        for dim, (length, _) in enumerate(dims):
            # Steps along several dimensions of the result may all move along dimension `dim` of this move. Together
            # they must move by less than its length.
            if sum(place[dim] * times for place, times in zip(places, reach, strict=True)) >= length:
                return None
        *steps, first = [sum(n * stride for n, (_, stride) in zip(place, dims, strict=True)) for place in places]
        return Move.of(self.taken, next_move.shape, steps, self.offset + first)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    strides = [1]
    for length in reversed(shape[1:]):
        strides.insert(0, strides[0] * max(length, 1))
    return tuple(strides[: len(shape)])


def _merge_dims(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Merge dimensions where possible. Return the length and stride of each remaining dimension."""
    found: list[tuple[int, int]] = []
    for length, stride in zip(shape, strides, strict=True):
        if length == 1:
            continue
        if found and found[-1][1] == length * stride:
            found[-1] = (found[-1][0] * length, stride)
        else:
            found.append((length, stride))
    return found or [(1, 0)]


def _digits(position: int, dims: Sequence[tuple[int, int]]) -> list[int]:
    """Convert the position of an element to its index along each dimension. Positions are in row-major order."""
    found = []
    for length, _ in reversed(dims[1:]):
        position, digit = divmod(position, length)
        found.append(digit)
    return [position, *reversed(found)]


def _ref(text: str) -> tuple[int, int]:
    step, _, at = text.rpartition(".")
    return (int(step) if step else -1, int(at))


def _share(text: str) -> int:
    """Return the number of the operand whose memory an output shares.

    -1 means that the output has new memory. ``-2 - i`` means that it shares the memory of output i.
    """
    if text == "-":
        return -1
    return -2 - int(text[1:]) if text.startswith("~") else int(text)


class Terms:
    """A table that gives each term a number. Graphs can only be compared if they use the same table."""

    def __init__(self) -> None:
        self.ids: dict[Any, int] = {}
        self.structure: dict[int, tuple[Any, ...]] = {}
        """Maps the number of a term to its structure. It contains only terms that rewrite rules inspect."""
        self.blocks: WeakKeyDictionary[BlockKey, dict[Any, Any]] = WeakKeyDictionary()
        """For each block of rows, the results of value numbering, by the numbers of the block's inputs."""
        self._parsed: dict[str, tuple[tuple[ParsedLine, ...], tuple[tuple[int, int], ...]]] = {}

    def number(self, term: Any) -> int:
        """Return the number of a term; equal terms have equal numbers."""
        ids = self.ids
        found = ids.get(term)
        if found is None:
            found = ids[term] = len(ids)
        return found

    def steps(self, text: str) -> tuple[tuple[ParsedLine, ...], tuple[tuple[int, int], ...]]:
        """Return the steps of a statement's text, and the origin of each output of the statement.

        The origin is the number of the step that makes the output, and the number of the output in this step.
        """
        found = self._parsed.get(text)
        if found is None:
            *lines, last = text.split("\n")
            steps = tuple(ParsedLine(line) for line in lines)
            found = self._parsed[text] = (steps, tuple(_ref(ref) for ref in last[1:].split()))
        return found


def may_write(graph: Graph, terms: Terms) -> bool:
    """Return whether a statement of a graph may write memory that the statement has not allocated itself.

    If the answer is not known, return True.
    """
    if (graph.statements.flags & StatementFlag.INPLACE).any():
        return True
    texts = set(graph.statements.computes) - {""}
    return any(_step_may_write(step) for text in texts for step in terms.steps(text)[0])


def _step_may_write(step: ParsedLine) -> bool:
    if step.action == SEND:
        return any(share != -1 for share in step.shares)
    # A wait only writes into memory that the collective has written.
    return step.action not in _MAKING and step.action != WAIT


def kind_of(graph: Graph, value: int) -> str:
    """Return data type, shape and device of a value as text, as in the texts of statements."""
    values = graph.values
    shape = ",".join(map(str, values.shape[value]))
    return f"{values.dtype[value]}[{shape}]@{values.device[value]}"


def _parts(kind: str) -> tuple[str, tuple[int, ...], str]:
    """Return the data type, shape and device in a text of `kind_of`."""
    dtype, _, rest = kind.partition("[")
    shape, _, device = rest.partition("]@")
    return dtype, tuple(int(length) for length in shape.split(",") if length), device


def is_float(kind: str) -> bool:
    """Return whether a text of `kind_of` has a floating point type."""
    return kind.partition("[")[0] in _FLOAT_BITS


def is_wider(wide: str, narrow: str) -> bool:
    """Return whether the floating point type in `wide` contains every number of the type in `narrow`."""
    one, other = _FLOAT_BITS[wide.partition("[")[0]], _FLOAT_BITS.get(narrow.partition("[")[0])
    return other is not None and one[0] >= other[0] and one[1] >= other[1]


def in_place(step: ParsedLine) -> tuple[str, bool]:
    """Return a collective's call as text, and whether it is an all-reduce that overwrites its operand.

    The argument that requests overwriting is removed. The call then equals the call of an all-reduce that allocates its
    result.
    """
    found = re.fullmatch(r"(.*all_reduce.*), (True|False)\)", step.call)
    return (step.call, False) if found is None else (f"{found[1]})", found[2] == "True")


def equals_parts(call: str, scattered: bool, gathered: bool, kinds: Sequence[str], output_kinds: Sequence[str]) -> bool:
    """Return whether one collective on a buffer of tensors has the same results as one collective for each tensor.

    Parameters
    ----------
    call : str
        Call of the collective.
    scattered, gathered : bool
        Whether the tensors are packed for a reduce-scatter, and whether they are unpacked from an all-gather.
    kinds, output_kinds : sequence of str
        Result of `kind_of` for each packed tensor, and for each unpacked result.
    """
    if len(kinds) != len(output_kinds) or len({_parts(kind)[::2] for kind in (*kinds, *output_kinds)}) != 1:
        return False
    gathers, reduces, scatters = ("all_gather" in call, "all_reduce" in call, "reduce_scatter" in call)
    if (gathers, scatters) != (gathered, scattered) or not (gathers or reduces or scatters):
        return False
    ranks = set()
    for part, whole in zip(kinds, output_kinds, strict=True):
        (_, sent, _), (_, got, _) = _parts(part), _parts(whole)
        if reduces and sent != got:
            return False
        if not reduces:
            small, large = (sent, got) if gathers else (got, sent)
            if small[1:] != large[1:] or not small or large[0] % max(small[0], 1):
                return False
            ranks.add(large[0] // max(small[0], 1))
    return len(ranks) <= 1 and all(math.prod(_parts(kind)[1]) for kind in kinds)
