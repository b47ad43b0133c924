"""Kernels that allocate work space inside: convolutions on a CPU."""

import pytest
import torch
from torch import nn

import workbench
from workbench.runs import accuracy, meters


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 32, 3, stride=2)
        self.head = nn.Linear(32, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.first(images)))
        return self.head(torch.relu(self.second(hidden)).mean((2, 3)))


@pytest.mark.slow
def test_the_predicted_peak_of_a_convolutional_network_is_the_measured_one() -> None:
    torch.manual_seed(0)
    model, images = ConvNet(), torch.randn(4, 3, 16, 16)
    bench = workbench.open(model, images)
    jitted = bench.config.jit(model)
    step = accuracy.Stepper(model, (images,), {}, jitted, seed=0)
    accuracy.first_step(step, 0)
    measured = meters.measure_peak(step)
    assert bench.plan.peak_bytes - bench.plan.baseline_bytes == pytest.approx(
        measured.measured_peak_bytes - measured.baseline_bytes, rel=0.01
    )
