"""Faster versions of Thunder's passes over statements. The resulting traces are equal to those of Thunder's passes.

Thunder's passes spend most of their time on repeated work. A pass copies statements that it does not change, and the
next pass flattens the copies again. Searches in lists compare the complete contents of statements. Dead code
elimination copies every statement that it keeps. Here, an unchanged statement stays the same object, a copy keeps the
cached facts of the original, and lookups use names. Each function here replaces a Thunder function (see `PATCHES`), and
can be deleted once that function avoids the repeated work itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from itertools import chain
from typing import Any

from workbench.compiler.fastpath import alias_renaming, symbols, wait_sorting
from workbench.compiler.fastpath.final_claim import claim_operators
from workbench.compiler.interop.thread_patches import PatchTarget, ThreadPatches, replace_function
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    CollectionProxy,
    NumberProxy,
    Proxy,
    Region,
    TensorProxy,
    code_within,
    data_dependent_partition,
    dead_code,
    distributed_prims,
    get_always_executors,
    jit,
    passes,
    prims,
    region_utils,
    tree_flatten,
    tree_map,
    utils,
    variableify,
)
from workbench.compiler.trace.bsym_memo import (
    CLEAN,
    MADE,
    NAMES,
    READ,
    SHARED,
    STRUCTURE,
    PlanMemo,
    identity,
    made_names,
    names_in,
    read_names,
    shared_of,
    structure_of,
)
from workbench.compiler.trace.dead_code import is_kept, remove_noops
from workbench.compiler.trace.segments import has_collections

_OF_INPUTS = (
    "flat_args_and_spec",
    "flat_args",
    "flat_proxy_args",
    "flat_variableified_proxy_args",
    "_var_args",
    "_var_kwargs",
    "are_all_args_constant",
    READ,
)
_OF_OUTPUTS = (
    "flat_outs_and_spec",
    "flat_outs",
    "flat_proxy_outs",
    "flat_variableified_proxy_outs",
    "_var_output",
    MADE,
)
"""`_OF_INPUTS` and `_OF_OUTPUTS` name the memo attributes that are computed from a statement's inputs and from its
outputs.
"""

_OF_ALL = ("_hash", NAMES, SHARED, STRUCTURE)

_BESIDE = frozenset(("header", "source_filename", "source_positions", "tags"))
"""Attributes that do not affect what a statement computes. A change to them keeps all cached facts valid."""


def _from_bsym(self: Any, **changes: Any) -> Any:
    """Return a changed copy of a statement. The copy keeps the cached facts of the unchanged parts."""
    made = object.__new__(BoundSymbol)
    state = made.__dict__
    # Create the memo objects before the copy, so that the statement and its copy share facts that are added later.
    structure_of(self), shared_of(self)
    state.update(self.__dict__)
    state.pop("rhs", None)
    state["_line_no"] = None
    state["tags"] = self.tags.copy()
    if "args" in changes or "kwargs" in changes:
        _forget(state, _OF_INPUTS)
    if "output" in changes:
        _forget(state, _OF_OUTPUTS)
    if changes:
        if not _BESIDE.issuperset(changes):
            _forget(state, _OF_ALL)
        state.update(changes)
    given = state["args"] = tuple(state["args"])
    if made.sym._bind_postprocess:
        made.sym._bind_postprocess(made)
        if made.args is not given:
            _forget(state, (*_OF_INPUTS, *_OF_ALL))
    return made


def _forget(state: dict[str, Any], names: Sequence[str]) -> None:
    for name in names:
        state.pop(name, None)


def _swap_proxies(
    self: Any,
    swap_map: Mapping[Any, Any],
    skip_inputs: bool = False,
    skip_output: bool = False,
    skip_subsymbols: bool = False,
) -> Any:
    """Return a statement with swapped proxies; the statement itself if it contains no proxy to swap.

    Thunder returns the statement itself only if the swap map is empty.
    """
    if not swap_map:
        return self
    names = {variable.proxy.name for variable in swap_map} if len(swap_map) <= _FEW else None
    return _swap_named_proxies(self, swap_map, names, skip_inputs, skip_output, skip_subsymbols)


def _swap_named_proxies(
    self: Any,
    swap_map: Mapping[Any, Any],
    names: Set[str] | None,
    skip_inputs: bool,
    skip_output: bool,
    skip_subsymbols: bool,
) -> Any:
    """Swap proxies as `_swap_proxies` does. `names` are the names of the swapped values, or None if there are many."""
    if names is not None and has_none_of(self, names):
        return self
    if not _concerns(self, swap_map, skip_inputs, skip_output, skip_subsymbols):
        return self
    inside = partial(
        _swap_named_proxies,
        swap_map=swap_map,
        names=names,
        skip_inputs=skip_inputs,
        skip_output=skip_output,
        skip_subsymbols=skip_subsymbols,
    )
    made = symbols.swap_values(self, swap_map, inside, skip_inputs, skip_output, skip_subsymbols)
    if self.__dict__.get(CLEAN) is self.subsymbols:
        # The statement contains no dead code. A swap does not change which subsymbols have an effect, so the copy is
        # free of dead code, too.
        made.__dict__[CLEAN] = made.subsymbols
    if not (skip_inputs or skip_output or skip_subsymbols) and _renames_only(self, made):
        made.__dict__[STRUCTURE] = structure_of(self)
    return made


_FEW = 8
"""Largest number of swapped values for which a fast test of names precedes the search in a statement."""


def has_none_of(bsym: Any, names: Set[str]) -> bool:
    """Return whether a statement, at any depth, contains neither a value in `names` nor a collection of values."""
    return names.isdisjoint(names_in(bsym)) and not has_collections(bsym)


def _renames_only(old: Any, new: Any) -> bool:
    """Return whether a swap has changed only names in a statement."""
    other = names_in(new)
    if len(other) != len(names_in(old)):  # two values became one
        return False
    pairs = zip(
        (*old.flat_proxy_args, *old.flat_proxy_outs),
        (*new.flat_proxy_args, *new.flat_proxy_outs),
        strict=True,
    )
    return all(a is b or _is_like(a, b) for a, b in pairs)


def _is_like(a: Any, b: Any) -> bool:
    """Return whether two values are tensors that are equal except for their names."""
    if type(a) is not TensorProxy or type(b) is not TensorProxy:
        return False
    told = [(t.shape, t.dtype, t.device, t.requires_grad, t.distparallel_type) for t in (a, b)]
    return told[0] == told[1]


def _concerns(bsym: Any, swap_map: Mapping[Any, Any], inputs: bool, output: bool, subsymbols: bool) -> bool:
    """Return whether a swap may change a statement: it contains a swapped value, or a collection.

    The arguments `inputs`, `output` and `subsymbols` say which parts of the statement the swap skips.
    """
    if not inputs and any(v in swap_map or isinstance(v.proxy, CollectionProxy) for v in _var_inputs(bsym)):
        return True
    if not output and any(v in swap_map or isinstance(v.proxy, CollectionProxy) for v in _var_outputs(bsym)):
        return True
    return not subsymbols and any(_concerns(sub, swap_map, inputs, output, subsymbols) for sub in bsym.subsymbols)


def _var_inputs(bsym: Any) -> tuple[Any, ...]:
    found: tuple[Any, ...] = bsym.flat_variableified_proxy_args
    return found


def _var_outputs(bsym: Any) -> tuple[Any, ...]:
    found: tuple[Any, ...] = bsym.flat_variableified_proxy_outs
    return found


_MAKES_NOTHING = {prims.PrimIDs.COMMENT, prims.PrimIDs.PRINT, prims.PrimIDs.RETURN}
_TAKES_NOTHING = {prims.PrimIDs.COMMENT, prims.PrimIDs.UNPACK_TRIVIAL}


def _bsyms(trace_or_bsyms: Any) -> Sequence[Any]:
    bsyms: Sequence[Any] = trace_or_bsyms if isinstance(trace_or_bsyms, list) else trace_or_bsyms.bound_symbols
    return bsyms


def _producers(trace_or_bsyms: Any, *, _map_to_numbers: bool = False) -> Any:
    found = utils.ProxyDict()
    made = found._dict
    for i, bsym in enumerate(_bsyms(trace_or_bsyms)):
        names = made_names(bsym)
        if not names or bsym.sym.id in _MAKES_NOTHING:
            continue
        given = read_names(bsym)
        for name in names:
            if name not in made and name not in given:
                made[name] = i if _map_to_numbers else bsym
    return found


def _consumers(trace_or_bsyms: Any, *, _map_to_numbers: bool = False) -> Any:
    found = utils.ProxyDict()
    taken = found._dict
    for i, bsym in enumerate(_bsyms(trace_or_bsyms)):
        if bsym.sym.id not in _TAKES_NOTHING:
            for name in read_names(bsym):
                taken.setdefault(name, []).append(i if _map_to_numbers else bsym)
    return found


def _dce_bsyms(bsyms: Any, output: Any, needed_proxies: set[Any] | None = None) -> list[Any]:
    all_made = list(map(made_names, bsyms))
    names = list(chain.from_iterable(all_made))
    # If only one statement makes each name, the statement that makes a needed name is the producer.
    makers = None if len(set(names)) == len(names) else _producers(bsyms)._dict
    wanted = {leaf.name: leaf for leaf in tree_flatten(output)[0] if isinstance(leaf, Proxy)}
    needed = set(wanted)
    if needed_proxies is not None:
        needed.update(variable.proxy.name for variable in needed_proxies)
        needed_proxies.update(map(variableify, wanted.values()))
    left = []
    for bsym, made in zip(reversed(bsyms), reversed(all_made), strict=True):
        # Check first whether a later statement needs an output. If so, the statement's tags need not be looked up.
        produces = not needed.isdisjoint(made) and (makers is None or _produces_needed(bsym, needed, makers))
        if not produces and not is_kept(bsym):
            continue
        if bsym.__dict__.get(CLEAN) is not bsym.subsymbols:
            remove_noops(bsym)
        left.append(bsym)
        needed.update(read_names(bsym))
        if needed_proxies is not None:
            needed_proxies.update(bsym.flat_variableified_proxy_args)
    left.reverse()
    return _remove_duplicate_number_proxies(left)


def _produces_needed(bsym: Any, needed: Set[str], makers: Mapping[str, Any]) -> bool:
    found = (makers[name] for name in made_names(bsym) if name in needed)
    return any(maker is bsym or bool(maker == bsym) for maker in found)


def _remove_duplicate_number_proxies(bsyms: Sequence[Any]) -> list[Any]:
    """Return only the statements that have outputs.

    If several statements output the same number proxy, only the first of these statements keeps the proxy as an output.
    In the outputs of the later statements, the proxy is replaced by its value. A later statement is removed if all its
    outputs are such proxies. A statement without such proxies stays the same object.
    """
    kinds = set(map(type, chain.from_iterable([bsym.flat_outs for bsym in bsyms])))
    if not any(issubclass(kind, NumberProxy) for kind in kinds):
        return [bsym for bsym in bsyms if bsym.flat_outs]
    seen: set[str] = set()
    left = []
    for bsym in bsyms:
        outs = bsym.flat_outs
        again = []
        for out in outs:
            if isinstance(out, NumberProxy):
                again.append(out.name in seen)
                seen.add(out.name)
        if len(again) == len(outs) and all(again):
            # The statement has no outputs, or only repeated numbers.
            continue
        left.append(_replace_repeated_numbers(bsym, again) if any(again) else bsym)
    return left


def _replace_repeated_numbers(bsym: Any, again: Sequence[bool]) -> Any:
    """Return a statement in which values replace repeated number outputs. `again` tells which number outputs repeat."""
    given = iter(again)
    output = tree_map(lambda x: x.value if isinstance(x, NumberProxy) and next(given) else x, bsym.output)
    return bsym.from_bsym(output=output)


def _del_last_used(
    bound_symbols: Sequence[Any], flattened_final_output: Sequence[Any], *, clear_mutable_collections: bool = False
) -> list[Any]:
    used = {out.name for out in flattened_final_output if isinstance(out, Proxy)}
    return with_deletions(bound_symbols, used, clear_mutable_collections=clear_mutable_collections)


def with_deletions(bsyms: Sequence[Any], used_later: Set[str], *, clear_mutable_collections: bool = False) -> list[Any]:
    """Return statements, with a deletion after the last use of each value that is not in `used_later`."""
    handled = set(used_later)
    left: list[Any] = []
    for bsym in reversed(bsyms):
        if bsym.sym.id in region_utils.comment_symbols:
            left.append(bsym)
            continue
        if bsym.sym.id is prims.PrimIDs.DEL:
            continue
        names = (*made_names(bsym), *read_names(bsym))
        if not handled.issuperset(names):
            proxies = zip(names, (*bsym.flat_proxy_outs, *bsym.flat_proxy_args), strict=True)
            last: dict[str, Any] = {}
            for name, proxy in proxies:
                if name not in handled:
                    last.setdefault(name, proxy)
            handled.update(last)
            if bsym.sym.id is not prims.PrimIDs.RETURN:
                # Later plans reuse the statement, so that passes find it unchanged.
                known, key = shared_of(bsym), (prims.PrimIDs.DEL, *last)
                if key not in known:
                    known[key] = prims.python_del.bind(*last.values(), output=None)
                left.append(known[key])
                if clear_mutable_collections:
                    held = (proxy for proxy in last.values() if isinstance(proxy, CollectionProxy))
                    left.extend(passes.clear_mutable_collection.bind(proxy, output=None) for proxy in held)
        left.append(bsym)
    left.reverse()
    return left


class _Alone:
    """A group of one statement, like Thunder's `Node`."""

    __slots__ = ("group_bsyms",)

    def __init__(self, bsym: Any) -> None:
        self.group_bsyms = [bsym]


