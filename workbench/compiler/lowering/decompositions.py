"""Decompositions of operators that Thunder does not know or cannot differentiate; see `lowering.overrides`.

Results equal those of PyTorch's own operators, except for rounding if a sum is computed in a different order.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.nn import functional

from workbench.compiler.interop.thunder_api import TensorProxy, compile_data, dtypes, thunder_functions, to_torch_dtype
from workbench.interop.torch_private import _nn_pad, _nn_pad_sequence


def thunder_operator(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return Thunder's own operator for a function of PyTorch.

    Raises
    ------
    NotImplementedError
        If Thunder has no such operator.
    """
    known: Callable[..., Any] | None = thunder_functions.get(function)
    if known is None:
        raise NotImplementedError(f"Thunder does not know {getattr(function, '__name__', function)}")
    return known


def wide_of(kind: torch.dtype) -> torch.dtype:
    """Return the data type of PyTorch's intermediate results for tensors of type `kind`.

    It has at least the precision of float32. For integers, it is float64.
    """
    if kind.is_complex:
        return torch.complex64 if kind.itemsize < 8 else kind
    if not kind.is_floating_point:
        return torch.float64
    return torch.float32 if kind.itemsize < 4 else kind


def root(a: TensorProxy, p: float = 2.0) -> Any:
    """Return the `p`-th root of nonnegative elements. Its gradient at zero is zero, as for PyTorch's norms."""
    zero, where = a == 0, thunder_operator(torch.where)
    above = where(zero, 1.0, a)
    return where(zero, 0.0, thunder_operator(torch.sqrt)(above) if p == 2 else above ** (1.0 / p))


def call_with_empty(operator: Callable[..., Any], a: TensorProxy, *args: Any, **kwargs: Any) -> Any:
    """Call an operator. If its first tensor is empty, give zero gradients to all floating-point or complex arguments.

    PyTorch gives these gradients, too. For an empty tensor, Thunder's operator returns a constant without a gradient.
    """
    made = operator(a, *args, **kwargs)
    if 0 not in a.shape:
        return made
    for given in (a, *args, *kwargs.values()):
        if isinstance(given, TensorProxy) and dtypes.is_inexact_dtype(given.dtype):
            # Keep a dimension, because Thunder's gradient of a broadcast zero-dimensional tensor is wrong on a CPU.
            made = made + (given.reshape(math.prod(given.shape)).sum(0, keepdim=True) * 0).to(made.dtype)
    return made


def _rms_norm(
    a: TensorProxy, normalized_shape: Sequence[int], weight: TensorProxy | None = None, eps: float | None = None
) -> Any:
    kind = to_torch_dtype(a.dtype)
    wide = wide_of(kind)
    dims = tuple(range(a.ndim - len(normalized_shape), a.ndim))
    x = a.to(wide)
    mean = thunder_operator(torch.mean)(x * x, dims, keepdim=True)
    made = x * thunder_operator(torch.rsqrt)(mean + (torch.finfo(wide).eps if eps is None else eps))
    return (made if weight is None else made * weight).to(kind)


