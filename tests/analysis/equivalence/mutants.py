"""Make and run random mutants of traces. A mutant has one change. The proof must refuse a mutant with wrong results."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from workbench.bench import Workbench
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    NumberProxy,
    Proxy,
    TensorProxy,
    TraceCtx,
    from_trace,
    prims,
    tracectx,
    tree_flatten,
    tree_map,
    variableify,
)
from workbench.compiler.memory.fake_execution import claim, source
from workbench.compiler.memory.graph_builder import read_execution
from workbench.compiler.trace.stable_ids import is_statement
from workbench.core.graph import Graph

_UNSAID = ("python_del", "clear_mutable_collection")


@dataclasses.dataclass
class Step:
    """The statements of a forward trace and, if it exists, of the backward trace, as lists that can be edited."""

    forward: list[BoundSymbol]
    backward: list[BoundSymbol] | None
    _traces: tuple[TraceCtx, TraceCtx | None]

    @classmethod
    def of(cls, bench: Workbench) -> Step:
        """Return the step of the bench's current plan."""
        split = bench.plan.split
        sides = [None if side is None else _kept(side) for side in (split.forward, split.backward)]
        assert sides[0] is not None
        return cls(sides[0], sides[1], (split.forward, split.backward))

    def copied(self) -> Step:
        """Return a step with new lists of the same statements. An edit of these lists leaves this step unchanged."""
        return Step(list(self.forward), None if self.backward is None else list(self.backward), self._traces)

    def sides(self) -> list[list[BoundSymbol]]:
        """Return the forward's statements and, if it exists, the backward's statements."""
        return [self.forward] if self.backward is None else [self.forward, self.backward]

    def traces(self) -> tuple[TraceCtx, TraceCtx | None]:
        """Return the statements as traces."""
        made: list[TraceCtx | None] = []
        for trace, statements in zip(self._traces, (self.forward, self.backward), strict=True):
            if trace is None or statements is None:
                made.append(None)
                continue
            again = from_trace(trace)
            again.names = set(trace.names)
            again.bound_symbols = statements
            made.append(again)
        assert made[0] is not None
        return made[0], made[1]

    def graph(self, bench: Workbench) -> Graph:
        """Return the graph tables that the prover compares."""
        return read_execution(*self.traces(), bench._captured.context)


def _kept(trace: TraceCtx) -> list[BoundSymbol]:
    return [bsym for bsym in trace.bound_symbols if bsym.sym.name not in _UNSAID]


# Run a step.


def run(step: Step, arguments: Mapping[str, torch.Tensor], seed: int) -> list[Any]:
    """Run a step. Return outputs, gradients, arguments after forward and backward, and the random generator's state."""
    torch.manual_seed(seed)
    own: dict[str, Any] = _copied(arguments)
    names = dict(own)
    with torch.no_grad():
        returned = _executed(step.forward, names)
        left = [leaf.clone() for leaf in own.values()]
        if step.backward is None:
            found = [*_leaves(returned)]
        else:
            outcome, (saved, others) = returned
            outputs = outcome["flat_output"]
            found = [leaf.clone() for leaf in _leaves(outputs)]
            # Each output gets its own cotangent.
            cotangents = [_cotangent(o, i) for i, o in enumerate(outputs)]
            given = {"saved_for_backward": [list(saved), list(others)], "cotangents": cotangents}
            gradients = _executed(step.backward, dict(given))
            found += list(tree_flatten(gradients)[0])
    return [*found, *left, *own.values(), torch.get_rng_state()]


def _cotangent(output: torch.Tensor, place: int) -> torch.Tensor:
    slope = torch.linspace(0.5 + place, 1.5 + place, output.numel()).reshape(output.shape)
    return slope.to(output.dtype)


