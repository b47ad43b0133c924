"""Run an eager module under choices: autograd keeps no tensor that is recomputed."""

import functools
import threading
import types
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from workbench.plain_torch.operators import Key, Operators

CHOICES: dict[Key, str] = {}


def checkpoint(model: Any, *, choices: Any = CHOICES) -> Any:
    """Change a module so that its backward recomputes or reloads the chosen tensors, and return the module."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"checkpoint changes a torch.nn.Module, given {type(model).__name__}: use compile instead")
    ops = choices if isinstance(choices, Operators) else Operators(model, choices)
    before = vars(model).get("forward")  # the instance's own forward, such as a wrapper by another library

    @functools.wraps(model.forward)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        forward = before or functools.partial(type(self).forward, self)
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        hooks, eager, here = torch.nn.modules.module, _Eager(ops), threading.get_ident()
        ops.paths = {id(module): path for path, module in self.named_modules()}

        def track(module: Any, _: Any, *out: Any) -> None:
            if threading.get_ident() == here:  # the hooks are global: other threads run modules, too
                eager.stack[-1:] = [] if out else [*eager.stack[-1:], id(module)]

        enter = hooks.register_module_forward_pre_hook(track)
        leave = hooks.register_module_forward_hook(track, always_call=True)
        with enter, leave, torch.autograd.graph.saved_tensors_hooks(eager.pack, _Held.read), eager:
            out = forward(*args, **kwargs)
        return ops.end_call(out)

    if getattr(before, "__code__", None) is run.__code__:  # type: ignore[attr-defined]
        raise ValueError("checkpoint has changed this module already: give it all choices at once")
    model.forward = types.MethodType(run, model)  # a method, so that a deep copy of the module runs its own forward
    return model


class _Again:
    """An operator that runs again, or a copy from the host, when the backward reads its output."""

    def __init__(self, key: Key, function: Any, args: Any, kwargs: Any, out: torch.Tensor, held: Any) -> None:
        flat, self.spec = tree_flatten((args, kwargs))
        self.inputs = [held(x.detach()) if isinstance(x, torch.Tensor) else x for x in flat]
        self.key, self.function, self.out, self.uses, self.readers = key, function, None, 0, 0
        self.version, self.dtype, device = out._version, out.dtype, out.device.type
        self.cast = device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)

    def read(self) -> Any:
        out: Any = self.out
        if out is None:
            if any(isinstance(x, _Held) and x.is_stale() for x in self.inputs):
                raise RuntimeError(f"choice {self.key}: a later write changed the operator's input: choose 'save'")
            args, kwargs = tree_unflatten([x.read() if isinstance(x, _Held) else x for x in self.inputs], self.spec)
            with torch.no_grad(), torch.autocast(*self.cast):
                out = self.function(*args, **kwargs)
        # Keep the output until its last reader has read it. A second backward counts the readers again.
        self.uses = (self.uses or self.readers) - 1
        self.out = out if self.uses else None
        return out


class _Held:
    """A tensor that the backward reads, or the tensor's place in the output of an operator that runs again."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor: Any = tensor
        self.version = tensor._version
        self.again: _Again | None = None

    def link(self, made: Mapping[StorageWeakRef, _Again]) -> None:
        plain = self.tensor.layout == torch.strided and not (self.tensor.is_conj() or self.tensor.is_neg())
        again = made.get(StorageWeakRef(self.tensor.untyped_storage())) if made and plain else None
        if again is not None and (self.tensor._version, self.tensor.dtype) == (again.version, again.dtype):
            self.place = self.tensor.size(), self.tensor.stride(), self.tensor.storage_offset()
            self.tensor, self.again, again.uses = None, again, again.uses + 1
            again.readers = again.uses

    def is_stale(self) -> bool:
        return self.again is None and bool(self.tensor._version != self.version)

    def read(self) -> Any:
        if self.again is not None:
            return self.again.read().as_strided(*self.place)
        if self.is_stale():
            raise RuntimeError("a tensor that the backward needs was written in place after it was saved")
        return self.tensor


class _Eager(TorchFunctionMode):
    """Finds the key of each operator that runs, and records the operators that will run again."""

    def __init__(self, ops: Operators) -> None:
        super().__init__()
        self.ops, self.counts = ops, Counter[tuple[str, str]]()
        self.stack, self.made, self.packed = list[int](), dict[StorageWeakRef, _Again](), list[_Held]()

    def pack(self, tensor: torch.Tensor) -> _Held:
        self.packed.append(held := _Held(tensor))
        held.link(self.made)
        return held

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        key = self.ops.key(self.stack, function, self.counts)
        self.packed.clear()
        self.ops.found |= {key} & self.ops.choices.keys()
        if (option := self.ops.choices.get(key, "save")) == "save":
            return function(*args, **(kwargs or {}))
        flat = tree_flatten((args, kwargs))[0]
        before, given = _seeds(flat), {x: x._version for x in flat if isinstance(x, torch.Tensor)}
        out = function(*args, **(kwargs or {}))
        if (again := option == "recompute") and before != _seeds(flat):
            self.ops.tell(key, "PyTorch draws random numbers here")
        elif again and (key[1] in ("batch_norm", "instance_norm") or any(x._version != given[x] for x in given)):
            self.ops.tell(key, "the operator writes in place, or writes running statistics")
        elif not isinstance(out, torch.Tensor) or any(x.layout != torch.strided for x in (out, *given)):
            self.ops.tell(key, "the operator reads or returns something else than one dense tensor")
        elif StorageWeakRef(out.untyped_storage()) in {StorageWeakRef(x.untyped_storage()) for x in given}:
            self.ops.tell(key, "PyTorch makes no tensor of its own here")
        else:
            function, args, kwargs = (function, args, kwargs or {}) if again else (_from_host(out), (), {})
            self.made[StorageWeakRef(out.untyped_storage())] = _Again(key, function, args, kwargs, out, self.pack)
            # Autograd may have packed the output itself while the operator ran.
            for held in [held for held in self.packed if held.again is None]:
                held.link(self.made)
        return out


def _from_host(out: torch.Tensor) -> Any:
    """Copy a tensor's memory to the host, and return a function that copies it back."""
    hooks = torch.autograd.graph.save_on_cpu(pin_memory=True)  # without CUDA, this copies to memory that is not pinned
    whole = out.detach().as_strided([out.untyped_storage().nbytes() // out.element_size()], [1], 0)
    return functools.partial(hooks.unpack_hook, hooks.pack_hook(whole))


def _seeds(flat: list[Any]) -> list[bytes]:
    devices = {x.device for x in flat if isinstance(x, torch.Tensor) and x.is_cuda}
    states = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, devices)]
    states += [x.get_state() for x in flat if isinstance(x, torch.Generator)]
    return [state.numpy().tobytes() for state in states]
