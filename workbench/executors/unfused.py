"""Executor `torch`: PyTorch's own operators, nothing fused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.core.executor import Executor, register

if TYPE_CHECKING:
    from workbench.compiler.fusion.executors import ExecutorState


@register
class Torch(Executor):
    """Every statement is an operator of PyTorch."""

    name = "torch"
    fuses = False
    order = 30

    def executors(self, stock: Sequence[Any], control: ExecutorState) -> list[Any]:
        """Thunder's own."""
        return list(stock)
