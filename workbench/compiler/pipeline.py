"""From choices to a plan, or to a jitted callable: the same hooks in Thunder's pipeline serve both.

A config acts through ``thunder.jit(fn, executors=…, transforms=…)`` alone: a fusion executor without any op, placed
first, gets the joint trace before fusion; the controlled fusion executor takes its options from the levers; a transform
edits the traces after the split. `capture` runs Thunder once and keeps the joint trace; `plan` starts again from there.
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from workbench.analysis.census import Census, census
from workbench.analysis.cost import Calibration
from workbench.analysis.equivalence import Proof, Prover, prove
from workbench.analysis.machines import H100, Machine
from workbench.analysis.memory import Prediction, Timeline, timeline
from workbench.analysis.overlap import PACK, Overlap, Simulation, overlap, simulate
from workbench.analysis.reordered import reordered, top_rows, with_members
from workbench.analysis.search import Search, tried_of
from workbench.analysis.search import search as find_order
from workbench.compiler import copies, devices, dynamo, parallel, patches, reorder, thunder_api
from workbench.compiler.facts import fusion_key
from workbench.compiler.fusion import (
    Control,
    FusionOptions,
    Observer,
    compilations,
    nvfuser_executor,
    region_executor,
)
from workbench.compiler.names import is_statement, tag_origins
from workbench.compiler.reader import read_execution
from workbench.compiler.reorder import UNPACK
from workbench.compiler.stage import Stage
from workbench.compiler.thunder_api import (
    BoundSymbol,
    BoundSymbolTag,
    FusionExecutor,
    PrimIDs,
    TraceCtx,
    TraceTag,
    Transform,
    _transform_for_operator_executor_execution,
    compile_data,
    del_last_used,
    from_trace,
    get_always_executors,
    langctxs,
    split_into_forward_and_backward,
    unwrap_return_value,
)
from workbench.compiler.validate import validate, validate_order
from workbench.config import Config
from workbench.errors import ConfigError, ConfigWarning, PlanError, ProgramError, WorkbenchError, shown
from workbench.graph import Graph, Kind, Origin, StatementFlag
from workbench.levers import saved, waits
from workbench.levers.base import Site, all_levers
from workbench.programs import Program
from workbench.programs.files import what

patches.record_scopes()

UNORDERED_KEPT = 4
"""Plans kept with their stages, so that another order of collectives is planned in milliseconds."""

LARGE_STATEMENTS = 2000
"""Of a program that takes seconds to plan anyway: some four layers of a transformer among ranks."""


UNPROVEN = Proof(False)


@dataclasses.dataclass(frozen=True)
class StageTime:
    """Wall time of one stage of planning or compilation."""

    name: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Pass:
    """A trace as Thunder prints it, after a step of the compilation that changed it."""

    name: str
    text: str


class StageLog:
    """An `Observer` that keeps stage times."""

    def __init__(self) -> None:
        self.times: list[StageTime] = []

    def stage(self, name: str, seconds: float) -> None:
        """Keep the time."""
        self.times.append(StageTime(name, seconds))

    def fusion_begin(self, name: str, index: int, count: int) -> None:
        """Planning compiles no fusion."""

    def fusion_end(
        self, name: str, index: int, count: int, seconds: float, parts: Mapping[str, float], cached: bool
    ) -> None:
        """Planning compiles no fusion."""


class _Origins(Transform):
    """Tags the initial trace; the end of interpretation, as far as the clock goes."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks

    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any, **_: Any) -> Any:
        self.hooks.mark("interpret")
        tagged, self.hooks.origins = tag_origins(computation)
        self.hooks.program = tagged
        self.hooks.mark("origins")
        self.hooks.waiting_for = "prologue"
        return prologue, tagged, epilogue


class _AfterSplit(Transform):
    """Lets levers edit the forward trace, then the backward trace."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks

    def transform_trace_post_optimization(self, trace: TraceCtx, **_: Any) -> TraceCtx:
        # What went before the backward trace's turn is nothing but the forward trace's.
        if TraceTag.BACKWARD not in trace.tags:
            self.hooks.mark("split")
        edited = self.hooks.after_split(trace)
        self.hooks.mark("after split")
        return edited


class _JointEditor(FusionExecutor):
    """Claims nothing; gets the claimed joint trace before any real fusion executor."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__("workbench_joint")
        self.hooks = hooks

    # First in the list, it is asked about each statement, which tells where Thunder is: the gradient transform asks
    # whether it can execute or fuse a statement, and claiming, which comes next, whether it can fuse it.

    def can_execute_or_fuse(self, bsym: BoundSymbol) -> bool:
        self.hooks.reached("prologue", then="grad")
        return False

    def can_fuse(self, bsym: BoundSymbol) -> bool:
        self.hooks.reached("prologue", "grad", then="claim")
        return False

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        self.hooks.mark("claim")
        edited = self.hooks.before_fusion(trace)
        self.hooks.mark("edit")
        return edited


