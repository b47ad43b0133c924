"""PyTorch functions without their data-dependent argument checks, so that Dynamo can trace them.

They do not raise errors for illegal values (a variance below zero, a fraction above one).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from workbench.compiler.interop.thread_patches import PatchTarget, ThreadPatches
from workbench.interop.torch_private import TorchInGraphFunctionVariable, VariableTracker


def _gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    var = var * torch.ones_like(input) if isinstance(var, float) else var
    if var.ndim and var.size() != input.size() and input.size()[:-1] == var.size():
        var = var.unsqueeze(-1)
    # Clamp outside autograd: a variance that is too small has a gradient, too.
    var = var + (var.clamp(min=eps) - var).detach()
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _quantile(
    input: torch.Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> torch.Tensor:
    q = q if isinstance(q, torch.Tensor) else torch.full((), q, dtype=input.dtype, device=input.device)
    rows = input.reshape(-1) if dim is None else input.movedim(dim, -1)
    ordered, last = rows.sort(-1).values, rows.shape[-1] - 1
    ranks = (q.reshape(-1) * last).expand(*rows.shape[:-1], q.numel())
    # A NaN is sorted last and is the result.
    ranks = torch.where(rows.isnan().any(-1, keepdim=True), last, ranks)
    if interpolation in ("lower", "higher", "nearest"):
        ranks = {"lower": torch.floor, "higher": torch.ceil, "nearest": torch.round}[interpolation](ranks)
    below = ranks.floor()
    made = ordered.gather(-1, below.long())
    if interpolation in ("linear", "midpoint"):
        weight = ranks - below if interpolation == "linear" else torch.full_like(ranks, 0.5)
        made = torch.lerp(made, ordered.gather(-1, ranks.ceil().long()), weight)
    made = made.movedim(-1, 0) if q.ndim else made.squeeze(-1)
    if not keepdim:
        return made
    if dim is None:
        return made.reshape(*q.shape, *[1] * input.ndim)
    return made.unsqueeze(dim if dim < 0 else dim + q.ndim)


_WRITTEN: dict[Callable[..., Any], Callable[..., torch.Tensor]] = {
    functional.gaussian_nll_loss: _gaussian_nll_loss,
    torch.quantile: _quantile,
}


def _inlines(written: Callable[..., Any]) -> Callable[[Any, ThreadPatches], Any]:
    def make(stock: Callable[..., Any] | None, patches: ThreadPatches) -> Any:
        def handle(of: Any, translator: Any, *args: Any, **kwargs: Any) -> Any:
            if patches.value is not None:
                return translator.inline_user_function_return(VariableTracker.build(translator, written), args, kwargs)
            # With None, Dynamo continues as without a handler.
            return None if stock is None else stock(of, translator, *args, **kwargs)

        return handle

    return make


traced = ThreadPatches(
    "functions that look at values",
    lambda: [
        PatchTarget(TorchInGraphFunctionVariable._get_handlers(), function, _inlines(written))
        for function, written in _WRITTEN.items()
    ],
)
"""Context in which Dynamo traces these functions in this thread; the user's own compilations do not change."""
