"""A graph is read from JSON as it was written. A text that is not a graph is refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.analysis.small_graphs import graph
from workbench.core.graph import Graph, Origin

ORIGIN = Origin(id="relu", symbol="relu", scope="", file="model.py", line=1, text="y = x.relu()")
MADE = graph([("relu", "a", "b", "a"), ("sum", "b", "c", "b")], origins=(ORIGIN,))
DATA = json.loads(MADE.to_json())
REQUIRED = [(name,) for name in ("stage", "statements", "values", "storages", "origins")] + [
    *(("statements", name) for name in ("name", "kind", "inputs", "flops")),
    *(("values", "shape"), ("storages", "bytes"), ("statements", "inputs", "offsets")),
]


def written(edit: Callable[[dict[str, Any]], object]) -> str:
    data = json.loads(json.dumps(DATA))
    edit(data)
    return json.dumps(data)


def test_a_graph_is_read_as_it_was_written() -> None:
    assert Graph.from_json(MADE.to_json()).to_json() == MADE.to_json()


@pytest.mark.parametrize("place", REQUIRED, ids=".".join)
def test_a_graph_without_a_table_or_column_is_refused(place: tuple[str, ...]) -> None:
    def remove(data: dict[str, Any]) -> None:
        for name in place[:-1]:
            data = data[name]
        del data[place[-1]]

    with pytest.raises(ValueError, match=f"not a graph of format version.*{place[-1]}.*missing"):
        Graph.from_json(written(remove))


@pytest.mark.parametrize(
    "edit",
    [
        lambda data: data.update(statements=[]),
        lambda data: data.update(values=None),
        lambda data: data.update(origins=7),
        lambda data: data.update(origins=[{"color": "red"}]),
        lambda data: data.update(ends=[1]),
        lambda data: data["statements"].update(kind=[1000, 1000]),
        lambda data: data["statements"].update(name=1),
        lambda data: data["statements"].update(flops=["many", "few"]),
    ],
    ids=["list", "null", "number", "unknown name", "ends", "large number", "no list", "words"],
)
def test_a_graph_with_a_table_or_column_of_another_type_is_refused(edit: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(ValueError, match="not a graph of format version"):
        Graph.from_json(written(edit))


@pytest.mark.parametrize("text", ["[]", "{}", '{"format_version": -1}', "nothing"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a graph of format version|Expecting value"):
        Graph.from_json(text)
