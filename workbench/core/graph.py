"""The graph: a program's statements, values and storages as plain data, which can be written and read as JSON.

A `Graph` contains no object of Thunder. Its statements are in the order in which they run, first the forward and then
the backward. A fusion is a statement. The members of the fusion follow it; their `parent` is the index of the fusion.
Columns are NumPy arrays. A column with several items in each row is a `Ragged`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum, IntFlag
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT_VERSION = 1
"""Version of the JSON format. It increases when a reader of the old format would read a new file wrongly."""

FORWARD, BACKWARD = 0, 1


class Kind(IntEnum):
    """Kind of a statement. Statements that the workbench treats alike have the same kind."""

    OP = 0
    FUSION = 1
    ARGUMENT = 2
    GET_GRAD = 3
    COPY = 4
    COLLECTIVE = 5
    WAIT = 6
    RETURN = 7
    OFFLOAD = 8
    RELOAD = 9
    FENCE = 10


class StatementFlag(IntFlag):
    """Properties of a statement that determine which options are legal."""

    NONE = 0
    RANDOM = 1
    """Draws random numbers itself, or in a subsymbol."""
    REDUCTION = 2
    MATMUL = 4
    VIEW = 8
    """Every output shares the storage of an input."""
    INPLACE = 16
    """Writes into one of its inputs."""
    CLONE = 32
    """Recomputed in the backward because of a choice."""


class ValueFlag(IntFlag):
    """Properties of a value."""

    NONE = 0
    ARGUMENT = 1
    """A parameter, buffer or input; it is alive before and after the step."""
    SAVED = 2
    """Passed from the forward to the backward."""
    OUTPUT = 4
    """Returned by the forward."""
    GRADIENT = 8
    """Returned by the backward."""
    REQUIRES_GRAD = 16
    COTANGENT = 32
    """The gradient of an output, which is an input of the backward."""
    TENSOR = 64


@dataclasses.dataclass(frozen=True)
class Origin:
    """A statement of the user's program as it was traced, before any pass.

    Attributes
    ----------
    id : str
        Scope, symbol, and a number if several statements have the same scope and symbol. The id is equal in all
        processes and for all batch sizes, and does not change if other lines are edited.
    scope : str
        Path of the module (``layers.0.mlp``), or name of the function if the program has no modules.
    symbol : str
        Thunder's name of the traced symbol, such as ``tanh``.
    file, line, text : str, int, str
        The user's source line: file name without its folder, line number (the first line is 1), and text.
    """

    id: str
    scope: str
    symbol: str
    file: str = ""
    line: int = 0
    text: str = ""


_LAYER = re.compile(r"^(.*?(?:^|\.)\d+)(?:\.|$)")


@functools.lru_cache(maxsize=1 << 16)
def layer_of(scope: str) -> str:
    """Return the layer to which a scope belongs, such as ``layers.0``; empty if it belongs to no layer."""
    match = _LAYER.match(scope)
    return match.group(1) if match else ""


@dataclasses.dataclass(frozen=True)
class Ragged:
    """Rows of different lengths: row ``i`` is ``items[offsets[i]:offsets[i + 1]]``."""

    offsets: NDArray[np.int32]
    items: NDArray[np.int32]

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Ragged:
        """Return a `Ragged` with these rows."""
        rows = list(rows)
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(list(map(len, rows)), out=offsets[1:])
        return cls(offsets, np.asarray(list(itertools.chain.from_iterable(rows)), np.int32))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int | np.integer[Any]) -> NDArray[np.int32]:
        return self.items[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        for row in range(len(self)):
            yield self[row]

    def lists(self) -> list[list[int]]:
        """Return each row as a list of Python integers."""
        offsets, items = self.offsets.tolist(), self.items.tolist()
        return [items[begin:end] for begin, end in itertools.pairwise(offsets)]

    def take_rows(self, rows: NDArray[np.intp]) -> Ragged:
        """Return a `Ragged` with only these rows, in this order."""
        lengths = np.diff(self.offsets)[rows]
        ends = np.cumsum(lengths)
        items = np.arange(len(lengths) and ends[-1]) + np.repeat(self.offsets[:-1][rows] - (ends - lengths), lengths)
        return Ragged(np.concatenate(([0], ends)).astype(np.int32), self.items[items])

    def pairs(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
        """Return two arrays for the items of some rows: the position of the item's row in `rows`, and the item."""
        taken = self.take_rows(rows)
        return np.repeat(np.arange(len(rows)), np.diff(taken.offsets)), taken.items


