"""Models for time series, graphs, point clouds and tables, and recurrent models."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.models.building import Builder, Kind, Parts, hugging_face

_NODES = 6


def _edges() -> torch.Tensor:
    """Return the edges of a ring of nodes, in both directions, and one edge from a node to itself."""
    source = torch.arange(_NODES)
    both = torch.stack([torch.cat([source, (source + 1) % _NODES]), torch.cat([(source + 1) % _NODES, source])])
    return torch.cat([both, torch.tensor([[2], [2]])], 1)


def _with_loops(edges: torch.Tensor, nodes: int) -> torch.Tensor:
    """Remove self-loops, then add one self-loop to each node, as PyTorch Geometric does."""
    loops = torch.arange(nodes).repeat(2, 1)
    return torch.cat([edges[:, edges[0] != edges[1]], loops], 1)


class _GCN(nn.Module):
    def __init__(self, *, loops: bool) -> None:
        super().__init__()
        self.layers, self.loops = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 3)]), loops

    def forward(self, x: torch.Tensor, edges: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self.loops:
            edges = _with_loops(edges, len(x))
        source, target = edges
        degree = torch.zeros(len(x)).scatter_add_(0, target, torch.ones(len(target)))
        scale = degree.clamp(min=1).rsqrt()
        weights = (scale[source] * scale[target])[:, None]
        for index, layer in enumerate(self.layers):
            x = layer(x)
            x = torch.zeros_like(x).index_add(0, target, x[source] * weights)
            x = x.relu() if index == 0 else x
        return functional.cross_entropy(x, labels)


class _GAT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 2 * 4, bias=False)
        self.sent, self.got = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.randn(2, 4))
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        source, target = _with_loops(edges, len(x))
        h = self.project(x).view(-1, 2, 4)
        scores = functional.leaky_relu((h * self.sent).sum(-1)[source] + (h * self.got).sum(-1)[target], 0.2)
        index = target[:, None].expand_as(scores)
        highest = torch.full((len(x), 2), -torch.inf).scatter_reduce(0, index, scores, "amax")
        shares = (scores - highest[target].detach()).exp()
        total = torch.zeros(len(x), 2).scatter_add(0, index, shares)
        messages = h[source] * (shares / total[target])[..., None]
        return functional.cross_entropy(
            self.head(torch.zeros_like(h).index_add(0, target, messages).flatten(1)), labels
        )


class _GIN(nn.Module):
    """A graph isomorphism network with batch normalization, and a mean over each graph of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
        self.own, self.head = nn.Parameter(torch.zeros(())), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, graph: torch.Tensor) -> torch.Tensor:
        gathered = torch.zeros_like(x).index_add_(0, edges[1], x[edges[0]])
        x = self.net((1 + self.own) * x + gathered)
        graphs = int(graph.max()) + 1
        sums = torch.zeros(graphs, x.shape[1]).index_add_(0, graph, x)
        result: torch.Tensor = self.head(sums / torch.bincount(graph, minlength=graphs)[:, None])
        return result


class _Continuous(nn.Module):
    """The loss of continuous-filter convolutions (SchNet), which predict an energy.

    With `forces`, the loss compares the energy's negative gradient with the expected forces.
    """

    def __init__(self, *, forces: bool) -> None:
        super().__init__()
        self.embed, self.filter, self.out = nn.Embedding(4, 8), nn.Linear(10, 8), nn.Linear(8, 1)
        self.forces = forces

    def forward(self, kinds: torch.Tensor, places: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        if self.forces:
            places = places.detach().requires_grad_()
        apart = places[:, None] - places[None]
        distance = (apart.square().sum(-1) + torch.eye(len(places))).sqrt()
        source, target = torch.nonzero((distance < 3.0) & ~torch.eye(len(places), dtype=torch.bool), as_tuple=True)
        basis = torch.exp(-10 * (distance[source, target, None] - torch.linspace(0, 3, 10)) ** 2)
        x = self.embed(kinds)
        x = x + torch.zeros_like(x).index_add(0, target, x[source] * self.filter(basis))
        energy = self.out(functional.silu(x)).sum()
        if not self.forces:
            return (energy - expected.sum()) ** 2
        (gradient,) = torch.autograd.grad(energy, places, create_graph=True)
        return functional.mse_loss(-gradient, expected)


class _PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 16, 1))
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        near = torch.cdist(x.transpose(1, 2), x.transpose(1, 2)).topk(3, largest=False).indices
        local = torch.gather(x[:, :, None].expand(-1, -1, x.shape[2], -1), 3, near[:, None].expand(-1, 3, -1, -1)).mean(
            -1
        )
        result: torch.Tensor = self.head(self.points(local).amax(-1))
        return result


