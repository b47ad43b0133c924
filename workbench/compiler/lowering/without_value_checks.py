"""Versions of PyTorch functions without checks of argument values, because Dynamo cannot trace such checks.

These versions raise no error for illegal values, such as a negative variance, a negative weight or a quantile above 1.
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
    # Clamp without autograd, because in PyTorch a variance that is too small also gets a gradient.
    var = var + (var.clamp(min=eps) - var).detach()
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _quantile(
    input: torch.Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> torch.Tensor:
    if (
        input.device.type == "cpu"
        and torch.is_autocast_enabled("cpu")
        and input.dtype in (torch.float16, torch.bfloat16)
    ):
        input = input.float()
    if input.dtype not in (torch.float32, torch.float64):
        raise RuntimeError("quantile() input tensor must be either float or double dtype")
    q = q if isinstance(q, torch.Tensor) else torch.full((), q, dtype=input.dtype, device=input.device)
    rows = input.reshape(-1) if dim is None else input.movedim(dim, -1)
    ordered, last = rows.sort(-1).values, rows.shape[-1] - 1
    ranks = (q.reshape(-1) * last).expand(*rows.shape[:-1], q.numel())
    # `sort` puts NaN last. Take the last element of a row with NaN, so that the result is NaN.
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


def _cov(
    input: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    rows = input if input.ndim == 2 else input.reshape(1, -1)
    legal = input.ndim <= 2 and input.dtype is not torch.bool
    for given, real in ((fweights, False), (aweights, True)):
        if given is not None:
            legal = legal and given.ndim <= 1 and given.numel() == rows.shape[1] and given.is_floating_point() == real
    if not legal:
        raise ValueError("torch.cov refuses these shapes or data types")
    weights = aweights if fweights is None else fweights if aweights is None else fweights * aweights
    total: Any = rows.shape[1] if weights is None else weights.sum()
    centred = rows - ((rows if weights is None else rows * weights).sum(1) / total).unsqueeze(1)
    if weights is not None and aweights is not None and correction:
        degrees = total - correction * (weights * aweights).sum() / total
    else:
        degrees = total - correction
    # If the degrees of freedom are negative, PyTorch divides by zero.
    degrees = max(degrees, 0) if weights is None else torch.where(degrees > 0, degrees, 0)
    weighed = (centred if weights is None else centred * weights).t()
    return (torch.mm(centred, weighed.conj() if weighed.is_complex() else weighed) / degrees).squeeze()


def _corrcoef(input: torch.Tensor) -> torch.Tensor:
    made = _cov(input)
    if not made.ndim:
        return made / made
    variances = made.diagonal()
    deviations = (variances.real if variances.is_complex() else variances).sqrt()
    made = made / deviations.unsqueeze(1) / deviations
    if made.is_complex():
        return torch.complex(made.real.clamp(-1, 1), made.imag.clamp(-1, 1))
    return made.clamp(-1, 1)


_WRITTEN: dict[Callable[..., Any], Callable[..., torch.Tensor]] = {
    functional.gaussian_nll_loss: _gaussian_nll_loss,
    torch.quantile: _quantile,
    torch.cov: _cov,
    torch.corrcoef: _corrcoef,
}


def _inlines(replacement: Callable[..., Any]) -> Callable[[Any, ThreadPatches], Any]:
    def make(stock: Callable[..., Any] | None, patches: ThreadPatches) -> Any:
        def handle(variable: Any, translator: Any, *args: Any, **kwargs: Any) -> Any:
            if patches.value is not None:
                return translator.inline_user_function_return(
                    VariableTracker.build(translator, replacement), args, kwargs
                )
            # If this handler returns None, Dynamo continues as if there were no handler.
            return None if stock is None else stock(variable, translator, *args, **kwargs)

        return handle

    return make


traced = ThreadPatches(
    "functions that look at values",
    lambda: [
        PatchTarget(TorchInGraphFunctionVariable._get_handlers(), function, _inlines(written))
        for function, written in _WRITTEN.items()
    ],
)
"""Context in which Dynamo traces this module's versions of the functions, in this thread only.

Compilations by the user still trace PyTorch's functions.
"""