class _AfterFusion(FusionExecutor):
    """Claims nothing; gets the joint trace after fusion."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__("workbench_fused")
        self.hooks = hooks

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        edited = self.hooks.after_fusion(trace)
        self.hooks.restart()
        return edited


class Hooks:
    """Choices at work in one compilation: what is put into ``thunder.jit`` and what comes of it.

    Parameters
    ----------
    executor : str
    choices : mapping of str to str
        Site id to option.
    observer : Observer, optional
    parallel : str
        How ranks share the program; empty for one process.
    """

    def __init__(
        self, executor: str, choices: Mapping[str, str], observer: Observer | None = None, parallel: str = ""
    ) -> None:
        self.executor = executor
        self.parallel = parallel
        self.choices = dict(choices)
        self.observer = observer
        self.config: Config | None = None
        self.warn = False
        self.cache_info: dict[str, Any] = {}
        self.origins: tuple[Any, ...] = ()
        self.program: TraceCtx | None = None
        self.stage: Stage | None = None
        self.control = Control(self.configure, observer)
        self.waiting_for = ""
        self.proofs: list[Proof] | None = None
        """Where each compilation is proven before it runs, one for each."""
        self._since = time.perf_counter()
        self._forward: TraceCtx | None = None

    def executors(self) -> list[Any]:
        """For ``thunder.jit(executors=…)``."""
        stock = [e for e in thunder_api.get_default_executors() if not isinstance(e, FusionExecutor)]
        if self.executor == "torchcompile":
            stock = [region_executor(self.control), *(e for e in stock)]
        elif self.executor == "nvfuser":
            stock = [*(e for e in stock if e.name != "torch"), nvfuser_executor(self.control)]
        return [_JointEditor(self), *stock, _AfterFusion(self)]

    def transforms(self) -> list[Transform]:
        """For ``thunder.jit(transforms=…)``."""
        return [_Origins(self), _AfterSplit(self)]

    def restart(self) -> None:
        """Start the clock of the next stage now."""
        self._since = time.perf_counter()

    def mark(self, stage: str) -> None:
        """End a stage now."""
        now = time.perf_counter()
        if self.observer is not None:
            self.observer.stage(stage, now - self._since)
        self._since = now

    def reached(self, *ended: str, then: str) -> None:
        """End the stage under way now, if it is one of those, and begin the next."""
        if self.waiting_for in ended:
            self.mark(self.waiting_for)
            self.waiting_for = then

    def before_fusion(self, trace: TraceCtx) -> TraceCtx:
        """Note the claimed joint trace, then let every lever edit it."""
        _, stats = compile_data._compile_data.get()
        self.cache_info = dict(thunder_api._get_cache_info())
        joint = stats.last_traces[-1] if stats is not None and stats.last_traces else trace
        return self.edit(
            Stage(
                executor=self.executor,
                origins=self.origins,
                joint=joint,
                claimed=trace,
                has_backward=any(BoundSymbolTag.BACKWARD in b.tags for b in trace.bound_symbols),
                gathers_again=self.parallel == parallel.ZERO3,
                # What shares a program among ranks changes shapes in the trace as interpreted: it is none any more.
                program=None if self.parallel else self.program,
            )
        )

    def edit(self, stage: Stage) -> TraceCtx:
        """Apply the levers that act before fusion."""
        # from_trace shares the set of names: later passes, and the next round of choices, would find them taken.
        stage.claimed = _own_names(stage.claimed)
        stage.unfused = self.control.unfused
        stage.unfused.clear()
        self.stage = stage
        trace = _own_names(stage.claimed)
        for lever in all_levers():
            for setting in lever.settings():
                site = setting.site(lever.name, self.choices, stage)
                if site.choice != site.default:
                    site.check(site.choice)
        for lever in all_levers():
            trace = lever.before_fusion(trace, self.choices, stage)
        return trace

    def configure(self, partitioned: TraceCtx) -> FusionOptions:
        """Options of the fusion executor for this partition."""
        assert self.stage is not None
        self.stage.partitioned = partitioned
        options = FusionOptions()
        for lever in all_levers():
            lever.fusion(options, self.choices, self.stage)
        return options

    def after_fusion(self, trace: TraceCtx) -> TraceCtx:
        """Apply the levers that act on the fused joint trace."""
        assert self.stage is not None
        self.stage.report = self.control.report
        for lever in all_levers():
            trace = lever.after_fusion(trace, self.choices, self.stage)
        return trace

    def after_split(self, trace: TraceCtx) -> TraceCtx:
        """Apply the levers that act on the split traces."""
        assert self.stage is not None
        for lever in all_levers():
            trace = lever.after_split(trace, self.choices, self.stage)
        # Only now are all sites known: those of collectives are found on the split traces.
        last = TraceTag.BACKWARD in trace.tags or not self.stage.has_backward
        if self.warn and last:
            self._warn_of_unmatched()
        if self.proofs is not None:
            if TraceTag.BACKWARD not in trace.tags:
                self._forward = trace
            if last:
                self._prove(trace if TraceTag.BACKWARD in trace.tags else None)
        return trace

    def _prove(self, backward: TraceCtx | None) -> None:
        """Prove what is about to run, before it does.

        The joint trace says what the program computes; where Thunder itself makes something else of it, that is what
        choices are held to.
        """
        assert self.stage is not None
        assert self._forward is not None
        assert self.proofs is not None
        forward, self._forward = self._forward, None
        graph = read_execution(forward, backward, self.stage)
        proof = prove(self.stage.graph, graph)
        if not proof.proven:
            stock = Hooks(self.executor, {}, parallel=self.parallel)
            stage = dataclasses.replace(self.stage, partitioned=None, execution=None, offloader=None)
            first, second, _ = _executed(stock, stock.edit(stage))
            assert stock.stage is not None
            proof = prove(read_execution(first, second, stock.stage), graph)
        if not proof.proven:
            raise PlanError(_unequal(proof, "this program"))
        self.proofs.append(proof)

    def _warn_of_unmatched(self) -> None:
        assert self.stage is not None
        if not self.stage.has_backward and any(id.startswith("saved:") for id in self.choices):
            # A call without gradients, as for validation: what is chosen is for those with.
            return
        # Once: later compilations are of the same program, for other shapes or for fewer gradients.
        self.warn = False
        if self.config is not None and (differences := self.config.differences(fingerprint(self.origins))):
            warnings.warn(ConfigWarning(differences), stacklevel=2)
        gone = sorted(set(self.choices) - {site.id for site in self.sites()})
        if gone:
            warnings.warn(
                ConfigWarning(
                    f"{len(gone)} of {len(self.choices)} choices fit nothing in this program and are left out: "
                    f"{', '.join(gone)}; the program differs from the one that they were made for"
                ),
                stacklevel=2,
            )

    def sites(self) -> tuple[Site, ...]:
        """All sites of all levers, under the choices in force."""
        assert self.stage is not None
        found: list[Site] = []
        for lever in all_levers():
            found.extend(setting.site(lever.name, self.choices, self.stage) for setting in lever.settings())
            found.extend(lever.sites(self.stage, self.choices))
        return tuple(found)


class Split:
    """The traces that run, made when first asked for.

    Parameters
    ----------
    make : callable
        Gives the forward trace, and the backward trace if there is one.
    """

    def __init__(self, make: Callable[[], tuple[TraceCtx, TraceCtx | None]]) -> None:
        self._make = make

    @cached_property
    def _traces(self) -> tuple[TraceCtx, TraceCtx | None]:
        return self._make()

    @property
    def forward(self) -> TraceCtx:
        """The forward trace."""
        return self._traces[0]

    @property
    def backward(self) -> TraceCtx | None:
        """The backward trace."""
        return self._traces[1]


@dataclasses.dataclass
class Capture:
    """A program traced once, and the joint trace kept.

    Attributes
    ----------
    program : Program
    executor : str
    stage : Stage
        Of the unmodified joint trace.
    stages : tuple of StageTime
        What the first trace cost.
    ranks : Ranks or None
    way : {'dynamo', 'interpreter'}
        How it was traced.
    why : str
        The reason why that way was taken.
    """

    program: Program
    executor: str
    stage: Stage
    stages: tuple[StageTime, ...]
    ranks: parallel.Ranks | None
    _compile_data: Any
    _compile_stats: Any
    _cache_info: dict[str, Any]
    way: str = "interpreter"
    why: str = ""
    _prover: Prover | None = None
    """Of the stock plan."""
    _unordered: OrderedDict[tuple[tuple[str, str], ...], _Unordered] = dataclasses.field(default_factory=OrderedDict)
    """Plans in which no choice is made that only orders statements, by the choices made in them."""

    @contextmanager
    def _inside(self) -> Iterator[None]:
        token = thunder_api._cache_info_ctx.set(dict(self._cache_info))
        try:
            with (
                langctxs.langctx(self._compile_data.langctx),
                compile_data.compile_data_and_stats(self._compile_data, self._compile_stats),
            ):
                yield
        finally:
            thunder_api._cache_info_ctx.reset(token)

    @property
    def initial(self) -> TraceCtx:
        """The trace of the program as Thunder interpreted it, before anything is done to it."""
        first: TraceCtx = self._compile_stats.last_traces[0]
        return first

    @cached_property
    def fingerprint(self) -> str:
        """`fingerprint` of the program."""
        return fingerprint(self.stage.origins)

    def fresh_stage(self) -> Stage:
        """The captured stage, with the graph and the names already worked out, for another round of choices."""
        again = dataclasses.replace(self.stage, partitioned=None, execution=None, offloader=None)
        for cached in ("graph", "random", "places", "origin_by_value", "recomputer", "predictor"):
            again.__dict__[cached] = getattr(self.stage, cached)
        return again


def fingerprint(origins: Sequence[Origin]) -> str:
    """Digest of a program's statements and where they stand, without lines and shapes."""
    return hashlib.sha256("\n".join(o.id for o in origins).encode(errors="backslashreplace")).hexdigest()[:16]


