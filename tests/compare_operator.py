"""Compare an operator under the workbench with eager PyTorch, for several data types and special values.

The command is ``python -m tests.compare_operator 'torch.sinc(x)'``. The expression may read two tensors, ``x`` and
``y``. Each data type gets one line: the largest difference of the values and of the gradients, as a share of the
largest finite element, and the number of elements that are NaN or infinite on one side only.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

import workbench
from workbench.errors import WorkbenchError

SPECIAL = (0.0, -0.0, 1.0, 1e-45, 1e30, math.inf, -math.inf, math.nan)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.bool)


def inputs(dtype: torch.dtype) -> list[torch.Tensor]:
    """Return two tensors with random elements, in which each special value meets each other one."""
    generator, special = torch.Generator().manual_seed(0), torch.tensor(SPECIAL)
    pairs = torch.cartesian_prod(special, special).T
    made = [torch.cat([torch.randn(36, generator=generator), row]) for row in pairs]
    if not (dtype.is_floating_point or dtype.is_complex):
        made = [(each.nan_to_num(0, 2, -2) * 3).clamp(-9, 9) for each in made]
    found = [each.to(dtype) for each in made]
    return [each.requires_grad_(dtype.is_floating_point or dtype.is_complex) for each in found]


def results(run: Callable[..., torch.Tensor], given: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """Return the value, and the gradients of both inputs."""
    made = run(*given)
    if not made.requires_grad:
        return [made, None, None]
    weights = torch.linspace(0.5, 1.5, made.numel()).reshape(made.shape).to(made.dtype)
    loss = (made * weights).sum()
    gradients = torch.autograd.grad(loss.real if loss.is_complex() else loss, given, allow_unused=True)
    return [made.detach(), *gradients]


def difference(ours: torch.Tensor | None, eager: torch.Tensor | None) -> str:
    """Describe the difference of two tensors."""
    if ours is None or eager is None:
        return "equal" if ours is eager else "missing on one side"
    if (ours.dtype, ours.shape) != (eager.dtype, eager.shape):
        return f"{ours.dtype} {tuple(ours.shape)} instead of {eager.dtype} {tuple(eager.shape)}"
    one, other = ours.to(torch.complex128), eager.to(torch.complex128)
    finite = one.isfinite() & other.isfinite()
    same = (one == other) | (one.isnan() & other.isnan())
    odd = int((~finite & ~same).sum())
    scale = float(other[finite].abs().max()) if finite.any() else 1.0
    most = float((one - other)[finite].abs().max()) / (scale or 1.0) if finite.any() else 0.0
    return ("equal" if not most else f"{most:.1e}") + (f", {odd} NaN or infinite on one side only" if odd else "")


def compare(expression: str) -> list[str]:
    """Return a line for each data type that eager PyTorch takes."""
    space: dict[str, Any] = {"torch": torch}
    exec(f"def program(x, y):\n    return {expression}\n", space)
    program, lines = space["program"], []
    for dtype in DTYPES:
        given = inputs(dtype)
        try:
            eager = results(program, given)
        except (RuntimeError, NotImplementedError, TypeError) as error:
            lines.append(f"{dtype}: eager PyTorch refuses it ({str(error).partition(chr(10))[0]})")
            continue
        try:
            bench = workbench.open(program, *given, device="cpu", executor="torch")
            ours = results(bench.config.jit(program), given)
        except WorkbenchError as error:
            lines.append(f"{dtype}: refused ({str(error).partition(chr(10))[0]})")
            continue
        told = [difference(*pair) for pair in zip(ours, eager, strict=True)]
        parts = f" ({len(bench.parts)} parts)" if bench.parts else ""
        lines.append(f"{dtype}: value {told[0]}; gradient of x {told[1]}, of y {told[2]}{parts}")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Write the lines for the expression to standard output."""
    warnings.simplefilter("ignore")
    sys.stdout.write("\n".join(compare(arguments[0])) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
