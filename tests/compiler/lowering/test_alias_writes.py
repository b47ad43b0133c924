"""Programs that write to memory with aliases.

Such a program computes the values and gradients of eager PyTorch, or the workbench warns about it or refuses it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import workbench
from tests.trial_counts import beyond
from workbench.errors import ProgramError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")]


def scaled_row(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[1].mul_(0.5)
    return y * x


def filled_row(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[1].fill_(3.0)
    return y * x


def row_of_another(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(4, 4)
    y[1].copy_(x[0])
    return y * x


def masked_columns(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    y[:, :2].masked_fill_(x[:, :2] > 0, 3.0)
    y[2].exp_()
    return y * x


def named_twice(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    row, column = y[0], y[:, 1]
    column.mul_(x[0])
    return row * x + column * y


def behind_an_index(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    row = y[1]
    y[1] = 3.0
    return row * x


def through_several_views(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.view(2, 2, 4)[:, 1].mul_(0.5)
    y.transpose(0, 1)[1:].add_(x[0, 0])
    y.permute(1, 0).unsqueeze(0)[0, 2].sub_(1)
    y.T.mul_(1.5)
    return y * x


def parts_that_overlap(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    above, below = y[:2], y[1:]
    above.mul_(x[:2])
    below.add_(1)
    return torch.cat((above, below)).sum() + y * x


def added_to_parts(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[1:] += x[:-1]
    y[..., 0] -= 1
    y[0] *= x[1]
    return y * y


def narrowed(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.narrow(1, 0, 2).mul_(3)
    y.select(-1, 1).sub_(x[0])
    return y * x


def already_so(x: torch.Tensor) -> torch.Tensor:
    """Write through results of `contiguous` and `to`, which return their input if its layout or type is right."""
    y = x * 2
    y.contiguous().mul_(1.5)
    y.to(torch.float32).add_(x)
    return y


def under_other_names(x: torch.Tensor) -> torch.Tensor:
    """Write through results of operators that return their input, or a view like the input, for such inputs."""
    y = x * 2
    torch.atleast_2d(y).mul_(1.5)
    y.real.add_(x)
    torch.positive(y).sub_(x.sin())
    y.broadcast_to(4, 4).mul_(2)
    return y * x


def dropped_nothing(x: torch.Tensor) -> torch.Tensor:
    """Write through results of a dropout that drops nothing, which are its input."""
    y = x * 2
    functional.dropout(y, 0.0).mul_(1.5)
    same = functional.dropout(y, 0.5, training=False).view(16)
    y[1].add_(x[0])
    same[:4].mul_(3)
    functional.alpha_dropout(y, 0.5).add_(x)
    return y * x


def repeated_in_a_checkpoint(x: torch.Tensor) -> torch.Tensor:
    """Write into a result of a checkpoint that Thunder computes as its input."""
    y = x * 2
    same = checkpoint(lambda z: z.repeat(1, 1), y, use_reentrant=False)
    same.mul_(3)
    return y * same


def written_then_viewed(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = y.neg_()
    z[0].mul_(3)
    z.view(16)[1:3].add_(1)
    return y * x + z


def rows_of_an_input(x: torch.Tensor) -> torch.Tensor:
    """Write into results of indexing by tensors, which are copies."""
    rows = x[torch.tensor([1, 3, 0, 1])]
    rows += 1
    rows *= x[:, torch.tensor([2, 0, 1, 1])]
    return rows


def copies_of_an_input(x: torch.Tensor) -> torch.Tensor:
    """Write into copies that `reshape`, `contiguous` and `to` return. For other layouts and types, they make none."""
    y = x.t().reshape(2, 8)
    y.mul_(2)
    z = x.t().contiguous()
    z += x
    exact = x.to(torch.float64)
    exact.mul_(3)
    return y.view(4, 4) * z + exact.to(torch.float32)


def repeated(x: torch.Tensor) -> torch.Tensor:
    """Write into results of `repeat`, `repeat_interleave` and `flip`, which Thunder computes as views."""
    y = x[:, :1].sin().repeat(1, 4)
    y += x
    kept = x.sin()
    same = kept.repeat(1, 1)
    same += 1
    each = kept.repeat_interleave(1, 1)
    each += 2
    turned = kept.flip(())
    turned += 3
    return y * same + each * turned + kept


def written_after_copies(x: torch.Tensor) -> torch.Tensor:
    """Write into the inputs of operators whose results Thunder computes as views."""
    y, z = x.sin(), x.cos()
    same, each = y.repeat(1, 1), y.repeat_interleave(1, 1)
    turned, product = z.flip(()), z.detach().view(4, 4, 1).prod(-1)
    y += 1
    z[1] = 5.0
    return same * each + turned * product + y * z


def upsampled(x: torch.Tensor) -> torch.Tensor:
    """Add to the only value of a map, upsampled to the size of the next map, as a feature pyramid does."""
    y = functional.interpolate(x.mean().reshape(1, 1, 1, 1), size=(4, 4), mode="nearest")
    y += x
    return y[0, 0].sin()


def transposed_by_einsum(x: torch.Tensor) -> torch.Tensor:
    """Write into the base of a view that is not a view of the first argument."""
    y = x.sin()
    turned = torch.einsum("ij->ji", y)
    y.mul_(3)
    return y.cos() + turned.exp()


PROGRAMS = [
    transposed_by_einsum,
    under_other_names,
    dropped_nothing,
    repeated_in_a_checkpoint,
    repeated,
    written_after_copies,
    upsampled,
    scaled_row,
    filled_row,
    row_of_another,
    masked_columns,
    named_twice,
    behind_an_index,
    through_several_views,
    parts_that_overlap,
    added_to_parts,
    narrowed,
    already_so,
    written_then_viewed,
    rows_of_an_input,
    copies_of_an_input,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_after_a_write_every_alias_has_the_value_and_the_gradient_of_eager(
    program: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    torch.manual_seed(3)
    x, weight = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    bench = workbench.open(program, x, capture="dynamo")
    assert bench.plan.warnings == ()
    ours, eager = bench.config.jit(program)(x), program(x)
    torch.testing.assert_close(ours, eager)
    (gradient,), (expected,) = (torch.autograd.grad((made * weight).sum(), x) for made in (ours, eager))
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("program", beyond(4, PROGRAMS), ids=lambda program: program.__name__)
def test_after_a_write_without_gradients_every_alias_has_the_value_of_eager(
    program: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    torch.manual_seed(3)
    x = torch.randn(4, 4, requires_grad=True)
    with torch.no_grad():
        bench = workbench.open(program, x, capture="dynamo")
        torch.testing.assert_close(bench.config.jit(program)(x), program(x))


def diagonal(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.diagonal().mul_(1.5)
    return y


def windows(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.unfold(0, 2, 2)[0].mul_(1.5)
    return y


def viewed_in_a_checkpoint(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    checkpoint(lambda z: z.view(16), y, use_reentrant=False).mul_(1.5)
    return y * x


def through_einsum(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    torch.einsum("ij->ji", y).mul_(1.5)
    return y


def through_another_type(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.view(torch.int32).view(torch.float32).mul_(1.5)
    return y + x


def through_broadcast_tensors(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    torch.broadcast_tensors(x.sin(), y)[1].mul_(1.5)
    return y


def of_the_same_type(x: torch.Tensor) -> torch.Tensor:
    """Write into the base of a `view` of a type, which stops the gradient in PyTorch."""
    y = x.sin()
    same = y.view(torch.float32)
    y.mul_(1.5)
    return y.cos() + same.exp()


COPIES = [through_einsum, through_another_type, through_broadcast_tensors, diagonal, windows, viewed_in_a_checkpoint]


@pytest.mark.parametrize("program", [of_the_same_type, *COPIES], ids=lambda program: program.__name__)
def test_pytorch_runs_a_write_through_a_view_that_is_a_copy_in_thunder(
    program: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    x = torch.randn(4, 4, requires_grad=True)
    bench = workbench.open(program, x)
    assert bench.capture == "parts"
    assert "so the write would be lost" in bench.parts[0].refusal
    ours, eager = bench.config.jit(program)(x), program(x)
    torch.testing.assert_close(ours, eager)
    (gradient,), (expected,) = (torch.autograd.grad(made.sum(), x) for made in (ours, eager))
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("program", COPIES, ids=lambda program: program.__name__)
@pytest.mark.parametrize("grad", [True, False])
def test_a_write_through_a_view_that_is_a_copy_in_thunder_is_refused(
    program: Callable[[torch.Tensor], torch.Tensor], grad: bool
) -> None:
    with torch.set_grad_enabled(grad), pytest.raises(ProgramError, match=r"mul_\(1\.5\).*by index") as refused:
        workbench.open(program, torch.randn(4, 4, requires_grad=True), capture="dynamo")
    assert "test_alias_writes.py" in str(refused.value)


def part_of_what_is_returned(x: torch.Tensor, held: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = held * 2
    above = y[:2]
    y[1:].mul_(3)
    return x * 2, y, above


def parts_of_what_is_given(x: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    """Write in place into parts of an argument, as models do with a cache of keys and values."""
    held[:2].copy_(x[2:].detach())
    held.view(2, 8)[1].add_(1)
    held.chunk(2)[0].unbind()[1].fill_(7)
    return x * 2


def by_index_and_by_name(x: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    held[:2] = held[2:]
    held.reshape(-1).mul_(2)
    return x * 2


def copied_into_an_unread_value(x: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    held[0].add_(1)
    y.copy_(held)
    return x * 2


def given_after_a_copy(x: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    before = held.repeat(1, 1)
    held.mul_(2)
    return x * before


def dropped_nothing(x: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    """Write into the result of a dropout that returns its input itself."""
    y = functional.dropout(held, 0.0, training=True)
    y *= 2
    return x * y


def viewed_by_keyword(x: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    y = torch.reshape(input=held, shape=(2, 8))
    y *= 2
    return x * y.sum()


WITHOUT_GRADIENTS = [
    given_after_a_copy,
    dropped_nothing,
    viewed_by_keyword,
    part_of_what_is_returned,
    parts_of_what_is_given,
    by_index_and_by_name,
    copied_into_an_unread_value,
]


@pytest.mark.parametrize("program", WITHOUT_GRADIENTS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("grad", [True, False])
def test_a_write_through_an_alias_changes_arguments_and_results_as_in_eager(
    program: Callable[..., object], grad: bool
) -> None:
    torch.manual_seed(3)
    x, held = torch.randn(4, 4, requires_grad=grad), torch.randn(4, 4)
    bench = workbench.open(program, x, held, device="cpu", executor="torch")
    assert bench.capture == "dynamo"
    assert bench.plan.warnings == ()
    ours, eager = held.clone(), held.clone()
    torch.testing.assert_close(bench.config.jit(program)(x, ours), program(x, eager))
    torch.testing.assert_close(ours, eager)
    assert not torch.equal(ours, held) or program is part_of_what_is_returned


def written_and_never_read(x: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    y, z = x.erf(), held.sin()
    z.flatten()[1:].add_(1)
    kept = -held
    y.copy_(y * kept)
    z.copy_(y)
    torch.sigmoid(z) + y
    return kept.clone()


def test_a_backward_that_reads_no_gradient_of_an_output_returns_zeros() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 1
        view = y.reshape(-1)
        y.zero_()
        return y * 2, view + 1

    x = torch.randn(3, 4, requires_grad=True)
    first, second = workbench.open(program, x, device="cpu").config.jit(program)(x)
    (first.sum() + second.sum()).backward()
    assert x.grad is not None
    assert not x.grad.any()


def test_a_write_that_nothing_reads_is_left_out() -> None:
    x, held = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    bench = workbench.open(written_and_never_read, x, held, device="cpu", executor="torch", capture="dynamo")
    assert bench.plan.split.backward is None
    assert not any(name in bench.plan.text() for name in ("erf", "copy_", "update_aliases"))
    torch.testing.assert_close(bench.config.jit(written_and_never_read)(x, held), -held)


def test_a_plan_with_a_write_that_nothing_reads_has_the_predicted_figures() -> None:
    """For this program, Thunder makes a backward that autograd never calls."""
    x, held = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    bench = workbench.open(written_and_never_read, x, held, device="cpu", executor="torch", capture="interpreter")
    assert bench.plan.split.backward is not None
    predicted = bench.predict({})
    assert (predicted.peak_bytes, predicted.saved_bytes) == (bench.plan.peak_bytes, bench.plan.saved_bytes)


def overwrites_what_it_keeps(x: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    y = held.flatten()
    kept = -y
    y.copy_(x.flatten().erf().detach())
    return kept.clone() + x.flatten()


def test_a_write_that_thunder_loses_gives_a_warning_and_the_program_runs() -> None:
    x, held = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    bench = workbench.open(overwrites_what_it_keeps, x, held, device="cpu", executor="torch", capture="interpreter")
    (told,) = bench.plan.warnings
    assert "the content of held after the forward differs" in told
    torch.testing.assert_close(bench.config.jit(overwrites_what_it_keeps)(x, held), x.flatten() - held.flatten())


class Clamped(nn.Module):
    """A module whose forward clamps a scale parameter in place under `no_grad`, as contrastive models do."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.scale.clamp_(0, 4.6)
        return self.scale.exp() * x


