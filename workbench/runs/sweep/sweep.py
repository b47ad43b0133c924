"""`Sweep`: run a program with every combination of several values of settings and choices.

A point is one combination of values. Each point runs in a separate process with empty caches. Points run one at a time,
or on any `concurrent.futures.Executor`: a pool, or an executor of Dask, submitit or MPI.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from workbench import programs
from workbench.core.config import installed_versions
from workbench.errors import RunError, one_line
from workbench.programs.files import check_file, is_file_name
from workbench.runs.log import event_log, untrusted_files
from workbench.runs.process import follow_run, request, worker_process
from workbench.runs.sweep import dask_runs

if TYPE_CHECKING:
    from pydantic import TypeAdapter

NOTE_FILE = "sweep.json"
POINTS_FILE = "points.jsonl"
FIT_FROM = 8
"""Smallest value of the first setting that the fit of an exponent uses; at smaller values, constant costs dominate."""

FIGURES = ("compile_s", "step_s", "measured_peak_bytes", "fusions", "fusions_unique")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """A program, and the values of its settings and choices. Every combination of values is a point.

    Attributes
    ----------
    program : str
        A built-in name or ``file.py:factory``.
    settings : mapping of str to sequence of str
        Values of each setting; the first setting changes slowest.
    choices : mapping of str to sequence of str
        Options of each site.
    device, executor : str
    timeout_s : float
        A point that takes longer fails, and the sweep continues.
    """

    program: str
    settings: Mapping[str, Sequence[str]]
    choices: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    device: str = "cpu"
    executor: str = "torch"
    timeout_s: float = 3600.0

    def points(self) -> list[dict[str, dict[str, str]]]:
        """Return the settings and choices of each point."""
        names = [*(("settings", name) for name in self.settings), *(("choices", name) for name in self.choices)]
        values = [*self.settings.values(), *self.choices.values()]
        found = []
        for combination in itertools.product(*values):
            point: dict[str, dict[str, str]] = {"settings": {}, "choices": {}}
            for (kind, name), value in zip(names, combination, strict=True):
                point[kind][name] = str(value)
            found.append(point)
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepOutcome:
    """Outcome of one point.

    Attributes
    ----------
    settings, choices : dict
    ok : bool
    error : str, optional
    seconds : float
        Wall time of the point's process: opening, planning, compiling and running.
    figures : dict
        Figures, by the names in `FIGURES`. Numbers of fusions are predicted; all other figures are measured.
    stages : list of dict
        Stages of the compilation, as in `workbench.runs.process.record.Record.stages`.
    run_dir : str
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"strict": True, "extra": "forbid"}

    settings: dict[str, str]
    choices: dict[str, str]
    ok: bool
    error: str | None
    seconds: float
    figures: dict[str, float]
    stages: list[dict[str, Any]]
    run_dir: str


