"""Executor `torchcompile_aten` gives the results of eager PyTorch for attention, `addmm` and `log_softmax`.

Attention and `addmm` run PyTorch's kernels. For `log_softmax`, the executor has its own gradient. The executor claims
only calls whose gradients it computes correctly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import workbench
from tests.compiler.memory.test_fake_execution import WITHIN, assert_arithmetic_equals_stepper, measured_peak
from tests.trial_counts import beyond
from workbench.bench import Workbench
from workbench.compiler import api
from workbench.compiler.interop.thunder_api import get_default_executors
from workbench.compiler.lowering import aten_cpu
from workbench.errors import DeviceError
from workbench.programs import resolve

EXECUTOR = "torchcompile_aten"
ATTENTION, MASK, ADDMM, NORM = "sdpa_cpu", "sdpa_cpu_mask", "addmm_aten", "log_softmax_aten"
attend = torch.nn.functional.scaled_dot_product_attention

type Made = tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]


def drawn(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype).requires_grad_()


def heads(*, dtype: torch.dtype = torch.float32, keys: int = 6, of_keys: int = 2) -> tuple[torch.Tensor, ...]:
    shapes = (2, 2, 6, 8), (2, of_keys, keys, 8), (2, of_keys, keys, 8)
    return tuple(drawn(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes))


def visible(*shape: int) -> torch.Tensor:
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(9)) > 0.4
    mask[..., 0] = True
    return mask


def steps_of(run: Callable[..., torch.Tensor], made: Made) -> list[Any]:
    args = made[1]
    for arg in args:
        arg.grad = None
    out = run(*args)
    out.square().sum().backward()
    return [out.detach(), *(arg.grad for arg in args)]


def opened(made: Made) -> Workbench:
    return workbench.open(made[0], *made[1], device="cpu", executor=EXECUTOR)


def symbols(bench: Workbench) -> list[str]:
    return list(bench.plan.graph.statements.name)


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attend(torch.sin(q), k, v * 2, is_causal=True)


def crossed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attend(q, torch.tanh(k), v, scale=0.3)


def turned(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Compute attention of operands whose last dimension is not contiguous."""
    q, k, v = (a.transpose(2, 3) for a in (q, k, v))
    return attend(q, k, v)


def masked(mask: torch.Tensor) -> Callable[..., torch.Tensor]:
    return lambda q, k, v: attend(q * 1.5, k, v, attn_mask=mask)


CLAIMED: dict[str, Made] = {
    "causal": (causal, heads()),
    "more keys than queries": (crossed, heads(keys=9)),
    "strides": (turned, heads()),
    "bfloat16": (causal, heads(dtype=torch.bfloat16)),
    "a mask for all": (masked(visible(6, 6)), heads()),
    "a mask for each batch element": (masked(visible(2, 1, 6, 6)), heads()),
    "a mask that leaves a query no key": (masked(torch.arange(6)[:, None] > torch.arange(6)), heads()),
    "a mask of keys": (masked(visible(1, 1, 1, 6)), heads()),
    "a mask of queries, expanded": (masked(visible(2, 1, 6, 1).expand(2, 1, 6, 6)), heads()),
}


