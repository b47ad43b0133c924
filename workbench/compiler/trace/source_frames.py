"""Find the line of user code, and the module or function, from which a node of an FX graph comes."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import sysconfig
import traceback
from collections.abc import Mapping

from torch import fx

from workbench.compiler.interop import source_file
from workbench.compiler.trace.stable_ids import line_prefix

_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_\d+$")
"""Dynamo's name for the rest of a function after a graph break."""


@dataclasses.dataclass(frozen=True)
class Frame:
    """A line of code on the stack.

    Attributes
    ----------
    file : str
    line : int
        Line number, which starts at 1; 0 if unknown.
    function : str
    """

    file: str
    line: int
    function: str


def frames_of(text: str) -> list[Frame]:
    """Parse a stack as Python prints it. The innermost frame is the last."""
    found = [Frame(file, int(line), function) for file, line, function in _FRAME.findall(text)]
    return [dataclasses.replace(frame, function=_RESUMED.sub(r"\1", frame.function)) for frame in found]


def is_resumed(function: str) -> bool:
    """Return whether a function has a name that Dynamo gives to the rest of a function after a graph break."""
    return _RESUMED.match(function) is not None


@functools.lru_cache(maxsize=1 << 10)  # the layers of a model share most of their stacks
def _own_frame(text: str) -> Frame:
    """Return the innermost frame of a stack in the user's code."""
    own = [frame for frame in frames_of(text) if not source_file.is_library(frame.file)]
    return own[-1] if own else Frame("", 0, "")


def place_of(node: fx.Node, paths: Mapping[int, str]) -> tuple[str, Frame]:
    """Return a node's scope and line of user code, as Thunder's interpreter would record them.

    The scope is the path of the innermost module that contains the node. The program itself has no path, so its scope
    is its class name. If no module contains the node, the scope is the name of the function.

    Parameters
    ----------
    node : Node
    paths : mapping of int to str
        Maps the `id` of each module of the program to its path; empty if the program is a function.
    """
    # A node that Dynamo adds, such as for an assertion, has no line. Use the line of the node's first input instead.
    frame = _own_frame(node.stack_trace or next((given.stack_trace or "" for given in node.all_input_nodes), ""))
    scope = frame.function
    modules = list((node.meta.get("nn_module_stack") or {}).items())
    root = str(modules[0][1][0]) if modules else ""
    for at, (key, (path, kind)) in enumerate(modules):
        known = paths.get(int(str(key).partition("@")[0]))
        relative = known if known is not None else str(path).removeprefix(root).strip(".")
        scope = relative or (getattr(kind, "__name__", str(kind)) if at == 0 or known is not None else scope)
    return scope, frame


_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_COMPILER = os.path.dirname(os.path.dirname(__file__)) + os.sep


def user_line(error: BaseException) -> str:
    """Return the user's line that raised `error`, as the beginning of a message; empty if the line is unknown."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not source_file.is_library(frame.filename)
        and not frame.filename.startswith(_COMPILER)
        and ("site-packages" in frame.filename or not frame.filename.startswith(_STDLIB))
    ]
    return line_prefix(own[-1].filename, own[-1].lineno or 0) if own else ""
