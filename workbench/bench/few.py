"""What choices come to in a program of few of its layers, carried on to all of them, before they are planned.

A plan of five layers takes a fifth of the time of one of thirty-two. What is chosen alike in all layers is planned with
five of them and with one more: what one more adds to what is alive at each statement, the others add, too, each of
which stands between neighbours like its own. What is chosen in one layer is planned in one like it, and
`workbench.bench.alike` says what that comes to in the other.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbench.bench.alike import Alike, Estimate, layer_in, local
from workbench.errors import ChoiceError, PlanError
from workbench.graph import BACKWARD, FORWARD, layer_of

if TYPE_CHECKING:
    from workbench.analysis.memory import Timeline
    from workbench.compiler.kept import Kept
    from workbench.compiler.pipeline import Capture, Plan, Sketch
    from workbench.compiler.shortened import Run, Shortened
    from workbench.graph import Graph

_WORTH = 0.6
"""So many of the program's statements may be planned to say what choices in all layers come to."""
_MOST = 2
"""Layers in which choices in several are planned, to say what they come to in the others."""
_KEPT = 4
"""Sketches that are kept of each program."""
_TIMES = 4
"""So many times as many layers as are chosen otherwise there have to be."""

type _Place = tuple[int, int, int]
"""A side, a run of layers and a layer in it; or a side, -1 and an origin."""

type _Alive = dict[_Place, NDArray[np.int64]]
"""The bytes alive in each statement, by place."""


@dataclasses.dataclass(frozen=True)
class _Program:
    """A program of few of its layers, to be planned."""

    captured: Capture
    runs: tuple[Run, ...]

    _kept: OrderedDict[frozenset[tuple[str, str]], Sketch] = dataclasses.field(default_factory=OrderedDict)

    def sketch(
        self, choices: Mapping[str, str], newer: Callable[[], bool] | None = None, *, members: bool = False
    ) -> Sketch:
        """What it comes to under those of some choices that concern it; the last few are kept.

        With `members`, what is inside fusions is going to be asked for.

        Raises
        ------
        ChoiceError, PlanError
            If it is refused.
        Superseded
            If something newer is to be found.
        """
        from workbench.compiler import pipeline

        chosen = {id: option for id, option in choices.items() if self._has(id)}
        key = frozenset(chosen.items())
        made = self._kept.get(key)
        if made is None:
            made = pipeline.sketch(self.captured, chosen, newer)
            if members:
                _ = made.graph
            if made.unmatched:
                raise ChoiceError(f"{next(iter(made.unmatched))}: nothing there with few layers")
            self._kept[key] = made
        # What is in force is asked for again and again, what is chosen on top of it once.
        self._kept.move_to_end(key)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return made

    def _has(self, id: str) -> bool:
        run, at = _in_run(self.runs, layer_in(id))
        return run < 0 or self.runs[run].all[at] in self.runs[run].kept

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        """Of each origin the run and which of its layers; -1 and the origin outside of runs."""
        found = [_in_run(self.runs, layer_of(origin.scope)) for origin in self.captured.stage.origins]
        return [place if place[0] >= 0 else (-1, origin) for origin, place in enumerate(found)]

    def rows(self, graph: Graph) -> dict[_Place, NDArray[np.intp]]:
        """The statements at each place, of this program or of the whole one's plan, without what is in fusions."""
        statements = graph.statements
        found: dict[_Place, list[int]] = {}
        last = (-1, -1)
        top = np.flatnonzero(statements.parent < 0)
        columns = top.tolist(), statements.origin[top].tolist(), statements.side[top].tolist()
        for row, origin, side in zip(*columns, strict=True):
            # What has no origin, as where gradients are summed up, goes with the statement before it.
            last = self._places[origin] if origin >= 0 else last
            found.setdefault((side, *last), []).append(row)
        return {place: np.asarray(rows, np.intp) for place, rows in found.items()}

    def alive(self, plan: Plan | Sketch) -> _Alive:
        """The bytes alive in each statement, of this program or of the whole one's plan."""
        graph, line = _on_top(plan)
        found = {place: line.statement_peak_bytes[rows] for place, rows in self.rows(graph).items()}
        found.update((place, np.asarray([of_all], np.int64)) for place, of_all in _of_all(plan).items())
        return found


_AFTER, _BEFORE, _SAVED = (-1, -1, -1), (-1, -1, -2), (-1, -1, -3)
"""Not statements: what is alive after the last and before the first, and what is saved for the backward."""


