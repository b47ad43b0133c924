"""Import the public names of a package lazily, so that the package can be imported without its dependencies."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def attributes(package: str, files: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a function `__getattr__` for a package, which imports a name at its first use.

    Parameters
    ----------
    package : str
    files : mapping of str to str
        Maps each name to the module of the package that contains it.
    """

    def find(name: str) -> Any:
        if name not in files:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{package}.{files[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