@dataclasses.dataclass(frozen=True)
class Statements:
    """Table of statements: one row for each, in program order.

    Attributes
    ----------
    name : tuple of str
        Name of the symbol that is executed, such as ``torch.tanh`` or ``nvFusion3``.
    executor : tuple of str
        Executor that runs the statement; empty for statements that Thunder handles itself.
    kind, side : int8
        `Kind`, and `FORWARD` or `BACKWARD`.
    parent : int32
        Index of the fusion of which the statement is a member; -1 if it is no member.
    origin : int32
        Index into `Graph.origins`; -1 if there is none. A backward statement has the origin of the statement that it
        differentiates.
    flags : int32
        `StatementFlag`.
    transient_bytes : int64
        Most bytes that the statement holds at once while it runs, besides its inputs and outputs.
    flops : int64
        Floating point operations.
    inputs, outputs : Ragged
        Values that the statement reads, and values that it makes.
    frees : Ragged
        Values whose last reference is deleted right after the statement.
    group : int32
        For a collective, index into `Graph.groups`; -1 for any other statement. By default, -1 for all statements.
    computes : tuple of str
        Text of the statement's computation, from `workbench.compiler.trace.canonical_text`. Equal texts give equal
        outputs on equal inputs. By default, all texts are empty, and nothing can be proven about the graph.
    """

    name: tuple[str, ...]
    executor: tuple[str, ...]
    kind: NDArray[np.int8]
    side: NDArray[np.int8]
    parent: NDArray[np.int32]
    origin: NDArray[np.int32]
    flags: NDArray[np.int32]
    transient_bytes: NDArray[np.int64]
    flops: NDArray[np.int64]
    inputs: Ragged
    outputs: Ragged
    frees: Ragged
    group: NDArray[np.int32] = dataclasses.field(default_factory=lambda: np.empty(0, np.int32))
    computes: tuple[str, ...] = dataclasses.field(default_factory=tuple)

    def __post_init__(self) -> None:
        if not len(self.group):
            object.__setattr__(self, "group", np.full(len(self.name), -1, np.int32))
        if not self.computes:
            object.__setattr__(self, "computes", ("",) * len(self.name))

    @cached_property
    def names(self) -> tuple[tuple[str, ...], NDArray[np.int32]]:
        """Return the different names, and for each statement the index of its name among them."""
        number = {name: place for place, name in enumerate(dict.fromkeys(self.name))}
        return tuple(number), np.fromiter(map(number.__getitem__, self.name), np.int32, len(self.name))

    def __len__(self) -> int:
        return len(self.name)


@dataclasses.dataclass(frozen=True)
class Values:
    """Table of values (Thunder's proxies): one row for each.

    Attributes
    ----------
    name : tuple of str
        Name of the proxy.
    shape : tuple of tuple of int
    dtype, device : tuple of str
        For example ``float32`` and ``cuda:0``; empty for values that are not tensors.
    storage : int32
        Index of the value's storage; -1 for a value without memory. A view has the storage of its base.
    producer : int32
        Index of the statement that makes the value; -1 if no statement does.
    bytes : int64
        Bytes of the elements. A view may have fewer bytes than its storage.
    flags : int32
        `ValueFlag`.
    """

    name: tuple[str, ...]
    shape: tuple[tuple[int, ...], ...]
    dtype: tuple[str, ...]
    device: tuple[str, ...]
    storage: NDArray[np.int32]
    producer: NDArray[np.int32]
    bytes: NDArray[np.int64]
    flags: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.name)


