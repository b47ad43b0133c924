"""Run an eager module under choices: autograd keeps no tensor that is recomputed."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from workbench.plain_torch.operators import Key, Operators

CHOICES: dict[Key, str] = {}


def checkpoint(model: Any, *, choices: Any = CHOICES) -> Any:
    """Change a module so that its backward recomputes the chosen tensors, and return the module."""
    ops = choices if isinstance(choices, Operators) else Operators(model, choices)
    forward = model.forward

    @functools.wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        hooks, eager = torch.nn.modules.module, _Eager(ops)
        enter = hooks.register_module_forward_pre_hook(lambda module, _: eager.stack.append(id(module)))
        # A hook that returns a value replaces the output.
        leave = hooks.register_module_forward_hook(lambda *_: eager.stack.__delitem__(-1), always_call=True)
        with enter, leave, torch.autograd.graph.saved_tensors_hooks(eager.pack, _Held.read), eager:
            out = forward(*args, **kwargs)
        ops.end_call()
        return out

    model.forward = run
    return model


class _Again:
    """An operator that runs again when the backward reads its output."""

    def __init__(
        self, function: Any, args: Any, kwargs: Any, out: torch.Tensor, held: Callable[[Any], "_Held"]
    ) -> None:
        flat, self.spec = tree_flatten((args, kwargs))
        self.inputs = [held(x.detach()) if isinstance(x, torch.Tensor) else x for x in flat]
        self.versions = [x._version if isinstance(x, torch.Tensor) else 0 for x in flat]
        self.function, self.out, self.uses = function, None, 0
        self.version, self.dtype, device = out._version, out.dtype, out.device.type
        self.cast = device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)

    def read(self) -> Any:
        out: Any = self.out
        if out is None:
            flat = [x.read() if isinstance(x, _Held) else x for x in self.inputs]
            for x, held, version in zip(flat, self.inputs, self.versions, strict=True):
                if isinstance(held, _Held) and held.again is None and x._version != version:
                    raise RuntimeError(f"{self.function}: an input was written in place: choose 'save' for its output")
            args, kwargs = tree_unflatten(flat, self.spec)
            with torch.no_grad(), torch.autocast(*self.cast):
                out = self.function(*args, **kwargs)
        # Keep the output until its last reader has read it.
        self.uses -= 1
        self.out = out if self.uses > 0 else None
        return out


class _Held:
    """What the backward reads: a tensor, or its place in the output of an operator that runs again."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor: Any = tensor
        self.again: _Again | None = None

    def link(self, made: Mapping[StorageWeakRef, _Again]) -> None:
        again = made.get(StorageWeakRef(self.tensor.untyped_storage()))
        if again is not None and (self.tensor._version, self.tensor.dtype) == (again.version, again.dtype):
            self.place = self.tensor.size(), self.tensor.stride(), self.tensor.storage_offset()
            self.tensor, self.again, again.uses = None, again, again.uses + 1

    def read(self) -> Any:
        if self.again is not None:
            return self.again.read().as_strided(*self.place)
        return self.tensor


class _Eager(TorchFunctionMode):
    """Knows the key of each operator that runs, and the operators that will run again."""

    def __init__(self, ops: Operators) -> None:
        super().__init__()
        self.ops, self.counts = ops, Counter[tuple[str, str]]()
        self.stack, self.made, self.packed = list[int](), dict[StorageWeakRef, _Again](), list[_Held]()

    def pack(self, tensor: torch.Tensor) -> _Held:
        held = _Held(tensor)
        held.link(self.made)
        self.packed.append(held)
        return held

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        key = self.ops.key(self.stack, function, self.counts)
        self.packed.clear()
        self.ops.found |= {key} & self.ops.choices.keys()
        if self.ops.choices.get(key) != "recompute":
            return function(*args, **(kwargs or {}))
        before = _seeds()
        given = {x: x._version for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)}
        out = function(*args, **(kwargs or {}))
        if before != _seeds():
            self.ops.tell(key, "PyTorch draws random numbers here")
        elif any(x._version != version for x, version in given.items()) or not isinstance(out, torch.Tensor):
            self.ops.tell(key, "the operator writes in place, or returns no single tensor")
        elif StorageWeakRef(out.untyped_storage()) in {StorageWeakRef(x.untyped_storage()) for x in given}:
            self.ops.tell(key, "PyTorch makes no tensor of its own here")
        else:
            self.made[StorageWeakRef(out.untyped_storage())] = _Again(function, args, kwargs or {}, out, self.pack)
            # Autograd may have packed the output itself while the operator ran.
            for held in [held for held in self.packed if held.again is None]:
                held.link(self.made)
        return out


def _seeds() -> list[bytes]:
    states = [torch.get_rng_state()] + ([torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else [])
    return [state.numpy().tobytes() for state in states]
