"""Models of speech and audio, such as recognizers, synthesizers and codecs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.models.building import (
    BLOCKS,
    NO_DROPOUT,
    PAIR,
    SPEECH,
    TOKENS,
    VOCABULARY,
    WIDTH,
    Builder,
    Kind,
    Parts,
    hugging_face,
)


def _wave(kind: str, task: str, labels: Any = None, samples: int = 400, **config: Any) -> Builder:
    """Return a builder of a model whose input is a waveform."""

    def build() -> Parts:
        module: Any = hugging_face(kind, task, {**SPEECH, **config})
        return module, (torch.randn(2, samples),), labels() if labels else {}

    return build


class _Reconstruction(nn.Module):
    """The mean absolute difference between a codec's input and its output."""

    def __init__(self, codec: nn.Module) -> None:
        super().__init__()
        self.codec = codec

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        decoded = self.codec(wave).audio_values
        shared = min(decoded.shape[-1], wave.shape[-1])
        return nn.functional.l1_loss(decoded.reshape(2, 1, -1)[..., :shared], wave[..., :shared])


def _codec(kind: str, samples: int = 256, **config: Any) -> Builder:
    def build() -> Parts:
        return _Reconstruction(hugging_face(kind, "Model", config)), (torch.randn(2, 1, samples),), {}

    return build


