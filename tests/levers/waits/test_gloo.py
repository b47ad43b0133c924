"""Runs on ranks with gloo: reordered collectives give the results of stock, and the failure of a rank is reported."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch

import workbench as wb
from tests.levers.waits import forked, orders_on_ranks
from tests.levers.waits.orders_on_ranks import ALONE, Net
from tests.runs.test_faults import LONG
from tests.runs.test_run_processes import QUICK, File, until
from tests.trial_counts import amount
from workbench import cli
from workbench.cli.statuses import DONE, FAILED
from workbench.errors import RunError
from workbench.runs.log import event_log, events
from workbench.runs.process import follow_run, rank_launcher, reaper, request, run_store, start_run
from workbench.runs.process.follow_run import Run
from workbench.runs.process.request import RunOptions

POLICIES, PLACEMENTS = amount(2, 6, 6), amount(1, 4, 4)
LLAMA = {"layers": 1, "dim": 8, "heads": 2, "vocab": 11, "sequence": 4, "batch": 1}
MLP = {"layers": 1, "dim": 8, "hidden": 16, "batch": 4}
SCRIPT = Path(orders_on_ranks.__file__)
pytestmark = pytest.mark.slow
LATE = {"waits.issue": "consumer", "waits.wait": "late", "waits.gradients": "earliest"}

MODULE = """
RANK = os.environ["RANK"]

def make():
    {here}
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()), (torch.ones(2, 4),)
"""

DIES_WHILE_IT_IS_TIMED = """
    import threading

    def die():
        log = os.path.join(sys.argv[1], "rank1", "events.jsonl")
        while '"phase":"time"' not in open(log).read():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    if RANK == "1":
        threading.Thread(target=die, daemon=True).start()
"""

TAKES_MORE_THAN_IS_ALLOWED = """
    if RANK == "1":
        held = torch.ones(1 << 28)
    time.sleep(100)
"""

TAKES_MORE_THAN_THERE_IS = """
    import resource

    if RANK == "1":
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), -1))
        torch.ones(1 << 30)
"""


def begin(folder: Path, here: str, options: RunOptions = QUICK) -> Run:
    """Start a run of a small module on two ranks. The factory of the module first executes the source text `here`."""
    program = File(MODULE.format(here=here.strip()))
    return start_run.start(request.prepare(folder / "run", program, options=options, ranks=2, parallel="fsdp"))


def assert_nothing_left(run: Run) -> None:
    """Assert that the run left no process and no temporary file.

    Assert also that the run, opened again from its log, has the same state, error and events.
    """
    assert run._worker is not None
    assert reaper.marked_processes(run._worker.mark) == []
    assert not (run.run_dir / request.SCRATCH).exists()
    again = run_store.open(run.run_dir)
    assert (again.state, again.error, again.events) == (run.state, run.error, run.events)


def listening(run: Run, while_: Callable[[], bool]) -> set[str]:
    """While the condition is true, watch a run's processes. Return the addresses at which they listened."""
    assert run._worker is not None
    found: set[str] = set()
    while while_():
        for pid in reaper.marked_processes(run._worker.mark):
            with contextlib.suppress(psutil.Error):
                asked = psutil.Process(pid).net_connections("inet")
                found |= {one.laddr.ip for one in asked if one.status == psutil.CONN_LISTEN}
        time.sleep(0.2)
    return found


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_order_trains_as_stock_and_eager_do(tmp_path: Path) -> None:
    """Try a sample of orders. benchmarks/collectives/bench_gloo_training.py tries far more, on 2 and on 4 ranks."""
    told = forked.run(tmp_path, 4, SCRIPT, "fsdp_zero3", "fsdp,ddp", POLICIES, PLACEMENTS, 0)
    for rank in told:
        orders = rank["orders"]
        assert [order for order in orders if not order["ok"] and order["order"] != ALONE] == []
        alone = [(order["ranks"], order["ok"]) for order in orders if order["order"] == ALONE]
        assert alone == [(4, False), (2, False)]
        tensors = {name for order in orders for name in order["names"]}
        assert {"buffer(norm.running_var)", "buffer(seen)", "parameter(stem.bias)", "grad(stem.bias)"} <= tensors
    by_hand = Counter(
        (order["ranks"], order["kind"])
        for rank in told
        for order in rank["orders"]
        if order["order"].startswith("by hand")
    )
    assert by_hand == {(c, kind): c * PLACEMENTS for c, kind in ((4, "fsdp_zero3"), (2, "fsdp"), (2, "ddp"))}


