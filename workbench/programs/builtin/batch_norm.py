"""`batch_norm`: a normalization that writes its running statistics in place."""

import torch
from torch import Tensor, nn

from workbench.programs.registry import at_least, program


@program
def batch_norm(*, channels: int = 16, batch: int = 8, size: int = 8) -> tuple[nn.Module, tuple[Tensor]]:
    """Batch normalization in training mode; it updates its running mean and variance in place."""
    at_least(1, channels=channels, size=size)
    at_least(2, batch=batch)
    return nn.BatchNorm2d(channels), (torch.randn(batch, channels, size, size),)
