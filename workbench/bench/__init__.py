"""`Workbench` and `open`: the whole product without a screen.

What needs PyTorch is imported when it is first asked for: a baseline that is not there is missed without it.
"""

from typing import TYPE_CHECKING

from workbench.lazy import attributes

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

__getattr__ = attributes(__name__, _FILES)
