"""Predicted step times: a measured statement takes its measured time; a fitted roofline gives the other times."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.analysis.small_graphs import graph
from workbench.analysis.cost.collective_overlap import costs
from workbench.analysis.cost.machines import H100
from workbench.analysis.cost.roofline import Calibration, Rates, calibrate, predict_step, signature
from workbench.core.graph import Graph, Kind, StatementFlag

LINES = [("matmul", "a b", "c", ""), ("tanh", "c", "d", "c"), ("tanh", "d", "e", "d")]


def with_flops(made: Graph, *flops: int) -> Graph:
    statements = dataclasses.replace(made.statements, flops=np.asarray(flops, np.int64))
    return dataclasses.replace(made, statements=statements)


def test_a_measured_plan_is_predicted_as_measured() -> None:
    made = with_flops(graph(LINES), 100, 0, 0)
    learned = calibrate(made, made.statements.name, [4.0, 1.0, 2.0], 10.0)
    found = predict_step(made, learned)
    assert learned.other_s == 3.0
    assert found.step_s == pytest.approx(10.0)
    # The two tanh statements are equal, so the prediction for each is the mean of the two measured times.
    assert found.seconds.tolist() == [4.0, 1.5, 1.5]
    assert found.measured_share == 1.0


def test_a_repeated_statement_adds_its_cost_a_second_time() -> None:
    learned = calibrate(with_flops(graph(LINES), 100, 0, 0), ["matmul", "tanh", "tanh"], [4.0, 1.0, 2.0], 10.0)
    again = with_flops(graph([*LINES, ("tanh", "c", "f", "")]), 100, 0, 0, 0)
    assert predict_step(again, learned).step_s == pytest.approx(11.5)


def test_the_fitted_roofline_predicts_unmeasured_statements() -> None:
    learned = Calibration({}, Rates(flops_per_s=100.0, bytes_per_s=10.0, launch_s=0.5), other_s=1.0)
    found = predict_step(with_flops(graph(LINES[:1], sizes={"a": 5, "b": 5, "c": 10}), 50), learned)
    assert found.step_s == pytest.approx(1.0 + 0.5 + 20 / 10)
    assert found.measured_share == pytest.approx(1.0 / found.step_s)


def test_fitted_rates_are_those_that_statements_reached() -> None:
    made = with_flops(graph(LINES, sizes={"d": 60, "e": 40}), 100, 0, 0)
    rates = calibrate(made, made.statements.name, [2.0, 1.0, 1.0], 4.0).rates
    assert rates.launch_s == 1.0
    assert rates.flops_per_s == pytest.approx(100.0)


@pytest.mark.parametrize("flops_per_s", [8e9, 5e10, 1e12])
@pytest.mark.parametrize("products", [1, 40])
def test_rates_of_a_step_with_known_rates_are_found(flops_per_s: float, products: int) -> None:
    """Statements whose bytes take longer than their operations do not lower the fitted rate of operations.

    In this step, such statements are elementwise statements, fusions of them, and products of narrow matrices.
    """
    true, size = Rates(flops_per_s=flops_per_s, bytes_per_s=1e9, launch_s=1e-5), 1_000_000
    # Each kind of statement has a name, a number of statements, and a number of operations per byte.
    kinds = (
        *(("view", 50, 0.0), ("embedding", 10, 0.0), ("add", 120, 1 / 12), ("fusion", 60, 3.0), ("narrow", 20, 6.0)),
        ("matmul", products, 4e3),
    )
    lines, flops, seconds, sizes = [], [], [], {}
    for name, count, per_byte in kinds:
        for number in range(count):
            read, made = f"{name}_{number}_a", f"{name}_{number}_b"
            sizes |= {read: size, made: size // 2 + number}
            nbytes = 0 if name == "view" else sizes[read] + sizes[made]
            lines.append((name, read, made, ""))
            flops.append(int(per_byte * nbytes))
            seconds.append(true.seconds(flops[-1], nbytes))
    made_graph = with_flops(graph(lines, sizes=sizes), *flops)
    flags = np.asarray([StatementFlag.VIEW if line[0] == "view" else 0 for line in lines], np.int32)
    made_graph = dataclasses.replace(made_graph, statements=dataclasses.replace(made_graph.statements, flags=flags))
    found = calibrate(made_graph, made_graph.statements.name, seconds, sum(seconds))
    assert dataclasses.astuple(found.rates) == pytest.approx(dataclasses.astuple(true), rel=1e-3)
    # A plan in which no statement was measured takes as long as the measured plan.
    unmeasured = dataclasses.replace(found, seconds={})
    assert predict_step(made_graph, unmeasured).step_s == pytest.approx(sum(seconds), rel=1e-3)


def test_a_step_without_products_has_no_rate_of_operations() -> None:
    made = with_flops(graph(LINES, sizes=dict.fromkeys("abcde", 1000)), 250, 250, 250)
    rates = calibrate(made, made.statements.name, [3.0, 2.0, 2.0], 7.0).rates
    assert rates.flops_per_s == np.inf
    assert np.isfinite(rates.bytes_per_s)


def test_fusions_that_differ_only_in_names_have_one_signature() -> None:
    made = graph(
        [("Fusion0", "a", "b", ""), ("tanh", "a", "b", ""), ("Fusion1", "b", "c", ""), ("tanh", "b", "c", "")],
        parents={1: 0, 3: 2},
    )
    assert signature(made, 0) == signature(made, 2)
    shapes = (*made.values.shape[:2], (3,))
    other = dataclasses.replace(made, values=dataclasses.replace(made.values, shape=shapes))
    assert signature(other, 0) == signature(made, 0)
    assert signature(other, 2) != signature(made, 2)


def test_times_of_another_program_are_refused() -> None:
    with pytest.raises(ValueError, match="not the graph's"):
        calibrate(graph(LINES), ["matmul"], [1.0], 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["torch", "nvfuser"])
def test_costs_of_statements_follow_the_definition_of_the_roofline(executor: str) -> None:
    import workbench

    bench = workbench.open("llama", device="planned", executor=executor, layers=2)
    for made in (bench.plan.graph, bench._captured.context.graph):
        together = costs(made, H100, 1).compute_s
        assert together.any()
        assert together.tolist() == [_alone_s(made, row) for row in range(len(together))]


def _alone_s(made: Graph, row: int) -> float:
    """Return the seconds of one statement, computed from its bytes and FLOPs by the definition of the roofline."""
    statements, values = made.statements, made.values
    kinds = (Kind.COLLECTIVE, Kind.WAIT, Kind.GET_GRAD, Kind.RETURN, Kind.FENCE, Kind.ARGUMENT)
    if statements.parent[row] >= 0 or statements.flags[row] & StatementFlag.VIEW or statements.kind[row] in kinds:
        return 0.0
    read, outputs = set(statements.inputs[row].tolist()), statements.outputs[row].tolist()
    lives = {int(values.storage[value]) for value in read} - {-1}
    views = statements.kind[row] == Kind.FUSION and not statements.flags[row] & StatementFlag.INPLACE
    touched = read | {value for value in outputs if not (views and values.storage[value] in lives)}
    moved = 0
    for value in touched:
        storage = values.storage[value]
        moved += int(min(values.bytes[value], made.storages.bytes[storage] if storage >= 0 else values.bytes[value]))
    dtype = next((values.dtype[value] for value in outputs if values.dtype[value]), "")
    rate = H100.flops_per_s.get(dtype.rpartition(".")[2], min(H100.flops_per_s.values()))
    return max(int(statements.flops[row]) / rate, moved / H100.bytes_per_s)
