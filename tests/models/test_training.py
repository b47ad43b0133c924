"""In a user's training loops, a compiled model gives the losses of the original model."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import workbench
from tests.models import trial, zoo
from workbench.core.config import Config

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning", "ignore:.*:UserWarning"
)

STEPS = 20
BATCH = 2
ACCUMULATED = 3


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Return a config for a Granite model. The config recomputes each saved storage for which that is legal."""
    module = granite()
    bench = workbench.open(module, **batch(0))
    free = [site for site in bench.sites("saved") if "recompute" in site.options and site.choice != "recompute"]
    bench.choose({site.id: "recompute" for site in free if "recompute" not in site.illegal})
    assert bench.choices
    assert bench.plan.saved_bytes < bench.stock_plan.saved_bytes
    return workbench.load(bench.export(tmp_path_factory.mktemp("config") / "choices.py"))


def granite() -> nn.Module:
    module = zoo.build("granite")[0]
    assert isinstance(module, nn.Module)
    return module


def batch(step: int) -> dict[str, Any]:
    tokens = torch.randint(3, zoo.VOCABULARY, (BATCH, 8), generator=torch.Generator().manual_seed(step))
    return {"input_ids": tokens, "labels": tokens}


def by_trainer(model: nn.Module, folder: Path) -> list[float]:
    """Fine-tune a model with `transformers.Trainer`. Return the losses."""
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        logging_steps=1,
        learning_rate=1e-2,
        save_strategy="no",
        report_to=[],
        remove_unused_columns=False,
        disable_tqdm=True,
        seed=0,
    )
    rows = [
        {name: tensor[row] for name, tensor in batch(step).items()} for step in range(STEPS) for row in range(BATCH)
    ]
    given: Any = rows
    trainer = Trainer(model=model, args=arguments, train_dataset=given)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def by_loop(model: Callable[..., Any], parameters: Any) -> list[float]:
    """Train a model in a loop that accumulates gradients and clips them before each step. Return the losses."""
    optimizer = torch.optim.AdamW(parameters, lr=1e-2)
    losses = []
    for step in range(3):
        for part in range(ACCUMULATED):
            loss = model(**batch(step * ACCUMULATED + part)).loss / ACCUMULATED
            loss.backward()
            losses.append(float(loss.detach()))
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        optimizer.zero_grad()
    return losses


@pytest.mark.slow
@pytest.mark.long
def test_fine_tuning_a_compiled_model_gives_the_losses_of_the_model(config: Config, tmp_path: Path) -> None:
    expected = by_trainer(granite(), tmp_path)
    trained = by_trainer(config.jit(granite()), tmp_path)
    assert len(expected) == STEPS
    assert len(set(expected)) == STEPS
    assert trained == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
@pytest.mark.long
def test_accumulating_and_clipping_gradients_of_a_compiled_model_gives_the_losses_of_the_model(config: Config) -> None:
    plain, given = (granite() for _ in range(2))
    expected = by_loop(plain, list(plain.parameters()))
    assert by_loop(config.jit(given), list(given.parameters())) == pytest.approx(expected, rel=1e-4)
    for ours, theirs in zip(given.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


class Steep(nn.Module):
    """A sine whose slope multiplies rounding errors by about 1000 in each training step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.1, 0.4, 4))

    def forward(self) -> torch.Tensor:
        return (1000 * self.weight).sin().sum()


def wrong_after_one_call(module: nn.Module) -> nn.Module:
    """Make the results of a module wrong from its second call."""
    calls = itertools.count()
    module.register_forward_hook(lambda *given: given[-1] if next(calls) == 0 else 1.1 * given[-1])
    return module


def compiled_by(jit: Callable[[nn.Module], nn.Module]) -> Any:
    return SimpleNamespace(capture="dynamo", jit=jit)


def test_training_that_becomes_unstable_in_float32_is_compared_only_up_to_that_step() -> None:
    trained = trial.train(lambda: (Steep(), (), {}), compiled_by(wrong_after_one_call))
    assert not trained.differs
    assert trained.unstable.startswith("step 2: eager PyTorch is off by ")


def rounded_after_one_call(module: nn.Module) -> nn.Module:
    """Change the results of a module from its second call, as a chaotic model does, but only in single precision."""
    calls = itertools.count()

    def rounded(*given: Any) -> Any:
        out = given[-1]
        return out if next(calls) == 0 or out.dtype is torch.float64 else out + 0.1 * out.detach()

    module.register_forward_hook(rounded)
    return module


def test_a_step_that_differs_only_in_single_precision_is_rounding() -> None:
    def build() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
        torch.manual_seed(0)
        return nn.Linear(4, 4), (torch.ones(2, 4),), {}

    trained = trial.train(build, compiled_by(rounded_after_one_call))
    assert not trained.differs
    assert trained.unstable.startswith("step 2: ")
    assert trained.unstable.endswith("in double precision, all steps agree to 0")


def test_a_wrong_second_training_step_is_found() -> None:
    def build() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
        torch.manual_seed(0)
        return nn.Linear(4, 4), (torch.ones(2, 4),), {}

    assert trial.train(build, compiled_by(wrong_after_one_call)).differs.startswith("step 2: ")
    assert trial.train(build, compiled_by(lambda module: module)) == trial.Training()
