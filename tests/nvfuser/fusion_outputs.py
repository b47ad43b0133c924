"""Make the outputs of an nvFuser fusion as PyTorch tensors, with the views that nvFuser returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from workbench.compiler.interop.thunder_api import TensorProxy
from workbench.compiler.memory.nvfuser_aliasing import output_layouts


def make_outputs(
    fusion: Any,
    inputs: Mapping[str, torch.Tensor],
    same: Mapping[str, str],
    compute: Callable[[Any, Sequence[int]], torch.Tensor],
) -> dict[str, torch.Tensor]:
    """Return the outputs of a fusion: inputs, computed values, and views of both.

    Parameters
    ----------
    fusion : BoundSymbol
    inputs : mapping of str to Tensor
        Maps the name of an input to its tensor.
    same : mapping of str to str
        See `output_layouts`.
    compute : callable
        Takes the proxy and the strides of a computed value, and allocates the value's tensor. `make_outputs` calls it
        once for each computed value whose memory contains an output.

    Returns
    -------
    dict of str to Tensor
        Maps the name of an output to its tensor.
    """
    outputs = [proxy for proxy in fusion.flat_proxy_outs if isinstance(proxy, TensorProxy)]
    proxies = [p for p in fusion.flat_proxy_args if isinstance(p, TensorProxy)]
    wholes = dict(inputs)
    strides = {proxy.name: inputs[proxy.name].stride() for proxy in proxies}
    found: dict[str, torch.Tensor] = {}
    for name, lie in output_layouts(fusion, proxies, strides, outputs, same).items():
        if name in same:
            found[name] = inputs[same[name]]
            continue
        root = lie.root.name
        if root not in wholes:
            wholes[root] = compute(lie.root, lie.root_strides)
        whole = wholes[root]
        offset = int(whole.storage_offset()) + lie.offset
        found[name] = whole.as_strided(lie.shape, lie.strides, offset) if lie.is_view else whole
    return found
