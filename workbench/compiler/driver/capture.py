"""Trace a program once without executing it. The result is a `Capture` of one graph, or a `PartsCapture` of several."""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from workbench.analysis.equivalence.prove import Prover
from workbench.compiler.driver.capture_parts import (
    NO_GRAPH,
    WITHOUT_GRAPH,
    PartsCapture,
    capture_parts,
    count_operators,
    end_transforms,
    held_optimizers,
)
from workbench.compiler.driver.interpreted_state import refuse_changes
from workbench.compiler.frontend import dynamo, fake_process_group, interpreter_checks, sharded_graphs
from workbench.compiler.frontend.fx_to_thunder import RefusedNodeError, count_checkpoints
from workbench.compiler.frontend.trace_errors import (
    FAILS,
    IN_PARTS,
    RAISES,
    cause_of,
    fails,
    has_own_steps,
    remedy,
)
from workbench.compiler.interop import devices, fake_gpu, thunder_api, thunder_patches
from workbench.compiler.interop.thunder_api import (
    TraceCtx,
    Transform,
    compile_data,
    langctxs,
)
from workbench.compiler.layers.partition import LayerMismatch, ReducedTrace
from workbench.compiler.lowering import custom_ops, patch_context
from workbench.compiler.lowering.alias_writes import WRITTEN_INPUT
from workbench.compiler.pipeline.compilation import Executed, Hooks, TraceClaimed, execution_traces, fingerprint
from workbench.compiler.pipeline.lever_context import LeverContext
from workbench.compiler.pipeline.stage_log import StageLog, StageTime
from workbench.compiler.trace.bsym_memo import PlanMemo
from workbench.compiler.trace.lazy_value import LazyValue
from workbench.compiler.trace.source_frames import user_line
from workbench.core.graph import Origin
from workbench.errors import ProgramError, WorkbenchError, short_repr
from workbench.programs import Program, modes, placement
from workbench.programs.files import describe_error
from workbench.programs.restored_objects import restored_objects
from workbench.programs.tensors import find_tensors, state_of
from workbench.util.gc_pause import paused_gc
from workbench.util.interruptions import interruptions_raised
from workbench.util.planning_lock import one_at_a_time, planned_property

if TYPE_CHECKING:
    from workbench.compiler.driver.capture_cache import CacheEntry
    from workbench.compiler.planner.planner import BasePlan

_REASONS = 3
"""`Capture.why` lists at most this many of the layers that Dynamo traced separately, each with the reason."""


@contextmanager
def _thunder_state(data: Any, stats: Any, cache_info: Mapping[str, Any]) -> Iterator[None]:
    """In this context, Thunder reads its compile data, statistics and cache info from the compilation of a program."""
    token = thunder_api._cache_info_ctx.set(dict(cache_info))
    try:
        with langctxs.langctx(data.langctx), compile_data.compile_data_and_stats(data, stats):
            yield
    finally:
        thunder_api._cache_info_ctx.reset(token)


