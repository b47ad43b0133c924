"""Make one measurement of `test_two_layers.py` in a new process: open a model with two layers.

``python -m benchmarks.opening.two_layers_point KIND WAY`` prints one JSON document. KIND is `BUILT_IN` or a name in
`KINDS`, and WAY is `SHIPPED` or a value of ``capture=``, such as ``dynamo``. The model has random weights. Times are
CPU seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any

import torch

_TEXT: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_GROUPED: dict[str, Any] = {**_TEXT, "num_key_value_heads": 2, "use_cache": False}
BUILT_IN = "llama"
"""The built-in Llama takes the place of Hugging Face's, which Thunder's interpreter cannot trace."""
SHIPPED = "shipped"
"""Name of a way to open: by Thunder's interpreter, without the workbench's patches that make Thunder faster."""
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("ForCausalLM", _GROUPED),
    "Qwen3": ("ForCausalLM", {**_GROUPED, "head_dim": 8}),
    "GPT2": ("LMHeadModel", {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}),
    "Bert": ("ForMaskedLM", _TEXT),
    "ViT": ("ForImageClassification", {**_TEXT, "image_size": 16, "patch_size": 8, "num_labels": 3}),
    "T5": (
        "ForConditionalGeneration",
        {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "use_cache": False},
    ),
    "Mixtral": ("ForCausalLM", {**_GROUPED, "num_local_experts": 4, "experts_implementation": "batched_mm"}),
}
"""For each kind of model, the end of its class name and the arguments of its configuration."""


def model_of(kind: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Return the model, and a batch with labels."""
    import transformers

    task, given = KINDS[kind]
    more = {"decoder_start_token_id": 0, "pad_token_id": 0} if kind == "T5" else {}
    torch.manual_seed(0)
    model = getattr(transformers, kind + task)(getattr(transformers, f"{kind}Config")(**given, **more)).train()
    if kind == "ViT":
        return model, {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.zeros(2, dtype=torch.long)}
    tokens = torch.randint(0, 64, (2, 8))
    return model, {"input_ids": tokens, "labels": tokens}


def opened(kind: str, way: str) -> dict[str, Any]:
    """Open the model. Return the CPU seconds of opening, without imports that each process needs."""
    import workbench
    import workbench.bench
    import workbench.compiler.api
    from workbench.compiler.fastpath import install

    given: dict[str, Any] = {"layers": 2}
    if kind == BUILT_IN:
        program: Any = BUILT_IN
    else:
        program, batch = model_of(kind)
        given = {"kwargs": batch}
    shipped = install.unpatched_thunder() if way == SHIPPED else contextlib.nullcontext()
    begun = time.process_time()
    with shipped:
        bench = workbench.open(program, **given, device="cpu", capture="interpreter" if way == SHIPPED else way)
    statements = len(bench.plan.graph.statements)
    return {"open_s": time.process_time() - begun, "statements": statements, "way": bench.plan.capture}


if __name__ == "__main__":
    os.environ["THUNDER_WORKBENCH_CACHE"] = "off"  # read no program that an earlier process captured
    print(json.dumps(opened(*sys.argv[1:])))
