"""Text models. All except `funnel` branch on values of their inputs, or assert properties of these values."""

from __future__ import annotations

from typing import Any

import torch

from tests.models.building import (
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


def _model(kind: str, task: str, **config: Any) -> Builder:
    def build() -> Parts:
        tokens = torch.randint(3, VOCABULARY, (2, 8))
        labels = torch.tensor([0, 2]) if task == "ForSequenceClassification" else tokens
        return hugging_face(kind, task, {"vocab_size": VOCABULARY, **config}), (tokens,), {"labels": labels}

    return build


_LOCAL: dict[str, Any] = {**SIZES, **NO_DROPOUT, **TOKENS, "max_position_embeddings": 64, "num_labels": 3}
_XLM: dict[str, Any] = {
    "emb_dim": WIDTH,
    "n_layers": 1,
    "n_heads": 4,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "summary_first_dropout": 0.0,
    "max_position_embeddings": 32,
    "num_labels": 3,
    "pad_token_id": 2,
}
_PROPHET: dict[str, Any] = {
    **TOKENS,
    "hidden_size": WIDTH,
    **{f"{side}_ffn_dim": 48 for side in ("encoder", "decoder")},
    **{f"num_{side}_layers": 1 for side in ("encoder", "decoder")},
    **{f"num_{side}_attention_heads": 4 for side in ("encoder", "decoder")},
    "max_position_embeddings": 32,
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0),
    "use_cache": False,
    "decoder_start_token_id": 2,
}
_FUNNEL: dict[str, Any] = {
    "d_model": WIDTH,
    "d_head": 8,
    "n_head": 4,
    "d_inner": 48,
    "block_sizes": [1, 1],
    "num_decoder_layers": 1,
    **dict.fromkeys(("hidden_dropout", "attention_dropout", "activation_dropout"), 0.0),
}

VALUE_READERS: Kind = {
    "longformer": _model("Longformer", "ForSequenceClassification", **_LOCAL, attention_window=[4]),
    "xlm": _model("XLM", "ForSequenceClassification", **_XLM),
    "prophetnet": _model("ProphetNet", "ForConditionalGeneration", **_PROPHET),
    "funnel": _model("Funnel", "ForMaskedLM", **_FUNNEL),
}
