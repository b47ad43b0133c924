"""A program that Thunder's interpreter has traced follows changes of the Python values that it reads."""

from __future__ import annotations

import copy
import functools
import gc
import os
import weakref
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import workbench
from workbench.errors import ProgramError


class Options:
    act: Any = torch.sin


imported: Any = ModuleType("imported")
imported.act = torch.sin


class Model(nn.Module):
    power: Any = 1

    def __init__(self, compute: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))
        self.act: Any = torch.sin
        self.parts = [1.0]
        self.queue: Any = deque([1.0])
        self.options = Options()
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


def fill_queue(model: Any) -> None:
    model.queue.append(2.0)


def set_of_class(model: Any) -> None:
    Options.act = torch.cos


def set_of_base(model: Any) -> None:
    type(model).power = type(model).power + 1


def set_imported(model: Any) -> None:
    imported.act = torch.cos


CHANGES: list[tuple[Callable[[Any, Any], Any], Callable[[Any], None]]] = [
    (lambda self, y: self.act(y), set_cosine),
    (lambda self, y: y * getattr(self, "factor", 1.0), set_factor),
    (lambda self, y: y * (5 if hasattr(self.inner, "factor") else 1), set_inner_factor),
    (lambda self, y: y * len(self.parts), add_part),
    (lambda self, y: y * self.known.get("factor", 1.0), set_known),
    (lambda self, y: y * self.count, count_up),
    (lambda self, y: y * float(os.environ.get("WORKBENCH_TEST_FACTOR", "1")), set_variable),
    (lambda self, y: y * 2 if self.training else y, to_eval),
    (lambda self, y: y * len(self.queue), fill_queue),
    (lambda self, y: Options.act(y), set_of_class),
    (lambda self, y: self.options.act(y), set_of_class),
    (lambda self, y: y**self.power, set_of_base),
    (lambda self, y: imported.act(y), set_imported),
]


@pytest.mark.filterwarnings("ignore::workbench.errors.ConfigWarning")
@pytest.mark.parametrize("at", range(len(CHANGES)), ids=lambda at: CHANGES[at][1].__name__)
def test_a_changed_value_is_used_in_the_next_call(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_TEST_FACTOR", "1")
    for holder, name in ((Options, "act"), (Model, "power"), (imported, "act")):
        monkeypatch.setattr(holder, name, getattr(holder, name))
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


class Cached(nn.Module):
    @functools.cached_property
    def scale(self) -> float:
        return 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def test_a_cached_property_may_be_computed_while_the_program_is_traced() -> None:
    model, x = Cached(), torch.randn(3, 4)
    compiled = workbench.open(model, x, executor="torch", device="cpu", capture="interpreter").config.jit(model)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), 2 * x)


class Settings:
    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.text = "sin"
        self.big = torch.ones(4)


def test_an_equal_argument_is_not_compiled_again_and_not_kept() -> None:
    def program(x: torch.Tensor, device: torch.device, o: Settings) -> torch.Tensor:
        y = x.sin() if o.text == "sin" else x.cos()
        return torch.ones(4, device=device) * y * o.factor * o.big

    def call(text: str) -> weakref.ref[Settings]:
        settings = Settings(2.0)
        settings.text = text
        device = torch.device("cpu")
        torch.testing.assert_close(compiled(x, device, settings), program(x, device, settings))
        return weakref.ref(settings)

    x = torch.randn(3, 4)
    compiled = workbench.open(
        program, x, torch.device("cpu"), Settings(2.0), executor="torch", device="cpu", capture="interpreter"
    ).config.jit(program)
    known = [call("sin") for _ in range(4)] + [call("cos")]
    gc.collect()
    assert (compiled._lc_cs.cache_misses, sum(each() is not None for each in known)) == (2, 0)


LAST: Any = None


class Written:
    last: Any = None


def a_cell() -> tuple[Callable[..., Any], Callable[[], Any]]:
    last = None

    def program(x: torch.Tensor) -> torch.Tensor:
        nonlocal last
        last = x.sin()
        return x

    return program, lambda: last


def a_global() -> tuple[Callable[..., Any], Callable[[], Any]]:
    def program(x: torch.Tensor) -> torch.Tensor:
        global LAST
        LAST = x.sin()
        return x

    return program, lambda: LAST


def a_class() -> tuple[Callable[..., Any], Callable[[], Any]]:
    def program(x: torch.Tensor) -> torch.Tensor:
        Written.last = x.sin()
        return x

    return program, lambda: Written.last


@pytest.mark.parametrize("make", [a_cell, a_global, a_class], ids=lambda make: make.__name__)
def test_a_refused_write_leaves_no_value_of_the_trace(make: Callable[[], Any]) -> None:
    program, read = make()
    with pytest.raises(ProgramError, match="each call of the program changes"):
        workbench.open(program, torch.randn(3, 4), executor="torch", device="cpu", capture="interpreter")
    assert read() is None
