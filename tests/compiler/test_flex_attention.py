"""`flex_attention`: attention where it has no mask and score function, a part that PyTorch runs where it has both."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import workbench
from workbench.errors import ProgramError


def given() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(1, 2, 16, 8, requires_grad=True) for _ in range(3))


def causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return query >= key


def near(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    return score + (query - key) * 0.1


@pytest.mark.parametrize("capture", ["auto", "parts"])
@pytest.mark.parametrize("options", [{}, {"scale": 0.5}, {"enable_gqa": True}], ids=["plain", "scaled", "grouped"])
def test_without_a_mask_or_a_score_function_it_is_attention_with_eager_pytorchs_gradients(
    options: dict[str, Any], capture: str
) -> None:
    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if options.get("enable_gqa"):
            k, v = k[:, :1], v[:, :1]
        return flex_attention(q * 2, k, v, **options).sin()

    bench = workbench.open(program, *given(), device="cpu", executor="torch", capture=capture)
    plan = bench.parts[0].plan if bench.parts else bench.plan
    assert plan.proof.proven
    sources = [site.source for site in plan.sites if "scaled_dot_product" in site.id]
    assert len(bench.parts) == (capture == "parts")
    assert any("flex_attention(q * 2" in source for source in sources)
    arguments = given()
    known, found = (torch.autograd.grad(f(*arguments).sum(), arguments) for f in (program, bench.config.jit(program)))
    torch.testing.assert_close(found, known)


@pytest.mark.parametrize("options", [{"score_mod": near}, {"return_aux": AuxRequest(lse=True)}], ids=["scored", "sums"])
def test_without_a_mask_it_is_refused_by_line_with_what_to_do(options: dict[str, Any]) -> None:
    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        return flex_attention(q * 2, k, v, **options)

    with pytest.raises(ProgramError, match=r"test_flex_attention\.py:\d+ .*block_mask=create_block_mask") as refused:
        workbench.open(program, *given(), device="cpu", executor="torch")
    assert "torch.vmap" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("options", [{}, {"score_mod": near}, {"scale": 0.5}], ids=["plain", "scored", "scaled"])
def test_a_call_with_a_mask_is_a_part_with_eager_pytorchs_gradients(options: dict[str, Any]) -> None:
    mask = create_block_mask(causal, None, None, 16, 16, device="cpu")

    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return flex_attention(q * 2, k, v, block_mask=mask, **options).sin()

    bench = workbench.open(program, *given(), device="cpu", executor="torch")
    assert len(bench.parts) == 3
    arguments = given()
    known, found = (torch.autograd.grad(f(*arguments).sum(), arguments) for f in (program, bench.config.jit(program)))
    torch.testing.assert_close(found, known)
