"""Where Thunder has no extension point: the patches, each with its reason and how to see when it can go.

Every patch adds something and changes nothing that unmodified Thunder reads; one refuses what it would get wrong. What
holds only inside of a `with` is for planning without a GPU, or for one compilation.
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
from types import FunctionType, MappingProxyType, SimpleNamespace
from typing import Any, Protocol
from unittest import mock
from weakref import WeakKeyDictionary

import torch
from torch import fx

from workbench.compiler.interop.double_backward import backward_once
from workbench.compiler.interop.shared_context import together
from workbench.compiler.interop.thunder_api import (
    PrimIDs,
    Proxy,
    PseudoInst,
    ThunderFunction,
    ThunderOutputFunction,
    TraceCtx,
    TraceResults,
    get_interpreterruntimectx,
    get_tracectx,
    interpreter,
    jit_ext,
    opcode_handlers,
    thunder,
    unwrap,
)
from workbench.compiler.trace.inplace_copies import goes_without
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


_paths: WeakKeyDictionary[torch.nn.Module, dict[int, str]] = WeakKeyDictionary()


def _module_paths(root: torch.nn.Module) -> dict[int, str]:
    found = _paths.get(root)
    if found is None:
        found = _paths[root] = {id(module): name for name, module in root.named_modules(remove_duplicate=True)}
    return found


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


_set_current_source_location = TraceCtx.set_current_source_location


def _set_location_and_scope(self: TraceCtx, filename: str | None, positions: Any) -> None:
    if filename is not None and not isinstance(filename, SourceFile):
        filename = SourceFile(filename, *_where())
    _set_current_source_location(self, filename, positions)


def record_scopes() -> None:
    """Let each traced statement know its module path and the user's own line.

    Thunder records the innermost frame only, which lies inside PyTorch for most modules, and no module path. It calls
    `set_current_source_location` with the interpreter's frames at hand, so the file name handed on can carry both.
    It can go once `BoundSymbol` has a module path of its own.
    """
    TraceCtx.set_current_source_location = _set_location_and_scope
    opcode_handlers["COMPARE_OP"] = _compare_in_its_place


_compare = opcode_handlers["COMPARE_OP"]


def _compare_in_its_place(inst: Any, /, stack: Any, **kwargs: Any) -> Any:
    """A comparison, recorded where it stands: Thunder runs its operator itself, with the place of the call before.

    It can go once Thunder interprets comparisons as it does arithmetic.
    """
    trace = get_tracectx()
    if trace is not None and any(isinstance(unwrap(operand), Proxy) for operand in (stack[-1], stack[-2])):
        trace.set_current_source_location(*get_interpreterruntimectx().get_current_user_source_location())
    return _compare(inst, stack=stack, **kwargs)


_rename = jit_ext._maybe_update_proxy_name


def _rename_but_parameters(orig_value: Any, name: str, is_internal: bool | None = None) -> None:
    if not _is_held(getattr(unwrap(orig_value), "history", None)):
        _rename(orig_value, name, is_internal)


def _is_held(history: Any) -> bool:
    """Whether a value is read off a module's parameters or buffers."""
    read = history.inputs[0] if history is not None and history.inst is PseudoInst.BINARY_SUBSCR else None
    return read is not None and len(read.inputs) > 1 and read.inputs[1].value in ("_parameters", "_buffers")


def name_by_path() -> None:
    """Let each parameter and buffer of a program be called by its path, which sites of collectives are called by.

    Thunder does so, and then renames the first that a function calls its local ``weight``, as PyTorch's convolutions
    do: which that is changes with the program. It can go once Thunder leaves them their names.
    """
    jit_ext._maybe_update_proxy_name = _rename_but_parameters


@contextlib.contextmanager
def functions_run() -> Iterator[set[FunctionType]]:
    """Inside, the functions that Thunder's interpreter goes through are gathered.

    It asks each for its code, by the name that is replaced here. It can go once the interpreter tells.
    """
    found: set[FunctionType] = set()
    stock = interpreter.extract_code

    def extract_code(function: Any) -> Any:
        if isinstance(function, FunctionType):
            found.add(function)
        return stock(function)

    interpreter.extract_code = extract_code
    try:
        yield found
    finally:
        interpreter.extract_code = stock


_interpret = thunder.thunder_general_jit
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
    """Let `thunder.jit` have the traces of `function` made otherwise.

    Thunder has one way from a function to its first traces, its bytecode interpreter, and calls it by the name that is
    replaced here; all other functions go through it as ever. It can go once `thunder.jit` takes traces, or FX graphs
    as they are.
    """
    _made[function] = makes
    thunder.thunder_general_jit = _interpret_or_make


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


