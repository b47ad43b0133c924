"""Try every model of the zoo and write docs/reference/models.md: ``python -m tests.models.table``.

A new process tries each model, with a time limit. The model's row is then appended to a file, so that an interrupted
run can resume. ``--again NAME…`` tries the named models again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import multiprocessing
import os
import re
import resource
import signal
import statistics
import tempfile
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any

import torch

import workbench
from tests.models import trial, zoo
from workbench.bench import PartsBench
from workbench.core.config import installed_versions
from workbench.core.executor import why_no_nvfuser
from workbench.errors import ProgramError, WorkbenchError
from workbench.util.disk_cache import CAPTURES

CHOICES = 10
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "models.md"
LIMIT_S = 120
"""Limit of a trial in CPU seconds. A trial that only waits is ended after ten times as many elapsed seconds."""
_WITHIN = 0.01
"""Largest allowed difference between measured and predicted peak memory, as a share."""

_COLUMNS = (
    "model",
    "parts",
    "opaque",
    "statements",
    "sites",
    "to open, CPU s",
    "predicted peak, KiB",
    "measured",
    "choices",
    "right",
    "replayed",
    "trained",
    "coverage",
    "fusions",
)
_SHARES = (0.99, 0.9, 0.5, 0.0)
"""Lower ends of the groups of models by coverage."""
_WHAT = f"""
This page answers which models open, plan, run, replay and train. `python -m tests.models.table` writes it
({{versions}}). **{{opened}} of {{rows}}** models open; **{{right}}** of these run accurately, export, replay and
train as in eager PyTorch, with a measured peak within 1 % of the predicted peak, or above it if the figure is a lower
bound. Each model has random weights and tiny shapes. It runs forward, loss and backward on the CPU with up to
{CHOICES} random choices. *Opaque*: parts that PyTorch runs. *Right*: the first step has the outputs and gradients of
unmodified Thunder and of eager PyTorch. *Replayed*: the exported config gives the same plan. *Trained*: {trial.STEPS}
steps have the losses, gradients, parameters and optimizer state of eager PyTorch. A number in this column is the
number of steps that were compared: in the next step, eager PyTorch itself differs from double precision. *Coverage*:
the measured share of a step's time that planned parts take; it is 100 % for a program of one graph. *Fusions*:
the number of fusions in nvFuser's plan for a planned GPU. `tests/models/zoo.py` lists the classes by kind. Install
LitGPT with `pip install --no-deps litgpt lightning torchmetrics`, because LitGPT needs a huggingface-hub older than
1.4, but transformers 5 needs huggingface-hub 2.
"""

KIND_OF = {name: kind for kind, models in zoo.KINDS.items() for name in models}
"""Kind of each model."""

_ADVICE = "## Inputs to give, and models that cannot be opened"
"""First line of the page's last section, which is written by hand. `page` keeps this section."""


def row(name: str, *, fusions: bool = False) -> dict[str, Any]:
    """Try a model, and return its row of the table.

    The row has the fields of `Outcome`. If the trial fails, it has the reason and the fields that were known before the
    failure. With `fusions`, it also has the number of fusions of a plan for a GPU.
    """
    found: dict[str, Any] = {"model": name, "kind": KIND_OF[name], "class": "", "reason": ""}
    try:
        program, args, kwargs = zoo.build(name)
    except ImportError as error:
        return {**found, "reason": f"not installed: {error}"}
    found["class"] = _class_of(program)
    try:
        with tempfile.TemporaryDirectory() as folder:
            found.update(dataclasses.asdict(trial.run(name, Path(folder), CHOICES, found.update)))
        if fusions and not why_no_nvfuser():
            found["fusions"] = _fusion_count(program, args, kwargs)
    except WorkbenchError as error:
        found["reason"] = str(error)
    except Exception as error:  # noqa: BLE001  # an unexpected error is a row of the table, too
        found["reason"] = f"{type(error).__name__}: {error}"
    return {**found, "cpu_s": round(time.process_time(), 1)}


