"""Fixtures: benches for programs on ranks and for a program without ranks, and results of training on two ranks."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import workbench as wb
from tests.levers.waits import forked
from tests.trial_counts import amount

SCRIPT = Path(__file__).with_name("on_ranks.py")
LIMIT_S = 600


@pytest.fixture(scope="session")
def planned() -> wb.Workbench:
    return wb.open("fsdp_llama", device="planned", executor="nvfuser", ranks=8)


@pytest.fixture(scope="session")
def alone() -> wb.Workbench:
    """Return a bench for a program without ranks."""
    return wb.open("mlp", device="cpu", executor="torch", settings={"layers": 1})


@pytest.fixture(scope="session")
def replicated() -> wb.Workbench:
    return wb.open("ddp_llama", device="cpu", executor="torch", ranks=4, settings={"layers": 1})


@pytest.fixture(scope="session")
def programs() -> ModuleType:
    """Import `on_ranks.py`. It defines the cases, and the modules that ranks train."""
    spec = importlib.util.spec_from_file_location("on_ranks", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["on_ranks"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def sharded(programs: ModuleType) -> wb.Workbench:
    return wb.open(programs.Blocks(), torch.randn(4, 5), ranks=2, parallel="fsdp", device="cpu", executor="torch")


@pytest.fixture(scope="session")
def regathered(programs: ModuleType) -> wb.Workbench:
    return wb.open(programs.Blocks(), torch.randn(4, 5), ranks=2, parallel="fsdp_zero3", device="cpu", executor="torch")


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory, programs: ModuleType) -> list[dict[str, float | str]]:
    """Run the cases on two ranks. Return a dict for each rank, which maps a case to the result of `on_ranks.error`.

    If a rank failed in a case, the dict has a traceback instead. The Hypothesis profile `ci` runs only the cases in
    `IN_TEST`.
    """
    folder = tmp_path_factory.mktemp("ranks")
    names = list(programs.CASES)
    names = amount(list(programs.IN_TEST), names, names)
    return forked.run(folder, programs.RANKS, SCRIPT, *names, timeout_s=LIMIT_S)
