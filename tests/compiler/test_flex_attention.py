"""`flex_attention`: PyTorch runs it as a part if it gets its mask. Without one the reason names the missing mask."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import workbench
from workbench.errors import ProgramError


def given() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(1, 2, 16, 8, requires_grad=True) for _ in range(3))


def causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return query >= key


def near(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    return score + (query - key) * 0.1


@pytest.mark.parametrize("options", [{}, {"score_mod": near}, {"scale": 0.5}], ids=["plain", "scored", "scaled"])
def test_a_call_without_a_mask_is_refused_by_line_with_a_remedy(options: dict[str, Any]) -> None:
    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
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
