"""Trace a program once without executing it. The result is a `Capture`, or a `PartsCapture` with several graphs."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
import sysconfig
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from workbench.analysis.equivalence.prove import Prover
from workbench.analysis.memory.multi_graph_memory import RecordedStep
from workbench.compiler.frontend import dynamo, fake_process_group, interpreter_checks, sharded_graphs
from workbench.compiler.frontend import graph_breaks as parts
from workbench.compiler.frontend.fx_to_thunder import count_checkpoints
from workbench.compiler.frontend.trace_errors import FAILS, is_final, remedy
from workbench.compiler.interop import devices, fake_gpu, source_file, thunder_api, thunder_patches
from workbench.compiler.interop.gc_pause import paused_gc
from workbench.compiler.interop.thunder_api import (
    PrimIDs,
    TraceCtx,
    Transform,
    compile_data,
    langctxs,
)
from workbench.compiler.layers.partition import LayerMismatch, ReducedTrace
from workbench.compiler.lowering import custom_ops, patch_context
from workbench.compiler.pipeline.compilation import Executed, Hooks, TraceClaimed, execution_traces, fingerprint
from workbench.compiler.pipeline.lever_context import LeverContext
from workbench.compiler.pipeline.stage_log import StageLog, StageTime
from workbench.compiler.trace.bsym_memo import PlanMemo
from workbench.compiler.trace.lazy_value import LazyValue
from workbench.compiler.trace.stable_ids import line_prefix
from workbench.core.graph import Origin
from workbench.errors import ProgramError, WorkbenchError, short_repr
from workbench.interop.torch_private import FakeTensorMode, _autograd, _functorch_depth, _functorch_pop
from workbench.programs import Program, modes, placement
from workbench.programs.files import describe_error
from workbench.programs.tensors import find_tensors, state_of
from workbench.util.planning_lock import one_at_a_time, planned_property

if TYPE_CHECKING:
    from workbench.compiler.driver.capture_cache import CacheEntry
    from workbench.compiler.planner.planner import BasePlan

_REASONS = 3
"""Largest number of layers for which a message gives the reason why they were traced separately."""


@contextmanager
def _thunder_state(data: Any, stats: Any, cache_info: Mapping[str, Any]) -> Iterator[None]:
    """In this context, Thunder has the state of the compilation of a program."""
    token = thunder_api._cache_info_ctx.set(dict(cache_info))
    try:
        with langctxs.langctx(data.langctx), compile_data.compile_data_and_stats(data, stats):
            yield
    finally:
        thunder_api._cache_info_ctx.reset(token)


@contextmanager
def _end_transforms() -> Iterator[None]:
    """At the end of this context, end `torch.func` transforms that an untraceable program has left open.

    Without this, later PyTorch code would run inside of these transforms.
    """
    depth = _functorch_depth()
    refused = _autograd._saved_tensors_hooks_get_disabled_error_message()
    try:
        yield
    finally:
        while _functorch_depth() > depth:
            _functorch_pop()
        # An open derivative has disabled saved-tensor hooks, which checkpoints need.
        if refused is None:
            _autograd._saved_tensors_hooks_enable()


@dataclasses.dataclass
class Planned:
    """Results of planning a captured program so far. Only the thread that holds `PLANNING` may change them.

    Attributes
    ----------
    stock : (StageLog, Executed) or None
        The execution traces without choices, with the times to make them. The first stock plan takes them; otherwise
        None.
    prover : Prover or None
        Proves that plans compute the same as the stock plan.
    bases : OrderedDict
        Maps choices to the base plan under these choices.
    entry : CacheEntry or None
        Entry of the disk cache to write after the stock plan; None if the program came from disk, or is not cached.
    on_disk : str
        Cache status: the program came from disk, is cached, or is not cached for a stated reason.
    """

    stock: tuple[StageLog, Executed] | None = None
    prover: Prover | None = None
    bases: OrderedDict[tuple[tuple[str, str], ...], BasePlan] = dataclasses.field(default_factory=OrderedDict)
    entry: CacheEntry | None = None
    on_disk: str = ""


@dataclasses.dataclass(frozen=True)
class Capture:
    """A program of one graph that was traced once, with its joint trace.

    Attributes
    ----------
    program : Program
    executor : str
    staged : LazyValue of LeverContext
        Context of the joint trace.
    origins : tuple of Origin
    stages : tuple of StageTime
        Times of the stages in which the program was traced.
    ranks : Ranks or None
    way : {'dynamo', 'interpreter', 'parts'}
        Name of the front end that traced the program.
    why : str
        Reason why this front end was used.
    few : LeverContext or None
        Context of the program without repeated layers, if exactly one run of layers was removed.
    reduced : ReducedTrace or None
        The program without these layers, and what is needed to add them again.
    told : tuple of str or None
        The value of `doubts`, if it was read from disk.
    kept : PlanMemo
        Cached facts about statements, which all plans share.
    planned : Planned
        Results of planning; the only part of a capture that changes.
    """

    program: Program
    executor: str
    staged: LazyValue[LeverContext]
    origins: tuple[Origin, ...]
    stages: tuple[StageTime, ...]
    ranks: fake_process_group.Ranks | None
    _compile_data: Any
    _compile_stats: Any
    _cache_info: dict[str, Any]
    way: str = "interpreter"
    why: str = ""
    few: LeverContext | None = None
    reduced: ReducedTrace | None = None
    told: tuple[str, ...] | None = None
    kept: PlanMemo = dataclasses.field(default_factory=PlanMemo)
    planned: Planned = dataclasses.field(default_factory=Planned)

    @contextmanager
    def thunder_state(self) -> Iterator[None]:
        """In this context, Thunder has the state in which the program was traced."""
        with (
            patch_context.install_patches(),
            modes.active_modes(self.program.modes),
            fake_gpu.found_on_meta() if self.program.fake_mode is not None else nullcontext(),
            _thunder_state(self._compile_data, self._compile_stats, self._cache_info),
        ):
            yield

    @property
    def stage(self) -> LeverContext:
        """Input of levers, with all layers. Repeated layers are added at the first access."""
        return self.staged.value

    @property
    def arguments(self) -> Mapping[str, torch.Tensor]:
        """Tensors of the trace's arguments, by name."""
        return (self.few or self.stage).arguments

    @property
    def initial(self) -> TraceCtx:
        """The first trace of the program, before any transform."""
        first: TraceCtx = self._compile_stats.last_traces[0]
        return first

    @planned_property
    def doubts(self) -> tuple[str, ...]:
        """Sentences on results that are probably wrong; see `frontend.interpreter_checks.doubts`."""
        if self.told is not None or self.way != "interpreter":
            return self.told or ()
        with modes.active_modes(self.program.modes):
            return tuple(interpreter_checks.doubts(self.initial))

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the ids of the program's origins."""
        return fingerprint(self.origins)


