"""`run_check`: run the parts of a check in separate processes, until all parts are done or the time is up."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from workbench.analysis.cost.machines import MACHINES
from workbench.errors import Advice, DeviceError, RunError, suggest_names
from workbench.gpu_check import page
from workbench.gpu_check.execute_steps import AGAIN, LATE, LEFT
from workbench.gpu_check.log import Log, claim_folder, record_of
from workbench.gpu_check.log import is_right as is_right
from workbench.gpu_check.parts import time_spent
from workbench.gpu_check.parts.check_part import WRONG as WRONG
from workbench.gpu_check.parts.check_part import CheckPart, CheckTurn, Conditions, Figures
from workbench.gpu_check.parts.part_list import CARD_BYTES, PARTS, RESULTS, SLOT
from workbench.runs.log import untrusted_files
from workbench.runs.process.worker_process import how_ended

RESULT_FILE = "gpu-check.json"
PAGE_FILE = "gpu-check.md"
ELSEWHERE_FILE = "reference_durations.json"
"""File in the folder of this module, with the duration of each finished part of the checks in `benchmarks/results`.
`benchmarks/gpu/page.py` writes the file.
"""
_MEMORY_SHARE = 0.03
"""Share by which a GPU's memory may differ from `CARD_BYTES`."""
_LOOK_S = 0.1
_REHEARSED_AT_ONCE = 2
_KILL_TIMEOUT_S = 20.0
_END_S = 3.0

_FIRST, _SHARED, _REST = "first", "shared", "rest"
_PASSES = (_FIRST, _SHARED, _REST)
"""Passes over all parts. The first pass runs the most informative steps of each part. In the second pass, each part has
its share of the remaining time. The third pass runs the remaining steps, the most valuable part first.
"""


@dataclasses.dataclass(frozen=True)
class _Limits:
    """Times of `time.monotonic` at which a part's turn (`part_s`) and the whole check (`all_s`) end.

    When `stop` is set, the part is stopped earlier.
    """

    part_s: float
    all_s: float
    stop: threading.Event


@dataclasses.dataclass(frozen=True)
class CheckProgress:
    """Progress of a check: the current part, its finished steps, the current step, and the seconds left in total."""

    part: CheckPart
    done: int
    step: str
    left_s: float


def choose_parts(only: Sequence[str], parts: Sequence[CheckPart] = PARTS) -> tuple[CheckPart, ...]:
    """Return the parts with the names in `only`; all parts if `only` is empty.

    Raises
    ------
    RunError
        If `only` contains a name that no part has.
    """
    known = {part.name: part for part in parts}
    for name in only:
        if name not in known:
            raise RunError(f"there is no part {name!r}; legal: {', '.join(known)}{suggest_names(name, list(known))}")
    return tuple(part for part in parts if not only or part.name in only)


def conditions_of(folder: Path, *, rehearse: bool) -> Conditions:
    """Return the conditions of a check on this machine.

    Raises
    ------
    DeviceError
        If no GPU is attached and the check is not a rehearsal.
    """
    if rehearse:
        return Conditions(device="cpu", executor="torch", rehearse=True, folder=folder)
    import torch

    from workbench.compiler.interop import devices

    if not torch.cuda.is_available():
        raise DeviceError(
            "no CUDA device is attached, so there is nothing to check",
            advice=Advice(
                "rehearse=True runs all parts on the CPU", "--rehearse runs all parts on the CPU, with small programs"
            ),
        )
    attached = torch.cuda.get_device_name()
    return Conditions(
        device="cuda",
        executor=devices.default_executor("cuda"),
        rehearse=False,
        folder=folder,
        machine=machine_of(attached, torch.cuda.get_device_properties(0).total_memory),
    )


def machine_of(device_name: str, memory_bytes: int) -> str:
    """Return the name of a GPU in `MACHINES`; empty for another GPU, and for the same chip with other memory."""
    named = next((name for name in MACHINES if re.search(rf"\b{name}\b", device_name)), "")
    expected = CARD_BYTES.get(named)
    return named if expected is None or abs(memory_bytes / expected - 1) < _MEMORY_SHARE else ""


