"""Compare predicted and measured memory at each statement, for many ops and layouts of their operands.

`python -m pytest benchmarks/memory/bench_statements.py -s` prints the statements and steps whose prediction is wrong;
docs/explanation/memory.md explains them. `-k NAME` runs one op. Each op runs forward and backward, with operands in row
order, in column order, with gaps, with one row that stride 0 repeats, and in bfloat16. All ops take half an hour on two
busy cores.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.compiler.memory import stepper
from tests.compiler.random_programs import OPS, _statement
from workbench.compiler import api
from workbench.compiler.lowering import patch_context
from workbench.compiler.memory import fake_execution, kernel_workspace, views_and_writes
from workbench.errors import WorkbenchError
from workbench.programs import resolve
from workbench.runs.measure import memory_meter
from workbench.runs.measure.accuracy import Stepper

FLOOR_BYTES = 512
"""Smaller differences in bytes are not errors, because some kernels allocate a few numbers for their own use."""
SHARE = 0.01


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def columns(*shape: int) -> torch.Tensor:
    return torch.randn(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)


def gaps(*shape: int) -> torch.Tensor:
    return torch.randn(*shape[:-1], 2 * shape[-1])[..., ::2]


def one_for_many(*shape: int) -> torch.Tensor:
    return torch.randn(1, *shape[1:]).expand(*shape)


def bfloat16(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).bfloat16()


LAYOUTS = (rows, columns, gaps, one_for_many, bfloat16)

MATRIX, BATCH, IMAGES = (64, 96), (4, 64, 96), (4, 8, 16, 16)
CLASSES = torch.arange(64) % 96

PAIRS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "bmm": (torch.bmm, BATCH, (4, 96, 48)),
    "matmul, one for a batch": (torch.matmul, BATCH, (96, 48)),
    "matmul, batch for one": (torch.matmul, (64, 96), (4, 96, 48)),
    "matmul, four dimensions": (torch.matmul, (2, 4, 32, 48), (2, 4, 48, 32)),
    "matmul, broadcast batches": (torch.matmul, (2, 1, 32, 48), (1, 4, 48, 32)),
    "matmul, vector": (lambda a, b: a @ b[:, 0], MATRIX, (96, 48)),
    "outer": (lambda a, b: torch.outer(a[0], b[0]), MATRIX, MATRIX),
    "linear": (F.linear, MATRIX, (48, 96)),
    "linear, three dimensions": (F.linear, BATCH, (48, 96)),
    "einsum, bij,bjk->bik": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), BATCH, (4, 96, 48)),
    "einsum, td,edh->teh": (lambda a, b: torch.einsum("td,edh->teh", a, b), MATRIX, (4, 96, 48)),
    "einsum, bhqd,bhkd->bhqk": (lambda a, b: torch.einsum("bhqd,bhkd->bhqk", a, b), (2, 4, 32, 48), (2, 4, 32, 48)),
    "baddbmm": (lambda a, b: torch.baddbmm(torch.ones(4, 64, 48), a, b), BATCH, (4, 96, 48)),
    "attention": (lambda a, b: F.scaled_dot_product_attention(a, b, b), (2, 4, 32, 48), (2, 4, 32, 48)),
    "attention, causal": (
        lambda a, b: F.scaled_dot_product_attention(a, b, b, is_causal=True),
        (2, 4, 32, 48),
        (2, 4, 32, 48),
    ),
    "attention, mask": (
        lambda a, b: F.scaled_dot_product_attention(a, b, b, attn_mask=torch.zeros(32, 32)),
        (2, 4, 32, 48),
        (2, 4, 32, 48),
    ),
    "conv1d": (F.conv1d, (4, 8, 64), (16, 8, 3)),
    "conv2d": (F.conv2d, IMAGES, (16, 8, 3, 3)),
    "conv2d, strided": (lambda a, b: F.conv2d(a, b, stride=2, padding=1), IMAGES, (16, 8, 3, 3)),
    "conv2d, groups": (lambda a, b: F.conv2d(a, b, groups=4), IMAGES, (16, 2, 3, 3)),
    "pow": (lambda a, b: torch.pow(a * a + 1, b), MATRIX, MATRIX),
    "maximum": (torch.maximum, MATRIX, MATRIX),
    "stack": (lambda a, b: torch.stack((a, b), 0), MATRIX, MATRIX),
    "mse_loss": (F.mse_loss, MATRIX, MATRIX),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3), MATRIX, MATRIX),
    "addcmul": (lambda a, b: torch.addcmul(a, a, b), MATRIX, MATRIX),
}

SINGLES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "sum, all": (torch.sum, MATRIX),
    "prod": (lambda a: a.prod(1), MATRIX),
    "amax": (lambda a: a.amax(1), MATRIX),
    "max": (lambda a: a.max(1)[0], MATRIX),
    "argmax": (lambda a: (a.argmax(1), 2 * a), MATRIX),
    "cumsum": (lambda a: a.cumsum(1), MATRIX),
    "sort": (lambda a: torch.sort(a, 1)[0], MATRIX),
    "argsort": (lambda a: (torch.argsort(a, 1), 2 * a), MATRIX),
    "topk": (lambda a: torch.topk(a, 4, 1)[0], MATRIX),
    "log_softmax": (lambda a: F.log_softmax(a, 1), MATRIX),
    "softmax, first dimension": (lambda a: F.softmax(a, 0), MATRIX),
    "logsumexp": (lambda a: torch.logsumexp(a, 1), MATRIX),
    "std": (lambda a: torch.std(a, 1), MATRIX),
    "vector_norm": (lambda a: torch.linalg.vector_norm(a, dim=1), MATRIX),
    "normalize": (lambda a: F.normalize(a, dim=1), MATRIX),
    "group_norm": (lambda a: F.group_norm(a, 4), IMAGES),
    "batch_norm": (lambda a: F.batch_norm(a, None, None, training=True), IMAGES),
    "instance_norm": (lambda a: F.instance_norm(a), IMAGES),
    "rms_norm": (lambda a: F.rms_norm(a, (96,)), MATRIX),
    "gelu": (F.gelu, MATRIX),
    "gelu, tanh": (lambda a: F.gelu(a, approximate="tanh"), MATRIX),
    "silu": (F.silu, MATRIX),
    "mish": (F.mish, MATRIX),
    "softplus": (F.softplus, MATRIX),
    "leaky_relu": (F.leaky_relu, MATRIX),
    "dropout": (lambda a: F.dropout(a, 0.5), MATRIX),
    "clamp": (lambda a: a.clamp(-0.5, 0.5), MATRIX),
    "max_pool1d": (lambda a: F.max_pool1d(a, 2), (4, 8, 64)),
    "max_pool2d": (lambda a: F.max_pool2d(a, 2), IMAGES),
    "avg_pool2d": (lambda a: F.avg_pool2d(a, 2), IMAGES),
    "adaptive_avg_pool2d": (lambda a: F.adaptive_avg_pool2d(a, 3), IMAGES),
    "interpolate, nearest": (lambda a: F.interpolate(a, scale_factor=2.0), IMAGES),
    "interpolate, bilinear": (lambda a: F.interpolate(a, scale_factor=2.0, mode="bilinear"), IMAGES),
    "pixel_shuffle": (lambda a: F.pixel_shuffle(a, 2), IMAGES),
    "unfold": (lambda a: a.unfold(1, 8, 4), MATRIX),
    "pad": (lambda a: F.pad(a, (1, 2)), MATRIX),
    "pad, reflect": (lambda a: F.pad(a, (1, 2), mode="reflect"), (4, 8, 64)),
    "flip": (lambda a: torch.flip(a, (0,)), MATRIX),
    "roll": (lambda a: torch.roll(a, 3, 0), MATRIX),
    "repeat": (lambda a: a.repeat(2, 2), MATRIX),
    "tril": (torch.tril, MATRIX),
    "diagonal": (lambda a: torch.diagonal(a), MATRIX),
    "to float64": (lambda a: a.to(torch.float64), MATRIX),
    "to bfloat16": (lambda a: a.to(torch.bfloat16), MATRIX),
    "clone": (torch.clone, MATRIX),
    "index": (lambda a: a[torch.tensor([1, 5, 3])], MATRIX),
    "index, two": (lambda a: a[torch.tensor([1, 5, 3]), torch.tensor([2, 2, 0])], MATRIX),
    "index_select": (lambda a: torch.index_select(a, 0, torch.tensor([1, 5, 3])), MATRIX),
    "take_along_dim": (lambda a: torch.take_along_dim(a, torch.zeros(64, 7, dtype=torch.int64), 1), MATRIX),
    "gather": (lambda a: torch.gather(a, 1, torch.zeros(64, 7, dtype=torch.int64)), MATRIX),
    "scatter": (lambda a: torch.scatter(torch.zeros(64, 96), 1, torch.zeros(64, 96, dtype=torch.int64), a), MATRIX),
    "scatter_add": (
        lambda a: torch.scatter_add(torch.zeros(64, 96), 1, torch.zeros(64, 96, dtype=torch.int64), a),
        MATRIX,
    ),
    "index_put": (lambda a: torch.zeros(64, 96).index_put((torch.tensor([1, 2]),), a[:2]), MATRIX),
    "index_add": (lambda a: torch.index_add(torch.zeros(128, 96), 0, torch.arange(64), a), MATRIX),
    "index_copy": (lambda a: torch.index_copy(torch.zeros(128, 96), 0, torch.arange(64), a), MATRIX),
    "masked_fill": (lambda a: a.masked_fill(a > 0, 0.0), MATRIX),
    "embedding": (lambda a: F.embedding(torch.arange(200) % 64, a), MATRIX),
    "cross_entropy": (lambda a: F.cross_entropy(a, CLASSES), MATRIX),
    "cross_entropy, smoothed": (lambda a: F.cross_entropy(a, CLASSES, label_smoothing=0.1), MATRIX),
    "nll_loss": (lambda a: F.nll_loss(F.log_softmax(a, 1), CLASSES), MATRIX),
    "binary_cross_entropy": (
        lambda a: F.binary_cross_entropy(torch.sigmoid(a), torch.ones(64, 96, dtype=a.dtype)),
        MATRIX,
    ),
    "smooth_l1_loss": (lambda a: F.smooth_l1_loss(a, torch.ones(64, 96, dtype=a.dtype)), MATRIX),
    "kl_div": (lambda a: F.kl_div(F.log_softmax(a, 1), torch.ones(64, 96), reduction="batchmean"), MATRIX),
    "glu": (F.glu, MATRIX),
}


@dataclasses.dataclass(frozen=True)
class Off:
    what: str
    predicted_bytes: int
    measured_bytes: int

    def __str__(self) -> str:
        return f"    predicted {self.predicted_bytes:9,d}  measured {self.measured_bytes:9,d}  {self.what}"


def is_off(predicted_bytes: int, measured_bytes: int) -> bool:
    return abs(predicted_bytes - measured_bytes) > max(FLOOR_BYTES, SHARE * measured_bytes)


def of_random_programs(op: str) -> Callable[..., Any]:
    of_b = MATRIX[::-1] if op == "matmul" else MATRIX
    expression, _ = _statement(op, "a", "b" if _of_two(op) else "a", MATRIX, of_b if _of_two(op) else MATRIX)
    namespace: dict[str, Any] = {"torch": torch}
    exec(f"def program({'a, b' if _of_two(op) else 'a'}):\n    return {expression}", namespace)
    found: Callable[..., Any] = namespace["program"]
    return found


def _of_two(op: str) -> bool:
    return op in ("add", "mul", "where", "cat", "matmul")


def cases() -> Iterator[tuple[str, Callable[..., Any], list[torch.Tensor]]]:
    """Yield each op with operands of each layout. Also yield binary ops with one operand by rows and one by columns."""
    pairs, singles = dict(PAIRS), dict(SINGLES)
    for each in OPS:
        name, function = f"{each} of random programs", of_random_programs(each)
        if _of_two(each):
            pairs[name] = (function, MATRIX, MATRIX if each != "matmul" else MATRIX[::-1])
        else:
            singles[name] = (function, MATRIX)
    for name, (op, one, other) in pairs.items():
        for left, right in itertools.product(LAYOUTS, LAYOUTS):
            if left is right or {left, right} == {rows, columns}:
                yield f"{name}: {left.__name__}, {right.__name__}", op, [left(*one), right(*other)]
    for name, (op, shape) in singles.items():
        for layout in LAYOUTS:
            yield f"{name}: {layout.__name__}", op, [layout(*shape)]


def by_op() -> dict[str, list[tuple[str, Callable[..., Any], list[torch.Tensor]]]]:
    found: dict[str, list[tuple[str, Callable[..., Any], list[torch.Tensor]]]] = {}
    for name, op, operands in cases():
        found.setdefault(name.partition(":")[0], []).append((name, op, operands))
    return found


def statements_off(captured: api.Capture, plan: api.Plan) -> tuple[int, list[Off]]:
    """Run each statement alone. Return the number of statements, and the statements whose prediction is wrong."""
    count, off, before = 0, [], None
    for trace in filter(None, (plan.split.forward, plan.split.backward)):
        found = views_and_writes.trace_facts(
            trace, earlier=before, arguments=None if before else captured.context.arguments
        )
        for row, bsym in enumerate(trace.bound_symbols):
            if bsym.sym.is_fusion or not bsym.flat_proxy_outs or bsym.sym.name.startswith(("unpack", "python_")):
                continue
            tensors = {
                proxy.name: stepper.empty(proxy, found.strides[proxy.name])
                for proxy in bsym.flat_proxy_args
                if proxy.name in found.strides
            }
            text, namespace = fake_execution.source(bsym)
            measured_bytes = kernel_workspace.peak_inside_bytes(text, namespace, tensors)
            if measured_bytes is None:
                continue
            given = {found.storage_of[name] for name in tensors}
            made = {found.storage_of[p.name] for p in bsym.flat_proxy_outs if p.name in found.storage_of} - given
            predicted_bytes = sum(found.storage_bytes[one] for one in made) + found.transient_bytes[row]
            count += 1
            if is_off(predicted_bytes, measured_bytes):
                off.append(Off(text.strip().splitlines()[-1].strip(), predicted_bytes, measured_bytes))
        before = found
    return count, off


def step_off(captured: api.Capture, plan: api.Plan) -> list[Off]:
    """Compare predicted and measured peak of the whole step, after subtracting memory that existed before the step."""
    function, args, kwargs = captured.program.build()
    hooks = api.Hooks("torch", {})
    jitted = patch_context.jit(function, executors=hooks.executors(), transforms=hooks.transforms())
    step = Stepper(jitted, args, kwargs)
    step.step()
    measured = memory_meter.measure_peak(step)
    predicted_bytes = plan.peak_bytes - plan.baseline_bytes
    measured_bytes = measured.measured_peak_bytes - measured.baseline_bytes
    return [Off("the step", predicted_bytes, measured_bytes)] if is_off(predicted_bytes, measured_bytes) else []


@pytest.mark.parametrize("op", by_op())
def test_predicted_memory_equals_measured_memory(op: str) -> None:
    total, wrong, refused = 0, [], set()
    for name, function, operands in by_op()[op]:
        arguments = [operand.detach().requires_grad_() for operand in operands]
        try:
            captured = api.capture(resolve(function, *arguments, device="cpu"), "torch")
        except WorkbenchError as error:
            refused.add(str(error).splitlines()[0][:120])
            continue
        plan = api.plan(captured, {})
        count, off = statements_off(captured, plan)
        total += count
        off += step_off(captured, plan)
        if off:
            wrong.append(name)
            print("", name, *off, sep="\n")
    print(
        f"\n{op}: {total} statements, {len(wrong)} cases with a wrong prediction",
        *refused,
        sep="\n    refused: " if refused else "",
    )
    assert not wrong