def _own_names(trace: TraceCtx) -> TraceCtx:
    own = from_trace(trace)
    own.names = set(trace.names)
    own.bound_symbols = list(trace.bound_symbols)
    return own


@dataclasses.dataclass(frozen=True)
class Plan:
    """What Thunder would execute under a config; every figure is predicted.

    Attributes
    ----------
    graph : Graph
        The execution traces, forward then backward.
    peak_bytes, baseline_bytes : int
        Predicted peak of forward and backward, and what is alive before and after: parameters, buffers, inputs.
    saved_bytes, saved_tensors : int
        Storages held for the backward, and tensors on the saved list; those of arguments are not counted.
    timeline : Timeline
    census : Census
    sites : tuple of Site
    stages : tuple of StageTime
        What this planning cost.
    split : Split
        Thunder's traces.
    counts : mapping of str to int
        ``compilations``: fusions to compile; ``copies`` in place, ``sets`` that nvFuser puts before them, and
        ``fences`` around them; ``buckets`` of collectives, and ``bucket_copied_bytes`` written to fill them and to take
        tensors out of them; ``offloaded_bytes``, and ``offload_us``, microseconds to move them out and back at
        the bandwidth of `workbench.compiler.devices.copy_bandwidth`.
    unmatched : tuple of str
        Choices that fit no site of this program.
    warnings : tuple of str
        What will be wrong although nothing is refused, each with its cause.
    ranks : int
        Processes that share the program.
    traces : tuple of (str, tuple of TraceCtx)
        Thunder's traces on the way to `split`, named by the step that made them: one, then forward and backward.
    unordered : Plan or None
        The plan that this one is, but for the order of statements.
    rows : (statements,) intp or None
        For each row of the graph the row of `unordered`'s graph.
    places : mapping of str to str
        For values made by statements that keep their place the name of that statement in ``at(STATEMENT)``.
    proof : Proof
        That it computes what the stock plan does, and with which rules.
    capture, capture_reason : str
        How the program came in, ``dynamo`` or ``interpreter``, and why so.
    """

    program: str
    device: str
    executor: str
    graph: Graph
    timeline: Timeline
    census: Census
    sites: tuple[Site, ...]
    stages: tuple[StageTime, ...]
    split: Split
    counts: Mapping[str, int]
    unmatched: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    ranks: int = 1
    traces: tuple[tuple[str, tuple[TraceCtx, ...]], ...] = ()
    unordered: Plan | None = None
    rows: NDArray[np.intp] | None = None
    places: Mapping[str, str] = dataclasses.field(default_factory=dict)
    proof: Proof = UNPROVEN
    capture: str = "interpreter"
    capture_reason: str = ""

    @property
    def peak_bytes(self) -> int:
        """Predicted peak, arguments included."""
        return int(self.timeline.peak_bytes)

    @property
    def baseline_bytes(self) -> int:
        """Bytes of parameters, buffers and inputs."""
        return int(self.timeline.baseline_bytes)

    @cached_property
    def saved_bytes(self) -> int:
        """Bytes held for the backward, each storage once, arguments not counted."""
        return int(self.graph.storages.bytes[self.graph.saved_storages()].sum())

    @property
    def saved_tensors(self) -> int:
        """Tensors on the saved list."""
        return len(self.graph.saved())

    @property
    def fusions(self) -> Census:
        """The census of fusions."""
        return self.census

    @property
    def statements(self) -> int:
        """Statements that run, a fusion counted once."""
        return int((self.graph.statements.parent < 0).sum())

    @property
    def flops(self) -> int:
        """Floating point operations of forward and backward."""
        return int(self.graph.statements.flops[self.graph.statements.parent < 0].sum())

    @property
    def overlap(self) -> Overlap | None:
        """Collectives beside compute, simulated on `workbench.analysis.machines.H100`; None if there are none."""
        return self.overlap_on(H100)

    def overlap_on(self, machine: Machine, calibration: Calibration | None = None) -> Overlap | None:
        """Collectives beside compute, simulated on a machine; None if there are none.

        Parameters
        ----------
        machine : Machine
        calibration : Calibration, optional
            What statements took in a run: kernels that were measured take as long, the others what its rates say.
        """
        key = (machine.name, id(calibration))
        known = self._overlaps.get(key)
        # Held with what it was made for: a name may be given twice, and the number of an object that is gone again.
        if known is None or known[0] != machine or known[1] is not calibration:
            known = self._overlaps[key] = (machine, calibration, self._overlap(machine, calibration))
        return known[2]

    @cached_property
    def _overlaps(self) -> dict[tuple[str, int], tuple[Machine, Calibration | None, Overlap | None]]:
        return {}

    def _overlap(self, machine: Machine, calibration: Calibration | None) -> Overlap | None:
        if self.unordered is None or self.rows is None:
            return overlap(self.graph, self.ranks, machine, calibration)
        known = self.unordered.overlap_on(machine, calibration)
        return known.reordered(self.graph, self.rows) if known is not None else None

    def place(self, row: int) -> str:
        """The option of a collective's site that puts it right before a statement of the graph, or what it is part of.

        A statement that has no place of its own, such as another collective, stands for the next one that has.
        """
        statements, name = self.graph.statements, self.graph.values.name
        start = int(statements.parent[row]) if statements.parent[row] >= 0 else row
        for at in range(start, len(statements)):
            if statements.parent[at] >= 0 or statements.side[at] != statements.side[start]:
                continue
            for value in statements.outputs[at].tolist():
                if name[value] in self.places:
                    return f"at({self.places[name[value]]})"
        return "at(end)"

    def text(self) -> str:
        """The traces as Thunder prints them."""
        return _text(self.split.forward, *(() if self.split.backward is None else (self.split.backward,)))

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        """The program after each step of its compilation, without the steps that changed nothing."""
        found: list[Pass] = []
        split = tuple(trace for trace in (self.split.forward, self.split.backward) if trace is not None)
        for name, traces in (*self.traces, ("choices after the split", split)):
            text = _text(*traces)
            if not found or _statements(text) != _statements(found[-1].text):
                found.append(Pass(name, text))
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain JSON data."""
        return {
            "program": self.program,
            "device": self.device,
            "executor": self.executor,
            "capture": self.capture,
            "capture_reason": self.capture_reason,
            "statements": self.statements,
            "peak_bytes": self.peak_bytes,
            "saved_bytes": self.saved_bytes,
            "saved_tensors": self.saved_tensors,
            "fusions": {
                name: getattr(self.census, name)
                for name in ("count", "unique", "largest", "forward_unique", "backward_unique")
            },
            "counts": dict(self.counts),
            "sites": [
                {
                    "id": site.id,
                    "lever": site.lever,
                    "label": site.label,
                    "source": site.source,
                    "options": list(site.options),
                    "choice": site.choice,
                    "illegal": dict(site.illegal),
                    "effect": {option: dataclasses.asdict(effect) for option, effect in site.effect.items()},
                }
                for site in self.sites
            ],
            "stages": [dataclasses.asdict(stage) for stage in self.stages],
            "warnings": list(self.warnings),
            **({"overlap": self.overlap.to_json()} if self.overlap is not None else {}),
            "predicted": True,
            "proven": self.proof.proven,
            "rules": list(self.proof.rules),
        }


_PROVENANCE = "# Constructed by"


def _text(*traces: TraceCtx) -> str:
    # The first line tells which pass made a trace, and how long it took that time: no two plans would be equal.
    printed = (trace.python(print_depth=1).splitlines() for trace in traces)
    return "\n\n".join("\n".join(line for line in lines if not line.startswith(_PROVENANCE)) for lines in printed)


def _statements(text: str) -> list[str]:
    """What a trace does, without what it says about itself: when it was made, and types."""
    lines = (line.partition("#")[0].rstrip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("import ", "from ", "@"))]


def capture(program: Program, executor: str, ranks: parallel.Ranks | None = None, way: str = "interpreter") -> Capture:
    """Trace a program once, execute nothing, keep the joint trace.

    Parameters
    ----------
    program : Program
    executor : str
    ranks : Ranks, optional
        Trace it as rank 0 of so many, the others not being there.
    way : {'auto', 'dynamo', 'interpreter'}
        How it is traced; see `workbench.open`.

    Raises
    ------
    ProgramError
        If it cannot be traced that way; the message holds the reason.
    """
    if way == "interpreter":
        return _capture(program, executor, ranks, way, "asked for")
    if ranks is not None:
        if way == "dynamo":
            raise ProgramError(
                "capture='dynamo' is for programs of one process; ranks share a program by its parameters, which "
                "Thunder's interpreter knows: use capture='interpreter'"
            )
        return _capture(program, executor, ranks, "interpreter", "ranks share the program")
    if way == "dynamo":
        return _capture(program, executor, ranks, way, "asked for")
    if program.spec["kind"] == "builtin":
        return _capture(program, executor, ranks, "interpreter", "built-in programs are read whole by it")
    try:
        return _capture(program, executor, ranks, "dynamo", "Dynamo gives the whole program as one graph")
    except ProgramError as first:
        try:
            return _capture(program, executor, ranks, "interpreter", f"not by Dynamo: {first}")
        except ProgramError as second:
            raise ProgramError(f"{first}\nThunder's interpreter cannot trace it either: {second}") from first


def _capture(program: Program, executor: str, ranks: parallel.Ranks | None, way: str, why: str) -> Capture:
    log = StageLog()
    hooks = Hooks(executor, {}, log, ranks.parallel if ranks is not None else "")
    try:
        with ExitStack() as inside:
            if program.fake_mode is not None:
                inside.enter_context(devices.planned_gpu(program.fake_mode))
            transforms = hooks.transforms()
            if ranks is not None:
                transforms[1:1] = inside.enter_context(parallel.fake_group(ranks, program.callable, program.device))
            function, args, kwargs = program.callable, program.args, program.kwargs
            if way == "dynamo":
                hooks.restart()
                whole = dynamo.whole_graph(function, args, kwargs)
                function, args, kwargs = whole.function, whole.inputs, {}
                hooks.mark("capture")
            jitted = thunder_api.jit(function, executors=hooks.executors(), transforms=transforms)
            hooks.restart()
            entry, inputs, _ = jitted._lc_cd.get_computation_and_inputs(*args, **kwargs)
    except WorkbenchError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the program's own code may raise anything, and exit
        raise ProgramError(f"Thunder cannot trace {shown(program.name)}: {what(error)}") from error
    stage = hooks.stage
    assert stage is not None
    stage.partitioned = None
    names = [
        out.name
        for b in entry.computation_traces[0].bound_symbols
        if b.sym.id is PrimIDs.UNPACK_TRIVIAL
        for out in b.flat_proxy_outs
    ]
    stage.arguments = {n: t for n, t in zip(names, inputs, strict=True) if isinstance(t, torch.Tensor)}
    return Capture(
        program, executor, stage, tuple(log.times), ranks, jitted._lc_cd, jitted._lc_cs, hooks.cache_info, way, why
    )


def plan(captured: Capture, choices: Mapping[str, str]) -> Plan:
    """Plan again from the kept joint trace under `choices`; where they only order statements, from the split traces.

    Raises
    ------
    PlanError
        If a pass made a trace that reads what it does not define, or the plan is not proven to compute what the stock
        plan does.
    ChoiceError
        If a choice is refused.
    """
    begun = time.perf_counter()
    known = _unordered(captured, choices)
    ordered = any(waits.orders(id, choices) for id in choices)
    made = known.ordered(choices, begun) if ordered else known.plan
    return made if made.proof.proven else _proven(captured, made)


def _unequal(proof: Proof, program: str) -> str:
    return (
        f"{proof.message}. The plan under these choices would not compute what {program} does; nothing is changed. "
        "Choose otherwise there, and report this: no choice that is offered should come to it"
    )


def _proven(captured: Capture, made: Plan) -> Plan:
    """The plan with its proof.

    Raises
    ------
    PlanError
        If it does not compute what the stock plan does, naming the first statement that differs.
    """
    begun = time.perf_counter()
    if captured._prover is None:
        captured._prover = Prover(_unordered(captured, {}).plan.graph)
    proof = captured._prover.prove(made.graph)
    if not proof.proven:
        raise PlanError(_unequal(proof, captured.program.name))
    stage = StageTime("prove", time.perf_counter() - begun)
    return dataclasses.replace(made, proof=proof, stages=(*made.stages, stage))


def search(
    captured: Capture,
    choices: Mapping[str, str],
    machine: Machine,
    limit_bytes: int | None = None,
    buckets: Sequence[str] = (),
) -> Search:
    """The best order of collectives, simulated, beside the other choices made.

    Parameters
    ----------
    captured : Capture
    choices : mapping of str to str
        In force.
    machine : Machine
    limit_bytes : int, optional
        Of results in flight that a statement is to read.
    buckets : sequence of str
        Options of ``waits.bucket`` to try; by default the one in force. Each takes a plan of its own.

    Raises
    ------
    PlanError
        If there are no collectives, or no order keeps the limit.
    """
    if not _unordered(captured, choices).stage.communication:
        raise PlanError(f"{captured.program.name} has no collectives to order")
    kept = {id: option for id, option in waits.free_of_order(choices).items() if not id.startswith("waits:")}
    followed = {id: waits.POLICY for id in choices if id.startswith("waits:")}
    if waits.STAGE in choices:
        # Before fusion each order is a plan of its own.
        followed[waits.STAGE] = waits.AFTER_FUSION

    def simulated(change: Mapping[str, str]) -> tuple[Simulation, float]:
        made = {id: option for id, option in change.items() if option not in _DEFAULTS}
        wanted = {**{id: option for id, option in kept.items() if id not in change}, **made}
        return _unordered(captured, wanted).simulated(wanted, machine)

    bucketed: list[dict[str, str]] = [{waits.BUCKET: option} for option in dict.fromkeys(buckets)] or [{}]
    candidates = [{**followed, **each, **order} for each in bucketed for order in waits.orders_to_try(limit_bytes)]
    now = tried_of(choices, *_unordered(captured, choices).simulated(choices, machine))
    return find_order(candidates, simulated, now, machine, limit_bytes)


_DEFAULTS = (waits.POLICY, waits.NONE, waits.AFTER_FUSION)


def _unordered(captured: Capture, choices: Mapping[str, str]) -> _Unordered:
    """The plan under the choices that do more than order statements."""
    others = waits.free_of_order(choices)
    key = tuple(sorted(others.items()))
    known = captured._unordered.get(key)
    if known is None:
        made, stage = plan_anew(captured, others)
        if others:
            made = _proven(captured, made)
        else:
            # What all others are held to.
            made = dataclasses.replace(made, proof=Proof(True))
        known = captured._unordered[key] = _Unordered(made, stage)
        if len(captured._unordered) > UNORDERED_KEPT:
            # The stock plan stays: every screen compares with it.
            del captured._unordered[next(kept for kept in captured._unordered if kept)]
        if known.stage.communication and len(known.plan.graph.statements) > LARGE_STATEMENTS:
            # Large programs leave millions of objects, which Python looks through once there are a quarter more:
            # for seconds, and in the middle of a move, were that not done now.
            gc.collect()
    else:
        captured._unordered.move_to_end(key)
    return known


@dataclasses.dataclass(frozen=True)
class _Unordered:
    """A plan to be put into other orders, in milliseconds: no statement changes, so that no trace is read again."""

    plan: Plan
    stage: Stage

    @cached_property
    def rows(self) -> dict[str, NDArray[np.intp]]:
        """For each statement of a schedule the row of the plan's graph, by side; other sides' rows as they are."""
        graph, split = self.plan.graph, self.plan.split
        top = top_rows(graph)
        first_backward = int(np.searchsorted(top, graph.first_backward))
        found = {"forward": top[:first_backward], "backward": top[first_backward:]}
        for side, trace in (("forward", split.forward), ("backward", split.backward)):
            schedule = self.stage.communication.get(side)
            if schedule is not None and trace is not None:
                place = {id(bsym): at for at, bsym in enumerate(filter(is_statement, trace.bound_symbols))}
                found[side] = found[side][[place[id(bsym)] for bsym in schedule.statements]]
        return found

    def orders(self, choices: Mapping[str, str]) -> dict[str, list[int]]:
        """The statements of each schedule in their order under `choices`."""
        schedules = self.stage.communication
        return {side: schedule.arrange(waits.keys(schedule, choices)) for side, schedule in schedules.items()}

    def in_order(self, orders: Mapping[str, list[int]]) -> NDArray[np.intp]:
        """The top-level rows of the plan's graph in their order under `orders`."""
        return np.concatenate([rows[orders[side]] if side in orders else rows for side, rows in self.rows.items()])

    def simulated(self, choices: Mapping[str, str], machine: Machine) -> tuple[Simulation, float]:
        """A step under `choices`, and what no order beats, without a plan."""
        known = self.plan.overlap_on(machine)
        assert known is not None
        order = self.in_order(self.orders(choices))
        return simulate(self.plan.graph, known.cost, order, known.links), known.lower_bound_s

    def ordered(self, choices: Mapping[str, str], begun: float) -> Plan:
        """The plan under `choices`, all of them; `begun` is when planning began."""
        schedules, split = self.stage.communication, self.plan.split
        sites = waits.sites_under(self.plan.sites, self.stage, choices)
        orders = self.orders(choices)
        arranged = time.perf_counter()
        order = self.in_order(orders)
        rows = with_members(self.plan.graph, order)
        graph = reordered(self.plan.graph, rows)
        validate_order(graph)
        read = time.perf_counter()

        def traces() -> tuple[TraceCtx, TraceCtx | None]:
            edited = {
                side: reorder.reordered(trace, schedules[side], orders[side]) if side in schedules else trace
                for side, trace in (("forward", split.forward), ("backward", split.backward))
                if trace is not None
            }
            validate(edited["forward"], edited.get("backward"))
            return edited["forward"], edited.get("backward")

        line = timeline(graph)
        fusions = np.flatnonzero(self.plan.graph.statements.kind == Kind.FUSION)
        moved = np.searchsorted(fusions, rows[graph.statements.kind == Kind.FUSION])
        return dataclasses.replace(
            self.plan,
            graph=graph,
            timeline=line,
            census=self.plan.census.reordered(moved.tolist()),
            sites=sites,
            split=Split(traces),
            unmatched=_unmatched(choices, sites),
            stages=(
                StageTime("order", arranged - begun),
                StageTime("read", read - arranged),
                StageTime("predict", time.perf_counter() - read),
            ),
            unordered=self.plan,
            rows=rows,
            proof=UNPROVEN,
        )


