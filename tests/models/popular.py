"""Programs in the style of popular repositories and tutorials, which were not written for the workbench."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.models.building import Kind


def _perceptron(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inside, 16), nn.ReLU(), nn.Linear(16, outside))


class _RandomField(nn.Module):
    """The loss of a tagger: a linear-chain conditional random field, for sequences of different lengths."""

    def __init__(self, tags: int = 4) -> None:
        super().__init__()
        self.scores = nn.Linear(6, tags)
        self.start, self.end = nn.Parameter(torch.randn(tags)), nn.Parameter(torch.randn(tags))
        self.moves = nn.Parameter(torch.randn(tags, tags))

    def forward(self, x: torch.Tensor, tags: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        given, tags, mask = self.scores(x).transpose(0, 1), tags.T, mask.T
        each = torch.arange(tags.shape[1])
        score = self.start[tags[0]]
        score += given[0, each, tags[0]]
        total = self.start + given[0]
        for at in range(1, len(tags)):
            score += self.moves[tags[at - 1], tags[at]] * mask[at]
            score += given[at, each, tags[at]] * mask[at]
            after = torch.logsumexp(total[:, :, None] + self.moves + given[at][:, None], dim=1)
            total = torch.where(mask[at][:, None], after, total)
        score += self.end[tags[mask.long().sum(0) - 1, each]]
        return (torch.logsumexp(total + self.end, dim=1) - score).sum()


class _Boxes(nn.Module):
    """The loss of a one-stage detector (YOLOv3), which assigns each box to a cell and an anchor."""

    anchors: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Conv2d(3, 2 * 7, 3, stride=4, padding=1)
        self.register_buffer("anchors", torch.tensor([[1.0, 2.0], [2.0, 1.0]]))

    def forward(self, x: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        made = self.net(x)
        batch, _, height, width = made.shape
        made = made.view(batch, 2, 7, height, width).permute(0, 1, 3, 4, 2).contiguous()
        places, sizes = boxes[:, 1:3] * height, boxes[:, 3:5] * height
        common = torch.min(self.anchors[:, None], sizes).prod(-1)
        best = (common / (self.anchors.prod(1)[:, None] + sizes.prod(1) - common)).argmax(0)
        image, (column, row) = boxes[:, 0].long(), places.long().T
        has_box = torch.zeros(batch, 2, height, width, dtype=torch.bool)
        has_box[image, best, row, column] = True
        expected = torch.zeros(batch, 2, height, width, 4)
        within = torch.cat([places - places.floor(), (sizes / self.anchors[best]).log()], 1)
        expected[image, best, row, column] = within
        sure = made[..., 4]
        return (
            functional.mse_loss(made[..., :2][has_box].sigmoid(), expected[..., :2][has_box])
            + functional.mse_loss(made[..., 2:4][has_box], expected[..., 2:][has_box])
            + functional.binary_cross_entropy_with_logits(sure[has_box], torch.ones_like(sure[has_box]))
            + functional.binary_cross_entropy_with_logits(sure[~has_box], torch.zeros_like(sure[~has_box]))
        )


def _convolutions(inside: int, outside: int) -> nn.Sequential:
    pairs = ((inside, outside), (outside, outside))
    layers = ((nn.Conv2d(*pair, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)) for pair in pairs)
    return nn.Sequential(*itertools.chain(*layers))


class _UNet(nn.Module):
    """A U-Net for images of odd sizes. The loss is the cross entropy and the Dice loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = _convolutions(3, 8), nn.Sequential(nn.MaxPool2d(2), _convolutions(8, 16))
        self.up, self.last, self.head = nn.ConvTranspose2d(16, 8, 2, 2), _convolutions(16, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        skipped = self.first(x)
        up = self.up(self.down(skipped))
        rows, columns = skipped.shape[2] - up.shape[2], skipped.shape[3] - up.shape[3]
        up = functional.pad(up, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2])
        scores = self.head(self.last(torch.cat([skipped, up], 1)))
        shares, expected = scores.softmax(1), functional.one_hot(labels, 2).permute(0, 3, 1, 2).float()
        dice = (2 * (shares * expected).sum((2, 3)) + 1e-6) / (shares.sum((2, 3)) + expected.sum((2, 3)) + 1e-6)
        loss: torch.Tensor = functional.cross_entropy(scores, labels) + 1 - dice.mean()
        return loss


