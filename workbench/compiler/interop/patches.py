"""Where Thunder has no extension point: the patches, each with its reason and how to see when it can go.

Importing this module replaces nothing. `PLACES` is in force while we trace or compile, see `installed`; the other sets
are in force inside of their own `with`. All of them hold for the threads that are inside alone, and are taken back
after: see `thread_patches`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import FunctionType, MappingProxyType
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import opt_einsum
import torch
from torch import fx

from workbench.compiler.interop.double_backward import CONNECTIONS
from workbench.compiler.interop.thread_patches import Place, ThreadPatches, dispatched, function, inside_module, wrapped
from workbench.compiler.interop.thunder_api import (
    Proxy,
    PseudoInst,
    TraceCtx,
    TraceResults,
    dtypes,
    get_interpreterruntimectx,
    get_tracectx,
    interpreter,
    jit_ext,
    opcode_handlers,
    sdpaex,
    thunder,
    unwrap,
)
from workbench.interop.torch_private import (
    _C,
    DictGetItemSource,
    FakeTensorMode,
    GlobalSource,
    InliningInstructionTranslator,
    InstructionTranslatorBase,
    SideEffects,
    UnspecializedNNModuleVariable,
    VariableBuilder,
    dynamo_config,
    dynamo_utils,
)

_LIBRARY_ROOTS = tuple(
    os.path.join(sysconfig.get_paths()["purelib"], package) + os.sep for package in ("torch", "thunder")
)


class SourceFile(str):
    """A file name, as Thunder records it, that also knows the user's position and module.

    Attributes
    ----------
    scope : str
        Path of the innermost module that was running (``layers.0.mlp``), or the innermost user function's name.
    user_file : str
        File of the innermost frame outside PyTorch and Thunder.
    user_line : int
        Line in it, from 1.
    """

    scope: str
    user_file: str
    user_line: int

    def __new__(cls, file: str, scope: str, user_file: str, user_line: int) -> SourceFile:
        """A file name with the rest beside it."""
        made = super().__new__(cls, file)
        made.scope, made.user_file, made.user_line = scope, user_file, user_line
        return made


_paths: WeakKeyDictionary[Any, dict[torch.nn.Module, dict[int, str]]] = WeakKeyDictionary()
"""Of each interpretation the paths of a program's modules: a module may be replaced between two."""


def _module_paths(root: torch.nn.Module) -> dict[int, str]:
    known = _paths.setdefault(get_interpreterruntimectx(), {})
    if root not in known:
        known[root] = {id(module): name for name, module in root.named_modules(remove_duplicate=True)}
    return known[root]


def is_library(file: str) -> bool:
    """Whether a file is PyTorch's or Thunder's, or no file at all; the person's own line lies in no such file."""
    return file.startswith(_LIBRARY_ROOTS) or file.startswith("<")


def _where() -> tuple[str, str, int]:
    """Scope, file and line of the user's code that Thunder's interpreter is in."""
    scope, file, line, function = "", "", 0, ""
    root: torch.nn.Module | None = None
    for frame in get_interpreterruntimectx().frame_stack:
        first = getattr(frame.localsplus[0], "value", None) if frame.localsplus else None
        if isinstance(first, torch.nn.Module):
            if root is None:
                root = first
            scope = _module_paths(root).get(id(first), scope) or type(first).__name__
        if not is_library(frame.code.co_filename):
            file, function = frame.code.co_filename, frame.code.co_name
            line = (frame.positions.lineno if frame.positions else None) or line
            if root is None:
                scope = function
    return scope, file, line


def _set_location_and_scope(stock: Any, self: TraceCtx, filename: str | None, positions: Any) -> None:
    """Let each traced statement know its module path and the user's own line.

    Thunder records the innermost frame only, which lies inside PyTorch for most modules, and no module path. It calls
    `set_current_source_location` with the interpreter's frames at hand, so the file name handed on can carry both.
    It can go once `BoundSymbol` has a module path of its own.
    """
    if filename is not None and not isinstance(filename, SourceFile):
        filename = SourceFile(filename, *_where())
    stock(self, filename, positions)


def _compare_in_its_place(stock: Any, inst: Any, /, stack: Any, **kwargs: Any) -> Any:
    """A comparison, recorded where it stands: Thunder runs its operator itself, with the place of the call before.

    It can go once Thunder interprets comparisons as it does arithmetic.
    """
    trace = get_tracectx()
    if trace is not None and any(isinstance(unwrap(operand), Proxy) for operand in (stack[-1], stack[-2])):
        trace.set_current_source_location(*get_interpreterruntimectx().get_current_user_source_location())
    return stock(inst, stack=stack, **kwargs)


