"""Executors: the compilers of fusions. A new executor is one new file in `workbench/executors/`.

Thunder is imported only inside of methods, so that names of executors can be checked without Thunder.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import platform
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from workbench.compiler.fusion.executors import ExecutorState


class Executor:
    """A compiler of fusions. To add one, define a subclass in a new file and decorate it with `register`.

    Attributes
    ----------
    name : str
        Name by which the user chooses the executor.
    fuses : bool
        Whether the executor makes fusions.
    copies : {'', 'regions', 'sets'}
        What can be chosen for an in-place copy: nothing; whether it is inside of a region; whether it has a `set`.
    order : int
        Sort key in the list of all executors.
    """

    name: ClassVar[str]
    fuses: ClassVar[bool] = True
    copies: ClassVar[str] = ""
    order: ClassVar[int] = 50

    def why_not(self, device: str) -> str:
        """Return why the executor cannot be used on a device, and which executors can; empty if it can be used."""
        return ""

    def executors(self, stock: Sequence[Any], control: ExecutorState) -> list[Any]:
        """Return Thunder's executors, in the order in which they claim statements.

        Parameters
        ----------
        stock : sequence of Executor
            Thunder's default executors that make no fusions.
        control : ExecutorState
            Options that levers set for a fusion executor, and results that the fusion executor records for levers.
        """
        raise NotImplementedError


_REGISTRY: dict[str, Executor] = {}


def register(cls: type[Executor]) -> type[Executor]:
    """Register an executor under its `name`; a class decorator."""
    _REGISTRY[cls.name] = cls()
    return cls


def unregister(name: str) -> None:
    """Remove the executor `name` from the registry."""
    _REGISTRY.pop(name, None)


def executor_names() -> tuple[str, ...]:
    """Import every file in `workbench/executors/`, and return the names of all executors."""
    package = importlib.import_module("workbench.executors")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"workbench.executors.{module.name}")
    return tuple(sorted(_REGISTRY, key=lambda name: (_REGISTRY[name].order, name)))


def executor_named(name: str) -> Executor:
    """Return the executor with this name."""
    if name not in _REGISTRY:
        executor_names()
    return _REGISTRY[name]


def why_no_nvfuser() -> str:
    """Return why nvFuser cannot be used here, not even to plan; empty if it can be used."""
    if importlib.util.find_spec("nvfuser_direct") is not None:
        return ""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"nvFuser has wheels for Linux x86-64 only; this machine is {platform.system()} {platform.machine()}"
    return "the nvFuser wheel for this PyTorch is not installed (pip install nvfuser-cu128-torch210 --pre)"