def _interpret_or_make(fn: Callable[..., Any], args: Sequence[Any], /, *more: Any, **options: Any) -> TraceResults:
    makes = _made.get(fn) if isinstance(fn, FunctionType | torch.nn.Module) else None
    found = None
    _laid_out.set({} if makes is None or _for_a_plan.get() else _layouts(fn, args))
    if makes is not None and makes.of_arguments is not None and _for_a_plan.get():
        found = makes.of_arguments(fn, args)
    if found is None:
        found = _interpret(fn, args, *more, **options)
    return found if makes is None else makes.of_found(found)


def choose_sets(nvfuser: Any) -> None:
    """Let a definition leave out the `set` before a copy, where `compiler.trace.inplace_copies.skip_set` says so.

    Thunder's translator of the in-place copy puts one before every copy and asks nobody. Outside `skip_set`, and so for
    every function that the workbench has not jitted, it does what it did. It can go once the translator has an option.
    """
    stock = nvfuser._translation_map[PrimIDs.COPY_]

    def copy_(copy_from: Any, copy_to: Any, *, fd: Any, lc_to_nv_map: Any, **kwargs: Any) -> Any:
        if not goes_without(copy_from.name, copy_to.name):
            return stock(copy_from, copy_to, fd=fd, lc_to_nv_map=lc_to_nv_map, **kwargs)
        source = nvfuser.getnv(copy_from, fd, lc_to_nv_map)
        fd.add_output(source, alias_input=nvfuser.getnv(copy_to, fd, lc_to_nv_map))
        return source

    nvfuser._translation_map[PrimIDs.COPY_] = copy_


_INDUCTOR_OPTIONS = {"joint_graph_constant_folding": False}
"""Inductor (PyTorch 2.10) takes ``x + zeros`` for ``x`` itself, and hands its caller that very tensor for a new one."""

_ONE_AT_A_TIME = threading.Lock()


@contextlib.contextmanager
def defined_by(nvfuser: Any, define: Callable[..., Any]) -> Iterator[None]:
    """Inside, Thunder gets nvFuser's definitions from `define`, called with Thunder's own function before the rest."""
    with mock.patch.object(nvfuser, "create_fd", functools.partial(define, nvfuser.create_fd)):
        yield


