"""Fusion executors that the workbench controls: nvFuser, and torch.compile with fusions like those of nvFuser.

The two executors are subclasses of Thunder's executors, which stay unchanged. Each executor chooses the cuts between
fusions according to the options of a plan. A cut is the set of values that one fusion passes to another. Each executor
stores the partitioned trace of its last fusion pass, and reports the time of each stage of the pass. A region is a
group of statements that becomes one fusion.
"""

from __future__ import annotations

import contextvars
import copy
import dataclasses
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from types import MappingProxyType, SimpleNamespace
from typing import Any, Protocol

import torch

from workbench.compiler.fusion.detached_outputs import find_isolated_detaches
from workbench.compiler.fusion.fusion_passes import (
    MemoizedPasses,
    Parts,
    Regions,
    known_structure,
    with_numbers,
)
from workbench.compiler.fusion.inductor_write_hazards import memory_with_several_views
from workbench.compiler.fusion.merge_regions import merge_regions
from workbench.compiler.fusion.rematerialize import RematOptions, RematReport, rematerialize
from workbench.compiler.interop import dynamo_stance, inductor_patches
from workbench.compiler.interop.devices import nvfuser_module
from workbench.compiler.interop.inductor_timings import RegionTimes
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    FusionExecutor,
    FutureTensorProxy,
    ImplInfo,
    Proxy,
    Region,
    Symbol,
    TorchCompileExecutor,
    TraceCtx,
    TraceProvenance,
    dce,
    from_trace,
    fuse_bound_symbols,
    make_compiled,
    prims,
    torch_executor,
    tracectx,
    unvariableify,
    utils,
    variableify,
)
from workbench.compiler.trace import copy_sets
from workbench.compiler.trace.bsym_memo import STRUCTURE, PlanMemo, Structure, identity, ids, made_names
from workbench.compiler.trace.fingerprints import fusion_key
from workbench.compiler.trace.segments import Segment, attach, segments_of
from workbench.compiler.trace.tags import differentiates, has_tag

UNFUSED = frozenset(
    {
        "torch.nn.functional.scaled_dot_product_attention",
        "torch.nn.functional.embedding",
        "embedding_backward",
        prims.PrimIDs.EMBEDDING,
        prims.PrimIDs.EMBEDDING_BACKWARD,
    }
)
"""Operators that no torch.compile region contains, in addition to matmuls and random operators. nvFuser does not fuse
these operators either.
"""
DIFFERENTIATED = frozenset(op for op, how in torch_executor.implmap.items() if how.grad_transform is not None)
"""Operators for which Thunder's PyTorch executor has a gradient rule. The rule applies if no earlier executor claims
the operator.

Primitives among these operators, such as ``adaptive_avg_pool2d``, have no other rule.
"""


class Observer(Protocol):
    """Receiver of the compiler's progress."""

    def stage(self, name: str, seconds: float) -> None:
        """Report that a stage of the compilation has ended, and its wall time in seconds."""

    def fusion_begin(self, name: str, index: int, count: int) -> None:
        """Report that compilation of a fusion begins, with the fusion's number and the number of fusions."""

    def fusion_end(
        self, name: str, index: int, count: int, seconds: float, parts: Mapping[str, float], cached: bool
    ) -> None:
        """Report that a fusion is compiled and has run once.

        `parts` maps each stage, such as ``definition`` or ``first launch``, to its seconds. `cached` is True if one of
        PyTorch's caches contained compiled code of the fusion.
        """


