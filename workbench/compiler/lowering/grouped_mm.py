"""Record `torch.nn.functional.grouped_mm` with its gradient, because Thunder lacks the gradient.

Mixture-of-experts layers use this operator. It multiplies each row by the matrix of the row's group. The gradient of
the rows is the same product with transposed matrices. The gradient of the matrices is, for each group, a product of two
matrices of rows. Thunder's primitive does not support such operands. This module defines both products as operators.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from workbench.compiler.fastpath.own_executors import new_executor, register_grad
from workbench.compiler.interop.thunder_api import (
    Symbol,
    TensorProxy,
    prims,
    thunder_functions,
)

NAME = "workbench_grouped"


def _rows_meta(a: TensorProxy, b: TensorProxy, offsets: TensorProxy) -> TensorProxy:
    del offsets
    return TensorProxy(like=a, shape=(a.shape[0], b.shape[2]))


def _groups_meta(a: TensorProxy, b: TensorProxy, offsets: TensorProxy) -> TensorProxy:
    return TensorProxy(like=a, shape=(offsets.shape[0], a.shape[0], b.shape[1]))


def _run(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.grouped_mm(_readable(a), _readable(b), offs=offsets)


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in a layout that PyTorch's kernel accepts.

    The rows or the columns must be contiguous, and each must start at a multiple of 16 bytes.
    """
    whole = 16 // tensor.element_size()
    for inner, outer in ((-1, -2), (-2, -1)):
        step = tensor.stride(outer)
        if tensor.stride(inner) == 1 and step >= max(1, tensor.shape[inner]) and step % whole == 0:
            return tensor
    return tensor.contiguous()


@functools.cache
def grouped_mm_symbols() -> tuple[Symbol, Symbol]:
    """Return the symbols of the two products.

    The first multiplies each row by the matrix of its group. The second multiplies, for each group, the transposed rows
    of one matrix by the rows of another.
    """
    executor = new_executor(NAME)
    tags = [prims.OpTags.MATMUL_OP]
    rows = executor.register_operator("grouped_mm", meta=_rows_meta, fn=_run, tags=tags)
    groups = executor.register_operator("grouped_mm_of_groups", meta=_groups_meta, fn=_run, tags=tags)
    turned = thunder_functions[torch.transpose]

    def differentiate(a: Any, b: Any, offsets: Any) -> Any:
        made = rows(a, b, offsets)
        grad = prims.get_grad(made)
        prims.put_grad(a, rows(grad, turned(b, 1, 2), offsets))
        prims.put_grad(b, groups(turned(a, 0, 1), grad, offsets))
        return made

    register_grad(rows, differentiate)
    return rows, groups


def grouped_mm(
    mat_a: TensorProxy,
    mat_b: TensorProxy,
    *,
    offs: TensorProxy | None = None,
    bias: Any = None,
    out_dtype: Any = None,
) -> Any:
    """Replace `torch.nn.functional.grouped_mm` of a matrix of rows and one matrix per group.

    Parameters
    ----------
    mat_a : TensorProxy
        (rows, size)
    mat_b : TensorProxy
        (groups, size, columns)
    offs : TensorProxy
        (groups,), int32. For each group, the index after its last row.

    Raises
    ------
    NotImplementedError
        If the call has arguments of other shapes, a `bias` or an `out_dtype`.
    """
    if offs is None or bias is not None or out_dtype is not None or (mat_a.ndim, mat_b.ndim) != (2, 3):
        raise NotImplementedError(
            "grouped_mm with arguments other than a matrix of rows, one matrix per group, and offs"
        )
    return grouped_mm_symbols()[0](mat_a, mat_b, offs)


def find_grouped_mm_symbol(name: str) -> Symbol:
    """Return the symbol with the name `name`. A pickled trace uses this name to find the symbol in another process."""
    return next(symbol for symbol in grouped_mm_symbols() if symbol.name == name)
