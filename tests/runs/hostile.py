"""Run misbehaving programs. Each run must end, keep its events, and leave no process and no temporary file behind."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import subprocess
from pathlib import Path

from tests.runs.broken_stores import Found, held, until_released
from tests.runs.test_run_processes import QUICK, begin
from workbench.errors import WorkbenchError
from workbench.runs.log import events
from workbench.runs.process import follow_run, reaper, request, run_store
from workbench.runs.process.request import RunOptions

LEFT = "subprocess.Popen(['sleep', '{token}']{more})"

BODIES: dict[str, str] = {
    "raises": "raise {error}",
    "raises an exception that cannot be printed": (
        "class E({base}):\n        def __str__(self): raise ValueError\n        __repr__ = __str__\n    raise E"
    ),
    "raises with a text that a terminal obeys": "raise ValueError({text!r})",
    "leaves by os._exit": "os._exit({status})",
    "leaves by sys.exit": "sys.exit({status})",
    "kills itself": "os.kill(os.getpid(), {signal}); time.sleep({soon})",
    "kills its group": "subprocess.Popen(['sleep', '{token}']); os.killpg(0, signal.SIGKILL)",
    "aborts": "os.abort()",
    "reads an invalid address": "import ctypes; ctypes.string_at({status})",
    "forks and both go on": "os.fork(); raise ValueError('both')",
    "forks many": "for _ in range(20):\n        if os.fork() == 0: time.sleep(600)\n    raise ValueError('done')",
    "forks a daemon": (
        "if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            time.sleep(600)\n"
        "        os._exit(0)\n    os._exit({status})"
    ),
    "starts a daemon and is killed": (
        LEFT.format(token="{token}", more=", start_new_session=True") + "; os.kill(os.getpid(), signal.SIGKILL)"
    ),
    "becomes another program": "os.execvp('sleep', ['sleep', '{soon}'])",
    "becomes another program that fails": "os.execvp('sh', ['sh', '-c', 'exit {status}'])",
    "closes all descriptors": "os.closerange(0, 4096); raise ValueError('closed')",
    "closes all descriptors and goes on": "os.closerange({status}, 4096); return torch.tanh, (torch.ones(4),)",
    "puts its own file in the log's place": (
        "mine = os.open(os.path.join(os.environ['TMPDIR'], 'mine'), os.O_WRONLY | os.O_CREAT)\n"
        "    for fd in range(3, 64):\n        if fd != mine: os.dup2(mine, fd)\n    raise ValueError('mine')"
    ),
    "writes into the log": (
        "for fd in range(3, 64):\n        try:\n            if 'events' in os.readlink(f'/proc/self/fd/{{fd}}'): "
        "os.write(fd, {junk!r})\n        except OSError: pass\n    raise ValueError('written')"
    ),
    "reports that it is done and is not": (
        "open(sys.argv[1] + '/events.jsonl', 'ab').write(b'{{\"type\":\"finished\",\"t_s\":1.0}}\\n')\n"
        "    os._exit({status})"
    ),
    "deletes the log": "os.unlink(sys.argv[1] + '/events.jsonl'); raise ValueError('deleted')",
    "puts a folder in the log's place": (
        "os.unlink(sys.argv[1] + '/events.jsonl'); os.mkdir(sys.argv[1] + '/events.jsonl'); os._exit({status})"
    ),
    "puts a pipe in the log's place": (
        "os.unlink(sys.argv[1] + '/events.jsonl'); os.mkfifo(sys.argv[1] + '/events.jsonl'); os._exit({status})"
    ),
    "empties the log": "os.truncate(sys.argv[1] + '/events.jsonl', 0); raise ValueError('emptied')",
    "deletes the run's folder": "shutil.rmtree(sys.argv[1]); raise ValueError('deleted')",
    "deletes the run's folder and leaves": "shutil.rmtree(sys.argv[1]); os._exit({status})",
    "rewrites the note of its process": (
        "open(sys.argv[1] + '/worker.json', 'w').write({junk!r}.decode('latin1')); os._exit({status})"
    ),
    "links its output to a file of the user's": (
        "os.symlink({thesis!r}, sys.argv[1] + '/output.log'); print('x' * 1000, flush=True); os._exit({status})"
    ),
    "prints a lot": "sys.stdout.write({text!r} * 200000); sys.stdout.flush(); os._exit({status})",
    "prints bytes that are not text": "os.write(1, bytes(range(256)) * 4000); raise ValueError('printed')",
    "closes what it prints to": "sys.stdout.close(); sys.stderr.close(); return torch.tanh, (torch.ones(4),)",
    "sleeps": "time.sleep(600)",
    "computes for ever": "while True: pass",
    "stops itself": "os.kill(os.getpid(), signal.SIGSTOP); time.sleep(600)",
    "ignores signals": "[signal.signal(s, signal.SIG_IGN) for s in (1, 2, 3, 15)]; time.sleep(600)",
    "takes all memory": "held = []\n    while True: held.append(bytearray(1 << 26))",
    "asks for more memory than there is": "torch.empty(1 << 60)",
    "starts threads that never end": (
        "import threading\n    for _ in range(50): threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "    raise ValueError('threads')"
    ),
    "leaves its working folder": "os.chdir('/'); raise ValueError('elsewhere')",
    "creates files without permissions": "os.umask(0o777); return torch.tanh, (torch.ones(4),)",
    "has no room for files": (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room})); time.sleep(600)"
    ),
    "has no descriptors": (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)); open('/dev/null'); time.sleep(600)"
    ),
    "recurses for ever": "def f(): f()\n    f()",
    "recurses for ever in C": "sys.setrecursionlimit(10**9)\n    def f(): f()\n    f()",
    "breaks the clock": "time.perf_counter = lambda: float('nan'); return torch.tanh, (torch.ones(4),)",
    "breaks json": "import json; json.JSONEncoder.encode = None; return torch.tanh, (torch.ones(4),)",
    "breaks os.write": "os.write = None; return torch.tanh, (torch.ones(4),)",
    "breaks os._exit": "os._exit = lambda status: time.sleep(600); return torch.tanh, (torch.ones(4),)",
    "leaves by os._exit in an atexit handler": "import atexit; atexit.register(os._exit, {status}); sys.exit(0)",
    "returns nothing": "return None",
    "returns something that is not a program": "return {junk!r}, 3",
}

ENDLESS = ("sleeps", "computes for ever", "stops itself", "ignores signals", "becomes another program")


@dataclasses.dataclass(frozen=True)
class Hostile:
    """A misbehaving program, its run options, and a token that marks the processes that it starts."""

    name: str
    source: str
    token: str
    options: RunOptions


def hostile(seed: int, folder: Path) -> Hostile:
    """Return the program of a seed. Consecutive seeds give the kinds of programs in turn, with random values."""
    draw = random.Random(seed)
    name = list(BODIES)[seed % len(BODIES)]
    token = f"36{seed:05}.5"
    body = BODIES[name].format(
        error=draw.choice(
            ["BaseException('no')", "SystemExit(3)", "KeyboardInterrupt", "GeneratorExit", "StopIteration"]
        ),
        base=draw.choice(["Exception", "BaseException"]),
        text=draw.choice(["\x1b[2J\x1b[31m", "one\ntwo", "\0\x9b", "\u202e", "x" * 100]),
        status=draw.choice([0, 1, 3, 74, 255]),
        signal=draw.choice(["signal.SIGKILL", "signal.SIGSEGV", "signal.SIGTERM", "signal.SIGHUP", "35"]),
        junk=draw.choice([b"\n[" * 1000, b'{"type":"finished","t_s":"x"}\n', b"\xff\0\n", b'{"pid": 1}\n']),
        soon=draw.choice([1, 2]),
        room=draw.choice([0, 100, 4096]),
        thesis=str(folder / "thesis.tex"),
        token=token,
    )
    limit_s = 8.0 if name in ENDLESS else 60.0
    options = dataclasses.replace(QUICK, timeout_s=limit_s, memory_limit_bytes=2 << 30)
    return Hostile(name, f"import shutil, subprocess\n\ndef make():\n    {body}", token, options)


def left_of(token: str) -> list[int]:
    """Return the ids of the running processes that a program started.

    The command lines of these processes contain the program's token.
    """
    found = []
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            with contextlib.suppress(OSError):
                if token.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    found.append(int(pid))
    return found


def run_hostile(folder: Path, seed: int, bystander: subprocess.Popen[bytes]) -> tuple[str, list[str]]:
    """Run one program. Return its end as text, and a list of faults of the workbench."""
    folder.mkdir()
    (folder / "thesis.tex").write_text("all of it\n")
    program = hostile(seed, folder)
    before = held()
    faults: list[str] = []
    run = begin(folder, program.source, program.options)
    try:
        run.wait(120)
    except WorkbenchError as error:
        faults.append(f"it hangs: {error}")
        run.cancel()
    ended = f"{program.name}: {run.state}, {run.error}"
    finals = [event for event in run.events if isinstance(event, events.FINAL)]
    if run.state not in follow_run.FINAL_STATES or len(finals) != 1:
        faults.append(f"it is {run.state} and has {len(finals)} terminal events")
    if run.state == "failed" and not (run.error and run.error.isprintable()):
        faults.append(f"no clear message: {run.error!r}")
    assert run._worker is not None
    if left := [*reaper.marked_processes(run._worker.mark), *left_of(program.token)]:
        faults.append(f"processes are left: {left}")
    if (run.run_dir / request.SCRATCH).exists():
        faults.append("temporary files are left")
    if (folder / "thesis.tex").read_text() != "all of it\n":
        faults.append("a file of the user was changed")
    if bystander.poll() is not None:
        faults.append("an unrelated process was killed")
    if run.run_dir.exists() and (run.run_dir / request.REQUEST_FILE).exists():
        again = run_store.open(run.run_dir)
        if "log" not in program.name and "run's folder" not in program.name and again.state != run.state:
            faults.append(f"it was {run.state}, but after it is opened again it is {again.state}: {again.error}")
    found = Found()
    until_released(before, found, program.name)
    return ended, [*faults, *found.faults]
