"""The main functions and types of the compiler for other packages, imported from their modules."""

from workbench.compiler.driver.capture import Capture
from workbench.compiler.driver.jit import jit, proofs_of, stock, unmodified
from workbench.compiler.driver.open_cached import capture
from workbench.compiler.driver.torch_choices import TorchChoices, torch_choices
from workbench.compiler.driver.torch_choices import checkpoint as torch_checkpoint
from workbench.compiler.driver.torch_choices import compile as torch_compile
from workbench.compiler.pipeline.compilation import Hooks
from workbench.compiler.planner.plan import Plan
from workbench.compiler.planner.planner import plan, predict, replan

__all__ = [
    "Capture",
    "Hooks",
    "Plan",
    "TorchChoices",
    "capture",
    "jit",
    "plan",
    "predict",
    "proofs_of",
    "replan",
    "stock",
    "torch_checkpoint",
    "torch_choices",
    "torch_compile",
    "unmodified",
]
