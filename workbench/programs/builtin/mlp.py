"""`mlp`: a multi-layer perceptron with GELU and a residual connection per block."""

import torch
from torch import Tensor, nn

from workbench.programs.registry import at_least, program


class Block(nn.Module):
    """Two linear layers with a GELU between them, added to the input."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` and the result have shape (batch, width)."""
        hidden: Tensor = nn.functional.gelu(self.up(x))
        down: Tensor = self.down(hidden)
        return x + down


class MLP(nn.Module):
    """A sequence of blocks."""

    def __init__(self, layers: int, width: int, hidden: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, hidden) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` and the result have shape (batch, width)."""
        for block in self.blocks:
            x = block(x)
        return x


@program
def mlp(*, layers: int = 4, width: int = 64, hidden: int = 256, batch: int = 32) -> tuple[MLP, tuple[Tensor]]:
    """Multi-layer perceptron with GELU and residual connections."""
    at_least(1, layers=layers, width=width, hidden=hidden, batch=batch)
    return MLP(layers, width, hidden), (torch.randn(batch, width),)
