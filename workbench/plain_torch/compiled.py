"""Compile a model with PyTorch under choices: tags on the joint graph say what to save and what to recompute."""

import functools
import hashlib
import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.compile_fx import compile_fx
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch.utils.checkpoint import CheckpointPolicy

from workbench.plain_torch.operators import Key, Operators

CHOICES: dict[Key, str] = {}
BUDGET: float | None = None
_OFFLOADING = "enable_activation_offloading"
_GUARDS = {x: False for x in ["skip_tensor_guards_with_matching_dict_tags"] if hasattr(torch._dynamo.config, x)}


def compile(model: Any, *, choices: Any = CHOICES, budget: Any = BUDGET, backend: str = "inductor", **more: Any) -> Any:
    """Return ``torch.compile(model, **more)`` with choices, and with PyTorch's budget for all other tensors."""
    if hasattr(model, "_orig_mod"):
        raise ValueError("the model is compiled already, so choices find nothing in it: give model._orig_mod")
    if backend not in ("inductor", "aot_eager"):
        raise ValueError(f"backend {backend!r} cannot follow choices; legal: 'inductor', 'aot_eager'")
    if budget is not None and not (isinstance(budget, int | float) and 0 <= budget <= 1):
        raise ValueError(f"budget {budget!r} is not legal; legal: a number from 0 to 1, or None for PyTorch's setting")
    ops = choices if isinstance(choices, Operators) else Operators(model, choices)

    def compile_graph(module: torch.fx.GraphModule, inputs: list[Any], mode: Any = None, options: Any = None) -> Any:
        partition = Partition(ops, find(ops, module), budget)
        if backend == "aot_eager":
            return aot_autograd(fw_compiler=boxed_nop, partition_fn=partition)(module, inputs)
        config = torch._TorchCompileInductorWrapper(mode, options, more.get("dynamic")).config
        with torch._functorch.config.patch(enable_autograd_cache=False):  # a cache hit would skip the warnings
            return compile_fx(module, inputs, config_patches={**config, "custom_partitioner_fn": partition})

    compile_graph.reset = ops.frames.clear  # type: ignore[attr-defined]  # called by torch._dynamo.reset
    compiled: Any = torch.compile(model, backend=compile_graph, **more)
    call = compiled.forward if isinstance(model, torch.nn.Module) else compiled
    compiled.forward = functools.wraps(call)(  # without these guards, Dynamo ignores that a parameter is unfrozen
        lambda *args, **kwargs: ops.end_call(torch._dynamo.config.patch(_GUARDS)(call)(*args, **kwargs))
    )
    return compiled.forward if call is compiled else compiled


def keys_of(ops: Operators, module: torch.fx.GraphModule) -> dict[torch.fx.Node, Key]:
    """Return the key of each operator in a graph of Dynamo."""
    found, counts = {}, Counter[tuple[str, str]]()
    for node in (n for m in module.modules() if isinstance(m, torch.fx.GraphModule) for n in m.graph.nodes):
        if "source_fn_stack" in node.meta and not isinstance(node.meta.get("example_value"), torch.types.py_sym_types):
            ids = (int(str(key).partition("@")[0]) for key in node.meta.get("nn_module_stack") or {})
            found[node] = ops.key(ids, node.target, counts)
    return found


def find(ops: Operators, module: torch.fx.GraphModule) -> dict[tuple[str, ...], tuple[Key, str]]:
    """Return the key and the shape of each chosen operator in a graph of Dynamo, by its name in the graph."""
    keys, frame = keys_of(ops, module), getattr(torch._guards.CompileContext.current_compile_id(), "frame_id", 0)
    divided = {key for key in keys.values() if ops.frames.setdefault(key[0], frame) != frame}
    for key in sorted(divided & ops.choices.keys()):  # the ordinals begin again
        ops.tell(key, "a graph break divides its module, so PyTorch decides after the break")
    ops.found |= keys.values() & ops.choices.keys()
    return {_name(n): (key, _shape(n)) for n, key in keys.items() if key in ops.choices.keys() - divided}


