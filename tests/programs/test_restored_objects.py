"""Opening a program changes no list, dictionary or object of the user, although copies of the program run."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import workbench
from workbench.programs.restored_objects import restored_objects

HISTORY: list[Any] = ["earlier"]
ACTIVATIONS: dict[str, torch.Tensor] = {}
CALLS = 0


class Meter:
    every: list[Any] = []  # noqa: RUF012  an attribute of the class, as some code has it

    def __init__(self) -> None:
        self.count = 0
        self.values: list[Any] = []

    def update(self, value: Any) -> None:
        self.count += 1
        self.values.append(value)
        self.every.append(value)


METER = Meter()


class Noted(nn.Module):
    """A module that notes each call in global objects, and keeps an activation by a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.linear.register_forward_hook(lambda module, given, made: ACTIVATIONS.update(linear=made.detach()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global CALLS
        hidden = self.linear(x)
        CALLS += 1
        HISTORY.append(hidden.detach())
        METER.update(hidden.mean())
        return hidden.sum()


def seen() -> tuple[Any, ...]:
    return len(HISTORY), list(ACTIVATIONS), CALLS, METER.count, len(METER.values), len(Meter.every)


@pytest.mark.parametrize("capture", ["auto", "parts"])
def test_opening_a_program_leaves_the_objects_of_its_module_as_they_are(capture: str) -> None:
    before, model, x = seen(), Noted(), torch.randn(2, 3)
    bench = workbench.open(model, x, device="cpu", capture=capture)
    assert seen() == before
    bench.config.jit(model)(x)
    assert seen() == (before[0] + 1, ["linear"], *(count + 1 for count in before[2:]))
    ACTIVATIONS.clear()


def closure() -> tuple[Callable[[], None], Callable[[], int]]:
    count = 0

    def counts() -> None:
        nonlocal count
        count += 1

    return counts, lambda: count


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, 2], lambda value: value.append(3)),
        ([1, 2], lambda value: value.reverse()),
        ({"a": 1}, lambda value: value.update(b=2)),
        ({"a": 1, "b": 2}, lambda value: value.pop("a")),
        (OrderedDict(a=1, b=2), lambda value: value.move_to_end("a")),
        (defaultdict(list, a=[]), lambda value: value["a"].append(1)),
        (Counter("ab"), lambda value: value.update("a")),
        ({1, 2}, lambda value: value.add(3)),
        (deque([1, 2], maxlen=2), lambda value: value.append(3)),
        (((), [[]]), lambda value: value[1][0].append(1)),
    ],
)
def test_containers_are_restored(value: Any, change: Callable[[Any], None]) -> None:
    before = repr(value)
    with restored_objects(lambda: value):
        change(value)
        assert repr(value) != before
    assert repr(value) == before


def test_variables_and_attributes_are_restored() -> None:
    counts, read = closure()
    meter = Meter()
    meter.training = torch.ones(2)  # type: ignore[attr-defined]  a module's attribute of this name is a bool
    module = nn.Linear(2, 2)
    with restored_objects(counts, meter.update, module):
        counts()
        meter.update(1)
        meter.extra = 1  # type: ignore[attr-defined]
        module.calls = 1  # type: ignore[assignment]
    assert vars(meter).keys() == {"count", "values", "training"}
    assert (read(), meter.count, meter.values, hasattr(module, "calls")) == (0, 0, [], False)


def test_objects_that_contain_each_other_are_searched_once() -> None:
    one, other = SimpleNamespace(), [0]
    holder: list[Any] = [one, other]
    holder.append(holder)
    with restored_objects(holder):
        other.append(1)
        holder.clear()
    assert holder[:2] == [one, [0]]
    assert holder[2] is holder
