"""Small models with inputs and a loss, for processes without the workbench: text, vision, experts, encoder-decoder."""

from collections.abc import Callable
from typing import Any

import torch

Made = tuple[torch.nn.Module, dict[str, Any]]


def _tokens() -> torch.Tensor:
    return torch.randint(0, 64, (2, 16))


def gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    model, tokens = GPT2LMHeadModel(config), _tokens()
    model.loss_type = "ForCausalLM"  # without it, the model writes to a log, where Dynamo breaks the graph
    return model, {"input_ids": tokens, "labels": tokens}


def _sizes() -> dict[str, Any]:
    return {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "use_cache": False,
    }


def llama() -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    tokens = _tokens()
    return LlamaForCausalLM(LlamaConfig(**_sizes())), {"input_ids": tokens, "labels": tokens}


def mixtral() -> Made:
    from transformers import MixtralConfig, MixtralForCausalLM

    tokens = _tokens()
    config = MixtralConfig(**_sizes(), num_local_experts=4, experts_implementation="grouped_mm")
    return MixtralForCausalLM(config), {"input_ids": tokens, "labels": tokens}


def t5() -> Made:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"vocab_size": 64, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
    config = T5Config(**sizes, use_cache=False, decoder_start_token_id=0, pad_token_id=0)
    tokens = _tokens()
    return T5ForConditionalGeneration(config), {"input_ids": tokens, "labels": tokens}


class _WithLoss(torch.nn.Module):
    def __init__(self, body: torch.nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).square().mean()


def vit() -> Made:
    import timm

    body = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2)
    return _WithLoss(body), {"x": torch.randn(2, 3, 32, 32)}


def resnet() -> Made:
    import timm

    return _WithLoss(timm.create_model("resnet10t", num_classes=8)), {"x": torch.randn(2, 3, 32, 32)}


def convnext() -> Made:
    import timm

    body = timm.create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 32, 64), num_classes=8)
    return _WithLoss(body), {"x": torch.randn(2, 3, 64, 64)}


def bert() -> Made:
    from transformers import BertConfig, BertForMaskedLM

    sizes = {name: size for name, size in _sizes().items() if name not in ("num_key_value_heads", "use_cache")}
    tokens = _tokens()
    return BertForMaskedLM(BertConfig(**sizes)), {"input_ids": tokens, "labels": tokens}


def qwen3() -> Made:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokens = _tokens()
    return Qwen3ForCausalLM(Qwen3Config(**_sizes(), head_dim=16)), {"input_ids": tokens, "labels": tokens}


def bart() -> Made:
    from transformers import BartConfig, BartForConditionalGeneration

    each = {"layers": 2, "ffn_dim": 64, "attention_heads": 2}
    sides = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in each.items()}
    marks = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = BartConfig(vocab_size=64, d_model=32, max_position_embeddings=32, use_cache=False, **sides, **marks)
    tokens = _tokens()
    return BartForConditionalGeneration(config), {"input_ids": tokens, "labels": tokens}


MODELS: dict[str, Callable[[], Made]] = {
    "gpt2": gpt2,
    "llama": llama,
    "mixtral": mixtral,
    "t5": t5,
    "vit": vit,
    "bert": bert,
    "qwen3": qwen3,
    "bart": bart,
    "resnet": resnet,
    "convnext": convnext,
}


def make(name: str) -> Made:
    """Return a model in training mode and the keyword arguments of a step. Their values are equal in all processes."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    return model.train(), inputs
