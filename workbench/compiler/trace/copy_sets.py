"""In-place copies in fusions: find the copies that need a `set`, and keep the copies that Thunder's passes would lose.

To write an output into an input's memory, nvFuser aliases the output to the input. nvFuser's map of aliases has one
destination for each output value. Therefore a value can be aliased only once. Inputs and returned values cannot be
aliased. A copy of a value that cannot be aliased needs a `set`: an additional node, which makes a new value to be
aliased. Thunder inserts a `set` before every copy, but most copies do not need it.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

from workbench.compiler.interop.thread_patches import ThreadPatches, wrap_function
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    BoundSymbolTag,
    Proxy,
    TraceCtx,
    from_trace,
    prims,
    tracectx,
    variableify,
)
from workbench.compiler.trace.bsym_memo import structure_of
from workbench.compiler.trace.segments import segments_of

ALWAYS, NEVER, DIRECT_ONLY, ALIAS_AWARE = "always", "never", "direct_only", "alias_aware"
POLICIES = (ALWAYS, NEVER, DIRECT_ONLY, ALIAS_AWARE)
"""Policies that select the copies with a `set`. ``always`` selects all copies, as stock Thunder does. ``never`` selects
no copy. ``direct_only`` selects copies whose value is an input of the fusion. ``alias_aware`` selects copies that would
be wrong without a `set`.
"""

VIEWS = {
    prims.PrimIDs.SHALLOW_COPY,
    prims.PrimIDs.RESHAPE,
    prims.PrimIDs.TRANSPOSE,
    prims.PrimIDs.SQUEEZE,
    prims.PrimIDs.BROADCAST_IN_DIM,
    prims.PrimIDs.SLICE,
    prims.PrimIDs.STRIDE_ORDER,
}
"""Operators whose result may share the memory of their first argument."""

_skipped: ContextVar[frozenset[tuple[str, str]]] = ContextVar("copies without a set", default=frozenset())


def leaves(bsyms: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    """Yield the innermost subsymbols of statements, in order. A `copy_` counts as innermost."""
    for bsym in bsyms:
        if bsym.subsymbols and bsym.sym.id is not prims.PrimIDs.COPY_:
            yield from leaves(bsym.subsymbols)
        else:
            yield bsym


def is_copy(bsym: BoundSymbol) -> bool:
    """Return whether a statement is the primitive `copy_`, or an executor's version of this primitive."""
    return bool(bsym.sym.id is prims.PrimIDs.COPY_ or (bsym.sym.name == "copy_" and not bsym.subsymbols))


def is_fence(bsym: BoundSymbol) -> bool:
    """Return whether a statement is the primitive `update_aliases`, or an executor's version of this primitive."""
    return bool(bsym.sym.id is prims.PrimIDs.UPDATE_ALIASES or bsym.sym.name == "update_aliases")


def count_copies_and_fences(bsym: BoundSymbol) -> tuple[int, int]:
    """Return the numbers of in-place copies and of fences in a statement. The statement's `Structure` caches both."""

    def count() -> tuple[int, int]:
        found = list(leaves([bsym]))
        return sum(map(is_copy, found)), sum(map(is_fence, found))

    counted: tuple[int, int] = structure_of(bsym).get_or_make("copies and fences", count)
    return counted


def _may_share_memory(bsym: BoundSymbol) -> bool:
    """Return whether a statement or one of its subsymbols makes values that may share memory.

    The answer is cached with the statement's structure.
    """

    def find() -> bool:
        return any(is_copy(leaf) or is_fence(leaf) or leaf.sym.id in VIEWS for leaf in leaves([bsym]))

    return bool(structure_of(bsym).get_or_make("shares memory", find))


@dataclasses.dataclass(frozen=True)
class CopyFact:
    """One in-place copy inside a fusion.

    Attributes
    ----------
    output, source, destination : str
        Names of the copy's result, of the copied value and of the tensor that is written.
    needs_set : str
        Reason why the copy needs a `set`. Empty if it does not need one.
    direct : bool
        Whether the copied value is an input of the fusion.
    """

    output: str
    source: str
    destination: str
    needs_set: str
    direct: bool


