"""Read the joint graph that `torch.compile` divides: its forward values, their costs, and the keys of operators."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

import torch

from workbench.analysis.cost.machines import Machine
from workbench.analysis.fit.saved_sets import ForwardValue, SavedSet, from_saved
from workbench.analysis.memory.allocator import storage_bytes
from workbench.interop.torch_private import flop_registry, tree_leaves
from workbench.plain_torch import compiled
from workbench.plain_torch.operators import Key, Operators

_ATTENTION = "attention"
_FUSED = 0.25
"""Estimated time of an operator without matmuls, as a share of the time to write its output. It is below 1, because
Inductor fuses most of these operators.
"""
_SMALL = 1000
"""A value gets no choice if it has fewer bytes than all values together, divided by this number."""


@dataclasses.dataclass(frozen=True)
class JointStep:
    """The forward values of a joint graph, and the keys by which choices name them.

    Attributes
    ----------
    values : tuple of ForwardValue
        In the order of the graph. Views are part of the value that they are views of.
    owners : dict of str to str
        Maps the name of each node of the forward to the name of its value.
    made_by : dict of str to Key
        Maps the name of a value to the key of the operator whose choice decides whether PyTorch saves the value.
    """

    values: tuple[ForwardValue, ...]
    owners: dict[str, str]
    made_by: dict[str, Key]

    def saved_set(self, saved: Iterable[str]) -> SavedSet:
        """Return the set of values that PyTorch saves, from the names of saved nodes."""
        return from_saved(self.values, {self.owners[name] for name in saved if name in self.owners})

    def choices(self, wanted: SavedSet, base: SavedSet) -> dict[Key, str]:
        """Return choices for the values that `wanted` saves or recomputes, and that `base` does not."""
        found, least = {}, sum(value.bytes for value in self.values) / _SMALL
        for value in self.values:
            key = self.made_by.get(value.name)
            if key is None or value.bytes < least:
                continue
            if value.name in wanted.saved - base.saved:
                found[key] = "save"
            elif value.name in wanted.recomputed - base.recomputed:
                found[key] = "recompute"
        return found


def operator_names(ops: Operators, module: torch.fx.GraphModule) -> dict[tuple[str, ...], tuple[Key, str]]:
    """Return the key and the shape of each operator in a graph of Dynamo, by its name in the graph."""
    keys = compiled.keys_of(ops, module)
    return {compiled._name(node): (key, compiled._shape(node)) for node, key in keys.items()}


def read_joint(
    graph: torch.fx.Graph, keys: Mapping[tuple[str, ...], tuple[Key, str]], outputs: int, machine: Machine
) -> JointStep:
    """Read a joint graph, before it is divided.

    Parameters
    ----------
    graph : torch.fx.Graph
    keys : mapping
        The key and the shape of each operator of Dynamo's graph, by its name there.
    outputs : int
        Number of outputs of the forward.
    machine : Machine
        Its rates give the times of operators.
    """
    backward, owner = set[torch.fx.Node](), dict[torch.fx.Node, torch.fx.Node]()
    seconds = {node: _seconds(node, machine) for node in graph.nodes if node.op == "call_function"}
    for node in graph.nodes:
        is_tangent = node.op == "placeholder" and "tangents" in str(node.target)
        if is_tangent or any(user in backward for user in node.all_input_nodes):
            backward.add(node)
        elif node.op == "call_function":
            base = node.all_input_nodes[0] if node.all_input_nodes else node
            multiple = node.name.startswith("getitem") and not isinstance(base.meta.get("val"), torch.Tensor)
            is_view = compiled._is_view(node) and not (multiple and owner.get(base) is base)
            owner[node] = owner.get(base, base) if is_view else node
    returned = [leaf for leaf in tree_leaves(graph.find_nodes(op="output")[0].args) if isinstance(leaf, torch.fx.Node)]
    kept = {owner.get(node, node) for node in returned[:outputs]}
    before = set[torch.fx.Node]()
    for node in reversed(graph.nodes):  # the nodes that the forward's outputs need
        if node in kept or node in returned[:outputs] or any(user in before for user in node.users):
            before |= {node} - backward
    read = {owner[node] for other in backward for node in other.all_input_nodes if node in owner}
    values, early = [], compiled.early_readers(graph)
    for node in owner:
        if owner[node] is not node:
            continue
        inputs = dict.fromkeys(owner[one].name for one in node.all_input_nodes if one in owner)
        value = node.meta.get("val")
        values.append(
            ForwardValue(
                node.name,
                bytes=storage_bytes(value) if isinstance(value, torch.Tensor) and node not in kept else 0,
                seconds=seconds[node] if node in before else 0.0,
                inputs=tuple(name for name in inputs if name != node.name),
                needed=node in read,
                can_save=not isinstance(value, tuple | list),
                can_recompute=not compiled._is_random(node) and node not in early,
            )
        )
    groups: dict[tuple[str, ...], list[torch.fx.Node]] = {}
    for node in graph.nodes:
        if node.op == "call_function" and "source_fn_stack" in node.meta:
            groups.setdefault(compiled._name(node), []).append(node)
    made_by = {}
    for name, (key, shape) in keys.items():
        base = compiled.made_in(groups.get(name, []), shape)
        if base is not None and base in owner and not compiled._is_random(base):
            made_by[owner[base].name] = key
    return JointStep(tuple(values), {node.name: base.name for node, base in owner.items()}, made_by)


def _seconds(node: torch.fx.Node, machine: Machine) -> float:
    """Estimate the time of an operator by a machine's rates."""
    made = [leaf for leaf in tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]
    if compiled._is_view(node) or not made:
        return 0.0
    out_bytes = sum(leaf.numel() * leaf.element_size() for leaf in made)
    packet = getattr(node.target, "overloadpacket", None)
    given = [one.meta.get("val") for one in node.all_input_nodes]
    tensors = [one for one in given if isinstance(one, torch.Tensor)]
    flops = 0
    if packet in flop_registry:
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda one: one.meta.get("val"))
        flops = flop_registry[packet](*args, **kwargs, out_val=node.meta["val"])
    elif _ATTENTION in node.name and len(tensors) >= 3:
        query, key = tensors[0].shape, tensors[1].shape
        flops = 4 * math.prod(query) * key[-2] * (5 if "backward" in node.name else 2) // 2
    if not flops:
        return _FUSED * out_bytes / machine.bytes_per_s
    rate = machine.flops_per_s.get(str(made[0].dtype).removeprefix("torch."), machine.flops_per_s["float32"])
    moved = out_bytes + sum(one.numel() * one.element_size() for one in tensors)
    return max(int(flops) / rate, moved / machine.bytes_per_s)
