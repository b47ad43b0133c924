"""Measure planning of Hugging Face models of real size, on ``meta`` in bfloat16, for a GPU with nvFuser.

``python -m benchmarks.opening.real_models [NAME ...]`` opens each named model of `MODELS` in a new process, makes three
choices, and prints a row. Times are CPU seconds. Opening includes the creation of the model.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from benchmarks.opening.real_size_point import opened_and_chosen

LIMIT_S = 300.0

MODELS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "Mistral 7B": ("Mistral", "ForCausalLM", 4096, {}),
    "Qwen3 32B": (
        "Qwen3", "ForCausalLM", 4096,
        {
            "hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64, "num_attention_heads": 64,
            "num_key_value_heads": 8, "head_dim": 128,
        },
    ),
    "Llama 3 70B": (
        "Llama", "ForCausalLM", 4096,
        {
            "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
            "num_key_value_heads": 8, "vocab_size": 128256,
        },
    ),
    "Gemma 2 9B": (
        "Gemma2", "ForCausalLM", 4096,
        {
            "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42, "num_attention_heads": 16,
            "num_key_value_heads": 8, "head_dim": 256,
        },
    ),
    "Phi-3 mini": ("Phi3", "ForCausalLM", 4096, {}),
    "Falcon 7B": ("Falcon", "ForCausalLM", 2048, {}),
    "GPT-2 XL": ("GPT2", "LMHeadModel", 1024, {"n_layer": 48, "n_embd": 1600, "n_head": 25}),
    "OLMo 2 7B": ("Olmo2", "ForCausalLM", 4096, {}),
    "GLM-4 9B": ("Glm4", "ForCausalLM", 4096, {}),
    "GPT-NeoX 20B": ("GPTNeoX", "ForCausalLM", 2048, {}),
    "Mixtral 8x7B": ("Mixtral", "ForCausalLM", 4096, {}),
    "Qwen3 MoE 30B": ("Qwen3Moe", "ForCausalLM", 4096, {"num_hidden_layers": 48}),
    "GPT-OSS 120B": ("GptOss", "ForCausalLM", 4096, {}),
    "Mamba 2, 16 layers": ("Mamba2", "ForCausalLM", 4096, {"num_hidden_layers": 16}),
    "BERT large": (
        "Bert", "ForMaskedLM", 512,
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    ),
    "ModernBERT base": ("ModernBert", "ForMaskedLM", 8192, {}),
    "DeBERTa v2 XL": ("DebertaV2", "ForMaskedLM", 512, {}),
    "T5 3B": (
        "T5", "ForConditionalGeneration", 512,
        {"d_model": 1024, "d_kv": 128, "d_ff": 16384, "num_layers": 24, "num_heads": 32, "decoder_start_token_id": 0},
    ),
    "ViT huge": (
        "ViT", "ForImageClassification", 0,
        {
            "hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 16, "intermediate_size": 5120,
            "patch_size": 14,
        },
    ),
    "Swin large": (
        "Swin", "ForImageClassification", 0,
        {"embed_dim": 192, "depths": [2, 2, 18, 2], "num_heads": [6, 12, 24, 48]},
    ),
}  # fmt: skip
"""For each model: family, task, number of tokens (0: eight images of 224 pixels), and non-default configuration."""


def point(name: str) -> dict[str, Any]:
    """Open one model in this process, and make three choices. Return the figures."""
    import torch
    import transformers

    import workbench

    family, task, tokens, settings = MODELS[name]
    parameters = 0

    def open_it() -> Any:
        nonlocal parameters
        config = getattr(transformers, f"{family}Config")(**settings)
        config.use_cache = False
        with torch.device("meta"):
            model = getattr(transformers, family + task)(config).to(torch.bfloat16)
            ids = torch.zeros((1, tokens), dtype=torch.int64)
            given = {"input_ids": ids, "labels": ids}
            if not tokens:
                images = torch.zeros((8, 3, 224, 224), dtype=torch.bfloat16)
                given = {"pixel_values": images, "labels": torch.zeros(8, dtype=torch.int64)}
        parameters = sum(parameter.numel() for parameter in model.parameters())
        bench = workbench.open(model, **given, device="planned", executor="nvfuser")
        found["peak_bytes"], found["proven"] = bench.plan.peak_bytes, bench.plan.proof.proven
        return bench

    found: dict[str, Any] = {}
    return {**opened_and_chosen(open_it), **found, "parameters": parameters}


def main(names: list[str]) -> int:
    """Measure each model in a new process, and print the table. Return the exit status."""
    print("| model | parameters | statements | opened | one choice | peak, predicted | proven | the process |")
    print("|---|---|---|---|---|---|---|---|")
    for name in names or MODELS:
        begun = time.monotonic()
        command = [sys.executable, "-m", "benchmarks.opening.real_models", "--one", name]
        environment = {**os.environ, "THUNDER_WORKBENCH_CACHE": "off"}
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            print(f"| {name} | not opened in {time.monotonic() - begun:.0f} s |", flush=True)
            continue
        except subprocess.CalledProcessError as error:
            print(f"| {name} | {error.stderr.strip().splitlines()[-1]} |", flush=True)
            continue
        row = json.loads(done.stdout.splitlines()[-1])
        print(
            f"| {name} | {row['parameters'] / 1e9:.2f} billion | {row['statements']:,} | {row['open_s']:.1f} s "
            f"| {row['choice_s']:.2f} s | {row['peak_bytes'] / 2**30:.1f} GiB | {'yes' if row['proven'] else 'no'} "
            f"| {row['peak_rss_bytes'] / 1e9:.2f} GB |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(point(sys.argv[2])))
    else:
        sys.exit(main(sys.argv[1:]))