def checked_machine(conditions: Conditions) -> str:
    """Return the name of the checked machine: its GPUs, or its processor."""
    if conditions.device == "cpu":
        return f"{platform.machine()} CPU, {len(os.sched_getaffinity(0))} cores"
    import torch

    count = torch.cuda.device_count()
    return torch.cuda.get_device_name() + (f" x {count}" if count > 1 else "")


def versions_of() -> dict[str, str]:
    """Return the installed versions of PyTorch, Thunder, the workbench and nvFuser, by distribution."""
    names = ("torch", "lightning-thunder", "thunder-workbench")
    found = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.name or ""
        if name in names or name.startswith("nvfuser"):
            found[name] = distribution.version
    return dict(sorted(found.items()))


def run_check(
    folder: Path,
    *,
    minutes: float = 40.0,
    only: Sequence[str] = (),
    rehearse: bool = False,
    retry: bool = False,
    parts: Sequence[CheckPart] = PARTS,
    answers: Mapping[str, Figures] | None = None,
    begun_s: float | None = None,
    on_progress: Callable[[CheckProgress], None] | None = None,
) -> dict[str, Any]:
    """Run or resume a check: finished steps in the folder are not repeated.

    Parameters
    ----------
    folder : Path
        Folder in which the results are written after each step. It is created if it is missing.
    minutes : float
        Time limit of the check. When it is reached, the current part is stopped. The most informative steps of each
        part run first; the parts share the rest of the time.
    only : sequence of str
        Names of parts to run; by default all parts.
    rehearse : bool
        As in `Conditions`.
    retry : bool
        Whether to repeat steps that failed or are wrong.
    parts : sequence of CheckPart
        The available parts.
    answers : mapping, optional
        Figures of steps of earlier checks, by step, for parts with `CheckPart.in_slot`. These steps are not executed.
    begun_s : float, optional
        Time at which the limit begins, by `time.monotonic`; by default now.
    on_progress : callable, optional
        Called ten times a second. In a rehearsal, two parts run at once, and two threads call it.

    Returns
    -------
    dict
        The result, with the same content as `RESULT_FILE`.

    Raises
    ------
    RunError
        If the folder cannot be used, or `only` names an unknown part.
    DeviceError
        If no GPU is attached and the check is not a rehearsal.
    """
    wanted = choose_parts(only, parts)
    folder = folder.resolve()
    conditions = conditions_of(folder, rehearse=rehearse)
    note = {
        "machine": checked_machine(conditions),
        "versions": versions_of(),
        "rehearsal": rehearse,
        "executor": conditions.executor,
    }
    begun_s = time.monotonic() if begun_s is None else begun_s
    give_up_s = begun_s + 60 * minutes
    with claim_folder(folder, note):
        if retry:
            for part in wanted:
                Log(folder, part.name).forget_wrong()
        for part in wanted:
            if part.in_slot:
                Log(folder, part.name).note_answers(answers or {})
        result = _current_result(folder, note, parts)
        result["prepared_s"] = round(result["prepared_s"] + time.monotonic() - begun_s, 1)
        missing = [part for part in wanted if retry or result["parts"][part.name]["state"] != "done"]
        keeping, stop = threading.Lock(), threading.Event()
        # On a GPU, parts run one at a time, so that they do not disturb measurements. The times of a rehearsal have no
        # meaning, so two of its parts run at once. The longest parts come first, so that both threads end about
        # together.
        at_once = _REHEARSED_AT_ONCE if rehearse else 1
        order = longest_first(missing) if rehearse else missing
        left = {part.name: part for part in order}

        def carry_out(part: CheckPart, pass_: str, following: Sequence[CheckPart]) -> None:
            began_s = time.monotonic()
            if began_s >= give_up_s or stop.is_set():
                return
            turn, part_s = _turn(pass_, part, following, began_s, give_up_s, at_once)
            limits = _Limits(part_s=part_s, all_s=give_up_s, stop=stop)
            whole = _run_part(part, conditions, turn, limits, environment, store, on_progress)
            with keeping:
                if whole:
                    del left[part.name]
                outcome = result["parts"][part.name]
                outcome["state"] = "done" if whole else "out of time"
                outcome["seconds"] = round(outcome["seconds"] + time.monotonic() - began_s, 1)
            store(part)

        def store(part: CheckPart) -> None:
            with keeping:
                log, outcome = Log(folder, part.name), result["parts"][part.name]
                outcome["steps"] = log.lines()
                if part.in_slot:
                    known = {*log.answers(), *(line["step"] for line in outcome["steps"])}
                    outcome["left"] = [step for step in log.queue() if step not in known]
                result["spent"] = _spent(result["parts"])
                _store_result(folder, result)

        with share_bytecode() as environment, ThreadPoolExecutor(at_once) as pool:
            try:
                for pass_ in _PASSES if len(order) > 1 else _PASSES[-1:]:
                    now = [
                        part for part in left.values() if pass_ != _FIRST or not Log(folder, part.name).is_first_done()
                    ]
                    begun = [pool.submit(carry_out, part, pass_, now[i + 1 :]) for i, part in enumerate(now)]
                    for each in begun:
                        each.result()
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise
    return result