@dataclasses.dataclass(frozen=True)
class FusionOptions:
    """Options of the fusion executor. Each lever sets its own fields.

    Attributes
    ----------
    remat : RematOptions
        Weights and pins of the cuts between fusions. A pin decides whether one value is saved or recomputed.
    share : bool
        Whether identical fusions are compiled only once.
    set_policy : str
        Policy that decides which in-place copies get a `set` operation in nvFuser's definition; see
        `workbench.compiler.trace.copy_sets`.
    set_policies : mapping of str to str
        Maps the name of a copy's output to the `set` policy of this copy.
    """

    remat: RematOptions = dataclasses.field(default_factory=RematOptions)
    share: bool = False
    set_policy: str = copy_sets.ALWAYS
    set_policies: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def fusion_options(self) -> tuple[Hashable, ...]:
        """Return the options on which the definition of a fusion depends."""
        return self.share, self.set_policy, tuple(self.set_policies.items())


Configure = Callable[[TraceCtx], FusionOptions]
"""A function that returns the options for a partitioned trace. It needs the trace, because some pins depend on which
values cross between fusions.
"""


class Compilation:
    """State that the fusions of one compilation share. A fusion uses the state at its first call.

    A function may be compiled again, for inputs with other shapes or other `requires_grad`, before all fusions of its
    first compilation have run. For example, the fusions of the backward run late. Therefore each compilation has its
    own state.

    Attributes
    ----------
    observer : Observer or None
    options : FusionOptions
    shared : dict
        Maps a key to a compiled fusion or to nvFuser's definition of a fusion. The key contains the structure of the
        fusion, or the name of the fusion if `options.share` is False.
    begun, count : int
        Number of fusions whose compilation has begun, and number of fusions that have to be compiled.
    lock : threading.RLock
        Held while a fusion is defined, compiled and run for the first time. If several threads make the first call of a
        program at the same time, each fusion is still compiled once.
    """

    def __init__(self, observer: Observer | None = None) -> None:
        self.observer = observer
        self.options = FusionOptions()
        self.shared: dict[Any, Any] = {}
        self.begun = 0
        self.count = 0
        self.lock = threading.RLock()


class ExecutorState:
    """Input and results of an executor's fusion pass.

    Attributes
    ----------
    configure : callable
        Returns the options for a partitioned trace.
    observer : Observer or None
    partitioned : TraceCtx or None
        Partitioned trace of the last pass, before rematerialization.
    compilation : Compilation
        State of the last pass.
    report : RematReport
        Findings of the last pass about its cuts.
    unfused : frozenset of str
        Output names of the statements that must stay outside of fusions.
    numbers : mapping of int to int
        Maps the number in the name of a fusion that the last pass made to the fusion's number in the plan.
    kept : PlanMemo or None
        Data about fusions from earlier plans of the program. None for a program that will run, because such a program
        needs its own fusions.
    keeping : bool
        Whether the pass now reads and writes `kept`.
    """

    def __init__(self, configure: Configure, observer: Observer | None = None, memo: PlanMemo | None = None) -> None:
        self.configure = configure
        self.observer = observer
        self.partitioned: TraceCtx | None = None
        self.compilation = Compilation(observer)
        self.report = RematReport()
        self.unfused: frozenset[str] = frozenset()
        self.numbers: Mapping[int, int] = {}
        self.kept = memo
        self.keeping = False

    @property
    def regions(self) -> Regions:
        """Return the passes over fusions. They use `kept` if `keeping` is True."""
        return Regions(self.kept if self.keeping else None)

    @property
    def options(self) -> FusionOptions:
        """Options of the last pass."""
        return self.compilation.options

    def begin(self, partitioned: TraceCtx) -> FusionOptions:
        """Compute the options for a partitioned trace, and store them in a new `compilation`."""
        self.report = RematReport()
        self.compilation = Compilation(self.observer)
        self.compilation.options = self.configure(partitioned)
        return self.options

    def finish(self, fused: TraceCtx) -> TraceCtx:
        """Store the number of fusions of `fused` that have to be compiled, and return `fused`.

        The fusions of a plan are never compiled, so nothing is stored for a plan.
        """
        if self.kept is not None:
            return fused
        fusions = [bsym for bsym in fused.bound_symbols if bsym.sym.is_fusion]
        self.compilation.count = compilations(sharing_keys(fusions), share=self.options.share)
        return fused

    def time_stage(self, name: str, work: Callable[[], TraceCtx]) -> TraceCtx:
        """Call `work`, report its duration to the observer, and return its result."""
        start = time.perf_counter()
        result = work()
        self.report_stage(name, start)
        return result

    def report_stage(self, name: str, start: float) -> None:
        """Report to the observer that a stage has ended. `start` is the `time.perf_counter` at which it began."""
        if self.observer is not None:
            self.observer.stage(name, time.perf_counter() - start)


