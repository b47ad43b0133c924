"""Replays of losses equal eager PyTorch, also of losses that nvFuser's `cross_entropy` does not support."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import workbench
from tests.nvfuser import replays
from tests.trial_counts import combined
from workbench.core.executor import why_no_nvfuser
from workbench.errors import ProgramError

pytestmark = pytest.mark.skipif(bool(why_no_nvfuser()), reason=why_no_nvfuser())

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "a class ignored": {"ignore_index": 3},
    "smoothed": {"label_smoothing": 0.1},
}
REDUCTIONS = ("mean", "sum", "none")


def given(dtype: torch.dtype = torch.float32, *, ignored: int = -100) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    target = torch.randint(0, 10, (8,))
    target[:2] = ignored
    weight = torch.rand(10)
    return torch.randn(8, 6, dtype=dtype), torch.randn(6, 10, dtype=dtype, requires_grad=True), target, weight


def eager(program: Callable[..., torch.Tensor], arguments: tuple[torch.Tensor, ...]) -> replays.Eager:
    """Run one step with eager PyTorch. `replays.eager` cannot, because Thunder's interpreter refuses these programs."""
    names = list(inspect.signature(program).parameters)
    given = {name: tensor.detach().clone() for name, tensor in zip(names, arguments, strict=True)}
    asked = {n: given[n].clone().requires_grad_() for n, t in zip(names, arguments, strict=True) if t.requires_grad}
    made = program(**{**given, **asked})
    gradients = torch.autograd.grad(made, list(asked.values()), torch.ones_like(made))
    return replays.Eager(given, [made.detach()], dict(zip(asked, gradients, strict=True)), {})


@pytest.mark.parametrize(("name", "weighed", "reduction"), combined(OPTIONS, [False, True], REDUCTIONS, quick=1))
def test_a_planned_loss_has_the_gradients_of_eager_pytorch(name: str, weighed: bool, reduction: str) -> None:
    options = OPTIONS[name]

    def program(x: torch.Tensor, w: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        weights = weight if weighed else None
        losses = functional.cross_entropy(x @ w, target, weights, reduction=reduction, **options)
        return losses.sin()

    arguments = given(ignored=options.get("ignore_index", -100))
    bench = workbench.open(program, *arguments, device="planned", executor="nvfuser")
    assert bench.plan.proof.proven
    replays.holds(bench, eager(program, arguments))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "dtype"), combined([(2, 4, 10), (2, 10, 4), (8, 10)], [torch.float32, torch.bfloat16])
)
def test_a_sum_of_losses_divided_by_a_count_is_planned(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logits = (x * 2).float()
        if target.ndim == 2 and target.shape[1] != x.shape[2]:
            logits, target = logits.flatten(0, 1), target.flatten(0, 1)
        return functional.cross_entropy(logits, target, reduction="sum") / 7

    lengths = shape[:1] if len(shape) == 2 else (shape[0], 4)
    arguments = torch.randn(shape, dtype=dtype, requires_grad=True), torch.randint(0, 4, lengths)
    bench = workbench.open(program, *arguments, device="planned", executor="nvfuser")
    replays.holds(bench, eager(program, arguments))


@pytest.mark.slow
def test_a_causal_model_called_with_num_items_in_batch_is_planned() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config)
    tokens = torch.randint(0, 64, (2, 8))
    bench = workbench.open(model, tokens, labels=tokens, num_items_in_batch=14, device="planned", executor="nvfuser")
    assert bench.capture == "dynamo", bench.capture_reason
    assert bench.plan.proof.proven
    assert bench.plan.split.backward is not None


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_only_a_mean_of_losses_uses_the_cross_entropy_of_nvfuser(reduction: str) -> None:
    def program(x: torch.Tensor, w: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(x @ w, target, reduction=reduction)

    bench = workbench.open(program, *given()[:3], device="planned", executor="nvfuser")
    members = {member.sym.name for fusion in replays.fusions(bench) for member in fusion.subsymbols}
    assert ("nv_cross_entropy_fwd" in members) == (reduction == "mean")


@pytest.mark.parametrize("executor", ["torch", "nvfuser"])
def test_the_interpreter_refuses_a_sum_of_losses_with_the_line(executor: str) -> None:
    def program(x: torch.Tensor, w: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(x @ w, target, reduction="sum")

    device = "planned" if executor == "nvfuser" else "cpu"
    with pytest.raises(ProgramError, match=r"test_cross_entropy\.py:\d+ .*sum of losses.*capture='auto'"):
        workbench.open(program, *given()[:3], device=device, executor=executor, capture="interpreter")
