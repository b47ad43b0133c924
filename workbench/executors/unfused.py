"""Executor `torch`: PyTorch's operators, without fusions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.core.executor import Executor, register

if TYPE_CHECKING:
    from workbench.compiler.fusion.executors import ExecutorState


@register
class Torch(Executor):
    """PyTorch's operators run all statements, without fusions."""

    name = "torch"
    fuses = False
    order = 30

    def executors(self, stock: Sequence[Any], control: ExecutorState) -> list[Any]:
        """Return Thunder's default executors, which make no fusions."""
        return list(stock)
