"""What `fit` finds under many budgets, planned for a GPU: a Llama of 7B shapes, a GPT-2 and a ViT, nothing fused.

For each budget from the least peak to the stock one: the peak of the plan against the budget, what the step gains over
the quickest of all budgets, the certified gap, and the CPU seconds that each takes. Then a table of all models. Exits
with 1 where a promise is broken: a peak over its budget, a longer step under a larger budget, a point beaten by another
in both, a peak further than 1 % below its budget where a plan that close to it is quicker, or everything recomputed
where that peaks higher than a plan that is quicker.

``python -m benchmarks.bench_fit [--budgets 50] [--layers 4] [--only NAME] [--json FILE]``
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import workbench
from workbench.analysis.closing import SOLVED_TO
from workbench.analysis.relaxed import whole
from workbench.bench import Workbench
from workbench.bench.fitting import Fitter

CLOSE = 0.01
"""Share of a budget that a peak may stay under it and still be close."""
SOLVER_S = 30.0


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


def measured(bench: Workbench, budgets: int) -> dict[str, Any]:
    """All figures of one model; points from the least budget up, each by an independent search."""
    started = time.process_time()
    fitter = Fitter(bench, bench._captured, bench.machine)
    chooser = fitter.chooser
    least, stock = fitter.least()[1].peak_bytes, bench.plan.peak_bytes
    prepared_s = time.process_time() - started
    rows, points = [], []
    for limit in np.linspace(least, stock, budgets).astype(int).tolist():
        started = time.process_time()
        point, plan = fitter.within(limit)
        found_s = time.process_time() - started
        points.append(point)
        rows.append({"limit_bytes": limit, "peak_bytes": plan.peak_bytes, "added_s": point.added_s, "cpu_s": found_s})
    total = fitter.step_s
    for row, point in zip(rows, points, strict=True):
        limit = row["limit_bytes"]
        started = time.process_time()
        row["gap"] = max(0.0, point.added_s - chooser.bound(limit).added_s) / (total + point.added_s)
        row["bound_cpu_s"] = time.process_time() - started
    picked = rows[:: max(1, len(rows) // 5)]
    for row in picked:
        started = time.process_time()
        proven = whole(chooser.relaxed(row["limit_bytes"]), SOLVER_S)
        row["proven_gap"] = max(0.0, row["added_s"] - proven) / (total + row["added_s"])
        row["milp_cpu_s"] = time.process_time() - started
    everything = chooser.point({s: o for s, o in chooser._variables if o == "recompute"})
    weighed = [known for known, _ in chooser._known.values()]
    for row, point in zip(rows, points, strict=True):
        limit = row["limit_bytes"]
        # As quick at a higher peak would be beaten; what is quicker there has to have been found.
        row["closer"] = sum(
            (1 - CLOSE) * limit <= known.peak_bytes <= limit and known.added_s < point.added_s * (1 - SOLVED_TO)
            for known in weighed
        )
        row["everything"] = point.options == everything.options
    return {
        "choices": len(chooser._variables),
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
    """Promises that are not kept."""
    rows, said = found["rows"], []
    for row, larger in itertools.pairwise(rows):
        if larger["added_s"] > row["added_s"] * (1 + 1e-9) + 1e-12:
            said.append(f"the step under {larger['limit_bytes']} bytes is longer than under {row['limit_bytes']}")
    for row in rows:
        if row["peak_bytes"] > row["limit_bytes"]:
            said.append(f"{row['peak_bytes']} bytes under a budget of {row['limit_bytes']}")
        if any(o["peak_bytes"] < row["peak_bytes"] and o["added_s"] < row["added_s"] * (1 - 1e-9) for o in rows):
            said.append(f"the point under {row['limit_bytes']} bytes is beaten in both")
        if row["peak_bytes"] < (1 - CLOSE) * row["limit_bytes"] and row["closer"]:
            said.append(f"{row['closer']} quicker plans are nearer {row['limit_bytes']} bytes than its own")
        if row["everything"] and row["peak_bytes"] > min(o["peak_bytes"] for o in rows if not o["everything"]):
            said.append(f"everything is recomputed under {row['limit_bytes']} bytes, where less of it peaks lower")
    return said


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """A row per model, in Markdown."""
    lines = [
        "| model | choices | stock to least peak, GiB | all recomputed, GiB | over budget | within 1 % | further "
        "below, a nearer plan quicker | gap at most | CPU s of a budget, median and most | broken |",
        "|---|---|---|---|---|---|---|---|---|---|",
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
            f"{max(row['gap'] for row in rows):.3%} | {np.median(took):.2f}, {max(took):.2f} | {len(broken(found))} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Print a line per model; what a shell gets."""
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
        started = time.process_time()
        bench = opened(options.layers)
        opened_s = time.process_time() - started
        found = results[name] = {"opened_cpu_s": opened_s, **measured(bench, options.budgets)}
        rows = found["rows"]
        under = [1 - row["peak_bytes"] / row["limit_bytes"] for row in rows]
        paid = [share for share, row in zip(under, rows, strict=True) if row["added_s"] > 0]
        gaps = [row["gap"] for row in rows]
        proven = [row["proven_gap"] for row in rows if "proven_gap" in row]
        told = broken(found)
        failed += bool(told)
        close = [sum(share <= CLOSE for share in shares) for shares in (under, paid)]
        most = {
            key: max(row.get(key, 0.0) for row in rows) for key in ("added_s", "cpu_s", "bound_cpu_s", "milp_cpu_s")
        }
        gib = {key: f"{found[f'{key}_bytes'] / 2**30:.3f}" for key in ("stock", "least", "recompute_everything")}
        print(
            f"{name}, {options.layers} layers: {found['choices']} choices, peak {gib['stock']} to {gib['least']} GiB "
            f"(all recomputed {gib['recompute_everything']}); {close[0]} of {len(rows)} peaks within {CLOSE:.0%} of "
            f"the budget, {close[1]} of the {len(paid)} that cost time; at most {most['added_s']:.6f} s on a step of "
            f"{found['step_s']:.6f} s; gap at most {max(gaps):.3%}, by whole choices {max(proven):.3%} of "
            f"{len(proven)}; CPU s: open {opened_s:.1f}, prepare {found['prepared_cpu_s']:.1f}, a budget "
            f"{np.median([row['cpu_s'] for row in rows]):.2f} median {most['cpu_s']:.2f} most, "
            f"bound {most['bound_cpu_s']:.2f} most, whole choices {most['milp_cpu_s']:.2f} most",
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
