"""Write docs/reference/gpu_check.md, and the durations of parts, from the GPU checks in benchmarks/results.

First copy a machine's ``gpu-check.json`` to ``benchmarks/results/MACHINE/``. The result of a slot needs a name of its
own, such as ``slot-1.json``. Then run ``python -m benchmarks.gpu.page``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import workbench
from workbench.gpu_check import page, suite
from workbench.gpu_check.log import is_right
from workbench.gpu_check.parts.check_part import WRONG
from workbench.gpu_check.parts.part_list import PARTS, QUESTIONS, SLOT
from workbench.summary import human_seconds

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "reference" / "gpu_check.md"
ELSEWHERE = Path(workbench.__file__).parent / "gpu_check" / suite.ELSEWHERE_FILE

HEAD = """\
# GPU checks

This page answers which checks `thunder-workbench gpu-check` makes on a GPU, and what the checks found.
[Use a borrowed GPU](../howto/use_a_borrowed_gpu.md) has the steps.

```sh
thunder-workbench gpu-check                    # 40 minutes at most; results in gpu-check/
thunder-workbench gpu-check --minutes 10       # 10 minutes instead of 40
thunder-workbench gpu-check --only main        # run one part
thunder-workbench gpu-check --retry            # repeat failed and wrong steps
thunder-workbench gpu-check --rehearse         # without a GPU: every part with small shapes, on the CPU or planned
thunder-workbench gpu-check --slot 13          # a short slot: the questions without an answer; results in gpu-slot/
```

The check needs no network and no browser. First, the most informative steps of all parts run; then the rest. To resume
an interrupted check, repeat its command. Each part runs in processes of its own, with a time limit. The result of each
step is written to `PART.jsonl` at once; `gpu-check.json` and `gpu-check.md` are written after each part. If a step
crashes or hangs, it is reported and the next step starts. A step is wrong, for example, if results differ from those of
unmodified Thunder, if a predicted peak differs by more than 3 % from the measured peak (1 % in a short slot), or if
less than 95 % of the compile time is attributed to stages and fusions. The exit status is 1 if a step failed or is
wrong. The result of each step has a field `spent`. It divides the step's duration into: the start of its processes,
imports, opening programs, compiling, measuring, and other.

| part | what it does | at most |
|---|---|---|
"""

QUEUE = """\
## A short slot

`--slot MINUTES` asks a queue of questions, the most valuable first. The time counts from the start of the command. Each
step of a question has at most {limit_s:g} seconds, and a step begins only if at least its time limit is left of the
slot. `gpu-check.json` in the folder of the results is written after each step, and lists the steps that are left.

Steps that a slot on the same machine has answered before are left out. The command looks for these answers in
`benchmarks/results/MACHINE/`. After each slot, copy its `gpu-check.json` there under a new name, such as `slot-1.json`.
A step that failed or is wrong counts as answered; `--retry` asks it again. Predictions were written down before the
first slot that can measure them: each row of `benchmarks/results/gpu_predictions.csv` that a step measures names the
step, and the figure with which the prediction is compared. Predictions that depend on the memory or rates of a GPU
exist for the H100 and the H200. With `--rehearse`, the first step of each question runs on the CPU.

| question | |
|---|---|
"""

FOUND = """\
## Results

Each section shows one check. The column *not right* counts steps that failed or are wrong. Predicted figures
are those of the day of the check. All figures are in the files of the machine's folder in `benchmarks/results`.
Predictions have improved since: a test compares today's predictions with these measurements (see
[Memory](../explanation/memory.md#on-cuda)).

"""

NOT_YET = """\
**No check on a GPU is kept yet: all statements of this project about CUDA come from plans, not from runs.** {how}
"""


_HOW_TO_SEND = (
    "To add a machine: run the command there, put the `gpu-check.json` that it writes into "
    "`benchmarks/results/NAME-OF-THE-MACHINE/`, run `python -m benchmarks.gpu.page`, and send both as a change."
)


def kept() -> list[dict[str, Any]]:
    """Return the stored checks: first the checks on GPUs, then the rehearsals, each from the latest."""
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*/*.json"))]
    return sorted(sorted(found, key=lambda each: str(each["date"]), reverse=True), key=lambda each: each["rehearsal"])


def text() -> str:
    """Return the text of the page."""
    results = kept()
    parts = "".join(f"| `{part.name}` | {part.does} | {part.limit_s / 60:g} min |\n" for part in PARTS)
    notice = "" if any(not result["rehearsal"] for result in results) else NOT_YET.format(how=_HOW_TO_SEND) + "\n"
    queue = QUEUE.format(limit_s=SLOT.step_limit_s)
    queue += "".join(f"| {number} | {question} |\n" for number, question in QUESTIONS.items())
    return HEAD + parts + "\n" + queue + "\n" + FOUND + notice + "\n".join(map(summary, results))


def summary(result: dict[str, Any]) -> str:
    """Return the page's section on one check: the state of each part, and then all failed and wrong steps."""
    kind = "rehearsal, no GPU" if result["rehearsal"] else "GPU"
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines = [
        f"## {result['machine']} ({kind}), {result['date']}",
        "",
        f"`{page.command_of(result)}`, executor {result['executor']}; {versions}.",
        "",
    ]
    slot = SLOT.name in result["parts"]
    if slot:
        lines += [*page.questions_table(result), "", page.spent_text(result)]
    else:
        lines += ["| part | state | took | steps | not right |", "|---|---|---|---|---|"]
    wrong = []
    for part in result["parts"].values():
        faults = [step for step in part["steps"] if not is_right(step)]
        wrong += [
            f"- {part['title']}, **{step['step']}**: {step['error'] or step['figures'][WRONG]}" for step in faults
        ]
        took = human_seconds(part["seconds"]) if part["steps"] else ""
        if slot:
            continue
        lines.append(f"| {part['title']} | {part['state']} | {took} | {len(part['steps'])} | {len(faults)} |")
    return "\n".join([*lines, *([""] if wrong else []), *wrong]) + "\n"


def elsewhere() -> str:
    """Return the JSON document with the durations of parts in all stored checks. The package contains this document."""
    told = [
        {
            "machine": result["machine"],
            "date": result["date"],
            "rehearsal": result["rehearsal"],
            "seconds": {name: part["seconds"] for name, part in result["parts"].items() if part["state"] == "done"},
        }
        for result in kept()
        if SLOT.name not in result["parts"]
    ]
    return json.dumps(told, indent=1) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text())
    ELSEWHERE.write_text(elsewhere())
