"""Fixtures of the lever tests: regions run uncompiled, and tests run with one thread."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.levers.proof import uncompiled


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run regions as the PyTorch functions they consist of: tests with this fixture check only what regions contain."""
    monkeypatch.setattr(torch, "compile", uncompiled)


@pytest.fixture(autouse=True)
def one_thread() -> Callable[[], None]:
    """Run with one thread: programs here are tiny, and with one thread reductions give the same sums each time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
