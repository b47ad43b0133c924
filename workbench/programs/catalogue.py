"""Names, settings and summaries of the built-in programs, read from their source files without importing them."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).parent / "builtin"


@dataclasses.dataclass(frozen=True)
class CatalogueEntry:
    """A built-in program, as its source file defines it.

    Attributes
    ----------
    module : str
        The file's name without ``.py``.
    parallel : str
        Kind of sharing among ranks, one of `workbench.core.config.PARALLEL`; empty if a single process runs the
        program.
    stand_in : callable
        A function with the factory's parameters and docstring, but without its body.
    """

    module: str
    parallel: str
    stand_in: Callable[..., Any]


@functools.cache
def entries() -> dict[str, CatalogueEntry]:
    """Return an entry for every function in `builtin/` with the decorator ``@program``. Names are sorted."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and any(_is_name(mark, "program") for mark in node.decorator_list):
                found[node.name] = CatalogueEntry(path.stem, _parallel(node), _stand_in(node))
    return dict(sorted(found.items()))


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _parallel(node: ast.FunctionDef) -> str:
    marks = (mark for mark in node.decorator_list if isinstance(mark, ast.Call) and _is_name(mark.func, "parallel"))
    return next((str(ast.literal_eval(mark.args[0])) for mark in marks), "")


def _stand_in(node: ast.FunctionDef) -> Callable[..., Any]:
    """Return a function with the parameters and docstring of `node`, without its decorators, return type and body."""
    body: list[ast.stmt] = node.body[:1] if ast.get_docstring(node) is not None else [ast.Pass()]
    bare = ast.FunctionDef(node.name, node.args, body, [], type_params=[])
    names: dict[str, Any] = {"Literal": Literal}
    exec(compile(ast.fix_missing_locations(ast.Module([bare], [])), node.name, "exec"), names)
    made: Callable[..., Any] = names[node.name]
    return made
