"""Find in-place copies that must not be in a fusion, because Inductor would read memory that is already overwritten."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable

from workbench.compiler.interop.thunder_api import BoundSymbol, NumberProxy, Proxy, TensorProxy, dtypes, prims
from workbench.compiler.trace.copy_sets import VIEWS, is_copy, is_fence, leaves

_ids = prims.PrimIDs

_TRANSCENDENTAL = frozenset(
    {
        *(_ids.ACOS, _ids.ACOSH, _ids.ASIN, _ids.ASINH, _ids.ATAN, _ids.ATANH, _ids.COS, _ids.COSH, _ids.DIGAMMA),
        *(_ids.ERF, _ids.ERFC, _ids.ERFCINV, _ids.ERFINV, _ids.EXP, _ids.EXP2, _ids.EXPM1, _ids.LGAMMA, _ids.LOG),
        *(_ids.LOG10, _ids.LOG1P, _ids.LOG2, _ids.NDTRI, _ids.RECIPROCAL, _ids.RSQRT, _ids.SIN, _ids.SINH),
        *(_ids.SQRT, _ids.TAN, _ids.TANH, _ids.ATAN2),
    }
)
_ARITHMETIC = frozenset({_ids.ADD, _ids.SUB, _ids.MUL, _ids.DIV, _ids.POW, _ids.LERP})
_COMPARISONS = frozenset({_ids.EQ, _ids.NE, _ids.LT, _ids.LE, _ids.GT, _ids.GE})
_SUMS = frozenset({_ids.SUM, _ids.PROD, _ids.VAR, _ids.VAR_MEAN, _ids.STD})
_PRODUCTS = frozenset({_ids.MATMUL, _ids.LINEAR})
_KEEP_PLACES = frozenset(
    {
        *(_ids.SHALLOW_COPY, _ids.CLONE, _ids.CONVERT_ELEMENT_TYPE, _ids.WHERE, _ids.MAXIMUM, _ids.MINIMUM, _ids.NEG),
        *(_ids.ABS, _ids.CEIL, _ids.FLOOR, _ids.ROUND, _ids.TRUNC, _ids.SIGN),
        *_ARITHMETIC,
    }
)
"""Operators that do not move elements. An element that a result takes from an input keeps its position."""


@dataclasses.dataclass(frozen=True)
class ExcludedCopy:
    """A copy that must stay outside of fusions.

    Attributes
    ----------
    output : str
        Name of the copy's result.
    why : str
        The reason, as a message for the user.
    """

    output: str
    why: str


@dataclasses.dataclass(frozen=True)
class _Content:
    """The elements that a storage contains at the start of the region. `memory` is the name of the storage.

    `place` is the name of a value that consists of these elements in the same order, or empty if the order may differ.
    """

    memory: str
    place: str


def find_excluded_copies(bsyms: Iterable[BoundSymbol]) -> list[ExcludedCopy]:
    """Find copies that Inductor would compute wrongly if they were in one region with the copies before them.

    AOTAutograd turns a region into a function without side effects, followed by one copy into each written input. If
    Inductor finds that the copied value equals an input, it reads this input only at the copy. By then, an earlier copy
    may have overwritten the input. For example, ``t = a.clone(); a.copy_(b); b.copy_(t)`` gives wrong results. The
    results of ``a.copy_(b); b.copy_(c)`` are also wrong if Inductor changes the order of the copies.

    The operators that Inductor removes as identities depend on the version of PyTorch. In PyTorch 2.10 they are clones,
    casts to another type and back, ``x + zeros``, ``x * ones``, ``x ** 1``, ``cat([x])`` and empty padding. Therefore
    this analysis is conservative. It assumes that a result may equal each input of its operator, unless the operator
    certainly computes new values.

    An excluded copy ends the region, and the copies after it start a new region. This function can be deleted once
    `tests/levers/test_known_wrong_results.py` shows that plain ``torch.compile`` gives right results.
    """
    walk = _HazardWalk()
    return [found for bsym in leaves(bsyms) if (found := walk.statement(bsym)) is not None]


def memory_with_several_views(bsyms: Iterable[BoundSymbol], inputs: Iterable[Proxy]) -> str:
    """Return the name of a storage that a region writes and that several of its inputs share, or an empty text.

    AOTAutograd replaces such inputs by one base tensor, and rebuilds outputs as views of the base. PyTorch 2.10 uses
    the wrong views. The result is an error if the shapes of the views differ, and wrong values if the shapes are equal.
    This function can be deleted once `tests/levers/test_aliased_inputs.py` shows that plain ``torch.compile`` gives
    right results.
    """
    walk = _HazardWalk()
    written = []
    for bsym in leaves(bsyms):
        walk.statement(bsym)
        if is_copy(bsym):
            written.append(bsym.args[1].name)
    given = Counter(walk.memory(proxy.name) for proxy in inputs)
    return next((memory for name in written if given[memory := walk.memory(name)] > 1), "")


class _HazardWalk:
    """Walk over a trace, region by region.

    For each value, the walk tracks the storages whose content at the start of the region the value may have.
    """

    def __init__(self) -> None:
        self.memory_of: dict[str, str] = {}
        self.place_of: dict[str, str] = {}
        self.constant: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        self.may_be: dict[str, frozenset[_Content]] = {}
        # For each storage that the region has written so far, the contents that may have been written into it.
        self.written: dict[str, frozenset[_Content]] = {}

    def memory(self, name: str) -> str:
        while (next_name := self.memory_of.get(name, name)) != name:
            name = next_name
        return name

    def contents(self, name: str) -> frozenset[_Content]:
        if name in self.constant:
            return frozenset()
        if name not in self.may_be:
            self.may_be[name] = frozenset({_Content(self.memory(name), self.place_of.get(name, name))})
        return self.may_be[name]

    def statement(self, bsym: BoundSymbol) -> ExcludedCopy | None:
        if is_copy(bsym):
            return self._copy(bsym)
        tensors = [a for a in bsym.flat_proxy_args if isinstance(a, TensorProxy)]
        if is_fence(bsym):
            for given, out in zip(tensors, bsym.flat_proxy_outs, strict=False):
                # The values of one fence may be aliases: a write to one value may change the other values.
                self.memory_of[self.memory(given.name)] = self.memory(tensors[0].name)
                self._alias(out.name, given.name)
            return None
        given = {a.name for a in bsym.flat_proxy_args}
        for out in bsym.flat_proxy_outs:
            if out.name not in given and bsym.sym.id is not _ids.UNPACK_TRIVIAL:
                self._add_output(bsym, out, tensors)
        return None

    def _alias(self, name: str, source: str) -> None:
        self.may_be[name] = self.contents(source)
        self.memory_of[name] = self.memory(source)
        self.place_of[name] = self.place_of.get(source, source)
        if source in self.constant:
            self.constant.add(name)

    def _add_output(self, bsym: BoundSymbol, out: TensorProxy, tensors: list[TensorProxy]) -> None:
        # A random draw also reads no tensor, so it counts as constant. This is safe, because no compiler folds a draw.
        if all(t.name in self.constant for t in tensors):
            self.constant.add(out.name)
        found: set[_Content] = set()
        if not computes(bsym, self.constant):
            for t in tensors:
                kept = bsym.sym.id in _KEEP_PLACES and tuple(t.shape) == tuple(out.shape)
                found.update(c if kept else _Content(c.memory, "") for c in self.contents(t.name))
        self.may_be[out.name] = frozenset(found)
        if bsym.sym.id in VIEWS and tensors:
            self.memory_of[out.name] = self.memory(tensors[0].name)
            self.place_of[out.name] = ""

    def _copy(self, bsym: BoundSymbol) -> ExcludedCopy | None:
        source, destination, output = bsym.args[0].name, bsym.args[1].name, bsym.output.name
        memory, place = self.memory(destination), self.place_of.get(destination, destination)
        contents = self.contents(source)
        why = self._why_not(contents, memory, place)
        if why:
            self._begin()
        else:
            self.written[memory] = self.written.get(memory, frozenset()) | contents
        self.memory_of[output], self.place_of[output] = memory, place
        if not why:
            self.may_be[output] = contents
        return ExcludedCopy(output, why) if why else None

    def _why_not(self, contents: frozenset[_Content], memory: str, region: str) -> str:
        for content in sorted(contents, key=dataclasses.astuple):
            old = self.memory(content.memory)
            if old != memory and old in self.written:
                return (
                    f"its value may be the old content of {old}, which an earlier copy overwrites: inside one region, "
                    f"Inductor reads {old} after that copy and gets the new content"
                )
            if old == memory and (not region or content.place != region):
                return (
                    f"its value may be elements of {old} at other positions: inside one region, Inductor reads "
                    "elements that it has already overwritten"
                )
        for other, made_of in self.written.items():
            if other != memory and any(self.memory(content.memory) == memory for content in made_of):
                return (
                    f"it overwrites {memory}, whose old content may be the value of {other}: inside one region, "
                    f"Inductor may write {other} after this copy, with the new content"
                )
        return ""


def computes(bsym: BoundSymbol, constant: Iterable[str] = ()) -> bool:
    """Return whether a primitive certainly computes new values instead of returning or moving elements of its inputs.

    Parameters
    ----------
    bsym : BoundSymbol
    constant : iterable of str
        Names of values that depend on no input. A compiler may know these values.
    """
    id, known = bsym.sym.id, frozenset(constant)
    tensors = [a for a in bsym.flat_args if isinstance(a, TensorProxy)]
    if not tensors or not all(dtypes.is_inexact_dtype(t.dtype) for t in tensors):
        # A compiler may know that adding and then subtracting an integer returns the input.
        return False
    if id in _TRANSCENDENTAL or id in _COMPARISONS:
        return True
    if id in _SUMS:
        return all(_numel(out) < max(_numel(t) for t in tensors) for out in bsym.flat_proxy_outs)
    if id not in _ARITHMETIC | _PRODUCTS or any(isinstance(a, NumberProxy) for a in bsym.flat_args):
        return False
    numbers = [a for a in bsym.flat_args if isinstance(a, int | float | complex)]
    return not any(t.name in known for t in tensors) and all(abs(number) not in (0, 1) for number in numbers)


def _numel(tensor: TensorProxy) -> int:
    count = 1
    for length in tensor.shape:
        count *= int(length)
    return count
