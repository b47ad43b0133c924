"""If the solver folds identical layers into one, its bound stays valid, and its best plan does not become slower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import csr_array
from torch import nn

import workbench
from tests.trial_counts import beyond
from workbench.analysis.cost.machines import H100
from workbench.analysis.fit import lp_bound
from workbench.analysis.fit.budget_solver import Chooser
from workbench.analysis.fit.layer_symmetry import LinearProgram, merge_equal_columns
from workbench.analysis.fit.lp_bound import LimitedProgram
from workbench.analysis.fit.milp_process import solve_whole
from workbench.analysis.fit.rounding import SOLVED_TO
from workbench.bench.fit.fitter import Fitter

PLACES, EACH = 5, 3
WIDTH = 64


def layered(seed: int, layers: int, *, same: bool = False) -> tuple[LinearProgram, NDArray[np.float64]]:
    """Return a random linear program, and the bytes of its choices.

    If `same`, all layers are equal, and the choices of a layer share recomputed statements. If not, layers may differ
    in costs or in bytes, and in whether their choices share statements. Choices then free bytes at different
    statements, and the first two choices of a layer exclude each other.
    """
    draw = np.random.default_rng(seed)
    costs, sizes = (np.tile(draw.permutation(6)[:EACH] + 1.0, layers) for _ in range(2))
    count = len(costs)
    shares = np.ones(layers) if same else draw.integers(0, 2, layers)
    if not same:
        odd = draw.permutation(count)[: draw.integers(0, 4)]
        (costs if draw.integers(2) else sizes)[odd] += 1.5
    memory = np.zeros((PLACES, count + layers))
    for place, row in enumerate(memory):
        row[:count] = -sizes
        if not same:
            away = np.repeat(np.arange(layers) <= layers - 1 - place + draw.integers(0, 2), EACH)
            row[:count] *= away * np.where(draw.random(count) < 0.1, 0.5, 1.0)
    rows = [memory]
    for layer in range(layers):
        first = layer * EACH
        one = np.zeros((1 + EACH, count + layers))
        one[0, [first, first + 1]] = 1.0
        one[1:, first : first + EACH] = np.eye(EACH) * shares[layer]
        one[1:, count + layer] = -shares[layer]
        rows.append(one)
    needed = memory.sum(axis=1) * draw.uniform(0.1, 0.6, PLACES)
    program = LinearProgram(
        costs=np.append(costs, np.full(layers, 2.0)),
        upper=np.ones(count + layers),
        matrix=csr_array(np.vstack(rows)),
        limits=np.concatenate([needed, np.tile([1.0 + same, *[0.0] * EACH], layers)]),
        integral=np.arange(count + layers) < count,
    )
    return program, np.append(sizes, np.zeros(layers))


def least(program: LinearProgram) -> float:
    """Return the cost of the best solution, or infinity if no solution exists."""
    solved = milp(
        program.costs,
        constraints=[LinearConstraint(program.matrix, -np.inf, program.limits)],
        integrality=program.integral.astype(int),
        bounds=(0, program.upper),
    )
    return float(solved.fun) if solved.x is not None else np.inf


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), layers=st.integers(2, 6))
def test_the_bound_of_folded_layers_is_at_most_the_cost_of_any_choices(seed: int, layers: int) -> None:
    program, sizes = layered(seed, layers)
    one = merge_equal_columns(program, PLACES, sizes)
    assert (one.program.costs[one.of] <= program.costs).all()
    assert least(one.program) <= least(program) + 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_folding_isomorphic_layers_keeps_one_layer_with_the_cost_of_all(seed: int) -> None:
    program, sizes = layered(seed, 5, same=True)
    one = merge_equal_columns(program, PLACES, sizes)
    assert len(one.program.costs) == EACH + 1
    assert least(one.program) == pytest.approx(least(program))


@settings(max_examples=60, deadline=None)
@given(groups=st.lists(st.sets(st.integers(0, 9), min_size=2), min_size=1, max_size=12, unique_by=frozenset))
def test_each_group_is_the_union_of_the_groups_and_numbers_nested_in_it(groups: list[set[int]]) -> None:
    named = [tuple(sorted(group)) for group in groups]
    within = lp_bound._nest_groups(named)

    def numbers(of: int | tuple[int, ...]) -> set[int]:
        return {of} if isinstance(of, int) else set().union(*(numbers(inside) for inside in within[of]))

    assert all(numbers(group) == set(group) for group in named)


def test_each_group_of_a_nested_chain_has_two_entries() -> None:
    within = lp_bound._nest_groups([tuple(range(length)) for length in range(2, 40)])
    assert sum(map(len, within.values())) == 2 * 38


class Block(nn.Module):
    """A block that saves values of different sizes."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.silu(self.up(torch.tanh(x))).exp().sin())


