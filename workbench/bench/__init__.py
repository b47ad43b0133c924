"""`Workbench` and `open`: the whole product without a user interface.

Importing this package does not import PyTorch; the first use of a name may. `thunder-workbench check` can therefore
report a missing baseline file without importing PyTorch.
"""

from typing import TYPE_CHECKING

from workbench.util.lazy_import import attributes

if TYPE_CHECKING:
    from workbench.bench.open_bench import open
    from workbench.bench.open_comparison import compare
    from workbench.bench.report.comparison import SideBySide
    from workbench.bench.report.open_saved_plan import SavedPlan
    from workbench.bench.session.multi_graph import OpaquePart, Part, PartsBench
    from workbench.bench.session.plan_diff import PlanDiff
    from workbench.bench.session.workbench import Workbench

__all__ = ["OpaquePart", "Part", "PartsBench", "PlanDiff", "SavedPlan", "SideBySide", "Workbench", "compare", "open"]

_FILES = {
    "OpaquePart": "session.multi_graph",
    "Part": "session.multi_graph",
    "PartsBench": "session.multi_graph",
    "PlanDiff": "session.plan_diff",
    "SavedPlan": "report.open_saved_plan",
    "SideBySide": "report.comparison",
    "Workbench": "session.workbench",
    "compare": "open_comparison",
    "open": "open_bench",
}

__getattr__ = attributes(__name__, _FILES)
