"""Under autocast on a CPU, results have the data types and values of eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

import workbench
from tests.trial_counts import combined
from workbench.compiler.lowering.autocast import NARROW, PROMOTE, WIDE
from workbench.errors import ProgramError

CLASSES = torch.tensor([0, 3, 1])
OTHER = torch.randn(4, 3)

COMPUTED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cross_entropy": lambda y: functional.cross_entropy(y, CLASSES),
    "nll_loss": lambda y: functional.nll_loss(y.log_softmax(-1), CLASSES),
    "mse_loss": lambda y: functional.mse_loss(y, y.flip(0)),
    "smooth_l1_loss": lambda y: functional.smooth_l1_loss(y, y.flip(0)),
    "kl_div": lambda y: functional.kl_div(y.log_softmax(-1), y.softmax(-1), reduction="sum"),
    "logits": lambda y: functional.binary_cross_entropy_with_logits(y, y.sigmoid()),
    "prod": lambda y: y.prod(-1) + torch.prod(y, -1),
    "cdist": lambda y: torch.cdist(y, y + 1),
    "addmm": lambda y: torch.addmm(torch.ones(3, 3), y, OTHER),
    "softmax": lambda y: y.softmax(-1),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "around"), combined(COMPUTED, [torch.bfloat16, torch.float16], [False, True]))
def test_types_and_values_equal_those_of_pytorch(name: str, kind: torch.dtype, around: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(6, 4), torch.randn(3, 6)

    def computed(x: torch.Tensor) -> torch.Tensor:
        return COMPUTED[name](model(x))

    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=kind):
            return computed(x)

    if around:
        with torch.autocast("cpu", dtype=kind):
            bench = workbench.open(computed, x, device="cpu", executor="torch")
            made, expected = bench.config.jit(computed)(x), computed(x)
    else:
        bench = workbench.open(program, x, device="cpu", executor="torch")
        made, expected = bench.config.jit(program)(x), program(x)
    assert bench.capture == "dynamo"
    torch.testing.assert_close(made, expected, rtol=4 * torch.finfo(kind).eps, atol=4 * torch.finfo(kind).eps)
    found = []
    for out in (made, expected):
        model.weight.grad = None
        out.sum().backward()
        assert model.weight.grad is not None
        found.append(model.weight.grad)
    scale = found[1].abs().max().item()
    torch.testing.assert_close(*found, rtol=0, atol=16 * torch.finfo(kind).eps * max(scale, 1.0))


SIGNS = torch.tensor([1.0, -1.0, 1.0])
IMAGE, VOLUME = (2, 3, 6, 6), (1, 2, 4, 4, 4)

Case = tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]

NARROWED: dict[str, Case] = {
    "conv1d": (functional.conv1d, ((2, 3, 8), (4, 3, 3))),
    "conv2d": (functional.conv2d, (IMAGE, (4, 3, 3, 3))),
    "conv3d": (functional.conv3d, (VOLUME, (4, 2, 3, 3, 3))),
    "conv_tbc": (torch.conv_tbc, ((8, 2, 3), (3, 3, 4), (4,))),
    "conv_transpose1d": (functional.conv_transpose1d, ((2, 3, 8), (3, 4, 3), (4,))),
    "conv_transpose2d": (lambda *given: functional.conv_transpose2d(*given, stride=2), (IMAGE, (3, 4, 3, 3), (4,))),
    "conv_transpose2d without bias": (torch.conv_transpose2d, (IMAGE, (3, 4, 3, 3))),
    "conv_transpose3d": (functional.conv_transpose3d, (VOLUME, (2, 4, 3, 3, 3), (4,))),
    "linear": (functional.linear, ((3, 4), (5, 4), (5,))),
    "mm": (torch.mm, ((3, 4), (4, 5))),
    "Tensor.mm": (lambda a, b: a.mm(b), ((3, 4), (4, 5))),
    "bmm": (torch.bmm, ((2, 3, 4), (2, 4, 5))),
    "Tensor.bmm": (lambda a, b: a.bmm(b), ((2, 3, 4), (2, 4, 5))),
    "matmul": (torch.matmul, ((3, 4), (4, 5))),
    "linalg.matmul": (torch.linalg.matmul, ((3, 4), (4, 5))),
    "prelu": (functional.prelu, ((3, 4), (4,))),
    "addmm": (torch.addmm, ((3, 5), (3, 4), (4, 5))),
    "Tensor.addmm": (lambda a, b, c: a.addmm(b, c), ((3, 5), (3, 4), (4, 5))),
    "addbmm": (torch.addbmm, ((3, 5), (2, 3, 4), (2, 4, 5))),
    "Tensor.addbmm": (lambda a, b, c: a.addbmm(b, c), ((3, 5), (2, 3, 4), (2, 4, 5))),
    "baddbmm": (torch.baddbmm, ((2, 3, 5), (2, 3, 4), (2, 4, 5))),
    "Tensor.baddbmm": (lambda a, b, c: a.baddbmm(b, c), ((2, 3, 5), (2, 3, 4), (2, 4, 5))),
    "linalg.vecdot": (torch.linalg.vecdot, ((3, 4), (3, 4))),
    "scaled_dot_product_attention": (functional.scaled_dot_product_attention, ((2, 2, 4, 8),) * 3),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), ((2, 3, 4), (2, 4, 5))),
    "einsum of a vector": (lambda a, b: torch.einsum("ij,i->j", a, b), ((3, 4), (3,))),
}
"""Operators that autocast computes in bfloat16, with the shapes of their tensors."""
COMPOSED: dict[str, Case] = {
    "inner": (torch.inner, ((3, 4), (5, 4))),
    "inner of vectors": (torch.inner, ((4,), (4,))),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 1), ((3, 4), (4, 5))),
    "einsum without sum": (lambda a, b: torch.einsum("ij,ij->ij", a, b), ((3, 4), (3, 4))),
    "linalg.multi_dot": (lambda *given: torch.linalg.multi_dot(given), ((3, 4), (4, 5), (5, 2))),
    "matrix_power": (lambda a: torch.linalg.matrix_power(a, 3), ((4, 4),)),
    "bilinear": (functional.bilinear, ((3, 4), (3, 5), (2, 4, 5))),
    "mv": (torch.mv, ((3, 4), (4,))),
    "in place": (lambda a, b, c: a.clone().addmm_(b, c), ((3, 5), (3, 4), (4, 5))),
    "layer_norm": (lambda a: functional.layer_norm(a, (4,)), ((3, 4),)),
}
"""Operators that PyTorch composes of others, or computes in the data types of their float32 tensors."""
WIDENED: dict[str, Case] = {
    **{
        f"{kind}_pool3d": (partial(getattr(functional, f"{kind}_pool3d"), kernel_size=2), (VOLUME,))
        for kind in ("avg", "max")
    },
    **{
        f"adaptive_{kind}_pool3d": (partial(getattr(functional, f"adaptive_{kind}_pool3d"), output_size=2), (VOLUME,))
        for kind in ("avg", "max")
    },
    "grid_sample": (lambda a, b: functional.grid_sample(a, b.tanh(), align_corners=False), (IMAGE, (2, 3, 3, 2))),
    "max_unpool2d": (
        lambda a: functional.max_unpool2d(*functional.max_pool2d(a, 2, return_indices=True), 2),
        (IMAGE,),
    ),
    **{
        f"{mode} {rank}": (lambda a, m=mode, r=rank: functional.pad(a, (1, 1) * r, mode=m), ((1, 2, *(4,) * rank),))
        for mode, rank in (("reflect", 1), ("reflect", 2), ("replicate", 1), ("replicate", 2), ("replicate", 3))
    },
    **{
        name: (getattr(functional, name), ((3, 4), (3, 4)))
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "poisson_nll_loss", "hinge_embedding_loss")
    },
    "kl_div": (lambda a, b: functional.kl_div(a.log_softmax(-1), b.softmax(-1), reduction="sum"), ((3, 4), (3, 4))),
    "soft_margin_loss": (lambda a, b: functional.soft_margin_loss(a, b.sign().detach()), ((3, 4), (3, 4))),
    "binary_cross_entropy": (
        lambda a, b: functional.binary_cross_entropy(a.sigmoid(), b.sigmoid().detach()),
        ((3, 4), (3, 4)),
    ),
    "with_logits": (functional.binary_cross_entropy_with_logits, ((3, 4), (3, 4))),
    "cross_entropy": (lambda a: functional.cross_entropy(a, CLASSES), ((3, 4),)),
    "nll_loss": (lambda a: functional.nll_loss(a, CLASSES), ((3, 4),)),
    "cosine_embedding_loss": (lambda a, b: functional.cosine_embedding_loss(a, b, SIGNS), ((3, 4), (3, 4))),
    "margin_ranking_loss": (lambda a, b: functional.margin_ranking_loss(a, b, SIGNS), ((3,), (3,))),
    "multi_margin_loss": (lambda a: functional.multi_margin_loss(a, CLASSES), ((3, 4),)),
    "triplet_margin_loss": (functional.triplet_margin_loss, ((3, 4), (3, 4), (3, 4))),
    "cdist": (torch.cdist, ((3, 4), (5, 4))),
    "prod": (torch.prod, ((3, 4),)),
    "Tensor.prod": (lambda a: a.prod(-1), ((3, 4),)),
    "trace": (torch.trace, ((4, 4),)),
    "Tensor.trace": (lambda a: a.trace(), ((4, 4),)),
}
"""Operators that autocast computes in float32, and that Thunder can trace."""
PROMOTED: dict[str, Case] = {
    "cat": (lambda a, b: torch.cat([a, b]), ((3, 4), (3, 4))),
    "stack": (lambda a, b: torch.stack([a, b]), ((3, 4), (3, 4))),
    "index_copy": (lambda a, b: torch.index_copy(a, 0, CLASSES[:2], b), ((4, 4), (2, 4))),
    "Tensor.index_copy": (lambda a, b: a.index_copy(0, CLASSES[:2], b), ((4, 4), (2, 4))),
}
"""Operators that autocast computes in the widest data type of their tensors."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cases", "first", "others"),
    [
        (NARROWED, torch.float32, torch.float32),
        (NARROWED, torch.bfloat16, torch.float32),
        (COMPOSED, torch.float32, torch.float32),
        (WIDENED, torch.bfloat16, torch.bfloat16),
        (PROMOTED, torch.bfloat16, torch.float32),
    ],
)
def test_operators_of_the_lists_equal_pytorch(cases: dict[str, Case], first: torch.dtype, others: torch.dtype) -> None:
    torch.manual_seed(0)
    given = {
        name: [torch.randn(shape).to(others if at else first) for at, shape in enumerate(shapes)]
        for name, (_, shapes) in cases.items()
    }
    leaves = [tensor.requires_grad_() for tensors in given.values() for tensor in tensors]

    def program(*flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
        read = iter(flat)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return tuple(function(*(next(read) for _ in shapes)) for function, shapes in cases.values())

    bench = workbench.open(program, *leaves, device="cpu", executor="torch")
    assert bench.capture == "dynamo"
    found = {}
    for which, call in (("made", bench.config.jit(program)), ("expected", program)):
        results = call(*leaves)
        total = sum(out.float().square().sum() for out in results)
        gradients = iter(torch.autograd.grad(total, leaves, materialize_grads=True))
        for (name, tensors), out in zip(given.items(), results, strict=True):
            found[which, name] = [out.detach(), *(next(gradients) for _ in tensors)]
    wrong = []
    for name in cases:
        for at, (made, expected) in enumerate(zip(found["made", name], found["expected", name], strict=True)):
            near = 2e-2 * max(1.0, expected.abs().max().item())
            if made.dtype != expected.dtype or not torch.allclose(made.float(), expected.float(), rtol=0, atol=near):
                error = (made - expected).abs().max().item()
                wrong.append(f"{name}, {at or 'result'}: {made.dtype} for {expected.dtype}, off by {error:.1e}")
    assert not wrong


UNLISTED = {
    "cpu": {"_native_multi_head_attention", "mkldnn_rnn_layer", "_grid_sampler_2d_cpu_fallback", "_convolution"}
    | {"multilabel_margin_loss_forward"},
    "cuda": {"_cudnn_rnn", "_thnn_fused_gru_cell", "_thnn_fused_lstm_cell", "gru_cell", "lstm_cell", "rnn_relu_cell"}
    | {"rnn_tanh_cell", "cudnn_convolution", "cudnn_convolution_transpose", "_scaled_dot_product_flash_attention"}
    | {"binary_cross_entropy"},
}
"""Operators that only PyTorch itself calls, that Thunder lacks, or that autocast refuses (`binary_cross_entropy`)."""


@pytest.mark.parametrize(("device", "key"), [("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")])
def test_lists_have_the_operators_of_pytorch(device: str, key: str) -> None:
    registered = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    named = {name.removeprefix("aten::").partition(".")[0] for name in registered if name.startswith("aten::")}
    listed = [name for table in (NARROW, WIDE, PROMOTE) for name in table[device].split()]
    assert len(listed) == len(set(listed))
    assert named - set(listed) <= UNLISTED[device]


@pytest.mark.parametrize("onednn", [False, True])
def test_a_recurrent_network_has_the_type_and_the_values_of_eager(onednn: bool) -> None:
    torch.manual_seed(0)
    network, x = nn.LSTM(4, 4), torch.randn(3, 2, 4)

    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            made: torch.Tensor = network(x)[0]
        return made

    with torch.backends.mkldnn.flags(enabled=onednn):
        try:
            eager = program(x)
        except RuntimeError as error:
            if onednn and "could not create a primitive" in str(error):
                pytest.skip("oneDNN has no LSTM in bfloat16 for this processor")
            raise
        torch.testing.assert_close(workbench.open(program, x, executor="torch").config.jit(program)(x), eager)


def test_a_quantile_of_bfloat16_is_computed_under_autocast_only() -> None:
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)).bfloat16()

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.quantile(x, 0.3)

    def under_autocast(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return program(x)

    with pytest.raises(ProgramError, match="must be either float or double"):
        workbench.open(program, x, executor="torch")
    compiled = workbench.open(under_autocast, x, executor="torch").config.jit(under_autocast)
    torch.testing.assert_close(compiled(x), under_autocast(x))
