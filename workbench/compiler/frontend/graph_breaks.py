"""Programs of several graphs: cut each graph from Dynamo into pieces at operators that Thunder refuses.

Each piece has a key. The key does not depend on shapes or line numbers. A plan and a later replay of its config
therefore use the same keys.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import gc
import hashlib
import operator
import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from types import CodeType, MappingProxyType
from typing import Any
from weakref import ref

import torch
from torch import fx

from workbench.analysis.memory.multi_graph_memory import Forward, RecordedStep
from workbench.compiler.frontend.dynamo import (
    Compiler,
    DynamoCompiled,
    detach_outputs,
    numbers_apart,
    prepare_graph,
    reason_of,
)
from workbench.compiler.frontend.dynamo_session import (
    compile_with,
    dynamo_settings,
    no_collections,
    run_uncompiled_after_errors,
)
from workbench.compiler.frontend.fake_step import WRITES_HISTORY, StepRecorder, UnplannablePartError
from workbench.compiler.frontend.fx_to_thunder import (
    constants_of,
    erase_resets_of_determinism,
    find_refused_nodes,
    is_number_of_numpy,
    name_of,
    place_numbers,
    transform_change,
)
from workbench.compiler.frontend.gradient_paths import (
    OPERATORS,
    Run,
    detach_data,
    detach_inputs,
    drop_unused_gradients,
    inner_results,
    make_mixed_gradients_dense,
    reached_results,
    writes_in_place,
)
from workbench.compiler.frontend.inline_einops import inline_einops
from workbench.compiler.frontend.plain_flex_attention import erase_vmap
from workbench.compiler.interop import dynamo_patches, fake_gpu
from workbench.compiler.interop.backward_without_gpu import backward_without_gpu
from workbench.compiler.interop.dynamo_cleanup import Backend, forget, record_compiled, retry_skipped_functions
from workbench.compiler.interop.dynamo_patches import NumbersOfCalls
from workbench.compiler.lowering.alias_writes import merge_same
from workbench.compiler.trace.changing_numbers import UNKNOWN_NUMBER, find_unknown_numbers
from workbench.compiler.trace.equal_statements import branches_around, equal_statements_before
from workbench.compiler.trace.source_frames import Frame, is_resumed, place_of
from workbench.compiler.trace.stable_ids import file_label
from workbench.errors import WorkbenchError
from workbench.interop.torch_private import FakeTensorMode, dynamo_utils, split_module
from workbench.programs.files import describe_error
from workbench.programs.tensors import find_tensors

_OPENS, _CLOSES = "_enter_autocast", "_exit_autocast"
_SETS_GRAD = "_set_grad_enabled"

LIMIT = 1 << 20
"""Largest number of compilations of one function. If a program has graph breaks, Dynamo attaches compiled code to the
user's functions. All programs that call such a function therefore share its limit. With a low limit, a program would
run uncompiled without a message.
"""

_REHEARSALS = 3
"""Largest number of rehearsals of a step. A step in which Dynamo compiles is rehearsed again, because Dynamo's errors
keep frames of the program alive, with tensors that a later step frees. Some programs compile in each step, such as a
program with `losses.append(part(x))`: Dynamo checks that the list is the same object. In the last rehearsal, a garbage
collection after the forward removes these frames.
"""

_OTHER_PARTS = "other parts ran when the program was called again"


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of a program, as one graph. Thunder compiles the whole piece, or PyTorch runs it uncompiled.

    Attributes
    ----------
    graph : GraphModule
    key : str
        Key of the piece; independent of its shapes and lines.
    refusal : str
        Reason why Thunder refuses the piece; empty if Thunder does not refuse the piece.
    cut : str
        Reason why the program is cut after the piece; empty if the program returns there, or if `refusal` says why.
    source : str
        File and range of lines of the user's code.
    grad : bool
        Whether gradients are recorded while the piece runs. False in an optimizer's step.
    copied : tuple of str
        Names of the inputs that the piece reads from a copy, because the step later overwrites them.
    former_key : str
        Key of the piece in configs of earlier versions.
    """

    graph: fx.GraphModule
    key: str
    refusal: str
    cut: str
    source: str
    grad: bool = True
    copied: tuple[str, ...] = ()
    former_key: str = ""

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs of the graph."""
        return [node.name for node in self.graph.graph.find_nodes(op="placeholder")]

    @property
    def operators(self) -> int:
        """Number of operators of the piece."""
        return sum(node.op in OPERATORS for node in self.graph.graph.nodes)

    @property
    def operator_names(self) -> list[str]:
        """Names of the operators of the piece, without the nodes that unpack tuples."""
        nodes = [node for node in self.graph.graph.nodes if node.op in OPERATORS]
        return [name_of(node.target) for node in nodes if node.target is not operator.getitem]

    def run(self, *inputs: Any) -> Any:
        """Run the graph uncompiled. If an operator fails, only raise its error."""
        # The `__call__` of a graph would also print a traceback to stderr, and so would a `forward` without code.
        _ = self.graph.code
        return self.graph.forward(*inputs)


class GraphSplitter:
    """Cuts the graphs of one program as they arrive, and assigns keys to their pieces.

    Parameters
    ----------
    program : callable or torch.nn.Module
    known : collection of str, optional
        Keys of the pieces in a config. If it has only the former key of a piece, the piece gets its former key.
    """

    def __init__(self, program: Callable[..., Any], known: Collection[str] = ()) -> None:
        modules = program.named_modules() if isinstance(program, torch.nn.Module) else ()
        self._paths = {id(module): name for name, module in modules}
        self._seen: dict[str, list[str]] = {}
        self._known = {key.partition(".")[0] for key in known}

    def cut(
        self, graph: fx.GraphModule, inputs: Sequence[Any], runner: Callable[[Piece], Run], known: NumbersOfCalls
    ) -> Run:
        """Return a function that runs a graph piece by piece.

        Parameters
        ----------
        graph : GraphModule
        inputs : sequence
            Arguments of the graph.
        runner : callable
            Returns a function that runs a piece.
        known : NumbersOfCalls
            The numbers that the program has read so far.
        """
        numbers = numbers_apart(graph, inputs, known, whole=False)
        return numbers.around(self._cut(numbers.graph, numbers.inputs, runner))

    def _cut(self, graph: fx.GraphModule, inputs: Sequence[Any], runner: Callable[[Piece], Run]) -> Run:
        if not any(node.op in OPERATORS for node in graph.graph.nodes):
            return graph.forward
        erase_vmap(graph)
        inline_einops(graph)
        detach_data(graph)
        make_mixed_gradients_dense(graph.graph)
        place_numbers(graph)
        erase_resets_of_determinism(graph)
        merge_same(graph.graph)
        key, former, behind = self._key(graph), self._former_key(graph), reason_of(graph)
        if key not in self._known and former in self._known:
            key = former
        try:
            found = find_refused_nodes(graph, inputs)
        except WorkbenchError:
            raise
        except Exception as error:  # noqa: BLE001  # PyTorch runs the graph after any error of Thunder's rules
            told = f"Thunder cannot trace this graph: {describe_error(error)}"
            found = dict.fromkeys((node for node in graph.graph.nodes if node.op in OPERATORS), told)
        found |= dict.fromkeys(find_unknown_numbers(graph), UNKNOWN_NUMBER)
        _refuse_writes(graph, found)
        numbers = _number_pieces(graph, found)
        if len(set(numbers.values())) < 2:
            refusal, grad = next(iter(found.values()), ""), torch.is_grad_enabled()
            return runner(
                Piece(_with_own_tensors(graph), key, refusal, behind, source_of(graph), grad, former_key=former)
            )
        # Keep program order, because a write or a random draw may affect another piece without an edge in the graph.
        split = split_module(graph, graph, numbers.__getitem__, keep_original_order=True)
        names = list(dict.fromkeys(f"submod_{number}" for number in sorted(set(numbers.values()))))
        refusals = {f"submod_{numbers[node]}": reason for node, reason in reversed(found.items())}
        for at, name in enumerate(names):
            # Compiled and refused pieces alternate. A compiled piece is cut off because Thunder refuses the next piece.
            cut = behind if name == names[-1] else refusals.get(names[at + 1], "")
            inner = getattr(split, name)
            own, own_former = f"{key}.{at + 1}", f"{former}.{at + 1}"
            refusal, grad = refusals.get(name, ""), torch.is_grad_enabled()
            piece = Piece(inner, own, refusal, cut, source_of(inner), grad, former_key=own_former)
            setattr(split, name, _PieceSlot(runner(piece)))
        return split.forward

    def _key(self, graph: fx.GraphModule) -> str:
        # Equal graphs at different lines of the program need different keys, which do not depend on which graph runs
        # first. Use the functions of the lines, the branch in which the graph begins, and the order of lines with equal
        # code in the source. Number all others as they appear.
        numbers, operators, frames = self._describe(graph)
        functions = dict.fromkeys(frame.function for frame in frames)
        return self._digest(f"{numbers}{_branches_at_start()} {' '.join(functions)}\n{operators}", frames)

    def _former_key(self, graph: fx.GraphModule) -> str:
        # Before keys had functions and branches, equal graphs were numbered as they appeared.
        numbers, operators, frames = self._describe(graph)
        return self._digest(f"{numbers}{operators}", frames)

    def _describe(self, graph: fx.GraphModule) -> tuple[str, str, list[Frame]]:
        """Return the order of a graph's lines among lines with equal code, its operators, and their frames."""
        nodes = [node for node in graph.graph.nodes if node.op in OPERATORS]
        places = [place_of(node, self._paths) for node in nodes]
        operators = "\n".join(f"{scope}/{name_of(n.target)}" for n, (scope, _) in zip(nodes, places, strict=True))
        lines = dict.fromkeys((frame.file, frame.line) for _, frame in places)
        numbers = [equal_statements_before(file, line) for file, line in lines]
        return f"{' '.join(map(str, numbers))}\n" if any(numbers) else "", operators, [frame for _, frame in places]

    def _digest(self, told: str, frames: Sequence[Frame]) -> str:
        place = "\n".join(dict.fromkeys(f"{frame.file}:{frame.line}" for frame in frames))
        seen = self._seen.setdefault(told, [])
        if place not in seen:
            seen.append(place)
        return hashlib.sha256(f"{seen.index(place)}\n{told}".encode(errors="backslashreplace")).hexdigest()[:12]