def _on_top(plan: Plan | Sketch) -> tuple[Graph, Timeline]:
    """A graph that has all statements but those inside fusions, at least, and its memory."""
    from workbench.compiler.pipeline import Sketch

    return plan.on_top if isinstance(plan, Sketch) else (plan.graph, plan.timeline)


def _of_all(plan: Plan | Sketch) -> dict[_Place, int]:
    _, line = _on_top(plan)
    return {_AFTER: line.after_bytes, _BEFORE: line.baseline_bytes, _SAVED: plan.saved_bytes}


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
        self._known: tuple[Plan | None, dict[frozenset[tuple[str, str]], Estimate | None]] = (None, {})
        """Of one plan, the last that was asked about: others are not held on to."""
        self._in_force: _InForce | None = None

    def prepare(self) -> None:
        """Make what estimates need, while nobody waits for it."""
        with self._lock:
            for program in self._made():
                self._alike.prepare(program.sketch({}, members=True))

    def known(self, plan: Plan, choices: Mapping[str, str]) -> Estimate | None:
        """What was found that choices come to on top of a plan; None where that was not asked for, or is not known."""
        of, found = self._known
        return found.get(frozenset(choices.items())) if of is plan else None

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
        key = frozenset(choices.items())
        with self._lock:
            if self._known[0] is not plan:
                self._known, self._in_force = (plan, {}), None
            found = self._known[1]
            if key not in found:
                found[key] = self._estimate(plan, in_force, choices, newer)
            return found[key]

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
        from workbench.compiler.later import Later

        none_of: dict[str, Any] = dict.fromkeys(("stock", "written", "few", "reduced", "_prover", "entry"))
        staged = Later(lambda: few.stage)
        captured = dataclasses.replace(self._captured, staged=staged, kept=kept, bases=OrderedDict(), **none_of)
        return _Program(captured, few.runs)

    def _estimate(
        self,
        plan: Plan,
        in_force: Mapping[str, str],
        choices: Mapping[str, str],
        newer: Callable[[], bool] | None,
    ) -> Estimate | None:
        if not plan.census.count or not choices or not (programs := self._made()):
            return None
        runs = programs[0].runs
        (now, differing), (then, also) = (_uniform(runs, each) for each in (in_force, {**in_force, **choices}))
        try:
            if now != then and also <= differing:
                if _TIMES * len(differing) > max(len(run.all) for run in runs):
                    return None
                if self._in_force is None or self._in_force.plan is not plan:
                    self._in_force = _InForce.of(programs, plan, now, len(differing), newer)
                return self._in_force.carried_on(programs, then, newer)
            self._learn(programs[0], plan, in_force, choices, newer)
        except (ChoiceError, PlanError):
            return None
        return self._alike.estimate(plan, choices)

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
            if len(planned) > _MOST:
                return
            before, after = (program.sketch(each, newer, members=True) for each in (moved, {**moved, **chosen}))
            change = self._alike.learn(before, after, chosen)
            # What reaches beyond its layer does not add up.
            if change is None or (len(choices) > 1 and not change.apart):
                return


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


def _in_run(runs: Sequence[Run], layer: str) -> tuple[int, int]:
    """Which run a layer is of, and which of its layers it is; -1 for none."""
    for number, run in enumerate(runs):
        if layer.startswith(run.stem) and layer[len(run.stem) :].isdecimal():
            at = int(layer[len(run.stem) :])
            if at in run.all:
                return number, run.all.index(at)
    return -1, -1


