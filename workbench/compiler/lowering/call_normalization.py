"""Adapt the arguments of calls in FX graphs to Thunder's operators, and detect in-place and random operators."""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import fx
from torch.fx.operator_schemas import get_signature_for_torch_op
from torch.nn import functional

from workbench.compiler.interop.thunder_api import BoundSymbol, TensorProxy, devices, dtypes, prims, thunder_functions
from workbench.compiler.lowering.custom_ops import fakes
from workbench.compiler.trace.bsym_memo import structure_of
from workbench.interop.torch_private import FakeTensorMode, TorchDispatchMode

IN_PLACE: Mapping[Any, Callable[..., Any]] = {
    operator.imod: operator.mod,
    operator.ifloordiv: operator.floordiv,
    operator.iand: operator.and_,
    operator.ior: operator.or_,
    operator.ixor: operator.xor,
    operator.ilshift: operator.lshift,
    operator.irshift: operator.rshift,
}
"""In-place operators that Thunder's tensors refuse, each with the operator that computes the value to write."""

_OF_NUMPY = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}
"""NumPy keywords that PyTorch also accepts, each with PyTorch's own keyword."""

_POSITIONAL = frozenset(("input", "other", "shape"))
"""Keywords for tensors, and for the shape of a reshape. Thunder's operators with ``**kwargs`` fail with these keywords;
see `_lacks_keyword`.
"""

_NO_COPY = frozenset({torch.Tag.inplace_view, torch.Tag.nondeterministic_seeded})
"""Tags of in-place methods without an equal out-of-place method. Such a method changes a tensor's view, or draws random
numbers.
"""


