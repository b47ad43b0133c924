"""Programs of kinds that the rest of the zoo lacks, in the style of the repositories that made them known."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

from tests.models.building import NO_DROPOUT, SIZES, TOKENS, Kind, Parts, hugging_face


class _Slots(nn.Module):
    """Slot attention: slots compete for the inputs, in three rounds with shared weights."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(3, width))
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.update, self.norm, self.out = nn.GRUCell(width, width), nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        slots, key, value = self.start.expand(len(x), -1, -1), self.key(x), self.value(x)
        for _ in range(3):
            scores = torch.einsum("bsd,bnd->bsn", self.query(self.norm(slots)), key) / math.sqrt(x.shape[-1])
            shares = scores.softmax(1) + 1e-8
            taken = torch.einsum("bsn,bnd->bsd", shares / shares.sum(-1, keepdim=True), value)
            slots = self.update(taken.flatten(0, 1), slots.flatten(0, 1)).view_as(slots)
        return functional.mse_loss(self.out(slots).sum(1), x.mean(1))


class _RadianceField(nn.Module):
    """NeRF: colors and densities along rays, from positions in sines and cosines, rendered by cumulative products."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.density, self.color = nn.Linear(27, 16), nn.Linear(16, 1), nn.Linear(16 + 15, 3)

    @staticmethod
    def _embed(x: torch.Tensor, count: int) -> torch.Tensor:
        waves = [wave(x * 2.0**at) for at in range(count) for wave in (torch.sin, torch.cos)]
        return torch.cat([x, *waves], -1)

    def forward(self, start: torch.Tensor, ahead: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        depth = torch.linspace(2.0, 6.0, 6).expand(len(start), 6)
        points = start[:, None] + ahead[:, None] * depth[..., None]
        seen = (ahead / ahead.norm(dim=-1, keepdim=True))[:, None].expand(points.shape)
        hidden = self.body(self._embed(points.reshape(-1, 3), 4)).relu()
        density = self.density(hidden).view(len(start), 6)
        color = self.color(torch.cat([hidden, self._embed(seen.reshape(-1, 3), 2)], -1)).view(len(start), 6, 3)
        lengths = torch.cat([depth[:, 1:] - depth[:, :-1], torch.tensor([1e10]).expand(len(start), 1)], -1)
        opacity = 1.0 - torch.exp(-density.relu() * lengths)
        clear = torch.cumprod(torch.cat([torch.ones(len(start), 1), 1.0 - opacity + 1e-10], -1), -1)[:, :-1]
        return functional.mse_loss(((opacity * clear)[..., None] * color.sigmoid()).sum(1), expected)


class _EdgeConvolution(nn.Module):
    """DGCNN: a convolution over the edges to the nearest points, which `topk` finds anew in each layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(wide, 8, 1, bias=False), nn.BatchNorm2d(8), nn.LeakyReLU(0.2)) for wide in (6, 16)
        )
        self.head = nn.Linear(32, 3)

    @staticmethod
    def _edges(x: torch.Tensor, count: int = 3) -> torch.Tensor:
        batch, width, points = x.shape
        squares = x.square().sum(1, keepdim=True)
        near = (2 * x.mT @ x - squares - squares.mT).topk(count, -1).indices
        rows = (near + torch.arange(batch).view(-1, 1, 1) * points).view(-1)
        turned = x.mT.contiguous()
        found = turned.view(batch * points, width)[rows].view(batch, points, count, width)
        own = turned.view(batch, points, 1, width).repeat(1, 1, count, 1)
        return torch.cat([found - own, own], 3).permute(0, 3, 1, 2).contiguous()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        first = self.layers[0](self._edges(x)).amax(-1)
        both = torch.cat([first, self.layers[1](self._edges(first)).amax(-1)], 1)
        return functional.cross_entropy(self.head(torch.cat([both.amax(-1), both.mean(-1)], 1)), labels)


