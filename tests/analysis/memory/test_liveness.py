"""The predicted memory of small graphs equals the count by hand."""

from __future__ import annotations

import dataclasses

from tests.analysis.small_graphs import graph
from workbench.analysis.memory.liveness import Predictor, StatementSchedule, alive_at, timeline
from workbench.core.graph import Graph, Origin, StepBoundary, ValueFlag

ARGUMENT, OUTPUT, GRADIENT = ValueFlag.ARGUMENT, ValueFlag.OUTPUT, ValueFlag.GRADIENT
COTANGENT, SAVED = ValueFlag.COTANGENT, ValueFlag.SAVED


def live(found: Graph) -> list[int]:
    return timeline(found).live_bytes.tolist()


def inside(found: Graph) -> list[int]:
    return timeline(found).statement_peak_bytes.tolist()


def test_inputs_and_outputs_of_a_statement_are_alive_at_once() -> None:
    chain = graph([("a", "x", "t", ""), ("b", "t", "y", "t")], flags={"x": ARGUMENT, "y": OUTPUT}, sizes={"t": 10})
    assert live(chain) == [11, 2]
    assert inside(chain) == [11, 12]
    found = timeline(chain)
    assert (found.peak_bytes, found.peak_statement, found.baseline_bytes) == (12, 1, 1)


def test_transient_memory_counts_only_inside_its_statement() -> None:
    chain = graph([("a", "x", "y", "")], flags={"x": ARGUMENT, "y": OUTPUT}, transient={"a": 100})
    assert live(chain) == [2]
    assert inside(chain) == [102]


def test_a_view_keeps_its_storage_alive_and_takes_no_bytes() -> None:
    viewed = graph(
        [("a", "x", "t", ""), ("view", "t", "v", "t"), ("b", "v", "y", "v")],
        flags={"x": ARGUMENT, "y": OUTPUT},
        views={"v": "t"},
        sizes={"t": 10},
    )
    assert live(viewed) == [11, 11, 2]


def test_an_unread_output_is_alive_only_inside_its_statement() -> None:
    unused = graph([("a", "x", "y u", "u")], flags={"x": ARGUMENT, "y": OUTPUT}, sizes={"u": 10})
    assert live(unused) == [2]
    assert inside(unused) == [12]


def test_the_caller_holds_arguments_outputs_and_gradients() -> None:
    step = graph(
        [("a", "x", "y", ""), ("b", "y g", "d", "y g x")],
        backward=1,
        flags={"x": ARGUMENT, "y": OUTPUT | SAVED, "g": COTANGENT, "d": GRADIENT},
        sizes={"x": 1, "y": 10, "g": 100, "d": 1000},
    )
    assert live(step) == [11, 1011]
    assert inside(step) == [11, 1111]


def test_arguments_that_share_a_storage_count_once() -> None:
    tied = graph(
        [("a", "x w", "y", "")], flags={"x": ARGUMENT, "w": ARGUMENT, "y": OUTPUT}, views={"w": "x"}, sizes={"x": 8}
    )
    assert timeline(tied).baseline_bytes == 8


def test_members_of_a_fusion_have_the_live_bytes_of_the_fusion() -> None:
    fused = graph(
        [("fusion", "x", "y", ""), ("member", "x", "t", ""), ("member", "t", "y", "")],
        flags={"x": ARGUMENT, "y": OUTPUT},
        parents={1: 0, 2: 0},
        sizes={"t": 1000},
    )
    assert live(fused) == [2, 2, 2]
    assert timeline(fused).peak_bytes == 2


def test_the_peak_without_statements_is_the_baseline() -> None:
    found = timeline(graph([], flags={"x": ARGUMENT}, sizes={"x": 7}))
    assert (found.peak_bytes, found.peak_statement, found.baseline_bytes) == (7, -1, 7)


def test_live_values_add_up_to_the_peak_and_name_their_source() -> None:
    step = graph(
        [("a", "x", "t", ""), ("view", "t", "v", "t"), ("b", "v x", "y", "v")],
        flags={"x": ARGUMENT, "y": OUTPUT},
        views={"v": "t"},
        sizes={"t": 10},
        transient={"b": 5},
        origins=(
            Origin("a", "", "a", "model.py", 3, "t = a(x)"),
            Origin("v", "", "view", "model.py", 4, "v = view(t)"),
        ),
    )
    alive = alive_at(step, 2)
    assert [(value.name, value.bytes, value.source) for value in alive] == [
        ("v", 10, "model.py:4"),
        ("x", 1, ""),
        ("y", 1, ""),
    ]
    assert sum(value.bytes for value in alive) + 5 == timeline(step).statement_peak_bytes[2]


# The joint graph of a forward with three elementwise statements, x → t → u → y. The backward reads x, t and u.
JOINT = graph(
    [
        ("f", "x", "t", ""),
        ("g", "t", "u", ""),
        ("h", "u", "y", ""),
        ("get_grad", "y", "dy", ""),
        ("dh", "dy u", "du", ""),
        ("dg", "du t", "dt", ""),
        ("df", "dt x", "dx", ""),
    ],
    backward=3,
    flags={"x": ARGUMENT, "y": OUTPUT, "dy": COTANGENT, "dx": GRADIENT},
    sizes={"x": 1, "t": 10, "u": 100, "y": 1000, "dy": 1000, "du": 100, "dt": 10, "dx": 1},
)