def _uniform(runs: Sequence[Run], choices: Mapping[str, str]) -> tuple[dict[str, str], set[tuple[int, int]]]:
    """Choices as they are where all inner layers of a kind are chosen as most of them.

    Returns
    -------
    dict of str to str
    set of (int, int)
        The layers that are chosen otherwise: the run, and which of its layers.
    """
    by_layer: dict[tuple[int, int], dict[str, str]] = {}
    for id, option in choices.items():
        by_layer.setdefault(_in_run(runs, layer_in(id)), {})[id] = option
    found, differing = dict(choices), set[tuple[int, int]]()
    for number, run in enumerate(runs):
        of_kind: dict[int, list[int]] = {}
        for at in range(run.turns + 1, len(run.all) - 1 - run.turns):
            of_kind.setdefault(run.place(at), []).append(at)
        for layers in of_kind.values():
            chosen: dict[int, frozenset[tuple[str, str]]] = {}
            for at in layers:
                name, here = f"{run.stem}{run.all[at]}", by_layer.get((number, at), {})
                chosen[at] = frozenset((local(id, name), local(option, name)) for id, option in here.items())
            most = Counter(chosen.values()).most_common(1)[0][0]
            like = next(at for at in layers if chosen[at] == most)
            name, as_most = f"{run.stem}{run.all[like]}", by_layer.get((number, like), {})
            for at in layers:
                other = f"{run.stem}{run.all[at]}"
                if chosen[at] != most:
                    differing.add((number, at))
                    for id in by_layer.get((number, at), ()):
                        del found[id]
                    found.update((_renamed(id, name, other), _renamed(o, name, other)) for id, o in as_most.items())
    return found, differing


@dataclasses.dataclass(frozen=True)
class _InForce:
    """A plan, and what plans of few layers say of it.

    Attributes
    ----------
    plan : Plan
    differing : int
        How many layers are chosen otherwise.
    alive : dict
        The most alive at each place by the plan.
    extended : dict or None
        By plans of few layers; None where these do not say it.
    by_one : bool
        Whether the one with more layers says the same alone.
    """

    plan: Plan
    differing: int
    alive: dict[_Place, int]
    extended: dict[_Place, int] | None
    by_one: bool

    @classmethod
    def of(
        cls,
        programs: Sequence[_Program],
        plan: Plan,
        choices: Mapping[str, str],
        differing: int,
        newer: Callable[[], bool] | None,
    ) -> _InForce:
        """Of a plan of the program; choices as `_uniform` gives them.

        Raises
        ------
        ChoiceError, PlanError, Superseded
            As `_Program.sketch`.
        """
        alive = {place: int(peaks.max()) for place, peaks in programs[0].alive(plan).items()}
        extended = _extended(programs, choices, newer)
        # What is not found of the plan in force is not found of another one.
        if extended is None or (extended != alive if not differing else extended.keys() != alive.keys()):
            extended = None
        by_one = extended is not None and _extended_by_one(programs, choices, newer) == extended
        return cls(plan, differing, alive, extended, by_one)

    def carried_on(
        self, programs: Sequence[_Program], then: Mapping[str, str], newer: Callable[[], bool] | None
    ) -> Estimate | None:
        """What it comes to where choices that are the same in all layers become others, as `_uniform` gives them.

        Raises
        ------
        ChoiceError, PlanError, Superseded
            As `_Program.sketch`.
        """
        if self.extended is None:
            return None
        after = _extended_by_one(programs, then, newer) if self.by_one else None
        if after is None and (after := _extended(programs, then, newer)) is None:
            return None
        came_to = {place: self.alive[place] + after.get(place, here) - here for place, here in self.extended.items()}
        saved_bytes = came_to.pop(_SAVED)
        moved = max(came_to.values()) - self.plan.peak_bytes, saved_bytes - self.plan.saved_bytes
        # Where nothing moves in the others, those that are taken to be like them decide.
        if self.differing and not all(moved):
            return None
        run = max(programs[0].runs, key=lambda run: len(run.all))
        few = len(run.kept)
        like = f"plans of {few} and {few + run.turns} of the {len(run.all)} layers"
        return Estimate(*moved, like=like, supposed=self.differing)


def _extended(
    programs: Sequence[_Program], choices: Mapping[str, str], newer: Callable[[], bool] | None
) -> dict[_Place, int] | None:
    """The most alive at each place of the whole program under choices that are the same in all layers.

    What is alive in a statement grows by the same bytes with each layer before it, and with each after it.

    Returns
    -------
    dict or None
        None where one more layer changes anything else.

    Raises
    ------
    ChoiceError, PlanError, Superseded
        As `_Program.sketch`.
    """
    few, *longer = [program.alive(program.sketch(choices, newer)) for program in programs]
    runs, found = programs[0].runs, dict[_Place, int]()
    for grown, (run, more) in enumerate(zip(runs, longer, strict=True)):
        own = ((side, of, at + run.turns) for side, of, at in few if _is_inner(run, of == grown, at))
        if more.keys() != {*few, *own}:
            return None
    for (side, number, at), here in few.items():
        added, run = [more[side, number, at] for more in longer], runs[number]
        inner = _is_inner(run, number >= 0, at)
        added += [longer[number][side, number, at + run.turns]] if inner else []
        if any(len(one) != len(here) for one in added):
            # Statements of all layers together, as where shards are gathered ahead: only the most of them is followed.
            here, *added = (one.max(keepdims=True) for one in (here, *added))
        total = here.copy()
        for left_out, one in zip((run.left_out for run in runs), added, strict=False):
            total += left_out * (one - here)
        found[side, number, at] = int(total.max())
        if inner:
            after, before = added[number], added[-1]
            for further in range(1, run.left_out + 1):
                # Of those that were after it, as many are before it.
                found[side, number, at + further * run.turns] = int((total + further * (before - after)).max())
    return found


