"""An executor with better gradients than Thunder's for three operators: attention on a CPU, `addmm` and `log_softmax`.

Attention: on a CPU, Thunder decomposes the call and saves the attention weights. This executor calls PyTorch's kernels,
one for the forward and one for the backward. A separate statement makes the additive mask, so that Inductor can compile
this statement as one loop of a fusion.

`addmm`: Thunder has no gradient rule. Thunder's backward runs PyTorch's autograd, and autograd computes the product
again. This executor has a gradient rule.

`log_softmax`: Thunder saves the output. This executor saves the input, the maxima and the logarithms of the sums, and
recomputes the output from these three tensors.

This executor precedes Thunder's executors. It claims the following calls, so that no other executor runs these calls:

- attention on a CPU without dropout, if query, key and value are not empty, have four dimensions, one data type
  (float32, float16 or bfloat16), and equal batches, numbers of heads and head sizes; it may be causal or have a boolean
  mask, but not both
- `addmm` of matrices of one floating-point type, with a one-dimensional bias and with factors of one
- `log_softmax` of float32 or float64 without a cast, if the input is not empty and not zero-dimensional
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from workbench.compiler.fastpath.own_executors import new_executor
from workbench.compiler.interop.thunder_api import (
    TensorProxy,
    compile_data,
    devices,
    dtypes,
    prims,
    thunder_functions,
)
from workbench.interop.torch_private import _attention_for_cpu, _attention_for_cpu_backward

NAME = "workbench_aten"
_FORWARD, _BACKWARD, _MASK, _ADDMM = "sdpa_cpu", "sdpa_cpu_backward", "sdpa_cpu_mask", "addmm_aten"
_LOG_SOFTMAX_SUMS, _LOG_SOFTMAX = "log_softmax_aten_sums", "log_softmax_aten"
_LOG_SOFTMAX_BACKWARD = "log_softmax_aten_backward"
IN_REGIONS = (_MASK, _LOG_SOFTMAX_SUMS, _LOG_SOFTMAX, _LOG_SOFTMAX_BACKWARD)
"""Ids of this executor's operators that fusions of torch.compile may contain. The other operators call kernels."""


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output of an attention and the logarithms of the sums that normalize the attention weights.

    Parameters
    ----------
    query : Tensor
        (batch, heads, queries, size)
    key, value : Tensor
        (batch, heads, keys, size)
    mask : Tensor or None
        Additive mask from `additive_mask`. Its shape is (batch or 1, heads or 1, queries or 1, keys or 1), or
        (queries or 1, keys or 1).
    is_causal : bool
        Whether keys after a query are hidden from the query.
    scale : float or None
        Factor of the products of queries and keys. None means the reciprocal square root of the head size.

    Returns
    -------
    tuple of Tensor
        Output with the shape of the query, and logarithms with the shape (batch, heads, queries).
    """
    given = map(_readable, (query, key, value))
    made, sums = _attention_for_cpu(*given, 0.0, is_causal, attn_mask=mask, scale=scale)
    return made, sums


def attention_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    output: torch.Tensor,
    sums: torch.Tensor,
    is_causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of query, key and value, given the inputs and outputs of `attention`."""
    given = map(_readable, (grad, query, key, value, output))
    of_query, of_key, of_value = _attention_for_cpu_backward(*given, sums, 0.0, is_causal, attn_mask=mask, scale=scale)
    return of_query, of_key, of_value


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with a contiguous last dimension, which the kernel needs. Other strides may have any value."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def additive_mask(mask: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return the additive mask that the kernel takes: zero for a visible key, minus infinity for a hidden key.

    If the program has expanded the mask, for example to all heads, this function converts each value of the unexpanded
    mask once, and then expands the result to the shape of `mask`.

    Parameters
    ----------
    mask : Tensor
        Boolean mask of any shape: True for keys that a query sees.
    like : Tensor
        Tensor with the data type of the result.

    Returns
    -------
    Tensor
        Mask with the shape of `mask`.
    """
    once = mask
    for axis, (length, step) in enumerate(zip(mask.shape, mask.stride(), strict=True)):
        if length > 1 and not step:
            once = once.narrow(axis, 0, 1)
    zero, unseen = torch.zeros((), dtype=like.dtype), torch.full((), -math.inf, dtype=like.dtype)
    return torch.where(once, zero, unseen).expand(mask.shape)


def _meta(query: TensorProxy, key: TensorProxy, value: TensorProxy, *_: Any) -> Any:
    return TensorProxy(like=query), TensorProxy(like=query, shape=tuple(query.shape[:-1]), dtype=dtypes.float32)


def _meta_backward(
    grad: TensorProxy, query: TensorProxy, key: TensorProxy, value: TensorProxy, *_: Any
) -> tuple[TensorProxy, ...]:
    return TensorProxy(like=query), TensorProxy(like=key), TensorProxy(like=value)


def _meta_added(mask: TensorProxy, like: TensorProxy) -> TensorProxy:
    return TensorProxy(like=mask, dtype=like.dtype)


def _meta_addmm(bias: TensorProxy, a: TensorProxy, b: TensorProxy) -> TensorProxy:
    return TensorProxy(like=a, shape=(a.shape[0], b.shape[1]))


def takes_attention(
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    attn_mask: TensorProxy | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> bool:
    """Return whether this executor supports an attention call with these arguments; see the docstring of the module."""
    given = (query, key, value)
    sizes = {(*each.shape[:2], each.shape[-1]) for each in given}
    return (
        not dropout_p
        and all(each.device.devicetype is devices.DeviceType.CPU and each.ndim == 4 for each in given)
        and {each.dtype for each in given} <= {query.dtype} & {dtypes.float32, dtypes.bfloat16, dtypes.float16}
        and len(sizes) == 1
        and key.shape == value.shape
        and all(size > 0 for each in given for size in each.shape)
        and (attn_mask is None or (not is_causal and _takes_mask(attn_mask, (*query.shape[:3], key.shape[2]))))
    )


def _takes_mask(mask: TensorProxy, shape: tuple[int, ...]) -> bool:
    # Accept only boolean masks, because the kernel has no gradient for a mask.
    fits = all(size in (1, whole) for size, whole in zip(reversed(mask.shape), reversed(shape), strict=False))
    return mask.dtype is dtypes.bool8 and mask.ndim in (2, 4) and fits


def claims(*args: Any, **kwargs: Any) -> bool:
    """Return whether the current compilation uses this executor and the executor supports an attention call."""
    compiled = compile_data.get_compile_data()
    used = compiled is not None and any(executor.name == NAME for executor in compiled.executors_list)
    return used and takes_attention(*args, **kwargs)


def takes_addmm(bias: TensorProxy, a: TensorProxy, b: TensorProxy, *, beta: Any = 1, alpha: Any = 1) -> bool:
    """Return whether this executor supports an ``addmm``.

    The bias must be a vector with one element per column. All arguments must have one floating-point type, and both
    factors must be one.
    Under these conditions, the gradients are two products and a sum over rows.
    """
    one_type = bias.dtype == a.dtype == b.dtype and dtypes.is_float_dtype(a.dtype)
    return one_type and beta == alpha == 1 and a.ndim == b.ndim == 2 and bias.shape == (b.shape[1],)


def takes_log_softmax(a: TensorProxy, /, dim: int, *, dtype: Any = None) -> bool:
    """Return whether this executor supports a ``log_softmax``.

    The input must be float32 or float64, must not be empty, and must have at least one dimension. The result must have
    the data type of the input.
    """
    given = dtypes.to_dtype(a.dtype)
    wide = given in (dtypes.float32, dtypes.float64)
    return wide and a.ndim > 0 and a.numel > 0 and (dtype is None or dtypes.to_dtype(dtype) == given)


def log_softmax_sums(a: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the maxima and the logarithms of the sums that ``log_softmax`` subtracts from its input.

    PyTorch's decomposition of ``log_softmax`` computes the same values in the same order.

    Parameters
    ----------
    a : Tensor
        Tensor of any shape, float32 or float64.
    dim : int

    Returns
    -------
    tuple of Tensor
        Maxima and logarithms. Both have the shape of `a`, but length one in dimension `dim`.
    """
    highest = a.amax(dim, keepdim=True)
    return highest, (a - highest).exp().sum(dim, keepdim=True).log()


