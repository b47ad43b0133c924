"""`Plan`: the computation that Thunder would execute under a config, and figures predicted from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.cost.collective_overlap import Overlap, overlap
from workbench.analysis.cost.machines import H100, Machine
from workbench.analysis.cost.roofline import Calibration
from workbench.analysis.equivalence.prove import Proof
from workbench.analysis.graphs.fusion_census import Census
from workbench.analysis.memory.liveness import Timeline, alive_at
from workbench.analysis.memory.reserved_memory import ReservedMemory, predict_reserved
from workbench.compiler.fusion.fusion_source import FusionCode, code_of
from workbench.compiler.interop.thunder_api import (
    TraceCtx,
)
from workbench.compiler.pipeline.pass_log import TracePass, passes_of, traces_text
from workbench.compiler.pipeline.stage_log import StageTime
from workbench.compiler.trace.corrections import Correction
from workbench.compiler.trace.lazy_value import LazyValue
from workbench.core.graph import Graph
from workbench.core.lever import Site
from workbench.util.planning_lock import PLANNING, planned_property

UNPROVEN = Proof(False)
"""The `proof` of a plan that the prover has not checked yet."""


class SplitTraces:
    """The execution traces of a plan. They are made at the first access.

    Parameters
    ----------
    make : callable
        Returns the forward trace, and the backward trace or None.
    """

    def __init__(self, make: Callable[[], tuple[TraceCtx, TraceCtx | None]]) -> None:
        self._traces = LazyValue(make)

    @property
    def forward(self) -> TraceCtx:
        """The forward trace."""
        return self._traces.value[0]

    @property
    def backward(self) -> TraceCtx | None:
        """The backward trace; None if the program has no backward."""
        return self._traces.value[1]


NO_STEPS: LazyValue[tuple[tuple[str, tuple[TraceCtx, ...]], ...]] = LazyValue(lambda: ())


@dataclasses.dataclass(frozen=True)
class Plan:
    """The computation that Thunder would execute under a config. Every figure is predicted.

    Attributes
    ----------
    graph : Graph
        Graph of the execution traces, forward before backward.
    peak_bytes, baseline_bytes : int
        Predicted peak memory of the step, and the bytes of parameters, buffers and inputs. The peak memory includes
        these bytes, because parameters, buffers and inputs are alive during the complete step.
    saved_bytes, saved_tensors : int
        Bytes held for the backward, and the number of tensors in Thunder's list of saved tensors. `saved_bytes` counts
        each storage once, and does not count arguments, which are alive anyway. `saved_tensors` also counts the
        parameters and inputs that the backward reads.
    timeline : Timeline
    census : Census
    sites : tuple of Site
    stages : tuple of StageTime
        Times of the stages in which this plan was made.
    opening : tuple of StageTime
        Times of the stages in which the program was traced. All plans of a program share the trace.
    split : SplitTraces
        The execution traces.
    counts : mapping of str to int
        ``compilations``: fusions to compile. ``copies``: in-place copies. ``sets``: `set` operations before copies in
        nvFuser's definitions. ``fences``: fences. ``buckets``: buckets of collectives. ``bucket_copied_bytes``: bytes
        copied into and out of buckets. ``moved_statements``: statements that the lever `order` moved.
        ``offloaded_bytes``: bytes that are offloaded. ``offload_us``: predicted microseconds to offload and reload
        these bytes; see `workbench.compiler.interop.devices.copy_bandwidth`.
    unmatched : tuple of str
        Ids of choices without a site in this program.
    warnings : tuple of str
        Messages about results of this plan that differ from eager PyTorch's, also without choices. Each message names
        the cause.
    corrections : tuple of Correction
        Differences from the plan of unmodified Thunder, with the affected lines; see `docs/reference/corrections.md`.
    ranks : int
        Number of processes that share the program.
    steps : LazyValue of tuple of (str, tuple of TraceCtx)
        Name of each pass up to the one that splits the joint trace, with the traces that the pass made. The last pass
        made a forward and a backward trace; each earlier pass made one trace. `split` has the traces after the levers
        have edited them.
    unordered : Plan or None
        The same plan before its collectives were reordered; None if they were not reordered.
    rows : (statements,) intp or None
        For each statement of the graph, its row in the graph of `unordered`.
    places : mapping of str to str
        Maps the first output of each compute statement to the name of the statement in options ``at(NAME)``. Such an
        option moves a collective right before the statement. Empty for a program without collectives.
    proof : Proof
        Proof that the plan computes the same results as the stock plan. It lists the rules that were used. If the stock
        plan itself is faulty, `proof.fault` describes the fault, and `proof.proven` is False for every plan of the
        program.
    capture, capture_reason : str
        The front end (``dynamo``, ``parts`` or ``interpreter``), and the reason why this front end was used.
    """

    program: str
    device: str
    executor: str
    graph: Graph
    timeline: Timeline
    census: Census
    sites: tuple[Site, ...]
    stages: tuple[StageTime, ...]
    split: SplitTraces
    counts: Mapping[str, int]
    unmatched: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    corrections: tuple[Correction, ...] = ()
    ranks: int = 1
    steps: LazyValue[tuple[tuple[str, tuple[TraceCtx, ...]], ...]] = NO_STEPS
    unordered: Plan | None = None
    rows: NDArray[np.intp] | None = None
    places: Mapping[str, str] = dataclasses.field(default_factory=dict)
    proof: Proof = UNPROVEN
    capture: str = "interpreter"
    capture_reason: str = ""
    opening: tuple[StageTime, ...] = ()

    def __repr__(self) -> str:
        from workbench.summary import plan_text

        return plan_text(self)

    @property
    def peak_bytes(self) -> int:
        """Predicted peak memory of the step, including arguments."""
        return int(self.timeline.peak_bytes)

    @property
    def peak_at_least(self) -> bool:
        """Whether `peak_bytes` is a lower bound, because a CPU kernel of the plan could not be measured."""
        return self.graph.has_unmeasured_kernels

    @property
    def baseline_bytes(self) -> int:
        """Bytes of parameters, buffers and inputs."""
        return int(self.timeline.baseline_bytes)

    @cached_property
    def reserved(self) -> ReservedMemory | None:
        """Predicted memory that PyTorch's allocator reserves on a GPU; None on a CPU.

        `workbench.analysis.memory.reserved_memory.predict_reserved` also makes this prediction for a device with
        limited memory.
        """
        return None if self.device == "cpu" else predict_reserved(self.graph)

    @property
    def saved_bytes(self) -> int:
        """Bytes held for the backward. Each storage counts once; arguments do not count."""
        return self.graph.saved_bytes

    @property
    def saved_tensors(self) -> int:
        """Number of tensors in Thunder's list of saved tensors, including arguments."""
        return len(self.graph.saved())

    @cached_property
    def site_of(self) -> Mapping[str, Site]:
        """Maps the id of each site to the site."""
        return {site.id: site for site in self.sites}

    @property
    def fusions(self) -> Census:
        """Census of fusions."""
        return self.census

    @property
    def statements(self) -> int:
        """Number of statements that run; a fusion counts once."""
        return int((self.graph.statements.parent < 0).sum())

    @property
    def flops(self) -> int:
        """Floating point operations of forward and backward."""
        return int(self.graph.statements.flops[self.graph.statements.parent < 0].sum())

    @property
    def overlap(self) -> Overlap | None:
        """Overlap of collectives with compute, simulated for `cost.machines.H100`; None without collectives."""
        return self.overlap_on(H100)

    def overlap_on(self, machine: Machine, calibration: Calibration | None = None) -> Overlap | None:
        """Simulate the overlap of collectives with compute on `machine`; return None without collectives.

        Parameters
        ----------
        machine : Machine
        calibration : Calibration, optional
            Times of kernels that were measured in a run. The time of any other kernel is estimated from the machine's
            rates.
        """
        key = (machine.name, id(calibration))
        known = self._overlaps.get(key)
        # Compare the objects too: two machines may have the same name, and a new object may have the `id` of a deleted
        # object.
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
        return known.reorder(self.graph, self.rows) if known is not None else None

    def alive_at_peak(self) -> list[dict[str, Any]]:
        """Return the values that are alive at the predicted peak memory, largest first.

        Returns
        -------
        list of dict
            One dict for each value. ``value``, ``bytes``, ``source``: name, size and source line of the value.
            ``statement``, ``name``: row and name of the statement that computes the value; -1 and an empty text for an
            argument.
        """
        if self.timeline.peak_statement < 0:
            return []
        name = self.graph.statements.name
        return [
            {
                "bytes": value.bytes,
                "value": value.name,
                "statement": value.producer,
                "name": name[value.producer] if value.producer >= 0 else "",
                "source": value.source,
            }
            for value in alive_at(self.graph, self.timeline.peak_statement)
        ]

    def place(self, row: int) -> str:
        """Return the option that moves a collective right before the statement in `row`.

        For a member of a fusion, this is the position before the fusion. Options name only compute statements. If `row`
        contains another kind of statement, such as a collective, the option names the next compute statement of the
        same trace, or the end of the trace.
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
        """Return the execution traces as text, as Thunder prints traces."""
        with PLANNING:
            return traces_text(self.split.forward, *(() if self.split.backward is None else (self.split.backward,)))

    def code(self, fusion: str) -> FusionCode:
        """Return the code of a fusion: nvFuser's definition, or the input of torch.compile.

        Parameters
        ----------
        fusion : str
            Name of the fusion in the trace.

        Raises
        ------
        PlanError
            If the plan has no fusion of this name, or nvFuser refuses the fusion.
        """
        with PLANNING:
            traces = tuple(trace for trace in (self.split.forward, self.split.backward) if trace is not None)
            return code_of(traces, fusion)

    @planned_property
    def passes(self) -> tuple[TracePass, ...]:
        """The passes of the compilation that changed the program, each with the resulting trace."""
        split = tuple(trace for trace in (self.split.forward, self.split.backward) if trace is not None)
        return passes_of((*self.steps.value, ("choices after the split", split)), (*self.opening, *self.stages))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data for JSON."""
        return {
            "program": self.program,
            "device": self.device,
            "executor": self.executor,
            "capture": self.capture,
            "capture_reason": self.capture_reason,
            "statements": self.statements,
            "peak_bytes": self.peak_bytes,
            "peak_is_lower_bound": self.peak_at_least,
            **({"reserved": dataclasses.asdict(self.reserved)} if self.reserved is not None else {}),
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
                    "bytes": site.bytes,
                    "illegal": dict(site.illegal),
                    "notes": dict(site.notes),
                    "effect": {option: dataclasses.asdict(effect) for option, effect in site.effect.items()},
                }
                for site in self.sites
            ],
            "stages": [dataclasses.asdict(stage) for stage in self.stages],
            "warnings": list(self.warnings),
            "corrections": [
                {"name": each.name, "reason": each.reason, "lines": list(each.lines)} for each in self.corrections
            ],
            **({"overlap": self.overlap.to_json()} if self.overlap is not None else {}),
            "predicted": True,
            "proven": self.proof.proven,
            "rules": list(self.proof.rules),
            "fault": self.proof.fault,
        }


def unmatched_choices(choices: Collection[str], sites: Iterable[Site]) -> tuple[str, ...]:
    """Return the ids in `choices` that do not belong to a site, sorted."""
    return tuple(sorted(set(choices) - {site.id for site in sites}))
