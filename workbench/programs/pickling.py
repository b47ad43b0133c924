"""Pickling of objects for another process: by cloudpickle, with special cases for objects that it cannot pickle.

Tensors that share memory also share memory in the other process. A function of an imported module is sent by its name.
The tensors that it holds, such as the parameters of a module's global, are sent with it, so that the other process
begins with their present values. An operator of PyTorch is sent by name. A lock or context variable that is an
attribute of an imported module is sent by its name in that module. All other locks and context variables are created
anew.
"""

from __future__ import annotations

import contextvars
import functools
import importlib
import io
import os
import pickle
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import cloudpickle
import torch
from torch.nn.utils.parametrize import is_parametrized

from workbench.errors import ProgramError
from workbench.interop.torch_private import (
    CustomOpDef,
    OpOverload,
    OpOverloadPacket,
    inject_new_class,
    inject_property,
    rebuild_tensor_of_new_dtype,
)
from workbench.programs import files, optimizers
from workbench.programs.tensors import contents_of, find_tensors, globals_read, gradient_hooks

_LOCK, _RLOCK = type(threading.Lock()), type(threading.RLock())
_BY_NAME = (contextvars.ContextVar, _LOCK, _RLOCK)
"""Types of objects that a module may share with its importers. Such an object is sent by its name in the module."""
_CACHED = type(functools.lru_cache(lambda: None))
_DEPTH = 12
"""Maximum depth of the search for an object that cannot be pickled."""

_ADVICE: tuple[tuple[Callable[[Any], bool], str, str], ...] = (
    (
        lambda one: getattr(one, "_lc_cd", None) is not None,
        "compiled by thunder.jit",
        "use the original function or module",
    ),
    (
        lambda one: isinstance(one, types.GeneratorType | types.CoroutineType | types.AsyncGeneratorType),
        "a generator, which exists only in this process",
        "use a list of the yielded values",
    ),
    (
        lambda one: isinstance(one, io.IOBase | io.TextIOBase),
        "an open file",
        "read the file outside of the function, or open it inside the function",
    ),
    (
        lambda one: isinstance(one, CustomOpDef),
        "an operator that is registered only in this process",
        "register it in a module that the function imports",
    ),
    (
        lambda one: isinstance(one, threading.Thread),
        "a thread of this process",
        "start it inside the function",
    ),
)
_ELSE = "create it inside the function, or put it into a module that the function imports"


