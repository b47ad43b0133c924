"""Known causes why a program cannot be traced, and what a person does about each."""

from __future__ import annotations

import re

_CAUSES = (
    (
        r"boolean advanced indexing|DynamicOutputShapeException|Dynamic shape operator|data.dependent output",
        "the shape of its result depends on values: keep the shape, as torch.where(mask, x, 0) does, or select "
        "before the program",
    ),
    (
        r"[Dd]ata-dependent branching|TensorProxy to a Python boolean",
        "what is done depends on values: choose with torch.where, or give the decision to the program as a bool",
    ),
    (
        r"Tensor\.backward\(\)|attribute backward|`Optimizer\.|torch\.autograd\.grad|torch/optim/optimizer\.py|"
        r"profiler\._record_function",
        "open what gives the loss; its backward is made and planned with it, and the optimizer steps after it: "
        "loss = config.jit(model)(...); loss.backward(); optimizer.step()",
    ),
    (
        r"tolist|\.numpy\b|from_numpy|as_tensor|\.item\(\)|\.item\b",
        "values leave the tensors there: stay in tensors, or do it before or after the program",
    ),
    (r"builtin operator `(print|input|open)`", "take it out of the program, or open it in parts: capture='parts'"),
    (
        r"multi_head_attention_forward",
        "nn.MultiheadAttention is one operator here, which Thunder cannot differentiate: write the attention with "
        "torch.nn.functional.scaled_dot_product_attention",
    ),
    (
        r"transformers\.grouped_mm",
        "Hugging Face has these experts as plain operators, too: model.set_experts_implementation('batched_mm')",
    ),
)


_IN_PARTS = re.compile(r"builtin operator `print`|multi_head_attention_forward|transformers\.grouped_mm")
"""Known causes that a program is cut at, and comes in as parts."""


def is_final(message: str) -> bool:
    """Whether a program that cannot be traced for this reason is no program in parts either, but one to be mended."""
    return bool(remedy(message)) and not _IN_PARTS.search(message)


def remedy(message: str) -> str:
    """What to do about a program that cannot be traced, by the tracer's own message; empty where that is not known."""
    return next((advice for pattern, advice in _CAUSES if re.search(pattern, message)), "")
