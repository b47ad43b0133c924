"""A plan does not depend on the choices before it: it equals the plan of a new opening with the same choices.

Plans share statements, clones, segments and numbers of values with earlier plans of the same bench.
``python -m tests.compiler.trace.test_plans_after_other_plans 250`` compares 500 programs: 250 with each executor.
"""

from __future__ import annotations

import dataclasses
import random
import re
import sys
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import workbench
from tests.needs import needs_nvfuser
from tests.strategies import choices_for, drawn
from tests.trial_counts import beyond
from workbench.bench import Workbench
from workbench.compiler.api import Plan
from workbench.compiler.trace.bsym_memo import PlanMemo
from workbench.errors import ChoiceError, PlanError

KINDS = ("gelu", "gate", "dropout", "heads")
SEEDS = 40


class Layer(nn.Module):
    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), nn.LayerNorm(width)
        self.width, self.kind = width, kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.up(x if self.kind == "gate" else self.norm(x))
        if self.kind == "gate":
            inner = torch.tanh(inner) * torch.sigmoid(inner)
        elif self.kind == "dropout":
            inner = nn.functional.dropout(torch.relu(inner), 0.2)
        else:
            inner = nn.functional.gelu(inner)
        if self.kind == "heads":
            inner = inner.view(-1, 2, self.width).transpose(1, 2).reshape(-1, 2 * self.width)
        return x + self.down(inner)


def layered(draw: random.Random) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """Return a model of repeated layers, sometimes with one layer of another kind, and its input."""
    width, kinds = draw.choice([4, 8]), [draw.choice(KINDS)] * draw.randint(3, 6)
    if draw.random() < 0.5:
        kinds[draw.randrange(len(kinds))] = draw.choice(KINDS)
    return nn.Sequential(*(Layer(width, kind) for kind in kinds)), (torch.randn(6, width),)


def program_of(draw: random.Random) -> tuple[Any, tuple[torch.Tensor, ...]]:
    if draw.random() < 0.5:
        return layered(draw)
    while True:
        try:
            return drawn(draw, draws=draw.random() < 0.5, writes=draw.random() < 0.5).build()[:2]
        except RuntimeError:  # the program writes where PyTorch does not allow it
            continue


def plain(value: Any) -> Any:
    """Return data that can be compared with ``==``."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def facts(plan: Plan) -> dict[str, Any]:
    graph = plan.graph
    tables = (graph.statements, graph.values, graph.storages, graph.ends)
    text = re.sub(r"took \d+ milliseconds|0x[0-9a-f]+", "", f"{plan.split.forward}{plan.split.backward}")
    shown = (plan.timeline, plan.census, plan.sites, plan.counts, plan.proof)
    return {"tables": plain(tables), "shown": plain(shown), "text": text}


def compared(executor: str, seed: int) -> int:
    """Compare the plans of a random program after each of five changes. Return the number of compared plans."""
    draw = random.Random(seed)
    program, inputs = program_of(draw)

    def opened() -> Workbench:
        device = "planned" if executor == "nvfuser" else "cpu"
        return workbench.open(program, *inputs, device=device, executor=executor, capture="dynamo")

    bench, count = opened(), 0
    for step in range(5):
        if step == 3:
            bench.undo()
        else:
            try:
                bench.choose(choices_for(draw, bench.plan.sites, most=4))
            except (ChoiceError, PlanError):
                continue
        new = opened()
        new.choose(bench.choices)
        assert facts(bench.plan) == facts(new.plan)
        count += 1
    return count


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["torch", pytest.param("nvfuser", marks=needs_nvfuser)])
@pytest.mark.parametrize("seed", beyond(3, list(range(SEEDS)), pytest.mark.long))
def test_a_plan_equals_the_plan_of_a_new_opening(executor: str, seed: int) -> None:
    assert compared(executor, seed)


STORED = {
    "deletions of segment": 2,
    "fused segment": 3,
    "numbered": 2,
}
"""Results that passes store with a segment, and the length of their keys without what the pass read from outside.

`test_segment_passes.py` has the results of further passes.
"""


def plans_of_llama() -> list[Any]:
    """Return the facts of eight plans of one bench; for a refused plan, the kind of error."""
    bench, draw, found = workbench.open("llama", layers=3, device="planned", executor="nvfuser"), random.Random(5), []
    able = [site for site in bench.sites("saved") if "recompute" not in site.illegal]
    crossing = [site for site in bench.sites("remat") if not site.is_setting and "recompute" not in site.illegal]
    for _ in range(8):
        chosen = {site.id: "recompute" for site in draw.sample(able, 2)}
        chosen |= {site.id: draw.choice(("save", "recompute")) for site in draw.sample(crossing, 1)}
        try:
            found.append(facts(bench.plan_under(chosen)))
        except Exception as error:  # noqa: BLE001 - a wrong plan may fail anywhere
            found.append(type(error).__name__)
    return found


@pytest.mark.long
@needs_nvfuser
@pytest.mark.parametrize("name", STORED)
def test_a_stored_result_depends_on_what_the_pass_read_from_outside(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, stock = plans_of_llama(), PlanMemo.get_or_make

    def careless(self: PlanMemo, key: Hashable, alive: Any, make: Callable[[], Any]) -> Any:
        if isinstance(key, tuple) and key[0] == name:
            key = key[: STORED[name]]
        return stock(self, key, alive, make)

    monkeypatch.setattr(PlanMemo, "get_or_make", careless)
    assert plans_of_llama() != right


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        print(number, [compared(executor, number) for executor in ("torch", "nvfuser")], flush=True)
