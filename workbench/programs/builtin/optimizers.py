"""`adam` and `sgd`: functions of parameters, gradients and state that take one optimizer step in place."""

from collections.abc import Callable

import torch
from torch import Tensor

from workbench.programs.registry import at_least, program

type Tensors = list[Tensor]


@program
def adam(
    *,
    parameters: int = 2,
    size: int = 64,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> tuple[Callable[..., None], tuple[Tensors, ...]]:
    """One Adam step in place, on parameters, gradients, both moving averages and step counts."""
    at_least(1, parameters=parameters, size=size)

    def adam(params: Tensors, grads: Tensors, averages: Tensors, squares: Tensors, steps: Tensors) -> None:
        with torch.no_grad():
            for param, grad, average, square, step in zip(params, grads, averages, squares, steps, strict=True):
                step.add_(1.0)
                average.mul_(beta1).add_(grad * (1.0 - beta1))
                square.mul_(beta2).add_(grad * grad * (1.0 - beta2))
                denominator = square.sqrt() / torch.sqrt(1.0 - beta2**step) + eps
                param.sub_(lr / (1.0 - beta1**step) * (average / denominator))

    shape = (size, size)
    return adam, (
        [torch.randn(shape) for _ in range(parameters)],
        [torch.randn(shape) for _ in range(parameters)],
        [torch.zeros(shape) for _ in range(parameters)],
        [torch.zeros(shape) for _ in range(parameters)],
        [torch.zeros(()) for _ in range(parameters)],
    )


@program
def sgd(
    *, parameters: int = 2, size: int = 64, lr: float = 1e-2, momentum: float = 0.9
) -> tuple[Callable[..., None], tuple[Tensors, ...]]:
    """One SGD step with momentum in place, on parameters, gradients and momentum buffers."""
    at_least(1, parameters=parameters, size=size)

    def sgd(params: Tensors, grads: Tensors, buffers: Tensors) -> None:
        with torch.no_grad():
            for param, grad, buffer in zip(params, grads, buffers, strict=True):
                buffer.mul_(momentum).add_(grad)
                param.sub_(buffer * lr)

    shape = (size, size)
    return sgd, (
        [torch.randn(shape) for _ in range(parameters)],
        [torch.randn(shape) for _ in range(parameters)],
        [torch.zeros(shape) for _ in range(parameters)],
    )