def _rename_but_parameters(stock: Any, orig_value: Any, name: str, is_internal: bool | None = None) -> None:
    """Let each parameter and buffer of a program be called by its path, which sites of collectives are called by.

    Thunder does so, and then renames the first that a function calls its local ``weight``, as PyTorch's convolutions
    do: which that is changes with the program. It can go once Thunder leaves them their names.
    """
    if not _is_held(getattr(unwrap(orig_value), "history", None)):
        stock(orig_value, name, is_internal)


def _is_held(history: Any) -> bool:
    """Whether a value is read off a module's parameters or buffers."""
    read = history.inputs[0] if history is not None and history.inst is PseudoInst.BINARY_SUBSCR else None
    return read is not None and len(read.inputs) > 1 and read.inputs[1].value in ("_parameters", "_buffers")


class _Running(threading.local):
    functions: set[FunctionType] | None = None


_running = _Running()


@contextlib.contextmanager
def functions_run() -> Iterator[set[FunctionType]]:
    """Inside, the functions that Thunder's interpreter goes through in this thread, while we trace, are gathered.

    It asks each for its code, by a name that is replaced. It can go once the interpreter tells.
    """
    before, found = _running.functions, set[FunctionType]()
    _running.functions = found
    try:
        yield found
    finally:
        _running.functions = before


def _extract_code(stock: Any, function: Any) -> Any:
    if _running.functions is not None and isinstance(function, FunctionType):
        _running.functions.add(function)
    return stock(function)


_made: WeakKeyDictionary[Callable[..., Any], Makes] = WeakKeyDictionary()
_for_a_plan: ContextVar[bool] = ContextVar("_for_a_plan", default=False)
_laid_out: ContextVar[Mapping[str, torch.Tensor]] = ContextVar("_laid_out", default=MappingProxyType({}))


@dataclasses.dataclass(frozen=True)
class Makes:
    """How the traces of a function come about.

    Attributes
    ----------
    of_found : callable
        Makes them of what Thunder's interpreter found.
    of_arguments : callable, optional
        Makes what the interpreter would find, without checks of arguments, of the function and its arguments; gives
        None where it cannot.
    """

    of_found: Callable[[TraceResults], TraceResults]
    of_arguments: Callable[[Callable[..., Any], Sequence[Any]], TraceResults | None] | None = None


def trace_with(function: Callable[..., Any], makes: Makes) -> None:
    """Let `thunder.jit` have the traces of `function` made otherwise, while we trace it.

    Thunder has one way from a function to its first traces, its bytecode interpreter, and calls it by a name that is
    replaced; all other functions go through it as ever. It can go once `thunder.jit` takes traces, or FX graphs as they
    are.
    """
    _made[function] = makes


@contextlib.contextmanager
def for_a_plan() -> Iterator[None]:
    """Inside, what is traced is not called: its prologue may hand arguments on unchecked, which saves interpreting."""
    before = _for_a_plan.set(True)
    try:
        yield
    finally:
        _for_a_plan.reset(before)


def laid_out() -> Mapping[str, torch.Tensor]:
    """Tensors without values that lie as those for which a graph is being compiled, by name; none where all are plain.

    What a kernel allocates hangs on how its arguments lie, which Thunder's proxies do not say.
    """
    return _laid_out.get()


def forget_layouts() -> None:
    """Let go of those tensors, once a graph is compiled."""
    _laid_out.set(MappingProxyType({}))


def _layouts(function: Callable[..., Any], args: Sequence[Any]) -> Mapping[str, torch.Tensor]:
    given = {name: x for name, x in zip(inspect.signature(function).parameters, args, strict=False) if type(x) in _HELD}
    if any(x.layout is not torch.strided for x in given.values()):
        return {}
    storages = [x.untyped_storage() for x in given.values()]
    whole = all(x.is_contiguous() and x.nbytes == s.nbytes() for x, s in zip(given.values(), storages, strict=True))
    if whole and len({s._cdata for s in storages}) == len(storages):
        return {}
    mode = FakeTensorMode()
    return {name: mode.from_tensor(x) for name, x in given.items()}


_HELD = (torch.Tensor, torch.nn.Parameter)


def _interpret_or_make(
    interpret: Any, fn: Callable[..., Any], args: Sequence[Any], /, *more: Any, **options: Any
) -> TraceResults:
    makes = _made.get(fn) if isinstance(fn, FunctionType | torch.nn.Module) else None
    found = None
    _laid_out.set({} if makes is None or _for_a_plan.get() else _layouts(fn, args))
    if makes is not None and makes.of_arguments is not None and _for_a_plan.get():
        found = makes.of_arguments(fn, args)
    if found is None:
        found = interpret(fn, args, *more, **options)
    return found if makes is None else makes.of_found(found)


