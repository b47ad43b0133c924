"""`fit`: what to save, recompute and offload so that the peak is at most so many bytes, in the least time."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from workbench.analysis.choice import GUIDE_S, Chooser, Point, Rates
from workbench.analysis.overlap import costs
from workbench.analysis.places import OFFLOAD, RECOMPUTE, SAVE, ByArithmetic, Places, Weighed
from workbench.analysis.relaxed import Bound
from workbench.errors import ChoiceError, PlanError, shown
from workbench.summary import human_bytes, human_seconds

if TYPE_CHECKING:
    from workbench.analysis.machines import Machine
    from workbench.bench.bench import Workbench
    from workbench.compiler.pipeline import Capture, Plan
    from workbench.lever import Site

_UNITS = {"": 1, "B": 1, **{f"{p}B": 1000 ** (i + 1) for i, p in enumerate("kMGT")}}
_UNITS |= {f"{p}iB": 1024 ** (i + 1) for i, p in enumerate("KMGT")}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_TRIES = 8
_HALVINGS = 12
_HELD = 3
_TIGHTER = 16
_STEPS = ("looser", "tighter")
_OWN = ("why", "bound", *_STEPS)


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
    peak_bytes : int
        By which the peak would rise if it were saved; zero where only several together would raise it.
    saves_s : float
        Seconds of the step that this would gain.
    """

    id: str
    option: str
    source: str
    bytes: int
    seconds: float
    peak_bytes: int
    saves_s: float

    @property
    def reason(self) -> str:
        """What it is good for, and what it costs, in words."""
        good = (
            f"without it the peak is {human_bytes(self.peak_bytes)} higher"
            if self.peak_bytes > 0
            else (f"{human_bytes(self.bytes)} freed, needed together with others")
        )
        return f"{good}; costs {human_seconds(self.saves_s)}" if self.saves_s > 0 else f"{good}; costs no time"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One more choice, or one less: what it would change.

    Attributes
    ----------
    id, option, source : str
    peak_bytes : int
        By the joint trace's arithmetic, as is
    step_s : float
    """

    id: str
    option: str
    source: str
    peak_bytes: int
    step_s: float

    def __str__(self) -> str:
        peak, step = human_bytes(self.peak_bytes, signed=True), human_seconds(abs(self.step_s))
        return f"{self.id}={self.option}: peak {peak}, step {'+' if self.step_s >= 0 else '−'}{step}"


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
    held : tuple of str
        The largest alive there beside parameters and inputs, with their lines.
    looser, tighter : Step or None
        The cheapest next step each way: what to save again for the most time, what more not to save for the least.
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
    held: tuple[str, ...] = ()
    looser: Step | None = None
    tighter: Step | None = None

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
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in _OWN},
            **{name: dataclasses.asdict(step) if (step := getattr(self, name)) else None for name in _STEPS},
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
        lines = [
            f"peak {human_bytes(self.peak_bytes)} of {human_bytes(self.limit_bytes)} asked for{at} (before: "
            f"{human_bytes(self.before_peak_bytes)}); saved {human_bytes(self.saved_bytes)}",
            f"{made}: {human_seconds(self.added_s)} on a step of {human_seconds(self.step_s)} ({self.machine}'s "
            f"rates), at most {self.gap:.1%} of the step from the best"
            + (f"; the next GiB less costs {human_seconds(self.s_per_gib)}" if self.s_per_gib > 0 else ""),
        ]
        if self.held:
            lines.append(f"held at the peak: {'; '.join(self.held)}")
        lines += [f"next, {name}: {step}" for name in _STEPS if (step := getattr(self, name)) is not None]
        return "\n".join(lines)


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


class Fitter:
    """Fits one program to one limit after another: what is learnt of one serves the others.

    Choices of `bench.pinned` stay as they are. Nothing is made.

    Parameters
    ----------
    bench : Workbench
    captured : Capture
        Its program.
    machine : Machine
        Whose rates tell what recomputing costs.
    go_on : callable, optional
        Called before anything that takes time; what it raises ends the work.
    keep : bool
        Whether plans made are put among those that are kept.
    offload : bool
        Whether storages may be offloaded, too.

    Raises
    ------
    PlanError
        If the program has no backward.
    """

    def __init__(
        self,
        bench: Workbench,
        captured: Capture,
        machine: Machine,
        go_on: Callable[[], None] = lambda: None,
        *,
        keep: bool = True,
        offload: bool = True,
    ) -> None:
        stage = captured.stage
        if not stage.has_backward:
            raise PlanError(f"{bench.program.name} has no backward, for which something could be saved or not")
        from workbench.compiler.devices import copy_bandwidth

        self._bench, self._stage, self.machine, self._go_on = bench, stage, machine, go_on
        self._planned = functools.partial(bench.plan_under, keep=keep)
        self._options = (SAVE, RECOMPUTE, OFFLOAD) if offload else (SAVE, RECOMPUTE)
        self._peaks: dict[frozenset[tuple[int, str]], tuple[Point, int]] = {}
        self.pinned = bench.pinned
        self.before = bench.plan_under(self.pinned)
        self._site_of, free, fixed = self._sorted()
        cost = costs(stage.graph, machine, bench.ranks)
        on_gpu = bench.program.device != "cpu"
        rates = Rates(
            seconds=cost.compute_s + (0.0 if on_gpu else cost.host_s),
            offload_bytes_per_s=copy_bandwidth(bench.program.device),
            hides=on_gpu,
        )
        how = _How(
            along=self.before.site_of["saved.inputs"].choice == "along",
            gather=stage.gathers_again,
            ahead=int(self.before.site_of["saved.ahead"].choice),
        )
        self._places = Places(stage.recomputer, stage.predictor)
        self._arithmetic = ByArithmetic(stage.recomputer, stage.predictor, self._places, fixed, **how)
        exactly: Callable[..., Chooser] = functools.partial(
            Chooser, stage.recomputer, self._places, rates, self._by_arithmetic, free, fixed, quick=True, go_on=go_on
        )
        self.chooser = (
            Chooser(
                stage.recomputer,
                self._places,
                rates,
                self._by_plan,
                free,
                fixed,
                quick=False,
                go_on=go_on,
                guide=functools.partial(exactly, solver_s=GUIDE_S, **how),
                **how,
            )
            if stage.fuses
            else exactly(**how)
        )
        execution = costs(self.before.graph, machine, bench.ranks)
        self.step_s = float((execution.compute_s + (0.0 if on_gpu else execution.host_s)).sum())

    def _sorted(self) -> tuple[dict[int, Site], dict[int, tuple[str, ...]], dict[int, str]]:
        """Sites by storage; those to choose for, with what is legal; the others, where they are not saved."""
        stage, sites = self._stage, {}
        free: dict[int, tuple[str, ...]] = {}
        fixed: dict[int, str] = {}
        known = {site.values: site for site in self.before.sites if site.lever == "saved" and site.values}
        names = stage.graph.values.name
        for storage in stage.recomputer.storages().tolist():
            site = known.get(tuple(names[v] for v in stage.recomputer.values_on(storage)))
            if site is None:
                continue
            sites[storage] = site
            if site.id not in self.pinned and site.default == SAVE:
                free[storage] = tuple(o for o in site.options if o in self._options and o not in site.illegal)
            elif site.choice != SAVE:
                fixed[storage] = site.choice
        return sites, free, fixed

    def choices(self, point: Point) -> dict[str, str]:
        """A point's options by site."""
        return {self._site_of[storage].id: option for storage, option in point.options.items()}

    def plan(self, point: Point) -> Plan:
        """The plan of a point, beside what is pinned."""
        self._go_on()
        plan = self._planned({**self.pinned, **self.choices(point)}) if point.options else self.before
        self._peaks[frozenset(point.options.items())] = point, plan.peak_bytes
        return plan

    def least(self) -> tuple[Point, Plan]:
        """The lowest point found, whatever it takes."""
        point = self.chooser.least()
        return point, self.plan(point)

    def planned(self, limit_bytes: int) -> tuple[Point, int] | None:
        """Of all points that were planned so far the quickest within a limit, with its plan's peak."""
        within = [(point, peak) for point, peak in self._peaks.values() if peak <= limit_bytes]
        return min(within, key=lambda found: (found[0].added_s, found[1], len(found[0].options)), default=None)

    def point(self, choices: Mapping[str, str]) -> Point:
        """What choices come to that were made for sites; those for others are not looked at."""
        storages = {site.id: storage for storage, site in self._site_of.items()}
        options = {storages[id]: option for id, option in choices.items() if id in storages and id not in self.pinned}
        return self.chooser.point({storage: option for storage, option in options.items() if option != SAVE})

    def _by_arithmetic(self, options: Mapping[int, str]) -> Weighed:
        self._go_on()
        return self._arithmetic(options)

    def _by_plan(self, options: Mapping[int, str]) -> Weighed:
        self._go_on()
        made = {self._site_of[storage].id: option for storage, option in options.items()}
        plan = self._planned({**self.pinned, **made}) if made else self.before
        timeline = plan.timeline
        return Weighed(
            peak_bytes=plan.peak_bytes,
            saved_bytes=plan.saved_bytes,
            peaks=self._places.of_plan(
                self._stage.graph, plan.graph, timeline.statement_peak_bytes, timeline.after_bytes
            ),
        )

    def within(self, limit_bytes: int) -> tuple[Point, Plan]:
        """The quickest point found whose plan is within a limit.

        Raises
        ------
        PlanError
            If no plan that is found is within it, with the least that is.
        """
        aim = limit_bytes
        for _ in range(_TRIES):
            point = self.chooser.fit(aim)
            if point is None:
                self.least()
                break
            plan = self.plan(point)
            if plan.peak_bytes <= limit_bytes:
                break
            # A plan may be a little off what arithmetic says.
            aim -= plan.peak_bytes - limit_bytes
        found = self.planned(limit_bytes)
        if found is None:
            raise PlanError(_too_small(self._bench, limit_bytes, self.before, self.least()[1]))
        return found[0], self.plan(found[0])

    def within_time(self, step_s: float) -> tuple[Point, Plan]:
        """The point of the least peak found that takes a step no longer than so many seconds.

        Raises
        ------
        PlanError
            If a step takes longer with nothing computed again.
        """
        if step_s < self.step_s:
            raise PlanError(
                f"no plan of {self._bench.program.name} takes {human_seconds(step_s)} a step or less by the rates of "
                f"{self.machine.name}: where all is saved it takes {human_seconds(self.step_s)}"
            )
        low, high = self.chooser.least().peak_bytes, self.chooser.stock.peak_bytes
        for _ in range(_HALVINGS):
            middle = (low + high) // 2
            point = self.chooser.fit(middle)
            if point is not None and self.step_s + point.added_s <= step_s:
                high = middle
            else:
                low = middle
        point = self.chooser.known_lowest(step_s, self.step_s)
        return self.within(point.peak_bytes)

    def explained(self, point: Point, plan: Plan, limit_bytes: int) -> Fit:
        """A point with why it is as it is."""
        why = sorted(self._why(point), key=lambda chosen: (-chosen.seconds, -chosen.bytes))
        return Fit(
            limit_bytes=limit_bytes,
            peak_bytes=plan.peak_bytes,
            saved_bytes=plan.saved_bytes,
            before_peak_bytes=self.before.peak_bytes,
            choices=self.choices(point),
            why=tuple(why),
            step_s=self.step_s,
            added_s=point.added_s,
            bound=self.chooser.bound(limit_bytes),
            machine=self.machine.name,
            binding=_peak_line(plan),
            held=tuple(_held(plan)),
            looser=self._looser(point),
            tighter=self._tighter(point),
        )

    def _why(self, point: Point) -> Iterator[Chosen]:
        peak_bytes = self._arithmetic_peak(point.options)
        for storage, option in point.options.items():
            without = {s: o for s, o in point.options.items() if s != storage}
            site = self._site_of[storage]
            yield Chosen(
                id=site.id,
                option=option,
                source=site.source,
                bytes=int(self._stage.graph.storages.bytes[storage]),
                seconds=self.chooser.alone_s(storage, option),
                peak_bytes=self._arithmetic_peak(without) - peak_bytes,
                saves_s=point.added_s - self.chooser.added_s(without),
            )

    def _arithmetic_peak(self, options: Mapping[int, str]) -> int:
        return self._by_arithmetic(options).peak_bytes

    def _step(self, point: Point, storage: int, option: str) -> Step:
        options = {s: o for s, o in point.options.items() if s != storage}
        if option != SAVE:
            options[storage] = option
        peak_bytes = self._arithmetic_peak(options) - self._arithmetic_peak(point.options)
        site = self._site_of[storage]
        return Step(
            id=site.id,
            option=option,
            source=site.source,
            peak_bytes=peak_bytes,
            step_s=self.chooser.added_s(options) - point.added_s,
        )

    def _looser(self, point: Point) -> Step | None:
        """Of what is not saved, what gains the most time for the bytes that saving it takes."""
        steps = [self._step(point, storage, SAVE) for storage in point.options]
        gains = [step for step in steps if step.step_s < 0]
        return min(gains, key=lambda step: step.step_s / max(1, step.peak_bytes), default=None)

    def _tighter(self, point: Point) -> Step | None:
        """Of what is saved, what lowers the peak for the least time."""
        at = int(np.argmax(self._by_arithmetic(point.options).peaks))
        steps = [self._step(point, *tried) for tried in self.chooser.helpful(point, at)[:_TIGHTER]]
        lower = [step for step in steps if step.peak_bytes < 0]
        return min(lower, key=lambda step: (step.step_s / -step.peak_bytes, step.peak_bytes), default=None)


