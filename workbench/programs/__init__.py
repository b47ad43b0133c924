"""Programs: a function or module with example inputs, and the device it is for; built in, from a file, or given.

What needs PyTorch is imported when it is first asked for: what the built-in programs are called is known without it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.programs.registry import ProgramInfo, describe, parallel_of, program
    from workbench.programs.resolving import Program, build, check, resolve
    from workbench.programs.settings import Setting

__all__ = ["Program", "ProgramInfo", "Setting", "build", "check", "describe", "parallel_of", "program", "resolve"]

_FILES = {
    "Program": "resolving",
    "ProgramInfo": "registry",
    "Setting": "settings",
    "build": "resolving",
    "check": "resolving",
    "describe": "registry",
    "parallel_of": "registry",
    "program": "registry",
    "resolve": "resolving",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_FILES[name]}"), name)
    globals()[name] = found
    return found