def _branches_at_start() -> str:
    """Return the branches that contain the first instruction of the graph that Dynamo compiles; see `branches_around`.

    Dynamo compiles the rest of a function after a graph break as a function that jumps to this instruction.
    """
    code = next(iter(dynamo_utils.get_traced_code() or ()), None)
    if code is None or not is_resumed(code.co_name):
        return ""
    found = {each.offset: each.positions for each in dis.get_instructions(code)}
    jumps = (each.argval for each in dis.get_instructions(code) if each.opname.startswith("JUMP"))
    start = found.get(next(jumps, -1))
    if start is None or start.lineno is None:
        return ""
    return branches_around(code.co_filename, start.lineno, start.col_offset)


@dataclasses.dataclass(frozen=True)
class FirstPieceRun:
    """A piece, with the inputs of its first run in the program.

    Attributes
    ----------
    piece : Piece
    inputs : tuple
        Inputs of the first run, with fake tensors.
    calls : int
        Number of runs of the piece in one call of the program. 0 if the piece runs only in an optimizer's first step.
    """

    piece: Piece
    inputs: tuple[Any, ...]
    calls: int


def pieces_of(
    program: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    mode: FakeTensorMode,
    *,
    with_values: bool = False,
    breaks: bool = False,
) -> tuple[list[FirstPieceRun], RecordedStep | str]:
    """Find the pieces that a call of a program runs, and the tensors that are alive between the pieces.

    Parameters
    ----------
    program : callable or torch.nn.Module
        A copy of the user's program. It is called several times, and the Python code between its graphs runs.
    args, kwargs
        Copies of the user's arguments.
    mode : FakeTensorMode
        Mode of the fake tensors. With `with_values`, only the tensors in the result are fake.
    with_values : bool, optional
        Whether the tensors have values. Python code between graphs can then read these values.
    breaks : bool, optional
        Whether Dynamo is known to break the graph of the program.

    Returns
    -------
    pieces : list of FirstPieceRun
        The pieces, in the order in which they first run.
    recorded : RecordedStep or str
        Record of the tensors between the pieces, or the reason why these tensors are unknown.
    """
    codes: list[CodeType] = []
    numbers = NumbersOfCalls()
    for optimizer in () if with_values else find_tensors((program, args, kwargs)).optimizers:
        fake_gpu.make_state_fake(optimizer, mode)
    try:
        with record_compiled(codes.append), dynamo_patches.changed_numbers_as_inputs(numbers):
            return _pieces_of(program, args, kwargs, mode, with_values, breaks, codes, numbers)
    finally:
        forget(codes)


