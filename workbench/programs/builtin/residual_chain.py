"""`residual_chain`: a transformer's residual stream with trivial layers, to show the cost of one recompute choice.

The function and its small random inputs come from nvFuser's issue 2916: if each addition is recomputed, every fusion
differs from the previous one.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from workbench.programs.registry import at_least, program


def norm_1(x: Tensor) -> Tensor:
    """Stands for a layer norm."""
    return torch.tanh(x)


def norm_2(x: Tensor) -> Tensor:
    """Stands for a layer norm."""
    return torch.tanh(x)


def mlp(weight: Tensor, x: Tensor) -> Tensor:
    """Stands for an MLP: one matrix product, which is not fused."""
    return weight @ x


def attn(weight: Tensor, x: Tensor) -> Tensor:
    """Stands for an attention: one matrix product, which is not fused."""
    return weight @ x


@program
def residual_chain(
    *, layers: int = 8, size: int = 10, grad: bool = False
) -> tuple[Callable[[Tensor, Tensor], Tensor], tuple[Tensor, Tensor]]:
    """Residual additions around tanh and matrix products (nvFuser issue 2916)."""
    at_least(1, layers=layers, size=size)

    def residual_chain(weight: Tensor, x: Tensor) -> Tensor:
        x_add_mlp = x
        for _ in range(layers):
            x_normed_1 = norm_1(x_add_mlp)
            attention_output = attn(weight, x_normed_1)
            x_add_attn = attention_output + x_add_mlp
            x_normed_2 = norm_2(x_add_attn)
            mlp_output = mlp(weight, x_normed_2)
            x_add_mlp = mlp_output + x_add_attn
        return x_add_mlp

    weight, x = torch.randn(size, size, requires_grad=grad), torch.randn(size, size, requires_grad=grad)
    return residual_chain, (weight, x)
