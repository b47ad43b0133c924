"""Programs of several graphs: each graph that Dynamo gives, cut where Thunder does not know an operator, into pieces.

A piece has a key in which neither shapes nor line numbers count: a plan and a config replayed later agree on it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import operator
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from types import CodeType, MappingProxyType
from typing import Any
from weakref import ref

import torch
from torch import fx

from workbench.analysis.memory.multi_graph_memory import Forward, RecordedStep
from workbench.compiler.frontend.dynamo import Compiler, DynamoCompiled, cut_off, reason_of, whole_of
from workbench.compiler.frontend.dynamo_session import compiled_by, no_collections, settings
from workbench.compiler.frontend.fake_step import StepRecorder
from workbench.compiler.frontend.fx_to_thunder import constants_of, name_of, refused
from workbench.compiler.frontend.plain_flex_attention import written_plainly
from workbench.compiler.frontend.source_frames import place_of
from workbench.compiler.interop import dynamo_patches, fake_gpu
from workbench.compiler.interop.dynamo_cleanup import Backend, forget, record_compiled
from workbench.compiler.lowering.call_normalization import named_in_place
from workbench.compiler.trace.stable_ids import known_file
from workbench.errors import WorkbenchError
from workbench.interop.torch_private import FakeTensorMode, split_module
from workbench.programs.tensors import held

_OPERATORS = ("call_function", "call_method", "call_module")
_IN_PLACE = (
    operator.setitem,
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.ifloordiv,
    operator.imod,
    operator.ipow,
    operator.imatmul,
    operator.iand,
    operator.ior,
    operator.ixor,
    operator.ilshift,
    operator.irshift,
)
_OPENS, _CLOSES = "_enter_autocast", "_exit_autocast"
_SETS_GRAD = "_set_grad_enabled"

LIMIT = 1 << 20
"""Compilations of one function. What Dynamo compiles of a broken program hangs on the person's own functions, where all
that was ever opened counts: a limit would end in a program that quietly runs as it is."""

type Run = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Piece:
    """A stretch of a program that is compiled as a whole, or that PyTorch runs as it is.

    Attributes
    ----------
    graph : GraphModule
    key : str
        The same for the same stretch, whatever the shapes and the lines that it stands in.
    refusal : str
        The reason why Thunder does not take it; empty where it does.
    cut : str
        The reason why the program is cut behind it; empty behind the last.
    source : str
        The person's own lines, from the first to the last.
    grad : bool
        Whether gradients are recorded where it runs: not in an optimizer's step.
    """

    graph: fx.GraphModule
    key: str
    refusal: str
    cut: str
    source: str
    grad: bool = True

    @property
    def operators(self) -> int:
        """Operators in it."""
        return sum(node.op in _OPERATORS for node in self.graph.graph.nodes)


class GraphSplitter:
    """Cuts the graphs of one program as they come, and gives their pieces keys.

    Parameters
    ----------
    program : callable or torch.nn.Module
    """

    def __init__(self, program: Callable[..., Any]) -> None:
        modules = program.named_modules() if isinstance(program, torch.nn.Module) else ()
        self._paths = {id(module): name for name, module in modules}
        self._seen: dict[str, list[str]] = {}

    def cut(self, graph: fx.GraphModule, inputs: Sequence[Any], runner: Callable[[Piece], Run]) -> Run:
        """What runs a graph, piece by piece.

        Parameters
        ----------
        graph : GraphModule
        inputs : sequence
            What it is called with.
        runner : callable
            Gives what runs a piece.
        """
        written_plainly(graph)
        key, behind = self._key(graph), reason_of(graph)
        found = refused(graph, inputs)
        numbers = _numbered(graph, found)
        if len(set(numbers.values())) < 2:
            whole = Piece(graph, key, next(iter(found.values()), ""), behind, source_of(graph), torch.is_grad_enabled())
            return _cut_off(graph, runner(whole))
        # In the order of the program: pieces may write, or draw, what others see without an edge between them.
        split = split_module(graph, graph, numbers.__getitem__, keep_original_order=True)
        names = list(dict.fromkeys(f"submod_{number}" for number in sorted(set(numbers.values()))))
        refusals = {f"submod_{numbers[node]}": reason for node, reason in reversed(found.items())}
        for at, name in enumerate(names):
            # Behind a piece in the middle of a graph stands one that is of the other kind.
            cut = behind if name == names[-1] else refusals.get(names[at + 1], "")
            inner = getattr(split, name)
            own = f"{key}.{at + 1}"
            piece = Piece(inner, own, refusals.get(name, ""), cut, source_of(inner), torch.is_grad_enabled())
            setattr(split, name, _PieceSlot(_cut_off(inner, runner(piece))))
        return split.forward

    def _key(self, graph: fx.GraphModule) -> str:
        nodes = [node for node in graph.graph.nodes if node.op in _OPERATORS]
        places = [place_of(node, self._paths) for node in nodes]
        told = "\n".join(f"{scope}/{name_of(n.target)}" for n, (scope, _) in zip(nodes, places, strict=True))
        # Equal statements in two places of a function are two parts, told apart by which was seen first.
        place = "\n".join(f"{frame.file}:{frame.line}" for _, frame in places)
        seen = self._seen.setdefault(told, [])
        if place not in seen:
            seen.append(place)
        return hashlib.sha256(f"{seen.index(place)}\n{told}".encode(errors="backslashreplace")).hexdigest()[:12]


@dataclasses.dataclass(frozen=True)
class FirstPieceRun:
    """A piece as it was when it ran first.

    Attributes
    ----------
    piece : Piece
    inputs : tuple
        Fake tensors.
    """

    piece: Piece
    inputs: tuple[Any, ...]
    calls: int


def pieces_of(
    program: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], mode: FakeTensorMode
) -> tuple[list[FirstPieceRun], RecordedStep | str]:
    """The pieces that a call of a program runs, in the order in which they run first; and what lives between them.

    The latter is by keys of pieces, and why it is not known where it is not.

    Parameters
    ----------
    program : callable or torch.nn.Module
        With fake tensors: it is called, and so is the Python between its graphs.
    args, kwargs
        Fake tensors, too.
    mode : FakeTensorMode
        Of the tensors.
    """
    codes: set[CodeType] = set()
    try:
        with record_compiled(codes):
            return _pieces_of(program, args, kwargs, mode)
    finally:
        forget(codes)


def _pieces_of(
    program: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], mode: FakeTensorMode
) -> tuple[list[FirstPieceRun], RecordedStep | str]:
    found: dict[str, FirstPieceRun] = {}
    rehearsal: StepRecorder | None = None
    cutter = GraphSplitter(program)

    def runner(piece: Piece) -> Run:
        def run(*given: Any) -> Any:
            if rehearsal is not None:
                return _rehearsed(rehearsal, piece, given)
            known = found.get(piece.key)
            found[piece.key] = (
                FirstPieceRun(piece, given, 1) if known is None else dataclasses.replace(known, calls=known.calls + 1)
            )
            with mode:
                return piece.graph(*given)

        return run

    def act(graph: fx.GraphModule, inputs: Sequence[Any]) -> Run:
        return cutter.cut(graph, inputs, runner)

    # What the program makes anew between its graphs is real.
    optimizers = held(program).optimizers
    for optimizer in optimizers:
        fake_gpu.make_state_fake(optimizer, mode)
    loops = dynamo_patches.graph_breaks_in_loops() if optimizers else nullcontext()
    real = fake_gpu.takes_real_tensors(mode)
    with settings(LIMIT), no_collections(), loops, real, fake_gpu.backward_without_gpu(mode):
        call = compiled_by(program, Backend(ref(act)), whole=False)
        call(*args, **kwargs)
        first = found
        if optimizers:
            # An optimizer's first step makes its state, and may do other things than all that follow.
            found = {}
            call(*args, **kwargs)
        state = [*held((program, args, kwargs)).tensors.values()]
        _clear_gradients(state)
        rehearsal = StepRecorder(mode, state)
        recorded = _gone_through(rehearsal, lambda: call(*args, **kwargs), bool(optimizers), found)
        _clear_gradients(state)
    rest = (dataclasses.replace(seen, calls=0) for key, seen in first.items() if key not in found)
    return [*found.values(), *rest], recorded


def _clear_gradients(tensors: Sequence[torch.Tensor]) -> None:
    for tensor in tensors:
        if tensor.is_leaf:
            tensor.grad = None


def _rehearsed(rehearsal: StepRecorder, piece: Piece, given: Sequence[Any]) -> Any:
    if piece.refusal:
        return rehearsal.run_opaque(piece.key, lambda: piece.graph(*given))
    return rehearsal.run(piece.key, lambda: piece.graph(*given), (*given, *constants_of(piece.graph)))


def _gone_through(
    rehearsal: StepRecorder, call: Callable[[], Any], takes_steps: bool, found: Mapping[str, FirstPieceRun]
) -> RecordedStep | str:
    """What lives between the parts of a step; why that is not known, where it is not."""
    if any(tensor.is_cuda for seen in found.values() for tensor in seen.inputs if isinstance(tensor, torch.Tensor)):
        return "autograd asks for a GPU that is not there"
    try:
        rehearsal.step(call, takes_steps)
    except Exception as error:  # noqa: BLE001  # the program's own code may raise anything when called again
        return f"{type(error).__name__}: {str(error).partition('\n')[0]}"
    recorded = rehearsal.recorded()
    ran = Counter(event.part for event in recorded.events if isinstance(event, Forward))
    if ran != Counter({key: seen.calls for key, seen in found.items() if not seen.piece.refusal}):
        return "other parts ran when the program was called again"
    return recorded


def _cut_off(graph: fx.GraphModule, run: Run) -> Run:
    """What runs a graph, cut off from the history of inputs that no gradient of its results goes to.

    They may be of a graph whose backward was taken, as the loss of the micro-batch before is: Thunder gives what it
    compiles the history of all inputs, and the next backward would go there, too. So it does with results that have no
    gradient, such as a sum of detached losses.
    """
    output = next(iter(graph.graph.find_nodes(op="output")))
    results = output.args[0]
    without = [_has_none(result) for result in results] if isinstance(results, tuple | list) else []
    reached = set()
    ahead = list(output.all_input_nodes)
    while ahead:
        node = ahead.pop()
        if node not in reached and not _has_none(node):
            reached.add(node)
            ahead.extend(node.all_input_nodes)
    own = [node not in reached for node in graph.graph.find_nodes(op="placeholder")]

    def cut(*given: Any) -> Any:
        made = run(*(_detached(value) if off else value for value, off in zip(given, own, strict=True)))
        if not any(without):
            return made
        return tuple(_detached(value) if off else value for value, off in zip(made, without, strict=True))

    return cut


def _has_none(node: Any) -> bool:
    """Whether what a node gives is a tensor without a gradient."""
    made = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return isinstance(made, torch.Tensor) and not made.requires_grad


def _detached(value: Any) -> Any:
    history = isinstance(value, torch.Tensor) and value.grad_fn is not None
    return value.detach() if history else value


class CompiledParts(DynamoCompiled):
    """A program compiled piece by piece as it is called.

    Parameters
    ----------
    program : callable or torch.nn.Module
    compiler_of : callable
        Gives the compiler of a piece, or None where PyTorch runs it as it is; and whether it was planned: what was not,
        and cannot be compiled, is run as it is.
    observer : optional
        Told how long Dynamo took, as the stage ``capture``.
    modes : mapping of str to str, optional
        Of PyTorch, in force in each call; as in `workbench.core.config.MODES`.

    Attributes
    ----------
    jitted : list
        What `thunder.jit` gave for each piece compiled so far.
    """

    _whole = False
    _limit = LIMIT

    def __init__(
        self,
        program: Callable[..., Any],
        compiler_of: Callable[[Piece], tuple[Compiler | None, bool]],
        observer: Any = None,
        modes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.jitted: list[Any] = []
        self._compiler_of = compiler_of
        dynamo_patches.run_backward_outside_dynamo()
        self._cutter = GraphSplitter(program)
        self._takes_steps = bool(held(program).optimizers)
        self._runs: list[Run] = []
        super().__init__(program, lambda function: function, observer, modes)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program, compiled; where nothing compiled fits the call, compile it first."""
        with dynamo_patches.graph_breaks_in_loops() if self._takes_steps else nullcontext():
            return super().__call__(*args, **kwargs)

    def _compile(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Run:
        run = self._cutter.cut(graph, inputs, self._runner)
        if self._observer is not None:
            self._observer.stage("capture", time.perf_counter() - self._since)
        return run

    def _runner(self, piece: Piece) -> Run:
        number, owner = len(self._runs), ref(self)
        self._runs.append(self._run_of(piece))

        # Dynamo keeps it for as long as the person's function lives: it holds on to nothing.
        def run(*given: Any) -> Any:
            known = owner()
            assert known is not None, "who asked for the compilation is gone"
            return known._runs[number](*given)

        return run

    def _run_of(self, piece: Piece) -> Run:
        compiler, planned = self._compiler_of(piece)
        if compiler is None:
            return piece.graph
        number = len(self._runs)

        def first(*given: Any) -> Any:
            run = self._runs[number] = self._compiled(piece, compiler, given, planned)
            return run(*given)

        return first

    def _compiled(self, piece: Piece, compiler: Compiler, given: Sequence[Any], planned: bool) -> Run:
        whole = whole_of(self._program, *self._given, piece.graph, given)
        jitted, constants = compiler(whole.function), whole.inputs[len(given) :]
        if not planned:
            try:
                jitted._lc_cd.get_computation_and_inputs(*whole.inputs)
            except WorkbenchError:
                raise
            except Exception:  # noqa: BLE001  # whatever Thunder's rules raise, PyTorch runs it
                return piece.graph
        self.jitted.append(jitted)
        (output,) = piece.graph.graph.find_nodes(op="output")
        run = cut_off(piece.graph, (lambda *values: jitted(*values, *constants)) if constants else jitted)
        if isinstance(output.args[0], tuple | list):
            return run
        # A piece of a graph that was cut gives a single value as it is.
        return lambda *values: run(*values)[0]


class _PieceSlot(torch.nn.Module):
    """Stands in a split graph for one of its pieces."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.__dict__["run"] = run

    def forward(self, *args: Any) -> Any:
        return self.__dict__["run"](*args)


def source_of(graph: fx.GraphModule) -> str:
    """The person's own lines of a graph, from the first to the last in its first file; empty where none are known."""
    frames = [place_of(node, {})[1] for node in graph.graph.nodes if node.op in _OPERATORS]
    known = [frame for frame in frames if frame.line]
    if not known:
        return ""
    file = known[0].file
    lines = [frame.line for frame in known if frame.file == file]
    ends = f"{min(lines)}" if min(lines) == max(lines) else f"{min(lines)}-{max(lines)}"
    return f"{known_file(file)}:{ends}"


def _numbered(graph: fx.GraphModule, found: Mapping[fx.Node, str]) -> dict[fx.Node, int]:
    """Which piece each operator of a graph goes to; one piece where it cannot be cut."""
    numbers: dict[fx.Node, int] = {}
    number, last = 0, None
    for node, inside in _regions(graph):
        if node.target is operator.getitem and isinstance(node.args[0], fx.Node) and node.args[0] in numbers:
            # What takes an operator's results apart stays with it.
            numbers[node] = numbers[node.args[0]]
            continue
        taken = node not in found
        if last is not None and taken is not last and not inside:
            number += 1
        last = last if inside and last is not None else taken
        numbers[node] = number
    if any(_writes_elsewhere(node, numbers) for node in numbers):
        return dict.fromkeys(numbers, 0)
    return numbers


def _regions(graph: fx.GraphModule) -> Iterator[tuple[fx.Node, bool]]:
    """Operators of a graph, and whether a mode of PyTorch that begins in the graph is in force before each."""
    outside, grad, depth = torch.is_grad_enabled(), torch.is_grad_enabled(), 0
    for node in graph.graph.nodes:
        if node.op not in _OPERATORS:
            continue
        yield node, grad is not outside or depth > 0
        name = getattr(node.target, "__name__", "")
        if name == _SETS_GRAD:
            grad = bool(node.args[0])
        depth += (name == _OPENS) - (name == _CLOSES)


def _writes_elsewhere(node: fx.Node, numbers: Mapping[fx.Node, int]) -> bool:
    """Whether an operator writes in place to what another piece made."""
    if not (
        named_in_place(node)
        or node.target in _IN_PLACE
        or node.kwargs.get("inplace")
        or node.kwargs.get("out") is not None
    ):
        return False
    return any(numbers.get(other, numbers[node]) != numbers[node] for other in node.all_input_nodes)
