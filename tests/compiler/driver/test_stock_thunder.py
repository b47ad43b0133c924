"""Unmodified Thunder as the reference of a run."""

from __future__ import annotations

import pytest
import torch

from workbench.compiler.driver.stock_thunder import compile_unmodified
from workbench.errors import ProgramError


@pytest.mark.slow
def test_the_interpreter_does_not_interpret_the_printing_of_the_error_of_a_refused_operator(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x @ x.t() * torch.eye(2)).sum()

    compiled = compile_unmodified(program, ("thunderfx",))
    with pytest.raises(ProgramError, match=r"thunderfx refuses it.*torch\.eye"):
        compiled(torch.ones(2, 3))
    assert "Call using an FX-traced Module" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_refused_program_with_a_transform_leaves_pytorch_usable() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        slope: torch.Tensor = torch.func.jvp(torch.func.grad(lambda y: y.sin().sum()), (x,), (torch.ones_like(x),))[1]
        return slope.sum()

    x = torch.linspace(0.0, 1.0, 4, requires_grad=True)
    with pytest.raises(ProgramError, match=r"thunderfx refuses it.*thunder\.jit refuses it"):
        compile_unmodified(program, ("thunderfx", "thunder.jit"))(x)
    torch.testing.assert_close(program(x), -x.sin().sum())


@pytest.mark.slow
def test_a_refused_program_with_inference_mode_leaves_pytorch_usable() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            target = x.cos()
        return (x.sin() - target.clone()).sum()

    x = torch.linspace(0.0, 1.0, 4, requires_grad=True)
    # PyTorch's compiler refuses the program, and `thunder.jit` does not.
    torch.testing.assert_close(compile_unmodified(program, ("thunderfx", "thunder.jit"))(x), program(x))
