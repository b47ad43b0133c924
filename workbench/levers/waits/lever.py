"""Lever `waits`: where a trace issues collectives, and where it waits for their results.

The lever edits the forward and backward traces after the split, so it does not change fusions. If ``waits.stage`` is
``before_fusion``, the lever's settings act on the joint trace before fusion instead. Then a collective between two
statements prevents their fusion. Under all options, no statement moves past a statement on which it depends; see
`workbench.levers.waits.constraints`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import ClassVar

from workbench.compiler.interop.thunder_api import TraceCtx, TraceTag
from workbench.compiler.pipeline.lever_context import LeverContext, LeverOutcome
from workbench.compiler.planner.plan import Plan
from workbench.core.lever import Lever, Setting, Site, only_with_fusions, register
from workbench.levers.waits import bucketing, constraints
from workbench.levers.waits.positions import (
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
    POLICY,
    STAGE,
    STOCK,
    WAITS,
    buckets_in,
    choices_left,
    only_orders,
    sites_of,
    sort_keys,
)
from workbench.levers.waits.replanner import Orders


@register
class Waits(Lever):
    """Decides the positions of collectives and of their waits."""

    name = WAITS
    title = "Collectives and waits"
    meanings: ClassVar[Mapping[str, str]] = {
        "stock": "As Thunder places it.",
        "earliest": "As soon as the value it sends exists.",
        "consumer": "As soon as the value it sends exists, in the order in which results are first read.",
        "just_in_time": "Right before its wait: fewest bytes in flight, and nothing hidden.",
        "late": "Waited for right before the first use.",
        "early": "Waited for right after the issue.",
    }

    def settings(self) -> tuple[Setting, ...]:
        """Return five settings: for issues, waits, collectives that are only returned, buckets, and the stage."""
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
                applies=lambda context: _only_with_collectives(context) or only_with_fusions(context),
            ),
        )

    def sites(self, context: LeverContext, choices: Mapping[str, str], outcome: LeverOutcome) -> list[Site]:
        """Return two sites for each collective: one for its issue, and one for its wait."""
        return [
            site
            for schedule in outcome.communication.values()
            for collective in schedule.collectives
            for site in sites_of(schedule, collective, choices, context)
        ]

    def explain_outcome(self, site: Site) -> str:
        """Return a sentence on the option in effect at a site.

        For a site without a choice, the sentence names the setting that decides.
        """
        if site.choice != POLICY:
            return super().explain_outcome(site)
        if site.id.endswith("!wait"):
            return f"Currently {site.outcome}, set by waits.wait."
        return f"Currently {site.outcome}, set by waits.{'gradients' if JUST_IN_TIME in site.illegal else 'issue'}."

    def widen(self, site: Site, option: str) -> Site:
        """Add `option` to the site if it has the form ``at(STATEMENT)``. Planning later checks whether it is legal."""
        if AT.fullmatch(option) and option not in site.options:
            return dataclasses.replace(site, options=(*site.options, option))
        return site

    def before_fusion(self, trace: TraceCtx, choices: Mapping[str, str], context: LeverContext) -> TraceCtx:
        """Return the joint trace. If the settings act before fusion, its collectives are reordered."""
        policies = {id: choices[id] for id in ORDERING if id in choices}
        if choices.get(STAGE) != BEFORE_FUSION or not policies or not context.waits:
            return trace
        schedule = constraints.joint_schedule(trace, context)
        return constraints.reorder_joint(trace, schedule, schedule.arrange(sort_keys(schedule, policies)))

    def after_split(
        self, trace: TraceCtx, choices: Mapping[str, str], context: LeverContext, outcome: LeverOutcome
    ) -> tuple[TraceCtx, LeverOutcome]:
        """Insert buckets into a split trace, and reorder its collectives. Add its schedule to the outcome."""
        backward = TraceTag.BACKWARD in trace.tags
        if not context.waits or not constraints.has_collectives(trace):
            return trace, outcome
        schedule = constraints.schedule(trace, context)
        if together := buckets_in(schedule, choices):
            trace = bucketing.insert_buckets(trace, schedule, together)
            schedule = constraints.schedule(trace, context)
        side = "backward" if backward else "forward"
        outcome = dataclasses.replace(outcome, communication={**outcome.communication, side: schedule})
        if any(id.startswith((f"{self.name}.", f"{self.name}:")) for id in choices_left(choices)):
            trace = constraints.reorder(trace, schedule, schedule.arrange(sort_keys(schedule, choices)))
        return trace, outcome

    def quick(self, choices: Mapping[str, str]) -> Collection[str]:
        """Return the ids of the choices that only reorder statements."""
        return [id for id in choices if only_orders(id, choices)]

    def replanner(self, plan: Plan, context: LeverContext, outcome: LeverOutcome) -> Orders:
        """Return a replanner that reorders the collectives of `plan`."""
        return Orders(plan, outcome.communication, self.settings())


def _only_with_collectives(context: LeverContext) -> str:
    # Use `context.waits`, which comes from the joint trace: schedules may exist only after the split.
    return "" if context.waits else "the program has no collectives"