class _Flow(nn.Module):
    """Glow: invertible convolutions by `slogdet`, and affine couplings; the loss is the bits per value."""

    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.mixes = nn.ParameterList(torch.linalg.qr(torch.randn(channels, channels))[0] for _ in range(2))
        self.nets = nn.ModuleList(nn.Conv2d(channels // 2, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, total = functional.pixel_unshuffle(x, 2), torch.zeros(len(x))
        for mix, net in zip(self.mixes, self.nets, strict=True):
            x = functional.conv2d(x, mix[..., None, None])
            total = total + torch.slogdet(mix)[1] * x.shape[2] * x.shape[3]
            kept, changed = x.chunk(2, 1)
            scale, shift = net(kept).chunk(2, 1)
            scale = (scale + 2).sigmoid()
            x = torch.cat([kept, (changed + shift) * scale], 1)
            total = total + scale.log().flatten(1).sum(1)
        likelihood = -0.5 * (x.square() + math.log(2 * math.pi)).flatten(1).sum(1) + total
        return -likelihood.mean() / (math.log(2) * x[0].numel())


class _FeatureTokens(nn.Module):
    """FT-Transformer: each number and each category of a row is a token."""

    places: torch.Tensor

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(3, width)), nn.Parameter(torch.randn(3, width))
        self.categories, self.first = nn.Embedding(9, width), nn.Parameter(torch.randn(1, 1, width))
        self.register_buffer("places", torch.tensor([0, 4]))
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1)

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        tokens = self.weight * numbers[..., None] + self.bias
        x = torch.cat([self.first.expand(len(numbers), -1, -1), tokens, self.categories(categories + self.places)], 1)
        x = x[:, :1] + self.attention(x[:, :1], x, x, need_weights=False)[0]
        return functional.binary_cross_entropy_with_logits(self.head(self.norm(x[:, 0]).relu()).squeeze(-1), labels)


class _SparseGraph(nn.Module):
    """A graph convolutional network that multiplies with a sparse matrix of the edges."""

    edges: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)
        self.register_buffer("edges", (torch.eye(6) + torch.eye(6).roll(1, 0)).div(2).to_sparse())

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        hidden = torch.spmm(self.edges, self.first(x)).relu()
        return functional.nll_loss(torch.spmm(self.edges, self.second(hidden)).log_softmax(1), labels)


