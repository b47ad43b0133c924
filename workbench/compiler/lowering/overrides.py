"""Replacements for operators that Thunder lacks or supports only in part, for the conversion of FX graphs to traces.

Thunder refuses some calls of these operators, or computes wrong results or gradients. Most replacements pass all
other calls to Thunder's own operator.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from workbench.compiler.interop.thunder_api import (
    ProxyTag,
    TensorProxy,
    dtypes,
    thunder_functions,
    to_torch_device,
    to_torch_dtype,
)
from workbench.compiler.lowering import aten_cpu
from workbench.compiler.lowering.decompositions import DECOMPOSED, call_with_empty, root, thunder_operator, wide_of
from workbench.compiler.lowering.factories import MAKERS
from workbench.compiler.lowering.grouped_mm import grouped_mm
from workbench.compiler.lowering.interpolate import interpolate
from workbench.compiler.lowering.pooling import POOLS
from workbench.compiler.lowering.random_ops import DRAWN
from workbench.compiler.trace.corrections import DECOMPOSITIONS, OPERATORS, RANDOM
from workbench.interop.torch_private import _disable_current_modes, _grouped_mm, _weight_norm


def _repeat_interleave(a: TensorProxy, repeats: Any, dim: int | None = None, *, output_size: Any = None) -> Any:
    """Replace `repeat_interleave`. Thunder refuses `output_size`, whose only purpose is to avoid a synchronization."""
    del output_size
    return thunder_operator(torch.repeat_interleave)(a, repeats, dim)


def _dropout(a: TensorProxy, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Replace `dropout`. Thunder refuses `inplace`. If nothing is dropped, return the input without a write."""
    if not training or p == 0:
        return a
    made = thunder_operator(functional.dropout)(a, p, training)
    return a.copy_(made) if inplace else made


def _adaptive(a: TensorProxy, output_size: Any) -> Any:
    """Replace `adaptive_avg_pool2d`. Thunder refuses None as an output length. None means the length of the input."""
    sizes = output_size if isinstance(output_size, list | tuple) else (output_size, output_size)
    sizes = [int(there) if size is None else size for size, there in zip(sizes, a.shape[-2:], strict=True)]
    return thunder_operator(functional.adaptive_avg_pool2d)(a, sizes)