def _consecutive_fusion(trace: Any, merge_func: Callable[[Any, Any], bool]) -> list[list[Any]]:
    groups: list[list[Any]] = []
    region: list[Any] = []
    for bsym in trace.bound_symbols:
        node = _Alone(bsym)
        if merge_func(node, node):
            if not region:
                groups.append(region)
            region.append(bsym)
        else:
            groups.append([bsym])
            region = []
    return groups


def _order_proxies(bsyms: Sequence[Any]) -> dict[str, int]:
    names = dict.fromkeys(name for bsym in bsyms for name in names_in(bsym))
    return {name: i for i, name in enumerate(names, 1)}


def _make_region(self: Any, producers: Any, consumers: Any, bound_symbols: list[Any]) -> None:
    """Initialize a `Region`. Statements are looked up by identity; Thunder would compare their complete contents."""
    self.bound_symbols = bound_symbols
    inside = set(map(identity, bound_symbols))
    makers, readers = producers._dict, consumers._dict
    consumes: dict[str, Any] = {}
    produces: dict[str, Any] = {}
    for bsym in bound_symbols:
        for out in bsym.flat_proxy_outs:
            if identity(makers[out.name]) in inside:
                produces.setdefault(out.name, out)
        if bsym.sym.id not in region_utils.comment_symbols:
            for a in bsym.flat_proxy_args:
                consumes.setdefault(a.name, a)
    inputs = [a for name, a in consumes.items() if identity(makers[name]) not in inside]
    outputs = [out for name, out in produces.items() if any(identity(b) not in inside for b in readers.get(name, ()))]
    order = _order_proxies(bound_symbols)
    self.inputs = utils.OrderedSet(variableify(a) for a in sorted(inputs, key=lambda a: order[a.name]))
    self.outputs = utils.OrderedSet(variableify(out) for out in sorted(outputs, key=lambda out: order[out.name]))


