"""Users' models: each opens, plans, takes choices, runs right, and takes the predicted memory."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench
from tests.models import trial, zoo
from workbench.core.executor import why_no_nvfuser

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")

IN_SUITE = (
    *("llama", "gpt2", "bert", "vit", "convnext"),
    *("gpt_bigcode", "convbert", "squeezenet", "xglm", "olmoe"),
    *("t5", "mamba2", "whisper", "lora"),
)
"""The most different models. `tests.models.table` tries them all; docs/reference/models.md holds the results."""
IN_TEST = ("llama", "convnext")
"""Models for `make test`: a language model and an image model. `make long` runs all."""
CHOICES = 5

needs_nvfuser = pytest.mark.skipif(bool(why_no_nvfuser()), reason=why_no_nvfuser() or "-")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in IN_TEST else pytest.mark.long) for name in IN_SUITE]
)
def test_a_model_opens_runs_right_and_replays(name: str, tmp_path: Path) -> None:
    tried = trial.run(name, tmp_path, CHOICES)
    assert tried.capture == "dynamo"
    assert tried.choices
    assert tried.replayed
    assert tried.accurate, tried.worst
    assert tried.measured_bytes == pytest.approx(tried.predicted_bytes, rel=0.01)


@pytest.mark.slow
@needs_nvfuser
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_model_is_planned_for_an_absent_gpu(name: str) -> None:
    module, args, kwargs = zoo.build(name)
    bench = workbench.open(module, *args, device="planned", executor="nvfuser", **kwargs)
    assert bench.capture == "dynamo", bench.capture_reason
    assert bench.plan.census.count


@pytest.mark.slow
@pytest.mark.long
def test_experts_with_an_operator_of_their_own_are_statements(tmp_path: Path) -> None:
    tried = trial.run("mixtral_grouped", tmp_path, CHOICES)
    assert tried.capture == "dynamo"
    assert tried.replayed
    assert tried.accurate, tried.worst
    assert tried.measured_bytes == pytest.approx(tried.predicted_bytes, rel=0.01)
