"""A compiled module behaves as the module it was made from: state, attributes, methods and signature."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import workbench

type Compile = Callable[[nn.Module], Any]


class Masked(nn.Module):
    """A module with a buffer that checkpoints leave out, extra state, and a method for one more entry."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mask", torch.ones(4), persistent=False)
        self.scale, self.steps, self.moved = 0.5, 0, 0

    def forward(self, x: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
        """Return x, scaled."""
        return torch.sin(self.linear(x * self.mask)) * self.scale + shift

    def get_extra_state(self) -> dict[str, int]:
        return {"steps": self.steps}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.steps = state["steps"]

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return {**super().state_dict(*args, **kwargs), "words": torch.ones(1)}

    def _load_from_state_dict(self, state: Any, prefix: str, *rest: Any) -> None:
        state.pop(f"{prefix}words", None)
        super()._load_from_state_dict(state, prefix, *rest)

    def _apply(self, fn: Any, recurse: bool = True) -> Masked:
        self.moved += 1
        super()._apply(fn, recurse)
        return self


@pytest.fixture(scope="module")
def compile_module() -> Compile:
    config = workbench.open(Masked(), torch.ones(2, 4), executor="torch").config
    return config.jit  # type: ignore[no-any-return]


def test_checkpoints_of_a_compiled_module_are_those_of_the_module(compile_module: Compile) -> None:
    module, other = Masked(), Masked()
    compiled = compile_module(module)
    compiled.steps = 7
    stored = compiled.state_dict()
    torch.testing.assert_close(stored, module.state_dict())
    assert "mask" not in stored
    other.load_state_dict(stored)
    assert other.steps == 7
    other.steps = 9
    compiled.load_state_dict(other.state_dict())
    assert module.steps == 9


def test_a_module_around_a_compiled_module_has_the_same_checkpoints(compile_module: Compile) -> None:
    module = Masked()
    plain, compiled = nn.Sequential(module), nn.Sequential(compile_module(module))
    torch.testing.assert_close(compiled.state_dict(), plain.state_dict())
    module.steps = 3
    stored = plain.state_dict()
    module.steps = 0
    compiled.load_state_dict(stored)
    assert module.steps == 3


def test_a_hook_of_the_state_is_called_for_both_modules(compile_module: Compile) -> None:
    module = Masked()
    compiled, seen = compile_module(module), []
    compiled.register_state_dict_post_hook(lambda *given: seen.append(given[2]))
    compiled.state_dict()
    module.state_dict()
    assert len(seen) == 2


@pytest.mark.slow
def test_an_attribute_that_is_set_on_a_compiled_module_is_what_the_program_reads(compile_module: Compile) -> None:
    module, x = Masked(), torch.randn(2, 4)
    compiled = compile_module(module)
    before = compiled(x)
    compiled.scale = 1.5
    torch.testing.assert_close(compiled(x), before * 3)
    assert module.scale == 1.5
    compiled.note = "kept"
    assert module.note == "kept"
    del compiled.note
    assert not hasattr(module, "note")


class InParts(nn.Module):
    """A module with a graph break."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(x)
        return hidden.sin().sum() if hidden.sum() > 100 else hidden.cos().sum()


@pytest.mark.parametrize("make", [Masked, InParts])
def test_a_module_has_no_new_attributes_after_it_was_compiled(make: Callable[[], nn.Module]) -> None:
    module, x = make(), torch.ones(2, 4)
    before = {**vars(module)}
    compiled = workbench.open(module, x, executor="torch").config.jit(module)
    assert vars(module) == before
    compiled(x)
    assert vars(module).keys() == before.keys()
    assert isinstance(pickle.loads(pickle.dumps(module)), make)


class Typed(Masked):
    """A module whose attributes have names of methods of `torch.nn.Module`."""

    half: Any = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.type: Any = "plain"


def test_attributes_with_names_of_methods_are_those_of_the_module(compile_module: Compile) -> None:
    module: Any = Typed()
    compiled = compile_module(module)
    assert (compiled.type, compiled.half) == ("plain", 0.5)
    compiled.type, compiled.half = "other", 0.25
    assert (module.type, module.half, compiled.type, compiled.half) == ("other", 0.25, "other", 0.25)
    del compiled.half
    assert module.half == 0.5


def test_methods_that_the_module_overrides_are_called(compile_module: Compile) -> None:
    module = Masked()
    compiled = compile_module(module)
    assert compiled.double() is compiled
    assert module.moved == 1
    assert next(compiled.parameters()).dtype == torch.float64
    assert "get_extra_state" in dir(compiled)


def test_the_signature_of_a_compiled_module_is_that_of_the_module(compile_module: Compile) -> None:
    """Hugging Face's `Trainer` chooses the columns of a data set by the names of the parameters."""
    compiled = compile_module(Masked())
    assert inspect.signature(compiled.forward) == inspect.signature(Masked().forward)
    assert compiled.forward.__doc__ == "Return x, scaled."


def test_a_hook_on_a_compiled_module_is_its_own(compile_module: Compile) -> None:
    module = Masked()
    compiled, seen = compile_module(module), []
    compiled.register_forward_hook(lambda *given: seen.append("after"))
    module(torch.ones(2, 4))
    assert seen == []


@pytest.mark.slow
def test_a_compiled_container_has_a_length_and_items() -> None:
    layers = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
    config = workbench.open(layers, torch.ones(2, 4), executor="torch").config
    compiled = config.jit(layers)
    assert len(compiled) == 2
    assert compiled[0] is layers[0]
    assert list(compiled) == list(layers)
    torch.testing.assert_close(compiled(torch.ones(2, 4)), layers(torch.ones(2, 4)))
    assert bool(config.jit(Masked())), "a module without a length is true"


def test_a_compiled_function_has_the_name_and_the_signature_of_the_function() -> None:
    def loss_of(x: torch.Tensor, weight: float = 1.0) -> torch.Tensor:
        """Return a loss."""
        return (x * weight).sum()

    compiled = workbench.open(loss_of, torch.ones(3, requires_grad=True), executor="torch").config.jit(loss_of)
    assert (compiled.__name__, compiled.__doc__) == ("loss_of", "Return a loss.")
    assert inspect.signature(compiled) == inspect.signature(loss_of)


def test_a_compiled_module_is_an_instance_of_the_class_of_the_module(compile_module: Compile) -> None:
    compiled = compile_module(Masked())
    assert isinstance(compiled, Masked)
    assert type(compiled) is not Masked


@pytest.mark.slow
def test_a_trainer_saves_and_resumes_a_compiled_model_with_tied_weights(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    def model() -> Any:
        torch.manual_seed(0)
        dropped = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        shape = {"n_layer": 1, "n_embd": 16, "n_head": 2, "n_positions": 8, "vocab_size": 32, "use_cache": False}
        made = GPT2LMHeadModel(GPT2Config(**shape, **dropped, bos_token_id=0, eos_token_id=0))
        made.loss_type = "ForCausalLM"
        made.accepts_loss_kwargs = False
        return made

    def train(trained: Any, resume: str | None = None) -> list[float]:
        arguments = TrainingArguments(
            output_dir=str(tmp_path), use_cpu=True, max_steps=2, per_device_train_batch_size=2, save_steps=1,
            logging_steps=1, report_to=[], disable_tqdm=True, seed=0, lr_scheduler_type="constant",
        )  # fmt: skip
        rows: Any = [{"input_ids": row, "labels": row, "unused": row} for row in tokens]
        trainer = Trainer(model=trained, args=arguments, train_dataset=rows)
        trainer.train(resume_from_checkpoint=resume)
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    tokens = torch.randint(32, (4, 8), generator=torch.Generator().manual_seed(0))
    expected = train(model())
    config = workbench.open(model(), input_ids=tokens[:2], labels=tokens[:2], executor="torch").config
    given = model()
    assert train(config.jit(given)) == pytest.approx(expected, rel=1e-4)
    loaded = GPT2LMHeadModel.from_pretrained(tmp_path / "checkpoint-2")
    torch.testing.assert_close(loaded.state_dict(), given.state_dict(), rtol=0, atol=0)
    resumed = model()
    train(config.jit(resumed), str(tmp_path / "checkpoint-1"))
    torch.testing.assert_close(resumed.state_dict(), given.state_dict(), rtol=0, atol=0)
