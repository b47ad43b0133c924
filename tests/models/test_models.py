"""Models that people bring: each opens, plans, takes choices, runs right, and takes the memory that was predicted."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.models import zoo
from workbench.compiler.devices import why_no_nvfuser
from workbench.errors import ChoiceError, ProgramError
from workbench.runs import accuracy, meters

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")

IN_SUITE = ("llama", "gpt2", "bert", "vit", "convnext")
"""Those that differ most; all the others are slow."""
REFUSED = {"mixtral": r"moe.py:\d+ .*torch.ops.transformers.grouped_mm_fallback.*register_custom_op"}
CHOICES = 5

needs_nvfuser = pytest.mark.skipif(bool(why_no_nvfuser()), reason=why_no_nvfuser() or "-")


def listed(*names: str) -> list[Any]:
    return [pytest.param(name, marks=() if name in IN_SUITE else pytest.mark.slow) for name in names]


def chosen(bench: workbench.Workbench, seed: int) -> None:
    """A few legal choices drawn at random; one that another forbids is left out."""
    draw = random.Random(seed)
    free = [(site.id, o) for site in bench.sites() for o in site.options if o != site.choice and o not in site.illegal]
    for id, option in draw.sample(free, min(CHOICES, len(free))):
        try:
            bench.choose({id: option})
        except ChoiceError:
            continue


@pytest.mark.parametrize("name", listed(*(name for name in zoo.MODELS if name not in REFUSED)))
def test_a_model_opens_runs_right_and_replays(name: str, tmp_path: Path) -> None:
    def build() -> accuracy.Parts:
        return zoo.build(name)

    module, args, kwargs = build()
    bench = workbench.open(module, *args, device="cpu", **kwargs)
    assert bench.capture == "dynamo", bench.capture_reason
    chosen(bench, seed=len(name))
    assert bench.choices
    config = workbench.load(bench.export(tmp_path / "choices.py"))
    module, args, kwargs = build()
    again = workbench.open(module, *args, config=config, **kwargs)
    assert again.plan.text() == bench.plan.text()
    stepper = accuracy.Stepper(module, args, kwargs, config.jit(module))
    checked = accuracy.check(accuracy.first_step(stepper, 0), build, capture=config.capture)
    assert checked.ok, checked.worst
    stepper.step()  # some models write into their configuration when first called, and are captured again
    measured = meters.measure_peak(stepper)
    assert measured.measured_peak_bytes == pytest.approx(bench.plan.peak_bytes, rel=0.01)


@needs_nvfuser
@pytest.mark.parametrize("name", listed("llama", "gpt2"))
def test_a_model_is_planned_for_a_gpu_that_is_not_there(name: str) -> None:
    module, args, kwargs = zoo.build(name)
    bench = workbench.open(module, *args, device="planned", executor="nvfuser", **kwargs)
    assert bench.capture == "dynamo", bench.capture_reason
    assert bench.plan.census.count


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_where_and_what_to_do(name: str) -> None:
    module, args, kwargs = zoo.build(name)
    with pytest.raises(ProgramError, match=REFUSED[name]):
        workbench.open(module, *args, device="cpu", capture="dynamo", **kwargs)
