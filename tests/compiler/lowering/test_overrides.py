"""Operators that Thunder accepts only with some arguments equal PyTorch's also with other arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import workbench
from tests.trial_counts import combined
from workbench.errors import ProgramError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning", "ignore:.*:UserWarning"),
]

CLASSES = torch.tensor([0, 2, -100, 1])


class Attention(nn.Module):
    """`nn.MultiheadAttention` and a loss. With `weights`, the loss includes the attention weights."""

    def __init__(self, *, crossed: bool = False, weights: bool = False, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **options)
        self.crossed, self.weights = crossed, weights

    def forward(self, x: torch.Tensor, **masks: torch.Tensor) -> torch.Tensor:
        other = x.tanh()[..., :5] if self.crossed else x
        attended, weights = self.attention(x, other, other, need_weights=self.weights, **masks)
        return attended.square().sum() + (weights[..., 0].sum() if weights is not None else 0)


def causal(length: int) -> torch.Tensor:
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


def summed(x: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(x, CLASSES, reduction="sum") / 3


def summed_over_places(x: torch.Tensor) -> torch.Tensor:
    return functional.nll_loss(functional.log_softmax(x.reshape(2, 4, 2), 1), CLASSES.reshape(2, 2), reduction="sum")


@pytest.mark.parametrize(
    ("shape", "reduction", "smoothing", "weighed"),
    combined(
        [(4, 6), (6,), (2, 6, 5), (2, 6, 3, 4), (2, 6, 2, 3, 2)], ["mean", "sum", "none"], [0.0, 0.1], [False, True]
    ),
)
def test_losses_of_classes_equal_eager(shape: tuple[int, ...], reduction: str, smoothing: float, weighed: bool) -> None:
    torch.manual_seed(3)
    weight = torch.rand(6) if weighed else None
    places = (*shape[:1], *shape[2:]) if len(shape) > 1 else ()
    x, target = torch.randn(shape, requires_grad=True), torch.randint(3, 6, places)
    if places:
        target.view(-1)[0] = 2  # `ignore_index` of the loss

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(
            x.sin(), target, weight, ignore_index=2, reduction=reduction, label_smoothing=smoothing
        )

    bench = workbench.open(loss, x, target, device="cpu", capture="dynamo")
    ours, eager = bench.config.jit(loss)(x, target), loss(x, target)
    torch.testing.assert_close(ours, eager)
    (gradient,), (expected,) = (torch.autograd.grad(made.sum(), x) for made in (ours, eager))
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_loss_of_a_soft_margin_equals_eager(reduction: str) -> None:
    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.soft_margin_loss(x.sin(), target, reduction=reduction)

    torch.manual_seed(3)
    x, target = torch.randn(3, 4, requires_grad=True), torch.randint(0, 2, (3, 4)) * 2.0 - 1
    bench = workbench.open(loss, x, target, device="cpu", capture="dynamo")
    ours, eager = bench.config.jit(loss)(x, target), loss(x, target)
    torch.testing.assert_close(ours, eager)
    (gradient,), (expected,) = (torch.autograd.grad(made.sum(), x) for made in (ours, eager))
    torch.testing.assert_close(gradient, expected)


def test_a_vector_without_elements_is_left_out_of_a_concatenation_as_in_pytorch() -> None:
    """Hugging Face's caches of keys and values begin as a vector without elements."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.tensor([]), x.sin(), x], dim=-2)

    torch.manual_seed(3)
    x = torch.randn(3, 4, requires_grad=True)
    bench = workbench.open(program, x, device="cpu", executor="torch", capture="dynamo")
    ours, eager = bench.config.jit(program)(x), program(x)
    assert torch.equal(ours, eager)
    (gradient,), (expected,) = (torch.autograd.grad(made.sum(), x) for made in (ours, eager))
    torch.testing.assert_close(gradient, expected)


def test_label_smoothing_is_refused_by_thunders_interpreter() -> None:
    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(x, target, label_smoothing=0.1)

    with pytest.raises(ProgramError, match=r"label_smoothing=0\.1.*capture='auto'"):
        workbench.open(loss, torch.randn(4, 4), CLASSES, capture="interpreter")
    assert workbench.open(loss, torch.randn(4, 4), CLASSES).capture == "dynamo"


def looked_up(x: torch.Tensor) -> torch.Tensor:
    """Look up rows of a table with a padding row, which gets no gradient. `padding_idx` may be negative."""
    places = torch.tensor([1, 3, 0, 3])
    return functional.embedding(places, x, padding_idx=-1) * functional.embedding(places, x * 2, padding_idx=1)


