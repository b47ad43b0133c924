"""Programs: a function or module with example inputs, and a device; built in, from a file, or from a user's objects.

PyTorch is imported only at first use. The names of the built-in programs are therefore available without PyTorch.
"""

from typing import TYPE_CHECKING

from workbench.util.lazy_import import attributes

if TYPE_CHECKING:
    from workbench.programs.registry import ProgramInfo, describe, parallel_of, program
    from workbench.programs.resolving import Program, build, check, resolve
    from workbench.programs.settings import ProgramSetting

__all__ = [
    "Program",
    "ProgramInfo",
    "ProgramSetting",
    "build",
    "check",
    "describe",
    "parallel_of",
    "program",
    "resolve",
]

_FILES = {
    "Program": "resolving",
    "ProgramInfo": "registry",
    "ProgramSetting": "settings",
    "build": "resolving",
    "check": "resolving",
    "describe": "registry",
    "parallel_of": "registry",
    "program": "registry",
    "resolve": "resolving",
}

__getattr__ = attributes(__name__, _FILES)
