"""Try every model of the zoo and write docs/reference/models.md: ``python -m tests.models.table``.

Each row is stored in a file at once, so that an interrupted run can resume. ``--again NAME…`` tries these models anew.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import tempfile
import textwrap
import warnings
from pathlib import Path
from typing import Any

import workbench
from tests.models import trial, zoo
from workbench.core.config import installed_versions
from workbench.core.executor import why_no_nvfuser
from workbench.errors import WorkbenchError

CHOICES = 10
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "models.md"
_WITHIN = 0.01
"""Largest allowed difference between the measured and the predicted peak, as a share."""

_COLUMNS = (
    "model",
    "front end",
    "statements",
    "sites",
    "to open, CPU s",
    "predicted peak, KiB",
    "measured",
    "choices",
    "right",
    "replayed",
    "fusions",
)
_WHAT = f"""
This page answers which models open, plan, run and replay. `python -m tests.models.table` writes it ({{versions}}).
**{{right}} of {{rows}}** model classes open, plan, run accurately, export and replay, with a measured peak within 1 %
of the predicted peak. Each model has random weights and tiny shapes. It runs forward, loss and backward on the CPU
with {CHOICES} random choices. *Fusions*: the number of fusions in nvFuser's plan for a planned GPU. *Right*: the first
step has the outputs and gradients of unmodified Thunder and of eager PyTorch. *Replayed*: the exported config gives the
same plan. `tests/models/zoo.py` has the shapes. Install `litgpt` with `pip install --no-deps`, because it needs
huggingface-hub before 1.4, but transformers 5 needs huggingface-hub 2.
"""

_ADVICE = "## Inputs to give, and models that cannot be opened"
"""First line of the hand-written part of the page. Writing the page does not change this part."""


def row(name: str) -> dict[str, Any]:
    """Try a model; return its `Outcome` and its fusions on a planned GPU as a row, or why it could not be tried."""
    found: dict[str, Any] = {"model": name, "class": "", "reason": ""}
    try:
        module, args, kwargs = zoo.build(name)
    except ImportError as error:
        return {**found, "reason": f"not installed: {error}"}
    found["class"] = f"{type(module).__module__.partition('.')[0]} {type(module).__name__}"
    try:
        with tempfile.TemporaryDirectory() as folder:
            found.update(dataclasses.asdict(trial.run(name, Path(folder), CHOICES)))
        if not why_no_nvfuser():
            bench = workbench.open(module, *args, device="planned", executor="nvfuser", **kwargs)
            found["fusions"] = bench.plan.census.count
    except WorkbenchError as error:
        found["reason"] = str(error)
    except Exception as error:  # noqa: BLE001  # what no refusal was foreseen for is a row of the table, too
        found["reason"] = f"{type(error).__name__}: {error}"
    return found


def is_right(found: dict[str, Any]) -> bool:
    """Return whether a model is accurate, replays, and has the predicted peak."""
    if found["reason"] or not found["accurate"] or not found["replayed"]:
        return False
    return bool(abs(found["measured_bytes"] / found["predicted_bytes"] - 1) <= _WITHIN)


def page(rows: list[dict[str, Any]]) -> str:
    """Return the page for these rows."""
    right = sum(map(is_right, rows))
    versions = ", ".join(f"{package} {version}" for package, version in installed_versions().items())
    lines = [
        "# Models that were tried",
        "",
        textwrap.fill(" ".join(_WHAT.format(versions=versions, rows=len(rows), right=right).split()), 140),
        "",
        f"| {' | '.join(_COLUMNS)} |",
        "|---" * len(_COLUMNS) + "|",
    ]
    for found in rows:
        if "capture" not in found:
            continue
        predicted, measured = found["predicted_bytes"], found["measured_bytes"]
        cells = [
            found["class"],
            found["capture"],
            found["statements"],
            found["sites"],
            f"{found['open_s']:.1f}",
            f"{predicted / 1024:.0f}",
            f"{100 * (measured / predicted - 1):+.2f} %",
            found["choices"],
            "yes" if found["accurate"] else "no",
            "yes" if found["replayed"] else "no",
            found.get("fusions", "-"),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    others = [found for found in rows if found["reason"]]
    if others:
        lines += ["", "## Not opened, or not in all", "", "| model | reason |", "|---|---|"]
        for found in others:
            # Paths of libraries and addresses of objects differ from run to run.
            reason = re.sub(r"\S*/site-packages/| at 0x[0-9a-f]+", "", " ".join(found["reason"].split()))
            reason = reason.replace("|", "\\|")
            lines.append(f"| {found['class'] or found['model']} | {reason[:400]} |")
    tried = {found["model"] for found in rows}
    if missing := [name for name in zoo.MODELS if name not in tried]:
        lines += ["", textwrap.fill(f"In the zoo, and not in this run: {', '.join(missing)}.", 140)]
    by_hand = PAGE.read_text().partition(_ADVICE)
    return "\n".join([*lines, "", "".join(by_hand[1:])])


def main() -> None:
    """Try the models that have not been tried yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=Path("models.jsonl"), help="where rows are kept")
    parser.add_argument("--again", nargs="*", default=[], metavar="NAME", help="models to try anew")
    parser.add_argument("--only", nargs="*", default=list(zoo.MODELS), metavar="NAME", help="models to try, in order")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    kept: dict[str, dict[str, Any]] = {}
    if asked.rows.exists():
        kept = {found["model"]: found for found in map(json.loads, asked.rows.read_text().splitlines())}
    for name in asked.only:
        if name not in kept or name in asked.again:
            kept[name] = row(name)
            with asked.rows.open("a") as file:
                file.write(json.dumps(kept[name]) + "\n")
    PAGE.write_text(page([kept[name] for name in zoo.MODELS if name in kept]))


if __name__ == "__main__":
    main()
