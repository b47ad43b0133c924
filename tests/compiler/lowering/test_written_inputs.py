"""Programs that write into inputs with gradients, into copies of them, or read them without gradients.

Outputs, gradients and the final content of the inputs are those of eager PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import workbench
from tests.trial_counts import beyond

ROWS = torch.tensor([0, 2])


def copied_rows_and_a_penalty(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    rows = w[ROWS]
    rows += 1
    return (rows * x).sum() - w.detach().square().sum()


def written_through_detach(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = (w * x).sin()
    w.detach().mul_(2)
    return (y * y).sum()


def view_written_without_gradients(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = (w * x).sin()
    with torch.no_grad():
        w.view(-1).add_(1)
    return (y * y).sum()


def part_written_without_gradients(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = (w * x).sin()
    with torch.no_grad():
        w.view(-1)[1:3].zero_()
    return (y * y).sum()


def written_without_gradients(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = (w * x).sin()
    with torch.no_grad():
        w.mul_(2)
    return (y * y).sum()


def copied_rows_and_a_write(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    rows = w[ROWS]
    rows += 1
    w.detach().mul_(2)
    return (rows * x).sum()


def view_of_detached_written(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = w.reshape(-1) * 2
    w.detach().view(-1).add_(1)
    return y.sum()


def row_of_detached_set(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    fixed, rows = w.detach(), w[ROWS]
    rows *= 3
    fixed[0] = 5.0
    return (rows * x).sum() + fixed.sum()


def both_copies_written(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    fixed = w.detach()[ROWS]
    fixed += 1
    rows = w[ROWS]
    rows += 1
    return (rows * fixed).sum()


def moving_average(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    target = w.detach().clone()
    target.mul_(0.5)
    rows = w[ROWS]
    rows += 1
    return (rows * target[ROWS]).sum()


def detached_in_its_own_type(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    target = w.detach().float()
    target += 1
    rows = w[ROWS]
    rows += 1
    return (rows * target[ROWS]).sum()


def copied_rows_times_detached(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    rows = w[ROWS]
    rows += 1
    return (rows * w.detach()[ROWS]).sum()


def activated_rows(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    rows = w[ROWS].relu_()
    return (rows * x).sum() - w.detach().square().sum()


def center_loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    rows = w[ROWS]
    rows += x
    return (rows * rows).sum() + (w.detach() * 2).sum()


def set_row(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    rows = w[ROWS]
    rows[0] = 0.0
    return (rows * rows).sum() + (w.detach() * 2).sum()


def clamped_rows(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    rows = w.to(torch.float32)[ROWS]
    rows.clamp_(min=0)
    return (rows * rows).sum() + (w.detach() * 2).sum()


def read_before_and_after(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = (w * x).sum()
    w.detach().mul_(2)
    return y + (w * x).sin().sum()


PROGRAMS = [
    copied_rows_and_a_penalty,
    view_written_without_gradients,
    written_through_detach,
    part_written_without_gradients,
    written_without_gradients,
    copied_rows_and_a_write,
    view_of_detached_written,
    row_of_detached_set,
    both_copies_written,
    moving_average,
    detached_in_its_own_type,
    copied_rows_times_detached,
    activated_rows,
    center_loss,
    set_row,
    clamped_rows,
    read_before_and_after,
]


@pytest.mark.parametrize("executor", beyond(1, ["torch", "torchcompile"], pytest.mark.slow))
@pytest.mark.parametrize("program", beyond(3, PROGRAMS, pytest.mark.slow), ids=lambda program: program.__name__)
def test_an_input_has_the_gradient_and_the_content_of_eager(
    program: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], executor: str
) -> None:
    def inputs() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.linspace(-1, 1, 8).reshape(4, 2).requires_grad_(), torch.tensor([0.5, 1.5])

    bench = workbench.open(program, *inputs(), device="cpu", executor=executor)
    assert bench.plan.proof.proven
    (w, x), (eager_w, eager_x) = inputs(), inputs()
    compiled = bench.config.jit(program)
    # The second call gets inputs that the first call has written, and adds to their gradients.
    for _ in range(2):
        made, expected = compiled(w, x), program(eager_w, eager_x)
        torch.testing.assert_close(made, expected)
        made.backward()
        expected.backward()
        torch.testing.assert_close(w, eager_w)
        assert eager_w.grad is not None
        torch.testing.assert_close(w.grad, eager_w.grad)


def test_a_value_whose_copied_rows_are_written_passes_its_gradient_on() -> None:
    x = torch.tensor([0.5, 1.5])
    made: list[torch.Tensor] = []
    bench = workbench.open(copied_rows_and_a_penalty, torch.ones(4, 2, requires_grad=True) * 2, x, device="cpu")
    for run in (bench.config.jit(copied_rows_and_a_penalty), copied_rows_and_a_penalty):
        leaf = torch.linspace(-1, 1, 8).reshape(4, 2).requires_grad_()
        made += torch.autograd.grad(run(leaf * 2, x), leaf)
    torch.testing.assert_close(made[0], made[1])
