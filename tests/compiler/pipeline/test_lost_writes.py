"""A plan warns if Thunder's trace loses a write into a buffer. The written buffers are first compared by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import workbench
from workbench.analysis.equivalence.side_effects import written_arguments
from workbench.compiler.pipeline import lever_context


class Counting(nn.Module):
    """A module that writes into two buffers, one of them through a view, and into memory of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.count, self.rows, self.read = (nn.Buffer(torch.zeros(4)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) + self.read
        y[0] = 1
        with torch.no_grad():
            self.count.add_(1)
            self.rows.view(2, 2).mul_(2)
        return y.square().sum()


def opened() -> Any:
    return workbench.open(Counting(), torch.randn(3, 4), device="cpu", executor="torch", capture="dynamo")


def test_only_buffers_that_a_program_writes_count_as_written() -> None:
    context = opened()._captured.context
    assert lever_context._written_names(context.program) == {"t_count", "t_rows"}
    assert set(written_arguments(context.graph)) == {"t_count", "t_rows"}


def test_a_plan_warns_of_a_lost_write_and_reads_the_programs_graph_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def lost_writes(program: Any, derived: Any) -> tuple[str, ...]:
        asked.append(program)
        return ("t_count",)

    monkeypatch.setattr(lever_context, "lost_writes", lost_writes)
    assert opened().plan.warnings == ()
    assert not asked
    monkeypatch.setattr(lever_context, "written_arguments", lambda graph: ("t_rows",))
    (warning,) = opened().plan.warnings
    assert "writes into t_count" in warning
    assert len(asked) == 1
