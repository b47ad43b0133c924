"""Vision-language models."""

from __future__ import annotations

from typing import Any

import torch

from tests.models.building import (
    BLOCKS,
    GROUPED,
    NO_DROPOUT,
    SIZES,
    TOKENS,
    VOCABULARY,
    WIDTH,
    Builder,
    Kind,
    Parts,
    hugging_face,
)

_IMAGE_TOKEN = 60
_SEEN: dict[str, Any] = {**BLOCKS, "image_size": 16, "patch_size": 8}
_READ: dict[str, Any] = {**GROUPED, **TOKENS}
_GIVEN_GRID: dict[str, Any] = {
    "depth": 1,
    "num_heads": 4,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
_ROPE: dict[str, Any] = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}}


def _prompt(images: int) -> torch.Tensor:
    """Return two rows of tokens. In each row, the first token is followed by `images` image tokens."""
    tokens = torch.randint(3, _IMAGE_TOKEN - 10, (2, images + 4))
    tokens[:, 1 : 1 + images] = _IMAGE_TOKEN
    return tokens


def _language_and_vision(
    kind: str, images: int = 4, task: str = "ForConditionalGeneration", given: Any = None, **config: Any
) -> Builder:
    """Return a builder of a model that replaces image tokens by features of the image."""

    def build() -> Parts:
        module = hugging_face(kind, task, {"image_token_id": _IMAGE_TOKEN, **TOKENS, **config})
        tokens = _prompt(images)
        inputs = {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "pixel_values": torch.randn(2, 3, 16, 16),
        }
        return module, (), {**inputs, "labels": tokens.clone(), **(given() if given else {})}

    return build


def _grid(kind: str, vision: dict[str, Any], **config: Any) -> Builder:
    """Return a builder of a Qwen model that gets the sizes of its images as a tensor."""

    def build() -> Parts:
        ids = {
            "image_token_id": _IMAGE_TOKEN,
            "video_token_id": 61,
            "vision_start_token_id": 62,
            "vision_end_token_id": 63,
        }
        text = {**_READ, **_ROPE, "head_dim": 8, **config}
        module = hugging_face(
            kind, "ForConditionalGeneration", {"text_config": text, "vision_config": {**_GIVEN_GRID, **vision}, **ids}
        )
        tokens = _prompt(4)
        tokens[:, 0], tokens[:, 5] = 62, 63
        types = (tokens == _IMAGE_TOKEN).int()
        grid = torch.tensor([[1, 4, 4], [1, 4, 4]])
        pixels = torch.randn(32, 3 * 2 * 4 * 4)
        inputs = {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "pixel_values": pixels,
            "image_grid_thw": grid,
        }
        return module, (), {**inputs, "mm_token_type_ids": types, "labels": tokens.clone()}

    return build


def _with_image(kind: str, task: str, labels: Any = None, side: int = 16, **config: Any) -> Builder:
    """Return a builder of a model whose inputs are tokens and an image."""

    def build() -> Parts:
        module = hugging_face(kind, task, {**TOKENS, **config})
        tokens = torch.randint(3, VOCABULARY, (2, 8))
        given = {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "pixel_values": torch.randn(2, 3, side, side),
        }
        return module, (), {**given, **(labels(tokens) if labels else {})}

    return build


def _same_labels(tokens: torch.Tensor) -> dict[str, Any]:
    return {"labels": tokens.clone()}


def _loss(_: torch.Tensor) -> dict[str, Any]:
    return {"return_loss": True}


def _vision_encoder_decoder() -> Parts:
    import transformers

    encoder = transformers.ViTConfig(**_SEEN, **NO_DROPOUT)
    decoder = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=WIDTH,
        n_layer=1,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        **TOKENS,
    )
    config: Any = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.pad_token_id, config.decoder_start_token_id = 2, 0
    module: Any = transformers.VisionEncoderDecoderModel(config)
    return module, (torch.randn(2, 3, 16, 16),), {"labels": torch.randint(3, VOCABULARY, (2, 8))}


