"""Choices are translated for plain PyTorch while no other thread captures a program."""

from __future__ import annotations

import torch

import workbench as wb
from workbench.compiler.frontend import dynamo
from workbench.util.planning_lock import PLANNING


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x).tanh().sum()


def test_dynamo_captures_under_the_planning_lock(monkeypatch):
    # With PyTorch 2.11, another thread that captures a program with a graph break then loses all parts but one.
    bench = wb.open(Net(), torch.randn(2, 4, requires_grad=True), device="cpu", executor="torch")
    bench.choose({next(site.id for site in bench.sites("saved") if "recompute" in site.options): "recompute"})
    whole_graph, is_held = dynamo.whole_graph, []

    def record(*args, **kwargs):
        is_held.append(PLANNING.is_mine)
        return whole_graph(*args, **kwargs)

    monkeypatch.setattr(dynamo, "whole_graph", record)
    assert bench.torch_choices().choices
    assert is_held == [True]
