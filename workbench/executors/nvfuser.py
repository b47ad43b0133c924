"""Executor `nvfuser`: Thunder's nvFuser executor, but the workbench controls the cuts between fusions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.core.executor import Executor, register, why_no_nvfuser

if TYPE_CHECKING:
    from workbench.compiler.fusion.executors import ExecutorState


@register
class NvFuser(Executor):
    """Fusions by nvFuser, on an attached or a planned GPU."""

    name = "nvfuser"
    copies = "sets"
    order = 10

    def why_not(self, device: str) -> str:
        """Return a reason on a CPU, or if the wheel of nvFuser is not installed."""
        if device == "cpu":
            return "nvFuser fuses CUDA tensors only; on a CPU use executor 'torch' or 'torchcompile'"
        reason = why_no_nvfuser()
        return f"executor 'nvfuser' cannot be used: {reason}" if reason else ""

    def executors(self, stock: Sequence[Any], control: ExecutorState) -> list[Any]:
        """Return Thunder's default executors without `torch`, and then the nvFuser executor."""
        from workbench.compiler.fusion.executors import nvfuser_executor

        return [*(executor for executor in stock if executor.name != "torch"), nvfuser_executor(control)]
