"""Location of an FX graph's node in the user's code: its line, and its module or function."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping

from torch import fx

from workbench.compiler.interop import source_file

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


@functools.lru_cache(maxsize=1 << 10)  # the layers of a model share most of their stacks
def _own_frame(text: str) -> Frame:
    """Return the innermost frame of a stack in the user's code."""
    own = [frame for frame in frames_of(text) if not source_file.is_library(frame.file)]
    return own[-1] if own else Frame("", 0, "")


def place_of(node: fx.Node, paths: Mapping[int, str]) -> tuple[str, Frame]:
    """Return a node's scope and line of user code, as Thunder's interpreter would record them.

    Parameters
    ----------
    node : Node
    paths : mapping of int to str
        Maps the `id` of each module of the program to its path; empty if the program is a function.
    """
    # A node that Dynamo adds, such as for an assertion, has no line. An input of such a node has a line.
    frame = _own_frame(node.stack_trace or next((given.stack_trace or "" for given in node.all_input_nodes), ""))
    scope = frame.function
    modules = list((node.meta.get("nn_module_stack") or {}).items())
    root = str(modules[0][1][0]) if modules else ""
    for at, (key, (path, kind)) in enumerate(modules):
        known = paths.get(int(str(key).partition("@")[0]))
        relative = known if known is not None else str(path).removeprefix(root).strip(".")
        scope = relative or (getattr(kind, "__name__", str(kind)) if at == 0 or known is not None else scope)
    return scope, frame
