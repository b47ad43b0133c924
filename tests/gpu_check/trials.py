"""A part of the GPU check whose steps misbehave on request, for tests of the code that runs the check."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator

from workbench.gpu_check.parts.check_part import WRONG, CheckPart, CheckStep, Conditions, Figures, Known

BEGAN, PLAN, TURNS = "began.txt", "plan.json", "turns.txt"
NAME = "trial"


def part(name: str = NAME, module: str = __name__, *, in_slot: bool = False, **limits: float) -> CheckPart:
    return CheckPart(
        name=name,
        title="Trial",
        does="What it is told to.",
        module=module,
        in_slot=in_slot,
        **{"limit_s": 60.0, "step_limit_s": 60.0, **limits},
    )


def steps(conditions: Conditions, plan: str = PLAN) -> Iterator[CheckStep]:
    """Yield the steps of the folder's plan file. An entry has a name, an action, and optional fields of a step."""
    with (conditions.folder / TURNS).open("a") as turns:
        turns.write(f"{os.getpid()}\n")
    for name, what, *first in json.loads((conditions.folder / plan).read_text()):
        yield CheckStep(name, functools.partial(_act, conditions, name, what), *first)


def _act(conditions: Conditions, name: str, what: str, known: Known) -> Figures:
    with (conditions.folder / BEGAN).open("a") as began:
        began.write(f"{name}\n")
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif what == "exit":
        os._exit(3)
    elif what == "hang":
        time.sleep(600)
    elif what == "raise":
        raise ValueError("as told")
    elif what == "lose the device":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    elif what == "wrong":
        return {"known": len(known), WRONG: "not as it has to be"}
    else:
        time.sleep(float(what))
    bytecode = "" if sys.dont_write_bytecode else sys.pycache_prefix
    return {"known": len(known), "pid": os.getpid(), "not a number": float("nan"), "bytecode": bytecode}
