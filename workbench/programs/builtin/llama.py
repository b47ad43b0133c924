"""`llama`: a decoder-only transformer of the Llama family, of any size, with its loss, in plain PyTorch."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.errors import ProgramError
from workbench.programs.registry import at_least, program


class RMSNorm(nn.Module):
    """Division by the root mean square over the last dimension, in float32, followed by a learned scale."""

    def __init__(self, dim: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` and the result have shape (..., dim)."""
        x32 = x.float()
        normed = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + 1e-5)
        return normed.to(x.dtype) * self.weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return ``x`` (batch, heads, sequence, head) with rotary positions; ``cos`` and ``sin`` are (sequence, head)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Causal attention with rotary positions; several query heads may share one key and value head."""

    def __init__(self, dim: int, heads: int, kv_heads: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.qkv = nn.Linear(dim, (heads + 2 * kv_heads) * self.head_dim, bias=False, dtype=dtype)
        self.out = nn.Linear(dim, dim, bias=False, dtype=dtype)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """``x`` and the result have shape (batch, sequence, dim)."""
        batch, sequence, dim = x.shape
        qkv = self.qkv(x).view(batch, sequence, -1, self.head_dim).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if self.kv_heads != self.heads:
            k, v = self.share(k), self.share(v)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, sequence, dim))
        return out

    def share(self, x: Tensor) -> Tensor:
        """Repeat each key or value head for the query heads that share it."""
        batch, _, sequence, _ = x.shape
        repeats = self.heads // self.kv_heads
        repeated = x.unsqueeze(2).expand(batch, self.kv_heads, repeats, sequence, self.head_dim)
        return repeated.reshape(batch, self.heads, sequence, self.head_dim)


class SwiGLU(nn.Module):
    """Feed-forward network with a SiLU gate."""

    def __init__(self, dim: int, hidden: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False, dtype=dtype)
        self.up = nn.Linear(dim, hidden, bias=False, dtype=dtype)
        self.down = nn.Linear(hidden, dim, bias=False, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` and the result have shape (batch, sequence, dim)."""
        down: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return down


class Layer(nn.Module):
    """Attention and feed-forward network, each with a norm before it, added to the residual stream."""

    def __init__(self, dim: int, heads: int, kv_heads: int, hidden: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(dim, dtype)
        self.attention = Attention(dim, heads, kv_heads, dtype)
        self.mlp_norm = RMSNorm(dim, dtype)
        self.mlp = SwiGLU(dim, hidden, dtype)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """``x`` and the result have shape (batch, sequence, dim)."""
        attended: Tensor = x + self.attention(self.attention_norm(x), cos, sin)
        out: Tensor = attended + self.mlp(self.mlp_norm(attended))
        return out


class Llama(nn.Module):
    """Embedding, layers, norm and head; returns the mean cross-entropy of the next tokens."""

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        *,
        layers: int,
        dim: int,
        heads: int,
        kv_heads: int,
        hidden: int,
        vocab: int,
        sequence: int,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim, dtype=dtype)
        self.layers = nn.ModuleList(Layer(dim, heads, kv_heads, hidden, dtype) for _ in range(layers))
        self.norm = RMSNorm(dim, dtype)
        self.head = nn.Linear(dim, vocab, bias=False, dtype=dtype)
        head_dim = dim // heads
        frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        angles = torch.arange(sequence, dtype=torch.float32)[:, None] * frequencies[None, :]
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos().to(dtype), persistent=False)
        self.register_buffer("sin", angles.sin().to(dtype), persistent=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of `tokens` against `targets`, both of shape (batch, sequence)."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


@program
def llama(
    *,
    layers: int = 2,
    dim: int = 64,
    heads: int = 4,
    kv_heads: int = 0,
    hidden: int = 0,
    vocab: int = 256,
    batch: int = 2,
    sequence: int = 32,
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> tuple[Llama, tuple[Tensor, Tensor]]:
    """Llama with its loss: RMSNorm, rotary attention, SwiGLU. kv_heads=0 means heads; hidden=0 means 8/3 dim."""
    at_least(1, layers=layers, dim=dim, heads=heads, vocab=vocab, batch=batch, sequence=sequence)
    at_least(0, kv_heads=kv_heads, hidden=hidden)
    kv_heads, hidden = kv_heads or heads, hidden or round(dim * 8 / 3)
    if dim % heads or (dim // heads) % 2:
        raise ProgramError(f"dim must be an even multiple of heads, given dim {dim} and heads {heads}")
    if heads % kv_heads:
        raise ProgramError(f"heads must be a multiple of kv_heads, given heads {heads} and kv_heads {kv_heads}")
    model = Llama(
        layers=layers,
        dim=dim,
        heads=heads,
        kv_heads=kv_heads,
        hidden=hidden,
        vocab=vocab,
        sequence=sequence,
        dtype=getattr(torch, dtype),
    )
    tokens = torch.randint(vocab, (batch, sequence + 1))
    return model, (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
