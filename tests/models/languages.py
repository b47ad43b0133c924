"""Further text models, hybrids with recurrent layers, mixtures of experts, adapters, and quantized models."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.models.building import (
    GROUPED,
    NO_DROPOUT,
    SIZES,
    STATES,
    VOCABULARY,
    WIDTH,
    Builder,
    Kind,
    Parts,
    expert_model,
    hugging_face,
    text_model,
)

_SMALL_MAMBA: dict[str, Any] = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 4}


def _classifier(kind: str, task: str = "ForSequenceClassification", **config: Any) -> Builder:
    def build() -> Parts:
        module = hugging_face(kind, task, {**SIZES, **NO_DROPOUT, "num_labels": 3, "pad_token_id": 2, **config})
        return module, (torch.randint(3, VOCABULARY, (2, 8)),), {"labels": torch.tensor([0, 2])}

    return build


def _answers(kind: str, **config: Any) -> Builder:
    def build() -> Parts:
        module = hugging_face(kind, "ForQuestionAnswering", {**SIZES, **NO_DROPOUT, **config})
        spans = {"start_positions": torch.tensor([1, 9]), "end_positions": torch.tensor([2, 3])}
        return module, (torch.randint(3, VOCABULARY, (2, 8)),), spans

    return build


def _adapted(make: str, **config: Any) -> Builder:
    """Return a builder of a Llama with an adapter of the library peft."""

    def build() -> Parts:
        import peft

        module, args, kwargs = text_model("Llama", **GROUPED)()
        wrapped = peft.get_peft_model(module, getattr(peft, make)(task_type="CAUSAL_LM", **config))
        return wrapped, (), {"input_ids": args[0], **kwargs}

    return build


_PROJECTIONS: dict[str, Any] = {"target_modules": ["q_proj", "v_proj"]}


class _FakeQuantized(nn.Module):
    """A perceptron whose weights and activations are rounded to 8 bits, with straight-through gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            scale = layer.weight.detach().abs().amax(1) / 127
            zeros = torch.zeros(16, dtype=torch.int32)
            weight = torch.fake_quantize_per_channel_affine(layer.weight, scale, zeros, 0, -128, 127)
            x = torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127)
            x = nn.functional.gelu(nn.functional.linear(x, weight, layer.bias))
        return nn.functional.mse_loss(x, y)


def _fake_quantized() -> Parts:
    return _FakeQuantized(), (torch.randn(4, 16), torch.randn(4, 16)), {}


def _prepared_for_quantization() -> Parts:
    from torch.ao.quantization import get_default_qat_qconfig, prepare_qat

    module: Any = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    module.qconfig = get_default_qat_qconfig("x86")
    return prepare_qat(module.train()), (torch.randn(4, 16),), {}


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, step)
        return (x / step).round().clamp(-8, 7) * step

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, step = ctx.saved_tensors
        inside = ((x / step) >= -8) & ((x / step) <= 7)
        return grads[0] * inside, (grads[0] * ((x / step).round() - x / step) * inside).sum().reshape(step.shape)


class _LearnedSteps(nn.Module):
    """Quantization with learned step sizes (LSQ), computed by a `torch.autograd.Function`."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 4)
        self.step = nn.Parameter(torch.tensor([0.1]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        apply: Any = _StraightThrough.apply
        return nn.functional.linear(x, apply(self.layer.weight, self.step), self.layer.bias)


def _learned_steps() -> Parts:
    return _LearnedSteps(), (torch.randn(4, 16),), {}


class _RoutedExperts(nn.Module):
    """A hand-written mixture of experts. Each expert computes only the rows that are routed to it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, 4, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 48), nn.SiLU(), nn.Linear(48, WIDTH)) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, WIDTH)
        weights, chosen = torch.topk(self.gate(rows).softmax(-1), 2)
        out = torch.zeros_like(rows)
        for index, expert in enumerate(self.experts):
            row, place = torch.where(chosen == index)
            out.index_add_(0, row, expert(rows[row]) * weights[row, place, None])
        return out.reshape(x.shape)