def _fusion_count(program: Any, args: Any, kwargs: Any) -> int | str:
    """Return the number of fusions of a plan for a GPU. Return ``-`` if the program is refused.

    For example, a program is refused if it reads values, because the tensors of a plan have no values.
    """
    try:
        bench = workbench.open(program, *args, device="planned", executor="nvfuser", **kwargs)
    except ProgramError:
        return "-"
    if isinstance(bench, PartsBench):
        return sum(part.plan.census.count for part in bench.benches)
    return bench.plan.census.count


def _class_of(program: Any) -> str:
    """Return the library and the class of a program as text. For a class of the tests, the library is ``by hand,``."""
    name = f"{type(program).__module__.partition('.')[0]} {type(program).__name__}"
    return name.replace("tests _", "by hand, ").replace("tests ", "by hand, ")


def _write_row(name: str, path: Path, fusions: bool) -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
    torch.set_num_threads(1)
    os.environ[CAPTURES.variable] = str(path.parent / "captures")  # opening is timed, so begin with an empty cache
    path.write_text(json.dumps(row(name, fusions=fusions)))


def row_of_process(name: str, fusions: bool) -> dict[str, Any]:
    """Try a model in a new process. Return its row."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.models.trial", "transformers", "torchvision", "workbench.compiler.api"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "row.json"
        process = context.Process(target=_write_row, args=(name, path, fusions))
        process.start()
        process.join(10 * LIMIT_S)
        ended = process.exitcode is not None
        if not ended:
            process.kill()
            process.join()
        if ended and path.exists():
            found: dict[str, Any] = json.loads(path.read_text())
            return found
    is_late = not ended or process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL)
    reason = f"no result after {LIMIT_S} CPU seconds" if is_late else f"its process ended with {process.exitcode}"
    return {"model": name, "kind": KIND_OF[name], "class": "", "reason": reason}


def is_right(found: dict[str, Any]) -> bool:
    """Return whether the row of a model has no fault: accuracy, replay, training, and peak memory are right."""
    if found["reason"] or not found["accurate"] or not found["replayed"] or found["trained"]:
        return False
    measured, predicted = found["measured_bytes"], found["predicted_bytes"]
    is_below = measured < (1 - _WITHIN) * predicted
    return not is_below and (found["at_least"] or measured <= (1 + _WITHIN) * predicted)


def _trained(found: dict[str, Any]) -> str:
    """Return the cell *trained*. If float32 becomes unstable, it has the number of compared steps."""
    if found["trained"]:
        return "no"
    unstable = re.match(r"step (\d+)", found.get("unstable", ""))
    return f"{int(unstable[1]) - 1} of {trial.STEPS}" if unstable else "yes"


def coverage(found: dict[str, Any]) -> float | None:
    """Return the coverage of a model; None if it was not measured."""
    if "measured_bytes" not in found:
        return None
    share: float | None = found.get("coverage")
    return 1.0 if share is None and found["parts"] == 1 and not found["opaque"] else share


def _coverage_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Return the median and the distribution of the coverage as Markdown; none if no coverage is known."""
    known = [share for found in rows if (share := coverage(found)) is not None]
    if not known:
        return []
    without = sum("measured_bytes" in found for found in rows) - len(known)
    whole = sum(coverage(found) is not None and found["parts"] == 1 and not found["opaque"] for found in rows)
    told = (
        f"In the median of {len(known)} models, planned parts take {100 * statistics.median(known):.0f} % of a step. "
        f"{whole} of these models are one graph, which counts as 100 %."
    )
    if without:
        told += f" For {without} further models, which run in parts, the coverage was not measured."
    lines = [told, "", "| coverage | models |", "|---|---|"]
    upper = math.inf
    for lower in _SHARES:
        name = f"at least {100 * lower:.0f} %" if upper == math.inf else f"{100 * lower:.0f} to {100 * upper:.0f} %"
        lines.append(f"| {name} | {sum(lower <= share < upper for share in known)} |")
        upper = lower
    return [*lines, ""]


