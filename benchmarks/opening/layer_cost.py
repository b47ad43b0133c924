"""Measure the CPU time that one more layer adds to each stage of opening, for the Llama of `real_size_point`.

``python -m benchmarks.opening.layer_cost [LAYERS MORE]`` (32 and 128 by default) opens programs with both numbers of
layers, each in a new process, in which a timer samples the current stage. It prints, for each stage, the CPU seconds
with either number of layers, and the CPU milliseconds for each layer. The last two rows are the time outside of all
stages, and the total time.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from types import FrameType

from benchmarks.opening.real_size_point import SHAPES

INTERVAL_S = 0.004
"""CPU seconds between two samples of the current stage."""

STAGES = {
    ("programs/resolving.py", "resolve"): "make the module",
    ("compiler/frontend/dynamo.py", "whole_graph"): "Dynamo",
    ("compiler/frontend/fx_to_thunder.py", "_results"): "Thunder traces Dynamo's graph",
    ("compiler/trace/stable_ids.py", "tag_origins"): "origins",
    ("compiler/layers/partition.py", "reduce"): "leave out identical layers",
    ("compiler/pipeline/compilation.py", "record_claimed"): "record claimed statements",
    ("compiler/pipeline/lever_context.py", "read_graph"): "the joint graph",
    ("compiler/fusion/fusion_passes.py", "partition"): "partition",
    ("compiler/fusion/executors.py", "_cut"): "cuts",
    ("compiler/fusion/executors.py", "_make_callable"): "make fusions callable",
    ("compiler/fastpath/final_claim.py", "claim_operators"): "the last pass",
    ("compiler/pipeline/compilation.py", "execution_traces"): "split, and free values",
    ("compiler/trace/validate.py", "validate"): "validation",
    ("compiler/memory/graph_builder.py", "read_execution"): "the graph",
    ("compiler/pipeline/compilation.py", "find_sites"): "sites",
}
"""Stages by file and function. If several of these functions are on the stack, the innermost is the stage."""
OTHER = "all else"


def sampled(layers: int) -> dict[str, float]:
    """Open the program in this process. Return the CPU seconds of each stage."""
    import workbench

    importlib.import_module("workbench.compiler.api")
    found: Counter[str] = Counter()

    def sample(_: int, frame: FrameType | None) -> None:
        while frame is not None:
            file = "/".join(frame.f_code.co_filename.rsplit("/", 2)[1:])
            if stage := STAGES.get((file, frame.f_code.co_name)):
                found[stage] += 1
                return
            frame = frame.f_back
        found[OTHER] += 1

    signal.signal(signal.SIGPROF, sample)
    begun = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
    workbench.open("llama", layers=layers, device="planned", executor="nvfuser", **SHAPES)
    signal.setitimer(signal.ITIMER_PROF, 0)
    seconds = time.process_time() - begun
    share = seconds / sum(found.values())
    return {stage: found[stage] * share for stage in (*STAGES.values(), OTHER)} | {"in all": seconds}


def main(few: int, many: int) -> None:
    """Measure both numbers of layers, and print the table."""
    both = [
        json.loads(
            subprocess.check_output([sys.executable, "-m", "benchmarks.opening.layer_cost", "sample", str(layers)])
        )
        for layers in (few, many)
    ]
    print(f"{'':32}{few:>8}{many:>8}   ms a layer")
    for stage in both[0]:
        less, more = both[0][stage], both[1][stage]
        print(f"{stage:32}{less:8.2f}{more:8.2f}{1e3 * (more - less) / (many - few):13.1f}")


if __name__ == "__main__":
    os.environ.setdefault("THUNDER_WORKBENCH_CACHE", "off")
    if sys.argv[1:2] == ["sample"]:
        print(json.dumps(sampled(int(sys.argv[2]))))
    else:
        main(*map(int, sys.argv[1:] or (32, 128)))
