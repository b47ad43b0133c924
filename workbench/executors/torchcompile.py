"""Executor `torchcompile`: regions like nvFuser's, compiled by torch.compile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.core.executor import Executor, register

if TYPE_CHECKING:
    from workbench.compiler.fusion.executors import ExecutorState


@register
class TorchCompile(Executor):
    """Elementwise ops, reductions and views in regions; PyTorch's ops between them."""

    name = "torchcompile"
    copies = "regions"
    order = 20

    def executors(self, stock: Sequence[Any], control: ExecutorState) -> list[Any]:
        """The regions' before Thunder's own."""
        from workbench.compiler.fusion.executors import region_executor

        return [region_executor(control), *stock]
