"""A model that only a benchmark uses. It has convolutions, attention over an image's positions, and a gated cell."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Mixer(nn.Module):
    """Convolutions with group norm, then attention with a residual connection, then an unrolled gated cell."""

    def __init__(self, channels: int, heads: int, classes: int, steps: int) -> None:
        super().__init__()
        self.heads, self.steps = heads, steps
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)
        self.gates = nn.Linear(2 * channels, 4 * channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, image: Tensor, labels: Tensor) -> Tensor:
        """Return the cross entropy of the predicted classes."""
        found = functional.silu(self.norm(self.stem(image)))
        found = found + functional.relu(self.conv(found))
        tokens = found.flatten(2).transpose(1, 2)
        batch, positions, channels = tokens.shape
        split = self.qkv(tokens).view(batch, positions, 3, self.heads, channels // self.heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(queries, keys, values)
        tokens = tokens + self.out(mixed.transpose(1, 2).reshape(batch, positions, channels))
        hidden = cell = torch.zeros_like(tokens[:, 0])
        for step in range(self.steps):
            gates = self.gates(torch.cat((tokens[:, step], hidden), dim=-1))
            into, keep, out, new = gates.chunk(4, dim=-1)
            cell = torch.sigmoid(keep) * cell + torch.sigmoid(into) * torch.tanh(new)
            hidden = torch.sigmoid(out) * torch.tanh(cell)
        return functional.cross_entropy(self.head(hidden + tokens.mean(1)), labels)


def mixer(
    channels: int = 32, heads: int = 4, classes: int = 10, steps: int = 4, batch: int = 8, size: int = 32
) -> tuple[Mixer, tuple[Tensor, Tensor]]:
    """Return the model, and a batch of images with labels."""
    model = Mixer(channels, heads, classes, steps)
    return model, (torch.randn(batch, 3, size, size), torch.randint(0, classes, (batch,)))