class _Perceptual(nn.Module):
    """The perceptual loss and the style loss of a frozen network, whose values a forward hook collects."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Conv2d(3, 3, 3, padding=1)
        self.frozen = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()).requires_grad_(False)
        self.found: list[torch.Tensor] = []
        for layer in (self.frozen[1], self.frozen[3]):
            layer.register_forward_hook(lambda _module, _given, made: self.found.append(made))

    def _features(self, x: torch.Tensor) -> list[torch.Tensor]:
        self.found = []
        self.frozen(x)
        made, self.found = self.found, []
        return made

    def forward(self, x: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        made = self.net(x)
        loss = functional.l1_loss(made, expected)
        for ours, theirs in zip(self._features(made), self._features(expected), strict=True):
            flat, other = ours.flatten(2), theirs.flatten(2)
            loss = loss + functional.mse_loss(flat @ flat.mT / flat.shape[-1], other @ other.mT / other.shape[-1])
        return loss


class _Constrained(nn.Module):
    """Layers with normalized and orthogonal weights, in PyTorch's older and newer ways to declare them."""

    def __init__(self) -> None:
        super().__init__()
        utils = nn.utils
        self.spectral, self.weight = utils.spectral_norm(nn.Conv2d(3, 8, 3)), utils.weight_norm(nn.Conv2d(8, 8, 3))
        self.linear = utils.parametrizations.weight_norm(nn.Linear(8 * 16, 4))
        self.orthogonal = utils.parametrizations.orthogonal(nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.leaky_relu(self.weight(functional.leaky_relu(self.spectral(x), 0.2)), 0.2)
        result: torch.Tensor = self.orthogonal(self.linear(x.flatten(1))).square().mean()
        return result


class _Sign(torch.autograd.Function):
    """The sign, with the gradient of a clipped identity."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        gradient = gradients[0].clone()
        gradient[x.abs() > 1] = 0
        return gradient


class _Reversed(torch.autograd.Function):
    """The identity, with the gradient reversed."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0].neg() * ctx.scale, None


class _Domains(nn.Module):
    """The loss of domain-adversarial training, with two functions of its own and their backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.label, self.domain = _perceptron(8, 16), nn.Linear(16, 3), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor, labels: torch.Tensor, domains: torch.Tensor) -> torch.Tensor:
        sign: Any = _Sign.apply  # without types in torch
        reverse: Any = _Reversed.apply
        hidden = sign(self.body(x))
        loss = functional.cross_entropy(self.label(hidden), labels)
        return loss + functional.cross_entropy(self.domain(reverse(hidden, 0.3)), domains)


class _Rotary(nn.Module):
    """Attention with rotary positions as products of complex numbers, as in the first Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head, self.out = nn.Embedding(20, 16), nn.Linear(16, 20), nn.Linear(16, 16)
        self.projections = nn.ModuleList(nn.Linear(16, 16, bias=False) for _ in range(3))
        angles = torch.outer(torch.arange(16.0), 1 / 10000 ** (torch.arange(0, 8, 2) / 8))
        self.turns = torch.polar(torch.ones_like(angles), angles)

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns[None, : x.shape[1], None]).flatten(3).type_as(x)

    def forward(self, tokens: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(tokens)
        batch, length, _ = hidden.shape
        q, k, v = (project(hidden).view(batch, length, 2, 8) for project in self.projections)
        scores = torch.einsum("bihd,bjhd->bhij", self._turned(q), self._turned(k)) / math.sqrt(8)
        scores = scores + torch.full((length, length), -torch.inf).triu(1)
        mixed = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v).reshape(batch, length, -1)
        return functional.cross_entropy(self.head(hidden + self.out(mixed)).flatten(0, 1), after.flatten())


# Whole steps.


