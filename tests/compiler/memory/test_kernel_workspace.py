"""Predicted memory includes the workspace that kernels allocate, for example for operands that BLAS cannot read."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import workbench
from tests.trial_counts import beyond
from workbench.analysis.memory.multi_graph_memory import memory_inside
from workbench.compiler.memory import kernel_workspace, views_and_writes
from workbench.compiler.memory.kernel_workspace import peak_inside_bytes
from workbench.runs.measure import accuracy, memory_meter


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


class Experts(nn.Module):
    """A mixture of experts without a loop. Some operands of its products are expanded, and einsum permutes others."""

    def __init__(self, experts: int = 4, width: int = 32) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) / 8)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) / 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(self.gate(tokens), -1)
        hidden = torch.relu(torch.einsum("td,edh->teh", tokens, self.up))
        return torch.einsum("teh,ehd,te->td", hidden, self.down, weights)


class Gaps(nn.Module):
    """A product of operands whose strides BLAS cannot read."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 48))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[..., ::2] @ self.weight[:, ::2].t()


class Half(nn.Module):
    """A product whose operands BLAS can read. On CPUs with units for half precision, oneDNN copies the operands."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(96, 48, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.bfloat16() @ self.weight


class Largest(nn.Module):
    """A module that computes the largest element of each row. Its backward sums booleans and multiplies by booleans."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 96))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).amax(1)


class Losses(nn.Module):
    """A mean, a sum, and the elements of losses. PyTorch writes the mean and the sum into elementwise losses.

    The storage of these losses is therefore alive as long as the mean or the sum.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 96))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        share = torch.sigmoid(x * self.weight)
        return (
            F.binary_cross_entropy(share, torch.zeros_like(share)),
            F.smooth_l1_loss(share, torch.ones_like(share), reduction="sum"),
            F.smooth_l1_loss(share, torch.ones_like(share), reduction="none"),
        )


class Exponential(nn.Module):
    """A matrix exponential, which needs the less memory the nearer its argument is to zero."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(48, 48))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.matrix_exp(x * self.weight)


class Product(nn.Module):
    """A cumulative product, whose gradient needs the most memory if a factor is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 48))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (1 + x * self.weight.exp()).cumprod(0)


class Repeated(nn.Module):
    """A module that computes the same product several times. BLAS cannot read one of its operands."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.tanh(x @ self.weight[:, ::2])
        return x


PROGRAMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutional network": (ConvNet, (4, 3, 16, 16)),
    "mixture of experts": (Experts, (24, 32)),
    "product with gaps": (Gaps, (16, 48)),
    "product in half precision": (Half, (64, 96)),
    "program that counts": (Largest, (64, 96)),
    "program of losses": (Losses, (64, 96)),
    "matrix exponential": (Exponential, (48, 48)),
    "cumulative product": (Product, (64, 48)),
}


@pytest.mark.parametrize(
    "name",
    beyond(
        1,
        [
            "product with gaps",
            "convolutional network",
            "mixture of experts",
            "product in half precision",
            "program that counts",
            "program of losses",
            "matrix exponential",
            "cumulative product",
        ],
        pytest.mark.slow,
    ),
)
def test_with_workspace_the_predicted_peak_equals_the_measured_peak(name: str) -> None:
    torch.manual_seed(0)
    make, shape = PROGRAMS[name]
    model, images = make(), torch.randn(*shape)
    bench = workbench.open(model, images)
    jitted = bench.config.jit(model)
    step = accuracy.Stepper(model, (images,), {}, jitted, seed=0)
    accuracy.first_step(step, 0)
    measured = memory_meter.measure_peak(step)
    assert bench.plan.peak_bytes - bench.plan.baseline_bytes == pytest.approx(
        measured.measured_peak_bytes - measured.baseline_bytes, rel=0.01
    )


def test_a_kernel_is_measured_once_for_all_equal_products(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def counted(text: str, namespace: Any, tensors: Mapping[str, torch.Tensor], name: str) -> int | None:
        measured.append(text)
        return peak_inside_bytes(text, namespace, tensors, name)

    monkeypatch.setattr(views_and_writes, "peak_inside_bytes", counted)
    bench = workbench.open(Repeated().requires_grad_(False), torch.randn(16, 32), capture="interpreter")
    assert len(measured) == 1
    assert sum("matmul" in name for name in bench.plan.graph.statements.name) == 4


def test_measuring_a_kernel_gives_no_warning() -> None:
    x = torch.empty(4, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert peak_inside_bytes("y = x @ x", {}, {"x": x}) == x.nbytes


class Downscaled(nn.Module):
    """A convolution and a pooling. Each test uses other sizes, so that no earlier test has cached their effects."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(self.first(x), 2)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [(kernel_workspace, "MOST_BYTES"), (views_and_writes, "MOST_FLOPS")])
def test_if_a_kernel_cannot_be_measured_the_peak_is_a_lower_bound(
    limit: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 21 + 2 * (limit[1] == "MOST_FLOPS")
    with monkeypatch.context() as inside:
        inside.setattr(views_and_writes, "_found", {})
        inside.setattr(*limit, 0)
        plan = workbench.open(Downscaled(), torch.randn(2, 3, size, size), executor="torch").plan
    assert plan.peak_at_least
    assert "at least " in str(plan)
    assert memory_inside(plan.graph, plan.timeline, ()).at_least
    whole = workbench.open(Downscaled(), torch.randn(2, 3, size + 1, size + 1), executor="torch").plan
    assert not whole.peak_at_least
    assert "at least " not in str(whole)


def test_a_kernel_is_not_measured_inside_of_a_profiler_which_then_goes_on() -> None:
    given = {"x": torch.empty(8, 8)}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        assert peak_inside_bytes("x.sort()", {}, given) is None
        torch.ones(2).cos()
    assert "aten::cos" in {event.key for event in profile.key_averages()}
    assert peak_inside_bytes("x.sort()", {}, given)


@pytest.mark.parametrize("name", ["torch.linalg.ldl_solve", "torch.lu_solve", "torch.lu_unpack"])
def test_a_kernel_with_pivots_is_measured_with_legal_pivots(name: str) -> None:
    """LAPACK counts them from one. With zeros, it wrote outside of its memory, and the process ended."""
    seen: list[torch.Tensor] = []
    peak_inside_bytes("seen.append(pivots)", {"seen": seen}, {"pivots": torch.empty(3, dtype=torch.int32)}, name)
    assert seen
    assert all(torch.equal(pivots, torch.ones(3, dtype=torch.int32)) for pivots in seen)
