"""Two plans held to each other, table by table and site by site."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from workbench.compiler.plan import Plan
from workbench.graph import Ragged

_OF_PLAN = ("census", "counts", "sites", "unmatched", "warnings", "proof", "places", "ranks")


def columns(table: Any) -> dict[str, Any]:
    """All that a table or a timeline holds, as what compares by value."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(table):
        column = getattr(table, field.name)
        if isinstance(column, Ragged):
            column = column.lists()
        found[field.name] = column.tolist() if isinstance(column, np.ndarray) else column
    return found


def differing(one: Plan, other: Plan) -> list[str]:
    """What two plans differ in, but for their traces and what planning cost."""
    tables = ("statements", "values", "storages")
    parts = [("timeline", one.timeline, other.timeline)]
    parts += [(name, getattr(one.graph, name), getattr(other.graph, name)) for name in tables]
    found = []
    for name, mine, theirs in parts:
        ours = columns(theirs)
        found += [f"{name}.{column}" for column, held in columns(mine).items() if held != ours[column]]
    of_graph = ("stage", "origins", "groups", "ends")
    found += [f"graph.{name}" for name in of_graph if getattr(one.graph, name) != getattr(other.graph, name)]
    return found + [name for name in _OF_PLAN if getattr(one, name) != getattr(other, name)]
