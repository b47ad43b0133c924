"""A call that takes its statements from the memo has the same statements and names as a traced call.

The plans with and without the memo are equal.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench
from tests.compiler.frontend import test_module_reuse as layers
from tests.strategies import RandomProgram, choices_for, programs
from tests.trial_counts import amount, beyond
from workbench.bench import Workbench
from workbench.compiler.fastpath import call_memo
from workbench.compiler.frontend import dynamo
from workbench.core.config import Config


@contextlib.contextmanager
def all_made() -> Iterator[None]:
    """Inside the block, use no memo, so that each layer and each operation is traced."""

    def made(
        trace: Any, scope: Any, of: Any, args: Any, kwargs: Any, make: Callable[[], Any], places: Any = None
    ) -> tuple[Any, None]:
        return make(), None

    with (
        mock.patch.object(dynamo, "trace_modules_once", layers.each_traced),
        mock.patch.object(call_memo, "record_or_replay", made),
    ):
        yield


def as_text(bench: Workbench) -> list[str]:
    """Return all traces, names and figures of a bench's plan as text."""
    context, plan = bench._captured.context, bench.plan
    traces = [str(trace) for trace in (context.program, context.joint, context.claimed)]
    # Remove the numeric suffixes of the names of printed constants. A suffix depends on the constants that were printed
    # before.
    printed = [re.sub(r"\b(_[a-z]\w*)_\d+\b", r"\1", text) for text in (*traces, plan.text())]
    return [
        *(re.sub(r"took \d+ \w+", "", text) for text in printed),
        "\n".join(plan.graph.statements.computes), repr(plan.peak_bytes), repr(plan.saved_bytes), repr(plan.timeline),
        "\n".join(site.id for site in plan.sites),
    ]  # fmt: skip


@pytest.mark.drawn
@pytest.mark.slow
@settings(max_examples=amount(6, 25, 300))
@given(programs(random=True, writes=True, rare=True), st.sampled_from(["dynamo", "interpreter"]))
def test_random_programs_that_repeat_calls_are_captured_the_same_with_and_without_the_memo(
    program: RandomProgram, capture: str
) -> None:
    function, inputs, _ = program.build()

    def twice(*given: Any) -> Any:
        return function(*given), function(*given)

    def opened() -> list[str]:
        try:
            # Compare also programs that Thunder computes wrongly. Ignore the warning that they cause.
            with warnings.catch_warnings(action="ignore", category=workbench.ProgramWarning):
                return as_text(workbench.open(twice, *inputs, device="cpu", executor="torch", capture=capture))
        except workbench.ProgramError as error:
            # Leave out the error's source line, because without the memo it is a line of this file.
            return [str(error).rpartition(": ")[2]]

    with all_made():
        stock = opened()
    assert opened() == stock


def twice_without_gradients(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        with torch.no_grad():
            kept = x + 1
        x = torch.tanh(x @ w * kept)
    return x.sum()


def twice_in_less_precision(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            product = x @ w
        x = torch.tanh(product.float())
    return x.sum()


@pytest.mark.parametrize("capture", beyond(1, ["dynamo", "interpreter"], pytest.mark.slow))
@pytest.mark.parametrize("program", [twice_without_gradients, twice_in_less_precision])
def test_a_call_under_no_grad_or_autocast_gives_the_results_of_eager_each_time(
    program: Callable[..., Any], capture: str
) -> None:
    def inputs() -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(3)
        return [torch.randn(6, 6, generator=generator).requires_grad_() for _ in range(2)]

    given = inputs()
    bench = workbench.open(program, *given, device="cpu", executor="torch", capture=capture)
    ours, theirs = bench.config.jit(program)(*given), program(*(wanted := inputs()))
    ours.backward()
    theirs.backward()
    torch.testing.assert_close([ours, *(x.grad for x in given)], [theirs, *(x.grad for x in wanted)])


def told(bench: Workbench, choices: dict[str, str]) -> str:
    """Make choices. Return the message if they are refused, and an empty string if they are accepted."""
    try:
        bench.choose(choices)
    except workbench.ChoiceError as error:
        return str(error)
    return ""


CASES: dict[str, tuple[Any, tuple[Callable[[layers.Stack], None], ...]]] = {
    "alike": (layers.Layer, ()),
    "batch norms": (layers.Normed, ()),
    "pairs": (layers.Two, ()),
    "a layer that writes in place": (layers.AddsTo, ()),
    "other shapes": (layers.Layer, (layers._shapes,)),
    "shared weights": (layers.Layer, (layers._shared, layers._shared_with_first)),
    "a layer in eval, one frozen": (layers.Layer, (layers._eval, layers._frozen)),
    "first and last special": (layers.Layer, (layers._dropping, layers._without_bias)),
}
TRIED = list(CASES)[: amount(1, len(CASES), len(CASES))]
SETS = amount(2, 4, 80)
"""Number of random sets of choices for each program. The profile ``full`` tries more than 500 sets in total."""


@pytest.mark.drawn
@pytest.mark.slow
@pytest.mark.parametrize("name", TRIED)
def test_choices_in_repeated_layers_give_the_plans_that_they_give_without_the_memo(name: str) -> None:
    kind, changes = CASES[name]
    torch.manual_seed(1)
    stack = layers.Stack(kind, layers.LAYERS if changes else 4)
    for change in changes:
        change(stack)
    x = torch.randn(4, layers.WIDTH)

    def opened(config: Config | None = None) -> Workbench:
        return workbench.open(stack, x, device="planned", executor="nvfuser", config=config)

    bench = opened()
    with all_made():
        stock = opened()
    assert "is reused for" in bench.capture_reason
    assert "is reused for" not in stock.capture_reason
    assert as_text(bench) == as_text(stock)
    random = Random(name)
    for _ in range(SETS):
        choices = choices_for(random, bench.sites())
        assert told(bench, choices) == told(stock, choices)
        assert as_text(bench) == as_text(stock)
    assert opened(stock.config).plan.text() == stock.plan.text()
    with all_made():
        assert opened(bench.config).plan.text() == bench.plan.text()


def test_an_operation_is_recorded_once_for_equal_arguments() -> None:
    asked: list[Any] = []
    recorded: list[Any] = []

    def count(into: list[Any], stock: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any) -> Any:
            into.append(None)
            return stock(*given)

        return counted

    def function(x: torch.Tensor, times: int) -> torch.Tensor:
        for _ in range(times):
            x = torch.nn.functional.gelu(x)
        return x.sum()

    x = torch.randn(3, 3, requires_grad=True)
    # Open the program once before counting, because only the first opening in a process also traces operations to find
    # their memory effects.
    workbench.open(function, x, 2, device="cpu", executor="torch")
    with (
        mock.patch.object(call_memo, "record_or_replay", count(asked, call_memo.record_or_replay)),
        mock.patch.object(call_memo, "_record", count(recorded, call_memo._record)),
    ):
        bench = workbench.open(function, x, 20, device="cpu", executor="torch")
    assert len(bench.plan.graph.statements) > 3 * 20
    assert 0 < 4 * len(recorded) < len(asked)