class Tower(nn.Module):
    """Blocks with the given inner widths.

    If `shared`, the last block is the first block. If `dropping`, a dropout follows each block, and the third dropout
    is in eval mode.
    """

    def __init__(self, inner: Sequence[int], *, shared: bool = False, dropping: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(WIDTH, each) for each in inner)
        if shared:
            self.blocks[-1] = self.blocks[0]
        self.drop = nn.ModuleList(nn.Dropout(0.5) for _ in inner) if dropping else None
        if self.drop is not None:
            self.drop[2].eval()
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cos(x)
        for number, block in enumerate(self.blocks):
            x = block(x) if self.drop is None else self.drop[number](block(x))
        return self.head(x).exp().sum()


PROGRAMS = {
    "alike": Tower([256] * 6),
    "differing": Tower([256, 192, 256, 384, 256, 256]),
    "shared weights": Tower([256] * 6, shared=True),
    "one in eval": Tower([256] * 5, dropping=True),
}


def chooser(program: Tower) -> Chooser:
    x = torch.randn(4096, WIDTH, requires_grad=True)
    bench = workbench.open(program, x, device="planned", executor="torch", capture="interpreter")
    return Fitter(bench, bench._captured, H100).chooser


@pytest.mark.slow
@pytest.mark.parametrize("name", beyond(1, PROGRAMS))
@pytest.mark.long
def test_a_fit_with_folded_layers_is_as_fast_as_a_fit_with_all_layers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = chooser(PROGRAMS[name])
    limits = np.linspace(once.least().peak_bytes, once.stock.peak_bytes, 3).astype(int).tolist()[:-1]
    found = [once.fit(limit) for limit in limits]
    monkeypatch.setattr(LimitedProgram, "solve_merged", lambda *_, **__: None)
    each = chooser(PROGRAMS[name])
    for limit, point in zip(limits, found, strict=True):
        other = each.fit(limit)
        assert point is not None
        assert other is not None
        assert point.peak_bytes <= limit
        assert point.added_s <= other.added_s * (1 + SOLVED_TO)
        assert once.bound(limit).added_s <= other.added_s + 1e-12
        assert once._relaxation.program_for(limit).bound().added_s <= once.bound(limit).added_s + 1e-12


@pytest.mark.slow
def test_the_best_plan_of_identical_layers_is_proven_on_the_folded_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitting = chooser(PROGRAMS["alike"])
    stock = fitting.stock.peak_bytes
    limit = (fitting.least().peak_bytes + stock) // 2
    columns: list[int] = []

    def counted(go_on: Any, costs: Any, **settings: Any) -> Any:
        columns.append(int(settings["integrality"].sum()))
        return solve_whole(go_on, costs, **settings)

    monkeypatch.setattr(lp_bound, "solve_whole", counted)
    point = fitting.fit(limit)
    assert point is not None
    assert point.added_s > 0
    assert fitting.gap(point, limit) < SOLVED_TO
    assert columns
    assert max(columns) < len(fitting.choices) / 2
