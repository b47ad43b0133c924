"""Find the tensors of a program and its inputs, to move them to a device, and to compare them after runs."""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

_PLAIN = (bool, int, float, complex)
_OPAQUE = (str, bytes, bytearray, range, type, ModuleType, torch.dtype, torch.device, torch.Generator)
_FOREIGN = ("torch._", "torch.fx", "thunder", "logging", "threading", "_thread", "weakref", "concurrent", "asyncio")
"""Prefixes of modules whose objects the search skips, because they hold no tensors of a user."""
_PARTS_OF_OBJECTS = (Mapping, list, tuple, set, frozenset, FunctionType, MethodType, functools.partial)
_REGISTERED = frozenset({"_parameters", "_buffers", "_modules"})


@dataclasses.dataclass(frozen=True)
class HeldTensors:
    """Tensors and optimizers found in some objects.

    Attributes
    ----------
    leaves : list of tuple of str and object
        Each tensor, and each number in a container, with its path: ``args[0]``, ``layers.0.weight``, ``output.loss``.
    functions : list of function
        Functions that hold tensors, directly or indirectly: in closures, in defaults, or in globals that they read.
    optimizers : list of Optimizer
        Optimizers of `torch.optim`. A program that holds one is assumed to run its own backward and optimizer steps.
    """

    leaves: list[tuple[str, Any]] = dataclasses.field(default_factory=list)
    functions: list[FunctionType] = dataclasses.field(default_factory=list)
    optimizers: list[torch.optim.Optimizer] = dataclasses.field(default_factory=list)

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors by path."""
        return {path: leaf for path, leaf in self.leaves if isinstance(leaf, torch.Tensor)}


def find_tensors(objects: Any, path: str = "") -> HeldTensors:
    """Find the tensors that objects hold, at any depth.

    The search covers containers, modules and their plain attributes, dataclasses and other objects, optimizers,
    partials, bound methods, functions, and the hooks of a tensor that run after its gradient is accumulated. In a
    function, it covers the closure, the defaults, and the globals that the function reads.

    Parameters
    ----------
    objects : object
    path : str
        Prefix of the tensors' paths.
    """
    walk = _TensorWalk()
    walk.visit(objects, path, numbers=True)
    walk.name_states()
    return walk.found


def gradient_hooks(tensor: torch.Tensor) -> tuple[Callable[[torch.Tensor], None], ...]:
    """Return the hooks that ``tensor.register_post_accumulate_grad_hook`` has added."""
    return tuple((getattr(tensor, "_post_accumulate_grad_hooks", None) or {}).values())


def state_of(original: Any, compiled: Any) -> dict[str, torch.Tensor]:
    """Return parameters, buffers and other tensors that a program holds, by name. Tensors on meta are left out.

    Parameters
    ----------
    original : callable
        The function or module from which the program was compiled.
    compiled : callable
        The compiled function or module, or `original` itself.
    """
    state = find_tensors(original).tensors
    if isinstance(compiled, torch.nn.Module):
        # A transform may replace parameters, so take the compiled module's tensors first. Then add the original's other
        # tensors. A wrapper module may have some of them under its own names; leave these out.
        own = dict([*compiled.named_parameters(), *compiled.named_buffers()])
        same = {id(tensor) for tensor in own.values()}
        state = {**own, **{n: t for n, t in state.items() if n not in own and id(t) not in same}}
    return {name: tensor for name, tensor in state.items() if not tensor.is_meta}


class _TensorWalk:
    def __init__(self) -> None:
        self.found = HeldTensors()
        self._inside: set[int] = set()
        """Ids of the containers that are being walked, because one may contain itself."""
        self._known: dict[int, bool] = {}
        """Ids of the objects that were walked and are not containers, each with whether the object holds tensors."""
        self._optimizers: list[tuple[str, torch.optim.Optimizer]] = []

    def visit(self, value: Any, path: str, *, numbers: bool) -> bool:
        """Record the tensors that `value` holds; return whether it holds any. With `numbers`, record numbers, too."""
        if isinstance(value, torch.Tensor):
            self.found.leaves.append((path, value))
            self._visit_hooks(path, value)
            return True
        if isinstance(value, _PLAIN):
            if numbers:
                self.found.leaves.append((path, value))
            return False
        if value is None or isinstance(value, _OPAQUE):
            return False
        if id(value) in self._inside:
            # A copy of a function that refers to its holder, such as a hook to its module, must refer to the copy.
            return not isinstance(value, _PARTS_OF_OBJECTS)
        if id(value) in self._known:
            return self._known[id(value)]
        self._inside.add(id(value))
        try:
            if isinstance(value, Mapping):
                return self._visit_all(((f"{path}[{key!r}]", item) for key, item in list(value.items())), numbers)
            if isinstance(value, list | tuple | set | frozenset):
                names = getattr(value, "_fields", None)
                places = [f".{name}" for name in names] if names else [f"[{i}]" for i in range(len(value))]
                return self._visit_all(((path + at, item) for at, item in zip(places, value, strict=True)), numbers)
            if dataclasses.is_dataclass(value):
                return self._visit_all(
                    ((_attribute_path(path, name), item) for name, item in _fields(value).items()), numbers
                )
            holds = self._known[id(value)] = self._visit_object(value, path)
            return holds
        finally:
            self._inside.discard(id(value))

    def _visit_all(self, items: Iterable[tuple[str, Any]], numbers: bool = False) -> bool:
        holds = False
        for path, value in items:
            holds |= self.visit(value, path, numbers=numbers)
        return holds

    def _visit_object(self, value: Any, path: str) -> bool:
        if isinstance(value, torch.nn.Module):
            return self._visit_module(value, path)
        if isinstance(value, torch.optim.Optimizer):
            self._optimizers.append((path, value))
            return True
        if isinstance(value, functools.partial):
            places = ((_attribute_path(path, f"argument{i}"), argument) for i, argument in enumerate(value.args))
            keywords = ((_attribute_path(path, name), argument) for name, argument in value.keywords.items())
            return self._visit_all([(path, value.func), *keywords, *places])
        if isinstance(value, MethodType):
            return self._visit_all([(path, value.__self__), (path, value.__func__)])
        if isinstance(value, FunctionType):
            holds = self._visit_all(
                (_attribute_path(path, name), content) for name, content in contents_of(value).items()
            )
            if holds:
                self.found.functions.append(value)
            return holds
        kind = type(value)
        if kind.__module__.startswith(_FOREIGN) or kind.__module__ == "builtins":
            return False
        return self._visit_all(
            (_attribute_path(path, name), item) for name, item in list(getattr(value, "__dict__", {}).items())
        )

    def _visit_module(self, module: torch.nn.Module, path: str) -> bool:
        found = [*module.named_parameters(prefix=path), *module.named_buffers(prefix=path)]
        self.found.leaves.extend(found)
        for name, tensor in found:
            self._visit_hooks(name, tensor)
        holds = bool(found)
        for name, inner in module.named_modules(prefix=path):
            self._known[id(inner)] = holds
            plain = [(key, _unnumbered(key, item)) for key, item in inner.__dict__.items() if key not in _REGISTERED]
            holds |= self._visit_all(
                (_attribute_path(name, key), item) for key, item in plain if not key.startswith("__")
            )
        return holds

    def _visit_hooks(self, path: str, tensor: torch.Tensor) -> None:
        """Visit the functions that the backward calls with a parameter, which may run an optimizer's step."""
        for place, hook in enumerate(gradient_hooks(tensor)):
            self.visit(hook, _attribute_path(path, f"hooks[{place}]"), numbers=False)

    def name_states(self) -> None:
        """Record the optimizers and their state. The path of a state tensor contains the name of its parameter."""
        names = {id(tensor): name for name, tensor in self.found.tensors.items()}
        for path, optimizer in self._optimizers:
            self.found.optimizers.append(optimizer)
            for at, group in enumerate(optimizer.param_groups):
                own = _attribute_path(path, f"param_groups[{at}]")
                for place, parameter in enumerate(group["params"]):
                    if id(parameter) not in names:
                        names[id(parameter)] = f"{own}.params[{place}]"
                        self.found.leaves.append((names[id(parameter)], parameter))
                self._visit_all((_attribute_path(own, key), value) for key, value in group.items() if key != "params")
            for parameter, state in optimizer.state.items():
                own = _attribute_path(path, f"state[{names.get(id(parameter), '')}]")
                self._visit_all((_attribute_path(own, str(key)), value) for key, value in state.items())


