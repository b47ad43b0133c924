"""Checkpointed regions: a plan saves the values that a policy saves, and has the gradients of eager PyTorch."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import workbench
from tests.trial_counts import beyond, combined
from workbench.errors import ProgramError

ATEN = torch.ops.aten
PRODUCTS = (ATEN.mm.default, ATEN.addmm.default)


def of(*operators: Any) -> Callable[[], Any]:
    """Return a `context_fn` for checkpoints, with a policy that saves the results of the given operators."""
    return partial(create_selective_checkpoint_contexts, list(operators))


def always(decision: Any) -> Callable[[], Any]:
    """Return a `context_fn` for checkpoints, with a policy that returns one decision for all operators."""
    return partial(create_selective_checkpoint_contexts, lambda *_, **__: decision)


def every_second_product() -> Any:
    """Return the contexts of a checkpoint with a policy that saves every second matmul, as torchtitan's policy does."""
    counts: defaultdict[bool, int] = defaultdict(int)

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if op in PRODUCTS:
            counts[ctx.is_recompute] += 1
            return CheckpointPolicy.MUST_SAVE if counts[ctx.is_recompute] % 2 else CheckpointPolicy.MUST_RECOMPUTE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


POLICIES: dict[str, Any] = {
    "none": None,
    "products": of(ATEN.addmm.default),
    "gelu": of(ATEN.gelu.default),
    "norms": of(ATEN.native_layer_norm.default),
    "three operators": of(ATEN.addmm.default, ATEN.gelu.default, ATEN.native_layer_norm.default),
    "every second product": every_second_product,
    "must save": always(CheckpointPolicy.MUST_SAVE),
    "prefer save": always(CheckpointPolicy.PREFER_SAVE),
    "must recompute": always(CheckpointPolicy.MUST_RECOMPUTE),
    "prefer recompute": always(CheckpointPolicy.PREFER_RECOMPUTE),
    "true": always(True),
    "false": always(False),
}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, contexts: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.options = {} if contexts is None else {"context_fn": contexts}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False, **self.options)
        return x.sum()


def eager_bytes(model: nn.Module, x: torch.Tensor) -> int:
    """Return the bytes that eager PyTorch keeps between forward and backward, except the arguments and the result."""
    made: dict[int, Any] = {}

    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    storage = leaf.untyped_storage()
                    made[storage._cdata] = torch.multiprocessing.reductions.StorageWeakRef(storage), storage.nbytes()
            return out

    given = {tensor.untyped_storage()._cdata for tensor in (x, *model.parameters())}
    with Noting():
        loss = model(x)
    return sum(n for key, (alive, n) in made.items() if not alive.expired() and key not in given) - loss.nbytes


@pytest.mark.slow
@pytest.mark.parametrize(("name", "executor"), combined(POLICIES, ["torch", "torchcompile"], quick=2))
def test_the_plan_saves_what_the_policy_saves(name: str, executor: str) -> None:
    x = torch.randn(16, 32)
    model = Model(POLICIES[name])
    bench = workbench.open(model, x, device="cpu", executor=executor)
    assert bench.plan.proof.proven
    eager = eager_bytes(model, x)
    # Eager PyTorch also keeps values that no backward reads: a layer's last product, the last sum, a norm's statistics.
    unread = {"products": 3, "three operators": 3, "must save": 4, "prefer save": 4, "true": 4}.get(name, 0) * x.nbytes
    unread += 3 * 2 * 16 * 4
    assert eager - unread <= bench.plan.saved_bytes <= eager


@pytest.mark.slow
@pytest.mark.parametrize("name", beyond(3, POLICIES))
def test_gradients_equal_those_of_eager_pytorch(name: str) -> None:
    x, model = torch.randn(16, 32), Model(POLICIES[name])
    compiled = workbench.open(model, x, device="cpu", executor="torch").config.jit(model)
    known, found = (torch.autograd.grad(call(x), list(model.parameters())) for call in (model, compiled))
    torch.testing.assert_close(found, known)


