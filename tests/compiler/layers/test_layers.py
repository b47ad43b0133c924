"""The workbench lets Thunder differentiate only a few of many equal layers, and extrapolates the other layers.

The extrapolated statements equal those that Thunder makes if it differentiates all layers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import workbench
from tests.compare_plans import differing, differing_graphs
from tests.compiler.driver.test_capture_cache import workbench_process
from tests.compiler.fastpath.test_call_memo import as_text, told
from tests.compiler.frontend import test_module_reuse as stacks
from tests.models import zoo
from tests.strategies import choices_for
from tests.trial_counts import amount, beyond
from workbench.analysis.equivalence.prove import Prover
from workbench.bench import Workbench
from workbench.compiler import api
from workbench.compiler.interop.thunder_api import from_trace
from workbench.compiler.layers import expand_trace, partition
from workbench.compiler.lowering import functionalize
from workbench.compiler.pipeline.value_check import lost_in_tracing, primitives
from workbench.compiler.planner import planner as replanning
from workbench.compiler.planner.plan import UNPROVEN
from workbench.compiler.planner.planner import replan
from workbench.compiler.trace.bsym_memo import NAMES, READ, made_names, names_in, read_names
from workbench.compiler.trace.lazy_value import LazyValue
from workbench.core.executor import why_no_nvfuser

COUNT, MORE = 7, 9
EXECUTOR = "torch" if why_no_nvfuser() else "nvfuser"
"""nvFuser has a wheel for only one PyTorch. Layers are left out with each executor."""


@contextlib.contextmanager
def none_left_out() -> Iterator[None]:
    """Inside the block, differentiate all layers, and search all layers for values that are overwritten."""
    with mock.patch.object(partition.LayerPartition, "reduce", return_value=None):
        yield


def opened(model: Any, *args: Any, **options: Any) -> tuple[Workbench, int]:
    """Open a model. Assert that leaving out layers changes nothing in the plan.

    Return the bench and the number of layers that Thunder did not differentiate.
    """
    bench = workbench.open(model, *args, **options)
    with none_left_out():
        whole = workbench.open(model, *args, **options)
    assert differing(bench.plan, whole.plan) == []
    assert as_text(bench) == as_text(whole)
    # `replan` returns a plan that has no proof and only the warnings of the capture.
    again = dataclasses.replace(whole.plan, proof=UNPROVEN, warnings=whole._captured.context.caveats)
    assert differing(replan(bench._captured, {})[0], again) == []
    assert [origin.id for origin in bench._captured.context.origins] == [o.id for o in whole._captured.context.origins]
    assert list(bench._captured.context.arguments) == list(whole._captured.context.arguments)
    assert differing_graphs(bench._captured.context.graph, whole._captured.context.graph) == []
    assert bench._captured.context.value_ids == whole._captured.context.value_ids
    assert not left_out(whole)
    return bench, left_out(bench)


@pytest.mark.slow
def test_cached_names_of_extrapolated_statements_are_right() -> None:
    torch.manual_seed(2)
    given = stacks.Stack(stacks.Layer, COUNT), torch.randn(4, stacks.WIDTH)
    bench = workbench.open(*given, device="planned", executor=EXECUTOR)
    assert left_out(bench)
    written = inside = 0
    for bsym in bench._captured.context.claimed.bound_symbols:
        written += NAMES in bsym.__dict__ and READ in bsym.__dict__
        inside += sum(NAMES in sub.__dict__ for sub in bsym.subsymbols)
        assert names_of(bsym) == names_of(without_names(bsym))
    assert written
    assert inside


def names_of(bsym: Any) -> Any:
    """Return the names of values that the memo reports for a statement and, recursively, for its subsymbols."""
    return read_names(bsym), made_names(bsym), names_in(bsym), list(map(names_of, bsym.subsymbols))


@pytest.mark.slow
def test_the_joint_trace_before_claiming_is_made_when_a_plan_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_WORKBENCH_CACHE", "off")
    bench = workbench.open(stacks.Stack(count=COUNT).eval(), *batch(), device="planned", executor=EXECUTOR)
    gradients = bench._captured.context.gradients
    assert left_out(bench)
    assert "_cached_value" not in vars(gradients)
    assert any(name == "gradients" for name, _ in bench.plan.steps.value)
    assert "_cached_value" in vars(gradients)


def without_names(bsym: Any) -> Any:
    """Return a copy of a statement and its subsymbols that has no cached names."""
    bare = dataclasses.replace(bsym)
    bare.subsymbols = [without_names(sub) for sub in bsym.subsymbols]
    return bare


def left_out(bench: Workbench) -> int:
    """Return the number of layers that Thunder did not differentiate, from the bench's `capture_reason`."""
    return sum(map(int, re.findall(r"(\d+) of \d+", bench.capture_reason.partition("; gradients of ")[2])))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, stacks.WIDTH), torch.zeros(4, stacks.WIDTH, dtype=torch.bool)


