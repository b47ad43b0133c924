"""The GPU check records each step once, even if the check's processes die. It reports failed steps."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_check import trials
from workbench.errors import RunError
from workbench.gpu_check import page, suite
from workbench.gpu_check.log import Log, claim_folder
from workbench.gpu_check.parts import marked_tests
from workbench.gpu_check.parts.check_part import CheckPart, Conditions
from workbench.gpu_check.parts.part_list import PARTS

pytestmark = pytest.mark.slow

CARRY_OUT = """
import json, sys
from pathlib import Path
from tests.gpu_check import trials
from workbench.gpu_check import suite
suite.run_check(Path(sys.argv[1]), rehearse=True, parts=[trials.part()])
"""


def told(folder: Path, plan: Sequence[tuple[str, str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / trials.PLAN).write_text(json.dumps(plan))


def checked(folder: Path, *, minutes: float = 1.0, retry: bool = False, **limits: float) -> dict[str, Any]:
    result = suite.run_check(folder, minutes=minutes, rehearse=True, retry=retry, parts=[trials.part(**limits)])
    found: dict[str, Any] = result["parts"][trials.NAME]
    return found


def began(folder: Path) -> list[str]:
    return (folder / trials.BEGAN).read_text().split()


def test_a_step_that_kills_its_process_is_reported_and_other_steps_run(tmp_path: Path) -> None:
    plan = [
        ("a", "0"),
        ("b", "crash"),
        ("c", "raise"),
        ("d", "exit"),
        ("e", "lose the device"),
        ("f", "0"),
        ("g", "wrong"),
    ]
    told(tmp_path, plan)
    found = checked(tmp_path)
    lines = {line["step"]: line for line in found["steps"]}
    assert found["state"] == "done"
    assert list(lines) == began(tmp_path) == ["a", "b", "c", "d", "e", "f", "g"]
    assert lines["b"]["error"] == "was killed by SIGSEGV"
    assert lines["c"]["error"] == "ValueError: as told"
    assert lines["d"]["error"] == "ended by itself with exit status 3 in this step"
    assert "illegal memory access" in lines["e"]["error"]
    # After a step lost the device, a new process runs the next steps. It has the figures of earlier steps.
    assert lines["f"]["figures"]["known"] == 5
    assert lines["a"]["figures"]["pid"] != lines["f"]["figures"]["pid"]
    assert lines["a"]["figures"]["not a number"] is None
    assert lines["g"]["figures"]["wrong"] == "not as it has to be"
    assert suite.count_wrong(found) == 5

    # Failed and wrong steps stay recorded, and run again only with `retry`.
    checked(tmp_path)
    assert len(began(tmp_path)) == 7
    told(tmp_path, [(name, "0") for name, _ in plan])
    again = checked(tmp_path, retry=True)
    assert began(tmp_path)[7:] == ["b", "c", "d", "e", "g"]
    assert suite.count_wrong(again) == 0
    assert sorted(line["step"] for line in again["steps"]) == ["a", "b", "c", "d", "e", "f", "g"]


def test_a_step_that_hangs_is_stopped_and_a_part_out_of_time_resumes_later(tmp_path: Path) -> None:
    told(tmp_path, [("a", "hang"), ("b", "0"), ("c", "hang")])
    found = checked(tmp_path, step_limit_s=0.5, limit_s=600.0)
    assert [line["error"] for line in found["steps"]] == ["it took more than 0.5 s", "", "it took more than 0.5 s"]

    later = tmp_path / "later"
    told(later, [("a", "0"), ("b", "hang")])
    short = checked(later, minutes=0.1)
    assert (short["state"], [line["step"] for line in short["steps"]]) == ("out of time", ["a"])
    told(later, [("a", "0"), ("b", "0")])
    assert checked(later)["state"] == "done"
    assert began(later) == ["a", "b", "b"]


def test_a_check_killed_at_random_moments_loses_no_step_and_repeats_no_recorded_step(tmp_path: Path) -> None:
    names = [f"s{i}" for i in range(12)]
    told(tmp_path, [(name, "0.15") for name in names])
    moments = random.Random(0)
    kept: list[str] = []
    for _ in range(6):
        since = len(began(tmp_path)) if kept else 0
        check = subprocess.Popen([sys.executable, "-c", CARRY_OUT, str(tmp_path)], stdin=subprocess.DEVNULL)
        give_up_s = time.monotonic() + 120
        # Wait until the check has recorded another step. Then kill it at a random moment.
        while len(Log(tmp_path, trials.NAME).lines()) <= len(kept) and check.poll() is None:
            assert time.monotonic() < give_up_s
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.4))
        check.send_signal(signal.SIGKILL)
        check.wait()
        wait_for_silence(tmp_path)
        lines = Log(tmp_path, trials.NAME).lines()
        assert [line["step"] for line in lines][: len(kept)] == kept
        assert not set(kept) & set(began(tmp_path)[since:])
        kept = [line["step"] for line in lines]
    found = checked(tmp_path)
    assert [line["step"] for line in found["steps"]] == names
    assert all(not line["error"] for line in found["steps"])


def wait_for_silence(folder: Path) -> None:
    """Wait until all processes of the killed check have ended. Child processes end when the check ends."""
    give_up_s = time.monotonic() + 120
    while alive := [pid for pid in os.listdir("/proc") if pid.isdigit() and str(folder) in command_of(pid)]:
        assert time.monotonic() < give_up_s, alive
        time.sleep(0.05)


def command_of(pid: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    return ""


def test_a_query_while_a_step_ends_reports_the_step_with_its_limit_or_no_step(tmp_path: Path) -> None:
    ended = threading.Event()

    def carry_out() -> None:
        log = Log(tmp_path, trials.NAME)
        while not ended.is_set():
            log.begin("a", 2.0)
            log.forget_begun()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=carry_out)
    thread.start()
    try:
        log = Log(tmp_path, trials.NAME)
        give_up_s = time.monotonic() + 60
        seen = {log.step_in_progress() for _ in range(5000)}
        while len(seen) < 2 and time.monotonic() < give_up_s:
            seen.add(log.step_in_progress())
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(before)
    assert seen == {("", float("inf")), ("a", 2.0)}


def parts_of(folder: Path, plans: dict[str, list[tuple[Any, ...]]]) -> list[CheckPart]:
    """Return a part for each of the plans, after writing its plan and its module into the folder."""
    for name, plan in plans.items():
        (folder / f"{name}.json").write_text(json.dumps(plan))
        acts = "import functools\nfrom tests.gpu_check import trials\n"
        (folder / f"{name}.py").write_text(f"{acts}steps = functools.partial(trials.steps, plan='{name}.json')\n")
    return [trials.part(name, module=name) for name in plans]


def test_the_steps_marked_first_of_all_parts_run_before_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    plans: dict[str, list[tuple[Any, ...]]] = {
        "one": [("one a", "0"), ("one b", "0", True), ("one c", "crash", True), ("one d", "0", True)],
        "two": [("two a", "0", True)],
        "three": [("three a", "0", True), ("three b", "0")],
    }
    result = suite.run_check(tmp_path, rehearse=True, parts=parts_of(tmp_path, plans))
    order = (tmp_path / trials.BEGAN).read_text().splitlines()
    assert sorted(order[:5]) == ["one b", "one c", "one d", "three a", "two a"]
    assert sorted(order[5:]) == ["one a", "three b"]
    assert {part["state"] for part in result["parts"].values()} == {"done"}


def test_if_all_first_steps_are_done_a_resumed_check_does_not_search_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    plans: dict[str, list[tuple[Any, ...]]] = {
        name: [(f"{name} a", "0", True), (f"{name} b", "hang")] for name in ("one", "two")
    }
    suite.run_check(tmp_path, minutes=0.1, rehearse=True, parts=parts_of(tmp_path, plans))
    assert sorted(began(tmp_path)) == ["a", "a", "b", "b", "one", "one", "two", "two"]
    before = len((tmp_path / trials.TURNS).read_text().splitlines())
    plans = {name: [*plan[:1], (f"{name} b", "0")] for name, plan in plans.items()}
    found = suite.run_check(tmp_path, rehearse=True, parts=parts_of(tmp_path, plans))["parts"]
    assert {part["state"] for part in found.values()} == {"done"}
    assert len((tmp_path / trials.TURNS).read_text().splitlines()) == before + 2
    # With `retry`, the check again searches all parts for steps marked `first`.
    plans = {name: [(f"{name} a", "wrong", True), *plan[1:]] for name, plan in plans.items()}
    Log(tmp_path, "one").path.write_text("")
    (tmp_path / suite.RESULT_FILE).unlink()
    again = suite.run_check(tmp_path, rehearse=True, retry=True, parts=parts_of(tmp_path, plans))["parts"]
    assert suite.count_wrong(again["one"]) == 1


def test_scarce_time_is_shared_by_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(suite, "_REHEARSED_AT_ONCE", 1)
    parts = parts_of(tmp_path, {name: [(f"{name} {i}", "0.25") for i in range(100)] for name in ("one", "two")})
    found = suite.run_check(tmp_path, minutes=0.2, rehearse=True, parts=parts)["parts"]
    counts = {name: len(part["steps"]) for name, part in found.items()}
    assert min(counts.values()) > 2, counts
    assert {part["state"] for part in found.values()} == {"out of time"}
    # No step was ended early.
    assert not [line for part in found.values() for line in part["steps"] if line["error"]]


def test_bytecode_of_one_process_is_reused_by_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told(tmp_path, [("a", "lose the device"), ("b", "0"), ("c", "0")])
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    _, b, c = checked(tmp_path)["steps"]
    place = b["figures"]["bytecode"]
    assert place
    assert place == c["figures"]["bytecode"]
    assert not Path(place).exists(), "the folder of bytecode was not removed"
    assert not list(tmp_path.rglob("*.pyc"))


def test_each_part_has_first_steps_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marked_tests, "collect_tests", lambda: ["tests/test_it.py::test_it"])
    on_a_gpu = Conditions(device="cuda", executor="nvfuser", rehearse=False, folder=Path())
    steps = {part.name: list(part.steps(on_a_gpu)) for part in PARTS}
    first = {name: [step.id for step in its if step.first] for name, its in steps.items()}
    assert all(first.values())
    assert first["main"] == ["plan", "run, float32", "cancel", "run, recomputed"]
    # In the three parts that are left out here, all steps are marked `first`.
    rest = {name for name, its in steps.items() if len(first[name]) < len(its)}
    assert rest == steps.keys() - {"environment", "tests", "ranks"}


def test_steps_of_a_killed_check_count_even_if_the_summary_of_the_check_lacks_these_steps(tmp_path: Path) -> None:
    told(tmp_path, [("a", "0"), ("b", "hang")])
    checked(tmp_path, step_limit_s=0.5)
    # Imitate a kill during this part: the summary then has results only of the parts before it.
    path = tmp_path / suite.RESULT_FILE
    result = json.loads(path.read_text())
    result["parts"][trials.NAME] |= {"state": "not begun", "seconds": 0.0, "steps": []}
    path.write_text(json.dumps(result))
    found = checked(tmp_path, minutes=0.0)
    assert (found["state"], len(found["steps"])) == ("out of time", 2)
    assert found["seconds"] >= 0.5


def test_a_step_with_an_incomplete_record_runs_again(tmp_path: Path) -> None:
    told(tmp_path, [("a", "0"), ("b", "0")])
    checked(tmp_path)
    path = tmp_path / f"{trials.NAME}.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    (tmp_path / suite.RESULT_FILE).unlink()
    assert [line["step"] for line in checked(tmp_path)["steps"]] == ["a", "b"]
    assert began(tmp_path) == ["a", "b", "b"]


def test_a_folder_is_used_by_one_check_and_one_process(tmp_path: Path) -> None:
    told(tmp_path, [("a", "0")])
    checked(tmp_path)
    note = json.loads((tmp_path / "check.json").read_text())
    with pytest.raises(RunError, match="another check is running in"), claim_folder(tmp_path, note):
        checked(tmp_path)
    other = {**note, "machine": "another"}
    (tmp_path / "check.json").write_text(json.dumps(other))
    with pytest.raises(
        RunError, match=r"has results of another check \(machine 'another', now .*\): give another folder"
    ):
        checked(tmp_path)
    (tmp_path / "check.json").write_text("{")
    with pytest.raises(RunError, match=r"check\.json is damaged: give another folder"):
        checked(tmp_path)
    (tmp_path / "check.json").unlink()
    with pytest.raises(RunError, match="has results, but does not say of which check"):
        checked(tmp_path)


def test_an_unknown_part_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(RunError, match=r"there is no part 'mian'; legal: environment, main, .*main"):
        suite.choose_parts(["mian"])


RESULT: dict[str, Any] = {
    "machine": "Some GPU",
    "versions": {"torch": "2.10.0"},
    "rehearsal": False,
    "executor": "nvfuser",
    "date": "2026-01-02",
    "parts": {
        "main": {
            "title": "The main job",
            "does": "What it does.",
            "state": "out of time",
            "seconds": 61.0,
            "steps": [
                {
                    "step": "run",
                    "seconds": 1.5,
                    "at": "2026-01-02T03:04:05+00:00",
                    "error": "",
                    "figures": {
                        "compile_s": 1.25,
                        "measured_peak_bytes": 3 << 20,
                        "off_share": -0.041,
                        "attributed_share": 0.99,
                        "bitwise": True,
                        "bytes_per_s": 3.25e12,
                        "names": ["a|b", "c"],
                        "wrong": "the predicted peak is -4.1% off",
                    },
                },
                {"step": "cancel", "seconds": 1.0, "at": "", "error": "RunError: it was done", "figures": {}},
            ],
        },
        "depth": {"title": "Depth", "does": "More.", "state": "not begun", "seconds": 0.0, "steps": []},
    },
}

PAGE = """\
## Some GPU (GPU), 2026-01-02

`thunder-workbench gpu-check`, executor nvfuser; torch 2.10.0.

| part | state | took | steps | not right |
|---|---|---|---|---|
| The main job | out of time | 61.00 s | 2 | 2 |
| Depth | not begun |  | 0 | 0 |

### The main job

What it does.

- **run**: the predicted peak is -4.1% off
- **cancel**: RunError: it was done

| step | compile | measured peak | off | attributed | bitwise | bytes per s | names |
|---|---|---|---|---|---|---|---|
| run | 1.25 s | 3.00 MiB | -4.10% | 99.00% | yes | 3.25e+12 | a\\|b, c |
"""


def test_the_page_lists_faults_first_and_every_figure_with_its_unit() -> None:
    assert page.results_page([RESULT]) == PAGE
