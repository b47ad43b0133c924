"""`fit`: what to save, recompute and offload so that the peak is at most so many bytes, in the least time."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from workbench.analysis.choice import (
    OFFLOAD,
    RECOMPUTE,
    SAVE,
    Bound,
    ByArithmetic,
    Chooser,
    Places,
    Point,
    Rates,
    Weighed,
)
from workbench.analysis.overlap import costs
from workbench.errors import ChoiceError, PlanError, shown
from workbench.summary import human_bytes, human_seconds

if TYPE_CHECKING:
    from workbench.analysis.machines import Machine
    from workbench.bench.bench import Workbench
    from workbench.compiler.pipeline import Capture, Plan

_UNITS = {"": 1, "B": 1, **{f"{p}B": 1000 ** (i + 1) for i, p in enumerate("kMGT")}}
_UNITS |= {f"{p}iB": 1024 ** (i + 1) for i, p in enumerate("KMGT")}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_TRIES = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chosen:
    """One storage that is not saved.

    Attributes
    ----------
    id, option, source : str
        The site, what was chosen, and the person's own line.
    bytes : int
        Of the storage.
    seconds : float
        That it takes alone: what is run again, or the transfers if nothing hid them.
    """

    id: str
    option: str
    source: str
    bytes: int
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """What was chosen to meet a peak; memory is the plan's, time by arithmetic on a machine's rates.

    Attributes
    ----------
    limit_bytes, peak_bytes, saved_bytes : int
    before_peak_bytes : int
        Without these choices.
    choices : mapping of str to str
        Made by it; those that were in force before stay.
    why : tuple of Chosen
        The dearest first.
    step_s, added_s : float
        Of a step before, and what the choices add.
    bound : Bound
        What nothing within the limit can beat, as far as no fusion changes.
    machine : str
        Whose rates the times rest on.
    binding : str
        The person's line at which the peak now is; empty where it is not known.
    """

    limit_bytes: int
    peak_bytes: int
    saved_bytes: int
    before_peak_bytes: int
    choices: Mapping[str, str]
    why: tuple[Chosen, ...]
    step_s: float
    added_s: float
    bound: Bound
    machine: str
    binding: str

    @property
    def gap(self) -> float:
        """How far the step may be from the best: the share of it above `bound`."""
        return max(0.0, self.added_s - self.bound.added_s) / (self.step_s + self.added_s)

    @property
    def s_per_gib(self) -> float:
        """Seconds that the next GiB less costs, at the bound."""
        return self.bound.s_per_byte * 2**30

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON data."""
        return {
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("why", "bound")},
            "choices": dict(self.choices),
            "why": [dataclasses.asdict(chosen) for chosen in self.why],
            "bound_added_s": self.bound.added_s,
            "gap": self.gap,
            "s_per_gib": self.s_per_gib,
            "predicted": True,
        }

    def __repr__(self) -> str:
        if not self.choices:
            return f"fits as it is: peak {human_bytes(self.peak_bytes)} of {human_bytes(self.limit_bytes)}"
        counts = {o: sum(c.option == o for c in self.why) for o in (RECOMPUTE, OFFLOAD, SAVE)}
        made = ", ".join(f"{count} to {option}" for option, count in counts.items() if count)
        at = f", at {self.binding}" if self.binding else ""
        return "\n".join(
            (
                f"peak {human_bytes(self.peak_bytes)} of {human_bytes(self.limit_bytes)} asked for{at} (before: "
                f"{human_bytes(self.before_peak_bytes)}); saved {human_bytes(self.saved_bytes)}",
                f"{made}: {human_seconds(self.added_s)} on a step of {human_seconds(self.step_s)} ({self.machine}'s "
                f"rates), at most {self.gap:.1%} of the step from the best"
                + (f"; the next GiB less costs {human_seconds(self.s_per_gib)}" if self.s_per_gib > 0 else ""),
            )
        )


class _How(TypedDict):
    along: bool
    gather: bool
    ahead: int


def size_bytes(given: int | str) -> int:
    """Bytes, of a number or a text such as ``24 GiB``.

    Raises
    ------
    ChoiceError
        If it is no size above zero.
    """
    found = _SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
    if found is not None and found[2] in _UNITS:
        given = round(float(found[1]) * _UNITS[found[2]])
    if isinstance(given, bool) or not isinstance(given, int) or given <= 0:
        raise ChoiceError(
            f"a peak is a number of bytes above zero, or a text such as '24 GiB' or '512 MB'; given {shown(given)}"
        )
    return given


