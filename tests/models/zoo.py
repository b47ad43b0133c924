"""Models that people bring, with random weights and tiny shapes: each a factory of a module and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

type Parts = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]

VOCABULARY, WIDTH = 64, 32
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_TOKENS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}


def _text(kind: str, **config: Any) -> Parts:
    """A Hugging Face model of text with its loss, by the name that its classes begin with."""
    import transformers

    module = next(
        getattr(transformers, kind + task)
        for task in ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration")
        if hasattr(transformers, kind + task)
    )(getattr(transformers, f"{kind}Config")(**{**_TOKENS, **config}))
    tokens = torch.randint(3, VOCABULARY, (2, 8))
    return module, (tokens,), {"labels": tokens}


def llama() -> Parts:
    return _text("Llama", **_SIZES, num_key_value_heads=2, use_cache=False)


def qwen3() -> Parts:
    return _text("Qwen3", **_SIZES, num_key_value_heads=2, head_dim=8, use_cache=False)


def mixtral() -> Parts:
    return _text("Mixtral", **_SIZES, num_key_value_heads=2, num_local_experts=4, use_cache=False)


def gpt2() -> Parts:
    drops = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return _text("GPT2", vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=2, n_head=4, use_cache=False, **drops)


def bert() -> Parts:
    return _text("Bert", **_SIZES, **_NO_DROPOUT)


def t5() -> Parts:
    sizes = {"vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    return _text("T5", **sizes, dropout_rate=0.0, use_cache=False, decoder_start_token_id=2)


def vit() -> Parts:
    import transformers

    sizes = {key: value for key, value in _SIZES.items() if key != "vocab_size"}
    config = transformers.ViTConfig(**sizes, **_NO_DROPOUT, image_size=16, patch_size=8, num_labels=3)
    return (
        transformers.ViTForImageClassification(config),
        (torch.randn(2, 3, 16, 16),),
        {"labels": torch.tensor([0, 2])},
    )


def resnet() -> Parts:
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10), (torch.randn(2, 3, 64, 64),), {}


def swin() -> Parts:
    from torchvision.models.swin_transformer import SwinTransformer

    module = SwinTransformer([4, 4], 16, [1, 1], [2, 2], [4, 4], num_classes=10, stochastic_depth_prob=0.0)
    return module, (torch.randn(2, 3, 32, 32),), {}


def convnext() -> Parts:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    blocks = [CNBlockConfig(16, 32, 1), CNBlockConfig(32, None, 1)]
    return ConvNeXt(blocks, stochastic_depth_prob=0.0, num_classes=10), (torch.randn(2, 3, 32, 32),), {}


MODELS: dict[str, Callable[[], Parts]] = {
    factory.__name__: factory for factory in (llama, qwen3, gpt2, bert, t5, vit, resnet, swin, convnext, mixtral)
}


def build(name: str) -> Parts:
    """A model by name, the same weights and inputs each time."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(5)
        return MODELS[name]()
