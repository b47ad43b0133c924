"""A guide predicts the time that recomputing fused statements adds to a plan. A linear program gives a lower bound.

A guide predicts the memory and the time of plans without planning; see `workbench.bench.fit.fitter`.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import workbench
from benchmarks.fit.measured_peaks import built
from tests.trial_counts import beyond
from workbench import Workbench
from workbench.analysis.cost.collective_overlap import costs
from workbench.analysis.cost.machines import Machine
from workbench.analysis.fit import fusion_costs
from workbench.bench.fit.fitter import Fitter
from workbench.core.graph import Kind, ValueFlag
from workbench.errors import PlanError

pytestmark = pytest.mark.slow

SLOW = Machine(
    name="slow",
    source="made up: bytes are expensive compared with operations",
    flops_per_s={"float32": 1e10},
    bytes_per_s=1e9,
    link_bytes_per_s=1e9,
    launch_s=1e-7,
)


def gated(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x = x + torch.sin(torch.nn.functional.silu(x @ w) @ w)
    return (x @ w).tanh().exp().sum()


def scaled(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        normed = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
        x = x + (normed * scale) @ w
    return (x * x).sum()


def opened(program: str) -> Workbench:
    x, w = torch.randn(256, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    if program == "gated":
        return workbench.open(gated, x, w, device="cpu", executor="torchcompile", capture="interpreter")
    scale = torch.randn(16, requires_grad=True)
    return workbench.open(scaled, x, w, scale, device="cpu", executor="torchcompile", capture="interpreter")


@pytest.fixture(scope="module", params=beyond(1, ["gated", "scaled"]))
def fitter(request: pytest.FixtureRequest) -> Fitter:
    bench = opened(request.param)
    return Fitter(bench, bench._captured, SLOW, using=("recompute",))


def every(fitter: Fitter) -> list[dict[int, str]]:
    """Return all combinations of options. Assert that the program is so small that each combination can be planned."""
    variables = fitter.chooser.choices
    assert 2 <= len(variables) <= 8
    return [dict(made) for n in range(len(variables) + 1) for made in itertools.combinations(variables, n)]


def test_the_cost_of_a_point_is_the_extra_time_of_its_plan(fitter: Fitter) -> None:
    limit = (fitter.lowest_peak()[1].peak_bytes + fitter.before.peak_bytes) // 2
    point, plan = fitter.fit_peak(limit)
    assert point.options
    took = []
    for graph in (plan.graph, fitter.before.graph):
        cost = costs(graph, SLOW, 1)
        took.append(float((cost.compute_s + cost.host_s).sum()))
    assert point.added_s == pytest.approx(took[0] - took[1], abs=1e-12)
    assert fitter.step_s == pytest.approx(took[1])


def test_no_combination_beats_the_bound_and_the_result_is_near_the_best(fitter: Fitter) -> None:
    limits = np.linspace(fitter.lowest_peak()[1].peak_bytes, fitter.before.peak_bytes, 5).astype(int).tolist()
    found = [fitter.fit_peak(limit)[0] for limit in limits]
    points = [fitter.chooser.point(options) for options in every(fitter)]
    for limit, point in zip(limits, found, strict=True):
        best = min(one.added_s for one in points if one.peak_bytes <= limit)
        assert fitter.chooser.bound(limit).added_s <= best + 1e-12
        assert point.added_s <= best + 0.02 * fitter.step_s
    assert any(point.options for point in found)
    # The least peak that the search finds is the smallest peak of all combinations.
    assert fitter.chooser.least().peak_bytes == min(point.peak_bytes for point in points)


def test_the_fusion_model_predicts_better_than_single_statements(fitter: Fitter) -> None:
    chooser, context = fitter.chooser, fitter._context
    cost = costs(context.graph, SLOW, 1)
    alone_s = cost.compute_s + cost.host_s
    off: list[list[float]] = []
    for storage, option in chooser.choices:
        planned_s = chooser.point({storage: option}).added_s
        statements_s = float(alone_s[sorted(chooser._problem.time.rows(storage))].sum())
        off.append([abs(chooser.added_s({storage: option}) - planned_s), abs(statements_s - planned_s)])
    by_fusion, by_statement = np.sum(off, axis=0)
    assert by_fusion < by_statement


def test_points_also_recompute_storages_that_fusions_recompute_anyway() -> None:
    bench = opened("scaled")
    fitter = Fitter(bench, bench._captured, SLOW, using=("recompute",))
    remade = fusion_costs.storages_remade(fitter._context.recomputer, fitter.before.graph)
    assert remade
    nearer, further = fitter.chooser.guides[1], fitter.chooser.guides[2]
    assert remade.isdisjoint(storage for storage, _ in nearer.choices)
    assert remade <= {storage for storage, _ in further.choices}
    taken = [fitter.chooser.guides.exact(nearer, nearer.point({s: o})) for s, o in nearer.choices]
    assert any(remade & point.options.keys() for point in taken)
    for point in taken:
        without = {storage: option for storage, option in point.options.items() if storage not in remade}
        assert point.saved_bytes <= fitter.chooser.point(without).saved_bytes


def test_views_that_a_fusion_returns_take_no_time() -> None:
    bench = opened("scaled")
    graph = bench.plan.graph
    statements, values = graph.statements, graph.values
    row = next(row for row in range(len(statements)) if statements.kind[row] == Kind.FUSION)
    read = statements.inputs[row]
    given = next(v for v in read.tolist() if values.flags[v] & ValueFlag.ARGUMENT and values.storage[v] >= 0)
    before_s = costs(graph, SLOW, 1).compute_s[row]
    # Turn one result of the fusion into a view of one of its inputs. A view is not written to memory.
    made = int(statements.outputs[row][0])
    values.storage[made], kept = values.storage[given], values.storage[made]
    try:
        assert costs(graph, SLOW, 1).compute_s[row] == pytest.approx(before_s - values.bytes[made] / SLOW.bytes_per_s)
    finally:
        values.storage[made] = kept


@pytest.mark.parametrize("fitter", ["scaled"], indirect=True)
def test_a_fit_within_less_than_the_stock_step_time_is_found(fitter: Fitter) -> None:
    quickest_s = min(fitter.chooser.point(options).added_s for options in every(fitter))
    assert quickest_s < 0
    found, plan = fitter.fit_time(fitter.step_s + quickest_s / 2)
    assert found.added_s <= quickest_s / 2
    assert plan.peak_bytes == found.planned_bytes <= fitter.before.peak_bytes
    with pytest.raises(PlanError, match=r"no plan of .* has a step of .* or less by the rates of slow"):
        fitter.fit_time(fitter.step_s + 2 * quickest_s)


def test_a_faster_plan_is_found_even_under_the_stock_peak(fitter: Fitter) -> None:
    stock = fitter.before.peak_bytes
    found, plan = fitter.fit_peak(stock)
    points = [fitter.chooser.point(options) for options in every(fitter)]
    quickest_s = min(point.added_s for point in points if point.peak_bytes <= stock)
    assert found.added_s == pytest.approx(quickest_s, abs=0.002 * fitter.step_s)
    assert plan.peak_bytes <= stock


@pytest.mark.long
def test_recomputing_the_activations_of_llama_is_faster_and_smaller_than_saving_them() -> None:
    """The stock plan saves SiLU's result. The backward reads SiLU's input in any case, and can recompute the result."""
    bench = workbench.open("llama", device="planned", executor="nvfuser", layers=2)
    curve = bench.curve(points=4).wait()
    last = curve.points[-1]
    assert last.peak_bytes < bench.stock_plan.peak_bytes
    made = bench.fit(bench.stock_plan.peak_bytes)
    assert {id.rpartition("/")[2] for id in made.choices} == {"silu"}
    assert made.added_s < -0.02 * made.step_s
    assert last.step_s == pytest.approx(made.step_s + made.added_s)
    assert bench.plan.proof.proven


@pytest.fixture(scope="module")
def large() -> Fitter:
    """Return the fitter of a Llama with four layers as wide as in a 7B model, on a planned GPU that hides transfers."""
    shapes = {"dim": 4096, "heads": 32, "hidden": 11008, "vocab": 32000, "sequence": 4096, "dtype": "bfloat16"}
    bench = workbench.open("llama", device="planned", executor="nvfuser", layers=4, **shapes)
    return Fitter(bench, bench._captured, bench.machine)


def test_a_guide_counts_storages_that_must_be_recomputed_for_other_storages(large: Fitter) -> None:
    chooser = large.chooser
    nearer = chooser.guides[1]
    # Recomputing a norm needs the residual stream. Recomputing the residual stream needs all layers before the norm.
    norms = {s: o for s, o in nearer.choices if o == "recompute" and "norm/mul" in large._site_of[s].id}
    planned = chooser.guides.exact(nearer, nearer.point(norms))
    assert planned.options.keys() - norms.keys() <= chooser._problem.remade
    assert nearer.added_s(norms) == pytest.approx(planned.added_s, rel=0.5)
    assert nearer.added_s(norms) > 1e-4 * large.step_s


def test_the_first_guide_predicts_the_bytes_that_its_plan_frees_at_each_statement(large: Fitter) -> None:
    chooser, guide = large.chooser, large.chooser.guides[0]
    assert guide.stands_for is not None
    inner = [(s, o) for s, o in guide.choices if guide._problem.bytes[s] >= 1 << 27]
    assert {o for _, o in inner} == {"recompute", "offload"}
    # A plan with fusions saves the product of SiLU and the gate. A plan without fusions does not save this product.
    assert any(s not in large._free for s, _ in inner)
    backward = slice(chooser._problem.positions.first_backward, None)
    for storage, option in inner:
        planned = chooser.evaluations.evaluate(
            chooser._problem.time.add_values_read(guide.stands_for({storage: option}), chooser._problem.remade)
        )[1]
        said = (guide.evaluations.stock_peaks - guide.evaluations.evaluate({storage: option})[1])[backward]
        freed = (chooser.evaluations.stock_peaks - planned)[backward]
        # In the plan, a fusion recomputes a value or reads it back. The guide assumes single statements, whose
        # positions may differ from the fusion's. The freed bytes may therefore differ at a few statements.
        assert np.mean(np.abs(said - freed) > guide._problem.bytes[storage] // 4) < 0.05


@pytest.mark.parametrize(("share", "added_s"), [(0.86, 1e-6), (0.82, 1e-6), (0.8, 2e-4)])
def test_a_cheap_plan_of_a_large_model_is_found_after_few_plans(large: Fitter, share: float, added_s: float) -> None:
    limit = int(share * large.before.peak_bytes)
    fresh = Fitter(large._bench, large._captured, large.machine)
    found, plan = fresh.fit_peak(limit)
    # A saved slice keeps its whole projection alive, so a single choice frees 0.1 GB. The peak can therefore be up to
    # 0.1 GB below the limit of about 7 GB.
    assert 0.975 * limit <= plan.peak_bytes <= limit
    assert found.added_s <= added_s
    assert len(fresh.chooser.evaluations) <= 20
    later = large.fit_peak(limit)[0]
    assert later.added_s == pytest.approx(found.added_s, abs=1e-3 * large.step_s)


def test_storages_that_fit_below_the_limit_are_saved_again_with_few_plans(large: Fitter) -> None:
    chooser = large.chooser
    all_away = chooser.point({s: o for s, o in chooser.choices if o == "offload"})
    limit, known = (all_away.peak_bytes + large.before.peak_bytes) // 2, len(chooser.evaluations)
    found = chooser._improvement.save_what_fits(all_away, limit)
    assert all_away.peak_bytes < found.peak_bytes <= limit
    assert found.transfer_s < 0.1 * all_away.transfer_s
    assert len(chooser.evaluations) - known <= 4


def test_a_corrected_guide_adds_the_same_bytes_under_every_choice(large: Fitter) -> None:
    nearer = large.chooser.guides[1]
    corrected = nearer.with_correction(large.chooser.evaluations.stock_peaks - nearer.evaluations.stock_peaks)
    assert corrected.stock.peak_bytes == large.before.peak_bytes
    options = dict(nearer.choices[:1])
    more = corrected.evaluations.evaluate(options)[1] - nearer.evaluations.evaluate(options)[1]
    assert np.array_equal(more, large.chooser.evaluations.stock_peaks - nearer.evaluations.stock_peaks)
    assert corrected.bound(large.before.peak_bytes).added_s <= 0


@pytest.mark.long
def test_the_least_peak_is_at_most_the_least_peak_of_each_guide() -> None:
    """The fit must not end at the least peak that guides predict, because plans may have lower peaks.

    An earlier version reported a least peak of 3.48 MB for GPT-2, although it had made a plan with 2.77 MB.
    """
    model, args = built("gpt2")
    bench = workbench.open(model, *args, device="cpu", executor="torchcompile_aten")
    fitter = Fitter(bench, bench._captured, SLOW, using=("recompute",))
    least_bytes = fitter.lowest_peak()[1].peak_bytes
    chooser = fitter.chooser
    of_guides = [chooser.guides.exact(guide, guide.least()).peak_bytes for guide in chooser.guides]
    assert len(of_guides) > 1
    assert least_bytes <= min(of_guides) < bench.plan.peak_bytes