class LazyRegion:
    """A torch.compile region that is compiled at its first call, so that planning compiles nothing."""

    def __init__(self, compilation: Compilation, name: str, mode: str | None) -> None:
        self.compilation = compilation
        self.name = name
        self.mode = mode
        self.bsym: BoundSymbol | None = None
        self.compiled: Callable[..., Any] | None = None
        # This context has Thunder's compile options, default device and language of this compilation.
        self._context = contextvars.copy_context()

    def __call__(self, *args: Any) -> Any:
        """Run the region. Compile it first if it is not compiled yet."""
        if self.compiled is None:
            with self.compilation.lock:
                # Another thread may have compiled the region while this thread waited for the lock.
                if self.compiled is None:
                    return self._run_first(*args)
        return self.compiled(*args)

    def _run_first(self, *args: Any) -> Any:
        bsym, compilation = self.bsym, self.compilation
        assert bsym is not None
        # torch.compile compiles again for inputs with other strides.
        strides = tuple([arg.stride() for arg in args if isinstance(arg, torch.Tensor)])
        key = (fusion_key(bsym), strides) if compilation.options.share else self.name
        if compilation.options.share and key in compilation.shared:
            self.compiled = compilation.shared[key]
            return self.compiled(*args)
        members, inputs, outputs = list(bsym.subsymbols), list(bsym.args), list(bsym.output)
        with FirstCall(compilation, self.name) as first:
            with inductor_patches.inductor_options(compiles=not memory_with_several_views(members, inputs)):
                made = self._context.run(make_compiled, members, inputs, outputs, mode=self.mode)
            compiled = dynamo_stance.ignore_stance(made)
            first.mark_defined()
            try:
                return compiled(*args)
            finally:
                # The first call compiles the region. Set `compiled` only after the first call, so that other threads
                # wait for the lock.
                self.compiled = compilation.shared[key] = compiled


class FirstCall:
    """A context in which a fusion is defined, compiled and run for the first time. The context notifies the observer.

    Parameters
    ----------
    compilation : Compilation
    name : str
        Name of the fusion.
    defined_s : float
        Seconds that the definition of the fusion has already taken.
    """

    def __init__(self, compilation: Compilation, name: str, defined_s: float = 0.0) -> None:
        self.compilation = compilation
        self.name = name
        self.defined_s = defined_s
        self.index = compilation.begun
        compilation.begun += 1
        # `count` is too low if fusions of equal structure get inputs with different strides.
        compilation.count = max(compilation.count, compilation.begun)

    def __enter__(self) -> FirstCall:
        if self.compilation.observer is not None:
            self.compilation.observer.fusion_begin(self.name, self.index, self.compilation.count)
        self.start = time.perf_counter() - self.defined_s
        self.times = RegionTimes()
        return self

    def mark_defined(self) -> None:
        """Record that the fusion is now defined."""
        self.defined_s = time.perf_counter() - self.start

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        observer, count = self.compilation.observer, self.compilation.count
        if observer is None or kind is not None:
            return
        seconds = time.perf_counter() - self.start
        parts = {"definition": self.defined_s, **self.times.parts()}
        parts["first launch"] = max(0.0, seconds - sum(parts.values()))
        observer.fusion_end(self.name, self.index, count, seconds, parts, self.times.was_cached())