class Shared(stacks.Stack):
    """A stack of layers whose norms share one weight."""

    def __init__(self, kind: Callable[[int], nn.Module] = stacks.Layer, count: int = COUNT) -> None:
        super().__init__(kind, count)
        by = nn.Parameter(torch.ones(stacks.WIDTH))
        for layer in self.layers:
            layer.norm.weight = by


class Kept(stacks.Stack):
    """A stack that sums the results of all its layers."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        kept = []
        for layer in self.layers:
            x = layer(x, mask)
            kept.append(x)
        return torch.stack(kept).sum()


class Between(stacks.Stack):
    """A stack that computes a tanh between two layers."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x, mask) * 2)
        return x.sum()


class Turns(stacks.Stack):
    """A stack in which, from layer `first` on, every `turns`-th layer gets the inverted mask. Others get the mask."""

    def __init__(self, count: int, turns: int, first: int = 0) -> None:
        super().__init__(count=count)
        self.turns, self.begun = turns, first

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        assert mask is not None
        other = mask.logical_not()
        for at, layer in enumerate(self.layers):
            x = layer(x, mask if at < self.begun or (at - self.begun) % self.turns else other)
        return x.sum()


class Across(stacks.Stack):
    """A stack in which each layer also reads the input of the layer before it."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        before = x
        for layer in self.layers:
            before, x = x, layer(x + before, mask)
        return x.sum()


class Pair(nn.Module):
    """Two stacks. Each layer of the second stack reads the last result of the first stack."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = stacks.Stack(count=MORE).layers
        self.decoder = stacks.Stack(count=MORE).layers

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        made = x
        for layer in self.encoder:
            made = layer(made, mask)
        for layer in self.decoder:
            x = layer(x + made, mask)
        return x.sum()


class Steps(nn.Module):
    """A model whose layers differ in a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(stacks.WIDTH, stacks.WIDTH) for _ in range(COUNT))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for at, layer in enumerate(self.layers):
            x = torch.relu(layer(x)) * (at + 1.0)
        return x.sum()


class Again(stacks.Layer):
    """A checkpointed layer. Unmodified Thunder recomputes it in the backward with new random numbers."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        made: torch.Tensor = checkpoint(super().forward, x, mask, use_reentrant=False)
        return made


class Views(stacks.Layer):
    """A layer that writes in place and reads the result through several views, as a mixture of experts does."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        y = super().forward(x, mask)
        y.add_(self.norm.bias)
        whole, even, odd = y.view(-1), y[..., ::2], y[..., 1::2]
        made = even.clamp(max=1.0) * odd.sigmoid() + whole.abs().mean()
        return torch.cat((made, odd), dim=-1)


class Over(stacks.Layer):
    """A layer that overwrites a value that only a gradient needs."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return nn.functional.silu(super().forward(x, mask) * 2, inplace=True)


STACKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "alike": (lambda: stacks.Stack(count=COUNT), COUNT - 5),
    "two kinds in turn": (lambda: Turns(15, 2), 4),
    "writing into their input": (lambda: stacks.Stack(stacks.InPlace, COUNT), COUNT - 5),
    "reading a written value through views": (lambda: stacks.Stack(Views, COUNT), COUNT - 5),
    "overwriting a value that a gradient needs": (lambda: stacks.Stack(Over, COUNT), COUNT - 5),
    "updating running statistics": (lambda: stacks.Stack(stacks.Normed, COUNT), 0),
    "returning tuples": (lambda: stacks.Stack(stacks.Two, COUNT), COUNT - 5),
    "a factor without gradients": (lambda: stacks.Stack(stacks.Without, COUNT), COUNT - 5),
    "sharing a parameter": (Shared, COUNT - 5),
    "three kinds in turn": (lambda: Turns(21, 3), 6),
    "two kinds in turn after other layers": (lambda: Turns(15, 2, 3), 4),
    "a tanh between layers": (lambda: Between(count=MORE), MORE - 6),
    "reading their number, the last six identical": (lambda: stacks.Stack(stacks.Numbered, MORE), 2),
    "two stacks": (Pair, 2 * MORE - 11),
    "each checkpointed": (lambda: stacks.Stack(Again, COUNT), COUNT - 5),
    "all results summed": (lambda: Kept(count=COUNT), 0),
    "reading the input of the layer before": (lambda: Across(count=MORE), MORE - 6),
    "each with another factor": (Steps, 0),
    "too few layers": (lambda: stacks.Stack(count=5), 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", beyond(1, STACKS))
def test_extrapolated_layers_equal_layers_that_thunder_differentiates(name: str) -> None:
    make, expected = STACKS[name]
    torch.manual_seed(0)
    _, count = opened(make(), *batch(), device="planned", executor=EXECUTOR)
    assert count == expected


RANKS = [(12, 3, "fsdp"), (11, 2, "fsdp_zero3"), (COUNT, 2, "ddp")]
"""Numbers of layers and of ranks, and how the ranks share the program. Thunder gathers parameters in the order of their
names: those of layer 10 before those of layer 2. Three ranks pad parameters.
"""


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "ranks", "parallel"), beyond(1, RANKS, rows=True))
def test_extrapolated_layers_of_ranks_equal_layers_that_thunder_differentiates(
    layers: int, ranks: int, parallel: str
) -> None:
    options = of_ranks(layers, ranks, parallel)
    _, count = opened("llama", **{**options, "executor": "torch" if parallel == "ddp" else EXECUTOR})
    assert count == layers - 5


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("layers", "ranks", "parallel"), RANKS)
def test_choices_of_ranks_give_the_plans_that_they_give_without_left_out_layers(
    layers: int, ranks: int, parallel: str
) -> None:
    options = of_ranks(layers, ranks, parallel)
    bench = workbench.open("llama", **options)
    assert left_out(bench)
    with none_left_out():
        whole = workbench.open("llama", **options)
    for seed in range(amount(1, 2, 20)):
        choices = choices_for(Random(seed), bench.sites())
        assert told(bench, choices) == told(whole, choices)
        assert as_text(bench) == as_text(whole)


def of_ranks(layers: int, ranks: int, parallel: str) -> dict[str, Any]:
    """Return arguments of `workbench.open` for a Llama that ranks share."""
    sizes = {"layers": layers, "hidden": 192, "heads": 3, "dim": 96}
    return {**sizes, "device": "planned", "executor": EXECUTOR, "ranks": ranks, "parallel": parallel}


@pytest.mark.slow
def test_a_correction_names_a_line_once_even_if_all_layers_run_it() -> None:
    bench, count = opened(stacks.Stack(Again, COUNT), *batch(), device="planned", executor=EXECUTOR)
    assert count
    (found,) = bench.plan.corrections
    assert found.name == "checkpointed draws"
    assert [line.partition("  ")[2] for line in found.lines] == ["h = self.act(self.drop(self.inner(h)))"]


@pytest.mark.slow
def test_a_wrong_joint_trace_is_found_from_the_layers_that_are_not_left_out() -> None:
    bench = workbench.open(stacks.Stack(count=COUNT).eval(), *batch(), device="cpu", executor="torch")
    context = bench._captured.context
    assert context.few is not None
    assert len(context.few.joint.bound_symbols) < len(context.joint.bound_symbols)
    assert lost_in_tracing(context) == ""
    all_broken = dataclasses.replace(
        context, gradients=LazyValue(lambda: with_squares_for_products(context.joint)), few=None
    )
    told = lost_in_tracing(all_broken)
    assert "mul computes a value that no statement of the program computes" in told
    few = dataclasses.replace(context.few, gradients=LazyValue(lambda: with_squares_for_products(context.few.joint)))
    assert lost_in_tracing(dataclasses.replace(all_broken, few=few)) == told


