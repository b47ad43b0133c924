"""`Executor`: the base class of executors. Also the registry of executors.

A new executor is one new file in `workbench/executors/`. Such a file imports Thunder only inside of methods, so that
the names of executors can be checked without importing Thunder.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import pkgutil
import platform
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from workbench.compiler.fusion.executors import ExecutorState


class Executor:
    """Software that runs statements, one by one or in fusions.

    To add an executor, define a subclass in a new file and decorate it with `register`.

    Attributes
    ----------
    name : str
        Name by which the user chooses the executor.
    fuses : bool
        Whether the executor compiles several statements together, as a fusion.
    copies : {'', 'regions', 'sets'}
        What the lever `copies` decides for each in-place copy. ``regions``: whether the copy is inside or outside of a
        region of torch.compile. ``sets``: whether the definition of the nvFuser fusion has the operation `set` before
        the copy. Empty: nothing.
    order : int
        Sort key in the list of all executors.
    """

    name: ClassVar[str]
    fuses: ClassVar[bool] = True
    copies: ClassVar[str] = ""
    order: ClassVar[int] = 50

    def why_not(self, device: str) -> str:
        """Return why the executor cannot be used on `device`; empty if it can be used.

        The text may name executors to use instead.
        """
        return ""

    def executors(self, stock: Sequence[Any], control: ExecutorState) -> list[Any]:
        """Return Thunder's executors, in the order in which they claim statements.

        Parameters
        ----------
        stock : sequence of thunder.Executor
            Thunder's default executors except those that fuse.
        control : ExecutorState
            State that levers and the fusion executor share. Levers set options in it. The fusion executor stores in it
            the results that levers read.
        """
        raise NotImplementedError


_REGISTRY: dict[str, Executor] = {}


def register(cls: type[Executor]) -> type[Executor]:
    """Register an executor under its `name`. Use this function as a class decorator."""
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
    """Return the executor `name`. Raise `KeyError` if it does not exist."""
    if name not in _REGISTRY:
        executor_names()
    return _REGISTRY[name]


def why_no_nvfuser() -> str:
    """Return why nvFuser cannot be imported in this process, so that it cannot even plan; empty if it can."""
    if importlib.util.find_spec("nvfuser_direct") is not None:
        return ""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"nvFuser has wheels for Linux x86-64 only; this machine is {platform.system()} {platform.machine()}"
    version = importlib.metadata.version("torch").partition("+")[0]
    if not version.startswith("2.10."):
        return f"nvFuser's wheel is for PyTorch 2.10; this is PyTorch {version}"
    return "nvFuser is not installed (pip install 'thunder-workbench[nvfuser]')"
