"""`swap`, `two_destinations`, `return_source`: in-place copies that a compiler gets wrong if it ignores their order."""

from collections.abc import Callable

import torch
from torch import Tensor

from workbench.programs.registry import at_least, program


@program
def swap(*, size: int = 64) -> tuple[Callable[[Tensor, Tensor], None], tuple[Tensor, Tensor]]:
    """Swap the contents of two tensors in place; the old content of the first must be read before it is overwritten."""
    at_least(1, size=size)

    def swap(a: Tensor, b: Tensor) -> None:
        t = a.clone()
        a.copy_(b)
        b.copy_(t)

    return swap, (torch.randn(size), torch.randn(size))


@program
def two_destinations(
    *, size: int = 64
) -> tuple[Callable[[Tensor, Tensor, Tensor, Tensor], None], tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Copy one value into two tensors, although nvFuser can alias a value to only one destination."""
    at_least(1, size=size)

    def two_destinations(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> None:
        t = a + b
        c.copy_(t)
        d.copy_(t)

    return two_destinations, (torch.randn(size), torch.randn(size), torch.randn(size), torch.randn(size))


@program
def return_source(*, size: int = 64) -> tuple[Callable[[Tensor, Tensor], Tensor], tuple[Tensor, Tensor]]:
    """Return a value and also copy it into an input; the result and the input must both hold it."""
    at_least(1, size=size)

    def return_source(a: Tensor, b: Tensor) -> Tensor:
        t = a * b
        a.copy_(t)
        return t

    return return_source, (torch.randn(size), torch.randn(size))
