"""Search for better choices with only the JSON of the command line: propose, predict, measure, keep or drop.

``python examples/search_loop.py PROGRAM [--set layers=2] [--minutes 10] [--log FILE] [--out CONFIG.py]``
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def command(*given: str) -> dict[str, Any]:
    """Return the JSON document that a command prints. If the command fails, the document has the error."""
    line = [sys.executable, "-m", "workbench.cli", *given, "--json"]
    return json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=False, text=True).stdout)


def chosen(choices: dict[str, str]) -> list[str]:
    """Return choices as arguments of the command line."""
    return [part for id, option in choices.items() for part in ("--choose", f"{id}={option}")]


def proposal(
    sites: list[dict[str, Any]], kept: dict[str, str], seen: set[str], draw: random.Random
) -> dict[str, str] | None:
    """Return untried choices that change one to three sites to another legal option; None if there are none left."""
    free = [(s["id"], o) for s in sites for o in s["options"] if o != s["choice"] and o not in s["illegal"]]
    drawn = (draw.sample(free, min(len(free), draw.randint(1, 3))) for _ in range(100))
    rest = (turned for count in (1, 2, 3) for turned in itertools.combinations(free, count))
    tried = ({**kept, **dict(turned)} for turned in itertools.chain(drawn, rest) if turned)
    return next((wanted for wanted in tried if json.dumps(wanted, sort_keys=True) not in seen), None)


def verdict(run: dict[str, Any], kept_bytes: int) -> tuple[bool, str]:
    """Return whether a run's choices replace the kept choices, and why. A lower peak is lower by over 0.1 %."""
    if not run["ok"] or not run["accuracy"]["bitwise"]:
        return False, run["error"] or "other bits than unmodified Thunder's"
    kept = next(iter(run["against"].values()))["verdict"]
    if kept == "slower":
        return True, "faster beyond noise and bitwise equal"
    lower = kept == "noise" and run["memory"]["measured_peak_bytes"] < 0.999 * kept_bytes
    return lower, "as fast, with a lower peak, and bitwise equal" if lower else "slower, or no faster and no lower"


def main() -> None:
    """Search until the time is over, or no untried choices are left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--set", action="append", default=[])
    options = {"executor": "torch", "minutes": 10.0, "seed": 0, "log": Path("search.log"), "out": Path("found.py")}
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    given = parser.parse_args()
    program = [given.program, "--executor", given.executor, *(p for text in given.set for p in ("--set", text))]
    draw, end = random.Random(given.seed), time.monotonic() + 60 * given.minutes
    kept, seen = dict[str, str](), set[str]()

    def note(what: str, text: str) -> None:
        given.log.write_text(f"{given.log.read_text() if given.log.exists() else ''}{what:<8} {text}\n")

    known = command("plan", *program)
    first = command("run", *program)
    if not first.get("ok"):
        sys.exit(known.get("error") or first.get("error"))
    kept_bytes = first["memory"]["measured_peak_bytes"]
    note("begin", f"{' '.join(program)}: step {1e3 * first['step_s']:.3g} ms, peak {kept_bytes / 1024:.1f} KiB")
    while time.monotonic() < end:
        if (wanted := proposal(known["sites"], kept, seen, draw)) is None:
            note("all", "tried one to three sites at a time: nothing is left to propose")
            break
        seen.add(json.dumps(wanted, sort_keys=True))
        note("propose", ", ".join(f"{id}={option}" for id, option in wanted.items() if kept.get(id) != option))
        plan = command("plan", *program, *chosen(wanted))
        if plan.get("ok") is False or plan["peak_bytes"] > 1.1 * kept_bytes:
            note("drop", plan.get("error") or f"predicted peak {plan['peak_bytes'] / 1024:.1f} KiB")
            continue
        note("predict", f"peak {plan['peak_bytes'] / 1024:.1f} KiB, {'proven' if plan['proven'] else 'not proven'}")
        before = ",".join(f"{id}={option}" for id, option in kept.items()) or "stock"
        run = command("run", *program, *chosen(wanted), "--against", before)
        keep, why = verdict(run, kept_bytes)
        if run["ok"]:
            peak_bytes = run["memory"]["measured_peak_bytes"]
            note("measure", f"step {1e3 * run['step_s']:.3g} ms, peak {peak_bytes / 1024:.1f} KiB")
        note("keep" if keep else "drop", why)
        if keep:
            kept, kept_bytes, known = wanted, peak_bytes, plan
            command("plan", *program, *chosen(kept), "--export", str(given.out), "--force")
    note("end", f"{len(seen)} proposals; kept {kept or 'nothing'}: peak {kept_bytes / 1024:.1f} KiB")


if __name__ == "__main__":
    main()
