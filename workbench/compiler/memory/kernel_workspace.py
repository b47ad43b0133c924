"""What a kernel allocates inside itself, where fake tensors cannot see it: measured by running it once."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from workbench.interop.torch_private import _disable_current_modes

MOST_BYTES = 1 << 30
"""Inputs larger than this are not made only to measure a kernel."""
MOST_FLOPS = 4_000_000_000
"""Nor is a kernel run that takes more than about a second."""

_ALWAYS = (
    *("conv", "interpolate", "upsample", "scaled_dot_product", "sdpa", "pool", "sort", "topk"),
    *("loss", "entropy", "kl_div", "vjp"),
)
_ALONG = ("softmax", "norm", "cum", "scatter", "index", "embedding", "gather", "shuffle")
_MATRICES = ("matmul", "linear", "bmm", "addmm", "einsum")
_COPIES = ("copy", "clone", "contiguous", "reshape", "flatten", "masked_fill")
_SUMS = ("sum", "mean", "prod", "var", "std")
_CONVERSIONS = ("to", "convert_element_type")
_SINGLE = torch.float32.itemsize

WRITES = "copy_"
"""How symbols begin whose kernels may hold work space though nothing they make is new."""


def allocates_inside(name: str, tensors: Sequence[torch.Tensor], flops: int) -> bool:
    """Whether a symbol's CPU kernel may allocate work space that fake tensors do not show, and is worth a run.

    Convolutions, pooling, sorting and attention reorder their operands. Losses, and gradients that PyTorch's own
    autograd finds (``vjp``), are several steps in one. Matrix products pack an operand that BLAS cannot read as it
    lies: no unit stride in a matrix, or one row for many; and oneDNN, which multiplies in half precision, packs
    any. Kernels that work along a dimension make operands contiguous that are not. A copy that transposes a matrix
    does so block by block. Kernels of single elements take any strides, but convert operands whose data types
    differ; sums convert what is no floating-point number; and what adds up in half precision may do so in single.

    Parameters
    ----------
    name : str
        The symbol's.
    tensors : sequence of Tensor
        Its inputs, fake ones.
    flops : int
        Floating point operations of the statement.
    """
    if flops > MOST_FLOPS:
        return False
    if any(each in name for each in _ALWAYS) and "convert" not in name:
        return True
    is_half = any(t.dtype.is_floating_point and t.dtype.itemsize < _SINGLE for t in tensors)
    if any(each in name for each in _MATRICES):
        return is_half or any(t.dim() > 1 and not _blas_reads(t) for t in tensors)
    if any(each in name for each in _COPIES):
        return any(_transposes(t.shape, t.stride()) for t in tensors)
    if any(each in name for each in _ALONG):
        return is_half or any(not t.is_contiguous() for t in tensors)
    if is_half and any(each in name for each in _SUMS):
        return True
    if name in _CONVERSIONS:
        return False
    # Conditions are read as they are.
    dtypes = {t.dtype for t in tensors if t.dim() and not (name == "where" and t.dtype == torch.bool)}
    return len(dtypes) > 1 or any(not dtype.is_floating_point for dtype in dtypes)


def _blas_reads(tensor: torch.Tensor) -> bool:
    """Whether the last two dimensions lie as BLAS takes them, plain or transposed, and the others one after another."""
    (rows, columns), (down, across) = tensor.shape[-2:], tensor.stride()[-2:]
    plain = (across == 1 or columns == 1) and (down >= columns or rows == 1)
    transposed = (down == 1 or rows == 1) and (across >= rows or columns == 1)
    return (plain or transposed) and 0 not in tensor.stride()


def peak_inside_bytes(text: str, namespace: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> int | None:
    """The most bytes that a statement holds at once on a CPU beyond its inputs.

    Parameters
    ----------
    text : str
        Python source of the statement.
    namespace : mapping
        What it needs beside the tensors.
    tensors : mapping of str to Tensor
        Its inputs, as fake tensors: shape, stride, data type.

    Returns
    -------
    int or None
        None where the inputs are not on a CPU, or larger than `MOST_BYTES`, or the kernel refuses made-up ones.
    """
    nbytes = sum(tensor.untyped_storage().nbytes() for tensor in tensors.values())
    if nbytes > MOST_BYTES or any(tensor.device.type != "cpu" for tensor in tensors.values()):
        return None
    real = {name: (tensor.shape, tensor.stride(), tensor.dtype) for name, tensor in tensors.items()}
    return _measured(text, namespace, real)


@functools.lru_cache(maxsize=4096)
def copy_inside_bytes(
    shape: tuple[int, ...], strides: tuple[int, ...], into: tuple[int, ...], dtype: torch.dtype
) -> int:
    """The most bytes that a copy on a CPU holds at once beside the two tensors.

    Parameters
    ----------
    shape : tuple of int
        Of both.
    strides, into : tuple of int
        Of what is copied, and of what it is copied into, in elements.
    dtype : torch.dtype
        Of both.
    """
    if math.prod(shape) * dtype.itemsize > MOST_BYTES or not _transposes(shape, strides):
        return 0
    return _measured("into.copy_(given)", {}, {"given": (shape, strides, dtype), "into": (shape, into, dtype)}) or 0


def _measured(
    text: str,
    namespace: Mapping[str, Any],
    tensors: Mapping[str, tuple[Sequence[int], Sequence[int], torch.dtype]],
) -> int | None:
    # The program draws its numbers as if nothing had been tried.
    with _disable_current_modes(), torch.no_grad(), torch.random.fork_rng(devices=()):
        try:
            real = {
                name: torch.empty_strided(tuple(shape), tuple(strides), dtype=dtype).zero_()
                for name, (shape, strides, dtype) in tensors.items()
            }
            # The first run may pack weights once and for all.
            for _ in range(2):
                scope = {**namespace, **real}
                with _profiled() as measured:
                    exec(text, scope)
        except Exception:  # noqa: BLE001 - kernels refuse inputs that are all zeros in their own ways
            return None
    events = sorted(
        (
            (event.start_ns(), event.nbytes())
            for event in measured.profiler.kineto_results.events()
            if _is_memory(event)
        ),
        key=lambda event: event[0],
    )
    return max(accumulate((nbytes for _, nbytes in events), initial=0))


_FIRST = threading.Lock()
_LEVEL = "KINETO_LOG_LEVEL"
_used = False


@contextlib.contextmanager
def _profiled() -> Iterator[Any]:
    """PyTorch's profiler, quiet at its first use: where there is no driver it says so under the user's cell.

    It reads how much to say from the environment, which is as before once it has begun.
    """
    global _used
    making = profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)
    with contextlib.ExitStack() as inside:
        with _FIRST:
            quiet = not _used and _LEVEL not in os.environ
            if quiet:
                os.environ[_LEVEL] = "99"
            try:
                measured = inside.enter_context(making)
            finally:
                _used = True
                if quiet:
                    del os.environ[_LEVEL]
        yield measured


def _transposes(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor is a matrix that lies column by column."""
    return len(shape) == 2 and strides[0] == 1 and strides[1] != 1


def _is_memory(event: Any) -> bool:
    return bool(event.name() == "[memory]")
