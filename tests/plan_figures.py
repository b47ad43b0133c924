"""Plan the built-in programs, and print what the plans consist of, to compare versions of PyTorch.

``python -m tests.plan_figures`` prints one JSON document. A key names the program, the executor and the device.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import workbench as wb
from workbench.programs import describe

PLANNED = (("torch", "cpu"), ("torchcompile", "planned"))
"""Executors that need no nvFuser, each with a device."""


def figures() -> dict[str, dict[str, Any]]:
    """Return statements, sites and figures of the stock plan of each built-in program, for each of `PLANNED`."""
    found = {}
    for info in describe():
        for executor, device in PLANNED:
            plan = wb.open(info.name, device=device, executor=executor).plan
            document = plan.to_json()
            names = ("peak_bytes", "saved_bytes", "saved_tensors", "fusions", "counts")
            found[f"{info.name} {executor} {device}"] = {
                "statements": list(plan.graph.statements.name),
                "sites": [[site.id, list(site.options), site.choice, site.bytes] for site in plan.sites],
                **{name: document[name] for name in names},
                "proven": plan.proof.proven,
            }
    return found


if __name__ == "__main__":
    json.dump(figures(), sys.stdout)
