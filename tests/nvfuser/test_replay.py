"""Under random legal choices and all copy policies, the replay of a plan for nvFuser equals eager PyTorch."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.nvfuser import replays
from tests.strategies import choice_sets
from tests.trial_counts import amount, combined
from workbench.bench import Workbench
from workbench.errors import ChoiceError

pytestmark = pytest.mark.slow

FULL = settings.default.max_examples > 100
PROGRAMS: dict[str, dict[str, Any]] = {
    "mlp": {"layers": 2, "width": 8, "hidden": 16, "batch": 4},
    "residual_chain": {"layers": 3, "grad": True},
    "llama": {"layers": 1, "dim": 16, "vocab": 32, "sequence": 8},
    "adam": {"size": 4},
    "sgd": {"size": 4},
    "torch_adam": {"size": 4},
    "torch_sgd": {"size": 4},
    "batch_norm": {"channels": 4, "batch": 4, "size": 4},
    "swap": {"size": 4},
    "two_destinations": {"size": 4},
    "return_source": {"size": 4},
}
WRITING = [name for name in PROGRAMS if name not in ("mlp", "residual_chain", "llama")]


@functools.cache
def opened(name: str) -> tuple[Workbench, replays.Eager]:
    return replays.planned(name, **PROGRAMS[name]), replays.eager(name, **PROGRAMS[name])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name == "llama")) for name in PROGRAMS]
)
def test_stock_plans_are_right(name: str) -> None:
    bench, known = opened(name)
    assert not bench.choices
    replays.holds(bench, known)


@pytest.mark.drawn
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_random_legal_choices_are_right(name: str) -> None:
    bench, known = opened(name)

    @settings(max_examples=amount(2, 4, 100), suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        at = bench._history.at
        try:
            bench.choose(data.draw(choice_sets(bench.sites())))
        except ChoiceError:
            event("refused")
            return
        event("taken")
        replays.holds(bench, known)
        while bench._history.at > at:
            bench.undo()

    check()


@pytest.mark.parametrize(
    ("name", "fences", "policy"),
    combined(WRITING, ["keep", "drop"], ["always", "never", "direct_only", "alias_aware"]),
)
def test_every_copy_policy_is_right_with_and_without_fences(name: str, fences: str, policy: str) -> None:
    bench, known = opened(name)
    before = bench._history.at
    bench.choose({"copies.policy": policy, "copies.fences": fences})
    replays.holds(bench, known)
    while bench._history.at > before:
        bench.undo()


def unchecked(name: str) -> tuple[replays.ReplayResult, replays.Eager]:
    """Replay a step whose copies have no `set` nodes, even where the workbench inserts a node that is needed."""
    bench, known = opened(name)
    before = bench._history.at
    bench.choose({"copies.fences": "drop"})
    try:
        split = bench.plan.split
        everything = {name for site in bench.sites("copies") for name in site.values}
        return replays.replay(split.forward, split.backward, known.before, without_set=everything), known
    finally:
        while bench._history.at > before:
            bench.undo()


def test_without_a_set_a_value_reaches_only_one_of_two_destinations() -> None:
    assert replays.differences(*unchecked("two_destinations")) == ["c"]


def test_without_a_set_a_returned_value_shares_memory_with_the_written_argument() -> None:
    found, _ = unchecked("return_source")
    assert found.outputs[0].data_ptr() == found.arguments["a"].data_ptr()


def test_optimizers_need_no_set() -> None:
    for name in ("adam", "sgd", "torch_adam", "torch_sgd"):
        assert not replays.differences(*unchecked(name))
