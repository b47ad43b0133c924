"""Build small plans from text for tests of the equivalence proof. The text states what each statement computes."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
    StepBoundary,
    Storages,
    ValueFlag,
    Values,
)

_STATEMENT = re.compile(r"(?P<outputs>\w+(, \w+)*)( in (?P<shares>\S+))? = (?P<call>.+?)( from (?P<moves>\S+))?")
_KINDS = {"copy_": Kind.COPY, "update_aliases": Kind.FENCE, "wait": Kind.WAIT}


def plan(text: str, kinds: Mapping[str, str] | None = None, *, executor: str = "") -> Graph:
    """Build a graph from lines such as ``t = tanh($x)``. A ``$`` marks each value that is read.

    ``in`` gives the memory of each result: ``-`` is new memory, ``0`` is the memory of the first ``$``, and ``~0`` is
    the memory of the first result. In ``v in 0 = view($t, 4)``, the result therefore shares the memory of ``t``.
    ``from`` gives the index map of a statement that only moves elements: ``r in 0 = expand($t, (4, 4)) from
    4;4,4;0,1;0``. `workbench.compiler.trace.canonical_text` defines both notations.

    ``take x, w`` names the arguments. ``return y`` ends the forward. After it, ``hand t, x`` (or ``hand t as u``) names
    the values that the forward passes to the backward. ``cotangent dy`` names the incoming gradient. ``gradients g, -``
    names the results of the backward. A value is ``float32[4]@cpu`` unless `kinds` gives another type.
    """
    known: dict[str, int] = {}
    flags: list[int] = []
    producer: list[int] = []
    rows: list[tuple[str, int, list[int], list[int], str]] = []
    origins: list[Origin] = []
    lists: dict[str, list[str]] = {}
    side = FORWARD

    def value(name: str) -> int:
        if name == "-":
            return -1
        if name not in known:
            known[name] = len(known)
            flags.append(int(ValueFlag.TENSOR))
            producer.append(-1)
        return known[name]

    def kind(name: str) -> str:
        return (kinds or {}).get(name, "float32[4]@cpu")

    for number, line in enumerate(filter(None, map(str.strip, text.splitlines())), 1):
        word, _, rest = line.partition(" ")
        names = [name.strip() for name in rest.split(",")]
        if word in ("take", "return", "hand", "cotangent", "gradients"):
            lists[word] = [name for name in names if name]
            side = side if word in ("take", "gradients") else BACKWARD
            for name in names if word == "take" else ():
                flags[value(name)] |= ValueFlag.ARGUMENT
            continue
        found = _STATEMENT.fullmatch(line)
        assert found is not None, line
        operands = re.findall(r"\$(\w+)", found["call"])
        inputs = list(dict.fromkeys(map(value, operands)))
        made = found["outputs"].split(", ")
        outputs = [value(name) for name in made]
        shares = found["shares"].split(",") if found["shares"] else ["-"] * len(made)
        for output in outputs:
            producer[output] = len(rows)
        call = re.sub(r"\$\w+", "$", found["call"])
        fields = (
            " ".join(str(inputs.index(value(name))) for name in operands),
            " ".join(shares),
            " ".join(map(kind, made)),
            *([str(found["moves"])] if found["moves"] else []),
        )
        gives = " ".join(f"0.{i}" for i in range(len(made)))
        rows.append((call.partition("(")[0], side, inputs, outputs, "\t".join((call, *fields)) + f"\n={gives}"))
        origins.append(Origin(f"plan/{number}", "plan", call.partition("(")[0], "plan.py", number, line))
    handed = [(name.split(" as ")[0], name.split(" as ")[-1]) for name in lists.get("hand", ())]
    ends = StepBoundary(
        outputs=tuple(value(name) for name in lists.get("return", ())),
        cotangents=tuple(value(name) for name in lists.get("cotangent", ())),
        given=tuple(value(given) for given, _ in handed),
        received=tuple(value(taken) for _, taken in handed),
        gradients=tuple(value(name) for name in lists.get("gradients", ())),
    )
    count = len(rows)
    parts = [re.fullmatch(r"(\w+)\[(.*)\]@(.*)", kind(name)) for name in known]
    return Graph(
        stage="execution",
        statements=Statements(
            name=tuple(row[0] for row in rows),
            executor=(executor,) * count,
            kind=np.asarray([_kind(row[0]) for row in rows], np.int8),
            side=np.asarray([row[1] for row in rows], np.int8),
            parent=np.full(count, -1, np.int32),
            origin=np.arange(count, dtype=np.int32),
            flags=np.asarray([StatementFlag.INPLACE if row[0] == "copy_" else 0 for row in rows], np.int32),
            transient_bytes=np.zeros(count, np.int64),
            flops=np.zeros(count, np.int64),
            inputs=Ragged.of(row[2] for row in rows),
            outputs=Ragged.of(row[3] for row in rows),
            frees=Ragged.of([] for _ in rows),
            computes=tuple(row[4] for row in rows),
        ),
        values=Values(
            name=tuple(known),
            shape=tuple(tuple(int(n) for n in part[2].split(",") if n) for part in parts if part),
            dtype=tuple(part[1] for part in parts if part),
            device=tuple(part[3] for part in parts if part),
            storage=np.arange(len(known), dtype=np.int32),
            producer=np.asarray(producer, np.int32),
            bytes=np.zeros(len(known), np.int64),
            flags=np.asarray(flags, np.int32),
        ),
        storages=Storages(bytes=np.zeros(len(known), np.int64), root=np.arange(len(known), dtype=np.int32)),
        origins=tuple(origins),
        ends=ends,
    )


def _kind(symbol: str) -> Kind:
    if symbol in _KINDS:
        return _KINDS[symbol]
    for word, kind in (("all_", Kind.COLLECTIVE), ("reduce_scatter", Kind.COLLECTIVE), ("offload", Kind.OFFLOAD)):
        if symbol.startswith(word):
            return kind
    return Kind.RELOAD if symbol.startswith("reload") else Kind.OP
