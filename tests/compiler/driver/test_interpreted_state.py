"""A program that Thunder's interpreter has traced follows changes of the Python values that it reads."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import workbench
from workbench.errors import ProgramError


class Model(nn.Module):
    def __init__(self, compute: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))
        self.act: Any = torch.sin
        self.parts = [1.0]
        self.known: dict[str, Any] = {}
        self.count = 1
        self.compute = compute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compute(self, self.inner(x))


def set_cosine(model: Any) -> None:
    model.act = torch.cos


def set_factor(model: Any) -> None:
    model.factor = 3.0


def set_inner_factor(model: Any) -> None:
    model.inner.factor = 3.0


def add_part(model: Any) -> None:
    model.parts.append(2.0)


def set_known(model: Any) -> None:
    model.known["factor"] = 4.0


def count_up(model: Any) -> None:
    model.count += 1


def set_variable(model: Any) -> None:
    os.environ["WORKBENCH_TEST_FACTOR"] = "7"


def to_eval(model: Any) -> None:
    model.eval()


CHANGES: list[tuple[Callable[[Any, Any], Any], Callable[[Any], None]]] = [
    (lambda self, y: self.act(y), set_cosine),
    (lambda self, y: y * getattr(self, "factor", 1.0), set_factor),
    (lambda self, y: y * (5 if hasattr(self.inner, "factor") else 1), set_inner_factor),
    (lambda self, y: y * len(self.parts), add_part),
    (lambda self, y: y * self.known.get("factor", 1.0), set_known),
    (lambda self, y: y * self.count, count_up),
    (lambda self, y: y * float(os.environ.get("WORKBENCH_TEST_FACTOR", "1")), set_variable),
    (lambda self, y: y * 2 if self.training else y, to_eval),
]


@pytest.mark.filterwarnings("ignore::workbench.errors.ConfigWarning")
@pytest.mark.parametrize("at", range(len(CHANGES)), ids=lambda at: CHANGES[at][1].__name__)
def test_a_changed_value_is_used_in_the_next_call(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_TEST_FACTOR", "1")
    compute, change = CHANGES[at]
    model, x = Model(compute), torch.randn(3, 4)
    own = copy.deepcopy(model)
    compiled = workbench.open(own, x, executor="torch", device="cpu", capture="interpreter").config.jit(own)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x))
        change(model)
        change(own)
    torch.testing.assert_close(compiled(x), model(x))


def test_a_state_that_returns_is_not_compiled_again() -> None:
    model, x = Model(lambda self, y: y * len(self.parts)), torch.randn(3, 4)
    compiled = workbench.open(model, x, executor="torch", device="cpu", capture="interpreter").config.jit(model)
    for _ in range(3):
        compiled(x)
        model.parts.append(2.0)
        compiled(x)
        model.parts.pop()
    assert compiled._lc_cs.cache_misses == 2


def test_a_value_that_the_program_does_not_read_may_change() -> None:
    model, x = Model(lambda self, y: self.act(y)), torch.randn(3, 4)
    compiled = workbench.open(model, x, executor="torch", device="cpu", capture="interpreter").config.jit(model)
    for _ in range(3):
        model.note = object()
        compiled(x)
    assert compiled._lc_cs.cache_misses == 1


def test_a_replaced_parameter_is_refused() -> None:
    model, x = Model(lambda self, y: y), torch.randn(3, 4)
    compiled = workbench.open(model, x, executor="torch", device="cpu", capture="interpreter").config.jit(model)
    compiled(x)
    model.inner = nn.Linear(4, 4)
    with pytest.raises(ProgramError, match=r"inner\.bias of the module is another tensor"):
        compiled(x)


def counts(self: Any, y: torch.Tensor) -> torch.Tensor:
    self.count += 1
    return y * self.count


def keeps(self: Any, y: torch.Tensor) -> torch.Tensor:
    self.last = y
    return y * 2


def appends(self: Any, y: torch.Tensor) -> torch.Tensor:
    self.parts.append(y)
    return y * 2


def stores(self: Any, y: torch.Tensor) -> torch.Tensor:
    self.known["last"] = y
    return y * 2


@pytest.mark.parametrize("compute", [counts, keeps, appends, stores], ids=lambda compute: compute.__name__)
def test_a_program_that_changes_values_is_refused_and_its_values_are_restored(compute: Callable[..., Any]) -> None:
    model = Model(compute)
    with pytest.raises(ProgramError, match=r"open the program with capture='auto'.*each call of the program changes"):
        workbench.open(model, torch.randn(3, 4), executor="torch", device="cpu", capture="interpreter")
    assert (model.count, model.parts, model.known, hasattr(model, "last")) == (1, [1.0], {}, False)


def test_a_module_that_is_an_argument_belongs_to_the_state() -> None:
    known = nn.Linear(4, 4), nn.Linear(4, 4)

    def program(module: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 3 if module is known[0] else x

    x = torch.randn(3, 4)
    compiled = workbench.open(program, known[0], x, executor="torch", device="cpu", capture="interpreter").config.jit(
        program
    )
    for module in (*known, *known):
        torch.testing.assert_close(compiled(module, x), program(module, x))
    assert compiled._lc_cs.cache_misses == 2
