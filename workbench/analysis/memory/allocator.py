"""Compute the bytes that PyTorch's allocators use for a storage. On CUDA, these are multiples of 512 bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CUDA_BLOCK_BYTES = 512
"""Size of the smallest block of PyTorch's caching allocator. All sizes of blocks are multiples of it.

It is ``kMinBlockSize`` in ``c10/cuda/CUDACachingAllocator.h``.
"""


def allocated_bytes(nbytes: int, device_type: str) -> int:
    """Return the bytes that an allocator uses for a storage.

    On CUDA, ``torch.cuda.memory_allocated`` counts these bytes. If a block is slightly too large and the allocator does
    not split it, PyTorch also counts the unused rest of the block; this function does not. On a CPU, the result is
    `nbytes`.

    Parameters
    ----------
    nbytes : int
        Size of the storage.
    device_type : str
        Device type, such as ``cuda``.
    """
    return -(-nbytes // CUDA_BLOCK_BYTES) * CUDA_BLOCK_BYTES if device_type == "cuda" else nbytes


def dense_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensors that hold a tensor's memory: itself, or the indices and the elements of a sparse tensor."""
    layout = str(tensor.layout)
    if layout == "torch.sparse_coo":
        return tensor._indices(), tensor._values()
    if layout in ("torch.sparse_csr", "torch.sparse_bsr"):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if layout in ("torch.sparse_csc", "torch.sparse_bsc"):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)


def storage_bytes(tensor: torch.Tensor) -> int:
    """Return the `allocated_bytes` of a tensor's storage on the tensor's device. The tensor may be fake."""
    if tensor._is_zerotensor():  # autograd's symbolic zero has a size, but no memory
        return 0
    return allocated_bytes(tensor.untyped_storage().nbytes(), tensor.device.type)
