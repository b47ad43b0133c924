"""Compile a module that ranks share: Dynamo traces the unsharded module, and Thunder compiles one rank's shards.

When ``thunder.jit`` gets a module, Thunder's transforms distribute the module's parameters among ranks once. The
transforms also insert collectives into each trace. To find the parameters of a trace, the transforms use the paths at
which the trace's prologue reads parameters. Each graph therefore becomes a separate module for ``thunder.jit``. The
separate module reads the same parameters at the same paths, and contains the shards of the rank.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import torch
from torch import fx

from workbench.compiler.frontend.fake_process_group import LEFT_ON_MODULE
from workbench.compiler.frontend.fx_to_thunder import GraphSource, constants_of, stand_in, trace_as, unique_names
from workbench.compiler.interop import thunder_api
from workbench.compiler.interop.thunder_api import Transform
from workbench.interop.torch_private import InstructionTranslator, VariableTracker

_FLAGS = ("use_ddp", "use_fsdp", "process_group_for_ddp")
"""Attributes of the compile data in which transforms record how ranks share a module."""


class ShardedModule:
    """A module whose parameters ranks share.

    Parameters
    ----------
    module : torch.nn.Module
    transforms : sequence of Transform
        Thunder's transforms that share the module among ranks.

    Attributes
    ----------
    module : ThunderModule
        Module to call and train. It has the parameters of this rank.
    transforms : tuple of Transform
        Transforms with which ``thunder.jit`` compiles a module from `module_of`.
    """

    def __init__(self, module: torch.nn.Module, transforms: Sequence[Transform]) -> None:
        self.module = thunder_api.jit(module, transforms=list(transforms))
        self.module._overrides_buffers = _Buffers(module)
        self.transforms = tuple(_ShardedTransform(transform, self.module) for transform in transforms)


def changes_device(module: torch.nn.Module, transforms: Sequence[Transform]) -> bool:
    """Return whether transforms would move tensors of a module to a different device, unseen by Dynamo."""
    places = [transform.device for transform in transforms if getattr(transform, "device", None) is not None]
    held = (*module.parameters(), *module.buffers())
    return any(tensor.device != place for place in places for tensor in held)


def module_of(
    graph: fx.GraphModule,
    names: Sequence[str],
    paths: dict[int, str],
    program: torch.nn.Module,
    inputs: Sequence[Any],
) -> tuple[torch.nn.Module, tuple[int, ...]]:
    """Return a stand-in module for a graph: ``thunder.jit`` compiles the graph instead of the module's own code.

    The module takes the graph inputs that are not parameters or buffers of the program, followed by the tensors of
    `constants_of`. The second result contains the indices of the graph inputs that the module takes.

    Parameters
    ----------
    graph, names, paths
        As in `workbench.compiler.frontend.fx_to_thunder.function_of`.
    program : torch.nn.Module
        Program from which the graph was captured.
    inputs : sequence
        Inputs of the graph.
    """
    reader = _TensorPaths(program)
    read = [reader.expressions(value) for value in inputs]
    taken = tuple(at for at, found in enumerate(read) if not found)
    constants = len(constants_of(graph))
    arguments = unique_names((*(names[at] for at in taken), *(f"constant{i}" for i in range(constants))))
    by_place = dict(zip(taken, arguments, strict=False))
    given = [found[0] if found else by_place[at] for at, found in enumerate(read)]
    # Pass a tensor with several paths once for each path, because Thunder's transforms look up each path.
    further = [name for found in read for name in found[1:]]
    forward = stand_in(
        graph, "forward", (_SELF, *arguments), reader.lines, (*given, *arguments[len(taken) :], *further)
    )
    made: torch.nn.Module = type("Graph", (torch.nn.Module,), {"forward": forward})()
    # Share the program's dictionaries, but not its hooks, because the graph already contains the hooks.
    vars(made).update((name, vars(program)[name]) for name in ("_parameters", "_buffers", "_modules"))
    vars(made).update((name, vars(program)[name]) for name in LEFT_ON_MODULE if name in vars(program))
    trace_as(made, GraphSource(graph, paths))
    return made, taken


def returned_parameter(program: torch.nn.Module) -> str:
    """Return the name of a parameter that the captured call returns or stores unchanged, or an empty text.

    Dynamo handles such a parameter outside of the graph, so the program would return or store the unsharded parameter.
    """
    translator = InstructionTranslator.current_tx()
    effects = translator.output.side_effects
    changed = [item for item in effects.id_to_variable.values() if effects.is_modified(item)]
    names = {id(parameter): name for name, parameter in program.named_parameters()}
    kept = (changed, [effects.store_attr_mutations.get(c) for c in changed])
    return next((names[id(tensor)] for tensor in _inputs_in((translator.stack, kept)) if id(tensor) in names), "")


def returned_inputs() -> list[torch.Tensor]:
    """Return the inputs that the captured call returns unchanged. Dynamo returns these inputs outside of the graph."""
    return _inputs_in(InstructionTranslator.current_tx().stack)


def _inputs_in(values: Any) -> list[torch.Tensor]:
    """Return the tensors among Dynamo's variables that are inputs of the graph."""
    found: list[torch.Tensor] = []

    def look(value: Any) -> None:
        node = getattr(getattr(value, "proxy", None), "node", None)
        known = node.meta.get("grapharg") if isinstance(node, fx.Node) else None
        if known is not None and isinstance(known.example, torch.Tensor):
            found.append(known.example)

    VariableTracker.visit(look, values)
    return found