_INDUCTOR_OPTIONS = {"joint_graph_constant_folding": False}
"""Inductor (PyTorch 2.10) takes ``x + zeros`` for ``x`` itself, and hands its caller that very tensor for a new one."""


@contextlib.contextmanager
def defined_by(nvfuser: Any, define: Callable[..., Any]) -> Iterator[None]:
    """Inside, Thunder gets nvFuser's definitions from `define`, called with Thunder's own function before the rest.

    In all threads: autograd runs a backward on a GPU in one of its own. It is for the process of a run.
    """
    stock = nvfuser.create_fd
    nvfuser.create_fd = functools.partial(define, stock)
    try:
        yield
    finally:
        nvfuser.create_fd = stock


def _compile_with_options(stock: Any, *args: Any, **kwargs: Any) -> Any:
    if _inductor.value == _AS_IT_IS:
        return args[0]
    return stock(*args, **kwargs, options=_INDUCTOR_OPTIONS)


_AS_IT_IS = "not compiled"
_inductor = ThreadPatches("options of Inductor", lambda: [wrapped(torch, "compile", _compile_with_options)])


def inductor_options(*, compiles: bool = True) -> contextlib.AbstractContextManager[None]:
    """Inside, this thread's `torch.compile` takes our options: Thunder's `make_compiled` passes none on.

    Without `compiles` it gives the function back as it is.

    They hold for compiling again too, as for other strides. It can go when `make_compiled` takes options, or the output
    of ``torch.compile(lambda x: x + torch.zeros_like(x))`` has memory of its own.
    """
    return _inductor("compiled" if compiles else _AS_IT_IS)


class _InOrder(frozenset[str]):
    """Labels that are gone through in their order: that of a set hangs on hashes that Python draws for each process."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__()))


def _in_order(name: str) -> Any:
    of_sets = getattr(frozenset, name)

    def method(*args: Any) -> Any:
        made = of_sets(*args)
        return made if made is NotImplemented else _InOrder(made)

    return method


for _name in (
    *("__and__", "__rand__", "__or__", "__ror__", "__sub__", "__rsub__", "__xor__", "__rxor__"),
    *("copy", "difference", "intersection", "symmetric_difference", "union"),
):
    setattr(_InOrder, _name, _in_order(_name))


def _contract_path(*args: Any, **options: Any) -> Any:
    path, found = opt_einsum.contract_path(*args, **options)
    found.contraction_list = [(each[0], _InOrder(each[1]), *each[2:]) for each in found.contraction_list]
    return path, found


def _contract_in_order() -> list[Place]:
    """Let ``einsum`` take the dimensions that it contracts, and those that are left, in the order of their labels.

    Thunder goes through sets of them, so that statements, sites and memory were others in each process, and a config
    that one exported had sites that another did not know. It can go once ``torch.einsum("ibh,hnd->ibnd", x, w)`` is
    traced alike under all of Python's hash seeds. Its module makes sets of labels nowhere else.
    """

    def labels(_: Any, patches: ThreadPatches) -> Any:
        here = patches.here
        return lambda *given: frozenset(*given) if here.value is None else _InOrder(*given)

    return [
        Place(thunder.torch, "frozenset", labels),
        inside_module(thunder.torch, "opt_einsum", contract_path=_contract_path),
    ]


def run_backward_outside_dynamo() -> None:
    """Let our backwards run as they are where a program that Dynamo follows calls ``loss.backward()`` itself.

    Dynamo compiles whatever Python runs between the graphs of such a program, code for autograd with it. It can go once
    the stack of a compilation by Dynamo in such a program never holds ``torch_autograd.py``.
    """
    for kind in CONNECTIONS:
        if not hasattr(kind.backward, "_torchdynamo_orig_callable"):
            kind.backward = staticmethod(torch.compiler.disable(kind.backward))


PLACES: tuple[Place, ...] = (
    wrapped(TraceCtx, "set_current_source_location", _set_location_and_scope),
    wrapped(opcode_handlers, "COMPARE_OP", _compare_in_its_place),
    wrapped(jit_ext, "_maybe_update_proxy_name", _rename_but_parameters),
    wrapped(interpreter, "extract_code", _extract_code),
    wrapped(thunder, "thunder_general_jit", _interpret_or_make),
    *_contract_in_order(),
)
"""What is replaced while we trace and compile."""


def _to_meta(stock: Any, given: Any) -> Any:
    made = stock(given)
    if isinstance(made, torch.device):
        return torch.device("meta") if made.type == "cuda" else made
    if isinstance(made, torch.Tensor) and made.device.type == "cuda":
        return torch.empty_like(made, device="meta", requires_grad=made.requires_grad)
    return made


def _from_meta(stock: Any, made: Any) -> Any:
    gpu = torch.device("cuda:0")
    if isinstance(made, torch.device) and made.type == "meta":
        return stock(gpu)
    if isinstance(made, torch.Tensor) and made.device.type == "meta":
        with FakeTensorMode():
            made = torch.empty(made.shape, dtype=made.dtype, device=gpu, requires_grad=made.requires_grad)
    return stock(made)


found_on_meta = ThreadPatches(
    "found on meta",
    lambda: [
        wrapped(thunder.torch, "_get_fake_arg", _to_meta),
        wrapped(thunder.torch, "_fake_type_to_thunder", _from_meta),
    ],
)
"""Inside, Thunder finds on the meta device what the ops give that it registers by itself.