class _Transducer(nn.Module):
    """The loss of a recurrent neural network transducer (RNN-T): all paths through a lattice, in Python's loops."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.predictor = nn.GRU(4, 6, batch_first=True), nn.GRU(6, 6, batch_first=True)
        self.embed, self.join = nn.Embedding(5, 6), nn.Linear(6, 5)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        heard, _ = self.encoder(x)
        said, _ = self.predictor(self.embed(functional.pad(labels, (1, 0))))
        scores = self.join((heard[:, :, None] + said[:, None]).tanh()).log_softmax(-1)
        blank = scores[..., 0]
        index = labels[:, None, :, None].expand(-1, scores.shape[1], -1, -1)
        emit = scores[:, :, :-1].gather(3, index).squeeze(-1)
        paths: dict[tuple[int, int], torch.Tensor] = {(0, 0): torch.zeros(len(x))}
        for at in range(scores.shape[1]):
            for count in range(scores.shape[2]):
                before = []
                if at:
                    before.append(paths[at - 1, count] + blank[:, at - 1, count])
                if count:
                    before.append(paths[at, count - 1] + emit[:, at, count - 1])
                if before:
                    paths[at, count] = torch.stack(before).logsumexp(0)
        return -(paths[scores.shape[1] - 1, scores.shape[2] - 1] + blank[:, -1, -1]).mean()


class _Preferences(nn.Module):
    """The loss of direct preference optimization (DPO), against a frozen copy of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 9))
        self.frozen = copy.deepcopy(self.model).requires_grad_(False)

    @staticmethod
    def _score(model: nn.Module, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores, after = model(tokens)[:, :-1], labels[:, 1:].clone()
        counts = after != -100
        after[after == -100] = 0
        chosen: torch.Tensor = scores.log_softmax(-1).gather(2, after[..., None]).squeeze(2)
        return (chosen * counts).sum(-1)

    def forward(self, better: torch.Tensor, worse: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        tokens = torch.cat([better, worse])
        ours = self._score(self.model, tokens, labels)
        with torch.no_grad():
            theirs = self._score(self.frozen, tokens, labels)
        first, second = (ours - theirs).chunk(2)
        loss = -functional.logsigmoid(0.1 * (first - second)).mean()
        return {"loss": loss, "accuracy": (first > second).float().mean().detach()}


class _Hypernetwork(nn.Module):
    """A network that computes the weights of another network, which `torch.func.functional_call` runs."""

    def __init__(self) -> None:
        super().__init__()
        target = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
        self.shapes = {name: parameter.shape for name, parameter in target.named_parameters()}
        self.maker = nn.Linear(4, sum(shape.numel() for shape in self.shapes.values()))
        object.__setattr__(self, "target", target)  # so that the target's parameters are not trained

    def forward(self, code: torch.Tensor, x: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        made = self.maker(code).split([shape.numel() for shape in self.shapes.values()])
        weights = {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), made, strict=True)}
        target: Any = self.target
        return functional.mse_loss(torch.func.functional_call(target, weights, (x,)), expected)


def _labels(*shape: int, classes: int) -> torch.Tensor:
    return torch.randint(0, classes, shape)


class _Slopes(nn.Module):
    """ALiBi in `flex_attention`: each head adds the distance times a trained slope to its scores."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.project, self.out = nn.Embedding(20, 16), nn.Linear(16, 48), nn.Linear(16, 20)
        self.slopes = nn.Parameter(torch.tensor([0.1, 0.2]))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, length = tokens.shape
        query, key, value = self.project(self.embed(tokens)).view(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        made: Any = flex_attention(query, key, value, score_mod=lambda s, b, h, i, j: s + (j - i) * self.slopes[h])
        scores = self.out(made.transpose(1, 2).reshape(batch, length, 16))
        return functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


class _Bags(nn.Module):
    """A recommender whose table of embeddings gets sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.EmbeddingBag(30, 8, mode="sum", sparse=True), nn.Linear(8, 3)

    def forward(self, rows: torch.Tensor, starts: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.out(self.table(rows, starts)), y)


def _entities() -> Parts:
    """LUKE: words and entities attend to each other with four kinds of queries."""
    sizes = {"entity_vocab_size": 20, "entity_emb_size": 16, "max_position_embeddings": 32}
    module = hugging_face("Luke", "ForMaskedLM", {**SIZES, **NO_DROPOUT, **TOKENS, **sizes})
    tokens, entities = 3 + _labels(2, 8, classes=60), 1 + _labels(2, 2, classes=19)
    given = {
        "attention_mask": torch.ones_like(tokens),
        "entity_ids": entities,
        "entity_attention_mask": torch.ones_like(entities),
        "entity_token_type_ids": torch.zeros_like(entities),
        "entity_position_ids": torch.tensor([[[1, 2, -1], [4, -1, -1]]] * 2),
    }
    return module, (tokens,), {**given, "labels": tokens.clone(), "entity_labels": entities.clone()}


def _proteins() -> Parts:
    """ESM: a masked language model that scales its embeddings by the share of masked tokens."""
    sizes = {"max_position_embeddings": 32, "emb_layer_norm_before": False, "mask_token_id": 3, "pad_token_id": 1}
    rotary = {"position_embedding_type": "rotary", "token_dropout": True}
    module = hugging_face("Esm", "ForMaskedLM", {**SIZES, **NO_DROPOUT, **sizes, **rotary})
    tokens = 4 + _labels(2, 8, classes=60)
    labels = tokens.clone()
    tokens[:, 2] = 3
    return module, (tokens,), {"attention_mask": torch.ones_like(tokens), "labels": labels}


def _forecaster() -> Parts:
    """TimesFM: a decoder that reads patches of series of several lengths."""
    sizes = {"hidden_size": 16, "intermediate_size": 24, "head_dim": 8, "num_attention_heads": 2}
    lengths = {"patch_length": 4, "context_length": 16, "horizon_length": 8, "num_hidden_layers": 1}
    module = hugging_face("TimesFm", "ModelForPrediction", {**sizes, **lengths})
    past = [torch.randn(16), torch.randn(12)]
    return module, (past,), {"freq": [0, 1], "future_values": torch.randn(2, 8)}


def _hierarchical_autoencoder() -> Parts:
    """Hiera: a masked autoencoder that drops units of patches before its first stage."""
    sizes = {"embed_dim": 16, "image_size": (32, 32), "depths": (1, 1), "num_heads": (1, 2), "num_query_pool": 1}
    units = {"masked_unit_size": (2, 2), "masked_unit_attention": (True, False)}
    decoder = {"decoder_hidden_size": 16, "decoder_depth": 1, "decoder_num_heads": 2}
    module = hugging_face("Hiera", "ForPreTraining", {**sizes, **units, **decoder})
    return module, (torch.randn(2, 3, 32, 32),), {"noise": torch.rand(2, 16)}


def _latents() -> Parts:
    """Perceiver: a few latents read the tokens, and queries of all positions read the latents."""
    sizes = {"num_latents": 4, "d_latents": 16, "d_model": 16, "num_self_attends_per_block": 2, "vocab_size": 64}
    heads = {"num_self_attention_heads": 2, "num_cross_attention_heads": 2, "qk_channels": 16, "v_channels": 16}
    given = {"attention_probs_dropout_prob": 0.0, "max_position_embeddings": 8}
    module = hugging_face("Perceiver", "ForMaskedLM", {**sizes, **heads, **given})
    tokens = 3 + _labels(2, 8, classes=60)
    return module, (tokens,), {"attention_mask": torch.ones_like(tokens), "labels": tokens.clone()}


TEXT: Kind = {
    "attention_with_slopes": lambda: (_Slopes(), (_labels(2, 8, classes=20),), {}),
    "luke": _entities,
    "esm": _proteins,
    "perceiver": _latents,
}
SERIES: Kind = {"timesfm": _forecaster}
TABLES: Kind = {
    "sparse_bags": lambda: (_Bags(), (_labels(9, classes=30), torch.tensor([0, 3, 5]), _labels(3, classes=3)), {})
}
IMAGES: Kind = {
    "hiera": _hierarchical_autoencoder,
    "slots": lambda: (_Slots(), (torch.randn(2, 6, 8),), {}),
    "radiance_field": lambda: (_RadianceField(), (torch.randn(5, 3), torch.randn(5, 3), torch.rand(5, 3)), {}),
}
FLOWS: Kind = {"glow": lambda: (_Flow(), (torch.randn(3, 1, 4, 4),), {})}
GRAPHS: Kind = {
    "edge_convolution": lambda: (_EdgeConvolution(), (torch.randn(4, 3, 6), _labels(4, classes=3)), {}),
    "sparse_graph": lambda: (_SparseGraph(), (torch.randn(6, 4), _labels(6, classes=3)), {}),
    "feature_tokens": lambda: (
        _FeatureTokens(),
        (torch.randn(4, 3), _labels(4, 2, classes=4), _labels(4, classes=2).float()),
        {},
    ),
}
RECURRENT: Kind = {
    "transducer_loss": lambda: (_Transducer(), (torch.randn(2, 4, 4), 1 + _labels(2, 2, classes=4)), {}),
}
CONTRASTIVE: Kind = {
    "preferences": lambda: (
        _Preferences(),
        (
            _labels(2, 5, classes=9),
            _labels(2, 5, classes=9),
            torch.tensor([[-100, 1, 2, 3, 4], [-100, -100, 5, 6, 7], [-100, 1, 2, -100, -100], [-100, 3, 3, 8, 0]]),
        ),
        {},
    ),
}
ADAPTERS: Kind = {
    "hypernetwork": lambda: (_Hypernetwork(), (torch.randn(4), torch.randn(5, 3), torch.randn(5, 2)), {}),
}
