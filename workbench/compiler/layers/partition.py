"""Partition a program into layers. Find runs of structurally identical layers, and differences between layers.

Layers are identical if each layer computes the same function of the results of its predecessor. `LayerPartition` finds
such layers in a captured program. Thunder visits all statements about ten times until each statement of the joint trace
has an executor. To save time, `LayerPartition.reduce` leaves out all layers of a run except two at each end. The gap is
the place of the layers that were left out. `expand_trace.py` later adds the statements of these layers. If the
remaining layers differ in a later trace, the capture is repeated with all layers.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Any

from workbench.compiler.interop.thunder_api import (
    FutureTensorProxy,
    PrimIDs,
    Proxy,
    TensorProxy,
    TraceCtx,
    from_trace,
    variableify,
)
from workbench.compiler.trace.bsym_memo import identity, structure_of
from workbench.compiler.trace.proxy_traits import TOLD_APART_BY
from workbench.compiler.trace.stable_ids import origin_of
from workbench.core.graph import Origin

KEPT = 2
"""Number of layers that stay at each end of a run: the layer next to the gap, and the neighbor of this layer."""

WORTHWHILE = 2 * KEPT + 2
"""`LayerPartition.reduce` leaves layers out only if a run has at least this number of layers."""

MOST_IN_TURNS = 8
"""Largest supported period of alternating kinds of layers. For example, the period is 6 layers if every sixth layer has
full attention and all other layers have windowed attention.
"""


class LayerMismatch(Exception):
    """A layer differs from another layer. The message says how."""


@dataclasses.dataclass(frozen=True)
class GatherTag:
    """Tag of a statement that gathers an argument which ranks share, and of all statements that are made from it."""

    argument: str


def gathered_argument(bsym: Any) -> str | None:
    """Return the argument of a statement's `GatherTag`, or None if the statement has no such tag."""
    return next((tag.argument for tag in bsym.tags if type(tag) is GatherTag), None)


def tag_gathers(program: TraceCtx) -> TraceCtx:
    """Return the program with a `GatherTag` on each statement without origin that reads at most arguments.

    Thunder inserts such statements if ranks share the program. The argument may have been gathered already.
    """
    argument: dict[str, str] = {}
    tagged = from_trace(program)
    for bsym in program.bound_symbols:
        given = {argument.get(arg.name) for arg in bsym.flat_proxy_args}
        if bsym.sym.id is PrimIDs.UNPACK_TRIVIAL:
            argument.update((out.name, out.name) for out in bsym.flat_proxy_outs)
        elif origin_of(bsym) < 0 and bsym.flat_proxy_outs and len(given) == 1 and (name := given.pop()) is not None:
            argument.update((out.name, name) for out in bsym.flat_proxy_outs)
            bsym = _with_tag(bsym, GatherTag(name))
        tagged.bound_symbols.append(bsym)
    return tagged


def _with_tag(bsym: Any, tag: GatherTag) -> Any:
    return bsym.from_bsym(tags=bsym.tags | {tag}, subsymbols=[_with_tag(sub, tag) for sub in bsym.subsymbols])


@dataclasses.dataclass(frozen=True)
class LayerRun:
    """Consecutive layers that compute the same function of the results of their predecessor.

    If kinds of layers alternate, `turns` consecutive layers together count as one layer.

    Attributes
    ----------
    container : str
        Path of the module that contains the layers.
    layers : tuple of (tuple of BoundSymbol)
        Statements of each layer, in execution order.
    private : tuple of (tuple of str)
        For each layer, the names of the program's arguments that only this layer reads. Arguments at the same position
        correspond.
    turns : int
        Number of the container's layers that count as one layer.
    all : int
        Number of layers in the container.
    """

    container: str
    layers: tuple[tuple[Any, ...], ...]
    private: tuple[tuple[str, ...], ...]
    turns: int
    all: int

    @property
    def left_out(self) -> range:
        """Indices in `layers` of the layers that `LayerPartition.reduce` leaves out."""
        return range(KEPT, len(self.layers) - KEPT)


