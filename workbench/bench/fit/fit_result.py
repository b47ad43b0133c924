"""Result of a fit: the choices that were found, the reason for each choice, and the cheapest next choices."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from workbench.analysis.fit.lp_bound import Bound
from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE, SAVE
from workbench.bench.fit.cut_search import BY_CUTS, describe_cuts
from workbench.bench.session.fit_request import STORAGES
from workbench.summary import AT_LEAST, human_bytes, human_seconds

_STEPS = ("looser", "tighter")
_OWN = ("why", "bound", *_STEPS)


def gap_text(gap: float, other_choices: Mapping[str, str]) -> str:
    """Describe the gap between a step time and its lower bound as a percentage, rounded up.

    The bound holds for all plans with at most this peak, also if the fit limited the step time. The gap does not say
    how far the peak is from the least possible peak.

    If `other_choices` is not empty, the text adds that the bound holds only for this order and these cuts.
    """
    among = " for this order and these cuts" if other_choices else ""
    return f"step time optimal for this peak within {max(1, math.ceil(1e3 * gap)) / 10:.1f} %{among}"


def moves_text(other_choices: Mapping[str, str]) -> str:
    """Describe the choices of orders and cuts in `other_choices`; empty if there are none."""
    order = ", ".join(f"{id}={option}" for id, option in other_choices.items() if not id.startswith(BY_CUTS))
    cuts = describe_cuts(other_choices)
    parts = (f"in another order ({order})" if order else "", f"with other cuts ({cuts})" if cuts else "")
    return " and ".join(filter(None, parts))


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnsavedStorage:
    """One storage that is not saved.

    Attributes
    ----------
    id, option, source : str
        The site, its option, and the user's source line.
    bytes : int
        Size of the storage.
    seconds : float
        Time to recompute this storage, or to offload and reload it without overlap.
    peak_bytes : int
        Rise of the peak memory if this storage were saved and all other choices stayed, computed on the joint trace.
        Zero or negative if saving this storage alone does not raise the peak memory.
    saves_s : float
        Decrease of the step time if this storage were saved and all other choices stayed.
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
        """Describe what the choice gains in memory, and what it costs in time."""
        good = (
            f"without it the peak is {human_bytes(self.peak_bytes)} higher"
            if self.peak_bytes > 0
            else (f"{human_bytes(self.bytes)} freed, needed in combination with other choices")
        )
        return f"{good}; costs {human_seconds(self.saves_s)}" if self.saves_s > 0 else f"{good}; costs no time"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NextChoice:
    """One further choice after a fit: a different option for one storage, with its effect.

    Attributes
    ----------
    id, option, source : str
    peak_bytes : int
        Change of the peak memory, computed on the joint trace.
    step_s : float
        Change of the step time, computed on the joint trace.
    """

    id: str
    option: str
    source: str
    peak_bytes: int
    step_s: float

    def __str__(self) -> str:
        return f"{self.label}: {self.effect}"

    @property
    def label(self) -> str:
        """Effect of the choice on the peak memory, in words."""
        if not self.peak_bytes:
            return "Keep the peak"
        size = human_bytes(abs(self.peak_bytes))
        return f"Raise the peak by {size}" if self.peak_bytes > 0 else f"Lower the peak by {size}"

    @property
    def effect(self) -> str:
        """The choice, and its effect on the step time, in words."""
        return f"{self.id}={self.option}, {self._step_text}"

    @property
    def effect_in_words(self) -> str:
        """Like `effect`, but with the choice in words, not as an entry of a config."""
        return f"{self.option} {self.id.partition(':')[2] or self.id}, {self._step_text}"

    @property
    def _step_text(self) -> str:
        return f"step {'+' if self.step_s >= 0 else '−'}{human_seconds(abs(self.step_s))}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """Choices that meet a limit, and the figures of their plan. All times are computed from a machine's rates.

    Figures before the fit are the figures of the plan that has only the choices made by hand.

    Attributes
    ----------
    limit_bytes, peak_bytes, saved_bytes : int
    before_peak_bytes : int
        Peak memory before the fit.
    choices : mapping of str to str
        Choices made by the fit, in addition to the choices made by hand.
    why : tuple of UnsavedStorage
        Reason for each storage that is not saved, the most expensive storage first.
    step_s, added_s : float
        Seconds of a step's compute before the fit, and the seconds that recomputation and offloading add to it.
    bound : Bound
        Lower bound on the step time of all plans within the limit that have the same order and cuts.
    machine : str
        Name of the machine model for the times.
    binding : str
        The line of the user's code at which memory is at its peak after the fit; empty if unknown.
    held : tuple of str
        The largest values alive at the peak after the fit, except parameters and inputs. Each text contains the value's
        source line.
    looser, tighter : NextChoice or None
        The best single change that raises the peak memory, and the best single change that lowers it. `looser` saves
        the storage that gains the most time per byte of peak memory. `tighter` recomputes or offloads the storage that
        costs the least time per byte of peak memory.
    using : tuple of str
        Kinds of choices that the fit could use.
    beside : mapping of str to str
        The entries of `choices` that do not concern storages: orders of statements, orders of collectives, and cuts
        between fusions.
    beside_peak_bytes : int
        Rise of the peak memory if the choices in `beside` were undone.
    before_waiting_s, waiting_s : float
        Simulated seconds of a step in which compute waits for collectives or for the host: before the fit, and after
        it. Zero for a program without collectives.
    before_compilations, compilations : int
        Number of fusions to compile, before and after the fit.
    limits_reserved : bool
        Whether `limit_bytes` limits the predicted reserved memory, instead of the peak memory.
    before_reserved_bytes, reserved_bytes : int, optional
        Memory that PyTorch's allocator is predicted to reserve, before and after the fit; None on a CPU.
    peak_is_lower_bound : bool
        Whether the peaks before and after the fit are lower bounds, because a CPU kernel could not be measured.
    """

    limit_bytes: int
    peak_bytes: int
    saved_bytes: int
    before_peak_bytes: int
    choices: Mapping[str, str]
    why: tuple[UnsavedStorage, ...]
    step_s: float
    added_s: float
    bound: Bound
    machine: str
    binding: str
    held: tuple[str, ...] = ()
    looser: NextChoice | None = None
    tighter: NextChoice | None = None
    using: tuple[str, ...] = STORAGES
    beside: Mapping[str, str] = dataclasses.field(default_factory=dict)
    beside_peak_bytes: int = 0
    before_waiting_s: float = 0.0
    waiting_s: float = 0.0
    before_compilations: int = 0
    compilations: int = 0
    limits_reserved: bool = False
    reserved_bytes: int | None = None
    before_reserved_bytes: int | None = None
    peak_is_lower_bound: bool = False

    @property
    def gap(self) -> float:
        """Difference between the step time and its lower bound, as a share of the step time.

        A plan with the same order and cuts can be faster by at most this share.
        """
        return max(0.0, self.added_s - self.bound.added_s) / (self.step_s + self.added_s)

    @property
    def s_per_gib(self) -> float:
        """Seconds that a step takes longer if peak memory is lowered by one GiB, from the slope of `bound`."""
        return self.bound.s_per_byte * 2**30

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as plain data for JSON."""
        return {
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in _OWN},
            **{name: dataclasses.asdict(step) if (step := getattr(self, name)) else None for name in _STEPS},
            "choices": dict(self.choices),
            "beside": dict(self.beside),
            "why": [dataclasses.asdict(chosen) for chosen in self.why],
            "bound_added_s": self.bound.added_s,
            "gap": self.gap,
            "s_per_gib": self.s_per_gib,
            "predicted": True,
        }

    @property
    def lines(self) -> list[str]:
        """The result as lines of text, without `looser` and `tighter`."""
        stated = f"limit {human_bytes(self.limit_bytes)}"
        reserved = []
        if self.reserved_bytes is not None and self.before_reserved_bytes is not None:
            before, now = human_bytes(self.before_reserved_bytes), human_bytes(self.reserved_bytes)
            limit = f" ({stated})" if self.limits_reserved else ""
            reserved = [f"Reserved by the allocator {before} → {now}{limit}, simulated"]
        bound = AT_LEAST * self.peak_is_lower_bound
        if not self.choices:
            limit = "" if self.limits_reserved else f", {stated}"
            return [f"Nothing to change: peak {bound}{human_bytes(self.peak_bytes)}{limit}", *reserved]
        limit = "" if self.limits_reserved else f" ({stated})"
        counts = {o: sum(c.option == o for c in self.why) for o in (RECOMPUTE, OFFLOAD, SAVE)}
        made = ", ".join(f"{count} to {option}" for option, count in counts.items() if count) or "all saved"
        # The line's number without its text, which is long.
        place = self.binding.partition("  ")[0]
        at = f"; the peak is at {place}" if place else ""
        lines = [
            f"Peak {bound}{human_bytes(self.before_peak_bytes)} → {bound}{human_bytes(self.peak_bytes)}{limit}, saved "
            f"{human_bytes(self.saved_bytes)}{at}",
            *reserved,
            f"{made}: +{human_seconds(self.added_s)} on a step of {human_seconds(self.step_s)} ({self.machine}'s "
            f"rates), {gap_text(self.gap, self.beside)}{self._price_text}",
        ]
        if self.beside:
            without = human_bytes(self.beside_peak_bytes, signed=True)
            lines.append(f"{moves_text(self.beside)}: without this, the peak changes by {without}")
        if self.compilations != self.before_compilations:
            lines.append(f"{self.compilations} compilations (before: {self.before_compilations})")
        if self.before_waiting_s or self.waiting_s:
            now, before = human_seconds(self.waiting_s), human_seconds(self.before_waiting_s)
            lines.append(f"compute waits {now} of a step for collectives or the host (before: {before}; simulated)")
        if self.held:
            # Equal values are named once, and the line of the peak is not repeated.
            named = Counter(one.removesuffix(f" {place}") for one in self.held)
            alive = "; ".join(f"{count} × {one}" if count > 1 else one for one, count in named.items())
            lines.append(f"alive at the peak: {alive}")
        return lines

    @property
    def _price_text(self) -> str:
        """Describe how much time a lower peak memory costs, unless `tighter` names a choice with its time."""
        if self.tighter is not None or self.s_per_gib <= 0:
            return ""
        unit, size = next(
            (unit, 1 << shift)
            for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0))
            if self.peak_bytes >= 1 << shift or not shift
        )
        return f"; each further {unit} below this peak costs {human_seconds(self.bound.s_per_byte * size)}"

    def __repr__(self) -> str:
        return "\n".join((*self.lines, *(str(step) for step in (self.looser, self.tighter) if step is not None)))