def _turn(
    pass_: str, part: CheckPart, following: Sequence[CheckPart], now_s: float, all_s: float, at_once: int
) -> tuple[CheckTurn, float]:
    """Return the turn of `part` in a pass, and the time at which the turn is stopped.

    The parts `following` come later in the same pass, and share the remaining time.
    """
    if pass_ == _FIRST:
        until_s = now_s + part.first_limit_s
        return CheckTurn(first=True, until_s=min(until_s, all_s)), min(until_s + part.first_limit_s, all_s)
    until_s = all_s
    if pass_ == _SHARED:
        # A part takes less than its share if its steps are short, and more if its last step began in time and is long.
        # All later parts share the difference.
        share = part.limit_s / sum(each.limit_s for each in (part, *following))
        until_s = now_s + min(1.0, at_once * share) * (all_s - now_s)
    return CheckTurn(first=False, until_s=until_s), min(now_s + part.limit_s, all_s)


@contextlib.contextmanager
def share_bytecode() -> Iterator[dict[str, str]]:
    """Yield the environment for processes that share compiled bytecode.

    If this Python does not write bytecode, each process would spend 5 s on compiling sources, about as long as the rest
    of a small run. The processes then share bytecode in a temporary folder, which is deleted when the check ends.
    """
    if not sys.dont_write_bytecode:
        apart = {} if sys.pycache_prefix is None else {"PYTHONPYCACHEPREFIX": sys.pycache_prefix}
        yield {**os.environ, **apart, "PYTHONDONTWRITEBYTECODE": ""}
        return
    before = sys.pycache_prefix
    with tempfile.TemporaryDirectory(prefix="gpu-check-", ignore_cleanup_errors=True) as place:
        sys.dont_write_bytecode, sys.pycache_prefix = False, place
        try:
            with share_bytecode() as environment:
                yield environment
        finally:
            sys.dont_write_bytecode, sys.pycache_prefix = True, before


def progress_text(progress: CheckProgress) -> str:
    """Describe the progress of a check in one line."""
    step = f": {progress.step}" if progress.step else ""
    return f"{progress.part.title}{step}, {progress.done} steps done, {progress.left_s / 60:.0f} minutes left"


def count_wrong(outcome: dict[str, Any]) -> int:
    """Return the number of a part's steps that failed or whose results are not as required."""
    return sum(not is_right(line) for line in outcome["steps"])


@dataclasses.dataclass(frozen=True)
class ReferenceDurations:
    """Durations of finished parts on a reference machine, in seconds, by the part's name."""

    machine: str
    seconds: dict[str, float]


def latest_recorded(*, rehearse: bool) -> ReferenceDurations | None:
    """Return the durations of the latest recorded rehearsal or, without `rehearse`, of the latest check on a GPU.

    Return None if no such check is recorded.
    """
    kept = json.loads((Path(__file__).with_name(ELSEWHERE_FILE)).read_text())
    of_kind = [each for each in kept if each["rehearsal"] == rehearse]
    if not of_kind:
        return None
    latest = max(of_kind, key=lambda each: str(each["date"]))
    return ReferenceDurations(latest["machine"], latest["seconds"])


