"""Tiny configurations of models, and functions that return the builder of one model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

type Parts = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A module or function, its arguments, and its keyword arguments."""
type Builder = Callable[[], Parts]
type Kind = Mapping[str, Builder]

VOCABULARY, WIDTH = 64, 32
BLOCKS: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
}
SIZES: dict[str, Any] = {"vocab_size": VOCABULARY, **BLOCKS}
GROUPED: dict[str, Any] = {**SIZES, "num_key_value_heads": 2, "use_cache": False}
TWO_LAYERS: dict[str, Any] = {**GROUPED, "num_hidden_layers": 2}
NO_DROPOUT: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
TOKENS: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
IMAGE: dict[str, Any] = {**BLOCKS, **NO_DROPOUT, "image_size": 16, "patch_size": 8, "num_labels": 3}
PAIR: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 32,
    "dropout": 0.0,
    "use_cache": False,
    "decoder_start_token_id": 2,
}
T5: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 1,
    "num_heads": 4,
    "dropout_rate": 0.0,
    "use_cache": False,
    "decoder_start_token_id": 2,
}
SPEECH: dict[str, Any] = {
    **SIZES,
    "conv_dim": (16, 16),
    "conv_kernel": (10, 3),
    "conv_stride": (5, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "feat_proj_dropout": 0.0,
    "layerdrop": 0.0,
    "mask_time_prob": 0.0,
    "final_dropout": 0.0,
    "pad_token_id": 0,
}


def hugging_face(kind: str, task: str, config: dict[str, Any], configured: str = "") -> nn.Module:
    import transformers

    configuration = getattr(transformers, f"{configured or kind}Config")(**config)
    module: nn.Module = getattr(transformers, kind + task)(configuration)
    return module


def text_model(kind: str, task: str = "ForCausalLM", configured: str = "", **config: Any) -> Callable[[], Parts]:
    """Return a builder of a text model with labels.

    `kind` and `task` are the halves of the class name. If the configuration's class is not named after `kind`,
    `configured` is the name of this class without ``Config``.
    """

    def build() -> Parts:
        tokens = torch.randint(3, VOCABULARY, (2, 8))
        return hugging_face(kind, task, {**TOKENS, **config}, configured), (tokens,), {"labels": tokens}

    return build


def expert_model(kind: str, **config: Any) -> Callable[[], Parts]:
    """Return a builder of a mixture of experts with batched matrix products, not the library's grouped operator."""
    build = text_model(kind, **config)

    def plain() -> Parts:
        module, args, kwargs = build()
        set_implementation: Any = module.set_experts_implementation
        set_implementation("batched_mm")
        return module, args, kwargs

    return plain


def image_model(kind: str, side: int = 16, **config: Any) -> Callable[[], Parts]:
    """Return a builder of an image classifier with labels."""

    def build() -> Parts:
        images, labels = torch.randn(2, 3, side, side), torch.tensor([0, 2])
        return hugging_face(kind, "ForImageClassification", {**config}), (images,), {"labels": labels}

    return build


STATES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "state_size": 4,
    "num_hidden_layers": 1,
    "use_cache": False,
}
