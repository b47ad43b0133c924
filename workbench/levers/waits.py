"""Lever `waits`: when collectives are issued and where their results are waited for.

The lever acts on the forward and backward traces after the split, so no fusion changes. With ``waits.stage`` at
``before_fusion``, its settings act on the joint trace before fusion, and a collective between two statements prevents
their fusion. Under any option, a statement never moves past a statement on which it depends; see
`workbench.compiler.pipeline.collective_constraints`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from workbench.compiler.interop.thunder_api import TraceCtx, TraceTag
from workbench.compiler.pipeline import bucketing, collective_constraints
from workbench.compiler.pipeline.lever_context import LeverContext, LeverOutcome
from workbench.compiler.planner.plan import Plan
from workbench.core.lever import Lever, Setting, Site, only_with_fusions, register
from workbench.levers.collectives import (
    AFTER_FUSION,
    AT,
    BEFORE_FUSION,
    CONSUMER,
    EARLIEST,
    EARLY,
    IN_FLIGHT,
    JUST_IN_TIME,
    LATE,
    LAYER,
    MIB,
    NONE,
    ORDERING,
    STAGE,
    STOCK,
    WAITS,
    buckets_in,
    choices_left,
    only_orders,
    sites_of,
    sort_keys,
)
from workbench.levers.reorder_collectives import Orders


@register
class Waits(Lever):
    """The order of collectives and their waits."""

    name = WAITS
    title = "Collectives and waits"

    def settings(self) -> tuple[Setting, ...]:
        """Return the settings for all collectives."""
        return (
            Setting(
                name="issue",
                label="issue of collectives whose results are read",
                default=STOCK,
                options=(STOCK, EARLIEST, CONSUMER, JUST_IN_TIME, "in_flight(2)", "in_flight(4)", "in_flight(8)"),
                accepts=lambda option: IN_FLIGHT.fullmatch(option) is not None,
                range="in_flight(K) or in_flight(NMiB): at most K collectives or N MiB of results, with any K or N "
                "from 1",
                applies=_only_with_collectives,
            ),
            Setting(
                name="wait",
                label="position of waits: right before the first use (late), or right after the issue (early)",
                default=STOCK,
                options=(STOCK, LATE, EARLY),
                applies=_only_with_collectives,
            ),
            Setting(
                name="gradients",
                label="issue of collectives whose results are only returned: last, or as soon as their inputs exist",
                default=STOCK,
                options=(STOCK, EARLIEST),
                applies=_only_with_collectives,
            ),
            Setting(
                name="bucket",
                label="gathering parameters and reducing gradients: one by one, or in buckets, by layer or by size",
                default=NONE,
                options=(NONE, LAYER, "25MiB", "100MiB", "500MiB"),
                accepts=lambda option: MIB.fullmatch(option) is not None,
                range="NMiB with any N from 1: the size of the full tensors in a bucket",
                applies=_only_with_collectives,
            ),
            Setting(
                name="stage",
                label="whether collectives and waits move after fusion, or before fusion, so that they split fusions",
                default=AFTER_FUSION,
                options=(AFTER_FUSION, BEFORE_FUSION),
                applies=lambda stage: _only_with_collectives(stage) or only_with_fusions(stage),
            ),
        )

    def sites(self, stage: LeverContext, choices: Mapping[str, str], result: LeverOutcome) -> list[Site]:
        """Return two sites for each collective: one for its issue, and one for its wait."""
        return [
            site
            for schedule in result.communication.values()
            for collective in schedule.collectives
            for site in sites_of(schedule, collective, choices, stage)
        ]

    def widen(self, site: Site, option: str) -> Site:
        """Accept any option ``at(STATEMENT)``. A statement outside of the legal range is refused later, in a plan."""
        if AT.fullmatch(option) and option not in site.options:
            return dataclasses.replace(site, options=(*site.options, option))
        return site

    def before_fusion(self, trace: TraceCtx, choices: Mapping[str, str], stage: LeverContext) -> TraceCtx:
        """Reorder the collectives of the joint trace if the settings act before fusion."""
        policies = {id: choices[id] for id in ORDERING if id in choices}
        if choices.get(STAGE) != BEFORE_FUSION or not policies or not stage.waits:
            return trace
        schedule = collective_constraints.joint_schedule(trace, stage)
        return collective_constraints.reorder_joint(trace, schedule, schedule.arrange(sort_keys(schedule, policies)))

    def after_split(
        self, trace: TraceCtx, choices: Mapping[str, str], stage: LeverContext, result: LeverOutcome
    ) -> tuple[TraceCtx, LeverOutcome]:
        """Reorder the collectives of a split trace, and record its schedule in the result."""
        backward = TraceTag.BACKWARD in trace.tags
        if not stage.waits or not collective_constraints.has_collectives(trace):
            return trace, result
        schedule = collective_constraints.schedule(trace, stage)
        if together := buckets_in(schedule, choices):
            trace = bucketing.insert_buckets(trace, schedule, together)
            schedule = collective_constraints.schedule(trace, stage)
        side = "backward" if backward else "forward"
        result = dataclasses.replace(result, communication={**result.communication, side: schedule})
        if any(id.startswith((f"{self.name}.", f"{self.name}:")) for id in choices_left(choices)):
            trace = collective_constraints.reorder(trace, schedule, schedule.arrange(sort_keys(schedule, choices)))
        return trace, result

    def quick(self, choices: Mapping[str, str]) -> Collection[str]:
        """Return the ids of choices that only reorder statements, and change none of them."""
        return [id for id in choices if only_orders(id, choices)]

    def replanner(self, plan: Plan, stage: LeverContext, result: LeverOutcome) -> Orders:
        """Return a replanner that puts the plan's statements into different orders."""
        return Orders(plan, result.communication, self.settings())


def _only_with_collectives(stage: LeverContext) -> str:
    # Decide from the claimed trace, because a replayed config has no schedules before the split.
    return "" if stage.waits else "the program has no collectives"
