"""PyTorch can follow choices for operators that it computes by operators with several outputs, such as pools."""

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.nn import functional

import workbench as wb
from workbench.compiler.driver.torch_prediction import predict_and_read
from workbench.plain_torch import compiled
from workbench.plain_torch.operators import Key, Operators

Function = Callable[[torch.Tensor], torch.Tensor]
FUNCTIONS: dict[str, Function] = {
    "max_pool2d": lambda x: functional.max_pool2d(x, 2),
    "max_pool3d": lambda x: functional.max_pool3d(x[None], (1, 2, 2))[0],
    "avg_pool2d": lambda x: functional.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x: functional.adaptive_avg_pool2d(x, 3),
    "adaptive_max_pool2d": lambda x: functional.adaptive_max_pool2d(x, 3),
    "indices": lambda x: functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2),
    "max": lambda x: x.max(3, keepdim=True)[0],
    "amax": lambda x: x.amax(3, keepdim=True),
    "topk": lambda x: x.topk(4, 3)[0],
    "sort": lambda x: x.sort(3)[0],
    "cummax": lambda x: x.cummax(3)[0],
    "var_mean": lambda x: torch.var_mean(x, 3, keepdim=True)[0],
}


class Net(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function, self.before = function, torch.nn.Conv2d(3, 4, 3, padding=1)
        self.scale = torch.nn.Parameter(torch.full((4, 1, 1), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.function(functional.gelu(self.before(x))) * self.scale).square().sum()


class Written(torch.nn.Module):
    """Reads a buffer by a pool, and then writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((3, 1, 1), 0.5))
        self.register_buffer("state", torch.arange(192.0).view(1, 3, 8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = (functional.max_pool2d(self.state, 2) * self.scale).square().sum() + x.sum()
        with torch.no_grad():
            self.state.mul_(3.0)
        return out


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def inputs() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(2, 3, 8, 8)


def net(name: str) -> Net:
    torch.manual_seed(0)
    return Net(FUNCTIONS[name])


def all_keys(module: torch.nn.Module) -> list[Key]:
    ops = Operators(module, {})
    compiled.compile(module, choices=ops, backend="aot_eager")(inputs())
    return sorted(ops.known)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_inductor_divides_the_graph_if_all_operators_are_recomputed(name: str) -> None:
    choices = dict.fromkeys(all_keys(net(name)), "recompute")
    captured = wb.open(net(name), inputs())._captured
    stock, chosen = (predict_and_read(captured, given).prediction for given in ({}, choices))
    assert 0 < chosen.saved_bytes <= stock.saved_bytes


@pytest.mark.slow
def test_a_recomputed_pool_is_not_saved() -> None:
    captured, choices = wb.open(net("max_pool2d"), inputs())._captured, {("", "max_pool2d", 0): "recompute"}
    stock, chosen = (predict_and_read(captured, given).prediction for given in ({}, choices))
    outputs, offsets = 2 * 4 * 4 * 4 * 4, 2 * 4 * 4 * 4
    assert stock.saved_bytes - chosen.saved_bytes == outputs + offsets
    assert chosen.unapplied == ()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_recomputed_pool_gives_the_gradients_of_eager(backend: str) -> None:
    module, plain = net("max_pool2d"), net("max_pool2d")
    choices = {("", "max_pool2d", 0): "recompute"}
    compiled.compile(module, choices=choices, backend=backend)(inputs()).backward()
    plain(inputs()).backward()
    for one, other in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_pool_of_a_written_buffer_is_not_recomputed(backend: str) -> None:
    module, plain = Written(), Written()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call = compiled.compile(module, choices={("", "max_pool2d", 0): "recompute"}, backend=backend)
        call(inputs()).backward()
    plain(inputs()).backward()
    assert any("it reads an input that the step writes in place" in str(each.message) for each in told)
    torch.testing.assert_close(module.scale.grad, plain.scale.grad)


def saved_tensors(choices: dict[Key, str], budget: float | None) -> tuple[list[str], list[str]]:
    """Return the data types of the tensors that aot_eager saves under choices, besides inputs; and all warnings."""
    found = list[str]()

    def divide(graph: torch.fx.GraphModule, given: object, **options: int) -> object:
        forward, backward = original(graph, given, **options)
        outputs = forward.graph.find_nodes(op="output")[0].args[0][options["num_fwd_outputs"] :]
        found.extend(str(node.meta["val"].dtype) for node in outputs if node.op != "placeholder")
        return forward, backward

    original = compiled.min_cut_rematerialization_partition
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        patched.setattr(compiled, "min_cut_rematerialization_partition", divide)
        module = net("max_pool2d")
        compiled.compile(module, choices=choices, budget=budget, backend="aot_eager")(inputs()).backward()
    return found, [str(each.message) for each in told if "is not applied" in str(each.message)]


def test_a_saved_pool_is_saved_with_its_indices() -> None:
    assert saved_tensors({}, 0.3) == ([], [])
    assert saved_tensors({("", "max_pool2d", 0): "save"}, 0.3) == (["torch.float32", "torch.int64"], [])


def test_a_pool_that_pytorch_cannot_offload_is_told() -> None:
    _, told = saved_tensors({("", "max_pool2d", 0): "offload"}, None)
    assert len(told) == 1
    assert "PyTorch offloads only contiguous tensors that the backward reads: no views, no tuples" in told[0]


def test_a_choice_to_save_is_followed_under_a_budget_of_zero() -> None:
    assert saved_tensors({}, 0) == ([], [])
    assert saved_tensors({("", "gelu", 0): "save"}, 0) == (["torch.float32"], [])