def sharing_keys(
    fusions: Iterable[BoundSymbol], strides: Mapping[str, tuple[int, ...]] = MappingProxyType({})
) -> list[Hashable]:
    """Return a key for each fusion. Fusions with equal keys can share one compiled fusion.

    Parameters
    ----------
    fusions : iterable of BoundSymbol
    strides : mapping of str to tuple of int
        Strides of tensors, by name. Tensors that are missing here count as tensors with equal strides.
    """
    return [(fusion_key(bsym), *_layouts(bsym, strides)) for bsym in fusions]


def _layouts(fusion: BoundSymbol, strides: Mapping[str, tuple[int, ...]]) -> Iterator[Hashable]:
    """Yield what the compiler of a fusion reads of the strides of each input."""
    # torch.compile compiles again for other strides, nvFuser only for another order or another contiguity.
    by_contiguity = isinstance(fusion.sym.executor, MemoizedPasses)
    for proxy in fusion.flat_proxy_args:
        found = strides.get(proxy.name)
        yield found if found is None or not by_contiguity else _contiguity(tuple(proxy.shape), found)


@lru_cache(4096)
def _contiguity(shape: tuple[int, ...], strides: tuple[int, ...]) -> Hashable:
    found: Hashable = nvfuser_module().compute_contiguity(shape, strides)
    return found


def compilations(keys: Sequence[Hashable], *, share: bool) -> int:
    """Return the number of fusions that have to be compiled, from their keys; see `sharing_keys`.

    If `share` is True, identical fusions count once.
    """
    return len({*keys}) if share else len(keys)


