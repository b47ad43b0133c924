"""Patches of Thunder where Thunder has no extension point, each with its reason and the condition for its removal.

Importing this module patches nothing. The patches of `PATCHES` are active while the workbench traces or compiles; see
`patch_context.install_patches`. Patches apply only to the threads inside of the context, and are undone afterwards; see
`thread_patches`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import FunctionType, MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import opt_einsum
import torch

from workbench.compiler.interop.source_file import SourceFile, user_position
from workbench.compiler.interop.thread_patches import PatchTarget, ThreadPatches, replace_in_module, wrap_function
from workbench.compiler.interop.thunder_api import (
    CompileStats,
    PrimIDs,
    Proxy,
    PseudoInst,
    TraceCtx,
    TraceResults,
    compile_data,
    get_interpreterruntimectx,
    get_tracectx,
    interpreter,
    jit_ext,
    opcode_handlers,
    thunder,
    unwrap,
)
from workbench.interop.torch_private import FakeTensorMode, tree_iter


def _set_location_and_scope(stock: Any, self: TraceCtx, filename: str | None, positions: Any) -> None:
    """Record the module path and the user's own line with each traced statement.

    Thunder records no module path. It records only the line of the innermost frame, and for most modules this frame is
    inside of PyTorch. Thunder calls `set_current_source_location` while the interpreter's frames exist. Therefore this
    patch reads the user's line and the module path from the frames, and stores both in the file name. Remove this when
    `BoundSymbol` contains a module path.
    """
    if filename is not None and not isinstance(filename, SourceFile):
        filename = SourceFile(filename, *user_position())
    stock(self, filename, positions)


def _compare_in_its_place(stock: Any, inst: Any, /, stack: Any, **kwargs: Any) -> Any:
    """Record a comparison at its own line.

    Unpatched, Thunder's interpreter evaluates a comparison without setting a new position, so the comparison gets the
    line of the previous call. Remove this when Thunder interprets comparisons as it interprets arithmetic.
    """
    trace = get_tracectx()
    if trace is not None and any(isinstance(unwrap(operand), Proxy) for operand in (stack[-1], stack[-2])):
        trace.set_current_source_location(*get_interpreterruntimectx().get_current_user_source_location())
    return stock(inst, stack=stack, **kwargs)


def _rename_but_parameters(stock: Any, orig_value: Any, name: str, is_internal: bool | None = None) -> None:
    """Prevent Thunder from renaming parameters and buffers, because ids of collectives' sites contain these names.

    Thunder first names a parameter by its path. If a function assigns parameters to a local variable, such as
    ``weight`` in PyTorch's convolutions, Thunder gives the variable's name to the first of these parameters. The same
    layer would therefore have different names in different programs. Remove this when Thunder does not rename
    parameters and buffers.
    """
    if not _is_module_tensor(getattr(unwrap(orig_value), "history", None)):
        stock(orig_value, name, is_internal)


def _is_module_tensor(history: Any) -> bool:
    """Return whether a value was read from a module's parameters or buffers."""
    read = history.inputs[0] if history is not None and history.inst is PseudoInst.BINARY_SUBSCR else None
    return read is not None and len(read.inputs) > 1 and read.inputs[1].value in ("_parameters", "_buffers")


def _refuse_lost_writes(stock: Any, context: Any, epilogue: Any) -> None:
    """Refuse a program that writes an attribute that Thunder's compiled code would not write.

    Thunder writes attributes of arguments in each call, but silently leaves out attributes of the traced module. Remove
    this when it writes or refuses them.
    """
    for written, stores in context._additional_outputs.items():
        holder = written.provenance
        if (
            holder.inst is not PseudoInst.LOAD_ATTR
            or holder.inputs[1].value != "__dict__"
            or hasattr(holder.inputs[0], "proxy")
            or jit_ext.is_created_during_tracing(holder.inputs[0])
        ):
            continue
        root = compile_data.get_compile_data().fn
        modules = root.modules() if isinstance(root, torch.nn.Module) else ()
        owner = next((each for each in modules if vars(each) is written.original_value), None)
        if all(is_cached_property(owner, store[2].value, store[3].value) for store in stores):
            continue
        raise NotImplementedError(f"{CHANGES_STATE} the attribute {stores[0][2].value}")
    stock(context, epilogue)


