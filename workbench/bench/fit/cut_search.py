"""`cuts`: search for other cuts between fusions, and compare their compilations, memory and step time.

A cut is the set of values that one fusion passes to another. The receiving fusion recomputes all other values that it
needs. The choices of the levers `remat` and `sharing` determine the cuts, and which fusions are compiled.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.analysis.cost.collective_overlap import costs
from workbench.bench.fit.order_presets import may_share
from workbench.core.graph import Kind, layer_of
from workbench.errors import ChoiceError, PlanError
from workbench.summary import html_columns, human_bytes, human_seconds, text_columns
from workbench.util.gc_pause import paused_gc

if TYPE_CHECKING:
    from workbench.analysis.cost.machines import Machine
    from workbench.bench.session.workbench import Workbench
    from workbench.compiler.api import Plan
    from workbench.core.lever import Site

SHARED = {"sharing.identical": "shared"}
"""The choice to compile fusions of equal structure only once."""
BY_CUTS = ("remat.", "remat:", "sharing.")
"""Prefixes of the ids of the sites that `cuts` may set."""
_AGAIN, _SAVE = "recompute", "save"
_PERIODS = (1, 2, 4, 8, 16, 32)
_PLANS = 160
_TRIED = 3
"""Maximum number of sets of cuts that a fit tries. For each set, the fit searches for options of storages."""
_PLANNED = 120_000
"""Limit of the statements in all plans for one table, so that a large program gets fewer plans.

At least `_PLANS` // 8 plans are allowed, even if they exceed this limit."""
_HEADS = ("compilations", "largest", "peak", "saved", "step", "choices")
_NUMBER = re.compile(r"\.\d+")
_SHOWN = 5e-4
"""A relative change of the step time below this value is shown as a dash."""
_NEAR = 1e-9
"""Two figures with a relative difference below this value count as equal."""

