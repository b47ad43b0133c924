"""If a module reuses the trace of an equal module during capture, the graph equals the graph without reuse."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from packaging.version import Version
from torch import nn
from torch.utils import _pytree as pytree

import workbench
from tests.models import zoo
from tests.trial_counts import amount, beyond
from workbench.compiler.frontend import dynamo, module_reuse
from workbench.compiler.frontend.dynamo import WholeGraph, whole_graph
from workbench.compiler.frontend.module_equality import tensor_traits
from workbench.compiler.interop.torch_versions import TORCH

WIDTH, LAYERS = 8, 6
FIRST = 1 if Version("2.12.dev0") <= TORCH else 0
"""Number of the first layer whose trace other layers can reuse.

Since PyTorch 2.12, Dynamo reads a tensor argument only when the called function uses it. The first layer of a model
then gets an argument that Dynamo has not read; see `module_equality.describe`.
"""
SEEN: list[int] = []


@contextlib.contextmanager
def each_traced(program: Any) -> Iterator[module_reuse.ReuseCounts]:
    """Stand in for `trace_modules_once`: reuse no trace, so that each module is traced."""
    yield module_reuse.ReuseCounts()


def _leaf(value: Any) -> Any:
    return (type(value), tensor_traits(value)) if isinstance(value, torch.Tensor) else value


def _memory(whole: WholeGraph) -> list[tuple[Any, ...]]:
    """Return, for each input tensor of a graph, its storage's number and bytes, and whether its `grad` is None."""
    fakes = [node.meta["example_value"] for node in whole.graph.graph.nodes if node.op == "placeholder"]
    numbers: dict[int, int] = {}
    return [
        (numbers.setdefault(storage._cdata, len(numbers)), storage.nbytes(), fake.grad is None)
        for fake in fakes
        if isinstance(fake, torch.Tensor)
        for storage in [fake.untyped_storage()]
    ]


def as_data(whole: WholeGraph) -> list[Any]:
    """Return, for each node of a graph, the attributes and metadata that the workbench reads."""
    return [
        (
            node.name, node.op, node.target, str(node.args), str(node.kwargs), node.stack_trace,
            [_leaf(leaf) for leaf in pytree.tree_leaves(node.meta.get("example_value"))],
            list(node.meta.get("nn_module_stack", {}).items()), node.meta.get("source_fn_stack"),
        )
        for node in whole.graph.graph.nodes
    ]  # fmt: skip