@dataclasses.dataclass(frozen=True)
class Storages:
    """Table of storages: one row for each.

    Attributes
    ----------
    bytes : int64
        Allocated bytes.
    root : int32
        Index of the first value in the storage.
    """

    bytes: NDArray[np.int64]
    root: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.bytes)


@dataclasses.dataclass(frozen=True)
class StepBoundary:
    """Inputs and outputs of forward and backward, as indices of values. -1 stands for an entry that is no value.

    Attributes
    ----------
    outputs : tuple of int
        Values that the forward returns.
    cotangents : tuple of int
        For each output, the gradient that the backward receives.
    given, received : tuple of int
        Values that the forward passes to the backward, and the values of the backward that receive them. Empty for a
        joint graph.
    gradients : tuple of int
        For each argument, the gradient that the backward returns.
    accumulated : tuple of int
        Gradients of leaves, in the order in which autograd accumulates them after the backward.
    copied_bytes : tuple of int
        For each gradient in `accumulated`, the bytes of autograd's copy; 0 if autograd keeps the tensor itself.
    copying_bytes : tuple of int
        For each gradient in `accumulated`, the most bytes allocated during the accumulation, including the copy. They
        may be more than the copy, because kernels that transpose need workspace.
    """

    outputs: tuple[int, ...] = ()
    cotangents: tuple[int, ...] = ()
    given: tuple[int, ...] = ()
    received: tuple[int, ...] = ()
    gradients: tuple[int, ...] = ()
    accumulated: tuple[int, ...] = ()
    copied_bytes: tuple[int, ...] = ()
    copying_bytes: tuple[int, ...] = ()


@functools.lru_cache(maxsize=8)
def index_of_names(names: tuple[str, ...]) -> dict[str, int]:
    """Return a map from each name to its index. Graphs with the same names, such as reordered graphs, share the map."""
    return {name: index for index, name in enumerate(names)}


