"""Merging fusion regions keeps a legal order of statements, and does not raise the peak memory of these programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings

import workbench
from tests.compiler.memory.test_fake_execution import WITHIN, assert_arithmetic_equals_stepper, measured_peak
from tests.compiler.random_programs import RandomProgram, random_programs
from tests.trial_counts import amount
from workbench.compiler import api
from workbench.compiler.api import Plan
from workbench.compiler.fusion import executors, merge_regions
from workbench.compiler.interop.thunder_api import BoundSymbol, TensorProxy, TraceCtx, devices, dtypes, prims, tracectx
from workbench.programs import resolve

EXECUTOR = "torchcompile_aten"
WIDE, NARROW = 64, 8

type Groups = list[list[BoundSymbol]]


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def regions(function: Callable[..., Any], args: tuple[Any, ...], executor: str = EXECUTOR) -> list[set[str]]:
    """Return, for each fusion of the stock plan, the names of its statements."""
    statements = workbench.open(function, *args, device="cpu", executor=executor).plan.graph.statements
    fusions = [row for row, name in enumerate(statements.name) if name.startswith("TorchCompile")]
    return [
        {statements.name[row] for row in range(len(statements.name)) if statements.parent[row] == f} for f in fusions
    ]


def apart(groups: Groups, *_: Any) -> Groups:
    return list(groups)


def fusions(plan: Plan) -> int:
    return sum(name.startswith("TorchCompile") for name in plan.graph.statements.name)


def planned_apart(function: Callable[..., Any], args: tuple[Any, ...], choices: Mapping[str, str]) -> Plan:
    """Return the plan without merging: it has the regions of Thunder's partition."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors, "merge_regions", apart)
        return workbench.open(function, *args, device="cpu", executor=EXECUTOR).plan_under(choices)


def gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    opened = torch.nn.functional.silu(x @ gate)
    return opened * (opened.sum() + x @ up)


GATED = drawn(4, NARROW, seed=0), drawn(NARROW, WIDE, seed=1), drawn(NARROW, WIDE, seed=2)


def test_a_region_moves_past_an_independent_matmul_to_its_reader() -> None:
    assert len(regions(gated, GATED)) == 1
    assert len(regions(gated, GATED, "torchcompile")) == 2


def narrow_to_wide(x: torch.Tensor, w: torch.Tensor, back: torch.Tensor) -> torch.Tensor:
    """Compute two regions. The first passes only a row of sums to the second.

    If the regions were merged, the large product ``x @ w`` would stay alive during the matmuls between them.
    """
    sums = torch.tanh(x @ w).sum(0, keepdim=True)
    other = back @ back @ back
    return torch.exp(sums).expand(WIDE, WIDE) * 2 + other


def test_regions_stay_apart_if_merging_would_raise_the_live_bytes() -> None:
    args = drawn(WIDE, NARROW, seed=0), drawn(NARROW, WIDE, seed=1), drawn(WIDE, WIDE, seed=2)
    assert len(regions(narrow_to_wide, args)) == 2


