"""For a fusion, a plan shows nvFuser's definition, or the statements that torch.compile compiles."""

from __future__ import annotations

import pytest

import workbench
from workbench.core.executor import why_no_nvfuser
from workbench.errors import PlanError

needs_nvfuser = pytest.mark.skipif(bool(why_no_nvfuser()), reason=why_no_nvfuser() or "-")


def program(x, y):
    return (x @ y).sin().exp().sum()


@pytest.fixture(scope="module")
def tensors():
    import torch

    return torch.randn(4, 8), torch.randn(8, 4)


def fusions(plan) -> list[str]:
    return [name for name in plan.graph.statements.name if name.startswith(("nvFusion", "TorchCompile"))]


@needs_nvfuser
def test_the_definition_of_an_nvfuser_fusion_has_its_ops_and_shapes(tensors) -> None:
    plan = workbench.open(program, *tensors, device="planned", executor="nvfuser").plan
    code = plan.code(fusions(plan)[0])
    assert code.kind == "nvFuser's definition"
    assert "sinf" in code.text
    assert "expf" in code.text
    assert "matmul" not in code.text
    assert "{4}" in code.text


def test_a_region_has_the_statements_that_are_compiled(tensors) -> None:
    plan = workbench.open(program, *tensors, device="cpu", executor="torchcompile").plan
    code = plan.code(fusions(plan)[0])
    assert code.kind == "the statements that torch.compile is given"
    assert [
        word for line in code.text.splitlines() for word in ("sin", "exp", "sum", "matmul") if f".{word}(" in line
    ] == [
        "sin",
        "exp",
        "sum",
    ]


def test_a_missing_fusion_is_refused(tensors) -> None:
    fused = workbench.open(program, *tensors, device="cpu", executor="torchcompile").plan
    with pytest.raises(PlanError, match=r"there is no fusion 'TorchCompile9' in this plan; did you mean TorchCompile"):
        fused.code("TorchCompile9")
    plain = workbench.open(program, *tensors, device="cpu", executor="torch").plan
    with pytest.raises(PlanError, match="there is no fusion 'nvFusion0': nothing is fused in this plan"):
        plain.code("nvFusion0")