@pytest.mark.slow
def test_values_saved_by_a_policy_have_sites_and_can_be_recomputed() -> None:
    sites: list[set[str]] = []
    for name in ("none", "three operators"):
        bench = workbench.open(Model(POLICIES[name]), torch.randn(16, 32), device="cpu", executor="torch")
        sites.append({site.id for site in bench.sites("saved") if ":" in site.id})
    more = sorted(sites[1] - sites[0])
    assert {id.rpartition("/")[2] for id in more} == {"linear", "gelu>mul.1", "layer_norm>add.1"}
    before = bench.plan.saved_bytes
    bench.choose(dict.fromkeys(more, "recompute"))
    assert bench.plan.proof.proven
    assert bench.plan.saved_bytes < before
    assert "values that a policy saves have sites" in bench.capture_reason


def test_contexts_without_a_policy_are_refused_with_the_line() -> None:
    def contexts() -> Any:
        return contextlib.nullcontext(), contextlib.nullcontext()

    with pytest.raises(ProgramError, match=r"test_selective_checkpoints\.py.*create_selective_checkpoint_contexts"):
        workbench.open(Model(contexts), torch.randn(16, 32), device="cpu", executor="torch", capture="dynamo")


def failing_policy(*_: Any, **__: Any) -> Any:
    raise KeyError("aten.mm")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("contexts", "error"),
    [
        (of(ATEN.addmm), "ValueError: Expected op in `op_list` to be an OpOverload but got: aten.addmm"),
        (partial(create_selective_checkpoint_contexts, failing_policy), "KeyError: 'aten.mm'"),
    ],
)
@pytest.mark.parametrize("capture", ["auto", "dynamo"])
def test_an_error_of_a_policy_is_reported_as_the_users_error(contexts: Any, error: str, capture: str) -> None:
    with pytest.raises(ProgramError) as refused:
        workbench.open(Model(contexts), torch.randn(16, 32), device="cpu", executor="torch", capture=capture)
    text = str(refused.value)
    assert "test_selective_checkpoints.py" in text
    advice = "correct the context_fn of the checkpoint, which eager PyTorch calls, too"
    assert ("fails in eager PyTorch: " if capture == "auto" else advice) in text
    assert error.partition(":")[0] in text
    assert "register_custom_op" not in text


def test_the_interpreter_refuses_a_policy() -> None:
    with pytest.raises(
        ProgramError,
        match="does not support policies for what a checkpoint saves: open the program with capture='auto'",
    ):
        workbench.open(
            Model(POLICIES["gelu"]), torch.randn(16, 32), device="cpu", executor="torch", capture="interpreter"
        )


class Regions(nn.Module):
    """A model with one region that is checkpointed in one of several ways."""

    def __init__(self, call: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.call = call
        self.inside, self.region = nn.Linear(4, 4), nn.Sequential(*(nn.Linear(4, 4) for _ in range(5)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self.region, x, self.inside(x)).square().sum()


REGIONS: dict[str, tuple[Callable[..., torch.Tensor], str]] = {
    "reentrant sequence": (lambda region, x, h: checkpoint_sequential(region, 2, h, use_reentrant=True), "dynamo"),
    "reentrant": (lambda region, x, h: checkpoint(region, h, use_reentrant=True), "dynamo"),
    # Without an input that requires a gradient, PyTorch gives no gradient to the parameters of the region.
    "no gradient": (lambda region, x, h: checkpoint(region, x, use_reentrant=True) + h, "parts"),
    "sequence": (lambda region, x, h: checkpoint_sequential(region, 2, h, use_reentrant=False), "dynamo"),
    "no gradient by default": (lambda region, x, h: checkpoint(region, x) + h, "parts"),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*use_reentrant", "ignore:None of the inputs")
@pytest.mark.parametrize("name", beyond(3, REGIONS))
def test_checkpointed_regions_have_the_gradients_of_eager_pytorch(name: str) -> None:
    call, capture = REGIONS[name]
    model, x = Regions(call), torch.randn(2, 4)
    bench = workbench.open(model, x, device="cpu")
    assert bench.capture == capture
    losses, gradients = [], []
    for program in (model, bench.config.jit(model)):
        model.zero_grad()
        losses.append(program(x))
        losses[-1].backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(losses[1], losses[0])
    torch.testing.assert_close(*gradients)