def fit(bench: Workbench, captured: Capture, machine: Machine, peak: int | str) -> Fit:
    """What to choose, beside the choices in force; nothing is made.

    Parameters
    ----------
    bench : Workbench
    captured : Capture
        Its program.
    machine : Machine
        Whose rates tell what recomputing costs.
    peak : int or str

    Raises
    ------
    ChoiceError
        If `peak` is no size.
    PlanError
        If no plan that is found is within it, with the least that is; if the program has no backward.
    """
    limit_bytes = size_bytes(peak)
    stage = captured.stage
    if not stage.has_backward:
        raise PlanError(f"{bench.program.name} has no backward, for which something could be saved or not")
    in_force, before = bench.choices, bench.plan
    sites = {site.values: site for site in before.sites if site.lever == "saved" and site.values}
    free: dict[int, tuple[str, ...]] = {}
    fixed: dict[int, str] = {}
    site_of = {}
    values = stage.graph.values
    for storage in stage.recomputer.storages().tolist():
        site = sites.get(tuple(values.name[v] for v in stage.recomputer.values_on(storage)))
        if site is None:
            continue
        site_of[storage] = site
        if site.id in in_force or site.default != SAVE:
            fixed[storage] = site.choice
        else:
            free[storage] = tuple(option for option in site.options if option not in site.illegal)
    from workbench.compiler.devices import copy_bandwidth

    cost = costs(stage.graph, machine, bench.ranks)
    on_gpu = bench.program.device != "cpu"
    seconds = cost.compute_s + (0.0 if on_gpu else cost.host_s)
    places = Places(stage.recomputer, stage.predictor)
    fixed = {storage: option for storage, option in fixed.items() if option != SAVE}
    how = _How(
        along=before.site_of["saved.inputs"].choice == "along",
        gather=stage.gathers_again,
        ahead=int(before.site_of["saved.ahead"].choice),
    )

    def planned(options: Mapping[int, str]) -> Plan:
        made = {site_of[storage].id: option for storage, option in options.items()}
        return bench.plan_under({**in_force, **made}) if made else before

    def weighed(options: Mapping[int, str]) -> Weighed:
        plan = planned(options)
        return Weighed(
            peak_bytes=plan.peak_bytes,
            saved_bytes=plan.saved_bytes,
            peaks=places.of_plan(
                stage.graph, plan.graph, plan.timeline.statement_peak_bytes, plan.timeline.after_bytes
            ),
        )

    weigh = weighed if stage.fuses else ByArithmetic(stage.recomputer, stage.predictor, places, fixed, **how)
    rates = Rates(seconds=seconds, offload_bytes_per_s=copy_bandwidth(bench.program.device), hides=on_gpu)
    chooser = Chooser(stage.recomputer, places, rates, weigh, free, fixed, quick=not stage.fuses, **how)
    found = _search(chooser, planned, limit_bytes)
    if found is None:
        raise PlanError(_too_small(bench, limit_bytes, before, planned(chooser.least().options)))
    point, plan = found
    execution = costs(before.graph, machine, bench.ranks)
    step_s = float(execution.compute_s.sum() if on_gpu else (execution.compute_s + execution.host_s).sum())
    why = (
        Chosen(
            id=site_of[storage].id,
            option=option,
            source=site_of[storage].source,
            bytes=int(stage.graph.storages.bytes[storage]),
            seconds=chooser.alone_s(storage, option),
        )
        for storage, option in point.options.items()
    )
    return Fit(
        limit_bytes=limit_bytes,
        peak_bytes=plan.peak_bytes,
        saved_bytes=plan.saved_bytes,
        before_peak_bytes=before.peak_bytes,
        choices={site_of[storage].id: option for storage, option in point.options.items()},
        why=tuple(sorted(why, key=lambda chosen: -chosen.seconds)),
        step_s=step_s,
        added_s=point.added_s,
        bound=chooser.bound(limit_bytes),
        machine=machine.name,
        binding=_peak_line(plan),
    )


def _search(
    chooser: Chooser, planned: Callable[[Mapping[int, str]], Plan], limit_bytes: int
) -> tuple[Point, Plan] | None:
    """The quickest point found whose plan is within the limit: a plan may be a little off what arithmetic says."""
    aim = limit_bytes
    for _ in range(_TRIES):
        point = chooser.fit(aim)
        if point is None:
            break
        plan = planned(point.options)
        if plan.peak_bytes <= limit_bytes:
            return point, plan
        aim -= plan.peak_bytes - limit_bytes
    return None


def _peak_line(plan: Plan) -> str:
    graph, at = plan.graph, plan.timeline.peak_statement
    origin = int(graph.statements.origin[at]) if 0 <= at < len(graph.statements) else -1
    if origin < 0 or not graph.origins[origin].line:
        return ""
    place = graph.origins[origin]
    return f"{place.file}:{place.line}  {place.text}"


def _too_small(bench: Workbench, limit_bytes: int, before: Plan, least: Plan) -> str:
    alive = "; ".join(
        f"{human_bytes(held['bytes'])} {held['name'] or held['value']} {held['source']}".rstrip()
        for held in least.alive_at_peak()[:3]
    )
    least_bytes = min(before.peak_bytes, least.peak_bytes)
    message = (
        f"no plan of {bench.program.name} that peaks at {human_bytes(limit_bytes)} or less was found; the least is "
        f"{human_bytes(least_bytes)}"
    )
    if limit_bytes < before.baseline_bytes:
        return f"{message}, for parameters and inputs alone are {human_bytes(before.baseline_bytes)}"
    at = f" at {line}" if (line := _peak_line(least)) else ""
    return f"{message}, reached{at}, where the largest are {alive}"
