"""Capture a program as one graph with Dynamo, and compile a program with Dynamo and Thunder when it is called.

Planning and running both use Dynamo with a backend of this module, so that both get the same graph. Dynamo handles code
around the graph, such as a dataclass for the outputs or a counter on a module.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import re
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType, MappingProxyType
from typing import Any, NoReturn
from weakref import WeakMethod, finalize, ref

import torch
from torch import fx

from workbench.compiler.frontend.associative_scan import rewrite_scans
from workbench.compiler.frontend.dynamo_session import (
    RECOMPILE_LIMIT,
    allow_compilation,
    asks_for_layers,
    compile_with,
    decompose_layers,
    dynamo_settings,
    no_collections,
)
from workbench.compiler.frontend.fx_to_thunder import (
    constants_of,
    find_refused_nodes,
    function_of,
    name_of,
    place_numbers,
)
from workbench.compiler.frontend.gradient_paths import detach_data, drop_unused_gradients, make_mixed_gradients_dense
from workbench.compiler.frontend.inline_einops import inline_einops
from workbench.compiler.frontend.module_reuse import ReuseCounts, trace_modules_once
from workbench.compiler.frontend.plain_flex_attention import erase_vmap
from workbench.compiler.frontend.sharded_graphs import ShardedModule, module_of, returned_inputs, returned_parameter
from workbench.compiler.frontend.trace_errors import FAILS, RAISES, break_words, reads_values, remedy
from workbench.compiler.interop import dynamo_patches, dynamo_stance, source_file
from workbench.compiler.interop.dynamo_cleanup import Backend, forget, frames_seen, retry_skipped_functions
from workbench.compiler.interop.dynamo_patches import NumbersOfCalls
from workbench.compiler.interop.thunder_api import Transform
from workbench.compiler.interop.torch_versions import dynamo_message, erase_bounds_of_bools
from workbench.compiler.lowering.alias_writes import merge_same
from workbench.compiler.trace.changing_numbers import ChangingNumbers
from workbench.compiler.trace.source_frames import Frame, frames_of, place_of, user_line
from workbench.compiler.trace.stable_ids import line_prefix
from workbench.errors import ProgramError, ProgramWarning, WorkbenchError
from workbench.interop.torch_private import (
    BackendCompilerFailed,
    FailOnRecompileLimitHit,
    TensorifyScalarRestartAnalysis,
    TorchDynamoException,
    Unsupported,
    dynamo_utils,
)
from workbench.programs.modes import active_modes
from workbench.util.interruptions import interruptions_raised

_AS_IT_IS = contextlib.nullcontext()

MANY_CAPTURES = 8
"""Number of captures of one program at which a warning says why. It is PyTorch's default limit. Few programs need more
for training, validation and a smaller last batch.
"""

type Compiler = Callable[[Callable[..., Any]], Any]
"""Function that calls `thunder.jit` with fixed options."""


class NotOneGraphError(ProgramError):
    """Dynamo cannot capture a program as one graph. The message contains the user's line and the reason.

    Attributes
    ----------
    needs_values : bool
        Whether the cause is that the program reads values of tensors, so that it does not run on fake tensors.
    breaks : bool
        Whether the cause is a graph break, which Dynamo also makes if the program may be several graphs.
    """

    needs_values = breaks = False


def has_unknown_sizes(graph: fx.Graph) -> bool:
    """Return whether a graph has a tensor whose size depends on values of other tensors."""
    return dynamo_patches.has_unknown_sizes([node.meta.get("example_value") for node in graph.nodes])


class _CapturedError(Exception):
    """Ends Dynamo's call of a program as soon as the graph is captured."""


@dataclasses.dataclass(frozen=True)
class WholeGraph:
    """A program as one graph.

    Attributes
    ----------
    graph : GraphModule
    inputs : tuple of Tensor
        Arguments of `function`: parameters, buffers and the tensors of the call, followed by the constants of the
        graph. If ranks share the program, the parameters and buffers are in `function` instead of in `inputs`.
    function : callable
        Argument for `thunder.jit`. If ranks share the program, this is a module.
    taken : tuple of int
        Indices of the graph inputs that `function` takes.
    codes : tuple of CodeType
        Code objects that Dynamo traced.
    written : ReuseCounts
        Numbers of modules that were not traced, because each reused the trace of an equal module.
    beside : tuple of Tensor
        Graph inputs that the program returns unchanged. Dynamo returns them outside of the graph.
    """

    graph: fx.GraphModule
    inputs: tuple[Any, ...]
    function: Callable[..., Any]
    taken: tuple[int, ...]
    codes: tuple[CodeType, ...] = ()
    written: ReuseCounts = dataclasses.field(default_factory=ReuseCounts)
    beside: tuple[torch.Tensor, ...] = ()