def _unmatched(choices: Mapping[str, str], sites: Sequence[Site]) -> tuple[str, ...]:
    return tuple(sorted(set(choices) - {site.id for site in sites}))


def plan_anew(captured: Capture, choices: Mapping[str, str]) -> tuple[Plan, Stage]:
    """Plan again from the kept joint trace, whatever the choices; with the stage that the levers worked on.

    Raises
    ------
    PlanError
        If a pass made a trace that reads what it does not define.
    ChoiceError
        If a choice is refused.
    """
    log = StageLog()
    hooks = Hooks(captured.executor, choices, log)
    with captured._inside():
        hooks.restart()
        trace = hooks.edit(captured.fresh_stage())
        hooks.mark("edit")
        traces = [
            ("initial", (captured.initial,)),
            ("gradients", (captured.stage.joint,)),
            ("claimed by executors", (captured.stage.claimed,)),
            ("choices before fusion", (trace,)),
        ]
        forward, backward, further = _executed(hooks, trace)
        traces += further
        ran = (forward, backward)
        split = Split(lambda: ran)
        validate(split.forward, split.backward)
        hooks.mark("after split")
        assert hooks.stage is not None
        graph = hooks.stage.execution = read_execution(split.forward, split.backward, hooks.stage)
        hooks.mark("read")
        sites = hooks.sites()
        hooks.mark("sites")
    statements = graph.statements
    rows = [i for i in range(len(statements)) if statements.kind[i] == Kind.FUSION]
    fusions = {
        bsym.sym.name: bsym
        for side in (split.forward, split.backward)
        if side is not None
        for bsym in side.bound_symbols
        if bsym.sym.is_fusion
    }
    counted = census(
        [fusion_key(fusions[statements.name[i]], gradients=True) for i in rows],
        [int(statements.side[i]) for i in rows],
        [len(fusions[statements.name[i]].subsymbols) for i in rows],
    )
    line = timeline(graph)
    hooks.mark("predict")
    made = Plan(
        program=captured.program.name,
        device=captured.program.device,
        executor=captured.executor,
        graph=graph,
        timeline=line,
        census=counted,
        sites=sites,
        stages=tuple(log.times),
        split=split,
        counts=_counts(split, graph, hooks.control.options, captured.executor, captured.program.device),
        unmatched=_unmatched(choices, sites),
        warnings=captured.stage.caveats,
        ranks=captured.ranks.count if captured.ranks is not None else 1,
        traces=tuple(traces),
        capture=captured.way,
        capture_reason=captured.why,
        places={
            output: name
            for schedule in hooks.stage.communication.values()
            for output, name in zip(schedule.outputs, schedule.names, strict=True)
        },
    )
    return made, hooks.stage


