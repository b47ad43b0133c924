"""Malformed config files and command lines do no harm. `benchmarks/faults/abuse_cli.py` tries many more of them."""

import collections
from pathlib import Path

import pytest

from benchmarks.faults import abuse_cli


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path / "runs"))
    abuse_cli.furnish(tmp_path)
    return tmp_path


def test_malformed_config_files_do_no_harm(folder: Path) -> None:
    outcomes = collections.Counter(abuse_cli.abuse_config(seed, folder) for seed in range(5000, 5100))
    assert outcomes["refused"] > outcomes["read"] > 5


def test_malformed_command_lines_do_no_harm(folder: Path) -> None:
    outcomes = collections.Counter(abuse_cli.abuse_line(seed, folder) for seed in range(9000, 9012))
    assert outcomes[2] >= 5


@pytest.mark.slow
def test_a_crash_of_the_process_is_reported(folder: Path) -> None:
    at = next(n for n, (line, _, _) in enumerate(abuse_cli.PROCESSES) if "crash.py:crashes" in line)
    assert abuse_cli.abuse_process(at, 0, folder) == 1


def test_the_abuse_test_notices_executed_input_and_destroyed_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abuse_cli, "load", lambda path: exec(path.read_text()))
    monkeypatch.setattr(abuse_cli, "config_bytes", lambda _: abuse_cli.EXECUTED.encode())
    monkeypatch.chdir(folder)
    with pytest.raises(AttributeError):
        abuse_cli.abuse_config(0, folder)
    with pytest.raises(AssertionError, match="something was executed"):
        abuse_cli._check_left(folder, abuse_cli._state(folder))
    (folder / abuse_cli.CANARY).unlink()
    before = abuse_cli._state(folder)
    (folder / "script.sh").chmod(0o600)
    with pytest.raises(AssertionError, match=r"destroyed: \['script.sh'\]"):
        abuse_cli._check_left(folder, before)