def _copied(arguments: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return copies of the arguments. Arguments of equal shape that share a storage get the same copy."""
    storages: dict[int, torch.Tensor] = {}
    made: dict[str, Any] = {}
    for name, tensor in arguments.items():
        whole = storages.setdefault(tensor.untyped_storage()._cdata, tensor.detach().clone())
        made[name] = whole if whole.shape == tensor.shape else tensor.detach().clone()
    return made


def _leaves(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def _executed(statements: Sequence[BoundSymbol], names: dict[str, Any]) -> Any:
    for bsym in statements:
        if bsym.sym.id is prims.PrimIDs.RETURN:
            return tree_map(lambda leaf: names[leaf.name] if isinstance(leaf, Proxy) else leaf, bsym.args)
        if bsym.sym.id is prims.PrimIDs.UNPACK_TRIVIAL:
            names.update({p.name: p.value for p in bsym.flat_proxy_outs if isinstance(p, NumberProxy)})
        elif bsym.sym.is_fusion:
            inside = {arg.name: names[arg.name] for arg in bsym.flat_proxy_args}
            for member in bsym.subsymbols:
                _execute(member, inside)
            names.update({out.name: inside[out.name] for out in bsym.flat_proxy_outs})
        elif bsym.sym.id is not prims.PrimIDs.COMMENT:
            _execute(bsym, names)
    raise AssertionError("a trace returns")


def _execute(bsym: BoundSymbol, names: dict[str, Any]) -> None:
    inside = (claim(bsym) or bsym.subsymbols) if bsym.sym.executor is None and bsym.sym.python_impl is None else ()
    for part in inside:
        _execute(part, names)
    if inside:
        return
    text, namespace = source(bsym)
    namespace.update({arg.name: names[arg.name] for arg in bsym.flat_proxy_args if arg.name in names})
    exec(text, namespace)
    names.update({out.name: namespace[out.name] for out in bsym.flat_proxy_outs})


def same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether two runs gave tensors of equal shapes, data types and values. A NaN equals only a NaN."""
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if isinstance(a, torch.Tensor) != isinstance(b, torch.Tensor):
            return False
        if isinstance(a, torch.Tensor) and not (
            a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | (a.isnan() & b.isnan())).all())
        ):
            return False
    return True


# Mutate a step. Each mutation returns whether it found a statement to change.


@dataclasses.dataclass(frozen=True)
class Place:
    """A statement, or a member of a fusion, that a mutation may change."""

    statements: list[BoundSymbol]
    at: int
    member: int = -1

    @property
    def bsym(self) -> BoundSymbol:
        """Return this statement or member."""
        whole = self.statements[self.at]
        return whole if self.member < 0 else whole.subsymbols[self.member]

    def put(self, *instead: BoundSymbol) -> None:
        """Replace the statement by other statements."""
        if self.member < 0:
            self.statements[self.at : self.at + 1] = instead
            return
        whole = self.statements[self.at]
        members = list(whole.subsymbols)
        members[self.member : self.member + 1] = instead
        self.statements[self.at] = whole.from_bsym(subsymbols=members)

    def group(self) -> list[BoundSymbol]:
        """Return the statements of the fusion that has this member, or of the trace that has this statement."""
        return list(self.statements if self.member < 0 else self.statements[self.at].subsymbols)


def places(step: Step) -> list[Place]:
    """Return all places that a mutation may change."""
    found = []
    for statements in step.sides():
        for at, bsym in enumerate(statements):
            if not is_statement(bsym):
                continue
            if bsym.sym.is_fusion:
                found += [Place(statements, at, i) for i in range(len(bsym.subsymbols))]
            else:
                found.append(Place(statements, at))
    return found


def _tensors(bsym: BoundSymbol) -> list[TensorProxy]:
    return [arg for arg in bsym.flat_args if isinstance(arg, TensorProxy)]


def _like(one: TensorProxy, other: TensorProxy) -> bool:
    return tuple(one.shape) == tuple(other.shape) and one.dtype == other.dtype and one.name != other.name


def _instead(bsym: BoundSymbol, place: int, proxy: Any) -> BoundSymbol:
    """Return the statement after replacing the argument at index `place` by `proxy`."""
    flat, spec = tree_flatten((bsym.args, bsym.kwargs))
    flat = list(flat)
    flat[place] = proxy
    args, kwargs = spec.unflatten(flat)
    return _alone(bsym.from_bsym(args=args, kwargs=kwargs), bsym)


