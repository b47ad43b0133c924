"""Measure the error of eager PyTorch's own results, and compare results with double precision."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

import torch

from workbench.runs.log.tensor_error import TensorError
from workbench.runs.measure.tensor_diff import (
    FLOOR,
    RELATIVE_TOLERANCE,
    SPREAD,
    OwnError,
    RecordedTensor,
    finite_elements,
    largest_difference,
    size_of,
    tensor_parts,
)

FLOAT64 = "float64"
"""Name of the reference that is the program in eager PyTorch with double precision."""

_TRUSTED = 0.01
"""Largest error of eager PyTorch in float32, as a share, for which rounding alone is taken as the reason."""


@dataclasses.dataclass(frozen=True)
class InDouble:
    """Results of a step in eager PyTorch with double precision.

    Attributes
    ----------
    recorded : dict of str to RecordedTensor
    has_acted : bool
        As in `workbench.runs.measure.in_double.Widening`.
    least : float
        Relative tolerance of the least precise data type among the program's own tensors.
    """

    recorded: Mapping[str, RecordedTensor]
    has_acted: bool = False
    least: float = 0.0

    def trusted_error(self, tensor: RecordedTensor, size: float, least: float) -> float:
        """Return the largest error of eager PyTorch that may come from rounding, for a tensor of this size.

        Code that looks at a data type computes something else if it gets float64 where it asked for float32. The
        difference is then no error of eager PyTorch's, so nothing may be allowed because of it.
        """
        if not self.has_acted or tensor.value is None or tensor.value.dtype not in (torch.float32, torch.complex64):
            return math.inf
        return max(_TRUSTED, 10 * self.least, 10 * least) * size


def _sizes(recorded: Mapping[str, RecordedTensor]) -> dict[str, float]:
    """Return the largest size among the tensors of each kind."""
    sizes: dict[str, float] = {}
    for entry in recorded.values():
        sizes[entry.kind] = max(sizes.get(entry.kind, 0.0), size_of(entry.value))
    return sizes


def own_errors_of(
    eager: Mapping[str, RecordedTensor], double: InDouble | None, least: float = 0.0
) -> dict[str, OwnError]:
    """Return, for each tensor, the largest absolute error of eager PyTorch against double precision.

    Such errors come from rounding. If large terms cancel, these errors are large, whatever the order in which the terms
    are added. An overflow is no such error: it makes an element infinite or NaN, and says nothing about the others.
    Tensors with another meaning in double precision are left out. If the program does not run in double precision, the
    errors are 0.
    """
    if double is None:
        return _zero_errors_of(eager)
    sizes = _sizes(eager)
    errors: dict[str, OwnError] = {}
    for name, entry in double.recorded.items():
        exact, known = entry.value, eager[name].value if name in eager else None
        if exact is not None and known is not None and known.is_floating_point() and exact.shape == known.shape:
            known, exact = known.double(), exact.double()
            finite = finite_elements(exact)
            if tensor_parts(known)[-1].shape == finite.shape:
                error = largest_difference(known, exact, finite & finite_elements(known))
                trusted = double.trusted_error(eager[name], max(size_of(known), FLOOR * sizes[entry.kind]), least)
                if math.isfinite(error) and error <= trusted:
                    errors[name] = OwnError(error, finite)
    return errors


def _zero_errors_of(eager: Mapping[str, RecordedTensor]) -> dict[str, OwnError]:
    # No element is known to be finite in double precision, so that no overflow is excused.
    values = {name: entry.value for name, entry in eager.items() if entry.value is not None}
    return {
        name: OwnError(0.0, torch.zeros_like(finite_elements(value)))
        for name, value in values.items()
        if value.is_floating_point() and not value.is_sparse
    }


def is_unstable(eager: Mapping[str, RecordedTensor], own_errors: Mapping[str, OwnError]) -> bool:
    """Return whether eager PyTorch's own error in some tensor exceeds the tolerance of the tensor's data type."""
    sizes = _sizes(eager)
    for name, own in own_errors.items():
        value = eager[name].value
        allowed = 0.0 if value is None else RELATIVE_TOLERANCE.get(value.dtype, 0.0)
        if own.size > allowed * max(size_of(value), FLOOR * sizes[eager[name].kind]):
            return True
    return False


def larger_errors(
    own_errors: Mapping[str, OwnError], eager: Mapping[str, RecordedTensor], moved: Mapping[str, RecordedTensor]
) -> dict[str, OwnError]:
    """Return eager PyTorch's own errors, each at least the tensor's difference between two steps of eager PyTorch.

    In an unstable program, a tensor with few elements may by chance be close to its result in double precision. The
    second step, whose values are moved by one rounding, shows how far rounding errors move the tensor.
    """
    errors = dict(own_errors)
    for name, own in own_errors.items():
        known, other = eager[name].value, moved[name].value if name in moved else None
        if known is not None and other is not None and known.shape == other.shape and not known.is_sparse:
            among = finite_elements(known) & finite_elements(other)
            errors[name] = dataclasses.replace(own, size=max(own.size, largest_difference(other, known, among)))
    return errors


def compare_in_double(
    recorded: Mapping[str, RecordedTensor],
    eager: Mapping[str, RecordedTensor],
    double: InDouble,
    own_errors: Mapping[str, OwnError],
    least: float,
) -> Iterator[TensorError]:
    """Compare the finite elements of the recorded tensors with results in double precision.

    The tolerance is the dtype's tolerance, or `least` if that is larger, plus `SPREAD` times eager's own error.
    """
    left_out = {name: entry for name, entry in double.recorded.items() if name not in own_errors}
    untrusted = own_errors_of(eager, InDouble(left_out))
    sizes = _sizes(double.recorded)
    for name, entry in double.recorded.items():
        exact, ours = entry.value, recorded[name].value if name in recorded else None
        if exact is None or ours is None or not entry.changed or name not in {*own_errors, *untrusted}:
            continue
        if name in untrusted:
            size = size_of(eager[name].value)
            yield TensorError(
                name=name,
                against=FLOAT64,
                dtype=str(ours.dtype).removeprefix("torch."),
                max_abs_error=untrusted[name].size,
                max_rel_error=untrusted[name].size / size if size > 0 else math.inf,
                tolerance=math.inf,
                ok=True,
                lacks=FLOAT64,
            )
            continue
        ours, dtype = ours.double(), ours.dtype
        finite = own_errors[name].finite
        # Elements that are not finite are compared with eager PyTorch's.
        among = finite & finite_elements(ours) if finite.shape == tensor_parts(ours)[-1].shape else None
        worst, size = largest_difference(ours, exact.double(), among), size_of(exact)
        relative = RELATIVE_TOLERANCE.get(dtype, 0.0)
        relative = max(relative, least) if relative else 0.0
        tolerance = SPREAD * own_errors[name].size + relative * max(size, FLOOR * sizes.get(entry.kind, 0.0))
        yield TensorError(
            name=name,
            against=FLOAT64,
            dtype=str(dtype).removeprefix("torch."),
            max_abs_error=worst,
            max_rel_error=worst / size if size > 0 else (0.0 if worst == 0 else math.inf),
            tolerance=tolerance,
            ok=worst <= tolerance,
        )
