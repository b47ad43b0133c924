"""List the attached GPUs through NVIDIA's driver, without PyTorch, which takes seconds to import."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

LIBRARY = "libcuda.so.1"
_NAME_CHARACTERS = 256


@dataclasses.dataclass(frozen=True)
class Gpu:
    """An attached GPU that ``CUDA_VISIBLE_DEVICES`` does not hide.

    Attributes
    ----------
    name : str
    memory_bytes : int
    driver_cuda : (int, int)
        Newest version of CUDA that the driver supports, as (major, minor).
    """

    name: str
    memory_bytes: int
    driver_cuda: tuple[int, int]


def attached_gpus() -> tuple[Gpu, ...]:
    """Return all GPUs in the driver's order; empty if the driver or a GPU is missing, or if the driver fails."""
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError:
        return ()
    count, version = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    if driver.cuDriverGetVersion(ctypes.byref(version)):
        return ()
    # The driver encodes version 12.8 as 12080.
    cuda = (version.value // 1000, version.value % 1000 // 10)
    found = (_gpu(driver, ordinal, cuda) for ordinal in range(count.value))
    return tuple(gpu for gpu in found if gpu is not None)


def _gpu(driver: Any, ordinal: int, cuda: tuple[int, int]) -> Gpu | None:
    handle, name, size = ctypes.c_int(), ctypes.create_string_buffer(_NAME_CHARACTERS), ctypes.c_size_t()
    if (
        driver.cuDeviceGet(ctypes.byref(handle), ordinal)
        or driver.cuDeviceGetName(name, _NAME_CHARACTERS, handle)
        or driver.cuDeviceTotalMem_v2(ctypes.byref(size), handle)
    ):
        return None
    return Gpu(name.value.decode(errors="replace"), size.value, cuda)