@pytest.mark.parametrize("name", beyond(3, CLAIMED, pytest.mark.slow))
@pytest.mark.usefixtures("no_compiler")
def test_attention_runs_the_kernel_of_pytorch_and_gives_its_results(name: str) -> None:
    made = CLAIMED[name]
    bench = opened(made)
    assert {ATTENTION, f"{ATTENTION}_backward"} <= set(symbols(bench))
    assert bench.plan.proof.proven
    eager, found = steps_of(made[0], made), steps_of(bench.config.jit(made[0]), made)
    tolerance = 2e-2 if made[1][0].dtype is torch.bfloat16 else 1e-6
    for one, other in zip(found, eager, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def told(*shape: int) -> torch.Tensor:
    """Return a tensor of booleans that is a view of random integers. Some of its bytes are 2 or 3."""
    numbers = torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(3), dtype=torch.uint8)
    return numbers.view(torch.bool)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "mask",
    [
        visible(3, 1, 65, 65),
        visible(6, 8).t(),
        visible(5, 40)[:, ::2],
        visible(2, 1, 6, 1).expand(2, 3, 6, 9),
        torch.zeros(3, 3, dtype=torch.bool),
        told(7, 9),
    ],
    ids=["for a batch", "transposed", "every second column", "expanded", "all false", "bytes other than 0 and 1"],
)
def test_a_mask_converted_to_numbers_equals_masked_fill_bitwise(mask: torch.Tensor, dtype: torch.dtype) -> None:
    found = aten_cpu.additive_mask(mask, torch.empty(0, dtype=dtype))
    wanted = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask.clone(), -torch.inf)
    assert found.dtype is wanted.dtype
    assert torch.equal(found, wanted)
    assert torch.equal(found.signbit(), wanted.signbit())
    # Elements that the mask repeats by `expand` are stored once.
    once = math.prod(1 if not step else n for n, step in zip(mask.shape, mask.stride(), strict=True))
    assert found.untyped_storage().nbytes() == once * dtype.itemsize


