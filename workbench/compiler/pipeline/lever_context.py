"""Inputs of a lever: `LeverContext` and `LeverOutcome`.

A `LeverContext` contains the joint trace, its graph and its stable ids. A `LeverOutcome` contains the results of the
choices that were applied before.

The `LeverContext` is built from Thunder's traces in each compilation. Therefore levers have the same input in the
workbench and in a replayed config. Objects of these classes are immutable. A lever that has results returns a new
`LeverOutcome`.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from workbench.analysis.equivalence.side_effects import lost_writes, stale_reads, written_arguments
from workbench.analysis.equivalence.terms import may_write_memory
from workbench.analysis.memory.liveness import Predictor
from workbench.analysis.memory.recompute_set import Recomputer
from workbench.compiler.fusion.executors import FusionOptions
from workbench.compiler.fusion.fusion_crossings import Crossing, crossings
from workbench.compiler.fusion.rematerialize import RematReport
from workbench.compiler.interop.thunder_api import WAITS, BoundSymbol, BoundSymbolTag, ProxyTag, TraceCtx, prims
from workbench.compiler.layers.partition import LayerPartition
from workbench.compiler.lowering.call_normalization import draws, draws_inside
from workbench.compiler.memory.graph_builder import read_joint
from workbench.compiler.memory.offload import Offloader
from workbench.compiler.memory.views_and_writes import FactsCache
from workbench.compiler.trace.bsym_memo import structure_of
from workbench.compiler.trace.copy_sets import MemoryAliases, count_copies_and_fences, is_copy, leaves
from workbench.compiler.trace.lazy_value import LazyValue
from workbench.compiler.trace.stable_ids import CLONE_PREFIX, class_of, find_places, origin_of
from workbench.compiler.trace.tags import has_tag
from workbench.core.executor import executor_named
from workbench.core.graph import BACKWARD, Graph, Kind, Origin
from workbench.util.planning_lock import PLANNING, planned_property

if TYPE_CHECKING:
    from workbench.compiler.pipeline.collective_schedule import CollectiveSchedule

T = TypeVar("T")


def _random_ops(bsym: BoundSymbol) -> Set[str]:
    """Return the names of the random operators among a statement and its subsymbols."""
    if not bsym.subsymbols:
        return {str(bsym.sym.name)} if has_tag(bsym, prims.OpTags.RANDOM_OP) or draws(bsym) else set()
    found: frozenset[str] = structure_of(bsym).get_or_make(
        "random ops", lambda: frozenset(name for sub in bsym.subsymbols for name in _random_ops(sub))
    )
    return found


def _may_write(bsym: BoundSymbol) -> bool:
    """Return whether a statement may write existing memory. The answer is cached in the statement's `Structure`."""

    def find() -> bool:
        return any(may_write_memory(str(leaf.sym.name)) for leaf in leaves([bsym]))

    return bool(structure_of(bsym).get_or_make("may write", find))


def _written_names(program: TraceCtx) -> set[str]:
    """Return the names of the arguments whose memory a program may write in place.

    If the program writes memory of an unknown origin, the result contains a name from this memory, too.
    """
    memory = MemoryAliases(program.bound_symbols)
    everything = list(leaves(program.bound_symbols))
    made = {out.name for leaf in everything if isinstance(leaf.sym.id, prims.PrimIDs) for out in leaf.flat_proxy_outs}
    given = defaultdict[str, set[str]](set)
    for arg in program.args:
        given[memory.base(arg.name)].add(arg.name)
    found: set[str] = set()
    for base in {memory.base(leaf.args[1].name) for leaf in everything if is_copy(leaf)}:
        found |= given[base] or ({base} - made)
    return found


def _group(bsym: BoundSymbol) -> tuple[int, bool]:
    return origin_of(bsym), BoundSymbolTag.BACKWARD in bsym.tags


