"""Try every model of the zoo and write docs/reference/models.md: ``python -m tests.models.table``.

A new process tries each model, with a time limit. The model's row is then appended to a file, so that an interrupted
run can resume. ``--again NAME…`` tries the named models again, and changes no other row.

The page has a column for a second PyTorch. Run ``--rows SECOND --rows-only`` in the environment of that PyTorch.
Then write the page in the environment of the first PyTorch, with ``--second SECOND``.
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
import sysconfig
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
_ROOT = Path(__file__).parents[2]
PAGE = _ROOT / "docs" / "reference" / "models.md"
ROWS = _ROOT / "benchmarks" / "results" / "models.jsonl"
SECOND_ROWS = _ROOT / "benchmarks" / "results" / "models_second_torch.jsonl"
LIMIT_S = 600
"""Limit of a trial in CPU seconds."""
_ELAPSED_S = 30 * LIMIT_S
"""Elapsed seconds after which a trial is ended, because it may only wait. On a busy machine, a trial takes long."""
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
number of steps that were compared: in the next step, eager PyTorch itself differs from double precision, or the model
differs from eager PyTorch only in single precision, and in no step in double precision. *Coverage*: the measured share
of a step's time that planned parts take; it is 100 % for a program of one graph. *Fusions*: the number of fusions in
nvFuser's plan for a planned GPU. `tests/models/zoo.py` lists the classes by kind. Install LitGPT with
`pip install --no-deps litgpt lightning torchmetrics`, because LitGPT needs a huggingface-hub older than 1.4, but
transformers 5 needs huggingface-hub 2.
"""

KIND_OF = {name: kind for kind, models in zoo.KINDS.items() for name in models}
"""Kind of each model."""

_PLAN = {"statements": "statements", "sites": "sites", "predicted_bytes": "predicted peak in bytes"}
"""Figures of a plan that are compared between two versions of PyTorch, and their names.

The trial draws its choices from the sites, so the predicted peaks belong to the same choices if the sites are the same.
"""

_ADVICE = "## Inputs to give, and models that cannot be opened"
"""First line of the page's last section, which is written by hand. `page` keeps this section."""


def _empty_row(name: str) -> dict[str, Any]:
    version = torch.__version__.partition("+")[0]
    return {"model": name, "kind": KIND_OF[name], "class": "", "reason": "", "torch": version}


def row(name: str, *, fusions: bool = False) -> dict[str, Any]:
    """Try a model, and return its row of the table.

    The row has the fields of `Outcome`. If the trial fails, it has the reason and the fields that were known before the
    failure. With `fusions`, it also has the number of fusions of a plan for a GPU.
    """
    found = _empty_row(name)
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
    # Rows are committed, so they name files of packages without the folder of this environment.
    path.write_text(json.dumps(row(name, fusions=fusions)).replace(f"{sysconfig.get_path('purelib')}/", ""))