class RegionExecutor(TorchCompileExecutor):
    """Executor that compiles regions of elementwise operators, reductions and views with torch.compile.

    Regions contain no matmul, attention, embedding, random operator or collective, and no statement that runs PyTorch's
    autograd.

    Parameters
    ----------
    control : ExecutorState
    further : iterable of str
        Ids of operators that regions may contain, in addition to those of Thunder's PyTorch executor.
    past_others : bool
        If True, merge regions that are separated only by statement order; see `merge_regions`.
    """

    def __init__(self, control: ExecutorState, further: Iterable[str] = (), *, past_others: bool = False) -> None:
        super().__init__("workbench_torchcompile")
        self._implmap = {op: ImplInfo() for op in (*torch_executor.implmap, *further) if op not in UNFUSED}
        self.control = control
        self.past_others = past_others
        self._apart: frozenset[str] = frozenset()

    def can_execute(self, bsym: BoundSymbol) -> bool:
        """Return whether this executor claims an operator.

        When Thunder differentiates an operator, it asks only the first executor that accepts the operator for a
        gradient rule. This executor has no gradient rules. Therefore it leaves the primitives of `DIFFERENTIATED` to
        Thunder's PyTorch executor.
        """
        return super().can_execute(bsym) and not (bsym.sym.is_prim and bsym.sym.id in DIFFERENTIATED)

    def can_fuse(self, bsym: BoundSymbol) -> bool:
        """Return whether a statement may be in a region."""
        unfused, apart = self.control.unfused, self._apart
        if (unfused or apart) and any(out.name in unfused or out.name in apart for out in bsym.flat_proxy_outs):
            return False
        key = ("can fuse", identity(self), identity(bsym))
        return bool(self.control.regions.get_or_make(key, (self, bsym), lambda: self._can_fuse(bsym)))

    def _can_fuse(self, bsym: BoundSymbol) -> bool:
        return bool(
            super().can_fuse(bsym)
            # Thunder treats a statement as an identity if it has no subsymbols and is not a primitive. Dead code
            # elimination would drop such a statement from a fusion. An example is a statement that makes a gradient of
            # zeros.
            and (bsym.subsymbols or bsym.sym.is_prim)
            and not has_tag(bsym, prims.OpTags.MATMUL_OP)
            and not has_tag(bsym, prims.OpTags.RANDOM_OP)
            and not differentiates(bsym)
            # Dynamo cannot compile a collective whose wait is a separate, later statement.
            and not any(isinstance(p, FutureTensorProxy) for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs))
        )

    def fuse(self, region: Region, fusion_counter: int) -> BoundSymbol:
        """Return a fusion statement that compiles itself at its first call."""
        name, regions = f"TorchCompile{fusion_counter}", self.control.regions
        inputs, outputs = [unvariableify(x) for x in region.inputs], [unvariableify(x) for x in region.outputs]
        known = (ids(inputs), ids(outputs), ids(region.bound_symbols))
        alive = (inputs, outputs, tuple(region.bound_symbols))

        def make() -> BoundSymbol:
            lazy = LazyRegion(self.control.compilation, name, self.mode)
            symbol = Symbol(name, meta=None, is_fusion=True, executor=self)
            given = copy_sets.kept_outputs(outputs, region.bound_symbols)
            lazy.bsym = BoundSymbol(symbol, inputs, {}, given, region.bound_symbols, _call_ctx={name: lazy})
            # Later copies of the statement share the structure. Regions that differ only in names also share one
            # structure.
            lazy.bsym.__dict__[STRUCTURE] = regions.structure(inputs, outputs, region.bound_symbols)
            return lazy.bsym

        return regions.get_or_make(("fuse", identity(self), name, *known), (self, alive), make)

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        """Return a trace with callable fusions: partition the trace, then cut between the fusions."""
        control = self.control
        control.partitioned = control.time_stage("partition", lambda: self._partition(trace))
        options = control.begin(control.partitioned)
        cut = control.time_stage(
            "remat", lambda: dce(_cut_partition(control, control.partitioned, options, control.report))
        )
        if control.unfused:
            cut = copy_sets.keep_in_forward(cut)
        done = control.finish(control.time_stage("contexts", lambda: _make_callable(cut, control)))
        done.set_provenance(TraceProvenance("Fusion"))
        return done

    def _partition(self, trace: TraceCtx) -> TraceCtx:
        self._apart = find_isolated_detaches(trace)
        producers, consumers = utils.producers_and_consumers(trace)

        def mergeable(node: Any) -> bool:
            return len(node.group_bsyms) > 1 or self.can_fuse(node.group_bsyms[0])

        def is_region(group: Sequence[BoundSymbol]) -> bool:
            return len(group) > 1 or self.can_fuse(group[0])

        def fuse_groups(groups: Iterable[list[BoundSymbol]]) -> TraceCtx:
            found, counter = from_trace(trace), 0
            for group in groups:
                if not is_region(group):
                    found.bound_symbols.append(group[0])
                    continue
                found.bound_symbols.append(self.fuse(Region(producers, consumers, group), counter))
                counter += 1
            return found

        groups = fuse_bound_symbols(trace, lambda a, b: mergeable(a) and mergeable(b))
        apart = fuse_groups(groups)
        return (
            fuse_groups(merge_regions(groups, is_region, self._values_in_memory(apart))) if self.past_others else apart
        )

    def _values_in_memory(self, partitioned: TraceCtx) -> list[set[str]]:
        """Return, for each statement after the cuts, the names of the values that it reads from or writes to memory."""
        cut = _cut_partition(self.control, partitioned, self.control.configure(partitioned), RematReport())
        return [{each.name for each in (*b.flat_proxy_args, *b.flat_proxy_outs)} for b in cut.bound_symbols]


def _cut_partition(
    control: ExecutorState, partitioned: TraceCtx, options: FusionOptions, report: RematReport
) -> TraceCtx:
    """Cut between the fusions of a partitioned trace, and return the new trace."""
    once = control.regions.get_or_make
    return _define_once(rematerialize(partitioned, options.remat, report, once), control.regions)


