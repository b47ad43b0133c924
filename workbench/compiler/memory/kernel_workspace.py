"""Measure the workspace that a CPU kernel allocates internally. Fake tensors do not show it, so run the kernel."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch.autograd.profiler import profile

from workbench.interop.torch_private import _autograd, _disable_current_modes, tree_flatten, tree_unflatten

MOST_BYTES = 1 << 30
"""A kernel whose inputs have more bytes is not measured."""
MOST_FLOPS = 4_000_000_000
"""A kernel with more floating point operations is not measured, because it takes more than about one second."""

_ALWAYS = (
    *("conv", "interpolate", "upsample", "scaled_dot_product", "sdpa", "pool", "sort", "topk"),
    *("loss", "entropy", "kl_div", "vjp", "matrix_exp"),
)
_WITH_ONES = ("matrix_exp", "cumprod", "lu_solve", "ldl_solve", "lu_unpack")
"""Kernels that are measured with ones.

For zeros, a matrix exponential needs the least memory, and the gradient of a cumulative product the most. LAPACK counts
pivots from one and does not check them: zeros make it write outside of its memory, which ends the process.
"""
_ALONG = ("softmax", "norm", "cum", "scatter", "index", "embedding", "gather", "shuffle")
_MATRICES = ("matmul", "linear", "bmm", "addmm", "einsum")
_COPIES = ("copy", "clone", "contiguous", "reshape", "flatten", "masked_fill")
_SUMS = ("sum", "mean", "prod", "var", "std")
_CONVERSIONS = ("to", "convert_element_type")
_SINGLE = torch.float32.itemsize

WRITES = "copy_"
"""Name prefix of symbols that make no new tensor, but whose kernels may allocate workspace."""


def allocates_inside(name: str, tensors: Sequence[torch.Tensor], flops: int) -> bool:
    """Return whether a symbol's CPU kernel must be measured, because it may allocate more than fake tensors show.

    Convolutions, pooling, sorting and attention reorder their operands. Losses, and gradients that PyTorch's autograd
    computes (``vjp``), run several kernels one after the other. Matrix products pack an operand that BLAS cannot read
    directly: a matrix without a unit stride, or a row that is expanded to many rows. oneDNN computes products in half
    precision, and packs every operand. Kernels that work along one dimension make their operands contiguous. A copy
    that transposes a matrix works block by block. Elementwise kernels accept any strides, but convert operands if the
    data types differ. Sums convert values that are not floating point. Sums in half precision may convert to single
    precision.

    Parameters
    ----------
    name : str
        Name of the symbol.
    tensors : sequence of Tensor
        The inputs of the statement, as fake tensors.
    flops : int
        Floating point operations of the statement. Above `MOST_FLOPS`, the result is False.
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
    # The boolean condition of a `where` is not converted.
    dtypes = {t.dtype for t in tensors if t.dim() and not (name == "where" and t.dtype == torch.bool)}
    return len(dtypes) > 1 or any(not dtype.is_floating_point for dtype in dtypes)


def _blas_reads(tensor: torch.Tensor) -> bool:
    """Return whether BLAS can read a tensor directly.

    The last two dimensions must be a row-major or column-major matrix, and no dimension may be expanded.
    """
    (rows, columns), (down, across) = tensor.shape[-2:], tensor.stride()[-2:]
    plain = (across == 1 or columns == 1) and (down >= columns or rows == 1)
    transposed = (down == 1 or rows == 1) and (across >= rows or columns == 1)
    return (plain or transposed) and 0 not in tensor.stride()


def peak_inside_bytes(
    text: str, namespace: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], name: str = ""
) -> int | None:
    """Return the most bytes that a statement holds at once on a CPU, without its inputs.

    Parameters
    ----------
    text : str
        Python source of the statement.
    namespace : mapping
        Values of the names in `text` that are not tensors.
    tensors : mapping of str to Tensor
        The inputs of the statement, as fake tensors. The kernel runs on zeros with the same shapes, strides and data
        types.
    name : str, optional
        Name of the symbol. A symbol in `_WITH_ONES` runs on ones.

    Returns
    -------
    int or None
        None if the inputs are not on a CPU or exceed `MOST_BYTES`, or if the kernel refuses zeros as inputs. Also None
        inside of a profiler, which a second profiler would end.
    """
    nbytes = sum(tensor.untyped_storage().nbytes() for tensor in tensors.values())
    if nbytes > MOST_BYTES or any(tensor.device.type != "cpu" for tensor in tensors.values()) or _is_profiled():
        return None
    real = {name: (tensor.shape, tensor.stride(), tensor.dtype) for name, tensor in tensors.items()}
    return _measure_peak(text, namespace, real, _fill_value(name))


def _fill_value(name: str) -> float:
    return float(any(each in name for each in _WITH_ONES))


@dataclasses.dataclass(frozen=True)
class KernelCall:
    """A call of an operator whose CPU kernel must be measured; see `allocates_inside`. It holds no tensors.

    Attributes
    ----------
    key : tuple
        The operator, and the properties of its arguments on which the memory depends. Calls with equal keys are equal.
    leaves : tuple
        The arguments; `_Like` in place of a tensor.
    tree : TreeSpec
        Structure of the arguments.
    is_measurable : bool
        Whether the kernel is small enough to be run.
    """

    key: tuple[Any, ...]
    leaves: tuple[Any, ...] = dataclasses.field(compare=False)
    tree: Any = dataclasses.field(compare=False)
    is_measurable: bool

    def inside_bytes(self) -> int | None:
        """Return the most bytes that the kernel holds at once, without its inputs; None if it cannot be measured."""
        return _measure_call(self) if self.is_measurable and not _is_profiled() else None


