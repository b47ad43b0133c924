"""The compiler's verbs, in the order in which they are used, each from the file where it lives."""

from workbench.compiler.capture import Capture
from workbench.compiler.hooks import Hooks
from workbench.compiler.jit import jit, proofs_of, unmodified
from workbench.compiler.plan import Plan
from workbench.compiler.reopened import capture
from workbench.compiler.replan import plan, predict, replan

__all__ = [
    "Capture",
    "Hooks",
    "Plan",
    "capture",
    "jit",
    "plan",
    "predict",
    "proofs_of",
    "replan",
    "unmodified",
]
