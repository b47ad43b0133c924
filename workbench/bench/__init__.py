"""`Workbench` and `open`: the whole product without a screen.

What needs PyTorch is imported when it is first asked for: a baseline that is not there is missed without it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.bench.bench import Workbench
    from workbench.bench.changes import PlanDiff
    from workbench.bench.compared import SideBySide
    from workbench.bench.comparing import compare
    from workbench.bench.handed import SavedPlan
    from workbench.bench.opening import open
    from workbench.bench.parts import OpaquePart, Part, PartsBench

__all__ = ["OpaquePart", "Part", "PartsBench", "PlanDiff", "SavedPlan", "SideBySide", "Workbench", "compare", "open"]

_FILES = {
    "OpaquePart": "parts",
    "Part": "parts",
    "PartsBench": "parts",
    "PlanDiff": "changes",
    "SavedPlan": "handed",
    "SideBySide": "compared",
    "Workbench": "bench",
    "compare": "comparing",
    "open": "opening",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_FILES[name]}"), name)
    globals()[name] = found
    return found