def _layout() -> Parts:
    config = {
        **SIZES,
        **NO_DROPOUT,
        "input_size": 16,
        "patch_size": 8,
        "coordinate_size": 6,
        "shape_size": 4,
        "num_labels": 3,
        "pad_token_id": 2,
    }
    module = hugging_face("LayoutLMv3", "ForTokenClassification", {**config, "max_2d_position_embeddings": 64})
    tokens = torch.randint(3, VOCABULARY, (2, 8))
    given = {"bbox": torch.randint(0, 30, (2, 8, 2)).sort(-1).values.repeat_interleave(2, -1)[..., [0, 1, 2, 3]]}
    given["pixel_values"] = torch.randn(2, 3, 16, 16)
    return module, (tokens,), {**given, "labels": torch.randint(0, 3, (2, 8))}


def _visual_bert() -> Parts:
    module = hugging_face(
        "VisualBert", "ForQuestionAnswering", {**SIZES, **NO_DROPOUT, "visual_embedding_dim": 16, "num_labels": 5}
    )
    tokens = torch.randint(3, VOCABULARY, (2, 8))
    given = {
        "attention_mask": torch.ones_like(tokens),
        "visual_embeds": torch.randn(2, 3, 16),
        "visual_attention_mask": torch.ones(2, 3),
    }
    return module, (tokens,), {**given, "labels": torch.rand(2, 5).softmax(-1)}


def _lxmert() -> Parts:
    config = {
        **SIZES,
        **NO_DROPOUT,
        "l_layers": 1,
        "x_layers": 1,
        "r_layers": 1,
        "visual_feat_dim": 16,
        "num_qa_labels": 5,
    }
    module = hugging_face("Lxmert", "ForQuestionAnswering", config)
    return (
        module,
        (torch.randint(3, VOCABULARY, (2, 8)), torch.randn(2, 3, 16), torch.rand(2, 3, 4)),
        {"labels": torch.tensor([1, 2])},
    )


def _idefics(kind: str, vision: dict[str, Any], images: int, **config: Any) -> Builder:
    def given() -> dict[str, Any]:
        return {"pixel_values": torch.randn(2, 1, 3, 16, 16)}

    return _language_and_vision(
        kind, images, given=given, vision_config=vision, text_config={"model_type": "llama", **_READ}, **config
    )


