"""Executors: the compilers of fusions. A new executor is one new file in `workbench/executors/`.

Thunder is imported only inside of methods, so that names can be checked without it.
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
    """A compiler of fusions. Subclass in a new file and decorate with `register`.

    Attributes
    ----------
    name : str
        Name that the user gives.
    fuses : bool
        Whether it makes any fusions.
    copies : {'', 'regions', 'sets'}
        Options of an in-place copy: none; inside a region or not; with a set before it or not.
    order : int
        Position in the list of all executors.
    """

    name: ClassVar[str]
    fuses: ClassVar[bool] = True
    copies: ClassVar[str] = ""
    order: ClassVar[int] = 50

    def why_not(self, device: str) -> str:
        """Return why it cannot be used on a device, and which executors can; empty if it can."""
        return ""

    def executors(self, stock: Sequence[Any], control: ExecutorState) -> list[Any]:
        """Return Thunder's executors, in the order in which they claim statements.

        Parameters
        ----------
        stock : sequence of Executor
            Return Thunder's own executors, without those that fuse.
        control : ExecutorState
            Requests of levers to a fusion executor, and data that it keeps for them.
        """
        raise NotImplementedError


_REGISTRY: dict[str, Executor] = {}


def register(cls: type[Executor]) -> type[Executor]:
    """Register an executor under its `name`; a class decorator."""
    _REGISTRY[cls.name] = cls()
    return cls


def unregister(name: str) -> None:
    """Forget an executor."""
    _REGISTRY.pop(name, None)


def executor_names() -> tuple[str, ...]:
    """Return the names of all executors; first import every file in `workbench/executors/`."""
    package = importlib.import_module("workbench.executors")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"workbench.executors.{module.name}")
    return tuple(sorted(_REGISTRY, key=lambda name: (_REGISTRY[name].order, name)))


def executor_named(name: str) -> Executor:
    """An executor by its name."""
    if name not in _REGISTRY:
        executor_names()
    return _REGISTRY[name]


def why_no_nvfuser() -> str:
    """Return why nvFuser cannot be used here, not even for planning; empty if it can."""
    if importlib.util.find_spec("nvfuser_direct") is not None:
        return ""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"nvFuser has wheels for Linux x86-64 only; this machine is {platform.system()} {platform.machine()}"
    return "the nvFuser wheel for this PyTorch is not installed (pip install nvfuser-cu128-torch210 --pre)"
