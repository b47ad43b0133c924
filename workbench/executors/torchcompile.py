"""Executor `torchcompile`: torch.compile compiles regions of statements, as nvFuser compiles fusions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.core.executor import Executor, register

if TYPE_CHECKING:
    from workbench.compiler.fusion.executors import ExecutorState


@register
class TorchCompile(Executor):
    """torch.compile compiles regions of elementwise operators, reductions and views. PyTorch runs other operators."""

    name = "torchcompile"
    copies = "regions"
    order = 20

    def executors(self, stock: Sequence[Any], control: ExecutorState) -> list[Any]:
        """Return the executor that compiles regions, and then Thunder's default executors."""
        from workbench.compiler.fusion.executors import region_executor

        return [region_executor(control), *stock]
