"""Write docs/reference/gpu_check.md and the durations of parts from the checks in benchmarks/results.

Copy a machine's ``gpu-check.json`` to ``benchmarks/results/MACHINE/``, then run ``python -m benchmarks.gpu_page``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import workbench
from workbench.gpu_check import page, suite
from workbench.gpu_check.log import is_right
from workbench.gpu_check.part import WRONG
from workbench.gpu_check.parts import PARTS
from workbench.summary import human_seconds

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "reference" / "gpu_check.md"
ELSEWHERE = Path(workbench.__file__).parent / "gpu_check" / suite.ELSEWHERE_FILE

HEAD = """\
# GPU checks

This page answers which checks `thunder-workbench gpu-check` makes on a GPU, and what the checks found.
[Use a borrowed GPU](../howto/use_a_borrowed_gpu.md) has the steps.

```sh
thunder-workbench gpu-check                    # 40 minutes at most; results in gpu-check/
thunder-workbench gpu-check --minutes 10       # the same command resumes an interrupted check
thunder-workbench gpu-check --only main        # run one part
thunder-workbench gpu-check --retry            # repeat failed and wrong steps
thunder-workbench gpu-check --rehearse         # without a GPU: every part with small shapes, on the CPU or planned
```

The check needs no network and no browser. The most informative steps of each part run first. Each part is a process
with a time limit. The result of each step is written to `PART.jsonl` at once; `gpu-check.json` and `gpu-check.md` are
written after each part. If a step crashes or hangs, it is reported and the next step starts. A step is wrong if results
differ from those of unmodified Thunder, if a predicted peak differs by more than 3 % from the measured peak, or if less
than 95 % of the compile time is attributed. If a step is wrong, the exit status is 1.

| part | what it does | at most |
|---|---|---|
"""

FOUND = """\
## Results

Each table shows one check, with the predictions of its day. All figures are in `gpu-check.json` of the machine's folder
in `benchmarks/results`. [Memory](../explanation/memory.md#on-cuda) says how today's predictions compare with these
measurements.

"""

NOT_YET = """\
**No check on a GPU is kept yet: all statements of this project about CUDA come from plans, not from runs.** {how}
"""


def kept() -> list[dict[str, Any]]:
    """Return the stored checks: checks on GPUs before rehearsals, and the latest first."""
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"*/{suite.RESULT_FILE}"))]
    return sorted(sorted(found, key=lambda each: str(each["date"]), reverse=True), key=lambda each: each["rehearsal"])


def text() -> str:
    """Return the text of the page."""
    results = kept()
    parts = "".join(f"| `{part.name}` | {part.does} | {part.limit_s / 60:g} min |\n" for part in PARTS)
    notice = "" if any(not result["rehearsal"] for result in results) else NOT_YET.format(how=page.HOW_TO_SEND) + "\n"
    return HEAD + parts + "\n" + FOUND + notice + "\n".join(map(summary, results))


def summary(result: dict[str, Any]) -> str:
    """Return the section of one check: the state of each part, then its failed and wrong steps."""
    kind = "rehearsal, no GPU" if result["rehearsal"] else "GPU"
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines = [
        f"## {result['machine']} ({kind}), {result['date']}",
        "",
        f"`{page.COMMAND}{' --rehearse' * result['rehearsal']}`, executor {result['executor']}; {versions}.",
        "",
        "| part | state | took | steps | not right |",
        "|---|---|---|---|---|",
    ]
    wrong = []
    for part in result["parts"].values():
        faults = [step for step in part["steps"] if not is_right(step)]
        wrong += [
            f"- {part['title']}, **{step['step']}**: {step['error'] or step['figures'][WRONG]}" for step in faults
        ]
        took = human_seconds(part["seconds"]) if part["steps"] else ""
        lines.append(f"| {part['title']} | {part['state']} | {took} | {len(part['steps'])} | {len(faults)} |")
    return "\n".join([*lines, *([""] if wrong else []), *wrong]) + "\n"


def elsewhere() -> str:
    """Return the durations of parts in all stored checks, as the JSON document that the package contains."""
    told = [
        {
            "machine": result["machine"],
            "date": result["date"],
            "rehearsal": result["rehearsal"],
            "seconds": {name: part["seconds"] for name, part in result["parts"].items() if part["state"] == "done"},
        }
        for result in kept()
    ]
    return json.dumps(told, indent=1) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text())
    ELSEWHERE.write_text(elsewhere())