def is_cached_property(owner: Any, name: str, value: Any = None) -> bool:
    """Return whether a new attribute is a cached property whose value does not come from a tensor of the trace."""
    cached = isinstance(getattr(type(owner), name, None), functools.cached_property)
    return cached and all(isinstance(each, _CACHED) and not isinstance(each, Proxy) for each in tree_iter(value))


_CACHED = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.nn.Module)


def _refuse_global(stock: Any, inst: Any, /, stack: Any, co: Any, frame: Any, **kwargs: Any) -> Any:
    """Refuse a program that writes a global variable, because Thunder would write it only while it traces.

    The variable could also keep a value of the trace. Remove this when Thunder writes or refuses global variables.
    """
    if not _is_library(unwrap(frame.globals).get("__name__")):
        raise NotImplementedError(f"{CHANGES_STATE} the global variable {co.co_names[inst.arg]}")
    return stock(inst, stack=stack, co=co, frame=frame, **kwargs)


def _refuse_class_attribute(stock: Any, inst: Any, /, stack: Any, co: Any, **kwargs: Any) -> Any:
    """Refuse a program that writes an attribute of a class, for the reasons that `_refuse_global` gives."""
    owner = unwrap(stack[-1])
    if isinstance(owner, type) and not _is_library(owner.__module__):
        raise NotImplementedError(f"{CHANGES_STATE} the attribute {co.co_names[inst.arg]} of {owner.__qualname__}")
    return stock(inst, stack=stack, co=co, **kwargs)


def _is_library(module: Any) -> bool:
    return f"{module}.".startswith(("torch.", "thunder.", "workbench."))


CHANGES_STATE = "each call of the program changes"
"""Beginning of the reason if a program changes a Python value, such as an attribute of a module."""


MOST_CALLS = 10_000
"""Number of calls of Python functions in a row, without a statement, after which `limit_calls` ends a trace.

BERT has the most of 11 models of `tests/models/zoo.py`: 3,700. ``torch.manual_seed`` has over 50,000, because it
formats the call stack; the interpreter takes a minute for them.
"""


class _InterpretedFunctions(threading.local):
    functions: set[FunctionType] | None = None
    most_calls: int | None = None
    calls = 0
    statements = 0


_running = _InterpretedFunctions()


@contextlib.contextmanager
def record_functions() -> Iterator[set[FunctionType]]:
    """In this context, collect the functions that Thunder's interpreter visits in this thread.

    The interpreter gets the code of each function from `extract_code`, which is patched. Remove this when the
    interpreter reports which functions it visits.
    """
    before, found = _running.functions, set[FunctionType]()
    _running.functions = found
    try:
        yield found
    finally:
        _running.functions = before


@contextlib.contextmanager
def limit_calls() -> Iterator[None]:
    """In this context, end a trace of Thunder's interpreter that calls Python functions without recording a statement.

    The limit is `MOST_CALLS`. It is for programs that can also be opened without the interpreter.
    """
    before, _running.most_calls, _running.calls = _running.most_calls, MOST_CALLS, 0
    try:
        yield
    finally:
        _running.most_calls = before


def _count_call(most: int) -> None:
    trace = get_tracectx()
    scope = None if trace is None else trace.peek_scope()
    statements = len(scope or ())
    _running.calls = _running.calls + 1 if statements == _running.statements else 0
    _running.statements = statements
    if _running.calls > most:
        raise NotImplementedError(f"{most} calls of Python functions in a row record no operator")


def _is_capsule(stock: Any, owner: Any) -> bool:
    """Make Thunder's interpreter call a method of pybind11's as it is.

    The owner of such a method is a record of pybind11's, and unpatched, the interpreter looks for the method in the
    record's type. For ``__call__``, such as TorchScript's, it would find the constructor, which ends the process.
    Remove this when the interpreter takes these records for capsules.
    """
    return stock(owner) or type(owner).__module__ == "pybind11_builtins"