def emptied(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[:, :2].zero_()
    return y * x + y.clone().zero_()


def repeated(x: torch.Tensor) -> torch.Tensor:
    return (x.repeat_interleave(2, dim=1, output_size=8) * torch.arange(8)).square()


def on_lists(x: torch.Tensor) -> torch.Tensor:
    """Use operators on lists of tensors, which PyTorch's optimizers call."""
    pair, other = [x.abs() + 0.5, x.tanh()], [x * 2, x.cos() + 3]
    for made in (
        torch._foreach_add(pair, other, alpha=3),
        torch._foreach_sub(pair, [1.0, 2.0]),
        torch._foreach_mul(pair, 0.25),
        torch._foreach_div(pair, other),
        torch._foreach_pow(pair, 2),
        torch._foreach_pow(0.5, other),
        torch._foreach_neg(pair),
        torch._foreach_sqrt([pair[0], other[1]]),
        torch._foreach_reciprocal(other),
        torch._foreach_lerp(pair, other, 0.1),
        torch._foreach_lerp(pair, other, 0.9),
        torch._foreach_addcmul(pair, other, pair, value=0.5),
        torch._foreach_addcdiv(pair, other, [other[1], other[1]], [0.5, 2.0]),
        torch._foreach_maximum(pair, other),
        torch._foreach_clamp_max(pair, 0.75),
        torch._foreach_norm(pair),
    ):
        torch._foreach_add_(other, [each.mean() for each in made])
    torch._foreach_copy_(pair, other)
    torch._foreach_zero_(other)
    return pair[0].sum() + pair[1].square().sum() + other[0].sum()


def dropped(x: torch.Tensor) -> torch.Tensor:
    return functional.dropout(x * 2, 0.5, training=False, inplace=True) * 3


def pooled(x: torch.Tensor) -> torch.Tensor:
    image = x.reshape(1, 1, 4, 4)
    averaged = functional.avg_pool2d(image, 2, 2, ceil_mode=True, count_include_pad=False)
    return averaged * functional.max_pool2d(image, (2, 2), ceil_mode=True)


def resized(x: torch.Tensor) -> torch.Tensor:
    image = x.reshape(1, 1, 4, 4)
    return functional.interpolate(image, size=(8, 6), mode="bilinear", align_corners=False)


def grouped(x: torch.Tensor) -> torch.Tensor:
    few = x.reshape(1, 1, 4, 4)
    return functional.scaled_dot_product_attention(few.expand(1, 2, 4, 4) * 2, few, few, enable_gqa=True)


def scaled(x: torch.Tensor) -> torch.Tensor:
    """Divide by the largest value and multiply by the sum, both without a gradient."""
    largest = x.abs().max().detach()
    return x.square() / largest + torch.detach(x.sum()) * x.tanh()


def listed(x: torch.Tensor) -> torch.Tensor:
    return torch.einsum("ij,jk->ik", [x, torch.einsum("ij,kj->ik", (x, x.sin()))])


class Experts(nn.Module):
    """A module that multiplies each group of rows by its own matrix. One group is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 16, 8))
        self.narrow = nn.Parameter(torch.randn(4, 8, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ends = torch.tensor([1, 1, 3, 4], dtype=torch.int32)
        x = torch.cat((x, x.sin()), 1).bfloat16()
        wide = functional.grouped_mm(x, self.weight.bfloat16().transpose(1, 2), offs=ends)
        return functional.grouped_mm(wide.relu(), self.narrow.bfloat16().transpose(1, 2), offs=ends).float()


def copied(x: torch.Tensor) -> torch.Tensor:
    """Use a copy that has no gradient, and a tensor that is created from numbers."""
    return x * torch.tensor(x, dtype=torch.float64).float() + torch.tensor([1.0, 2.0, 3.0, 4.0])


class Separate(nn.Module):
    """Self-attention with a separate weight matrix for queries, keys and values, as in WavLM."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(8, 8) for _ in range(4))
        self.bias = nn.Parameter(torch.randn(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v, out = self.weights
        made, _ = functional.multi_head_attention_forward(
            x, x, x, 8, 2, torch.empty(0), self.bias, None, None, False, 0.0, out, None, self.training,
            use_separate_proj_weight=True, q_proj_weight=q, k_proj_weight=k, v_proj_weight=v,
        )  # fmt: skip
        return made


SQUARE: Callable[[], torch.Tensor] = lambda: torch.randn(4, 4)  # noqa: E731
BATCH: Callable[[], torch.Tensor] = lambda: torch.randn(2, 3, 8)  # noqa: E731

CASES: dict[str, tuple[Callable[[], Any], Callable[[], torch.Tensor], dict[str, torch.Tensor]]] = {
    "attention": (lambda: Attention(batch_first=True), BATCH, {}),
    "attention with weights": (lambda: Attention(weights=True), BATCH, {"attn_mask": torch.zeros(2, 2)}),
    "cross attention, other widths": (
        lambda: Attention(crossed=True, batch_first=True, kdim=5, vdim=5, bias=False),
        BATCH,
        {"key_padding_mask": torch.tensor([[False, False, True]] * 2)},
    ),
    "causal attention": (lambda: Attention(batch_first=True), BATCH, {"attn_mask": causal(3)}),
    "attention without a batch": (lambda: Attention(weights=True), lambda: torch.randn(3, 8), {}),
    "encoder": (encoder, BATCH, {}),
    "attention by separate matrices": (Separate, BATCH, {}),
    "a sum of losses": (lambda: summed, SQUARE, {}),
    "a sum of losses over positions": (lambda: summed_over_places, SQUARE, {}),
    "repeat_interleave with output_size": (lambda: repeated, SQUARE, {}),
    "dropout in place": (lambda: dropped, SQUARE, {}),
    "pools with ceil_mode": (lambda: pooled, SQUARE, {}),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3), dim=0), SQUARE, {}),
    "interpolation between pixels": (lambda: resized, SQUARE, {}),
    "detached values without dimensions": (lambda: scaled, SQUARE, {}),
    "rows that are padding": (lambda: looked_up, SQUARE, {}),
    "a part set to zero": (lambda: emptied, SQUARE, {}),
    "operands in a list": (lambda: listed, SQUARE, {}),
    "a tensor of a tensor": (lambda: copied, SQUARE, {}),
    "experts": (Experts, SQUARE, {}),
    "grouped queries": (lambda: grouped, SQUARE, {}),
}