class _ProgramPickler(cloudpickle.Pickler):  # type: ignore[misc]  # without types
    def __init__(self, file: io.BytesIO, holding: frozenset[types.FunctionType] = frozenset()) -> None:
        super().__init__(file)
        self._holding = holding
        """Functions of imported modules that hold tensors."""
        self._storages: dict[tuple[str, int, int], torch.UntypedStorage] = {}

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.storage.TypedStorage):
            return _typed, (self._shared_storage(obj._untyped_storage), obj.dtype)
        if isinstance(obj, torch.UntypedStorage):
            return _storage, (_bytes_of(obj), str(obj.device))
        if obj is rebuild_tensor_of_new_dtype:
            return _itself, (_rebuild_tensor,)
        if isinstance(obj, torch.nn.Module) and "__getstate__" in vars(type(obj)) and is_parametrized(obj):
            return _parametrized, (type(obj).__base__, list(vars(obj)["_modules"]["parametrizations"])), vars(obj)
        if isinstance(obj, torch.jit.ScriptModule | torch.jit.ScriptFunction):
            return _torchscript, (_saved(obj),), _tensors_of(obj), None, None, _set_tensors
        if (reduced := optimizers.reduce_optimizer(obj)) is not None:
            return reduced
        if isinstance(obj, torch.Tensor) and (hooks := gradient_hooks(obj)):
            return *obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL)[:2], hooks, None, None, _add_hooks
        if isinstance(obj, types.FunctionType) and obj in self._holding:
            return _with_tensors, (obj.__module__, obj.__qualname__, find_tensors(obj).tensors, _this_process())
        reduced = _by_name(obj)
        return reduced if reduced is not None else super().reducer_override(obj)

    def _shared_storage(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        """Return the same Python object for a storage each time, because pickle recognizes objects by identity."""
        if not storage.nbytes() or storage.device.type == "meta":
            return storage
        return self._storages.setdefault((str(storage.device), storage.data_ptr(), storage.nbytes()), storage)


def _add_hooks(tensor: torch.Tensor, hooks: Sequence[Callable[[torch.Tensor], None]]) -> None:
    for hook in hooks:
        tensor.register_post_accumulate_grad_hook(hook)


def _by_name(obj: Any) -> Any:
    """Return pickle's reduction for an object that cloudpickle cannot handle; None for any other object."""
    if obj is torch.ops:
        return _torch_ops, ()
    if isinstance(obj, OpOverload | OpOverloadPacket):
        return _operator, (str(obj),)
    if isinstance(obj, types.ModuleType) and type(obj) is not types.ModuleType:
        if sys.modules.get(obj.__name__) is obj:
            return importlib.import_module, (obj.__name__,)
        if obj.__name__.startswith("torch.ops."):
            return _operator, (obj.__name__.removeprefix("torch.ops."),)
    original = getattr(obj, "_torchdynamo_orig_callable", None) if isinstance(obj, types.FunctionType) else None
    if original is not None:
        # Send the original of a function that torch.compile wraps, because the workbench traces the original, too.
        return _itself, (original,)
    if isinstance(obj, weakref.ReferenceType) and type(obj) is weakref.ReferenceType:
        return _weak, (obj(),)
    if isinstance(obj, _CACHED) and obj.__module__ == "__main__":
        return _cached, (obj.__wrapped__, obj.cache_parameters())
    if isinstance(obj, _BY_NAME):
        return _found_in_a_module(obj) or _anew(obj)
    return None


def _found_in_a_module(obj: Any) -> Any:
    modules: dict[str, Any] = dict(sys.modules)
    for name, module in modules.items():
        # Skip a script's or notebook's module, which has no `__spec__`: the other process does not import it.
        if isinstance(module, types.ModuleType) and module.__name__ == name and getattr(module, "__spec__", None):
            for attribute, value in list(vars(module).items()):
                if value is obj:
                    return _of_module, (name, attribute)
    return None


def _anew(obj: Any) -> Any:
    if isinstance(obj, contextvars.ContextVar):
        try:
            return _variable, (obj.name, obj.get())
        except LookupError:
            return _variable, (obj.name,)
    return (threading.Lock if isinstance(obj, _LOCK) else threading.RLock), ()


def _has_name(function: types.FunctionType) -> bool:
    """Return whether another process can import a function by its name."""
    module = sys.modules.get(function.__module__)
    # A script's or notebook's module has no `__spec__`: the other process does not import it.
    return getattr(module, "__spec__", None) is not None and _attribute(module, function.__qualname__) is function


def _attribute(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name, None)
    return owner


_TOKEN = uuid.uuid4().hex


def _this_process() -> str:
    """Return a text that no other process has, also on another machine."""
    return f"{os.getpid()} {_TOKEN}"


def _with_tensors(module: str, path: str, tensors: Mapping[str, torch.Tensor], process: str) -> Any:
    """Return a function of an imported module, after its tensors got the values of `tensors`.

    Nothing is written in the process that sent the function, because there the function's own tensors are in use.
    """
    function = _attribute(importlib.import_module(module), path)
    if _this_process() == process:
        return function
    own = find_tensors(function).tensors
    for name in own.keys() & tensors.keys():
        tensor, value = own[name], tensors[name]
        # `data` leaves the version unchanged, so that a write by the program itself can still be told.
        if (tensor.shape, tensor.dtype, tensor.layout) == (value.shape, value.dtype, value.layout):
            tensor.data.copy_(value.data)
        else:
            tensor.data = value.data
        tensor.grad = None
    return function


def _torch_ops() -> Any:
    return torch.ops


def _operator(name: str) -> Any:
    found: Any = torch.ops
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ProgramError(
                f"the operator torch.ops.{name} is not registered in the process of the run: register it in a module "
                "that the program imports"
            ) from None
    return found


def _itself(obj: Any) -> Any:
    return obj


def _of_module(module: str, attribute: str) -> Any:
    return getattr(importlib.import_module(module), attribute)


def _variable(name: str, *value: Any) -> contextvars.ContextVar[Any]:
    return contextvars.ContextVar(name, default=value[0]) if value else contextvars.ContextVar(name)


class _DeadReferent:
    """Stands for the referent of a weak reference, if the referent no longer existed when the reference was sent."""


_REFERENTS: list[Any] = []
"""Referents of received weak references. The list keeps them alive, as this process may hold no other reference."""


def _weak(referent: Any) -> weakref.ReferenceType[Any]:
    if referent is None:
        return weakref.ref(_DeadReferent())
    _REFERENTS.append(referent)
    return weakref.ref(referent)


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _bytes_of(storage: torch.UntypedStorage) -> bytes:
    raw = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    written: bytes = raw.cpu().numpy().tobytes()
    return written


def _storage(data: bytes, device: str) -> torch.UntypedStorage:
    # Clone the data, because memory from PyTorch's allocator has the alignment that kernels prefer.
    raw = torch.frombuffer(bytearray(data), dtype=torch.uint8).clone() if data else torch.empty(0, dtype=torch.uint8)
    return raw.to(device).untyped_storage()


def _rebuild_tensor(storage: torch.UntypedStorage, *arguments: Any) -> torch.Tensor:
    """Do what PyTorch does for a data type without a storage class. PyTorch expects its own wrapper of the storage."""
    rebuilt: torch.Tensor = rebuild_tensor_of_new_dtype(_typed(storage, torch.uint8), *arguments)
    return rebuilt


def _parametrized(base: type[torch.nn.Module], names: list[str]) -> torch.nn.Module:
    """Return a module with the class that `torch.nn.utils.parametrize` makes; it still lacks its state."""
    module = base.__new__(base)
    inject_new_class(module)
    for name in names:
        inject_property(module, name)
    return module


def _saved(code: Any) -> bytes:
    file = io.BytesIO()
    torch.jit.save(code, file)
    return file.getvalue()


def _torchscript(data: bytes) -> Any:
    return torch.jit.load(io.BytesIO(data))


def _tensors_of(code: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a TorchScript module by path. Other objects, such as an optimizer, may share them."""
    if isinstance(code, torch.jit.ScriptFunction):
        return {}
    return dict((*code.named_parameters(remove_duplicate=False), *code.named_buffers(remove_duplicate=False)))


def _set_tensors(code: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    modules = dict(code.named_modules()) if tensors else {}
    for path, tensor in tensors.items():
        owner, _, name = path.rpartition(".")
        setattr(modules[owner], name, tensor)


def _typed(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.storage.TypedStorage:
    return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def dumps(objects: Any, name: str = "the program") -> bytes:
    """Return objects as bytes, for `cloudpickle.loads`.

    Parameters
    ----------
    objects : object
    name : str
        Description of the objects, for messages.

    Raises
    ------
    ProgramError
        If an object cannot be pickled; the message names the object, its holder, and the next step.
    """
    try:
        return _dumped(objects)
    except Exception as error:
        raise ProgramError(f"{name} cannot be sent to another process: {_explain(objects, error)}") from error


def _dumped(objects: Any) -> bytes:
    file = io.BytesIO()
    _ProgramPickler(file, frozenset(filter(_has_name, find_tensors(objects).functions))).dump(objects)
    return file.getvalue()


def _explain(objects: Any, error: Exception) -> str:
    path, held = _culprit(objects)
    for is_such, what, advice in _ADVICE:
        if is_such(held):
            return f"{path} is {what}: {advice}"
    return f"{path}, a {type(held).__qualname__}, cannot be pickled ({files.describe_error(error)}): {_ELSE}"


def _culprit(objects: Any) -> tuple[str, Any]:
    """Return the path to the innermost object that cannot be pickled, and the object."""
    path, held, seen = "", objects, {id(objects)}
    for _ in range(_DEPTH):
        if any(is_such(held) for is_such, *_ in _ADVICE):
            break
        for name, inner in _inside(held):
            if id(inner) not in seen and not _can_be_sent(inner):
                path, held = (f"{path}.{name}" if path and not name.startswith("[") else f"{path}{name}"), inner
                seen.add(id(inner))
                break
        else:
            break
    return path or type(held).__name__, held


def _can_be_sent(obj: Any) -> bool:
    if isinstance(obj, torch.Tensor | str | bytes | int | float | None):
        return True
    try:
        _dumped(obj)
    except Exception:  # noqa: BLE001  # any failure means that the object cannot be sent
        return False
    return True


def _inside(obj: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each object that `obj` holds."""
    if isinstance(obj, types.MethodType):
        yield from ((obj.__func__.__name__, obj.__self__), (obj.__func__.__name__, obj.__func__))
    elif isinstance(obj, types.FunctionType):
        known = obj.__globals__
        read = {name: known[name] for name in globals_read(obj.__code__) if name in known}
        yield from ((f"{obj.__name__}'s {name}", value) for name, value in {**read, **contents_of(obj)}.items())
    elif isinstance(obj, functools.partial):
        yield from (("func", obj.func), ("args", obj.args), ("keywords", obj.keywords))
    elif isinstance(obj, Mapping):
        yield from ((f"[{key!r}]", value) for key, value in list(obj.items()))
    elif isinstance(obj, list | tuple | set | frozenset):
        # Give elements of a tuple no name: `objects` is a tuple (callable, args, kwargs), and a path such as
        # ``[1][0]`` would not help the user.
        yield from (("" if isinstance(obj, tuple) else f"[{at}]", value) for at, value in enumerate(obj))
    else:
        yield from list(getattr(obj, "__dict__", {}).items())
