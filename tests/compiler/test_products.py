"""Products that are called as Inductor calls them give the same bits, and lie as they did."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import linear

from workbench.compiler.direct import Layout
from workbench.compiler.products import READS, product


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def written(called: Callable[..., Any], given: tuple[torch.Tensor | None, ...]) -> tuple[ast.expr, Layout] | None:
    args: list[ast.expr] = [
        ast.Constant(None) if each is None else ast.Name(f"t{at}", ast.Load()) for at, each in enumerate(given)
    ]
    return product(called, args, [None if each is None else Layout.of(each) for each in given])


def same_bits(called: Callable[..., Any], given: tuple[torch.Tensor | None, ...]) -> bool:
    """Whether a product is written; it gives what it gave."""
    found = written(called, given)
    if found is None:
        return False
    values = {**READS, **{f"t{at}": each for at, each in enumerate(given)}}
    made = eval(compile(ast.fix_missing_locations(ast.Expression(found[0])), "", "eval"), values)
    wanted = called(*given)
    assert torch.equal(made, wanted)
    assert Layout.of(made) == Layout.of(wanted) == found[1]
    assert made.storage_offset() == wanted.storage_offset()
    assert not made._is_view()
    assert made.untyped_storage().nbytes() == wanted.untyped_storage().nbytes()
    return True


FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("called", "shapes"),
    [
        (torch.matmul, ((17, 23), (23, 9))),
        (torch.addmm, ((9,), (17, 23), (23, 9))),
        (linear, ((17, 23), (9, 23), None)),
        (linear, ((17, 23), (9, 23), (9,))),
        (linear, ((4, 17, 23), (9, 23), None)),
        (linear, ((4, 17, 23), (9, 23), (9,))),
        (linear, ((1, 1, 23), (1, 23), (1,))),
    ],
)
def test_the_same_bits_lie_the_same(
    called: Callable[..., Any], shapes: tuple[tuple[int, ...] | None, ...], dtype: torch.dtype
) -> None:
    whole = tuple(None if shape is None else drawn(*shape, dtype=dtype) for shape in shapes)
    turned = [each.t().contiguous().t() if each is not None and each.ndim == 2 else each for each in whole]
    flat = len(shapes[0] or ()) < 3
    apart = [
        torch.stack([each, each], -1)[..., 0] if each is not None and (flat or each.ndim == 2) else each
        for each in whole
    ]
    for given in (whole, tuple(turned), tuple(apart)):
        assert same_bits(called, given)


@pytest.mark.parametrize(
    ("called", "given"),
    [
        (torch.matmul, (drawn(2, 3, 4), drawn(2, 4, 3))),
        (torch.matmul, (drawn(3, 4), drawn(4))),
        (torch.matmul, (drawn(0, 4), drawn(4, 3))),
        (torch.matmul, (drawn(3, 4).long(), drawn(4, 3).long())),
        (torch.matmul, (drawn(3, 4).to(torch.complex64), drawn(4, 3).to(torch.complex64))),
        (linear, (drawn(4, 5, 6).transpose(0, 1), drawn(3, 6), drawn(3))),
        (linear, (drawn(4, 5, 6), drawn(3, 6), drawn(3, 2)[:, 0])),
        (linear, (drawn(2, 4, 5, 6), drawn(3, 6), None)),
        (linear, (drawn(5, 6), drawn(6), None)),
        (linear, (drawn(5, 6), drawn(3, 6), drawn(1))),
        (torch.addmm, (drawn(5, 3), drawn(5, 6), drawn(6, 3))),
        (torch.dot, (drawn(4), drawn(4))),
        (None, (drawn(4), drawn(4))),
    ],
)
def test_other_products_stay_as_they_are(called: Any, given: tuple[torch.Tensor | None, ...]) -> None:
    assert written(called, given) is None


def test_a_bias_of_which_nothing_is_known_stays_as_it_is() -> None:
    args: list[ast.expr] = [ast.Name(name, ast.Load()) for name in ("a", "weight", "bias")]
    assert product(linear, args, [Layout.of(drawn(5, 6)), Layout.of(drawn(3, 6)), None]) is None


def somehow(draw: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor that lies in one of many ways."""
    way = draw.choice(["close", "turned", "gaps", "part", "one for many"])
    if way == "turned":
        axes = draw.sample(range(len(shape)), len(shape))
        return drawn(*(shape[at] for at in axes), dtype=dtype).permute([axes.index(at) for at in range(len(shape))])
    if way == "gaps":
        return drawn(*shape, 2, dtype=dtype)[..., 0]
    if way == "part":
        return drawn(*(size + 1 for size in shape), dtype=dtype)[tuple(slice(1, None) for _ in shape)]
    if way == "one for many":
        at = draw.randrange(len(shape))
        return drawn(*shape[:at], 1, *shape[at + 1 :], dtype=dtype).expand(shape)
    return drawn(*shape, dtype=dtype)


def test_products_of_tensors_that_lie_somehow_are_the_same_bits() -> None:
    draw, count = random.Random(0), 0
    for _ in range(1500):
        dtype = draw.choice(FLOATS)
        stack, rows, inner, columns = (draw.choice([1, 1, 2, 3, 7, 16]) for _ in range(4))
        one = somehow(draw, draw.choice([(rows, inner), (stack, rows, inner)]), dtype)
        bias = draw.choice([None, somehow(draw, (columns,), dtype)])
        count += same_bits(linear, (one, somehow(draw, (columns, inner), dtype), bias))
        other = somehow(draw, (inner, columns), dtype)
        count += same_bits(torch.matmul, (one, other))
        count += bias is not None and one.ndim == 2 and same_bits(torch.addmm, (bias, one, other))
    assert count > 1500
