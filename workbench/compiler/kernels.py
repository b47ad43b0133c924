"""What a kernel allocates inside itself, where fake tensors cannot see it: measured by running it once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from workbench.torch_api import _disable_current_modes

MOST_BYTES = 1 << 30
"""Inputs larger than this are not made only to measure a kernel."""


def allocates_inside(name: str) -> bool:
    """Whether a symbol's CPU kernel is known to allocate work space: convolutions reorder their operands."""
    return "conv" in name and "convert" not in name


def peak_inside_bytes(text: str, namespace: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> int | None:
    """The most bytes that a statement holds at once on a CPU beyond its inputs.

    Parameters
    ----------
    text : str
        Python source of the statement.
    namespace : mapping
        What it needs beside the tensors.
    tensors : mapping of str to Tensor
        Its inputs, as fake tensors: shape, stride, data type.

    Returns
    -------
    int or None
        None where the inputs are not on a CPU, or larger than `MOST_BYTES`.
    """
    nbytes = sum(tensor.untyped_storage().nbytes() for tensor in tensors.values())
    if nbytes > MOST_BYTES or any(tensor.device.type != "cpu" for tensor in tensors.values()):
        return None
    with _disable_current_modes(), torch.no_grad():
        real = {
            name: torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).zero_()
            for name, tensor in tensors.items()
        }
        # The first run may pack weights once and for all.
        for _ in range(2):
            scope = {**namespace, **real}
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
                exec(text, scope)
    events = sorted(
        (
            (event.start_ns(), event.nbytes())
            for event in measured.profiler.kineto_results.events()
            if _is_memory(event)
        ),
        key=lambda event: event[0],
    )
    return max(accumulate((nbytes for _, nbytes in events), initial=0))


def _is_memory(event: Any) -> bool:
    return bool(event.name() == "[memory]")
