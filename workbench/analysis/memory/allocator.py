"""Bytes that PyTorch's allocators reserve for a storage.

On CUDA this is more than its size, in every sum of storages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CUDA_BLOCK_BYTES = 512
"""Smallest block of PyTorch's caching allocator, and the unit of all block sizes; ``kMinBlockSize`` in
``c10/cuda/CUDACachingAllocator.h``.
"""


def allocated_bytes(nbytes: int, device_type: str) -> int:
    """Return the bytes in use for a storage on a device.

    On CUDA this is the count of ``torch.cuda.memory_allocated``, except for the rest of a block that is not split
    because too little would remain. On a CPU it is the requested size.

    Parameters
    ----------
    nbytes : int
        Of the storage.
    device_type : str
        Such as ``cuda``.
    """
    return -(-nbytes // CUDA_BLOCK_BYTES) * CUDA_BLOCK_BYTES if device_type == "cuda" else nbytes


def storage_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes in use for a tensor's storage on the tensor's nominal device.

    A fake tensor is on no actual device.
    """
    return allocated_bytes(tensor.untyped_storage().nbytes(), tensor.device.type)