def fit(
    bench: Workbench, captured: Capture, machine: Machine, peak: int | str | None, step_s: float | None = None
) -> Fit:
    """What to choose, beside the choices pinned; nothing is made.

    Parameters
    ----------
    bench : Workbench
    captured : Capture
        Its program.
    machine : Machine
        Whose rates tell what recomputing costs.
    peak : int or str, optional
    step_s : float, optional
        In place of a peak.

    Raises
    ------
    ChoiceError
        If `peak` is no size or `step_s` no time; if both are given, or none.
    PlanError
        If no plan that is found is within it, with the least that is; if the program has no backward.
    """
    if (peak is None) == (step_s is None):
        raise ChoiceError("fit takes a peak, such as '24 GiB', or step_s=, the seconds of a step: one of the two")
    if step_s is not None:
        if not _is_number(step_s) or not 0 < step_s < math.inf:
            raise ChoiceError(f"step_s is a number of seconds above zero; given {shown(step_s)}")
        fitter = Fitter(bench, captured, machine)
        point, plan = fitter.within_time(step_s)
        return fitter.explained(point, plan, plan.peak_bytes)
    assert peak is not None
    limit_bytes = size_bytes(peak)
    fitter = Fitter(bench, captured, machine)
    return fitter.explained(*fitter.within(limit_bytes), limit_bytes)


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _held(plan: Plan) -> Iterator[str]:
    """The largest alive at the peak, beside parameters and inputs, in words."""
    made = [held for held in plan.alive_at_peak() if held["statement"] >= 0]
    for held in made[:_HELD]:
        yield f"{human_bytes(held['bytes'])} {held['name'] or held['value']} {held['source']}".rstrip()


