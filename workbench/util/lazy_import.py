"""Import the public names of a package at their first use, so that importing the package needs no dependencies."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def attributes(package: str, files: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` function for a package that imports each name at its first use.

    Parameters
    ----------
    package : str
    files : mapping of str to str
        Maps each name to the module that contains it, relative to the package.
    """

    def find(name: str) -> Any:
        if name not in files:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{package}.{files[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
