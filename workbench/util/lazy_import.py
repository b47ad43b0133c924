"""Lazy imports of a package's public names: the names are known without their dependencies."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def attributes(package: str, files: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__`.

    Parameters
    ----------
    package : str
    files : mapping of str to str
        Maps each name to the package's module that contains it.
    """

    def find(name: str) -> Any:
        if name not in files:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{package}.{files[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