def row_of_process(name: str, fusions: bool) -> dict[str, Any]:
    """Try a model in a new process. Return its row."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.models.trial", "transformers", "torchvision", "workbench.compiler.api"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "row.json"
        process = context.Process(target=_write_row, args=(name, path, fusions))
        process.start()
        process.join(_ELAPSED_S)
        ended = process.exitcode is not None
        if not ended:
            process.kill()
            process.join()
        if ended and path.exists():
            found: dict[str, Any] = json.loads(path.read_text())
            return found
    if not ended:
        reason = f"no result after {_ELAPSED_S} elapsed seconds"
    elif process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL):
        reason = f"no result after {LIMIT_S} CPU seconds"
    else:
        reason = f"its process ended with {process.exitcode}"
    return {**_empty_row(name), "reason": reason}


def is_right(found: dict[str, Any]) -> bool:
    """Return whether the row of a model has no fault: accuracy, replay, training, and peak memory are right."""
    if found["reason"] or not found["accurate"] or not found["replayed"] or found["trained"]:
        return False
    measured, predicted = found["measured_bytes"], found["predicted_bytes"]
    is_below = measured < (1 - _WITHIN) * predicted
    return not is_below and (found["at_least"] or measured <= (1 + _WITHIN) * predicted)


def _fault(found: dict[str, Any]) -> str:
    """Return what is wrong with the row of a model; empty if nothing is."""
    if found["reason"] or is_right(found):
        return str(found["reason"])
    if not found["accurate"]:
        return f"differs in the first step: {found['worst']}"
    if found["trained"]:
        return f"differs in training: {found['trained']}"
    return "the measured peak differs" if found["replayed"] else "the exported config gives another plan"


def _reason_cell(reason: str) -> str:
    """Return a reason as a cell, without paths of libraries and addresses of objects, which differ between runs."""
    return re.sub(r"\S*/site-packages/| at 0x[0-9a-f]+", "", " ".join(reason.split())).replace("|", "\\|")[:400]


def _is_tried(second: dict[str, Any] | None) -> bool:
    return second is not None and not second["reason"].startswith("not installed")


def _plan_differences(found: dict[str, Any], second: dict[str, Any]) -> str:
    """Return how the plan with the second PyTorch differs; empty if it does not."""
    known = [key for key in _PLAN if key in found and key in second]
    differs = [f"{_PLAN[key]}: {second[key]} instead of {found[key]}" for key in known if found[key] != second[key]]
    return "; ".join(differs)


def _second_cell(found: dict[str, Any], second: dict[str, Any] | None) -> str:
    """Return the cell that says whether a model is right with the second PyTorch."""
    if second is None or not _is_tried(second):
        return "not tried"
    if not is_right(second):
        return "no"
    return "yes, other plan" if _plan_differences(found, second) else "yes"


def _second_lines(rows: list[dict[str, Any]], seconds: dict[str, dict[str, Any]], version: str) -> list[str]:
    """Return a section that names each difference between the rows and those of the second PyTorch."""
    pairs = [(found, seconds[found["model"]]) for found in rows if _is_tried(seconds.get(found["model"]))]
    right = [(found, second) for found, second in pairs if is_right(second)]
    same = sum(not _plan_differences(found, second) for found, second in right)
    alike = sum(_reason_cell(_fault(found)) == _reason_cell(_fault(second)) != "" for found, second in pairs)
    lines = [
        f"## What differs on PyTorch {version}",
        "",
        f"{len(pairs)} of the {len(rows)} models were tried on PyTorch {version}. {len(right)} are right. The plans of "
        f"{same} of these have the same figures ({', '.join(_PLAN.values())}). {alike} fail for the same reason as on "
        "the first PyTorch. The table lists the differences of all others.",
        "",
        "| model | difference |",
        "|---|---|",
    ]
    for found, second in pairs:
        plan, fault = _plan_differences(found, second), _fault(second)
        if _reason_cell(fault) == _reason_cell(_fault(found)):
            fault = ""
        elif fault:
            fault = f"not right: {fault}"
        told = "; ".join(filter(None, [plan, fault]))
        if told:
            lines.append(f"| {second['class'] or second['model']} | {_reason_cell(told)} |")
    return lines


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
    return 1.0 if share is None and _is_whole(found) else share


def _coverage_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Return the median and the distribution of the coverage as Markdown; none if no coverage is known.

    Models that are not one graph are also counted separately.
    """
    known = [(share, _is_whole(found)) for found in rows if (share := coverage(found)) is not None]
    if not known:
        return []
    groups = {
        "models": [share for share, _ in known],
        "not one graph": [share for share, whole in known if not whole],
    }
    without = sum("measured_bytes" in found for found in rows) - len(known)
    told = f"In the median of {len(known)} models, planned parts take {_median(groups['models'])} % of a step."
    told += f" {sum(whole for _, whole in known)} of these models are one graph, which counts as 100 %."
    if parts := groups["not one graph"]:
        told += f" In the median of the {len(parts)} others, planned parts take {_median(parts)} %."
    if without:
        told += f" The coverage was not measured for {without} of the models in parts."
    lines = [told, "", f"| coverage | {' | '.join(groups)} |", "|---" * (1 + len(groups)) + "|"]
    upper = math.inf
    for lower in _SHARES:
        name = f"at least {100 * lower:.0f} %" if upper == math.inf else f"{100 * lower:.0f} to {100 * upper:.0f} %"
        counts = (sum(lower <= share < upper for share in group) for group in groups.values())
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
        upper = lower
    return [*lines, ""]


