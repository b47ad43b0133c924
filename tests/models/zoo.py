"""Models of users with random weights and tiny shapes. Each entry is a function that builds a module and its inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

type Parts = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]

VOCABULARY, WIDTH = 64, 32
_BLOCKS: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
}
_SIZES: dict[str, Any] = {"vocab_size": VOCABULARY, **_BLOCKS}
_GROUPED: dict[str, Any] = {**_SIZES, "num_key_value_heads": 2, "use_cache": False}
_TWO_LAYERS: dict[str, Any] = {**_GROUPED, "num_hidden_layers": 2}
_NO_DROPOUT: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_TOKENS: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
_IMAGE: dict[str, Any] = {**_BLOCKS, **_NO_DROPOUT, "image_size": 16, "patch_size": 8, "num_labels": 3}
_PAIR: dict[str, Any] = {
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
_T5: dict[str, Any] = {
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
_SPEECH: dict[str, Any] = {
    **_SIZES,
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


def _hugging_face(kind: str, task: str, config: dict[str, Any], configured: str = "") -> nn.Module:
    import transformers

    configuration = getattr(transformers, f"{configured or kind}Config")(**config)
    module: nn.Module = getattr(transformers, kind + task)(configuration)
    return module


def _text(kind: str, task: str = "ForCausalLM", configured: str = "", **config: Any) -> Callable[[], Parts]:
    """Return a factory of a text model with a loss. `kind` and `task` are the two halves of the class name."""

    def build() -> Parts:
        tokens = torch.randint(3, VOCABULARY, (2, 8))
        return _hugging_face(kind, task, {**_TOKENS, **config}, configured), (tokens,), {"labels": tokens}

    return build


def _experts(kind: str, **config: Any) -> Callable[[], Parts]:
    """Return a factory of a mixture of experts that uses only operators of PyTorch."""
    build = _text(kind, **config)

    def plain() -> Parts:
        module, args, kwargs = build()
        set_implementation: Any = module.set_experts_implementation
        set_implementation("batched_mm")
        return module, args, kwargs

    return plain


def _image(kind: str, side: int = 16, **config: Any) -> Callable[[], Parts]:
    """Return a factory of an image classifier with a loss."""

    def build() -> Parts:
        images, labels = torch.randn(2, 3, side, side), torch.tensor([0, 2])
        return _hugging_face(kind, "ForImageClassification", {**config}), (images,), {"labels": labels}

    return build


def _segmenter() -> Parts:
    sizes = {"depths": [1, 1], "hidden_sizes": [16, 32], "decoder_hidden_size": 16, "num_encoder_blocks": 2}
    stages = {"sr_ratios": [2, 1], "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2]}
    drops = {**_NO_DROPOUT, "drop_path_rate": 0.0, "classifier_dropout_prob": 0.0, "mlp_ratios": [2, 2]}
    module = _hugging_face("Segformer", "ForSemanticSegmentation", {**sizes, **stages, **drops, "num_labels": 3})
    return module, (torch.randn(2, 3, 32, 32),), {"labels": torch.randint(0, 3, (2, 32, 32))}


def _clip() -> Parts:
    text = {**_SIZES, "max_position_embeddings": 16, **_TOKENS}
    vision = {**_BLOCKS, "image_size": 16, "patch_size": 8}
    module = _hugging_face("CLIP", "Model", {"text_config": text, "vision_config": vision, "projection_dim": 16})
    tokens = torch.cat([torch.randint(3, VOCABULARY, (2, 7)), torch.ones(2, 1, dtype=torch.long)], 1)
    return module, (tokens, torch.randn(2, 3, 16, 16)), {"return_loss": True}


def _speech(kind: str, *, labels: bool = False) -> Parts:
    """Return a speech recognizer. Without labels, it returns scores, for a CTC loss outside of the program."""
    given = {"labels": torch.randint(1, VOCABULARY, (2, 4))} if labels else {}
    module: Any = _hugging_face(kind, "ForCTC", _SPEECH)
    module.freeze_feature_encoder()  # otherwise the program would set requires_grad on its input
    return module, (torch.randn(2, 400),), given


def _whisper() -> Parts:
    module = _hugging_face(
        "Whisper",
        "ForConditionalGeneration",
        {**_PAIR, **_TOKENS, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16},
    )
    return module, (torch.randn(2, 8, 32),), {"labels": torch.randint(3, VOCABULARY, (2, 8))}


def _spectrogram() -> Parts:
    sizes = {**_BLOCKS, **_NO_DROPOUT, "max_length": 32, "num_mel_bins": 16, "num_labels": 3}
    module = _hugging_face("AST", "ForAudioClassification", {**sizes, "patch_size": 8, "time_stride": 8})
    return module, (torch.randn(2, 32, 16),), {"labels": torch.tensor([0, 2])}


def _lora() -> Parts:
    from peft import LoraConfig, get_peft_model

    module, args, kwargs = _text("Llama", **_GROUPED)()
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
    from thunder.tests.litgpt_model import GPT, Config

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
_STATES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "state_size": 4,
    "num_hidden_layers": 1,
    "use_cache": False,
}

MODELS: dict[str, Callable[[], Parts]] = {
    # Text, causal.
    "llama": _text("Llama", **_TWO_LAYERS),
    "qwen2": _text("Qwen2", **_TWO_LAYERS),
    "qwen3": _text("Qwen3", **_TWO_LAYERS, head_dim=8),
    "mistral": _text("Mistral", **_GROUPED, sliding_window=4),
    "gemma": _text("Gemma", **_GROUPED, head_dim=8),
    "gemma2": _text("Gemma2", **_GROUPED, head_dim=8, sliding_window=4),
    "phi": _text("Phi", **_SIZES, use_cache=False, embd_pdrop=0.0, resid_pdrop=0.0),
    "phi3": _text("Phi3", **_GROUPED, embd_pdrop=0.0, resid_pdrop=0.0, attention_dropout=0.0),
    "olmo2": _text("Olmo2", **_GROUPED),
    "stablelm": _text("StableLm", **_GROUPED),
    "cohere": _text("Cohere", **_GROUPED),
    "starcoder2": _text("Starcoder2", **_GROUPED, embedding_dropout=0.0, residual_dropout=0.0),
    "granite": _text("Granite", **_GROUPED),
    "gpt2": _text("GPT2", "LMHeadModel", **_GPT2, **_NO_GPT_DROPOUT),
    "gpt_neo": _text(
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
    "gpt_neox": _text("GPTNeoX", **_SIZES, use_cache=False, hidden_dropout=0.0, attention_dropout=0.0),
    "gptj": _text("GPTJ", **_GPT2, **_NO_GPT_DROPOUT, rotary_dim=4),
    "opt": _text(
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
    "bloom": _text(
        "Bloom",
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        n_layer=1,
        n_head=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cache=False,
    ),
    "falcon": _text("Falcon", **_SIZES, use_cache=False, hidden_dropout=0.0, attention_dropout=0.0),
    "gpt_bigcode": _text("GPTBigCode", **_GPT2, **_NO_GPT_DROPOUT),
    "smollm3": _text("SmolLM3", **_GROUPED),
    "xglm": _text(
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
    # State space.
    "mamba": _text("Mamba", **_STATES),
    "mamba2": _text("Mamba2", **_STATES, num_heads=8, head_dim=8, n_groups=1, chunk_size=4),
    # A mixture of experts. It runs in cycles, all but the last without gradients.
    "hrm": _text("HrmText", **_SIZES, use_cache=False, head_dim=8),
    "llama4": _text("Llama4", configured="Llama4Text", **_GROUPED, head_dim=8, num_local_experts=4),
    "gemma4": _text("Gemma4Unified", configured="Gemma4UnifiedText", **_TWO_LAYERS, head_dim=8, sliding_window=4),
    # This model writes into its attention row by row.
    "qwen3_5": _text(
        "Qwen3_5",
        configured="Qwen3_5Text",
        **_GROUPED,
        head_dim=8,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
    ),
    "mixtral": _experts("Mixtral", **_GROUPED, num_local_experts=4),
    "mixtral_grouped": _text("Mixtral", **_GROUPED, num_local_experts=4),
    "qwen2_moe": _experts(
        "Qwen2Moe", **_GROUPED, num_experts=4, moe_intermediate_size=16, shared_expert_intermediate_size=16
    ),
    "olmoe": _experts("Olmoe", **_GROUPED, num_experts=4, num_experts_per_tok=2),
    # Text, masked.
    "bert": _text("Bert", "ForMaskedLM", **_SIZES, **_NO_DROPOUT),
    "roberta": _text("Roberta", "ForMaskedLM", **_SIZES, **_NO_DROPOUT),
    "electra": _text("Electra", "ForMaskedLM", **_SIZES, **_NO_DROPOUT, embedding_size=16),
    "albert": _text("Albert", "ForMaskedLM", **_SIZES, **_NO_DROPOUT, embedding_size=16),
    "distilbert": _text(
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
    "deberta_v2": _text(
        "DebertaV2", "ForMaskedLM", **_SIZES, **_NO_DROPOUT, relative_attention=True, pos_att_type=["p2c", "c2p"]
    ),
    "mpnet": _text("MPNet", "ForMaskedLM", **_SIZES, **_NO_DROPOUT),
    "modernbert": _text("ModernBert", "ForMaskedLM", **_SIZES, cls_token_id=0, sep_token_id=1),
    "nystromformer": _text(
        "Nystromformer", "ForMaskedLM", **_SIZES, **_NO_DROPOUT, num_landmarks=4, segment_means_seq_len=8
    ),
    "fnet": _text("FNet", "ForMaskedLM", **_BLOCKS, vocab_size=VOCABULARY, hidden_dropout_prob=0.0),
    "convbert": _text("ConvBert", "ForMaskedLM", **_SIZES, **_NO_DROPOUT, embedding_size=16),
    "squeezebert": _text("SqueezeBert", "ForMaskedLM", **_SIZES, **_NO_DROPOUT, embedding_size=WIDTH),
    # Text from text.
    "t5": _text("T5", "ForConditionalGeneration", **_T5),
    "mt5": _text("MT5", "ForConditionalGeneration", **_T5),
    "bart": _text("Bart", "ForConditionalGeneration", **_PAIR),
    "pegasus": _text("Pegasus", "ForConditionalGeneration", **_PAIR),
    "marian": _text("Marian", "MTModel", **_PAIR),
    # Images.
    "vit": _image("ViT", **_IMAGE),
    "deit": _image("DeiT", **_IMAGE),
    "beit": _image("Beit", **_IMAGE, drop_path_rate=0.0),
    "dinov2": _image("Dinov2", **_IMAGE),
    "hf_swin": _image(
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
    "hf_convnext": _image("ConvNext", 32, hidden_sizes=[16, 32], depths=[1, 1], num_stages=2, num_labels=3),
    "hf_resnet": _image("ResNet", 64, embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], num_labels=3),
    "segformer": _segmenter,
    "resnet": _resnet,
    "swin": _swin,
    "convnext": _convnext,
    "torchvision_vit": _vision_transformer,
    "mobilenet_v3": _torchvision("mobilenet_v3_small", 96, dropout=0.0),
    "shufflenet": _torchvision("shufflenet_v2_x0_5", 96),
    "efficientnet": _torchvision("efficientnet_b0", 32, dropout=0.0, stochastic_depth_prob=0.0),
    "squeezenet": _torchvision("squeezenet1_1", 32, dropout=0.0),
    "poolformer": _image(
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
    "mobilevit": _image(
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
    # Sound, and images with text.
    "wav2vec2": functools.partial(_speech, "Wav2Vec2"),
    "wav2vec2_ctc": functools.partial(_speech, "Wav2Vec2", labels=True),
    "hubert": functools.partial(_speech, "Hubert"),
    "whisper": _whisper,
    "ast": _spectrogram,
    "clip": _clip,
    # Others.
    "lora": _lora,
    "litgpt": _litgpt,
    "nanogpt": _nanogpt,
    "pytorch_encoder": _encoder_of_pytorch,
    "pytorch_lstm": _lstm,
}


def build(name: str) -> Parts:
    """Return a model by name, with the same weights and inputs each time."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(5)
        return MODELS[name]()