def _alone(changed: BoundSymbol, before: BoundSymbol) -> BoundSymbol:
    """Return the changed statement after making the same change in its subsymbols."""
    if not changed.subsymbols:
        return changed
    swap = {
        variableify(old): new
        for old, new in zip(before.flat_args, changed.flat_args, strict=True)
        if isinstance(old, Proxy) and old is not new
    }
    return changed.from_bsym(
        subsymbols=[sub.from_bsym_swap_proxies(swap, skip_output=True) for sub in changed.subsymbols]
    )


def _known_before(step: Step, place: Place) -> list[TensorProxy]:
    """Return the tensors that the statement could read: inputs of its fusion, and results of earlier statements."""
    known: dict[str, TensorProxy] = {}
    whole = place.statements[place.at]
    if place.member >= 0:
        known.update((a.name, a) for a in _tensors(whole))
        made = whole.subsymbols[: place.member]
    else:
        made = place.statements[: place.at]
    for bsym in made:
        known.update((o.name, o) for o in bsym.flat_proxy_outs if isinstance(o, TensorProxy))
    return list(known.values())


def other_operand(step: Step, rng: random.Random) -> bool:
    """Replace a tensor argument of a statement by another tensor of the same shape and data type, such as an alias."""
    place = rng.choice(places(step))
    flat = tree_flatten((place.bsym.args, place.bsym.kwargs))[0]
    at = [i for i, leaf in enumerate(flat) if isinstance(leaf, TensorProxy)]
    if not at:
        return False
    i = rng.choice(at)
    others = [t for t in _known_before(step, place) if _like(t, flat[i])]
    if not others:
        return False
    place.put(_instead(place.bsym, i, rng.choice(others)))
    return True


def swapped_operands(step: Step, rng: random.Random) -> bool:
    """Swap the two tensor arguments of a statement."""
    fitting = [
        place
        for place in places(step)
        if len(t := _tensors(place.bsym)) == 2 and len(place.bsym.flat_proxy_args) == 2 and _like(t[0], t[1])
    ]
    if not fitting:
        return False
    place = rng.choice(fitting)
    flat = tree_flatten((place.bsym.args, place.bsym.kwargs))[0]
    one, other = (i for i, leaf in enumerate(flat) if isinstance(leaf, TensorProxy))
    turned = _instead(place.bsym, one, flat[other])
    if turned.subsymbols:
        return False
    place.put(_instead(turned, other, flat[one]))
    return True


def other_constant(step: Step, rng: random.Random) -> bool:
    """Change a floating-point constant in the arguments of a statement."""
    fitting = []
    for place in places(step):
        for i, leaf in enumerate(tree_flatten((place.bsym.args, place.bsym.kwargs))[0]):
            if isinstance(leaf, float) and (place.bsym.sym.executor is not None or not place.bsym.subsymbols):
                fitting.append((place, i, leaf))
    if not fitting:
        return False
    place, i, number = rng.choice(fitting)
    place.put(_instead(place.bsym, i, number * 0.75 + 0.0625))
    return True


def moved(step: Step, rng: random.Random) -> bool:
    """Move a copy, a statement that reads tensors, or a random draw to an earlier or later position."""
    kinds: Sequence[Callable[[BoundSymbol], bool]] = (
        _writes,
        lambda b: bool(_tensors(b)),
        lambda b: b.sym.name == "uniform",
    )
    kind = rng.choice(kinds)
    fitting = [place for place in places(step) if kind(place.bsym)]
    if not fitting:
        return False
    place = rng.choice(fitting)
    group = place.group()
    at = place.at if place.member < 0 else place.member
    bsym = group[at]
    reads = {a.name for a in bsym.flat_proxy_args}
    makes = {o.name for o in bsym.flat_proxy_outs}
    stays = [not is_statement(b) for b in group]
    made_by = [bool(reads & {o.name for o in b.flat_proxy_outs}) for b in group]
    read_by = [bool(makes & {a.name for a in b.flat_proxy_args}) for b in group]
    low = max((i + 1 for i in range(at) if made_by[i] or stays[i]), default=0)
    high = min((i for i in range(at + 1, len(group)) if read_by[i] or stays[i]), default=len(group))
    targets = [i for i in range(low, high) if i != at]
    if not targets:
        return False
    target = rng.choice(targets)
    group.insert(target, group.pop(at))
    if place.member < 0:
        place.statements[:] = group
    else:
        place.statements[place.at] = place.statements[place.at].from_bsym(subsymbols=group)
    return True


