"""Executor `torchcompile_aten`: `torchcompile` with fewer regions, and operators with a faster backward on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.core.executor import Executor, register

if TYPE_CHECKING:
    from workbench.compiler.fusion.executors import ExecutorState


@register
class TorchCompileAten(Executor):
    """torch.compile compiles regions of statements. Attention and `addmm` run as PyTorch's CPU kernels.

    With the other executors, Thunder decomposes attention on a CPU.
    """

    name = "torchcompile_aten"
    copies = "regions"
    order = 25

    def why_not(self, device: str) -> str:
        """Return why this executor cannot be used on a GPU, where Thunder has its own attention kernels.

        Return an empty text on a CPU.
        """
        if device == "cpu":
            return ""
        return "executor 'torchcompile_aten' has a CPU kernel for attention; for a GPU use 'nvfuser' or 'torchcompile'"

    def executors(self, stock: Sequence[Any], control: ExecutorState) -> list[Any]:
        """Return the executor of PyTorch's CPU operators, the executor of regions, and Thunder's default executors."""
        from workbench.compiler.fusion.executors import region_executor
        from workbench.compiler.lowering.aten_cpu import IN_REGIONS, aten_executor

        return [aten_executor(), region_executor(control, IN_REGIONS, past_others=True), *stock]
