"""Programs as people's training scripts have them: updates by hand, models as arguments, gradients of features."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.models.building import Kind, Parts


class _ByHand:
    """A step that updates its parameters itself, as PyTorch's tutorials do."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))

    def __call__(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = functional.cross_entropy(self.model(x), labels)
        loss.backward()
        with torch.no_grad():
            for parameter in self.model.parameters():
                assert parameter.grad is not None
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        return loss


class _Given:
    """A step that gets its model, its optimizer and its loss as arguments."""

    def __call__(self, model: nn.Module, optimizer: Any, criterion: nn.Module, x: Any, labels: Any) -> torch.Tensor:
        model.train()
        optimizer.zero_grad()
        loss: torch.Tensor = criterion(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()


def _given() -> Parts:
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    return _Given(), (model, optimizer, criterion, torch.randn(4, 8), torch.tensor([0, 1, 2, 1])), {}


class _Importance(nn.Module):
    """A loss with maps of importance (Grad-CAM), which need the gradient of a hidden value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GELU())
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        features = self.body(x)
        scores = self.head(features.mean((2, 3)))
        (gradient,) = torch.autograd.grad(scores.gather(1, labels[:, None]).sum(), features, retain_graph=True)
        maps = functional.relu((gradient.mean((2, 3), keepdim=True) * features).sum(1))
        return functional.cross_entropy(scores, labels) + maps.mean()


class _Splines(nn.Module):
    """A Kolmogorov-Arnold network: each weight is a spline of its input."""

    def __init__(self, widths: tuple[int, ...] = (3, 4, 2)) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(widths))
        self.base = nn.ModuleList(nn.Linear(*pair, bias=False) for pair in pairs)
        self.splines = nn.ParameterList(0.1 * torch.randn(out, given, 8) for given, out in pairs)
        self.register_buffer("grid", (torch.arange(12) - 3) * 0.4 - 1)

    def _bases(self, x: torch.Tensor) -> torch.Tensor:
        x, grid = x[..., None], self.grid
        bases = ((x >= grid[:-1]) & (x < grid[1:])).to(x.dtype)
        for order in range(1, 4):
            left = (x - grid[: -(order + 1)]) / (grid[order:-1] - grid[: -(order + 1)])
            right = (grid[order + 1 :] - x) / (grid[order + 1 :] - grid[1:-order])
            bases = left * bases[..., :-1] + right * bases[..., 1:]
        return bases

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for base, spline in zip(self.base, self.splines, strict=True):
            x = base(functional.silu(x)) + functional.linear(self._bases(x).flatten(1), spline.flatten(1))
        return functional.mse_loss(x, y) + 1e-3 * sum(spline.abs().mean() for spline in self.splines)


class _Depths(nn.Module):
    """A mixture of depths: half of the tokens pass through a block, and the others around it."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.block = (
            nn.Linear(8, 1, bias=False),
            nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True),
        )
        self.guess = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.router(x)[..., 0]
        places = weights.topk(x.shape[1] // 2, dim=1).indices.sort(1).values
        index = places[..., None].expand(-1, -1, x.shape[-1])
        taken = x.gather(1, index)
        gates = weights.gather(1, places).sigmoid()[..., None]
        out = x.scatter_add(1, index, (self.block(taken) - taken) * gates)
        chosen = torch.zeros_like(weights).scatter_(1, places, 1.0)
        return out.square().mean() + functional.binary_cross_entropy_with_logits(self.guess(x.detach())[..., 0], chosen)


class _Private:
    """A step with the mean of clipped gradients of single samples, as differential privacy requires."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def _loss(self, parameters: dict[str, torch.Tensor], x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        scores = torch.func.functional_call(self.model, parameters, (x[None],))
        return functional.cross_entropy(scores, label[None])

    def __call__(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        parameters = {name: parameter.detach() for name, parameter in self.model.named_parameters()}
        each = torch.func.vmap(torch.func.grad(self._loss), (None, 0, 0))(parameters, x, labels)
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in each.values()], 1).norm(dim=1)
        scales = (0.5 / (norms + 1e-6)).clamp(max=1.0)
        self.optimizer.zero_grad()
        for name, parameter in self.model.named_parameters():
            parameter.grad = torch.einsum("b,b...->...", scales, each[name]) / len(x)
        self.optimizer.step()
        return norms


def _classified() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 8), torch.tensor([0, 1, 2, 1])


IMAGES: Kind = {"importance": lambda: (_Importance(), (torch.randn(2, 3, 8, 8), torch.tensor([0, 2])), {})}
EXPERTS: Kind = {"depths": lambda: (_Depths(), (torch.randn(2, 6, 8),), {})}
TABLES: Kind = {"splines": lambda: (_Splines(), (torch.rand(12, 3) - 0.5, torch.randn(12, 2)), {})}
STEPS: Kind = {
    "step_by_hand": lambda: (_ByHand(), _classified(), {}),
    "step_given_model": _given,
    "step_private": lambda: (_Private(), _classified(), {}),
}
