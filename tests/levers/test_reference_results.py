"""The two references, eager PyTorch and unmodified Thunder, differ only for programs that Thunder gets wrong.

If a later Thunder gives right results for one of these programs, the program's test fails. Then remove the program.
Larger programs are in `test_known_wrong_results.py`.
"""

from __future__ import annotations

import pytest
import torch

from tests.levers import proof
from tests.strategies import Input, RandomProgram

MATRIX = Input("x0", (8, 8), "float32", requires_grad=True)

EXHIBITS = {
    # Thunder saves the mean for the gradient of the variance, and runs the write into the mean before it computes this
    # gradient. Eager PyTorch is right, because its backward computes the mean again.
    "a value that the gradient reads is written in place": RandomProgram(
        (MATRIX,), ("v0, v1 = torch.var_mean(x0, 1)", "v1.add_(v1)"), ("v0",)
    ),
    # The scalar and the matrix have different data types. Thunder does not sum the scalar's gradient, so the gradient
    # keeps the shape of the matrix. Thunder then adds the gradient of the other output to each element. Without another
    # output, the fault is not visible, because autograd sums the gradient at the end.
    "a scalar of one data type multiplies a matrix of another": RandomProgram(
        (Input("x0", (), "float32", requires_grad=True), Input("x1", (8, 8), "float64", requires_grad=True)),
        ("v0 = x0 + x0", "v1 = (v0 * x1).mean()"),
        ("v1", "v0"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXHIBITS)
def test_unmodified_thunder_differs_from_eager(name: str) -> None:
    program = EXHIBITS[name]
    assert "grad(args[0])" in proof.reference(program.build, program.build_eager).exhibit


def test_a_program_that_thunder_gets_right_is_not_an_exhibit() -> None:
    program = RandomProgram((MATRIX,), ("v0 = torch.tanh(x0) @ x0",), ("v0",))
    assert proof.reference(program.build, program.build_eager).exhibit == ""


def test_eager_uses_the_dropout_masks_that_thunder_draws() -> None:
    program = RandomProgram((MATRIX,), ("v0 = F.dropout(x0, 0.5)", "v1 = F.dropout(torch.sin(v0), 0.25)"), ("v1",))
    known = proof.reference(program.build, program.build_eager)
    assert known.exhibit == ""
    assert torch.count_nonzero(known.expected["eager"]["output"].value) < 64
