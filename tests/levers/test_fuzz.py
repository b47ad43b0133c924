"""A few cases of `fuzz.py` have right results in each mode. The fuzz run reports a wrong plan, and can resume."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from tests.levers import fuzz
from tests.levers.fuzz import INDUCTOR, REGIONS, TORCH
from tests.strategies import Input, RandomProgram
from workbench.compiler.memory import offload

SETS = 4
SEED = 3002
"""Seed whose programs have cases in each mode. The full run tries many other seeds."""


@pytest.mark.slow
@pytest.mark.parametrize("mode", [TORCH, REGIONS])
def test_sampled_cases_have_the_bits_of_unmodified_thunder(mode: str) -> None:
    counts: Counter[str] = Counter()
    assert list(fuzz.cases(mode, SEED, SETS, counts)) == []
    assert counts["cases bitwise"] == counts["cases"] > 1


@pytest.mark.slow
def test_sampled_cases_are_right_if_their_regions_are_compiled_together() -> None:
    counts: Counter[str] = Counter()
    assert list(fuzz.cases(INDUCTOR, SEED, 2, counts)) == []
    assert counts["cases"] > 0
    assert counts["regions compiled"] > 1


@pytest.mark.slow
def test_a_wrong_plan_is_reported_with_few_choices_and_can_be_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wait = offload.arrive
    monkeypatch.setattr(offload, "arrive", lambda *tensors: tuple(torch.nextafter(t, t + 1) for t in wait(*tensors)))
    out = tmp_path / "cases.jsonl"
    total = fuzz.full(out, {TORCH: 12}, {TORCH: 6}, SEED)
    assert total["wrong"] > 0
    found = next(each for line in out.read_text().splitlines() for each in json.loads(line)["wrong"])
    assert "other bits" in found["what"]
    assert set(found["choices"].values()) == {"offload"}
    assert len(found["choices"]) == 1
    assert found["replay"] in capsys.readouterr().out
    assert fuzz.replay(TORCH, found["seed"], found["choices"]) == found["what"]
    monkeypatch.setattr(offload, "arrive", wait)
    assert fuzz.replay(TORCH, found["seed"], found["choices"]) == ""
    # A second run resumes after the last case. All cases are done, so it runs no case.
    monkeypatch.setattr(fuzz, "cases", None)
    assert fuzz.full(out, {TORCH: 12}, {TORCH: 6}, SEED) == total


def test_inputs_are_searched_until_errors_would_be_visible() -> None:
    given = Input("x0", (8, 8), "float32", requires_grad=True)
    _, eager, _ = fuzz.with_telling_inputs(RandomProgram((given,), ("v0 = torch.relu(x0)",), ("v0",)))
    assert fuzz.tells(eager)
    for line in ("v0 = x0 / 0.0", "v0 = torch.relu(-x0 * x0)"):
        with pytest.raises(fuzz.Unusable, match="no inputs that would show errors"):
            fuzz.with_telling_inputs(RandomProgram((given,), (line,), ("v0",)))


def test_an_op_that_dynamo_does_not_trace_stays_outside_of_regions() -> None:
    given = Input("x0", (4,), "float32", requires_grad=True)
    program = RandomProgram((given,), ("v0 = torch.tanh(x0).detach() * x0",), ("v0",))
    with fuzz.regions(compiled=False):
        subject = fuzz.Subject(REGIONS, fuzz.Known(program))
        backward = subject.bench.plan.split.backward
    assert backward is not None
    alone = [bsym for bsym in backward.bound_symbols if bsym.sym.name == "detach_vjp"]
    assert len(alone) == 1


# Results of seed 4598 are wrong if `Config.jit` does not know that two arguments share memory.
@pytest.mark.slow
@pytest.mark.parametrize("seed", [SEED, 4598])
def test_sampled_configs_that_are_compiled_again_are_right(seed: int) -> None:
    counts: Counter[str] = Counter()
    assert list(fuzz.replays(seed, 6, counts)) == []
    assert min(counts[f"configs by {capture}"] for capture in fuzz.CAPTURES) > 0
