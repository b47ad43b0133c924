"""Bytes that PyTorch's allocators reserve for a storage: more than its size on CUDA, hence in each sum of storages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CUDA_BLOCK_BYTES = 512
"""Smallest block of PyTorch's caching allocator, and the unit of all others; ``kMinBlockSize`` in
``c10/cuda/CUDACachingAllocator.h``.
"""


def allocated_bytes(nbytes: int, device_type: str) -> int:
    """Return the bytes in use on a device for a storage.

    On CUDA this is the count of ``torch.cuda.memory_allocated``, without the rest of a block that is not split because
    too little would be left. On a CPU it is the requested size.

    Parameters
    ----------
    nbytes : int
        Of the storage.
    device_type : str
        Such as ``cuda``.
    """
    return -(-nbytes // CUDA_BLOCK_BYTES) * CUDA_BLOCK_BYTES if device_type == "cuda" else nbytes


def storage_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes in use for a tensor's storage, on the device that the tensor names; a fake tensor is on none."""
    return allocated_bytes(tensor.untyped_storage().nbytes(), tensor.device.type)