type _Made = frozenset[tuple[str, str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cut:
    """A set of choices that determines the cuts between fusions, with the predicted figures of its plan.

    Attributes
    ----------
    compilations : int
        Number of fusions to compile.
    fusions, largest : int
        Number of fusions, and number of operations in the largest fusion.
    peak_bytes, saved_bytes : int
    step_s : float
        Seconds of a step's compute, by a machine's rates.
    choices : mapping of str to str
        Choices in addition to the choices made by hand.
    """

    compilations: int
    fusions: int
    largest: int
    peak_bytes: int
    saved_bytes: int
    step_s: float
    choices: Mapping[str, str]

    @property
    def label(self) -> str:
        """A description of the choices: presets, and the kinds of values that are saved or recomputed."""
        return describe_cuts(self.choices) or "as Thunder cuts"

    @property
    def figures(self) -> tuple[float, ...]:
        """The figures that a search minimizes, and by which `is_beaten` compares plans."""
        return self.compilations, self.peak_bytes, self.saved_bytes, self.step_s

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as plain data for JSON."""
        return {**dataclasses.asdict(self), "choices": dict(self.choices), "label": self.label, "predicted": True}


class Cuts(tuple[Cut, ...]):
    """Table of the plans on the Pareto front of compilations, peak memory, saved bytes and step time.

    One plan beats another if it is at least as good in all of these figures. The front has the plans that are not
    beaten. If several plans have equal figures, the front has only the plan with the fewest choices.
    """

    stock: Cut
    """The plan under the user's choices, with no cut changed.

    Like all plans of the table, it compiles identical fusions once, unless the user has set ``sharing.identical``.
    """
    machine: str
    """Name of the machine model for the times."""
    planned: int
    """Number of sets of choices that were tried."""

    @classmethod
    def of(cls, cuts: Iterable[Cut], stock: Cut, machine: str, plan_count: int) -> Cuts:
        """Return a table with the rows `cuts`."""
        made = cls(cuts)
        made.stock, made.machine, made.planned = stock, machine, plan_count
        return made

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as plain data for JSON."""
        return {
            "machine": self.machine,
            "plans": self.planned,
            "stock": self.stock.to_json(),
            "cuts": [cut.to_json() for cut in self],
            "predicted": True,
        }

    heads = _HEADS
    """Headers of the columns of `rows`."""

    @property
    def every(self) -> tuple[Cut, ...]:
        """`stock`, followed by the other plans of the front."""
        return (self.stock, *(cut for cut in self if cut is not self.stock))

    @property
    def best(self) -> str:
        """The least value of each figure, as a text. The values may belong to different plans."""
        stock = self.stock
        peak = _byte_difference(min(cut.peak_bytes for cut in self), stock.peak_bytes)
        saved = _byte_difference(min(cut.saved_bytes for cut in self), stock.saved_bytes)
        few, step = (
            min(cut.compilations for cut in self),
            time_difference(min(cut.step_s for cut in self), stock.step_s),
        )
        return f"{few} compilations (as Thunder cuts: {stock.compilations}), peak {peak}, saved {saved}, step {step}"

    def __repr__(self) -> str:
        return text_columns(_HEADS, self.rows())

    def _repr_html_(self) -> str:
        return html_columns(_HEADS, self.rows())

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table's cells, one row for each plan in `every`.

        The first row has the figures of `stock`. The peak memory, saved bytes and step time of the other rows are
        differences from the first row.
        """
        stock = self.stock

        def row(cut: Cut) -> tuple[str, ...]:
            step = human_seconds(cut.step_s)
            peak, saved = human_bytes(cut.peak_bytes), human_bytes(cut.saved_bytes)
            if cut is not stock:
                step = time_difference(cut.step_s, stock.step_s)
                peak, saved = (
                    _byte_difference(cut.peak_bytes, stock.peak_bytes),
                    _byte_difference(cut.saved_bytes, stock.saved_bytes),
                )
            return f"{cut.compilations} of {cut.fusions}", f"{cut.largest} ops", peak, saved, step, cut.label

        return [row(cut) for cut in self.every]


def _byte_difference(nbytes: int, stock_bytes: int) -> str:
    """Format the difference from the bytes of `Cuts.stock`."""
    return human_bytes(nbytes - stock_bytes, signed=True) if nbytes != stock_bytes else "–"


def time_difference(duration: float, stock_duration: float) -> str:
    """Format the difference from the step time of `Cuts.stock` as a percentage."""
    by = duration / stock_duration - 1 if stock_duration else 0.0
    return "–" if abs(by) < _SHOWN else f"{by:+.1%}".replace("-", "−")


def worth_trying(cuts: Cuts, most: int | None) -> tuple[dict[str, str], ...]:
    """Return the sets of choices that a fit tries, at most `_TRIED`. Each set is a row of a table of cuts.

    Rows are taken by turns: the row with the shortest step time, the row with the lowest peak memory, the row with the
    second shortest step time, and so on. If `most` is a number, only rows with at most `most` compilations are taken.
    If it is None, only rows with a shorter step time or a lower peak memory than `cuts.stock` are taken.
    """
    stock = cuts.stock
    good = [
        cut
        for cut in cuts
        if cut is not stock
        and (most is not None or cut.step_s < stock.step_s or cut.peak_bytes < stock.peak_bytes)
        and (most is None or cut.compilations <= most)
    ]
    quickest = sorted(good, key=lambda cut: (cut.step_s, cut.peak_bytes))
    lowest = sorted(good, key=lambda cut: (cut.peak_bytes, cut.step_s))
    tried: list[dict[str, str]] = []
    for cut in (cut for pair in zip(quickest, lowest, strict=True) for cut in pair):
        made = {id: option for id, option in cut.choices.items() if id not in SHARED}
        if made not in tried:
            tried.append(made)
    return tuple(tried[:_TRIED])


class CutSearch:
    """Searches for cuts: computes plans with the choices made by hand and with further choices that determine cuts.

    The search does not change the bench's choices.

    Parameters
    ----------
    bench : Workbench
    machine : Machine
        Machine model for the times.
    go_on : callable
        Called before each plan; if it raises an exception, the search ends.
    keep : bool
        Whether to cache the plans.

    Raises
    ------
    PlanError
        If nothing is fused.
    """

    def __init__(
        self, bench: Workbench, machine: Machine, go_on: Callable[[], None] = lambda: None, *, keep: bool = False
    ) -> None:
        self._bench, self._machine, self._go_on, self._keep = bench, machine, go_on, keep
        self.pinned, by_hand = bench.pinned, bench.by_hand
        self.stock = bench.plan_with(self.pinned, keep=keep)
        if not self.stock.census.count:
            raise PlanError(
                f"the executor {bench.executor} fuses nothing in {bench.program.name}, so there are no cuts to choose"
            )
        known = self.stock.site_of
        self._shares = SHARED if may_share(self.stock, by_hand) else {}
        has_setting = any(id.startswith("remat.") for id in by_hand)
        self._presets = () if has_setting or "remat.preset" not in known else _PRESETS
        self._kinds = _kinds(self.stock.sites, by_hand)
        self._weighed: dict[_Made, Cut | None] = {}

    @paused_gc()
    def table(self) -> Cuts:
        """Search, and return the Pareto front of all computed plans. Plans with the fewest compilations come first."""
        first = self._weigh(frozenset())
        assert first is not None
        singles = (frozenset(made.items()) for made in (*self._presets, *self._kinds))
        useful = [made for made in singles if (cut := self._weigh(made)) is not None and not is_beaten(cut, first)]
        looked_at: set[_Made] = {frozenset()}
        while (at := next((made for made in self._front() if made not in looked_at), None)) is not None:
            looked_at.add(at)
            both = (frozenset({**dict(at), **dict(made)}.items()) for made in useful if _can_combine(made, at))
            for made in both:
                if not self._may_plan:
                    break
                self._weigh(made)
        return self._table(first)

    def current_table(self) -> Cuts | None:
        """Return the Pareto front so far; None before the first plan."""
        first = self._weighed.get(frozenset())
        return None if first is None else self._table(first)

    def _table(self, first: Cut) -> Cuts:
        front = sorted(self._front().values(), key=lambda cut: (cut.compilations, cut.step_s, cut.peak_bytes))
        return Cuts.of(front, first, self._machine.name, len(self._weighed))

    @property
    def done(self) -> int:
        """Number of plans evaluated so far."""
        return len(self._weighed)

    @property
    def most(self) -> int:
        """Maximum number of plans. The maximum allows at least one plan for each preset and for each kind of value."""
        room = min(_PLANS, max(_PLANS // 8, _PLANNED // max(1, len(self.stock.graph.statements))))
        return max(room, 1 + len(self._presets) + len(self._kinds))

    @property
    def _may_plan(self) -> bool:
        """Whether another plan may be made."""
        return len(self._weighed) < self.most

    def _front(self) -> dict[_Made, Cut]:
        """Return the Pareto front. If several plans have equal figures, it contains the one with the fewest choices."""
        known = {key: cut for key, cut in self._weighed.items() if cut is not None}
        front: dict[_Made, Cut] = {}
        for key, cut in sorted(known.items(), key=lambda item: (len(item[0]), sorted(item[0]))):
            if not any(is_beaten(cut, other) for other in front.values()):
                front = {**{k: other for k, other in front.items() if not is_beaten(other, cut)}, key: cut}
        return front

    def _weigh(self, choice_set: _Made) -> Cut | None:
        """Return the figures of the plan under choices; None if the choices are refused."""
        if choice_set not in self._weighed:
            self._go_on()
            choices = {**self._shares, **dict(sorted(choice_set))}
            try:
                plan = self._bench.plan_with({**self.pinned, **choices}, keep=self._keep)
            except (ChoiceError, PlanError):
                self._weighed[choice_set] = None
            else:
                self._weighed[choice_set] = Cut(
                    compilations=plan.counts["compilations"],
                    fusions=plan.census.count,
                    largest=plan.census.largest,
                    peak_bytes=plan.peak_bytes,
                    saved_bytes=plan.saved_bytes,
                    step_s=compute_s(self._bench, plan, self._machine),
                    choices=choices,
                )
        return self._weighed[choice_set]


def compute_s(bench: Workbench, plan: Plan, machine: Machine) -> float:
    """Return the seconds of a step's statements by a machine's rates, without the transfers of offloading."""
    cost, kind = costs(plan.graph, machine, bench.ranks), plan.graph.statements.kind
    seconds = cost.compute_s + (cost.host_s if bench.program.device == "cpu" else 0.0)
    return float(seconds[~np.isin(kind, (Kind.OFFLOAD, Kind.RELOAD))].sum())


def is_beaten(cut: Cut, rival: Cut) -> bool:
    """Return whether `rival` is at least as good as `cut` in every figure."""
    return all(theirs <= own * (1 + _NEAR) for own, theirs in zip(cut.figures, rival.figures, strict=True))


def _can_combine(first: _Made, second: _Made) -> bool:
    """Return whether two sets of choices can be combined. Two presets cannot be combined."""
    return not all(any(id.startswith("remat.") for id, _ in one) for one in (first, second))


_PRESETS: tuple[dict[str, str], ...] = (
    {"remat.preset": "off"},
    {"remat.weight": "1.0"},
    {"remat.weight": "0.0"},
    *({"remat.weight": "0.0", "remat.preset": f"every={k}"} for k in _PERIODS),
)
"""Choices for the settings of `remat`, here called presets. Each preset changes all cuts of the program."""


def _kinds(sites: Iterable[Site], by_hand: Collection[str]) -> tuple[dict[str, str], ...]:
    """Return one set of choices for each kind of value and each option.

    A set changes the values of its kind in all layers.

    Values of one kind differ only in the number of their layer. The choices recompute values that one fusion now passes
    to another, and save values that fusions now recompute.
    """
    of_kind: dict[tuple[str, str], dict[str, str]] = {}
    for site in sites:
        if not site.id.startswith("remat:") or site.id in by_hand:
            continue
        option = _SAVE if site.outcome == _AGAIN else _AGAIN
        if option not in site.illegal:
            of_kind.setdefault((site_kind(site.id), option), {})[site.id] = option
    return tuple(of_kind.values())


def describe_cuts(choices: Mapping[str, str]) -> str:
    """Describe cuts in words: first the presets, then each kind of chosen value with the number of such values."""
    presets = [f"{id}={option}" for id, option in choices.items() if id.startswith("remat.")]
    counts = Counter(
        (option, site_kind(id).partition(":")[2]) for id, option in choices.items() if id.startswith("remat:")
    )
    kinds = [f"{option} {kind}{f' ({count})' if count > 1 else ''}" for (option, kind), count in counts.items()]
    return "; ".join([*([", ".join(presets)] if presets else []), *kinds])


@functools.lru_cache(maxsize=1 << 15)
def site_kind(id: str) -> str:
    """Return a site's id with a wildcard for the layer's number; outside of layers, return the id without numbers."""
    layer = layer_of(id.partition(":")[2].partition("/")[0])
    if not layer:
        return _NUMBER.sub("", id)
    local = id.replace(f"{layer}.", "#.").replace(f"{layer}/", "#/")
    return local.replace("#", _NUMBER.sub(".*", f".{layer}")[1:], 1)