@pytest.mark.long
def test_a_users_module_runs_on_two_ranks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    bench = wb.open(Net(), torch.randn(2, 3, 4, 4), ranks=2, parallel="fsdp", device="cpu", executor="torch")
    bench.choose(LATE)
    run = bench.run(folder=tmp_path / "run", options=RunOptions(samples=3, sampling_s=1.0))
    assert listening(run, lambda: run.state not in follow_run.FINAL_STATES) == {"127.0.0.1"}
    assert run.ok, (run.error, run.detail, run.output)
    assert bench.runs == (run,)
    assert run.memory["measured_peak_bytes"] is not None
    assert [rank["reason"] for rank in run.ranks] == ["", ""]
    assert run.step_s == max(rank["step_s"] for rank in run.ranks)
    assert run.compile_s == max(rank["compile_s"] for rank in run.ranks)
    assert run.accuracy is not None
    assert run.accuracy.against == "thunder.jit and eager"
    names = {tensor.name for tensor in run.accuracy.tensors}
    for rank in (0, 1):
        assert {f"rank {rank}: parameter(stem.weight)", f"rank {rank}: buffer(norm.running_mean)"} <= names
        # Each rank's log is a complete run log.
        log = event_log.read_events(rank_launcher.folder_of(run.run_dir, rank))
        assert isinstance(log[0], events.Started)
        assert isinstance(log[-1], events.Finished)
        assert [event.proven for event in log if isinstance(event, events.Compiled)] == [True]
    assert run.to_json()["ranks"] == run.ranks
    assert_nothing_left(run)
    # If a user starts the ranks, no merged log is written. The logs of the ranks must give the same figures.
    (run.run_dir / event_log.LOG_FILE).unlink()
    again = run_store.open(run.run_dir)
    assert (again.state, again.step_s, again.ranks) == (run.state, run.step_s, run.ranks)
    assert again.accuracy == run.accuracy


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("program", "parallel", "count", "settings", "at_a_port"),
    [
        ("fsdp_llama", "fsdp_zero3", 2, LLAMA, False),
        ("tensor_parallel_mlp", "tensor", 2, MLP, True),
        ("tensor_parallel_mlp", "tensor", 4, MLP, False),
    ],
)
def test_builtin_programs_run_on_ranks_that_other_machines_cannot_reach(
    program: str, parallel: str, count: int, settings: dict[str, int], at_a_port: bool, tmp_path: Path
) -> None:
    bench = wb.open(program, ranks=count, parallel=parallel, device="cpu", executor="torch", settings=settings)
    bench.choose(LATE)
    port = free_port() if at_a_port else None
    options = dataclasses.replace(QUICK, check_accuracy=True, threads=None, port=port)
    run = bench.run(folder=tmp_path / "run", options=options)
    assert listening(run, lambda: run.state not in follow_run.FINAL_STATES) == {"127.0.0.1"}
    assert run.ok, (run.error, run.detail, run.output)
    assert [rank["reason"] for rank in run.ranks] == [""] * count
    assert run.accuracy is not None
    assert run.accuracy.against == "thunder.jit and eager"
    assert {tensor.name.partition(":")[0] for tensor in run.accuracy.tensors} == {f"rank {n}" for n in range(count)}
    assert_nothing_left(run)


@pytest.mark.long
def test_if_a_rank_is_killed_during_a_step_the_others_end_and_the_error_names_the_rank(tmp_path: Path) -> None:
    run = begin(tmp_path, DIES_WHILE_IT_IS_TIMED, LONG).wait(200)
    assert run.state == "failed"
    assert run.error == "rank 1: was killed by SIGKILL, by hand or by the system when memory ran out"
    assert run.compile_s is not None
    assert run.ranks[0]["reason"] != ""
    assert_nothing_left(run)


@pytest.mark.long
def test_a_rank_out_of_memory_is_reported(tmp_path: Path) -> None:
    run = begin(tmp_path, TAKES_MORE_THAN_THERE_IS).wait(200)
    assert run.state == "failed"
    assert run.error is not None
    assert run.error.startswith("rank 1: out of memory:")
    assert "torch.ones(1 << 30)" in run.detail
    assert_nothing_left(run)


@pytest.mark.long
def test_a_rank_over_the_memory_limit_is_named(tmp_path: Path) -> None:
    run = begin(tmp_path, TAKES_MORE_THAN_IS_ALLOWED, dataclasses.replace(QUICK, memory_limit_bytes=1 << 30)).wait(200)
    assert run.state == "failed"
    assert run.error is not None
    assert re.fullmatch(r"rank 1: out of memory: \d+ bytes in use, over the limit of 1073741824", run.error)
    assert "out of memory" not in run.ranks[0]["reason"]
    assert_nothing_left(run)


def test_cancel_ends_all_ranks(tmp_path: Path) -> None:
    run = begin(tmp_path, "", LONG)
    until(run, lambda: run.phase == "time", 200)
    run.cancel()
    assert run.state == "cancelled"
    assert_nothing_left(run)


