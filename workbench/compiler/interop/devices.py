"""Check which devices and executors this machine has, and let Thunder plan for a GPU that is not attached."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import cache
from types import ModuleType

import torch

from workbench.compiler.interop import fake_gpu
from workbench.core.config import DEVICES
from workbench.core.executor import executor_named, executor_names, why_no_nvfuser
from workbench.errors import Advice, DeviceError, short_repr
from workbench.interop.torch_private import FakeTensorMode

PLANNED_BYTES_PER_S = 55e9
"""Assumed bandwidth of a PCIe 5.0 x16 link in one direction, in bytes per second. The specified limit is 63e9."""


def default_executor(device: str) -> str:
    """Return the name of the executor that a device uses by default."""
    if device == "cpu":
        return "torch"
    return "torch" if why_no_nvfuser() else "nvfuser"


def check(device: str, executor: str) -> None:
    """Raise an error if this machine lacks the device or the executor.

    Raises
    ------
    DeviceError
        If the device or the executor is unknown or not available; the message gives the reason.
    """
    if device not in DEVICES:
        raise DeviceError(f"unknown device {short_repr(device)}; legal: {', '.join(DEVICES)}")
    if executor not in executor_names():
        raise DeviceError(f"unknown executor {short_repr(executor)}; legal: {', '.join(executor_names())}")
    if device == "cuda" and not torch.cuda.is_available():
        raise DeviceError(
            "no CUDA device is attached",
            advice=Advice(
                "use device='planned' to plan for one, or device='cpu' to run",
                "use --device planned to plan for one, or --device cpu to run",
            ),
        )
    if reason := executor_named(executor).why_not(device):
        raise DeviceError(reason)


@cache
def copy_bandwidth(device: str) -> float:
    """Return the bandwidth of a copy from device memory to host memory, as for an offload, in bytes per second.

    Each process measures the bandwidth of a device once. For a planned GPU, the result is `PLANNED_BYTES_PER_S`.

    Parameters
    ----------
    device : {'cpu', 'cuda', 'planned'}
    """
    if device == "planned":
        return PLANNED_BYTES_PER_S
    size = 1 << 26
    source = torch.ones(size, dtype=torch.uint8, device=device)
    store = torch.empty(size, dtype=torch.uint8, pin_memory=device == "cuda")
    times = []
    for _ in range(4):
        start = time.perf_counter()
        store.copy_(source)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return size / min(times)


@cache
def nvfuser_module() -> ModuleType:
    """Import and return Thunder's nvFuser executor module, with or without a GPU.

    Without a GPU, Thunder's `nvfuser_version` returns None, and Thunder would fail to compare None with a version. In
    this case, `nvfuser_version` is replaced by a function that returns the installed version.
    """
    if torch.cuda.is_available():
        from workbench.compiler.interop.nvfuser_api import nvfuserex_impl as impl

        return impl
    with fake_gpu.says_there_is_a_gpu():
        from workbench.compiler.interop.nvfuser_api import nvfuserex
        from workbench.compiler.interop.nvfuser_api import nvfuserex_impl as impl

        version = nvfuserex.nvfuser_version()
    # This change affects no other code: without a GPU, Thunder itself never imports this module.
    impl.nvfuser_version = lambda: version
    return impl


@contextlib.contextmanager
def planned_gpu(mode: FakeTensorMode) -> Iterator[None]:
    """In this context, Thunder plans for a GPU that is not attached, and new tensors are fake tensors of `mode`."""
    with mode, fake_gpu.found_on_meta(), fake_gpu.recent_gpu():
        yield