def _is_whole(found: dict[str, Any]) -> bool:
    return found["parts"] == 1 and not found["opaque"]


def _median(shares: list[float]) -> str:
    return f"{100 * statistics.median(shares):.0f}"


def page(rows: list[dict[str, Any]], seconds: dict[str, dict[str, Any]] | None = None) -> str:
    """Return the page as Markdown: the generated text, then the section that is written by hand.

    `seconds` are the rows of a second PyTorch by model. Rows without its version are left out.
    """
    seconds = {name: found for name, found in (seconds or {}).items() if "torch" in found}
    version = next((found["torch"] for found in seconds.values()), "")
    columns = [*_COLUMNS, f"right on {version}"] if version else list(_COLUMNS)
    right, opened = sum(map(is_right, rows)), sum("capture" in found for found in rows)
    installed = installed_versions().items()  # without the workbench: the rows come from several of its versions
    versions = ", ".join(f"{name} {version}" for name, version in installed if name != "thunder-workbench")
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
    lines += ["", *_coverage_lines(rows), f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
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
        if version:
            cells.append(_second_cell(found, seconds.get(found["model"])))
        lines.append(f"| {' | '.join(map(str, cells))} |")
    others = [found for found in rows if _fault(found)]
    if others:
        lines += ["", "## Models that did not open, or failed a check", "", "| model | reason |", "|---|---|"]
        lines += [f"| {found['class'] or found['model']} | {_reason_cell(_fault(found))} |" for found in others]
    if version:
        lines += ["", *_second_lines(rows, seconds, version)]
    tried = {found["model"] for found in rows}
    if missing := [name for name in zoo.MODELS if name not in tried]:
        lines += ["", textwrap.fill(f"In the zoo, and not in this run: {', '.join(missing)}.", 140)]
    by_hand = PAGE.read_text().partition(_ADVICE)
    return "\n".join([*lines, "", "".join(by_hand[1:])])


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of a file by model. If a model has several rows, the last one counts."""
    return {found["model"]: found for found in map(json.loads, path.read_text().splitlines())}


def main() -> None:
    """Try the models that have no row or are named by ``--again``, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=ROWS, help="where rows are kept")
    parser.add_argument("--rows-only", action="store_true", help="keep the page as it is")
    parser.add_argument("--second", type=Path, default=SECOND_ROWS, help="rows of a second PyTorch")
    parser.add_argument("--again", nargs="*", default=[], metavar="NAME", help="models to try anew")
    parser.add_argument("--fusions", action="store_true", help="plan each model for a GPU, too, and count its fusions")
    parser.add_argument("--only", nargs="*", default=list(zoo.MODELS), metavar="NAME", help="models to try, in order")
    asked = parser.parse_args()
    kept = _read(asked.rows) if asked.rows.exists() else {}
    for name in asked.only:
        if name not in kept or name in asked.again:
            kept[name] = row_of_process(name, asked.fusions)
            asked.rows.write_text("".join(f"{json.dumps(found)}\n" for found in kept.values()))
    if not asked.rows_only:
        seconds = _read(asked.second) if asked.second.exists() else None
        PAGE.write_text(page([kept[name] for name in zoo.MODELS if name in kept], seconds))


if __name__ == "__main__":
    main()
