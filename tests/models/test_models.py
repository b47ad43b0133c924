"""Selected models of the zoo open, give right results under choices, and need the predicted peak memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import workbench
from tests.models import trial, zoo
from tests.needs import needs_nvfuser
from tests.trial_counts import beyond

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")

IN_SUITE = (
    *("llama", "gpt2", "bert", "vit", "convnext"),
    *("gpt_bigcode", "convbert", "squeezenet", "xglm", "olmoe"),
    *("t5", "mamba2", "whisper", "lora"),
    *("gcn", "pointnet", "byol", "neural_ode", "step_sgd", "step_accumulating"),
)
"""Models that `make long` tries. They differ much from each other. `tests.models.table` tries the whole zoo."""
IN_TEST = "convnext"
"""The only model that `make test` compiles and runs, because unmodified Thunder takes long for language models."""
CHOICES = 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == IN_TEST else pytest.mark.long) for name in IN_SUITE]
)
def test_a_model_opens_and_gives_right_results_and_replays(name: str, tmp_path: Path) -> None:
    tried = trial.run(name, tmp_path, CHOICES)
    assert tried.capture == ("parts" if name in zoo.KINDS["whole steps"] else "dynamo")
    assert not tried.opaque
    assert tried.choices
    assert tried.replayed
    assert tried.accurate, tried.worst
    assert not tried.trained
    assert tried.measured_bytes == pytest.approx(tried.predicted_bytes, rel=0.01)


@pytest.mark.slow
@needs_nvfuser
@pytest.mark.parametrize("name", beyond(1, ["llama", "gpt2"]))
def test_a_model_is_planned_for_an_absent_gpu(name: str) -> None:
    module, args, kwargs = zoo.build(name)
    bench = workbench.open(module, *args, device="planned", executor="nvfuser", **kwargs)
    assert bench.capture == "dynamo", bench.capture_reason
    assert bench.plan.census.count


@pytest.mark.slow
@pytest.mark.long
def test_experts_with_the_grouped_operator_of_their_library_are_planned(tmp_path: Path) -> None:
    tried = trial.run("mixtral_grouped", tmp_path, CHOICES)
    assert tried.capture == "dynamo"
    assert tried.replayed
    assert tried.accurate, tried.worst
    assert not tried.trained
    assert tried.measured_bytes == pytest.approx(tried.predicted_bytes, rel=0.01)


@pytest.mark.slow
def test_a_model_that_opens_in_parts_gets_no_hooks() -> None:
    module, args, kwargs = zoo.build("llama")
    assert isinstance(module, torch.nn.Module)
    module.model.norm.register_forward_hook(lambda *_: print("normalized"))
    bench = workbench.open(module, *args, device="cpu", **kwargs)
    assert bench.capture == "parts"
    assert [len(each._forward_hooks) for each in module.modules() if each._forward_hooks] == [1]
    assert not any(hasattr(each, "_output_capturing_hooks_installed") for each in module.modules())


@pytest.mark.slow
def test_parts_of_a_model_that_returns_hidden_states_do_not_depend_on_earlier_calls() -> None:
    module: Any
    module, (ids,), _ = zoo.build("llama")

    def loss(ids: torch.Tensor) -> torch.Tensor:
        embedded = module.get_input_embeddings()(ids) * 2
        states: torch.Tensor = module.model(inputs_embeds=embedded, output_hidden_states=True).hidden_states[1]
        return states.sum()

    first = workbench.open(loss, ids, device="cpu", capture="parts")
    loss(ids)
    again = workbench.open(loss, ids, device="cpu", capture="parts")
    assert first.config.parts == again.config.parts


@pytest.mark.slow
def test_a_model_that_returns_hidden_states_is_one_graph() -> None:
    module, args, kwargs = zoo.build("llama")
    bench = workbench.open(module, *args, device="cpu", output_hidden_states=True, **kwargs)
    assert bench.capture == "dynamo"