@dataclasses.dataclass(frozen=True)
class ReducedTrace:
    """The trace of a program without the middle layers of a run.

    Attributes
    ----------
    program : TraceCtx
        Trace of the whole program.
    trace : TraceCtx
        Trace without the layers of `run.left_out`.
    run : LayerRun
    former : tuple, optional
        Names in an earlier joint trace, if later traces lack them: the result of `TraceExpander.read_names`.
    """

    program: TraceCtx
    trace: TraceCtx
    run: LayerRun
    former: tuple[Sequence[str], Mapping[str, str], Mapping[str, int]] | None = None

    def __str__(self) -> str:
        return f"{len(self.run.left_out) * self.run.turns} of {self.run.all} {self.run.container}"


class LayerPartition:
    """The numbered layers of a program, grouped by the module that contains them.

    Two layers are identical if their statements are identical, one by one. Identical statements have the same
    operation, constants, shapes, data types and devices, and read corresponding values of their own layer. Writes in
    place and random draws are compared like other statements.

    In a run, if a layer reads a value of the layer before it, the next layer reads the value at the same position of
    its own predecessor. If a layer reads an argument that no other layer reads, the next layer reads such an argument
    of its own at the same place. All other values that a layer reads are the same in all layers. A first layer that
    reads the program's inputs instead of the results of a predecessor is not part of a run.

    Parameters
    ----------
    program : TraceCtx
        Trace whose statements have origins from `tag_origins`.
    origins : sequence of Origin
        Second result of `tag_origins`.
    """

    def __init__(self, program: TraceCtx, origins: Sequence[Origin]) -> None:
        self._program = program
        self._origins = origins
        self._readers = _readers(program)

    def reduce(self) -> ReducedTrace | None:
        """Return the program without the middle layers of a run, or None if no layer can be left out."""
        program = self._program
        if not all(type(proxy) is TensorProxy for bsym in program.bound_symbols for proxy in bsym.flat_proxy_outs):
            return None
        for container, layers in _containers(program, self._origins, WORTHWHILE):
            for run in self._runs(container, self._with_gathers(list(layers.values()))):
                with contextlib.suppress(LayerMismatch):
                    return ReducedTrace(program, _remove_layers(program, run), run)
        return None

    def _with_gathers(self, layers: Sequence[list[Any]]) -> list[list[Any]]:
        """Append to each layer the statements that gather parameters which only this layer reads."""
        owner = {identity(bsym): at for at, layer in enumerate(layers) for bsym in layer}
        own: list[list[Any]] = [[] for _ in layers]
        for bsym in reversed(self._program.bound_symbols):
            if gathered_argument(bsym) is None:
                continue
            readers = {owner.get(each, -1) for out in bsym.flat_proxy_outs for each in self._readers.get(out.name, ())}
            if len(readers) == 1 and (at := readers.pop()) >= 0:
                owner[identity(bsym)] = at
                own[at].append(bsym)
        return [[*layer, *reversed(gathers)] for layer, gathers in zip(layers, own, strict=True)]

    @cached_property
    def differences(self) -> Mapping[str, str]:
        """Maps the path of each layer that differs from the previous layer to a text with the first difference.

        A layer inside another layer has no entry.
        """
        found: dict[str, str] = {}
        for container, layers in _containers(self._program, self._origins, 2, between=False):
            if any(part.isdecimal() for part in container.split(".")):
                continue
            home = _homes(list(layers.values()))
            for at, (one, other) in enumerate(itertools.pairwise(layers)):
                try:
                    _compare(layers[one], layers[other], at, home)
                except LayerMismatch as mismatch:
                    found[f"{container}.{other}" if container else other] = str(mismatch)
        return found

    def _runs(self, container: str, layers: Sequence[list[Any]]) -> list[LayerRun]:
        """Return the runs of a container, sorted by the number of layers that can be left out, largest first."""
        found: list[LayerRun] = []
        for turns in range(1, MOST_IN_TURNS + 1):
            # Try several first layers, because the layers at the beginning may differ from all others.
            for begun in range(turns):
                groups = [layers[:begun], *(layers[at : at + turns] for at in range(begun, len(layers), turns))]
                joined = [[bsym for layer in group for bsym in layer] for group in groups if group]
                if len(joined) < WORTHWHILE:
                    continue
                run = _longest_run(container, joined, self._readers, turns, len(layers))
                if run is not None:
                    found.append(run)
            if any(2 * len(run.left_out) * run.turns > len(layers) for run in found):
                break
        return sorted(found, key=lambda run: -len(run.left_out) * run.turns)