def _make_callable(trace: TraceCtx, control: ExecutorState) -> TraceCtx:
    """Return a trace in which each fusion is rebuilt from its current statements, so that it can be called.

    Thunder's `update_fusion_call_ctx` also rebuilds fusions, but creates a class for each fusion. For the program
    `residual_chain`, creating these classes takes an eighth of the time to make a further plan.
    """
    done, options = from_trace(trace), control.options.fusion_options

    def again(bsym: BoundSymbol, number: int) -> BoundSymbol:
        key = ("again", identity(bsym), number, *options)
        found: BoundSymbol = control.regions.get_or_make(key, bsym, partial(_rebuild_fusion, bsym, number))
        return found

    control.regions.map_fusions(trace, done, ("again", *options), again)
    return done


def _rebuild_fusion(bsym: BoundSymbol, number: int) -> BoundSymbol:
    args, outputs = ([proxy for proxy in proxies if proxy is not None] for proxies in (bsym.args, bsym.output))
    region = _region(args, outputs, bsym.subsymbols, known_structure(bsym))
    made: BoundSymbol = bsym.sym.executor.fuse(region, number)
    return made


def _define_once(trace: TraceCtx, regions: Regions) -> TraceCtx:
    """Return a trace in which only one statement defines each name, and no fusion has the same argument twice.

    Cuts can break both rules. A consumer that recomputes a statement computes all outputs of the statement, even if
    another fusion also computes them or passes them to the consumer. If two producers pass the same variable to a
    consumer, the consumer has this argument twice.
    """
    done = from_trace(trace)
    made: set[str] = set()
    left = []
    for segment in segments_of(trace):
        before = frozenset(made.intersection(segment.made))
        key = ("once in segment", identity(segment), before)
        # New names of values depend on all names of the trace.
        renames = segment.get_or_make("renames", partial(_renames_members, segment.bsyms))

        def define(segment: Segment = segment) -> Segment:
            known, bsyms = set(made), list[BoundSymbol]()
            for bsym in segment.bsyms:
                bsyms.append(_define_fusion_once(bsym, known, done) if bsym.sym.is_fusion else bsym)
                known.update(made_names(bsym))
            return regions.changed(segment, bsyms)

        left.append(define() if renames else regions.get_or_make(key, segment, define))
        made.update(segment.made)
    attach(done, left)
    return done


def _renames_members(bsyms: Sequence[BoundSymbol]) -> bool:
    return any(
        bsym.sym.is_fusion
        and not {a.name for a in bsym.args}.isdisjoint(chain.from_iterable(map(made_names, bsym.subsymbols)))
        for bsym in bsyms
    )


def _define_fusion_once(fusion: BoundSymbol, defined: Collection[str], trace: TraceCtx) -> BoundSymbol:
    taken = {a.name: a for a in fusion.args}
    outputs = [out for out in utils.sequencify(fusion.output) if out.name not in defined]
    members = list(fusion.subsymbols)
    if any(name in taken for member in members for name in made_names(member)):
        with tracectx(trace):
            members = [_rename_outputs(member, taken) for member in members]
    elif len(taken) == len(fusion.args) and len(outputs) == len(utils.sequencify(fusion.output)):
        return fusion
    return fusion.from_bsym(args=tuple(taken.values()), output=outputs, subsymbols=members)


def _rename_outputs(member: BoundSymbol, used: Mapping[str, Proxy]) -> BoundSymbol:
    again = {out.name: out for out in member.flat_proxy_outs if out.name in used}
    swap = {variableify(out): out.replace_name() for out in again.values()}
    return member.from_bsym_swap_proxies(swap) if swap else member


def region_executor(
    control: ExecutorState, further: Iterable[str] = (), *, past_others: bool = False
) -> FusionExecutor:
    """Return a torch.compile executor with the state `control`; see `RegionExecutor` for the other parameters."""
    # Plans of one program share an executor, because cached fusions refer to the executor that made them.
    make = partial(RegionExecutor, control, further, past_others=past_others)
    executor: RegionExecutor = make() if control.kept is None else control.kept.get_or_make("torchcompile", None, make)
    executor.control = control
    return executor