@dataclasses.dataclass(frozen=True)
class PartCapture:
    """A part of a program of several graphs.

    Attributes
    ----------
    name : str
        ``part1``, ``part2``, … in the order in which the parts first run.
    piece : Piece
    calls : int
        Number of times that one call of the program runs the part.
    refusal : str
        Reason why PyTorch runs the part uncompiled; empty if Thunder compiles the part.
    captured : Capture or None
        None if PyTorch runs the part.
    """

    name: str
    piece: parts.Piece
    calls: int
    refusal: str
    captured: Capture | None


@dataclasses.dataclass(frozen=True)
class PartsCapture:
    """A program of several graphs, each traced once.

    Attributes
    ----------
    program : Program
    executor : str
    parts : tuple of PartCapture
    why : str
        Reason why the program was captured in parts.
    recorded : RecordedStep or str
        The tensors that are alive between the parts, or the reason why they are unknown.
    """

    program: Program
    executor: str
    parts: tuple[PartCapture, ...]
    why: str
    recorded: RecordedStep | str

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the parts, without lines and shapes."""
        keys = "\n".join(part.piece.key for part in self.parts)
        return hashlib.sha256(keys.encode()).hexdigest()[:16]


@one_at_a_time
@paused_gc()
def capture(
    program: Program,
    executor: str,
    ranks: fake_process_group.Ranks | None = None,
    front_end: str = "interpreter",
    entry: CacheEntry | None = None,
) -> Capture | PartsCapture:
    """Trace a program once without executing it.

    Parameters
    ----------
    program : Program
    executor : str
    ranks : Ranks, optional
        Ranks that share the program. It is traced as on rank 0; processes of the other ranks are not needed.
    front_end : {'auto', 'dynamo', 'interpreter', 'parts'}
        Front end; see `workbench.open`.
    entry : CacheEntry, optional
        Entry of the disk cache; this function adds the functions that tracing visits.

    Raises
    ------
    ProgramError
        If the front end cannot trace the program; the message contains the reason.
    """
    if front_end == "interpreter":
        return _capture(program, executor, ranks, front_end, "asked for", entry)
    if front_end == "parts" and ranks is not None:
        raise ProgramError(
            "capture='parts' is for programs of one process, but ranks share this program: use capture='auto'"
        )
    if front_end == "dynamo":
        return _capture(program, executor, ranks, front_end, "asked for", entry)
    if front_end == "parts":
        return _capture_parts(program, executor, "asked for")
    try:
        return _capture(program, executor, ranks, "dynamo", "Dynamo gives the whole program as one graph", entry)
    except ProgramError as first:
        return _capture_fallback(program, executor, ranks, first, entry)


def _capture_fallback(
    program: Program,
    executor: str,
    ranks: fake_process_group.Ranks | None,
    first: ProgramError,
    entry: CacheEntry | None,
) -> Capture | PartsCapture:
    """Capture a program in parts, or else with the interpreter, after Dynamo and Thunder refused it as one graph."""
    in_parts = None
    takes_steps = bool(find_tensors(program.callable).optimizers)
    if ranks is None and not is_final(str(first), takes_steps):
        try:
            why = "a training step is split at its backward" if takes_steps else f"not as one graph: {first}"
            in_parts = _capture_parts(program, executor, why)
        except ProgramError:
            if takes_steps:
                raise
    if in_parts is not None and any(part.captured for part in in_parts.parts):
        return in_parts
    try:
        return _capture(program, executor, ranks, "interpreter", f"not by Dynamo: {first}", entry)
    except ProgramError as second:
        if remedy(str(first)) or remedy(str(second)) or FAILS in str(first):
            raise first from second
        raise ProgramError(f"{first}\nThunder's interpreter cannot trace it either: {second}") from first


def _read_remedy(program: Program, error: BaseException) -> str:
    """Return advice for a program that reads tensor values between its graphs, according to the code that reads."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if any("/torch/optim/" in file and not file.endswith("optimizer.py") for file in files):
        names = sorted({type(each).__name__ for each in find_tensors(program.callable).optimizers})
        return (
            f"{' or '.join(names)} reads values in its step: open the part that returns the loss, and call "
            "loss.backward() and the optimizer's step() outside"
        )
    return (
        "it reads tensor values between graphs: stay in tensors, as torch.where does, or pass the values to the program"
    )


