"""Lever `saved`: save, recompute or offload each storage that the backward needs from the forward.

Recomputation edits the joint trace, before or after fusion. The statements that make a storage are copied into the
backward, right before the first statement that reads the storage. The copies are called clones, and have Thunder's tag
for statements of the backward. Offloading edits the traces after the split. A tensor and its views share a storage, so
they share one site. The id of the site contains the stable id of the storage's first value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from workbench.analysis.memory.liveness import Prediction
from workbench.analysis.memory.recompute_set import Recompute, Recomputer
from workbench.compiler.interop.thunder_api import TraceCtx, TraceTag
from workbench.compiler.memory.offload import STORE_PREFIX, OffloadedStorage, Offloader
from workbench.compiler.pipeline.lever_context import LeverContext, LeverOutcome
from workbench.compiler.trace.bsym_memo import PlanMemo
from workbench.compiler.trace.recompute_in_backward import recompute_in_backward
from workbench.compiler.trace.stable_ids import CLONE_PREFIX
from workbench.core.lever import Lever, Setting, Site, only_with_fusions, refused_option_error, register

if TYPE_CHECKING:
    from workbench.core.graph import Graph

ALONG, CUT = "along", "cut"
BEFORE, AFTER = "before_fusion", "after_fusion"
AHEAD = "4"
MIN_CUT = "Thunder's minimum cut (lever remat)"
REPEATED = (
    "Because of a choice for another value, the backward repeats the statement or fusion that computes this value."
)
STAND_IN = "on a CPU, this copies the value but frees no memory"


def site_id(context: LeverContext, storage: int) -> str:
    """Return the id of the site of a storage."""
    graph = context.graph
    return f"saved:{context.value_id(graph.values.name[graph.storages.root[storage]])}"


def default_option(context: LeverContext, storage: int) -> str:
    """Return the default option of a storage: `recompute` for a parameter that ZeRO-3 gathers, else `save`."""
    return "recompute" if context.gathers_again and context.recomputer.is_gathered_argument(storage) else "save"


def _storage_sites(context: LeverContext) -> list[Site]:
    """Return the site of each storage that the backward needs. The choice of each site is the default option."""
    graph, work = context.graph, context.recomputer
    on_cpu = all(tensor.device.type == "cpu" for tensor in context.arguments.values())
    notes = {"offload": STAND_IN} if on_cpu else {}
    found = []
    for storage in map(int, work.storages()):
        label, source = context.describe(graph.values.name[graph.storages.root[storage]])
        default = default_option(context, storage)
        reasons = {"recompute": work.why_no_recompute(storage), "offload": work.why_no_offload(storage)}
        site = Site(
            id=site_id(context, storage),
            lever="saved",
            label=label,
            source=source,
            options=("save", "recompute", "offload"),
            choice=default,
            default=default,
            illegal={option: reason for option, reason in reasons.items() if reason},
            notes={option: note for option, note in notes.items() if not reasons[option]},
            values=tuple(graph.values.name[v] for v in work.values_on(storage)),
            bytes=int(graph.storages.bytes[storage]),
        )
        found.append(site)
    return found


def recomputed_storages(context: LeverContext, choices: Mapping[str, str]) -> list[int]:
    """Return the storages that are recomputed under `choices`, in program order.

    Raises
    ------
    ChoiceError
        If `recompute` is chosen for a storage that cannot be recomputed.
    """
    chosen = []
    for storage, id, default in context.get_or_make("saved storages", _storages):
        if choices.get(id, default) == "recompute":
            if reason := context.recomputer.why_no_recompute(storage):
                raise refused_option_error(id, "recompute", reason)
            chosen.append(storage)
    return chosen


def _storages(context: LeverContext) -> list[tuple[int, str, str]]:
    """Return each storage that has a site, with the site's id and its default option."""
    storages = map(int, context.recomputer.storages())
    return [(storage, site_id(context, storage), default_option(context, storage)) for storage in storages]


def recompute_edit(context: LeverContext, choices: Mapping[str, str]) -> Recompute:
    """Return which statements of the joint trace run again under `choices`, and before which statements."""
    along = choices.get("saved.inputs", ALONG) == ALONG
    return context.recomputer.edit(recomputed_storages(context, choices), along=along, gather=context.gathers_again)