@dataclasses.dataclass
class Planned:
    """Results of planning a captured program so far. Only the thread that holds the lock `PLANNING` may change them.

    Attributes
    ----------
    stock : (StageLog, Executed) or None
        The execution traces without choices, and a log of the times to make these traces. The first stock plan takes
        these traces and sets this field to None. It is also None if the program came from disk.
    prover : Prover or None
        Proves that other plans compute the same results as the stock plan; None until it is first used.
    bases : OrderedDict
        Maps choices to the plan that was made from the joint trace under these choices.
    entry : CacheEntry or None
        Entry of the disk cache to write after the stock plan; None if the program came from disk, or is not cached.
    on_disk : str
        Message about the disk cache: the program came from disk, is cached, or is not cached for a stated reason.
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
    lazy_context : LazyValue of LeverContext
        The joint trace with all layers, and other input of levers.
    origins : tuple of Origin
        Statements of the program before any pass.
    stages : tuple of StageTime
        Times of the stages in which the program was traced.
    ranks : Ranks or None
    way : {'dynamo', 'interpreter', 'parts'}
        Name of the front end that traced the program.
    why : str
        Reason why this front end was used.
    few : LeverContext or None
        The context of the trace without repeated layers, if one sequence of repeated layers was removed. None in all
        other cases.
    reduced : ReducedTrace or None
        The trace without the removed layers, and the data to add these layers again. None if `few` is None.
    told : tuple of str or None
        The stored value of `doubts` if the program came from disk; None in all other cases.
    kept : PlanMemo
        Cached facts about statements, which all plans share.
    planned : Planned
        Results of planning; the only part of a capture that changes.
    """

    program: Program
    executor: str
    lazy_context: LazyValue[LeverContext]
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
        """In this context, patches, PyTorch's modes and Thunder's state are the same as when the program was traced."""
        with (
            patch_context.install_patches(),
            modes.active_modes(self.program.modes),
            fake_gpu.found_on_meta() if self.program.fake_mode is not None else nullcontext(),
            _thunder_state(self._compile_data, self._compile_stats, self._cache_info),
        ):
            yield

    @property
    def rank_count(self) -> int:
        """Number of ranks that share the program; 1 if the program is not shared."""
        return self.ranks.count if self.ranks is not None else 1

    @property
    def context(self) -> LeverContext:
        """The value of `lazy_context`. Repeated layers are added at the first access."""
        return self.lazy_context.value

    @property
    def arguments(self) -> Mapping[str, torch.Tensor]:
        """Tensors of the trace's arguments, by name."""
        return (self.few or self.context).arguments

    @property
    def initial(self) -> TraceCtx:
        """The first trace of the program, before any transform."""
        first: TraceCtx = self._compile_stats.last_traces[0]
        return first

    @planned_property
    def doubts(self) -> tuple[str, ...]:
        """Warnings about gradients that are probably wrong; see `frontend.interpreter_checks.doubts`."""
        if self.told is not None or self.way != "interpreter":
            return self.told or ()
        with modes.active_modes(self.program.modes):
            return tuple(interpreter_checks.doubts(self.initial))

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the ids of the program's origins."""
        return fingerprint(self.origins)