def log_softmax_less(a: torch.Tensor, highest: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
    """Return ``log_softmax`` of `a`, given the results of `log_softmax_sums`.

    The computation is elementwise, so the backward can recompute the result at low cost.
    """
    return (a - highest) - sums


def log_softmax_backward(
    grad: torch.Tensor, a: torch.Tensor, highest: torch.Tensor, sums: torch.Tensor, dim: int
) -> torch.Tensor:
    """Return the gradient of the input of ``log_softmax``. The forward's result is recomputed from the input."""
    return grad - log_softmax_less(a, highest, sums).exp() * grad.sum(dim, keepdim=True)


def _meta_log_softmax_sums(a: TensorProxy, dim: int) -> tuple[TensorProxy, ...]:
    kept = [1 if axis == dim % a.ndim else length for axis, length in enumerate(a.shape)]
    return TensorProxy(like=a, shape=tuple(kept)), TensorProxy(like=a, shape=tuple(kept))


def _meta_like_first(first: TensorProxy, *_: Any) -> TensorProxy:
    return TensorProxy(like=first)


@functools.cache
def aten_executor() -> Any:
    """Return the executor of this module, which is not in Thunder's registries."""
    executor = new_executor(NAME)
    forward = executor.register_operator(_FORWARD, meta=_meta, fn=attention)
    backward = executor.register_operator(_BACKWARD, meta=_meta_backward, fn=attention_backward)
    adds = executor.register_operator(_MASK, meta=_meta_added, fn=additive_mask)

    def to_additive(mask: Any, like: Any) -> Any:
        return None if mask is None else adds(mask, like)

    addmm = executor.register_operator(_ADDMM, meta=_meta_addmm, fn=torch.addmm)
    matmul, transposed = thunder_functions[torch.matmul], thunder_functions[torch.transpose]

    def execute(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: Any = 0.0, is_causal: Any = False, *,
        scale: Any = None,
    ) -> Any:  # fmt: skip
        return forward(query, key, value, to_additive(attn_mask, query), bool(is_causal), scale)[0]

    def differentiate(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: Any = 0.0, is_causal: Any = False, *,
        scale: Any = None,
    ) -> Any:  # fmt: skip
        made, sums = forward(query, key, value, to_additive(attn_mask, query), bool(is_causal), scale)
        grad = prims.get_grad(made)
        # Recompute the additive mask, so that only the boolean mask is saved. Without this, each attention would save
        # its own additive mask.
        grads = backward(grad, query, key, value, to_additive(attn_mask, grad), made, sums, bool(is_causal), scale)
        for given, of_given in zip((query, key, value), grads, strict=True):
            prims.put_grad(given, of_given)
        return made

    executor.register_implementation(
        thunder_functions[torch.nn.functional.scaled_dot_product_attention],
        checker=takes_attention,
        execution_transform=execute,
        grad_transform=differentiate,
    )

    def execute_addmm(bias: Any, a: Any, b: Any, **_: Any) -> Any:
        return addmm(bias, a, b)

    def differentiate_addmm(bias: Any, a: Any, b: Any, **_: Any) -> Any:
        made = addmm(bias, a, b)
        grad = prims.get_grad(made)
        prims.put_grad(bias, thunder_functions[torch.sum](grad, 0))
        prims.put_grad(a, matmul(grad, transposed(b, 0, 1)))
        prims.put_grad(b, matmul(transposed(a, 0, 1), grad))
        return made

    executor.register_implementation(
        thunder_functions[torch.addmm],
        checker=takes_addmm,
        execution_transform=execute_addmm,
        grad_transform=differentiate_addmm,
    )

    # Thunder's rematerialization does not recompute operators with the tag `REDUCTION_OP`.
    summed = executor.register_operator(
        _LOG_SOFTMAX_SUMS, meta=_meta_log_softmax_sums, fn=log_softmax_sums, tags=[prims.OpTags.REDUCTION_OP]
    )
    less = executor.register_operator(_LOG_SOFTMAX, meta=_meta_like_first, fn=log_softmax_less)
    of_log_softmax = executor.register_operator(_LOG_SOFTMAX_BACKWARD, meta=_meta_like_first, fn=log_softmax_backward)

    def execute_log_softmax(a: Any, /, dim: Any, **_: Any) -> Any:
        return less(a, *summed(a, dim))

    def differentiate_log_softmax(a: Any, /, dim: Any, **_: Any) -> Any:
        highest, sums = summed(a, dim)
        made = less(a, highest, sums)
        prims.put_grad(a, of_log_softmax(prims.get_grad(made), a, highest, sums, dim))
        return made

    executor.register_implementation(
        thunder_functions[torch.log_softmax],
        checker=takes_log_softmax,
        execution_transform=execute_log_softmax,
        grad_transform=differentiate_log_softmax,
    )
    return executor
