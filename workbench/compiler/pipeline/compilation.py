"""Apply choices inside Thunder's pipeline: `Hooks`, for plans and for replayed configs.

A config acts only through the arguments ``executors`` and ``transforms`` of ``thunder.jit``. An executor claims the
statements that it will run. The first and the last executor in the list claim no statement. Thunder passes the joint
trace to the first before fusion, and to the last after fusion, so that the levers can edit the trace. The fusion
executor gets its options from the levers. A transform lets the levers edit the forward trace and the backward trace
after Thunder has split the joint trace.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

import workbench
from workbench.analysis.equivalence.prove import Proof, fault, prove
from workbench.compiler.fastpath.deletions import delete_last_used
from workbench.compiler.fastpath.final_claim import claim_operators
from workbench.compiler.fastpath.split import split
from workbench.compiler.frontend import fake_process_group as parallel
from workbench.compiler.frontend.differentiability import cut_off_whole_numbers
from workbench.compiler.fusion.executors import (
    ExecutorState,
    FusionOptions,
    Observer,
)
from workbench.compiler.fusion.fusion_passes import own_names
from workbench.compiler.interop import thunder_api, thunder_patches
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    BoundSymbolTag,
    FusionExecutor,
    TraceCtx,
    TraceTag,
    Transform,
    compile_data,
    get_always_executors,
    unwrap_return_value,
)
from workbench.compiler.layers.expand_trace import TraceExpander
from workbench.compiler.layers.partition import LayerPartition, ReducedTrace, tag_gathers
from workbench.compiler.lowering.checkpoint_regions import save_draws
from workbench.compiler.memory.graph_builder import read_execution
from workbench.compiler.pipeline.lever_context import LeverContext, LeverOutcome
from workbench.compiler.trace.bsym_memo import PlanMemo
from workbench.compiler.trace.lazy_value import LazyValue
from workbench.compiler.trace.segments import attach, cut, known_ends
from workbench.compiler.trace.stable_ids import tag_origins
from workbench.compiler.trace.validate import inequality_message
from workbench.core.config import Config
from workbench.core.executor import executor_named
from workbench.core.graph import Origin
from workbench.core.lever import Site, all_levers, no_site_reason, widen_site
from workbench.errors import ChoiceError, ConfigWarning, PlanError, names_by_reason, short_repr

_SORTED_WAITS = "Sort Waits"
"""Provenance of the trace in which Thunder has sorted the waits for collectives."""

_FILES = (thunder_api.file(), inspect.getfile(workbench), inspect.getfile(torch))
_LIBRARIES = ("<", *(os.path.dirname(file) + os.sep for file in _FILES))
"""Beginnings of the files between a user's call and a warning, which names the user's call. ``<``: generated code."""


class TraceClaimed(Exception):
    """Raised to end a compilation after executors have claimed the joint trace; see `Hooks.until_claimed`."""


class _TagOrigins(Transform):
    """Tags the statements of the initial trace with their origins, and ends the stages `interpret` and `origins`.

    The origin of a statement is the statement of the user's program from which it comes. Before that, `save_draws` and
    `cut_off_whole_numbers` edit the trace.
    """

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks

    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any, **_: Any) -> Any:
        self.hooks.mark("interpret")
        save_draws(computation)
        cut_off_whole_numbers(computation)
        tagged, self.hooks.origins = tag_origins(computation)
        self.hooks.program = tagged
        self.hooks.mark("origins")
        self.hooks.waiting_for = "prologue"
        return prologue, tagged, epilogue


class _ReduceLayers(Transform):
    """Removes repeated layers from the trace. `Hooks.record_claimed` adds the layers to the claimed joint trace."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks

    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any, **_: Any) -> Any:
        computation = tag_gathers(computation)
        # Each iteration reduces one sequence of equal layers, for example first an encoder's, then a decoder's.
        while (found := LayerPartition(computation, self.hooks.origins).reduce()) is not None:
            self.hooks.reduced.append(found)
            computation = found.trace
        return prologue, computation, epilogue


