"""Faster construction of statements and values. The resulting traces are equal to Thunder's.

The properties of equal tensors are inferred and checked only once. Dead code elimination is skipped for primitives,
because they have no subsymbols. The leaves of shallow arguments are collected without the flattening library. Each
function here replaces a Thunder function (see `PATCHES`), and can be deleted once that function avoids the repeated
work itself.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.compiler.fastpath import call_memo
from workbench.compiler.interop.thread_patches import PatchTarget, ThreadPatches, dispatch_by_thread, replace_function
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    OperatorExecutor,
    Proxy,
    TensorProxy,
    baseutils,
    compile_data,
    dead_code,
    get_tracectx,
    prims,
    proxies,
    pytree,
    symbol,
    variableify,
)
from workbench.compiler.trace.bsym_memo import STRUCTURE, identity

stock_flatten = pytree.tree_flatten
_stock_flatten_with_dataclass = pytree.tree_flatten_with_dataclass
_legal: set[type] = set()
"""Types of trees that Thunder's `tree_flatten` has accepted."""
_plain: set[type] = {TensorProxy}
"""Types of leaves that are known not to be dataclasses."""


def flatten(args: Any, namespace: str = pytree.OPTREE_NAMESPACE) -> Any:
    """Flatten a tree as Thunder's `tree_flatten` does.

    Thunder's function builds its set of accepted types again at each call.
    """
    kind = type(args)
    if kind in _legal:
        return pytree.optree.tree_flatten(args, none_is_leaf=True, namespace=namespace)
    found = stock_flatten(args, namespace)
    if not isinstance(args, type):  # for a class, the result depends on the class itself
        _legal.add(kind)
    return found


def flatten_with_dataclass(tree: Any) -> Any:
    """Flatten a tree. If a leaf is a dataclass, call Thunder's function, which registers the dataclass first."""
    if type(tree) not in _legal:
        return _stock_flatten_with_dataclass(tree)
    leaves, spec = flatten(tree)
    for leaf in leaves:
        kind = type(leaf)
        if kind in _plain:
            continue
        if dataclasses.is_dataclass(kind):
            return _stock_flatten_with_dataclass(tree)
        _plain.add(kind)
    return leaves, spec


def _flat_args(self: Any) -> list[Any]:
    """Return the leaves of a statement's arguments. Flatten only if there are keywords or nested containers."""
    leaves = None if self.kwargs else _leaves(self.args)
    if leaves is not None:
        return leaves
    found: list[Any] = self.flat_args_and_spec[0]
    return found


def _flat_outs(self: Any) -> list[Any]:
    leaves = _leaves((self.output,))
    if leaves is not None:
        return leaves
    found: list[Any] = self.flat_outs_and_spec[0]
    return found


def _leaves(trees: Sequence[Any]) -> list[Any] | None:
    """Return the leaves of `trees`; None if a tree contains nested containers or a type that is not in `_plain`."""
    found: list[Any] = []
    for tree in trees:
        kind = type(tree)
        if kind in _plain:
            found.append(tree)
        elif (kind is tuple or kind is list) and all(type(each) in _plain for each in tree):
            found.extend(tree)
        else:
            return None
    return found


def _flat_proxy_args(self: Any) -> tuple[Any, ...]:
    return tuple([x for x in self.flat_args if type(x) is TensorProxy or isinstance(x, Proxy)])


def _flat_proxy_outs(self: Any) -> tuple[Any, ...]:
    return tuple([x for x in self.flat_outs if type(x) is TensorProxy or isinstance(x, Proxy)])


_stock_swap = BoundSymbol.from_bsym_swap_proxies


def swap_values(
    self: Any,
    swap_map: Mapping[Any, Any],
    inside: Callable[[Any], Any],
    skip_inputs: bool,
    skip_output: bool,
    skip_subsymbols: bool,
) -> Any:
    """Return a copy of a statement with the replacements in `swap_map`. The function `inside` copies a subsymbol.

    Values in tuples and lists are replaced without flattening. For other containers, Thunder's own function is called.
    """
    changes: dict[str, Any] = {}
    try:
        if not skip_inputs:
            changes.update(args=_swap(self.args, swap_map), kwargs=_swap(self.kwargs, swap_map))
        if not skip_output:
            changes["output"] = _swap(self.output, swap_map)
    except _NestedError:
        return _stock_swap(self, swap_map, skip_inputs, skip_output, skip_subsymbols)
    changes["subsymbols"] = list(self.subsymbols) if skip_subsymbols else list(map(inside, self.subsymbols))
    return self.from_bsym(**changes)


class _NestedError(Exception):
    """`swap_values` does not support a container or a replacement."""


def _swap(tree: Any, swap_map: Mapping[Any, Any]) -> Any:
    kind = type(tree)
    if kind is TensorProxy:
        return _final_replacement(tree, swap_map)
    if kind is tuple:
        return tuple([_swap(each, swap_map) for each in tree])
    if kind is list:
        return [_swap(each, swap_map) for each in tree]
    if kind is dict and not tree:
        return {}
    if kind not in _plain or issubclass(kind, Proxy):
        raise _NestedError
    return tree


