"""Try invalid config files and command lines.

No case may print a traceback, hang, execute code of the config file, or destroy a file. This file has more than 600
lines, because there are many kinds of errors.

``python benchmarks/faults/abuse_cli.py [--configs 2000] [--lines 500] [--processes 40] [--seed 0]`` prints the counts,
and each fault with its case. With a fault, the exit status is 1. `tests/cli/test_abuse.py` runs about a hundred of
these cases.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from workbench import cli
from workbench.analysis.fit import milp_process
from workbench.core.config import Config, load, parse
from workbench.errors import WorkbenchError

MOST_S = 20.0
"""Limit of a case in CPU seconds. Most cases take milliseconds. A plan takes 1 s, importing PyTorch a few seconds."""
CANARY = "canary"
"""Name of the file that the code in a config would write if it were executed."""
EXECUTED = f"__import__('pathlib').Path({CANARY!r}).touch()"

PROGRAM = """
import torch

def good(size: int = 3):
    return torch.sin, (torch.ones(size),)

def raises():
    raise RuntimeError("no \\x1b[31m luck\\udcff")

def exits():
    raise SystemExit(7)

class Odd(BaseException):
    def __str__(self):
        raise ValueError

def odd():
    raise Odd

def interrupted():
    raise KeyboardInterrupt

def nothing():
    return None

def wrong():
    return 5, 6

def goes_away():
    import os
    os.chdir("/")
    return good()

def untraceable():
    def f(x):
        raise SystemExit(x)
    return f, (torch.ones(3),)
"""
CRASHES = """
import ctypes, os, torch

def dies():
    os._exit(0)

def crashes():
    ctypes.string_at(0)

def aborts():
    os.abort()

def closes():
    os.closerange(0, 200)
    os._exit(1)