def written_of(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> dict[str, int]:
    """Assert that the graph with reuse equals the graph without. Return how many traces each class reused."""
    found = whole_graph(model, args, kwargs or {})
    torch._dynamo.reset()
    with mock.patch.object(dynamo, "trace_modules_once", each_traced):
        stock = whole_graph(model, args, kwargs or {})
    torch._dynamo.reset()
    assert as_data(found) == as_data(stock)
    assert _memory(found) == _memory(stock)
    assert [id(tensor) for tensor in found.inputs] == [id(tensor) for tensor in stock.inputs]
    assert not stock.written.modules
    return dict(found.written.modules)


class Layer(nn.Module):
    """A layer with an attribute `number` that its forward does not read."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)
        self.drop = nn.Dropout(0.1)
        self.act = nn.ReLU()
        self.register_buffer("scale", torch.ones(WIDTH))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        h = self.act(self.norm(x)) * self.scale
        if mask is not None:
            h = h.masked_fill(mask, 0.0)
        h = self.act(self.drop(self.inner(h)))
        return x + h


class Numbered(Layer):
    """A layer whose forward reads `number`. From the fourth layer on, the value changes the statements."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(x, mask) * (2.0 if self.number > 2 else 1.0)


class ByName(Layer):
    """A layer that reads its number by `getattr` with a computed name."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(x, mask) + getattr(self, "num" + "ber") // 4


class InTable(Layer):
    """A layer that reads its number from its instance dictionary."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(x, mask) + self.__dict__["number"] // 4


class Remembers(Layer):
    """A layer that appends to a global list in each call."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        SEEN.append(1)
        return super().forward(x, mask)


class Counts(Layer):
    """A layer that counts its calls."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        self.number += 1
        return super().forward(x, mask)


class InPlace(Layer):
    """A layer that writes into its input."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return x.add_(super().forward(x.clone(), mask))


class AddsTo(Layer):
    """A layer that writes into its own intermediate result."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        h = super().forward(x, mask)
        h += x * 0.5
        return self.act(h) + x


class Two(Layer):
    """A layer whose result is a tuple that contains its input."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        return super().forward(x, mask), x, None


class Normed(Layer):
    """A layer that updates running statistics."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.batch = nn.BatchNorm1d(WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return self.batch(super().forward(x, mask))


class Without(Layer):
    """A layer that computes a factor without gradients."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        with torch.no_grad():
            scale = x.abs().mean()
        return super().forward(x, mask) * scale


class Applied(Layer):
    """A layer whose activation is a function with bound arguments."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        del self.act
        self.act = functools.partial(nn.functional.gelu, approximate="tanh")


class AppliedOtherwise(Layer):
    """A layer like `Applied`. In the last two layers, the function has other bound arguments."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        del self.act
        self.act = functools.partial(nn.functional.gelu, approximate="tanh" if number < LAYERS - 2 else "none")


class Stack(nn.Module):
    """A linear layer, followed by a sequence of layers."""

    def __init__(self, kind: Callable[[int], nn.Module] = Layer, count: int = LAYERS) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(kind(number) for number in range(count))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x, mask)
            x = x[0] if isinstance(x, tuple) else x
        return x.sum()


def given_to(stack: nn.Module) -> dict[str, int]:
    """Capture a stack that is called with a mask. Return how many layers of each class reused a trace.

    The first layer's trace cannot be reused, because Dynamo meets the mask in this layer for the first time.
    """
    return written_of(stack, (torch.randn(4, WIDTH), torch.zeros(4, WIDTH, dtype=torch.bool)))


@pytest.mark.parametrize(
    ("kind", "written"),
    beyond(
        2,
        [
            (Layer, 3), (Two, 3), (Numbered, 0), (InPlace, 0), (Normed, 3), (Applied, 3), (AppliedOtherwise, 1),
            (ByName, 0), (InTable, 0), (Remembers, 0), (Counts, 0), (Without, 3),
        ],
        pytest.mark.slow,
        rows=True,
    ),
)  # fmt: skip
def test_a_stack_of_layers_equals_its_traced_graph(kind: Any, written: int) -> None:
    assert given_to(Stack(kind)) == ({kind.__name__: written} if written else {})


def _eval(stack: Stack) -> None:
    stack.layers[2].eval()


def _frozen(stack: Stack) -> None:
    stack.layers[3].inner[0].weight.requires_grad_(False)


def _shapes(stack: Stack) -> None:
    stack.layers[4].inner = nn.Sequential(nn.Linear(WIDTH, 3), nn.GELU(), nn.Linear(3, WIDTH))


def _shared(stack: Stack) -> None:
    stack.layers[4].inner[0].weight = stack.layers[1].inner[0].weight


def _shared_layer(stack: Stack) -> None:
    stack.layers[4] = stack.layers[1]


def _shared_with_first(stack: Stack) -> None:
    stack.layers[5].inner[2].weight = stack.first.weight


def _tied_inside(stack: Stack) -> None:
    stack.layers[4].inner[2].weight = stack.layers[4].inner[0].weight


def _hooked(stack: Stack) -> None:
    stack.layers[4].inner[0].register_forward_hook(lambda module, args, output: output * 2)


def _patched(stack: Stack) -> None:
    stack.layers[4].act.forward = torch.tanh


def _more(stack: Stack) -> None:
    stack.layers[4].inner.append(nn.Tanh())


def _without_bias(stack: Stack) -> None:
    stack.layers[4].inner[0].bias = None


def _dropping(stack: Stack) -> None:
    stack.layers[4].drop.p = 0.5


def _transposed(stack: Stack) -> None:
    stack.layers[4].inner[0].weight = nn.Parameter(torch.randn(WIDTH, WIDTH).t())


def _same_memory(stack: Stack) -> None:
    stack.layers[4].inner[0].weight = nn.Parameter(stack.layers[1].inner[0].weight.detach())


def _part_of_more(stack: Stack) -> None:
    stack.layers[4].inner[0].weight = nn.Parameter(torch.randn(3, WIDTH, WIDTH)[0])


def _with_gradient(stack: Stack) -> None:
    stack.layers[4].inner[0].weight.grad = torch.ones(WIDTH, WIDTH)


CHANGES = (
    _eval, _frozen, _shapes, _shared, _shared_layer, _shared_with_first, _tied_inside, _hooked, _patched, _more,
    _without_bias, _dropping, _transposed, _same_memory, _part_of_more, _with_gradient,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("change", beyond(5, CHANGES))
def test_a_layer_that_differs_is_traced(change: Callable[[Stack], None]) -> None:
    stack = Stack()
    change(stack)
    assert given_to(stack)["Layer"] in (2, 3)


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=amount(5, 15, 100))
@given(
    st.lists(st.sampled_from(CHANGES), max_size=4, unique=True),
    st.integers(3, 8),
    st.sampled_from([Layer, Two, Normed]),
)
def test_random_differences_are_respected(changes: list[Callable[[Stack], None]], more: int, kind: Any) -> None:
    stack = Stack(kind, LAYERS + more)
    for change in changes:
        change(stack)
    try:
        stack(torch.randn(4, WIDTH))
    except RuntimeError:  # the random changes do not fit together, for example in their shapes
        assume(False)
    assert given_to(stack)[kind.__name__] >= 2


class ByIndex(Stack):
    """A stack that scales each layer's result by the layer's index, in code outside of the layer."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        kept = []
        for at, layer in enumerate(self.layers):
            x = layer(x, mask if at % 2 else None) * (at + 1)
            kept.append(x)
        with torch.no_grad():
            for layer in self.layers:
                x = layer(x)
        return torch.stack(kept).sum() + x.sum()


@pytest.mark.slow
def test_code_around_a_layer_is_traced_each_time() -> None:
    assert given_to(ByIndex(count=10)) == {"Layer": 2 + 2}


@pytest.mark.slow
def test_layers_reuse_a_trace_also_in_a_function_that_calls_the_model() -> None:
    stack = Stack()

    def loss(x: torch.Tensor) -> torch.Tensor:
        return stack(x) * 2

    assert written_of(loss, (torch.randn(4, WIDTH),)) == {"Layer": 4 - FIRST}
    assert written_of(stack.forward, (torch.randn(4, WIDTH),)) == {"Layer": 4 - FIRST}


def test_layers_that_are_called_on_different_lines_are_each_traced() -> None:
    class Named(Stack):
        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            x = self.layers[0](x, mask)
            x = self.layers[1](x, mask)
            x = self.layers[2](x, mask)
            return self.layers[3](x, mask).sum()

    assert given_to(Named()) == {}


SCALES: Any = {}
WEAK: Any = weakref.WeakKeyDictionary()
LAST: list[Any] = []
SPECIAL: set[Any] = set()
COUNT = [0]
NUMBERS = {"now": 0}
NUMBER = 0


class Shared:
    def __init__(self) -> None:
        self.scales: dict[Any, float] = {}
        self.number = 0


SHARED = Shared()


def _is_last(layer: nn.Module) -> float:
    return 2.0 if layer is LAST[0] else 1.0


def _scan(layer: nn.Module) -> float:
    for key, scale in SCALES.items():
        if key is layer:
            return scale
    return 1.0


OF_ITSELF: dict[str, Callable[[Any], Any]] = {
    "a dict by module": lambda layer: SCALES[layer],
    "a dict by submodule": lambda layer: SCALES.get(layer.inner, 1.0),
    "a dict by parameter": lambda layer: SCALES[layer.norm.weight],
    "a dict by id": lambda layer: SCALES[id(layer)],
    "a dict by a tuple": lambda layer: SCALES[layer, "scale"],
    "a dict of functions": lambda layer: SCALES[layer, "function"](),
    "a weak dict": lambda layer: WEAK[layer],
    "a dict of the class": lambda layer: type(layer).scales[layer],
    "a dict of a shared object": lambda layer: layer.shared.scales[layer],
    "a scan of a dict": _scan,
    "is": _is_last,
    "is not": lambda layer: 1.0 if layer is not LAST[0] else 2.0,
    "==": lambda layer: 2.0 if layer == LAST[0] else 1.0,
    "== of tuples": lambda layer: 2.0 if (layer, 1) == (LAST[0], 1) else 1.0,
    "== of ids": lambda layer: 2.0 if id(layer) == id(LAST[0]) else 1.0,
    "is, of a submodule": lambda layer: 2.0 if layer.inner is LAST[0].inner else 1.0,
    "is, of a parameter": lambda layer: 2.0 if layer.norm.weight is LAST[0].norm.weight else 1.0,
    "in a list": lambda layer: 2.0 if layer in LAST else 1.0,
    "in a set": lambda layer: 2.0 if layer in SPECIAL else 1.0,
}


class OfItself(Layer):
    """A layer with a scale that it finds by its own identity. Only the last layer has another scale."""

    scales = SCALES
    find: Callable[[Any], float]

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.shared = SHARED

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(x, mask) * self.find()


class TestALayerThatDependsOnItsIdentity:
    @pytest.fixture(autouse=True)
    def _empty(self) -> Iterator[None]:
        yield
        for held in (SCALES, WEAK, LAST, SPECIAL, SHARED.scales):
            held.clear()

    @pytest.mark.slow
    @pytest.mark.parametrize("what", beyond(5, OF_ITSELF))
    def test_it_is_traced(self, what: str) -> None:
        stack = Stack(type("OfItself", (OfItself,), {"find": OF_ITSELF[what]}))
        scales = {layer: 1.0 + (layer is stack.layers[-1]) for layer in stack.layers}
        WEAK.update(scales)
        SHARED.scales.update(scales)
        LAST.append(stack.layers[-1])
        SPECIAL.add(stack.layers[-1])
        for layer, scale in scales.items():
            for key in (layer, layer.inner, layer.norm.weight, id(layer), (layer, "scale")):
                SCALES[key] = scale
            SCALES[layer, "function"] = functools.partial(float, scale)
        assert given_to(stack) == {}

    def test_it_has_a_reason(self) -> None:
        stack = Stack(type("OfItself", (OfItself,), {"find": OF_ITSELF["is"]}))
        LAST.append(stack.layers[-1])
        reasons = whole_graph(stack, (torch.randn(4, WIDTH),), {}).written.reasons
        assert reasons["layers.4"] == "it compares or looks up itself, a module in it, or its tensor, by identity"

    def test_a_comparison_with_none_is_no_identity(self) -> None:
        class Optional(Layer):
            def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
                assert self.inner[0].bias is not None
                assert self.act is not None
                return super().forward(x, mask)

        assert given_to(Stack(Optional)) == {"Optional": 3}


OF_OTHERS: dict[str, Callable[[], Any]] = {
    "a list": lambda: COUNT[0],
    "a dict": lambda: NUMBERS["now"],
    "an attribute": lambda: SHARED.number,
    "a global": lambda: NUMBER,
}


class Counting(Stack):
    """A stack that counts its layers in global objects. The layers read these objects."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        global NUMBER
        x = self.first(x)
        for number, layer in enumerate(self.layers):
            COUNT[0] = NUMBERS["now"] = SHARED.number = NUMBER = number
            x = layer(x, mask)
        return x.sum()


@pytest.mark.slow
@pytest.mark.parametrize("what", beyond(1, OF_OTHERS))
def test_a_layer_that_reads_what_other_code_changes_is_traced(what: str) -> None:
    class Reads(Layer):
        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            return super().forward(x, mask) * (2.0 if find() == LAYERS - 1 else 1.0)

    find = OF_OTHERS[what]
    assert given_to(Counting(Reads)) == {}


class Constant(Layer):
    """A layer with a method that Dynamo runs during the trace."""

    @torch.compiler.assume_constant_result
    def factor(self) -> float:
        return 2.0 if self.number == LAYERS - 1 else 1.0

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(x, mask) * self.factor()


@pytest.mark.slow
def test_a_layer_with_a_method_that_dynamo_does_not_guard_is_traced() -> None:
    assert given_to(Stack(Constant)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_library_models_equal_their_traced_graphs(name: str) -> None:
    module, args, kwargs = zoo.build(name)
    written_of(module, args, kwargs)


REASONS = {
    _eval: f"layers.2: compared with layers.{FIRST}, its training, which it reads, differs",
    _frozen: "inner.0.weight is float32 (8, 8) with strides (8, 1) on cpu, without a gradient, not",
    _shapes: "inner.0.weight is float32 (3, 8)",
    _shared_layer: "layers.4: it, or a module in it, is called more than once",
    _hooked: f"layers.4: compared with layers.{FIRST}, inner.0 has hooks",
    _patched: f"layers.4: compared with layers.{FIRST}, act has other attributes: forward",
    _more: f"layers.4: compared with layers.{FIRST}, inner.3 is in only one of the two",
    _without_bias: "inner.0.bias is None, not float32 (8,)",
    _dropping: f"layers.4: compared with layers.{FIRST}, its p, which it reads, differs",
    _transposed: "inner.0.weight is float32 (8, 8) with strides (1, 8)",
}


@pytest.mark.slow
@pytest.mark.parametrize("change", beyond(4, REASONS))
def test_a_layer_that_is_traced_has_a_reason(change: Callable[[Stack], None]) -> None:
    stack = Stack()
    change(stack)
    found = whole_graph(stack, (torch.randn(4, WIDTH),), {})
    reasons = [f"{name}: {reason}" for name, reason in found.written.reasons.items()]
    assert any(REASONS[change] in reason for reason in reasons), reasons


@pytest.mark.slow
def test_reasons_name_a_variable_of_an_enclosing_function() -> None:
    model = Stack(InPlace)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return model(x).sum()

    reason = workbench.open(loss, torch.randn(4, WIDTH), device="cpu", executor="torch").capture_reason
    assert "traced separately: model.layers.0: " in reason
    assert "__closure__" not in reason


def test_identical_layers_have_no_reason_and_a_layer_that_writes_has_a_reason() -> None:
    unread = {f"layers.{number}": "Dynamo has not read one of its arguments yet" for number in range(FIRST)}
    assert whole_graph(Stack(), (torch.randn(4, WIDTH),), {}).written.reasons == unread
    reasons = whole_graph(Stack(InPlace), (torch.randn(4, WIDTH),), {}).written.reasons
    assert {**reasons, **unread} == reasons
    assert {reasons[name] for name in reasons.keys() - unread.keys()} == {"it writes an argument in place"}


@pytest.mark.slow
def test_capture_reason_names_the_layers_that_were_traced() -> None:
    stack = Stack()
    stack.layers[4].drop.p = 0.5
    reason = workbench.open(stack, torch.randn(4, WIDTH), device="cpu", executor="torch").capture_reason
    assert f"layers.4: compared with layers.{FIRST}, its p, which it reads, differs" in reason


@pytest.mark.slow
def test_capture_reason_counts_the_modules_that_reuse_a_trace() -> None:
    torch.manual_seed(0)
    stack, x = Stack(Normed), torch.randn(4, WIDTH)
    bench = workbench.open(stack, x, device="cpu", executor="torch")
    assert f"; the trace of an equal module is reused for {4 - FIRST} Normed" in bench.capture_reason
    with mock.patch.object(dynamo, "trace_modules_once", each_traced):
        other = workbench.open(stack, x, device="cpu", executor="torch")
    assert bench.plan.text() == other.plan.text()
    assert [site.id for site in bench.sites()] == [site.id for site in other.sites()]