@dataclasses.dataclass(frozen=True)
class LeverOutcome:
    """Results of the choices that were applied so far in one plan; immutable.

    Attributes
    ----------
    partitioned : TraceCtx or None
        The fused trace before rematerialization. None before fusion, and if the executor does not fuse.
    options : FusionOptions
        Options that levers set for the fusion executor.
    report : RematReport
        Report of rematerialization on the cuts between fusions.
    communication : mapping of str to CollectiveSchedule
        For ``forward`` and ``backward``, the schedule that says which statements may move, and how far. A trace without
        collectives has no entry.
    offloader : Offloader or None
        The offloader that has edited the forward trace, and must edit the backward trace.
    execution : Graph or None
        Execution graph of the plan; None when a config is replayed.
    forward : TraceCtx or None
        The forward trace in the chosen order; None if no order was chosen. The lever `order` needs this trace to order
        the backward.
    moved_statements : int
        Number of statements that the lever `order` has moved.
    ordered : mapping of str to str
        Maps the ids of sites to the options in effect in the plan. Each of these sites decides about the recomputed
        statements of one layer.
    """

    partitioned: TraceCtx | None = None
    options: FusionOptions = dataclasses.field(default_factory=FusionOptions)
    report: RematReport = dataclasses.field(default_factory=RematReport)
    communication: Mapping[str, CollectiveSchedule] = dataclasses.field(default_factory=dict)
    offloader: Offloader | None = None
    execution: Graph | None = None
    forward: TraceCtx | None = None
    moved_statements: int = 0
    ordered: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @planned_property
    def crossings(self) -> list[Crossing]:
        """Values that one fusion passes to another."""
        return [] if self.partitioned is None else crossings(self.partitioned)


