"""A sweep on a Dask cluster loses no result if a worker dies during the sweep."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
from distributed import Client, LocalCluster

from tests.cli.schemas import held
from workbench import cli
from workbench.errors import RunError
from workbench.runs.process import follow_run
from workbench.runs.sweep import dask_runs


def test_an_address_without_a_scheduler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_runs, "CONNECT_S", 0.2)
    nowhere = dask_runs.dask("tcp://127.0.0.1:1")
    with pytest.raises(RunError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1 "), nowhere:
        raise AssertionError("it has no workers")


def test_the_folder_of_a_killed_process_is_removed_when_the_next_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    waits = """
import sys
from workbench.runs.sweep import dask_runs
with dask_runs.folder() as made:
    print(made, flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", waits],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with dask_runs.folder() as first:
            assert left.is_dir()
            process.kill()
            process.wait()
            assert left.is_dir()
            with dask_runs.folder() as second:
                assert set(tmp_path.iterdir()) == {first, second}
    assert list(tmp_path.iterdir()) == []


def points_of(pid: int) -> list[psutil.Process]:
    """Return the child processes of a worker that run points of the sweep."""
    return [child for child in psutil.Process(pid).children() if "workbench.runs.sweep.sweep_point" in child.cmdline()]


def kill_a_busy_worker(client: Client, killed: list[psutil.Process]) -> None:
    """Wait until both workers run a point, then kill one worker. Add the process that runs its point to `killed`."""
    pids = list(client.run(os.getpid).values())
    while not all(points_of(pid) for pid in pids):
        time.sleep(0.1)
    killed += points_of(pids[0])
    os.kill(pids[0], signal.SIGKILL)


@pytest.mark.long
@pytest.mark.slow
def test_a_worker_that_dies_loses_one_attempt_and_no_result(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        killed: list[psutil.Process] = []
        killer = threading.Thread(target=kill_a_busy_worker, args=(client, killed))
        killer.start()
        given = ["residual_chain", "--set", "layers=1,2", "--out", str(tmp_path / "out")]
        with pytest.raises(SystemExit) as ended:
            cli.main(["sweep", *given, "--dask", cluster.scheduler_address, "--json"])
        killer.join()
    assert killed
    # When a worker dies, the process that runs the worker's point must end too.
    assert not any(point.is_running() for point in killed)
    document = json.loads(capfd.readouterr().out)
    assert not ended.value.code, document
    held("sweep", document)
    assert [point["settings"]["layers"] for point in document["points"]] == ["1", "2"]
    for point in document["points"]:
        assert point["ok"], point["error"]
        assert Path(point["run_dir"]).is_relative_to(tmp_path / "out")
        assert follow_run.follow(Path(point["run_dir"])).wait().step_s == point["figures"]["step_s"]