@_end_transforms()
def _capture_parts(program: Program, executor: str, why: str) -> PartsCapture:
    """Run a program with fake tensors and Dynamo, and trace each graph that Dynamo finds.

    Raises
    ------
    ProgramError
        If the program reads values of tensors, which fake tensors do not have, or if it contains no operator.
    """
    mode = program.fake_mode or FakeTensorMode()
    function, args, kwargs = program.callable, program.args, program.kwargs
    try:
        if program.fake_mode is None:
            with mode:
                given = (function, args, kwargs)
                function, args, kwargs = placement.place_objects(given, placement.torch_device(program.device))
        # Print the program's own output to stderr, so that it is not in the output of a command.
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            # A copy of the optimizer takes the step, so a scheduler of the user's optimizer would warn.
            warnings.filterwarnings("ignore", r"(?s).*`optimizer\.step\(\)`.*`lr_scheduler\.step\(\)`", UserWarning)
            found, recorded = parts.pieces_of(function, args, kwargs, mode)
    except WorkbenchError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the program's own code may raise any error, and exit
        if failed := dynamo.failed_operator(error):
            raise ProgramError(failed) from error
        told = remedy(describe_error(error)) or _read_remedy(program, error)
        raise ProgramError(
            f"{short_repr(program.name)} cannot be opened in parts: {told} ({describe_error(error)})"
        ) from error
    if not found:
        raise ProgramError(f"{short_repr(program.name)} cannot be opened in parts: Dynamo found no operator in it")
    made = []
    for at, seen in enumerate(found):
        captured, refusal = None, seen.piece.refusal
        name = f"part{at + 1}"
        if not refusal:
            whole = dynamo.prepare_graph(function, args, kwargs, seen.piece.graph, seen.inputs)
            kept = seen.piece.grad or "grad" in program.modes
            own = program.spec.get("modes", {}) | ({} if kept else {"grad": "off"})
            part = dataclasses.replace(
                program,
                name=f"{program.name} {name}",
                callable=whole.function,
                args=whole.inputs,
                kwargs={},
                spec={**program.spec, "modes": own},
            )
            try:
                captured = _capture(part, executor, None, "graph", why)
            except ProgramError as error:
                refusal = str(error)
        made.append(PartCapture(name, seen.piece, seen.calls, refusal, captured))
    if not isinstance(recorded, str):
        recorded = recorded.with_part_names({part.piece.key: part.name for part in made})
    return PartsCapture(program, executor, tuple(made), why, recorded)


