"""Concurrent choices in one bench: a newer choice does not wait for an older choice, and none is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import workbench
from tests.trial_counts import combined
from workbench.bench import PlanDiff, Workbench
from workbench.compiler.planner import planner
from workbench.errors import ChoiceError

PATIENCE_S = 120


@pytest.fixture(scope="module")
def opened() -> Workbench:
    return workbench.open("residual_chain", layers=2, grad=True, device="cpu", executor="torch")


@pytest.fixture
def bench(opened: Workbench) -> Iterator[Workbench]:
    opened._planner._plans.clear()
    opened._captured.planned.bases.clear()
    assert opened.plan is opened.stock_plan
    yield opened
    while opened.can_undo:
        opened.undo()


@pytest.fixture
def sites(bench: Workbench) -> list[str]:
    return [site.id for site in bench.sites("saved") if ":" in site.id and not site.illegal]


class Planning:
    """Record which plans begin and end. Delay the first plan under the choices `held` until `until` returns true."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, held: dict[str, str], until: Callable[[], bool]) -> None:
        self.begun: list[dict[str, str]] = []
        self.finished: list[dict[str, str]] = []
        self.under_way = threading.Event()
        self._anew, self._held, self._until = planner.replan, held, until
        monkeypatch.setattr(planner, "replan", self._plan)

    def _plan(self, captured: Any, choices: Mapping[str, str], newer: Callable[[], bool] | None = None) -> Any:
        self.begun.append(dict(choices))
        if choices == self._held and not self.under_way.is_set():
            self.under_way.set()
            end = time.monotonic() + PATIENCE_S
            while not self._until():
                assert time.monotonic() < end
                time.sleep(0.005)
        made = self._anew(captured, choices, newer)
        self.finished.append(dict(choices))
        return made


class Chooser(threading.Thread):
    """A thread that starts at once and makes choices in the bench."""

    def __init__(self, bench: Workbench, choices: dict[str, str]) -> None:
        super().__init__()
        self.bench, self.choices = bench, choices
        self.done: PlanDiff | None = None
        self.start()

    def run(self) -> None:
        self.done = self.bench.choose(self.choices)

    def ended(self) -> PlanDiff | None:
        self.join(PATIENCE_S)
        return self.done


@pytest.fixture
def waiting(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], Planning]:
    """Return a function that delays the plan of given choices until a newer choice waits for the planner."""
    return lambda held: Planning(monkeypatch, held, lambda: bool(bench._planner._waiting))


def test_a_newer_choice_does_not_wait_for_the_plan_of_an_older_one(
    bench: Workbench, sites: list[str], waiting: Callable[[dict[str, str]], Planning]
) -> None:
    first, second = {sites[0]: "recompute"}, {sites[1]: "recompute"}
    planning = waiting(first)
    seen: list[dict[str, str]] = []
    end = bench.observe(lambda: seen.append(bench.choices))
    older = Chooser(bench, first)
    assert planning.under_way.wait(PATIENCE_S)
    newer = bench.choose(second)
    assert older.ended() == newer
    end()
    assert planning.begun == [first, {**first, **second}]
    assert planning.finished == [{**first, **second}]
    assert seen == [{**first, **second}]
    assert bench.choices == {**first, **second}


def test_the_plan_in_force_can_be_read_while_another_plan_is_made(
    bench: Workbench, sites: list[str], waiting: Callable[[dict[str, str]], Planning]
) -> None:
    before = bench.plan
    planning = waiting({sites[0]: "recompute"})
    older = Chooser(bench, {sites[0]: "recompute"})
    assert planning.under_way.wait(PATIENCE_S)
    assert bench.plan is before
    assert planning.finished == []
    bench.choose({sites[1]: "recompute"})
    older.ended()
    assert bench.plan is not before


def test_a_refused_choice_does_not_affect_a_concurrent_choice(
    bench: Workbench, sites: list[str], waiting: Callable[[dict[str, str]], Planning]
) -> None:
    first = {sites[0]: "recompute"}
    planning = waiting(first)
    older = Chooser(bench, first)
    assert planning.under_way.wait(PATIENCE_S)
    with pytest.raises(ChoiceError, match="not an option here"):
        bench.choose({sites[1]: "forget"})
    assert older.ended() is not None
    assert bench.choices == first


