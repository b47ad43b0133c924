"""Make one measurement of `test_real_size.py` in a new process: plan a large program for a GPU.

``python -m benchmarks.opening.real_size_point LAYERS WHAT`` prints one JSON document. WHAT is ``stock`` or a name in
`OPENERS`. Llama has the shapes of a 7B model. Times are CPU seconds.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
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
RANKS = 64
"""Number of ranks in `of_ranks`."""


def peak_rss_bytes() -> int:
    """Return the largest memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def opened_and_chosen(open_it: Callable[[], Any]) -> dict[str, Any]:
    """Open a program, then make three choices in different layers. Return the figures."""
    # Import Thunder and nvFuser before the measurement, because each process needs seconds for this once.
    importlib.import_module("workbench.compiler.api")
    begun = time.process_time()
    bench = open_it()
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
        "on_disk": bench.on_disk,
        "choice_s": sorted(choices)[1],
        "choices_s": choices,
        "statements": statements,
        "opening": {stage.name: round(stage.seconds, 3) for stage in bench.plan.opening},
        "stages": {stage.name: round(stage.seconds, 3) for stage in bench.plan.stages},
        "peak_rss_bytes": peak_rss_bytes(),
    }


def of_workbench(layers: int) -> Callable[[], Any]:
    """Return a function that opens the built-in Llama."""
    import workbench

    return lambda: workbench.open("llama", layers=layers, device="planned", executor="nvfuser", **SHAPES)


def of_ranks(layers: int) -> Callable[[], Any]:
    """Return a function that opens the built-in Llama with its parameters sharded over `RANKS` ranks."""
    import workbench

    return lambda: workbench.open(
        "fsdp_llama", layers=layers, device="planned", executor="nvfuser", ranks=RANKS, **SHAPES
    )


def of_huggingface(layers: int) -> Callable[[], Any]:
    """Return a function that creates Hugging Face's Llama on ``meta`` with the shapes of Llama-2-7B, and opens it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import workbench

    def open_it() -> Any:
        config = LlamaConfig(num_hidden_layers=layers, use_cache=False)
        with torch.device("meta"):
            model = LlamaForCausalLM(config).to(torch.bfloat16)
            tokens = torch.zeros((1, SHAPES["sequence"]), dtype=torch.int64)
        return workbench.open(model, input_ids=tokens, labels=tokens, device="planned", executor="nvfuser")

    return open_it


def of_llama_405b(layers: int) -> Callable[[], Any]:
    """Return a function that opens Hugging Face's Llama with the shapes of Llama 3 405B, sharded over 1,024 ranks.

    The model is on ``meta`` in bfloat16. Llama 3 405B has 126 layers. The creation of the model is not measured.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import workbench

    config = LlamaConfig(
        hidden_size=16384,
        intermediate_size=53248,
        num_attention_heads=128,
        num_key_value_heads=8,
        vocab_size=128256,
        num_hidden_layers=layers,
        use_cache=False,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
        tokens = torch.zeros((1, 8192), dtype=torch.int64)
    given = {"input_ids": tokens, "labels": tokens}
    return lambda: workbench.open(model, **given, device="planned", executor="nvfuser", parallel="fsdp", ranks=1024)


MODELS: dict[str, dict[str, Any]] = {
    "GPT2LMHeadModel": {"n_embd": 1600, "n_head": 25},
    "BertForMaskedLM": {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096},
    "MixtralForCausalLM": {},
    "Phi3ForCausalLM": {},
    "GPTNeoXForCausalLM": {},
    "FalconForCausalLM": {},
}
"""Configurations of Hugging Face models. The models are planned in bfloat16 and in training mode."""


def of_model(kind: str, layers: int) -> Callable[[], Any]:
    """Create one of `MODELS` on the ``meta`` device. Return a function that opens it with 512 tokens."""
    import torch
    import transformers

    import workbench

    of_kind = getattr(transformers, kind)
    count = "n_layer" if kind == "GPT2LMHeadModel" else "num_hidden_layers"
    config = of_kind.config_class(use_cache=False, **MODELS[kind], **{count: layers})
    with torch.device("meta"):
        model = of_kind(config).to(torch.bfloat16).train()
        tokens = torch.zeros((1, 512), dtype=torch.int64)
    given = {"input_ids": tokens, "labels": tokens}
    return lambda: workbench.open(model, **given, device="planned", executor="nvfuser")


def of_stock(layers: int) -> dict[str, Any]:
    """Let unmodified ``thunder.jit`` trace the built-in Llama, up to the traces that would run. Return the figures."""
    from workbench.compiler.fastpath import install
    from workbench.compiler.interop import devices, thunder_api
    from workbench.programs import resolve

    program = resolve("llama", settings={"layers": layers, **SHAPES}, device="planned")
    assert program.fake_mode is not None
    executors = [devices.nvfuser_module().ex, *thunder_api.get_default_executors()]
    begun = time.process_time()
    with install.unpatched_thunder(), devices.planned_gpu(program.fake_mode):
        jitted = thunder_api.jit(program.callable, executors=executors)
        entry, _, _ = jitted._lc_cd.get_computation_and_inputs(*program.args, **program.kwargs)
    open_s = time.process_time() - begun
    traces = (entry.computation_traces[-1], *entry.backward_traces[-1:])
    fusions = sum(bsym.sym.is_fusion for trace in traces for bsym in trace.bound_symbols)
    return {"open_s": open_s, "fusions": fusions, "peak_rss_bytes": peak_rss_bytes()}


OPENERS: dict[str, Callable[[int], Callable[[], Any]]] = {
    "workbench": of_workbench,
    "ranks": of_ranks,
    "huggingface": of_huggingface,
    "llama3_405b": of_llama_405b,
}
OPENERS |= {kind: functools.partial(of_model, kind) for kind in MODELS}
"""Functions by name. Each takes a number of layers and returns a function that opens the program."""


def point(layers: int, what: str) -> dict[str, Any]:
    """Measure `what`, which is a name in `OPENERS` or ``stock``. Return the figures."""
    return of_stock(layers) if what == "stock" else opened_and_chosen(OPENERS[what](layers))


if __name__ == "__main__":
    # Read no program that an earlier process captured, unless the environment names a cache folder.
    os.environ.setdefault("THUNDER_WORKBENCH_CACHE", "off")
    print(json.dumps(point(int(sys.argv[1]), sys.argv[2])))