def _executed(
    hooks: Hooks, trace: TraceCtx
) -> tuple[TraceCtx, TraceCtx | None, list[tuple[str, tuple[TraceCtx, ...]]]]:
    """The traces that run, made of an edited joint trace as Thunder makes them; with those on the way."""
    traces: list[tuple[str, tuple[TraceCtx, ...]]] = []
    for executor in hooks.executors():
        if isinstance(executor, FusionExecutor) and not isinstance(executor, _JointEditor):
            trace = executor.fusion_pass(trace)
            name = "choices after fusion" if isinstance(executor, _AfterFusion) else f"fused by {executor.name}"
            traces.append((name, (trace,)))
    hooks.restart()
    trace = _transform_for_operator_executor_execution(trace, get_always_executors())
    forward, backward = trace, None
    if "fw_flat_out" in trace.bound_symbols[-1].args[0]:
        forward, backward = split_into_forward_and_backward(trace)
    forward = del_last_used(forward)
    if backward is not None:
        backward = del_last_used(backward, clear_mutable_collections=True)
    traces.append(("split, and values freed", tuple(t for t in (forward, backward) if t is not None)))
    hooks.mark("split")
    forward = hooks.after_split(forward)
    if backward is not None:
        backward = hooks.after_split(backward)
    else:
        forward = unwrap_return_value(forward)
    return forward, backward, traces


