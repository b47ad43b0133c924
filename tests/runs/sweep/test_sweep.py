"""A sweep runs its points one at a time in new processes, resumes after the last point, and fits exponents."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.runs.test_events import NO_FILES
from workbench.core.config import installed_versions
from workbench.errors import RunError
from workbench.runs.process import follow_run
from workbench.runs.sweep import sweep
from workbench.runs.sweep.sweep import Sweep, SweepOutcome, SweepProgress, SweepResult
from workbench.ui.html_pages import sweep_plot

LAYERS = Sweep(program="residual_chain", settings={"layers": ["1", "2"]})


def outcome(settings: dict[str, str], choices: dict[str, str], compile_s: float) -> SweepOutcome:
    return SweepOutcome(
        settings=settings,
        choices=choices,
        ok=True,
        error=None,
        seconds=1.0,
        figures={"compile_s": compile_s},
        stages=[],
        run_dir="",
    )


def test_points_are_all_combinations() -> None:
    wanted = Sweep(program="p", settings={"layers": ["1", "2"]}, choices={"remat.weight": ["0.5", "0.0"]})
    assert [(p["settings"]["layers"], p["choices"]["remat.weight"]) for p in wanted.points()] == [
        ("1", "0.5"),
        ("1", "0.0"),
        ("2", "0.5"),
        ("2", "0.0"),
    ]


def test_the_exponent_is_fitted_from_eight_layers_on() -> None:
    points = [
        outcome({"layers": str(n)}, {"remat.weight": w}, 5.0 if n < 8 else 0.01 * n**power)
        for n in (1, 2, 4, 8, 16, 32, 64)
        for w, power in (("0.5", 1.0), ("0.0", 2.5))
    ]
    wanted = Sweep(program="p", settings={"layers": []}, choices={"remat.weight": []})
    found = SweepResult(wanted, tuple(points)).exponents()
    assert found == {"remat.weight=0.5": pytest.approx(1.0), "remat.weight=0.0": pytest.approx(2.5)}


def test_a_sweep_is_a_table_and_a_plot(tmp_path: Path) -> None:
    points = tuple(outcome({"layers": str(n)}, {}, n / 10) for n in (8, 16))
    found = SweepResult(LAYERS, points)
    assert found.csv().splitlines()[:2] == [
        "layers,compile_s,step_s,measured_peak_bytes,fusions,fusions_unique,seconds,ok,error",
        "8,0.8,,,,,1.0,True,",
    ]
    page = sweep_plot.write_plot(found, tmp_path / "plot.html").read_text()
    assert "exponent 1.00" in page
    assert "<script src=" not in page


@pytest.mark.slow
def test_a_sweep_runs_a_cold_point_and_resumes(tmp_path: Path) -> None:
    told: list[SweepProgress] = []
    one = Sweep(program="residual_chain", settings={"layers": ["1"]})
    first = sweep.run(one, tmp_path, on_progress=told.append)
    assert first.points[0].ok, first.points[0].error
    assert first.points[0].figures["compile_s"] > 0
    assert [(p.done, p.count) for p in told] == [(0, 1), (1, 1)]
    with (tmp_path / sweep.POINTS_FILE).open("a") as file:
        file.write('{"settings": {"lay')  # an incomplete line, as after the sweep was killed
    again = sweep.run(one, tmp_path)
    assert again.points == first.points
    with pytest.raises(RunError, match="another sweep"):
        sweep.run(Sweep(program="mlp", settings={}), tmp_path)


@pytest.mark.slow
def test_a_point_that_fails_or_takes_too_long_does_not_end_the_sweep(tmp_path: Path) -> None:
    made = tmp_path / "program.py"
    made.write_text("import time\n\ndef make(fails: int):\n    time.sleep(600) if fails else 1 / 0\n")
    program = f"{made}:make"
    (broken,) = sweep.run(Sweep(program=program, settings={"fails": ["0"]}), tmp_path / "out").points
    assert "division by zero" in (broken.error or "")
    hangs = Sweep(program=program, settings={"fails": ["1", "2"]}, timeout_s=1)
    assert [point.error for point in sweep.run(hangs, tmp_path / "out").points] == ["timeout: not done after 1 s"] * 2


@pytest.mark.slow
@pytest.mark.long
def test_workers_run_points_and_their_runs_are_copied_back(tmp_path: Path) -> None:
    wanted = Sweep(program="residual_chain", settings={"layers": ["1"]}, choices={"order.statements": ["least peak"]})
    told: list[SweepProgress] = []
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        (point,) = sweep.run(wanted, tmp_path, executor=pool, on_progress=told.append).points
    assert point.ok, point.error
    assert Path(point.run_dir).is_relative_to(tmp_path)
    assert follow_run.follow(Path(point.run_dir)).wait().step_s == point.figures["step_s"]
    assert [progress.done for progress in told] == [0, 1]
    assert sweep.run(wanted, tmp_path).points == (point,)


class Losing(Executor):
    """An executor whose second task fails, as if its worker had died."""

    def __init__(self) -> None:
        self.given = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.given += 1
        future: Future[Any] = Future()
        if self.given == 2:
            future.set_exception(BrokenExecutor("a worker died"))
        else:
            point = args[1]
            future.set_result((outcome(point["settings"], point["choices"], 1.0), b""))
        return future


def test_a_worker_that_dies_loses_one_attempt_and_no_result(tmp_path: Path) -> None:
    three = Sweep(program="residual_chain", settings={"layers": ["1", "2", "3"]})
    points = sweep.run(three, tmp_path, executor=Losing()).points
    assert [(point.settings["layers"], point.ok) for point in points] == [("1", True), ("2", False), ("3", True)]
    assert points[1].error == "the worker was lost: BrokenExecutor: a worker died"
    again = Losing()
    assert [point.ok for point in sweep.run(three, tmp_path, executor=again).points] == [True] * 3
    assert again.given == 1


def test_if_the_note_of_a_sweep_is_damaged_only_a_folder_without_points_is_accepted(tmp_path: Path) -> None:
    none = Sweep(program="residual_chain", settings={"layers": []})
    for text in ('{"program": "resid', "[]", "[" * 100_000, '{"program": 1}'):
        (tmp_path / sweep.NOTE_FILE).write_text(text)
        assert sweep.run(none, tmp_path).points == ()
        (tmp_path / sweep.NOTE_FILE).write_text(text)
        (tmp_path / sweep.POINTS_FILE).touch()
        with pytest.raises(RunError, match=r"sweep.json is damaged.*give another folder, or delete points.jsonl"):
            sweep.run(none, tmp_path)
        (tmp_path / sweep.POINTS_FILE).unlink()


def test_points_of_an_older_program_or_package_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, out = tmp_path / "net.py", tmp_path / "out"
    program.write_text("def factory(n: int = 1):\n    return abs, (n,)\n")
    mine = Sweep(program=f"{program}:factory", settings={"n": []})
    assert sweep.run(mine, out).points == ()
    (out / sweep.POINTS_FILE).touch()
    assert sweep.run(mine, out).points == ()
    remedy = r"give another folder, or delete points\.jsonl to run all points again"
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "installed_versions", lambda: {**installed_versions(), "torch": "1.0"})
        with pytest.raises(RunError, match=rf"torch was \S+ and is 1\.0: {remedy}"):
            sweep.run(mine, out)
    program.write_text(program.read_text().replace("abs", "max"))
    with pytest.raises(RunError, match=rf"the program's file has changed: {remedy}"):
        sweep.run(mine, out)
    (out / sweep.POINTS_FILE).unlink()
    assert sweep.run(mine, out).points == ()
    note = {"program": mine.program, "device": mine.device, "executor": mine.executor}
    (out / sweep.NOTE_FILE).write_text(json.dumps(note))
    (out / sweep.POINTS_FILE).touch()
    with pytest.raises(RunError, match=f"packages of the points are unknown: {remedy}"):
        sweep.run(mine, out)


def test_damaged_points_are_skipped_and_others_are_read(tmp_path: Path) -> None:
    good = outcome({"layers": "1"}, {}, 0.5)
    sweep._append(tmp_path, good)
    with (tmp_path / sweep.POINTS_FILE).open("ab") as file:
        file.write(b'\xff\n[]\n{"settings": 1}\n' + b"[" * 100_000 + b'\n{"settings": {"lay')
    sweep._append(tmp_path, good)
    assert sweep._read_outcomes(tmp_path) == [good, good]


@pytest.mark.parametrize("name", [sweep.NOTE_FILE, sweep.POINTS_FILE])
@pytest.mark.parametrize("make", NO_FILES)
def test_a_sweep_file_that_is_not_a_file_gives_one_clear_error(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / name)
    with pytest.raises(RunError, match="cannot be"):
        sweep.run(Sweep(program="residual_chain", settings={"layers": []}), tmp_path)
