"""Differences between two plans: the effect of a change of choices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from workbench.analysis.cost.collective_overlap import OverlapChange, overlap_change
from workbench.analysis.cost.machines import H100, Machine
from workbench.analysis.memory.liveness import AliveValue, alive_at, alive_storages
from workbench.core.lever import Effect, Site
from workbench.summary import count_name, html_table, human_bytes, human_change, human_count, human_seconds, text_table

if TYPE_CHECKING:
    from workbench.analysis.memory.liveness import Prediction
    from workbench.compiler.api import Plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanDiff:
    """Effect of a change of choices on the plan: after minus before.

    Attributes
    ----------
    peak_bytes, saved_bytes, saved_tensors, flops, fusions, unique_fusions, largest_fusion : int
        Change of each figure of the plan. ``largest_fusion`` is the number of operations in the largest fusion.
    counts : mapping of str to int
        Changes of the plan's `counts`, without counts that did not change.
    changed : tuple of str
        Ids of all sites whose choice, outcome or legality changed. A site that only one plan has is not one of them.
    overlap : OverlapChange or None
        Simulated change of the overlap of collectives; None if one of the plans has no collectives.
    """

    peak_bytes: int
    saved_bytes: int
    saved_tensors: int
    flops: int
    fusions: int
    counts: Mapping[str, int]
    changed: tuple[str, ...]
    overlap: OverlapChange | None = None
    unique_fusions: int = 0
    largest_fusion: int = 0

    def __repr__(self) -> str:
        return text_table(change_rows(self))

    def _repr_html_(self) -> str:
        return html_table(("predicted", "change"), change_rows(self))


class Effects(dict[str, Effect]):
    """Maps each option of a site to its effect. It is shown as a table."""

    def __repr__(self) -> str:
        return text_table([(option, ", ".join(map(" ".join, change_rows(effect)))) for option, effect in self.items()])

    def _repr_html_(self) -> str:
        rows = [(option, "; ".join(map(" ".join, change_rows(effect)))) for option, effect in self.items()]
        return html_table(("option", "predicted change of the plan"), rows)


def change_rows(change: PlanDiff | Effect) -> list[tuple[str, str]]:
    """Return one row (name, change) for each figure that changes. If no figure changes, the only row says so."""
    named = (
        ("predicted peak", change.peak_bytes, human_bytes),
        ("saved", change.saved_bytes, human_bytes),
        ("saved tensors", change.saved_tensors, str),
        ("operations", change.flops, human_count),
        ("fusions", change.fusions, str),
        ("unique fusions", change.unique_fusions, str),
        ("operations in the largest fusion", change.largest_fusion, str),
    )
    rows = [(name, _signed_text(by, write)) for name, by, write in named if by]
    rows += [(count_name(name), human_change(name, by)) for name, by in change.counts.items()]
    if change.overlap is not None:
        simulated = {"step": change.overlap.step_s, "exposed communication": change.overlap.exposed_communication_s}
        rows += [
            (f"{name}, simulated", _signed_text(by, human_seconds)) for name, by in simulated.items() if round(by, 9)
        ]
    if change.changed:
        rows.append(("sites that changed", str(len(change.changed))))
    return rows or [("no figure", "changes")]


def _signed_text(difference: float, write: Callable[[Any], str]) -> str:
    return f"{'+' if difference > 0 else '−'}{write(abs(difference))}"


def diff(old_plan: Plan, new_plan: Plan, machine: Machine = H100) -> PlanDiff:
    """Return the change from one plan to another. The overlap of collectives is simulated on `machine`."""
    return PlanDiff(
        peak_bytes=new_plan.peak_bytes - old_plan.peak_bytes,
        saved_bytes=new_plan.saved_bytes - old_plan.saved_bytes,
        saved_tensors=new_plan.saved_tensors - old_plan.saved_tensors,
        flops=new_plan.flops - old_plan.flops,
        fusions=new_plan.census.count - old_plan.census.count,
        counts=changed_counts(old_plan, new_plan),
        changed=changed_sites(old_plan, new_plan),
        overlap=overlap_change(old_plan.overlap_on(machine), new_plan.overlap_on(machine)),
        unique_fusions=new_plan.census.unique - old_plan.census.unique,
        largest_fusion=new_plan.census.largest - old_plan.census.largest,
    )


def newly_held(old_plan: Plan, new_plan: Plan) -> tuple[AliveValue, ...]:
    """Return the values alive at the peak of the new plan but not at the peak of the old plan, largest first.

    Arguments are left out.
    """
    old, at = old_plan.graph, old_plan.timeline.peak_statement
    storages = set() if at < 0 else {*old.values.storage[alive_storages(old, at)].tolist()}
    names = zip(old.values.name, old.values.storage.tolist(), strict=True)
    held = {name for name, storage in names if storage in storages}
    if new_plan.timeline.peak_statement < 0:
        return ()
    alive = alive_at(new_plan.graph, new_plan.timeline.peak_statement)
    return tuple(one for one in alive if one.producer >= 0 and one.name not in held)


def effect_of(
    current: Prediction | Plan, changed: Prediction | Plan, chosen: Collection[str], machine: Machine
) -> Effect:
    """Return the change of the plan's figures: `changed` minus `current`.

    Changes of fusions, counts, sites and overlap are included only if both arguments are plans.

    Parameters
    ----------
    current, changed : Prediction or Plan
    chosen : collection of str
        Ids of the sites for which choices were made. `Effect.changed` does not list them.
    machine : Machine
        Machine on which collectives are simulated.
    """
    from workbench.compiler.api import Plan

    found = Effect(
        peak_bytes=changed.peak_bytes - current.peak_bytes,
        saved_bytes=changed.saved_bytes - current.saved_bytes,
        saved_tensors=changed.saved_tensors - current.saved_tensors,
        flops=changed.flops - current.flops,
    )
    if not (isinstance(current, Plan) and isinstance(changed, Plan)):
        return found
    return dataclasses.replace(
        found,
        fusions=changed.census.count - current.census.count,
        unique_fusions=changed.census.unique - current.census.unique,
        largest_fusion=changed.census.largest - current.census.largest,
        counts=changed_counts(current, changed),
        changed=tuple(id for id in changed_sites(current, changed) if id not in chosen),
        overlap=overlap_change(current.overlap_on(machine), changed.overlap_on(machine)),
    )


def changed_sites(old_plan: Plan, new_plan: Plan) -> tuple[str, ...]:
    """Return the ids of all sites whose choice, outcome or legality differs.

    Sites that only one plan has are left out. They come and go with the statements that a choice adds to the backward,
    and have no choice of the user.
    """
    if len(old_plan.sites) == len(new_plan.sites):
        both = [(was, now) for was, now in zip(old_plan.sites, new_plan.sites, strict=True) if was is not now]
        if all(was.id == now.id for was, now in both):
            return tuple(now.id for was, now in both if _state(was) != _state(now))
    old = old_plan.site_of
    ends = ((old[now.id], now) for now in new_plan.sites if now.id in old)
    return tuple(now.id for was, now in ends if was is not now and _state(was) != _state(now))


def _state(site: Site) -> tuple[str, str, dict[str, str]]:
    return site.choice, site.outcome, dict(site.illegal)


def changed_counts(old_plan: Plan, new_plan: Plan) -> dict[str, int]:
    """Return the differences of the two plans' counts, without counts that are equal."""
    moved = {name: new_plan.counts[name] - old_plan.counts[name] for name in new_plan.counts}
    return {name: by for name, by in moved.items() if by}
