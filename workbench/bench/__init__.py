"""`Workbench` and `open`: the whole product without a screen."""

from workbench.bench.bench import Workbench
from workbench.bench.changes import PlanDiff
from workbench.bench.compared import SideBySide
from workbench.bench.comparing import compare
from workbench.bench.handed import SavedPlan
from workbench.bench.opening import open
from workbench.bench.parts import OpaquePart, Part, PartsBench

__all__ = ["OpaquePart", "Part", "PartsBench", "PlanDiff", "SavedPlan", "SideBySide", "Workbench", "compare", "open"]
