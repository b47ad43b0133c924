"""The outline divides each figure of the plan among the source lines and modules that cause it."""

from __future__ import annotations

import pytest
import torch

import workbench
from workbench import Workbench
from workbench.analysis.memory.liveness import alive_at
from workbench.bench.report.source_outline import choices_to_turn, count_turns, outline
from workbench.core.lever import Site


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.up(x))
        return torch.exp(y) * y


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x.sum()


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return workbench.open(Model(), torch.randn(8, 16), device="cpu", executor="torch", capture="interpreter")


def test_parts_are_the_users_modules_and_lines_and_their_figures_add_up(bench):
    plan = bench.plan
    parts = outline(plan)
    modules = [part.key for part in parts if part.kind == "module"]
    assert {"blocks.0", "blocks.1", "blocks.0.up"} <= set(modules)
    assert any("torch.exp(y) * y" in part.label and part.source.startswith("test_source_outline.py:") for part in parts)
    top = [part for part in parts if part.parent < 0]
    assert sum(part.saved_bytes for part in top) == plan.saved_bytes > 0
    at_peak = alive_at(plan.graph, plan.timeline.peak_statement)
    assert sum(part.peak_bytes for part in top) == sum(one.bytes for one in at_peak if one.producer >= 0)
    for number, part in enumerate(parts):
        inside = [other for other in parts if other.parent == number]
        if inside:
            assert part.saved_bytes == sum(other.saved_bytes for other in inside)
            assert all(other.depth == part.depth + 1 for other in inside)


def test_every_saved_value_can_be_chosen_at_the_line_that_computes_the_value(bench):
    parts = {part.key: part for part in outline(bench.plan)}
    sites = {site.id for site in bench.sites("saved") if site.values}
    inside = {id for key in ("blocks.0", "blocks.1") for id in parts[key].sites}
    assert {id for id in sites if id.startswith("saved:blocks.")} <= inside
    assert not [id for id in parts["blocks.0"].sites if "blocks.1" in id]


def test_a_choice_for_a_whole_part_skips_refused_sites_and_can_be_reset(bench):
    part = next(part for part in outline(bench.plan) if part.key == "blocks.0")
    here = [bench.site(id) for id in part.sites]
    choices = choices_to_turn(here, "recompute")
    assert choices
    assert set(choices) == {site.id for site in here if "recompute" in site.options and "recompute" not in site.illegal}
    bench.choose(choices)
    assert choices_to_turn([bench.site(id) for id in part.sites], "stock") == dict.fromkeys(choices, "save")
    bench.undo()
    assert choices_to_turn(here, "stock") == {}


@pytest.mark.parametrize("choice", ["policy", "late", "stock"])
def test_counts_are_those_of_choices_at_sites_with_an_option_called_stock(choice: str) -> None:
    """A collective has an option ``stock``, which is not its default. The count of ``stock`` still counts defaults."""
    options = {"waits": ("policy", "late", "stock"), "saved": ("save", "recompute")}
    sites = [
        Site(id=f"{lever}:x", lever=lever, label="", options=legal, choice=chosen, default=legal[0])
        for (lever, legal), chosen in zip(options.items(), (choice, "recompute"), strict=True)
    ]
    counts = count_turns(sites)
    assert counts == {option: len(choices_to_turn(sites, option)) for option in counts}
    assert counts["stock"] == (1 if choice == "policy" else 2)