def longest_first(parts: Iterable[CheckPart]) -> list[CheckPart]:
    """Sort parts by their duration in the latest recorded rehearsal: unknown durations first, then the longest."""
    known = latest_recorded(rehearse=True)
    seconds = known.seconds if known is not None else {}
    return sorted(parts, key=lambda part: -seconds.get(part.name, float("inf")))


def run_slot(
    folder: Path,
    minutes: float,
    *,
    rehearse: bool = False,
    retry: bool = False,
    begun_s: float | None = None,
    results: Path = RESULTS,
    on_progress: Callable[[CheckProgress], None] | None = None,
) -> dict[str, Any]:
    """Ask the questions of `SLOT` in their order, for a number of minutes.

    A step begins only if its time limit ends within the slot.

    Parameters
    ----------
    folder, rehearse, retry, begun_s, on_progress
        As for `run_check`. With `retry`, committed steps that failed or are wrong are executed again, too.
    minutes : float
        Length of the slot.
    results : Path
        Folder of the committed results; see `committed_answers`. A rehearsal asks all questions.

    Returns
    -------
    dict
        As from `run_check`. The entry of the part `SLOT` also has ``left``, the steps without an answer.
    """
    answers: dict[str, Figures] = {}
    if not rehearse:
        answers = committed_answers(results, checked_machine(conditions_of(folder, rehearse=False)), retry=retry)
    return run_check(
        folder,
        # Keep the last seconds for a process that ends late, and for writing the result.
        minutes=max(0.0, minutes - _END_S / 60),
        rehearse=rehearse,
        retry=retry,
        parts=(SLOT,),
        answers=answers,
        begun_s=begun_s,
        on_progress=on_progress,
    )


def committed_answers(results: Path, machine: str, *, retry: bool = False) -> dict[str, Figures]:
    """Return the figures of all steps of earlier slots on a machine, by step.

    Parameters
    ----------
    results : Path
        Folder with a folder for each machine. All JSON files in these folders are read. A file is used if it is the
        result of a slot on `machine` and not of a rehearsal.
    machine : str
        As `checked_machine` returns it.
    retry : bool
        Whether to leave out steps that failed or are wrong.
    """
    found: dict[str, Figures] = {}
    for path in sorted(results.glob("*/*.json")):
        result = json.loads(path.read_text())
        if result["machine"] == machine and not result["rehearsal"] and SLOT.name in result["parts"]:
            lines = result["parts"][SLOT.name]["steps"]
            found |= {line["step"]: line["figures"] for line in lines if not retry or is_right(line)}
    return found


def is_all_right(result: dict[str, Any]) -> bool:
    """Return whether no executed step failed or is wrong."""
    return not any(count_wrong(outcome) for outcome in result["parts"].values())


def _current_result(folder: Path, note: dict[str, Any], parts: Iterable[CheckPart]) -> dict[str, Any]:
    """Return the result so far: the records of all steps, and the last state of each part."""
    before: dict[str, Any] = {}
    prepared_s = 0.0
    path = folder / RESULT_FILE
    if untrusted_files.exists(path):
        # The steps are read from their records below. This file only adds the states and durations of parts.
        with contextlib.suppress(ValueError, TypeError, KeyError):
            earlier_result = json.loads(untrusted_files.read(path))
            before, prepared_s = dict(earlier_result["parts"]), float(earlier_result.get("prepared_s", 0.0))
    found = {}
    for part in parts:
        earlier = before.get(part.name, {})
        lines = Log(folder, part.name).lines()
        # A killed check has stored its steps, but not the sum of their times.
        took = round(sum(line["seconds"] for line in lines), 1)
        found[part.name] = {
            "title": part.title,
            "does": part.does,
            "state": "done" if earlier.get("state") == "done" else "out of time" if lines else "not begun",
            "seconds": max(float(earlier.get("seconds", 0.0)), took),
            "steps": lines,
            **({"left": []} if part.in_slot else {}),
        }
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {**note, "date": today, "parts": found, "prepared_s": prepared_s, "spent": _spent(found)}


