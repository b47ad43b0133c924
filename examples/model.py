"""The small language model that `train.py` and `train_on_ranks.py` train, and its batches."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY, WIDTH, TOKENS, BATCH = 64, 32, 16, 4


class Block(nn.Module):
    """Attention and a gated MLP, each with a norm before it, added to the residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.gate, self.up, self.down = (nn.Linear(*shape) for shape in ((WIDTH, 64), (WIDTH, 64), (64, WIDTH)))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` and the result have shape (batch, tokens, width)."""
        q, k, v = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        normed = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class LanguageModel(nn.Module):
    """Embedding, blocks and head; the forward returns the mean cross-entropy of the next tokens."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of `tokens` against `targets`, both of shape (batch, tokens)."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x).view(-1, VOCABULARY), targets.view(-1))


def model() -> LanguageModel:
    """Return a model with the same parameters at each call and on every rank."""
    torch.manual_seed(0)
    return LanguageModel()


def batch(step: int, rank: int = 0) -> tuple[Tensor, Tensor]:
    """Return sequences that count up from a random token, and the same sequences shifted by one token as targets."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    first = torch.randint(VOCABULARY, (BATCH, 1), generator=generator)
    tokens = (first + torch.arange(TOKENS + 1)) % VOCABULARY
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def factory() -> tuple[LanguageModel, tuple[Tensor, Tensor]]:
    """Return the model and its inputs, for ``thunder-workbench plan examples/model.py:factory``."""
    return model(), batch(0)