class _AfterSplit(Transform):
    """Lets the levers edit the forward trace and then the backward trace."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks

    def transform_trace_post_optimization(self, trace: TraceCtx, **_: Any) -> TraceCtx:
        # Thunder passes the forward trace first, right after the split. Therefore the stage `split` ends now.
        if TraceTag.BACKWARD not in trace.tags:
            self.hooks.mark("split")
        edited = self.hooks.after_split(trace)
        self.hooks.mark("after split")
        return edited


class _JointEditor(FusionExecutor):
    """A fusion executor that fuses nothing, but lets the levers edit the claimed joint trace before fusion."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__("workbench_joint")
        self.hooks = hooks

    # This executor is the first in the list, so Thunder queries it for each statement. The queries show the current
    # stage: the gradient transform calls `can_execute_or_fuse`; claiming, which is later, calls `can_fuse`.

    def can_execute_or_fuse(self, bsym: BoundSymbol) -> bool:
        self.hooks.advance_stage("prologue", next_stage="grad")
        return False

    def can_fuse(self, bsym: BoundSymbol) -> bool:
        self.hooks.advance_stage("prologue", "grad", next_stage="claim")
        return False

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        self.hooks.mark("claim")
        context = self.hooks.record_claimed(trace)
        if self.hooks.until_claimed:
            raise TraceClaimed
        edited = self.hooks.edit(context)
        self.hooks.mark("edit")
        return edited


