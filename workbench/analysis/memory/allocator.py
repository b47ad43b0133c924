"""Bytes that PyTorch's allocators use for a storage. On CUDA, sizes are rounded up to whole blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CUDA_BLOCK_BYTES = 512
"""Size of the smallest block of PyTorch's caching allocator, and unit of all block sizes: ``kMinBlockSize`` in
``c10/cuda/CUDACachingAllocator.h``.
"""


def allocated_bytes(nbytes: int, device_type: str) -> int:
    """Return the bytes that an allocator uses for a storage.

    On CUDA, ``torch.cuda.memory_allocated`` counts these bytes. If the allocator does not split a block because too
    little would remain, it also counts the rest of the block. On a CPU, the result is `nbytes`.

    Parameters
    ----------
    nbytes : int
        Size of the storage.
    device_type : str
        Device type, such as ``cuda``.
    """
    return -(-nbytes // CUDA_BLOCK_BYTES) * CUDA_BLOCK_BYTES if device_type == "cuda" else nbytes


def storage_bytes(tensor: torch.Tensor) -> int:
    """Return the `allocated_bytes` of a tensor's storage, on the device that the tensor names, even if it is fake."""
    return allocated_bytes(tensor.untyped_storage().nbytes(), tensor.device.type)
