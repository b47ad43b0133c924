"""What choices come to in a program of few of its layers, carried on to all of them, before they are planned.

A plan of five layers takes a fifth of the time of one of thirty-two. What is chosen alike in all layers is planned with
five of them and with one more: what one more adds to what is alive at each statement, the others add, too, each of
which stands between neighbours like its own. What is chosen in one layer is planned in one like it, and
`workbench.bench.alike` says what that comes to in the other.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbench.bench.alike import Alike, Estimate, layer_in, local
from workbench.errors import ChoiceError, PlanError
from workbench.graph import layer_of

if TYPE_CHECKING:
    from workbench.compiler.kept import Kept
    from workbench.compiler.pipeline import Capture, Plan
    from workbench.compiler.shortened import Run, Shortened

_KEPT = 64
"""Estimates that are kept, of choices on top of the plan in force."""
_WORTH = 0.6
"""So many of the program's statements may be planned to say what choices in all layers come to."""
_FEW_LAYERS = 5
"""Layers in which choices may be planned one by one, to say what they come to in others: all kinds there are of one."""

type _Alive = dict[tuple[int, int, int], NDArray[np.int64]]
"""By side, run of layers and layer in it, or -1 and origin: the bytes alive in each statement."""


@dataclasses.dataclass(frozen=True)
class _Program:
    """A program of few of its layers, to be planned."""

    captured: Capture
    runs: tuple[Run, ...]

    def plan(self, choices: Mapping[str, str], newer: Callable[[], bool] | None = None) -> Plan:
        """Its plan under those of some choices that concern it.

        Raises
        ------
        ChoiceError, PlanError
            If it is refused.
        Superseded
            If something newer is to be planned.
        """
        from workbench.compiler import pipeline

        made = pipeline.plan(self.captured, {id: option for id, option in choices.items() if self._has(id)}, newer)
        if made.unmatched:
            raise ChoiceError(f"{next(iter(made.unmatched))}: nothing there with few layers")
        return made

    def _has(self, id: str) -> bool:
        run, at = _in_run(self.runs, layer_in(id))
        return run < 0 or self.runs[run].all[at] in self.runs[run].kept

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        """Of each origin the run and which of its layers; -1 and the origin outside of runs."""
        found = [_in_run(self.runs, layer_of(origin.scope)) for origin in self.captured.stage.origins]
        return [place if place[0] >= 0 else (-1, origin) for origin, place in enumerate(found)]

    def alive(self, choices: Mapping[str, str], newer: Callable[[], bool] | None = None) -> _Alive:
        """The bytes alive in each statement under choices.

        Raises
        ------
        ChoiceError, PlanError, Superseded
            As `plan`.
        """
        plan = self.plan(choices, newer)
        statements, line = plan.graph.statements, plan.timeline
        found: dict[tuple[int, int, int], list[int]] = {}
        last = (-1, -1)
        columns = statements.origin, statements.side, line.statement_peak_bytes
        for origin, side, peak_bytes in zip(*(column.tolist() for column in columns), strict=True):
            # What has no origin, as where gradients are summed up, goes with the statement before it.
            last = self._places[origin] if origin >= 0 else last
            found.setdefault((side, *last), []).append(peak_bytes)
        found[_WHOLE] = [line.after_bytes, line.baseline_bytes, plan.saved_bytes]
        return {place: np.asarray(peaks, np.int64) for place, peaks in found.items()}


_WHOLE = (-1, -1, -1)
"""Not a statement: what is alive after the last one, from the beginning, and what is saved for the backward."""


