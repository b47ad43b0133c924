"""A command that fails, crashes or is stopped reports this by its exit status and at most one line or document."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import ctypes, os, signal, sys, threading, time
from workbench.cli import entry, main, output

def command(given):
    {body}
    return 0

entry._invoke = command
main()
"""
"""Source of a command line with one command. It does not import torch, because that takes seconds."""


def start(body: str, folder: Path, *arguments: str, start_new_session: bool = False) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT.format(body=body), *arguments]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=start_new_session,
    )


def outcome(body: str, folder: Path, *arguments: str) -> tuple[int, str, str]:
    with start(body, folder, *arguments) as running:
        out, err = running.communicate(timeout=120)
    return running.returncode, out, err


@contextlib.contextmanager
def under_way(body: str, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command, wait until its work begins, and yield its process. At the end, kill the process."""
    with start(f"open('begun', 'w').close()\n    {body}", folder, *arguments, start_new_session=True) as running:
        try:
            while not (folder / "begun").exists():
                assert running.poll() is None, running.communicate()
                time.sleep(0.02)
            yield running
        finally:
            running.kill()


ENDS = [
    ("os._exit(5)", "the program ended the process, with exit status 5"),
    ("os._exit(0)", "the program ended the process, with exit status 0"),
    (
        "ctypes.string_at(0)",
        "the program crashed the process with SIGSEGV (Segmentation fault)",
    ),
    ("os.abort()", "the program crashed the process with SIGABRT (Aborted)"),
    (
        "os.kill(os.getpid(), signal.SIGKILL)",
        "it was killed by SIGKILL (Killed), by hand or by the system when memory ran out",
    ),
    ("os.closerange(3, 100); os._exit(0)", "the program ended the process, with exit status 0"),
]


@pytest.mark.parametrize(("body", "how"), ENDS)
def test_a_process_that_ends_before_the_command_is_done_is_reported(body: str, how: str, tmp_path: Path) -> None:
    status, out, err = outcome(body, tmp_path, "--json")
    assert (status, json.loads(out)) == (1, {"ok": False, "error": f"the command did not complete: {how}"}), err
    assert "Traceback" not in err


def test_without_json_the_report_is_one_line(tmp_path: Path) -> None:
    assert outcome("os._exit(5)", tmp_path) == (
        1,
        "",
        "thunder-workbench: the command did not complete: the program ended the process, with exit status 5\n",
    )


@pytest.mark.parametrize("status", [0, 1, 2])
def test_a_reported_status_stays_even_if_the_process_then_crashes(status: int, tmp_path: Path) -> None:
    body = f"import atexit; atexit.register(os.abort); output.print_json({{'a': 1}}); return {status}"
    assert outcome(body, tmp_path, "--json")[:2] == (status, '{\n  "a": 1\n}\n')


def test_a_background_process_of_the_command_is_not_waited_for(tmp_path: Path) -> None:
    # The command forks a background process, which sleeps longer than `outcome` waits for the command.
    body = "os.fork() or (os.close(1), os.close(2), time.sleep(150), os._exit(0)); os._exit(3)"
    assert outcome(body, tmp_path)[0] == 1


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_an_interrupt_by_ctrl_c_is_reported(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with under_way("time.sleep(60)", tmp_path, *arguments) as running:
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=120)
    assert running.returncode == 130
    if arguments:
        assert (json.loads(out), err) == ({"ok": False, "error": "interrupted"}, "")
    else:
        assert (out, err) == ("", "thunder-workbench: interrupted\n")


def test_ctrl_c_at_a_terminal_reaches_both_processes_and_counts_once(tmp_path: Path) -> None:
    body = """
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        time.sleep(0.4)
        output.print_json({'cleaned': 'up'})
        raise
"""
    with under_way(body, tmp_path) as running:
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=120)
    assert (running.returncode, json.loads(out), err) == (130, {"cleaned": "up"}, "thunder-workbench: interrupted\n")


def test_ctrl_c_works_if_the_program_removed_the_handler(tmp_path: Path) -> None:
    with under_way("signal.signal(2, signal.SIG_DFL); time.sleep(60)", tmp_path, "--json") as running:
        time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=120)
    assert (running.returncode, json.loads(out)["error"]) == (130, "interrupted")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_both_processes_together(signum: signal.Signals, tmp_path: Path) -> None:
    with under_way("time.sleep(60)", tmp_path, "--json") as running:
        child = psutil.Process(running.pid).children()[0]
        running.send_signal(signum)
        assert running.communicate(timeout=120) == ("", "")
    assert running.returncode == -signum
    assert not child.is_running()


def test_a_kill_leaves_no_process(tmp_path: Path) -> None:
    with under_way("time.sleep(60)", tmp_path) as running:
        child = psutil.Process(running.pid).children()[0]
        running.kill()
        psutil.wait_procs([child], timeout=120)
        assert not child.is_running()


def test_a_signal_that_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with under_way("time.sleep(1.5)", tmp_path) as running:
            running.send_signal(signal.SIGINT)
            assert running.wait(120) == 0
    finally:
        signal.signal(signal.SIGINT, before)


PRINTS = "output.print_line('a line'); output.print_table(output.rows_table('b', {'c': 'd'}))"


def redirected(body: str, folder: Path, redirection: str, *arguments: str) -> tuple[int, str, str]:
    (folder / "script.py").write_text(SCRIPT.format(body=body))
    command = f"{sys.executable} script.py {' '.join(arguments)} {redirection}"
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("redirection", "why"), [("> /dev/full", "no space left on device"), (">&-", "bad file descriptor")]
)
@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        (PRINTS, ()),
        ("output.print_json({})", ("--json",)),
        ("return entry.typer.main.get_command(entry.app).main(['plan', '--help'], standalone_mode=False)", ()),
    ],
    ids=["table", "json", "help"],
)
def test_unwritable_output_is_reported(
    body: str, arguments: tuple[str, ...], redirection: str, why: str, tmp_path: Path
) -> None:
    status, out, err = redirected(body, tmp_path, redirection, *arguments)
    assert (status, out, err) == (1, "", f"thunder-workbench: standard output cannot be written: {why}\n")


@pytest.mark.parametrize("body", [PRINTS, "output.complain('x'); raise ValueError"])
def test_a_command_without_standard_streams_works(body: str, tmp_path: Path) -> None:
    assert redirected(body, tmp_path, "<&- >&- 2>&-") == (1, "", "")


def test_an_opened_file_does_not_get_the_descriptor_of_a_closed_stream(tmp_path: Path) -> None:
    body = "file = open('mine', 'w'); os.write(1, b'lost') if os.fstat(1).st_mode & 0o100000 else None; return 0"
    assert redirected(body, tmp_path, ">&-")[0] == 0
    assert (tmp_path / "mine").read_text() == ""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", ["", "--json"])
def test_if_the_reader_closes_the_pipe_the_command_ends_silently(
    unbuffered: str, arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    body = "time.sleep(0.5); " + ("output.print_json({})" if arguments else PRINTS)
    status, out, err = redirected(body, tmp_path, "| true; exit ${PIPESTATUS[0]}", arguments)
    assert (status, out, err) == (141, "", "")


def test_if_the_reader_closes_the_pipe_the_help_ends_silently(tmp_path: Path) -> None:
    """After the reader has ended, the command prints by `typer.echo`, which the help uses too."""
    body = "time.sleep(0.5); import typer; typer.echo('x')"
    assert redirected(body, tmp_path, "| true; exit ${PIPESTATUS[0]}") == (141, "", "")


def test_characters_that_a_terminal_cannot_show_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    status, out, _ = outcome("output.print_line('Größe ✓')", tmp_path)
    assert (status, out) == (0, "Gr\\xf6\\xdfe \\u2713\n")


def test_a_program_may_close_standard_output(tmp_path: Path) -> None:
    status, out, err = outcome(f"sys.stdout.close(); {PRINTS}", tmp_path)
    assert (status, out) == (1, "")
    assert err == "thunder-workbench: standard output cannot be written: I/O operation on closed file.\n"
    status, out, err = outcome("sys.stdout.close(); os.close(1); output.print_json({})", tmp_path, "--json")
    assert (status, out) == (0, "{}\n")


def test_a_defect_gives_one_line_and_a_traceback_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = outcome("1 / 0", tmp_path, "--json")
    assert (status, err) == (1, "")
    assert json.loads(out)["error"] == (
        "a defect of the workbench, please report it: ZeroDivisionError: division by zero (<string>:6); "
        "WORKBENCH_TRACEBACK=1 prints the whole traceback"
    )
    monkeypatch.setenv("WORKBENCH_TRACEBACK", "1")
    assert "Traceback" in outcome("1 / 0", tmp_path, "--json")[2]
