"""`lost_update` and `checkpoint_dropout`: programs that unmodified Thunder computes wrongly, as it does `swap`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from workbench.errors import ProgramError
from workbench.programs.registry import at_least, program


@program
def lost_update(*, size: int = 8, row: bool = False) -> tuple[Callable[[Tensor, Tensor], None], tuple[Tensor, Tensor]]:
    """Update of a tensor, or of a row, through a view. Thunder loses the update: it drops a fusion that only copies."""
    at_least(1, size=size)

    def update_row(a: Tensor, b: Tensor) -> None:
        a[0].add_(b)

    def update_all(a: Tensor, b: Tensor) -> None:
        a.view(-1).add_(b.view(-1))

    if row:
        return update_row, (torch.randn(size, size), torch.randn(size))
    return update_all, (torch.randn(size, size), torch.randn(size, size))


class CheckpointedDropout(nn.Module):
    """Two linear layers with a dropout between them; if `checkpointed`, the backward recomputes them."""

    def __init__(self, width: int, p: float, checkpointed: bool) -> None:
        super().__init__()
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)
        self.p = p
        self.checkpointed = checkpointed

    def inner(self, x: Tensor) -> Tensor:
        """Compute the layers that the backward recomputes if they are checkpointed."""
        dropped: Tensor = self.down(nn.functional.dropout(torch.tanh(self.up(x)), p=self.p))
        return dropped

    def forward(self, x: Tensor) -> Tensor:
        """``x`` and the result have shape (batch, width)."""
        if not self.checkpointed:
            return self.inner(x)
        again: Tensor = checkpoint(self.inner, x, use_reentrant=False)
        return again


@program
def checkpoint_dropout(
    *, width: int = 16, batch: int = 8, p: float = 0.5, checkpointed: bool = True
) -> tuple[CheckpointedDropout, tuple[Tensor]]:
    """Checkpoint around a dropout. Thunder draws a new mask in the backward, so its gradients fit a different mask."""
    at_least(1, width=width, batch=batch)
    if not 0.0 <= p < 1.0:
        raise ProgramError(f"p must be at least 0 and less than 1, given {p}")
    return CheckpointedDropout(width, p, checkpointed), (torch.randn(batch, width),)
