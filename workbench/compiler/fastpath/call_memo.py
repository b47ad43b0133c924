"""Memo of Thunder's operations: record the statements of a call once, replay them for equal arguments.

A composite operation or a gradient rule is Python code that records statements. A second call with the same shapes,
types and constants records the same statements with different names. Equal layers, and most statements within one
layer, make such calls. The trace stores the statements of the first call, and later calls in this trace replay these
statements. A call with inputs or results other than tensors and constants runs each time. A call without a result, such
as `torch.set_grad_enabled`, also runs each time, for its side effect.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from workbench.compiler.fastpath.bsym_templates import BsymTemplate, BsymTemplates, TemplateValues
from workbench.compiler.interop import thread_patches
from workbench.compiler.interop.thunder_api import (
    Proxy,
    TensorProxy,
    TraceCtx,
    compile_data,
    get_tracectx,
)
from workbench.compiler.trace.bsym_memo import Structure, identity
from workbench.compiler.trace.proxy_traits import TRAITS

Place = tuple[Any, Any]
"""Source of a statement: a file and positions in it."""

_TEMPLATES = "_workbench_templates"
_NUMBERS = (bool, int, complex, str, type(None), slice, type(...))
_stock_make_name = TraceCtx.make_name


class _NotTemplatableError(Exception):
    """The call or a leaf cannot be stored in a template."""


@dataclasses.dataclass(frozen=True)
class _RecordedCall:
    """Record of one call.

    Attributes
    ----------
    names : tuple of (str, str or None)
        Names that the call made, each with its prefix, in order.
    given : tuple of str
        Names of the call's input values.
    recipes : BsymTemplates
    statements : tuple of BsymTemplate
    result : callable
        Function from values to the result.
    structure : Structure
        Structure of the call's statement, shared by all equal calls.
    alive : object
        Objects whose addresses are in the key. They stay alive, so that no other object gets such an address.
    """

    names: tuple[tuple[str, str | None], ...]
    given: tuple[str, ...]
    recipes: BsymTemplates
    statements: tuple[BsymTemplate, ...]
    result: Callable[[Any], Any]
    structure: Structure
    alive: Any


def record_or_replay(
    trace: Any,
    scope: list[Any],
    function: Any,
    args: Any,
    kwargs: Any,
    make: Callable[[], Any],
) -> tuple[Any, Structure | None]:
    """Return the result of a call. Replay an equal earlier call if there is one; otherwise, call `make`.

    Also return the structure of the call's statement if all equal calls share this structure, or None otherwise.

    Parameters
    ----------
    trace : TraceCtx
    scope : list of BoundSymbol
        List that receives the statements.
    function : object
        Called object; compared by identity.
    args, kwargs : tuple, mapping
        Arguments of the call.
    make : callable
        Records the call's statements in `scope` and returns the result of the call.
    """
    place = _location_of(trace)
    given: dict[str, tuple[int, Any]] = {}
    alive: list[Any] = [function]
    try:
        key = (
            identity(function),
            _argument_key(args, given, alive),
            _argument_key(kwargs, given, alive),
            torch.get_default_dtype(),
        )
    except _NotTemplatableError:
        return make(), None
    known: dict[Hashable, _RecordedCall | None] = trace.__dict__.setdefault(_TEMPLATES, {})
    if key not in known:
        return _record(trace, scope, key, given, alive, make, known, place)
    template = known[key]
    if template is None:
        return make(), None
    names = {old: trace.make_name(prefix=prefix) for old, prefix in template.names}
    recipes = template.recipes
    values = TemplateValues(
        recipes.leaves,
        lambda proxy: rename_proxy(proxy, names[proxy.name]),
        zip(template.given, (proxy for _, proxy in given.values()), strict=True),
    )
    marks = [(tags, *place) for tags, *_ in recipes.marks]
    scope.extend([statement.instantiate(values, marks) for statement in template.statements])
    return template.result(values), template.structure


def _record(
    trace: Any,
    scope: list[Any],
    key: Hashable,
    inputs: Mapping[str, tuple[int, Any]],
    alive: Any,
    make: Callable[[], Any],
    calls: dict[Hashable, _RecordedCall | None],
    location: Place,
) -> tuple[Any, Structure | None]:
    begun = len(scope)
    with _record_names(trace) as names:
        result = make()
    calls[key] = None
    if result is None or begun > len(scope) or any(prefix is _NAMED for _, prefix in names):
        return result, None
    # Store the current state, because Thunder later tags statements and removes subsymbols.
    recipes = BsymTemplates(_check_leaf)
    try:
        for bsym in scope[begun:]:
            _check_statement(bsym, location)
        statements, get = tuple(map(recipes.statement_template, scope[begun:])), recipes.tree_template(result)
        _keep_values(recipes, inputs, {name for name, _ in names})
    except _NotTemplatableError:
        return result, None
    template = calls[key] = _RecordedCall(tuple(names), tuple(inputs), recipes, statements, get, Structure(), alive)
    return result, template.structure


def _argument_key(tree: Any, inputs: dict[str, tuple[int, Any]], alive: list[Any]) -> Hashable:
    """Return a key of arguments.

    The key contains the attributes of each tensor except its name, and says which arguments are the same tensor.
    """
    kind = type(tree)
    if kind is TensorProxy:
        return _tensor_key(tree, inputs, alive)
    if kind is tuple or kind is list:
        return (kind, *[_argument_key(each, inputs, alive) for each in tree])
    if kind is dict:
        return (kind, *[(name, _argument_key(each, inputs, alive)) for name, each in tree.items()])
    if kind is float:
        return kind, repr(tree)
    if kind in _NUMBERS:
        return kind, repr(tree) if kind is slice or kind is complex else tree
    if isinstance(tree, Proxy) or kind.__hash__ is None:
        raise _NotTemplatableError
    if callable(tree) and not isinstance(tree, type):
        raise _NotTemplatableError
    alive.append(tree)
    return kind, identity(tree)


def _tensor_key(proxy: Any, inputs: dict[str, tuple[int, Any]], alive: list[Any]) -> Hashable:
    state = proxy.__dict__
    if state["_grad"] is not None or not state.keys() <= _STATE:
        raise _NotTemplatableError
    shape = state["_shape"]
    for length in shape:
        if type(length) is not int:
            raise _NotTemplatableError
    device = state["_device"]
    number, known = inputs.setdefault(state["_name"], (len(inputs), proxy))
    if known is not proxy and known.__dict__ is not state and not _is_equal(known, proxy):
        raise _NotTemplatableError
    alive.append(device)
    return (
        number, shape, identity(device), state["_true_dtype"], state["_dtype"],
        state["_requires_grad"], state["_distparallel_type"], state["_thunder_fsdp_padding_size"],
        state["_has_weak_name"], frozenset(state["_tags"]) if state["_tags"] else None,
    )  # fmt: skip


_STATE = {
    TRAITS,
    "_name", "_has_weak_name", "history", "_tags", "_shape", "_device", "_dtype", "_true_dtype", "_numel", "_ndim",
    "_requires_grad", "_grad", "_distparallel_type", "_thunder_fsdp_padding_size",
}  # fmt: skip
"""All attributes of a tensor proxy. The history is not in the key, because the history is the source of an input and
does not affect computation.
"""


def _is_equal(first: Any, second: Any) -> bool:
    return all(first.__dict__.get(name) == second.__dict__.get(name) for name in _STATE - {TRAITS})


_NAMED = "\0named"
"""Marker in place of the prefix, for a name that the caller chose."""


def make_name(self: Any, name: str | None = None, *, prefix: str | None = None) -> str:
    """Make a name as Thunder does. While a call is recorded, record the name too."""
    made = _stock_make_name(self, name, prefix=prefix)
    for notes in self.__dict__.get(_NOTES, ()):
        notes.append((made, _NAMED if name is not None else prefix))
    return made


_NOTES = "_workbench_notes"

OF_TRACING = frozenset((_TEMPLATES, _NOTES))
"""Attributes of a trace that are needed only during tracing."""


@contextmanager
def _record_names(trace: Any) -> Iterator[list[tuple[str, str | None]]]:
    """Context that records the names that a trace makes."""
    all_notes = trace.__dict__.setdefault(_NOTES, [])
    notes: list[tuple[str, str | None]] = []
    all_notes.append(notes)
    try:
        yield notes
    finally:
        all_notes.pop()


def _location_of(trace: Any) -> Place:
    return trace._current_source_filename, trace._current_source_positions


def rename_proxy(proxy: Any, name: str) -> Any:
    """Return a copy of a tensor proxy with the name `name`."""
    made = object.__new__(TensorProxy)
    state = made.__dict__ = proxy.__dict__.copy()
    state["_name"], state["_tags"] = name, state["_tags"].copy()
    return made


def _check_statement(bsym: Any, location: Place) -> None:
    """Check that a statement comes from `location`, and that it is no fusion and has no header or postprocessing."""
    if (
        (bsym.source_filename, bsym.source_positions) != location
        or bsym.header
        or bsym.sym._bind_postprocess
        or bsym.sym.is_fusion
    ):
        raise _NotTemplatableError
    for sub in bsym.subsymbols:
        _check_statement(sub, location)


def _keep_values(recipes: BsymTemplates, inputs: Collection[str], new_names: set[str]) -> None:
    """Copy the values that the call made, because Thunder tags the original values later.

    Raise an error if a value is neither an input nor made by the call, or if a made value holds a gradient.
    """
    for name, proxy in recipes.leaves.items():
        if type(name) is str and name not in inputs:
            if name not in new_names or proxy.__dict__["_grad"] is not None:
                raise _NotTemplatableError
            recipes.leaves[name] = rename_proxy(proxy, name)


def _check_leaf(leaf: Any) -> None:
    if isinstance(leaf, Proxy) or not _is_plain(leaf):
        raise _NotTemplatableError


def _is_plain(leaf: Any) -> bool:
    """Return whether a leaf cannot contain values."""
    return not isinstance(leaf, list | tuple | dict | set) and not dataclasses.is_dataclass(leaf)


def has_settled_context() -> bool:
    """Return whether no setting that may change within a program, such as `no_grad` or autocast, affects recording."""
    data = compile_data.get_compile_data()
    plain = data is None or (data.is_grad_enabled and data.autocast_stack.is_empty())
    return plain and not compile_data.using_symbolic_values()


def memoize_rule(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a gradient rule of Thunder so that calls with equal arguments replay the recorded statements."""

    def apply(*args: Any, **named: Any) -> Any:
        trace = get_tracectx()
        scope = None if trace is None else trace.peek_scope()
        if scope is None or not has_settled_context():
            return rule(*args, **named)
        return record_or_replay(trace, scope, rule, args, named, lambda: rule(*args, **named))[0]

    return apply


PLACES: tuple[thread_patches.PatchTarget, ...] = (thread_patches.replace_function(TraceCtx, "make_name", make_name),)