def step(run: Any, program: Any, x: torch.Tensor, masks: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Run a forward and a backward. Return the output, and the gradients of the input and of all parameters."""
    x = x.clone().requires_grad_()
    parameters = list(program.parameters()) if isinstance(program, nn.Module) else []
    made = run(x, **masks)
    return [made.detach(), *torch.autograd.grad(made.sum(), [x, *parameters])]


@pytest.mark.parametrize("name", CASES)
def test_operators_that_thunder_supports_only_partly_equal_eager(name: str) -> None:
    build, draw, masks = CASES[name]
    torch.manual_seed(3)
    program, x = build(), draw()
    bench = workbench.open(program, x, device="cpu", capture="dynamo", kwargs=masks)
    for ours, eager in zip(
        step(bench.config.jit(program), program, x, masks), step(program, program, x, masks), strict=True
    ):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("masks", [{}, {"src_key_padding_mask": torch.tensor([[False, False, True]] * 2)}])
def test_layers_for_which_pytorch_has_a_fast_path_are_traced_operator_by_operator(
    masks: dict[str, torch.Tensor],
) -> None:
    program, x = encoder().eval(), BATCH()
    with torch.no_grad():
        bench = workbench.open(program, x, device="cpu", capture="dynamo", kwargs=masks)
        torch.testing.assert_close(bench.config.jit(program)(x, **masks)[:, :2], program(x, **masks)[:, :2])
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("layers", [True, False])
def test_only_compiled_code_with_fast_path_layers_checks_the_flag_for_the_fast_path(layers: bool) -> None:
    program, x = encoder().eval() if layers else torch.nn.Linear(8, 8), torch.randn(2, 3, 8)
    with torch.no_grad():
        run = workbench.open(program, x, device="cpu", capture="dynamo").config.jit(program)
        run(x)
        first = run._lc_cs
        for fast in (True, False, True):
            torch.backends.mha.set_fastpath_enabled(fast)
            run(x)
            assert run._lc_cs is first, "the program was captured again"
    assert run._compiled._asks is layers


def test_one_mask_for_the_whole_batch_is_planned_for_a_gpu() -> None:
    def masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(x, x, x, mask)

    x = torch.randn(2, 2, 8, 8, requires_grad=True)
    for shape in ((1, 1, 8, 8), (8, 8)):
        bench = workbench.open(masked, x, torch.randn(shape), device="planned", executor="torch", capture="dynamo")
        assert any("attention_backward" in name for name in bench.plan.graph.statements.name)


def test_operators_on_lists_of_optimizers_equal_eager() -> None:
    torch.manual_seed(3)
    x = torch.randn(4, 4)
    with torch.no_grad():
        bench = workbench.open(on_lists, x, device="cpu", capture="dynamo")
        torch.testing.assert_close(bench.config.jit(on_lists)(x), on_lists(x), rtol=1e-4, atol=1e-5)


def test_attention_with_dropout_has_the_gradient_of_its_own_draw() -> None:
    def program(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        causal = functional.scaled_dot_product_attention(x, x * 2, x, dropout_p=0.5, is_causal=True)
        return functional.scaled_dot_product_attention(causal, x, x, mask, dropout_p=0.5).sin()

    torch.manual_seed(3)
    x, along = torch.randn(2, 2, 4, 4, dtype=torch.float64, requires_grad=True), torch.randn(2, 2, 4, 4).double()
    mask = torch.eye(4, dtype=torch.bool) | (torch.rand(4, 4) > 0.5)
    bench = workbench.open(program, x, mask, device="cpu", capture="dynamo")
    assert not any("random" in warning for warning in bench.plan.warnings)
    run = bench.config.jit(program)

    def at(given: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(5)
        return run(given, mask).sum()

    (gradient,) = torch.autograd.grad(at(x), x)
    near, far = (at((x + way * 1e-6 * along).detach().requires_grad_()) for way in (-1, 1))
    torch.testing.assert_close((gradient * along).sum(), ((far - near) / 2e-6).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("dims", "training"), combined([1, 2, 3], [True, False]))
def test_running_statistics_of_an_instance_norm_are_updated(dims: int, training: bool) -> None:
    kind = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[dims - 1]
    results = []
    for ours in (True, False):
        torch.manual_seed(3)
        norm = kind(3, momentum=0.3, affine=True, track_running_stats=True).train(training)
        x = torch.randn(2, 3, *range(2, 2 + dims), requires_grad=True)
        run = workbench.open(norm, x, device="cpu", capture="dynamo").config.jit(norm) if ours else norm
        for _ in range(2):
            run(x).sin().sum().backward()
        results.append([x.grad, *norm.buffers(), *(parameter.grad for parameter in norm.parameters())])
    torch.testing.assert_close(*results)


def test_thunders_interpreter_refuses_an_instance_norm_with_running_statistics() -> None:
    norm, x = nn.InstanceNorm1d(3, track_running_stats=True), torch.randn(2, 3, 5)
    with pytest.raises(ProgramError, match=r"loses its running statistics: open the program with capture='auto'"):
        workbench.open(norm, x, device="cpu", capture="interpreter")
    assert workbench.open(norm.eval(), x, device="cpu", capture="interpreter").capture == "interpreter"


@pytest.mark.parametrize(
    ("kind", "shape"),
    combined([nn.Softmax, nn.Softmin, nn.LogSoftmax], [(5,), (4, 5), (2, 4, 5), (2, 3, 4, 5)]),
)
def test_a_softmax_without_a_dimension_uses_pytorchs_default(kind: type[nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(3)
    module, x = kind(), torch.randn(shape, requires_grad=True)
    bench = workbench.open(module, x, device="cpu", capture="dynamo")
    ours, eager = bench.config.jit(module)(x), module(x)
    torch.testing.assert_close(ours, eager)
    torch.testing.assert_close(*(torch.autograd.grad(made.sin().sum(), x) for made in (ours, eager)))


MASK, MASK_OF_ALL = torch.tensor([True, False, True, False]), torch.eye(4, 8) > 0


def assign_row(y: torch.Tensor, row: torch.Tensor) -> None:
    y[MASK] = row


def assign_scalar(y: torch.Tensor, row: torch.Tensor) -> None:
    y[(MASK,)] = row.sum()


def assign_by_whole_mask(y: torch.Tensor, row: torch.Tensor) -> None:
    y[MASK_OF_ALL] = row[0]


def assign_into_view(y: torch.Tensor, row: torch.Tensor) -> None:
    y[:, :4][MASK] = row[:4]


@pytest.mark.parametrize("assign", [assign_row, assign_scalar, assign_by_whole_mask, assign_into_view])
def test_a_tensor_that_is_assigned_by_a_mask_gets_the_gradient_of_eager(assign: Callable[..., None]) -> None:
    def program(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        assign(y, row)
        return (y * torch.arange(8.0)).sum()

    x, row = torch.randn(4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    bench = workbench.open(program, x, row, capture="dynamo")
    ours, eager = bench.config.jit(program)(x, row), program(x, row)
    torch.testing.assert_close(ours, eager)
    for made, expected in zip(*(torch.autograd.grad(loss, (x, row)) for loss in (ours, eager)), strict=True):
        torch.testing.assert_close(made, expected)


def test_a_row_that_a_finite_mask_hides_has_the_gradient_of_a_finite_difference() -> None:
    """PyTorch's attention kernel for the CPU gives a gradient that is four times too large here."""
    query, key, value = (torch.randn(1, 1, 4, 8, dtype=torch.float64) for _ in range(3))
    mask = torch.full((4, 4), torch.finfo(torch.float32).min, dtype=torch.float64)

    def total(values: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, values, mask).sum()

    given = value.clone().requires_grad_()
    workbench.open(total, given, device="cpu").config.jit(total)(given).backward()
    step = torch.zeros_like(value)
    step[0, 0, 0, 0] = 1e-3
    difference = (total(value + step) - total(value - step)) / 2e-3
    assert given.grad is not None
    torch.testing.assert_close(given.grad[0, 0, 0, 0], difference)