def names(found: list[int]) -> list[str]:
    return [JOINT.values.name[value] for value in found]


def test_a_joint_graph_is_split_and_freed_as_thunder_does() -> None:
    found = Predictor(JOINT).predict()
    assert (found.first_backward, found.entries.tolist()) == (3, [0, 1, 2, 4, 5, 6])
    assert names(found.saved.tolist()) == ["u", "t", "x"]
    assert (found.saved_tensors, found.saved_bytes, found.baseline_bytes) == (3, 110, 1)
    assert found.timeline.live_bytes.tolist() == [11, 111, 1111, 1111, 1011, 1002]
    assert found.peak_bytes == 1 + 10 + 100 + 1000 + 1000 + 100
    assert found.flops == 6


def test_if_a_statement_is_cloned_into_the_backward_its_result_is_not_saved() -> None:
    again = StatementSchedule.of(range(len(JOINT.statements)), {4: [1]})
    found = Predictor(JOINT).predict(again)
    assert [int(again.order[entry]) for entry in found.entries] == [0, 1, 2, 1, 4, 5, 6]
    # The backward recomputes u from t, and t is still saved.
    assert names(found.saved.tolist()) == ["t", "x"]
    assert found.saved_bytes == 10
    assert found.timeline.live_bytes.tolist() == [11, 111, 1011, 2111, 1111, 1011, 1002]
    assert found.flops == 7


def test_if_the_inputs_of_a_clone_are_cloned_too_only_arguments_are_saved() -> None:
    found = Predictor(JOINT).predict(StatementSchedule.of(range(len(JOINT.statements)), {4: [0, 1]}))
    assert names(found.saved.tolist()) == ["x"]
    assert found.saved_bytes == 0


def test_a_clone_that_no_gradient_needs_does_not_run() -> None:
    again = StatementSchedule.of(range(len(JOINT.statements)), {6: [1]})
    found = Predictor(JOINT).predict(again)
    assert not again.clone[found.entries].any()
    assert found.flops == 6


def test_a_clone_of_a_view_shares_the_storage_of_its_base() -> None:
    viewed = graph(
        [
            ("f", "x", "t", ""),
            ("view", "t", "v", ""),
            ("h", "v", "y", ""),
            ("get_grad", "y", "dy", ""),
            ("dh", "dy v", "dv", ""),
            ("df", "dv x", "dx", ""),
        ],
        backward=3,
        flags={"x": ARGUMENT, "y": OUTPUT, "dy": COTANGENT, "dx": GRADIENT},
        views={"v": "t"},
        sizes={"t": 100},
    )
    predictor = Predictor(viewed)
    rows = range(len(viewed.statements))
    assert predictor.predict().saved_bytes == 100
    only_the_view = predictor.predict(StatementSchedule.of(rows, {4: [1]}))
    assert (only_the_view.saved_bytes, only_the_view.peak_bytes) == (100, predictor.predict().peak_bytes)
    both = predictor.predict(StatementSchedule.of(rows, {4: [0, 1]}))
    assert both.saved_bytes == 0
    assert int(both.timeline.live_bytes.max()) == 1 + 100 + 1 + 1


def test_a_statement_that_only_the_backward_reads_runs_in_the_backward() -> None:
    late = graph(
        [("f", "x", "y", ""), ("mask", "x", "m", ""), ("get_grad", "y", "dy", ""), ("df", "dy m", "dx", "")],
        backward=2,
        flags={"x": ARGUMENT, "y": OUTPUT, "dy": COTANGENT, "dx": GRADIENT},
    )
    found = Predictor(late).predict()
    assert (found.first_backward, found.entries.tolist()) == (1, [0, 1, 3])
    assert found.saved_bytes == 0


def test_a_write_into_an_argument_runs_even_if_no_statement_reads_the_result() -> None:
    updated = graph(
        [("f", "x", "y", ""), ("copy_", "y x", "c", "")],
        flags={"x": ARGUMENT, "y": OUTPUT},
        views={"c": "x"},
        inplace=("copy_",),
    )
    found = Predictor(updated).predict()
    assert (found.first_backward, found.entries.tolist()) == (2, [0, 1])


def test_gradients_are_copied_one_by_one_after_the_last_statement() -> None:
    made = graph(
        [("a", "x", "g h", ""), ("view", "h", "v", "")],
        flags={"x": ARGUMENT, "g": GRADIENT, "v": GRADIENT},
        views={"v": "h"},
        sizes={"g": 10, "h": 4},
    )
    index = made.value_index
    ends = StepBoundary(
        gradients=(index["g"], index["v"], index["v"]),
        accumulated=(index["g"], index["v"], index["v"]),
        copied_bytes=(10, 20, 0),
        copying_bytes=(13, 20, 0),
    )
    found = timeline(dataclasses.replace(made, ends=ends))
    # 15 bytes are alive after the last statement. Autograd copies the first gradient, which takes 13 bytes for a
    # moment, and then frees the original. Next, it copies the second gradient and keeps the original, which is also
    # returned.
    assert found.after_bytes == 15 + max(13, 10 - 10 + 20)
    assert (found.peak_bytes, found.peak_statement) == (found.after_bytes, 2)
    assert {value.name for value in alive_at(made, 2)} == {"x", "g", "v"}