@dataclasses.dataclass(frozen=True)
class SweepProgress:
    """Progress of a sweep: number of finished points, and remaining seconds, estimated from a point's mean time."""

    done: int
    count: int
    left_s: float | None
    latest: SweepOutcome | None


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """Outcomes of all points of a sweep.

    Attributes
    ----------
    sweep : Sweep
    points : tuple of SweepOutcome
    """

    sweep: Sweep
    points: tuple[SweepOutcome, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat row for each point, for tables."""
        return [
            {
                **point.settings,
                **point.choices,
                **{figure: point.figures.get(figure) for figure in FIGURES},
                "seconds": point.seconds,
                "ok": point.ok,
                "error": point.error,
            }
            for point in self.points
        ]

    def csv(self) -> str:
        """Return the rows as comma-separated values, with a header."""
        rows = self.rows()
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]) if rows else ["ok"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    def exponents(self, figure: str = "compile_s") -> dict[str, float]:
        """Fit the figure as a power of the first setting, for each combination of the other values.

        The exponent is the slope of a straight line through the logarithms. Only values of the first setting from
        `FIT_FROM` on are used. A combination with fewer than two such values has no exponent.
        """
        found = {}
        for label, series in self.series(figure).items():
            large = [(x, y) for x, y in series if x >= FIT_FROM and y > 0]
            if len(large) >= 2:
                x, y = np.log(np.asarray(large).T)
                found[label] = float(np.polyfit(x, y, 1)[0])
        return found

    def series(self, figure: str = "compile_s") -> dict[str, list[tuple[float, float]]]:
        """Return pairs (value of the first setting, figure), for each combination of the other values."""
        axis = next(iter(self.sweep.settings), None)
        found: dict[str, list[tuple[float, float]]] = {}
        for point in self.points:
            x = _number(point.settings.get(axis, "")) if axis is not None else None
            if x is None or figure not in point.figures:
                continue
            rest = {**{k: v for k, v in point.settings.items() if k != axis}, **point.choices}
            label = ", ".join(f"{name}={value}" for name, value in rest.items()) or self.sweep.program
            found.setdefault(label, []).append((x, point.figures[figure]))
        return {label: sorted(series) for label, series in found.items()}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "ok": all(point.ok for point in self.points),
            "program": self.sweep.program,
            "points": [dataclasses.asdict(point) for point in self.points],
            "exponents": {figure: self.exponents(figure) for figure in ("compile_s", "step_s")},
        }


def check_sweep(sweep: Sweep) -> None:
    """Refuse an unknown program or setting before any point runs.

    Raises
    ------
    ProgramError
        If the program, a setting or a value is unknown. The message names what is unknown, and lists what is legal.
    """
    for point in sweep.points():
        programs.check(sweep.program, point["settings"])


def run(
    sweep: Sweep,
    out: Path,
    *,
    on_progress: Callable[[SweepProgress], None] | None = None,
    executor: Executor | None = None,
) -> SweepResult:
    """Run or resume a sweep. Points whose outcome is already in the folder run again only if they failed.

    Parameters
    ----------
    sweep : Sweep
    out : Path
        Folder for the outcome and the run of each point; created if it is missing.
    on_progress : callable, optional
        Called before the first point and after each point.
    executor : concurrent.futures.Executor, optional
        Executes the points; several at once if it has several workers. By default, this process starts the points one
        after another. The executor's workers need this package and the program's file. All files of a point's run are
        copied into `out`. If a worker dies, its point fails, and the next call of this function runs the point again.
        Points that run at the same time on one machine disturb each other's times.

    Returns
    -------
    SweepResult

    Raises
    ------
    ProgramError
        As in `check_sweep`.
    RunError
        If the folder cannot be written, or contains a sweep of a different program, device or executor, or points from
        before the program's file or a package changed.
    """
    check_sweep(sweep)
    try:
        out.mkdir(parents=True, exist_ok=True)
        _claim(out, sweep)
    except OSError as error:
        raise RunError(f"the sweep's folder {out} cannot be written: {error.strerror}") from error
    wanted = sweep.points()
    try:
        known = {_key(point.settings, point.choices): point for point in _read_outcomes(out) if point.ok}
    except OSError as error:
        raise RunError(f"the points in {out} cannot be read: {error.strerror}") from error
    spent: list[float] = []
    latest: SweepOutcome | None = None
    missing = [point for point in wanted if _key(**point) not in known]
    count, now = len(wanted), dict(known)

    def report(left: int) -> None:
        if on_progress is not None:
            left_s = statistics.fmean(spent) * left if spent else None if left else 0.0
            on_progress(SweepProgress(count - left, count, left_s, latest))

    report(len(missing))
    for left, done in zip(reversed(range(len(missing))), _run_points(sweep, missing, out, executor), strict=True):
        latest = done
        spent.append(done.seconds)
        _append(out, done)
        now[_key(done.settings, done.choices)] = done
        report(left)
    return SweepResult(sweep, tuple(now[_key(**point)] for point in wanted))


def _run_points(
    sweep: Sweep, points: Sequence[Mapping[str, Mapping[str, str]]], out: Path, executor: Executor | None
) -> Iterator[SweepOutcome]:
    """Yield the outcome of each point as it ends."""
    if executor is None:
        yield from (_run_cold(sweep, point, out) for point in points)
        return
    asked: dict[Future[tuple[SweepOutcome, bytes]], Mapping[str, Mapping[str, str]]] = {}
    for point in points:
        try:
            asked[executor.submit(_run_packed, sweep, point)] = point
        except RuntimeError as error:
            # A pool with a dead worker does not accept further points.
            yield _lost_outcome(point, error)
    for future in as_completed(asked):
        try:
            done, folder = future.result()
        # Catch every exception, because each kind of executor raises its own for a worker that died.
        except Exception as error:  # noqa: BLE001
            yield _lost_outcome(asked[future], error)
            continue
        yield dataclasses.replace(done, run_dir=dask_runs.unpack(folder, out / "runs", done.run_dir))


def _run_packed(sweep: Sweep, point: Mapping[str, Mapping[str, str]]) -> tuple[SweepOutcome, bytes]:
    """Run one point on a worker; return the outcome, and the folder of the point's run as an archive."""
    with dask_runs.folder() as out:
        done = _run_cold(sweep, point, out)
        return done, dask_runs.pack(out / "runs")


def _lost_outcome(point: Mapping[str, Mapping[str, str]], error: BaseException) -> SweepOutcome:
    return SweepOutcome(
        settings=dict(point["settings"]),
        choices=dict(point["choices"]),
        ok=False,
        error=f"the worker was lost: {type(error).__name__}: {error}",
        seconds=0.0,
        figures={},
        stages=[],
        run_dir="",
    )


def _run_cold(sweep: Sweep, point: Mapping[str, Mapping[str, str]], out: Path) -> SweepOutcome:
    """Run one point in a fresh interpreter with empty compile caches."""
    command = [
        sys.executable, "-m", "workbench.runs.sweep.sweep_point",
        json.dumps({"program": sweep.program, "device": sweep.device, "executor": sweep.executor, **point}),
    ]  # fmt: skip
    start = time.perf_counter()
    # When this process dies, the system closes this process's end of the pipe, and then kills the point's process.
    its_end, alive = os.pipe()
    child = subprocess.Popen(
        command,
        stdin=its_end,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "WORKBENCH_RUNS": str(out / "runs")},
        start_new_session=True,
    )
    os.close(its_end)
    error: str | None = None
    outcome: dict[str, Any] = {}
    try:
        text, complaints = child.communicate(timeout=sweep.timeout_s)
        outcome, error = _outcome(text, complaints, child.returncode)
    except subprocess.TimeoutExpired:
        error = f"timeout: not done after {sweep.timeout_s:g} s"
    finally:
        # The kill does not reach the run's worker, which has its own session. The worker dies when its parent has died.
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            for request_file in (out / "runs").glob(f"*/{request.REQUEST_FILE}"):
                with contextlib.suppress(RunError):
                    follow_run.follow(request_file.parent).wait(worker_process.KILL_TIMEOUT_S)
        os.close(alive)
    return SweepOutcome(
        settings=dict(point["settings"]),
        choices=dict(point["choices"]),
        ok=error is None,
        error=error,
        seconds=time.perf_counter() - start,
        figures=outcome.get("figures", {}),
        stages=outcome.get("stages", []),
        run_dir=outcome.get("run_dir", ""),
    )


