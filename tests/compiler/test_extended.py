"""A stock plan written on from that of few layers is the one that all give; `test_layers.py` draws programs."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

import workbench
from tests.amount import amount
from tests.compiler import test_layers as programs
from tests.compiler import test_repeats as stacks
from tests.compiler.test_templates import as_text, told
from tests.models import zoo
from tests.same import differing, differing_graphs
from tests.strategies import choices_for
from workbench.bench import Workbench
from workbench.compiler import extended, layers
from workbench.compiler import stage as stages
from workbench.compiler.replan import base_of, replan
from workbench.graph import StatementFlag

LAYERS = 9


def written(bench: Workbench) -> bool:
    """Whether the plan was written on, and nothing was made of all layers yet."""
    made = "_made" in vars(bench._captured.staged)
    assert made != bench.capture_reason.endswith("and so is their plan")
    return not made


def opened(*args: Any, **options: Any) -> Workbench:
    """Opened, with a plan that is the one of a program opened whole, and the one made of all layers later."""
    bench = workbench.open(*args, **options)
    with programs.none_left_out():
        whole = workbench.open(*args, **options)
    assert differing(bench.plan, whole.plan) == []
    assert differing(whole.plan, replan(bench._captured, {})[0]) == ["proof"]
    assert differing_graphs(bench._captured.stage.graph, whole._captured.stage.graph) == []
    assert bench._captured.stage.places == whole._captured.stage.places
    return bench


@pytest.mark.parametrize(
    ("device", "executor"),
    [("planned", "nvfuser"), ("cpu", "torchcompile"), ("cpu", "torch")],
)
def test_a_program_of_layers_opens_with_the_plan_of_few(device: str, executor: str) -> None:
    bench = workbench.open("llama", layers=LAYERS, device=device, executor=executor)
    assert written(bench)
    bench = opened("llama", layers=LAYERS, device=device, executor=executor)
    # Each layer has its sites, under its own names.
    of_layer = {f"layers.{at}": 0 for at in range(LAYERS)}
    for site in bench.plan.sites:
        if site.lever == "saved" and "layers." in site.id:
            of_layer["layers." + site.id.split("layers.")[1].split(".")[0].split("/")[0]] += 1
    assert min(of_layer.values()) == of_layer["layers.3"] > 3
    assert len(set(bench.plan.graph.values.name)) == len(bench.plan.graph.values.name)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Mixtral"])
def test_a_model_of_hugging_face_opens_with_the_plan_of_few(kind: str) -> None:
    import transformers

    sizes: dict[str, Any] = {
        "vocab_size": zoo.VOCABULARY,
        "use_cache": False,
        "hidden_size": 32,
        "num_hidden_layers": LAYERS,
    }
    sizes |= {"intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**sizes))
    tokens = torch.randint(0, zoo.VOCABULARY, (2, 8))
    given = {"input_ids": tokens, "labels": tokens}
    options: dict[str, Any] = {"device": "cpu", "executor": "torchcompile", "kwargs": given}
    assert written(workbench.open(model, **options))
    opened(model, **options)


SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
MODELS: dict[str, dict[str, Any]] = {
    # Numbers are drawn in each layer, where a model is trained.
    "GPT2LMHeadModel": {"n_embd": 32, "n_head": 4},
    # Gradients of a layer's biases are made with what the layer before it makes, too.
    "BertForMaskedLM": SIZES,
    # What is inside of a layer's last statement is fused with the next layer's first.
    "MixtralForCausalLM": {**SIZES, "num_key_value_heads": 2, "num_local_experts": 4},
    # Values without a place.
    "Phi3ForCausalLM": {**SIZES, "pad_token_id": 0},
    # Ties that tell of three layers, and of one that is in no run.
    "GPTNeoXForCausalLM": SIZES,
    "FalconForCausalLM": {"hidden_size": 32, "num_attention_heads": 4},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("FalconForCausalLM", torch.bfloat16),
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
def test_a_model_that_is_trained_on_a_gpu_opens_with_the_plan_of_few(kind: str, dtype: torch.dtype) -> None:
    import transformers

    config_class = getattr(transformers, kind).config_class
    layers_of = {"n_layer" if "n_head" in MODELS[kind] else "num_hidden_layers": LAYERS}
    config = config_class(vocab_size=zoo.VOCABULARY, use_cache=False, **MODELS[kind], **layers_of)
    torch.manual_seed(0)
    model = getattr(transformers, kind)(config).to(dtype).train()
    tokens = torch.randint(0, zoo.VOCABULARY, (2, 8))
    options: dict[str, Any] = {"device": "planned", "executor": "nvfuser"}
    options["kwargs"] = {"input_ids": tokens, "labels": tokens}
    bench = workbench.open(model, **options)
    assert written(bench)
    with programs.none_left_out():
        whole = workbench.open(model, **options)
    assert differing(bench.plan, whole.plan) == []
    assert differing_graphs(bench._captured.stage.graph, whole._captured.stage.graph) == []
    assert bench._captured.stage.places == whole._captured.stage.places
    random = Random(kind)
    for _ in range(amount(1, 2, 20)):
        choices = choices_for(random, bench.sites())
        assert told(bench, choices) == told(whole, choices)
        assert as_text(bench) == as_text(whole)


@pytest.mark.parametrize("kind", [stacks.Layer, stacks.Two])
@pytest.mark.slow
def test_layers_that_draw_under_nvfuser_open_with_the_plan_of_few(kind: Any) -> None:
    torch.manual_seed(0)
    model, given = stacks.Stack(kind, LAYERS).train(), programs.batch()
    options: dict[str, Any] = {"device": "planned", "executor": "nvfuser"}
    assert written(workbench.open(model, *given, **options))
    bench = opened(model, *given, **options)
    states = [name for name in bench.plan.graph.statements.name if name == "get_and_update_rng_state_impl"]
    assert len(states) == LAYERS


@pytest.mark.parametrize("make", [lambda: stacks.Stack(programs.Again, LAYERS), lambda: Lying().eval()])
def test_what_warns_or_lies_otherwise_is_known_before_few_layers_are_planned(make: Any) -> None:
    torch.manual_seed(0)
    with mock.patch.object(extended, "executed") as planned:
        bench = workbench.open(make(), *programs.batch(), device="cpu", executor="torch")
    assert not written(bench)
    planned.assert_not_called()


def test_what_is_made_of_all_layers_is_made_once_it_is_asked_for() -> None:
    bench = workbench.open(stacks.Stack(count=LAYERS).eval(), *programs.batch(), device="cpu", executor="torch")
    assert written(bench)
    site = next(site for site in bench.plan.sites if site.id.startswith("saved:layers.4"))
    bench.choose({site.id: "recompute"})
    assert not written_is_kept(bench)
    with programs.none_left_out():
        whole = workbench.open(stacks.Stack(count=LAYERS).eval(), *programs.batch(), device="cpu", executor="torch")
    whole.choose({site.id: "recompute"})
    assert differing(bench.plan, whole.plan) == []


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_joint_graph_and_ids_of_all_layers_are_written_on_from_those_of_few(dtype: str) -> None:
    given: dict[str, Any] = {"layers": LAYERS, "dtype": dtype, "device": "planned", "executor": "nvfuser"}
    stage = workbench.open("llama", **given)._captured.stage
    assert stage.few is not None
    with mock.patch.object(stages, "read_joint") as read:
        graph = stage.graph
    read.assert_not_called()
    with mock.patch.object(stages, "find_places", side_effect=stages.find_places) as find:
        places = stage.places
    # Where gradients are summed up in what they are of, sums are counted through all layers.
    assert find.called == (dtype == "float32")
    assert differing_graphs(graph, stage.read(stage.claimed)) == []
    assert places == dataclasses.replace(stage).places
    with mock.patch.object(extended.Extended, "_paired", side_effect=layers.OtherwiseError):
        again = workbench.open("llama", **given)._captured.stage
    assert differing_graphs(graph, again.graph) == []


def written_is_kept(bench: Workbench) -> bool:
    """Whether nothing was made of all layers yet."""
    return "_made" not in vars(bench._captured.staged)


class Lying(stacks.Stack):
    """Parameters of all layers lie in one storage, as where an optimizer has flattened them."""

    def __init__(self) -> None:
        super().__init__(count=LAYERS)
        flat = torch.zeros(LAYERS, stacks.WIDTH)
        for at, layer in enumerate(self.layers):
            layer.norm.weight = nn.Parameter(flat[at])  # type: ignore[union-attr, assignment]


class Transposed(stacks.Stack):
    """One layer's weight lies otherwise than the others'."""

    def __init__(self) -> None:
        super().__init__(count=LAYERS)
        inner: Any = self.layers[4].inner
        inner[0].weight = nn.Parameter(torch.randn(stacks.WIDTH, stacks.WIDTH).t())


class Frozen(stacks.Stack):
    """One layer is not trained."""

    def __init__(self) -> None:
        super().__init__(count=LAYERS)
        self.layers[4].requires_grad_(False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Lying, Transposed, Frozen])
def test_layers_that_lie_otherwise_are_all_planned(kind: type[stacks.Stack]) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    assert not written(workbench.open(model, *programs.batch(), device="cpu", executor="torch"))
    opened(model, *programs.batch(), device="cpu", executor="torch")


@pytest.mark.parametrize("at", ["_paired", "_sequence", "_names_of", "sites"])
def test_whatever_differs_in_the_plan_of_few_all_is_planned(at: str) -> None:
    def refuse(*_: Any) -> Any:
        raise layers.OtherwiseError

    torch.manual_seed(0)
    model = stacks.Stack(count=LAYERS).eval()
    with mock.patch.object(extended.Extended, at, refuse):
        bench = workbench.open(model, *programs.batch(), device="cpu", executor="torch")
    assert not written(bench)
    whole = opened(model, *programs.batch(), device="cpu", executor="torch")
    assert differing(bench.plan, whole.plan) == []


def test_what_is_wrong_in_few_layers_is_looked_for_in_all() -> None:
    """What a plan warns of names each layer."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"device": "cpu", "executor": "torch"}
    bench = workbench.open(stacks.Stack(programs.Again, LAYERS), *programs.batch(), **options)
    assert not written(bench)
    assert len(bench.plan.warnings) == LAYERS


def test_regions_that_depend_on_where_the_peak_is_are_made_of_all_layers() -> None:
    bench = workbench.open("llama", layers=LAYERS, device="cpu", executor="torchcompile_aten")
    assert not written(bench)
    assert bench._captured.few is not None


def test_a_plan_of_all_layers_that_is_another_is_told_of_and_takes_its_place() -> None:
    torch.manual_seed(0)
    model = stacks.Stack(count=LAYERS).eval()
    bench = workbench.open(model, *programs.batch(), device="cpu", executor="torch")
    graph = bench.plan.graph
    assert written(bench)
    right = graph.statements.flags.copy()
    graph.statements.flags[3] ^= StatementFlag.REDUCTION
    with pytest.warns(workbench.ProgramWarning, match="the plan of all is another"):
        _ = bench.plan.split.forward
    assert (base_of(bench._captured, {}).plan.graph.statements.flags == right).all()
