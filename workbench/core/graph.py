"""`Graph`: the statements, values and storages of a program as tables. A graph can be written and read as JSON.

A `Graph` contains no objects of Thunder. Its statements are in the order in which they run: first those of the forward,
then those of the backward. Forward and backward are the two sides of a graph. A fusion is a statement. Its members are
statements, too, in the rows right after the fusion; their `parent` is the row of the fusion. Columns of numbers are
NumPy arrays. A column with several numbers in each row is a `Ragged`.
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
"""Version of the JSON format. Increase it if a reader of the old format would misread a new file."""

FORWARD, BACKWARD = 0, 1


class Kind(IntEnum):
    """Kind of a statement, which determines how the workbench analyzes and shows the statement."""

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
    """Properties of a statement."""

    NONE = 0
    RANDOM = 1
    """The statement or one of its subsymbols draws random numbers."""
    REDUCTION = 2
    MATMUL = 4
    VIEW = 8
    """Each output shares the storage of an input, and the statement writes nothing."""
    INPLACE = 16
    """The statement writes into one of its inputs."""
    CLONE = 32
    """The statement runs a statement of the forward again, in the backward."""
    UNMEASURED = 64
    """The statement runs on a CPU, and its kernel could not be measured: `transient_bytes` is a lower bound."""


class ValueFlag(IntFlag):
    """Properties of a value."""

    NONE = 0
    ARGUMENT = 1
    """The value is a parameter, buffer or input. It is alive before, during and after the step."""
    SAVED = 2
    """The forward passes the value to the backward."""
    OUTPUT = 4
    """The forward returns the value."""
    GRADIENT = 8
    """The backward returns the value."""
    REQUIRES_GRAD = 16
    COTANGENT = 32
    """The value is the gradient of an output. The backward receives it as an input."""
    TENSOR = 64


@dataclasses.dataclass(frozen=True)
class Origin:
    """A statement of the user's program as it was traced, before any pass.

    Attributes
    ----------
    id : str
        Scope and symbol. If several statements have the same scope and symbol, a number follows, in program order. The
        id is the same in all processes, for all batch sizes and for all line numbers.
    scope : str
        Path of the module (``layers.0.mlp``), or name of the function if the program has no modules.
    symbol : str
        Thunder's name of the traced symbol, such as ``tanh``.
    file, line, text : str, int, str
        The user's source line: name of the file without its folder, line number (starting at 1), and text of the line.
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
    """Return the outermost layer that contains a scope, such as ``layers.0``; empty if the scope is not in a layer."""
    match = _LAYER.match(scope)
    return match.group(1) if match else ""


@functools.lru_cache(maxsize=1 << 14)
def operator_name(symbol: str) -> str:
    """Return a statement's name without the prefixes and suffixes of Thunder's executors.

    Examples
    --------
    >>> operator_name("torch_div_prim_impl")
    'div'
    """
    return symbol.removeprefix("torch_").removeprefix("prims_").removesuffix("_impl").removesuffix("_prim") or symbol


@dataclasses.dataclass(frozen=True)
class Ragged:
    """Array whose rows have different lengths: row ``i`` is ``items[offsets[i]:offsets[i + 1]]``."""

    offsets: NDArray[np.int32]
    items: NDArray[np.int32]

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Ragged:
        """Return a `Ragged` with these rows."""
        rows = list(rows)
        return cls.joined(list(map(len, rows)), list(itertools.chain.from_iterable(rows)))

    @classmethod
    def joined(cls, lengths: Sequence[int] | NDArray[np.int32], items: Sequence[int] | NDArray[np.int32]) -> Ragged:
        """Return a `Ragged` from the length of each row and the items of all rows, one row after the other."""
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return cls(offsets, np.asarray(items, np.int32))

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
        """Return the items of the given rows.

        The first array has the position in `rows` of each item's row, and the second array has the items.
        """
        taken = self.take_rows(rows)
        return np.repeat(np.arange(len(rows)), np.diff(taken.offsets)), taken.items


