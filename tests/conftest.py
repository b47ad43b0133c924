"""Settings that every test runs under."""

import atexit
import gc
import logging
import os
import shutil
import sys
import tempfile
from typing import Any

# Before torch is imported: as many threads as the smallest machine the tests run on has cores.
os.environ.setdefault("OMP_NUM_THREADS", "2")

import pytest
from hypothesis import HealthCheck, settings

from tests.amount import PROFILE
from tests.cpu import Costs
from tests.distribution import ByUnit, slowest_first

# Before nbformat is imported, whose `jsonschema` would import it for a format that notebooks do not have: building its
# grammar takes two seconds of each process.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # Python's way to say that a module is not there

# Where the environment says that bytecode is not kept, each process that tests start would compile the workbench anew,
# and each that runs tests would rewrite their asserts anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What a test opens is traced, and not what another left on disk; `tests/compiler/driver/test_capture_cache.py` says
# otherwise.
os.environ["THUNDER_WORKBENCH_CACHE"] = "off"

# Unmodified Thunder's step of a program is made once for all tests and processes of a session, as for a person's runs.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["THUNDER_WORKBENCH_REFERENCES"] = tempfile.mkdtemp(prefix="references-")
    atexit.register(shutil.rmtree, os.environ["THUNDER_WORKBENCH_REFERENCES"], ignore_errors=True)

# Inductor otherwise has each process that compiles start two others: one that imports PyTorch to try the vector
# instructions that the processor says it has, and one to compile in beside it, which on two cores saves nothing. That
# is a quarter of what a small program takes to compile. `make gpu-check` and the benchmarks leave it as it is.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# Dynamo otherwise looks for cycles after each compilation.
os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")

# Tracing makes objects by the million and hardly a cycle: to look for some after every 700 takes time from all tests.
gc.set_threshold(50_000)

# `ci`, and `long` in `make long`: the same examples each time, so that a red run is the change's fault. `full`: new
# ones, and more, for a search.
for name in ("ci", "long"):
    settings.register_profile(
        name, derandomize=True, deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
    )
settings.register_profile(
    "full", deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(PROFILE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", type=int, default=0, metavar="N", help="name the N tests and files that took most CPU")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("cpu"):
        config.pluginmanager.register(Costs(config.getoption("cpu")))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests where processes share them; skip those marked `gpu` where no CUDA device is attached."""
    if hasattr(config, "workerinput"):
        items[:] = slowest_first(items)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an attached CUDA device"))


def pytest_collection_finish() -> None:
    """What was imported stays to the end: Python looks no more for cycles among it, nor does pytest when all ended."""
    # pytest would hang handlers on the log of all that PyTorch compiles, which is put together once it has one.
    logging.getLogger("torch.__trace").propagate = True
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByUnit:
    return ByUnit(config, log)


@pytest.fixture(scope="module")
def mlp_bench() -> Any:
    """A small program, planned for the CPU with nothing fused."""
    import workbench

    return workbench.open("mlp", layers=1, executor="torch", device="cpu")


@pytest.fixture(scope="module")
def saved_mlp(mlp_bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The path of its saved plan."""
    return mlp_bench.save(tmp_path_factory.mktemp("saved") / "mlp.plan.json")