class _Marks:
    """What the rehearsals so far have found out about pieces.

    Attributes
    ----------
    refusals : dict of str to str
        Reasons why PyTorch must run a piece, by the key of the piece.
    copied : dict of str to set of int
        Places of the inputs of which a piece must read copies, by the key of the piece.
    """

    def __init__(self) -> None:
        self.refusals: dict[str, str] = {}
        self.copied: dict[str, set[int]] = {}

    def note(self, error: UnplannablePartError) -> None:
        """Note why a part cannot be planned as it is."""
        before = self.copied.setdefault(error.part, set())
        if before.issuperset(error.overwritten):
            self.refusals[error.part] = error.reason
        before.update(error.overwritten)

    def marked(self, piece: Piece) -> Piece:
        """Return a piece with its marks."""
        if piece.key in self.refusals:
            return dataclasses.replace(piece, refusal=piece.refusal or self.refusals[piece.key])
        if piece.key in self.copied:
            names = piece.input_names
            return dataclasses.replace(piece, copied=tuple(names[at] for at in sorted(self.copied[piece.key])))
        return piece


def _pieces_of(
    program: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    mode: FakeTensorMode,
    with_values: bool,
    breaks: bool,
    codes: Sequence[CodeType],
    numbers: NumbersOfCalls,
) -> tuple[list[FirstPieceRun], RecordedStep | str]:
    found: dict[str, FirstPieceRun] = {}
    rehearsal: StepRecorder | None = None
    cutter, marks = GraphSplitter(program), _Marks()

    # Dynamo compiles the program once. A rehearsal may then find that PyTorch must run a piece, or that the piece must
    # read copies, so each call of a piece looks at the marks.
    def runner(cut: Piece) -> Run:
        def run_marked(*given: Any) -> Any:
            return run_of(marks.marked(cut))(*given)

        @functools.cache
        def run_of(piece: Piece) -> Run:
            run = functools.partial(run_piece, piece)
            if piece.refusal:
                return run
            return copy_inputs(piece, _refuse_history_writes(piece.key, detach_inputs(piece.graph, run)))

        return run_marked

    def run_piece(piece: Piece, *given: Any) -> Any:
        if rehearsal is not None:
            return _rehearse_piece(rehearsal, piece, given, found)
        known = found.get(piece.key)
        if known is not None:
            found[piece.key] = dataclasses.replace(known, calls=known.calls + 1)
        else:
            found[piece.key] = FirstPieceRun(piece, _fake(given, mode) if with_values else given, 1)
        with nullcontext() if with_values else mode:
            return piece.run(*given)

    def act(graph: fx.GraphModule, inputs: Sequence[Any]) -> Run:
        return cutter.cut(graph, inputs, runner, numbers)

    optimizers = find_tensors((program, args, kwargs)).optimizers
    with ExitStack() as inside:
        inside.enter_context(dynamo_settings(LIMIT))
        inside.enter_context(no_collections())
        inside.enter_context(dynamo_patches.graph_breaks_in_loops())
        if with_values:
            inside.enter_context(run_uncompiled_after_errors())
        else:
            inside.enter_context(dynamo_patches.fake_operators_uncompiled())
            # Tensors that the program creates between its graphs are real.
            inside.enter_context(fake_gpu.takes_real_tensors(mode))
            inside.enter_context(backward_without_gpu(mode))
        call = compile_with(program, Backend(ref(act)), fullgraph=False, breaks=breaks)
        retry_skipped_functions()
        while True:
            found, rehearsal = {}, None
            try:
                call(*args, **kwargs)
                first = found
                if optimizers:
                    # The first step of an optimizer creates the optimizer's state, and may differ from all later steps.
                    # Record the pieces of a second step.
                    found = {}
                    call(*args, **kwargs)
                varies = False
                for left in reversed(range(_REHEARSALS)):
                    compiled = len(codes)
                    # The step may replace a tensor that the program holds, such as an activation that a hook keeps.
                    held = [weakref.ref(each) for each in find_tensors((program, args, kwargs)).tensors.values()]
                    _clear_gradients(held)
                    rehearsal = StepRecorder(None if with_values else mode, _alive(held))
                    rehearsed = functools.partial(call if left else _collected(call), *args, **kwargs)
                    recorded = _rehearse_step(rehearsal, rehearsed, bool(optimizers), found)
                    varies |= recorded == _OTHER_PARTS
                    _clear_gradients(held)
                    if len(codes) == compiled:
                        break
            except UnplannablePartError as error:
                marks.note(error)
            else:
                if varies and not isinstance(recorded, str):
                    recorded = dataclasses.replace(recorded, varies=True)
                rest = (dataclasses.replace(seen, calls=0) for key, seen in first.items() if key not in found)
                return [*found.values(), *rest], recorded


