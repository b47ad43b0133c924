"""Memo of Thunder's operations: record the statements of a call once, replay them for equal arguments.

A composite operation or a gradient rule is Python code that records statements. A second call with the same shapes,
types and constants records the same statements with different names. Repeated layers, and many statements within one
layer, make such calls. The trace stores the statements of the first call, and later calls in this trace replay these
statements. A call runs each time if it takes or returns anything except tensors and constants. A call without a result,
such as `torch.set_grad_enabled`, also runs each time, because of its side effect.
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

Location = tuple[Any, Any]
"""Source location of a statement: a file, and positions in the file."""

_TEMPLATES = "_workbench_templates"
_NUMBERS = (bool, int, complex, str, type(None), slice, type(...))
_stock_make_name = TraceCtx.make_name


class _NotTemplatableError(Exception):
    """The call cannot be stored as a template."""


@dataclasses.dataclass(frozen=True)
class _RecordedCall:
    """Record of one call.

    Attributes
    ----------
    names : tuple of (str, str or None)
        Names that the call requested from the trace, each with its prefix, in order.
    given : tuple of str
        Names of the tensors among the call's arguments.
    recipes : BsymTemplates
        Leaves and marks of the recorded statements.
    statements : tuple of BsymTemplate
    result : callable
        Function from values to the result.
    structure : Structure
        Structure of the call's statement, shared by all equal calls.
    alive : object
        Objects whose addresses are in the key of the call. While they are alive, no other object can get such an
        address.
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
    """Return the result of a call. Replay an equal earlier call if the trace has one, or else call `make`.

    Also return the structure that the statements of all equal calls share; None if the call cannot be replayed.

    Parameters
    ----------
    trace : TraceCtx
    scope : list of BoundSymbol
        List to which the statements of the call are appended.
    function : object
        The called object. Equal calls have the identical object.
    args, kwargs : tuple, mapping
        Arguments of the call.
    make : callable
        Records the call's statements in `scope` and returns the result of the call.
    """
    location = _location_of(trace)
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
        return _record(trace, scope, key, given, alive, make, known, location)
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
    marks = [(tags, *location) for tags, *_ in recipes.marks]
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
    location: Location,
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
    """Return a key that is equal for arguments with which a call records the same statements, except for names.

    The key contains the attributes of each tensor except its name, and shows which arguments are the same tensor.
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
"""Attributes that a tensor proxy in a recorded call may have. The history is not in the key of a call, because it only
describes where an input comes from, and does not affect the computation.
"""


def _is_equal(first: Any, second: Any) -> bool:
    return all(first.__dict__.get(name) == second.__dict__.get(name) for name in _STATE - {TRAITS})


_NAMED = "\0named"
"""Marker that is recorded instead of a prefix if the caller chose the complete name."""


def make_name(self: Any, name: str | None = None, *, prefix: str | None = None) -> str:
    """Return a new name, as Thunder does. If a call is being recorded, record the name."""
    made = _stock_make_name(self, name, prefix=prefix)
    for notes in self.__dict__.get(_NOTES, ()):
        notes.append((made, _NAMED if name is not None else prefix))
    return made


_NOTES = "_workbench_notes"

OF_TRACING = frozenset((_TEMPLATES, _NOTES))
"""Attributes of a trace that are needed only during tracing."""


@contextmanager
def _record_names(trace: Any) -> Iterator[list[tuple[str, str | None]]]:
    """Yield a list to which the trace adds each name that it makes inside this context."""
    all_notes = trace.__dict__.setdefault(_NOTES, [])
    notes: list[tuple[str, str | None]] = []
    all_notes.append(notes)
    try:
        yield notes
    finally:
        all_notes.pop()


def _location_of(trace: Any) -> Location:
    return trace._current_source_filename, trace._current_source_positions


def rename_proxy(proxy: Any, name: str) -> Any:
    """Return a copy of the proxy of a tensor, or of a future of a tensor, with the name `name`."""
    made = object.__new__(type(proxy))
    state = made.__dict__ = proxy.__dict__.copy()
    state["_name"], state["_tags"] = name, state["_tags"].copy()
    return made


def _check_statement(bsym: Any, location: Location) -> None:
    """Check that a statement comes from `location`, is not a fusion, and has no header and no postprocessing."""
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
    """Store copies of the values that the call made, because Thunder later adds tags to the original values.

    Raise `_NotTemplatableError` if a value is neither an input nor made by the call, or if it was made with a gradient.
    """
    for name, proxy in recipes.leaves.items():
        if type(name) is str and name not in inputs:
            if name not in new_names or proxy.__dict__.get("_grad") is not None:
                raise _NotTemplatableError
            recipes.leaves[name] = rename_proxy(proxy, name)


def _check_leaf(leaf: Any) -> None:
    if isinstance(leaf, Proxy) or not _is_plain(leaf):
        raise _NotTemplatableError


def _is_plain(leaf: Any) -> bool:
    """Return whether a leaf is not a container, and so cannot contain values of the trace."""
    return not isinstance(leaf, list | tuple | dict | set) and not dataclasses.is_dataclass(leaf)


def has_settled_context() -> bool:
    """Return whether gradients are enabled, autocast is off, and values are not symbolic."""
    data = compile_data.get_compile_data()
    plain = data is None or (data.is_grad_enabled and data.autocast_stack.is_empty())
    return plain and not compile_data.using_symbolic_values()


def memoize_rule(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function like the gradient rule `rule` that replays the recorded statements of an equal earlier call."""

    def apply(*args: Any, **named: Any) -> Any:
        trace = get_tracectx()
        scope = None if trace is None else trace.peek_scope()
        if scope is None or not has_settled_context():
            return rule(*args, **named)
        return record_or_replay(trace, scope, rule, args, named, lambda: rule(*args, **named))[0]

    return apply


PATCHES: tuple[thread_patches.PatchTarget, ...] = (thread_patches.replace_function(TraceCtx, "make_name", make_name),)
