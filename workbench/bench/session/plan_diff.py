"""Effect of a change of choices on the plan: after minus before."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from workbench.analysis.cost.collective_overlap import OverlapChange, change
from workbench.analysis.cost.machines import H100, Machine
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
        ``largest_fusion`` in operations.
    counts : mapping of str to int
        The plan's `counts` that changed.
    changed : tuple of str
        Ids of all sites with another choice, outcome or legality, and of added and removed sites.
    overlap : OverlapChange or None
        Simulated; None if no ranks share the program.
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
        return text_table(rows_of(self))

    def _repr_html_(self) -> str:
        return html_table(("predicted", "change"), rows_of(self))


class Effects(dict[str, Effect]):
    """Effects by option, shown as a table."""

    def __repr__(self) -> str:
        return text_table([(option, ", ".join(map(" ".join, rows_of(effect)))) for option, effect in self.items()])

    def _repr_html_(self) -> str:
        rows = [(option, "; ".join(map(" ".join, rows_of(effect)))) for option, effect in self.items()]
        return html_table(("option", "what the plan would gain or lose, predicted"), rows)


def rows_of(change: PlanDiff | Effect) -> list[tuple[str, str]]:
    """Describe changes by name: only the figures that change, or that none does."""
    named = (
        ("predicted peak", change.peak_bytes, human_bytes),
        ("saved", change.saved_bytes, human_bytes),
        ("saved tensors", change.saved_tensors, str),
        ("operations", change.flops, human_count),
        ("fusions", change.fusions, str),
        ("unique fusions", change.unique_fusions, str),
        ("operations in the largest fusion", change.largest_fusion, str),
    )
    rows = [(name, _signed(by, write)) for name, by, write in named if by]
    rows += [(count_name(name), human_change(name, by)) for name, by in change.counts.items()]
    if change.overlap is not None:
        simulated = {"step": change.overlap.step_s, "exposed communication": change.overlap.exposed_communication_s}
        rows += [(f"{name}, simulated", _signed(by, human_seconds)) for name, by in simulated.items() if round(by, 9)]
    if change.changed:
        rows.append(("sites that moved", str(len(change.changed))))
    return rows or [("no figure", "changes")]


def _signed(by: float, write: Callable[[Any], str]) -> str:
    return f"{'+' if by > 0 else '−'}{write(abs(by))}"


def diff(before: Plan, after: Plan, machine: Machine = H100) -> PlanDiff:
    """Return the change from one plan to another; times are simulated on `machine`."""
    return PlanDiff(
        peak_bytes=after.peak_bytes - before.peak_bytes,
        saved_bytes=after.saved_bytes - before.saved_bytes,
        saved_tensors=after.saved_tensors - before.saved_tensors,
        flops=after.flops - before.flops,
        fusions=after.census.count - before.census.count,
        counts=changed_counts(before, after),
        changed=changed_sites(before, after),
        overlap=change(before.overlap_on(machine), after.overlap_on(machine)),
        unique_fusions=after.census.unique - before.census.unique,
        largest_fusion=after.census.largest - before.census.largest,
    )


def effect_of(now: Prediction | Plan, then: Prediction | Plan, chosen: Collection[str], machine: Machine) -> Effect:
    """Return the change of the whole plan: new minus current; figures other than bytes only if both are plans.

    Parameters
    ----------
    now, then : Prediction or Plan
    chosen : collection of str
        Ids of the changed sites; they are not listed among sites that change as a consequence.
    machine : Machine
        Machine on which collectives are simulated.
    """
    from workbench.compiler.api import Plan

    found = Effect(
        peak_bytes=then.peak_bytes - now.peak_bytes,
        saved_bytes=then.saved_bytes - now.saved_bytes,
        saved_tensors=then.saved_tensors - now.saved_tensors,
        flops=then.flops - now.flops,
    )
    if not (isinstance(now, Plan) and isinstance(then, Plan)):
        return found
    return dataclasses.replace(
        found,
        fusions=then.census.count - now.census.count,
        unique_fusions=then.census.unique - now.census.unique,
        largest_fusion=then.census.largest - now.census.largest,
        counts=changed_counts(now, then),
        changed=tuple(id for id in changed_sites(now, then) if id not in chosen),
        overlap=change(now.overlap_on(machine), then.overlap_on(machine)),
    )


def changed_sites(before: Plan, after: Plan) -> tuple[str, ...]:
    """Return the ids of all sites with another choice, outcome or legality, and of those that only one plan has."""
    if len(before.sites) == len(after.sites):
        both = [(was, now) for was, now in zip(before.sites, after.sites, strict=True) if was is not now]
        if all(was.id == now.id for was, now in both):
            return tuple(now.id for was, now in both if _state(was) != _state(now))
    old, new = before.site_of, after.site_of
    ends = ((id, old.get(id), new.get(id)) for id in {**old, **new})
    return tuple(id for id, was, now in ends if was is not now and _state(was) != _state(now))


def _state(site: Site | None) -> tuple[str, str, dict[str, str]] | None:
    return None if site is None else (site.choice, site.outcome, dict(site.illegal))


def changed_counts(before: Plan, after: Plan) -> dict[str, int]:
    """Return the plans' counts that differ, with the differences."""
    moved = {name: after.counts[name] - before.counts[name] for name in after.counts}
    return {name: by for name, by in moved.items() if by}