@one_at_a_time
@paused_gc()
@placement.restored_settings()
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
        Ranks that share the program. The program is traced as on rank 0, without processes for the other ranks.
    front_end : {'auto', 'dynamo', 'interpreter', 'parts'}
        Front end; see `workbench.open`.
    entry : CacheEntry, optional
        Entry of the disk cache. This function adds to the entry the functions and operators that tracing visits.

    Raises
    ------
    ProgramError
        If the front end cannot trace the program; the message contains the reason.
    """
    with restored_objects(program.callable, program.args, program.kwargs):
        return _capture_by(front_end, program, executor, ranks, entry)


def _capture_by(
    front_end: str,
    program: Program,
    executor: str,
    ranks: fake_process_group.Ranks | None,
    entry: CacheEntry | None,
) -> Capture | PartsCapture:
    if front_end == "interpreter":
        return _capture(program, executor, ranks, front_end, "asked for", entry)
    if front_end == "parts" and ranks is not None:
        raise ProgramError(
            "capture='parts' is for programs of one process, but ranks share this program: use capture='auto'"
        )
    if front_end == "dynamo":
        return _capture(program, executor, ranks, front_end, "asked for", entry)
    if front_end == "parts":
        return capture_parts(program, executor, "asked for", _graph_capture(executor))
    try:
        return _capture(program, executor, ranks, "dynamo", "Dynamo gives the whole program as one graph", entry)
    except ProgramError as first:
        return _capture_fallback(program, executor, ranks, first, entry)


def _graph_capture(executor: str) -> Callable[[Program, str], Capture]:
    return lambda part, why: _capture(part, executor, None, "graph", why)


def _capture_fallback(
    program: Program,
    executor: str,
    ranks: fake_process_group.Ranks | None,
    first: ProgramError,
    entry: CacheEntry | None,
) -> Capture | PartsCapture:
    """Capture a program in parts or with the interpreter, after its capture as one graph has failed.

    The interpreter is used only if Dynamo makes no graph, and only for a limited number of calls. PyTorch runs a
    program whose graphs Thunder refuses: the interpreter may accept what the lowering of a graph refuses, and compute
    something else. `first` is the error of the capture as one graph.
    """
    takes_steps = bool(held_optimizers(program)) or has_own_steps(str(first))
    in_parts: PartsCapture | None = None
    refused = first
    raises = RAISES in str(first) or f"{FAILS}: TypeError" in str(first)
    in_eager = _eager_error(program, first) if raises or fails(str(first)) else None
    if raises and in_eager is not None and in_eager is not first:
        raise in_eager from first
    if ranks is None and in_eager is None:
        why = "a training step is split at its backward"
        if not takes_steps:
            why = f"not as one graph: {cause_of(str(first), dynamo.REFUSES).removesuffix(IN_PARTS)}"
        try:
            reads = breaks = False
            if isinstance(first, dynamo.NotOneGraphError):
                reads, breaks = first.needs_values, first.breaks
            elif isinstance(first, RefusedNodeError):
                reads = dynamo.has_unknown_sizes(first.node.graph)
            graph_capture = _graph_capture(executor)
            in_parts = capture_parts(program, executor, why, graph_capture, needs_values=reads, breaks=breaks)
        except ProgramError as error:
            # Thunder's interpreter would take an iterator's next value once, while tracing.
            if takes_steps or placement.UNCOPIED in str(error):
                raise
            refused = error
    if in_parts is not None and not any(part.refusal == WITHOUT_GRAPH for part in in_parts.parts):
        if program.fake_mode is None and not any(part.captured or NO_GRAPH in part.refusal for part in in_parts.parts):
            # Run the program, so that PyTorch refuses wrong arguments. Operators on fake tensors accept some arguments
            # that PyTorch refuses, such as mixed data types.
            count_operators(program)
        return in_parts
    try:
        with thunder_patches.limit_calls() if in_parts is not None else nullcontext():
            return _capture(program, executor, ranks, "interpreter", f"not by Dynamo: {first}", entry)
    except ProgramError as second:
        if in_parts is not None:
            return in_parts
        told = program.fake_mode is None or FAILS in str(refused)
        # `refused` may come from a run on copies of the inputs. The copies are leaves, and eager PyTorch refuses to
        # write into leaves that require gradients. It may allow the same write into the inputs themselves.
        told = told and WRITTEN_INPUT not in str(first)
        if refused is not first and told and RAISES not in str(first):
            raise refused from first
        if remedy(str(first)) or remedy(str(second)) or FAILS in str(first):
            raise first from second
        raise ProgramError(f"{first}\nThunder's interpreter cannot trace it either: {second}") from first


def _eager_error(program: Program, first: ProgramError) -> ProgramError | None:
    """Return the error of a program that fails in eager PyTorch; `first` for a program on fake tensors."""
    if program.fake_mode is not None:
        return first
    try:
        count_operators(program)
    except ProgramError as error:
        return error
    return None


def _refuse_backward_hooks(function: Any) -> None:
    """Refuse a module with backward hooks. Thunder's interpreter ignores such hooks, so gradients would be wrong."""
    for name, module in function.named_modules() if isinstance(function, torch.nn.Module) else ():
        if module._backward_hooks or module._backward_pre_hooks:
            told = f"the module {name or type(module).__name__} has backward hooks, which Thunder does not call"
            raise ProgramError(f"{told}: {remedy('backwards hooks require compiled autograd')}")


@end_transforms()
@interruptions_raised()
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
    few_layers = front_end != "interpreter"
    try:
        return _capture_once(program, executor, ranks, front_end, why, entry, few_layers=few_layers)
    except LayerMismatch as mismatch:
        why += f"; each layer is differentiated separately: in the joint trace, {mismatch}"
        return _capture_once(program, executor, ranks, front_end, why, entry, few_layers=False)


_CLOSURE = re.compile(r"(?<![.\w])__closure__\[(\d+)\]\.cell_contents")