_SELF = "_workbench_self"


class _TensorPaths:
    """Python expressions for the tensors of a module, as Thunder writes them for parameters and buffers."""

    def __init__(self, program: torch.nn.Module) -> None:
        self.lines: list[str] = []
        """Lines of code that assign the variables in the expressions."""
        self._known = {"": _SELF}
        self._paths: dict[int, list[tuple[str, str]]] = {}
        for table, tensors in (
            ("_parameters", program.named_parameters(remove_duplicate=False)),
            ("_buffers", program.named_buffers(remove_duplicate=False)),
        ):
            for path, tensor in tensors:
                self._paths.setdefault(id(tensor), []).append((table, path))

    def expressions(self, tensor: Any) -> list[str]:
        """Return an expression for each path of a tensor; empty if the tensor is not a parameter or buffer."""
        found = []
        for table, path in self._paths.get(id(tensor), ()):
            module, _, name = path.rpartition(".")
            found.append(f"{self._module(module)}.{table}[{name!r}]")
        return found

    def _module(self, path: str) -> str:
        if path not in self._known:
            above, _, name = path.rpartition(".")
            line = f"{self._module(above)}._modules[{name!r}]"
            variable = self._known[path] = f"_workbench_{len(self._known)}"
            self.lines.append(f"{variable} = {line}")
        return self._known[path]


class _ShardedTransform(Transform):
    """Wraps a transform that has sharded a module already. The wrapper transforms traces of the module's graphs."""

    def __init__(self, transform: Transform, shared: Any) -> None:
        self._transform = transform
        # Store the module's dictionaries, not the module. The module refers to the code compiled with this transform,
        # so a reference to the module would create a cycle.
        self._own = {name: vars(shared)[name] for name in ("_overrides_parameters", "_overrides_buffers")}
        self._flags = {name: value for name, value in vars(shared._lc_cd).items() if name in _FLAGS}

    def transform_module(self, model: Any) -> None:
        """Give the graph's module this rank's parameters and buffers, which exist already."""
        vars(model).update(self._own)
        vars(model._lc_cd).update(self._flags)

    def transform_traces_pre_prologue(self, *traces: Any, **options: Any) -> Any:
        """Apply the original transform."""
        return self._transform.transform_traces_pre_prologue(*traces, **options)

    def transform_trace_post_optimization(self, trace: Any, **options: Any) -> Any:
        """Apply the original transform."""
        return self._transform.transform_trace_post_optimization(trace, **options)


class _Buffers(MutableMapping[str, torch.Tensor]):
    """Maps paths to the current buffers of the program.

    Thunder's module uses this mapping instead of its own buffers, because Dynamo's code reads the program's buffers
    and may replace them.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._tables = {
            path: (vars(module.get_submodule(path.rpartition(".")[0]))["_buffers"], path.rpartition(".")[2])
            for path, _ in module.named_buffers()
        }

    def __getitem__(self, path: str) -> torch.Tensor:
        table, name = self._tables[path]
        buffer: torch.Tensor = table[name]
        if buffer is None:
            raise KeyError(path)
        return buffer

    def __setitem__(self, path: str, buffer: torch.Tensor) -> None:
        table, name = self._tables[path]
        table[name] = buffer

    def __delitem__(self, path: str) -> None:
        del self._tables[path]

    def __iter__(self) -> Iterator[str]:
        return (path for path, (table, name) in self._tables.items() if table.get(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