def _extract_code(stock: Any, function: Any) -> Any:
    if _running.functions is not None and isinstance(function, FunctionType):
        _running.functions.add(function)
        if _running.most_calls is not None:
            _count_call(_running.most_calls)
    return stock(function)


_made: WeakKeyDictionary[Callable[..., Any], TraceSource] = WeakKeyDictionary()
_for_a_plan: ContextVar[bool] = ContextVar("_for_a_plan", default=False)
_NONE_KNOWN: Mapping[str, torch.Tensor] = MappingProxyType({})
_laid_out: ContextVar[Callable[[Any], Mapping[str, torch.Tensor]]] = ContextVar(
    "_laid_out", default=lambda _: _NONE_KNOWN
)


@dataclasses.dataclass(frozen=True)
class TraceSource:
    """Functions that make the traces of a program.

    Attributes
    ----------
    of_found : callable
        Returns the traces of the program. The argument is the result of Thunder's interpreter or of `of_arguments`.
    of_arguments : callable, optional
        Replaces the interpreter in `trace_for_plan`. Takes a function and its arguments. Returns the interpreter's
        result, but with a prologue that does not check arguments; None if the interpreter must run.
    """

    of_found: Callable[[TraceResults], TraceResults]
    of_arguments: Callable[[Callable[..., Any], Sequence[Any]], TraceResults | None] | None = None


def trace_with(function: Callable[..., Any], makes: TraceSource) -> None:
    """Make `thunder.jit` get the traces of `function` from `makes` while the workbench traces the function.

    Thunder makes the first traces of a function in `thunder_general_jit`. The patch of `thunder_general_jit` affects
    only functions that were registered here. Remove this when `thunder.jit` takes traces or FX graphs.
    """
    _made[function] = makes


@contextlib.contextmanager
def trace_for_plan() -> Iterator[None]:
    """In this context, traces serve only to plan, so their prologues need not check arguments."""
    before = _for_a_plan.set(True)
    try:
        yield
    finally:
        _for_a_plan.reset(before)


def argument_layouts(stats: CompileStats | None = None) -> Mapping[str, torch.Tensor]:
    """Map the name of each argument of the current graph to a fake tensor with the layout of the argument.

    A kernel's allocations depend on the layouts of its arguments, and Thunder's proxies contain no layouts. Arguments
    in one storage are fake tensors in one storage. The result is empty if each argument is contiguous and fills a
    storage of its own, or if a layout is not strided. It is also empty in `trace_for_plan`.

    Parameters
    ----------
    stats : CompileStats, optional
        State of the current compilation, after Thunder has made the prologue. Without, the result is empty for a
        function without a `TraceSource`: only the prologue knows which tensors Thunder's interpreter has found.
    """
    return _laid_out.get()(stats)


def argument_names(stats: CompileStats) -> list[str]:
    """Return the names of the arguments of the first trace of a compilation. The prologue returns their values."""
    unpacked = (b for b in stats.last_traces[0].bound_symbols if b.sym.id is PrimIDs.UNPACK_TRIVIAL)
    return [out.name for b in unpacked for out in b.flat_proxy_outs]


def forget_layouts() -> None:
    """Delete the fake tensors of `argument_layouts`. Call this after a graph is compiled."""
    _laid_out.set(lambda _: _NONE_KNOWN)


def _layouts(names: Iterable[str], values: Iterable[Any]) -> Mapping[str, torch.Tensor]:
    given = {name: x for name, x in zip(names, values, strict=False) if type(x) in _HELD}
    if any(x.layout is not torch.strided for x in given.values()):
        return {}
    storages = [x.untyped_storage() for x in given.values()]
    whole = all(x.is_contiguous() and x.nbytes == s.nbytes() for x, s in zip(given.values(), storages, strict=True))
    if whole and len({s._cdata for s in storages}) == len(storages):
        return {}
    mode = FakeTensorMode()
    return {name: mode.from_tensor(x) for name, x in given.items()}


_HELD = (torch.Tensor, torch.nn.Parameter)


