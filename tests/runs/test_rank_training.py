"""Training on ranks is compared with unmodified Thunder, or, for the reason in `why`, with another reference."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from workbench.compiler import api
from workbench.compiler.fastpath import install
from workbench.compiler.interop.thunder_api import Transform
from workbench.runs.measure import accuracy, rank_training
from workbench.runs.measure.accuracy import Accuracy, Parts

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def alone(tmp_path: Path) -> Iterator[None]:
    """Form a process group whose only rank is this process."""
    file = dist.FileStore(str(tmp_path / "meeting"), 1)
    dist.init_process_group("gloo", store=file, rank=0, world_size=1, timeout=datetime.timedelta(seconds=60))
    yield
    dist.destroy_process_group()


class Watching(Transform):
    """A transform that records whether the workbench's patches are installed while Thunder compiles."""

    def __init__(self) -> None:
        self.hastened: list[bool] = []

    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any, **_: Any) -> Any:
        self.hastened.append(install.is_fast())
        return prologue, computation, epilogue


class Twice(nn.Module):
    """A module that multiplies a linear layer's output by a factor."""

    def __init__(self, by: float = 2.0) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.by = by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.linear(x).tanh() * self.by
        return made


class Dropped(Twice):
    """A module that also applies dropout, so that it draws random numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(super().forward(x), 0.5)


def parts(kind: Callable[[], nn.Module]) -> Callable[[], Parts]:
    def build() -> Parts:
        torch.manual_seed(0)
        return kind(), (torch.randn(2, 3),), {}

    return build


def stock(module: nn.Module) -> Callable[..., Any]:
    return api.stock(module)


def unmodified(module: nn.Module) -> Callable[..., Any]:
    return api.unmodified(module, (Watching(),))


def refused(module: nn.Module) -> Callable[..., Any]:
    raise NotImplementedError("no such operator")


def wrong(module: nn.Module) -> Callable[..., Any]:
    """Compile a module with unmodified Thunder after changing its factor, so that the results are wrong."""
    assert isinstance(module, Twice)
    module.by = 3.0
    return unmodified(module)


def checked(reference: rank_training.Compile, kind: Callable[[], nn.Module] = Twice, **options: Any) -> Accuracy:
    return rank_training.check_training(stock, reference, stock, parts(kind), **options)


def test_the_reference_is_compiled_without_our_patches() -> None:
    watching = Watching()
    module, args, _ = parts(Twice)()
    api.unmodified(module, (watching,))(*args)
    api.stock(module, (watching,))(*args)
    assert watching.hastened == [False, True]


def test_training_is_compared_with_unmodified_thunder_and_eager() -> None:
    found = checked(unmodified)
    assert (found.ok, found.against, found.why, found.bitwise) == (True, "thunder.jit and eager", "", True)


def test_if_thunder_refuses_the_program_eager_is_the_reference() -> None:
    found = checked(refused)
    assert (found.ok, found.against, found.bitwise, found.changed_kernels) == (True, "PyTorch eager", None, None)
    assert found.why == "thunder.jit refuses it (NotImplementedError: no such operator)"


def test_if_thunder_is_wrong_eager_is_the_reference() -> None:
    found = checked(wrong)
    assert (found.ok, found.against, found.bitwise) == (True, "PyTorch eager", None)
    assert found.why.startswith("thunder.jit is wrong here: ")
    # If the plan has the same error as unmodified Thunder, Thunder remains a reference, and the plan fails the
    # comparison with eager PyTorch.
    both = rank_training.check_training(wrong, wrong, stock, parts(Twice))
    assert (both.ok, both.against) == (False, "thunder.jit and eager")


@pytest.mark.parametrize("told", [(), ("it draws again",)])
def test_if_thunder_draws_other_random_numbers_the_stock_plan_is_the_reference_and_is_named(
    told: tuple[str, ...],
) -> None:
    found = checked(refused if not told else unmodified, Dropped, draws_differ=told)
    assert (found.ok, found.against, found.bitwise) == (True, "stock plan", None)
    reason = told[0] if told else "thunder.jit refuses it (NotImplementedError: no such operator)"
    assert found.why == f"{reason}; {accuracy.STOCK_IS}"


def test_if_thunder_draws_the_same_random_numbers_thunder_is_the_reference() -> None:
    found = checked(unmodified, Dropped)
    assert (found.ok, found.against, found.why) == (True, "thunder.jit", "")
