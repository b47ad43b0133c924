"""`swap`, `two_destinations`, `return_source`: in-place copies that a compiler gets wrong if it ignores their order."""

from collections.abc import Callable

import torch
from torch import Tensor

from workbench.programs.registry import at_least, program


@program
def swap(*, size: int = 64) -> tuple[Callable[[Tensor, Tensor], None], tuple[Tensor, Tensor]]:
    """Two tensors swap their contents in place: one is read after it has been written."""
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
    """One value is copied into two tensors, but nvFuser aliases a value to only one destination."""
    at_least(1, size=size)

    def two_destinations(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> None:
        t = a + b
        c.copy_(t)
        d.copy_(t)

    return two_destinations, (torch.randn(size), torch.randn(size), torch.randn(size), torch.randn(size))


@program
def return_source(*, size: int = 64) -> tuple[Callable[[Tensor, Tensor], Tensor], tuple[Tensor, Tensor]]:
    """A value is both returned and copied into an input, and both must hold it."""
    at_least(1, size=size)

    def return_source(a: Tensor, b: Tensor) -> Tensor:
        t = a * b
        a.copy_(t)
        return t

    return return_source, (torch.randn(size), torch.randn(size))