def _control_definition(bsym: BoundSymbol, compilation: Compilation) -> None:
    """Make an nvFuser fusion use the plan's `set` policies, report its times, and share its definition.

    Fusions share a definition only if `options.share` is True.
    """
    wrapper = bsym._call_ctx[bsym.sym.name]
    build = wrapper.get_fd

    def get_fd(descriptors: Any) -> Any:
        options = compilation.options
        found = copy_sets.copy_facts(bsym)
        without = copy_sets.copies_without_set(
            bsym, {fact.output: options.set_policies.get(fact.output, options.set_policy) for fact in found}
        )
        structure = fusion_key(bsym) if options.share else bsym.sym.name
        key = (structure, tuple((fact.source, fact.destination) in without for fact in found), descriptors)
        with compilation.lock:
            if key not in compilation.shared:
                start = time.perf_counter()
                with copy_sets.skip_set(without):
                    definition = build(descriptors)
                compilation.shared[key] = _time_first_execution(
                    definition, compilation, bsym.sym.name, time.perf_counter() - start
                )
            return compilation.shared[key]

    wrapper.get_fd = get_fd


def _time_first_execution(definition: Any, compilation: Compilation, name: str, defined_s: float) -> Any:
    """Make `definition` report its first execution to the observer, and return `definition`.

    In the first execution, nvFuser compiles the definition.
    """
    execute = definition.execute

    def run_first(*args: Any, **kwargs: Any) -> Any:
        with compilation.lock:
            # Another thread may have executed the definition while this thread waited for the lock.
            if definition.execute is run_first:
                definition.execute = execute
                with FirstCall(compilation, name, defined_s):
                    return execute(*args, **kwargs)
        return execute(*args, **kwargs)

    definition.execute = run_first
    return definition


def _region(
    inputs: Sequence[Any], outputs: Sequence[Any], bsyms: Sequence[BoundSymbol], structure: Structure | None = None
) -> Any:
    """Return an object with the attributes of Thunder's `Region`, and `structure`: the region's structure if known."""
    named = [[variableify(proxy) for proxy in proxies] for proxies in (inputs, outputs)]
    return SimpleNamespace(inputs=named[0], outputs=named[1], bound_symbols=bsyms, structure=structure)


def nvfuser_executor(control: ExecutorState) -> FusionExecutor:
    """Return a copy of Thunder's nvFuser executor with the state `control`."""
    # Plans of one program share an executor. Cached fusions refer to the executor that made them, and only fusions of
    # one executor can be cut as a pair.
    executor = (
        _nvfuser_executor() if control.kept is None else control.kept.get_or_make("nvfuser", None, _nvfuser_executor)
    )
    executor.control = control
    return executor