def _refuse_backward_hooks(function: Any) -> None:
    """Refuse modules with backward hooks. Thunder's interpreter ignores such hooks, so gradients would be wrong."""
    for name, module in function.named_modules() if isinstance(function, torch.nn.Module) else ():
        if module._backward_hooks or module._backward_pre_hooks:
            told = f"the module {name or type(module).__name__} has backward hooks, which Thunder does not call"
            raise ProgramError(f"{told}: {remedy('backwards hooks require compiled autograd')}")


@_end_transforms()
def _capture(
    program: Program,
    executor: str,
    ranks: fake_process_group.Ranks | None,
    front_end: str,
    why: str,
    entry: CacheEntry | None = None,
) -> Capture:
    if front_end == "interpreter":
        _refuse_backward_hooks(program.callable)
    few_layers = ranks is None and front_end != "interpreter"
    try:
        return _capture_once(program, executor, ranks, front_end, why, entry, few_layers=few_layers)
    except LayerMismatch as mismatch:
        why += f"; each layer is differentiated separately: in the joint trace, {mismatch}"
        return _capture_once(program, executor, ranks, front_end, why, entry, few_layers=False)


def _capture_once(
    program: Program,
    executor: str,
    ranks: fake_process_group.Ranks | None,
    front_end: str,
    why: str,
    entry: CacheEntry | None,
    *,
    few_layers: bool,
) -> Capture:
    """Capture a program of one graph. With `few_layers`, trace only one of several equal layers."""
    log = StageLog()
    kept = PlanMemo()
    hooks = Hooks(executor, {}, log, ranks.parallel if ranks is not None else "", kept)
    hooks.until_claimed, hooks.few_layers = True, few_layers
    try:
        with ExitStack() as inside:
            inside.enter_context(patch_context.install_patches())
            inside.enter_context(modes.active_modes(program.modes))
            if program.fake_mode is not None:
                inside.enter_context(devices.planned_gpu(program.fake_mode))
            transforms = hooks.transforms()
            sharing: Sequence[Transform] = ()
            if ranks is not None:
                sharing = inside.enter_context(fake_process_group.fake_group(ranks, program.callable, program.device))
            function, args, kwargs = program.callable, program.args, program.kwargs
            given_back: tuple[torch.Tensor, ...] = ()
            if front_end == "dynamo":
                hooks.restart()
                if ranks is not None:
                    sharing = _sharing_transforms(program, sharing)
                whole = dynamo.whole_graph(function, args, kwargs, shared=ranks is not None)
                function, args, kwargs = whole.function, whole.inputs, {}
                given_back = whole.beside
                if entry is not None:
                    entry.codes.update(whole.codes)
                    entry.operators.update(custom_ops.operator_names(whole.graph))
                if count := count_checkpoints(whole.graph):
                    regions = "1 region is" if count == 1 else f"{count} regions are"
                    why += (
                        f"; {regions} checkpointed by torch.utils.checkpoint: there, results, random draws and values "
                        "that a policy saves have sites of all levers. All other values are recomputed in the backward "
                        "and have only remat sites. To choose what is saved, open the model without checkpoints"
                    )
                if whole.written.modules:
                    why += f"; {whole.written} reuse another module's trace"
                if reasons := whole.written.reasons:
                    traced = [f"{path}: {reason}" for path, reason in list(reasons.items())[:_REASONS]]
                    more = f", and {len(reasons) - _REASONS} more" if len(reasons) > _REASONS else ""
                    why += f"; traced separately: {'; '.join(traced)}{more}"
                hooks.mark("capture")
            transforms[1:1] = sharing
            jitted = patch_context.jit(function, executors=hooks.executors(), transforms=transforms)
            hooks.restart()
            if front_end == "interpreter":
                inside.enter_context(interpreter_checks.refuse_policies())
            drawn = interpreter_checks.refuse_outside_draws() if front_end == "interpreter" else nullcontext()
            with (
                drawn,
                suppress(TraceClaimed),
                thunder_patches.record_functions() as functions,
                thunder_patches.trace_for_plan(),
            ):
                jitted._lc_cd.get_computation_and_inputs(*args, **kwargs)
            with _thunder_state(jitted._lc_cd, jitted._lc_cs, hooks.cache_info):
                inputs, _ = jitted._lc_cs.last_prologue(*args, **kwargs)
            unread = _unread_tensors(program, jitted, inputs)
        assert hooks.stage is not None
        if hooks.reduced:
            why += f"; gradients of {', '.join(map(str, hooks.reduced))} reuse those of others"
        if entry is not None:
            entry.functions.update(functions)
        if front_end == "interpreter":
            interpreter_checks.refuse_lost(jitted._lc_cs.last_traces[0])
        names = [
            out.name
            for b in jitted._lc_cs.last_traces[0].bound_symbols
            if b.sym.id is PrimIDs.UNPACK_TRIVIAL
            for out in b.flat_proxy_outs
        ]
        arguments = {n: t for n, t in zip(names, inputs, strict=True) if isinstance(t, torch.Tensor)}
        if front_end == "interpreter":
            interpreter_checks.refuse_written_leaves(jitted._lc_cs.last_traces[0], arguments)
        beside = frozenset(n for n, t in arguments.items() if any(t is each for each in given_back))
        stage = hooks.stage.with_tensors(arguments, unread, beside)
        made = (jitted._lc_cd, jitted._lc_cs, hooks.cache_info)
        front_end = "parts" if front_end == "graph" else front_end
        origins, times = stage.origins, tuple(log.times)
        alone = len(hooks.reduced) == 1
        captured = Capture(
            program,
            executor,
            LazyValue(lambda: stage),
            origins,
            times,
            ranks,
            *made,
            front_end,
            why,
            few=stage.few if alone else None,
            reduced=hooks.reduced[0] if alone else None,
            kept=kept,
        )
        # Make the execution traces without choices. If this fails, the caller tries a different front end.
        with captured.thunder_state():
            log = StageLog()
            found = execution_traces(Hooks(executor, {}, log, memo=kept), captured.stage)
            captured.planned.stock = log, found
        if front_end == "interpreter":
            interpreter_checks.refuse_unsaved(jitted._lc_cs.last_traces[0], found.forward, found.backward)
        interpreter_checks.refuse_unread(jitted._lc_cs.last_traces[0], found.backward)
        return captured
    except (WorkbenchError, LayerMismatch, KeyboardInterrupt):
        raise
    except BaseException as error:  # the program's own code may raise any error, and exit
        reentrant = interpreter_checks.reentrant_reason(error) if front_end == "interpreter" else ""
        reason = reentrant or describe_error(error)
        advice = remedy(reason)
        message = f"{advice} ({reason})" if advice else reason
        where = _user_line(error) if front_end == "interpreter" else ""
        raise ProgramError(f"{where}Thunder cannot trace {short_repr(program.name)}: {message}") from error