@dataclasses.dataclass(frozen=True)
class LeverContext:
    """Input of levers that does not depend on choices.

    Attributes
    ----------
    executor : str
        Name of the executor; see `workbench.core.executor`.
    origins : tuple of Origin
    gradients : LazyValue of TraceCtx
        The joint trace before operator executors claim it. In this trace, random operators can still be identified. The
        value is computed when it is first read.
    claimed : TraceCtx
        The joint trace after claiming, before fusion.
    has_backward : bool
    arguments : mapping of str to Tensor
        The tensors of the trace's arguments, by name, if they are known. They show which arguments share storages.
    unread : mapping of str to Tensor
        Tensors that the program holds but no statement reads, one for each storage. They also take memory.
    beside : frozenset of str
        Names of arguments that the program returns unchanged, although its trace does not return them.
    cache : FactsCache
        Cached facts about the memory effects of statements.
    gathers_again : bool
        Whether parameters are sharded and the backward gathers the forward's parameters again, as in ZeRO-3.
    program : TraceCtx or None
        The program's own trace, before gradients, with origins; None if ranks share the program.
    few : LeverContext or None
        Context of the program without repeated layers, from which this context was made; None if no layers were
        removed. A check that finds nothing in this smaller program also finds nothing in the complete program.
    """

    executor: str
    origins: tuple[Origin, ...]
    gradients: LazyValue[TraceCtx]
    claimed: TraceCtx
    has_backward: bool
    arguments: Mapping[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    unread: Mapping[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    beside: frozenset[str] = frozenset()
    cache: FactsCache = dataclasses.field(default_factory=FactsCache)
    gathers_again: bool = False
    program: TraceCtx | None = None
    few: LeverContext | None = None

    def with_tensors(
        self, arguments: Mapping[str, torch.Tensor], unread: Mapping[str, torch.Tensor], beside: frozenset[str]
    ) -> LeverContext:
        """Return the context with these values of `arguments`, `unread` and `beside`."""
        few = self.few and self.few.with_tensors(arguments, unread, beside)
        return dataclasses.replace(self, arguments=arguments, unread=unread, beside=beside, few=few)

    @property
    def joint(self) -> TraceCtx:
        """The joint trace before operator executors claim its statements."""
        return self.gradients.value

    @property
    def fuses(self) -> bool:
        """Whether the executor makes fusions."""
        return executor_named(self.executor).fuses

    @planned_property
    def _results(self) -> dict[str, Any]:
        return {}

    def get_or_make(self, name: str, make: Callable[[LeverContext], T]) -> T:
        """Return the result of `make` for this context. The result is computed once for each `name`, and cached."""
        with PLANNING:
            if name not in self._results:
                self._results[name] = make(self)
            found: T = self._results[name]
            return found

    @planned_property
    def layer_differences(self) -> Mapping[str, str]:
        """Maps the path of a layer to a description of how the layer differs from the previous layer.

        Layers that do not differ are not included. The mapping is empty for a program that ranks share.
        """
        return {} if self.program is None else LayerPartition(self.program, self.origins).differences

    @planned_property
    def graph(self) -> Graph:
        """Graph of the claimed joint trace."""
        return self.read_graph(self.claimed)

    def read_graph(self, trace: TraceCtx) -> Graph:
        """Return the graph of a joint trace of this program, before or after fusion."""
        with PLANNING:
            return read_joint(
                trace,
                self.origins,
                self.random,
                cache=self.cache,
                arguments=self.arguments,
                unread=self.unread,
                beside=self.beside,
            )

    @planned_property
    def random(self) -> frozenset[str]:
        """Names of the results of random operators."""
        if self.few is not None and not self.few.random:
            return frozenset()
        # Claiming may remove the tag of random operators and rename values. It keeps the origin of a statement, and the
        # name of a primitive. If the claimed statements of an origin lack the name of one of the origin's random
        # operators, all of these statements count as random.
        asked: defaultdict[tuple[int, bool], set[str]] = defaultdict(set)
        for bsym in self.joint.bound_symbols:
            if names := _random_ops(bsym):
                asked[_group(bsym)] |= names
        if not asked:
            return frozenset()
        groups: defaultdict[tuple[int, bool], list[BoundSymbol]] = defaultdict(list)
        for bsym in self.claimed.bound_symbols:
            groups[_group(bsym)].append(bsym)
        drawn: set[str] = set()
        for group, names in asked.items():
            here = groups[group]
            found = [bsym for bsym in here if bsym.sym.name in names or has_tag(bsym, prims.OpTags.RANDOM_OP)]
            known = {str(bsym.sym.name) for bsym in found} | {name for bsym in found for name in _random_ops(bsym)}
            drawn.update(out.name for bsym in (found if names <= known else here) for out in bsym.flat_proxy_outs)
        return frozenset(drawn)

    @planned_property
    def caveats(self) -> tuple[str, ...]:
        """Messages about results of this program that differ from eager PyTorch's under all choices.

        Each message names the cause. The messages come from checks of the joint trace and of the program's own trace.
        Empty if `program` is None.
        """
        if self.program is None or (self.few is not None and not self.few.caveats):
            return ()
        return (
            *self._repeated_draws(),
            *self._lost_writes(),
            *self._unrepeated_writes(),
            *self._stale_gradients(),
        )

    def _repeated_draws(self) -> Iterator[str]:
        """Yield a message for each forward statement that draws random numbers and whose gradient draws them again.

        Custom autograd functions are skipped, because their own backward may draw numbers.
        """
        assert self.program is not None
        program = {origin_of(bsym): bsym for bsym in self.program.bound_symbols if draws_inside(bsym)}
        if not program:
            return
        again = {
            origin_of(bsym): None
            for bsym in self.joint.bound_symbols
            if BoundSymbolTag.BACKWARD in bsym.tags and draws_inside(bsym)
        }
        for index in again:
            if (
                index in program
                and not class_of(program[index])
                and program[index].sym.name != "autograd_function_apply"
            ):
                yield (
                    f"{self.line(index)} draws random numbers, and Thunder draws others for its gradient: outputs are "
                    "right, but gradients belong to another draw"
                )

    def _lost_writes(self) -> Iterator[str]:
        """Yield a message for each argument or buffer that the program writes but Thunder's trace does not write."""
        assert self.program is not None
        # Check the names first, because reading the program's graph would take 3 % of the time to open a Llama.
        if not any(map(_may_write, self.program.bound_symbols)):
            return
        if _written_names(self.program).issubset(written_arguments(self.graph)):
            return
        for name in lost_writes(self.read_graph(self.program), self.graph):
            yield f"the program writes into {name}, but no statement of Thunder's trace does: the update is lost"

    def _unrepeated_writes(self) -> Iterator[str]:
        """Yield a message for each write to an argument or buffer in a region of `torch.utils.checkpoint`.

        Eager PyTorch repeats such a write when it recomputes the region; a plan does not.
        """
        assert self.program is not None
        statements = self.program.bound_symbols
        memory = MemoryAliases(statements)
        given = {memory.base(arg.name) for arg in self.program.args}
        reported = set()
        for bsym in statements:
            if not count_copies_and_fences(bsym)[0]:
                continue
            inside = list(leaves([bsym]))
            again = any(ProxyTag.RECOMPUTE_IN_BACKWARD in out.tags for leaf in inside for out in leaf.flat_proxy_outs)
            written = any(memory.base(leaf.args[1].name) in given for leaf in inside if is_copy(leaf))
            index = origin_of(bsym)
            if again and written and index not in reported:
                reported.add(index)
                yield (
                    f"{self.line(index)} writes in a region that torch.utils.checkpoint recomputes in the backward. "
                    "Eager PyTorch then writes a second time, for example running statistics of a batch norm; a plan "
                    "writes once in a step. To get the same in both, move the write out of the checkpointed region"
                )

    def _stale_gradients(self) -> Iterator[str]:
        """Yield a message for each statement that overwrites memory from which Thunder later computes a gradient."""
        graph = self.graph
        reported = set()
        for read in stale_reads(graph):
            index = int(graph.statements.origin[read.write])
            if index in reported:
                continue
            reported.add(index)
            name, value = graph.statements.name[read.reader], graph.values.name[read.value]
            in_forward = graph.statements.side[read.reader] != BACKWARD
            if in_forward or graph.statements.kind[read.reader] == Kind.GET_GRAD:
                why = f"the gradient of {value} is computed as if nothing had been written into it"
            else:
                why = f"gradients are computed from the new values ({name} reads {value})"
            yield (
                f"{self.line(index)} overwrites a tensor that a gradient depends on: outputs are right, but "
                f"{why}. Eager PyTorch keeps a copy, or refuses; unmodified Thunder does neither. Write out of "
                "place: y = f(y) instead of f(y, inplace=True) or an operator ending in _"
            )

    def line(self, index: int) -> str:
        """Return the id and the line of the origin with this index, for a message."""
        origin = self.origins[index]
        return f"{origin.id} ({origin.file}:{origin.line})" if origin.line else origin.id

    @planned_property
    def value_ids(self) -> Mapping[str, str]:
        """Maps the name of each value of the claimed joint trace to the value's stable id."""
        found = find_places(self.claimed.bound_symbols, self.origins)
        return {name: place.id(self.origins) for name, place in found.items()}

    def value_id(self, name: str) -> str:
        """Return the stable id of a value.

        The id of a recomputed value is the id of the original value with a `~` appended. A value that is not in the
        claimed joint trace and is not recomputed has its name as id.
        """
        if name in self.value_ids:
            return self.value_ids[name]
        stripped = name.removeprefix(CLONE_PREFIX)
        return f"{self.value_ids[stripped]}~" if stripped in self.value_ids else name

    def describe(self, name: str) -> tuple[str, str]:
        """Return a label for a value, and the source line that computes it; the line is empty if it is not known."""
        index = self.origin_by_value.get(name.removeprefix(CLONE_PREFIX), -1)
        if index < 0:
            return name, ""
        origin = self.origins[index]
        source = f"{origin.file}:{origin.line}  {origin.text}" if origin.line else ""
        return self.value_id(name), source

    @planned_property
    def waits(self) -> bool:
        """Whether the program waits for collectives."""
        return any(bsym.sym.name in WAITS for bsym in self.claimed.bound_symbols)

    @planned_property
    def recomputer(self) -> Recomputer:
        """Object that finds which values can be recomputed in the backward, and from which inputs."""
        return Recomputer(self.graph, by_tag=self.fuses)

    @planned_property
    def predictor(self) -> Predictor:
        """Object that predicts memory for schedules of the joint trace. Predictions are exact if nothing is fused."""
        return Predictor(self.graph)

    @planned_property
    def origin_by_value(self) -> dict[str, int]:
        """Maps the name of each value of the claimed joint trace to the index of the value's origin."""
        return {out.name: origin_of(bsym) for bsym in self.claimed.bound_symbols for out in bsym.flat_proxy_outs}