def _final_replacement(proxy: Any, swap_map: Mapping[Any, Any]) -> Any:
    """Return the replacement of a value; the value itself if it has none.

    Raise `_NestedError` if the replacement is not a tensor or has a replacement itself.
    """
    variable = variableify(proxy)
    if variable not in swap_map:
        return proxy
    found = swap_map[variable]
    if found is proxy:
        return proxy
    if type(found) is not TensorProxy or variableify(found) in swap_map:
        raise _NestedError
    return found


_stock_call = symbol.Symbol.__call__


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Record a statement. Thunder's method handles unsupported calls, such as those under `no_grad` or autocast."""
    trace, data = get_tracectx(), compile_data.get_compile_data()
    if (
        trace is None
        or trace._complete
        or self.meta is None
        or (self._bind_postprocess and not isinstance(self.executor, OperatorExecutor))
        or (data is not None and not (data.is_grad_enabled and data.autocast_stack.is_empty()))
    ):
        return _stock_call(self, *args, **kwargs)
    inside: list[Any] = []
    if self.is_prim and trace.peek_scope() is None:
        return self.meta(*args, **kwargs)

    def make() -> Any:
        recorded: list[Any] = []
        trace.push_scope(None if self.is_prim else recorded)
        found = self.meta(*args, **kwargs)
        if not self.is_prim:
            found = _copy_result(found, args, kwargs)
        trace.pop_scope()
        inside.extend(dead_code.dce_bsyms(recorded, found) if recorded else ())
        return found

    if self.id is prims.PrimIDs.RETURN or self.id is prims.PrimIDs.UNPACK_SEQUENCE:
        # A trace does not repeat these statements, and a key of their thousands of arguments is slow.
        result, structure = make(), None
    else:
        result, structure = call_memo.record_or_replay(trace, inside, self, args, kwargs, make)
    bsym = self.bind(*args, **kwargs, output=result, subsymbols=inside)
    if structure is not None and not self._bind_postprocess:
        bsym.__dict__[STRUCTURE] = structure
    scope = trace.peek_scope()
    baseutils.check(
        scope is not None,
        lambda: f"A symbol {self} was called while processing a primitive",
        exception_type=AssertionError,
    )
    scope.append(bsym)
    return result


def _copy_result(result: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of a composite operation. Copy each value of the result that is also an argument."""
    given = flatten((args, kwargs))[0]
    made, spec = flatten(result)
    for at, each in enumerate(made):
        for one in given:
            if one is each and isinstance(one, Proxy):
                made[at] = prims.shallow_copy(one)
    return made[0] if type(result) is TensorProxy else pytree.tree_unflatten(made, spec)


_stock_properties = proxies._infer_tensor_properties
_properties: dict[Any, tuple[Any, Any]] = {}
_MOST = 20_000
"""Number of entries at which `_properties` is cleared."""


def _infer(
    like: Any = None,
    shape: Any = None,
    device: Any = None,
    dtype: Any = None,
    requires_grad: Any = None,
    grad: Any = None,
    distparallel_type: Any = None,
    thunder_fsdp_padding_size: Any = None,
) -> Any:
    """Return the properties of a tensor. They are inferred once for all tensors with equal arguments."""
    given: tuple[Any, ...] = shape, device, dtype, requires_grad, distparallel_type
    plain = like is None or (type(like) is TensorProxy and like._grad is None)
    if plain and like is not None:
        known = like._shape, like._device, like._true_dtype, like._requires_grad, like._distparallel_type
        given = tuple([ours if ours is not None else theirs for ours, theirs in zip(given, known, strict=True)])
    lengths = given[0]
    if (
        not plain
        or grad is not None
        or thunder_fsdp_padding_size is not None
        or type(lengths) not in (tuple, list)
        or not all(type(length) is int for length in lengths)
        or compile_data.using_symbolic_values()
    ):
        return _stock_properties(
            like, shape, device, dtype, requires_grad, grad, distparallel_type, thunder_fsdp_padding_size
        )
    # Compare data types and devices by identity, because equal data types or equal devices may be spelled differently.
    key = (tuple(lengths), identity(given[1]), identity(given[2]), given[3], given[4])
    found = _properties.get(key)
    if found is None:
        made = _stock_properties(None, *given[:4], None, given[4], None)
        if len(_properties) >= _MOST:
            _properties.clear()
        found = _properties[key] = made, given
    return found[0]


def _cached_property(name: str, ours: Callable[[Any], Any]) -> PatchTarget:
    """Return a patch that replaces a cached property of statements by the function `ours`."""

    def make(stock: Any, patches: ThreadPatches) -> Any:
        found = functools.cached_property(dispatch_by_thread(stock.func, ours, patches))
        found.__set_name__(BoundSymbol, name)
        return found

    return PatchTarget(BoundSymbol, name, make)


PATCHES: tuple[PatchTarget, ...] = (
    _cached_property("flat_args", _flat_args),
    _cached_property("flat_outs", _flat_outs),
    _cached_property("flat_proxy_args", _flat_proxy_args),
    _cached_property("flat_proxy_outs", _flat_proxy_outs),
    replace_function(symbol.Symbol, "__call__", _call),
    replace_function(proxies, "_infer_tensor_properties", _infer),
    replace_function(pytree, "tree_flatten", flatten, everywhere=True),
    *call_memo.PATCHES,
)