class _VectorQuantized(nn.Module):
    """A hand-written codec: strided convolutions, residual codebooks, and straight-through gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv1d(1, 8, 4, 2, 1), nn.ELU(), nn.Conv1d(8, 16, 4, 2, 1))
        self.books = nn.ParameterList(torch.randn(8, 16) for _ in range(2))
        self.decoder = nn.Sequential(nn.ConvTranspose1d(16, 8, 4, 2, 1), nn.ELU(), nn.ConvTranspose1d(8, 1, 4, 2, 1))

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        encoded = self.encoder(wave).transpose(1, 2)
        rest, total, commitment = encoded, torch.zeros_like(encoded), torch.zeros(())
        for book in self.books:
            picked = nn.functional.embedding(torch.cdist(rest, book).argmin(-1), book)
            commitment = (
                commitment
                + nn.functional.mse_loss(rest, picked.detach())
                + nn.functional.mse_loss(picked, rest.detach())
            )
            total, rest = total + picked, rest - picked.detach()
        passed = encoded + (total - encoded).detach()
        return nn.functional.l1_loss(self.decoder(passed.transpose(1, 2)), wave) + 0.25 * commitment


def _vector_quantized() -> Parts:
    return _VectorQuantized(), (torch.randn(2, 1, 64),), {}


def _synthesizer() -> Parts:
    config = {
        **TOKENS,
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "encoder_layers": 1,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_layers": 1,
        "decoder_attention_heads": 4,
        "decoder_ffn_dim": 48,
        "num_mel_bins": 8,
        "speech_decoder_prenet_units": 16,
        "speech_decoder_postnet_units": 16,
        "speaker_embedding_dim": 8,
        "use_guided_attention_loss": False,
        **dict.fromkeys(
            [
                "positional_dropout",
                "hidden_dropout",
                "attention_dropout",
                "activation_dropout",
                "speech_decoder_prenet_dropout",
                "speech_decoder_postnet_dropout",
                "encoder_layerdrop",
                "decoder_layerdrop",
            ],
            0.0,
        ),
        "use_cache": False,
    }
    module = hugging_face("SpeechT5", "ForTextToSpeech", config)
    given = {"labels": torch.randn(2, 8, 8), "speaker_embeddings": torch.randn(2, 8)}
    return module, (torch.randint(3, VOCABULARY, (2, 8)),), given


def _from_features() -> Parts:
    config = {
        **PAIR,
        **TOKENS,
        "input_feat_per_channel": 8,
        "conv_channels": 16,
        "max_source_positions": 64,
        "max_target_positions": 32,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
    }
    module = hugging_face("Speech2Text", "ForConditionalGeneration", config)
    return module, (torch.randn(2, 32, 8),), {"labels": torch.randint(3, VOCABULARY, (2, 8))}


def _moonshine() -> Parts:
    config = {
        **TOKENS,
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "intermediate_size": 48,
        "encoder_num_hidden_layers": 1,
        "decoder_num_hidden_layers": 1,
        "encoder_num_attention_heads": 4,
        "decoder_num_attention_heads": 4,
        "decoder_start_token_id": 0,
        "use_cache": False,
    }
    module = hugging_face("Moonshine", "ForConditionalGeneration", config)
    return module, (torch.randn(2, 4000),), {"labels": torch.randint(3, VOCABULARY, (2, 8))}


def _clap() -> Parts:
    audio = {
        "spec_size": 32,
        "num_mel_bins": 8,
        "patch_size": 4,
        "patch_stride": [4, 4],
        "window_size": 4,
        "patch_embeds_hidden_size": 8,
        "depths": [1, 1],
        "num_attention_heads": [2, 2],
        "hidden_size": 16,
        "enable_fusion": False,
        "drop_path_rate": 0.0,
        "num_hidden_layers": 2,
    }
    text = {"vocab_size": VOCABULARY, **BLOCKS, **NO_DROPOUT, "pad_token_id": 2}
    module = hugging_face("Clap", "Model", {"text_config": text, "audio_config": audio, "projection_dim": 16})
    given = {
        "input_ids": torch.randint(3, VOCABULARY, (2, 8)),
        "input_features": torch.randn(2, 1, 128, 8),
        "return_loss": True,
    }
    return module, (), given


def _musicgen() -> Parts:
    config = {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "ffn_dim": 48,
        "num_codebooks": 2,
        "pad_token_id": 0,
        "bos_token_id": 0,
        "dropout": 0.0,
        "activation_dropout": 0.0,
        "attention_dropout": 0.0,
        "use_cache": False,
    }
    module = hugging_face("Musicgen", "ForCausalLM", config, configured="MusicgenDecoder")
    tokens = torch.randint(1, VOCABULARY, (4, 8))
    return module, (tokens,), {"labels": torch.randint(1, VOCABULARY, (2, 8, 2))}


class _Recognizer(nn.Module):
    """A hand-written recognizer: convolutions, a bidirectional LSTM, and a CTC loss with lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(8, 16, 3, 2, 1)
        self.lstm = nn.LSTM(16, 16, bidirectional=True, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor, labels: torch.Tensor, lengths: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
        hidden = self.lstm(self.convolution(x).relu().transpose(1, 2))[0]
        scores = self.head(hidden).log_softmax(-1).transpose(0, 1)
        return nn.functional.ctc_loss(scores, labels, lengths, wide)


def _recognizer() -> Parts:
    return (
        _Recognizer(),
        (torch.randn(2, 8, 24), torch.randint(1, 10, (2, 4)), torch.tensor([12, 10]), torch.tensor([4, 3])),
        {},
    )


def _characters() -> dict[str, Any]:
    return {"labels": torch.randint(1, VOCABULARY, (2, 4))}


def _classes() -> dict[str, Any]:
    return {"labels": torch.tensor([0, 1])}


def _masked() -> dict[str, Any]:
    mask = torch.zeros(2, 39, dtype=torch.bool)
    mask[:, 3:9] = True
    return {"mask_time_indices": mask, "sampled_negative_indices": torch.randint(0, 6, (2, 39, 3))}


SOUND: Kind = {
    "wav2vec2_with_masks": _wave("Wav2Vec2", "ForCTC", _characters, mask_time_prob=0.5, mask_time_length=2),
    "wav2vec2_pretraining": _wave(
        "Wav2Vec2",
        "ForPreTraining",
        _masked,
        mask_time_prob=0.5,
        codevector_dim=16,
        proj_codevector_dim=16,
        num_codevectors_per_group=4,
        num_negatives=3,
    ),
    "wav2vec2_classification": _wave(
        "Wav2Vec2", "ForSequenceClassification", _classes, num_labels=3, classifier_proj_size=16
    ),
    "wavlm": _wave("WavLM", "ForCTC", _characters, num_buckets=16, max_bucket_distance=32),
    "data2vec_audio": _wave("Data2VecAudio", "ForCTC", _characters, conv_pos_kernel_size=3, num_conv_pos_embeddings=2),
    "sew": _wave("SEW", "ForCTC", _characters, squeeze_factor=2),
    "speech_to_text": _from_features,
    "moonshine": _moonshine,
    "speecht5": _synthesizer,
    "clap": _clap,
    "musicgen": _musicgen,
    "encodec": _codec(
        "Encodec",
        num_filters=4,
        hidden_size=16,
        codebook_size=16,
        codebook_dim=16,
        upsampling_ratios=[4, 2],
        num_lstm_layers=1,
        target_bandwidths=[24.0],
        kernel_size=3,
        last_kernel_size=3,
    ),
    "dac": _codec(
        "Dac",
        encoder_hidden_size=8,
        downsampling_ratios=[2, 4],
        decoder_hidden_size=32,
        n_codebooks=2,
        codebook_size=16,
        codebook_dim=4,
        upsampling_ratios=[4, 2],
        quantizer_dropout=0.0,
    ),
    "mimi": _codec(
        "Mimi",
        512,
        num_filters=4,
        hidden_size=WIDTH,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=8,
        codebook_size=16,
        codebook_dim=16,
        vector_quantization_hidden_dimension=16,
        num_quantizers=3,
        num_semantic_quantizers=1,
        upsampling_ratios=[4, 2],
        upsample_groups=WIDTH,
        use_cache=False,
        sampling_rate=1600,
        frame_rate=100.0,
    ),
    "vector_quantized": _vector_quantized,
    "recognizer": _recognizer,
}
