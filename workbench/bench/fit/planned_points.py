"""`PlannedPoints`: the points that a fit has found, with the figures of their plans, and the fastest within a limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from workbench.analysis.fit.option_costs import OptionCost
from workbench.bench.fit.order_presets import PresetPlan

type _Key = tuple[frozenset[tuple[int, str]], frozenset[tuple[str, str]]]


class PlannedPoints:
    """Planned points, one for each set of choices.

    Parameters
    ----------
    known : iterable of PresetPlan
        Points to begin with.
    compilations : int, optional
        Maximum number of compilations of a point that is chosen.
    """

    def __init__(self, known: Iterable[PresetPlan], compilations: int | None) -> None:
        self._found = {_key(point.options, point.beside): point for point in known}
        self.compilations = compilations

    def __iter__(self) -> Iterator[PresetPlan]:
        return iter(tuple(self._found.values()))

    def get(self, options: Mapping[int, str], other_choices: Mapping[str, str]) -> PresetPlan | None:
        """Return the point with these choices; None if it has not been found."""
        return self._found.get(_key(options, other_choices))

    def add(self, point: PresetPlan) -> None:
        """Add a point. It replaces the point with the same choices."""
        self._found[_key(point.options, point.beside)] = point

    def within(self, limit_bytes: int) -> list[PresetPlan]:
        """Return the points within a limit, with any number of compilations."""
        return [point for point in self if point.planned_bytes <= limit_bytes]

    def fastest(self, limit_bytes: int) -> PresetPlan | None:
        """Return the fastest point within a limit and the maximum number of compilations; None if there is none."""
        within = (point for point in self.within(limit_bytes) if self.has_few_compilations(point))
        return min(within, key=fastest_first, default=None)

    def has_few_compilations(self, point: PresetPlan) -> bool:
        """Return whether a point needs at most the maximum number of compilations."""
        return self.compilations is None or point.compilations <= self.compilations


def other_choices_of(point: OptionCost) -> Mapping[str, str]:
    """Return the choices of a point for sites other than storages."""
    return point.beside if isinstance(point, PresetPlan) else {}


def with_other_choices(point: OptionCost, other_choices: Mapping[str, str]) -> PresetPlan:
    """Return a point with choices for sites other than storages. No plan is computed."""
    of_point = {field.name: getattr(point, field.name) for field in dataclasses.fields(OptionCost)}
    return PresetPlan(**of_point, beside=other_choices)


def fastest_first(point: PresetPlan) -> tuple[float, int, int]:
    """Return the sort key for the fastest point: seconds, then bytes, then number of choices."""
    return point.whole_s, point.planned_bytes, len(point.options) + len(point.beside)


def _key(options: Mapping[int, str], other_choices: Mapping[str, str]) -> _Key:
    return frozenset(options.items()), frozenset(other_choices.items())