def _extended_by_one(
    programs: Sequence[_Program], choices: Mapping[str, str], newer: Callable[[], bool] | None
) -> dict[_Place, int] | None:
    """As `_extended`, by the program with one more layer alone.

    What one more comes to is read off the two inner layers of that program, with the bytes of arguments and gradients,
    which no choice changes. What a layer keeps until its backward is found three times: in the forward, in the
    backward, and as what is saved. Where these are not the same something is alive beyond its layer.

    Returns
    -------
    dict or None
        None where it takes two programs to say it.

    Raises
    ------
    ChoiceError, PlanError, Superseded
        As `_Program.sketch`.
    """
    if len(programs) != 2:
        return None
    stock = [_of_all(program.sketch({}, newer)) for program in programs]
    of_one = {place: stock[1][place] - stock[0][place] for place in (_BEFORE, _AFTER)}
    program, (run,) = programs[1], programs[0].runs
    sketch = program.sketch(choices, newer)
    graph, line = _on_top(sketch)
    rows, peaks = program.rows(graph), line.statement_peak_bytes
    at_both = [(at, at + run.turns) for at in range(run.turns + 1, 2 * run.turns + 1)]
    # By side, what it comes to where the further layer is earlier in the program, and where it is later.
    earlier, later = dict[int, int](), {FORWARD: of_one[_BEFORE], BACKWARD: of_one[_AFTER]}
    between: dict[int, tuple[int, int]] = {}
    for side in later:
        of_layers = [[rows.get((side, 0, at), np.empty(0, np.intp)) for at in each] for each in at_both]
        if any(not len(one) or len(one) != len(other) for one, other in of_layers):
            return None
        one, other = (np.concatenate(each) for each in zip(*of_layers, strict=True))
        by = np.unique(peaks[other] - peaks[one])
        if len(by) > 1:
            return None
        earlier[side] = later[side] + int(by[0])
        ends = (one.max(), other.min()) if side == FORWARD else (other.max(), one.min())
        between[side] = min(ends), max(ends)
        if side == FORWARD:
            kept = [_kept_in(graph, each) for each in (one, other)]
    if earlier[FORWARD] != earlier[BACKWARD] or kept != [earlier[FORWARD] - later[FORWARD]] * 2:
        return None
    more, found = run.left_out - 1, dict[_Place, int]()
    for (side, number, at), of_place in rows.items():
        most: NDArray[np.int64] = peaks[of_place]
        if not number and any(at in each for each in at_both):
            for further in range(run.left_out + 1) if _is_inner(run, True, at) else ():
                more_here = (more - further) * later[side] + further * earlier[side]
                found[side, number, at + further * run.turns] = int(most.max()) + more_here
            continue
        first, last = between[side]
        early = of_place < first
        if not (early | (of_place > last)).all():
            return None
        # What comes early in the forward is of earlier layers, in the backward of later ones.
        added = np.where(early == (side == FORWARD), later[side], earlier[side])
        found[side, number, at] = int((most + more * added).max())
    for (place, here), by_one in zip(_of_all(sketch).items(), (of_one[_AFTER], of_one[_BEFORE], kept[0]), strict=True):
        found[place] = here + more * by_one
    return found


def _kept_in(graph: Graph, rows: NDArray[np.intp]) -> int:
    """Bytes of what statements make and the backward reads."""
    storages = graph.saved_storages()
    makers = graph.values.producer[graph.storages.root[storages]]
    return int(graph.storages.bytes[storages[np.isin(makers, rows)]].sum())


def _is_inner(run: Run, of_run: bool, at: int) -> bool:
    """Whether layers that are left out stand as this one does."""
    return of_run and run.turns < at < 2 * run.turns + 1