def _graph(module: nn.Module) -> Parts:
    return module, (torch.randn(_NODES, 8), _edges(), torch.tensor([0, 1, 2, 0, 1, 2])), {}


def _isomorphism() -> Parts:
    return _GIN(), (torch.randn(_NODES, 8), _edges(), torch.tensor([0, 0, 0, 1, 1, 1])), {}


def _molecule() -> Parts:
    return _Continuous(forces=False), (torch.tensor([0, 1, 2, 3, 1]), torch.randn(5, 3), torch.randn(5, 3)), {}


def _molecule_with_forces() -> Parts:
    return _Continuous(forces=True), (torch.tensor([0, 1, 2, 3, 1]), torch.randn(5, 3), torch.randn(5, 3)), {}


_FORECAST: dict[str, Any] = {
    "prediction_length": 4,
    "context_length": 8,
    "lags_sequence": [1, 2],
    "num_time_features": 1,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "use_cache": False,
    **dict.fromkeys(
        ["dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop"], 0.0
    ),
}


def _forecast(kind: str, **config: Any) -> Builder:
    def build() -> Parts:
        module = hugging_face(kind, "ForPrediction", {**_FORECAST, **config})
        given = {
            "past_values": torch.randn(2, 10),
            "past_time_features": torch.randn(2, 10, 1),
            "past_observed_mask": torch.ones(2, 10),
        }
        return module, (), {**given, "future_values": torch.randn(2, 4), "future_time_features": torch.randn(2, 4, 1)}

    return build


def _patched(kind: str, **config: Any) -> Builder:
    def build() -> Parts:
        sizes = {
            "num_input_channels": 2,
            "context_length": 16,
            "patch_length": 4,
            "patch_stride": 4,
            "prediction_length": 4,
            "d_model": 16,
            "num_layers": 1,
            "num_hidden_layers": 1,
        }
        module = hugging_face(kind, "ForPrediction", {**sizes, **config})
        return module, (torch.randn(2, 16, 2),), {"future_values": torch.randn(2, 4, 2)}

    return build


class _NBeats(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 12 + 4)) for _ in range(3)
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        forecast = torch.zeros_like(y)
        for block in self.blocks:
            back, ahead = block(x).split([12, 4], -1)
            x, forecast = x - back, forecast + ahead
        return functional.smooth_l1_loss(forecast, y)


def _n_beats() -> Parts:
    return _NBeats(), (torch.randn(3, 12), torch.randn(3, 4)), {}


class _Temporal(nn.Module):
    """Causal convolutions with growing dilation and weight normalization."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.layers = nn.ModuleList(norm(nn.Conv1d(4, 4, 3, dilation=2**i)) for i in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            x = x + layer(functional.pad(x, (2 * 2**index, 0))).relu()
        return x


def _temporal() -> Parts:
    return _Temporal(), (torch.randn(2, 4, 16),), {}


class _Spectral(nn.Module):
    """A Fourier neural operator."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(4, 4, 5, dtype=torch.cfloat) * 0.1)
        self.skip = nn.Conv1d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        modes = torch.fft.rfft(x)
        mixed = torch.einsum("bim,iom->bom", modes[..., :5], self.weights)
        return functional.gelu(
            torch.fft.irfft(functional.pad(mixed, (0, modes.shape[-1] - 5)), n=x.shape[-1]) + self.skip(x)
        )


def _spectral() -> Parts:
    return _Spectral(), (torch.randn(2, 4, 16),), {}


