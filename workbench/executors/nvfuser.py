"""Executor `nvfuser`: Thunder's nvFuser executor, with cuts between fusions that the workbench controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.core.executor import Executor, register, why_no_nvfuser

if TYPE_CHECKING:
    from workbench.compiler.fusion.executors import ExecutorState


@register
class NvFuser(Executor):
    """nvFuser compiles fusions, for an attached or a planned GPU."""

    name = "nvfuser"
    copies = "sets"
    order = 10

    def why_not(self, device: str) -> str:
        """Return why nvFuser cannot be used: on a CPU, or without its wheel. Empty if it can be used."""
        if device == "cpu":
            return "nvFuser fuses CUDA tensors only; on a CPU use executor 'torch' or 'torchcompile'"
        reason = why_no_nvfuser()
        return f"executor 'nvfuser' cannot be used: {reason}" if reason else ""

    def executors(self, stock: Sequence[Any], control: ExecutorState) -> list[Any]:
        """Return Thunder's default executors without `torch`, and then the nvFuser executor."""
        from workbench.compiler.fusion.executors import nvfuser_executor

        return [*(executor for executor in stock if executor.name != "torch"), nvfuser_executor(control)]