class Few:
    """Plans of few layers of a program.

    Parameters
    ----------
    captured : Capture
    alike : Alike
        Told what choices come to in one layer.
    """

    def __init__(self, captured: Capture, alike: Alike) -> None:
        self._captured, self._alike = captured, alike
        self._lock = threading.RLock()
        self._programs: list[_Program] | None = None
        self._known: OrderedDict[tuple[int, frozenset[tuple[str, str]]], tuple[Plan, Estimate | None]] = OrderedDict()

    def prepare(self) -> None:
        """Make what estimates need, while nobody waits for it."""
        with self._lock:
            for program in self._made():
                program.plan({})

    def known(self, plan: Plan, choices: Mapping[str, str]) -> Estimate | None:
        """What was found that choices come to on top of a plan; None where that was not asked for, or is not known."""
        found = self._known.get((id(plan), frozenset(choices.items())))
        return found[1] if found is not None else None

    def estimate(
        self,
        plan: Plan,
        in_force: Mapping[str, str],
        choices: Mapping[str, str],
        newer: Callable[[], bool] | None = None,
    ) -> Estimate | None:
        """What further choices come to, by plans of few layers; None where these do not say it.

        Parameters
        ----------
        plan : Plan
            In force.
        in_force, choices : mapping of str to str
            What it is made under, and what is chosen on top of it.
        newer : callable, optional
            Asked after each stage whether something newer is to be found.

        Raises
        ------
        Superseded
            If something newer is to be found.
        """
        key = id(plan), frozenset(choices.items())
        with self._lock:
            if key not in self._known:
                # The plan is held, so that no other one has its id.
                self._known[key] = plan, self._estimate(plan, in_force, choices, newer)
                if len(self._known) > _KEPT:
                    self._known.popitem(last=False)
            return self._known[key][1]

    def _made(self) -> list[_Program]:
        """The program with few layers, and with more of each run in turn; empty where that is not worth it."""
        from workbench.compiler.kept import Kept
        from workbench.compiler.shortened import shortened

        if self._programs is None:
            stage = self._captured.stage
            made: list[Shortened] = []
            if (few := shortened(stage)) is not None:
                longer = [shortened(stage, run.stem) for run in few.runs]
                made = [few, *(one for one in longer if one is not None and len(one.runs) == len(few.runs))]
            statements = sum(len(one.stage.claimed.bound_symbols) for one in made)
            worth = statements <= _WORTH * len(stage.claimed.bound_symbols)
            whole = few is not None and len(made) == 1 + len(few.runs)
            # What is kept is forgotten after some plans: these must not make the whole program's forgotten.
            kept = Kept()
            self._programs = [self._program(one, kept) for one in made] if worth and whole else []
        return self._programs

    def _program(self, few: Shortened, kept: Kept) -> _Program:
        own: dict[str, Any] = {"stock": None, "bases": OrderedDict(), "_prover": None, "entry": None}
        return _Program(dataclasses.replace(self._captured, stage=few.stage, kept=kept, **own), few.runs)

    def _estimate(
        self,
        plan: Plan,
        in_force: Mapping[str, str],
        choices: Mapping[str, str],
        newer: Callable[[], bool] | None,
    ) -> Estimate | None:
        if not plan.census.count or not choices or not (programs := self._made()):
            return None
        then = {**in_force, **choices}
        try:
            if self._same_in_all(programs[0].runs, then):
                if not self._same_in_all(programs[0].runs, in_force):
                    return None
                before, after = (_extended(programs, each, newer) for each in (in_force, then))
                # What is not found of the plan in force is not found of another one.
                if before is None or after is None or before != (plan.peak_bytes, plan.saved_bytes):
                    return None
                moved = after[0] - before[0], after[1] - before[1]
                return Estimate(*moved, like=_words(programs[0].runs))
            self._learn(programs[0], plan, in_force, choices, newer)
        except (ChoiceError, PlanError):
            return None
        return self._alike.estimate(plan, choices)

    @staticmethod
    def _same_in_all(runs: tuple[Run, ...], choices: Mapping[str, str]) -> bool:
        """Whether each layer that is left out is chosen as the one that it is like."""
        by_layer: dict[tuple[int, int], set[tuple[str, str]]] = {}
        for id, option in choices.items():
            place = layer_in(id)
            where = _in_run(runs, place)
            if where[0] >= 0:
                by_layer.setdefault(where, set()).add((local(id, place), local(option, place)))
        return all(
            by_layer.get((number, at)) == by_layer.get((number, run.place(at)))
            for number, run in enumerate(runs)
            for at in range(run.before, len(run.all) - run.after)
        )

    def _learn(
        self,
        program: _Program,
        plan: Plan,
        in_force: Mapping[str, str],
        choices: Mapping[str, str],
        newer: Callable[[], bool] | None,
    ) -> None:
        """Plan each choice in a layer that is like its own, with what is chosen in its neighbours."""
        planned: set[frozenset[tuple[str, str]]] = set()
        for id, option in choices.items():
            layer = layer_in(id)
            run, at = _in_run(program.runs, layer)
            if run < 0 or self._alike.knows(plan, {id: option}):
                continue
            moved = dict(_moved(program.runs[run], at, in_force))
            there = f"{program.runs[run].stem}{program.runs[run].kept[program.runs[run].place(at)]}"
            chosen = {_renamed(id, layer, there): _renamed(option, layer, there)}
            key = frozenset({**moved, **chosen}.items())
            if key in planned:
                continue
            planned.add(key)
            if len(planned) > _FEW_LAYERS:
                return
            before, after = (program.plan(each, newer) for each in (moved, {**moved, **chosen}))
            change = self._alike.learn(before, after, chosen)
            # What reaches beyond its layer does not add up.
            if change is None or (len(choices) > 1 and not change.apart):
                return