def whole_graph(
    program: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, shared: bool = False
) -> WholeGraph:
    """Capture the graph of a call of a program. Dynamo traces the call, but does not run it.

    Parameters
    ----------
    program, args, kwargs
        The program and the arguments of the call.
    shared : bool, optional
        Whether ranks share the parameters of the program.

    Raises
    ------
    NotOneGraphError
        If Dynamo breaks the program into several graphs, cannot trace it, or finds no operator in it.
    ProgramError
        If the program cannot be shared among ranks.
    """
    found: list[WholeGraph] = []

    def act(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        codes = tuple(dynamo_utils.get_traced_code() or ())
        whole = prepare_graph(program, args, kwargs, graph, inputs, shared=shared, counts=written)
        found.append(dataclasses.replace(whole, codes=codes, beside=tuple(returned_inputs())))
        raise _CapturedError

    def call() -> None:
        try:
            compile_with(program, Backend(ref(act)))(*args, **kwargs)
        except BackendCompilerFailed as error:
            if isinstance(error.inner_exception, WorkbenchError):
                raise error.inner_exception from None
            if not isinstance(error.inner_exception, _CapturedError):
                raise

    with dynamo_settings(), no_collections(), dynamo_patches.unknown_sizes_refused(name_of):
        try:
            with trace_modules_once(program) as written:
                call()
        except TorchDynamoException as error:
            refused = _not_one_graph(error)
            refused.needs_values = reads_values(dynamo_message(error))
            if not written.modules or refused.needs_values:
                raise refused from error
            written = ReuseCounts()
            try:
                call()
            except TorchDynamoException as again:
                raise _not_one_graph(again) from again
        except Exception as error:
            # If an assertion of Dynamo fails, the message names only the user's line. Add the line of the assertion.
            if "\nfrom user code:" not in str(error):
                raise
            line = traceback.extract_tb(error.__traceback__)[-1].line
            refused = NotOneGraphError(_reason(error, internal=f"{type(error).__name__}: {line}"))
            refused.needs_values = reads_values(f"{type(error).__name__}: {error}")
            raise refused from error
    if not found:
        raise NotOneGraphError("Dynamo found no operator in it")
    return found[0]


def _not_one_graph(error: TorchDynamoException) -> NotOneGraphError:
    refused = NotOneGraphError(_reason(error))
    # An operator with a result of unknown size is no graph break if the program may be several graphs.
    refused.breaks = type(error) is Unsupported and dynamo_patches.UNKNOWN_SIZE not in dynamo_message(error)
    return refused


class DynamoCompiled:
    """A program that Dynamo and Thunder compile when it is called.

    Dynamo captures a new graph for a call that does not match an earlier graph, for example because of other shapes. If
    there are `RECOMPILE_LIMIT` graphs, PyTorch runs such a call without compilation, and a warning gives the cause.

    Parameters
    ----------
    program : callable or torch.nn.Module
    compiler : callable
        Called once for each graph, with a function. Returns the result of `thunder.jit` for the function.
    observer : optional
        Receives the seconds that Dynamo takes, as the stage ``capture``.
    modes : mapping of str to str, optional
        PyTorch's modes in each call, as in `workbench.core.config.MODES`.
    shared : bool, optional
        Whether ranks share the parameters of the program.
    """

    _whole = True
    _limit = RECOMPILE_LIMIT

    def __init__(
        self,
        program: Callable[..., Any],
        compiler: Compiler,
        observer: Any = None,
        modes: Mapping[str, str] = MappingProxyType({}),
        shared: bool = False,
    ) -> None:
        self._program = program
        self._compiler = compiler
        self._shared = shared
        self._observer = observer
        self._modes = modes
        self._jitted: Any = None
        self._since = 0.0
        self._given: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        # True if the next call may run or compile code that reads the flag set by `decompose_layers`.
        self._asks = True
        self._codes: set[CodeType] = set()
        self._captures, self._told = 0, False
        self._frames: int | None = None
        finalize(self, forget, self._codes).atexit = False
        self._numbers = NumbersOfCalls()
        # The graph of ranks has no numbers as inputs, because Thunder's transforms take its inputs for parameters.
        changing = None if shared else self._numbers
        around = functools.partial(allow_compilation, self._limit, self._codes, changing, in_parts=not self._whole)
        self._call = compile_with(program, Backend(WeakMethod(self._compile)), fullgraph=self._whole, around=around)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the compiled program. If no compiled graph fits the call, first compile a new graph."""
        forget(())
        if not self._whole and self._frames != frames_seen():
            retry_skipped_functions()
        self._since = time.perf_counter()
        self._given = (args, kwargs)
        usual = _AS_IT_IS if dynamo_stance.is_default_stance() else dynamo_stance.default_stance()
        through = decompose_layers() if self._asks else _AS_IT_IS
        uncompiled = ""
        with usual, active_modes(self._modes), through, interruptions_raised(exits=True):
            try:
                made = self._call(*args, **kwargs)
            except BackendCompilerFailed as error:
                if isinstance(error.inner_exception, WorkbenchError):
                    raise error.inner_exception from None
                raise
            except TorchDynamoException as error:
                uncompiled = _reason(error)
                # Dynamo hides an exception that the program raises. A training loop may catch it, as for a bad batch.
                if RAISES not in uncompiled:
                    raise NotOneGraphError(uncompiled) from error
            except FailOnRecompileLimitHit as error:
                uncompiled = self._recapture_message(self._limit)
                if self._shared:
                    raise ProgramError(uncompiled) from error
            finally:
                self._given = ((), {})
                self._frames = frames_seen()
            if uncompiled:
                made = self._program(*args, **kwargs)
        if uncompiled:
            warnings.warn(ProgramWarning(f"PyTorch ran this call without compilation: {uncompiled}"), stacklevel=2)
        if self._captures >= MANY_CAPTURES and not self._told:
            self._told = True
            warnings.warn(ProgramWarning(self._recapture_message(self._captures)), stacklevel=2)
        return made

    def _recapture_message(self, count: int) -> str:
        """Return the message for a program that was captured in `count` calls, with the cause of the last capture."""
        where = f", the last at {change}" if (change := self._last_change()) else ""
        return (
            f"the program was captured again in {count} calls, because each call differed from all "
            f"before{where}. Values that change with each call, such as a growing list or a number that sets a size, "
            "must be tensors, or outside of the program; pad shapes to a few sizes"
        )

    def _last_change(self) -> str:
        """Return a text with the line of code and the guard by which the last captured call differs from earlier calls.

        The text is empty if the difference is unknown. Dynamo names no line for the shape of a tensor.
        """
        known = (reasons for code in self._codes if (reasons := dynamo_utils.guard_failures.get(code)))
        last, number = "", -1
        # Each capture appends one reason for each existing graph, beginning with the newest graph.
        for reason in reversed(next(known, [])):
            numbered = re.match(r"\d+/(\d+): ", reason)
            if numbered is None or int(numbered[1]) <= number:
                break
            last, number = reason[numbered.end() :], int(numbered[1])
        condition, *told = [part.strip() for part in last.split("  # ")]
        at = re.search(r"([^/\\]+:\d+) in ", told[-1]) if told else None
        if at is None:
            return f"the check of inputs: {condition}" if condition else ""
        return f"{at[1]} ({told[0]}), where {condition} no longer holds"

    @property
    def _lc_cs(self) -> Any:
        """Thunder's statistics of the last compiled graph."""
        return self._last._lc_cs

    @property
    def _lc_cd(self) -> Any:
        """Thunder's compile data of the last compiled graph."""
        return self._last._lc_cd

    @property
    def _last(self) -> Any:
        # Raise AttributeError, because Thunder reads its attributes by `getattr` with a default.
        if self._jitted is None:
            raise AttributeError("nothing is compiled before the first call")
        return self._jitted

    def _compile(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if self._observer is not None:
            self._observer.stage("capture", time.perf_counter() - self._since)
        numbers = numbers_apart(graph, inputs, self._numbers, whole=True)
        graph, inputs = numbers.graph, numbers.inputs
        asks = asks_for_layers(dynamo_utils.get_traced_code())
        self._asks = asks or (self._jitted is not None and self._asks)
        whole = prepare_graph(self._program, *self._given, graph, inputs, shared=self._shared)
        if numbers.as_tensors and find_refused_nodes(graph, inputs):
            capture_with_constants(self._numbers, numbers.as_tensors)
        self._captures += 1
        jitted = self._jitted = self._compiler(whole.function)
        constants, taken = constants_of(graph), whole.taken
        if len(taken) < len(inputs):
            return detach_outputs(graph, lambda *given: jitted(*(given[at] for at in taken), *constants))
        run = drop_unused_gradients(graph, (lambda *given: jitted(*given, *constants)) if constants else jitted)
        return numbers.around(detach_outputs(graph, run))


def numbers_apart(
    graph: fx.GraphModule, inputs: Sequence[Any], known: NumbersOfCalls, *, whole: bool
) -> ChangingNumbers:
    """Take the changing numbers out of a graph, or make Dynamo capture the graph again with constants.

    The latter happens if an operator needs the value of a number. If the graph is not the `whole` program, only
    integers become constants, because PyTorch can run the operator in a piece of its own.
    """
    numbers = ChangingNumbers(graph, inputs, known.changed)
    if constant := [name for name, is_integer in numbers.needed.items() if whole or is_integer]:
        capture_with_constants(known, constant)
    return numbers


def capture_with_constants(known: NumbersOfCalls, names: Iterable[str]) -> NoReturn:
    """Make Dynamo capture the graph that it compiles again, with constants in place of some changing numbers."""
    known.keep_constant(names)
    raise TensorifyScalarRestartAnalysis


_STATE = (
    "state_dict", "load_state_dict", "_save_to_state_dict", "_load_from_state_dict", "get_extra_state",
    "set_extra_state",
)  # fmt: skip
"""Methods for checkpoints, which PyTorch may implement with data of one module, such as its version or its hooks."""
_CALLS = ("__call__", "_call_impl", "_wrapped_call_impl")
"""Methods that are not forwarded, because the original's would run without compilation."""
_CONTAINER = ("__len__", "__getitem__", "__setitem__", "__delitem__", "__iter__", "__reversed__", "__contains__")


def _forwarded(name: str) -> Callable[..., Any]:
    """Return a method of a `CompiledModule` that calls the original module's method."""

    def method(self: CompiledModule, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self._original, name)(*args, **kwargs)
        return self if result is self._original else result

    method.__name__ = name
    return method


def _shared(name: str) -> property:
    """Return a property of a `CompiledModule` that reads, sets and deletes the original module's attribute."""

    def write(self: CompiledModule, value: Any) -> None:
        if "_original" in self.__dict__:  # PyTorch's constructor sets the initial mode before this attribute exists
            setattr(self._original, name, value)

    return property(lambda self: getattr(self._original, name), write, lambda self: delattr(self._original, name))


def _members_like(module: torch.nn.Module, own: type[CompiledModule]) -> dict[str, Any]:
    """Return the methods and properties by which a `CompiledModule` behaves as a module."""
    kind = type(module)

    def forward(self: CompiledModule, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    original = inspect.getattr_static(kind, "forward")  # TorchScript's modules, but not their class, have a forward
    forward.__doc__ = original.__doc__
    with contextlib.suppress(TypeError, ValueError):  # a forward in C may have no signature
        setattr(forward, "__signature__", inspect.signature(original))  # noqa: B010
    base = torch.nn.Module
    methods = [name for name, value in vars(base).items() if callable(value) and name != "forward" and name[0] != "_"]
    shared = ["training", *(name for name in methods if name in vars(module) or not callable(getattr(kind, name)))]
    overridden = [
        name
        for name, method in vars(base).items()
        if callable(method) and getattr(own, name) is method and inspect.getattr_static(kind, name) is not method
    ]
    names = {*overridden, *_STATE, *(name for name in _CONTAINER if hasattr(kind, name))} - set(_CALLS)
    # By `__class__`, the object is an instance of `kind`, too. Hugging Face's `Trainer` saves checkpoints by the class.
    members: dict[str, Any] = {name: _forwarded(name) for name in names} | {name: _shared(name) for name in shared}
    return {**members, "forward": forward, "__class__": property(lambda _: kind)}


class CompiledModule(torch.nn.Module):
    """A module that calls a `DynamoCompiled` object.

    The module has the parameters, buffers, modules, attributes and methods of the original module. An attribute that is
    set on it is set on the original module, which the compiled program reads, unless it is a hook or replaces a method.
    """

    def __new__(cls, module: torch.nn.Module, compiled: DynamoCompiled) -> CompiledModule:
        """Return an object of a class of its own, because Python looks up methods such as ``__len__`` in the class."""
        made = type(cls.__name__, (cls,), {"__module__": cls.__module__, **_members_like(module, cls)})
        return super().__new__(made)

    def __init__(self, module: torch.nn.Module, compiled: DynamoCompiled) -> None:
        super().__init__()
        # Share the original's dictionaries: an entry that is registered, moved or loaded in one of the two modules also
        # changes in the other.
        shared = {
            name: value
            for name, value in vars(module).items()
            if name in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set") or "state_dict" in name
        }
        self.__dict__.update(shared, _original=module, _compiled=compiled, _again=None)

    def set_maker(self, again: Callable[[torch.nn.Module], Any]) -> None:
        """Set the function that compiles a copied or unpickled module."""
        self.__dict__["_again"] = again

    def __reduce__(self) -> tuple[Callable[[torch.nn.Module], Any], tuple[torch.nn.Module]]:
        # Pickle only the original module, because compiled code is bound to the tensors of the original module. The
        # unpickled module is compiled when it is called.
        again = self.__dict__["_again"]
        if again is None:
            raise WorkbenchError(
                f"the function compiled from {type(self._original).__name__} with your own transforms cannot be copied "
                "or sent: copy the module, and compile the copy; for a checkpoint, save state_dict()"
            )
        return again, (self._original,)

    def _last_change(self) -> str:
        change: str = getattr(self._compiled, "_last_change", str)()  # unmodified Thunder's function has no such method
        return change

    def train(self, mode: bool = True) -> CompiledModule:
        """Set the original module to training or eval mode. This module has the same mode."""
        self._original.train(mode)
        return self

    @property
    def _lc_cs(self) -> Any:
        return self.__dict__["_compiled"]._lc_cs

    @property
    def _lc_cd(self) -> Any:
        return self.__dict__["_compiled"]._lc_cd

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_original"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._has_own(name):
            super().__setattr__(name, value)
        else:
            setattr(self._original, name, value)

    def __delattr__(self, name: str) -> None:
        if self._has_own(name):
            super().__delattr__(name)
        else:
            delattr(self._original, name)

    def _has_own(self, name: str) -> bool:
        """Return whether an attribute is the wrapper's.

        As in `torch.compile`, these are its hooks, its mode and its methods. The workbench's own attributes are, too.
        """
        return name in self.__dict__ or hasattr(type(self), name) or name.startswith("_workbench_")

    def __dir__(self) -> list[str]:
        return dir(self._original)


def detach_outputs(graph: fx.GraphModule, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs a graph and detaches the outputs that do not require gradients in eager PyTorch.

    Thunder returns all outputs of a program from one autograd function, so all outputs require gradients.
    """
    (output,) = graph.graph.find_nodes(op="output")
    given = output.args[0] if isinstance(output.args[0], tuple | list) else output.args
    values = [node.meta.get("example_value") if isinstance(node, fx.Node) else None for node in given]
    loose = {at for at, value in enumerate(values) if isinstance(value, torch.Tensor) and not value.requires_grad}
    if not loose:
        return run

    def call(*args: Any) -> Any:
        outputs = run(*args)
        return type(outputs)(
            value.detach() if at in loose and isinstance(value, torch.Tensor) and value.requires_grad else value
            for at, value in enumerate(outputs)
        )

    return call


def jit(
    program: Callable[..., Any],
    compiler: Compiler,
    observer: Any = None,
    modes: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Return a wrapper that compiles a program with Dynamo and Thunder when the wrapper is called.

    If the program is a module, the wrapper is a module.
    """
    return wrap_like(program, DynamoCompiled(program, compiler, observer, modes))


def jit_among_ranks(
    program: torch.nn.Module,
    transforms: Sequence[Transform],
    compiler: Callable[[Callable[..., Any], Sequence[Transform]], Any],
    observer: Any = None,
    modes: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Wrap a module that ranks share. The wrapper compiles the module when it is called.

    The wrapper is a module with the parameters of this rank, like a result of `thunder.jit`.

    Parameters
    ----------
    program : torch.nn.Module
    transforms : sequence of Transform
        Thunder's transforms that share the parameters among ranks.
    compiler : callable
        Called once for each graph, with a module and transforms. Returns the result of `thunder.jit` for them.
    observer, modes
        As in `DynamoCompiled`.
    """
    shared = ShardedModule(program, transforms)
    made = ref(shared.module)

    def compile_function(function: Callable[..., Any]) -> Any:
        jitted = compiler(function, shared_by)
        module = made()
        assert module is not None, "the caller holds the module"
        # Set attributes of the module to Thunder's data and statistics of the last compiled graph.
        module._lc_cd, module._lc_cs = jitted._lc_cd, jitted._lc_cs
        return jitted

    shared_by, module = shared.transforms, shared.module
    # Delete Thunder's data from the module, because no graph is compiled before the first call.
    del shared, module._lc_cd, module._lc_cs
    module._forward_fn = DynamoCompiled(program, compile_function, observer, modes, shared=True)
    return module


def wrap_like(program: Callable[..., Any], compiled: DynamoCompiled) -> Any:
    """Return a module that calls `compiled` if the program is a module, and `compiled` itself otherwise.

    The result has the name, the documentation and the signature of the program.
    """
    if isinstance(program, torch.nn.Module):
        return CompiledModule(program, compiled)
    return functools.update_wrapper(compiled, program, updated=())


def prepare_graph(
    program: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    shared: bool = False,
    counts: ReuseCounts | None = None,
) -> WholeGraph:
    """Convert a captured graph to a `WholeGraph`, which has the function and the arguments for `thunder.jit`.

    If ranks share the program, call this function during the capture, because it reads Dynamo's state.

    Raises
    ------
    ProgramError
        If ranks share the program, and the program returns or stores a parameter, of which each rank has only a shard.
    """
    erase_vmap(graph)
    rewrite_scans(graph)
    inline_einops(graph)
    detach_data(graph)
    make_mixed_gradients_dense(graph.graph)
    place_numbers(graph)
    merge_same(graph.graph)
    erase_bounds_of_bools(graph.graph)
    known = _names_of(program, args, kwargs)
    placeholders = graph.graph.find_nodes(op="placeholder")
    names = [known.get(id(value), node.name) for node, value in zip(placeholders, inputs, strict=True)]
    paths = {}
    if isinstance(program, torch.nn.Module):
        paths = {id(module): name for name, module in program.named_modules()}
    constants, counts = constants_of(graph), counts or ReuseCounts()
    if not shared:
        everything = tuple(range(len(inputs)))
        function = function_of(graph, names, paths)
        return WholeGraph(graph, (*inputs, *constants), function, everything, written=counts)
    assert isinstance(program, torch.nn.Module)
    if name := returned_parameter(program):
        raise ProgramError(
            f"it returns or keeps its parameter {name}, but each rank has only a part of it: return a copy"
        )
    module, taken = module_of(graph, names, paths, program, inputs)
    return WholeGraph(graph, (*(inputs[at] for at in taken), *constants), module, taken, written=counts)


def _names_of(program: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[int, str]:
    """Map the `id` of each tensor of a program to its name in traces of Thunder's interpreter."""
    names: dict[int, str] = {}
    if isinstance(program, torch.nn.Module):
        for table in (program.named_parameters(), program.named_buffers()):
            names.update((id(tensor), "t_" + name.replace(".", "_")) for name, tensor in table)
    called = program.forward if isinstance(program, torch.nn.Module) else program
    try:
        given = inspect.signature(called).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        given = {}
    names.update((id(value), name) for name, value in given.items() if isinstance(value, torch.Tensor))
    return names


REFUSES = "Dynamo gives no whole graph: "
"""Words between the user's line and Dynamo's reason in a refusal."""


def _reason(error: BaseException, intro: str = REFUSES, internal: str = "") -> str:
    """Return the user's line of code and Dynamo's reason, as one line of text.

    If the error has no reason, use `internal` as the reason.
    """
    if told := device_conflict(error):
        return told
    message = dynamo_message(error)
    words = message.partition("\nfrom user code:")[0].strip() or internal or type(error).__name__
    if words.startswith(dynamo_patches.UNKNOWN_SIZE) and intro:
        intro = f"Thunder cannot trace {words.removeprefix(dynamo_patches.UNKNOWN_SIZE)}: "
    return one_line_message(words, frames_of(message), intro)


def device_conflict(error: BaseException) -> str:
    """Return a message about an operator whose tensors are on two devices; empty for any other error.

    The message has the line that computes, the line that makes a tensor on the CPU, and what to write there.
    """
    found = re.search(r"found two different devices (\S+?), (\w+(?::\d+)?)", str(error))
    if found is None:
        return ""
    where, told = user_line(error), f"an operator {FAILS}, which are on {found[1]} and {found[2]}"
    advice = "make all tensors of the program on one device, as torch.zeros(n, device=x.device) does"
    node = _failed_node(error)
    if node is not None:
        where = _line_of(node)
        maker = next(filter(None, map(_on_cpu, node.all_input_nodes)), node)
        while maker.op in _CALLS and (read := next(filter(None, map(_on_cpu, maker.all_input_nodes)), None)):
            maker = read
        if maker.op == "placeholder":
            told += "; a tensor from outside of this graph is on cpu"
            advice = "make it on the device of the program's arguments, or pass it as an argument"
        elif maker is not node:
            told += f"; {_line_of(maker).removesuffix(': ') or 'the program'} makes a tensor on cpu"
            advice = "write device=x.device in that call, where x is an argument of the program"
            if maker.all_input_nodes:
                advice = "leave it on the device where it was"
    return f"{where}{told}: {advice}"


_CALLS = ("call_function", "call_method", "call_module")


def _failed_node(error: BaseException) -> fx.Node | None:
    """Return the node that Dynamo ran on fake tensors when `error` was raised."""
    ahead: BaseException | None = error
    while ahead is not None:
        for frame, _ in traceback.walk_tb(ahead.__traceback__):
            node = frame.f_locals.get("node")
            if frame.f_code.co_name == "get_fake_value" and isinstance(node, fx.Node):
                return node
        ahead = ahead.__cause__ or ahead.__context__
    return None


def _on_cpu(node: fx.Node) -> fx.Node | None:
    """Return the node if its result is a CPU tensor with dimensions, else None.

    A CPU tensor without dimensions is legal next to GPU tensors.
    """
    made = node.meta.get("example_value")
    return node if isinstance(made, torch.Tensor) and made.device.type == "cpu" and made.dim() else None


def _line_of(node: fx.Node) -> str:
    _, frame = place_of(node, {})
    return line_prefix(frame.file, frame.line)


def failed_operator(error: BaseException) -> str:
    """Return a message about an operator that failed on fake tensors, but not because a value is unknown.

    The message begins with the line of user code. It is empty if `error` is not about such an operator.
    """
    if told := device_conflict(error):
        return told
    message = dynamo_message(error)
    if not isinstance(error, TorchDynamoException) or "failed to run FX node with fake tensors" not in message:
        return ""
    if "DataDependent" in message or "DynamicOutputShape" in message:
        return ""
    return _reason(error, "an operator fails on its inputs: ")


def reason_of(graph: fx.GraphModule) -> str:
    """Return a text with the user's line of code at which Dynamo ended a graph, and with the reason.

    The text is empty if the graph ends where the program returns.
    """
    ended: Any = graph.compile_subgraph_reason
    if not ended.graph_break:
        return ""
    reason = break_words(ended.reason) or ended.reason
    return one_line_message(reason, [Frame(f.filename, f.lineno or 0, f.name) for f in ended.user_stack], "")


def one_line_message(message: str, frames: Sequence[Frame], intro: str) -> str:
    """Return Dynamo's message as one line of text: the user's line of code, a remedy if known, and Dynamo's text."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if lines[0].startswith(_FX_NODE_FAILS):
        # The texts of the operator's arguments may contain line breaks, and the error comes after them.
        end = next((at for at, line in enumerate(lines) if line.startswith(_DETAILS)), len(lines))
        lines[:end] = [" ".join(lines[:end])]
    parts = {key: value for key, _, value in (line.partition(": ") for line in lines)}
    raises = lines[0] == "Observed exception"
    # For an error that the program raises, Dynamo's explanation contains no details of the error.
    explained = parts.get("Explanation") or parts.get("Developer debug context", "")
    own_error = _own_error(parts) if raises else _known_error(lines[0], explained)
    raises = bool(own_error) or raises
    reason, detail = (RAISES, own_error) if raises else (lines[0], explained)
    own = [frame for frame in frames if not source_file.is_library(frame.file)]
    where = line_prefix(own[-1].file, own[-1].line) if own else ""
    advice = (
        remedy(" ".join((reason, detail, *(f"{frame.file} in {frame.function}" for frame in frames)))) if intro else ""
    )
    failed = _operator_failure(reason, detail)
    if failed and not advice:
        return f"{where}{failed}"
    words = failed or f"{reason}{f': {detail}' if detail else ''}"
    if raises:
        return f"{where}{words}{f'; {advice}' if advice else ''}"
    return f"{where}{intro}{f'{advice} ({words})' if advice else words}"


_IN_FX = re.compile(r"\bFake(?=Tensor\.)|\bimmutable_(?=list\b|dict\b)")
"""What FX adds to the names of the types that a user passes."""
_FX_NODE_FAILS = "Dynamo failed to run FX node"
_DETAILS = ("Explanation:", "Hint:", "Developer debug context:")
_FAILED = re.compile(
    r"Dynamo failed to run FX node with fake tensors: call_\w+ (.*?)\(\*\((.*)\), \*\*\{.*\}\): "
    r"got (RuntimeError|TypeError|ValueError|IndexError)\((.*)\)"
)


def _operator_failure(reason: str, detail: str) -> str:
    """Return the name, arguments and error of an operator that refuses its arguments; empty for any other failure."""
    if reason == "TypeError when making fake tensor call":
        target, _, words = detail.removeprefix("TypeError ").partition(": ")
        return f"{_operator(target)} {FAILS}: TypeError: {_IN_FX.sub('', words)}"
    found = _FAILED.fullmatch(reason)
    if found is None or re.search(r"Meta tensors|FakeTensor Device|fake", found[4]):
        return ""
    tensors = re.findall(r"size=(\([^)]*\))(?:, dtype=torch\.(\w+))?", found[2])
    given = ", ".join(f"{shape} {dtype or 'float32'}" for shape, dtype in tensors)
    words = found[4].strip("'\"")
    return f"{_operator(found[1])} {FAILS}{f', {given}' if given else ''}: {found[3]}: {words}"


def _operator(target: str) -> str:
    """Return the name that user code uses for an operator, given Python's representation of the operator."""
    return re.sub(r"^<(?:built-in )?\w+ (\S+).*>$", r"\1", target)


def _known_error(reason: str, detail: str) -> str:
    """Return the program's own error if Dynamo reports it as a failure of Dynamo; empty for any other failure."""
    if reason == "failed to find name in frame builtins" and (name := re.search(r"`(\w+)`", detail)):
        return f"NameError: name '{name[1]}' is not defined"
    return reason if reason.startswith("AttributeError: 'Tensor' object has no attribute") else ""


def _own_error(parts: Mapping[str, str]) -> str:
    """Return the error that the program raises, as Python prints it. `parts` are the parts of Dynamo's message."""
    context = parts.get("Developer debug context", "")
    found = re.fullmatch(r"raised exception (\w+)\(\[(.*)\]\)", context)
    if found is None:
        return context
    name, given = found.groups()
    constants = re.sub(r"ConstantVariable\(\w+: (.*?)\)(?=, \w+Variable\(|$)", r"\1", given)
    try:
        values = ast.literal_eval(f"[{constants}]")
        words = ", ".join(map(str, values))
    except (SyntaxError, ValueError):
        values, words = [], given
    if name == "KeyError":
        absent = _ABSENT_KEY.match(words)
        words = absent[1] if absent else ", ".join(map(repr, values)) or words
    return f"{name}: {words}" if words else name


_ABSENT_KEY = re.compile(r"Dict key lookup failed for \w+\(\w+: (.*?)\)(?=\. Debug|$)")
"""Words of PyTorch before 2.12 for the key of a `KeyError`."""
