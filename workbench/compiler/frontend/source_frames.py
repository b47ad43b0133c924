"""Where in a person's code a node of an FX graph comes from: its line, and the module or function that it is in."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping

from torch import fx

from workbench.compiler.interop import source_file

_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_\d+$")
"""What Dynamo calls the rest of a function, after a line where it broke the graph."""


@dataclasses.dataclass(frozen=True)
class Frame:
    """A line of code that was running.

    Attributes
    ----------
    file : str
    line : int
        From 1; 0 where there is none.
    function : str
    """

    file: str
    line: int
    function: str


def frames_of(text: str) -> list[Frame]:
    """The frames of a stack as Python prints it, the innermost last."""
    found = [Frame(file, int(line), function) for file, line, function in _FRAME.findall(text)]
    return [dataclasses.replace(frame, function=_RESUMED.sub(r"\1", frame.function)) for frame in found]


@functools.lru_cache(maxsize=1 << 10)  # the layers of a model have their stacks in common
def _own_frame(text: str) -> Frame:
    """The innermost frame of a stack that is a person's own."""
    own = [frame for frame in frames_of(text) if not source_file.is_library(frame.file)]
    return own[-1] if own else Frame("", 0, "")


def place_of(node: fx.Node, paths: Mapping[int, str]) -> tuple[str, Frame]:
    """Scope of a node, and the person's own line, as Thunder's interpreter would have recorded them.

    Parameters
    ----------
    node : Node
    paths : mapping of int to str
        Path of each module of the program by its `id`; empty where the program is a function.
    """
    # What Dynamo adds of its own, as for an assertion, has no line; what it reads has.
    frame = _own_frame(node.stack_trace or next((given.stack_trace or "" for given in node.all_input_nodes), ""))
    scope = frame.function
    modules = list((node.meta.get("nn_module_stack") or {}).items())
    root = str(modules[0][1][0]) if modules else ""
    for at, (key, (path, kind)) in enumerate(modules):
        known = paths.get(int(str(key).partition("@")[0]))
        relative = known if known is not None else str(path).removeprefix(root).strip(".")
        scope = relative or (getattr(kind, "__name__", str(kind)) if at == 0 or known is not None else scope)
    return scope, frame