def copy_facts(fusion: BoundSymbol) -> list[CopyFact]:
    """Return a `CopyFact` for each in-place copy of a fusion, in order."""
    if not count_copies_and_fences(fusion)[0]:
        return []
    inputs = {a.name for a in fusion.flat_proxy_args}
    members = list(leaves(fusion.subsymbols))
    # Maps the result of a shallow copy to the name of the copied value. In nvFuser, the result and the copied value are
    # one value.
    same: dict[str, str] = {}
    for member in members:
        if member.sym.id is prims.PrimIDs.SHALLOW_COPY:
            same[member.output.name] = same.get(member.args[0].name, member.args[0].name)
    written = {member.output.name for member in members if is_copy(member)}
    returned = {same.get(o.name, o.name) for o in fusion.flat_proxy_outs if o.name not in written}
    aliased: dict[str, str] = {}
    found = []
    for member in members:
        if not is_copy(member):
            continue
        name, destination = member.args[0].name, member.args[1].name
        source = same.get(name, name)
        needs = ""
        if source in inputs:
            needs = f"{source} is an input of the fusion: an input cannot be written into another input without a copy"
        elif source in returned:
            needs = f"the fusion also returns {source}: the returned tensor would be {destination}'s own memory"
        elif source in aliased:
            needs = (
                f"{source} is already written into {aliased[source]}: nvFuser keeps one destination per value, so "
                "the other write would be lost silently"
            )
        aliased.setdefault(source, destination)
        aliased.setdefault(member.output.name, destination)
        found.append(CopyFact(member.output.name, name, destination, needs, source in inputs))
    return found


def has_set(policy: str, fact: CopyFact) -> bool:
    """Return whether `policy` inserts a `set` before a copy. The copy may be wrong if the policy inserts no `set`."""
    if policy == ALIAS_AWARE:
        return bool(fact.needs_set)
    if policy == DIRECT_ONLY:
        return fact.direct
    return policy == ALWAYS


def copies_without_set(
    fusion: BoundSymbol, policies: Mapping[str, str], *, unchecked: bool = False
) -> frozenset[tuple[str, str]]:
    """Return the (source, destination) of each copy that gets no `set` under `policies`.

    `policies` maps the name of a copy's result to a policy. A copy that would be wrong without a `set` is included only
    if `unchecked` is True.
    """
    return frozenset(
        (fact.source, fact.destination)
        for fact in copy_facts(fusion)
        if not has_set(policies.get(fact.output, ALWAYS), fact) and (unchecked or not fact.needs_set)
    )


@contextlib.contextmanager
def skip_set(pairs: frozenset[tuple[str, str]]) -> Iterator[None]:
    """Return a context in which this thread builds nvFuser definitions without a `set` before some copies.

    `pairs` contains the source and the destination of each of these copies. Thunder's translator to nvFuser inserts a
    `set` before every in-place copy. Remove this function when the translator has an option to omit the `set`.
    """
    token = _skipped.set(pairs)
    try:
        with _sets():
            yield
    finally:
        _skipped.reset(token)


def _nvfuser() -> Any:
    from workbench.compiler.interop.devices import nvfuser_module

    return nvfuser_module()


def _copy_without_set(stock: Any, copy_from: Any, copy_to: Any, *, fd: Any, lc_to_nv_map: Any, **kwargs: Any) -> Any:
    if not omits_set(copy_from.name, copy_to.name):
        return stock(copy_from, copy_to, fd=fd, lc_to_nv_map=lc_to_nv_map, **kwargs)
    getnv = _nvfuser().getnv
    source = getnv(copy_from, fd, lc_to_nv_map)
    fd.add_output(source, alias_input=getnv(copy_to, fd, lc_to_nv_map))
    return source


_sets = ThreadPatches(
    "sets of nvFuser", lambda: [wrap_function(_nvfuser()._translation_map, prims.PrimIDs.COPY_, _copy_without_set)]
)


def omits_set(source: str, destination: str) -> bool:
    """Return whether `skip_set` is active in this thread for the copy of `source` to `destination`."""
    return (source, destination) in _skipped.get()


def may_omit_set() -> bool:
    """Return whether `skip_set` is active in this thread for any copy."""
    return bool(_skipped.get())


