"""Programs with scalars, complex numbers or in-place writes are refused, give a warning, or have PyTorch's results.

A random program may differ from PyTorch only as far as unmodified Thunder does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import thunder
import torch
from hypothesis import HealthCheck, assume, event, given, settings

import workbench
from tests.levers import fuzz, proof
from tests.strategies import Input, RandomProgram, programs
from tests.trial_counts import amount, beyond
from workbench.errors import WorkbenchError
from workbench.runs.measure.tensor_diff import RecordedTensor

MATRIX = Input("x0", (8, 8), "float32", requires_grad=True)
ROUNDINGS = 64
"""The allowed distance from double precision is four times eager's distance plus this number of roundings.

A rounding is the epsilon of the program's least precise data type, times the largest element of the result. If all
elements are less than 1, a rounding is the data type's epsilon. Reason: inputs are about 1 in size; if their mean is
near 0, the mean may be only rounding error.
"""

type Step = dict[str, RecordedTensor]
type Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def replayed(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Compile, tuple[str, ...]]:
    """Return a function that compiles the program with its config, and the warnings of a plan for one graph."""
    bench = workbench.open(function, *args, device="cpu", executor="torch")
    told = () if len(bench.parts) > 1 else bench.plan.warnings
    return lambda _: bench.config.jit(function), told


def far_off(program: RandomProgram, step: Step, eager: Step, double: Step) -> list[str]:
    """Describe each result whose type or shape differs from eager's, or that is too far from double precision."""
    coarsest = next((kind for kind in ("bfloat16", "float16") if kind in repr(program)), "float32")
    found = []
    for name, known in eager.items():
        made = step[name]
        if known.value is None or made.value is None:
            one = known.value if made.value is None else made.value
            found += [name] if one is not None and one.any() else []
            continue
        if (made.value.dtype, made.value.shape) != (known.value.dtype, known.value.shape):
            found.append(f"{name}: {made.value.dtype} {tuple(made.value.shape)}")
            continue
        exact = double[name].value
        assert exact is not None
        exact = exact.to(torch.complex128)
        off, own = ((one.value.to(torch.complex128) - exact).abs().max() for one in (made, known))
        allowed = 4 * own + ROUNDINGS * torch.finfo(getattr(torch, coarsest)).eps * exact.abs().max().clamp(min=1.0)
        if made.value.numel() and not off <= allowed:
            found.append(f"{name} is {off:.3g} from double precision; {allowed:.3g} is allowed")
    return found


@pytest.mark.slow
@pytest.mark.drawn
@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    max_examples=amount(3, 40, 300),
    report_multiple_bugs=False,
)
@given(programs(rare=True) | programs(writes=True) | programs(rare=True, writes=True))
def test_random_programs_give_what_pytorch_gives(drawn: RandomProgram) -> None:
    try:
        program, eager, double = fuzz.with_telling_inputs(drawn)
    except fuzz.Unusable:
        assume(False)
    function, args, _ = program.build()
    try:
        compiled, told = replayed(function, args)
    except WorkbenchError as error:
        event(f"refused: {type(error).__name__}")
        return
    if told:
        event("the plan warns that Thunder gets it wrong")
        return
    found = far_off(program, proof.first_step(program.build, compiled), eager, double)
    if found:
        stock = proof.first_step(program.build, thunder.jit)
        event("unmodified Thunder is as far off")
        assert far_off(program, stock, eager, double) == found, program


MENDED = {
    "a slice of complex numbers": (MATRIX, ("v0 = torch.complex(x0, x0)[:, 2:6]", "v1 = v0.real * v0.imag")),
    "complex numbers as pairs, summed": (MATRIX, ("v0 = torch.view_as_real(torch.complex(x0, x0)).sum(-1)",)),
    "a variance without the mean that comes with it": (MATRIX, ("v0, v1 = torch.var_mean(x0.reshape(-1), 0)",)),
    "a mean in float32 of a bfloat16 tensor, reshaped to one dimension": (
        Input("x0", (8, 8), "bfloat16", requires_grad=True),
        ("v0 = x0.float().mean().reshape(1)", "v1 = x0 - v0"),
    ),
}


@pytest.mark.parametrize("name", beyond(1, MENDED, pytest.mark.slow))
def test_ops_that_thunder_gets_wrong_give_pytorchs_results(name: str) -> None:
    matrix, lines = MENDED[name]
    program = RandomProgram((matrix,), lines, (lines[-1].partition(" ")[0].strip(","),))
    program, eager, double = fuzz.with_telling_inputs(program)
    function, args, _ = program.build()
    compiled, told = replayed(function, args)
    assert told == ()
    assert far_off(program, proof.first_step(program.build, compiled), eager, double) == []
