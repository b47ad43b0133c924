"""One point of `test_size.py`: Llama with the shapes of a 7B model, planned for a GPU, in a process of its own.

``python -m benchmarks.size_point LAYERS workbench`` or ``… stock``; prints one JSON document. Times are CPU seconds.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

SHAPES: dict[str, Any] = {
    "dim": 4096,
    "heads": 32,
    "hidden": 11008,
    "vocab": 32000,
    "sequence": 4096,
    "batch": 1,
    "dtype": "bfloat16",
}


def peak_rss_bytes() -> int:
    """The most memory that this process had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def of_workbench(layers: int) -> dict[str, Any]:
    """Opened with its stock plan, then two choices one after the other in layers that are apart."""
    import workbench
    import workbench.compiler.pipeline  # with Thunder and nvFuser: seconds that every process takes once

    begun = time.process_time()
    bench = workbench.open("llama", layers=layers, device="planned", executor="nvfuser", **SHAPES)
    statements = len(bench.plan.graph.statements)
    open_s = time.process_time() - begun
    able = [site for site in bench.sites("saved") if "recompute" in site.options and "recompute" not in site.illegal]
    choices = []
    for share in (0.5, 0.25, 0.75):
        begun = time.process_time()
        bench.choose({able[int(share * len(able))].id: "recompute"})
        choices.append(time.process_time() - begun)
    return {
        "open_s": open_s,
        "choice_s": sorted(choices)[1],
        "choices_s": choices,
        "statements": statements,
        "stages": {stage.name: round(stage.seconds, 3) for stage in bench.plan.stages},
        "peak_rss_bytes": peak_rss_bytes(),
    }


def of_stock(layers: int) -> dict[str, Any]:
    """Traced by ``thunder.jit`` as it is shipped, up to the traces that it would execute."""
    from workbench.compiler import devices, quick, thunder_api
    from workbench.programs import resolve

    program = resolve("llama", settings={"layers": layers, **SHAPES}, device="planned")
    assert program.fake_mode is not None
    executors = [devices.nvfuser_module().ex, *thunder_api.get_default_executors()]
    begun = time.process_time()
    with quick.as_shipped(), devices.planned_gpu(program.fake_mode):
        jitted = thunder_api.jit(program.callable, executors=executors)
        entry, _, _ = jitted._lc_cd.get_computation_and_inputs(*program.args, **program.kwargs)
    open_s = time.process_time() - begun
    traces = (entry.computation_traces[-1], *entry.backward_traces[-1:])
    fusions = sum(bsym.sym.is_fusion for trace in traces for bsym in trace.bound_symbols)
    return {"open_s": open_s, "fusions": fusions, "peak_rss_bytes": peak_rss_bytes()}


if __name__ == "__main__":
    print(json.dumps({"workbench": of_workbench, "stock": of_stock}[sys.argv[2]](int(sys.argv[1]))))