class Partition(CustomPartitionerFn):
    """Tags the joint graph with choices, and divides the graph with PyTorch's own partitioner."""

    def __init__(self, ops: Operators, found: Mapping[tuple[str, ...], tuple[Key, str]], budget: float | None) -> None:
        self.ops, self.found, self.budget = ops, found, budget

    def uuid(self) -> str:
        """Return the key of this partition in PyTorch's caches."""
        return hashlib.sha256(repr((self.found, self.ops.choices, self.budget)).encode()).hexdigest()

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce__(self) -> Any:
        return str, (self.uuid(),)  # the caches of PyTorch pickle this object for their keys

    def __call__(self, gm: torch.fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> Any:
        """Divide a joint graph into a forward and a backward that recomputes nothing from an overwritten input."""
        groups = {name: [*nodes] for name, nodes in itertools.groupby(sorted(gm.graph.nodes, key=_name), _name)}
        for node in (early := early_readers(gm.graph)):
            node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)
        for name, (key, shape) in self.found.items():
            group, option = groups.get(name, []), self.ops.choices[key]
            if (base := made_in(group, shape)) is None:
                self.ops.tell(key, "PyTorch makes no tensor of its own here")
            elif option != "recompute":
                for node in [base, *(user for user in base.users if user.name.startswith("getitem"))]:
                    node.meta |= {"recompute": CheckpointPolicy.MUST_SAVE, "should_offload": option != "save" and key}
            elif _is_random(base):
                self.ops.tell(key, "PyTorch draws random numbers here")
            elif base in early:
                self.ops.tell(key, "it reads an input that the step writes in place")
            else:
                alike = [] if any(map(_is_random, group)) else [n for n in group if _shape(n) in (shape, _shape(base))]
                nodes = [base, *{n.args[0] if n.name.startswith("getitem") else n for n in alike} - early]
                for node in nodes:  # grows meanwhile: PyTorch could save an untagged view instead of its node
                    node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
                    views = [user for user in node.users if _is_view(user) and "recompute" not in user.meta]
                    nodes += [view for view in views if view.meta.get("partitioner_tag") != "is_backward"]
        settings: Any = {} if self.budget is None else {"activation_memory_budget": self.budget or 1e-9}  # 0: no tags
        away = {node.name: key for node in gm.graph.nodes if (key := node.meta.get("should_offload"))}
        settings |= {_OFFLOADING: True, "activation_offload_separate_stream": torch.cuda.is_available()} if away else {}
        try:
            with torch._functorch.config.patch(settings):
                parts = min_cut_rematerialization_partition(gm, joint_inputs, **kwargs)
        except Exception as error:
            raise RuntimeError(f"PyTorch cannot divide the graph with choices {[*self.found.values()]}") from error
        saved = set(map(str, parts[0].graph.find_nodes(op="output")[0].args[0]))
        for key in [key for name, key in away.items() if f"cpu_offload_{name}" not in saved]:
            self.ops.tell(key, "PyTorch offloads only contiguous tensors that the backward reads: no views, no tuples")
        return parts


def made_in(group: list[torch.fx.Node], shape: str) -> torch.fx.Node | None:
    """Return the node that makes the memory of an operator's output, from the nodes of the operator."""
    base: Any = next((node for node in reversed(group) if _shape(node) == shape), None)
    while base in group and _is_view(base):
        base = base.args[0]
    return base if base in group else None


def early_readers(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Return the nodes that read an input which the step then writes: by `copy_` in the graph, or after the graph."""
    late = [getattr(out, "mutated_input", None) for out in graph.find_nodes(op="output")[0].meta.get("desc") or ()]
    copies = graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    written: set[Any] = {n.args[0] for n in copies} | {n for n in graph.nodes if n.meta.get("desc", graph) in late}
    for node in graph.nodes:
        written |= {node} if _is_view(node) and node.args[0] in written else set()
    return {user for node in written for user in node.users} - written - {*copies}


def _name(node: torch.fx.Node) -> tuple[str, ...]:
    return tuple(name for name, _ in node.meta.get("source_fn_stack", ()))


def _shape(node: torch.fx.Node) -> str:
    return str(getattr(node.meta.get("val", node.meta.get("example_value")), "shape", None))


def _is_view(node: torch.fx.Node) -> bool:
    returns = getattr(getattr(node.target, "_schema", None), "returns", ())
    return node.name.startswith(("getitem", "_unsafe_view")) or any(out.alias_info is not None for out in returns)


def _is_random(node: torch.fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