def kept_outputs(outputs: list[Any], bsyms: Sequence[BoundSymbol]) -> list[Any]:
    """Return the outputs of a fusion. If the fusion has no outputs, return the result of its last in-place copy.

    Thunder's dead code elimination removes statements without outputs, because `remove_duplicate_number_proxies` calls
    ``all`` on an empty list. It would also remove a fusion that only copies, and the write would be lost. Remove this
    function when ``a[0].add_(b)`` under nvFuser keeps its fusion.
    """
    if outputs:
        return outputs
    return [member.output for member in leaves(bsyms) if is_copy(member)][-1:]


def resolve_destinations(members: Sequence[BoundSymbol], inputs: set[str]) -> list[BoundSymbol]:
    """Rewrite the members of an nvFuser fusion so that every copy writes into an input, and no input is written twice.

    nvFuser accepts only an input as destination. A copy into the result of an earlier copy gets the destination of the
    earlier copy. If several copies write into one input, only the last copy stays. All other copies become shallow
    copies, including copies into values that the fusion computes.
    """
    root: dict[str, Any] = {}
    last: dict[str, int] = {}
    for i, member in enumerate(members):
        if is_copy(member):
            destination = root.get(member.args[1].name, member.args[1])
            root[member.output.name] = destination
            last[destination.name] = i
        elif member.sym.id is prims.PrimIDs.SHALLOW_COPY and member.args[0].name in root:
            root[member.output.name] = root[member.args[0].name]
    resolved = []
    for i, member in enumerate(members):
        if is_copy(member):
            destination = root[member.output.name]
            if destination.name in inputs and last[destination.name] == i:
                resolved.append(member.from_bsym(args=(member.args[0], destination, *member.args[2:])))
            else:
                resolved.append(prims.shallow_copy.bind(member.args[0], output=member.output))
        else:
            resolved.append(member)
    return resolved


class MemoryAliases:
    """Groups of values that may share memory.

    Thunder passes to a fence all values that may be views of each other. Therefore all arguments and outputs of one
    fence are in one group.

    Parameters
    ----------
    bsyms : iterable of BoundSymbol
        Statements in order.
    """

    def __init__(self, bsyms: Iterable[BoundSymbol]) -> None:
        self._root: dict[str, str] = {}
        self._written: list[tuple[int, str]] = []
        for i, bsym in enumerate(bsyms):
            if _may_share_memory(bsym):
                for leaf in leaves([bsym]):
                    self._follow(leaf, i)

    def _follow(self, leaf: BoundSymbol, position: int) -> None:
        if is_copy(leaf):
            base = self.base(leaf.args[1].name)
            self._written.append((position, base))
            self._root[leaf.output.name] = base
        elif is_fence(leaf) and leaf.flat_proxy_args:
            shared = self.base(leaf.flat_proxy_args[0].name)
            for proxy in (*leaf.flat_proxy_args, *leaf.flat_proxy_outs):
                if (base := self.base(proxy.name)) != shared:
                    self._root[base] = shared
        elif leaf.sym.id in VIEWS and leaf.flat_proxy_args:
            for out in leaf.flat_proxy_outs:
                self._root[out.name] = self.base(leaf.flat_proxy_args[0].name)

    def base(self, name: str) -> str:
        """Return the name of the value that represents the group of `name`."""
        passed = []
        while (known := self._root.get(name, name)) != name:
            passed.append(name)
            name = known
        # Shorten the chain for later calls. If a program writes row by row, a chain is as long as the number of rows.
        for each in passed:
            self._root[each] = name
        return name


_WRITES = "writes"


def _writes(bsyms: Iterable[BoundSymbol]) -> bool:
    return any(count_copies_and_fences(bsym)[0] for bsym in bsyms)


class MemoryWrites(MemoryAliases):
    """Writes to memory in a trace with fusions, and their positions.

    Parameters
    ----------
    trace : TraceCtx
    """

    def __init__(self, trace: TraceCtx) -> None:
        writes = any(segment.get_or_make(_WRITES, partial(_writes, segment.bsyms)) for segment in segments_of(trace))
        # In a trace without writes, skip the search for values that share memory.
        super().__init__(trace.bound_symbols if writes else ())
        fusions = ((i, bsym) for i, bsym in enumerate(trace.bound_symbols) if bsym.sym.is_fusion)
        self._position = {bsym: i for i, bsym in fusions} if writes else {}
        # Position and base of each write, in the order of the writes.
        self._written = [(position, self.base(base)) for position, base in self._written]
        self._of_one: dict[str, set[str]] = {base: {base} for _, base in self._written}
        for name in list(self._root):
            if (base := self.base(name)) in self._of_one:
                self._of_one[base].add(name)

    def writes_between(self, producer: BoundSymbol, consumer: BoundSymbol) -> frozenset[str]:
        """Return the names of the values whose memory is written between two fusions, or by one of the two fusions."""
        if not self._written:
            return frozenset()
        first, last = self._position[producer], self._position[consumer]
        begun, ended = (bisect.bisect_left(self._written, (at,)) for at in (first, last + 1))
        bases = {base for _, base in self._written[begun:ended]}
        return frozenset[str]().union(*(self._of_one[base] for base in bases))


