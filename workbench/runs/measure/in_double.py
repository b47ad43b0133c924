"""Run a program that asks for single precision in double precision instead."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from workbench.interop.torch_private import _pytree

_MIXED = (torch.float32, torch.float64)


def _writes_first(name: str) -> bool:
    """Return whether a function of this name writes into its first argument, as ``add_`` and ``__setitem__`` do."""
    return name in ("__set__", "__setitem__") or name.startswith("__i") or (name.endswith("_") and name[-2:] != "__")


class Widening(TorchFunctionMode):
    """A mode in which a program computes with float64 where it asks for float32.

    Without it, ``labels.float()`` or a constant in float32 meets float64, and many operators refuse that.

    Attributes
    ----------
    has_acted : bool
        Whether the program got float64 where it asked for float32. Code that looks at a data type may then do something
        else than in float32.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_acted = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name.startswith("_fused_"):  # its counts of steps stay in float32
            return func(*args, **(kwargs or {}))
        leaves, spec = _pytree.tree_flatten((args, kwargs or {}))
        floating = [leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dtype in _MIXED]
        is_mixed = len(set(floating)) == 2
        self.has_acted |= is_mixed or func is torch.Tensor.float or any(leaf is torch.float32 for leaf in leaves)
        leaves = [torch.float64 if leaf is torch.float32 else leaf for leaf in leaves]
        converted = _Converted()
        if is_mixed:
            wanted = floating[0] if _writes_first(name) else torch.float64
            leaves = [converted.to(wanted, leaf) for leaf in leaves]
        given, named = _pytree.tree_unflatten(leaves, spec)
        made = torch.Tensor.double(*given) if func is torch.Tensor.float else func(*given, **named)
        if not floating:  # the default data type is float64
            self.has_acted |= any(
                isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float64 for leaf in _pytree.tree_leaves(made)
            )
        return converted.write_back(made, (kwargs or {}).get("out"))


class _Converted:
    """Tensors that an operator gets in another data type. What it writes into them belongs into the originals."""

    def __init__(self) -> None:
        self._made: list[tuple[torch.Tensor, torch.Tensor, int]] = []

    def to(self, wanted: torch.dtype, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype not in _MIXED or leaf.dtype is wanted:
            return leaf
        made = leaf.to(wanted)
        self._made.append((leaf, made, _version(made)))
        return made

    def write_back(self, result: Any, out: Any) -> Any:
        """Copy what was written into the originals. Return the result, with the originals in it."""
        targets = {id(leaf) for leaf in _pytree.tree_leaves(out)}
        originals: dict[int, torch.Tensor] = {}
        for original, made, version in self._made:
            if id(original) in targets or _version(made) != version:
                if original.shape != made.shape:
                    original.resize_(made.shape)
                original.copy_(made)
                originals[id(made)] = original
        return _pytree.tree_map(lambda leaf: originals.get(id(leaf), leaf), result) if originals else result


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version  # PyTorch counts no writes in inference mode


@contextlib.contextmanager
def widened() -> Iterator[Widening]:
    """Let PyTorch make and compute float64 tensors where the program asks for float32, inside the context."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Widening() as mode:
            yield mode
    finally:
        torch.set_default_dtype(default)
