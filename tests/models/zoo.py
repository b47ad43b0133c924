"""Models that users train, with random weights and tiny shapes. A builder returns a model and its inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.models import (
    detection,
    generation,
    languages,
    pictures_with_text,
    popular,
    scripts,
    sound,
    steps,
    structures,
    uncommon,
)
from tests.models.building import (
    BLOCKS,
    GROUPED,
    IMAGE,
    NO_DROPOUT,
    PAIR,
    SIZES,
    SPEECH,
    STATES,
    T5,
    TOKENS,
    TWO_LAYERS,
    VOCABULARY,
    WIDTH,
    Builder,
    Kind,
    Parts,
    expert_model,
    hugging_face,
    image_model,
    text_model,
)


def _segmenter() -> Parts:
    sizes = {"depths": [1, 1], "hidden_sizes": [16, 32], "decoder_hidden_size": 16, "num_encoder_blocks": 2}
    stages = {"sr_ratios": [2, 1], "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2]}
    drops = {**NO_DROPOUT, "drop_path_rate": 0.0, "classifier_dropout_prob": 0.0, "mlp_ratios": [2, 2]}
    module = hugging_face("Segformer", "ForSemanticSegmentation", {**sizes, **stages, **drops, "num_labels": 3})
    return module, (torch.randn(2, 3, 32, 32),), {"labels": torch.randint(0, 3, (2, 32, 32))}


def _clip() -> Parts:
    text = {**SIZES, "max_position_embeddings": 16, **TOKENS}
    vision = {**BLOCKS, "image_size": 16, "patch_size": 8}
    module = hugging_face("CLIP", "Model", {"text_config": text, "vision_config": vision, "projection_dim": 16})
    tokens = torch.cat([torch.randint(3, VOCABULARY, (2, 7)), torch.ones(2, 1, dtype=torch.long)], 1)
    return module, (tokens, torch.randn(2, 3, 16, 16)), {"return_loss": True}


def _speech(kind: str, *, labels: bool = False) -> Parts:
    """Return a speech recognizer and its inputs. Without labels, its results are scores and not a loss."""
    given = {"labels": torch.randint(1, VOCABULARY, (2, 4))} if labels else {}
    module: Any = hugging_face(kind, "ForCTC", SPEECH)
    module.freeze_feature_encoder()  # if the encoder is trainable, the model's forward sets requires_grad on its input
    return module, (torch.randn(2, 400),), given


def _whisper() -> Parts:
    module = hugging_face(
        "Whisper",
        "ForConditionalGeneration",
        {**PAIR, **TOKENS, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16},
    )
    return module, (torch.randn(2, 8, 32),), {"labels": torch.randint(3, VOCABULARY, (2, 8))}


def _spectrogram() -> Parts:
    sizes = {**BLOCKS, **NO_DROPOUT, "max_length": 32, "num_mel_bins": 16, "num_labels": 3}
    module = hugging_face("AST", "ForAudioClassification", {**sizes, "patch_size": 8, "time_stride": 8})
    return module, (torch.randn(2, 32, 16),), {"labels": torch.tensor([0, 2])}


def _lora() -> Parts:
    from peft import LoraConfig, get_peft_model

    module, args, kwargs = text_model("Llama", **GROUPED)()
    wrapped = get_peft_model(module, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0))
    return wrapped, (), {"input_ids": args[0], **kwargs}


def _timm(name: str, side: int = 32, **config: Any) -> Callable[[], Parts]:
    def build() -> Parts:
        import timm

        return timm.create_model(name, num_classes=10, **config), (torch.randn(2, 3, side, side),), {}

    return build


def _mixer() -> Parts:
    from timm.models.mlp_mixer import MlpMixer

    module = MlpMixer(10, img_size=16, patch_size=8, num_blocks=1, embed_dim=WIDTH)
    return module, (torch.randn(2, 3, 16, 16),), {}


def _convmixer() -> Parts:
    from timm.models.convmixer import ConvMixer

    return ConvMixer(16, 1, kernel_size=3, patch_size=4, num_classes=10), (torch.randn(2, 3, 16, 16),), {}


def _torchvision(name: str, side: int = 64, **config: Any) -> Callable[[], Parts]:
    def build() -> Parts:
        import torchvision

        module = getattr(torchvision.models, name)(num_classes=10, **config)
        return module, (torch.randn(2, 3, side, side),), {}

    return build


def _efficientnet() -> Parts:
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig

    shapes = ((1, 3, 1, 32, 16), (6, 3, 2, 16, 24), (6, 5, 2, 24, 40))
    blocks = [MBConvConfig(*shape, 1) for shape in shapes]
    module = EfficientNet(blocks, dropout=0.0, stochastic_depth_prob=0.0, num_classes=10, last_channel=64)
    # With 32 pixels, batch norm would normalize few values, and eager PyTorch's gradients would have no correct digit.
    return module, (torch.randn(2, 3, 64, 64),), {}


def _resnet() -> Parts:
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10), (torch.randn(2, 3, 64, 64),), {}


def _swin() -> Parts:
    from torchvision.models.swin_transformer import SwinTransformer

    module = SwinTransformer([4, 4], 16, [1, 1], [2, 2], [4, 4], num_classes=10, stochastic_depth_prob=0.0)
    return module, (torch.randn(2, 3, 32, 32),), {}


def _convnext() -> Parts:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    blocks = [CNBlockConfig(16, 32, 1), CNBlockConfig(32, None, 1)]
    return ConvNeXt(blocks, stochastic_depth_prob=0.0, num_classes=10), (torch.randn(2, 3, 32, 32),), {}


def _vision_transformer() -> Parts:
    from torchvision.models.vision_transformer import VisionTransformer

    return VisionTransformer(16, 8, 1, 4, WIDTH, 48, num_classes=10), (torch.randn(2, 3, 16, 16),), {}


def _litgpt() -> Parts:
    try:
        from thunder.tests.litgpt_model import GPT, Config
    except ImportError as error:
        raise ImportError(f"{error}: pip install --no-deps litgpt lightning torchmetrics") from error

    config = Config(block_size=16, vocab_size=VOCABULARY, padded_vocab_size=VOCABULARY, n_layer=1, n_head=4, n_embd=32)
    return GPT(config), (torch.randint(0, VOCABULARY, (2, 8)),), {}


def _nanogpt() -> Parts:
    from thunder.tests.nanogpt_model import GPT, GPTConfig

    config = GPTConfig(block_size=16, vocab_size=VOCABULARY, n_layer=1, n_head=4, n_embd=32, dropout=0.0)
    tokens = torch.randint(0, VOCABULARY, (2, 8))
    return GPT(config), (tokens, tokens), {}


def _encoder_of_pytorch() -> Parts:
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 48, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), (torch.randn(2, 8, WIDTH),), {}


def _lstm() -> Parts:
    return nn.LSTM(8, 16, batch_first=True), (torch.randn(2, 5, 8),), {}


_GPT2: dict[str, Any] = {"vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": 1, "n_head": 4, "use_cache": False}
_NO_GPT_DROPOUT: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
_TEXT: Kind = {
    # Causal language models.
    "llama": text_model("Llama", **TWO_LAYERS),
    "qwen2": text_model("Qwen2", **TWO_LAYERS),
    "qwen3": text_model("Qwen3", **TWO_LAYERS, head_dim=8),
    "mistral": text_model("Mistral", **GROUPED, sliding_window=4),
    "gemma": text_model("Gemma", **GROUPED, head_dim=8),
    "gemma2": text_model("Gemma2", **GROUPED, head_dim=8, sliding_window=4),
    "phi": text_model("Phi", **SIZES, use_cache=False, embd_pdrop=0.0, resid_pdrop=0.0),
    "phi3": text_model("Phi3", **GROUPED, embd_pdrop=0.0, resid_pdrop=0.0, attention_dropout=0.0),
    "olmo2": text_model("Olmo2", **GROUPED),
    "stablelm": text_model("StableLm", **GROUPED),
    "cohere": text_model("Cohere", **GROUPED),
    "starcoder2": text_model("Starcoder2", **GROUPED, embedding_dropout=0.0, residual_dropout=0.0),
    "granite": text_model("Granite", **GROUPED),
    "gpt2": text_model("GPT2", "LMHeadModel", **_GPT2, **_NO_GPT_DROPOUT),
    "gpt_neo": text_model(
        "GPTNeo",
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_layers=1,
        num_heads=4,
        attention_types=[[["local"], 1]],
        window_size=4,
        embed_dropout=0.0,
        attention_dropout=0.0,
        resid_dropout=0.0,
        use_cache=False,
    ),
    "gpt_neox": text_model("GPTNeoX", **SIZES, use_cache=False, hidden_dropout=0.0, attention_dropout=0.0),
    "gptj": text_model("GPTJ", **_GPT2, **_NO_GPT_DROPOUT, rotary_dim=4),
    "opt": text_model(
        "OPT",
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=4,
        ffn_dim=48,
        word_embed_proj_dim=WIDTH,
        dropout=0.0,
        use_cache=False,
    ),
    "bloom": text_model(
        "Bloom",
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        n_layer=1,
        n_head=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cache=False,
    ),
    "falcon": text_model("Falcon", **SIZES, use_cache=False, hidden_dropout=0.0, attention_dropout=0.0),
    "gpt_bigcode": text_model("GPTBigCode", **_GPT2, **_NO_GPT_DROPOUT),
    "smollm3": text_model("SmolLM3", **GROUPED),
    "xglm": text_model(
        "XGLM",
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        num_layers=1,
        attention_heads=4,
        ffn_dim=48,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        layerdrop=0.0,
        use_cache=False,
    ),
    "gemma4": text_model("Gemma4Unified", configured="Gemma4UnifiedText", **TWO_LAYERS, head_dim=8, sliding_window=4),
}

_HYBRID: Kind = {
    "mamba": text_model("Mamba", **STATES),
    "mamba2": text_model("Mamba2", **STATES, num_heads=8, head_dim=8, n_groups=1, chunk_size=4),
    # This model computes its attention row by row, with in-place writes.
    "qwen3_5": text_model(
        "Qwen3_5",
        configured="Qwen3_5Text",
        **GROUPED,
        head_dim=8,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
    ),
}

_EXPERTS: Kind = {
    # This model has no experts. It runs its layers in cycles, and only the last inner cycles have gradients.
    "hrm": text_model("HrmText", **SIZES, use_cache=False, head_dim=8),
    "llama4": text_model("Llama4", configured="Llama4Text", **GROUPED, head_dim=8, num_local_experts=4),
    "mixtral": expert_model("Mixtral", **GROUPED, num_local_experts=4),
    "mixtral_grouped": text_model("Mixtral", **GROUPED, num_local_experts=4),
    "qwen2_moe": expert_model(
        "Qwen2Moe", **GROUPED, num_experts=4, moe_intermediate_size=16, shared_expert_intermediate_size=16
    ),
    "olmoe": expert_model("Olmoe", **GROUPED, num_experts=4, num_experts_per_tok=2),
}

_ENCODERS: Kind = {
    # Masked language models.
    "bert": text_model("Bert", "ForMaskedLM", **SIZES, **NO_DROPOUT),
    "roberta": text_model("Roberta", "ForMaskedLM", **SIZES, **NO_DROPOUT),
    "electra": text_model("Electra", "ForMaskedLM", **SIZES, **NO_DROPOUT, embedding_size=16),
    "albert": text_model("Albert", "ForMaskedLM", **SIZES, **NO_DROPOUT, embedding_size=16),
    "distilbert": text_model(
        "DistilBert",
        "ForMaskedLM",
        vocab_size=VOCABULARY,
        dim=WIDTH,
        hidden_dim=48,
        n_layers=1,
        n_heads=4,
        dropout=0.0,
        attention_dropout=0.0,
    ),
    "deberta_v2": text_model(
        "DebertaV2", "ForMaskedLM", **SIZES, **NO_DROPOUT, relative_attention=True, pos_att_type=["p2c", "c2p"]
    ),
    "mpnet": text_model("MPNet", "ForMaskedLM", **SIZES, **NO_DROPOUT),
    "modernbert": text_model("ModernBert", "ForMaskedLM", **SIZES, cls_token_id=0, sep_token_id=1),
    "nystromformer": text_model(
        "Nystromformer", "ForMaskedLM", **SIZES, **NO_DROPOUT, num_landmarks=8, segment_means_seq_len=8
    ),
    "fnet": text_model("FNet", "ForMaskedLM", **BLOCKS, vocab_size=VOCABULARY, hidden_dropout_prob=0.0),
    "convbert": text_model("ConvBert", "ForMaskedLM", **SIZES, **NO_DROPOUT, embedding_size=16),
    "squeezebert": text_model("SqueezeBert", "ForMaskedLM", **SIZES, **NO_DROPOUT, embedding_size=WIDTH),
    # Text-to-text models.
    "t5": text_model("T5", "ForConditionalGeneration", **T5),
    "mt5": text_model("MT5", "ForConditionalGeneration", **T5),
    "bart": text_model("Bart", "ForConditionalGeneration", **PAIR),
    "pegasus": text_model("Pegasus", "ForConditionalGeneration", **PAIR),
    "marian": text_model("Marian", "MTModel", **PAIR),
}

_IMAGES: Kind = {
    "vit": image_model("ViT", **IMAGE),
    "deit": image_model("DeiT", **IMAGE),
    "beit": image_model("Beit", **IMAGE, drop_path_rate=0.0),
    "dinov2": image_model("Dinov2", **IMAGE),
    "hf_swin": image_model(
        "Swin",
        32,
        image_size=32,
        patch_size=4,
        embed_dim=16,
        depths=[1, 1],
        num_heads=[2, 2],
        window_size=4,
        drop_path_rate=0.0,
        num_labels=3,
    ),
    "hf_convnext": image_model("ConvNext", 32, hidden_sizes=[16, 32], depths=[1, 1], num_stages=2, num_labels=3),
    "hf_resnet": image_model("ResNet", 64, embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], num_labels=3),
    "resnet": _resnet,
    "swin": _swin,
    "convnext": _convnext,
    "torchvision_vit": _vision_transformer,
    "mobilenet_v3": _torchvision("mobilenet_v3_small", 96, dropout=0.0),
    "shufflenet": _torchvision("shufflenet_v2_x0_5", 96),
    "efficientnet": _efficientnet,
    "squeezenet": _torchvision("squeezenet1_1", 32, dropout=0.0),
    "poolformer": image_model(
        "PoolFormer",
        32,
        depths=[1, 1],
        hidden_sizes=[16, 32],
        num_encoder_blocks=2,
        patch_sizes=[7, 3],
        strides=[4, 2],
        padding=[2, 1],
        drop_path_rate=0.0,
        num_labels=3,
    ),
    "mobilevit": image_model(
        "MobileViT",
        32,
        image_size=32,
        hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 8, 8, 16, 16, 16, 32],
        num_attention_heads=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout_prob=0.0,
        num_labels=3,
    ),
    "timm_convmixer": _convmixer,
    "timm_vit": _timm("vit_tiny_patch16_224", img_size=32, depth=1, embed_dim=32, num_heads=4),
    "timm_mixer": _mixer,
    "timm_resnet": _timm("resnet10t", 64),
}

_SOUND: Kind = {
    "wav2vec2": functools.partial(_speech, "Wav2Vec2"),
    "wav2vec2_ctc": functools.partial(_speech, "Wav2Vec2", labels=True),
    "hubert": functools.partial(_speech, "Hubert"),
    "whisper": _whisper,
    "ast": _spectrogram,
}

_BY_HAND: Kind = {"litgpt": _litgpt, "nanogpt": _nanogpt, "pytorch_encoder": _encoder_of_pytorch}

KINDS: dict[str, Kind] = {
    "text": {**_TEXT, **_ENCODERS, **_BY_HAND, **languages.TEXT, **popular.TEXT, **uncommon.TEXT},
    "hybrid": {**_HYBRID, **languages.HYBRID},
    "mixture of experts": {**_EXPERTS, **languages.EXPERTS, **scripts.EXPERTS},
    "adapters, quantized": {"lora": _lora, **languages.ADAPTERS, **uncommon.ADAPTERS},
    "images": {**_IMAGES, **popular.IMAGES, **uncommon.IMAGES, **scripts.IMAGES},
    "vision and language": {"clip": _clip, **pictures_with_text.VISION_LANGUAGE},
    "detection": {**detection.DETECTION, **popular.DETECTION},
    "segmentation": {"segformer": _segmenter, **detection.SEGMENTATION, **popular.SEGMENTATION},
    "speech and audio": {**_SOUND, **sound.SOUND},
    "diffusion, flows": {**generation.DIFFUSION, **uncommon.FLOWS},
    "video": generation.VIDEO,
    "time series": {**structures.SERIES, **uncommon.SERIES},
    "graphs, points, tables": {
        **structures.GRAPHS,
        **structures.TABLES,
        **uncommon.GRAPHS,
        **uncommon.TABLES,
        **scripts.TABLES,
    },
    "recurrent": {"pytorch_lstm": _lstm, **structures.RECURRENT, **popular.RECURRENT, **uncommon.RECURRENT},
    "physics": steps.PHYSICS,
    "contrastive": {**steps.CONTRASTIVE, **uncommon.CONTRASTIVE},
    "adversaries": {**steps.ADVERSARIES, **popular.ADVERSARIES},
    "reinforcement": {**steps.REINFORCEMENT, **popular.REINFORCEMENT},
    "whole steps": {**steps.STEPS, **popular.STEPS, **scripts.STEPS},
}
"""For each kind of model, the builders by the models' names."""
MODELS: dict[str, Builder] = {name: build for kind in KINDS.values() for name, build in kind.items()}


def build(name: str) -> Parts:
    """Return a model and its inputs. Each call gives equal weights and equal inputs."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(5)
        return MODELS[name]()
