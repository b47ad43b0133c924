"""Copy nodes for repeated modules: Dynamo traces only two modules of a kind, and the nodes are copied for all others.

Two layers are of one kind if Dynamo reads no difference between them. The layers must have the same class, submodules
and tensor shapes, and arguments with equal properties. The same line must call the layers, under the same modes of
PyTorch (gradients, inference, autocast). An attribute, such as a layer's number, may differ if Dynamo does not guard
the attribute. Dynamo guards every attribute that it reads. If Dynamo records different nodes for the two traced layers,
no nodes are copied. Dynamo also traces a layer that changes Python state outside of the layer, or that returns values
other than tensors, constants and tuples of these. Dynamo guards no attribute if a layer compares or looks up itself by
identity, as in ``SCALES[self]``, so it traces each such layer. Dynamo also traces each layer if the code between the
layers changes a container, such as a global list, because the layers may read this container.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from workbench.compiler.frontend.module_equality import (
    ModuleCall,
    call_of,
    differing_attributes,
    dynamo_name_of,
    mentions_attribute,
)
from workbench.compiler.frontend.module_template import (
    EXISTING,
    GraphBefore,
    TracedModule,
    copy_module,
    module_summary,
    sample_of,
)
from workbench.compiler.interop import dynamo_patches
from workbench.compiler.layers.partition import LayerMismatch
from workbench.interop.torch_private import ValueMutationExisting

AT_LEAST = 3
"""Smallest number of modules of one kind for which nodes are copied. With three modules, Dynamo traces two."""


@dataclasses.dataclass
class ReuseCounts:
    """Numbers of modules that Dynamo did not trace, and reasons for modules that it traced.

    Attributes
    ----------
    modules : Counter of str
        For each class name, the number of modules whose nodes were copied from a traced module.
    reasons : dict of str to str
        Maps a module's path to the reason why Dynamo traced this module, although the program repeats its class.
    """

    modules: Counter[str] = dataclasses.field(default_factory=Counter)
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return " and ".join(f"{count} {name}" for name, count in self.modules.items())


@contextlib.contextmanager
def trace_modules_once(program: Any) -> Iterator[ReuseCounts]:
    """In this context, Dynamo traces only two modules of each kind that a program repeats.

    Use the captured graph only for planning, because guards on the other modules are missing. This function can be
    deleted once `torch.compiler.nested_compile_region` recognizes an equal module without tracing the module.

    Parameters
    ----------
    program : callable
        A module, or a function or method that can reach modules.
    """
    repeated = _repeated_modules(_modules_of(program))
    written = ReuseCounts()
    if not repeated:
        yield written
        return
    with dynamo_patches.dynamo_watched(_ReuseWatcher(repeated, written)):
        yield written


def _modules_of(program: Any) -> list[torch.nn.Module]:
    """Return the modules of a program. For a function, return the modules that the function can reach."""
    function = getattr(program, "__func__", program)
    cells = getattr(function, "__closure__", None) or ()
    held = (program, getattr(program, "__self__", None), *(cell.cell_contents for cell in cells if _is_filled(cell)))
    return [module for root in held if isinstance(root, torch.nn.Module) for module in root.modules()]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _repeated_modules(modules: Iterable[torch.nn.Module]) -> dict[int, torch.nn.Module]:
    """Return the repeated modules by their `id`.

    A module is repeated if it has submodules, and its parent has at least `AT_LEAST` such children of the same class.
    """
    found: dict[int, torch.nn.Module] = {}
    for parent in modules:
        children = [child for child in parent.children() if child._modules]
        counts = Counter(type(child) for child in children)
        found.update((id(child), child) for child in children if counts[type(child)] >= AT_LEAST)
    return found


class _ModuleKind:
    """Modules of one kind, with the first module's trace. The trace is copied if the second module's trace agrees."""

    def __init__(self, sample: TracedModule) -> None:
        self.sample = sample
        self.agreed = False
        self.refused = False
        self.changes = 0
        """Number of changes of containers outside of the modules, before the last of the two modules was traced."""
        self.reason = f"Dynamo traced other statements than for {_path_of(sample.call.name)}"

    def compare(self, second: TracedModule | None, changes: int) -> None:
        """Compare the second traced module with the first. `second` is None if its nodes cannot be copied."""
        first, self.changes = self.sample, changes
        self.agreed = second is not None and module_summary(first) == module_summary(second)
        self.refused = not self.agreed


class _ReuseWatcher:
    """Copies nodes for repeated modules while Dynamo traces one program."""

    def __init__(self, repeated: Mapping[int, torch.nn.Module], counts: ReuseCounts) -> None:
        self._repeated = repeated
        self._known: set[int] = set()
        """Ids of modules that were called. A further call of a module is traced, because its nodes get other names."""
        self._sampled: GraphBefore | None = None
        self._changes = 0
        """Number of changes of containers that existed before the trace, by code outside of the repeated modules."""
        self._output: Any = None
        self._written = counts
        self._kinds: list[_ModuleKind] = []
        self._differences: dict[tuple[int, int], frozenset[str] | LayerMismatch] = {}

    def on_call(self, var: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any], call: Callable[..., Any]) -> Any:
        """Return the result of a module's call. If nodes cannot be copied, trace the module with `call`."""
        if tx.output is not self._output:
            # Dynamo has restarted the trace.
            self._output, self._kinds = tx.output, []
            self._written.modules.clear()
            self._written.reasons.clear()
            self._known.clear()
        if self._sampled is not None or id(var.value) not in self._repeated:
            self._known.add(id(var.value))
            return call(var, tx, args, kwargs)
        own = {id(module) for module in var.value.modules()}
        again = not own.isdisjoint(self._known)
        self._known |= own
        try:
            made = call_of(var, tx, args, kwargs)
        except LayerMismatch as mismatch:
            self._written.reasons[_path_of(dynamo_name_of(var))] = str(mismatch)
            return call(var, tx, args, kwargs)
        kind = self._kind_of(var.value, made)
        changed = kind is not None and kind.agreed and kind.changes != self._changes
        if kind is not None and kind.agreed and not again and not changed:
            result = copy_module(kind.sample, var, tx, made)
            self._written.modules[type(var.value).__name__] += 1
            return result
        if kind is not None and (kind.refused or kind.agreed):
            if kind.refused:
                reason = kind.reason
            elif again:
                reason = "it, or a module in it, is called more than once"
            else:
                reason = "other code has changed a container, such as a list, since the equal modules were traced"
            self._written.reasons[_path_of(made.name)] = reason
            return call(var, tx, args, kwargs)
        before = self._sampled = GraphBefore(tx, var.value)
        try:
            result = call(var, tx, args, kwargs)
        finally:
            self._sampled = None
        try:
            sample = sample_of(before, var, tx, made, result)
        except LayerMismatch as mismatch:
            sample = None
            self._written.reasons[_path_of(made.name)] = str(mismatch)
        if kind is not None:
            kind.compare(sample, self._changes)
            if kind.refused:
                self._written.reasons.setdefault(_path_of(made.name), kind.reason)
        elif sample is not None:
            self._kinds.append(_ModuleKind(sample))
        return result

    def on_change(self, item: Any) -> None:
        """Record if the traced module changes an object that existed before the trace.

        A value that the trace has set on such an object counts, too. Outside of traced modules, record changes of
        containers, because a module can read containers that other modules have read in another state.
        """
        before = self._sampled
        if before is None:
            self._changes += isinstance(item.mutation_type, ValueMutationExisting)
        elif isinstance(item.mutation_type, EXISTING) or id(item) in before.set_on_others:
            before.alone = False

    def on_changed_read(self, item: Any) -> None:
        """Record if the traced module reads a changed attribute of an object that existed before the trace."""
        if self._sampled is not None and isinstance(item.mutation_type, EXISTING):
            self._sampled.alone = False

    def on_identity(self, item: Any) -> None:
        """Record if the traced module uses the identity of itself, of a module in it, or of its tensor.

        Dynamo guards no attribute then. An example is a lookup in a dict whose keys are modules.
        """
        if self._sampled is not None and self._sampled.is_own(item):
            self._sampled.anonymous = False

    def on_unguarded(self, holder: Any) -> None:
        """Record if Dynamo runs a method of an object without guards on what the method reads."""
        if self._sampled is not None and holder is not None:
            self._sampled.alone = False

    def on_rename(self, node: fx.Node, name: str) -> None:
        """Record that Dynamo renames a node after a variable of the user's code."""
        if self._sampled is not None:
            self._sampled.names.append((next(iter(reversed(node.graph.nodes))), node, name))

    def _kind_of(self, module: torch.nn.Module, call: ModuleCall) -> _ModuleKind | None:
        """Return the kind of a module, or None if the module belongs to no known kind.

        For a module of no known kind, record the first difference from a traced module of the same class.
        """
        reason = ""
        for kind in self._kinds:
            sample = kind.sample
            if type(sample.module) is not type(module):
                continue
            found = self._reason(sample, module, call)
            if not found:
                return kind
            reason = reason or f"compared with {_path_of(sample.call.name)}, {found}"
        if reason:
            self._written.reasons[_path_of(call.name)] = reason
        return None

    def _reason(self, sample: TracedModule, module: torch.nn.Module, call: ModuleCall) -> str:
        """Return how a module differs from a traced module; empty if the traced module's nodes can be copied."""
        if sample.call.state != call.state:
            return "it is called at another line, inside of another module, or in another mode"
        if sample.call.given != call.given:
            return "its arguments have other shapes, data types or values"
        key = (id(sample.module), id(module))
        if key not in self._differences:
            try:
                self._differences[key] = differing_attributes(sample.module, module)
            except LayerMismatch as mismatch:
                self._differences[key] = mismatch
        names = self._differences[key]
        if isinstance(names, LayerMismatch):
            return str(names)
        read = sorted(name for name in names if mentions_attribute(sample.read, name))
        return f"its {' and '.join(read)}, which it reads, differs" if read else ""


_SELF = re.compile(r"^L\['\w+'\]\.?|^G\['\w+'\]\.?")


def _path_of(name: str) -> str:
    """Return a module's path in the program, given Dynamo's name for the module."""
    return _SELF.sub("", name) or name
