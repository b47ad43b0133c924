"""A part whose steps misbehave as they are told to, for tests of how a check is carried out."""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from collections.abc import Iterator

from workbench.gpu_check.part import WRONG, Conditions, Figures, Known, Part, Step

BEGAN, PLAN = "began.txt", "plan.json"
NAME = "trial"


def part(**limits: float) -> Part:
    return Part(
        name=NAME,
        title="Trial",
        does="What it is told to.",
        module=__name__,
        **{"limit_s": 60.0, "step_limit_s": 60.0, **limits},
    )


def steps(conditions: Conditions) -> Iterator[Step]:
    for name, what in json.loads((conditions.folder / PLAN).read_text()):
        yield Step(name, functools.partial(_act, conditions, name, what))


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
    return {"known": len(known), "pid": os.getpid(), "not a number": float("nan")}