class Averaged(nn.Module):
    """A module with a student and a teacher. Each forward moves the teacher's weight toward the student's weight.

    The forward also sets an element of the teacher's bias to zero. The teacher is read without gradients.
    """

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.teacher.weight.mul_(0.9).add_(self.student.weight, alpha=0.1)
            self.teacher.bias[0].zero_()
            target = self.teacher(x)
        return (self.student(x) - target).square()


def test_a_parameter_that_is_written_under_no_grad_and_then_read_gets_eager_gradients_with_capture_parts() -> None:
    torch.manual_seed(3)
    ours, x = Clamped(), torch.randn(3)
    eager = copy.deepcopy(ours)
    bench = workbench.open(Clamped(), x)
    assert bench.capture == "parts"
    jitted = bench.config.jit(ours)
    for _ in range(2):
        for run in (jitted, eager):
            run(x).sum().backward()
    torch.testing.assert_close(ours.scale, eager.scale)
    assert eager.scale.grad is not None
    torch.testing.assert_close(ours.scale.grad, eager.scale.grad)


@pytest.mark.parametrize("capture", ["dynamo", "interpreter"])
def test_writing_a_parameter_under_no_grad_and_then_reading_its_value_with_a_gradient_is_refused(capture: str) -> None:
    with pytest.raises(ProgramError, match="loses the gradient") as refused:
        workbench.open(Clamped(), torch.randn(3), capture=capture)
    assert "self.scale.clamp_(0, 4.6)" in str(refused.value)
    assert "self.scale.clamp(max=" in str(refused.value), "the message must say what to do"