VISION_LANGUAGE: Kind = {
    "llava": _language_and_vision(
        "Llava",
        vision_config={"model_type": "clip_vision_model", **_SEEN, "num_hidden_layers": 2},
        text_config={"model_type": "llama", **_READ},
    ),
    "llava_next": _language_and_vision(
        "LlavaNext",
        10,
        given=lambda: {"pixel_values": torch.randn(2, 2, 3, 16, 16), "image_sizes": torch.tensor([[16, 16], [16, 16]])},
        vision_config={"model_type": "clip_vision_model", **_SEEN, "num_hidden_layers": 2},
        text_config={"model_type": "llama", **_READ},
        image_grid_pinpoints=[[16, 16]],
    ),
    "llava_onevision": _language_and_vision(
        "LlavaOnevision",
        10,
        given=lambda: {"pixel_values": torch.randn(2, 2, 3, 16, 16), "image_sizes": torch.tensor([[16, 16], [16, 16]])},
        vision_config={"model_type": "siglip_vision_model", **_SEEN},
        text_config={"model_type": "qwen2", **_READ},
        image_grid_pinpoints=[[16, 16]],
    ),
    "qwen2_vl": _grid("Qwen2VL", {"embed_dim": WIDTH, "hidden_size": WIDTH, "mlp_ratio": 2}),
    "qwen2_5_vl": _grid(
        "Qwen2_5_VL",
        {
            "hidden_size": WIDTH,
            "intermediate_size": 48,
            "out_hidden_size": WIDTH,
            "window_size": 8,
            "fullatt_block_indexes": [0],
        },
    ),
    "qwen3_vl": _grid(
        "Qwen3VL",
        {
            "hidden_size": WIDTH,
            "intermediate_size": 48,
            "out_hidden_size": WIDTH,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0],
        },
    ),
    "paligemma": _language_and_vision(
        "PaliGemma",
        given=lambda: {"token_type_ids": torch.tensor([[0] * 5 + [1] * 3] * 2)},
        vision_config={"model_type": "siglip_vision_model", **_SEEN, "projection_dim": WIDTH, "vision_use_head": False},
        text_config={"model_type": "gemma", **_READ, "head_dim": 8},
        projection_dim=WIDTH,
    ),
    "gemma3": _language_and_vision(
        "Gemma3",
        1,
        given=lambda: {"token_type_ids": torch.tensor([[0, 1] + [0] * 6] * 2)},
        vision_config={"model_type": "siglip_vision_model", **_SEEN, "vision_use_head": False},
        text_config={**_READ, "head_dim": 8, "sliding_window": 4},
        mm_tokens_per_image=1,
    ),
    "idefics2": _idefics(
        "Idefics2",
        _SEEN,
        2,
        perceiver_config={
            "resampler_n_latents": 2,
            "resampler_depth": 1,
            "resampler_n_heads": 4,
            "resampler_head_dim": 8,
            "num_key_value_heads": 2,
            "hidden_size": WIDTH,
        },
    ),
    "idefics3": _idefics("Idefics3", _SEEN, 1, scale_factor=2),
    "smolvlm": _idefics("SmolVLM", _SEEN, 1, scale_factor=2),
    "internvl": _language_and_vision(
        "InternVL",
        1,
        vision_config={
            **_SEEN,
            "image_size": [16, 16],
            "patch_size": [8, 8],
            **NO_DROPOUT,
            "attention_dropout": 0.0,
            "projection_dropout": 0.0,
        },
        text_config={"model_type": "qwen2", **_READ},
        downsample_ratio=0.5,
    ),
    "blip": _with_image(
        "Blip",
        "ForConditionalGeneration",
        _same_labels,
        text_config={**SIZES, **NO_DROPOUT, "encoder_hidden_size": WIDTH, **TOKENS},
        vision_config=_SEEN,
        projection_dim=16,
    ),
    "blip_2": _language_and_vision(
        "Blip2",
        2,
        vision_config=_SEEN,
        qformer_config={**SIZES, **NO_DROPOUT, "encoder_hidden_size": WIDTH},
        num_query_tokens=2,
        text_config={
            "model_type": "opt",
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "ffn_dim": 48,
            "word_embed_proj_dim": WIDTH,
            "dropout": 0.0,
        },
    ),
    "git": _with_image("Git", "ForCausalLM", _same_labels, **SIZES, **NO_DROPOUT, vision_config=_SEEN),
    "vilt": _with_image(
        "Vilt",
        "ForQuestionAnswering",
        lambda _: {"labels": torch.rand(2, 3)},
        **SIZES,
        **NO_DROPOUT,
        image_size=16,
        patch_size=8,
        num_labels=3,
    ),
    "siglip": _with_image("Siglip", "Model", _loss, text_config={**SIZES, **TOKENS}, vision_config=_SEEN),
    "chinese_clip": _with_image(
        "ChineseCLIP", "Model", _loss, text_config={**SIZES, **NO_DROPOUT}, vision_config=_SEEN, projection_dim=16
    ),
    "bridgetower": _with_image(
        "BridgeTower",
        "ForContrastiveLearning",
        _loss,
        text_config={**SIZES, **NO_DROPOUT, **TOKENS, "hidden_size": 64},
        vision_config={"hidden_size": 64, "num_hidden_layers": 1, "image_size": 16, "patch_size": 8},
        **{**BLOCKS, "hidden_size": 64},
        contrastive_hidden_size=16,
        logit_scale_init_value=2.6,
    ),
    "clipseg": _with_image(
        "CLIPSeg",
        "ForImageSegmentation",
        lambda _: {"labels": torch.rand(2, 16, 16)},
        text_config={**SIZES, **TOKENS},
        vision_config=_SEEN,
        projection_dim=16,
        reduce_dim=16,
        extract_layers=[0],
        decoder_num_attention_heads=4,
        decoder_intermediate_size=16,
    ),
    "visual_bert": _visual_bert,
    "lxmert": _lxmert,
    "layoutlmv3": _layout,
    "vision_encoder_decoder": _vision_encoder_decoder,
}
