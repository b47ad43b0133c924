"""`fsdp_llama` and `ddp_llama`: a Llama whose parameters are sharded over ranks, or copied to each rank.

It has LitGPT's parameter names, because Thunder orders collectives by parameter name. With these names, the embedding,
which is needed first, comes last.
"""

from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workbench.errors import ProgramError
from workbench.programs.builtin.llama import RMSNorm, rotate
from workbench.programs.registry import at_least, parallel, program


class CausalSelfAttention(nn.Module):
    """Causal attention with rotary positions."""

    def __init__(self, dim: int, heads: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads = heads
        self.attn = nn.Linear(dim, 3 * dim, bias=False, dtype=dtype)
        self.proj = nn.Linear(dim, dim, bias=False, dtype=dtype)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """``x`` and the result have shape (batch, sequence, dim)."""
        batch, sequence, dim = x.shape
        q, k, v = self.attn(x).view(batch, sequence, 3 * self.heads, -1).transpose(1, 2).chunk(3, dim=1)
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        out: Tensor = self.proj(mixed.transpose(1, 2).reshape(batch, sequence, dim))
        return out


class LLaMAMLP(nn.Module):
    """Feed-forward network with a SiLU gate."""

    def __init__(self, dim: int, hidden: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.fc_1 = nn.Linear(dim, hidden, bias=False, dtype=dtype)
        self.fc_2 = nn.Linear(dim, hidden, bias=False, dtype=dtype)
        self.proj = nn.Linear(hidden, dim, bias=False, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` and the result have shape (batch, sequence, dim)."""
        out: Tensor = self.proj(F.silu(self.fc_1(x)) * self.fc_2(x))
        return out


class Block(nn.Module):
    """Attention and feed-forward network, each with a norm before it, added to the residual stream."""

    def __init__(self, dim: int, heads: int, hidden: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm_1 = RMSNorm(dim, dtype)
        self.attn = CausalSelfAttention(dim, heads, dtype)
        self.norm_2 = RMSNorm(dim, dtype)
        self.mlp = LLaMAMLP(dim, hidden, dtype)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """``x`` and the result have shape (batch, sequence, dim)."""
        attended: Tensor = x + self.attn(self.norm_1(x), cos, sin)
        out: Tensor = attended + self.mlp(self.norm_2(attended))
        return out


class GPT(nn.Module):
    """Embedding, blocks, norm and head; returns the mean cross-entropy of the next tokens."""

    cos: Tensor
    sin: Tensor

    def __init__(
        self, *, layers: int, dim: int, heads: int, hidden: int, vocab: int, sequence: int, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.lm_head = nn.Linear(dim, vocab, bias=False, dtype=dtype)
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab, dim, dtype=dtype),
                "h": nn.ModuleList(Block(dim, heads, hidden, dtype) for _ in range(layers)),
                "ln_f": RMSNorm(dim, dtype),
            }
        )
        head_dim = dim // heads
        frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        angles = torch.arange(sequence, dtype=torch.float32)[:, None] * frequencies[None, :]
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos().to(dtype), persistent=False)
        self.register_buffer("sin", angles.sin().to(dtype), persistent=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of `tokens` against `targets`, both of shape (batch, sequence)."""
        x = self.transformer["wte"](tokens)
        for block in cast("nn.ModuleList", self.transformer["h"]):
            x = block(x, self.cos, self.sin)
        logits = self.lm_head(self.transformer["ln_f"](x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


@parallel("fsdp")
@program
def fsdp_llama(
    *,
    layers: int = 2,
    dim: int = 64,
    heads: int = 4,
    hidden: int = 0,
    vocab: int = 256,
    batch: int = 2,
    sequence: int = 32,
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> tuple[GPT, tuple[Tensor, Tensor]]:
    """Llama with LitGPT's names, its parameters sharded over ranks; batch counts per rank; hidden=0 means 8/3 dim."""
    at_least(1, layers=layers, dim=dim, heads=heads, vocab=vocab, batch=batch, sequence=sequence)
    at_least(0, hidden=hidden)
    if dim % heads or (dim // heads) % 2:
        raise ProgramError(f"dim must be an even multiple of heads, given dim {dim} and heads {heads}")
    model = GPT(
        layers=layers,
        dim=dim,
        heads=heads,
        hidden=hidden or round(dim * 8 / 3),
        vocab=vocab,
        sequence=sequence,
        dtype=getattr(torch, dtype),
    )
    tokens = torch.randint(vocab, (batch, sequence + 1))
    return model, (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


@parallel("ddp")
@program
def ddp_llama(
    *,
    layers: int = 2,
    dim: int = 64,
    heads: int = 4,
    hidden: int = 0,
    vocab: int = 256,
    batch: int = 2,
    sequence: int = 32,
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> tuple[GPT, tuple[Tensor, Tensor]]:
    """The Llama of fsdp_llama, with its parameters replicated on every rank and their gradients reduced."""
    return fsdp_llama(
        layers=layers,
        dim=dim,
        heads=heads,
        hidden=hidden,
        vocab=vocab,
        batch=batch,
        sequence=sequence,
        dtype=dtype,
    )