def _peak_line(plan: Plan) -> str:
    graph, at = plan.graph, plan.timeline.peak_statement
    origin = int(graph.statements.origin[at]) if 0 <= at < len(graph.statements) else -1
    if origin < 0 or not graph.origins[origin].line:
        return ""
    place = graph.origins[origin]
    return f"{place.file}:{place.line}  {place.text}"


def _too_small(bench: Workbench, limit_bytes: int, before: Plan, least: Plan) -> str:
    least_bytes = min(before.peak_bytes, least.peak_bytes)
    stated, can = human_bytes(limit_bytes), f"{human_bytes(least_bytes)} ({least_bytes} bytes)"
    if stated == human_bytes(least_bytes):
        stated += f" ({limit_bytes} bytes)"
    message = f"no plan of {bench.program.name} that peaks at {stated} or less was found; the least is {can}"
    pinned = sum(id in bench.pinned for id in least.site_of)
    if pinned:
        message += f" beside {pinned} choice{'s' * (pinned > 1)} made by hand, which stay{'s' * (pinned == 1)}"
    if limit_bytes < before.baseline_bytes:
        return f"{message}, for parameters and inputs alone are {human_bytes(before.baseline_bytes)}"
    at = f" at {line}" if (line := _peak_line(least)) else ""
    return f"{message}, reached{at}, where the largest are {'; '.join(_held(least))}"
