"""Programs by way of Dynamo: the one graph that a program is, and the callable that compiles such graphs when called.

Planning and running both go through `torch.compile` with a backend of their own, so that both see the same graph; what
stands around it, a dataclass for the outputs or a counter on a module, stays Dynamo's business.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, MappingProxyType
from typing import Any
from weakref import WeakMethod, finalize, ref

import torch
from torch import fx

from workbench.compiler.frontend.dynamo_session import (
    RECOMPILE_LIMIT,
    asks_for_layers,
    compiled_by,
    compiling,
    layers_read_through,
    no_collections,
    settings,
)
from workbench.compiler.frontend.fx_to_thunder import constants_of, function_of
from workbench.compiler.frontend.module_reuse import ReuseCounts, traced_once
from workbench.compiler.frontend.plain_flex_attention import written_plainly
from workbench.compiler.frontend.sharded_graphs import ShardedModule, handed_back, handed_on, module_of
from workbench.compiler.frontend.source_frames import Frame, frames_of
from workbench.compiler.frontend.trace_errors import FAILS, RAISES, remedy
from workbench.compiler.interop import dynamo_stance, source_file
from workbench.compiler.interop.dynamo_cleanup import Backend, forget
from workbench.compiler.interop.thunder_api import Transform
from workbench.compiler.trace.stable_ids import told_place
from workbench.errors import ProgramError, WorkbenchError
from workbench.interop.torch_private import (
    BackendCompilerFailed,
    FailOnRecompileLimitHit,
    TorchDynamoException,
    dynamo_utils,
)
from workbench.programs.modes import restored

_AS_IT_IS = contextlib.nullcontext()

type Compiler = Callable[[Callable[..., Any]], Any]
"""`thunder.jit` with its options."""


class NotOneGraphError(ProgramError):
    """Dynamo does not give a program as one graph; the message says where and why."""


class _CapturedError(Exception):
    """Ends a call of Dynamo as soon as there is a graph."""


@dataclasses.dataclass(frozen=True)
class WholeGraph:
    """A program as one graph.

    Attributes
    ----------
    graph : GraphModule
    inputs : tuple of Tensor
        What the function takes: parameters, buffers and the tensors of the call, then the constants of the graph.
    function : callable
        For `thunder.jit`. Where ranks share the program it is a module, which has the parameters and buffers itself.
    taken : tuple of int
        Which of the graph's own inputs are among those of the function.
    codes : tuple of CodeType
        What Dynamo went through to make it.
    written : ReuseCounts
        Which of its modules were not traced, as others like them were.
    beside : tuple of Tensor
        What the program gives back as it came, beside the graph.
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
    """The graph of a call of a program, which is not run.

    Parameters
    ----------
    program, args, kwargs
        The call.
    shared : bool, optional
        Whether it is for ranks that share the parameters of the program.

    Raises
    ------
    NotOneGraphError
        If Dynamo breaks the program into several graphs, or cannot follow it.
    ProgramError
        If it cannot be shared so.
    """
    found: list[WholeGraph] = []

    def act(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        codes = tuple(dynamo_utils.get_traced_code() or ())
        whole = whole_of(program, args, kwargs, graph, inputs, shared=shared, written=written)
        found.append(dataclasses.replace(whole, codes=codes, beside=tuple(handed_back())))
        raise _CapturedError

    def call() -> None:
        try:
            compiled_by(program, Backend(ref(act)))(*args, **kwargs)
        except BackendCompilerFailed as error:
            if isinstance(error.inner_exception, WorkbenchError):
                raise error.inner_exception from None
            if not isinstance(error.inner_exception, _CapturedError):
                raise

    with settings(), no_collections():
        try:
            with traced_once(program) as written:
                _hooked(program, call)
        except TorchDynamoException as error:
            if not written.modules:
                raise NotOneGraphError(_why(error)) from error
            written = ReuseCounts()
            try:
                _hooked(program, call)
            except TorchDynamoException as again:
                raise NotOneGraphError(_why(again)) from again
        except Exception as error:
            # Of an assertion of its own Dynamo says where in the program it was, and no more.
            if "\nfrom user code:" not in str(error):
                raise
            line = traceback.extract_tb(error.__traceback__)[-1].line
            raise NotOneGraphError(_why(error, internal=f"{type(error).__name__}: {line}")) from error
    if not found:
        raise NotOneGraphError("Dynamo found no operator in it")
    return found[0]


class DynamoCompiled:
    """A program compiled by Thunder as it is called: a graph by Dynamo for each way to call it.

    Parameters
    ----------
    program : callable or torch.nn.Module
    compiler : callable
        Makes a `thunder.jit` of a function, anew for each graph.
    observer : optional
        Told how long Dynamo took, as the stage ``capture``.
    modes : mapping of str to str, optional
        Of PyTorch, in force in each call; as in `workbench.core.config.MODES`.
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
        # Whether anything that was compiled, or is yet to be, asks for what `layers_read_through` sets.
        self._asks = True
        self._codes: set[CodeType] = set()
        finalize(self, forget, self._codes).atexit = False
        around = functools.partial(compiling, self._limit, self._codes)
        self._call = compiled_by(program, Backend(WeakMethod(self._compile)), whole=self._whole, around=around)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program, compiled; where nothing compiled fits the call, compile it first."""
        self._since = time.perf_counter()
        self._given = (args, kwargs)
        usual = _AS_IT_IS if dynamo_stance.is_usual() else dynamo_stance.usual()
        through = layers_read_through() if self._asks else _AS_IT_IS
        with usual, restored(self._modes), through:
            try:
                return _hooked(self._program, functools.partial(self._call, *args, **kwargs))
            except BackendCompilerFailed as error:
                if isinstance(error.inner_exception, WorkbenchError):
                    raise error.inner_exception from None
                raise
            except TorchDynamoException as error:
                raise NotOneGraphError(_why(error)) from error
            except FailOnRecompileLimitHit as error:
                raise ProgramError(self._always_anew()) from error
            finally:
                self._given = ((), {})

    def _always_anew(self) -> str:
        """That too many calls were captured each on its own, and what the last differed in."""
        where = f", the last at {change}" if (change := self._last_change()) else ""
        return (
            f"the program was captured anew in {self._limit} calls, each of which differed from those before{where}: "
            "what changes with each call, as a counter or a list that grows, is to be a tensor or outside of the "
            "program, and shapes are to be padded to a few"
        )

    def _last_change(self) -> str:
        """In what the last call that was captured anew differed, and on which line; empty where that is not known."""
        known = (reasons for code in self._codes if (reasons := dynamo_utils.guard_failures.get(code)))
        last, number = "", -1
        # Of a call there is one for each graph there is, the newest first.
        for reason in reversed(next(known, [])):
            numbered = re.match(r"\d+/(\d+): ", reason)
            if numbered is None or int(numbered[1]) <= number:
                break
            last, number = reason[numbered.end() :], int(numbered[1])
        condition, *told = [part.strip() for part in last.split("  # ")]
        at = re.search(r"([^/\\]+:\d+) in ", told[-1]) if told else None
        return f"{at[1]} ({told[0]}), where {condition} holds no more" if at else ""

    @property
    def _lc_cs(self) -> Any:
        """Thunder's statistics of the graph compiled last."""
        return self._last._lc_cs

    @property
    def _lc_cd(self) -> Any:
        """Thunder's compile data of the graph compiled last."""
        return self._last._lc_cd

    @property
    def _last(self) -> Any:
        # Thunder asks by getattr with a default, which a missing attribute answers.
        if self._jitted is None:
            raise AttributeError("nothing is compiled before the first call")
        return self._jitted

    def _compile(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if self._observer is not None:
            self._observer.stage("capture", time.perf_counter() - self._since)
        asks = asks_for_layers(dynamo_utils.get_traced_code())
        self._asks = asks or (self._jitted is not None and self._asks)
        whole = whole_of(self._program, *self._given, graph, inputs, shared=self._shared)
        jitted = self._jitted = self._compiler(whole.function)
        constants, taken = constants_of(graph), whole.taken
        if len(taken) < len(inputs):
            return cut_off(graph, lambda *given: jitted(*(given[at] for at in taken), *constants))
        return cut_off(graph, (lambda *given: jitted(*given, *constants)) if constants else jitted)


class CompiledModule(torch.nn.Module):
    """A module that calls `DynamoCompiled`, with the parameters, buffers and modules of the original."""

    def __init__(self, module: torch.nn.Module, compiled: DynamoCompiled) -> None:
        super().__init__()
        # The very same tables: what is registered, moved or loaded here is so there, under the same names.
        self.__dict__.update(_parameters=module._parameters, _buffers=module._buffers, _modules=module._modules)
        self.__dict__.update(_original=module, _compiled=compiled, _again=None)

    @property
    def training(self) -> bool:
        """The original's mode."""
        return bool(self._original.training)

    @training.setter
    def training(self, mode: bool) -> None:
        if "_original" in self.__dict__:  # else PyTorch gives each module the mode that it begins in
            self._original.training = mode

    def made_by(self, again: Callable[[torch.nn.Module], Any]) -> None:
        """Say what makes such a module of another one: so it is copied, and sent to other processes."""
        self.__dict__["_again"] = again

    def __reduce__(self) -> tuple[Callable[[torch.nn.Module], Any], tuple[torch.nn.Module]]:
        # As a copy of the original, compiled anew when it is called: what was compiled is bound to this one's tensors.
        again = self.__dict__["_again"]
        if again is None:
            raise WorkbenchError(
                f"what was compiled of {type(self._original).__name__} under transforms of one's own is not copied or "
                "sent: copy the module, and compile the copy; of a checkpoint, save state_dict()"
            )
        return again, (self._original,)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module, compiled."""
        return self._compiled(*args, **kwargs)

    def _last_change(self) -> str:
        return self._compiled._last_change()

    def train(self, mode: bool = True) -> CompiledModule:
        """Set the original's mode, and so this one's."""
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


def cut_off(graph: fx.GraphModule, run: Callable[..., Any]) -> Callable[..., Any]:
    """What runs a graph, with outputs that need no gradient in eager PyTorch cut off from the backward.

    Thunder gives all outputs of a program from one function of autograd's, which has them all need gradients.
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
    """A program, compiled by way of Dynamo as it is called; a module gives a module."""
    return as_given(program, DynamoCompiled(program, compiler, observer, modes))


def jit_among_ranks(
    program: torch.nn.Module,
    transforms: Sequence[Transform],
    compiler: Callable[[Callable[..., Any], Sequence[Transform]], Any],
    observer: Any = None,
    modes: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """A module that ranks share, compiled by way of Dynamo as it is called: as Thunder's own, with a rank's parameters.

    Parameters
    ----------
    program : torch.nn.Module
    transforms : sequence of Transform
        Thunder's, which share it.
    compiler : callable
        Makes a `thunder.jit` of a module under transforms, anew for each graph.
    observer, modes
        As for `DynamoCompiled`.
    """
    shared = ShardedModule(program, transforms)
    made = ref(shared.module)

    def compiled(function: Callable[..., Any]) -> Any:
        jitted = compiler(function, shared_by)
        module = made()
        assert module is not None, "it is called"
        # What is asked of the module is answered by the graph compiled last.
        module._lc_cd, module._lc_cs = jitted._lc_cd, jitted._lc_cs
        return jitted

    shared_by, module = shared.transforms, shared.module
    # Nothing is compiled before the first call.
    del shared, module._lc_cd, module._lc_cs
    module._forward_fn = DynamoCompiled(program, compiled, observer, modes, shared=True)
    return module


def as_given(program: Callable[..., Any], compiled: DynamoCompiled) -> Any:
    """What is compiled as what it was made of: a module gives a module."""
    return CompiledModule(program, compiled) if isinstance(program, torch.nn.Module) else compiled


def _hooked(program: Callable[..., Any], call: Callable[[], Any]) -> Any:
    """Call a program; where a model of Hugging Face is to install hooks first, install them and call again.

    It does so in the first call that collects hidden states or attentions, under a lock that Dynamo cannot enter.
    """
    try:
        return call()
    except TorchDynamoException as error:
        install = getattr(sys.modules.get("transformers.utils.output_capturing"), "maybe_install_capturing_hooks", None)
        if install is None or "output_capturing.py" not in str(error) or not isinstance(program, torch.nn.Module):
            raise
        for module in program.modules():
            if hasattr(module, "_can_record_outputs"):
                install(module)
    return call()


def whole_of(
    program: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    shared: bool = False,
    written: ReuseCounts | None = None,
) -> WholeGraph:
    """A graph of a call of a program, ready for `thunder.jit`; while Dynamo hands it on, if ranks share the program.

    Raises
    ------
    ProgramError
        If ranks share a program that hands on a parameter, of which each has a part.
    """
    written_plainly(graph)
    known = _names_of(program, args, kwargs)
    placeholders = graph.graph.find_nodes(op="placeholder")
    names = [known.get(id(value), node.name) for node, value in zip(placeholders, inputs, strict=True)]
    paths = {}
    if isinstance(program, torch.nn.Module):
        paths = {id(module): name for name, module in program.named_modules()}
    constants, written = constants_of(graph), written or ReuseCounts()
    if not shared:
        everything = tuple(range(len(inputs)))
        function = function_of(graph, names, paths, written.blocks(graph.graph))
        return WholeGraph(graph, (*inputs, *constants), function, everything, written=written)
    assert isinstance(program, torch.nn.Module)
    if name := handed_on(program):
        raise ProgramError(
            f"it gives its parameter {name} back, or keeps it, and each rank has a part of that: give a copy of it"
        )
    module, taken = module_of(graph, names, paths, program, inputs)
    return WholeGraph(graph, (*(inputs[at] for at in taken), *constants), module, taken, written=written)


def _names_of(program: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[int, str]:
    """What Thunder's interpreter calls the tensors of a program, by their `id`."""
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


def _why(error: BaseException, intro: str = "Dynamo gives no whole graph: ", internal: str = "") -> str:
    """Dynamo's reason in one line, after the person's own line; `internal` where it gives no reason."""
    message = str(error)
    words = message.partition("\nfrom user code:")[0].strip() or internal or type(error).__name__
    return in_one_line(words, frames_of(message), intro)


def failed_operator(error: BaseException) -> str:
    """Which operator refuses what it is given, whatever the values, after the person's line; else empty."""
    message = str(error)
    if not isinstance(error, TorchDynamoException) or "failed to run FX node with fake tensors" not in message:
        return ""
    if "DataDependent" in message or "DynamicOutputShape" in message:
        return ""
    return _why(error, "an operator fails on what it is given: ")


def reason_of(graph: fx.GraphModule) -> str:
    """Why Dynamo ended a graph where it did, after the person's own line; empty where the program returned."""
    ended: Any = graph.compile_subgraph_reason
    if not ended.graph_break:
        return ""
    return in_one_line(ended.reason, [Frame(f.filename, f.lineno or 0, f.name) for f in ended.user_stack], "")


def in_one_line(message: str, frames: Sequence[Frame], intro: str) -> str:
    """What Dynamo says in many lines, in one: the person's own line, what to do where that is known, its own words."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    parts = {key: value for key, _, value in (line.partition(": ") for line in lines)}
    raises = lines[0] == "Observed exception"
    # Of an error of the program's own, Dynamo's explanation says no more than that there is one.
    explained = parts.get("Explanation") or parts.get("Developer debug context", "")
    own_error = _own_error(parts) if raises else _known_error(lines[0], explained)
    raises = bool(own_error) or raises
    reason, detail = (RAISES, own_error) if raises else (lines[0], explained)
    own = [frame for frame in frames if not source_file.is_library(frame.file)]
    where = told_place(own[-1].file, own[-1].line) if own else ""
    advice = (
        remedy(" ".join((reason, detail, *(f"{frame.file} in {frame.function}" for frame in frames)))) if intro else ""
    )
    failed = _failed(reason, detail)
    if failed and not advice:
        return f"{where}{failed}"
    words = failed or f"{reason}{f': {detail}' if detail else ''}"
    if raises:
        return f"{where}{words}{f'; {advice}' if advice else ''}"
    return f"{where}{intro}{f'{advice} ({words})' if advice else words}"


_FAILED = re.compile(
    r"Dynamo failed to run FX node with fake tensors: call_\w+ (.*?)\(\*\((.*)\), \*\*\{.*\}\): "
    r"got (RuntimeError|TypeError|ValueError|IndexError)\((.*)\)"
)


def _failed(reason: str, detail: str) -> str:
    """Of an operator that refuses what it is given: its name, what that is, and PyTorch's own words; else empty."""
    if reason == "TypeError when making fake tensor call":
        target, _, words = detail.removeprefix("TypeError ").partition(": ")
        return f"{_operator(target)} {FAILS}: TypeError: {words.replace('FakeTensor.', 'Tensor.')}"
    found = _FAILED.fullmatch(reason)
    if found is None or re.search(r"Meta tensors|FakeTensor Device|fake", found[4]):
        return ""
    tensors = re.findall(r"size=(\([^)]*\))(?:, dtype=torch\.(\w+))?", found[2])
    given = ", ".join(f"{shape} {dtype or 'float32'}" for shape, dtype in tensors)
    words = found[4].strip("'\"")
    return f"{_operator(found[1])} {FAILS}{f', {given}' if given else ''}: {found[3]}: {words}"


def _operator(target: str) -> str:
    """What a person calls an operator, from how Python shows it."""
    return re.sub(r"^<(?:built-in )?\w+ (\S+).*>$", r"\1", target)


def _known_error(reason: str, detail: str) -> str:
    """An error of the program's own that Dynamo takes for one of its own, as Python tells it; else empty."""
    if reason == "failed to find name in frame builtins" and (name := re.search(r"`(\w+)`", detail)):
        return f"NameError: name '{name[1]}' is not defined"
    return reason if reason.startswith("AttributeError: 'Tensor' object has no attribute") else ""


def _own_error(parts: Mapping[str, str]) -> str:
    """An error of the program's own as Python tells it, from what Dynamo tells its developers."""
    context = parts.get("Developer debug context", "")
    found = re.fullmatch(r"raised exception (\w+)\(\[(.*)\]\)", context)
    if found is None:
        return context
    name, given = found.groups()
    constants = re.sub(r"ConstantVariable\(\w+: (.*?)\)(?=, \w+Variable\(|$)", r"\1", given)
    try:
        words = ", ".join(map(str, ast.literal_eval(f"[{constants}]")))
    except (SyntaxError, ValueError):
        words = given
    return f"{name}: {words}" if words else name
