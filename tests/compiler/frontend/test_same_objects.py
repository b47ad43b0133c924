"""Compiled code is called again only with objects that are keys, globals or neither, as when Dynamo compiled it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import workbench

GIVEN = [nn.Parameter(torch.ones(2)) for _ in range(3)]
SCALES = {parameter: at + 2.0 for at, parameter in enumerate(GIVEN[:2])}
NAMED = GIVEN[0]
MODULES = [nn.Linear(2, 2, bias=False) for _ in range(3)]
FROZEN = {MODULES[0]}
TAKEN = {parameter: at + 2.0 for at, parameter in enumerate(GIVEN)}
PENDING = set(GIVEN)
MARKED = {GIVEN[2]: 0.0}
FACTORS = {MODULES[0].forward: 3.0, MODULES[1].forward: 5.0}


def reads_a_value(given: Any, x: torch.Tensor) -> torch.Tensor:
    return (given * x) * SCALES[given]


def reads_a_default(given: Any, x: torch.Tensor) -> torch.Tensor:
    return (given * x) * SCALES.get(given, 7.0)


def reads_a_global(given: Any, x: torch.Tensor) -> torch.Tensor:
    return given * x + 2 * NAMED


def asks_for_a_member(given: Any, x: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = given(x)
    return y.detach() if given in FROZEN else y * 3


def asks_for_a_key_that_it_took(given: Any, x: torch.Tensor) -> torch.Tensor:
    scale = TAKEN.pop(given)
    y = given * x * scale * TAKEN.get(given, 3.0)
    if given in TAKEN:
        y = y * 5
    TAKEN[given] = scale
    return y


def asks_for_a_key_that_it_deleted(given: Any, x: torch.Tensor) -> torch.Tensor:
    scale = TAKEN[given]
    del TAKEN[given]
    y = given * x * (5.0 if given in TAKEN else scale)
    TAKEN[given] = scale
    return y


def asks_for_a_member_that_it_discarded(given: Any, x: torch.Tensor) -> torch.Tensor:
    PENDING.discard(given)
    y: torch.Tensor = given * x
    if given in PENDING:
        y = y * 5
    PENDING.add(given)
    return y


def asks_after_a_change(given: Any, x: torch.Tensor) -> torch.Tensor:
    MARKED[NAMED] = 1.0
    y: torch.Tensor = given * x
    if given not in MARKED:
        y = y * 5
    del MARKED[NAMED]
    return y


def asks_whether_it_is_named(given: Any, x: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = given * x
    return y * 3 if given is NAMED else y


def asks_whether_it_is_another(given: Any, x: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = given(x)
    return y * 3 if given is not MODULES[0] else y


def reads_a_value_of_a_method(given: Any, x: torch.Tensor) -> torch.Tensor:
    return x * FACTORS[given.forward]


def asks_for_a_method(given: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 3 if given.forward in FACTORS else x


@pytest.mark.parametrize(
    ("program", "given"),
    [
        (reads_a_value, GIVEN[:2]),
        (reads_a_default, GIVEN),
        (reads_a_global, GIVEN),
        (asks_for_a_member, MODULES),
        (asks_for_a_key_that_it_took, GIVEN),
        (asks_for_a_key_that_it_deleted, GIVEN),
        (asks_for_a_member_that_it_discarded, GIVEN),
        (asks_after_a_change, GIVEN),
        (asks_whether_it_is_named, GIVEN),
        (asks_whether_it_is_another, MODULES),
        (reads_a_value_of_a_method, MODULES[:2]),
        (asks_for_a_method, MODULES),
    ],
)
@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
def test_a_program_computes_with_the_object_of_each_call(
    program: Callable[[Any, torch.Tensor], torch.Tensor], given: list[Any], turned: bool
) -> None:
    x = torch.tensor([1.0, 2.0])
    order = given[::-1] if turned else given
    compiled = workbench.open(program, order[0], x, executor="torch").config.jit(program)
    for each in (*order, *order):
        torch.testing.assert_close(compiled(each, x), program(each, x), rtol=0, atol=0)


@pytest.mark.slow
def test_a_step_that_finds_an_optimizer_for_each_parameter_trains_every_parameter() -> None:
    def trained(compile_step: bool) -> tuple[nn.Module, list[int]]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
        names = {"optimizers": {each: torch.optim.SGD([each], lr=0.1, momentum=0.9) for each in model.parameters()}}
        exec(UPDATE, names)  # the update reads a global dictionary
        update: Any = names["update"]

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = model(x).square().mean()
            loss.backward()
            for parameter in model.parameters():
                update(parameter)
            return loss.detach()

        x = torch.arange(12.0).reshape(3, 4) / 12
        call = workbench.open(step, x, executor="torch").config.jit(step) if compile_step else step
        for _ in range(2):
            call(x)
        return model, [len(optimizer.state) for optimizer in names["optimizers"].values()]

    ours, states = trained(True)
    theirs, _ = trained(False)
    assert states == [1] * 6
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


UPDATE = """
import torch

def update(parameter):
    torch._dynamo.graph_break()
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()
"""
