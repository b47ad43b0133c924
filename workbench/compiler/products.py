"""Products of a trace as Inductor writes them: of matrices.

``torch.nn.functional.linear`` and ``torch.matmul`` go through up to six operators around the one that multiplies. Here
the matrices are taken as views, and that operator is called: the same kernel on the same numbers, as long as rows lie
together, which is looked at in each call.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import torch

from workbench.compiler.thunder_api import TensorProxy, TraceCtx, to_torch_dtype
from workbench.torch_api import _reinterpret_tensor

VIEW_OF = "wb_view_of"
"""Inductor's view, as the written code calls it."""
READ: dict[str, Any] = {
    VIEW_OF: _reinterpret_tensor,
    "wb_mm": torch.mm,
    "wb_addmm": torch.addmm,
}
"""What written code reads, by name."""


def called(statement: ast.stmt, known: Mapping[str, Any]) -> Callable[..., Any] | None:
    """What a statement calls to set something; None where that is not known."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return None
    first, *path = ast.unparse(statement.value.func).split(".")
    found = known.get(first)
    for name in path:
        found = getattr(found, name, None)
    return found


def tensors_of(trace: TraceCtx) -> dict[str, TensorProxy]:
    """The tensors of a trace by name."""
    statements = trace.bound_symbols
    proxies = (proxy for bsym in statements for proxy in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs))
    return {proxy.name: proxy for proxy in proxies if isinstance(proxy, TensorProxy)}


def as_matrices(statement: ast.stmt, known: Mapping[str, Any], tensors: Mapping[str, TensorProxy]) -> ast.stmt | None:
    """A product of a trace as one of matrices; None where it is none that is known.

    Parameters
    ----------
    statement : stmt
        Of a trace's function.
    known : mapping
        What that reads, by name.
    tensors : mapping
        The trace's tensors, by name.

    Returns
    -------
    stmt or None
        The statement stays in it for operands that lie otherwise.
    """
    function = called(statement, known)
    if function not in (torch.matmul, torch.nn.functional.linear):
        return None
    assert isinstance(statement, ast.Assign)
    call, (target,) = statement.value, statement.targets
    assert isinstance(call, ast.Call)
    if not isinstance(target, ast.Name) or call.keywords:
        return None
    names = [each.id if isinstance(each, ast.Name) else None for each in call.args]
    given = [None if name is None else tensors.get(name) for name in names]
    lacking = isinstance(call.args[-1], ast.Constant) and call.args[-1].value is None
    made = tensors.get(target.id)
    if made is None or given[0] is None or given[1] is None or (given[-1] is None and not lacking):
        return None
    if any(
        each is not None and (each.dtype != made.dtype or min(each.shape, default=0) < 2) for each in (*given, made)
    ):
        return None
    if not to_torch_dtype(made.dtype).is_floating_point:
        return None
    text = (_product if function is torch.matmul else _linear)(target.id, names, given)
    if not text:
        return None
    (written,) = ast.parse(text).body
    if isinstance(written, ast.If):
        written.orelse = [statement]
    return written


def _product(made: str, names: list[str | None], given: list[TensorProxy | None]) -> str:
    left, right = given
    assert left is not None
    assert right is not None
    if left.ndim != 2 or right.ndim != 2:
        return ""
    return f"{made} = wb_mm({names[0]}, {names[1]})"


def _linear(made: str, names: list[str | None], given: list[TensorProxy | None]) -> str:
    rows, weight, bias = given
    assert rows is not None
    assert weight is not None
    if rows.ndim not in (2, 3) or weight.ndim != 2 or (bias is not None and bias.shape != (weight.shape[0],)):
        return ""
    height, (wide, inner) = rows.numel // rows.shape[-1], weight.shape
    left = f"{VIEW_OF}({names[0]}, {(height, inner)}, {(inner, 1)}, 0)"
    right = f"{VIEW_OF}({names[1]}, {(inner, wide)}, {(1, inner)}, 0)"
    product = f"wb_mm({left}, {right})" if bias is None else f"wb_addmm({names[2]}, {left}, {right})"
    if rows.ndim == 3:
        shape = (*rows.shape[:-1], wide)
        product = f"{VIEW_OF}({product}, {shape}, {(shape[1] * wide, wide, 1)}, 0)"
    return f"if {names[0]}.is_contiguous() and {names[1]}.is_contiguous():\n    {made} = {product}"
