"""Fixtures of the lever tests: regions run uncompiled, and tests run with one thread."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.levers.proof import uncompiled


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the PyTorch functions of each region without compiling, for tests that check only the contents of regions."""
    monkeypatch.setattr(torch, "compile", uncompiled)


@pytest.fixture(autouse=True)
def one_thread() -> Callable[[], None]:
    """Run with one thread, so that a reduction adds in the same order each time. The tiny programs need no more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
