"""Settings that every test runs under."""

import atexit
import gc
import logging
import os
import shutil
import sys
import tempfile
from typing import Any

# Before torch is imported: use as many threads as the smallest test machine has cores.
os.environ.setdefault("OMP_NUM_THREADS", "2")

import pytest
from hypothesis import HealthCheck, settings

from tests.cpu_seconds import Costs
from tests.distribution import ByUnit, slowest_first
from tests.trial_counts import PROFILE

# Before nbformat is imported: its `jsonschema` would import a parser for a format that notebooks do not have, and
# building its grammar takes 2 s per process.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # Python's way to say that a module is not there

# If the environment disables bytecode files, each process that tests start would compile the workbench again, and each
# test process would rewrite asserts again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests trace the programs they open and read nothing from disk. `tests/compiler/driver/test_capture_cache.py` overrides
# this.
os.environ["THUNDER_WORKBENCH_CACHE"] = "off"

# The step of unmodified Thunder is computed once for each program, and shared by all tests and processes of a session.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["THUNDER_WORKBENCH_REFERENCES"] = tempfile.mkdtemp(prefix="references-")
    atexit.register(shutil.rmtree, os.environ["THUNDER_WORKBENCH_REFERENCES"], ignore_errors=True)

# Each process that compiles would start two more: one imports PyTorch to try the vector instructions that the processor
# reports, and one is a compile worker, which saves no time on two cores. Together they take a quarter of the time to
# compile a small program. `make gpu-check` and the benchmarks keep the default.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# Without this, Dynamo collects garbage after each compilation.
os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")

# Tracing makes millions of objects and hardly any cycles. A collection after every 700 objects would slow all tests.
gc.set_threshold(50_000)

# `ci`, and `long` in `make long`, use the same examples each time, so that a failure is due to a change of the code.
# `full` uses new and more examples, for a search.
for name in ("ci", "long"):
    settings.register_profile(
        name, derandomize=True, deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
    )
settings.register_profile(
    "full", deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(PROFILE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", type=int, default=0, metavar="N", help="list N tests and N files with most CPU time")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("cpu"):
        config.pluginmanager.register(Costs(config.getoption("cpu")))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests for several processes. If no CUDA device is attached, skip tests marked `gpu`."""
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
    """Freeze imported objects, so that neither Python nor pytest at its end searches them for cycles."""
    # pytest would add handlers to PyTorch's compile log, whose texts are only built if there is a handler.
    logging.getLogger("torch.__trace").propagate = True
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByUnit:
    return ByUnit(config, log)


@pytest.fixture(scope="module")
def mlp_bench() -> Any:
    """Return a bench of a small program, planned for the CPU without fusions."""
    import workbench

    return workbench.open("mlp", layers=1, executor="torch", device="cpu")


@pytest.fixture(scope="module")
def saved_mlp(mlp_bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Save the plan of `mlp_bench`, and return the path."""
    return mlp_bench.save(tmp_path_factory.mktemp("saved") / "mlp.plan.json")
