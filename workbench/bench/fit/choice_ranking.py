"""`worth`: predict how further choices would change the plan's peak memory, saved bytes and step time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.cost.collective_overlap import costs
from workbench.analysis.cost.offload_time import exposed_s, hidden_s
from workbench.analysis.memory.liveness import alive_at
from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE
from workbench.core.graph import Kind
from workbench.core.lever import check_choices, lever_of, unknown_site_error
from workbench.summary import html_columns, human_bytes, human_seconds, text_columns

if TYPE_CHECKING:
    from workbench.analysis.cost.machines import Machine
    from workbench.analysis.memory.liveness import Prediction
    from workbench.compiler.api import Capture, Plan
    from workbench.core.lever import Site

_TRANSFERS = (Kind.OFFLOAD, Kind.RELOAD, Kind.FENCE)
_HEADS = ("peak", "saved", "step", "choice")
_LEAST_S = 5e-7
"""Changes of the step time below this number of seconds are shown as a dash."""
_MOST_WEIGHED = 400
"""Maximum number of choices that are evaluated for one ranking. Each evaluation takes milliseconds."""
_NAMED = 3
"""Maximum number of storages, and of chosen values, that a text on the peak names."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gain:
    """Change of the plan's figures by further choices: the new plan's figures minus the current plan's figures.

    Attributes
    ----------
    choices : mapping of str to str
        The chosen option of each site. A choice for the same value in several layers has one site for each layer.
    peak_bytes, saved_bytes : int
    step_s : float
        Change of the step time, computed from a machine's rates. As in `fit`, the time of transfers counts only if it
        does not overlap with compute.
    estimated : bool
        Whether `peak_bytes` and `saved_bytes` were computed on the joint trace, without a plan. The bytes of the plan
        may then differ.
    why : str
        The reason why the peak memory does not change, and the values that are alive at the peak; empty if the peak
        memory changes.
    """

    choices: Mapping[str, str]
    peak_bytes: int
    saved_bytes: int
    step_s: float
    estimated: bool
    why: str = ""


class Gains(tuple[Gain, ...]):
    """A tuple of `Gain`. Its text and its HTML are tables."""

    def __repr__(self) -> str:
        return text_columns(_HEADS, self._rows())

    def _repr_html_(self) -> str:
        return html_columns(_HEADS, self._rows())

    def _rows(self) -> list[tuple[str, ...]]:
        def bytes_text(gain: Gain, difference: int) -> str:
            return (
                f"{'≈ ' if gain.estimated and difference else ''}{human_bytes(difference, signed=True)}"
                if difference
                else "–"
            )

        def time_text(seconds: float) -> str:
            return "–" if abs(seconds) < _LEAST_S else f"{'+' if seconds > 0 else '−'}{human_seconds(abs(seconds))}"

        return [
            (
                bytes_text(gain, gain.peak_bytes),
                bytes_text(gain, gain.saved_bytes),
                time_text(gain.step_s),
                "; ".join(f"{id}: {option}" for id, option in gain.choices.items()),
            )
            for gain in self
        ]