It runs them and their gradients on fake tensors, and even for those PyTorch's autograd asks the GPU that they are on
for its streams. The meta device asks for nothing. It can go once Thunder finds their gradients on another device than
the program's.
"""


def make_state_fake(optimizer: Any, mode: FakeTensorMode) -> None:
    """Let a copy of an optimizer make its state, which it does in its first step, of tensors without values.

    Its parameters are fake tensors, and PyTorch makes the counts of steps beside them as real ones. It can go once
    `torch.optim` makes all of its state like its parameters.
    """
    make: Any = getattr(optimizer, "_init_group", None)

    def made(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return make(*args, **kwargs)

    if make is not None:
        optimizer._init_group = made


@contextlib.contextmanager
def takes_real_tensors(mode: FakeTensorMode) -> Iterator[None]:
    """Inside, a mode of fake tensors takes real ones beside them, which a program makes anew between its graphs.

    It can go once the option can be set after the mode was made.
    """
    before, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
    try:
        yield
    finally:
        mode.allow_non_fake_inputs = before


def _backward(stock: Any, self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    if not self.is_cuda or torch.cuda.is_available():
        stock(self, *args, **kwargs)
        return
    for leaf in _leaves_of(self):
        if leaf.grad is None:
            with _rehearsed.value:
                leaf.grad = torch.empty_like(leaf, requires_grad=False)


def _rehearse(stock: Any, patches: ThreadPatches) -> Any:
    without_gpu = functools.partial(_backward, stock)
    # Dynamo would follow the dispatch, and cannot guard the mode that the patches are in force with.
    return torch.compiler.disable(dispatched(stock, lambda *args, **kwargs: without_gpu(*args, **kwargs), patches))


_rehearsed = ThreadPatches("backward without a GPU", lambda: [Place(torch.Tensor, "backward", _rehearse)])


def backward_without_gpu(mode: FakeTensorMode) -> contextlib.AbstractContextManager[None]:
    """Inside, ``loss.backward()`` of a fake tensor on a GPU gives gradients, which autograd would ask the GPU for.

    It can go once autograd runs a backward of fake CUDA tensors where there is no GPU.
    """
    return _rehearsed(mode)


def _leaves_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that a backward from a tensor ends in."""
    ahead, seen, found = [tensor.grad_fn], set(), []
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.append(variable)
        ahead.extend(above for above, _ in node.next_functions)
    return found


def _global_names(stock: Any, self: Any, name: str) -> Any:
    names = self.f_globals
    module = sys.modules.get(str(names.get("__name__", "")))
    if module is None or vars(module) is names:
        return stock(self, name)
    # As it does for a function that names no module.
    source = GlobalSource(self.output.install_global_by_id("___unnamed_scope", names))
    return names, VariableBuilder(self, source)(names), DictGetItemSource(source, name)


global_names_of_functions = ThreadPatches(
    "global names", lambda: [wrapped(InliningInstructionTranslator, "get_globals_source_and_value", _global_names)]
)
"""Inside, Dynamo looks up the global names of a function in the function's own, not in a module called the same.

Of a function of a script or a notebook that came here from another process, the module is ``__main__``, which is
another one here. It can go once ``get_globals_source_and_value`` compares the module's names with the function's.
"""


def _settings_without_functions(stock: Any) -> str | None:
    # Dynamo compiles in one thread at a time, and this is where it ends.
    with dynamo_config.patch(ignore_logger_methods=set()):
        settings: str | None = stock()
    return settings


