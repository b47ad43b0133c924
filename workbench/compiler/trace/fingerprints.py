"""Keys to compare statements and fusions: a key of the memory effects of a statement, and digests of structures."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from workbench.compiler.interop.thunder_api import CollectionProxy, FutureTensorProxy, NumberProxy, TensorProxy
from workbench.compiler.trace.bsym_memo import identity, structure_of


def statement_memory_key(bsym: Any, strides: Mapping[str, tuple[int, ...]]) -> Hashable:
    """Return a key of a statement. Statements with equal keys have the same memory effects.

    Parameters
    ----------
    bsym : BoundSymbol
    strides : mapping of str to (tuple of int)
        Strides of tensors, by name. They are part of the key.
    """
    frozen = _freeze((bsym.args, bsym.kwargs, bsym.output), {}, strides)
    symbol = bsym.sym
    # Include the functions, because an operator may be registered again under the same name.
    what = (symbol.name, str(symbol.id), symbol.executor, symbol._module)
    functions = (symbol.meta and _IdentityKey(symbol.meta), symbol.python_impl and _IdentityKey(symbol.python_impl))
    return (*what, *functions, frozen)


class _IdentityKey:
    """Represents an object in a key, by a weak reference if the object allows one.

    Once the object is gone, the key equals no other key.
    """

    def __init__(self, target: Any) -> None:
        self.number = identity(target)
        try:
            self.target: Callable[[], Any] = weakref.ref(target)
        except TypeError:
            self.target = lambda: target

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _IdentityKey)
            and self.number == other.number
            and self.target() is other.target() is not None
        )

    def __hash__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        return repr(str(self.target()))


def _freeze(tree: Any, numbers: dict[str, int], strides: Mapping[str, tuple[int, ...]]) -> Hashable:
    """Return nested arguments as a hashable object.

    A tensor becomes its metadata at its first appearance, and a number at later appearances. A constant becomes its
    type and value.
    """
    if isinstance(tree, (TensorProxy, FutureTensorProxy)):
        if tree.name in numbers:
            return numbers[tree.name]
        numbers[tree.name] = len(numbers)
        return (tuple(tree.shape), strides.get(tree.name), str(tree.dtype), tree.device.device_str())
    if isinstance(tree, CollectionProxy):
        return _freeze(tree.collection(), numbers, strides)
    if isinstance(tree, NumberProxy):
        return (type(tree).__name__, repr(tree.value), numbers.setdefault(tree.name, len(numbers)))
    if isinstance(tree, (tuple, list)):
        return (type(tree).__name__, *(_freeze(leaf, numbers, strides) for leaf in tree))
    if isinstance(tree, dict):
        return ("dict", *((key, _freeze(leaf, numbers, strides)) for key, leaf in tree.items()))
    if isinstance(tree, float):
        return ("float", tree.hex())
    if isinstance(tree, (int, str, type(None))):
        return (type(tree).__name__, tree)
    text = str(tree)
    return (type(tree).__name__, _IdentityKey(tree) if " at 0x" in text else text)


def fusion_key(bsym: Any) -> str:
    """Return the digest of a fusion's structure.

    Fusions with equal digests can share one compiled fusion if the strides of their inputs do not require others.

    The digest includes the executor, the shape, data type and device of each value, the id of each symbol, the type and
    value of each constant (floats exactly), and the inputs and outputs in order. Numbers replace the names of values,
    in the order of first appearance. The digest does not include whether a value requires a gradient, because fusions
    run without autograd, and no compiler reads this property.

    Parameters
    ----------
    bsym : BoundSymbol
        A fusion.

    Returns
    -------
    str
        16 hexadecimal digits.
    """
    found: str = structure_of(bsym).get_or_make("key", lambda: _fusion_key(bsym))
    return found


def _fusion_key(bsym: Any) -> str:
    parts = (str(bsym.sym.executor.name), *_structure(bsym.subsymbols, bsym.args, bsym.output))
    return hashlib.sha256(repr(list(parts)).encode()).hexdigest()[:16]


def structure_key(members: Iterable[Any], inputs: Any, outputs: Any) -> str:
    """Return the digest of a fusion's structure. Unlike the digest of `fusion_key`, it does not include the executor.

    Parameters
    ----------
    members : iterable of BoundSymbol
        Statements inside the fusion.
    inputs, outputs
        Inputs and outputs of the fusion.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    return hashlib.sha256(repr(_structure(members, inputs, outputs)).encode()).hexdigest()


def _structure(members: Iterable[Any], inputs: Any, outputs: Any) -> tuple[Hashable, ...]:
    numbers: dict[str, int] = {}
    return (
        _freeze(inputs, numbers, {}),
        *(
            (str(member.sym.id or member.sym.name), _freeze((member.args, member.kwargs, member.output), numbers, {}))
            for member in members
        ),
        _freeze(outputs, numbers, {}),
    )


def statement_key(bsym: Any) -> str:
    """Return a digest of a statement outside of fusions.

    The digest includes the executor, the symbol, the constants, and the shape, data type and device of each input.
    """
    executor = bsym.sym.executor.name if bsym.sym.executor is not None else ""
    parts = (str(bsym.sym.name), str(bsym.sym.id), str(executor), _freeze((bsym.args, bsym.kwargs), {}, {}))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
