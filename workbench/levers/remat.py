"""Lever `remat`: which values one fusion passes to another, and which the receiving fusion recomputes instead.

A value crosses if a fusion makes it and another fusion reads it. Thunder's minimum cut decides for each crossing value
whether it is saved, that is, passed through memory, or recomputed. For recomputation in the backward, see the lever
`saved`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from workbench.compiler.fusion.executors import FusionOptions
from workbench.compiler.fusion.fusion_crossings import Crossing, cut_every
from workbench.compiler.fusion.rematerialize import STOCK_ARGUMENT_WEIGHT, RematOptions
from workbench.compiler.pipeline.lever_context import LeverContext, LeverOutcome
from workbench.compiler.trace.bsym_memo import PlanMemo
from workbench.core.graph import Kind
from workbench.core.lever import Lever, Setting, Site, only_with_fusions, refused_option_error, register
from workbench.errors import ChoiceError

if TYPE_CHECKING:
    from workbench.core.graph import Graph

STOCK, OFF, EVERY = "stock", "off", "every="


def _weight(text: str) -> float | None:
    try:
        weight = float(text)
    except ValueError:
        return None
    return weight if 0.0 <= weight <= 1.0 else None


def _parse_every(text: str) -> int | None:
    digits = text.removeprefix(EVERY)
    return int(digits) if text.startswith(EVERY) and digits.isdigit() and int(digits) >= 1 else None


def site_id(context: LeverContext, crossing: Crossing) -> str:
    """Return the id of the site of a value that crosses from one fusion to another."""
    return f"remat:{context.value_id(crossing.name)}"


@register
class Remat(Lever):
    """Decides for each value that crosses from one fusion to another whether it is saved or recomputed."""

    name = "remat"
    title = "Rematerialization between fusions"
    meanings: ClassVar[Mapping[str, str]] = {
        "auto": "Thunder's minimum cut between fusions decides.",
        "save": "Written to memory by the fusion that makes it, and read by the other.",
        "recompute": "Not written: the fusion that reads it makes it again.",
    }

    def settings(self) -> tuple[Setting, ...]:
        """Return two settings: the weight of a fusion's argument in the minimum cut, and the preset of cuts."""
        return (
            Setting(
                name="weight",
                label="weight of a fusion's argument in the minimum cut (stock 0.5; 0.0 recomputes residuals)",
                default=str(STOCK_ARGUMENT_WEIGHT),
                options=("0.0", "0.5", "1.0"),
                accepts=lambda text: _weight(text) is not None,
                range="any number from 0 to 1",
                applies=only_with_fusions,
            ),
            Setting(
                name="preset",
                label="cuts between fusions: Thunder's (stock), no recomputation (off), or every k-th value saved",
                default=STOCK,
                options=(STOCK, OFF, "every=2", "every=4", "every=8"),
                accepts=lambda text: _parse_every(text) is not None,
                range="every=K with a whole number K of at least 1",
                applies=only_with_fusions,
            ),
        )

    def sites(self, context: LeverContext, choices: Mapping[str, str], outcome: LeverOutcome) -> list[Site]:
        """Return one site for each value that crosses from one fusion to another."""
        made_by, memo = _made_by(outcome.execution), context.get_or_make("remat sites", lambda _: PlanMemo())
        memo.begin()
        found = []
        for crossing in outcome.crossings:
            tie = outcome.report.ties.get(crossing.name, "")
            key = crossing.name, crossing.producer, crossing.consumers, crossing.why_not, tie
            site: Site = memo.get_or_make(key, None, partial(_site, context, crossing, tie))
            choice, now = choices.get(site.id, "auto"), _outcome(outcome.execution, crossing, made_by)
            off = choice == "recompute" and now == "save" and choices.get("remat.preset") == OFF
            found.append(site.under(choice, now, "remat.preset is off." if off else ""))
        return found

    def after_fusion(self, trace: Any, choices: Mapping[str, str], context: LeverContext, outcome: LeverOutcome) -> Any:
        """Return the trace unchanged. Raise an error if the minimum cut could not recompute a value as chosen."""
        for crossing in outcome.crossings if outcome.report.failed else ():
            if reason := outcome.report.failed.get(crossing.name):
                raise refused_option_error(site_id(context, crossing), "recompute", reason)
        return trace

    def fusion(
        self, options: FusionOptions, choices: Mapping[str, str], context: LeverContext, outcome: LeverOutcome
    ) -> FusionOptions:
        """Return the options with the choices for the minimum cut: its weight, the preset, and single values."""
        preset = choices.get("remat.preset", STOCK)
        if preset == OFF:
            return dataclasses.replace(options, remat=RematOptions(enabled=False))
        weight = _weight(choices.get("remat.weight", str(STOCK_ARGUMENT_WEIGHT)))
        if weight is None:
            raise ChoiceError(f"remat.weight: {choices['remat.weight']!r} is not a number from 0 to 1", "remat.weight")
        pins: dict[str, str] = {}
        wanted = {id: option for id, option in choices.items() if id.startswith("remat:") and option != "auto"}
        every = _parse_every(preset)
        if every is None and preset != STOCK:
            raise ChoiceError(
                f"remat.preset: {preset!r} is not a preset; legal: {STOCK}, {OFF}, {EVERY}K", "remat.preset"
            )
        if every is not None or wanted:
            crossings = outcome.crossings
            if every is not None:
                pins.update(cut_every(every, crossings))
            for crossing in crossings:
                id = site_id(context, crossing)
                if id in wanted:
                    if wanted[id] == "recompute" and crossing.why_not:
                        raise refused_option_error(id, "recompute", crossing.why_not)
                    pins[crossing.name] = wanted[id]
        return dataclasses.replace(options, remat=RematOptions(argument_weight=weight, pins=pins))


def _site(context: LeverContext, crossing: Crossing, tie: str) -> Site:
    """Return the site of a value that crosses, without a choice."""
    label, source = context.describe(crossing.name)
    return Site(
        id=site_id(context, crossing),
        lever="remat",
        label=f"{label}: {crossing.producer} → {', '.join(crossing.consumers)}" + (f" (tie: {tie})" if tie else ""),
        source=source,
        options=("auto", "save", "recompute"),
        choice="auto",
        default="auto",
        illegal={"recompute": crossing.why_not} if crossing.why_not else {},
        values=(crossing.name,),
    )


def _outcome(graph: Graph | None, crossing: Crossing, made_by: Mapping[str, Collection[int]]) -> str:
    """Return `save` if the fusion that makes the value still returns it in the plan, else `recompute`.

    Return an empty text if there is no plan.
    """
    if graph is None:
        return ""
    value = graph.value_index.get(crossing.name, -1)
    return "save" if value >= 0 and value in made_by.get(crossing.producer, ()) else "recompute"


def _made_by(graph: Graph | None) -> dict[str, set[int]]:
    """Map the name of a fusion to the values that the fusions with this name return."""
    made: dict[str, set[int]] = {}
    if graph is not None:
        offsets, items = graph.statements.outputs.offsets.tolist(), graph.statements.outputs.items.tolist()
        for row in np.flatnonzero(graph.statements.kind == Kind.FUSION).tolist():
            made.setdefault(graph.statements.name[row], set()).update(items[offsets[row] : offsets[row + 1]])
    return made