@pytest.mark.usefixtures("no_compiler")
def test_a_mask_is_saved_as_booleans_and_converted_inside_fusions() -> None:
    mask = visible(2, 1, 6, 6)

    def twice(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        seen = mask.logical_not()
        return attend(attend(q, k, v, attn_mask=seen), k, v, attn_mask=seen)

    graph = workbench.open(twice, *heads(), mask, device="cpu", executor=EXECUTOR).plan.graph
    rows = [row for row, name in enumerate(graph.statements.name) if name == MASK]
    # The mask is converted four times: for two attentions, and for the gradients of each.
    assert len(rows) == 4
    assert all(graph.statements.parent[row] >= 0 for row in rows)
    made = {value for row in rows for value in graph.statements.outputs[row].tolist()}
    assert not made & set(graph.ends.given)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_if_inductor_converts_the_mask_attention_equals_eager(dtype: torch.dtype) -> None:
    made = (masked(visible(2, 1, 6, 1).expand(2, 1, 6, 6)), heads(dtype=dtype))
    run = opened(made).config.jit(made[0])
    eager = steps_of(made[0], made)
    for _ in range(4):
        tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-6
        for one, other in zip(steps_of(run, made), eager, strict=True):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


LEFT: dict[str, Made] = {
    "double": (causal, heads(dtype=torch.float64)),
    "three dimensions": (lambda q, k, v: attend(q[0], k[0], v[0]), heads()),
    "a mask that is added": (lambda q, k, v: attend(q, k, v, attn_mask=k[:1, :1, :, :6]), heads()),
    "other sizes of values": (lambda q, k, v: attend(q, k, v[..., :4]), heads()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEFT)
@pytest.mark.usefixtures("no_compiler")
def test_attention_that_the_kernel_does_not_support_is_decomposed(name: str) -> None:
    made = LEFT[name]
    bench = opened(made)
    assert ATTENTION not in symbols(bench)
    eager, found = steps_of(made[0], made), steps_of(bench.config.jit(made[0]), made)
    for one, other in zip(found, eager, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def affine(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.addmm(bias, torch.sin(a), b)


def weighted(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.addmm(bias, a, b, beta=2)


@pytest.mark.parametrize(
    ("function", "bias", "claimed"), [(affine, (5,), True), (weighted, (5,), False), (affine, (4, 5), False)]
)
@pytest.mark.usefixtures("no_compiler")
def test_addmm_is_claimed_only_with_a_1d_bias_and_factors_of_one(
    function: Callable[..., torch.Tensor], bias: tuple[int, ...], claimed: bool
) -> None:
    made = (function, (drawn(*bias, seed=0), drawn(4, 3, seed=1), drawn(3, 5, seed=2)))
    bench = opened(made)
    assert (ADDMM in symbols(bench), "addmm_vjp" in symbols(bench)) == (claimed, not claimed)
    assert bench.plan.proof.proven, bench.plan.proof.fault
    eager, found = steps_of(function, made), steps_of(bench.config.jit(function), made)
    for one, other in zip(found, eager, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def entropy(logits: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits * 2, classes)


def normed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(x @ w, -1)


CLASSES = torch.arange(6) % 5
NORMED: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], bool]] = {
    "a loss": (entropy, (drawn(6, 5, seed=0), CLASSES), True),
    "by itself": (normed, (drawn(6, 4, seed=0), drawn(4, 5, seed=1)), True),
    "three dimensions": (normed, (drawn(2, 6, 4, seed=0), drawn(4, 5, seed=1)), True),
    "bfloat16": (normed, (drawn(6, 4, seed=0, dtype=torch.bfloat16), drawn(4, 5, seed=1, dtype=torch.bfloat16)), False),
}


@pytest.mark.parametrize("name", beyond(1, NORMED, pytest.mark.slow))
@pytest.mark.usefixtures("no_compiler")
def test_log_softmax_is_claimed_in_float32_and_equals_eager(name: str) -> None:
    function, args, claimed = NORMED[name]
    bench = workbench.open(function, *args, device="cpu", executor=EXECUTOR)
    assert (NORM in symbols(bench), f"{NORM}_backward" in symbols(bench)) == (claimed, claimed)
    assert bench.plan.proof.proven, bench.plan.proof.fault
    floats = tuple(arg for arg in args if arg.is_floating_point())
    outcomes = []
    for run in (function, bench.config.jit(function)):
        for arg in floats:
            arg.grad = None
        out = run(*args)
        out.square().sum().backward()
        outcomes.append([out.detach(), *(arg.grad for arg in floats)])
    tolerance = 2e-2 if floats[0].dtype is torch.bfloat16 else 1e-5
    for one, other in zip(*outcomes, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("no_compiler")
def test_a_loss_does_not_store_the_logarithms_of_all_classes() -> None:
    args = drawn(64, 256, seed=0), torch.arange(64)
    peaks = {
        executor: workbench.open(entropy, *args, device="cpu", executor=executor).plan.peak_bytes
        for executor in (EXECUTOR, "torchcompile")
    }
    of_all, two_columns = 64 * 256 * 4, 2 * 64 * 4
    assert peaks[EXECUTOR] == peaks["torchcompile"] - of_all + two_columns


@pytest.mark.usefixtures("no_compiler")
def test_saved_values_of_attention_can_be_recomputed() -> None:
    made = CLAIMED["causal"]
    bench = opened(made)
    saved = [site.id for site in bench.sites("saved") if ATTENTION in site.id and "recompute" not in site.illegal]
    assert saved
    eager, before = steps_of(made[0], made), bench.plan.saved_bytes
    bench.choose(dict.fromkeys(saved, "recompute"))
    assert bench.plan.saved_bytes < before
    assert symbols(bench).count(ATTENTION) == 2
    for one, other in zip(steps_of(bench.config.jit(made[0]), made), eager, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


class Attending(torch.nn.Module):
    """Attention of inputs so large that the workspace of the attention kernel is visible in measured peak memory."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(32, 96)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (a.unflatten(-1, (4, 8)).transpose(1, 2) for a in self.project(x).chunk(3, -1))
        return attend(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2).square().mean()


@pytest.mark.slow
def test_for_attention_the_predicted_peak_equals_the_measured_peak() -> None:
    program = resolve(Attending(), drawn(2, 64, 32, seed=0), visible(2, 1, 64, 64))
    plan = assert_arithmetic_equals_stepper(api.capture(program, EXECUTOR), {})
    assert ATTENTION in plan.graph.statements.name
    assert plan.peak_bytes == pytest.approx(measured_peak(program, EXECUTOR, {}), rel=WITHIN)


def test_the_executor_is_for_a_cpu() -> None:
    with pytest.raises(DeviceError, match=r"torchcompile_aten.*use 'nvfuser'"):
        workbench.open("llama", device="planned", executor=EXECUTOR)


@pytest.mark.usefixtures("no_compiler")
def test_other_executors_and_unmodified_thunder_are_unchanged() -> None:
    made = CLAIMED["causal"]
    opened(made)
    names = workbench.open(made[0], *made[1], device="cpu", executor="torchcompile").plan.graph.statements.name
    assert ATTENTION not in names
    assert not any(executor.name == "workbench_aten" for executor in get_default_executors())