def _sharing_transforms(program: Program, transforms: Sequence[Transform]) -> Sequence[Transform]:
    """Return the transforms that share Dynamo's graph of a program among ranks."""
    assert isinstance(program.callable, torch.nn.Module)
    if sharded_graphs.changes_device(program.callable, transforms):
        raise ProgramError("its parameters or buffers are not on the device of the rank")
    return sharded_graphs.ShardedModule(program.callable, transforms).transforms


_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_COMPILER = os.path.dirname(os.path.dirname(__file__)) + os.sep


def _user_line(error: BaseException) -> str:
    """Return the beginning of a message about the user's line that raised `error`; empty if the line is not known."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not source_file.is_library(frame.filename)
        and not frame.filename.startswith(_COMPILER)
        and ("site-packages" in frame.filename or not frame.filename.startswith(_STDLIB))
    ]
    return line_prefix(own[-1].filename, own[-1].lineno or 0) if own else ""


def _unread_tensors(program: Program, compiled: Any, inputs: Sequence[Any]) -> dict[str, torch.Tensor]:
    """Return tensors of the program and of its inputs that are no arguments of its trace, one for each storage."""
    given = {**find_tensors(program.args, "args").tensors, **find_tensors(program.kwargs, "kwargs").tensors}
    known = {tensor.untyped_storage()._cdata for tensor in inputs if isinstance(tensor, torch.Tensor)}
    found: dict[str, torch.Tensor] = {}
    for name, tensor in {**state_of(program.callable, compiled), **given}.items():
        storage = tensor.untyped_storage()
        if storage._cdata not in known and storage.nbytes():
            known.add(storage._cdata)
            found[name] = tensor
    return found