def page(rows: list[dict[str, Any]]) -> str:
    """Return the page as Markdown: the generated text, then the section that is written by hand."""
    right, opened = sum(map(is_right, rows)), sum("capture" in found for found in rows)
    versions = ", ".join(f"{package} {version}" for package, version in installed_versions().items())
    what = _WHAT.format(versions=versions, rows=len(rows), opened=opened, right=right)
    lines = [
        "# Models that were tried",
        "",
        textwrap.fill(" ".join(what.split()), 140),
        "",
        "| kind | classes | open | right |",
        "|---|---|---|---|",
    ]
    for kind in zoo.KINDS:
        own = [found for found in rows if found["kind"] == kind]
        counts = (len(own), sum("capture" in found for found in own), sum(map(is_right, own)))
        lines.append(f"| {kind} | {' | '.join(map(str, counts))} |")
    lines += ["", *_coverage_lines(rows), f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for found in rows:
        if "measured_bytes" not in found:
            continue
        predicted, measured, share = found["predicted_bytes"], found["measured_bytes"], coverage(found)
        cells = [
            found["class"],
            found["parts"],
            len(found["opaque"]) or "-",
            found["statements"],
            found["sites"],
            f"{found['open_s']:.1f}",
            f"{'≥ ' * found['at_least']}{predicted / 1024:.0f}",
            f"{100 * (measured / predicted - 1):+.2f} %" if predicted else "-",
            found["choices"],
            "yes" if found["accurate"] else "no",
            "yes" if found["replayed"] else "no",
            _trained(found),
            "-" if share is None else f"{100 * share:.0f} %",
            found.get("fusions", "-"),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for found in rows:
        if not found["reason"] and not found.get("accurate"):
            found["reason"] = f"differs in the first step: {found['worst']}"
        elif not found["reason"]:
            found["reason"] = f"differs in training: {found['trained']}" if found["trained"] else ""
        if not found["reason"] and not is_right(found):
            found["reason"] = (
                "the measured peak differs" if found["replayed"] else "the exported config gives another plan"
            )
    others = [found for found in rows if found["reason"]]
    if others:
        lines += ["", "## Models that did not open, or failed a check", "", "| model | reason |", "|---|---|"]
        for found in others:
            # Remove paths of libraries and addresses of objects, which differ between runs.
            reason = re.sub(r"\S*/site-packages/| at 0x[0-9a-f]+", "", " ".join(found["reason"].split()))
            reason = reason.replace("|", "\\|")
            lines.append(f"| {found['class'] or found['model']} | {reason[:400]} |")
    tried = {found["model"] for found in rows}
    if missing := [name for name in zoo.MODELS if name not in tried]:
        lines += ["", textwrap.fill(f"In the zoo, and not in this run: {', '.join(missing)}.", 140)]
    by_hand = PAGE.read_text().partition(_ADVICE)
    return "\n".join([*lines, "", "".join(by_hand[1:])])


def main() -> None:
    """Try the models that have no row or are named by ``--again``, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=Path("models.jsonl"), help="where rows are kept")
    parser.add_argument("--again", nargs="*", default=[], metavar="NAME", help="models to try anew")
    parser.add_argument("--fusions", action="store_true", help="plan each model for a GPU, too, and count its fusions")
    parser.add_argument("--only", nargs="*", default=list(zoo.MODELS), metavar="NAME", help="models to try, in order")
    asked = parser.parse_args()
    kept: dict[str, dict[str, Any]] = {}
    if asked.rows.exists():
        kept = {found["model"]: found for found in map(json.loads, asked.rows.read_text().splitlines())}
    for name in asked.only:
        if name not in kept or name in asked.again:
            kept[name] = row_of_process(name, asked.fusions)
            with asked.rows.open("a") as file:
                file.write(json.dumps(kept[name]) + "\n")
    PAGE.write_text(page([kept[name] for name in zoo.MODELS if name in kept]))


if __name__ == "__main__":
    main()
