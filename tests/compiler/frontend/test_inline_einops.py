"""Calls of einops become the operators that they call."""

from __future__ import annotations

import operator

import torch
from torch import fx

from workbench.compiler.frontend.inline_einops import inline_einops
from workbench.interop.torch_private import FakeTensorMode


def rearrange(x: torch.Tensor, width: int) -> torch.Tensor:
    return x.reshape(-1, width).permute(1, 0).sum(dim=1)


def unpack(x: torch.Tensor) -> list[torch.Tensor]:
    return [x, *x.reshape(2, 2).unbind(0)]


rearrange.__module__ = unpack.__module__ = "einops.einops"  # stand-ins, because einops may not be installed


def test_calls_of_einops_become_their_operators() -> None:
    x = torch.linspace(0, 1, 8)
    graph = fx.Graph()
    given = graph.placeholder("x")
    made = graph.call_function(rearrange, (given, 4))
    several = graph.call_function(unpack, (made,))
    first, last = (graph.call_function(operator.getitem, (several, index)) for index in (0, 2))
    graph.output((first, last))
    with FakeTensorMode():
        given.meta["example_value"] = torch.empty(8)
        made.meta["example_value"] = torch.empty(4)
        several.meta["example_value"] = [torch.empty(4), torch.empty(2), torch.empty(2)]
    module = fx.GraphModule({}, graph)
    inline_einops(module)
    assert not {rearrange, unpack} & {node.target for node in graph.nodes}
    expected = unpack(rearrange(x, 4))
    for ours, theirs in zip(module(x), (expected[0], expected[2]), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_call_of_einops_whose_result_is_used_as_a_whole_stays() -> None:
    graph = fx.Graph()
    given = graph.placeholder("x")
    several = graph.call_function(unpack, (given,))
    graph.output((several,))
    with FakeTensorMode():
        given.meta["example_value"] = torch.empty(4)
        several.meta["example_value"] = [torch.empty(4), torch.empty(2), torch.empty(2)]
    inline_einops(fx.GraphModule({}, graph))
    assert unpack in {node.target for node in graph.nodes}