class _AfterFusion(FusionExecutor):
    """A fusion executor that fuses nothing, but lets the levers edit the joint trace after fusion."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__("workbench_fused")
        self.hooks = hooks

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        edited = self.hooks.after_fusion(trace)
        self.hooks.restart()
        return edited


class Hooks:
    """Choices that are applied in each compilation of a function, and the results of the last compilation.

    `executors` and `transforms` are the arguments of ``thunder.jit`` that apply the choices.

    Parameters
    ----------
    executor : str
    choices : mapping of str to str
        Maps the id of a site to an option.
    observer : Observer, optional
    parallel : str
        One of `workbench.core.config.PARALLEL`; empty for one process.
    memo : PlanMemo, optional
        Cache that all plans of the program share; None if the program will run.
    """

    def __init__(
        self,
        executor: str,
        choices: Mapping[str, str],
        observer: Observer | None = None,
        parallel: str = "",
        memo: PlanMemo | None = None,
    ) -> None:
        self.executor = executor
        self.parallel = parallel
        self.choices = dict(choices)
        self.observer = observer
        self.config: Config | None = None
        self.training: Callable[[], bool | None] = lambda: None
        """Returns whether the compiled module is in training mode; None if the program is not a module."""
        self.warn = False
        self.warned: set[bool | None] = set()
        """The values of `training` for which the choices were compared with the program's sites."""
        self.in_effect: Mapping[str, str] = self.choices
        """The choices that this compilation applies."""
        self.without_effect: dict[str, str] = {}
        """The other choices, each with the reason."""
        self.cache_info: dict[str, Any] = {}
        self.origins: tuple[Any, ...] = ()
        self.program: TraceCtx | None = None
        self.context: LeverContext | None = None
        self.outcome = LeverOutcome()
        self.control = ExecutorState(self.configure, observer, memo)
        self.waiting_for = ""
        self.until_claimed = False
        """True to end the compilation with `TraceClaimed` after claiming. Each plan then runs the later passes."""
        self.few_layers = False
        """True to remove repeated layers from the trace before gradients are computed, and to add them again after
        claiming. This is faster than compiling all layers.
        """
        self.reduced: list[ReducedTrace] = []
        """One reduced trace for each sequence of equal layers, in the order of their removal."""
        self.proofs: list[Proof] | None = None
        """Proofs of the compilations so far, each made before the compiled code runs. None if this object makes no
        proofs, because the planner proves each plan.
        """
        self._since = time.perf_counter()
        self._forward: TraceCtx | None = None

    def executors(self) -> list[Any]:
        """Return the value of the argument `executors` of ``thunder.jit``."""
        stock = [e for e in thunder_api.get_default_executors() if not isinstance(e, FusionExecutor)]
        return [_JointEditor(self), *executor_named(self.executor).executors(stock, self.control), _AfterFusion(self)]

    def transforms(self) -> list[Transform]:
        """Return the value of the argument `transforms` of ``thunder.jit``.

        If ranks share the program, the caller inserts the transforms that shard the program after the first transform
        of this list.
        """
        return [_TagOrigins(self), *([_ReduceLayers(self)] if self.few_layers else []), _AfterSplit(self)]

    def restart(self) -> None:
        """Start the clock of the next stage."""
        self._since = time.perf_counter()

    def mark(self, stage: str) -> None:
        """End the stage `stage`, report its duration to the observer, and start the clock of the next stage."""
        now = time.perf_counter()
        if self.observer is not None:
            self.observer.stage(stage, now - self._since)
        self._since = now

    def advance_stage(self, *ended: str, next_stage: str) -> None:
        """End the current stage and begin the stage `next_stage` if the current stage is in `ended`."""
        if self.waiting_for in ended:
            self.mark(self.waiting_for)
            self.waiting_for = next_stage

    def record_claimed(self, trace: TraceCtx) -> LeverContext:
        """Restore removed layers in the claimed joint trace.

        Return the context for levers, and store it in `context`.
        """
        _, stats = compile_data._compile_data.get()
        self.cache_info = dict(thunder_api._get_cache_info())
        traces = stats.last_traces if stats is not None and stats.last_traces else [trace]
        joint = traces[-1]
        if len(self.reduced) == 1 and str(joint.get_provenance()).endswith(_SORTED_WAITS):
            # Thunder has claimed the statements of this trace, in order to sort its waits. Claimed statements make
            # values with new names. The expander also has to count the names that the values had before.
            (found,) = self.reduced
            self.reduced = [dataclasses.replace(found, former=TraceExpander(found).read_names(traces[-2]))]
        # If ranks share the program, the joint trace has other shapes than the program's own trace.
        program = None if self.parallel else self.program
        gradients, few = LazyValue(lambda: joint), None
        if self.reduced:
            few = self._context(gradients, trace, program and self.reduced[-1].trace)
            for found in reversed(self.reduced):
                unfolder = TraceExpander(found)
                gradients, trace = unfolder.expand_later(gradients.value), unfolder.expand(trace)
        self.context = dataclasses.replace(self._context(gradients, trace, program), few=few)
        if not self.parallel:
            # Set the tensors for runs. For plans, `capture` replaces them later.
            self.context = self.context.with_tensors(thunder_patches.argument_layouts(stats), {}, frozenset())
        return self.context

    def _context(self, gradients: LazyValue[TraceCtx], claimed: TraceCtx, program: TraceCtx | None) -> LeverContext:
        return LeverContext(
            executor=self.executor,
            origins=self.origins,
            gradients=gradients,
            # Copy the set of names, because later passes add names to the set. The next plan could not use the added
            # names.
            claimed=own_names(claimed),
            has_backward=any(BoundSymbolTag.BACKWARD in b.tags for b in claimed.bound_symbols),
            gathers_again=self.parallel == parallel.ZERO3,
            program=program,
        )

    def edit(self, context: LeverContext) -> TraceCtx:
        """Return the claimed joint trace with the edits that levers make before fusion."""
        self.context, self.outcome = context, LeverOutcome()
        trace = own_names(context.claimed)
        if (kept := self.control.kept) is not None:
            ends: list[int] = context.get_or_make("ends of segments", lambda _: [])
            # The first plan finds the ends.
            ends[:] = ends or known_ends(trace.bound_symbols)
            if ends:
                attach(trace, cut(trace.bound_symbols, kept.get_or_make, ends))
        self.without_effect = dict(self._find_without_effect(context))
        self.in_effect = {id: option for id, option in self.choices.items() if id not in self.without_effect}
        unfused: set[str] = set()
        for lever in all_levers():
            trace = lever.before_fusion(trace, self.in_effect, context)
            unfused.update(lever.unfused(self.in_effect, context))
        self.control.unfused = frozenset(unfused)
        # Let the fusion executor cache its answers only from now on, because claiming also queries temporary
        # statements.
        self.control.keeping = True
        return trace

    def _find_without_effect(self, context: LeverContext) -> Iterator[tuple[str, str]]:
        """Yield the settings that have no effect in this compilation, each with the reason.

        A config for training is also called without gradients and in eval mode, where some settings cannot apply. A
        plan refuses such a choice instead.

        Raises
        ------
        ChoiceError
            If a choice is not an option of its setting, or if a plan is made and the choice is illegal.
        """
        for lever in all_levers():
            for setting in lever.settings():
                site = setting.site(lever.name, self.choices, context)
                if site.choice == site.default:
                    continue
                if self.config is not None and site.illegal:
                    if site.choice in site.illegal:
                        yield site.id, site.illegal[site.choice]
                    site = dataclasses.replace(site, illegal={})
                site.check(site.choice)

    def configure(self, partitioned: TraceCtx) -> FusionOptions:
        """Return the options of the fusion executor.

        The executor has divided the joint trace into the fusions of `partitioned`, but has not chosen the values that
        fusions pass to each other.
        """
        assert self.context is not None
        self.outcome = dataclasses.replace(self.outcome, partitioned=partitioned)
        options = FusionOptions()
        for lever in all_levers():
            options = lever.fusion(options, self.in_effect, self.context, self.outcome)
        self.outcome = dataclasses.replace(self.outcome, options=options)
        return options

    def after_fusion(self, trace: TraceCtx) -> TraceCtx:
        """Return the fused joint trace after the levers have edited it."""
        assert self.context is not None
        self.outcome = dataclasses.replace(self.outcome, report=self.control.report)
        for lever in all_levers():
            trace = lever.after_fusion(trace, self.in_effect, self.context, self.outcome)
        return trace

    def after_split(self, trace: TraceCtx) -> TraceCtx:
        """Let the levers edit a split trace, and return the result.

        After the last trace, check the sites if `warn` is True, once for each value of `training`, and prove the plan
        unless `proofs` is None.
        """
        assert self.context is not None
        for lever in all_levers():
            trace, self.outcome = lever.after_split(trace, self.in_effect, self.context, self.outcome)
        # All sites are known only now, because the sites of collectives come from the split traces.
        last = TraceTag.BACKWARD in trace.tags or not self.context.has_backward
        if self.warn and last and self.training() not in self.warned:
            self._check_sites()
        if self.proofs is not None:
            if TraceTag.BACKWARD not in trace.tags:
                self._forward = trace
            # Under no_grad, Thunder may pass an empty backward after the forward was proven alone. Do not prove again.
            if last and self._forward is not None:
                self._prove(trace if TraceTag.BACKWARD in trace.tags else None)
        return trace

    def _prove(self, backward: TraceCtx | None) -> None:
        """Before the execution traces run, prove that they compute the same results as the joint trace.

        If this proof fails, Thunder itself may have changed the computation after it made the joint trace. In this
        case, prove instead that the traces compute the same results as the traces that Thunder makes without choices.

        Raises
        ------
        PlanError
            If both proofs fail.
        """
        assert self.context is not None
        assert self._forward is not None
        assert self.proofs is not None
        forward, self._forward = self._forward, None
        graph = read_execution(forward, backward, self.context)
        proof, wrong = prove(self.context.graph, graph), ""
        if not proof.proven:
            stock = Hooks(self.executor, {}, parallel=self.parallel)
            made = execution_traces(stock, self.context)
            # Omit the backward that Thunder makes for a program without gradients. No call runs this backward.
            known = read_execution(made.forward, None if backward is None else made.backward, self.context)
            proof, wrong = prove(known, graph), fault(self.context.graph, known)
        if not proof.proven:
            raise PlanError(inequality_message(proof, "this program"))
        self.proofs.append(proof.with_stock_fault(wrong))

    def _check_sites(self) -> None:
        """Raise an error for a choice that is not an option of its site, and warn about choices without a site.

        Also warn if the config was made for another program or with other packages. If the choices are for calls with
        gradients and this call has no gradients, check nothing.
        """
        assert self.context is not None
        if not self.context.has_backward and self._is_for_gradients():
            # This call has no gradients, as in a validation step.
            return
        sites = {site.id: site for site in find_sites(self.in_effect, self.context, self.outcome)}
        for id in sorted(self.choices.keys() & sites.keys()):
            site = widen_site(sites[id], self.choices[id])
            # Each lever checked whether the choice is legal when it applied the choice. Here, only check that the site
            # has this option.
            if self.choices[id] not in site.options:
                try:
                    site.check(self.choices[id])
                except ChoiceError as error:
                    place = self.config.place_of(id) if self.config is not None else ""
                    raise ChoiceError(f"{place}{error}", id) from None
        # Warn only once for each mode of the module. Other compilations are of the same program, with other shapes or
        # fewer gradients.
        self.warned.add(self.training())
        gone = sorted((self.choices.keys() - sites.keys()) | self.without_effect.keys())
        reasons = {id: self.without_effect.get(id) or no_site_reason(id) for id in gone}
        foreign = self.config is not None and 1 < len(gone) == len(self.choices)
        if (
            self.config is not None
            and not foreign
            and (differences := self.config.differences(fingerprint(self.origins), self.training()))
        ):
            warnings.warn(ConfigWarning(differences), skip_file_prefixes=_LIBRARIES)
        if foreign and self.config is not None:
            left_out = (
                f"none of the {len(gone)} choices fits this program, so it is compiled without choices: the config was "
                f"made for {short_repr(self.config.program)}; {names_by_reason(reasons)}"
            )
            warnings.warn(ConfigWarning(left_out), skip_file_prefixes=_LIBRARIES)
        elif gone:
            left_out = f"{len(gone)} of {len(self.choices)} choices have no effect in this program and are left out: "
            places = {id: self.config.place_of(id) if self.config is not None else "" for id in gone}
            left_out += names_by_reason({f"{places[id]}{id}": reason for id, reason in reasons.items()})
            warnings.warn(ConfigWarning(left_out), skip_file_prefixes=_LIBRARIES)

    def _is_for_gradients(self) -> bool:
        """Return whether the choices are known to be for calls with gradients."""
        with_backward = tuple([f"{lever.name}:" for lever in all_levers() if lever.only_with_backward])
        if any(id.startswith(with_backward) for id in self.choices):
            return True
        return self.config is not None and "grad" not in self.config.modes and not torch.is_grad_enabled()


