"""Executor `torchcompile_aten`: `torchcompile` with fewer regions, and operators with a faster backward on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.core.executor import Executor, register

if TYPE_CHECKING:
    from workbench.compiler.fusion.executors import ExecutorState


@register
class TorchCompileAten(Executor):
    """Regions between PyTorch's operators, one of which is attention; Thunder decomposes attention on a CPU."""

    name = "torchcompile_aten"
    copies = "regions"
    order = 25

    def why_not(self, device: str) -> str:
        """Not on a GPU, for which Thunder has its own kernels for attention."""
        if device == "cpu":
            return ""
        return "executor 'torchcompile_aten' has a CPU kernel for attention; for a GPU use 'nvfuser' or 'torchcompile'"

    def executors(self, stock: Sequence[Any], control: ExecutorState) -> list[Any]:
        """First the executor of these operators, then that of the regions, then Thunder's own."""
        from workbench.compiler.fusion.executors import region_executor
        from workbench.compiler.lowering.aten_cpu import IN_REGIONS, aten_executor

        return [aten_executor(), region_executor(control, IN_REGIONS, past_others=True), *stock]