def _outcome(text: str, complaints: str, status: int) -> tuple[dict[str, Any], str | None]:
    try:
        outcome = json.loads(text.splitlines()[-1])
        return outcome, outcome["error"]
    except (ValueError, IndexError, KeyError):
        last = next((line for line in reversed(complaints.splitlines()) if line.strip()), "")
        return {}, f"the process ended with exit status {status}: {last}"


def _claim(out: Path, sweep: Sweep) -> None:
    """Write into a sweep's folder what its points depend on; refuse a folder whose points are of another sweep.

    Points also depend on the program's file and on the packages. The files that the program's file imports are not
    compared.
    """
    mine = {"program": sweep.program, "device": sweep.device, "executor": sweep.executor}
    state = {"file": _file_digest(sweep.program), "versions": installed_versions()}
    note, has_points = out / NOTE_FILE, untrusted_files.exists(out / POINTS_FILE)
    if untrusted_files.exists(note):
        other = _folder_owner(note)
        if other is None:
            if has_points:
                raise RunError(
                    f"{note} is damaged, so the program of the points in {out} is unknown: "
                    f"give another folder, or delete {POINTS_FILE} to run all points again"
                )
        elif (its := {key: other[key] for key in mine}) != mine:
            raise RunError(f"{out} contains another sweep, of {its}; this sweep is of {mine}: give another folder")
        elif has_points and (changed := _changes(other, state)):
            raise RunError(
                f"since the points in {out} were run, {changed}: give another folder, or delete {POINTS_FILE} to run "
                "all points again"
            )
    untrusted_files.write(note, json.dumps({**mine, **state}) + "\n")


def _file_digest(program: str) -> str:
    """Return a digest of the text of the program's file; empty for a built-in program."""
    if not is_file_name(program):
        return ""
    return hashlib.sha256(check_file(program).read_bytes()).hexdigest()


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe how the program's file and the packages differ from those of a folder's points; empty if they do not."""
    versions = before.get("versions")
    if not isinstance(versions, dict) or not isinstance(before.get("file"), str):
        return "the format of sweeps has changed, so the program's file and packages of the points are unknown"
    if before["file"] != now["file"]:
        return "the program's file has changed"
    packages = [
        f"{package} was {versions.get(package, 'not installed')} and is {now['versions'].get(package, 'not installed')}"
        for package in sorted({*versions, *now["versions"]})
        if versions.get(package) != now["versions"].get(package)
    ]
    return one_line("; ".join(packages))


def _folder_owner(note: Path) -> dict[str, Any] | None:
    """Return what the points of a folder depend on; None if the file `note` is damaged."""
    try:
        found = json.loads(untrusted_files.read(note))
    except (ValueError, RecursionError):
        return None
    whole = isinstance(found, dict) and all(
        isinstance(found.get(key), str) for key in ("program", "device", "executor")
    )
    return found if whole else None


def _read_outcomes(out: Path) -> list[SweepOutcome]:
    if not untrusted_files.exists(out / POINTS_FILE):
        return []
    found = []
    for line in untrusted_files.read(out / POINTS_FILE).splitlines():
        try:
            found.append(_reader().validate_json(line))
        except ValueError:  # an incomplete line of a killed sweep: that point runs again
            continue
    return found


@functools.cache
def _reader() -> TypeAdapter[SweepOutcome]:
    from pydantic import TypeAdapter

    return TypeAdapter(SweepOutcome)


def _append(out: Path, point: SweepOutcome) -> None:
    path = out / POINTS_FILE
    line = json.dumps(dataclasses.asdict(point)).encode() + b"\n"
    try:
        event_log.append_line(path, line)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}; earlier points are kept") from error


def _key(settings: Mapping[str, str], choices: Mapping[str, str]) -> str:
    return json.dumps([dict(settings), dict(choices)], sort_keys=True)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