def find_sites(choices: Mapping[str, str], context: LeverContext, outcome: LeverOutcome) -> tuple[Site, ...]:
    """Return the sites of all levers that exist under `choices`."""
    found: list[Site] = []
    for lever in all_levers():
        found.extend(setting.site(lever.name, choices, context) for setting in lever.settings())
        found.extend(lever.sites(context, choices, outcome))
    return tuple(found)


def fingerprint(origins: Sequence[Origin]) -> str:
    """Return a digest of the ids of a program's origins. The ids do not contain line numbers or shapes."""
    return hashlib.sha256("\n".join(o.id for o in origins).encode(errors="backslashreplace")).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Executed:
    """The execution traces under the choices of `hooks`.

    Attributes
    ----------
    hooks : Hooks
        The choices, and the results of applying them.
    edited : TraceCtx
        The joint trace after the choices that act before fusion.
    forward : TraceCtx
    backward : TraceCtx or None
    further : list of (str, tuple of TraceCtx)
        Name of each pass after `edited`, with the traces that the pass made: a joint trace, or forward and backward.
    """

    hooks: Hooks
    edited: TraceCtx
    forward: TraceCtx
    backward: TraceCtx | None
    further: list[tuple[str, tuple[TraceCtx, ...]]]


def execution_traces(hooks: Hooks, context: LeverContext) -> Executed:
    """Make the execution traces from the claimed joint trace, by the same passes as ``thunder.jit``."""
    hooks.restart()
    trace = edited = hooks.edit(context)
    hooks.mark("edit")
    traces: list[tuple[str, tuple[TraceCtx, ...]]] = []
    for executor in hooks.executors():
        if isinstance(executor, FusionExecutor) and not isinstance(executor, _JointEditor):
            trace = executor.fusion_pass(trace)
            name = "choices after fusion" if isinstance(executor, _AfterFusion) else f"fused by {executor.name}"
            traces.append((name, (trace,)))
    hooks.restart()
    trace = claim_operators(trace, get_always_executors(), hooks.control.kept)
    forward, backward = trace, None
    if "fw_flat_out" in trace.bound_symbols[-1].args[0]:
        forward, backward = split(trace, hooks.control.kept)
    forward = delete_last_used(forward, hooks.control.kept)
    if backward is not None:
        backward = delete_last_used(backward, hooks.control.kept, clear=True)
    traces.append(("split, and values freed", tuple(t for t in (forward, backward) if t is not None)))
    hooks.mark("split")
    forward = hooks.after_split(forward)
    if backward is not None:
        backward = hooks.after_split(backward)
    else:
        forward = unwrap_return_value(forward)
    return Executed(hooks, edited, forward, backward, traces)