def with_squares_for_products(joint: Any) -> Any:
    """Return a joint trace with squares of an operand in place of products, so that all layers are wrong."""
    broken = from_trace(joint)
    broken.names = set(joint.names)
    broken.bound_symbols = [
        b.from_bsym(args=(b.args[0], b.args[0])) if b.sym.name == "mul" else b for b in primitives(joint.bound_symbols)
    ]
    return broken


@pytest.mark.slow
@pytest.mark.parametrize("refused", beyond(1, [True, False]))
@pytest.mark.long
def test_overwritten_values_are_searched_for_in_only_a_few_layers(
    refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the layers of the reduced program are not isomorphic, all layers are searched for overwritten values."""
    seen: list[int] = []
    stock = functionalize.grad_transform_on_trace

    def noted(trace: Any) -> Any:
        seen.append(len(trace.bound_symbols))
        return stock(trace)

    def refuse(self: Any, trace: Any) -> None:
        raise partition.LayerMismatch("mul in place of add")

    monkeypatch.setattr(functionalize, "_known_hazards", lambda *_: None)
    monkeypatch.setattr(functionalize, "grad_transform_on_trace", noted)
    if refused:
        monkeypatch.setattr(expand_trace.TraceExpander, "check", refuse)
    torch.manual_seed(0)
    stack, given_to = stacks.Stack(Over, MORE), batch()
    bench = workbench.open(stack, *given_to, device="cpu", executor="torch")
    with none_left_out():
        whole = workbench.open(stack, *given_to, device="cpu", executor="torch")
    assert as_text(bench) == as_text(whole)
    assert bench.plan.warnings == whole.plan.warnings == ()
    few, *others, every = seen
    assert few < every
    assert others == ([every] if refused else [])


@pytest.mark.slow
def test_layers_are_left_out_also_without_gradients() -> None:
    with torch.no_grad():
        _, count = opened(stacks.Stack(count=COUNT), *batch(), device="cpu", executor="torch")
    assert count == COUNT - 5


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=amount(3, 20, 150), deadline=None)
@given(
    st.lists(st.sampled_from(stacks.CHANGES), max_size=3, unique=True),
    st.integers(6, 14),
    st.sampled_from([stacks.Layer, stacks.Two, stacks.Without]),
    st.sampled_from([stacks.Stack, Shared, Between]),
    st.integers(0, 2**16),
)
def test_random_differences_between_layers_are_respected(
    changes: list[Any], count: int, kind: Any, stacked: Any, seed: int
) -> None:
    torch.manual_seed(seed)
    stack = stacked(kind, count)
    for change in changes:
        change(stack)
    try:
        stack(torch.randn(4, stacks.WIDTH))
    except (RuntimeError, TypeError):  # the layers do not fit together, for example in shapes, or in a tuple of results
        assume(False)
    opened(stack, *batch(), device="planned", executor=EXECUTOR)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", list(STACKS)[: amount(1, 6, 6)])
def test_choices_give_the_plans_that_they_give_without_left_out_layers(name: str) -> None:
    torch.manual_seed(0)
    stack, given_to = STACKS[name][0](), batch()
    bench = workbench.open(stack, *given_to, device="planned", executor=EXECUTOR)
    with none_left_out():
        whole = workbench.open(stack, *given_to, device="planned", executor=EXECUTOR)
    random = Random(name)
    for _ in range(amount(2, 6, 90)):
        choices = choices_for(random, bench.sites())
        assert told(bench, choices) == told(whole, choices)
        assert as_text(bench) == as_text(whole)
    assert (bench.plan.warnings, bench.plan.proof) == (whole.plan.warnings, whole.plan.proof)
    with none_left_out():
        other = workbench.open(stack, *given_to, device="planned", executor=EXECUTOR, config=bench.config)
    assert other.plan.text() == bench.plan.text()


@pytest.mark.long
@pytest.mark.slow
def test_a_config_gives_the_gradients_of_unmodified_thunder() -> None:
    torch.manual_seed(0)
    stack, given_to = stacks.Stack(count=COUNT), batch()
    bench = workbench.open(stack, *given_to, device="cpu", executor="torch")
    assert left_out(bench)
    site = next(s for s in bench.sites("saved") if "layers.4" in s.id and "recompute" not in s.illegal)
    bench.choose({site.id: "recompute"})
    gradients = []
    for jitted in (bench.config.jit(stack), api.unmodified(stack)):
        stack.zero_grad()
        torch.manual_seed(1)
        jitted(*given_to).backward()
        gradients.append([p.grad.clone() for p in stack.parameters() if p.grad is not None])
    assert len(gradients[0]) > COUNT
    assert all(map(torch.equal, *gradients))


def writing_stack() -> str:
    """Open a stack of layers that write in place. Return its plan as text."""
    torch.manual_seed(0)
    return "\n".join(as_text(workbench.open(stacks.Stack(Views, 3), *batch(), device="planned", executor=EXECUTOR)))


@pytest.mark.long
@pytest.mark.slow
def test_names_do_not_depend_on_the_hash_seed() -> None:
    """A process with another hash seed gives the same text of the plan."""
    here = writing_stack()
    assert "update_aliases" in here
    code = "from tests.compiler.layers import test_layers; print(test_layers.writing_stack(), end='')"
    seeds = [seed for seed in "123" if seed != os.environ.get("PYTHONHASHSEED")]
    for seed in seeds[: amount(1, 2, 2)]:
        assert workbench_process(code, {**os.environ, "PYTHONHASHSEED": seed}) == here


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "reading a written value through views",
        pytest.param("overwriting a value that a gradient needs", marks=pytest.mark.long),
    ],
)
def test_gradients_of_layers_that_write_equal_those_of_eager(name: str) -> None:
    torch.manual_seed(0)
    stack, (x, mask) = STACKS[name][0]().double().eval(), batch()
    given_to = x.double(), mask
    bench = workbench.open(stack, *given_to, device="cpu", executor="torch")
    assert left_out(bench)
    outcomes = []
    for called in (bench.config.jit(stack), stack):
        stack.zero_grad()
        made = called(*given_to)
        made.backward()
        outcomes.append([made.detach(), *(p.grad.clone() for p in stack.parameters() if p.grad is not None)])
    assert len(outcomes[0]) > COUNT
    torch.testing.assert_close(*outcomes)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "qwen3_moe"])
def test_layers_of_library_models_are_left_out(name: str) -> None:
    from transformers import AutoModel, BertConfig, GPT2Config, LlamaConfig, Qwen3MoeConfig

    sizes: dict[str, Any] = {"vocab_size": zoo.VOCABULARY, "use_cache": False}
    config = {
        "llama": lambda: LlamaConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=COUNT, num_attention_heads=4, **sizes
        ),
        "qwen3_moe": lambda: Qwen3MoeConfig(
            hidden_size=32,
            moe_intermediate_size=16,
            num_hidden_layers=COUNT,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            num_experts=4,
            num_experts_per_tok=2,
            **sizes,
        ),
        "gpt2": lambda: GPT2Config(n_embd=32, n_layer=COUNT, n_head=4, **sizes),
        "bert": lambda: BertConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=COUNT, num_attention_heads=4, **sizes
        ),
    }[name]()
    model = AutoModel.from_config(config)
    tokens = torch.randint(0, zoo.VOCABULARY, (2, 8))

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        return model(input_ids=tokens).last_hidden_state.sum()

    _, count = opened(loss, tokens, device="planned", executor=EXECUTOR)
    assert count == COUNT - 5


@pytest.mark.slow
def test_if_thunder_differentiates_layers_differently_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test simulates a difference between layers that appears only after differentiation."""

    def refuse(self: Any, trace: Any) -> Any:
        raise partition.LayerMismatch("mul in place of add")

    monkeypatch.setattr(expand_trace.TraceExpander, "expand_later", refuse)
    _, count = opened(stacks.Stack(count=COUNT), *batch(), device="cpu", executor="torch")
    assert count == 0


SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
MODELS: dict[str, dict[str, Any]] = {
    # Each layer draws random numbers in training.
    "GPT2LMHeadModel": {"n_embd": 32, "n_head": 4},
    # The gradients of a layer's biases read a value of the layer before.
    "BertForMaskedLM": SIZES,
    # The last statement of a layer is fused with the first statement of the next layer.
    "MixtralForCausalLM": {**SIZES, "num_key_value_heads": 2, "num_local_experts": 4},
    "Phi3ForCausalLM": {**SIZES, "pad_token_id": 0},
    "GPTNeoXForCausalLM": SIZES,
    "FalconForCausalLM": {"hidden_size": 32, "num_attention_heads": 4},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        pytest.param("FalconForCausalLM", torch.bfloat16, marks=pytest.mark.long),
        *(
            pytest.param(kind, dtype, marks=pytest.mark.long)
            for kind, dtype in (
                ("GPT2LMHeadModel", torch.float32),
                ("BertForMaskedLM", torch.float32),
                ("MixtralForCausalLM", torch.float32),
                ("MixtralForCausalLM", torch.bfloat16),
                ("Phi3ForCausalLM", torch.bfloat16),
                ("GPTNeoXForCausalLM", torch.bfloat16),
                ("FalconForCausalLM", torch.float32),
            )
        ),
    ],
)
def test_choices_in_a_library_model_give_the_plans_that_they_give_without_left_out_layers(
    kind: str, dtype: torch.dtype
) -> None:
    import transformers

    config_class = getattr(transformers, kind).config_class
    count = {"n_layer" if "n_head" in MODELS[kind] else "num_hidden_layers": MORE}
    config = config_class(vocab_size=zoo.VOCABULARY, use_cache=False, **MODELS[kind], **count)
    torch.manual_seed(0)
    model = getattr(transformers, kind)(config).to(dtype).train()
    tokens = torch.randint(0, zoo.VOCABULARY, (2, 8))
    options: dict[str, Any] = {"device": "planned", "executor": EXECUTOR}
    options["kwargs"] = {"input_ids": tokens, "labels": tokens}
    bench, _ = opened(model, **options)
    with none_left_out():
        whole = workbench.open(model, **options)
    random = Random(kind)
    for _ in range(amount(1, 2, 20)):
        choices = choices_for(random, bench.sites())
        assert told(bench, choices) == told(whole, choices)
        assert as_text(bench) == as_text(whole)