def _counts(split: Split, graph: Graph, options: FusionOptions, executor: str, device: str) -> dict[str, int]:
    offloads = np.flatnonzero(graph.statements.kind == Kind.OFFLOAD)
    moved = sum(int(graph.values.bytes[graph.statements.outputs[row]].sum()) for row in offloads)
    bsyms = [b for trace in (split.forward, split.backward) if trace is not None for b in trace.bound_symbols]
    fusions = [bsym for bsym in bsyms if bsym.sym.is_fusion]
    inside = list(copies.leaves(bsyms))
    sets = 0
    for fusion in fusions if executor == "nvfuser" else ():
        facts = copies.facts(fusion)
        policies = {fact.output: options.set_policies.get(fact.output, options.set_policy) for fact in facts}
        sets += len(facts) - len(copies.without_set(fusion, policies))
    packs = [b for b in bsyms if b.sym.name.startswith(PACK)]
    return {
        "compilations": compilations(fusions, share=options.share),
        "offloaded_bytes": moved,
        "offload_us": round(2e6 * moved / devices.copy_bandwidth(device)) if moved else 0,
        "copies": sum(copies.is_copy(leaf) for leaf in inside),
        "sets": sets,
        "fences": sum(copies.is_fence(leaf) for leaf in inside),
        "buckets": len(packs),
        "bucket_copied_bytes": _bucket_copied_bytes(graph) if packs else 0,
    }


