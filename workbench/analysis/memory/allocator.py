"""Bytes that PyTorch's allocators reserve for a storage: more than its size on CUDA, hence in each sum of storages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CUDA_BLOCK_BYTES = 512
"""The least block that PyTorch's caching allocator gives out, of which all others are multiples; ``kMinBlockSize`` in
``c10/cuda/CUDACachingAllocator.h``."""


def allocated_bytes(nbytes: int, device_type: str) -> int:
    """Return the bytes in use on a device for a storage.

    On CUDA that is what ``torch.cuda.memory_allocated`` counts, but for what is left of a block that is not split
    because too little would be left. On a CPU it is what the program asks for.

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