def _words(runs: Sequence[Run]) -> str:
    run = max(runs, key=lambda run: len(run.all))
    few = len(run.kept)
    return f"plans of {few} and {few + run.turns} of the {len(run.all)} layers"


def _moved(run: Run, at: int, choices: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Choices as they are made with few layers where one of these is to stand for another."""
    place, kept = run.place(at), run.kept
    stands_for = {0: 0, len(kept) - 1: len(run.all) - 1} | {place + by: at + by for by in (-1, 0, 1)}
    names = {
        f"{run.stem}{run.all[of]}": f"{run.stem}{kept[here]}"
        for here, of in stands_for.items()
        if 0 <= here < len(kept) and 0 <= of < len(run.all)
    }
    of_run = {f"{run.stem}{number}" for number in run.all}
    for id, option in choices.items():
        layer = layer_in(id)
        if layer in names:
            yield _renamed(id, layer, names[layer]), _renamed(option, layer, names[layer])
        elif layer not in of_run:
            yield id, option


def _renamed(text: str, layer: str, other: str) -> str:
    return text.replace(f"{layer}.", f"{other}.").replace(f"{layer}/", f"{other}/")


def _in_run(runs: tuple[Run, ...], layer: str) -> tuple[int, int]:
    """Which run a layer is of, and which of its layers it is; -1 for none."""
    for number, run in enumerate(runs):
        if layer.startswith(run.stem) and layer[len(run.stem) :].isdecimal():
            at = int(layer[len(run.stem) :])
            if at in run.all:
                return number, run.all.index(at)
    return -1, -1


def _extended(
    programs: Sequence[_Program], choices: Mapping[str, str], newer: Callable[[], bool] | None
) -> tuple[int, int] | None:
    """Peak and saved bytes of the whole program under choices that are the same in all layers.

    What is alive in a statement grows by the same bytes with each layer before it, and with each after it.

    Returns
    -------
    tuple of int, or None
        None where one more layer changes anything else.

    Raises
    ------
    ChoiceError, PlanError, Superseded
        As `_Program.plan`.
    """
    few, *longer = [program.alive(choices, newer) for program in programs]
    runs, peak_bytes, saved_bytes = programs[0].runs, 0, 0
    for grown, (run, more) in enumerate(zip(runs, longer, strict=True)):
        if more.keys() != {stands for place in few for stands in _stands_at(place, grown, run)}:
            return None
    for place, here in few.items():
        found = [here]
        for grown, (run, more) in enumerate(zip(runs, longer, strict=True)):
            there = [more[stands] for stands in _stands_at(place, grown, run)]
            if any(len(one) != len(here) for one in there):
                return None
            found = [before + run.left_out * (one - here) for before in found for one in there]
        if place == _WHOLE:
            *found, saved_bytes = found[0].tolist()
        peak_bytes = max(peak_bytes, *(int(np.max(one)) for one in found))
    return peak_bytes, saved_bytes


def _stands_at(place: tuple[int, int, int], grown: int, run: Run) -> Iterator[tuple[int, int, int]]:
    """Where the statements of a place are once a run has one more layer of each kind: after them, or before them.

    In between, as where a layer has some of the others on each side, there is no more alive than at one of these ends.
    """
    side, number, at = place
    yield place
    if number == grown and run.turns < at < run.before:
        yield side, number, at + run.turns
