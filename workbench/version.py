"""`__version__`: the version of the installed workbench."""

import importlib.metadata

try:
    __version__ = importlib.metadata.version("thunder-workbench")
except importlib.metadata.PackageNotFoundError:
    __version__ = "0.0"  # a folder that is not installed; pyproject.toml has the same fallback