def test_a_parameter_that_is_read_without_a_gradient_may_be_written() -> None:
    torch.manual_seed(3)
    ours, eager, x = Averaged(), Averaged(), torch.randn(3, 4)
    eager.load_state_dict(ours.state_dict())
    bench = workbench.open(Averaged(), x)
    torch.testing.assert_close(bench.config.jit(ours)(x), eager(x))
    torch.testing.assert_close(ours.teacher.weight, eager.teacher.weight)
    torch.testing.assert_close(ours.teacher.bias, eager.teacher.bias)


def test_operators_named_like_writes_are_computed() -> None:
    # In Python, the functions of `&` and `|` are `and_` and `or_`, whose names end like in-place writes.
    def program(x: torch.Tensor) -> torch.Tensor:
        both = torch.ones(4, 1, dtype=torch.bool) & (x > 0)
        return torch.where(both, x, 0.0) + torch.where(torch.zeros(4, 1, dtype=torch.bool) | (x < 0), x, 1.0)

    x = torch.randn(4, 4, requires_grad=True)
    bench = workbench.open(program, x, device="cpu", executor="torch", capture="dynamo")
    found, expected = bench.config.jit(program)(x), program(x)
    assert torch.equal(found, expected)
    assert torch.equal(*(torch.autograd.grad(made.sum(), x)[0] for made in (found, expected)))