def normalize_arguments(
    target: Any, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments that the replacement operator accepts: keywords become positional arguments where necessary.

    Keywords are moved if the operator does not accept one of them. Keywords are also moved if Thunder calls PyTorch's
    operator unchanged and a keyword is a tensor, because Thunder has no gradient for keywords. NumPy's names of
    keywords, such as ``axis``, become PyTorch's names.

    Parameters
    ----------
    target : callable or str
        PyTorch's function, or the name of a tensor method. For a method, the tensor is the first argument.
    operator : callable
        Replacement operator.
    args, kwargs
        Arguments of the call of `target`.
    """
    if not kwargs:
        return args, kwargs
    if not _OF_NUMPY.keys().isdisjoint(kwargs):
        own = {name for signature in _signatures(target) for name in signature.parameters}
        kwargs = {name if name in own else _OF_NUMPY.get(name, name): value for name, value in kwargs.items()}
    as_it_is = _is_unchanged(operator)
    tensors = as_it_is and any(isinstance(value, TensorProxy) for value in kwargs.values())
    if not tensors and not _lacks_keyword(operator, args, kwargs):
        return args, kwargs
    for signature in _signatures(target):
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:  # the call belongs to a different overload
            continue
        if as_it_is:
            bound.apply_defaults()
        return bound.args, bound.kwargs
    return args, kwargs


def has_boolean(index: Any) -> bool:
    """Return whether an index contains True or False, also in a list. To PyTorch, these are masks."""
    return any(map(has_boolean, index)) if isinstance(index, list | tuple) else isinstance(index, bool)


def clamp_slices(shape: Sequence[int], index: Any) -> Any:
    """Return an index without slices that begin or end before the first element, which Thunder refuses.

    For example, ``x[-64:]`` is all of a tensor with 32 elements, so the slice becomes ``0:``.

    Raises
    ------
    NotImplementedError
        If the index contains True or False.
    """
    items = index if isinstance(index, tuple) else (index,)
    if has_boolean(index):
        raise NotImplementedError("Thunder takes True and False in an index for the numbers 1 and 0")
    places = [item.ndim if _is_mask(item) else 0 if item is None else 1 for item in items]
    covered = sum(places) - sum(item is Ellipsis for item in items)
    made, dim = [], 0
    for item, places_taken in zip(items, places, strict=True):
        if isinstance(item, slice) and dim < len(shape):
            start, stop = (0 if isinstance(end, int) and end < -shape[dim] else end for end in (item.start, item.stop))
            item = slice(start, stop, item.step)
        made.append(item)
        dim += len(shape) - covered if item is Ellipsis else places_taken
    return tuple(made) if isinstance(index, tuple) else made[0]


def _is_mask(item: Any) -> bool:
    return isinstance(item, TensorProxy) and dtypes.is_boolean_dtype(item.dtype)


def put_tensor_first(target: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of an operator, with the tensor first in the product or sum of a number and a tensor.

    Python calls the tensor's method for ``2.5 * x``. On a CPU, PyTorch rounds a first number to float16 or bfloat16,
    but reads a second number in float32. Other data types are unchanged.
    """
    if target not in (operator.mul, operator.add) or len(args) != 2:
        return args
    first, second = args
    swaps = isinstance(first, int | float) and reads_half(args) and second.device.devicetype is devices.DeviceType.CPU
    return (second, first) if swaps else args


def reads_half(args: Iterable[Any]) -> bool:
    """Return whether a float16 or bfloat16 tensor is among the arguments of an operator."""
    half = (dtypes.float16, dtypes.bfloat16)
    return any(isinstance(each, TensorProxy) and dtypes.to_dtype(each.dtype) in half for each in args)


def refuse_lists(operator: Any, args: tuple[Any, ...]) -> None:
    """Refuse tensors in a list if Thunder calls PyTorch's operator unchanged, because Thunder loses their gradients.

    Call this function only for a program that is differentiated. The function does not read `requires_grad` of tensors,
    because `requires_grad` is wrong after an in-place write.

    Raises
    ------
    NotImplementedError
        If a tensor in a list may have a gradient.
    """
    if not _is_unchanged(operator):
        return
    for given in args:
        listed = given if isinstance(given, list | tuple) else ()
        if any(isinstance(item, TensorProxy) and dtypes.is_inexact_dtype(item.dtype) for item in listed):
            raise NotImplementedError("Thunder loses the gradients of a list of tensors here")


def unpack_list(target: Any, operator: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace a list by its tensors as positional arguments, if PyTorch's operator accepts both forms.

    The list is replaced only if Thunder calls PyTorch's operator unchanged. Thunder then loses the gradients of tensors
    in a list, but keeps the gradients of positional arguments. All other arguments are returned unchanged.
    """
    if (
        len(args) != 1
        or not isinstance(args[0], list | tuple)
        or isinstance(target, str)
        or not _is_unchanged(operator)
    ):
        return args
    kinds = [each.kind for signature in _signatures(target) for each in signature.parameters.values()]
    return tuple(args[0]) if inspect.Parameter.VAR_POSITIONAL in kinds else args


def _is_unchanged(operator: Any) -> bool:
    return prims.OpTags.AUTO_REGISTERED in (getattr(operator, "tags", None) or ())


def draws(bsym: BoundSymbol) -> bool:
    """Return whether a primitive, or a PyTorch operator that Thunder calls unchanged, draws random numbers.

    This function reads the tags of PyTorch's operators, because Thunder tags only some of its random primitives, and
    none of the operators that it calls unchanged.
    """
    return (bsym.sym.is_prim or _is_unchanged(bsym.sym)) and (_draws(bsym.sym.name) or _drops(bsym))


def draws_inside(bsym: BoundSymbol) -> bool:
    """Return whether a statement or a nested subsymbol draws random numbers, even if Thunder has not tagged it so."""
    if prims.OpTags.RANDOM_OP in (bsym.sym.tags or ()) or prims.OpTags.RANDOM_OP in bsym.tags or draws(bsym):
        return True
    return any(map(draws_inside, bsym.subsymbols))


def _drops(bsym: BoundSymbol) -> bool:
    """Return whether a statement is the forward of a fused attention with dropout.

    The backward of such an attention does not count: it takes the seed of the forward and draws the same numbers.
    """
    if bsym.sym.executor is None or bsym.sym.meta is None:
        return False
    named = {each.name: at for at, each in enumerate(_parameters(bsym.sym.meta) or ())}
    if "dropout_p" not in named or any("seed" in name for name in named):
        return False
    place = named["dropout_p"]
    return bool(bsym.args[place] if place < len(bsym.args) else bsym.kwargs.get("dropout_p"))


@functools.cache
def _draws(name: str) -> bool:
    return any(torch.Tag.nondeterministic_seeded in overload.tags for overload in _overloads(name))


def draws_again(bsym: BoundSymbol) -> bool:
    """Return whether a statement is a PyTorch operator that Thunder calls unchanged and that draws random numbers.

    A second call of such an operator draws different numbers.
    """
    if not _is_unchanged(bsym.sym):
        return False
    found: bool = structure_of(bsym).get_or_make("draws again", lambda: _draws_unchanged(bsym))
    return found


def _draws_unchanged(bsym: BoundSymbol) -> bool:
    function = next(function for function, symbol in thunder_functions.items() if symbol is bsym.sym)
    drawn = False

    class Seeing(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal drawn
            drawn |= torch.Tag.nondeterministic_seeded in func.tags
            return func(*args, **(kwargs or {}))

    with FakeTensorMode(), torch.no_grad():
        args, kwargs = fakes(tuple(bsym.args)), {name: fakes(value) for name, value in bsym.kwargs.items()}
        with Seeing():
            function(*args, **kwargs)
    return drawn


def _lacks_keyword(operator: Any, args: tuple[Any, ...], keywords: Collection[str]) -> bool:
    """Return whether an operator cannot be called with the given positional arguments and keywords."""
    function = getattr(operator, "meta", None) or operator
    parameters = (_parameters if isinstance(function, FunctionType) else _parameters.__wrapped__)(function)
    if parameters is None:
        return False
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        # Thunder's elementwise operators and its reshape accept any keyword, and pass it to a function whose parameters
        # have other names.
        return not _POSITIONAL.isdisjoint(keywords)
    try:
        inspect.Signature(parameters).bind(*args, **dict.fromkeys(keywords))
    except TypeError:
        return True
    return False


@functools.lru_cache(maxsize=1 << 10)
def _parameters(function: Any) -> tuple[inspect.Parameter, ...] | None:
    """Return the parameters of a callable, or None for a built-in function without a signature."""
    try:
        return tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _signatures(target: Any) -> Iterator[inspect.Signature]:
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if not isinstance(target, str):
        with contextlib.suppress(TypeError, ValueError):  # a built-in function without a signature
            yield inspect.signature(target)
    for overload in _overloads(name):
        yield get_signature_for_torch_op(overload)[0]


def _overloads(name: str) -> list[Any]:
    packet = getattr(torch.ops.aten, name, None)
    return [getattr(packet, each) for each in packet.overloads()] if packet is not None else []


def is_named_in_place(node: fx.Node) -> bool:
    """Return whether an operator is named like an in-place operator, such as `add_`. Python's `and_` does not count."""
    if getattr(node.target, "__module__", "") == "_operator":
        return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.endswith("_") and not name.endswith("__")


def out_of_place_name(name: str) -> str:
    """Return the name of the out-of-place method whose result an in-place method writes, such as ``add`` for ``add_``.

    Return an empty string if no such method exists.
    """
    if not name.endswith("_") or name.endswith("__"):
        return ""
    overloads = _overloads(name)
    if not overloads or not _overloads(name[:-1]) or any(_NO_COPY & set(each.tags) for each in overloads):
        return ""
    return name[:-1]


SOFT = frozenset({functional.softmax, functional.softmin, functional.log_softmax})
"""Functions for which PyTorch chooses a missing `dim`, with a warning. Thunder fails at run time without `dim`."""


def add_dimension(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a `SOFT` function. If `dim` is missing, add the dimension that PyTorch chooses."""
    if not args or (args[1] if len(args) > 1 else kwargs.get("dim")) is not None:
        return args, kwargs
    chosen = 0 if args[0].ndim in (0, 1, 3) else 1
    return (args[0], chosen, *args[2:]), {name: value for name, value in kwargs.items() if name != "dim"}
