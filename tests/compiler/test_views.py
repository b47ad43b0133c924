"""Views in a trace's own function as Inductor makes them: the same bits, and writes are still noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import workbench
from workbench.compiler import steps

EXECUTOR = "torchcompile_aten"
linear = nn.functional.linear

type Program = Callable[..., torch.Tensor]


def drawn(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype).requires_grad_()


def biased(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.tanh(linear(torch.sin(x), w, b))


def plain(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.tanh(linear(torch.sin(x), w)) * b


def turned(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Rows that do not lie together."""
    return torch.tanh(linear(x.transpose(0, 1), w, b))


def weighted(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A weight that does not lie together."""
    return torch.tanh(linear(torch.sin(x), w.t().contiguous().t(), b))


def flat(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.tanh(torch.sin(x).reshape(-1, x.shape[-1]) @ w.t() + b)


def batched(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.tanh(torch.matmul(torch.sin(x), torch.cos(x).transpose(1, 2))) * b.sum() * w.sum()


def dropped(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.tanh(nn.functional.dropout(linear(torch.sin(x), w, b), 0.5))


def results(program: Program, args: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    run = workbench.open(program, *args, device="cpu", executor=EXECUTOR).config.jit(program)
    torch.manual_seed(7)
    found: list[torch.Tensor] = []
    for _ in range(4):
        for arg in args:
            arg.grad = None
        out = run(*args)
        out.square().sum().backward()
        found += [out.detach(), *(arg.grad for arg in args if arg.grad is not None)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "shape", "dtype"),
    [
        (biased, (3, 5, 8), torch.float32),
        (biased, (3, 8), torch.float32),
        pytest.param(biased, (3, 5, 8), torch.bfloat16, marks=pytest.mark.long),
        pytest.param(plain, (3, 5, 8), torch.float32, marks=pytest.mark.long),
        (turned, (3, 5, 8), torch.float32),
        pytest.param(weighted, (3, 5, 8), torch.float32, marks=pytest.mark.long),
        pytest.param(biased, (1, 5, 8), torch.float32, marks=pytest.mark.long),
        pytest.param(biased, (2, 3, 5, 8), torch.float32, marks=pytest.mark.long),
        (flat, (3, 5, 8), torch.float32),
        (batched, (3, 5, 8), torch.float32),
        (dropped, (3, 5, 8), torch.float32),
    ],
)
def test_views_that_products_read_are_the_same_bits_as_through_thunder(
    program: Program, shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = drawn(*shape, seed=0, dtype=dtype), drawn(6, 8, seed=1, dtype=dtype), drawn(6, seed=2, dtype=dtype)
    if program is batched:
        args = args[0], args[1], drawn(5, seed=2)
    straight = results(program, args)
    monkeypatch.setattr(steps, "WAYS", 0)
    looked_through = results(program, args)
    for one, other in zip(straight, looked_through, strict=True):
        assert one.stride() == other.stride()
        assert torch.equal(one, other)


def viewed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x.view(6, 4) @ w)


@pytest.mark.slow
def test_writes_to_what_a_saved_view_is_of_are_noticed() -> None:
    args = drawn(2, 3, 4, seed=0), drawn(4, 5, seed=1)
    run = workbench.open(viewed, *args, device="cpu", executor=EXECUTOR).config.jit(viewed)
    for _ in range(4):
        out = run(*args)
        out.sum().backward()
    out = run(*args)
    with torch.no_grad():
        args[0].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