"""


# Config files.

type Mutation = Callable[[random.Random, bytes], bytes]

BASE = Config(
    program="swap",
    executor="torch",
    device="cpu",
    settings={"layers": 12, "dtype": "float32", "p": 0.5, "grad": True},
    choices={"saved:layers.2.mlp/mul": "recompute", "saved.place": "before", "remat.preset": "every=4"},
    fingerprint="9f2c41d0",
    versions={"torch": "2.10.0"},
    ranks=2,
    parallel="ddp",
)
STEERING = ["\x1b[31m", "\x1b]0;x\x07", "\x9b2J", "\u202e", "\u2028", "\x7f", "\r", "\x0c", "\0", "\x85", "\ufeff"]
CODE = [
    EXECUTED,
    f"(lambda: {EXECUTED})()",
    f"[{EXECUTED} for _ in (1,)]",
    f"(x := {EXECUTED})",
    f'f"{{{EXECUTED}}}"',
    f"*[{EXECUTED}]",
    f"**{{'program': {EXECUTED}}}",
    f"{{**{EXECUTED}}}",
    f"{EXECUTED} if 1 else 2",
    f"__import__('os').system('touch {CANARY}')",
    "1 + 2j",
    "...",
    "b'x'",
    "not 1",
    "-'a'",
    "{1, 2}",
    "print",
    "a.b",
    "await x",
    "yield",
    "'a' 'b'",
    "'a' % 1",
    "1 < 2",
    "[1][0]",
]
STATEMENTS = [
    EXECUTED,
    f"import {CANARY}",
    "from os import *",
    f"class A:\n    {EXECUTED}",
    f"@{EXECUTED}\ndef f(): pass",
    f"def f(x={EXECUTED}): pass",
    f"with open({CANARY!r}, 'w'): pass",
    f"try:\n    1/0\nexcept ZeroDivisionError:\n    {EXECUTED}",
    "while True: pass",
    f"config: {EXECUTED} = 1",
    "config = wb.Config(program='a', executor='torch', device='cpu')",
    "del config",
    "global x",
    "raise SystemExit(0)",
    "assert False",
    "match 1:\n    case _: pass",
    "type X = int",
    "'only a text'",
    "if 1:\n" + "".join(" " * n + "if 1:\n" for n in range(1, 98)) + " " * 98 + "pass",
]
NUMBERS = ["9" * 5000, "0x" + "f" * 20_000, "1e999", "-1e999", "0b" + "1" * 5000, "1_0", "1__0", "0777", "-1", "1e-400"]


def _values(draw: random.Random) -> str:
    kinds: list[Callable[[], str]] = [
        lambda: draw.choice(CODE),
        lambda: draw.choice(NUMBERS),
        lambda: repr(draw.choice(STEERING) * draw.randint(1, 50)),
        lambda: f"'{draw.choice(STEERING)}'",
        lambda: "'" + "a" * draw.choice([10, 1000, 300_000]) + "'",
        lambda: (
            draw.choice(["(", "[", "{1:", "-", "not ", "~", "lambda:", "f'{", "a(", "a["]) * draw.choice([5, 150, 5000])
        ),
        lambda: "{" * 150 + "}" * 150,
        lambda: "[" * draw.choice([50, 199, 250]) + "]" * draw.choice([50, 199, 250]),
        lambda: "{" + ",".join(f"'k{n}': 'v'" for n in range(draw.choice([1, 100, 5000]))) + "}",
        lambda: "{" + "'k': 'v'," * draw.choice([2, 2000]) + "}",
        lambda: "(" + "'a' " * draw.choice([2, 20_000]) + ")",
        lambda: "(" + "f'{a}' " * draw.choice([2, 20_000]) + ")",
        lambda: draw.choice(["None", "True", "1", "1.5", "[]", "{}", "()", "''", "{1: 2}", "{'a': None}", "{(): []}"]),
        lambda: repr(chr(draw.randrange(0x110000)) * 3),
    ]
    return draw.choice(kinds)()


def _replaced_value(draw: random.Random, data: bytes) -> bytes:
    lines = data.decode().splitlines(keepends=True)
    at = draw.choice([n for n, line in enumerate(lines) if "=" in line and line.startswith("    ")])
    head = lines[at].partition("=")[0]
    lines[at] = f"{head}={_values(draw)},\n"
    return "".join(lines).encode(errors="surrogatepass")


def _added_field(draw: random.Random, data: bytes) -> bytes:
    name = draw.choice(["colour", "program", "format_version", "Ranks", "é", "_" * 5000, "print()", "*a", "**a", "a.b"])
    return data.replace(b"    device=", f"    {name}={_values(draw)},\n    device=".encode(errors="surrogatepass"), 1)


def _added_statement(draw: random.Random, data: bytes) -> bytes:
    statement = f"\n{draw.choice(STATEMENTS)}\n".encode()
    at = draw.choice([0, data.index(b"import workbench as wb\n\nconfig"), data.index(b"config = wb"), len(data)])
    return data[:at] + statement + data[at:]


def _flipped(draw: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 3, 30])):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _spliced(draw: random.Random, data: bytes) -> bytes:
    a, b, at = (draw.randrange(len(data)) for _ in range(3))
    return data[:at] + data[min(a, b) : max(a, b)] + data[at:]


def _dropped(draw: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    for _ in range(draw.randint(1, 3)):
        del lines[draw.randrange(len(lines))]
    draw.random() < 0.3 and draw.shuffle(lines)
    return b"".join(lines)


def _inserted(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data))
    text = draw.choice([*STEERING, *CODE, "\\", "'", '"""', "#", ";", "\t", "\x1a", "\u00a0", "\\N{DIGIT ONE}"])
    return data[:at] + text.encode(errors="surrogatepass") * draw.choice([1, 1, 200]) + data[at:]