@contextlib.contextmanager
def inductor_options(*, compiles: bool = True) -> Iterator[None]:
    """Inside, this thread's `torch.compile` takes our options: Thunder's `make_compiled` passes none on.

    Without `compiles` it gives the function back as it is.

    They hold for compiling again too, as for other strides. It can go when `make_compiled` takes options, or the output
    of ``torch.compile(lambda x: x + torch.zeros_like(x))`` has memory of its own.
    """
    here = threading.get_ident()
    with _ONE_AT_A_TIME:
        stock: Callable[..., Any] = torch.compile

        def with_options(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != here:
                return stock(*args, **kwargs)
            return stock(*args, **kwargs, options=_INDUCTOR_OPTIONS) if compiles else args[0]

        torch.compile = with_options
        try:
            yield
        finally:
            torch.compile = stock


def refuse_second_derivatives() -> None:
    """Let gradients that are asked for with ``create_graph=True`` raise a `GradientError` when they are differentiated.

    For all that Thunder compiles in this process: what unmodified Thunder gives there is wrong. It can go once
    ``torch.autograd.grad(out, x, create_graph=True)`` through ``thunder.jit(lambda x: x.sin().sum())`` is refused or
    differentiable.
    """
    ThunderFunction.backward = staticmethod(backward_once)


class _InOrder(frozenset[str]):
    """Labels that are gone through in their order: that of a set hangs on hashes that Python draws for each process."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__()))

    def __and__(self, other: Any) -> Any:
        return _InOrder(super().__and__(other))

    __rand__ = __and__

    def __sub__(self, other: Any) -> Any:
        return _InOrder(super().__sub__(other))


def contract_in_order() -> None:
    """Let ``einsum`` take the dimensions that it contracts, and those that are left, in the order of their labels.

    Thunder goes through sets of them, so that statements, sites and memory were others in each process, and a config
    that one exported had sites that another did not know. For all that Thunder compiles in this process. It can go once
    ``torch.einsum("ibh,hnd->ibnd", x, w)`` is traced alike under all of Python's hash seeds.
    """
    stock = thunder.torch.opt_einsum.contract_path

    def contract_path(*args: Any, **options: Any) -> Any:
        path, found = stock(*args, **options)
        found.contraction_list = [(each[0], _InOrder(each[1]), *each[2:]) for each in found.contraction_list]
        return path, found

    # Its module makes sets of labels nowhere else.
    vars(thunder.torch).update(frozenset=_InOrder, opt_einsum=SimpleNamespace(contract_path=contract_path))


def run_backward_outside_dynamo() -> None:
    """Let Thunder's backwards run as they are where a program that Dynamo follows calls ``loss.backward()`` itself.

    Dynamo compiles whatever Python runs between the graphs of such a program, Thunder's own code for autograd with it.
    It can go once the stack of a compilation by Dynamo in such a program never holds ``torch_autograd.py``.
    """
    kinds: tuple[Any, ...] = (ThunderFunction, ThunderOutputFunction)
    for kind in kinds:
        if not hasattr(kind.backward, "_torchdynamo_orig_callable"):
            kind.backward = staticmethod(torch.compiler.disable(kind.backward))


@together
def found_on_meta() -> Iterator[None]:
    """Inside, Thunder finds on the meta device what the ops give that it registers by itself.

    It runs them and their gradients on fake tensors, and even for those PyTorch's autograd asks the GPU that they are
    on for its streams. The meta device asks for nothing. It can go once Thunder finds their gradients on another
    device than the program's.
    """
    to_fake, from_fake = thunder.torch._get_fake_arg, thunder.torch._fake_type_to_thunder
    meta, gpu = torch.device("meta"), torch.device("cuda:0")

    def to_meta(given: Any) -> Any:
        made = to_fake(given)
        if isinstance(made, torch.device):
            return meta if made.type == "cuda" else made
        if isinstance(made, torch.Tensor) and made.device.type == "cuda":
            return torch.empty_like(made, device=meta, requires_grad=made.requires_grad)
        return made

    def from_meta(made: Any) -> Any:
        if isinstance(made, torch.device) and made.type == "meta":
            return from_fake(gpu)
        if isinstance(made, torch.Tensor) and made.device.type == "meta":
            with FakeTensorMode():
                made = torch.empty(made.shape, dtype=made.dtype, device=gpu, requires_grad=made.requires_grad)
        return from_fake(made)

    with (
        mock.patch.object(thunder.torch, "_get_fake_arg", to_meta),
        mock.patch.object(thunder.torch, "_fake_type_to_thunder", from_meta),
    ):
        yield


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
    with mock.patch.object(mode, "allow_non_fake_inputs", True):
        yield


_REHEARSED = threading.RLock()


@contextlib.contextmanager
def backward_without_gpu(mode: FakeTensorMode) -> Iterator[None]:
    """Inside, ``loss.backward()`` of a fake tensor on a GPU gives gradients, which autograd would ask the GPU for.

    It can go once autograd runs a backward of fake CUDA tensors where there is no GPU.
    """

    def without_gpu(self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        if not self.is_cuda or torch.cuda.is_available():
            backward(self, *args, **kwargs)
            return
        for leaf in _leaves_of(self):
            if leaf.grad is None:
                with mode:
                    leaf.grad = torch.empty_like(leaf, requires_grad=False)

    with _REHEARSED:
        backward: Any = torch.Tensor.backward  # without types in torch
        with mock.patch.object(torch.Tensor, "backward", torch.compiler.disable(without_gpu)):
            yield


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


@together
def global_names_of_functions() -> Iterator[None]:
    """Inside, Dynamo looks up the global names of a function in the function's own, not in a module called the same.

    Of a function of a script or a notebook that came here from another process, the module is ``__main__``, which is
    another one here. It can go once ``get_globals_source_and_value`` compares the module's names with the function's.
    """
    stock = InliningInstructionTranslator.get_globals_source_and_value

    def found(self: Any, name: str) -> Any:
        names = self.f_globals
        module = sys.modules.get(str(names.get("__name__", "")))
        if module is None or vars(module) is names:
            return stock(self, name)
        # As it does for a function that names no module.
        source = GlobalSource(self.output.install_global_by_id("___unnamed_scope", names))
        return names, VariableBuilder(self, source)(names), DictGetItemSource(source, name)

    # Each call of a compiled program comes here: `mock` would take half of the time that this does.
    InliningInstructionTranslator.get_globals_source_and_value = found
    try:
        yield
    finally:
        InliningInstructionTranslator.get_globals_source_and_value = stock


@together
def settings_told_without_functions() -> Iterator[None]:
    """Inside, what Dynamo notes of its settings for each compilation has no functions, which PyTorch 2.11 would sort.

    It would log a TypeError of its own for what compiles, and for what does not in place of the reason. It can go once
    ``_get_dynamo_config_for_logging`` leaves out ``ignore_logging_functions``, as it does the setting's former name.
    """
    told = dynamo_utils._get_dynamo_config_for_logging

    def without() -> str | None:
        # Dynamo compiles in one thread at a time, and this is where it ends.
        with dynamo_config.patch(ignore_logger_methods=set()):
            settings: str | None = told()
        return settings

    with mock.patch.object(dynamo_utils, "_get_dynamo_config_for_logging", without):
        yield


@together
def graph_breaks_in_loops() -> Iterator[None]:
    """Inside, Dynamo goes on behind a graph break in a loop, in a graph for each time around.

    It would give up the whole function, and of a training step that takes a backward for each micro-batch would compile
    no more than the optimizer. It can go once Dynamo has an option for it.
    """
    with mock.patch.object(InstructionTranslatorBase, "maybe_has_backedge", return_value=False):
        yield


@together
def says_there_is_a_gpu() -> Iterator[None]:
    """Inside, PyTorch says that a GPU is there: Thunder asks it for one while its nvFuser executor is imported.

    It can go once that can be imported without a GPU.
    """
    with mock.patch("torch.cuda.is_available", return_value=True):
        yield


@together
def recent_gpu() -> Iterator[None]:
    """Inside, attention takes the kernel that a recent GPU has, and a program that asks for its capability is told 9.0.

    Flash attention for 16-bit floats, which takes no mask, memory-efficient attention otherwise. Thunder asks the GPU,
    and without one would take the attention apart. It can go once it can be told.
    """
    from workbench.compiler.interop.thunder_api import dtypes, sdpaex

    def choose(query: Any, key: Any, value: Any, attn_mask: Any = None, *_: Any, **__: Any) -> Any:
        del key, value
        half = query.dtype in (dtypes.bfloat16, dtypes.float16) and attn_mask is None
        return sdpaex.SpdaBackend.FLASH_ATTENTION if half else sdpaex.SpdaBackend.MEMORY_EFFICIENT

    def capability(device: Any = None) -> tuple[int, int]:
        del device
        return 9, 0

    with (
        mock.patch.object(sdpaex, "_fused_sdp_choice", choose),
        mock.patch.object(torch.cuda, "get_device_capability", capability),
    ):
        yield


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


_WATCHED = threading.RLock()


@contextlib.contextmanager
def dynamo_watched(watcher: Watcher) -> Iterator[None]:
    """Inside, a watcher is told what Dynamo does in this thread, and stands in for it where a module is called.

    It can go once Dynamo traces like modules once; see `repeats.py`.
    """
    here = threading.get_ident()

    def told(stock: Callable[..., Any], tell: Callable[..., None]) -> Callable[..., Any]:
        def method(self: Any, item: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == here:
                tell(self, item)
            return stock(self, item, *args, **kwargs)

        return method

    with _WATCHED:
        call = UnspecializedNNModuleVariable.call_function

        def call_function(self: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
            if threading.get_ident() != here:
                return call(self, tx, args, kwargs)
            return watcher.called(self, tx, args, kwargs, call)

        checked = told(SideEffects.check_allowed_side_effect, lambda _, item: watcher.changed(item))
        loaded = told(SideEffects.load_attr, lambda _, item: watcher.read_changed(item))
        renamed = told(fx.Node._rename, watcher.renamed)
        with (
            mock.patch.object(UnspecializedNNModuleVariable, "call_function", call_function),
            mock.patch.object(SideEffects, "check_allowed_side_effect", checked),
            mock.patch.object(SideEffects, "load_attr", loaded),
            mock.patch.object(fx.Node, "_rename", renamed),
        ):
            yield


def _keep_missing_gpu() -> None:
    """Let PyTorch's stand-in for a GPU that is not there be that of a thread that stays as long as the process.

    Where PyTorch was built for CUDA and there is no GPU, each thread that comes to use fake tensors leaves its own to
    all others, and the next to use them crashes once that thread has ended: so it is done before any is opened. It can
    go once the stand-in is of the process.
    """
    if not torch.backends.cuda.is_built() or torch.cuda.is_available():
        return
    if threading.current_thread() is threading.main_thread():
        _C._ensureCUDADeviceGuardSet()
    else:
        _leave_in_a_thread()
    _C._ensureCUDADeviceGuardSet = lambda: None


def _leave_in_a_thread() -> None:
    left = threading.Event()

    def leave() -> None:
        _C._ensureCUDADeviceGuardSet()
        left.set()
        threading.Event().wait()

    threading.Thread(target=leave, name="missing GPU", daemon=True).start()
    left.wait()


_keep_missing_gpu()
