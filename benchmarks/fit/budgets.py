"""Measure `fit` under many budgets, planned for a GPU: a Llama with 7B shapes, a GPT-2 and a ViT, without fusions.

A budget is a limit on the peak. Budgets range from the least peak to the stock peak. For each budget, the benchmark
records the plan's peak, the time that it adds to the step, the proven gap to the best plan, and CPU seconds. Gap and
seconds are recorded for the first plan within 1 % of the bound, and for the final plan. For a few budgets, they are
also recorded for `scipy.optimize.milp`, which gets the complete integer program at once. At the end, one table has all
models.

The exit status is 1 if one of these promises is broken:

- A peak is within its budget.
- A larger budget does not make the step longer.
- No plan has both a lower peak and a shorter step than the plan of another budget.
- If a plan's peak is over 1 % below its budget, no known plan with a peak within 1 % of the budget is faster.
- Everything is recomputed only if no other plan has a lower peak.

``python -m benchmarks.fit.budgets [--budgets 50] [--layers 4] [--only NAME] [--json FILE]``
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import workbench
from workbench.analysis.fit.budget_solver import Chooser
from workbench.analysis.fit.rounding import SOLVED_TO
from workbench.bench import Workbench
from workbench.bench.fit.fitter import Fitter

CLOSE = 0.01
"""A peak is close to its budget if the difference is at most this share of the budget.

