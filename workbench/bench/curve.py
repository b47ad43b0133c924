"""`Curve`: step time against peak, from the plan that saves everything to the least peak, found beside other work."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.analysis.places import OFFLOAD, RECOMPUTE
from workbench.bench.fitting import Fitter
from workbench.errors import ChoiceError, PlanError, WorkbenchError, shown
from workbench.summary import human_bytes, human_seconds

if TYPE_CHECKING:
    from workbench.analysis.choice import Point
    from workbench.analysis.machines import Machine
    from workbench.bench.bench import Workbench
    from workbench.compiler.pipeline import Capture

POINTS = 24


class _Cancelled(Exception):
    """Nobody waits for the curve any more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The quickest plan found under one limit; predicted.

    Attributes
    ----------
    peak_bytes, saved_bytes : int
    step_s : float
        By a machine's rates.
    gap : float
        How far the step may be from the best: the share of it above what nothing can beat.
    s_per_gib : float
        Seconds that the next GiB less costs.
    choices : mapping of str to str
        Beside those pinned.
    recomputed, offloaded : int
        Storages.
    """

    peak_bytes: int
    saved_bytes: int
    step_s: float
    gap: float
    s_per_gib: float
    choices: Mapping[str, str]
    recomputed: int
    offloaded: int

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON data."""
        return {**dataclasses.asdict(self), "predicted": True}

    def __str__(self) -> str:
        return (
            f"peak {human_bytes(self.peak_bytes)}, step {human_seconds(self.step_s)}: {self.recomputed} recomputed, "
            f"{self.offloaded} offloaded; at most {self.gap:.1%} from the best"
        )


class Curve:
    """Plans from stock to the least peak. Made by `Workbench.curve`; found in a thread, in an order that fills in.

    Parameters
    ----------
    bench : Workbench
    captured : Capture
    machine : Machine
    points : int
        At so many limits, evenly spaced.

    Attributes
    ----------
    machine : Machine
    pinned : dict of str to str
        Choices made by hand, beside which the points are.
    count : int
        Limits to be tried.
    """

    def __init__(self, bench: Workbench, captured: Capture, machine: Machine, points: int = POINTS) -> None:
        if type(points) is not int or points < 2:
            raise ChoiceError(f"a curve has at least 2 points; given {shown(points)}")
        self.machine, self.count = machine, points
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._observers: list[Callable[[], None]] = []
        self._points: tuple[CurvePoint, ...] = ()
        self._made: dict[tuple[tuple[int, str], ...], CurvePoint] = {}
        self._done, self._ended = 0, False
        self.error: WorkbenchError | None = None
        self.fitter: Fitter | None = None
        if not captured.stage.has_backward:
            raise PlanError(f"{bench.program.name} has no backward, for which something could be saved or not")
        self.pinned = bench.pinned
        self._thread = threading.Thread(target=self._work, args=(bench, captured), name="workbench-curve", daemon=True)
        self._thread.start()

    @property
    def points(self) -> tuple[CurvePoint, ...]:
        """Those found so far, the lowest peak first; none is beaten by another in both peak and time."""
        with self._changed:
            return self._points

    @property
    def done(self) -> int:
        """Limits tried so far."""
        return self._done

    @property
    def state(self) -> str:
        """``working``, ``done``, ``cancelled`` or ``failed``."""
        if not self._ended:
            return "working"
        if self.error is not None:
            return "failed"
        return "done" if self._done == self.count else "cancelled"

    def observe(self, callback: Callable[[], None]) -> None:
        """Call `callback` from the curve's thread after each limit, and at the end."""
        self._observers.append(callback)

    def cancel(self) -> None:
        """Stop; what was found stays."""
        self._stop.set()

    def wait(self, timeout_s: float | None = None) -> Curve:
        """Wait until it is done or cancelled.

        Raises
        ------
        WorkbenchError
            What ended it, if something did.
        """
        self._thread.join(timeout_s)
        if self.error is not None:
            raise self.error
        return self

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON data."""
        return {
            "machine": self.machine.name,
            "pinned": dict(self.pinned),
            "state": self.state,
            "points": [point.to_json() for point in self.points],
            "predicted": True,
        }

    def __repr__(self) -> str:
        head = f"{len(self.points)} points, {self.state}, by {self.machine.name}'s rates"
        return "\n".join((head, *(f"  {point}" for point in self.points)))

    def _work(self, bench: Workbench, captured: Capture) -> None:
        try:
            self._find(Fitter(bench, captured, self.machine, self._go_on, keep=False))
        except _Cancelled:
            pass
        except WorkbenchError as error:
            self.error = error
        finally:
            self._ended = True
            self._tell()

    def _go_on(self) -> None:
        if self._stop.is_set():
            raise _Cancelled

    def _find(self, fitter: Fitter) -> None:
        self.fitter = fitter
        tried: list[int] = []
        stock, (_, lowest) = fitter.before.peak_bytes, fitter.least()
        fitter.plan(fitter.chooser.stock)
        for part in _filling(self.count):
            self._go_on()
            limit_bytes = lowest.peak_bytes + round((stock - lowest.peak_bytes) * part)
            fitter.within(limit_bytes)
            tried.append(limit_bytes)
            self._keep(fitter, tried)

    def _keep(self, fitter: Fitter, tried: Iterable[int]) -> None:
        """Take points over, each the best of all that is known now under its limit."""
        front: list[CurvePoint] = []
        for limit_bytes in sorted(tried):
            found = fitter.planned(limit_bytes)
            if found is not None and (not front or fitter.step_s + found[0].added_s < front[-1].step_s):
                front.append(self._point(fitter, *found))
        with self._changed:
            self._points, self._done = tuple(front), self._done + 1
        self._tell()

    def _point(self, fitter: Fitter, point: Point, peak_bytes: int) -> CurvePoint:
        key = tuple(sorted(point.options.items()))
        if key not in self._made:
            bound = fitter.chooser.bound(peak_bytes)
            step_s = fitter.step_s + point.added_s
            options = list(point.options.values())
            self._made[key] = CurvePoint(
                peak_bytes=peak_bytes,
                saved_bytes=point.saved_bytes,
                step_s=step_s,
                gap=max(0.0, point.added_s - bound.added_s) / step_s,
                s_per_gib=bound.s_per_byte * 2**30,
                choices=fitter.choices(point),
                recomputed=options.count(RECOMPUTE),
                offloaded=options.count(OFFLOAD),
            )
        return self._made[key]

    def _tell(self) -> None:
        for callback in tuple(self._observers):
            callback()


def _filling(count: int) -> list[float]:
    """So many shares from 0 to 1, both ends first, then always in the middle of the widest gap."""
    shares = [i / (count - 1) for i in range(count)]
    order, gaps = [0, count - 1], [(0, count - 1)]
    while gaps:
        low, high = gaps.pop(0)
        middle = (low + high) // 2
        if middle > low:
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return [shares[i] for i in order]