def _bucket_copied_bytes(graph: Graph) -> int:
    """Bytes written by putting tensors into buckets, and by taking out those that are no views of them."""
    statements, written = graph.statements, 0
    for row in np.flatnonzero((statements.flags & StatementFlag.VIEW) == 0):
        if statements.name[row].startswith((PACK, UNPACK)):
            written += int(graph.values.bytes[statements.outputs[row]].sum())
    return written


def predict(captured: Capture, choices: Mapping[str, str]) -> Prediction | None:
    """Memory under `choices` by arithmetic alone, in milliseconds; None where it takes a plan to know.

    Fusions, offloading and collectives take a plan.
    """
    if captured.ranks is not None:
        return None
    if captured.executor != "torch" or any(c == "offload" and i.startswith("saved:") for i, c in choices.items()):
        return None
    stage = captured.stage
    with captured._inside():
        if not stage.has_backward:
            return stage.predictor.predict()
        return stage.predictor.predict(saved.edit(stage, choices).schedule(stage.graph))


def jit(config: Config, fn: Callable[..., Any], *, observer: Observer | None = None, **options: Any) -> Any:
    """``thunder.jit(fn)`` with exactly the choices of a config.

    Parameters
    ----------
    config : Config
    fn : callable or torch.nn.Module
    observer : Observer, optional
        Told of stages and fusions while they are compiled.
    **options
        Passed to ``thunder.jit``; ``transforms`` are put before the workbench's. Where they are not given, those that
        share the program as the config says, among the ranks of the process group that this process is in.

    Warns
    -----
    ConfigWarning
        At the first call, saying that the config was made with other versions or for another program, and naming
        choices that fit nothing in this program; they are left out.

    Raises
    ------
    ChoiceError
        At the first call, if a choice is illegal for this program.
    ConfigError
        If ``executors=`` is given too, or ranks share the program and this process is in no group of them.
    ProgramError
        If `fn` cannot be shared among so many ranks.
    PlanError
        At the first call, before anything has run, if what was compiled is not proven to compute what `fn` does.
    """
    if "executors" in options:
        raise ConfigError("executors= cannot be given here: the config names them")
    shared = options.pop("transforms", None)
    if shared is None:
        shared = parallel.transforms_here(config, fn) if config.parallel else ()
    proofs: list[Proof] = []
    # The same for each graph, as for each call that Thunder compiles anew: what was warned of is known to all.
    hooks = Hooks(config.executor, config.choices, observer, config.parallel)
    hooks.config, hooks.warn, hooks.proofs = config, True, proofs

    def compiled(function: Callable[..., Any]) -> Any:
        hooks.restart()
        own = hooks.transforms()
        transforms = [own[0], *shared, *own[1:]]
        return thunder_api.jit(function, executors=hooks.executors(), transforms=transforms, **options)

    jitted = dynamo.jit(fn, compiled, observer) if config.capture == "dynamo" else compiled(fn)
    jitted._workbench_proofs = proofs
    return jitted


def proofs_of(jitted: Any) -> tuple[Proof, ...]:
    """The proofs of what `jit` gave, one for each compilation so far; none for what it did not give."""
    return tuple(getattr(jitted, "_workbench_proofs", ()))


def unmodified(
    fn: Callable[..., Any], transforms: Sequence[Transform] = (), capture: str = "interpreter"
) -> Callable[..., Any]:
    """``thunder.jit(fn)`` as it comes, with its default executors: what every run is checked against.

    Parameters
    ----------
    fn : callable or torch.nn.Module
    transforms : sequence of Transform, optional
        Those that share it among ranks.
    capture : {'dynamo', 'interpreter'}
        How it comes in.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        return thunder_api.jit(function, transforms=list(transforms))

    jitted: Callable[..., Any] = dynamo.jit(fn, compiled) if capture == "dynamo" else compiled(fn)
    return jitted
