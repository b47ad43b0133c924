"""Products of matrices in a trace's function, called as Inductor calls them where it is known how all of them lies.

`linear` and `matmul` come to one call of `mm` or `addmm` for what is dealt with here, after several of the dispatcher.
Those two, or an `addmm` itself, are called at once, on the same matrices, as views that autograd does not know of, and
write into memory that is made here: the same kernel, and so the same bits.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from workbench.compiler.direct import Layout
from workbench.torch_api import _empty_strided_cpu, _reinterpret_tensor

VIEW_OF = "wb_view_of"
"""Inductor's view, as the written code calls it."""
_MEMORY, _MM, _ADDMM = "wb_memory", "wb_mm", "wb_addmm"
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_DTYPES = {f"wb_{str(each).partition('.')[2]}": each for each in _FLOATS}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
READS: dict[str, Any] = {
    VIEW_OF: _reinterpret_tensor, _MEMORY: _empty_strided_cpu, _MM: torch.mm, _ADDMM: torch.addmm, **_DTYPES,
}  # fmt: skip
"""What written code reads beside a trace's own."""


def contiguous(size: Sequence[int]) -> tuple[int, ...]:
    """The strides of new memory."""
    return tuple(math.prod(size[axis + 1 :]) for axis in range(len(size)))


def product(
    called: Callable[..., Any] | None, args: Sequence[ast.expr], layouts: Sequence[Layout | None]
) -> tuple[ast.expr, Layout] | None:
    """A product written as a call of `mm` or `addmm`, and how what it gives lies; None for what stays as it is.

    Parameters
    ----------
    called : callable or None
        What the trace calls.
    args : sequence of ast.expr
        What it gives to that.
    layouts : sequence of Layout or None
        How each of those lies; None for what is no tensor.
    """
    texts = [ast.unparse(arg) for arg in args]
    bias: Layout | None = None
    match called, layouts:
        case torch.matmul, (Layout() as left, Layout() as right):
            text_of, of_bias = texts, ""
            right_size, right_stride, turned = right.size, right.stride, False
        case torch.addmm, (Layout() as bias, Layout() as left, Layout() as right):
            of_bias, *text_of = texts
            right_size, right_stride, turned = right.size, right.stride, False
        case torch.nn.functional.linear, (Layout() as left, Layout() as right, Layout() | None as bias):
            if bias is None and texts[2] != "None":
                return None
            text_of, of_bias = texts[:2], texts[2]
            right_size, right_stride, turned = right.size[::-1], right.stride[::-1], True
        case _:
            return None
    given = [left, right, *([] if bias is None else [bias])]
    if any(each.dtype not in _FLOATS or each.dtype != left.dtype for each in given):
        return None
    if any(each.device.type != "cpu" or not math.prod(each.size) for each in given):
        return None
    flat = len(left.size) == 2
    # Of a stack of matrices, or a bias, that lies with gaps `linear` multiplies one by one, and adds afterwards.
    close = all(each is None or each.stride == contiguous(each.size) for each in (left, bias))
    if not (flat or (turned and len(left.size) == 3 and close)):
        return None
    if len(right_size) != 2 or left.size[-1] != right_size[0] or (bias is not None and bias.size != right_size[1:]):
        return None
    inner, columns = right_size
    rows = math.prod(left.size[:-1])
    one, other = text_of
    if not flat:
        one = f"{VIEW_OF}({one}, {(rows, inner)}, {(inner, 1)}, 0)"
    if turned:
        other = f"{VIEW_OF}({other}, {right_size}, {right_stride}, 0)"
    out = f"out={_MEMORY}({(rows, columns)}, {(columns, 1)}, {_NAMES[left.dtype]})"
    text = f"{_MM}({one}, {other}, {out})" if bias is None else f"{_ADDMM}({of_bias}, {one}, {other}, {out})"
    size = (*left.size[:-1], columns)
    if not flat:
        text = f"{VIEW_OF}({text}, {size}, {contiguous(size)}, 0)"
    return ast.parse(text, mode="eval").body, Layout(size, contiguous(size), left.dtype, left.device)