def _with_variables(text: str, function: Any) -> str:
    """Replace Dynamo's names of values in a function's closure by the names of the variables."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return _CLOSURE.sub(lambda found: names[int(found[1])] if int(found[1]) < len(names) else found[0], text)


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
    """Capture a program of one graph.

    With `few_layers`, Thunder differentiates and claims (assigns to executors) only a few of several equal layers.

    Raises
    ------
    LayerMismatch
        If equal layers differ in the joint trace. The caller must then capture the program without `few_layers`.
    """
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
                    why += f"; the trace of an equal module is reused for {whole.written}"
                if reasons := whole.written.reasons:
                    traced = [f"{path}: {reason}" for path, reason in list(reasons.items())[:_REASONS]]
                    more = f", and {len(reasons) - _REASONS} more" if len(reasons) > _REASONS else ""
                    why += _with_variables(f"; traced separately: {'; '.join(traced)}{more}", program.callable)
                hooks.mark("capture")
            transforms[1:1] = sharing
            jitted = patch_context.jit(function, executors=hooks.executors(), transforms=transforms)
            hooks.restart()
            if front_end == "interpreter":
                inside.enter_context(interpreter_checks.refuse_policies())
            interpreted = front_end == "interpreter"
            with (
                interpreter_checks.refuse_outside_draws() if interpreted else nullcontext(),
                refuse_changes(function, args, kwargs) if interpreted else nullcontext(),
                suppress(TraceClaimed),
                thunder_patches.record_functions() as functions,
                thunder_patches.trace_for_plan(),
            ):
                jitted._lc_cd.get_computation_and_inputs(*args, **kwargs)
            with _thunder_state(jitted._lc_cd, jitted._lc_cs, hooks.cache_info):
                inputs, _ = jitted._lc_cs.last_prologue(*args, **kwargs)
            unread = _unread_tensors(program, jitted, inputs)
        assert hooks.context is not None
        if hooks.reduced:
            why += f"; gradients of {', '.join(map(str, hooks.reduced))} reuse the gradients of other layers"
        if entry is not None:
            entry.functions.update(functions)
        if front_end == "interpreter":
            interpreter_checks.refuse_lost(jitted._lc_cs.last_traces[0])
        names = thunder_patches.argument_names(jitted._lc_cs)
        arguments = {n: t for n, t in zip(names, inputs, strict=True) if isinstance(t, torch.Tensor)}
        if front_end == "interpreter":
            interpreter_checks.refuse_written_leaves(jitted._lc_cs.last_traces[0], arguments)
        beside = frozenset(n for n, t in arguments.items() if any(t is each for each in given_back))
        context = hooks.context.with_tensors(arguments, unread, beside)
        made = (jitted._lc_cd, jitted._lc_cs, hooks.cache_info)
        front_end = "parts" if front_end == "graph" else front_end
        origins, times = context.origins, tuple(log.times)
        alone = len(hooks.reduced) == 1
        captured = Capture(
            program,
            executor,
            LazyValue(lambda: context),
            origins,
            times,
            ranks,
            *made,
            front_end,
            why,
            few=context.few if alone else None,
            reduced=hooks.reduced[0] if alone else None,
            kept=kept,
        )
        # Make the execution traces without choices. If this fails, `capture` may try a different front end.
        with captured.thunder_state():
            log = StageLog()
            found = execution_traces(Hooks(executor, {}, log, memo=kept), captured.context)
            captured.planned.stock = log, found
        if front_end == "interpreter":
            interpreter_checks.refuse_unsaved(jitted._lc_cs.last_traces[0], found.forward, found.backward)
        interpreter_checks.refuse_unread(jitted._lc_cs.last_traces[0], found.backward)
        return captured
    except (WorkbenchError, LayerMismatch, KeyboardInterrupt):
        raise
    except BaseException as error:  # the program's own code may raise any error or exit
        reentrant = interpreter_checks.reentrant_reason(error) if front_end == "interpreter" else ""
        reason = reentrant or describe_error(error)
        advice = remedy(reason)
        message = f"{advice} ({reason})" if advice else reason
        where = user_line(error) if front_end == "interpreter" else ""
        raise ProgramError(f"{where}Thunder cannot trace {short_repr(program.name)}: {message}") from error


def _sharing_transforms(program: Program, transforms: Sequence[Transform]) -> Sequence[Transform]:
    """Return the transforms with which ranks share the graph that Dynamo captures from a program."""
    assert isinstance(program.callable, torch.nn.Module)
    if sharded_graphs.changes_device(program.callable, transforms):
        raise ProgramError("its parameters or buffers are not on the device of the rank")
    return sharded_graphs.ShardedModule(program.callable, transforms).transforms


def _unread_tensors(program: Program, compiled: Any, inputs: Sequence[Any]) -> dict[str, torch.Tensor]:
    """Return tensors of the program and its arguments, by name: one for each storage that no input of the trace has."""
    given = {**find_tensors(program.args, "args").tensors, **find_tensors(program.kwargs, "kwargs").tensors}
    known = {tensor.untyped_storage()._cdata for tensor in inputs if isinstance(tensor, torch.Tensor)}
    found: dict[str, torch.Tensor] = {}
    for name, tensor in {**state_of(program.callable, compiled), **given}.items():
        storage = tensor.untyped_storage()
        if storage._cdata not in known and storage.nbytes():
            known.add(storage._cdata)
            found[name] = tensor
    return found
