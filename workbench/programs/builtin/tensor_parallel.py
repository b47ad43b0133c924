"""`tensor_parallel_mlp`: blocks of two linear layers whose hidden features are split over ranks."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.programs.registry import at_least, parallel, program


class Block(nn.Module):
    """Layer norm and two linear layers with a GELU between them, added to the residual stream."""

    def __init__(self, dim: int, hidden: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, dtype=dtype)
        self.up = nn.Linear(dim, hidden, dtype=dtype)
        self.down = nn.Linear(hidden, dim, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` and the result have shape (batch, dim)."""
        out: Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
        return out


class MLP(nn.Module):
    """A sequence of blocks; the forward returns the mean square of the last block's output."""

    def __init__(self, *, layers: int, dim: int, hidden: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(dim, hidden, dtype) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean square for ``x`` of shape (batch, dim)."""
        for layer in self.layers:
            x = layer(x)
        return x.float().square().mean()


@parallel("tensor")
@program
def tensor_parallel_mlp(
    *,
    layers: int = 2,
    dim: int = 64,
    hidden: int = 256,
    batch: int = 32,
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> tuple[MLP, tuple[Tensor]]:
    """Blocks of two linear layers; each rank has a part of the hidden features, and the whole batch."""
    at_least(1, layers=layers, dim=dim, hidden=hidden, batch=batch)
    model = MLP(layers=layers, dim=dim, hidden=hidden, dtype=getattr(torch, dtype))
    return model, (torch.randn(batch, dim, dtype=getattr(torch, dtype)),)