def _writes(bsym: BoundSymbol) -> bool:
    return bsym.sym.name == "copy_" or any(map(_writes, bsym.subsymbols))


def dropped(step: Step, rng: random.Random) -> bool:
    """Delete a copy or a fence. Readers of its result then read the copy's destination or the fence's inputs."""
    fitting = [place for place in places(step) if place.bsym.sym.name in ("copy_", "update_aliases")]
    if not fitting:
        return False
    place = rng.choice(fitting)
    bsym = place.bsym
    given = bsym.args[1:2] if bsym.sym.name == "copy_" else bsym.flat_proxy_args
    swap = {variableify(o): g for o, g in zip(bsym.flat_proxy_outs, given, strict=True)}
    if place.member >= 0 and any(variableify(o) in swap for o in place.statements[place.at].flat_proxy_outs):
        return False
    place.put()
    for statements in step.sides():
        for i, other in enumerate(statements):
            if any(variableify(a) in swap for a in other.flat_proxy_args) or other.sym.is_fusion:
                statements[i] = other.from_bsym_swap_proxies(swap, skip_output=True)
    return True


def drawn_again(step: Step, rng: random.Random) -> bool:
    """Repeat a random draw, and let one statement read the new numbers in place of the old ones."""
    draws = [p for p in places(step) if p.bsym.sym.name == "uniform" and p.member < 0]
    fitting = [(p, o) for p in draws for o in p.bsym.flat_proxy_outs]
    if not fitting:
        return False
    place, drawn = rng.choice(fitting)
    readers = [
        (statements, i)
        for statements in step.sides()
        for i, b in enumerate(statements)
        if is_statement(b) and not b.sym.is_fusion and any(a.name == drawn.name for a in b.flat_proxy_args)
    ]
    if not readers:
        return False
    statements, i = rng.choice(readers)
    with tracectx(TraceCtx(None)):
        again = drawn.replace_name("again")
    statements[i] = statements[i].from_bsym_swap_proxies({variableify(drawn): again}, skip_output=True)
    statements.insert(i, place.bsym.from_bsym(output=again))
    return True


def other_ends(step: Step, rng: random.Random) -> bool:
    """Swap two outputs, or two values that the forward passes to the backward."""
    statements = rng.choice(step.sides())
    returned = statements[-1]
    flat = tree_flatten((returned.args, returned.kwargs))[0]
    tensors = [i for i, leaf in enumerate(flat) if isinstance(leaf, TensorProxy)]
    pairs = [(i, j) for i in tensors for j in tensors if i < j and _like(flat[i], flat[j])]
    if not pairs:
        return False
    i, j = rng.choice(pairs)
    changed = _instead(_instead(returned, i, flat[j]), j, flat[i])
    statements[-1] = changed
    return True


MUTATIONS: tuple[Callable[[Step, random.Random], bool], ...] = (
    other_operand,
    swapped_operands,
    other_constant,
    moved,
    dropped,
    drawn_again,
    other_ends,
)


def mutants(step: Step, rng: random.Random, count: int) -> Iterator[tuple[str, Step]]:
    """Yield pairs: the name of a mutation, and a copy of the step with only this change."""
    made = 0
    for _ in range(20 * count):
        changed = step.copied()
        mutate = rng.choice(MUTATIONS)
        if mutate(changed, rng):
            made += 1
            yield mutate.__name__, changed
        if made == count:
            return
