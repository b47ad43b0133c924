"""Store the user's line and module in the file name that Thunder records for a statement."""

from __future__ import annotations

import os
import sysconfig
from typing import Any
from weakref import WeakKeyDictionary

import torch

from workbench.compiler.interop.thunder_api import get_interpreterruntimectx

_LIBRARY_ROOTS = tuple(
    os.path.join(sysconfig.get_paths()["purelib"], package) + os.sep for package in ("torch", "thunder")
)


class SourceFile(str):
    """A file name for Thunder to record, with attributes for the user's line and module.

    Attributes
    ----------
    scope : str
        Path of the innermost module that was running (``layers.0.mlp``). If no module was running, the name of the
        innermost user function.
    user_file : str
        File of the innermost frame outside of PyTorch and Thunder.
    user_line : int
        Line number in `user_file`; the first line is 1.
    """

    scope: str
    user_file: str
    user_line: int

    def __new__(cls, file: str, scope: str, user_file: str, user_line: int) -> SourceFile:
        """Return a file name with the attributes."""
        made = super().__new__(cls, file)
        made.scope, made.user_file, made.user_line = scope, user_file, user_line
        return made


_paths: WeakKeyDictionary[Any, dict[torch.nn.Module, dict[int, str]]] = WeakKeyDictionary()
"""For each run of Thunder's interpreter and each root module, the paths of the modules; a key is the `id` of a module.
Each run of the interpreter looks up the paths again, because the user may replace a module between runs.
"""


def _module_paths(root: torch.nn.Module) -> dict[int, str]:
    known = _paths.setdefault(get_interpreterruntimectx(), {})
    if root not in known:
        known[root] = {id(module): name for name, module in root.named_modules(remove_duplicate=True)}
    return known[root]


def is_library(file: str) -> bool:
    """Return whether a file belongs to PyTorch or Thunder, or exists only in memory, such as ``<string>``.

    Lines of such a file are not lines of the user's code.
    """
    return file.startswith(_LIBRARY_ROOTS) or file.startswith("<")


def user_position() -> tuple[str, str, int]:
    """Return the scope, file and line of the user's code that Thunder's interpreter executes now; see `SourceFile`."""
    scope, file, line, function = "", "", 0, ""
    root: torch.nn.Module | None = None
    for frame in get_interpreterruntimectx().frame_stack:
        first = getattr(frame.localsplus[0], "value", None) if frame.localsplus else None
        if isinstance(first, torch.nn.Module):
            if root is None:
                root = first
            scope = _module_paths(root).get(id(first), scope) or type(first).__name__
        if not is_library(frame.code.co_filename):
            file, function = frame.code.co_filename, frame.code.co_name
            line = (frame.positions.lineno if frame.positions else None) or line
            if root is None:
                scope = function
    return scope, file, line
