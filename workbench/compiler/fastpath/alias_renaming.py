"""Faster renaming of values that are written in place. Names may differ, but Thunder could have chosen them.

Each statement that writes, views or reads written memory gives new names to the values in this memory. For each reader
of a value, Thunder follows the value's names from the first to the last. Therefore, for a loop that writes row by row,
Thunder's time grows with the cube of the number of rows. Here, tables map each name directly to the first and the
latest name of its value.

Thunder names the views of one memory in set order, which depends on PYTHONHASHSEED. Therefore Thunder's names differ
between processes and, in one process, between layers with equal writes. Here, views are named in order of their first
appearance in the program. Thunder's set order can happen to be this order, so the traces stay valid Thunder traces.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from workbench.compiler.interop.thread_patches import PatchTarget, replace_function, wrap_function
from workbench.compiler.interop.thunder_api import (
    BoundSymbolTag,
    CollectionProxy,
    TensorProxy,
    TraceProvenance,
    autodiff,
    from_trace,
    has_tags,
    prims,
    tree_flatten,
    unvariableify,
    update_aliases,
    variableify,
)
from workbench.compiler.trace import corrections
from workbench.compiler.trace.bsym_memo import names_in
from workbench.compiler.trace.stable_ids import is_statement

_LAST_NAMES = "last_names"
"""Key under which the return statement lists the inputs by their last names while the program is differentiated."""


class _CurrentNames:
    """Tables of the current and the original names of values."""

    def __init__(self) -> None:
        self._next: dict[str, Any] = {}
        self._first: dict[str, Any] = {}
        self._variables: dict[str, Any] = {}

    def current(self, proxy: Any) -> Any:
        """Return the latest replacement of a value; the value itself if it was not replaced."""
        passed = []
        while proxy.name in self._next:
            passed.append(proxy.name)
            proxy = self._next[proxy.name]
        for name in passed:
            self._next[name] = proxy
        return proxy

    def original(self, variable: Any) -> Any:
        """Return the original name of a value, before any replacement."""
        return self._first.get(variable.proxy.name, variable)

    def link(self, old: Any, new: Any) -> None:
        """Replace `old` by `new` from now on."""
        last = self.current(old)
        if last.name == new.name:
            return
        self._variables[last.name] = variable = variableify(last)
        self._next[last.name] = new
        self._first[new.name] = self.original(variable)

    def replace_in(self, bsym: Any, *, skip_output: bool = False) -> Any:
        """Return a statement with the current replacements of its values."""
        nested = any(isinstance(each, CollectionProxy) for each in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs))
        names: Iterable[str] = self._variables if nested else names_in(bsym)
        instead = {self._variables[name]: self.current(self._next[name]) for name in names if name in self._next}
        return bsym.from_bsym_swap_proxies(instead, skip_output=skip_output)


def _tensors(proxies: Iterable[Any]) -> list[Any]:
    return [variableify(proxy) for proxy in proxies if isinstance(proxy, TensorProxy)]


def _inputs_by_memory(trace: Any, groups: list[list[int]]) -> list[set[Any]]:
    """Return the groups of inputs that share a storage, and mark statements.

    In a marked statement, unmodified Thunder would read a different input than the program does.

    A compiled program depends on which inputs share a storage, but not on their positions in the storage. Therefore,
    any two inputs of a storage may overlap. Unmodified Thunder instead reads the first input of a storage for all
    inputs of that storage with the same number of elements. It also groups all empty tensors, because all of them have
    the null address.
    """
    arguments, _ = tree_flatten((trace.args, trace.kwargs))
    found = []
    for group in groups:
        given = [arguments[at] for at in group if at < len(arguments)]
        kept = [each for each in given if isinstance(each, TensorProxy) and 0 not in each.shape]
        exchanged = {each.name for each in kept[1:] if update_aliases._can_be_reshaped(kept[0], each)}
        readers = (b for b in trace.bound_symbols if exchanged.intersection(p.name for p in b.flat_proxy_args))
        corrections.mark(filter(is_statement, readers), corrections.PARTS)
        found.append(set(_tensors(kept)))
    return [group for group in found if len(group) > 1]


def insert_alias_updates(computation_trace: Any, alias_tensor_indices: list[list[int]]) -> Any:
    """Return the trace with new names for values after in-place writes, as Thunder's function of the same name does."""
    in_place, makes_view = update_aliases._is_inplace_op, update_aliases._is_view_creation_op
    if not any(map(in_place, computation_trace.bound_symbols)):
        return computation_trace
    trace = computation_trace
    groups = _inputs_by_memory(trace, alias_tensor_indices)
    encountered: set[Any] = set().union(*groups)
    groups = _inplace_results(_group_by_memory(trace, groups), trace)
    viewed: set[Any] = set().union(*groups)
    order = {name: at for at, name in enumerate(dict.fromkeys(n for b in trace.bound_symbols for n in names_in(b)))}
    names, bsyms = _CurrentNames(), []
    for bsym in trace.bound_symbols:
        given = _tensors(bsym.flat_proxy_args)
        first = list(map(names.original, given))
        writes, views = in_place(bsym), makes_view(bsym)
        reads = bsym.sym.id != prims.PrimIDs.RETURN and bool(set(first).intersection(viewed))
        if not (writes or views or reads):
            bsyms.append(names.replace_in(bsym))
            continue
        if writes and given:
            inputs, first = {given[0]}, [first[0]]
        else:
            inputs = set(given)
        outputs = set(_tensors(bsym.flat_proxy_outs))
        encountered.update(inputs)
        group: set[Any] = set().union(*(each for each in groups if each.intersection(first)))
        met = group.intersection(encountered) if group else set()
        if not met:
            # The statement views memory that is never written.
            bsyms.append(names.replace_in(bsym, skip_output=True))
            continue
        old = tuple(sorted(map(unvariableify, met), key=lambda proxy: order[proxy.name]))
        renamed = update_aliases._get_new_aliases(map(variableify, old), trace)
        update = names.replace_in(prims.update_aliases.bind(old, output=renamed))
        for before, after in zip(old, renamed, strict=True):
            names.link(before, after)
        made = names.replace_in(bsym)
        if has_tags(bsym, {BoundSymbolTag.BACKWARD}):
            update.tags.add(BoundSymbolTag.BACKWARD)
        bsyms.append(update)
        encountered.update(outputs)
        bsyms.append(made)
        if writes and len(outputs) == 1 and len(inputs) == 1:
            names.link(unvariableify(inputs.pop()), unvariableify(outputs.pop()))
    updated = from_trace(trace)
    updated.set_provenance(TraceProvenance("Update aliases for in-place ops"))
    updated.bound_symbols = bsyms
    return updated