class Worth:
    """Evaluates further choices by their effect on one plan. `Workbench.worth` returns an instance.

    Parameters
    ----------
    captured : Capture
    in_force : mapping of str to str
        The current choices.
    plan : Plan
        The plan under the current choices.
    machine : Machine
        Machine model for the times.
    planned : callable
        Returns the plan under a complete set of choices.

    Attributes
    ----------
    plan : Plan
    machine : Machine
    """

    def __init__(
        self,
        captured: Capture,
        in_force: Mapping[str, str],
        plan: Plan,
        machine: Machine,
        planned: Callable[[Mapping[str, str]], Plan],
    ) -> None:
        self.plan, self.machine = plan, machine
        self._captured, self._in_force, self._planned = captured, dict(in_force), planned
        self._on_gpu = captured.program.device != "cpu"

    def __repr__(self) -> str:
        ranked = self.ranked()
        if not ranked:
            return "the effect of further choices can only be found by planning here: use .exact(choices)"
        return f"effect of one further choice, sorted by peak; steps by {self.machine.name}'s rates\n{ranked!r}"

    def ranked(self, most: int = 10) -> Gains:
        """Return the best single choices, sorted by peak memory, then by saved bytes, then by step time.

        Choices whose effect needs a plan are left out. If there are more than `_MOST_WEIGHED` choices, only the choices
        for the largest storages are evaluated.

        Parameters
        ----------
        most : int
            Maximum number of choices to return.
        """
        sites = sorted(self.plan.sites, key=lambda site: -site.bytes)
        able = [choices for site in sites if site.values for choices in options_of([site])]
        weighed = [gain for choices in able[:_MOST_WEIGHED] if (gain := self.quick(choices)) is not None]
        return Gains(sorted(weighed, key=lambda gain: (gain.peak_bytes, gain.saved_bytes, gain.step_s))[:most])

    def quick(self, choices: Mapping[str, str]) -> Gain | None:
        """Return the effect of choices without a plan, in milliseconds. Return None if the effect needs a plan."""
        context = self._captured.context
        check_choices(choices, self.plan.site_of)
        if not context.has_backward or any(id not in self._storage_of for id in choices):
            return None
        chosen = {**self._options, **{self._storage_of[id]: option for id, option in choices.items()}}
        then, then_s = self._weigh(chosen)
        now, now_s = self._current_cost
        all_choices = {**self._in_force, **choices}
        exact = (
            not context.fuses
            and self._captured.ranks is None
            and {lever_of(id) for id in all_choices} == {"saved"}
            and OFFLOAD not in chosen.values()
        )
        saved_bytes = then.saved_bytes - now.saved_bytes
        peak_bytes = then.peak_bytes - now.peak_bytes
        return Gain(
            choices=dict(choices),
            peak_bytes=peak_bytes,
            saved_bytes=saved_bytes,
            step_s=then_s - now_s,
            estimated=not exact,
            why=self._reason(choices, saved_bytes) if not peak_bytes else "",
        )

    def exact(self, choices: Mapping[str, str]) -> Gain:
        """Return the exact effect of `choices`, from the plan under the current choices and `choices`.

        Raises
        ------
        ChoiceError
            If a choice is refused.
        Superseded
            If the user makes another choice during planning.
        """
        check_choices(choices, self.plan.site_of)
        then = self._planned({**self._in_force, **choices})
        for id in set(then.unmatched) & set(choices):
            raise unknown_site_error(self.plan.program, id, self.plan.site_of)
        saved_bytes, peak_bytes = then.saved_bytes - self.plan.saved_bytes, then.peak_bytes - self.plan.peak_bytes
        return Gain(
            choices=dict(choices),
            peak_bytes=peak_bytes,
            saved_bytes=saved_bytes,
            step_s=self._step_s(then) - self._plan_s,
            estimated=False,
            why=self._reason(choices, saved_bytes) if not peak_bytes else "",
        )

    @cached_property
    def statement_s(self) -> NDArray[np.float64]:
        """Seconds of each statement of the plan's graph, without communication; 0 for members of fusions."""
        cost = costs(self.plan.graph, self.machine, self._captured.rank_count)
        return cost.compute_s + (0.0 if self._on_gpu else cost.host_s)

    @cached_property
    def _storage_of(self) -> dict[str, int]:
        """Maps the id of each site of a storage to the index of the storage in the joint graph."""
        context, sites = self._captured.context, {}
        values = context.graph.values
        by_values = {site.values: site.id for site in self.plan.sites if site.lever == "saved" and site.values}
        for storage in context.recomputer.storages().tolist():
            id = by_values.get(tuple(values.name[v] for v in context.recomputer.values_on(storage)))
            if id is not None:
                sites[id] = storage
        return sites

    @cached_property
    def _options(self) -> dict[int, str]:
        """Maps each storage to its option under the current choices."""
        known = self.plan.site_of
        return {storage: known[id].choice for id, storage in self._storage_of.items()}

    @cached_property
    def _current_cost(self) -> tuple[Prediction, float]:
        return self._weigh(self._options)

    @cached_property
    def _plan_s(self) -> float:
        return self._step_s(self.plan)

    def _weigh(self, options: Mapping[int, str]) -> tuple[Prediction, float]:
        """Return the memory and the seconds of a step, predicted on the joint graph, under options for storages."""
        context, known = self._captured.context, self.plan.site_of
        again = [storage for storage, option in options.items() if option == RECOMPUTE]
        away = [storage for storage, option in options.items() if option == OFFLOAD]
        change = context.recomputer.edit(
            again, along=known["saved.inputs"].choice == "along", gather=context.gathers_again
        )
        schedule = change.schedule(context.graph)
        found = context.predictor.predict(schedule, offloaded_storages=away, ahead=int(known["saved.ahead"].choice))
        way_s = float(context.graph.storages.bytes[away].sum()) / self._bytes_per_s
        return found, float(self._row_s[schedule.order[found.entries]].sum()) + exposed_s(way_s, self._hidden_s)

    @cached_property
    def _row_s(self) -> NDArray[np.float64]:
        """Seconds of each statement of the joint graph."""
        cost = costs(self._captured.context.graph, self.machine, self._captured.rank_count)
        return cost.compute_s + (0.0 if self._on_gpu else cost.host_s)

    @cached_property
    def _hidden_s(self) -> tuple[float, float]:
        """Seconds of transfers that can overlap with compute: in the forward, and in the backward."""
        return hidden_s(self._captured.context.graph, self._row_s, hides=self._on_gpu)

    @cached_property
    def _bytes_per_s(self) -> float:
        from workbench.compiler.interop.devices import copy_bandwidth

        return copy_bandwidth(self._captured.program.device)

    def _step_s(self, plan: Plan) -> float:
        """Return the seconds of a plan's step. If the plan has collectives, their overlap with compute is simulated."""
        return predicted_step_s(plan, self.machine, self._captured.rank_count, lambda: self._hidden_s)

    def why_peak(self, choices: Mapping[str, str]) -> str:
        """Describe why choices do not change the peak memory, with the statement and the live values at the peak."""
        where, held, largest = self._peak
        values = {v for id in choices if id in self.plan.site_of for v in self.plan.site_of[id].values}
        alive = sorted(values & held)
        still = ", ".join(alive) if len(alive) <= _NAMED else f"{len(alive)} of the chosen values"
        instead = f", with {still} still alive" if alive else ""
        return f"Peak unchanged: it is {where}{instead}. {largest}".strip()

    def _reason(self, choices: Mapping[str, str], saved_bytes: int) -> str:
        """Return the reason why choices do not change the peak memory, in one or two sentences."""
        where, held, largest = self._peak
        values = {value for id in choices for value in self.plan.site_of[id].values} if choices else set()
        if not values:
            return f"The peak is {where}, and this choice does not change it. {largest}"
        if not values & held:
            return f"The peak is {where}; this value is not alive there. {largest}"
        if not saved_bytes:
            return f"The peak is {where}; the inputs of this value would be alive there instead."
        return f"The peak is {where}; without this value, another statement has the same peak. {largest}"

    @cached_property
    def _peak(self) -> tuple[str, frozenset[str], str]:
        """The statement at the peak in words, the names of the values alive there, and a text on the largest values."""
        graph, at = self.plan.graph, self.plan.timeline.peak_statement
        if at < 0:
            return "before the first statement, when only parameters and inputs are alive", frozenset(), ""
        if at < len(graph.statements):
            where = f"inside {graph.statements.name[at].rpartition('.')[2]}"
            origin = int(graph.statements.origin[at])
            place = graph.origins[origin] if origin >= 0 else None
            where += f" ({place.file}:{place.line})" if place is not None and place.line else ""
        else:
            where = "after the last statement, where autograd copies gradients"
        alive = alive_at(graph, at)
        storages = {one.storage for one in alive}
        values = graph.values
        held = frozenset(values.name[v] for v in range(len(values)) if int(values.storage[v]) in storages)
        made = [one for one in alive if one.producer >= 0][:_NAMED]
        named = ", ".join(
            f"{one.name} {human_bytes(one.bytes)}" + (f" ({one.source})" * bool(one.source)) for one in made
        )
        return where, held, f"Largest there: {named}." if named else ""