def _readers(program: TraceCtx) -> Mapping[str, list[int]]:
    """Map the name of each value to the `identity` of the statements that read it. The `return` does not count."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for bsym in program.bound_symbols:
        if bsym.sym.id is not PrimIDs.RETURN:
            for arg in bsym.flat_proxy_args:
                found[arg.name].append(identity(bsym))
    return found


def _containers(
    program: TraceCtx, origins: Sequence[Origin], least: int, *, between: bool = True
) -> Iterator[tuple[str, Mapping[str, list[Any]]]]:
    """Yield the path of each module with at least `least` numbered layers, and a map from layer number to statements.

    Modules with the most statements come first. If `between` is True, statements between two layers belong to the first
    of the two layers.
    """
    statements = [bsym for bsym in program.bound_symbols if origin_of(bsym) >= 0]
    parts = [origins[origin_of(bsym)].scope.split(".") for bsym in statements]
    counts: Counter[str] = Counter()
    for path in parts:
        counts.update(".".join(path[:at]) for at, part in enumerate(path) if part.isdecimal())
    for container, _ in counts.most_common():
        depth = container.count(".") + 1 if container else 0
        prefix = container.split(".") if container else []
        layers: dict[str, list[Any]] = {}
        last, since = "", list[Any]()
        for bsym, path in zip(statements, parts, strict=True):
            inside = len(path) > depth and path[:depth] == prefix and path[depth].isdecimal()
            if not inside:
                if layers and between:
                    since.append(bsym)
                continue
            number = path[depth]
            if number != last and number in layers:
                break  # the layer is called twice, or interleaved with other layers
            if layers:
                layers[last].extend(since)
            layers.setdefault(number, []).append(bsym)
            last, since = number, []
        else:
            if len(layers) >= least:
                yield container, layers


def _homes(layers: Sequence[Sequence[Any]]) -> Mapping[str, tuple[int, int]]:
    """Map the name of each value that a layer makes to the layer's index and the value's position in the layer."""
    return {
        out.name: (at, place)
        for at, layer in enumerate(layers)
        for place, out in enumerate(out for bsym in layer for out in bsym.flat_proxy_outs)
    }


def _longest_run(
    container: str, layers: Sequence[Sequence[Any]], readers: Mapping[str, list[int]], turns: int, of_all: int
) -> LayerRun | None:
    """Return the longest run of identical layers, or None if it has fewer than `WORTHWHILE` layers."""
    home = _homes(layers)
    best: tuple[int, list[dict[str, str]]] = (0, [])
    begun, pairs = 0, list[dict[str, str]]()
    for at in range(len(layers) - 1):
        try:
            given = _private_arguments(layers[at], layers[at + 1], at, home, readers)
        except LayerMismatch:
            begun, pairs = at + 1, []
            continue
        if pairs and list(given) != list(pairs[-1].values()):
            begun, pairs = at, []
        pairs.append(given)
        if len(pairs) > len(best[1]):
            best = begun, list(pairs)
    begun, pairs = best
    if len(pairs) + 1 < WORTHWHILE:
        return None
    return LayerRun(
        container=container,
        layers=tuple(tuple(layer) for layer in layers[begun : begun + len(pairs) + 1]),
        private=(tuple(pairs[0]), *(tuple(pair.values()) for pair in pairs)),
        turns=turns,
        all=of_all,
    )


def _compare(layer: Sequence[Any], next_layer: Sequence[Any], index: int, home: Mapping[str, tuple[int, int]]) -> None:
    """Check that layer `index` and the next layer have equal statements that read corresponding values of their layer.

    Raises
    ------
    LayerMismatch
        If the layers differ.
    """
    shift = origin_of(next_layer[0]) - origin_of(layer[0])
    for a, b in zip(layer, next_layer, strict=False):
        if not is_like(a, b):
            raise LayerMismatch(difference(a, b))
        if origin_of(b) != (origin_of(a) + shift if origin_of(a) >= 0 else -1):
            raise LayerMismatch(f"{_name(b)} from another line or module of the layer")
        for x, y in zip(a.flat_proxy_args, b.flat_proxy_args, strict=True):
            there, here = home.get(x.name), home.get(y.name)
            if there is not None and there[0] == index and here != (index + 1, there[1]):
                raise LayerMismatch(f"{_name(b)} reads another value")
    if len(layer) > len(next_layer):
        raise LayerMismatch(f"no {_name(layer[len(next_layer)])} at its end")
    if len(layer) < len(next_layer):
        raise LayerMismatch(f"{_name(next_layer[len(layer)])} at its end")


def _private_arguments(
    layer: Sequence[Any],
    next_layer: Sequence[Any],
    index: int,
    home: Mapping[str, tuple[int, int]],
    readers: Mapping[str, list[int]],
) -> dict[str, str]:
    """Map the arguments that only `layer` reads to the corresponding arguments that only `next_layer` reads.

    Raises
    ------
    LayerMismatch
        If the layers differ, or if they read values at different positions of the layers before them. A value from
        elsewhere must be the same in both layers, or an argument of the program that only its own layer reads.
    """
    _compare(layer, next_layer, index, home)
    given = dict[str, str]()
    inside = set(map(identity, layer)), set(map(identity, next_layer))
    for a, b in zip(layer, next_layer, strict=True):
        for x, y in zip(a.flat_proxy_args, b.flat_proxy_args, strict=True):
            there, here = home.get(x.name), home.get(y.name)
            if there is not None and there[0] in (index - 1, index):
                if here != (there[0] + 1, there[1]):
                    raise LayerMismatch(f"{_name(b)} reads another value of the layer before")
            elif x.name != y.name:
                # Both values must be arguments of the program that only statements of their own layer read.
                alone = inside[0].issuperset(readers[x.name]) and inside[1].issuperset(readers[y.name])
                if there is not None or here is not None or given.setdefault(x.name, y.name) != y.name or not alone:
                    raise LayerMismatch(f"{_name(b)} of a value that others read, too")
    if len(set(given.values())) != len(given):
        raise LayerMismatch("one argument in place of two")
    return given


def _name(bsym: Any) -> str:
    return str(bsym.sym.name)


def difference(a: Any, b: Any) -> str:
    """Return a text for messages with the first difference of statement `b` from statement `a`, apart from names."""
    if a.sym != b.sym:
        return f"{_name(b)} in place of {_name(a)}"
    sides = ((a.flat_proxy_args, b.flat_proxy_args), (a.flat_proxy_outs, b.flat_proxy_outs))
    for x, y in (pair for these, those in sides for pair in zip(these, those, strict=False)):
        if not _like_proxies(x, y):
            old, new = _traits(x), _traits(y)
            changed = [at for at, (before, now) in enumerate(zip(old, new, strict=True)) if before != now]
            if changed:
                here, there = (", ".join(traits[at] for at in changed) for traits in (new, old))
                return f"{_name(b)} of {here} in place of {there}"
    for x, y in zip(a.flat_args, b.flat_args, strict=False):
        if not isinstance(x, Proxy) and not isinstance(y, Proxy) and not _like_trees(x, y):
            return f"{_name(b)} of {y} in place of {x}"
    return f"{_name(b)} of other arguments"


def _traits(proxy: Any) -> tuple[str, ...]:
    if not isinstance(proxy, TensorProxy):
        return (type(proxy).__name__, "", "", "")
    grads = "a tensor with a gradient" if proxy.requires_grad else "one without"
    return str(tuple(proxy.shape)), str(proxy.dtype).rpartition(".")[2], proxy.device.device_str(), grads


def is_like(a: Any, b: Any) -> bool:
    """Return whether two statements, including their subsymbols, are equal except for the names of values."""
    if a is b:
        return True
    if a.sym is not b.sym and a.sym != b.sym:
        return False
    given, made = (a.flat_proxy_args, b.flat_proxy_args), (a.flat_proxy_outs, b.flat_proxy_outs)
    for these, those in (given, made):
        if len(these) != len(those) or not all(map(_like_proxies, these, those)):
            return False
    if structure_of(a) is structure_of(b):
        return True
    return (
        _like_trees(a.args, b.args)
        and _like_trees(a.kwargs, b.kwargs)
        and _like_trees(a.output, b.output)
        and len(a.subsymbols) == len(b.subsymbols)
        and all(map(is_like, a.subsymbols, b.subsymbols))
    )


def _like_proxies(x: Any, y: Any) -> bool:
    if type(x) is not type(y) or type(x) not in (TensorProxy, FutureTensorProxy):
        return False
    return all(x.__dict__.get(name) == y.__dict__.get(name) for name in TOLD_APART_BY)


def _like_trees(x: Any, y: Any) -> bool:
    if type(x) is not type(y):
        return False
    if isinstance(x, Proxy):
        return True  # `is_like` has already compared the proxies
    if isinstance(x, tuple | list):
        return len(x) == len(y) and all(map(_like_trees, x, y))
    if isinstance(x, dict):
        return list(x) == list(y) and all(_like_trees(x[name], y[name]) for name in x)
    if isinstance(x, float | complex):
        return repr(x) == repr(y)
    return x is y or bool(x == y)


def _remove_layers(program: TraceCtx, run: LayerRun) -> TraceCtx:
    """Return the program without the layers of `run.left_out`.

    Raises
    ------
    LayerMismatch
        If a remaining statement still reads a result or a private argument of a removed layer.
    """
    gone = {identity(bsym) for at in run.left_out for bsym in run.layers[at]}
    lost = {out.name for at in run.left_out for bsym in run.layers[at] for out in bsym.flat_proxy_outs}
    private = {name for at in run.left_out for name in run.private[at]}
    # The layer after the gap now reads the results of the layer before the gap.
    after = run.left_out.stop
    pairs = zip(_outs(run.layers[after - 1]), _outs(run.layers[KEPT - 1]), strict=True)
    renamed = {variableify(old): new for old, new in pairs}
    reader = {identity(bsym) for bsym in run.layers[after]}
    left = from_trace(program)
    for bsym in program.bound_symbols:
        if identity(bsym) in gone:
            continue
        if bsym.sym.id is PrimIDs.UNPACK_TRIVIAL and any(out.name in private for out in bsym.flat_proxy_outs):
            continue
        if bsym.sym.id is PrimIDs.RETURN:
            bsym = return_without(bsym, private)
        if identity(bsym) in reader:
            bsym = bsym.from_bsym_swap_proxies(renamed)
        if any(arg.name in lost or arg.name in private for arg in bsym.flat_proxy_args):
            raise LayerMismatch(
                f"{_name(bsym)} reads a value of a removed layer, but is not in the layer after the gap"
            )
        left.bound_symbols.append(bsym)
    left.args = tuple(arg for arg in program.args if arg.name not in private)
    left._siginfo = copy.copy(program.siginfo())
    left._siginfo.args = [arg for arg in left._siginfo.args if arg[0] not in private]
    return left


def _outs(layer: Sequence[Any]) -> list[Any]:
    return [out for bsym in layer for out in bsym.flat_proxy_outs]


def return_without(bsym: Any, private: Set[str]) -> Any:
    """Return a program's return statement without the arguments in `private` and without their gradients.

    Raises
    ------
    LayerMismatch
        If the statement does not have the form of Thunder's return statements.
    """
    if len(bsym.args) != 1 or not isinstance(bsym.args[0], dict) or "flat_args" not in bsym.args[0]:
        raise LayerMismatch("the program's return statement does not have the form of Thunder's")
    given = bsym.args[0]
    stay = [getattr(arg, "name", None) not in private for arg in given["flat_args"]]
    left = dict(given)
    left["flat_args"] = [arg for arg, here in zip(given["flat_args"], stay, strict=True) if here]
    if "fw_flat_out" in given:
        # In a joint trace, `output` has one gradient for each argument.
        left["output"] = tuple(each for each, here in zip(given["output"], stay, strict=True) if here)
    return bsym.from_bsym(args=(left,))
