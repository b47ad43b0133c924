"""Settings of the process, fixtures and hooks for all tests."""

import atexit
import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from typing import Any

# Set this before torch is imported. The smallest test machine has two cores.
os.environ.setdefault("OMP_NUM_THREADS", "2")

import pytest
from hypothesis import HealthCheck, settings

from tests.cpu_seconds import Costs
from tests.distribution import ByUnit, in_part, slowest_first
from tests.needs import skip_without_nvfuser
from tests.trial_counts import PROFILE

# Set this before nbformat is imported: nbformat imports `jsonschema`, which would import this parser of IRIs for 2 s in
# each process. The schema of notebooks has no field that is an IRI.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # then Python raises ImportError for the module

# A shell that starts the tests in the background lets them ignore Ctrl+C, and so would all processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Allow bytecode files, even if the environment disables them. Without these files, each process that tests start would
# compile the workbench again, and pytest would rewrite asserts again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests trace each program that they open, and read no capture from the disk. Tests of the cache, such as
# `tests/compiler/driver/test_capture_cache.py`, set a folder of their own.
os.environ["THUNDER_WORKBENCH_CACHE"] = "off"

# For each program, a step of unmodified Thunder is computed once, and saved for all tests and processes of a session.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["THUNDER_WORKBENCH_REFERENCES"] = tempfile.mkdtemp(prefix="references-")
    atexit.register(shutil.rmtree, os.environ["THUNDER_WORKBENCH_REFERENCES"], ignore_errors=True)

# By default, each process that compiles starts two further processes. One imports PyTorch to try the processor's vector
# instructions. The other is a compile worker, which saves no time on two cores. Together they take a quarter of the
# time to compile a small program. `make gpu-check` and the benchmarks keep the default.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# By default, Dynamo collects garbage after each compilation, which slows tests.
os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")

# Tracing creates millions of objects and few reference cycles. A collection after each 700 objects, the default, would
# slow all tests.
gc.set_threshold(50_000)

# Hypothesis profiles. `ci` is the default, and `make long` uses `long`. These two use the same examples each time,
# so that only a change of the code can cause a failure. `full` uses more and always new examples, to search for
# defects.
for name in ("ci", "long"):
    settings.register_profile(
        name, derandomize=True, deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
    )
settings.register_profile(
    "full", deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(PROFILE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu", type=int, default=0, metavar="N", help="list the N tests and the N files with the most CPU time"
    )
    parser.addoption("--part", default="", metavar="K/N", help="run the tests of each N-th file, from the K-th file on")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("cpu"):
        config.pluginmanager.register(Costs(config.getoption("cpu")))
    if config.getoption("part"):
        in_part([], config.getoption("part"))  # raises for an invalid part, before processes start


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of a part and, in a worker process, put long files first. Without a GPU, skip `gpu` tests."""
    if config.getoption("part"):
        items[:], others = in_part(items, config.getoption("part"))
        config.hook.pytest_deselected(items=others)
    if hasattr(config, "workerinput"):
        items[:] = slowest_first(items)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an attached CUDA device"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    with skip_without_nvfuser():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    with skip_without_nvfuser():
        return (yield)


def pytest_collection_finish() -> None:
    """Freeze all present objects, so that later garbage collections, also pytest's last one, do not visit them."""
    # pytest adds its handlers to loggers that do not propagate, such as PyTorch's compile log. With a handler, PyTorch
    # would format all messages of this log. Let the log propagate, so that it gets no handler.
    logging.getLogger("torch.__trace").propagate = True
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByUnit:
    return ByUnit(config, log)


@pytest.fixture(scope="module")
def mlp_bench() -> Any:
    """Return a bench for a small program on the CPU, without fusions."""
    import workbench

    return workbench.open("mlp", layers=1, executor="torch", device="cpu")


@pytest.fixture(scope="module")
def saved_mlp(mlp_bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Save the plan of `mlp_bench` to a file, and return the path."""
    return mlp_bench.save(tmp_path_factory.mktemp("saved") / "mlp.plan.json")
