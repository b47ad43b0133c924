"""`Curve`: the least step time under limits on peak memory, from the peak without a fit to the least possible peak."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE
from workbench.bench.fit.cancellable_task import Background
from workbench.bench.fit.fit_result import Fit, gap_text, moves_text
from workbench.bench.fit.fit_with_cuts import FitterWithCuts
from workbench.bench.fit.order_presets import PresetPlan
from workbench.bench.session.fit_request import STORAGES, check_peak, check_points, check_using, peak_bytes
from workbench.errors import PlanError
from workbench.summary import human_bytes, human_seconds
from workbench.util.planning_lock import PLANNING

if TYPE_CHECKING:
    from workbench.analysis.cost.machines import Machine
    from workbench.bench.session.workbench import Workbench
    from workbench.compiler.api import Capture

POINTS = 24
POINTS_FUSED = 8
"""Default number of points for a program with fusions. It is small, because each point needs plans that take seconds.
"""
_BETWEEN_S = 0.01
_LIMIT_S = 0.5
"""A question to the curve waits up to this many seconds for the limit that the curve is trying."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The fastest plan found under one limit. All figures are predicted.

    Attributes
    ----------
    peak_bytes, saved_bytes : int
    step_s : float
        Step time by a machine's rates.
    gap : float
        Difference between the step time and its lower bound, as a share of the step time.
    s_per_gib : float
        Seconds that a step takes longer if peak memory is lowered by one GiB.
    choices : mapping of str to str
        Choices in addition to the pinned choices.
    recomputed, offloaded : int
        Number of recomputed storages, and of offloaded storages.
    beside : mapping of str to str
        The entries of `choices` that do not concern storages: orders of statements, orders of collectives, and cuts
        between fusions.
    """

    peak_bytes: int
    saved_bytes: int
    step_s: float
    gap: float
    s_per_gib: float
    choices: Mapping[str, str]
    recomputed: int
    offloaded: int
    beside: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as plain data for JSON."""
        return {**dataclasses.asdict(self), "predicted": True}

    def __str__(self) -> str:
        return (
            f"peak {human_bytes(self.peak_bytes)}, step {human_seconds(self.step_s)}: {self.recomputed} recomputed, "
            f"{self.offloaded} offloaded{self.moves_text}; {gap_text(self.gap, self.beside)}"
        )

    @property
    def moves_text(self) -> str:
        """Describe the point's orders and cuts. The text can follow a description of recomputation and offloading."""
        words = moves_text(self.beside)
        return f", {words}" if words else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FractionalCurve:
    """One line of a curve. Its points use only the kinds of choices in `using`.

    Attributes
    ----------
    using : tuple of str
        The allowed kinds of choices.
    points : tuple of CurvePoint
        Lowest peak memory first. A point with a higher peak memory always has a shorter step time.
    """

    using: tuple[str, ...]
    points: tuple[CurvePoint, ...]

    @property
    def name(self) -> str:
        """The kind of choices that this line allows, but the previous line does not."""
        return f"{'with ' if len(self.using) > 1 else ''}{self.using[-1]}"

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as plain data for JSON."""
        return {"using": list(self.using), "points": [point.to_json() for point in self.points]}


class Curve(Background):
    """The fastest plans for several limits on peak memory. `Workbench.curve` returns it.

    The limits are between the peak memory without a fit and the least peak memory. A thread computes the points. It
    begins with the highest and the lowest limit. Then it always takes the middle of the widest gap between limits.

    `fit`, `explain` and `step_s` are answered first: the curve's thread pauses meanwhile. They do not need the curve's
    least peak, and they also answer after the curve was cancelled.

    Parameters
    ----------
    bench : Workbench
    captured : Capture
    machine : Machine
    points : int, optional
        Number of limits of each line, evenly spaced; by default `POINTS` or, with fusions, `POINTS_FUSED`.
    using : sequence of str
        Allowed kinds of choices; see `Workbench.fit`.
    by_lever : bool
        Whether to compute several lines: the first line uses the first kind of `using`, the second line the first two
        kinds, and so on.

    Attributes
    ----------
    machine : Machine
    using : tuple of str
    pinned : dict of str to str
        The choices made by hand. They are part of all plans of the curve.
    by_hand : frozenset of str
        The sites whose options the fits do not change; see `Workbench.by_hand`.
    count : int
        Number of limits to try, over all lines.
    """

    def __init__(
        self,
        bench: Workbench,
        captured: Capture,
        machine: Machine,
        points: int | None = None,
        *,
        using: Sequence[str] = STORAGES,
        by_lever: bool = False,
    ) -> None:
        super().__init__()
        if points is None:
            points = POINTS_FUSED if captured.context.fuses else POINTS
        points = check_points(points)
        self.machine, self.using, self._each_of = machine, check_using(using), points
        self._sets = [self.using[: n + 1] for n in range(len(self.using))] if by_lever else [self.using]
        self.count = points * len(self._sets)
        self._changed = threading.Condition()
        self._lines: tuple[FractionalCurve, ...] = ()
        self._made: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], CurvePoint] = {}
        self._done = 0
        self._fitter: FitterWithCuts | None = None
        self._turn, self._waiting = threading.RLock(), set[int]()
        self._other_fitter: FitterWithCuts | None = None
        """The fitter that answers while the curve's thread uses `_fitter`, or has not made it yet."""
        self._other_turn, self._answering = threading.RLock(), set[int]()
        if not captured.context.has_backward:
            raise PlanError(f"{bench.program.name} has no backward, so there is nothing to save or recompute")
        self._bench, self.pinned, self.by_hand, self._captured = bench, bench.pinned, bench.by_hand, captured
        self._start("workbench-curve", self._work)

    @property
    def points(self) -> tuple[CurvePoint, ...]:
        """Points found so far on the last line, lowest peak memory first; see `FractionalCurve`."""
        lines = self.lines
        return lines[-1].points if lines else ()

    @property
    def lines(self) -> tuple[FractionalCurve, ...]:
        """The lines with their points so far. Each line allows one kind of choices more than the previous line."""
        with self._changed:
            return self._lines

    @property
    def done(self) -> int:
        """Number of limits tried so far."""
        return self._done

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as plain data for JSON."""
        return {
            "machine": self.machine.name,
            "pinned": dict(self.pinned),
            "state": self.state,
            "using": list(self.using),
            "points": [point.to_json() for point in self.points],
            "lines": [line.to_json() for line in self.lines],
            "predicted": True,
        }

    def __repr__(self) -> str:
        head = f"{len(self.points)} points, {self.state}, by {self.machine.name}'s rates"
        if len(self._sets) == 1:
            return "\n".join((head, *(f"  {point}" for point in self.points)))
        texts = ((line.name, *(f"  {point}" for point in line.points)) for line in self.lines)
        return "\n".join((head, *(text for line in texts for text in line)))

    def _work(self) -> None:
        fitter: FitterWithCuts | None = None
        tried: list[int] = []
        for using in self._sets:
            fitter = FitterWithCuts(
                self._bench, self._captured, self.machine, self._pause, keep=False, using=using, reused=fitter
            )
            with self._turn:
                fitter.lowest_peak()
                self._fitter, self._lines = fitter, (*self._lines, FractionalCurve(using=using, points=()))
            self._find(fitter, tried)

    def _pause(self) -> None:
        """As `_go_on`. The curve's thread also waits while another thread is answered by `_other_fitter`.

        It does not wait if it holds a lock that the answer may need: the lock for planning, or a lock of an observer
        that asks the curve.
        """
        self._go_on()
        if threading.current_thread() is self._thread and not PLANNING.is_mine:
            while self._answering and self._thread.ident not in self._waiting and not self._stop.wait(_BETWEEN_S):
                pass
            self._go_on()

    def fit(self, peak: int | str) -> Fit:
        """Find choices for a limit on peak memory, and reuse the plans that the curve already has.

        The choices are not added to the bench; `Workbench.choose_found` does this.

        Raises
        ------
        ChoiceError, PlanError
            As in `workbench.bench.fit.fit_with_cuts.fit`.
        """
        check_peak(peak)
        with self._turn_with_fitter() as fitter:
            limit_bytes = peak_bytes(peak, lambda: self._bench.stock_plan.peak_bytes)
            return fitter.explain(*fitter.fit_peak(limit_bytes), limit_bytes)

    def explain(self, choices: Mapping[str, str]) -> Fit:
        """Convert choices, such as the choices of a curve's point, to a `Fit`, which contains their reasons."""
        with self._turn_with_fitter() as fitter:
            point, plan = fitter.plan_of_choices(choices)
            return fitter.explain(point, plan, plan.peak_bytes)

    def step_s(self, choices: Mapping[str, str]) -> float:
        """Return the seconds of a step under `choices` and the pinned choices."""
        with self._turn_with_fitter() as fitter:
            return fitter.step_under(choices)

    @contextlib.contextmanager
    def _turn_with_fitter(self) -> Iterator[FitterWithCuts]:
        """Yield a fitter that no other thread uses meanwhile.

        It is the curve's fitter if the curve's thread is between two limits within `_LIMIT_S`. Otherwise it is another
        fitter, and the curve's thread pauses.
        """
        if self._fitter is None and self.error is not None:
            raise self.error
        me = threading.get_ident()
        self._waiting.add(me)
        try:
            if self._fitter is not None and self._turn.acquire(timeout=_LIMIT_S):
                try:
                    yield self._fitter
                finally:
                    self._turn.release()
            else:
                self._answering.add(me)
                with self._other_turn:
                    yield self._make_other_fitter()
        finally:
            self._answering.discard(me)
            self._waiting.discard(me)

    def _make_other_fitter(self) -> FitterWithCuts:
        """Return `_other_fitter`, which allows the same kinds of choices as `_fitter`."""
        fitter, other = self._fitter, self._other_fitter
        using = self._sets[0] if fitter is None else fitter.using
        if other is None or other.using != using:
            other = FitterWithCuts(
                self._bench, self._captured, self.machine, keep=False, using=using, reused=fitter or other
            )
            self._other_fitter = other
        return other

    def _find(self, fitter: FitterWithCuts, tried_limits: list[int]) -> None:
        """Compute one line, and append its limits to `tried_limits`, which contains the limits of earlier lines."""
        stock, (_, lowest) = fitter.before.peak_bytes, fitter.lowest_peak()
        fitter.start()
        for part in _bisecting_shares(self._each_of):
            while self._waiting and not self._stop.wait(_BETWEEN_S):
                pass
            self._go_on()
            limit_bytes = lowest.peak_bytes + round((stock - lowest.peak_bytes) * part)
            with self._turn:
                fitter.fit_peak(limit_bytes)
            tried_limits.append(limit_bytes)
            self._keep(fitter, tried_limits)

    def _keep(self, fitter: FitterWithCuts, tried_limits: Iterable[int]) -> None:
        """Store the line's points so far: for each tried limit, the fastest plan known now."""
        front: list[CurvePoint] = []
        for limit_bytes in sorted(tried_limits):
            found = fitter.fastest_planned(limit_bytes)
            if found is not None and (not front or fitter.step_s + found.whole_s < front[-1].step_s):
                front.append(self._point(fitter, found))
        line = FractionalCurve(using=fitter.using, points=tuple(front))
        with self._changed:
            self._lines, self._done = (*self._lines[:-1], line), self._done + 1
        self._notify()

    def _point(self, fitter: FitterWithCuts, point: PresetPlan) -> CurvePoint:
        choices, peak_bytes = fitter.choices(point), point.planned_bytes
        key = fitter.using, tuple(sorted(choices.items()))
        if key not in self._made:
            bound = fitter.bound(point, peak_bytes)
            step_s = fitter.step_s + point.whole_s
            options = list(point.options.values())
            self._made[key] = CurvePoint(
                peak_bytes=peak_bytes,
                saved_bytes=point.saved_bytes,
                step_s=step_s,
                gap=max(0.0, point.added_s - bound.added_s) / step_s,
                s_per_gib=bound.s_per_byte * 2**30,
                choices=choices,
                recomputed=options.count(RECOMPUTE),
                offloaded=options.count(OFFLOAD),
                beside=point.beside,
            )
        return self._made[key]


def _bisecting_shares(count: int) -> list[float]:
    """Return `count` shares from 0 to 1: first 0 and 1, then always the middle of the widest gap."""
    shares = [i / (count - 1) for i in range(count)]
    order, gaps = [0, count - 1], [(0, count - 1)]
    while gaps:
        low, high = gaps.pop(0)
        middle = (low + high) // 2
        if middle > low:
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return [shares[i] for i in order]