def test_ranks_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    folder = request.prepare(tmp_path / "run", File(MODULE.format(here="")), options=LONG, ranks=2, parallel="fsdp")
    asker = subprocess.Popen(
        [sys.executable, "-c", "import sys, pathlib; from workbench.runs.process import start_run\n"
         "start_run.start(pathlib.Path(sys.argv[1])).wait()", str(folder)]
    )  # fmt: skip
    try:
        while not (folder / "rank1" / event_log.LOG_FILE).exists():
            assert asker.poll() is None
            time.sleep(0.05)
        run = run_store.open(folder)
        until(run, lambda: run.phase == "time", 200)
    finally:
        asker.kill()
        asker.wait()
    run.wait(120)
    assert run.state == "failed"
    assert run._worker is not None
    assert reaper.marked_processes(run._worker.mark) == []
    assert "without a terminal event" in (run_store.open(folder).error or "")
    assert not (folder / request.SCRATCH).exists()


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        run = begin(tmp_path, "", dataclasses.replace(QUICK, port=port)).wait(100)
    assert run.error == (
        f"port {port} cannot be used: address already in use; give another port, or no port: on one machine a file "
        f"is used instead"
    )
    assert_nothing_left(run)


def test_the_command_for_several_machines_is_printed(tmp_path: Path) -> None:
    bench = wb.open(torch.nn.Linear(4, 4), torch.ones(2, 4), ranks=4, parallel="ddp", device="cpu", executor="torch")
    run = Run(bench.prepare(folder=tmp_path / "run"))
    assert run.command(2) == (
        f"torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-id run --rdzv-endpoint $HEAD:29400 "
        f"-m workbench.runs.worker.rank_worker {tmp_path / 'run'}"
    )
    with pytest.raises(
        RunError, match="4 ranks cannot be divided equally among 3 machines; give a number that divides 4"
    ):
        run.command(3)


def test_the_command_line_makes_a_folder_to_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(run_store.ROOT_VARIABLE, str(tmp_path))
    program = ["fsdp_llama", "--set", "layers=1", "--device", "cpu", "--ranks", "4"]
    with pytest.raises(SystemExit) as end:
        cli.main(["run", *program, "--submit", "2", "--json"])
    assert end.value.code == DONE
    told = json.loads(capfd.readouterr().out)
    folder = Path(told["run_dir"])
    assert told["command"].startswith("torchrun --nnodes 2 --nproc-per-node 2 ")
    assert told["command"].endswith(f" {folder}")
    assert request.read_request(folder).ranks == 4
    assert run_store.open(folder).error == "the run was never started, or ended before it wrote anything"
    with pytest.raises(SystemExit) as end:
        cli.main(["run", *program, "--submit", "3", "--json"])
    assert end.value.code == FAILED
    assert "4 ranks cannot be divided equally among 3 machines" in json.loads(capfd.readouterr().out)["error"]
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.long
def test_manually_started_ranks_are_followed_and_cancelled_through_the_runs_folder(tmp_path: Path) -> None:
    folder = request.prepare(tmp_path / "run", File(MODULE.format(here="")), options=LONG, ranks=2, parallel="fsdp")
    arguments = rank_launcher.torchrun_arguments(folder, 2, machines=2, host="127.0.0.1", port=free_port())
    machines = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--local-addr", "127.0.0.1", *arguments],
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for _ in range(2)
    ]
    try:
        while not all((folder / f"rank{rank}" / event_log.LOG_FILE).exists() for rank in range(2)):
            assert all(machine.poll() is None for machine in machines)
            time.sleep(0.05)
        run = run_store.open(folder)
        until(run, lambda: run.phase == "time", 200)
        run.cancel()
        assert run.state == "cancelled"
        assert [rank["reason"] for rank in run.ranks] == ["cancelled", "cancelled"]
        assert [machine.wait(120) for machine in machines] == [1, 1]
        assert run_store.open(folder).state == "cancelled"
    finally:
        for machine in machines:
            machine.terminate()
            machine.wait()


def test_too_few_gpus_are_an_error_that_names_the_torchrun_command(tmp_path: Path) -> None:
    program = File(MODULE.format(here=""))
    folder = request.prepare(tmp_path / "run", program, ranks=1024, parallel="fsdp")
    spec = json.loads((folder / request.REQUEST_FILE).read_text())
    spec["program"]["device"] = "cuda"
    (folder / request.REQUEST_FILE).write_text(json.dumps(spec))
    with pytest.raises(RunError, match=r"1024 ranks need 1024 GPUs, but \d+ are attached here; .*torchrun --nnodes"):
        start_run.start(folder)
    shutil.rmtree(folder)