_stock_map_flat = utils.safe_map_flat


def _map_flat(f: Callable[..., Any], *args: Any) -> Any:
    """Map `f` over trees as Thunder does. The usual case, lists of one tensor each, needs no flattening."""
    if all(type(each) is list and len(each) == 1 and type(each[0]) is TensorProxy for each in args):
        return (f(*(each[0] for each in args)),)
    return _stock_map_flat(f, *args)


_LOOKS = code_within(jit, "apply_transforms_and_build_cache_entry")


def _claim(stock: Callable[..., Any], patches: ThreadPatches) -> Callable[..., Any]:
    """Return a replacement of the pass in which Thunder's executors claim the statements of a trace.

    Thunder runs this pass twice for each trace, and uses the first result only if it contains waits to sort. Therefore
    the first call returns the trace unclaimed if it contains no collective and no wait. The last call for a trace finds
    executors for what is left. It names values as in a plan, because the figures of a run are found by name.
    """
    here = patches.here

    def claim(trace: Any, executors_list: Sequence[Any]) -> Any:
        if here.value is None:
            return stock(trace, executors_list)
        only_looked_at = sys._getframe(1).f_code is _LOOKS
        if only_looked_at and not any(map(_communicates, trace.bound_symbols)):
            return trace
        if executors_list == get_always_executors():
            return claim_operators(trace, executors_list, PlanMemo())
        return stock(trace, executors_list)

    return claim


