"""Under autocast on a CPU, results have the data types and values of eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import workbench
from tests.trial_counts import combined

pytestmark = pytest.mark.slow

CLASSES = torch.tensor([0, 3, 1])
OTHER = torch.randn(4, 3)

COMPUTED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cross_entropy": lambda y: functional.cross_entropy(y, CLASSES),
    "nll_loss": lambda y: functional.nll_loss(y.log_softmax(-1), CLASSES),
    "mse_loss": lambda y: functional.mse_loss(y, y.flip(0)),
    "smooth_l1_loss": lambda y: functional.smooth_l1_loss(y, y.flip(0)),
    "kl_div": lambda y: functional.kl_div(y.log_softmax(-1), y.softmax(-1), reduction="sum"),
    "logits": lambda y: functional.binary_cross_entropy_with_logits(y, y.sigmoid()),
    "prod": lambda y: y.prod(-1) + torch.prod(y, -1),
    "cdist": lambda y: torch.cdist(y, y + 1),
    "addmm": lambda y: torch.addmm(torch.ones(3, 3), y, OTHER),
    "softmax": lambda y: y.softmax(-1),
}


@pytest.mark.parametrize(("name", "kind", "around"), combined(COMPUTED, [torch.bfloat16, torch.float16], [False, True]))
def test_types_and_values_equal_those_of_pytorch(name: str, kind: torch.dtype, around: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(6, 4), torch.randn(3, 6)

    def computed(x: torch.Tensor) -> torch.Tensor:
        return COMPUTED[name](model(x))

    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=kind):
            return computed(x)

    if around:
        with torch.autocast("cpu", dtype=kind):
            bench = workbench.open(computed, x, device="cpu", executor="torch")
            made, expected = bench.config.jit(computed)(x), computed(x)
    else:
        bench = workbench.open(program, x, device="cpu", executor="torch")
        made, expected = bench.config.jit(program)(x), program(x)
    assert bench.capture == "dynamo"
    torch.testing.assert_close(made, expected, rtol=4 * torch.finfo(kind).eps, atol=4 * torch.finfo(kind).eps)
    found = []
    for out in (made, expected):
        model.weight.grad = None
        out.sum().backward()
        assert model.weight.grad is not None
        found.append(model.weight.grad)
    scale = found[1].abs().max().item()
    torch.testing.assert_close(*found, rtol=0, atol=16 * torch.finfo(kind).eps * max(scale, 1.0))