def _routed_experts() -> Parts:
    return _RoutedExperts(), (torch.randn(2, 8, WIDTH),), {}


_DEEPSEEK: dict[str, Any] = {
    **SIZES,
    "num_key_value_heads": 4,
    "use_cache": False,
    "num_hidden_layers": 2,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
}

TEXT: Kind = {
    "deberta_v2_classification": _classifier("DebertaV2", relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "bert_classification": _classifier("Bert"),
    "gpt2_classification": _classifier(
        "GPT2", n_embd=WIDTH, n_layer=1, n_head=4, **dict.fromkeys(["resid_pdrop", "embd_pdrop", "attn_pdrop"], 0.0)
    ),
    "distilbert_answers": _answers(
        "DistilBert", dim=WIDTH, hidden_dim=48, n_layers=1, n_heads=4, dropout=0.0, attention_dropout=0.0
    ),
    "xlnet": text_model(
        "XLNet", "LMHeadModel", vocab_size=VOCABULARY, d_model=WIDTH, n_layer=1, n_head=4, d_inner=48, dropout=0.0
    ),
    "longformer": text_model("Longformer", "ForMaskedLM", **SIZES, **NO_DROPOUT, attention_window=[4]),
    "big_bird": text_model("BigBird", "ForMaskedLM", **SIZES, **NO_DROPOUT, block_size=2, num_random_blocks=1),
    "longt5": text_model(
        "LongT5",
        "ForConditionalGeneration",
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        d_kv=8,
        d_ff=48,
        num_layers=1,
        num_heads=4,
        dropout_rate=0.0,
        use_cache=False,
        decoder_start_token_id=2,
        local_radius=3,
    ),
    "funnel": text_model(
        "Funnel",
        "ForMaskedLM",
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        n_head=4,
        d_head=8,
        d_inner=48,
        block_sizes=[1, 1],
        num_decoder_layers=1,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
    ),
    "mobilebert": text_model(
        "MobileBert",
        "ForMaskedLM",
        **SIZES,
        **NO_DROPOUT,
        embedding_size=16,
        intra_bottleneck_size=16,
        true_hidden_size=16,
    ),
    "roformer": text_model("RoFormer", "ForMaskedLM", **SIZES, **NO_DROPOUT, embedding_size=WIDTH),
    "flaubert": text_model(
        "Flaubert",
        "WithLMHeadModel",
        vocab_size=VOCABULARY,
        emb_dim=WIDTH,
        n_layers=1,
        n_heads=4,
        dropout=0.0,
        attention_dropout=0.0,
    ),
    "reformer": text_model(
        "Reformer",
        "ModelWithLMHead",
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_attention_heads=4,
        attention_head_size=8,
        feed_forward_size=48,
        attn_layers=["local"],
        local_attn_chunk_length=4,
        axial_pos_embds=False,
        is_decoder=True,
        max_position_embeddings=8,
        hidden_dropout_prob=0.0,
        local_attention_probs_dropout_prob=0.0,
        use_cache=False,
    ),
}

HYBRID: Kind = {
    "falcon_mamba": text_model("FalconMamba", **STATES),
    "rwkv": text_model(
        "Rwkv",
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        attention_hidden_size=WIDTH,
        use_cache=False,
    ),
    "jamba": text_model(
        "Jamba",
        **{**GROUPED, "num_hidden_layers": 2},
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=2,
        num_experts_per_tok=1,
        mamba_d_state=4,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
    ),
    "bamba": text_model(
        "Bamba", **{**GROUPED, "num_hidden_layers": 2}, attn_layer_indices=[1], mamba_chunk_size=4, **_SMALL_MAMBA
    ),
    "zamba": text_model(
        "Zamba",
        **{**GROUPED, "num_hidden_layers": 6},
        mamba_d_state=4,
        mamba_dt_rank=4,
        n_mamba_heads=2,
        use_mamba_kernels=False,
        attn_layer_period=3,
        attn_layer_offset=2,
    ),
    "zamba2": text_model(
        "Zamba2",
        **{**GROUPED, "num_hidden_layers": 2},
        mamba_d_state=4,
        n_mamba_heads=8,
        mamba_headdim=8,
        mamba_ngroups=1,
        chunk_size=4,
        use_mamba_kernels=False,
        layers_block_type=["mamba", "hybrid"],
        num_mem_blocks=1,
    ),
    "recurrent_gemma": text_model(
        "RecurrentGemma",
        **{**GROUPED, "num_hidden_layers": 3},
        lru_width=WIDTH,
        attention_window_size=4,
        attention_dropout=0.0,
    ),
    "falcon_h1": text_model("FalconH1", **GROUPED, mamba_chunk_size=4, mamba_d_ssm=64, **_SMALL_MAMBA),
    "nemotron_h": text_model(
        "NemotronH",
        **GROUPED,
        hybrid_override_pattern="M",
        mamba_num_heads=8,
        mamba_head_dim=8,
        n_groups=1,
        ssm_state_size=4,
        chunk_size=4,
    ),
    "granite_hybrid": text_model(
        "GraniteMoeHybrid",
        **{**GROUPED, "num_hidden_layers": 2},
        layer_types=["mamba", "attention"],
        num_local_experts=0,
        mamba_chunk_size=4,
        shared_intermediate_size=48,
        **_SMALL_MAMBA,
    ),
    "lfm2": text_model("Lfm2", **{**GROUPED, "num_hidden_layers": 2}, full_attn_idxs=[1]),
    "xlstm": text_model(
        "xLSTM",
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_blocks=1,
        num_heads=4,
        chunk_size=4,
        use_cache=False,
        mode="train",
    ),
    "qwen3_next": expert_model(
        "Qwen3Next",
        **{**GROUPED, "num_hidden_layers": 2},
        head_dim=8,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        layer_types=["linear_attention", "full_attention"],
    ),
}

EXPERTS: Kind = {
    "deepseek_v3": expert_model("DeepseekV3", **_DEEPSEEK),
    "deepseek_v2": expert_model("DeepseekV2", **_DEEPSEEK),
    "gpt_oss": expert_model(
        "GptOss", **GROUPED, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=4
    ),
    "qwen3_moe": expert_model(
        "Qwen3Moe", **GROUPED, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16
    ),
    "qwen3_moe_grouped": text_model(
        "Qwen3Moe", **GROUPED, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16
    ),
    "granite_moe": text_model("GraniteMoe", **GROUPED, num_local_experts=4, num_experts_per_tok=2),
    "phimoe": expert_model("Phimoe", **GROUPED, num_local_experts=4),
    "jetmoe": text_model(
        "JetMoe", **{**SIZES, "use_cache": False}, kv_channels=8, num_key_value_heads=4, num_local_experts=4
    ),
    "switch": text_model(
        "SwitchTransformers",
        "ForConditionalGeneration",
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_sparse_encoder_layers=1,
        num_decoder_layers=2,
        num_sparse_decoder_layers=1,
        num_heads=4,
        num_experts=4,
        dropout_rate=0.0,
        use_cache=False,
        decoder_start_token_id=2,
    ),
    "routed_experts": _routed_experts,
}

ADAPTERS: Kind = {
    "dora": _adapted("LoraConfig", r=4, use_dora=True, lora_dropout=0.0, **_PROJECTIONS),
    "rslora": _adapted("LoraConfig", r=4, use_rslora=True, lora_dropout=0.0, target_modules="all-linear"),
    "ia3": _adapted("IA3Config", target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"]),
    "prefix_tuning": _adapted("PrefixTuningConfig", num_virtual_tokens=3),
    "prompt_tuning": _adapted("PromptTuningConfig", num_virtual_tokens=3),
    "adalora": _adapted("AdaLoraConfig", total_step=10, init_r=4, target_r=2, **_PROJECTIONS),
    "vera": _adapted("VeraConfig", r=4, vera_dropout=0.0, **_PROJECTIONS),
    "fake_quantized": _fake_quantized,
    "prepared_for_quantization": _prepared_for_quantization,
    "learned_steps": _learned_steps,
}
