"""Number the statements of a function that compute the same, in the order of the source."""

from __future__ import annotations

import ast
import bisect
import functools
import linecache


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
def _numbers(source: tuple[str, ...]) -> dict[int, int]:
    """Return the number of earlier equal statements for each line that has any."""
    try:
        tree = ast.parse("".join(source))
    except (SyntaxError, ValueError):
        return {}
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

    visit(tree, 0)
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