class Flattened(stacks.Stack):
    """A stack whose layers' norm weights are views of one storage, as after an optimizer has flattened parameters."""

    def __init__(self) -> None:
        super().__init__(count=COUNT)
        flat = torch.zeros(COUNT, stacks.WIDTH)
        for at, layer in enumerate(self.layers):
            layer.norm.weight = nn.Parameter(flat[at])  # type: ignore[union-attr, assignment]


class Transposed(stacks.Stack):
    """A stack in which a weight of one layer has other strides than the weights of the other layers."""

    def __init__(self) -> None:
        super().__init__(count=COUNT)
        inner: Any = self.layers[4].inner
        inner[0].weight = nn.Parameter(torch.randn(stacks.WIDTH, stacks.WIDTH).t())


class Frozen(stacks.Stack):
    """A stack with one frozen layer."""

    def __init__(self) -> None:
        super().__init__(count=COUNT)
        self.layers[4].requires_grad_(False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", beyond(1, [Flattened, Transposed, Frozen]))
def test_layers_whose_parameters_differ_in_memory_are_planned_right(kind: type[stacks.Stack]) -> None:
    torch.manual_seed(0)
    opened(kind().eval(), *batch(), device="cpu", executor="torch")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "executor"), beyond(1, [("planned", EXECUTOR), ("cpu", "torchcompile"), ("cpu", "torch")], rows=True)
)
def test_opening_a_program_with_left_out_layers_proves_its_whole_plan_and_makes_its_traces(
    device: str, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    of_stock = Prover.of_stock
    monkeypatch.setattr(Prover, "of_stock", lambda self, fault: (seen.append(self.stock), of_stock(self, fault))[1])
    bench = workbench.open("llama", layers=COUNT, device=device, executor=executor)
    assert left_out(bench)
    assert bench.plan.proof.proven
    assert seen == [bench.plan.graph]
    with mock.patch.object(replanning, "execution_traces", side_effect=AssertionError("a trace was made later")):
        assert bench.plan.text()
        assert bench.plan.passes
