"""Write docs/reference/gpu_check.md and the durations of parts from the checks in benchmarks/results.

``python -m benchmarks.gpu_page``, after ``gpu-check.json`` of a machine was put into ``benchmarks/results/MACHINE/``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import workbench
from workbench.gpu_check import page, suite
from workbench.gpu_check.parts import PARTS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "reference" / "gpu_check.md"
ELSEWHERE = Path(workbench.__file__).parent / "gpu_check" / suite.ELSEWHERE_FILE

HEAD = """\
# On a GPU

One command tells what there is to know about the workbench on a GPU, in order of worth:

```sh
thunder-workbench gpu-check                    # 40 minutes at most, results in gpu-check/; or make gpu-check
thunder-workbench gpu-check --minutes 10       # the same command goes on where the time was up, or it was killed
thunder-workbench gpu-check --only main        # one part
thunder-workbench gpu-check --retry            # what failed or was wrong, once more
thunder-workbench gpu-check --rehearse         # without a GPU: every part, small, on the CPU or planned
```

It needs no network and no browser. First comes what tells the most of each part, part by part; then the others, each
part for its share of the time that is left; then what is left of the first parts. Each part is a process of its own
with a limit of time, and each step is kept when it is done, in `PART.jsonl`; `gpu-check.json` and `gpu-check.md` are
written whenever a part is left. A step that crashes its process or hangs is told of, and the next is begun. A step is
wrong, and the exit status 1, where results differ from unmodified Thunder's, a predicted peak is more than 3 % off,
or less than 95 % of the compile time is attributed.

Below is what each check predicted and measured on its day. How near today's predictions come to what was measured on
GPUs then, without a GPU, is in [memory.md](memory.md#on-cuda).

| part | what it does | at most |
|---|---|---|
"""

LENT = """\
## On a machine lent for a quarter of an hour

With Python 3.12 and PyTorch 2.11 for CUDA 13 on it, and no way to a package registry. `../shared/gpu/README.md` says
what is in the kit; the packages named are those that a PyTorch alone does not bring, beside `rich`, `typer`,
`psutil`, `scipy`, `cloudpickle`, `hypothesis` and `pytest`, which have to be there or be named, too.

```sh
# Before: once, in the project's root. It fills .gpu/, which goes along with the project.
../shared/gpu/build_kit pydantic==2.14.3 pydantic-core==2.50.4 annotated-types==0.8.0 \\
  typing-inspection==0.4.5 platformdirs==4.14.5
# There, in the project's root: the kit is unpacked, and all is checked that the time allows.
source .gpu/enter && python3 -m workbench.cli gpu-check --minutes 13 --out results
```

Where one command may not take so long, give it less, `--minutes 8`, and the same command once more: it goes on.
`results/` holds all that was found; `results/runs/` the runs' own logs, which may be left behind.

"""

NOT_YET = """\
**No check on a GPU is kept yet: whatever this project says of CUDA was planned, not run.** {how}
"""


def kept() -> list[dict[str, Any]]:
    """The checks that are kept, those on GPUs first, the latest before others."""
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"*/{suite.RESULT_FILE}"))]
    return sorted(sorted(found, key=lambda each: str(each["date"]), reverse=True), key=lambda each: each["rehearsal"])


def text() -> str:
    """The page."""
    results = kept()
    parts = "".join(f"| `{part.name}` | {part.does} | {part.limit_s / 60:g} min |\n" for part in PARTS)
    notice = "" if any(not result["rehearsal"] for result in results) else NOT_YET.format(how=page.HOW_TO_SEND) + "\n"
    return HEAD + parts + "\n" + LENT + notice + page.page(results)


def elsewhere() -> str:
    """How long each part took, as the package carries it."""
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
