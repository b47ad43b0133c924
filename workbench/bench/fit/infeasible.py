"""Errors for requests to `fit` that no computed plan meets. Each message names the nearest figure that was found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from workbench.analysis.memory.peak_by_statement import OFFLOAD
from workbench.bench.session.fit_request import CUTS, USING, WAITS
from workbench.core.graph import operator_name
from workbench.errors import Advice, PlanError
from workbench.summary import human_bytes, human_seconds

if TYPE_CHECKING:
    from workbench.analysis.cost.machines import Machine
    from workbench.bench.session.workbench import Workbench
    from workbench.compiler.api import Plan

_HELD = 3
_RELOADS = re.compile(r"reload(ed)?_\d+$")
"""Names of the statements that reload an offloaded tensor and wait for it."""


class Unmet(PlanError):
    """No computed plan meets the request.

    Attributes
    ----------
    nearest : tuple of int and float
        Sort key that puts the least severe of several errors first. The first number is 0 if only the number of
        compilations is too large, and 1 if the peak memory or the step time is too large. The second number is the
        least number of compilations, the least bytes, or the step time of the plan that saves everything.
    """

    def __init__(self, message: str, nearest: tuple[int, float], *, advice: Advice | None = None) -> None:
        super().__init__(message, advice=advice)
        self.nearest = nearest


def largest_at_peak(plan: Plan) -> Iterator[str]:
    """Yield a text for each of the largest values alive at the peak, except parameters and inputs."""
    made = [one for one in plan.alive_at_peak() if one["statement"] >= 0]
    for one in made[:_HELD]:
        name = "reloaded tensor" if _RELOADS.match(one["name"]) else operator_name(one["name"]) or one["value"]
        yield f"{human_bytes(one['bytes'])} {name} {one['source']}".rstrip()


def peak_line(plan: Plan) -> str:
    """Return the line of the user's code at which memory is at its peak; empty if unknown."""
    graph, at = plan.graph, plan.timeline.peak_statement
    origin = int(graph.statements.origin[at]) if 0 <= at < len(graph.statements) else -1
    if origin < 0 or not graph.origins[origin].line:
        return ""
    place = graph.origins[origin]
    return f"{place.file}:{place.line}  {place.text}"


def step_too_short(bench: Workbench, step_s: float, saved_s: float, machine: Machine) -> Unmet:
    """Return the error for the case that the step of every plan takes longer than `step_s`."""
    message = (
        f"no plan of {bench.program.name} has a step of {human_seconds(step_s)} or less by the rates of "
        f"{machine.name}; if everything is saved, a step takes {human_seconds(saved_s)}"
    )
    return Unmet(message, (1, saved_s))


def peak_too_low(
    bench: Workbench, limit_bytes: int, stock: Plan, least: Plan, using: Sequence[str], *, reserved: bool = False
) -> Unmet:
    """Return the error for the case that every plan's peak memory is above the limit.

    The message names the least peak memory that was found, and the values alive at this peak. With `reserved`, the
    limit is a limit on reserved memory.
    """
    known = [plan.reserved.reserved_bytes for plan in (stock, least) if reserved and plan.reserved is not None]
    least_bytes = min(known or (stock.peak_bytes, least.peak_bytes))
    stated, can = human_bytes(limit_bytes), f"{human_bytes(least_bytes)} ({least_bytes} bytes)"
    if stated == human_bytes(least_bytes):
        stated += f" ({limit_bytes} bytes)"
    what, which = ("reserved memory", "least reserved memory") if reserved else ("a peak", "least peak")
    message = (
        f"no plan of {bench.program.name} with {what} of {stated} or less was found using {', '.join(using)}. "
        f"The {which} found is {can}"
    )
    if reserved:
        message += f", with a peak of {human_bytes(least.peak_bytes)}"
    kept = len(bench.by_hand & least.site_of.keys())
    if kept:
        message += f" (keeping {kept} choice{'s' * (kept > 1)} made by hand)"
    if limit_bytes < stock.baseline_bytes:
        message += f", because parameters and inputs alone take {human_bytes(stock.baseline_bytes)}"
        return Unmet(message, (1, least_bytes))
    # The line's number without its text, which is long.
    at = f" at {line.partition('  ')[0]}" if (line := peak_line(least)) else ""
    message += f", reached{at}. The largest values there are {', '.join(largest_at_peak(least))}"
    return Unmet(message, (1, least_bytes), advice=_advise_more_means(bench, stock, using))


def _advise_more_means(bench: Workbench, stock: Plan, using: Sequence[str]) -> Advice | None:
    """Return the advice to allow more kinds of choices; None if the request allows all kinds that could help."""
    none = {WAITS: stock.overlap is None, CUTS: not stock.census.count, OFFLOAD: bench.program.device == "cpu"}
    others = [name for name in USING if name not in using and not none.get(name)]
    if not others:
        return None
    names = tuple(name for name in USING if name in (*using, *others))
    return Advice(
        f"with {', '.join(others)} the peak may be lower: using={names!r}",
        f"with {', '.join(others)} the peak may be lower: --using {','.join(names)}",
        f"Compare levers shows how far {' and '.join(others)} can lower it",
    )


def too_few_compilations(bench: Workbench, compilations: int, limit_bytes: int | None, fewest: int) -> Unmet:
    """Return the error for the case that every plan compiles too many fusions. The message names the least number."""
    within = "" if limit_bytes is None else f" and a peak of {human_bytes(limit_bytes)} or less"
    message = f"no plan of {bench.program.name} with {compilations} compilations or fewer{within} was found"
    by_hand = any(id.startswith(("remat", "sharing.")) for id in bench.by_hand)
    beside = " (keeping the choices made by hand)" if by_hand else ""
    return Unmet(f"{message}; the least number is {fewest}{beside}", (0, fewest))