def _spent(parts: Mapping[str, Any]) -> dict[str, float]:
    """Return the time of all steps by kind."""
    return time_spent.total(line["spent"] for outcome in parts.values() for line in outcome["steps"])


def _store_result(folder: Path, result: dict[str, Any]) -> None:
    try:
        untrusted_files.write(folder / RESULT_FILE, json.dumps(result, indent=1, allow_nan=False) + "\n")
        untrusted_files.write(folder / PAGE_FILE, page.results_page([result]))
    except OSError as error:
        raise RunError(f"{folder / RESULT_FILE} cannot be written: {error.strerror}; each step is kept") from error


def _run_part(
    part: CheckPart,
    conditions: Conditions,
    turn: CheckTurn,
    limits: _Limits,
    environment: Mapping[str, str],
    store: Callable[[CheckPart], None],
    on_progress: Callable[[CheckProgress], None] | None,
) -> bool:
    """Run a turn of a part, in as many processes as it needs; return whether the whole part is done."""
    log = Log(conditions.folder, part.name)
    log.forget_begun()
    while time.monotonic() < limits.part_s and not limits.stop.is_set():
        before = len(log.lines())
        ended, step, took_s, limit_s = _process(part, conditions, turn, log, limits, environment, store, on_progress)
        if ended == LEFT and turn.first:
            log.note_first_done()
        if ended in (LEFT, LATE) or (ended is None and not step):
            return False
        if ended == 0:
            return True
        if ended != AGAIN:
            reason = f"it took more than {limit_s:g} s" if ended is None else how_ended(ended, "in this step")
            at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            # If no step had begun, the part itself failed and would fail again. Record this and do not retry.
            log.append(record_of(step or "begin", seconds=took_s, timestamp=at, error=reason))
            if not step:
                return True
        assert len(log.lines()) > before, "each new process of a part must finish at least one step"
    return False


def _process(
    part: CheckPart,
    conditions: Conditions,
    turn: CheckTurn,
    log: Log,
    limits: _Limits,
    environment: Mapping[str, str],
    store: Callable[[CheckPart], None],
    on_progress: Callable[[CheckProgress], None] | None,
) -> tuple[int | None, str, float, float]:
    """Run one process of a part.

    Returns
    -------
    int or None
        Exit status; None if the process was stopped.
    str
        Id of the step that was in progress when the process ended. Empty if there was none, or if the process was
        stopped because the time was up; an interrupted step begins again later.
    float
        Seconds since the process or its last step began.
    float
        Time limit of that step, in seconds.
    """
    given = {**dataclasses.asdict(conditions), "folder": str(conditions.folder)}
    with (conditions.folder / f"{part.name}.log").open("ab") as output:
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "workbench.gpu_check.execute_steps",
                json.dumps(dataclasses.asdict(part)),
                json.dumps(given),
                json.dumps(dataclasses.asdict(turn)),
                str(time.monotonic()),
            ],
            # The started process ends when this end of the pipe is closed, and therefore when this process ends.
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={
                **environment,
                "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path),
                "WORKBENCH_RUNS": str(conditions.folder / "runs" / part.name),
            },
            start_new_session=True,
        )
    at, limit_s, since_s = "", float("inf"), time.monotonic()
    try:
        while True:
            try:
                status = child.wait(_LOOK_S)
                step, limit_s = log.step_in_progress()
                return status, step, time.monotonic() - since_s, limit_s
            except subprocess.TimeoutExpired:
                pass
            now_s = time.monotonic()
            step, step_limit_s = log.step_in_progress()
            if step != at:
                at, limit_s, since_s = step, step_limit_s, now_s
                store(part)
            if on_progress is not None:
                on_progress(CheckProgress(part, len(log.lines()), at, max(0.0, limits.all_s - now_s)))
            if now_s >= limits.part_s or limits.stop.is_set():
                return None, "", now_s - since_s, limit_s
            if at and now_s - since_s > limit_s:
                return None, at, now_s - since_s, limit_s
    finally:
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(_KILL_TIMEOUT_S)
    if child.stdin is not None:
        child.stdin.close()