@register
class Saved(Lever):
    """Decides for each storage whether it is saved, recomputed or offloaded."""

    name = "saved"
    title = "Saved for the backward"
    meanings: ClassVar[Mapping[str, str]] = {
        "save": "Kept in memory from the forward until the backward has read it.",
        "recompute": "Not kept: the backward runs its statements again.",
        "offload": "Copied to the host's memory, and back before the backward reads it.",
    }
    only_with_backward = True

    def settings(self) -> tuple[Setting, ...]:
        """Return three settings: inputs of recomputed statements, stage of recomputation, and time of reloads."""
        return (
            Setting(
                name="inputs",
                label="inputs of recomputed values: also recomputed, from values that are saved anyway (along), or "
                "saved (cut)",
                default=ALONG,
                options=(ALONG, CUT),
            ),
            Setting(
                name="stage",
                label="whether recomputation is inserted before fusion, or after it, as whole fusions",
                default=BEFORE,
                options=(BEFORE, AFTER),
                applies=only_with_fusions,
            ),
            Setting(
                name="ahead",
                label="number of statements between loading an offloaded storage and its first use",
                default=AHEAD,
                options=("0", "2", AHEAD, "8", "16"),
                accepts=str.isdigit,
                range="any whole number",
            ),
        )

    def sites(self, context: LeverContext, choices: Mapping[str, str], outcome: LeverOutcome) -> list[Site]:
        """Return one site for each storage that the backward needs from the forward."""
        if not context.has_backward:
            return []
        kept, found = _saved_names(outcome), []
        for site in context.get_or_make("saved sites", _storage_sites):
            choice, now = choices.get(site.id, site.default), _outcome(kept, site.values)
            cause = _cause(outcome.execution, site.values, choice, now) if now != choice else ""
            found.append(site.under(choice, now, cause))
        return found

    def before_fusion(self, trace: TraceCtx, choices: Mapping[str, str], context: LeverContext) -> TraceCtx:
        """Insert the recomputed statements into the joint trace, unless the stage is after fusion."""
        if not _has_option(context, choices, "recompute") or _stage(context, choices) == AFTER:
            return trace
        change = recompute_edit(context, choices)
        if not change.before:
            return trace
        return recompute_in_backward(trace, context.graph, change, context.recomputer.backward, _clones(context))

    def after_fusion(
        self, trace: TraceCtx, choices: Mapping[str, str], context: LeverContext, outcome: LeverOutcome
    ) -> TraceCtx:
        """Insert the recomputed fusions and statements into the joint trace, if the stage is after fusion."""
        if not _has_option(context, choices, "recompute") or _stage(context, choices) == BEFORE:
            return trace
        graph = context.graph
        names = {
            graph.values.name[v] for s in recomputed_storages(context, choices) for v in context.recomputer.values_on(s)
        }
        fused = Recomputer(context.read_graph(trace), by_tag=False)
        chosen = [
            int(s)
            for s in fused.storages()
            if any(fused.graph.values.name[v] in names for v in fused.values_on(int(s)))
        ]
        chosen = [s for s in chosen if not fused.why_no_recompute(s)]
        change = fused.edit(chosen, along=choices.get("saved.inputs", ALONG) == ALONG, gather=context.gathers_again)
        if not change.before:
            return trace
        return recompute_in_backward(trace, fused.graph, change, fused.backward, _clones(context))

    def after_split(
        self, trace: TraceCtx, choices: Mapping[str, str], context: LeverContext, outcome: LeverOutcome
    ) -> tuple[TraceCtx, LeverOutcome]:
        """Offload storages in the forward trace, or reload them in the backward trace."""
        if not _has_option(context, choices, "offload"):
            return trace, outcome
        if TraceTag.BACKWARD in trace.tags:
            return (outcome.offloader.backward(trace) if outcome.offloader is not None else trace), outcome
        groups = []
        for number, storage in enumerate(context.recomputer.storages()):
            id = site_id(context, int(storage))
            if choices.get(id) == "offload":
                if reason := context.recomputer.why_no_offload(int(storage)):
                    raise refused_option_error(id, "offload", reason)
                # Include all values in the storage: recomputed statements may read values that the backward did not
                # read in the joint trace.
                held = np.flatnonzero(context.graph.values.storage == storage)
                values = frozenset(context.graph.values.name[v] for v in held)
                groups.append(OffloadedStorage(number, values, int(context.graph.storages.bytes[storage])))
        memo: PlanMemo = context.get_or_make("offloads", lambda _: PlanMemo())
        offloader = Offloader(groups, int(choices.get("saved.ahead", AHEAD)), memo)
        return offloader.forward(trace), dataclasses.replace(outcome, offloader=offloader)

    def predict(self, choices: Mapping[str, str], context: LeverContext) -> Prediction | None:
        """Predict the memory under `choices` from the joint trace; return None if a storage is offloaded."""
        if _has_option(context, choices, "offload"):
            return None
        if not context.has_backward:
            return context.predictor.predict()
        return context.predictor.predict(recompute_edit(context, choices).schedule(context.graph))


def _clones(context: LeverContext) -> PlanMemo:
    """Return the clones that plans of the program have inserted."""
    return context.get_or_make("clones", lambda _: PlanMemo())


def _has_option(context: LeverContext, choices: Mapping[str, str], option: str) -> bool:
    if not context.has_backward:
        return False
    again = option == "recompute" and context.gathers_again
    return again or any(c == option and i.startswith("saved:") for i, c in choices.items())


def _stage(context: LeverContext, choices: Mapping[str, str]) -> str:
    return BEFORE if not context.fuses else choices.get("saved.stage", BEFORE)


def _outcome(saved_names: set[str] | None, values: tuple[str, ...]) -> str:
    if saved_names is None or not saved_names.isdisjoint(values):
        return "save"
    return "offload" if any(STORE_PREFIX + value in saved_names for value in values) else "recompute"


def _cause(graph: Graph | None, values: tuple[str, ...], choice: str, outcome: str) -> str:
    """Return a sentence on why the plan does not do with a storage what was chosen."""
    if graph is None:
        return ""
    if outcome == "save":
        return f"{MIN_CUT} saves it, because a fusion of the backward recomputes other values from it."
    if any(CLONE_PREFIX + value in graph.value_index for value in values):
        return REPEATED
    also = "; nothing is left to offload" if choice == "offload" else ""
    return f"{MIN_CUT} recomputes it in a fusion of the backward{also}."


def _saved_names(outcome: LeverOutcome) -> set[str] | None:
    """Return the names of the values that the plan saves; None if the outcome has no execution graph."""
    if outcome.execution is None:
        return None
    return {outcome.execution.values.name[v] for v in outcome.execution.saved()}
