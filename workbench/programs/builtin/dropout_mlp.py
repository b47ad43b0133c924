"""`dropout_mlp`: layers with dropout. If a dropout is recomputed, it must draw the same random mask again."""

import torch
from torch import Tensor, nn

from workbench.errors import ProgramError
from workbench.programs.registry import at_least, program


class DropoutMLP(nn.Module):
    """Linear layers, each followed by a GELU and a dropout."""

    def __init__(self, layers: int, width: int, p: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """``x`` and the result have shape (batch, width)."""
        for layer in self.layers:
            x = nn.functional.dropout(nn.functional.gelu(layer(x)), p=self.p)
        return x


@program
def dropout_mlp(
    *, layers: int = 2, width: int = 64, batch: int = 32, p: float = 0.5
) -> tuple[DropoutMLP, tuple[Tensor]]:
    """Linear layers with GELU and dropout of probability p."""
    at_least(1, layers=layers, width=width, batch=batch)
    if not 0.0 <= p < 1.0:
        raise ProgramError(f"p must be at least 0 and less than 1, given {p}")
    return DropoutMLP(layers, width, p), (torch.randn(batch, width),)