def test_an_undo_during_planning_stays_undone(
    bench: Workbench, sites: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier, later = {sites[0]: "recompute"}, {sites[1]: "recompute"}
    bench.choose(earlier)
    undone = threading.Event()
    planning = Planning(monkeypatch, {**earlier, **later}, undone.is_set)
    chooser = Chooser(bench, later)
    assert planning.under_way.wait(PATIENCE_S)
    bench.undo()
    undone.set()
    assert chooser.ended() is not None
    assert bench.choices == later


_WRONG: list[tuple[dict[Any, Any], str]] = [
    ({"saved:SITE": "sav"}, "saved:SITE: 'sav' is not an option here; legal: save, recompute, offload"),
    ({"saved:SITE": "auto"}, "saved:SITE: 'auto' is not an option here; legal: save, recompute, offload"),
    ({"saved:SITES": "save"}, "has no site 'saved:SITES'; did you mean saved:SITE"),
    ({"saved:nothing/here": "save"}, "has no site 'saved:nothing/here'"),
    ({"remat:nothing/here": "save"}, "has no site 'remat:nothing/here'"),
    ({"nothing": "save"}, "has no site 'nothing'"),
    ({"saved.ahead": "soon"}, "saved.ahead: 'soon' is not an option here; legal: 0, 2, 4, 8, 16 or any whole number"),
    ({"saved.inputs": "sav"}, "saved.inputs: 'sav' is not an option here; legal: "),
    ({"remat.weight": "2"}, "remat.weight: '2' is not an option here; legal: "),
    ({"remat.preset": "every=x"}, "remat.preset: 'every=x' is not an option here; legal: "),
    ({"order.statements": "leastpeak"}, "order.statements: 'leastpeak' is not an option here; legal: stock, "),
    ({"remat.preset": "off"}, "remat.preset: 'off' is refused: the torch executor makes no fusions"),
    ({"saved:SITE": 3}, "a choice is a site id and an option, both texts; given "),
    ({7: "save"}, "a choice is a site id and an option, both texts; given 7: 'save'"),
    ({"saved:SITE": "recompute", "saved:nothing": "save"}, "has no site 'saved:nothing'"),
]


_ASKED: dict[str, Callable[[Workbench, dict[Any, Any]], Any]] = {
    "choose": lambda bench, choices: bench.choose(choices),
    "plan_under": lambda bench, choices: bench.plan_under(choices),
    "predict": lambda bench, choices: bench.predict(choices),
    "effect": lambda bench, choices: bench.effect(choices),
    "worth": lambda bench, choices: bench.worth().exact(choices),
    "against": lambda bench, choices: bench.prepare(against={"other": choices}),
    "beside others": lambda bench, choices: bench.plan_under({**bench.choices, **choices}),
}


@pytest.mark.parametrize(("wrong", "asked"), combined(range(len(_WRONG)), _ASKED, quick=len(_WRONG)))
def test_all_calls_that_make_choices_refuse_with_the_same_words(
    bench: Workbench, sites: list[str], wrong: int, asked: str
) -> None:
    choices, said = _WRONG[wrong]
    place = sites[0].removeprefix("saved:")
    given = {id.replace("SITE", place) if isinstance(id, str) else id: option for id, option in choices.items()}
    with pytest.raises(ChoiceError) as refused:
        _ASKED[asked](bench, given)
    assert said.replace("SITE", place) in str(refused.value)
    assert bench.choices == {}


def test_illegal_options_are_refused_and_legal_options_are_planned(bench: Workbench, sites: list[str]) -> None:
    for site in bench.sites():
        for option in site.options:
            if option in site.illegal:
                with pytest.raises(ChoiceError, match="is refused"):
                    bench.plan_under({site.id: option})
            else:
                assert bench.plan_under({site.id: option}, keep=False).proof.proven
