"""Damage one run of a folder of runs in many ways. Check that the workbench still reads the other runs.

The workbench must not change the other runs or files outside of the folder, end other processes, or execute the data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.runs.log import event_log, events
from workbench.runs.measure import memory_snapshot, statement_times
from workbench.runs.process import follow_run, request, run_store, start_run, worker_process
from workbench.runs.process.follow_run import Run
from workbench.runs.process.request import RunOptions
from workbench.runs.sweep import compare, sweep
from workbench.ui.tabs.compile_tab import Waterfall
from workbench.ui.tabs.experiments import Experiments
from workbench.ui.tabs.peak_table import measured_content
from workbench.ui.tabs.timeline_tab import timeline_content

MLP = {"kind": "builtin", "name": "mlp", "settings": {}, "device": "cpu", "seed": 0}

PLACE = {"statement": 1, "name": "tanh", "outputs": ["t1"], "source": "model.py:7"}
KERNEL = {"name": "k", "stream": 7, "start_s": 0.1, "end_s": 0.2}

EVENTS = (
    events.Started(t_s=0.0, pid=1, time_s=1e9),
    events.Environment(t_s=0.1, versions={"python": "3.12"}, machine={"cores": 2}),
    events.Phase(t_s=0.2, phase="build"),
    events.Phase(t_s=0.3, phase="compile"),
    events.Warned(t_s=0.3, message="one choice does not fit"),
    events.MemorySample(t_s=0.35, rss_bytes=1 << 28),
    events.Stage(t_s=0.4, name="interpret", seconds=0.1),
    events.FusionBegin(t_s=0.4, name="F0", index=0, count=1),
    events.FusionEnd(t_s=0.5, name="F0", index=0, count=1, seconds=0.1, parts={"Dynamo": 0.05}, cached=True),
    events.Compiled(t_s=0.6, compile_s=0.3, attributed=0.9, stages=[{"name": "interpret", "seconds": 0.1}]),
    events.EagerPeakMeasured(t_s=0.7, measured_peak_bytes=9),
    events.PeakMeasured(
        t_s=0.7,
        measured_peak_bytes=1 << 20,
        baseline_bytes=1 << 18,
        timeline_s=[0.0, 0.1],
        live_bytes=[1, 2],
        method="allocation events",
        statement_live_bytes=[1, 2],
        statement_peak_bytes=[2, 3],
        peak_statement=PLACE,
        alive=[{**PLACE, "bytes": 8, "value": "t1"}],
        kernels=[KERNEL],
    ),
    events.Step(t_s=0.8, seconds=0.01, warmup=False),
    events.StepTimes(t_s=0.9, step_s=0.01, samples_s=[0.01, 0.011, 0.009] * 4, low_s=0.009, high_s=0.011, noise=0.02),
    events.VariantTimes(
        t_s=0.9, name="stock", samples_s=[0.02] * 12, step_s=0.02, ratio=2.0, ratio_low=1.9, ratio_high=2.1
    ),
    events.PartTimes(
        t_s=0.95,
        names=["part1", "part2"],
        opaque=[False, True],
        forward_s=[0.1, 0.2],
        backward_s=[0.3, 0.0],
        step_s=0.8,
        planned_share=0.5,
    ),
    events.StatementTimes(
        t_s=1.0,
        names=["add", "tanh"],
        sides=[0, 1],
        sources=["model.py:6", "model.py:7"],
        outputs=[["t0"], ["t1"]],
        start_s=[0.0, 0.004],
        seconds=[0.004, 0.005],
        free_s=[0.0, 0.001],
        step_s=0.01,
        overhead=0.01,
        overhead_low=0.0,
        overhead_high=0.02,
        kernels=[KERNEL],
        launch_bound=None,
        verdict="the host is the device",
        head_gap_s=0.0,
        bubbles_s=0.0,
        device_busy_s=0.0,
    ),
    events.Progress(t_s=1.05, done=3, count=20, left_s=4.5),
    events.TensorChecked(
        t_s=1.1, name="w", against="eager", dtype="float32", max_abs_error=0, max_rel_error=0, tolerance=1, ok=True
    ),
    events.AccuracyChecked(t_s=1.2, ok=True, max_error=0.0, against="eager", worst="w"),
    events.RankEnded(t_s=1.3, rank=0, compile_s=0.3),
    events.Finished(t_s=1.4),
)
"""At least one event of each type. `Finished` is the only event that ends a log."""

assert {type(event) for event in EVENTS} >= set(events.TYPES.values()) - set(events.FINAL)


class Built:
    """A stand-in for a program. It has only the attributes that `Experiments` and `request.prepare` read."""

    name = "mlp"

    def dump(self, folder: Path) -> dict[str, Any]:
        return MLP


# Broken stores.

ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 10**30, 1e308, -1e308, 0.5, float("nan"), float("inf"), "", "\0", "\ud800", "\x1b[2J", "x" * 10_000,
    [], {}, [[]], {"": None}, ["a", 1],
)  # fmt: skip


def nested(depth: int = 100_000) -> str:
    return "[" * depth


def torn(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data))])


def flipped(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(draw.randint(1, 20)):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def stuffed(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    odd = draw.choice([b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\r", b"\n", b'"\\ud800"', b"\x1b[31m", b"}" * 9])
    at = draw.randrange(len(data))
    path.write_bytes(data[:at] + odd * draw.randint(1, 3) + data[at:])


def _odd(value: Any, draw: random.Random) -> Any:
    """Return a JSON value in which one random part is replaced, removed or added."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        rest = {k: v for k, v in value.items() if k != key}
        if draw.random() < 0.15:
            return rest
        if draw.random() < 0.1:
            return {**value, "later": draw.choice(ODD_VALUES)}
        return {**value, key: _odd(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        return [*value[:at], _odd(value[at], draw), *value[at + 1 :]] if draw.random() < 0.8 else value[:at]
    return draw.choice(ODD_VALUES)


def mistyped(path: Path, draw: random.Random) -> None:
    """Replace, remove or add values in some of a file's JSON records."""
    lines = path.read_text().splitlines()
    whole = path.suffix == ".json"
    if whole:
        lines = [json.dumps(json.loads("\n".join(lines)))]
    for at in draw.sample(range(len(lines)), min(len(lines), draw.randint(1, 5))):
        with contextlib.suppress(ValueError, RecursionError):
            lines[at] = json.dumps(_odd(json.loads(lines[at]), draw))
    path.write_text("\n".join(lines) + "\n")


def shuffled(path: Path, draw: random.Random) -> None:
    lines = path.read_text(errors="replace").splitlines()
    draw.shuffle(lines)
    path.write_text("\n".join(lines * draw.randint(1, 3)))


def deep(path: Path, draw: random.Random) -> None:
    path.write_text(draw.choice([nested(), '{"a":' * 50_000, '{"type":"phase","t_s":' + nested()]) + "\n")


def long(path: Path, draw: random.Random) -> None:
    with path.open("ab") as file:
        file.write(b"x" * 3_000_000 + draw.choice([b"", b"\n"]))


def later(path: Path, draw: random.Random) -> None:
    path.write_text(json.dumps({"format_version": draw.choice([0, 2, "1", 10**9]), "name": "later"}))


def empty(path: Path, draw: random.Random) -> None:
    path.write_bytes(b"")


def missing(path: Path, draw: random.Random) -> None:
    path.unlink()


def special(path: Path, draw: random.Random) -> None:
    """Replace a file by a folder, a link, a pipe or a socket."""
    path.unlink()
    kind = draw.randrange(7)
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        os.mkfifo(path)
    elif kind == 2:
        path.symlink_to(path.name)
    elif kind == 3:
        path.symlink_to(draw.choice(["/dev/zero", "/dev/full", "/dev/random", "/proc/self/mem"]))
    elif kind == 4:
        path.symlink_to(path.parents[2] / "thesis.tex")
    elif kind == 5:
        path.symlink_to(draw.choice(["/etc/passwd", "/", "nowhere"]))
    else:
        here = os.getcwd()
        os.chdir(path.parent)  # the path of a socket must be short
        try:
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(path.name)
        finally:
            os.chdir(here)


WAYS = (torn, flipped, stuffed, mistyped, mistyped, mistyped, shuffled, deep, long, later, empty, missing, special)

BREAKABLE = ("request.json", "request.json", "events.jsonl", "events.jsonl", "worker.json", "config.py", "output.log")

EXECUTES = "import pathlib\npathlib.Path({path!r}).touch()\n"

PICKLE = b"cposix\nsystem\n(S'touch %s'\ntR."


def make_run(root: Path, name: str, *, log: bool = True, ranks: int = 1, options: RunOptions | None = None) -> Path:
    run_dir = request.prepare(
        root / name,
        Built(),
        name=name,
        predicted_peak_bytes=1 << 20,
        predicted_alive=[{**PLACE, "bytes": 8, "value": "t1"}],
        ranks=ranks,
        parallel="ddp" if ranks > 1 else "",
        options=options,
    )
    if log:
        (run_dir / event_log.LOG_FILE).write_bytes(b"".join(event_log.encode(event) for event in EVENTS))
    (run_dir / "output.log").write_text("the last line\n")
    return run_dir


def break_store(root: Path, draw: random.Random, bystander: int) -> None:
    """Make a folder of runs: two intact runs, and one run that is damaged one to three times."""
    (root.parent / "thesis.tex").write_text("all of it\n")
    make_run(root, "whole-1")
    make_run(root, "whole-2")
    on_ranks = draw.random() < 0.2
    # All processes exceed these limits, so if the workbench mistook the bystander for the worker, the bystander would
    # be killed.
    limits = RunOptions(timeout_s=0.0, memory_limit_bytes=1)
    run_dir = make_run(root, "broken", log=not on_ranks, ranks=2 if on_ranks else 1, options=limits)
    executed = EXECUTES.format(path=str(root.parent / "executed"))
    (run_dir / "config.py").write_text(executed)
    (run_dir / "program.pkl").write_bytes(PICKLE % os.fsencode(root.parent / "executed"))
    (run_dir / "output.log").write_text("the last line\n")
    mark = worker_process.new_mark(run_dir.resolve()) if draw.random() < 0.8 else draw.choice(["", "0", "/", "a" * 32])
    note = dataclasses.replace(
        worker_process.Note.of(bystander, mark), pid=draw.choice([bystander, bystander, 1, 0, -1])
    )
    (run_dir / "worker.json").write_text(json.dumps(dataclasses.asdict(note)))
    breakable = [run_dir / name for name in BREAKABLE if (run_dir / name).exists()]
    if on_ranks:
        for rank in range(2):
            folder = run_dir / f"rank{rank}"
            folder.mkdir()
            (folder / event_log.LOG_FILE).write_bytes(
                b"".join(event_log.encode(e) for e in EVENTS[: draw.randrange(3, 19)])
            )
            breakable.append(folder / event_log.LOG_FILE)
    for _ in range(draw.randint(1, 3)):
        path = draw.choice(breakable)
        if path.is_file() and not path.is_symlink() and path.stat().st_size:
            # A file that is not JSON has no values to change.
            with contextlib.suppress(ValueError, RecursionError):
                draw.choice(WAYS)(path, draw)
    for log in run_dir.glob(f"rank*/{event_log.LOG_FILE}"):
        # Make the log so old that its rank does not count as running. Then no thread follows the rank.
        os.utime(log, (0, 0), follow_symlinks=False)
    if draw.random() < 0.1:
        run_dir.rename(root / draw.choice(["new\nline", "\x1b[31m", os.fsdecode(b"\xff\xfe"), "b" * 250]))
    elif draw.random() < 0.05:
        (root / "loop").symlink_to("loop")
        (root / "again").symlink_to(".")


def state_of(folder: Path) -> dict[str, str]:
    """Return a digest of each file in a folder and its subfolders, by relative path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def exercise_store(root: Path, target: Path) -> tuple[int, int]:
    """Use a folder of runs as the workbench uses it. Return the numbers of readable and unreadable runs.

    Assert that this leaves intact runs unchanged.
    """
    before = {name: state_of(root / name) for name in ("whole-1", "whole-2")}
    runs, unreadable = run_store.listing(root)
    names = {run.run_dir.name for run in runs}
    assert {"whole-1", "whole-2"} <= names
    assert all("\n" not in reason and reason.isprintable() for reason in unreadable.values())
    whole = next(run for run in runs if run.run_dir.name == "whole-1")
    assert whole.state == "done"
    assert whole.events == EVENTS
    for run in runs:
        use(run, whole, target)
    for folder in [*run_store.folders(root), root / "loop", root / "none"]:
        for named in (folder, folder.name):
            with contextlib.suppress(WorkbenchError):
                run_store.open(named, root)
    experiments = Experiments(Built(), on_pinned=lambda: None, act=lambda act: act())  # type: ignore[arg-type]
    experiments._load()
    assert not experiments.content["loading"]
    assert {"whole-1", "whole-2"} <= {row["name"] for row in experiments.content["rows"]}
    json.dumps(experiments.content)
    experiments.close()
    for folder in run_store.folders(root):
        if folder.name.startswith("whole"):
            continue
        for act in (
            lambda folder=folder: run_store.pin(folder),
            lambda folder=folder: run_store.pin(folder, False),
            lambda folder=folder: run_store.rename(folder, "renamed"),
            lambda folder=folder: start_run.start(folder) if was_run(folder) else None,
        ):
            with contextlib.suppress(WorkbenchError):
                act()
    assert {name: state_of(root / name) for name in before} == before
    return len(runs), len(unreadable)


def was_run(folder: Path) -> bool:
    """Return whether a run was started in the folder before. If so, a second start must be refused."""
    return (folder / event_log.LOG_FILE).exists()


def use(run: Run, other: Run, target: Path) -> None:
    """Read the results of a run as the command line and the app's tabs do. Then cancel the run."""
    written = json.dumps(run.to_json(), allow_nan=False)
    assert isinstance(written, str)
    assert run.state in (*follow_run.FINAL_STATES, "starting", "compiling", "running")
    assert run.error is None or run.error.isprintable()
    assert run.name.isprintable()
    for warning in run.warnings:
        assert warning.isprintable()
    repr(run)
    _ = (run.detail, run.output, run.phase, run.timeline, run.ranks, run.statements, run.against)
    compare.compare_runs(other, run).to_json()
    compare.compare_runs(run, other).to_json()
    json.dumps(statement_times.chrome_trace(run))
    timeline_content(run.statements, {})
    measured_content(run, {})
    waterfall = Waterfall()
    told: list[events.Event] = []
    run.observe(told.append)
    for event in run.events:
        waterfall.take(event)
    waterfall.content()
    with contextlib.suppress(WorkbenchError):
        memory_snapshot.write_snapshot(run, target / "snapshot.pickle")
    with contextlib.suppress(WorkbenchError):
        run.command(2)
    run.cancel()
    run.wait(1)


def exercise_sweep(folder: Path, draw: random.Random) -> None:
    """Run a sweep without points in a folder, damage one of its files, and run the sweep again."""
    folder.mkdir()
    wanted = sweep.Sweep(program="residual_chain", settings={"layers": []})
    sweep.run(wanted, folder)
    point = sweep.SweepOutcome(
        settings={"layers": "1"}, choices={}, ok=True, error=None, seconds=1.0, figures={}, stages=[], run_dir=""
    )
    sweep._append(folder, point)
    path = folder / draw.choice([sweep.NOTE_FILE, sweep.POINTS_FILE])
    (folder.parent / "thesis.tex").touch()
    inside = folder / path.name
    with contextlib.suppress(ValueError, RecursionError):
        draw.choice(WAYS)(inside, draw)
    with contextlib.suppress(WorkbenchError):
        sweep.run(wanted, folder)


class TooLong(BaseException):
    """The block of `within` took too long. Code that catches `Exception` does not catch this."""


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise `TooLong` if the block takes longer than `seconds`. Use this only in the main thread: it sets a signal."""

    def ring(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def held() -> tuple[int, int]:
    """Return the number of this process's open file descriptors, and the number of threads that follow runs."""
    following = [thread for thread in threading.enumerate() if thread.name.startswith(("follow-", "output-"))]
    return len(os.listdir("/proc/self/fd")), len(following)


@dataclasses.dataclass
class Found:
    """Counts and faults of all damaged folders of runs."""

    stores: int = 0
    readable: int = 0
    unreadable: int = 0
    faults: list[str] = dataclasses.field(default_factory=list)


def break_stores(folder: Path, count: int, first_seed: int, set_root: Callable[[Path], None]) -> Found:
    """Damage one folder of runs for each seed, and use it. Return the counts and the faults."""
    found = Found()
    with subprocess.Popen(["sleep", "36000"], start_new_session=True) as bystander:
        try:
            for seed in range(first_seed, first_seed + count):
                draw = random.Random(seed)
                place = folder / str(seed)
                root = place / "runs"
                root.mkdir(parents=True)
                set_root(root)
                break_store(root, draw, bystander.pid)
                before = held()
                printed = io.StringIO()
                try:
                    with within(60), contextlib.redirect_stdout(printed):
                        readable, unreadable = exercise_store(root, place)
                        exercise_sweep(place / "sweep", draw)
                except (Exception, TooLong):  # noqa: BLE001  # the error is reported as a fault
                    found.faults.append(f"store {seed}: {traceback.format_exc()}")
                else:
                    found.readable += readable
                    found.unreadable += unreadable
                    until_released(before, found, f"store {seed}")
                found.stores += 1
                if (place / "executed").exists():
                    found.faults.append(f"store {seed}: code of the store was executed")
                if (place / "thesis.tex").read_text() != "all of it\n":
                    found.faults.append(f"store {seed}: the target of a link was changed")
                if bystander.poll() is not None:
                    found.faults.append(f"store {seed}: an unrelated process was killed")
                    break
        finally:
            bystander.kill()
    return found


def until_released(before: tuple[int, int], found: Found, what: str) -> None:
    give_up = time.monotonic() + 5
    while (now := held()) > before and time.monotonic() < give_up:
        time.sleep(0.02)
    if now > before:
        found.faults.append(f"{what}: descriptors and threads {before} became {now}")