def copy_inputs(piece: Piece, run: Run) -> Run:
    """Return a function that runs a piece, and passes it copies of the inputs in `Piece.copied`.

    The step overwrites these inputs before the backward of the piece, and a backward that recomputes reads inputs.
    """
    if not piece.copied:
        return run
    own = [name in piece.copied for name in piece.input_names]
    return lambda *given: run(*(value.clone() if copies else value for value, copies in zip(given, own, strict=True)))


def _fake(values: Sequence[Any], mode: FakeTensorMode) -> tuple[Any, ...]:
    return tuple(_fake_of(value, mode) if isinstance(value, torch.Tensor) else value for value in values)


def _fake_of(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    with suppress(AssertionError):
        known = mode.from_tensor(tensor)
        if known.requires_grad is tensor.requires_grad:
            return known
    # The mode knows this tensor, or the tensor that it views, from before a write that gave it a gradient.
    return mode.from_tensor(tensor.detach().requires_grad_(tensor.requires_grad))


def _alive(tensors: Iterable[weakref.ref[torch.Tensor]]) -> list[torch.Tensor]:
    return [tensor for reference in tensors if (tensor := reference()) is not None]


def _clear_gradients(tensors: Iterable[weakref.ref[torch.Tensor]]) -> None:
    for tensor in _alive(tensors):
        if tensor.is_leaf:
            tensor.grad = None


def _collected(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `call`, and then removes the frames that are only in cycles."""

    def collected(*args: Any, **kwargs: Any) -> Any:
        made = call(*args, **kwargs)
        gc.collect()
        return made

    return collected


def _rehearse_piece(
    rehearsal: StepRecorder, piece: Piece, inputs: Sequence[Any], runs: Mapping[str, FirstPieceRun]
) -> Any:
    if piece.refusal:
        transforms = any(map(transform_change, piece.graph.graph.nodes))
        return rehearsal.run_opaque(piece.key, lambda: piece.run(*inputs), transforms=transforms)
    paths = reached_results(piece.graph), inner_results(piece.graph)
    planned = runs[piece.key].inputs if piece.key in runs else None
    return rehearsal.run(piece.key, piece.run, inputs, constants_of(piece.graph), *paths, planned)


def _rehearse_step(
    rehearsal: StepRecorder, call: Callable[[], Any], takes_steps: bool, runs: Mapping[str, FirstPieceRun]
) -> RecordedStep | str:
    """Return a record of the tensors between the parts of a step, or the reason why they are unknown."""
    try:
        rehearsal.step(call, takes_steps)
    except UnplannablePartError:
        raise
    except Exception as error:  # noqa: BLE001  # the program's own code may raise any error when it is called again
        return f"{type(error).__name__}: {str(error).partition('\n')[0]}"
    recorded = rehearsal.recorded_step()
    ran = Counter(event.part for event in recorded.events if isinstance(event, Forward))
    known = Counter({key: seen.calls for key, seen in runs.items() if not seen.piece.refusal})
    if ran != known or not set(recorded.opaque) <= runs.keys():
        return _OTHER_PARTS
    return recorded


def _refuse_history_writes(key: str, run: Run) -> Run:
    """Return a function that runs a piece, and raises an error if it writes into an argument that has a `grad_fn`."""

    def checked(*given: Any) -> Any:
        recorded = [value for value in given if isinstance(value, torch.Tensor) and value.grad_fn is not None]
        before = [value._version for value in recorded]
        made = run(*given)
        if before != [value._version for value in recorded]:
            raise UnplannablePartError(key, WRITES_HISTORY)
        return made

    return checked


class CompiledParts(DynamoCompiled):
    """A program of several graphs whose pieces are compiled when the program is called.

    Parameters
    ----------
    program : callable or torch.nn.Module
    compiler_of : callable
        Returns the compiler for a piece, or None if PyTorch runs the piece uncompiled.
    observer : optional
        Receives the seconds that Dynamo takes, as the stage ``capture``.
    modes : mapping of str to str, optional
        PyTorch's modes in each call, as in `workbench.core.config.MODES`.
    planned : bool, optional
        Whether each piece with a compiler has a plan. If false, a piece that Thunder fails to trace runs uncompiled.
    copied : mapping of str to sequence of str, optional
        The value of `Piece.copied` for each piece of the config, by its key.

    Attributes
    ----------
    jitted : list
        Results of `thunder.jit` for the pieces that were compiled so far.
    uncompiled : list of str
        Names of the operators in the pieces that PyTorch runs uncompiled.
    opaque : set of str
        Keys of the pieces that PyTorch runs uncompiled.
    timer : callable, optional
        Called in place of each piece, with the key of the piece, its function and its inputs.
    """

    _whole = False
    _limit = LIMIT

    def __init__(
        self,
        program: Callable[..., Any],
        compiler_of: Callable[[Piece], Compiler | None],
        observer: Any = None,
        modes: Mapping[str, str] = MappingProxyType({}),
        *,
        planned: bool = True,
        copied: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self.jitted: list[Any] = []
        self._planned = planned
        self.uncompiled: list[str] = []
        self.opaque: set[str] = set()
        self.timer: Callable[[str, Run, Sequence[Any]], Any] | None = None
        self._compiler_of, self._copied = compiler_of, copied
        dynamo_patches.run_backward_outside_dynamo()
        self._cutter = GraphSplitter(program, copied)
        self._runs: list[Run] = []
        super().__init__(program, lambda function: function, observer, modes)

    def _compile(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Run:
        run = self._cutter.cut(graph, inputs, self._runner, self._numbers)
        if self._observer is not None:
            self._observer.stage("capture", time.perf_counter() - self._since)
        return run

    def _runner(self, piece: Piece) -> Run:
        number, owner, key = len(self._runs), ref(self), piece.key
        self._runs.append(self._lazy_run(piece))

        # Dynamo keeps `run` as long as the user's function exists, so `run` refers to this object only weakly.
        def run(*given: Any) -> Any:
            known = owner()
            assert known is not None, "the owner of the compiled function no longer exists"
            if known.timer is not None:
                return known.timer(key, known._runs[number], given)
            return known._runs[number](*given)

        return run

    def _lazy_run(self, piece: Piece) -> Run:
        compiler = self._compiler_of(piece)
        copied = tuple(self._copied.get(piece.key, ()))
        if compiler is None or not set(copied).issubset(piece.input_names):
            return self._run_uncompiled(piece)
        piece = dataclasses.replace(piece, copied=copied)
        number = len(self._runs)

        def first(*given: Any) -> Any:
            run = self._compile_piece(piece, compiler, given)
            self._runs[number] = copy_inputs(piece, run)
            return run(*given)

        return copy_inputs(piece, first)

    def _run_uncompiled(self, piece: Piece) -> Run:
        self.uncompiled += piece.operator_names
        self.opaque.add(piece.key)
        return piece.run

    def _compile_piece(self, piece: Piece, compiler: Compiler, inputs: Sequence[Any]) -> Run:
        whole = prepare_graph(self._program, *self._given, piece.graph, inputs)
        jitted, constants = compiler(whole.function), whole.inputs[len(inputs) :]
        if not self._planned:
            try:
                jitted._lc_cd.get_computation_and_inputs(*whole.inputs)
            except WorkbenchError:
                raise
            except Exception:  # noqa: BLE001  # PyTorch runs the piece after any error of Thunder's rules
                return self._run_uncompiled(piece)
        self.jitted.append(jitted)
        (output,) = piece.graph.graph.find_nodes(op="output")
        run = drop_unused_gradients(piece.graph, (lambda *values: jitted(*values, *constants)) if constants else jitted)
        run = detach_outputs(piece.graph, run)
        if not isinstance(output.args[0], tuple | list):
            # A piece of a cut graph returns a single result without a tuple, but `run` returns a tuple.
            return detach_inputs(piece.graph, lambda *values: run(*values)[0])
        return detach_inputs(piece.graph, run)


def parts_of(compiled: Any) -> CompiledParts | None:
    """Return the `CompiledParts` of a compiled function or module; None if it was not compiled in parts."""
    found = getattr(compiled, "_compiled", compiled)
    return found if isinstance(found, CompiledParts) else None


class _PieceSlot(torch.nn.Module):
    """A submodule of a split graph. It calls the function that runs one piece."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.__dict__["run"] = run

    def forward(self, *args: Any) -> Any:
        return self.__dict__["run"](*args)


def source_of(graph: fx.GraphModule) -> str:
    """Return the first file of user code in a graph, with the range of the graph's lines; empty if unknown."""
    frames = [place_of(node, {})[1] for node in graph.graph.nodes if node.op in OPERATORS]
    known = [frame for frame in frames if frame.line]
    if not known:
        return ""
    file = known[0].file
    lines = [frame.line for frame in known if frame.file == file]
    ends = f"{min(lines)}" if min(lines) == max(lines) else f"{min(lines)}-{max(lines)}"
    return f"{file_label(file)}:{ends}"


def _with_own_tensors(graph: fx.GraphModule) -> fx.GraphModule:
    """Return a graph that keeps its tensors. Dynamo's graph loses those of an optimizer that the program frees."""
    if not graph.graph.find_nodes(op="get_attr"):
        return graph
    made = fx.GraphModule(graph, graph.graph)
    made.meta = graph.meta
    return made


def _refuse_writes(graph: fx.GraphModule, refusals: dict[fx.Node, str]) -> None:
    """Refuse an operator that writes into the result of a refused operator, for the same reason.

    PyTorch then runs both operators in one piece, and the other operators can be compiled.
    """
    for node in filter(writes_in_place, graph.graph.nodes):
        if reason := next((refusals[other] for other in node.all_input_nodes if other in refusals), ""):
            refusals.setdefault(node, reason)


def _number_pieces(graph: fx.GraphModule, refusals: Mapping[fx.Node, str]) -> dict[fx.Node, int]:
    """Return, for each operator of a graph, the number of the piece that contains the operator.

    If an operator writes into a result of a different piece, the graph cannot be cut and is one piece.
    """
    numbers: dict[fx.Node, int] = {}
    number, last = 0, None
    numbers_of_numpy: list[fx.Node] = []
    for region in _regions(graph):
        taken = refusals.keys().isdisjoint(region)
        for node in region:
            read = node.all_input_nodes
            if node.target is operator.getitem and len(read) == 1 and node.args[0] is read[0] and read[0] in numbers:
                # An operator that unpacks the tuple of another operator belongs to the same piece.
                numbers[node] = numbers[read[0]]
                continue
            if node not in refusals and is_number_of_numpy(node):
                numbers_of_numpy.append(node)
                continue
            number += last is not None and taken is not last
            last = taken
            numbers[node] = number
    for node in reversed(numbers_of_numpy):  # `place_numbers` has given each number a single reader
        numbers[node] = numbers[next(iter(node.users))]
    if any(_writes_elsewhere(node, numbers) for node in numbers):
        return dict.fromkeys(numbers, 0)
    return numbers


def _regions(graph: fx.GraphModule) -> Iterator[list[fx.Node]]:
    """Yield the operators of a graph in order: alone, or from one that changes a mode to one that restores the mode."""
    outside, grad, depth = torch.is_grad_enabled(), torch.is_grad_enabled(), 0
    region: list[fx.Node] = []
    for node in graph.graph.nodes:
        if node.op not in OPERATORS:
            continue
        region.append(node)
        name = getattr(node.target, "__name__", "")
        if name == _SETS_GRAD:
            grad = bool(node.args[0])
        depth += (name == _OPENS) - (name == _CLOSES) + transform_change(node)
        if grad is outside and depth <= 0:
            yield region
            region = []
    if region:
        yield region


def _writes_elsewhere(node: fx.Node, numbers: Mapping[fx.Node, int]) -> bool:
    """Return whether an operator writes in place and has an input from a different piece."""
    if not writes_in_place(node):
        return False
    return any(numbers.get(other, numbers[node]) != numbers[node] for other in node.all_input_nodes)