@dataclasses.dataclass(frozen=True)
class _Like:
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


def call_to_measure(func: Any, args: Any, kwargs: Any, flops: int) -> KernelCall | None:
    """Return the call of an operator on strided CPU tensors, or None if the operator allocates only its results.

    Parameters
    ----------
    func : OpOverload
    args, kwargs
        Arguments of the operator, with fake tensors or with tensors that have values.
    flops : int
        Floating point operations of the operator.
    """
    leaves, tree = tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    # Pass no operations: a kernel that takes too long to be measured may allocate as much as a small one.
    if not tensors or not allocates_inside(_name_of(func), tensors, 0):
        return None
    if any(tensor.device.type != "cpu" or tensor.layout is not torch.strided for tensor in tensors):
        return None
    likes = tuple(
        _Like(tuple(leaf.shape), leaf.stride(), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf
        for leaf in leaves
    )
    key = (func, *(leaf if isinstance(leaf, _Like) else repr(leaf) for leaf in likes))
    nbytes = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
    return KernelCall(key, likes, tree, nbytes <= MOST_BYTES and flops <= MOST_FLOPS)


@functools.lru_cache(maxsize=4096)
def _measure_call(call: KernelCall) -> int | None:
    func = call.key[0]
    tensors = {f"t{at}": like for at, like in enumerate(call.leaves) if isinstance(like, _Like)}

    def run(**given: torch.Tensor) -> Any:
        filled = [given.get(f"t{at}", leaf) for at, leaf in enumerate(call.leaves)]
        positional, named = tree_unflatten(filled, call.tree)
        return func(*positional, **named)

    text = f"made = run({', '.join(f'{name}={name}' for name in tensors)})"
    inputs = {name: (like.shape, like.strides, like.dtype) for name, like in tensors.items()}
    return _measure_peak(text, {"run": run}, inputs, _fill_value(_name_of(func)))


def _name_of(func: Any) -> str:
    return str(func._overloadpacket.__name__).strip("_")


def copy_inside_bytes(
    shape: tuple[int, ...], strides: tuple[int, ...], into: tuple[int, ...], dtype: torch.dtype
) -> int:
    """Return the most bytes that a copy on a CPU holds at once, without its source and destination.

    Parameters
    ----------
    shape : tuple of int
        Shape of source and destination.
    strides, into : tuple of int
        Strides of the source and of the destination, in elements.
    dtype : torch.dtype
        Data type of source and destination.
    """
    if math.prod(shape) * dtype.itemsize > MOST_BYTES or not _transposes(shape, strides) or _is_profiled():
        return 0
    return _measure_copy(shape, strides, into, dtype)


@functools.lru_cache(maxsize=4096)
def _measure_copy(shape: tuple[int, ...], strides: tuple[int, ...], into: tuple[int, ...], dtype: torch.dtype) -> int:
    return _measure_peak("into.copy_(given)", {}, {"given": (shape, strides, dtype), "into": (shape, into, dtype)}) or 0


def _is_profiled() -> bool:
    """Return whether a profiler runs. A second profiler would end it."""
    return bool(_autograd._profiler_enabled())


def _measure_peak(
    text: str,
    namespace: Mapping[str, Any],
    tensors: Mapping[str, tuple[Sequence[int], Sequence[int], torch.dtype]],
    value: float = 0.0,
) -> int | None:
    # Restore the state of PyTorch's generator, so that the user's program draws the same numbers as without this run.
    with _disable_current_modes(), torch.no_grad(), torch.random.fork_rng(devices=()):
        try:
            real = {
                name: torch.empty_strided(tuple(shape), tuple(strides), dtype=dtype).fill_(value)
                for name, (shape, strides, dtype) in tensors.items()
            }
            # Measure the second run, because the first run may also pack weights into memory that stays allocated.
            exec(text, {**namespace, **real})
            scope = {**namespace, **real}
            with _profile() as measured:
                exec(text, scope)
        except Exception:  # noqa: BLE001 - each kernel may refuse zeros with its own error
            return None
    events = sorted(
        ((event.start_ns(), event.nbytes()) for event in measured.kineto_results.events() if _is_memory(event)),
        key=lambda event: event[0],
    )
    return max(accumulate((nbytes for _, nbytes in events), initial=0))


_FIRST = threading.Lock()
_LEVEL = "KINETO_LOG_LEVEL"
_used = False


@contextlib.contextmanager
def _profile() -> Iterator[Any]:
    """Inside this context, run PyTorch's profiler without its message about a missing GPU driver.

    At its first use, the profiler would print the message under the user's cell. The profiler reads its log level from
    the environment when it starts. Therefore this function sets the variable, and removes it right after the start.
    """
    global _used
    # `torch.profiler.profile` would warn that it drops events, or else convert each event to a Python object.
    making = profile(profile_memory=True)
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
    """Return whether a tensor is a column-major matrix."""
    return len(shape) == 2 and strides[0] == 1 and strides[1] != 1


def _is_memory(event: Any) -> bool:
    return bool(event.name() == "[memory]")