def deferred_results(bsyms: Sequence[BoundSymbol], needed: Iterable[str]) -> set[str]:
    """Return the results of in-place statements that Thunder's split would move to the backward.

    `split_into_forward_and_backward` keeps a statement in the forward if the forward later reads the statement's
    result. The function also keeps a copy if the forward later reads the copy's destination by the same name. The
    function misses reads of this memory by other names. Remove this function when
    ``v = t.view(-1); v.copy_(s); return t`` writes in the forward although `s` and `t` are differentiated.

    Parameters
    ----------
    bsyms : sequence of BoundSymbol
        Statements of the joint trace, in order.
    needed : iterable of str
        Names of the values that the forward returns, and the last name of each argument's memory.
    """
    names, found = set(needed), set[str]()
    for bsym in reversed(bsyms):
        if any(out.name in names for out in bsym.flat_proxy_outs) or (is_copy(bsym) and bsym.args[1].name in names):
            names.update(a.name for a in bsym.flat_proxy_args)
        elif count_copies_and_fences(bsym)[0]:
            found.update(out.name for out in bsym.flat_proxy_outs)
    return found


def keep_in_forward(trace: TraceCtx) -> TraceCtx:
    """Replace a fusion by its members if Thunder's split would move a write in the fusion to the backward.

    The split misses a copy inside a fusion if the forward reads no output of the fusion. An example is the copy into
    the running statistics in the last batch norm of a program. The split does not miss copies outside of fusions.
    Remove this function when `split_into_forward_and_backward` looks into fusions.
    """
    returned = trace.bound_symbols[-1].args[0]
    if "fw_flat_out" not in returned:
        return trace
    names = {a.name for part in ("fw_flat_out", "flat_args") for a in returned[part] if isinstance(a, Proxy)}
    made = Counter(out.name for bsym in trace.bound_symbols for part in _parts(bsym) for out in part.flat_proxy_outs)
    edited = from_trace(trace)
    edited.names = set(trace.names)
    found = [trace.bound_symbols[-1]]
    for bsym in reversed(trace.bound_symbols[:-1]):
        read = any(out.name in names for out in bsym.flat_proxy_outs)
        parts = [bsym]
        if bsym.sym.is_fusion and not read and any(map(_copies_in_forward, bsym.subsymbols)):
            parts = _open_fusion(bsym, {name for name, times in made.items() if times > 1}, edited)
        for part in reversed(parts):
            found.append(part)
            if any(o.name in names for o in part.flat_proxy_outs) or (is_copy(part) and part.args[1].name in names):
                names.update(a.name for a in part.flat_proxy_args)
    edited.bound_symbols = found[::-1]
    return edited


def _parts(bsym: BoundSymbol) -> Sequence[BoundSymbol]:
    return bsym.subsymbols if bsym.sym.is_fusion else (bsym,)


def _copies_in_forward(member: BoundSymbol) -> bool:
    return BoundSymbolTag.BACKWARD not in member.tags and any(map(is_copy, leaves([member])))


def _open_fusion(fusion: BoundSymbol, used_names: set[str], trace: TraceCtx) -> list[BoundSymbol]:
    """Return the members of a fusion. Rename an intermediate value if its name is in `used_names`."""
    handed = {proxy.name for proxy in (*fusion.flat_proxy_args, *fusion.flat_proxy_outs)}
    swap = {}
    with tracectx(trace):
        for member in fusion.subsymbols:
            for out in member.flat_proxy_outs:
                if out.name in used_names and out.name not in handed and variableify(out) not in swap:
                    swap[variableify(out)] = out.replace_name()
    return [member.from_bsym_swap_proxies(swap) if swap else member for member in fusion.subsymbols]
