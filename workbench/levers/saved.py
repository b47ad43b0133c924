"""Lever `saved`: save, recompute or offload each storage that the backward needs from the forward.

Recomputation acts on the joint trace, before or after fusion. It inserts clones of the producers right before their
first use in the backward, and tags the clones as backward statements. Offloading acts after the split. Views share a
storage, so each storage has one site. The site's id contains the first value of the storage.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.memory.liveness import Prediction
from workbench.analysis.memory.recompute_set import Recompute, Recomputer
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    BoundSymbolTag,
    Proxy,
    TraceCtx,
    TraceProvenance,
    TraceTag,
    Variable,
    dce,
    from_trace,
    prims,
    tracectx,
    variableify,
)
from workbench.compiler.memory.offload import STORE_PREFIX, OffloadedStorage, Offloader
from workbench.compiler.pipeline.lever_context import LeverContext, LeverOutcome
from workbench.compiler.trace.bsym_memo import made_names, read_names
from workbench.compiler.trace.stable_ids import CLONE_PREFIX, is_statement
from workbench.core.graph import Graph
from workbench.core.lever import Lever, Setting, Site, only_with_fusions, refused_option_error, register

ALONG, CUT = "along", "cut"
BEFORE, AFTER = "before_fusion", "after_fusion"
AHEAD = "4"
STAND_IN = "on a CPU this imitates a GPU: the transfers run, but no memory is freed"


def site_id(stage: LeverContext, storage: int) -> str:
    """Return the id of the site of a storage."""
    graph = stage.graph
    return f"saved:{stage.value_id(graph.values.name[graph.storages.root[storage]])}"


def default_option(stage: LeverContext, storage: int) -> str:
    """Return the default option of a storage: `recompute` for a gathered parameter under ZeRO-3, else `save`."""
    return "recompute" if stage.gathers_again and stage.recomputer.is_gathered_argument(storage) else "save"


def _storage_sites(stage: LeverContext) -> list[Site]:
    """Return the site of each storage as it is without choices."""
    graph, work = stage.graph, stage.recomputer
    on_cpu = all(tensor.device.type == "cpu" for tensor in stage.arguments.values())
    notes = {"offload": STAND_IN} if on_cpu else {}
    found = []
    for storage in map(int, work.storages()):
        label, source = stage.describe(graph.values.name[graph.storages.root[storage]])
        default = default_option(stage, storage)
        reasons = {"recompute": work.why_no_recompute(storage), "offload": work.why_no_offload(storage)}
        site = Site(
            id=site_id(stage, storage),
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


def recomputed_storages(stage: LeverContext, choices: Mapping[str, str]) -> list[int]:
    """Return the storages that are recomputed under `choices`, in program order.

    Raises
    ------
    ChoiceError
        If such a storage may not be recomputed.
    """
    chosen = []
    for storage in stage.recomputer.storages():
        id = site_id(stage, int(storage))
        if choices.get(id, default_option(stage, int(storage))) == "recompute":
            if reason := stage.recomputer.why_no_recompute(int(storage)):
                raise refused_option_error(id, "recompute", reason)
            chosen.append(int(storage))
    return chosen


def recompute_edit(stage: LeverContext, choices: Mapping[str, str]) -> Recompute:
    """Return the recomputations in the joint trace under `choices`."""
    along = choices.get("saved.inputs", ALONG) == ALONG
    return stage.recomputer.edit(recomputed_storages(stage, choices), along=along, gather=stage.gathers_again)


def _apply(trace: TraceCtx, graph: Graph, change: Recompute, backward: NDArray[np.bool_]) -> TraceCtx:
    """Return the joint trace with the clones of `change` inserted. The backward reads the clones.

    `change` and `backward` refer to rows of `graph`. Levers may have edited the trace since its graph was made.
    """
    # Find the statement of a row by its output, because earlier levers may have removed statements or replaced them by
    # their parts.
    makers: dict[str, int] = {}
    for i, bsym in enumerate(trace.bound_symbols):
        if is_statement(bsym):
            for name in made_names(bsym):
                makers.setdefault(name, i)
    offsets, made = graph.statements.outputs.offsets, graph.statements.outputs.items
    rows = np.flatnonzero((graph.statements.parent < 0) & (np.diff(offsets) > 0))
    names = [graph.values.name[value] for value in made[offsets[rows]].tolist()]
    at = {row: makers[name] for row, name in zip(rows.tolist(), names, strict=True) if name in makers}
    position = {at[row]: [at[again] for again in group] for row, group in change.before.items()}
    # Exclude `get_grad`, which does not read its argument, but only names the gradient of this argument.
    readers = {
        at[row] for row in at if backward[row] and trace.bound_symbols[at[row]].sym.id is not prims.PrimIDs.GET_GRAD
    }
    edited = from_trace(trace)
    edited.names = set(trace.names)
    again: dict[str, Proxy] = {}

    def swaps_of(bsym: BoundSymbol) -> dict[Variable, Proxy]:
        # Swap only inputs of the statement, because a fusion may compute a value of the same name itself.
        if again.keys().isdisjoint(read_names(bsym)):
            return {}
        return {variableify(a): again[a.name] for a in bsym.flat_proxy_args if a.name in again}

    def clone(bsym: BoundSymbol) -> BoundSymbol:
        swap = swaps_of(bsym)
        with tracectx(edited):
            for proxy in _produced_names(bsym):
                if variableify(proxy) not in swap:
                    swap[variableify(proxy)] = proxy.replace_name(_free_name(edited, proxy.name))
        given = read_names(bsym)
        again.update({o.name: swap[variableify(o)] for o in bsym.flat_proxy_outs if o.name not in given})
        return bsym.from_bsym_swap_proxies(swap).from_bsym(tags=bsym.tags | {BoundSymbolTag.BACKWARD})

    for i, bsym in enumerate(trace.bound_symbols):
        for repeated in position.get(i, ()):
            edited.bound_symbols.append(clone(trace.bound_symbols[repeated]))
        swap = swaps_of(bsym) if i in readers else {}
        # Swap only inputs, so that the outputs of the statement keep their names.
        edited.bound_symbols.append(bsym.from_bsym_swap_proxies(swap, skip_output=True) if swap else bsym)
    edited.set_provenance(TraceProvenance("Recomputation in the backward"))
    return dce(edited)


def _produced_names(bsym: BoundSymbol) -> Iterator[Any]:
    """Yield the values that a statement or a subsymbol of it makes."""
    given = {arg.name for arg in bsym.flat_proxy_args}
    for out in bsym.flat_proxy_outs:
        if out.name not in given:
            yield out
    for sub in bsym.subsymbols:
        yield from _produced_names(sub)


def _free_name(trace: TraceCtx, name: str) -> str:
    wanted = CLONE_PREFIX + name
    while wanted in trace.names:
        wanted = CLONE_PREFIX + wanted
    return wanted


@register
class Saved(Lever):
    """Save, recompute or offload, for each storage."""

    name = "saved"
    title = "Saved for the backward"

    def settings(self) -> tuple[Setting, ...]:
        """Return settings on the inputs and the stage of recomputation, and on the time of reloads."""
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

    def sites(self, stage: LeverContext, choices: Mapping[str, str], result: LeverOutcome) -> list[Site]:
        """Return one site for each storage that the backward needs from the forward."""
        if not stage.has_backward:
            return []
        kept = _saved_names(result)
        return [
            site.under(choices.get(site.id, site.default), _outcome(kept, site.values))
            for site in stage.get_or_make("saved sites", _storage_sites)
        ]

    def before_fusion(self, trace: TraceCtx, choices: Mapping[str, str], stage: LeverContext) -> TraceCtx:
        """Insert the recomputations, unless they are inserted after fusion."""
        if not _has_option(stage, choices, "recompute") or _stage(stage, choices) == AFTER:
            return trace
        change = recompute_edit(stage, choices)
        return _apply(trace, stage.graph, change, stage.recomputer.backward) if change.before else trace

    def after_fusion(
        self, trace: TraceCtx, choices: Mapping[str, str], stage: LeverContext, result: LeverOutcome
    ) -> TraceCtx:
        """Insert the recomputations as repetitions of whole fusions, unless they were inserted before fusion."""
        if not _has_option(stage, choices, "recompute") or _stage(stage, choices) == BEFORE:
            return trace
        graph = stage.graph
        names = {
            graph.values.name[v] for s in recomputed_storages(stage, choices) for v in stage.recomputer.values_on(s)
        }
        fused = Recomputer(stage.read_graph(trace), by_tag=False)
        chosen = [
            int(s)
            for s in fused.storages()
            if any(fused.graph.values.name[v] in names for v in fused.values_on(int(s)))
        ]
        chosen = [s for s in chosen if not fused.why_no_recompute(s)]
        change = fused.edit(chosen, along=choices.get("saved.inputs", ALONG) == ALONG, gather=stage.gathers_again)
        return _apply(trace, fused.graph, change, fused.backward) if change.before else trace

    def after_split(
        self, trace: TraceCtx, choices: Mapping[str, str], stage: LeverContext, result: LeverOutcome
    ) -> tuple[TraceCtx, LeverOutcome]:
        """Offload storages in the forward trace, or reload them in the backward trace."""
        if not _has_option(stage, choices, "offload"):
            return trace, result
        if TraceTag.BACKWARD in trace.tags:
            return (result.offloader.backward(trace) if result.offloader is not None else trace), result
        groups = []
        for storage in stage.recomputer.storages():
            id = site_id(stage, int(storage))
            if choices.get(id) == "offload":
                if reason := stage.recomputer.why_no_offload(int(storage)):
                    raise refused_option_error(id, "offload", reason)
                # Include all values in the storage, because a recomputed statement may read a value that the backward
                # did not read before.
                held = np.flatnonzero(stage.graph.values.storage == storage)
                values = frozenset(stage.graph.values.name[v] for v in held)
                groups.append(OffloadedStorage(values, int(stage.graph.storages.bytes[storage])))
        offloader = Offloader(groups, int(choices.get("saved.ahead", AHEAD)))
        return offloader.forward(trace), dataclasses.replace(result, offloader=offloader)

    def predict(self, choices: Mapping[str, str], stage: LeverContext) -> Prediction | None:
        """Predict the memory under `choices` from the joint trace; return None if a storage is offloaded."""
        if _has_option(stage, choices, "offload"):
            return None
        if not stage.has_backward:
            return stage.predictor.predict()
        return stage.predictor.predict(recompute_edit(stage, choices).schedule(stage.graph))


def _has_option(stage: LeverContext, choices: Mapping[str, str], option: str) -> bool:
    if not stage.has_backward:
        return False
    again = option == "recompute" and stage.gathers_again
    return again or any(c == option and i.startswith("saved:") for i, c in choices.items())


def _stage(stage: LeverContext, choices: Mapping[str, str]) -> str:
    return BEFORE if not stage.fuses else choices.get("saved.stage", BEFORE)


def _outcome(saved_names: set[str] | None, values: tuple[str, ...]) -> str:
    if saved_names is None or not saved_names.isdisjoint(values):
        return "save"
    return "offload" if any(STORE_PREFIX + value in saved_names for value in values) else "recompute"


def _saved_names(result: LeverOutcome) -> set[str] | None:
    """Return the names of the values that the plan saves; None without a plan."""
    if result.execution is None:
        return None
    return {result.execution.values.name[v] for v in result.execution.saved()}