def _reader_of_layouts(
    makes: TraceSource | None, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[[CompileStats | None], Mapping[str, torch.Tensor]]:
    if _for_a_plan.get():
        return lambda _: _NONE_KNOWN
    if makes is not None:
        made = _layouts(inspect.signature(fn).parameters, args)
        return lambda _: made

    def read(stats: CompileStats | None) -> Mapping[str, torch.Tensor]:
        return {} if stats is None else _layouts(argument_names(stats), stats.last_prologue(*args, **kwargs)[0])

    return read


def _interpret_or_make(
    interpret: Any, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], /, **options: Any
) -> TraceResults:
    makes = _made.get(fn) if isinstance(fn, FunctionType | torch.nn.Module) else None
    found = None
    _laid_out.set(_reader_of_layouts(makes, fn, args, kwargs))
    if makes is not None and makes.of_arguments is not None and _for_a_plan.get():
        found = makes.of_arguments(fn, args)
    if found is None:
        found = interpret(fn, args, kwargs, **options)
    return found if makes is None else makes.of_found(found)


@contextlib.contextmanager
def define_with(nvfuser: Any, define: Callable[..., Any]) -> Iterator[None]:
    """In this context, Thunder calls `define` instead of its `create_fd` to get the definition of an nvFuser fusion.

    `define` receives `create_fd` as its first argument. The replacement applies to all threads, because autograd runs
    the backward of GPU tensors in a separate thread. Use this context only in the process of a run.
    """
    stock = nvfuser.create_fd
    nvfuser.create_fd = functools.partial(define, stock)
    try:
        yield
    finally:
        nvfuser.create_fd = stock


class _SortedSet(frozenset[str]):
    """A frozenset that iterates in sorted order. The order of a normal set of strings depends on Python's hash seed."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__()))


def _ordered_method(name: str) -> Any:
    of_sets = getattr(frozenset, name)

    def method(*args: Any) -> Any:
        made = of_sets(*args)
        return made if made is NotImplemented else _SortedSet(made)

    return method


for _name in (
    *("__and__", "__rand__", "__or__", "__ror__", "__sub__", "__rsub__", "__xor__", "__rxor__"),
    *("copy", "difference", "intersection", "symmetric_difference", "union"),
):
    setattr(_SortedSet, _name, _ordered_method(_name))


def _contract_path(*args: Any, **options: Any) -> Any:
    path, found = opt_einsum.contract_path(*args, **options)
    found.contraction_list = [(each[0], _SortedSet(each[1]), *each[2:]) for each in found.contraction_list]
    return path, found


def _contract_in_order() -> list[PatchTarget]:
    """Make ``einsum`` process contracted and remaining dimensions in the order of their labels.

    Unpatched Thunder iterates over sets of labels, so statements, sites and memory differ between processes. A config
    from one process could contain ids of sites that do not exist in a different process. The two patches cover all sets
    of labels in `thunder.torch`. Remove this when ``torch.einsum("ibh,hnd->ibnd", x, w)`` has equal traces under all
    hash seeds.
    """

    def labels(_: Any, patches: ThreadPatches) -> Any:
        here = patches.here
        return lambda *given: frozenset(*given) if here.value is None else _SortedSet(*given)

    return [
        PatchTarget(thunder.torch, "frozenset", labels),
        replace_in_module(thunder.torch, "opt_einsum", contract_path=_contract_path),
    ]


PATCHES: tuple[PatchTarget, ...] = (
    wrap_function(TraceCtx, "set_current_source_location", _set_location_and_scope),
    wrap_function(opcode_handlers, "COMPARE_OP", _compare_in_its_place),
    wrap_function(opcode_handlers, "STORE_GLOBAL", _refuse_global),
    wrap_function(opcode_handlers, "STORE_ATTR", _refuse_class_attribute),
    wrap_function(jit_ext, "_maybe_update_proxy_name", _rename_but_parameters),
    wrap_function(jit_ext, "process_recorded_modifications", _refuse_lost_writes),
    wrap_function(interpreter, "extract_code", _extract_code),
    wrap_function(interpreter, "is_pycapsule", _is_capsule),
    wrap_function(thunder, "thunder_general_jit", _interpret_or_make),
    *_contract_in_order(),
)
"""Patches that are active while the workbench traces or compiles."""