@dataclasses.dataclass(frozen=True)
class Statements:
    """Table of statements: one row for each statement, in the order in which they run.

    Attributes
    ----------
    name : tuple of str
        Name of the symbol that is executed, such as ``torch.tanh`` or ``nvFusion3``.
    executor : tuple of str
        Executor that runs the statement; empty for a statement that Thunder handles without an executor.
    kind, side : int8
        `Kind`, and `FORWARD` or `BACKWARD`.
    parent : int32
        Row of the fusion that contains the statement; -1 if the statement is not a member of a fusion.
    origin : int32
        Index into `Graph.origins`; -1 if the statement has no origin. A statement of the backward has the origin of the
        statement of the forward whose gradient it computes.
    flags : int32
        `StatementFlag`.
    transient_bytes : int64
        Most bytes that the statement has allocated at once while it runs, without its inputs and outputs.
    flops : int64
        Number of floating point operations.
    inputs, outputs : Ragged
        Indices of the values that the statement reads, and of the values that it makes.
    frees : Ragged
        Indices of the values that the trace deletes right after the statement.
    group : int32
        For a collective, index into `Graph.groups`; -1 for any other statement. The default is -1 for all statements.
    computes : tuple of str
        Text that says what the statement computes; see `workbench.compiler.trace.canonical_text`. Statements with equal
        texts compute equal outputs from equal inputs. By default, all texts are empty. The prover can prove nothing
        about a graph with empty texts.
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
        """All different names, and for each statement the index of its name in the first result."""
        number = {name: place for place, name in enumerate(dict.fromkeys(self.name))}
        return tuple(number), np.fromiter(map(number.__getitem__, self.name), np.int32, len(self.name))

    def __len__(self) -> int:
        return len(self.name)


@dataclasses.dataclass(frozen=True)
class Values:
    """Table of values (Thunder's proxies): one row for each value.

    Attributes
    ----------
    name : tuple of str
        Name of the proxy.
    shape : tuple of tuple of int
    dtype, device : tuple of str
        For example ``float32`` and ``cuda:0``; empty for values that are not tensors.
    storage : int32
        Row of the value's storage; -1 for a value without memory. A view has the storage of its base.
    producer : int32
        Row of the statement that makes the value; -1 if no statement makes it.
    bytes : int64
        Bytes of the value's elements. A view may have fewer bytes than its storage.
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
    """Table of storages: one row for each storage.

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
    """Inputs and outputs of the forward and of the backward, as rows of the table of values; -1 if there is no value.

    Attributes
    ----------
    outputs : tuple of int
        Values that the forward returns.
    cotangents : tuple of int
        For each output, the gradient that the backward receives.
    given, received : tuple of int
        Values that the forward passes to the backward, and the corresponding values of the backward. Empty for a joint
        graph.
    gradients : tuple of int
        For each argument, the gradient that the backward returns.
    accumulated : tuple of int
        Gradients of leaf tensors, in the order in which autograd accumulates them after the backward.
    copied_bytes : tuple of int
        For each gradient in `accumulated`, the bytes of autograd's copy; 0 if autograd does not copy the gradient.
    copying_bytes : tuple of int
        For each gradient in `accumulated`, the most bytes allocated while autograd copies it: the copy, and the
        workspace of a kernel that transposes.
    """

    outputs: tuple[int, ...] = ()
    cotangents: tuple[int, ...] = ()
    given: tuple[int, ...] = ()
    received: tuple[int, ...] = ()
    gradients: tuple[int, ...] = ()
    accumulated: tuple[int, ...] = ()
    copied_bytes: tuple[int, ...] = ()
    copying_bytes: tuple[int, ...] = ()


class BlockKey:
    """Stands for the contents of consecutive rows. If two graphs have the same key, these rows of the graphs are equal.

    Only the numbers of values, parents and process groups, the sides, and the flag `VIEW` may differ.
    """


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A division of the rows of `statements` into blocks.

    Attributes
    ----------
    statements : Statements
    lengths : tuple of (BlockKey, int)
        The key and the number of rows of each block, in order.
    """

    statements: Statements
    lengths: tuple[tuple[BlockKey, int], ...]


@functools.lru_cache(maxsize=8)
def index_of_names(names: tuple[str, ...]) -> dict[str, int]:
    """Map each name to its index. The result is cached, because reordered graphs have the same names."""
    return {name: index for index, name in enumerate(names)}


@dataclasses.dataclass(frozen=True)
class Graph:
    """A program as tables. The rows of the forward come before the rows of the backward.

    Attributes
    ----------
    stage : str
        The stage of compilation that the tables describe. ``joint``: the joint trace before it is split; such a
        graph is called a joint graph. ``execution``: the forward and backward traces that run; such a graph is called
        an execution graph.
    statements, values, storages
        The tables.
    origins : tuple of Origin
        The statements of the user's program, in program order.
    groups : tuple of int
        Number of ranks in each process group of a collective, in the order in which the groups first appear.
    ends : StepBoundary
        Inputs and outputs of the forward and of the backward. By default, they are empty. The prover can prove nothing
        about a graph with empty inputs and outputs.
    layer_differences : mapping of str to str
        Maps the path of each layer that differs from the layer before it to a description of the difference; see
        `workbench.compiler.layers.partition.LayerPartition`.
    blocks : Blocks or None
        Blocks of rows that graphs of the same program may share; None if they are not known. They are valid only if
        `blocks.statements` is `statements`, because a graph with edited statements may still have the old blocks.
    """

    stage: str
    statements: Statements
    values: Values
    storages: Storages
    origins: tuple[Origin, ...] = ()
    groups: tuple[int, ...] = ()
    ends: StepBoundary = StepBoundary()
    layer_differences: Mapping[str, str] = dataclasses.field(default_factory=dict)
    blocks: Blocks | None = dataclasses.field(default=None, compare=False)

    def __repr__(self) -> str:
        forward = self.first_backward
        backward = len(self.statements) - forward
        return (
            f"{self.stage} graph: {forward} forward and {backward} backward statements, {len(self.values)} values "
            f"on {len(self.storages)} storages, {len(self.saved())} saved"
        )

    @cached_property
    def value_index(self) -> dict[str, int]:
        """Maps the name of each value to its index."""
        return index_of_names(self.values.name)

    @cached_property
    def consumers(self) -> Ragged:
        """For each value, the rows of the statements that read it. Members of fusions are not included."""
        inputs = self.statements.inputs
        row = np.repeat(np.arange(len(inputs)), np.diff(inputs.offsets))
        top = self.statements.parent[row] < 0
        # Encode each pair of a value and a reader as one number, so that `np.unique` sorts the pairs without
        # repetitions.
        pairs = np.unique(inputs.items[top].astype(np.int64) * len(inputs) + row[top])
        counts = np.bincount(pairs // max(len(inputs), 1), minlength=len(self.values))
        offsets = np.concatenate(([0], np.cumsum(counts)))
        return Ragged(offsets.astype(np.int32), (pairs % max(len(inputs), 1)).astype(np.int32))

    @property
    def has_unmeasured_kernels(self) -> bool:
        """Whether memory computed from the graph is a lower bound, because a CPU kernel could not be measured."""
        return bool((self.statements.flags & StatementFlag.UNMEASURED).any())

    @property
    def has_backward(self) -> bool:
        """Whether a statement is in the backward."""
        return self.first_backward < len(self.statements)

    @property
    def first_backward(self) -> int:
        """Row of the first backward statement; the number of statements if the graph has no backward."""
        backward = np.flatnonzero(self.statements.side == BACKWARD)
        return int(backward[0]) if len(backward) else len(self.statements)

    def saved(self) -> NDArray[np.int32]:
        """Return the indices of the values that the forward passes to the backward."""
        return np.flatnonzero(self.values.flags & ValueFlag.SAVED).astype(np.int32)

    def saved_storages(self, *, arguments: bool = False) -> NDArray[np.int32]:
        """Return the rows of the storages that the forward passes to the backward.

        Storages of arguments are included only if `arguments` is true, because they are alive during the complete step.
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
        """Bytes of the storages that the forward passes to the backward. Storages of arguments do not count."""
        return int(self.storages.bytes[self.saved_storages()].sum())

    def to_json(self) -> str:
        """Return the graph as a JSON text that `from_json` can read."""
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
        """Return the graph that `to_json` has written as `text`.

        Raises
        ------
        ValueError
            If the text is not a graph, or if it has another version of the format.
        """
        data = json.loads(text)
        refused = f"not a graph of format version {FORMAT_VERSION}"
        advice = "give a text that `Graph.to_json` has written"
        if not isinstance(data, dict) or data.get("format_version") != FORMAT_VERSION:
            given = data.get("format_version") if isinstance(data, dict) else type(data).__name__
            raise ValueError(f"{refused}: found {given!r}; {advice}")
        try:
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
        except KeyError as error:
            raise ValueError(f"{refused}: {error} is missing; {advice}") from error
        except (TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ValueError(f"{refused}: a table or column has another type ({error}); {advice}") from error


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
            # The file was written before this column existed, so use the column's default.
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