@dataclasses.dataclass(frozen=True)
class Graph:
    """A program as tables: the forward, and then the backward if there is one.

    Attributes
    ----------
    stage : str
        Which traces the tables contain, such as ``joint`` or ``execution``.
    statements, values, storages
        The tables.
    origins : tuple of Origin
        The user's statements, in program order.
    groups : tuple of int
        Number of ranks in each process group that a collective uses, in the order in which statements name the groups.
    ends : StepBoundary
        Inputs and outputs of forward and backward. By default it is empty, and nothing can be proven about the graph.
    layer_differences : mapping of str to str
        Maps the path of a layer that differs from the layer before it to the difference; see
        `workbench.compiler.layers.partition.LayerPartition`.
    """

    stage: str
    statements: Statements
    values: Values
    storages: Storages
    origins: tuple[Origin, ...] = ()
    groups: tuple[int, ...] = ()
    ends: StepBoundary = StepBoundary()
    layer_differences: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        forward = self.first_backward
        backward = len(self.statements) - forward
        return (
            f"{self.stage} graph: {forward} forward and {backward} backward statements, {len(self.values)} values "
            f"on {len(self.storages)} storages, {len(self.saved())} saved"
        )

    @cached_property
    def value_index(self) -> dict[str, int]:
        """Return a map from the name of a value to its index."""
        return index_of_names(self.values.name)

    @cached_property
    def consumers(self) -> Ragged:
        """For each value, the statements that read it, without members of fusions."""
        inputs = self.statements.inputs
        row = np.repeat(np.arange(len(inputs)), np.diff(inputs.offsets))
        top = self.statements.parent[row] < 0
        # Each pair of a value and a reader as one number, sorted and without repetitions.
        pairs = np.unique(inputs.items[top].astype(np.int64) * len(inputs) + row[top])
        counts = np.bincount(pairs // max(len(inputs), 1), minlength=len(self.values))
        offsets = np.concatenate(([0], np.cumsum(counts)))
        return Ragged(offsets.astype(np.int32), (pairs % max(len(inputs), 1)).astype(np.int32))

    @property
    def first_backward(self) -> int:
        """Index of the first backward statement; the number of statements if there is none."""
        backward = np.flatnonzero(self.statements.side == BACKWARD)
        return int(backward[0]) if len(backward) else len(self.statements)

    def saved(self) -> NDArray[np.int32]:
        """Return the indices of the values that the forward passes to the backward."""
        return np.flatnonzero(self.values.flags & ValueFlag.SAVED).astype(np.int32)

    def saved_storages(self, *, arguments: bool = False) -> NDArray[np.int32]:
        """Return the storages that are held for the backward.

        Storages of arguments, which are held anyway, are included only if `arguments` is true.
        """
        saved = self.saved()
        storages = np.unique(self.values.storage[saved])
        storages = storages[storages >= 0]
        if not arguments:
            held = np.unique(self.values.storage[(self.values.flags & ValueFlag.ARGUMENT) != 0])
            storages = np.setdiff1d(storages, held)
        return storages.astype(np.int32)

    @cached_property
    def saved_bytes(self) -> int:
        """Bytes held for the backward. Each storage counts once; arguments do not count."""
        return int(self.storages.bytes[self.saved_storages()].sum())

    def to_json(self) -> str:
        """Return the graph as a JSON text, which `from_json` can read."""
        return json.dumps(
            {
                "format_version": FORMAT_VERSION,
                "stage": self.stage,
                "statements": _columns(self.statements),
                "values": _columns(self.values),
                "storages": _columns(self.storages),
                "origins": [dataclasses.asdict(origin) for origin in self.origins],
                "groups": list(self.groups),
                "ends": dataclasses.asdict(self.ends),
                "layer_differences": dict(self.layer_differences),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Graph:
        """Return the graph in a text of `to_json`.

        Raises
        ------
        ValueError
            If the text is not a graph, or if its format has a different version.
        """
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("format_version") != FORMAT_VERSION:
            given = data.get("format_version") if isinstance(data, dict) else type(data).__name__
            raise ValueError(f"not a graph of format version {FORMAT_VERSION}: found {given!r}")
        return cls(
            stage=data["stage"],
            statements=_table(Statements, data["statements"]),
            values=_table(Values, data["values"]),
            storages=_table(Storages, data["storages"]),
            origins=tuple(Origin(**origin) for origin in data["origins"]),
            groups=tuple(data.get("groups", ())),
            ends=StepBoundary(**{name: tuple(values) for name, values in data.get("ends", {}).items()}),
            layer_differences=data.get("layer_differences", {}),
        )


_DTYPES = {
    "kind": np.int8,
    "side": np.int8,
    "transient_bytes": np.int64,
    "flops": np.int64,
    "bytes": np.int64,
}


def _columns(table: Any) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for field in dataclasses.fields(table):
        column = getattr(table, field.name)
        if isinstance(column, Ragged):
            columns[field.name] = {"offsets": column.offsets.tolist(), "items": column.items.tolist()}
        elif isinstance(column, np.ndarray):
            columns[field.name] = column.tolist()
        else:
            columns[field.name] = column
    return columns


def _table(cls: type[Any], columns: dict[str, Any]) -> Any:
    made: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.name not in columns and field.default_factory is not dataclasses.MISSING:
            # Accept files that were written before this column existed.
            continue
        column = columns[field.name]
        if isinstance(column, dict):
            made[field.name] = Ragged(np.asarray(column["offsets"], np.int32), np.asarray(column["items"], np.int32))
        elif field.name == "shape":
            made[field.name] = tuple(tuple(shape) for shape in column)
        elif field.name in ("name", "executor", "dtype", "device", "computes"):
            made[field.name] = tuple(column)
        else:
            made[field.name] = np.asarray(column, _DTYPES.get(field.name, np.int32))
    return cls(**made)