def _encoded(draw: random.Random, data: bytes) -> bytes:
    text = data.decode()
    odd = f"# -*- coding: {draw.choice(['latin-1', 'utf-7', 'rot13', 'utf-16', 'no such'])} -*-\n"
    return draw.choice(
        [
            lambda: text.encode("utf-16"),
            lambda: text.encode("utf-32"),
            lambda: text.encode("utf-7"),
            lambda: text.encode("cp500"),
            lambda: b"\xef\xbb\xbf" * draw.randint(1, 3) + data,
            lambda: b"\xff\xfe" + data,
            lambda: odd.encode() + data,
            lambda: data.replace(b"\n", draw.choice([b"\r", b"\r\n", b"\x0b", b"\x0c", b"\0"])),
            lambda: data.replace(b"swap", draw.choice([b"caf\xe9", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\0"])),
            lambda: data + draw.choice([b"\0", b"\x1a", b"#" * (3 << 20), b"\n" * 1_000_000, b" " * 1_000_000]),
            lambda: bytes(draw.randrange(256) for _ in range(draw.randint(0, 2000))),
        ]
    )()


MUTATIONS: list[Mutation] = [
    _flipped,
    lambda draw, data: data[: draw.randrange(len(data))],
    _replaced_value,
    _replaced_value,
    _replaced_value,
    _added_field,
    _added_statement,
    _dropped,
    _spliced,
    _inserted,
    _encoded,
]


def config_bytes(seed: int) -> bytes:
    """Return a valid config file after one to three random mutations."""
    draw = random.Random(seed)
    data = BASE.text().encode()
    for mutate in draw.choices(MUTATIONS, k=draw.choice([1, 1, 2, 3])):
        with contextlib.suppress(UnicodeDecodeError, ValueError, IndexError):  # some mutations apply only to valid text
            data = mutate(draw, data) or b" "
    return data


def abuse_config(seed: int, folder: Path) -> str:
    """Load a mutated config file. Return ``read`` or ``refused``. A fault raises an error."""
    path = folder / "choices.py"
    path.write_bytes(config_bytes(seed))
    begun, usage = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        config = load(path)
    except WorkbenchError as error:
        message, what = str(error), "refused"
        assert message.isprintable(), f"control characters in a message: {message!r}"
        assert len(message) < 2000, f"a message of {len(message)} characters"
        assert "choices.py" in message, message
    else:
        what = "read"
        # If the config was read, writing it and reading it again must give an equal config.
        text = config.text()
        assert parse(text) == config
        config.write(folder / "again.py", overwrite=True)
    took_s = time.process_time() - begun
    assert took_s < MOST_S, f"took {took_s:.1f} s"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - usage < 2 << 20, "took more than 2 GiB"
    assert not (folder / CANARY).exists(), "something was executed"
    return what


# Command lines.

NAMES = [
    "",
    ".",
    "..",
    "/",
    "~no such user",
    "~",
    "-",
    "--",
    "x" * 5000,
    "a/" * 2500,
    os.fsdecode(b"\xff\xfe"),
    "\x1b[31mred",
    "\x9b2J\u202e",
    "new\nline",
    "good.py",
    "mine.py",
    "script.sh",
    "loop.py",
    "pipe.py",
    "folder",
    "gone/c.py",
    "/dev/null",
    "/dev/full",
    "/dev/stdin",
    "/proc/self/mem",
    "%s%n",
    "[red]x[/]",
    "{}",
    "$(touch canary)",
    "`touch canary`",
    "; touch canary",
    "🙂.py",
    "\ufeff",
    "trace.json",
]
PROGRAMS = [
    "swap",
    "swap",
    "swap",
    "mlp",
    "mpl",
    "p.py:good",
    "p.py:good",
    "p.py:raises",
    "p.py:exits",
    "p.py:odd",
    "p.py:interrupted",
    "p.py:nothing",
    "p.py:wrong",
    "p.py:goes_away",
    "p.py:untraceable",
    "p.py",
    "p.py:",
    "p.py:gone",
    "p.py:torch",
    ":",
    "::",
    "p.py:good:good",
]
IDS = [
    "remat.preset=every=4",
    "saved:a=b",
    "=",
    "a=",
    "=b",
    "a",
    "saved.place=before",
    "saved:x=y=z",
    "a" * 5000 + "=b",
]


def _line(draw: random.Random) -> list[str]:
    name = lambda: draw.choice(NAMES)  # noqa: E731  # a new random name each time
    program = lambda: draw.choice([*PROGRAMS, name(), f"{name()}:f", f"{name()}.py:f"])  # noqa: E731
    number = lambda: draw.choice(["0", "1", "2", "-1", "x", "9" * 30, "", "1.5", "nan", "0x1"])  # noqa: E731
    options: dict[str, Callable[[], list[str]]] = {
        "--set": lambda: ["--set", draw.choice(["layers=1", "layers=x", "a=b", "=", "", name(), f"{name()}={name()}"])],
        "--choose": lambda: ["--choose", draw.choice([*IDS, name(), f"{name()}={name()}"])],
        "--config": lambda: ["--config", name()],
        "--device": lambda: ["--device", draw.choice(["cpu", "cpu", "planned", "cuda", "tpu", "", name()])],
        "--executor": lambda: ["--executor", draw.choice(["torch", "torchcompile", "nvfuser", "xla", name()])],
        "--ranks": lambda: ["--ranks", number()],
        "--parallel": lambda: ["--parallel", draw.choice(["ddp", "fsdp", "tensor", "", name()])],
        "--sites": lambda: ["--sites", draw.choice(["saved", "remat", "save", name()])],
        "--export": lambda: ["--export", name()],
        "--machine": lambda: ["--machine", draw.choice(["H100", name()])],
        "--trace": lambda: ["--trace", name()],
        "--search-waits": lambda: ["--search-waits"],
        "--limit-bytes": lambda: ["--limit-bytes", number()],
        "--json": lambda: ["--json"],
        "odd": lambda: [draw.choice([name(), "--" + name(), "-x", "--json=1", "--set", "--", "-h"])],
    }
    command = draw.choice(["plan"] * 12 + ["run", "sweep", "compare", "programs", "doctor", "plna", name()])
    line = [command]
    if command == "plan":
        line.append(program())
        for key in draw.sample(list(options), draw.randint(0, 4)):
            line += options[key]()
    elif command == "run":
        # The program or an option is invalid, so that no run starts.
        wrong = draw.choice(
            [
                ["p.py:raises"],
                ["gone.py:f"],
                ["swap", "--samples", "0"],
                ["swap", "--against", name()],
                ["swap", "--device", "planned"],
                ["swap", "--trace", "/dev/full"],
                ["swap", "--memory-snapshot", "pipe.py"],
                ["swap", "--choose", "="],
            ]
        )
        line += wrong
    elif command == "sweep":
        line += [draw.choice(["mpl", "p.py:gone", name()]), "--set", draw.choice(["layers=", "x", "=1", "layers=1,x"])]
    elif command == "compare":
        line += [name() for _ in range(draw.randint(0, 3))]
    if draw.random() < 0.3:
        line.append("--json")
    if draw.random() < 0.1:
        draw.shuffle(line)
    return [each.replace("\0", "") for each in line]


PRECIOUS = {"mine.py": "print('mine')\n", "script.sh": "#!/bin/sh\ntouch canary\n", "p.py": PROGRAM, "trace.json": "{}"}
MODES = {"script.sh": 0o750, "mine.py": 0o640}


def furnish(folder: Path) -> None:
    """Write into a folder the files that command lines name. Commands must not change the files of `_state`."""
    for name, text in PRECIOUS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(MODES.get(name, 0o644))
    (folder / "crash.py").write_text(CRASHES)
    BASE.write(folder / "good.py")
    (folder / "loop.py").symlink_to("loop.py")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe.py")


def _state(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Return the state that no command may change: kinds and modes of files, contents of some, and two devices."""
    found = {}
    for name in (*PRECIOUS, "crash.py", "loop.py", "folder", "pipe.py"):
        if name == "trace.json":
            continue  # a command may overwrite a trace file
        there = (folder / name).lstat()
        text = hashlib.sha256((folder / name).read_bytes()).hexdigest() if name in PRECIOUS else ""
        found[name] = (there.st_mode, there.st_ino if name != "mine.py" else 0, text)
    for device in ("/dev/null", "/dev/full"):
        there = os.stat(device)
        found[device] = (there.st_mode, there.st_rdev, "")
    return found


@contextlib.contextmanager
def _captured() -> Iterator[tuple[Path, Path]]:
    """Redirect both standard streams to files. Replace the descriptors, so that output of C code is captured too."""
    with tempfile.TemporaryDirectory() as name:
        paths = Path(name) / "out", Path(name) / "err"
        kept = [os.dup(1), os.dup(2)]
        streams = sys.stdout, sys.stderr
        for stream in streams:
            stream.flush()
        for descriptor, path in zip((1, 2), paths, strict=True):
            opened = os.open(path, os.O_WRONLY | os.O_CREAT)
            os.dup2(opened, descriptor)
            os.close(opened)
        sys.stdout = io.TextIOWrapper(
            os.fdopen(1, "wb", closefd=False), "utf-8", "surrogateescape", line_buffering=True
        )
        sys.stderr = io.TextIOWrapper(
            os.fdopen(2, "wb", closefd=False), "utf-8", "surrogateescape", line_buffering=True
        )
        try:
            yield paths
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(ValueError):
                    stream.flush()
            sys.stdout, sys.stderr = streams
            for descriptor, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, descriptor)
                os.close(copy)


def _check(line: list[str], status: int, out: str, err: str) -> None:
    assert "Traceback" not in out + err, f"a traceback: {err[-2000:]}"
    assert "a defect of the workbench" not in out + err, f"{out[-1000:]}{err[-1000:]}"
    assert status in (0, 1, 2, 130), f"status {status}"
    steering = [c for c in out + err if not c.isprintable() and c not in "\n\t"]
    # The programs print nothing themselves. Some of their errors contain control characters, which must be replaced.
    assert not steering, f"control characters {steering[:5]!r} in {(out + err)[:500]!r}"
    if "--json" in line and "-h" not in line and "--help" not in line:
        document = json.loads(out)
        assert isinstance(document, dict)
        if status:
            assert document["ok"] is False
            assert document["error"]
    elif status:
        assert err.startswith("thunder-workbench: ") or "\nthunder-workbench: " in err or "Usage:" in out + err, err


def abuse_line(seed: int, folder: Path) -> int:
    """Run one command line in this process. Return its exit status. A fault raises an error."""
    line = _line(random.Random(seed))
    before, begun = _state(folder), time.process_time()
    open_before = psutil.Process().num_fds()
    status: int | str | None = 0
    here = Path.cwd()
    os.chdir(folder)
    try:
        with _captured() as (out_path, err_path):
            try:
                cli.main(line)
            except SystemExit as stop:
                status = stop.code
            sys.stdout.flush()
            sys.stderr.flush()
            out, err = (path.read_text(errors="surrogateescape") for path in (out_path, err_path))
    finally:
        os.chdir(here)
    took_s = time.process_time() - begun
    assert isinstance(status, int | None)
    _check(line, status or 0, out, err)
    _check_left(folder, before)
    assert took_s < MOST_S, f"took {took_s:.1f} s"
    assert psutil.Process().num_fds() <= open_before + 1, "a descriptor is left open"
    return status or 0


def _check_left(folder: Path, before: dict[str, tuple[int, int, str]]) -> None:
    assert not (folder / CANARY).exists(), "something was executed"
    after = _state(folder)
    assert after == before, f"destroyed: {[name for name in before if before[name] != after[name]]}"
    assert not [name for name in os.listdir(folder) if name.endswith(".tmp")], "a temporary file is left"
    milp_process.end_idle()
    assert not psutil.Process().children(recursive=True), "a process is left"


PROCESSES: list[tuple[list[str], str, int]] = [
    (["--help"], "> /dev/full", 1),
    (["--help"], ">&-", 1),
    (["--help"], "2>&-", 0),
    (["plna"], "2>&-", 2),
    (["plna"], ">&- 2>&-", 2),
    (["plan", "crash.py:dies", "--device", "cpu", "--json"], "", 1),
    (["plan", "crash.py:crashes", "--device", "cpu", "--json"], "", 1),
    (["plan", "crash.py:aborts", "--device", "cpu"], "", 1),
    (["plan", "crash.py:closes", "--device", "cpu", "--json"], "", 1),
    (["plan", "p.py:good", "--device", "cpu", "--json"], "> /dev/full", 1),
    (["plan", "p.py:good", "--device", "cpu"], "<&- >&- 2>&-", 1),
]
"""Command lines. Each has the shell's redirections of its streams and the expected exit status."""


def abuse_process(at: int, seed: int, folder: Path) -> int:
    """Run one command line in a new process. Return its exit status. A fault raises an error.

    The command line is entry `at` of `PROCESSES`. If `PROCESSES` has no entry `at`, the seed determines a random
    command line.
    """
    line, streams, wanted = PROCESSES[at] if at < len(PROCESSES) else (_line(random.Random(seed)), "", None)
    before = _state(folder)
    script = f'exec "$0" -m workbench.cli "$@" {streams}'
    done = subprocess.run(
        [b"bash", b"-c", script.encode(), sys.executable.encode(), *map(os.fsencode, line)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20 * MOST_S,
        check=False,
    )
    out, err = (text.decode(errors="surrogateescape") for text in (done.stdout, done.stderr))
    if streams:
        assert "Traceback" not in out + err, err
    else:
        _check(line, done.returncode, out, err)
    assert wanted is None or done.returncode == wanted, f"status {done.returncode}: {out}{err}"
    _check_left(folder, before)
    return done.returncode


def main() -> int:
    """Run the requested numbers of cases. Return the exit status."""
    options = argparse.ArgumentParser(description=__doc__)
    # The alarm ends this process if a case hangs. On two busy cores, all cases together take an hour.
    signal.alarm(2 * 3600)
    for name, count in (("configs", 2000), ("lines", 500), ("processes", 40), ("seed", 0)):
        options.add_argument(f"--{name}", type=int, default=count)
    asked = options.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["WORKBENCH_RUNS"] = str(folder / "runs")
        furnish(folder)
        for what, count, one in (
            ("config files", asked.configs, lambda at: abuse_config(asked.seed + at, folder)),
            ("command lines", asked.lines, lambda at: abuse_line(asked.seed + at, folder)),
            ("processes", asked.processes, lambda at: abuse_process(at, asked.seed + 10**6 + at, folder)),
        ):
            begun, outcomes = time.perf_counter(), collections.Counter[object]()
            for at in range(count):
                try:
                    outcomes[one(at)] += 1
                except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # counted, and the next is tried
                    wrong += 1
                    outcomes["wrong"] += 1
                    case = (
                        "" if what == "config files" else f" {[e[:60] for e in _line(random.Random(asked.seed + at))]}"
                    )
                    print(f"{what}, case {at}{case}: {type(error).__name__}: {str(error)[:1500]}", flush=True)
            print(f"{count} {what} in {time.perf_counter() - begun:.0f} s: {dict(outcomes)}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
