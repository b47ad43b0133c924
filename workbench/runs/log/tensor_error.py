"""`TensorError`: the difference between a run's tensor and the reference's tensor."""

from __future__ import annotations

import dataclasses
import math

THIS_RUN = "this run"
"""Value of `TensorError.lacks` if the run itself lacks a tensor."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorError:
    """Difference between a run's tensor and the reference's tensor.

    Attributes
    ----------
    name : str
        Name of the tensor, such as ``output``, ``grad(layers.0.weight)``, ``buffer(running_mean)`` or ``args[0]``.
    against : str
        Name of the reference, such as ``thunder.jit``, ``eager`` or ``float64``.
    dtype : str
    max_abs_error : float
        Largest absolute difference between corresponding elements. Infinite if the shapes or dtypes differ, if an
        element is NaN in only one of the tensors, or if one side lacks the tensor.
    max_rel_error : float
        `max_abs_error` as a share of the reference's largest element.
    bitwise : bool or None
        Whether the two tensors have the same bits; None in older logs, which lack this entry.
    tolerance : float
        Largest `max_abs_error` allowed; 0 if every bit must equal the reference's.
    ok : bool
    lacks : str
        Side that lacks the tensor: `THIS_RUN` or the name of the reference; empty if both sides have it.
    """

    name: str
    against: str
    dtype: str
    max_abs_error: float
    max_rel_error: float
    tolerance: float
    ok: bool
    bitwise: bool | None = None
    lacks: str = ""

    @property
    def severity(self) -> float:
        """Ratio of `max_abs_error` to the tolerance; more than 1 if the tensor is not `ok`."""
        if self.max_abs_error == 0:
            return 0.0 if self.ok else math.inf
        return self.max_abs_error / self.tolerance if self.tolerance > 0 else math.inf

    @property
    def difference(self) -> str:
        """Words for the difference: the side that lacks the tensor, or the largest difference."""
        if not self.lacks:
            return f"{self.name} differs from {self.against} by {self.max_abs_error:.3g}"
        has = self.against if self.lacks == THIS_RUN else THIS_RUN
        verb = "does not write" if self.name.startswith("parameter(") else "lacks"
        return f"{self.lacks} {verb} {self.name}, which {has} {'writes' if verb != 'lacks' else 'has'}"
