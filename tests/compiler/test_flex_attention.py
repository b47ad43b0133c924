"""`flex_attention` becomes equivalent operators or, if that is impossible, an opaque part that PyTorch runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from packaging.version import Version
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

import workbench
from tests.trial_counts import beyond, combined
from workbench.errors import ProgramError
from workbench.interop.private_api import installed_torch

DIFFERENTIABLE = Version(installed_torch()) < Version("2.11")
"""PyTorch 2.11 and later refuse to differentiate `flex_attention` on a CPU. With them, only the forward is compared."""


def given() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(1, 2, 16, 8, requires_grad=DIFFERENTIABLE) for _ in range(3))


def causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return query >= key


def near(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    return score + (query - key) * 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "capture"), combined([{}, {"scale": 0.5}, {"enable_gqa": True}], ["auto", "parts"])
)
def test_flex_attention_without_a_mask_or_score_function_becomes_attention(
    options: dict[str, Any], capture: str
) -> None:
    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if options.get("enable_gqa"):
            k, v = k[:, :1], v[:, :1]
        return flex_attention(q * 2, k, v, **options).sin()

    bench = workbench.open(program, *given(), device="cpu", executor="torch", capture=capture)
    plan = bench.parts[0].plan if bench.parts else bench.plan
    assert plan.proof.proven
    assert len(bench.parts) == (capture == "parts")
    (correction,) = [found for found in plan.corrections if found.name == "flex_attention"]
    assert any("flex_attention(q * 2" in line for line in correction.lines)
    if DIFFERENTIABLE:  # else there is nothing to save
        sources = [site.source for site in plan.sites if "scaled_dot_product" in site.id]
        assert any("flex_attention(q * 2" in source for source in sources)
    torch.testing.assert_close(results(bench.config.jit(program)), results(program))


SLOPES, DOCUMENTS = torch.tensor([0.5, 0.25]), torch.tensor([[0] * 8 + [1] * 8])
BIAS, BY = torch.linspace(-1, 1, 62).reshape(2, 31).requires_grad_(), torch.tensor(2.0, requires_grad=True)


def sloped(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    return 20 * torch.tanh((score - SLOPES[head] * (query - key)) / 20)


def learned(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    return score * BY + BIAS[head, query - key]


def late(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    return torch.where((query >= key) & (query > 3), score, -float("inf"))


def same_document(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return (query >= key) & (DOCUMENTS[batch, query] == DOCUMENTS[batch, key])


def late_queries(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return (query >= key) & (query > 3)


def of(mask: Any) -> Any:
    return create_block_mask(mask, 1, None, 16, 16, device="cpu")


def results(program: Callable[..., Any], *more: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the output, and the gradients if PyTorch can compute them."""
    arguments = given()
    out = program(*arguments)
    gradients = torch.autograd.grad(out.sum(), (*arguments, *more)) if DIFFERENTIABLE else ()
    return (out, *gradients)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    "options",
    beyond(
        4,
        [
            {"score_mod": near},
            {"score_mod": near, "scale": 0.5},
            {"score_mod": near, "enable_gqa": True},
            {"score_mod": sloped},
            {"score_mod": late},
            {"block_mask": of(causal)},
            {"block_mask": of(same_document), "score_mod": near},
            {"block_mask": of(late_queries)},
        ],
    ),
    ids=["near", "scaled", "grouped", "sloped", "late", "causal", "documents", "late queries"],
)
def test_flex_attention_with_masks_and_score_functions_becomes_operators(
    options: dict[str, Any],
) -> None:
    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if options.get("enable_gqa"):
            k, v = k[:, :1], v[:, :1]
        return flex_attention(q * 2, k, v, **options).sin()

    bench = workbench.open(program, *given(), device="cpu", executor="torch")
    assert bench.plan.proof.proven
    (correction,) = bench.plan.corrections
    assert any("flex_attention(q * 2" in line for line in correction.lines)
    compiled = bench.config.jit(program)
    torch.testing.assert_close(results(compiled), results(program))


@pytest.mark.slow
def test_tensors_that_a_score_function_reads_get_gradients() -> None:
    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return flex_attention(q, k, v, score_mod=learned)

    def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        at = torch.arange(16)
        scores = q @ k.transpose(-2, -1) / math.sqrt(8) * BY + BIAS[:, at[:, None] - at]
        return scores.softmax(-1) @ v

    bench = workbench.open(program, *given(), device="cpu", executor="torch")
    torch.testing.assert_close(results(bench.config.jit(program), BIAS, BY), results(by_hand, BIAS, BY))


@pytest.mark.slow
def test_a_checkpointed_flex_attention_becomes_operators() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        return flex_attention(q * 2, k, v, score_mod=near)

    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        return checkpoint(attend, q, k, v, use_reentrant=False)

    bench = workbench.open(program, *given(), device="cpu", executor="torch")
    assert [found.name for found in bench.plan.corrections] == ["flex_attention"]
    torch.testing.assert_close(results(bench.config.jit(program)), results(attend))


@pytest.mark.slow
def test_layers_with_different_score_functions_give_the_results_of_eager() -> None:
    class Layer(torch.nn.Module):
        def __init__(self, score: Any) -> None:
            super().__init__()
            self.score, self.linear = score, torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> Any:
            return x + flex_attention(self.linear(x), x, x, score_mod=self.score)

    module, x = torch.nn.Sequential(*map(Layer, (near, sloped, near))).requires_grad_(DIFFERENTIABLE), given()[0]
    bench = workbench.open(module, x, device="cpu", executor="torch")
    torch.testing.assert_close(bench.config.jit(module)(x), module(x))


def mean(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    return score - score.mean()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("options", [{"score_mod": mean}, {"return_aux": AuxRequest(lse=True)}], ids=["mean", "sums"])
def test_a_flex_attention_that_cannot_become_operators_is_a_part(options: dict[str, Any]) -> None:
    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        made = flex_attention(q * 2, k, v, **options)
        return made.sin() if isinstance(made, torch.Tensor) else made[0].sin() + made[1].lse.unsqueeze(-1)

    with pytest.raises(ProgramError, match=r"test_flex_attention\.py:\d+ .*open the program with capture='auto'"):
        workbench.open(program, *given(), device="cpu", executor="torch", capture="dynamo")
    bench = workbench.open(program, *given(), device="cpu", executor="torch")
    assert len(bench.parts) == 3
    torch.testing.assert_close(results(bench.config.jit(program)), results(program))
