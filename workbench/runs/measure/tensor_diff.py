"""Compare the results of two steps tensor by tensor, either bitwise or within a tolerance."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Iterator, Mapping
from types import MappingProxyType

import torch

from workbench.analysis.memory.allocator import dense_parts
from workbench.runs.log.tensor_error import THIS_RUN, TensorError

RELATIVE_TOLERANCE: Mapping[torch.dtype, float] = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
    torch.complex64: 1e-4,
    torch.complex128: 1e-9,
}
"""Largest error allowed for each dtype, as a share of the reference's largest element.

Tensors of other dtypes must be equal.

Reordered sums, as in a fusion, cause errors far below this share; a wrong gradient causes errors far above it. The
share refers to the largest element, because an element whose terms cancel to almost zero has the error of these terms.
"""

FLOOR = 0.1
"""Smallest size to which `RELATIVE_TOLERANCE` is applied, as a share of the largest element of all tensors of one kind.

All gradients are of one kind, all outputs of another. This minimum is needed because some gradients consist only of
rounding errors. Examples are the gradients of a bias before a normalization, and of a key's bias in attention.
"""

SPREAD = 4.0
"""Multiple of eager's own error against double precision that is added to the tolerance.

A result may consist only of rounding errors, such as the gradient through a batch norm over two values. If the same
arithmetic is done in two orders, such results differ by as much as their size. A share of the size is therefore not a
usable tolerance. However, the largest error among many elements is similar for both orders. For a well-conditioned
program, the added error is negligible.
"""


@dataclasses.dataclass(frozen=True)
class RecordedTensor:
    """One tensor after a step, on the CPU.

    Attributes
    ----------
    kind : str
        ``output``, ``grad``, ``args``, ``kwargs``, ``buffer`` or ``parameter``.
    value : torch.Tensor, optional
        The tensor; None if a gradient was not computed.
    changed : bool
        Whether the step wrote to the tensor. A buffer or input without a write is reported only if it differs.
    """

    kind: str
    value: torch.Tensor | None
    changed: bool = True


@dataclasses.dataclass(frozen=True)
class OwnError:
    """Eager PyTorch's own error in one tensor: its largest difference from a result in double precision.

    Attributes
    ----------
    size : float
        The largest absolute difference, among the elements that are finite in both. If the program is unstable, also
        the largest difference between steps of eager PyTorch whose values are one rounding apart.
    finite : torch.Tensor
        For each element, whether it is finite in double precision. Where the reference overflowed and this run did not,
        this run is compared with double precision only.
    """

    size: float
    finite: torch.Tensor


def compare_tensors(
    recorded: Mapping[str, RecordedTensor],
    expected: Mapping[str, RecordedTensor],
    reference_name: str,
    *,
    exact: bool = False,
    unsteady: Container[str] = (),
    own_errors: Mapping[str, OwnError] = MappingProxyType({}),
    least: float = 0.0,
) -> Iterator[TensorError]:
    """Compare the results of two steps, tensor by tensor.

    Parameters
    ----------
    recorded, expected : mapping of str to RecordedTensor
        The step to check, and the reference.
    reference_name : str
        Name of the reference.
    exact : bool
        Whether every bit must equal the reference's.
    unsteady : container of str
        Names of tensors for which `RELATIVE_TOLERANCE` is allowed even with `exact`, because the reference itself
        differs between runs.
    own_errors : mapping of str to OwnError
        For each tensor's name, eager's error against double precision; `SPREAD` times this error is also allowed.
    least : float
        Minimum relative tolerance of every floating-point tensor, because the computation may use a lower precision
        than the tensor's.

    Yields
    ------
    TensorError
        One result for each name in either step, except for tensors within their tolerance to which neither step wrote.
        A tensor that only one step has is never right, unless it is a gradient of zeros. `TensorError.lacks` names the
        side that lacks it.
    """
    sizes: dict[str, float] = {}
    for entry in expected.values():
        sizes[entry.kind] = max(sizes.get(entry.kind, 0.0), size_of(entry.value))
    for name in dict.fromkeys([*expected, *recorded]):
        kind = expected[name].kind if name in expected else recorded[name].kind
        ours = recorded[name].value if name in recorded else None
        theirs = expected[name].value if name in expected else None
        if kind == "grad" and (ours is None) != (theirs is None):
            # Eager returns None as the gradient of an argument that affects no result; a part returns zeros, as
            # `torch.compile` does. Treat None and zeros as equal.
            zeros = ours if theirs is None else theirs
            if zeros is not None and not zeros.any():
                ours = theirs = zeros
        demanded = exact and name not in unsteady
        own, largest = own_errors.get(name), sizes.get(kind, 0.0)
        error = _error(name, reference_name, ours, theirs, largest, exact=demanded, own_error=own, least=least)
        if not error.ok or any(name in step and step[name].changed for step in (recorded, expected)):
            yield error


def tensors_with_other_bits(
    first: Mapping[str, RecordedTensor], second: Mapping[str, RecordedTensor]
) -> frozenset[str]:
    """Return the names of the tensors that are not bitwise equal in two steps."""
    return frozenset(
        name
        for name in {*first, *second}
        if name not in first or name not in second or not have_same_bits(first[name].value, second[name].value)
    )


def _error(
    name: str,
    reference_name: str,
    ours: torch.Tensor | None,
    theirs: torch.Tensor | None,
    largest: float,
    *,
    exact: bool,
    own_error: OwnError | None,
    least: float,
) -> TensorError:
    known = theirs if theirs is not None else ours
    dtype = str(known.dtype).removeprefix("torch.") if known is not None else ""
    size = size_of(theirs)
    relative = RELATIVE_TOLERANCE.get(theirs.dtype, 0.0) if theirs is not None else 0.0
    relative = max(relative, least) if relative else 0.0
    tolerance = 0.0 if exact else relative * max(size, FLOOR * largest)
    among = None
    if own_error is not None and not exact:
        tolerance += SPREAD * own_error.size
        if ours is not None and theirs is not None and _have_same_form(ours, theirs):
            # This run did not overflow where the reference did: its kernels may round less often.
            among = finite_elements(theirs) | ~(own_error.finite & finite_elements(ours))
    bitwise, worst = have_same_bits(ours, theirs), largest_difference(ours, theirs, among)
    if worst == 0:
        share = 0.0
    else:
        share = worst / size if size > 0 else math.inf
    return TensorError(
        name=name,
        against=reference_name,
        dtype=dtype,
        max_abs_error=worst,
        max_rel_error=share,
        tolerance=tolerance,
        ok=bitwise if exact else worst <= tolerance,
        bitwise=bitwise,
        lacks="" if (ours is None) == (theirs is None) else THIS_RUN if ours is None else reference_name,
    )


def largest_difference(
    ours: torch.Tensor | None, theirs: torch.Tensor | None, among: torch.Tensor | None = None
) -> float:
    """Return the largest absolute difference of corresponding elements; infinite if an element has no counterpart.

    If `among` is given, only the elements for which it is true are compared.
    """
    if ours is None and theirs is None:
        return 0.0
    if ours is None or theirs is None or not _have_same_form(ours, theirs):
        return math.inf
    one, other = to_double(tensor_parts(ours)[-1]), to_double(tensor_parts(theirs)[-1])
    if one.numel() == 0:
        return 0.0
    # Equal infinities, and NaN in both tensors, count as no difference.
    same = (one == other) | (one.isnan() & other.isnan())
    if among is not None:
        same |= ~among
    difference = torch.where(same, 0.0, (one - other).abs())
    return float(torch.where(difference.isnan(), math.inf, difference).max())


def have_same_bits(ours: torch.Tensor | None, theirs: torch.Tensor | None) -> bool:
    """Return whether two tensors have the same shape, dtype and bits. 0.0 and -0.0 differ; equal NaNs do not."""
    if ours is None or theirs is None:
        return ours is theirs
    return _have_same_form(ours, theirs) and bool(
        torch.equal(_as_bytes(tensor_parts(ours)[-1]), _as_bytes(tensor_parts(theirs)[-1]))
    )


def tensor_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensors that hold a tensor's data: the tensor itself, or a sparse tensor's indices and elements.

    The elements are last, and elements of a sparse tensor with equal indices are added.
    """
    return dense_parts(tensor.coalesce() if tensor.is_sparse else tensor)


def _have_same_form(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Return whether two tensors have the same shape, dtype and layout and, if they are sparse, the same indices."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype or ours.layout != theirs.layout:
        return False
    return all(map(torch.equal, tensor_parts(ours)[:-1], tensor_parts(theirs)[:-1]))


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def to_double(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in double precision; complex numbers become pairs."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.to(torch.float64)


def finite_elements(tensor: torch.Tensor) -> torch.Tensor:
    """Return, for each element that `largest_difference` compares, whether it is finite."""
    return to_double(tensor_parts(tensor)[-1]).isfinite()


def size_of(tensor: torch.Tensor | None) -> float:
    """Return the largest magnitude among a tensor's finite elements; 0 if it has none."""
    held = None if tensor is None else tensor_parts(tensor)[-1]
    if held is None or held.numel() == 0:
        return 0.0
    return float(torch.nan_to_num(to_double(held).abs(), nan=0.0, posinf=0.0).max())