def in_order(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Compute a region, a matmul that reads its result, and a second region that reads the matmul's result."""
    first = torch.sin(x)
    return first * (first @ w)


def test_regions_stay_apart_if_a_statement_reads_one_and_is_read_by_the_other() -> None:
    assert len(regions(in_order, (drawn(NARROW, NARROW, seed=0), drawn(NARROW, NARROW, seed=1)))) == 2


def written_between(x: torch.Tensor, w: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    before = torch.sin(kept)
    kept.copy_(x @ w)
    return before * (kept @ w) + torch.cos(kept)


@pytest.mark.usefixtures("no_compiler")
def test_regions_around_an_in_place_write_give_the_results_of_eager() -> None:
    def args() -> tuple[torch.Tensor, ...]:
        return tuple(drawn(NARROW, NARROW, seed=seed) for seed in range(3))

    bench = workbench.open(written_between, *args(), device="cpu", executor=EXECUTOR)
    eager, ours = args(), args()
    torch.testing.assert_close(bench.config.jit(written_between)(*ours), written_between(*eager))
    torch.testing.assert_close(ours[2], eager[2])


def of_primitives(*calls: Callable[[dict[str, Any]], Any]) -> tuple[dict[str, Any], Groups]:
    """Trace calls of primitives. Return all values by name, and a group of statements for each call.

    The inputs are named ``x`` and ``kept``. The result of a call is named by the call's index, such as ``0``.
    """
    trace, groups = TraceCtx(), []
    with tracectx(trace):
        x, kept = (
            TensorProxy(name, shape=(NARROW, NARROW), device=devices.cpu, dtype=dtypes.float32, requires_grad=False)
            for name in ("x", "kept")
        )
        values: dict[str, Any] = {"x": x, "kept": kept}
        for number, call in enumerate(calls):
            before = len(trace.bound_symbols)
            values[str(number)] = call(values)
            groups.append(list(trace.bound_symbols[before:]))
    return values, groups


def joined(groups: Groups, *regions_at: int) -> list[list[str]]:
    """Merge groups of statements, and return the names of the statements in each merged group.

    The groups at the indices `regions_at` are regions; the other groups are not.
    """
    are_regions = [groups[at] for at in regions_at]
    held = [{p.name for b in group for p in (*b.flat_proxy_args, *b.flat_proxy_outs)} for group in groups]
    return [
        [b.sym.name for b in group] for group in merge_regions.merge_regions(groups, are_regions.__contains__, held)
    ]


def test_no_region_moves_past_an_in_place_write() -> None:
    """A region does not move past a copy into its input. It moves past a matmul, which has no in-place write."""
    _, groups = of_primitives(
        lambda made: prims.sin(made["kept"]),
        lambda made: prims.copy_(made["x"], made["kept"], grad_enabled=False),
        lambda made: prims.mul(made["0"], made["1"]),
    )
    assert joined(groups, 0, 2) == [["sin"], ["copy_"], ["mul"]]
    _, groups = of_primitives(
        lambda made: prims.sin(made["kept"]),
        lambda made: prims.matmul(made["x"], made["kept"]),
        lambda made: prims.mul(made["0"], made["1"]),
    )
    assert joined(groups, 0, 2) == [["matmul"], ["sin", "mul"]]


def test_a_region_that_writes_in_place_does_not_move() -> None:
    """The last region does not read the matmul's result, but writes memory that the matmul reads, so it must stay."""

    def written(made: dict[str, Any]) -> Any:
        return prims.mul(made["0"], prims.copy_(made["x"], made["kept"], grad_enabled=False))

    _, groups = of_primitives(
        lambda made: prims.sin(made["x"]), lambda made: prims.matmul(made["x"], made["kept"]), written
    )
    assert joined(groups, 0, 2) == [["sin"], ["matmul"], ["copy_", "mul"]]


def two_blocks(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    """Compute two residual blocks. At the backward's peak, GELU's result is alive: a weight's gradient needs it."""
    linear, gelu = torch.nn.functional.linear, torch.nn.functional.gelu
    for up, bias, down, other in zip(*(weights[at::4] for at in range(4)), strict=True):
        x = x + linear(gelu(linear(x, up, bias)), down, other)
    return x.pow(2).sum()


SHAPES = (4, 16, NARROW), *2 * ((WIDE, NARROW), (WIDE,), (NARROW, WIDE), (NARROW,))
TWO_BLOCKS = tuple(drawn(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(SHAPES))


@pytest.mark.slow
def test_merging_regions_never_raises_a_peak_under_recomputation() -> None:
    """Values inside a region take no memory, and must not be counted as alive.

    Here they are much larger than the values that are alive, so the test notices a wrong count.
    """
    bench = workbench.open(two_blocks, *TWO_BLOCKS, device="cpu", executor=EXECUTOR)
    sites = [s for s in bench.plan.sites if s.lever == "saved" and s.values and s.default == "save"]
    open_ = [site.id for site in sites if "recompute" in site.options and "recompute" not in site.illegal]
    assert len(open_) > 5
    for chosen in ((), *((site,) for site in open_), open_):
        choices = dict.fromkeys(chosen, "recompute")
        plan, separate = bench.plan_under(choices), planned_apart(two_blocks, TWO_BLOCKS, choices)
        assert plan.peak_bytes <= separate.peak_bytes
        assert fusions(plan) < fusions(separate)


@pytest.mark.slow
@pytest.mark.usefixtures("no_compiler")
def test_a_model_has_fewer_regions_and_a_lower_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    program = resolve("llama", device="cpu", layers=1)
    together = api.plan(api.capture(program, EXECUTOR), {})
    monkeypatch.setattr(executors, "merge_regions", apart)
    separate = api.plan(api.capture(program, EXECUTOR), {})
    assert together.proof.proven
    assert fusions(together) < fusions(separate)
    assert together.peak_bytes < separate.peak_bytes


@pytest.mark.slow
@pytest.mark.long
def test_with_merged_regions_the_predicted_peak_equals_the_measured_peak() -> None:
    program = resolve("llama", device="cpu", layers=1)
    plan = assert_arithmetic_equals_stepper(api.capture(program, EXECUTOR), {})
    assert plan.peak_bytes == pytest.approx(measured_peak(program, EXECUTOR, {}), rel=WITHIN)


@pytest.mark.slow
@pytest.mark.drawn
@settings(max_examples=amount(4, 8, 80), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(random_programs(without=("var_mean",)))
def test_random_programs_keep_a_legal_order_of_statements(no_compiler: None, program: RandomProgram) -> None:
    seen: list[tuple[Groups, Groups, list[bool]]] = []

    def noted(groups: Groups, is_region: Callable[[list[BoundSymbol]], bool], held: Any) -> Groups:
        found = merge_regions.merge_regions(groups, is_region, held)
        seen.append((groups, found, [is_region(group) for group in groups]))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors, "merge_regions", noted)
        function, args = program.build()
        bench = workbench.open(function, *args, device="cpu", executor=EXECUTOR)
        assert bench.plan.proof.proven
        assert bench.plan.peak_bytes <= planned_apart(function, args, {}).peak_bytes
        run = bench.config.jit(function)
        for one, other in zip(run(*args), function(*args), strict=True):
            torch.testing.assert_close(one, other)
    assert seen
    for before, after, are_regions in seen:
        assert sorted(id(b) for group in after for b in group) == sorted(id(b) for group in before for b in group)
        alone = [id(group[0]) for group, region in zip(before, are_regions, strict=True) if not region]
        assert [id(group[0]) for group in after if len(group) == 1 and id(group[0]) in set(alone)] == alone
        made = {out.name for group in before for bsym in group for out in bsym.flat_proxy_outs}
        for group in after:
            for bsym in group:
                made -= {out.name for out in bsym.flat_proxy_outs}
                assert not made & {arg.name for arg in bsym.flat_proxy_args}, "a value is read before it is made"