def _unnumbered(name: str, value: Any) -> Any:
    """Return the hooks of a module as a list, because PyTorch counts hooks, and each copy of a program has new ones."""
    return list(value.values()) if name.endswith("_hooks") and isinstance(value, Mapping) else value


def _attribute_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def globals_of(function: FunctionType) -> dict[str, Any]:
    """Return the globals that a function reads, by name, except for builtins and functions of other modules."""
    known = function.__globals__
    found = {name: known[name] for name in globals_read(function.__code__) if name in known}
    return {
        name: value
        for name, value in found.items()
        if not isinstance(value, BuiltinFunctionType)
        and (not isinstance(value, FunctionType) or value.__globals__ is known)
    }


@functools.lru_cache(4096)
def globals_read(code: CodeType) -> tuple[str, ...]:
    """Return the names of the globals that a code object reads, including those that its nested functions read."""
    own = [instruction.argval for instruction in dis.get_instructions(code) if instruction.opname == "LOAD_GLOBAL"]
    inner = [name for each in code.co_consts if isinstance(each, CodeType) for name in globals_read(each)]
    return tuple(dict.fromkeys((*own, *inner)))


def _fields(value: Any) -> dict[str, Any]:
    """Return the values of a dataclass's fields. The class's own ``__getattribute__``, which may fail, is bypassed."""
    found = {}
    for field in dataclasses.fields(value):
        with contextlib.suppress(AttributeError):  # a field may be unset
            found[field.name] = object.__getattribute__(value, field.name)
    return found


def contents_of(function: FunctionType) -> dict[str, Any]:
    """Return the values to which a function refers, by name: globals, values in its closure, and defaults."""
    held = globals_of(function)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            held[name] = cell.cell_contents
        except ValueError:  # a name that the enclosing function has not yet bound
            continue
    if function.__defaults__ or function.__kwdefaults__:
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
        held.update({each.name: each.default for each in parameters if each.default is not each.empty})
    return held