class _Packed(nn.Module):
    """A tagger with an LSTM over a packed batch of sequences of unequal length."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm, self.head = (
            nn.Embedding(20, 8),
            nn.LSTM(8, 8, batch_first=True, bidirectional=True),
            nn.Linear(16, 5),
        )

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
        out, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return functional.cross_entropy(self.head(out).transpose(1, 2), tags, ignore_index=-100)


def _packed() -> Parts:
    tags = torch.randint(0, 5, (3, 6))
    tags[1, 4:], tags[2, 3:] = -100, -100
    return _Packed(), (torch.randint(0, 20, (3, 6)), torch.tensor([6, 4, 3]), tags), {}


class _Cells(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.cell, self.head = kind(8, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state: Any = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        result: torch.Tensor = self.head(state[0] if isinstance(state, tuple) else state)
        return result


def _lstm_cells() -> Parts:
    return _Cells(nn.LSTMCell), (torch.randn(2, 4, 8),), {}


def _gru_cells() -> Parts:
    return _Cells(nn.GRUCell), (torch.randn(2, 4, 8),), {}


def _gru() -> Parts:
    return nn.GRU(8, 16, 2, batch_first=True, bidirectional=True), (torch.randn(2, 5, 8),), {}


class _Translator(nn.Module):
    """An encoder and a decoder with additive attention, and teacher forcing."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.encoder, self.cell = nn.Embedding(20, 8), nn.GRU(8, 8, batch_first=True), nn.GRUCell(16, 8)
        self.score, self.head = nn.Linear(16, 1), nn.Linear(8, 20)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        keys, last = self.encoder(self.embed(source))
        state, scores = last[0], []
        for token in target[:, :-1].unbind(1):
            shares = self.score(torch.cat([keys, state[:, None].expand_as(keys)], -1)).softmax(1)
            state = self.cell(torch.cat([self.embed(token), (shares * keys).sum(1)], -1), state)
            scores.append(self.head(state))
        return functional.cross_entropy(torch.stack(scores, 1).flatten(0, 1), target[:, 1:].flatten())


def _translator() -> Parts:
    return _Translator(), (torch.randint(0, 20, (2, 5)), torch.randint(0, 20, (2, 5))), {}


class _Clicks(nn.Module):
    """The loss of a recommender (DLRM), which multiplies the features of dense inputs and embedding bags in pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(12, 8, mode="sum") for _ in range(2))
        self.bottom, self.top = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8 + 3, 1)

    def forward(
        self, dense: torch.Tensor, ids: list[torch.Tensor], offsets: torch.Tensor, clicked: torch.Tensor
    ) -> torch.Tensor:
        features = [self.bottom(dense), *(bag(some, offsets) for bag, some in zip(self.bags, ids, strict=True))]
        stacked = torch.stack(features, 1)
        row, column = torch.tril_indices(3, 3, -1)
        pairs = torch.bmm(stacked, stacked.transpose(1, 2))[:, row, column]
        return functional.binary_cross_entropy_with_logits(self.top(torch.cat([features[0], pairs], 1))[:, 0], clicked)


def _clicks() -> Parts:
    ids = [torch.randint(0, 12, (7,)), torch.randint(0, 12, (7,))]
    return _Clicks(), (torch.randn(3, 4), ids, torch.tensor([0, 2, 5]), torch.tensor([1.0, 0.0, 1.0])), {}


SERIES: Kind = {
    "informer": _forecast("Informer"),
    "autoformer": _forecast("Autoformer", moving_average=3, label_length=4),
    "time_series_transformer": _forecast("TimeSeriesTransformer"),
    "patchtst": _patched(
        "PatchTST",
        num_attention_heads=2,
        ffn_dim=16,
        **dict.fromkeys(["attention_dropout", "positional_dropout", "path_dropout", "ff_dropout", "head_dropout"], 0.0),
    ),
    "patchtsmixer": _patched("PatchTSMixer", dropout=0.0, head_dropout=0.0),
    "n_beats": _n_beats,
    "temporal_convolutions": _temporal,
    "fourier_operator": _spectral,
}

GRAPHS: Kind = {
    "gcn": lambda: _graph(_GCN(loops=False)),
    "gcn_with_loops": lambda: _graph(_GCN(loops=True)),
    "gat": lambda: _graph(_GAT()),
    "gin": _isomorphism,
    "schnet": _molecule,
    "schnet_with_forces": _molecule_with_forces,
    "pointnet": lambda: (_PointNet(), (torch.randn(2, 3, 8),), {}),
}

RECURRENT: Kind = {
    "packed_lstm": _packed,
    "lstm_cells": _lstm_cells,
    "gru_cells": _gru_cells,
    "gru": _gru,
    "translator": _translator,
}

TABLES: Kind = {"dlrm": _clicks}