For the first plan, the search ends when the gap to the bound is at most this share.
"""
PLAIN_NODES = 10_000


def llama(layers: int) -> Workbench:
    return workbench.open(
        "llama", device="planned", executor="torch", layers=layers, dim=4096, heads=32, hidden=11008, vocab=32000,
        batch=1, sequence=2048, dtype="bfloat16",
    )  # fmt: skip


def gpt(layers: int) -> Workbench:
    from transformers import GPT2Config, GPT2LMHeadModel

    settings = GPT2Config(
        n_layer=layers, n_embd=768, n_head=12, n_positions=1024, use_cache=False,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    ids = torch.zeros(4, 1024, dtype=torch.long)
    return workbench.open(
        GPT2LMHeadModel(settings), kwargs={"input_ids": ids, "labels": ids}, device="planned", executor="torch"
    )


def vit(layers: int) -> Workbench:
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(ViTConfig(num_hidden_layers=layers))
    given = {"pixel_values": torch.zeros(16, 3, 224, 224), "labels": torch.zeros(16, dtype=torch.long)}
    return workbench.open(model, kwargs=given, device="planned", executor="torch")


MODELS: dict[str, Callable[[int], Workbench]] = {"llama": llama, "gpt2": gpt, "vit": vit}


def cpu_s() -> float:
    """Return the CPU seconds of this process and of solver processes that have ended."""
    took = os.times()
    return took.user + took.system + took.children_user + took.children_system


def plainly(chooser: Chooser, limit_bytes: int) -> float:
    """Return the lower bound on added seconds that `scipy.optimize.milp` proves for a limit.

    The solver gets the complete integer program at once.
    """
    under = chooser._relaxation.program_for(limit_bytes)
    for place in under.over.tolist():
        under.add_memory_row(place)
    return under.solve_integer(lambda: None, nodes=PLAIN_NODES, gap=SOLVED_TO).proven_s


def measured(bench: Workbench, budgets: int) -> dict[str, Any]:
    """Return all figures of one model. The rows are sorted from the lowest budget."""
    started = cpu_s()
    fitter = Fitter(bench, bench._captured, bench.machine)
    chooser = fitter.chooser
    least, stock = fitter.lowest_peak()[1].peak_bytes, bench.plan.peak_bytes
    prepared_s = cpu_s() - started
    rows, points = [], []
    for limit in np.linspace(least, stock, budgets).astype(int).tolist():
        started = cpu_s()
        first = chooser.fit(limit, gap=CLOSE)
        first_s = cpu_s() - started
        first_gap = 1.0 if first is None else chooser.gap(first, limit)
        point, plan = fitter.fit_peak(limit)
        found_s = cpu_s() - started
        points.append(point)
        rows.append(
            {
                "limit_bytes": limit,
                "peak_bytes": plan.peak_bytes,
                "added_s": point.added_s,
                "cpu_s": found_s,
                "first_gap": first_gap,
                "first_cpu_s": first_s,
            }
        )
    total = fitter.step_s
    for row, point in zip(rows, points, strict=True):
        limit = row["limit_bytes"]
        row["gap"] = max(0.0, point.added_s - chooser.bound(limit).added_s) / (total + point.added_s)
    for row in rows[:: max(1, len(rows) // 5)]:
        if row["limit_bytes"] < stock:
            started = cpu_s()
            proven_s = plainly(chooser, row["limit_bytes"])
            row["milp_cpu_s"] = cpu_s() - started
            row["milp_gap"] = max(0.0, row["added_s"] - proven_s) / (total + row["added_s"])
    everything = chooser.point({s: o for s, o in chooser.choices if o == "recompute"})
    weighed = chooser.evaluations.points()
    for row, point in zip(rows, points, strict=True):
        limit = row["limit_bytes"]
        # Count the weighed plans whose peak is close to the budget and that are faster than the returned plan.
        row["closer"] = sum(
            (1 - CLOSE) * limit <= known.peak_bytes <= limit and known.added_s < point.added_s * (1 - SOLVED_TO)
            for known in weighed
        )
        row["everything"] = point.options == everything.options
    return {
        "choices": len(chooser.choices),
        "statements": len(fitter.before.graph.statements),
        "stock_bytes": stock,
        "least_bytes": least,
        "baseline_bytes": bench.plan.baseline_bytes,
        "weighed": len(weighed),
        "recompute_everything_bytes": everything.peak_bytes,
        "step_s": total,
        "prepared_cpu_s": prepared_s,
        "rows": rows,
    }


def broken(found: dict[str, Any]) -> list[str]:
    """Return a message for each broken promise."""
    rows, said = found["rows"], []
    for row, larger in itertools.pairwise(rows):
        if larger["added_s"] > row["added_s"] * (1 + 1e-9) + 1e-12:
            said.append(f"the step under {larger['limit_bytes']} bytes is longer than under {row['limit_bytes']}")
    for row in rows:
        if row["peak_bytes"] > row["limit_bytes"]:
            said.append(f"a peak of {row['peak_bytes']} bytes under a budget of {row['limit_bytes']} bytes")
        if any(o["peak_bytes"] < row["peak_bytes"] and o["added_s"] < row["added_s"] * (1 - 1e-9) for o in rows):
            said.append(f"{row['limit_bytes']} bytes: the plan of another budget has a lower peak and a shorter step")
        if row["peak_bytes"] < (1 - CLOSE) * row["limit_bytes"] and row["closer"]:
            said.append(f"{row['closer']} faster plans are nearer to the budget of {row['limit_bytes']} bytes")
        if row["everything"] and row["peak_bytes"] > min(o["peak_bytes"] for o in rows if not o["everything"]):
            said.append(f"everything is recomputed under {row['limit_bytes']} bytes, but another plan has a lower peak")
    return said


def most(rows: list[dict[str, Any]], key: str) -> float:
    """Return the maximum of a figure over the rows that have the figure."""
    return max((float(row[key]) for row in rows if key in row), default=0.0)


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a Markdown table with a row for each model."""
    lines = [
        "| model | choices | stock to least peak, GiB | all recomputed, GiB | over budget | within 1 % | further "
        "below, nearer plan faster | first plan: gap, CPU s, at most | refined: gap at most | CPU s of a budget, "
        "median and most | plain milp: gap, CPU s, at most | broken |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in results.items():
        rows = found["rows"]
        far = [row for row in rows if row["peak_bytes"] < (1 - CLOSE) * row["limit_bytes"]]
        over = sum(row["peak_bytes"] > row["limit_bytes"] for row in rows)
        took = [row["cpu_s"] for row in rows]
        gib = [found[f"{key}_bytes"] / 2**30 for key in ("stock", "least", "recompute_everything")]
        lines.append(
            f"| {name} | {found['choices']} | {gib[0]:.3f} to {gib[1]:.3f} | {gib[2]:.3f} | {over} of {len(rows)} | "
            f"{len(rows) - len(far)} | {len(far)}, {sum(row['closer'] > 0 for row in far)} | "
            f"{most(rows, 'first_gap'):.3%}, {most(rows, 'first_cpu_s'):.2f} | {most(rows, 'gap'):.3%} | "
            f"{np.median(took):.2f}, {max(took):.2f} | {most(rows, 'milp_gap'):.3%}, {most(rows, 'milp_cpu_s'):.2f} | "
            f"{len(broken(found))} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Print a line for each model; return the exit status."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    asked.add_argument("--budgets", type=int, default=50)
    asked.add_argument("--layers", type=int, default=4)
    asked.add_argument("--only", choices=list(MODELS))
    asked.add_argument("--json", type=Path)
    options = asked.parse_args()
    results, failed = {}, 0
    for name, opened in MODELS.items():
        if options.only not in (None, name):
            continue
        started = cpu_s()
        bench = opened(options.layers)
        opened_s = cpu_s() - started
        found = results[name] = {"opened_cpu_s": opened_s, **measured(bench, options.budgets)}
        rows = found["rows"]
        under = [1 - row["peak_bytes"] / row["limit_bytes"] for row in rows]
        paid = [share for share, row in zip(under, rows, strict=True) if row["added_s"] > 0]
        told = broken(found)
        failed += bool(told)
        close = [sum(share <= CLOSE for share in shares) for shares in (under, paid)]
        gib = {key: f"{found[f'{key}_bytes'] / 2**30:.3f}" for key in ("stock", "least", "recompute_everything")}
        print(
            f"{name}, {options.layers} layers: {found['choices']} choices, peak {gib['stock']} to {gib['least']} GiB "
            f"(all recomputed {gib['recompute_everything']}); {close[0]} of {len(rows)} peaks within {CLOSE:.0%} of "
            f"the budget, {close[1]} of the {len(paid)} that cost time; at most {most(rows, 'added_s'):.6f} s on a "
            f"step of {found['step_s']:.6f} s; gap at most {most(rows, 'gap'):.4%} (first plan "
            f"{most(rows, 'first_gap'):.3%}, plain milp {most(rows, 'milp_gap'):.4%}); CPU s: open {opened_s:.1f}, "
            f"prepare {found['prepared_cpu_s']:.1f}, a first plan "
            f"{np.median([row['first_cpu_s'] for row in rows]):.2f} median {most(rows, 'first_cpu_s'):.2f} most, "
            f"a budget {np.median([row['cpu_s'] for row in rows]):.2f} median "
            f"{most(rows, 'cpu_s'):.2f} most, plain milp {most(rows, 'milp_cpu_s'):.2f} most",
            flush=True,
        )
        for line in told:
            print(f"  BROKEN: {line}")
    print(f"\n{table(results)}")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
