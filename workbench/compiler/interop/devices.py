"""What is attached, which executors work here, and planning for a GPU that is not there."""

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
from workbench.errors import Advice, DeviceError, shown
from workbench.interop.torch_private import FakeTensorMode

PLANNED_BYTES_PER_S = 55e9
"""What a PCIe 5.0 x16 link carries one way, of 63e9 by its specification; assumed, not measured."""


def default_executor(device: str) -> str:
    """The executor used where none is named."""
    if device == "cpu":
        return "torch"
    return "torch" if why_no_nvfuser() else "nvfuser"


def check(device: str, executor: str) -> None:
    """Refuse a device or executor that cannot be had here.

    Raises
    ------
    DeviceError
        Saying what was given, what is legal, and why.
    """
    if device not in DEVICES:
        raise DeviceError(f"unknown device {shown(device)}; legal: {', '.join(DEVICES)}")
    if executor not in executor_names():
        raise DeviceError(f"unknown executor {shown(executor)}; legal: {', '.join(executor_names())}")
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
    """Bytes a second between device memory and the store of what is offloaded.

    Measured once per process; for a planned GPU `PLANNED_BYTES_PER_S` is assumed.

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
    """Thunder's nvFuser executor module, importable without a GPU.

    Thunder asks for the version through ``torch.cuda.is_available()``; without a GPU its checkers would then compare
    None with a version, so the version is kept as it was found while importing.
    """
    if torch.cuda.is_available():
        from workbench.compiler.interop.nvfuser_api import nvfuserex_impl as impl

        return impl
    with fake_gpu.says_there_is_a_gpu():
        from workbench.compiler.interop.nvfuser_api import nvfuserex
        from workbench.compiler.interop.nvfuser_api import nvfuserex_impl as impl

        version = nvfuserex.nvfuser_version()
    # Of a module that Thunder imports on no machine without a GPU: no one else has it.
    impl.nvfuser_version = lambda: version
    return impl


@contextlib.contextmanager
def planned_gpu(mode: FakeTensorMode) -> Iterator[None]:
    """Inside, Thunder plans for a GPU whose tensors are the fake ones of `mode`."""
    with mode, fake_gpu.found_on_meta(), fake_gpu.recent_gpu():
        yield