def _layer_norm(
    a: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    """Replace `torch.layer_norm`. Thunder knows only the function of `torch.nn.functional`."""
    del cudnn_enable
    return thunder_operator(functional.layer_norm)(a, normalized_shape, weight, bias, eps)


def _arange(a: TensorProxy, *bounds: int) -> TensorProxy:
    made: TensorProxy = thunder_operator(torch.arange)(*bounds, device=a.device)
    return made


def _take(a: TensorProxy, dim: int, index: TensorProxy) -> TensorProxy:
    made: TensorProxy = thunder_operator(torch.index_select)(a, dim, index)
    return made


def _pad(a: TensorProxy, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """Replace `pad`. Thunder pads only with a constant. For other modes, select an input element for each position."""
    if mode == "constant":
        return call_with_empty(thunder_operator(functional.pad), a, pad, mode, value)
    for at in range(len(pad) // 2):
        before, behind = pad[2 * at : 2 * at + 2]
        dim = a.ndim - 1 - at
        size = int(a.shape[dim])
        if not before and not behind:
            continue
        place = _arange(a, -before, size + behind)
        if mode == "circular":
            place = thunder_operator(torch.remainder)(place, size)
        elif mode == "replicate":
            place = place.clamp(0, size - 1)
        elif mode == "reflect":
            place = (size - 1) - ((size - 1) - place.abs()).abs()
        else:
            raise NotImplementedError(f"pad with mode={mode!r}")
        a = _take(a, dim, place)
    return a


def _flip(a: TensorProxy, *dims: Any) -> Any:
    """Replace `flip`, for which Thunder has no gradient."""
    if not dtypes.is_inexact_dtype(a.dtype):
        return thunder_operator(torch.flip)(a, *dims)
    given = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    for dim in given:
        size = int(a.shape[dim])
        a = _take(a, dim % a.ndim, (size - 1) - _arange(a, size))
    return a


def _unfold(a: TensorProxy, dim: int, size: int, step: int) -> Any:
    """Replace the method `unfold`, which Thunder mistakes for `torch.nn.functional.unfold`."""
    dim %= a.ndim
    count = (int(a.shape[dim]) - size) // step + 1
    place = (_arange(a, count) * step).unsqueeze(1) + _arange(a, size)
    made = _take(a, dim, place.reshape(-1))
    made = made.reshape(*a.shape[:dim], count, size, *a.shape[dim + 1 :])
    return made.movedim(dim + 1, -1)


def _tile(a: TensorProxy, *dims: Any) -> Any:
    """Replace the method `tile`. Thunder's method takes only one tuple."""
    return thunder_operator(torch.tile)(a, dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)


def minimum(a: TensorProxy, b: TensorProxy) -> Any:
    """Replace `minimum`, for which Thunder has no gradient."""
    if not dtypes.is_inexact_dtype(a.dtype) and not dtypes.is_inexact_dtype(b.dtype):
        return thunder_operator(torch.minimum)(a, b)
    return -thunder_operator(torch.maximum)(-a, -b)


def rounded_once(single: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator that rounds only its result to float16 or bfloat16, as PyTorch's kernels do."""

    def compute(a: TensorProxy, *others: Any, **kwargs: Any) -> Any:
        kind = to_torch_dtype(a.dtype)
        if not kind.is_floating_point or kind.itemsize >= 4:
            return single(a, *others, **kwargs)
        wide = wide_of(kind)
        given = (x.to(wide) if isinstance(x, TensorProxy) and x.dtype == a.dtype else x for x in (a, *others))
        return single(*given, **kwargs).to(kind)

    return compute


def lerp(start: TensorProxy, end: TensorProxy, weight: Any) -> Any:
    """Replace `lerp`, for which Thunder has no gradient. Like PyTorch, compute each element from the nearer end."""
    return rounded_once(_lerp)(start, end, weight)


def _lerp(start: TensorProxy, end: TensorProxy, weight: Any) -> Any:
    step = end - start
    if isinstance(weight, TensorProxy):
        near = start + weight * step
        return thunder_operator(torch.where)(weight.abs() < 0.5, near, end - step * (1 - weight))
    return start + weight * step if abs(weight) < 0.5 else end - step * (1 - weight)


def _logaddexp(a: TensorProxy, b: TensorProxy) -> Any:
    """Replace `logaddexp`, one statement that no fusion contains. Results differ from PyTorch's by rounding."""
    kind = to_torch_dtype((a + b).dtype)
    if not kind.is_floating_point:
        return thunder_operator(torch.logaddexp)(a, b)
    a, b = a.to(wide_of(kind)), b.to(wide_of(kind))
    made = thunder_operator(torch.maximum)(a, b) + thunder_operator(torch.log1p)((-(a - b).abs()).exp())
    # The difference of equal infinities is NaN. Replace the result only: PyTorch's gradient is NaN, too.
    return thunder_operator(torch.where)((a == b) & (a.abs() == math.inf), a, made).to(kind)


def _index_add(a: TensorProxy, dim: int, index: TensorProxy, source: TensorProxy, *, alpha: float = 1) -> Any:
    """Replace `index_add`. Thunder's operator has no gradient and no `alpha`."""
    scaled = source if alpha == 1 else source * alpha
    if not dtypes.is_inexact_dtype(a.dtype):
        return thunder_operator(torch.index_add)(a, dim, index, scaled)
    dim %= a.ndim
    shape = [1] * a.ndim
    shape[dim] = int(index.shape[0])
    return thunder_operator(torch.scatter_add)(a, dim, index.reshape(shape).expand(*source.shape), scaled)


@contextlib.contextmanager
def _no_grad() -> Iterator[None]:
    """Record statements without a gradient, as in a region of `torch.no_grad`."""
    data, _ = compile_data._compile_data.get()
    before = data.is_grad_enabled
    data.is_grad_enabled = False
    try:
        yield
    finally:
        data.is_grad_enabled = before


def _remainder(a: Any, b: Any) -> Any:
    """Replace `remainder`, for which Thunder has no gradient.

    The gradient is that of ``a - b * floor(a / b)``, whose quotient counts as constant. This term minus its own value
    is added to Thunder's result, so the sum is unchanged.
    """
    with _no_grad():
        made = thunder_operator(torch.remainder)(a, b)
        if not any(isinstance(x, TensorProxy) and dtypes.is_inexact_dtype(x.dtype) for x in (a, b)):
            return made
        whole = thunder_operator(torch.floor)(a / b)
        known = a - b * whole
    return made + (a - b * whole - known)


def _check(function: Callable[..., Any], a: TensorProxy) -> Any:
    """Replace an elementwise check, such as `isfinite`. Thunder tries to differentiate the check, and fails."""
    with _no_grad():
        return thunder_operator(function)(a)


def _mod(a: Any, b: Any) -> Any:
    return _remainder(a, b) if isinstance(a, TensorProxy) or isinstance(b, TensorProxy) else a % b


def _round(a: TensorProxy, *, decimals: int = 0) -> Any:
    """Replace `round`. Thunder's operator lacks `decimals`, and a gradient. The gradient is zero."""
    with _no_grad():
        scale = 10.0 ** abs(decimals)
        shifted = a if not decimals else a * scale if decimals > 0 else a / scale
        made = thunder_operator(torch.round)(shifted)
        made = made if not decimals else made / scale if decimals > 0 else made * scale
        never = thunder_operator(torch.zeros_like)(a, dtype=torch.bool)
    return thunder_operator(torch.where)(never, a, made) if dtypes.is_inexact_dtype(a.dtype) else made


def _truncate(a: TensorProxy) -> Any:
    """Replace `trunc`. Thunder's operator lacks a gradient. The gradient is zero."""
    with _no_grad():
        made = thunder_operator(torch.trunc)(a)
        never = thunder_operator(torch.zeros_like)(a, dtype=torch.bool)
    return thunder_operator(torch.where)(never, a, made) if dtypes.is_inexact_dtype(a.dtype) else made


def _product(a: TensorProxy, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Replace `prod`. Thunder's gradient divides by each factor, so it is NaN for a zero factor.

    Multiply the first half of the elements by the second half, until one element is left.
    """
    a = a if dtype is None else a.to(dtype)
    if not dtypes.is_inexact_dtype(a.dtype) or not a.ndim or not a.numel:
        return thunder_operator(torch.prod)(a, dim, keepdim)
    if dim is None:
        a, dim, keepdim = a.reshape(-1), 0, False
    kind = to_torch_dtype(a.dtype)
    made = a.to(wide_of(kind))
    count = int(a.shape[dim])
    while count > 1:
        half = count // 2
        joined = made.narrow(dim, 0, half) * made.narrow(dim, half, half)
        made = thunder_operator(torch.cat)((joined, made.narrow(dim, 2 * half, 1)), dim) if count % 2 else joined
        count -= half
    made = made.to(kind)
    return made if keepdim else made.squeeze(dim)


def _multinomial(a: TensorProxy, *args: Any, **kwargs: Any) -> Any:
    """Replace `multinomial`. Thunder requests a gradient of the random numbers, but PyTorch has no such gradient."""
    with _no_grad():
        return thunder_operator(torch.multinomial)(a, *args, **kwargs)


def _binary_cross_entropy_with_logits(
    a: TensorProxy,
    target: TensorProxy,
    weight: TensorProxy | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    pos_weight: TensorProxy | None = None,
) -> Any:
    """Replace `binary_cross_entropy_with_logits`. Thunder requests gradients of the weights, but PyTorch has none."""
    if weight is None and pos_weight is None:
        known = thunder_operator(functional.binary_cross_entropy_with_logits)
        return known(a, target, None, size_average, reduce, reduction, None)
    if size_average is not None or reduce is not None:
        raise NotImplementedError("size_average and reduce: use reduction")
    positive = thunder_operator(functional.logsigmoid)(a)
    if pos_weight is not None:
        positive = positive * ((pos_weight - 1) * target + 1)
    loss = (1 - target) * a - positive
    loss = loss if weight is None else loss * weight
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _attribute(a: Any, name: str, *default: Any) -> Any:
    """Replace `getattr`. Thunder's tensors lack the attributes `H` and `mH`, and gradients of `real` and `imag`."""
    if isinstance(a, TensorProxy) and name in ("real", "imag") and dtypes.is_complex_dtype(a.dtype):
        return _real(a) if name == "real" else _imag(a)
    if not isinstance(a, TensorProxy) or name not in ("H", "mH"):
        return getattr(a, name, *default)
    if dtypes.is_complex_dtype(a.dtype):
        raise NotImplementedError(f"{name} of complex numbers")
    return a.transpose(-2, -1)


def _real(a: TensorProxy) -> Any:
    """Replace `real`, for which Thunder has no gradient."""
    return thunder_operator(torch.view_as_real)(a)[..., 0] if dtypes.is_complex_dtype(a.dtype) else a


def _imag(a: TensorProxy) -> Any:
    """Replace `imag`, for which Thunder has no gradient."""
    return thunder_operator(torch.view_as_real)(a)[..., 1]


def _clone(a: TensorProxy, *, memory_format: torch.memory_format = torch.preserve_format) -> Any:
    """Replace `clone`. Thunder supports only the memory format of the cloned tensor."""
    if memory_format is torch.contiguous_format:
        return thunder_operator(torch.clone)(a).contiguous()
    return thunder_operator(torch.clone)(a, memory_format=memory_format)


def _vdot(a: TensorProxy, b: TensorProxy) -> Any:
    """Replace `vdot`. Thunder's gradient has a wrong shape."""
    if dtypes.is_complex_dtype(a.dtype):
        raise NotImplementedError("vdot of complex numbers")
    return (a * b).sum()


def _where(a: Any, condition: TensorProxy, other: Any) -> Any:
    """Replace the method `where`. Thunder's method treats the condition as the tensor to select from."""
    return thunder_operator(torch.where)(condition, a, other)


def _linspace(start: float, end: float, steps: int, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    """Replace `linspace`, which Thunder lacks.

    Like PyTorch, compute each element from the nearer end, and compute narrow data types in a wider type.
    """
    kind = dtype or torch.get_default_dtype()
    wide = wide_of(kind)
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    place = thunder_operator(torch.arange)(steps, device=device, dtype=wide)
    near = start + step * place
    if steps > 1:
        near = thunder_operator(torch.where)(place < steps // 2, near, end - step * ((steps - 1) - place))
    return near.to(kind)


def _copy_in_place(a: TensorProxy, b: Any, non_blocking: bool = False) -> Any:
    """Replace `copy_`. Thunder copies only between equal shapes."""
    del non_blocking
    spread = isinstance(b, TensorProxy) and b.shape != a.shape
    return thunder_operator(torch.Tensor.copy_)(a, b.expand(*a.shape) if spread else b)


def _fill_in_place(a: TensorProxy, value: Any) -> Any:
    return _copy_in_place(a, value if isinstance(value, TensorProxy) else thunder_operator(torch.full_like)(a, value))


def _zero_in_place(a: TensorProxy) -> Any:
    """Replace `zero_` by a copy of zeros."""
    return _fill_in_place(a, 0)


def _uniform(a: TensorProxy, low: float = 0.0, high: float = 1.0, *, generator: None = None) -> Any:
    if generator is not None:
        raise NotImplementedError("uniform_ with a generator")
    return thunder_operator(torch.Tensor.copy_)(a, thunder_operator(torch.rand_like)(a) * (high - low) + low)


def _normal_in_place(a: TensorProxy, mean: float = 0.0, std: float = 1.0, *, generator: None = None) -> Any:
    if generator is not None:
        raise NotImplementedError("normal_ with a generator")
    return thunder_operator(torch.Tensor.copy_)(a, thunder_operator(torch.randn_like)(a) * std + mean)


def _normal(mean: Any, std: Any, size: Sequence[int] | None = None, **kwargs: Any) -> Any:
    kwargs.pop("generator", None)
    if isinstance(mean, TensorProxy) or isinstance(std, TensorProxy):
        like = mean if isinstance(mean, TensorProxy) else std
        return thunder_operator(torch.randn_like)(like) * std + mean
    assert size is not None
    return thunder_operator(torch.randn)(*size, **kwargs) * std + mean


def _unroll(
    cell: str,
    inputs: TensorProxy,
    first: Any,
    weights: Sequence[TensorProxy],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """Replace a recurrent network, such as `torch.lstm`, by one cell per time step, layer by layer."""
    if not isinstance(has_biases, bool):
        raise NotImplementedError(f"{cell} of a packed sequence")
    stack, linear = thunder_operator(torch.stack), thunder_operator(functional.linear)
    states = first if cell == "lstm" else (first,)
    directions = 1 + bidirectional
    each = len(weights) // (layers * directions)
    batched = inputs.ndim == 3
    time = 1 if batched and batch_first else 0
    steps = [inputs.select(time, at) for at in range(int(inputs.shape[time]))]
    last: list[tuple[Any, ...]] = []
    for layer in range(layers):
        made = []
        for direction in range(directions):
            at = layer * directions + direction
            w_in, w_hidden, *rest = weights[at * each : (at + 1) * each]
            b_in, b_hidden = (rest[0], rest[1]) if has_biases else (None, None)
            project = rest[2 * has_biases] if len(rest) > 2 * has_biases else None
            state = tuple(s[at] for s in states)
            out = []
            for x in reversed(steps) if direction else steps:
                state = _CELLS[cell](linear(x, w_in, b_in), linear(state[0], w_hidden, b_hidden), state)
                if project is not None:
                    state = (linear(state[0], project), *state[1:])
                out.append(state[0])
            last.append(state)
            made.append(out[::-1] if direction else out)
        steps = (
            made[0]
            if not bidirectional
            else [thunder_operator(torch.cat)(pair, -1) for pair in zip(*made, strict=True)]
        )
        if train and dropout and layer < layers - 1:
            joined = thunder_operator(functional.dropout)(stack(steps, 0), dropout)
            steps = [joined[at] for at in range(len(steps))]
    ends = tuple(stack([state[at] for state in last], 0) for at in range(len(states)))
    return (stack(steps, time), *ends)


def _lstm_cell(x: TensorProxy, h: TensorProxy, state: tuple[Any, ...]) -> tuple[Any, ...]:
    sigmoid, tanh = thunder_operator(torch.sigmoid), thunder_operator(torch.tanh)
    enter, forget, cell, leave = (x + h).chunk(4, -1)
    kept = sigmoid(forget) * state[1] + sigmoid(enter) * tanh(cell)
    return sigmoid(leave) * tanh(kept), kept


def _gru_cell(x: TensorProxy, h: TensorProxy, state: tuple[Any, ...]) -> tuple[Any, ...]:
    sigmoid, tanh = thunder_operator(torch.sigmoid), thunder_operator(torch.tanh)
    (x_reset, x_update, x_new), (h_reset, h_update, h_new) = x.chunk(3, -1), h.chunk(3, -1)
    update = sigmoid(x_update + h_update)
    new = tanh(x_new + sigmoid(x_reset + h_reset) * h_new)
    return ((state[0] - new) * update + new,)


def _index_put(
    a: TensorProxy, indices: Sequence[TensorProxy | None], values: TensorProxy, accumulate: bool = False
) -> Any:
    """Replace `index_put`. Thunder loses the gradient of the values."""
    found = [index for index in indices if index is not None and to_torch_dtype(index.dtype) is not torch.bool]
    if len(found) < len(indices):
        raise NotImplementedError("index_put by a mask, or with a dimension left out")
    shape = [int(size) for size in a.shape]
    place: Any = None
    for index, size in zip(found, shape, strict=False):
        at = thunder_operator(torch.where)(index < 0, index + size, index)
        place = at if place is None else place * size + at
    count = len(indices)
    rows, rest = math.prod(shape[:count]), shape[count:]
    given = values.to(a.dtype).expand(*place.shape, *rest).reshape(-1, *rest)
    flat, place = a.reshape(rows, *rest), place.reshape(-1)
    if not accumulate:
        # Set the overwritten elements to zero before the sum. PyTorch does not define the result for repeated indices.
        kept = thunder_operator(torch.index_copy)(
            thunder_operator(torch.ones_like)(flat), 0, place, thunder_operator(torch.zeros_like)(given)
        )
        flat = flat.masked_fill(kept == 0, 0.0)
    return _index_add(flat, 0, place, given).reshape(*shape)


def _least_dims(count: int, a: TensorProxy) -> TensorProxy:
    """Replace `torch.atleast_1d`, `torch.atleast_2d` or `torch.atleast_3d`, according to `count`."""
    if a.ndim == 0:
        return a.reshape([1] * count)
    if count >= 2 and a.ndim == 1:
        a = a.unsqueeze(0)
    return a.unsqueeze(-1) if count == 3 and a.ndim == 2 else a


def _at_least(dims: int, *given: Any) -> Any:
    """Apply `_least_dims` to tensors or to a list of tensors.

    For a list, Thunder's `atleast_1d` fails, and its `atleast_2d` and `atleast_3d` return the list unchanged.
    """
    listed = isinstance(given[0], list | tuple)
    made = tuple(_least_dims(dims, a) for a in (given[0] if listed else given))
    return made if listed or len(made) > 1 else made[0]


def _stack(dims: int, tensors: Sequence[TensorProxy]) -> Any:
    """Replace `vstack`, `row_stack` and `dstack`. Thunder calls PyTorch's operators, and loses gradients of a list."""
    parts = [_least_dims(dims, a) for a in tensors]
    return thunder_operator(torch.cat)(parts, dims - 1 if dims != 2 else 0)


def _stack_horizontally(tensors: Sequence[TensorProxy]) -> Any:
    parts = [_least_dims(1, a) for a in tensors]
    return thunder_operator(torch.cat)(parts, 0 if parts[0].ndim == 1 else 1)


def _pad_sequence(
    sequences: Sequence[TensorProxy],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Any:
    """Replace `torch.nn.utils.rnn.pad_sequence`, which Thunder does not know."""
    longest = max(int(a.shape[0]) for a in sequences)
    made = []
    for a in sequences:
        missing = longest - int(a.shape[0])
        ends = [missing, 0] if padding_side == "left" else [0, missing]
        made.append(_pad(a, [0, 0] * (a.ndim - 1) + ends, "constant", padding_value) if missing else a)
    return thunder_operator(torch.stack)(made, 0 if batch_first else 1)


def _stack_columns(tensors: Sequence[TensorProxy]) -> Any:
    return thunder_operator(torch.cat)([a if a.ndim > 1 else a.reshape(-1, 1) for a in tensors], 1)


def _spread_of(name: str) -> Callable[..., Any]:
    """Return a replacement of `var`, `std`, `var_mean` or `std_mean` that accepts `unbiased`.

    PyTorch also accepts `unbiased` as second argument, in the position of `dim`. Thunder accepts only `correction`.
    Thunder's gradient of a standard deviation over all dimensions fails. For a deviation of zero, Thunder's gradient is
    NaN.
    """

    def spread(a: TensorProxy, *args: Any, **kwargs: Any) -> Any:
        given = [None, *args] if args and isinstance(args[0], bool) else list(args)
        named = {**dict(zip(("dim", "unbiased", "keepdim"), given, strict=False)), **kwargs}
        unbiased = named.pop("unbiased", None)
        if unbiased is not None:
            named["correction"] = int(unbiased)
        dim = named.pop("dim", None)
        if name == "var_mean":
            return thunder_operator(torch.var_mean)(a, dim, **named)
        made = thunder_operator(torch.var)(a, dim, **named)
        made = made if name == "var" else root(made)
        every = tuple(range(a.ndim)) if dim is None else dim
        return (
            (made, thunder_operator(torch.mean)(a, every, named.get("keepdim", False))) if name == "std_mean" else made
        )

    return spread


def _gradient(a: TensorProxy, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> Any:
    """Replace `gradient`, which Thunder lacks. PyTorch runs a `gradient` whose spacing is given by tensors."""
    given = [dim] if isinstance(dim, int) else range(a.ndim) if dim is None else dim
    steps = spacing if isinstance(spacing, list | tuple) else [1 if spacing is None else spacing] * len(given)
    if any(isinstance(step, TensorProxy) for step in steps):
        raise NotImplementedError("gradient with a spacing of tensors")
    return tuple(_differences(a, at % a.ndim, step, edge_order) for at, step in zip(given, steps, strict=True))


def _differences(a: TensorProxy, dim: int, step: float, edge_order: int) -> Any:
    """Return central differences between elements, and one-sided differences at both ends, divided by `step`."""
    count = int(a.shape[dim])

    def weighed(start: int, length: int, *weights: int) -> Any:
        """Add weighted elements in their order, as PyTorch does, so that the sums are rounded as PyTorch's sums are."""
        parts = [a.narrow(dim, start + at, length) * weight for at, weight in enumerate(weights) if weight]
        return functools.reduce(operator.add, parts)

    center = weighed(0, count - 2, -1, 0, 1) / (2 * step)
    if edge_order == 1:
        first, last = weighed(0, 1, -1, 1) / step, weighed(count - 2, 1, -1, 1) / step
    else:
        first, last = weighed(0, 1, -3, 4, -1) / (2 * step), weighed(count - 3, 1, 1, -4, 3) / (2 * step)
    return thunder_operator(torch.cat)((first, center, last), dim)


def _eye(n: int, m: int | None = None, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    rows, columns = (thunder_operator(torch.arange)(size, device=device) for size in (n, n if m is None else m))
    return (rows.unsqueeze(1) == columns).to(dtype or torch.get_default_dtype())


def _fill_diagonal(a: TensorProxy, value: float, wrap: bool = False) -> Any:
    """Replace `fill_diagonal_` for a matrix. Thunder lacks `fill_diagonal_`."""
    if a.ndim != 2 or (wrap and a.shape[0] > a.shape[1]):
        raise NotImplementedError("fill_diagonal_ of more than two dimensions, or with several diagonals")
    diagonal = _eye(*a.shape, dtype=torch.bool, device=a.device)
    return _copy_in_place(a, thunder_operator(torch.where)(diagonal, value, a))


_CELLS: dict[str, Callable[[TensorProxy, TensorProxy, tuple[Any, ...]], tuple[Any, ...]]] = {
    "lstm": _lstm_cell,
    "gru": _gru_cell,
    "rnn_tanh": lambda x, h, _: (thunder_operator(torch.tanh)(x + h),),
    "rnn_relu": lambda x, h, _: (thunder_operator(functional.relu)(x + h),),
}


def _one_step(
    cell: str, x: TensorProxy, first: Any, w_in: Any, w_hidden: Any, b_in: Any = None, b_hidden: Any = None
) -> Any:
    """Replace a recurrent cell, such as `torch.lstm_cell`. Thunder loses the gradients of an LSTM's state in a list."""
    linear = thunder_operator(functional.linear)
    state = tuple(first) if cell == "lstm" else (first,)
    made = _CELLS[cell](linear(x, w_in, b_in), linear(state[0], w_hidden, b_hidden), state)
    return made if cell == "lstm" else made[0]


DECOMPOSED: dict[Any, Callable[..., Any]] = {
    torch.rms_norm: _rms_norm,
    torch.layer_norm: _layer_norm,
    functional.pad: _pad,
    _nn_pad: _pad,
    _nn_pad_sequence: _pad_sequence,
    torch.flip: _flip,
    torch.Tensor.flip: _flip,
    torch.Tensor.unfold: _unfold,
    torch.Tensor.tile: _tile,
    torch.minimum: minimum,
    torch.Tensor.minimum: minimum,
    torch.lerp: lerp,
    torch.Tensor.lerp: lerp,
    torch.logaddexp: _logaddexp,
    torch.Tensor.logaddexp: _logaddexp,
    torch.index_add: _index_add,
    torch.Tensor.index_add: _index_add,
    operator.mod: _mod,
    torch.remainder: _remainder,
    torch.Tensor.remainder: _remainder,
    torch.vdot: _vdot,
    torch.Tensor.vdot: _vdot,
    torch.clone: _clone,
    torch.Tensor.clone: _clone,
    torch.round: _round,
    torch.Tensor.round: _round,
    torch.trunc: _truncate,
    torch.Tensor.trunc: _truncate,
    torch.fix: _truncate,
    **{
        getattr(owner, name): functools.partial(_check, getattr(torch, name))
        for name in ("isfinite", "isinf", "isnan")
        for owner in (torch, torch.Tensor)
    },
    torch.prod: _product,
    torch.Tensor.prod: _product,
    torch.Tensor.where: _where,
    getattr: _attribute,
    torch.real: _real,
    torch.imag: _imag,
    functional.binary_cross_entropy_with_logits: _binary_cross_entropy_with_logits,
    torch.multinomial: _multinomial,
    torch.Tensor.multinomial: _multinomial,
    torch.linspace: _linspace,
    torch.normal: _normal,
    torch.gradient: _gradient,
    torch.eye: _eye,
    torch.index_put: _index_put,
    torch.Tensor.index_put: _index_put,
    **{
        function: functools.partial(_at_least, dims)
        for dims, name in enumerate(("atleast_1d", "atleast_2d", "atleast_3d"), 1)
        for function in (getattr(torch, name), getattr(torch.functional, name))
    },
    torch.hstack: _stack_horizontally,
    torch.vstack: functools.partial(_stack, 2),
    torch.row_stack: functools.partial(_stack, 2),
    torch.dstack: functools.partial(_stack, 3),
    torch.column_stack: _stack_columns,
    **{
        getattr(owner, name): _spread_of(name)
        for name in ("var", "std", "var_mean", "std_mean")
        for owner in (torch, torch.Tensor)
        if hasattr(owner, name)
    },
    torch.Tensor.copy_: _copy_in_place,
    torch.Tensor.fill_: _fill_in_place,
    torch.Tensor.zero_: _zero_in_place,
    torch.Tensor.fill_diagonal_: _fill_diagonal,
    torch.zero_: _zero_in_place,
    torch.Tensor.uniform_: _uniform,
    torch.Tensor.normal_: _normal_in_place,
    **{getattr(torch, cell): functools.partial(_unroll, cell) for cell in _CELLS},
    **{getattr(torch, f"{cell}_cell"): functools.partial(_one_step, cell) for cell in _CELLS},
}
"""Maps PyTorch functions in graphs to their replacements."""
