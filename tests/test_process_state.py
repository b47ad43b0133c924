"""Opening, planning, fitting, running and `config.jit` restore the global state of Python and PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """\
import gc, json, os, signal, sys, threading, time
import torch, thunder, numpy, scipy.optimize
import workbench as wb
import workbench.compiler.api, workbench.runs.process.follow_run

def program(x, w):
    for _ in range(3):
        x = x + torch.sin(torch.nn.functional.silu(x @ w) @ w)
    return (x @ w).tanh().exp().sum()

def state():
    fds = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            fds[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # the folder that is being listed
            continue
    return {
        "gc thresholds": gc.get_threshold(), "gc enabled": gc.isenabled(), "gc frozen": gc.get_freeze_count(),
        "switch interval": sys.getswitchinterval(), "environment": dict(os.environ), "files": fds,
        "recursion limit": sys.getrecursionlimit(), "folder": os.getcwd(),
        "hooks": [str(sys.excepthook), str(threading.excepthook), str(sys.stdout), str(sys.stderr)],
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
        "threads of torch": torch.get_num_threads(), "default dtype": str(torch.get_default_dtype()),
        "gradients": torch.is_grad_enabled(), "random": hash(torch.get_rng_state().numpy().tobytes()),
    }

sys.setrecursionlimit(2000)  # Inductor raises the limit to this value
args = torch.randn(64, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
if sys.argv[1] == "warm":
    # Thunder and PyTorch change global state when they are first used. Use them before the state is recorded.
    thunder.jit(program)(*args).backward()
    torch.compile(program)(*args).backward()
for argument in args:
    argument.grad = None
before, changed = state(), {}

def compare(step):
    until = time.monotonic() + 30
    while (now := state()) != before and time.monotonic() < until:
        time.sleep(0.1)  # a solver's process ends after it has been idle for a while
    for name in now:
        if now[name] != before[name]:
            changed.setdefault(step, {})[name] = [str(before[name])[-600:], str(now[name])[-600:]]

bench = wb.open(program, *args, device="cpu", executor=sys.argv[2])
compare("open")
bench.choose({next(s.id for s in bench.sites("saved") if s.values and "recompute" not in s.illegal): "recompute"})
bench.undo()
compare("choose")
bench.fit("70%", using=("recompute",))
compare("fit")
bench.curve(points=4).wait()
compare("curve")
run = bench.run(wait=True, folder=sys.argv[3])
assert run.state == "done", run.reason
compare("run")
bench.config.jit(program)(*args).backward()
compare("jit")
print(json.dumps(changed))
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("executor", ["torch", "torchcompile"])
def test_the_process_state_is_unchanged_after_each_step(tmp_path: Path, executor: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), "warm", executor, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {}
