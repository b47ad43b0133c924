"""`Workbench` and `open`: the whole product without a screen."""

from workbench.bench.bench import Workbench
from workbench.bench.changes import PlanDiff
from workbench.bench.opening import open

__all__ = ["PlanDiff", "Workbench", "open"]