def _nvfuser_executor() -> Any:
    impl = nvfuser_module()

    class ControlledNvFuser(MemoizedPasses, impl.nvFuserExecutor):  # type: ignore[name-defined]  # known at run time only
        """Thunder's nvFuser executor with the workbench's cuts between fusions."""

        def can_execute_or_fuse(self, bsym: BoundSymbol) -> bool:
            """Return whether nvFuser claims a statement.

            If nvFuser has a gradient rule for an operator, this method returns True only if nvFuser's implementation
            accepts the arguments. Thunder's own method also returns True if nvFuser can fuse the operator's
            decomposition. Thunder then uses the rule for arguments that the rule does not support. For example, the
            rule for `cross_entropy` fails with ``reduction="sum"``, and ignores `weight` with ``reduction="mean"``.
            """
            if self.get_grad_transform(bsym.sym) is not None:
                return bool(self.can_execute(bsym))
            return bool(super().can_execute_or_fuse(bsym))

        def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
            control = self.control
            start = time.perf_counter()
            partitioned, control.numbers = self._partitioned(trace)
            control.partitioned = with_numbers(partitioned, control.numbers, control.regions)
            control.report_stage("partition", start)
            options = control.begin(control.partitioned)
            cut = control.time_stage("remat", lambda: self._cut(partitioned, options))
            done = control.finish(control.time_stage("contexts", lambda: _make_callable(cut, control)))
            done.set_provenance(TraceProvenance("Fusion"))
            return done

        def fuse(self, region: Region, fusion_counter: int) -> BoundSymbol:
            control, options = self.control, self.control.options
            inputs, outputs = [unvariableify(x) for x in region.inputs], [unvariableify(x) for x in region.outputs]
            key = (
                *("fuse", fusion_counter, *options.fusion_options),
                *(ids(inputs), ids(outputs), ids(region.bound_symbols)),
            )
            alive = (inputs, outputs, tuple(region.bound_symbols))
            return control.regions.get_or_make(key, alive, lambda: self._fuse(inputs, outputs, region, fusion_counter))

        def _fuse(self, inputs: list[Any], outputs: list[Any], region: Region, fusion_counter: int) -> BoundSymbol:
            # Later copies of the statement share the structure. Fusions that differ only in names also share one
            # structure.
            structure = getattr(region, "structure", None)
            if structure is None:
                structure = self.control.regions.structure(inputs, outputs, region.bound_symbols)
            first: list[BoundSymbol] = []

            def parts() -> Parts | None:
                first.append(self._of_region(inputs, outputs, region.bound_symbols, fusion_counter))
                return Parts.from_fusion(first[0], inputs, outputs, region.bound_symbols)

            known: Parts | None = structure.get_or_make("parts", parts)
            if first:
                bsym = first[0]
            elif known is None:
                bsym = self._of_region(inputs, outputs, region.bound_symbols, fusion_counter)
            else:
                given = [inputs[at] for at in known.inputs]
                bsym = self._of_parts(given, outputs, known.members_in(region.bound_symbols), fusion_counter)
            bsym.__dict__[STRUCTURE] = structure
            _control_definition(bsym, self.control.compilation)
            return bsym

        def _of_region(
            self, inputs: list[Any], outputs: list[Any], bsyms: Sequence[BoundSymbol], number: int
        ) -> BoundSymbol:
            members = [member for bsym in bsyms for member in self.flatten(bsym)]
            members = copy_sets.resolve_destinations(members, {x.name for x in inputs})
            return super().fuse(_region(inputs, copy_sets.kept_outputs(outputs, bsyms), members), number)

        def _of_parts(
            self, inputs: list[Any], outputs: list[Any], members: list[BoundSymbol], number: int
        ) -> BoundSymbol:
            self.ready = True
            try:
                return super().fuse(_region(inputs, outputs, members), number)
            finally:
                self.ready = False

        def _partitioned(self, trace: TraceCtx) -> tuple[TraceCtx, dict[int, int]]:
            control = self.control

            def partition() -> tuple[TraceCtx, dict[int, int]]:
                done, numbers = self.partition(trace)
                return _make_callable(done, control), numbers

            key = ("partitioned", control.unfused, control.options.fusion_options)
            done, numbers = control.regions.run_or_reuse(key, trace, partition)
            return done, numbers

        def _cut(self, partitioned: TraceCtx, options: FusionOptions) -> TraceCtx:
            control, report = self.control, RematReport()

            def cut() -> tuple[TraceCtx, RematReport]:
                done = _cut_partition(control, partitioned, options, report)
                return control.regions.without_dead(self.cse(control.regions.remove_casts(done))), report

            key = ("cut", options.fusion_options, options.remat.key)
            done, control.report = control.regions.run_or_reuse(key, partitioned, cut)
            return done

    executor = copy.copy(impl.ex)
    executor.__class__ = ControlledNvFuser
    executor.all_tagged = impl.all_tagged
    return executor