class _DeepUpdate:
    """An update of deep Q-learning: clipped gradients, AdamW, and a slow copy of the weights by `load_state_dict`."""

    def __init__(self) -> None:
        self.net = _perceptron(4, 2)
        self.slow = copy.deepcopy(self.net)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3, amsgrad=True)

    def __call__(
        self, seen: torch.Tensor, actions: torch.Tensor, rewards: torch.Tensor, after: torch.Tensor, goes: torch.Tensor
    ) -> torch.Tensor:
        value = self.net(seen).gather(1, actions)
        best = torch.zeros(len(seen))
        with torch.no_grad():
            best[goes] = self.slow(after[goes]).max(1).values
        loss = functional.smooth_l1_loss(value, (0.99 * best + rewards)[:, None])
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(self.net.parameters(), 100)
        self.optimizer.step()
        slow, fast = self.slow.state_dict(), self.net.state_dict()
        for name in fast:
            slow[name] = 0.005 * fast[name] + 0.995 * slow[name]
        self.slow.load_state_dict(slow)
        return loss.detach()


class _Sharpness:
    """A step of sharpness-aware minimization (SAM), with two forwards and two backwards."""

    def __init__(self) -> None:
        self.net = _perceptron(8, 3)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)

    def _loss(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.net(x), labels, label_smoothing=0.1)

    def __call__(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = self._loss(x, labels)
        loss.backward()
        given = [(parameter, parameter.grad) for parameter in self.net.parameters() if parameter.grad is not None]
        with torch.no_grad():
            norm = torch.stack([gradient.norm() for _, gradient in given]).norm()
            moves = [gradient * (0.05 / (norm + 1e-12)) for _, gradient in given]
            for (parameter, _), move in zip(given, moves, strict=True):
                parameter.add_(move)
        self.optimizer.zero_grad()
        self._loss(x, labels).backward()
        with torch.no_grad():
            for (parameter, _), move in zip(given, moves, strict=True):
                parameter.sub_(move)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


class _Closure:
    """A step of L-BFGS, which calls the loss and its backward several times."""

    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.optimizer = torch.optim.LBFGS(self.net.parameters(), max_iter=3)

    def __call__(self, x: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        def closure() -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = functional.mse_loss(self.net(x), expected)
            loss.backward()
            return loss

        first: Any = self.optimizer.step(closure)
        result: torch.Tensor = first.detach()
        return result


def _labels(count: int, classes: int) -> torch.Tensor:
    return torch.randint(0, classes, (count,))


TEXT: Kind = {
    "rotary_by_complex_numbers": lambda: (
        _Rotary(),
        (torch.randint(0, 20, (2, 6)), torch.randint(0, 20, (2, 6))),
        {},
    ),
}
IMAGES: Kind = {
    "perceptual_loss": lambda: (_Perceptual(), (torch.randn(1, 3, 8, 8), torch.randn(1, 3, 8, 8)), {}),
    "constrained_weights": lambda: (_Constrained(), (torch.randn(2, 3, 8, 8),), {}),
}
DETECTION: Kind = {
    "yolo_loss": lambda: (
        _Boxes(),
        (torch.randn(2, 3, 16, 16), torch.tensor([[0, 0.3, 0.4, 0.3, 0.5], [1, 0.6, 0.7, 0.5, 0.2]])),
        {},
    ),
}
SEGMENTATION: Kind = {
    "unet_with_dice": lambda: (_UNet(), (torch.randn(2, 3, 9, 9), torch.randint(0, 2, (2, 9, 9))), {}),
}
RECURRENT: Kind = {
    "random_field": lambda: (
        _RandomField(),
        (
            torch.randn(2, 5, 6),
            torch.randint(0, 4, (2, 5)),
            torch.tensor([[True] * 5, [True] * 3 + [False] * 2]),
        ),
        {},
    ),
}
ADVERSARIES: Kind = {
    "domain_adversary": lambda: (_Domains(), (torch.randn(4, 8), _labels(4, 3), _labels(4, 2)), {}),
}
REINFORCEMENT: Kind = {
    "deep_q_update": lambda: (
        _DeepUpdate(),
        (
            torch.randn(6, 4),
            torch.randint(0, 2, (6, 1)),
            torch.randn(6),
            torch.randn(6, 4),
            torch.tensor([True, False] * 3),
        ),
        {},
    ),
}
STEPS: Kind = {
    "step_sharpness": lambda: (_Sharpness(), (torch.randn(5, 8), _labels(5, 3)), {}),
    "step_lbfgs": lambda: (_Closure(), (torch.randn(6, 4), torch.randn(6, 1)), {}),
}
