"""Tell apart code of a function that computes the same: by its order in the source, and by branches around it."""

from __future__ import annotations

import ast
import bisect
import functools
import linecache
from collections.abc import Iterator, Sequence
from typing import Any


def equal_statements_before(file: str, line: int) -> int:
    """Return how many earlier statements of the same function compute the same as the statement at a line.

    Names of variables and constants do not count. The number depends neither on comments nor on empty lines. It is 0 if
    the source is unknown.

    Parameters
    ----------
    file : str
    line : int
        Any line of the statement.
    """
    return _numbers(tuple(linecache.getlines(file))).get(line, 0)


@functools.lru_cache(maxsize=1 << 6)
def _tree(source: tuple[str, ...]) -> ast.Module:
    """Return the syntax tree of a source; an empty tree if the source cannot be parsed."""
    try:
        return ast.parse("".join(source))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


@functools.lru_cache(maxsize=1 << 6)
def _numbers(source: tuple[str, ...]) -> dict[int, int]:
    """Return the number of earlier equal statements for each line that has any."""
    begins: dict[tuple[int, str], list[int]] = {}
    ends: dict[int, int] = {}

    def visit(node: ast.AST, function: int) -> None:
        for child in ast.iter_child_nodes(node):
            inner = child.lineno if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
            value = getattr(child, "value", None) if isinstance(child, ast.stmt) else None
            if isinstance(value, ast.expr):
                bisect.insort(begins.setdefault((function, _shape_of(value)), []), value.lineno)
                ends[value.lineno] = value.end_lineno or value.lineno
            visit(child, inner)

    visit(_tree(source), 0)
    return {
        line: number
        for equal in begins.values()
        for number, first in enumerate(equal)
        for line in range(first, ends[first] + 1)
        if number
    }


def _shape_of(value: ast.expr) -> str:
    """Return the structure of an expression, with the names of its operators but not of its variables."""
    nodes = (node for node in ast.walk(value) if not isinstance(node, ast.expr_context))
    return " ".join(f"{type(node).__name__}{getattr(node, 'attr', '')}" for node in nodes)


def branches_around(file: str, line: int, column: int | None) -> str:
    """Return which branches of a function contain a position, as text; empty if only first branches do.

    Branches are those of `if` statements, of `if` expressions, of `match` statements, and the operands of `and` and
    `or`. The text depends neither on comments nor on empty lines.

    Parameters
    ----------
    file : str
    line : int
    column : int or None
        Column of the position, as in `ast`. If None, the position is the beginning of the line.
    """
    path: list[str] = []
    node: ast.AST | None = _tree(tuple(linecache.getlines(file)))
    while node is not None:
        at, node = next(((at, each) for at, each in _branches(node) if _contains(each, line, column)), ("", None))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            path.clear()
        elif at:
            path.append(at)
    return "".join(path) if any(each != "0" for each in path) else ""


def _branches(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the children of a node, each with the number of its branch; empty if the child always runs."""
    if isinstance(node, ast.If | ast.IfExp):
        for at, held in (("", node.test), ("0", node.body), ("1", node.orelse)):
            yield from ((at, each) for each in (held if isinstance(held, list) else [held]))
    elif isinstance(node, ast.BoolOp | ast.Match):
        operands: Sequence[ast.AST] = node.values if isinstance(node, ast.BoolOp) else node.cases
        yield from ((f"{at}," if at else "0", each) for at, each in enumerate(operands))
    else:
        yield from (("", each) for each in ast.iter_child_nodes(node))


def _contains(node: Any, line: int, column: int | None) -> bool:
    if not hasattr(node, "lineno"):  # such as a `case`, or the arguments of a function
        return any(_contains(child, line, column) for child in ast.iter_child_nodes(node))
    if column is None:
        return bool(node.lineno <= line <= node.end_lineno)
    return (node.lineno, node.col_offset) <= (line, column) < (node.end_lineno, node.end_col_offset)
