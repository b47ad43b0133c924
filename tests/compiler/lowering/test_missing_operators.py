"""The command that lists functions of PyTorch that neither Thunder nor the workbench knows."""

import pytest
import torch

import workbench
from tests.missing_operators import main, missing_operators


def test_known_and_decomposed_operators_are_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    lines = dict(line.split(": ") for line in capsys.readouterr().out.splitlines())
    assert lines == {owner: ", ".join(names) for owner, names in missing_operators().items()}
    listed = set(lines["torch"].split(", "))
    assert not listed & {"sin", "hypot", "gradient", "layer_norm"}
    assert not set(lines["Tensor"].split(", ")) & {"pow", "softmax", "add_", "unfold"}


def test_a_program_with_a_listed_operator_opens_in_parts() -> None:
    assert "as_strided_scatter" in missing_operators()["torch"]

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided_scatter(x.sin(), x[0] * 2, (4,), (1,)).sum()

    bench = workbench.open(program, torch.randn(4, 4, requires_grad=True), device="cpu")
    (opaque,) = [part for part in bench.parts if part.opaque]
    assert "Thunder does not know torch.as_strided_scatter" in opaque.refusal
    assert "torch.library.custom_op" in opaque.refusal