def _instance_norm(
    a: TensorProxy,
    running_mean: TensorProxy | None = None,
    running_var: TensorProxy | None = None,
    weight: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Replace `instance_norm`. Thunder copies the running statistics per batch element, and updates only the copies."""
    known = thunder_operator(functional.instance_norm)
    if not use_input_stats:
        return known(a, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
    own, dims = _detach(a.to(wide_of(to_torch_dtype(a.dtype)))), tuple(range(2, a.ndim))
    for kept, statistic in ((running_mean, thunder_operator(torch.mean)), (running_var, thunder_operator(torch.var))):
        if kept is not None:
            new = thunder_operator(torch.mean)(statistic(own, dims), 0)
            kept.copy_(((1 - momentum) * kept + momentum * new).to(kept.dtype))
    return known(a, None, None, weight, bias, use_input_stats, momentum, eps)


def _normalize_weight(v: TensorProxy, g: TensorProxy, dim: int = 0) -> Any:
    """Replace the operator of `torch.nn.utils.parametrizations.weight_norm`, which Thunder lacks."""
    others = tuple(at for at in range(v.ndim) if at != dim)
    return v * (g / thunder_operator(torch.sqrt)((v * v).sum(others, keepdim=True)))


def _normalize(a: TensorProxy, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None) -> Any:
    """Replace `normalize`. For a zero vector, Thunder's gradient is NaN. PyTorch's is the gradient of `a / eps`."""
    if out is not None or not 0 < p < math.inf or dtypes.is_complex_dtype(a.dtype):
        return thunder_operator(functional.normalize)(a, p, dim, eps, out)
    kind = to_torch_dtype(a.dtype)
    wide = a.to(wide_of(kind))
    powers = (wide if p % 2 == 0 else wide.abs()) ** p
    length = root(thunder_operator(torch.sum)(powers, dim, keepdim=True), p)
    return a / length.clamp(min=eps).expand(*a.shape).to(kind)


def _embedding(
    indices: TensorProxy,
    weight: TensorProxy,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    *args: Any,
    **more: Any,
) -> Any:
    """Replace `embedding`. If `padding_idx` is negative, Thunder's gradient does not exclude the padding row."""
    if max_norm is not None:
        raise NotImplementedError("an embedding with max_norm writes rescaled rows into the weight")
    if padding_idx is not None and padding_idx < 0:
        padding_idx += int(weight.shape[0])
    return thunder_operator(functional.embedding)(indices, weight, padding_idx, None, *args, **more)


def _einsum(equation: str, *operands: Any) -> Any:
    """Replace `einsum`. Thunder refuses operands in a list."""
    listed = len(operands) == 1 and isinstance(operands[0], list | tuple)
    return thunder_operator(torch.einsum)(equation, *(operands[0] if listed else operands))


def _cross_entropy(
    a: TensorProxy,
    target: TensorProxy,
    weight: TensorProxy | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Replace `cross_entropy`. With `label_smoothing`, Thunder's mean wrongly counts ignored targets.

    Like PyTorch, this function adds two weighted terms for a smoothed loss: the loss of the target class, and the mean
    of the losses of all classes. Without smoothing, Thunder fails for some shapes and sums; see `_losses`.
    """
    if a.shape == target.shape:
        if 0 in a.shape:
            return _reduce_empty((a * target).sum(1 if a.ndim > 1 else 0), reduction)
        known = thunder_operator(functional.cross_entropy)
        return known(a, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
    if size_average is not None or reduce is not None:
        raise NotImplementedError("size_average and reduce: use reduction")
    classes = 1 if a.ndim > 1 else 0
    if 0 in target.shape:
        return _losses(functional.cross_entropy, a, target, weight, ignore_index, reduction)
    if not label_smoothing:
        return _losses(functional.cross_entropy, a, target, weight, ignore_index, reduction)
    scores = thunder_operator(functional.log_softmax)(a, classes)
    right = _losses(functional.nll_loss, scores, target, weight, ignore_index, reduction)
    weighed = scores if weight is None else scores * weight.reshape([-1] + [1] * (a.ndim - 1 - classes))
    ignored = target == ignore_index
    alike = (-weighed.sum(classes)).masked_fill(ignored, 0.0)
    if reduction == "sum":
        alike = alike.sum()
    elif reduction == "mean":
        counted = thunder_operator(torch.logical_not)(ignored).to(to_torch_dtype(a.dtype))
        if weight is not None:
            places = target.masked_fill(ignored, 0).reshape(-1)
            counted = counted * thunder_operator(torch.index_select)(weight, 0, places).reshape(target.shape)
        alike = alike.sum() / counted.sum()
    return right * (1 - label_smoothing) + alike * (label_smoothing / int(a.shape[classes]))


def _nll_loss(
    a: TensorProxy,
    target: TensorProxy,
    weight: TensorProxy | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    """Replace `nll_loss`; see `_losses`."""
    if size_average is not None or reduce is not None:
        raise NotImplementedError("size_average and reduce: use reduction")
    return _losses(functional.nll_loss, a, target, weight, ignore_index, reduction)


def _losses(
    function: Callable[..., Any],
    a: TensorProxy,
    target: TensorProxy,
    weight: TensorProxy | None,
    ignore_index: int,
    reduction: str,
) -> Any:
    """Return `cross_entropy` or `nll_loss` for targets that are indices of classes.

    Thunder's gradient fails for ``reduction="sum"``, because PyTorch's kernel gets a total weight of a wrong data type.
    The gradient also fails for scores without a batch dimension. The only supported shapes are (batch, classes) and
    (batch, classes, height, width). This function reshapes all other scores to a supported shape.
    """
    if 0 in target.shape:
        return _reduce_empty(a.sum(1), reduction)
    options: dict[str, Any] = {"weight": weight, "ignore_index": ignore_index}
    if reduction == "sum":
        rows, classes = _rows(a, target)
        return thunder_operator(function)(rows, classes, reduction="none", **options).sum()
    if a.ndim in (2, 4):
        return thunder_operator(function)(a, target, reduction=reduction, **options)
    if a.ndim == 1:
        scores, places = a.reshape(1, -1), target.reshape(1)
    else:
        batch, count = a.shape[:2]
        scores, places = a.reshape(batch, count, 1, -1), target.reshape(batch, 1, -1)
    made = thunder_operator(function)(scores, places, reduction=reduction, **options)
    return made.reshape(target.shape) if reduction == "none" else made


def _reduce_empty(losses: TensorProxy, reduction: str) -> Any:
    """Reduce the losses of an empty batch. Thunder's own losses return a constant, which has no gradient."""
    return losses.mean() if reduction == "mean" else losses.sum() if reduction == "sum" else losses


def _rows(a: TensorProxy, target: TensorProxy) -> tuple[TensorProxy, TensorProxy]:
    """Return scores reshaped to (positions, classes), and targets reshaped to (positions,)."""
    if a.ndim <= 2:
        return (a, target) if a.ndim == 2 else (a.reshape(1, -1), target.reshape(1))
    last = a.permute(0, *range(2, a.ndim), 1)
    return last.reshape(-1, a.shape[1]), target.reshape(-1)


def _attention(
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    attn_mask: TensorProxy | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Replace `scaled_dot_product_attention`. Thunder lacks `enable_gqa`.

    On a GPU, Thunder needs one mask per batch element: it does not broadcast a single mask.

    On a CPU, Thunder's backward draws a new dropout mask, so gradients are wrong. Also on a CPU, if a mask hides all
    keys from a query, Thunder returns NaN and PyTorch returns zero. Calls that `aten_cpu` runs have neither fault.
    """
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (_repeat_interleave(a, repeats, -3) for a in (key, value))
    if query.device.type == "cpu" and not aten_cpu.claims(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale
    ):
        attn_mask, alone = (None, None) if attn_mask is None else _add_missing_keys(attn_mask)
        if dropout_p:
            made = _dropped_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
        else:
            made = thunder_operator(functional.scaled_dot_product_attention)(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale
            )
        return made if alone is None else made.masked_fill(alone, 0.0)
    if attn_mask is not None and query.device.type == "cuda" and query.ndim == 4:
        while attn_mask.ndim < query.ndim:
            attn_mask = attn_mask.unsqueeze(0)
        if attn_mask.shape[0] != query.shape[0]:
            attn_mask = attn_mask.expand(query.shape[0], *attn_mask.shape[1:])
    known = thunder_operator(functional.scaled_dot_product_attention)
    return known(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)


def _add_missing_keys(mask: TensorProxy) -> tuple[TensorProxy, TensorProxy]:
    """Return a mask that shows all keys to each query to which `mask` shows no key.

    The second result is a tensor (…, queries, 1) that is True for these queries.
    """
    if _is_bool(mask):
        alone = thunder_operator(torch.logical_not)(mask.any(-1, keepdim=True))
        return thunder_operator(torch.logical_or)(mask, alone), alone
    alone = (mask == -math.inf).all(-1, keepdim=True)
    return mask.masked_fill(alone, 0.0), alone


def _dropped_attention(
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    mask: TensorProxy | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Any:
    root = math.sqrt(1.0 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = (query * root) @ (key * root).transpose(-2, -1)
    if is_causal:
        mask = thunder_operator(torch.ones)(*scores.shape[-2:], device=query.device, dtype=torch.bool).tril()
    if mask is not None:
        scores = thunder_operator(torch.where)(mask, scores, -math.inf) if _is_bool(mask) else scores + mask
    return thunder_operator(functional.dropout)(thunder_operator(torch.softmax)(scores, -1), dropout_p) @ value


def _multi_head_attention(
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: TensorProxy | None,
    in_proj_bias: TensorProxy | None,
    bias_k: TensorProxy | None,
    bias_v: TensorProxy | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: TensorProxy,
    out_proj_bias: TensorProxy | None,
    training: bool = True,
    key_padding_mask: TensorProxy | None = None,
    need_weights: bool = True,
    attn_mask: TensorProxy | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: TensorProxy | None = None,
    k_proj_weight: TensorProxy | None = None,
    v_proj_weight: TensorProxy | None = None,
    static_k: TensorProxy | None = None,
    static_v: TensorProxy | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """Replace `multi_head_attention_forward`. Thunder cannot differentiate a call whose second result is None."""
    if any(given is not None for given in (bias_k, bias_v, static_k, static_v)) or add_zero_attn:
        raise NotImplementedError("multi_head_attention_forward with add_bias_kv, add_zero_attn or static keys")
    linear = thunder_operator(functional.linear)
    batched = query.ndim == 3
    if not batched:
        alone = key is query, value is key
        query = query.unsqueeze(1)
        key = query if alone[0] else key.unsqueeze(1)
        value = key if alone[1] else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    if use_separate_proj_weight:
        weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    else:
        assert in_proj_weight is not None
        weights = in_proj_weight.chunk(3)
    if query is key and key is value and not use_separate_proj_weight:
        projected = linear(query, in_proj_weight, in_proj_bias).chunk(3, -1)
    else:
        each = zip((query, key, value), weights, biases, strict=True)
        projected = [linear(given, weight, bias) for given, weight, bias in each]
    length, count, width = query.shape
    # (length, batch, heads × size) → (batch, heads, length, size)
    q, k, v = (
        a.reshape(a.shape[0], count, num_heads, embed_dim_to_check // num_heads).permute(1, 2, 0, 3) for a in projected
    )
    hinted = is_causal and key_padding_mask is None and not need_weights
    mask = None if hinted or attn_mask is None else _additive_mask(attn_mask, q)
    if mask is not None:
        mask = mask.reshape((1, 1, *mask.shape) if mask.ndim == 2 else (count, num_heads, *mask.shape[1:]))
    if key_padding_mask is not None:
        padding = _additive_mask(key_padding_mask, q).reshape(count, 1, 1, k.shape[2])
        mask = padding if mask is None else mask + padding
    drop = dropout_p if training else 0.0
    scores = None
    if need_weights:
        scores = (q * math.sqrt(1.0 / q.shape[-1])) @ k.transpose(-2, -1)
        scores = thunder_operator(torch.softmax)(scores if mask is None else scores + mask, -1)
        scores = thunder_operator(functional.dropout)(scores, drop) if drop else scores
        attended = scores @ v
        scores = scores.mean(1) if average_attn_weights else scores
        scores = scores if batched else scores.squeeze(0)
    else:
        attended = _attention(q, k, v, mask, drop, hinted)
    joined = attended.permute(2, 0, 1, 3).reshape(length, count, width)
    made = linear(joined, out_proj_weight, out_proj_bias)
    return made if batched else made.squeeze(1), scores


def _additive_mask(mask: TensorProxy, like: TensorProxy) -> TensorProxy:
    """Return a mask to add to scores. A boolean mask becomes minus infinity where it is True, and zero where False."""
    if not _is_bool(mask):
        return mask
    zeros: TensorProxy = thunder_operator(torch.zeros_like)(mask, dtype=like.dtype)
    filled: TensorProxy = zeros.masked_fill(mask, -math.inf)
    return filled


def _is_bool(mask: TensorProxy) -> bool:
    return "bool" in str(mask.dtype)


def _norm(
    a: TensorProxy, p: Any = "fro", dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    """Replace `norm`. For the method, Thunder calls `torch.linalg.norm`, whose parameter is `ord` instead of `p`."""
    if p == "nuc":
        raise NotImplementedError("a nuclear norm")
    length = 2 if p in ("fro", None) else p
    return thunder_operator(torch.linalg.vector_norm)(a, length, dim, keepdim, dtype=dtype)


def _max(a: TensorProxy, dim: Any = None, keepdim: bool = False) -> Any:
    """Replace `max`. With `dim`, PyTorch's gradient goes to the returned index. Thunder splits it among all maxima."""
    if not isinstance(dim, int) or not a.ndim or not dtypes.is_inexact_dtype(a.dtype):
        return thunder_operator(torch.max)(a, dim, keepdim)
    place = thunder_operator(torch.argmax)(a, dim, True)
    made = thunder_operator(torch.gather)(a, dim, place)
    return (made, place) if keepdim else (made.squeeze(dim), place.squeeze(dim))


def _clamp(a: TensorProxy, min: Any = None, max: Any = None) -> Any:
    """Replace `clamp`. Thunder gives no gradient to elements at a bound."""
    if not dtypes.is_inexact_dtype(a.dtype) or min is max is None:
        return thunder_operator(torch.clamp)(a, min, max)
    for bound, outside in ((min, operator.lt), (max, operator.gt)):
        if isinstance(bound, TensorProxy):
            # The last term selects the bound if the bound is NaN, because the result must then be NaN.
            inside = thunder_operator(torch.logical_not)(outside(a, bound)) & (bound == bound)
            a = thunder_operator(torch.where)(inside, a, bound)
        elif bound is not None:
            a = thunder_operator(torch.where)(outside(a, bound), bound, a)
    return a


def _atan2(a: Any, b: Any) -> Any:
    """Replace `atan2`. At the origin, Thunder's gradients are NaN, and PyTorch's are zero."""
    known, where = thunder_operator(torch.atan2), thunder_operator(torch.where)
    if not (isinstance(a, TensorProxy) and isinstance(b, TensorProxy)):
        return known(a, b)
    origin = (a == 0) & (b == 0)
    return where(origin, known(_detach(a), _detach(b)), known(a, where(origin, 1, b)))


def assigns_by_mask(a: TensorProxy, index: Any, value: Any) -> bool:
    """Return whether an assignment to `a` selects elements by a mask, and gives them a tensor for any number of them.

    For example, the value is one row for all selected rows.
    """
    mask = index[0] if isinstance(index, tuple) and len(index) == 1 else index
    if not (isinstance(value, TensorProxy) and isinstance(mask, TensorProxy) and _is_bool(mask)):
        return False
    return value.ndim <= a.ndim - mask.ndim and tuple(mask.shape) == tuple(a.shape[: mask.ndim])


def _assign_by_mask(a: TensorProxy, index: Any, value: TensorProxy) -> None:
    """Replace an assignment for which `assigns_by_mask` is true. Thunder cannot differentiate it."""
    mask = index[0] if isinstance(index, tuple) else index
    chosen = mask.reshape(*mask.shape, *(1,) * (a.ndim - mask.ndim)).expand(*a.shape)
    a.copy_(thunder_operator(torch.where)(chosen, value.to(to_torch_dtype(a.dtype)).expand(*a.shape), a))


def _linear(a: TensorProxy, weight: TensorProxy, bias: TensorProxy | None = None) -> Any:
    """Replace `linear`. If the weight is empty, Thunder's gradient cannot infer a shape."""
    if weight.numel:
        return thunder_operator(functional.linear)(a, weight, bias)
    rows, width = math.prod(a.shape[:-1]), weight.shape[0]
    made = thunder_operator(torch.matmul)(a.reshape(rows, a.shape[-1]), weight.transpose(0, 1))
    made = made.reshape(*a.shape[:-1], width)
    return made if bias is None else made + bias


def _detach(a: TensorProxy) -> TensorProxy:
    """Detach a tensor, and tag it as Thunder tags tensors under `no_grad`, so that the tensor gets no gradient.

    Without the tag, Thunder passes a gradient to `torch.detach`, and PyTorch computes a gradient of zeros. For a
    zero-dimensional tensor, the backward then fails, because Thunder gives the gradient the shape of the other operand.
    """
    made: TensorProxy = thunder_operator(torch.detach)(a)
    made.tags.add(ProxyTag.DETACHED_AUTOGRAD_GRAPH)
    return made


def numpy_result(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a NumPy function on numbers, and return a number. Dynamo's version of the function may return a tensor."""
    with _disable_current_modes():
        made = function(*args, **kwargs)
    if isinstance(made, torch.Tensor) and made.ndim:
        raise NotImplementedError("a NumPy function that returns an array")
    return made.item() if isinstance(made, torch.Tensor) else made


def _as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    """Replace `as_tensor` of a tensor. Thunder lacks `as_tensor`."""
    if not isinstance(data, TensorProxy) or device not in (None, to_torch_device(data.device)):
        raise NotImplementedError("torch.as_tensor of anything except a tensor")
    return data if dtype is None else thunder_operator(torch.Tensor.to)(data, dtype)


def _tensor(data: Any, *, dtype: Any = None, device: Any = None, **more: Any) -> Any:
    """Replace `torch.tensor`. Thunder does not support a tensor as data. For a tensor, return a detached copy."""
    if isinstance(data, TensorProxy):
        return thunder_operator(torch.clone)(_as_tensor(_detach(data), dtype, device))
    return thunder_operator(torch.tensor)(data, dtype=dtype, device=device, **more)


def _multiply_and_add(a: Any, b: Any, c: Any) -> Any:
    """Replace `prims.fma` as PyTorch does on a CPU. Since PyTorch 2.12, Dynamo records this operator for optimizers."""
    return thunder_operator(torch.add)(thunder_operator(torch.mul)(a, b), c)


def _scalar_tensor(number: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    """Replace `scalar_tensor` by `full`. Dynamo records `scalar_tensor` for numbers that are read from tensors."""
    return thunder_operator(torch.full)((), number, dtype=dtype or torch.get_default_dtype(), device=device)


def power(a: Any, exponent: Any) -> Any:
    """Return ``a ** exponent`` for an exponent that needs a gradient or is zero.

    At base zero, Thunder's gradient is NaN, and PyTorch's is zero.
    """
    known, where = thunder_operator(torch.pow), thunder_operator(torch.where)
    if not isinstance(a, TensorProxy):
        return known(a, exponent)
    zero = a == 0
    if not isinstance(exponent, TensorProxy):
        return where(zero, known(_detach(a), exponent), known(where(zero, 1, a), exponent))
    return where(zero, known(a, _detach(exponent)), known(where(zero, 1, a), exponent))


def _soft_margin_loss(
    a: TensorProxy, target: TensorProxy, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:
    """Replace `soft_margin_loss`. Thunder requests a gradient of the labels, but PyTorch has no such gradient."""
    if size_average is not None or reduce is not None:
        raise NotImplementedError("size_average and reduce: use reduction")
    loss = thunder_operator(torch.log1p)(thunder_operator(torch.exp)(-target * a))
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _cat(tensors: Any, *args: Any, **kwargs: Any) -> Any:
    """Replace `cat`. Thunder refuses empty vectors of shape (0,), with which key-value caches of Hugging Face begin."""
    kept = [a for a in tensors if tuple(a.shape) != (0,)]
    skips = 0 < len(kept) < len(tensors) and len({a.dtype for a in tensors}) == 1
    return thunder_operator(torch.cat)(kept if skips else tensors, *args, **kwargs)


def kind_of(function: Any) -> str:
    """Return the kind of correction of a replaced function: `RANDOM`, `OPERATORS` or `DECOMPOSITIONS`."""
    if function in DRAWN:
        return RANDOM
    known = thunder_functions.get(function)
    return OPERATORS if known is not None and function not in DECOMPOSED else DECOMPOSITIONS


_LOSE_WHAT_IS_EMPTY = (
    torch.conv1d,
    torch.conv2d,
    torch.conv3d,
    functional.group_norm,
    functional.avg_pool1d,
    functional.avg_pool2d,
    functional.avg_pool3d,
)

LOWERED: dict[Any, Callable[..., Any]] = {
    **DECOMPOSED,
    functional.soft_margin_loss: _soft_margin_loss,
    **POOLS,
    **MAKERS,
    **DRAWN,
    torch.detach: _detach,
    operator.setitem: _assign_by_mask,
    functional.linear: _linear,
    torch.Tensor.detach: _detach,
    torch.repeat_interleave: _repeat_interleave,
    torch.Tensor.repeat_interleave: _repeat_interleave,
    functional.dropout: _dropout,
    torch.dropout: _dropout,
    _weight_norm: _normalize_weight,
    functional.embedding: _embedding,
    _grouped_mm: grouped_mm,
    torch.einsum: _einsum,
    torch.norm: _norm,
    torch.Tensor.norm: _norm,
    torch.max: _max,
    torch.Tensor.max: _max,
    torch.clamp: _clamp,
    torch.Tensor.clamp: _clamp,
    torch.atan2: _atan2,
    torch.Tensor.atan2: _atan2,
    torch.arctan2: _atan2,
    torch.as_tensor: _as_tensor,
    torch.tensor: _tensor,
    torch.cat: _cat,
    torch.concat: _cat,
    torch.concatenate: _cat,
    torch.scalar_tensor: _scalar_tensor,
    functional.interpolate: interpolate,
    functional.normalize: _normalize,
    functional.instance_norm: _instance_norm,
    functional.adaptive_avg_pool2d: _adaptive,
    functional.cross_entropy: _cross_entropy,
    functional.nll_loss: _nll_loss,
    functional.scaled_dot_product_attention: _attention,
    functional.multi_head_attention_forward: _multi_head_attention,
}
"""Maps PyTorch functions in graphs to their replacements."""

BY_NAME: dict[str, Callable[..., Any]] = {"prims.fma.default": _multiply_and_add}
"""Maps names of operators to their replacements. PyTorch defines these operators when Dynamo first uses them."""

LOWERED |= {
    function: functools.partial(call_with_empty, LOWERED.get(function) or thunder_operator(function))
    for function in _LOSE_WHAT_IS_EMPTY
}
