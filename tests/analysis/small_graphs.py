"""`graph` builds a small graph from a list of statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from workbench.core.graph import (
    BACKWARD,
    FORWARD,
    Graph,
    Kind,
    Origin,
    Ragged,
    StatementFlag,
    Statements,
    Storages,
    ValueFlag,
    Values,
)

type Line = tuple[str, str, str, str]


def graph(
    lines: Sequence[Line],
    *,
    backward: int | None = None,
    flags: Mapping[str, ValueFlag] | None = None,
    views: Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
    transient: Mapping[str, int] | None = None,
    parents: Mapping[int, int] | None = None,
    inplace: Sequence[str] = (),
    origins: tuple[Origin, ...] = (),
) -> Graph:
    """Build a graph from one tuple (name, inputs, outputs, frees) for each statement. Spaces separate names of values.

    A value takes 1 byte, or the bytes in `sizes`. `views` maps a value to another value whose storage it shares.
    Statements from index `backward` on belong to the backward. `origins` gives the origin of a statement by its index.
    """
    flags, views, sizes = flags or {}, views or {}, sizes or {}
    names: dict[str, int] = {name: i for i, name in enumerate(flags)}
    for _, inputs, outputs, _ in lines:
        for name in (*inputs.split(), *outputs.split()):
            names.setdefault(name, len(names))
    roots = [name for name in names if name not in views]

    def root(name: str) -> str:
        return root(views[name]) if name in views else name

    def row(text: str) -> list[int]:
        return [names[name] for name in text.split()]

    producer = {name: i for i, (_, _, outputs, _) in reversed(list(enumerate(lines))) for name in outputs.split()}
    first_backward = len(lines) if backward is None else backward
    count = len(lines)
    return Graph(
        stage="by hand",
        statements=Statements(
            name=tuple(line[0] for line in lines),
            executor=("",) * count,
            kind=np.asarray([Kind.GET_GRAD if line[0] == "get_grad" else Kind.OP for line in lines], np.int8),
            side=np.asarray([BACKWARD if i >= first_backward else FORWARD for i in range(count)], np.int8),
            parent=np.asarray([(parents or {}).get(i, -1) for i in range(count)], np.int32),
            origin=np.asarray([i if i < len(origins) else -1 for i in range(count)], np.int32),
            flags=np.asarray([StatementFlag.INPLACE if line[0] in inplace else 0 for line in lines], np.int32),
            transient_bytes=np.asarray([(transient or {}).get(line[0], 0) for line in lines], np.int64),
            flops=np.ones(count, np.int64),
            inputs=Ragged.of(row(line[1]) for line in lines),
            outputs=Ragged.of(row(line[2]) for line in lines),
            frees=Ragged.of(row(line[3]) for line in lines),
        ),
        values=Values(
            name=tuple(names),
            shape=((),) * len(names),
            dtype=("uint8",) * len(names),
            device=("cpu",) * len(names),
            storage=np.asarray([roots.index(root(name)) for name in names], np.int32),
            producer=np.asarray([producer.get(name, -1) for name in names], np.int32),
            bytes=np.asarray([sizes.get(name, 1) for name in names], np.int64),
            flags=np.asarray([flags.get(name, ValueFlag.NONE) | ValueFlag.TENSOR for name in names], np.int32),
        ),
        storages=Storages(
            bytes=np.asarray([sizes.get(name, 1) for name in roots], np.int64),
            root=np.asarray([names[name] for name in roots], np.int32),
        ),
        origins=origins,
    )
