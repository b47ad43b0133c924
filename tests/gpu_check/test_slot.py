"""A slot is a part of the GPU check for a limited time on a GPU. It runs the unanswered steps, most valuable first.

A step begins only if its time limit ends within the slot. The result says how the time was spent.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.schemas import held
from tests.gpu_check import trials
from workbench import cli
from workbench.errors import RunError
from workbench.gpu_check import page, suite
from workbench.gpu_check.parts import questions, time_spent
from workbench.gpu_check.parts.check_part import Conditions
from workbench.gpu_check.parts.part_list import QUESTIONS, SLOT
from workbench.runs.log.events import Compiled, Finished, Phase, Started

ON_A_GPU = Conditions(device="cuda", executor="nvfuser", rehearse=False, folder=Path(), machine="H100")


def slot(folder: Path, plan: list[tuple[Any, ...]], seconds: float, **more: Any) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / trials.PLAN).write_text(json.dumps(plan))
    part = trials.part(in_slot=True, step_limit_s=90.0)
    return suite.run_check(folder, minutes=seconds / 60, rehearse=True, parts=[part], **more)


def began(folder: Path) -> list[str]:
    path = folder / trials.BEGAN
    return path.read_text().split() if path.exists() else []


def test_the_queue_has_all_questions_in_order_with_at_most_90_seconds_each() -> None:
    steps = list(questions.steps(ON_A_GPU))
    ids = [step.id for step in steps]
    assert len(set(ids)) == len(ids)
    numbers = [int(id.partition(": ")[0]) for id in ids]
    assert numbers == sorted(numbers)
    assert list(dict.fromkeys(numbers)) == list(QUESTIONS)
    assert SLOT.step_limit_s == 90
    assert all(step.limit_s is None or step.limit_s <= 90 for step in steps)
    rehearsed = [step.id for step in questions.steps(dataclasses.replace(ON_A_GPU, rehearse=True, device="cpu"))]
    assert [int(id.partition(": ")[0]) for id in rehearsed] == list(QUESTIONS)


@pytest.mark.parametrize("machine", questions.CARD_BYTES)
def test_questions_about_predictions_name_subjects_that_are_written_down(machine: str) -> None:
    assert set(questions.written(1, machine)) == set(questions.SUBJECTS)
    steps = {step.id for step in questions.steps(dataclasses.replace(ON_A_GPU, machine=machine))}
    assert all(f"3: {subject}" in steps for subject in questions.written(3, machine))
    assert sum(id.startswith("2: ") for id in steps) == 4
    assert sum("activation_memory_budget" in id for id in steps) == len(questions.BUDGETS)


@pytest.mark.parametrize("machine", questions.CARD_BYTES)
def test_choices_are_written_down_for_exactly_the_predictions_that_need_choices(machine: str) -> None:
    assert set(questions.written_choices(3, machine)) == set(questions.written(3, machine))
    fitted = {subject for subject in questions.written(2, machine) if "fit to" in subject}
    assert set(questions.written_choices(2, machine)) == fitted
    assert len(fitted) == 1


def test_for_a_gpu_without_predictions_the_error_says_how_to_write_them() -> None:
    steps = list(questions.steps(dataclasses.replace(ON_A_GPU, machine="A100")))
    missing = [step for step in steps if step.id.endswith(": predictions")]
    assert [step.id for step in missing] == ["2: predictions", "3: predictions"]
    for step in missing:
        with pytest.raises(RunError, match=r"benchmarks\.gpu\.predictions --machine NAME [23]`.*legal: H100, H200"):
            step.act({})


def test_a_budget_of_pytorch_with_a_lower_peak_and_a_shorter_step_than_ours_is_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def figures(measured_peak_bytes: int, step_s: float) -> dict[str, float]:
        return {"measured_peak_bytes": measured_peak_bytes, "step_s": step_s}

    monkeypatch.setattr(questions.training, "run_with_budget", lambda *_: figures(80, 0.9))
    monkeypatch.setattr(questions, "_long", lambda *_: SimpleNamespace(program=SimpleNamespace(build=None)))
    step = next(step for step in questions.steps(ON_A_GPU) if "activation_memory_budget 0.9" in step.id)
    lowest = figures(70, 1.1)
    assert step.act({"3: point 0": lowest, "3: point 1": figures(90, 1.0)})["wrong"] == (
        "lower peak and shorter step than point 1"
    )
    # A difference within the noise is not a fault. Our points that another of our points beats do not count.
    assert "wrong" not in step.act({"3: point 0": lowest, "3: point 1": figures(90, 0.91)})
    assert "wrong" not in step.act(
        {"3: point 0": lowest, "3: point 1": figures(85, 0.8), "3: offload, point 0": figures(95, 2.0)}
    )


@pytest.mark.parametrize(
    ("name", "memory_gb", "machine"),
    [
        ("NVIDIA H100 80GB HBM3", 84.9, "H100"),
        ("NVIDIA H200", 150.1, "H200"),
        ("NVIDIA H100 NVL", 100.0, ""),
        ("NVIDIA GH200 480GB", 101.0, ""),
        ("NVIDIA A100-SXM4-80GB", 84.9, "A100"),
    ],
)
def test_a_machine_is_recognized_by_the_name_and_the_memory_of_its_gpu(
    name: str, memory_gb: float, machine: str
) -> None:
    assert suite.machine_of(name, int(memory_gb * 1e9)) == machine


def test_a_step_gets_the_results_of_its_own_question_only() -> None:
    known: dict[str, Any] = {"4: 8 layers, stock": {"compile_s": 1.0}, "14: b": {}, "5: a": {}}
    seen = questions._of_question(ON_A_GPU, "4: exponent", dict, known)
    assert seen == {"8 layers, stock": {"compile_s": 1.0}}


@pytest.mark.slow
def test_a_step_begins_only_if_its_limit_ends_within_the_slot(tmp_path: Path) -> None:
    found = slot(tmp_path, [("a", "0", False, 5.0), ("long", "0"), ("b", "0", False, 5.0)], 30.0)["parts"][trials.NAME]
    assert began(tmp_path) == ["a", "b"]
    assert (found["state"], found["left"]) == ("out of time", ["long"])
    # With more time, the same command runs the remaining step.
    found = slot(tmp_path, [("a", "0"), ("long", "0"), ("b", "0")], 200.0)["parts"][trials.NAME]
    assert began(tmp_path) == ["a", "b", "long"]
    assert (found["state"], found["left"]) == ("done", [])


@pytest.mark.slow
def test_a_step_ends_at_its_own_limit(tmp_path: Path) -> None:
    found = slot(tmp_path, [("a", "hang", False, 0.5), ("b", "0", False, 5.0)], 60.0)["parts"][trials.NAME]
    assert [line["error"] for line in found["steps"]] == ["it took more than 0.5 s", ""]


@pytest.mark.slow
def test_the_time_counts_from_the_start_of_the_command(tmp_path: Path) -> None:
    begun_s = time.monotonic() - 58.0
    found = slot(tmp_path, [("a", "0", False, 5.0)], 60.0, begun_s=begun_s)
    assert began(tmp_path) == []
    assert found["prepared_s"] >= 58.0


@pytest.mark.slow
def test_the_result_is_stored_after_each_step(tmp_path: Path) -> None:
    plan = [("a", "0", False, 5.0), ("b", "hang", False, 5.0)]
    (tmp_path / trials.PLAN).write_text(json.dumps(plan))
    code = (
        "import sys, pathlib; from tests.gpu_check import trials; from workbench.gpu_check import suite;"
        "suite.run_check(pathlib.Path(sys.argv[1]), minutes=1, rehearse=True, parts=[trials.part(in_slot=True)])"
    )
    check = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.DEVNULL)
    try:
        give_up_s = time.monotonic() + 60
        while "b" not in began(tmp_path) and time.monotonic() < give_up_s:
            time.sleep(0.02)
        stored: dict[str, Any] = {}
        while not stored and time.monotonic() < give_up_s:
            if (tmp_path / suite.RESULT_FILE).exists():
                found = json.loads((tmp_path / suite.RESULT_FILE).read_text())["parts"][trials.NAME]
                stored = found if found["steps"] else {}
            time.sleep(0.02)
    finally:
        check.kill()
        check.wait()
    assert ([line["step"] for line in stored["steps"]], stored["left"]) == (["a"], ["b"])


def committed(results: Path, steps: list[dict[str, Any]], **note: Any) -> None:
    folder = results / "a-gpu"
    folder.mkdir(parents=True, exist_ok=True)
    told = {"machine": "A GPU", "rehearsal": False, "parts": {SLOT.name: {"steps": steps}}, **note}
    (folder / f"slot-{len(list(folder.iterdir()))}.json").write_text(json.dumps(told))


def test_committed_answers_are_those_of_slots_on_the_same_machine(tmp_path: Path) -> None:
    right = {"step": "1: mlp", "error": "", "figures": {"peak_bytes": 1}}
    wrong = {"step": "1: llama", "error": "", "figures": {"wrong": "off"}}
    committed(tmp_path, [right])
    committed(tmp_path, [wrong])
    committed(tmp_path, [{**right, "step": "1: elsewhere"}], machine="Another GPU")
    committed(tmp_path, [{**right, "step": "1: rehearsed"}], rehearsal=True)
    committed(tmp_path, [], parts={"main": {"steps": [{**right, "step": "1: of a part"}]}})
    assert suite.committed_answers(tmp_path, "A GPU") == {"1: mlp": {"peak_bytes": 1}, "1: llama": {"wrong": "off"}}
    assert set(suite.committed_answers(tmp_path, "A GPU", retry=True)) == {"1: mlp"}


@pytest.mark.slow
def test_answered_steps_are_skipped_but_their_figures_are_known(tmp_path: Path) -> None:
    plan = [("a", "0", False, 5.0), ("b", "0", False, 5.0)]
    found = slot(tmp_path, plan, 60.0, answers={"a": {"peak_bytes": 1}})["parts"][trials.NAME]
    assert began(tmp_path) == ["b"]
    assert found["left"] == []
    assert found["steps"][0]["figures"]["known"] == 1


@pytest.mark.slow
def test_the_result_says_where_the_time_went(tmp_path: Path) -> None:
    begun_s = time.monotonic()
    result = slot(tmp_path, [("a", "0.5", False, 5.0), ("b", "0.5", False, 5.0)], 60.0)
    lasted_s = time.monotonic() - begun_s
    a, b = (line["spent"] for line in result["parts"][trials.NAME]["steps"])
    assert set(a) == set(time_spent.KINDS)
    # The time to start the process and to import modules counts only for the first step of the process.
    assert a["start"] > 0
    assert a["imports"] > 0
    assert (b["start"], b["imports"]) == (0, 0)
    assert b["other"] == pytest.approx(0.5, abs=0.2)
    assert 0.5 * lasted_s < sum(result["spent"].values()) + result["prepared_s"] <= lasted_s + 0.5
    text = page.spent_text(result)
    assert all(kind in text for kind in time_spent.KINDS)


def test_the_time_of_a_run_is_split_by_its_phases() -> None:
    compiled = Compiled(t_s=6.0, compile_s=2.5, attributed=1.0, stages=[])
    run: Any = SimpleNamespace(
        request=SimpleNamespace(created_s=100.0),
        events=[
            Started(t_s=0.5, pid=1, time_s=101.0),
            Phase(t_s=2.5, phase="build"),
            Phase(t_s=3.5, phase="compile"),
            compiled,
            Phase(t_s=6.5, phase="warmup"),
            Phase(t_s=7.0, phase="time"),
            Finished(t_s=9.0),
        ],
    )
    time_spent.take(0.0)
    time_spent.add_run(run)
    expected = {"start": 1.5, "imports": 2.0, "opening": 1.0, "compiling": 3.0, "measuring": 2.5, "other": 2.0}
    assert time_spent.take(12.0) == expected
    assert time_spent.total(iter([expected, expected]))["imports"] == 4.0


def test_allocator_events_are_kept_as_small_data() -> None:
    trace = [
        {"action": "alloc", "addr": 1, "size": 512, "stream": 0, "frames": []},
        {"action": "segment_alloc", "addr": 1, "size": 2 << 20, "stream": 7, "frames": []},
    ]
    assert questions.allocator_events({"device_traces": [trace, []]}) == [
        ("alloc", 512, 0),
        ("segment_alloc", 2 << 20, 7),
    ]


@pytest.mark.parametrize("more", [["--minutes", "3"], ["--only", "main"]])
def test_a_slot_refuses_options_of_other_checks(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["gpu-check", "--rehearse", "--slot", "2", *more])
    assert stop.value.code == 2
    assert "--slot MINUTES is given without --minutes and --only" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_rehearsed_slot_asks_every_question_without_a_fault(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "workbench.cli", "gpu-check", "--rehearse", "--slot", "9"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out"), "--json"],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=os.environ,
    )  # fmt: skip
    result = json.loads(done.stdout)
    held("gpu-check", result)
    assert [line["step"] for line in result["parts"][SLOT.name]["steps"] if not suite.is_right(line)] == []
    assert (done.returncode, result["ok"]) == (0, True)
    assert [(answered, left) for _, answered, _, left in page.count_by_question(result)] == [(1, 0)] * len(QUESTIONS)
    assert all(result["spent"][kind] > 0 for kind in time_spent.KINDS)
    ids = [line["at"] for line in result["parts"][SLOT.name]["steps"]]
    assert all(one <= next for one, next in itertools.pairwise(ids))
    assert json.loads((tmp_path / "out" / questions.EVENTS_FOLDER / "mlp.json").read_text())