settings_told_without_functions = ThreadPatches(
    "settings", lambda: [wrapped(dynamo_utils, "_get_dynamo_config_for_logging", _settings_without_functions)]
)
"""Inside, what Dynamo notes of its settings for each compilation has no functions, which PyTorch 2.11 would sort.

It would log a TypeError of its own for what compiles, and for what does not in place of the reason. It can go once
``_get_dynamo_config_for_logging`` leaves out ``ignore_logging_functions``, as it does the setting's former name.
"""

graph_breaks_in_loops = ThreadPatches(
    "loops", lambda: [function(InstructionTranslatorBase, "maybe_has_backedge", lambda self: False)]
)
"""Inside, Dynamo goes on behind a graph break in a loop, in a graph for each time around.

It would give up the whole function, and of a training step that takes a backward for each micro-batch would compile no
more than the optimizer. It can go once Dynamo has an option for it.
"""

says_there_is_a_gpu = ThreadPatches("a GPU", lambda: [function(torch.cuda, "is_available", lambda: True, traced=True)])
"""Inside, PyTorch says that a GPU is there: Thunder asks it for one while its nvFuser executor is imported.

It can go once that can be imported without a GPU.
"""


def _attention(query: Any, key: Any, value: Any, attn_mask: Any = None, *_: Any, **__: Any) -> Any:
    half = query.dtype in (dtypes.bfloat16, dtypes.float16) and attn_mask is None
    return sdpaex.SpdaBackend.FLASH_ATTENTION if half else sdpaex.SpdaBackend.MEMORY_EFFICIENT


recent_gpu = ThreadPatches(
    "a recent GPU",
    lambda: [
        function(sdpaex, "_fused_sdp_choice", _attention),
        function(torch.cuda, "get_device_capability", lambda device=None: (9, 0), traced=True),
    ],
)
"""Inside, attention takes the kernel that a recent GPU has, and a program that asks for its capability is told 9.0.

Flash attention for 16-bit floats, which takes no mask, memory-efficient attention otherwise. Thunder asks the GPU, and
without one would take the attention apart. It can go once it can be told.
"""


class Watcher(Protocol):
    """Told what Dynamo does while it traces."""

    def called(self, var: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any], call: Callable[..., Any]) -> Any:
        """A module is called: what comes of it, as `call` finds it or otherwise."""

    def changed(self, item: Any) -> None:
        """One of its variables is changed."""

    def read_changed(self, item: Any) -> None:
        """An attribute is read that was set while it traced."""

    def renamed(self, node: fx.Node, name: str) -> None:
        """A node gets the name of the variable that a person's code puts it into."""


def _told(told: Callable[[Watcher, Any, Any], None]) -> Callable[..., Any]:
    def method(stock: Any, self: Any, item: Any, *args: Any, **kwargs: Any) -> Any:
        told(dynamo_watched.value, self, item)
        return stock(self, item, *args, **kwargs)

    return method


def _call_module(stock: Any, self: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return dynamo_watched.value.called(self, tx, args, kwargs, stock)


dynamo_watched = ThreadPatches(
    "Dynamo watched",
    lambda: [
        wrapped(UnspecializedNNModuleVariable, "call_function", _call_module),
        wrapped(SideEffects, "check_allowed_side_effect", _told(lambda watcher, _, item: watcher.changed(item))),
        wrapped(SideEffects, "load_attr", _told(lambda watcher, _, item: watcher.read_changed(item))),
        wrapped(fx.Node, "_rename", _told(lambda watcher, node, name: watcher.renamed(node, name))),
    ],
)
"""Inside, a `Watcher` is told what Dynamo does in this thread, and stands in for it where a module is called.

It can go once Dynamo traces like modules once; see `compiler.frontend.module_reuse`.
"""


def _keep_missing_gpu() -> None:
    """Let PyTorch's stand-in for a GPU that is not there be that of a thread that stays as long as the process.

    Where PyTorch was built for CUDA and there is no GPU, the first thread that comes to use fake tensors leaves its own
    to all others, and the next to use them crashes once that thread has ended: so it is done before any is opened. Once
    it is there, PyTorch makes no other. It can go once the stand-in is of the process.
    """
    if not torch.backends.cuda.is_built() or torch.cuda.is_available():
        return
    if threading.current_thread() is threading.main_thread():
        _C._ensureCUDADeviceGuardSet()
    else:
        _leave_in_a_thread()


def _leave_in_a_thread() -> None:
    left = threading.Event()

    def leave() -> None:
        _C._ensureCUDADeviceGuardSet()
        left.set()
        threading.Event().wait()

    threading.Thread(target=leave, name="missing GPU", daemon=True).start()
    left.wait()


_keep_missing_gpu()
