"""Compare two plans table by table and site by site, for tests."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from workbench.compiler.planner.plan import Plan
from workbench.core.graph import Graph, Ragged

_OF_PLAN = ("census", "counts", "sites", "unmatched", "warnings", "proof", "places", "ranks")


def columns(table: Any) -> dict[str, Any]:
    """Return the columns of a table or a timeline, by name, as lists. Lists can be compared by value."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(table):
        column = getattr(table, field.name)
        if isinstance(column, Ragged):
            column = column.lists()
        found[field.name] = column.tolist() if isinstance(column, np.ndarray) else column
    return found


def differing(one: Plan, other: Plan) -> list[str]:
    """Return the names of columns and other fields in which two plans differ, except traces and planning times."""
    found = [f"timeline.{name}" for name in _columns_apart(one.timeline, other.timeline)]
    found += differing_graphs(one.graph, other.graph)
    return found + [name for name in _OF_PLAN if getattr(one, name) != getattr(other, name)]


def differing_graphs(one: Graph, other: Graph) -> list[str]:
    """Return the names of the columns and other fields in which two graphs differ."""
    tables = ("statements", "values", "storages")
    found = [
        f"{name}.{column}" for name in tables for column in _columns_apart(getattr(one, name), getattr(other, name))
    ]
    of_graph = ("stage", "origins", "groups", "ends", "layer_differences")
    return found + [f"graph.{name}" for name in of_graph if getattr(one, name) != getattr(other, name)]


def _columns_apart(one: Any, other: Any) -> list[str]:
    theirs = columns(other)
    return [name for name, held in columns(one).items() if held != theirs[name]]