def _communicates(bsym: Any) -> bool:
    """Return whether a statement or one of its subsymbols is a collective or a wait."""
    if type(bsym.sym.id) is distributed_prims.PrimIDs or str(bsym.sym.name).startswith("torch_wait"):
        return True
    return any(map(_communicates, bsym.subsymbols))


PATCHES: tuple[PatchTarget, ...] = (
    replace_function(BoundSymbol, "from_bsym", _from_bsym),
    replace_function(BoundSymbol, "from_bsym_swap_proxies", _swap_proxies),
    replace_function(Region, "__init__", _make_region),
    replace_function(data_dependent_partition, "consecutive_fusion", _consecutive_fusion),
    PatchTarget(passes, "_transform_for_operator_executor_execution", _claim),
    replace_function(dead_code, "dce_bsyms", _dce_bsyms, everywhere=True),
    replace_function(dead_code, "_remove_noop_subsymbols", remove_noops, everywhere=True),
    replace_function(dead_code, "remove_duplicate_number_proxies", _remove_duplicate_number_proxies, everywhere=True),
    replace_function(dead_code, "order_proxies", _order_proxies, everywhere=True),
    replace_function(passes, "_del_last_used", _del_last_used, everywhere=True),
    replace_function(utils, "producers", _producers, everywhere=True),
    replace_function(utils, "consumers", _consumers, everywhere=True),
    replace_function(utils, "safe_map_flat", _map_flat, everywhere=True),
    *alias_renaming.PATCHES,
    *wait_sorting.PATCHES,
)