def _group_by_memory(trace: Any, groups: list[set[Any]]) -> list[set[Any]]:
    """Add views and written values to the groups that share their memory.

    A view is added only if Thunder knows that its operator makes views.
    """
    for bsym in trace.bound_symbols:
        writes = update_aliases._is_inplace_op(bsym)
        if not writes and not update_aliases._is_view_creation_op(bsym):
            continue
        given = variableify(bsym.flat_proxy_args[0])
        made = set() if writes else set(_tensors(bsym.flat_proxy_outs))
        for group in groups:
            if given in group:
                group.update(made)
                break
        else:
            groups.append(made.union({given}))
    return groups


def _inplace_results(groups: Sequence[set[Any]], trace: Any) -> list[set[Any]]:
    """Return the groups in which at least one value is written in place."""
    written = {variableify(b.flat_proxy_args[0]) for b in trace.bound_symbols if update_aliases._is_inplace_op(b)}
    return [group for group in groups if group.intersection(written)]


def _differentiate(stock: Callable[..., Any], trace: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Return the joint trace, with a gradient for each input that was renamed.

    The return statement lists the inputs by their last names, and Thunder looks for gradients under these names. But
    the gradient of an input belongs to its first name, so Thunder loses the gradients of renamed inputs. It renames an
    input that is written through `detach` or without gradients. It also renames an input if an operator that may return
    a view of it returns a copy, and this copy is written: for example, for ``row = weight[index]; row += 1``.

    The joint trace lists the last names, because Thunder's split finds the writes of the forward by these names.
    """
    returned = trace.bound_symbols[-1]
    given = returned.args[0] if returned.sym.id == prims.PrimIDs.RETURN and returned.args else None
    if not isinstance(given, dict) or "flat_args" not in given:
        return stock(trace, *args, **kwargs)
    inputs, _ = tree_flatten((trace.args, trace.kwargs))
    if len(inputs) != len(given["flat_args"]) or all(map(operator.is_, inputs, given["flat_args"])):
        return stock(trace, *args, **kwargs)
    listed = from_trace(trace)
    first = {**given, "flat_args": inputs, _LAST_NAMES: given["flat_args"]}
    listed.bound_symbols = [*trace.bound_symbols[:-1], returned.from_bsym(args=(first, *returned.args[1:]))]
    joint = stock(listed, *args, **kwargs)
    returned = joint.bound_symbols[-1]
    found = dict(returned.args[0])
    found["flat_args"] = found.pop(_LAST_NAMES)
    joint.bound_symbols[-1] = returned.from_bsym(args=(found, *returned.args[1:]))
    return joint


PATCHES: tuple[PatchTarget, ...] = (
    replace_function(update_aliases, "insert_alias_updates", insert_alias_updates, everywhere=True),
    wrap_function(autodiff, "grad_transform_on_trace", _differentiate, everywhere=True),
)