def predicted_step_s(
    plan: Plan, machine: Machine, ranks: int, hidden: Callable[[], tuple[float, float]] | None = None
) -> float:
    """Return the seconds of a plan's step by a machine's rates.

    If the plan has collectives, their overlap with compute is simulated. Transfers to the host count only with the time
    that does not overlap with compute.

    Parameters
    ----------
    plan : Plan
    machine : Machine
    ranks : int
    hidden : callable, optional
        Returns the result of `workbench.analysis.cost.offload_time.hidden_s` for the joint graph; called only if the
        plan offloads. By default, the result for the plan's own graph is used.
    """
    on_gpu = plan.device != "cpu"
    cost = costs(plan.graph, machine, ranks)
    seconds = cost.compute_s + (0.0 if on_gpu else cost.host_s)
    transferred, way_s = 0.0, plan.counts["offload_us"] * 0.5e-6
    if way_s:
        transferred = exposed_s(way_s, hidden_s(plan.graph, seconds, hides=on_gpu) if hidden is None else hidden())
    if (overlap := plan.overlap_on(machine)) is not None:
        return overlap.simulation.step_s + transferred
    return float(seconds[~np.isin(plan.graph.statements.kind, _TRANSFERS)].sum()) + transferred


def options_of(sites: Sequence[Site]) -> list[dict[str, str]]:
    """Return choices that set all `sites` to the same option: one dict for each legal option that is not chosen now."""
    first = sites[0]
    legal = (option for option in first.options if option != first.choice and option not in first.illegal)
    return [{site.id: option for site in sites} for option in legal]
