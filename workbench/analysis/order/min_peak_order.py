"""Search for the order of statements with the least predicted peak memory. The search needs only a `Graph`.

The forward and the backward, the two sides of a graph, are ordered separately. An order must satisfy constraints that
follow from the graph. A value is made before it is read. A write keeps its order with all other accesses of the same
memory. Random draws keep their order. No statement moves past a collective, a wait, a transfer between GPU and host, or
a statement without outputs.

The live bytes after some statements depend only on the set of these statements, and not on their order. Therefore, the
search examines sets. If there are few possible sets, the search is exact. If there are many, a beam search keeps only
the best sets of each size. The result never has a higher peak memory than the current order.
"""

from __future__ import annotations

import dataclasses
import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.graphs.reorder_graph import reorder_graph, top_rows, with_members
from workbench.analysis.memory.liveness import timeline
from workbench.core.graph import Graph, Kind, StatementFlag, ValueFlag

EXACT_STATES = 4000
"""Largest number of sets that the exact search examines. With more sets, the beam search is used."""

BEAM_STEPS = 400_000
"""Approximate number of statements that a beam search evaluates. The evaluation takes about two seconds."""

WIDEST_BEAM = 32

_MOVABLE = frozenset(map(int, (Kind.OP, Kind.FUSION, Kind.COPY, Kind.FENCE)))
# Convert flags to integers, because `&` on members of an enumeration is slow.
_INPLACE, _RANDOM = int(StatementFlag.INPLACE), int(StatementFlag.RANDOM)
_HELD = ValueFlag.ARGUMENT | ValueFlag.OUTPUT | ValueFlag.GRADIENT


@dataclasses.dataclass(frozen=True)
class StatementReads:
    """The order constraints of one side. A statement is identified by its position in the current order.

    Attributes
    ----------
    rows : (statements,) intp
        Row of each statement in the graph. Members of fusions are not included.
    before : tuple of int
        For each statement, as a bit set, the statements that must come before it. A statement may be missing from the
        set if it must come before another statement of the set.
    clones : tuple of bool
        Whether each statement is a recomputation that a choice has inserted into the backward.
    """

    rows: NDArray[np.intp]
    before: tuple[int, ...]
    clones: tuple[bool, ...]

    @cached_property
    def predecessors(self) -> tuple[list[int], ...]:
        """For each statement, the statements in `before` as a list."""
        return tuple(_bits(before) for before in self.before)

    @cached_property
    def successors(self) -> tuple[list[int], ...]:
        """For each statement, the statements whose sets in `before` contain it."""
        found: tuple[list[int], ...] = tuple([] for _ in self.before)
        for statement, before in enumerate(self.predecessors):
            for one in before:
                found[one].append(statement)
        return found


@dataclasses.dataclass(frozen=True)
class HalfStep(StatementReads):
    """The order constraints of one side, and the effect of each statement on memory.

    Storages are numbered from 0. Only storages that this side allocates or frees are included.

    Attributes
    ----------
    touches : tuple of tuple of int
        For each statement, the storages that it reads, writes or makes.
    touched : tuple of int
        For each storage, as a bit set, the statements that read, write or make it.
    bytes : tuple of int
        Bytes of each storage.
    made, freed : tuple of bool
        Whether this side allocates each storage, and whether this side frees it.
    transient_bytes : tuple of int
        Transient bytes of each statement.
    start_bytes : int
        Bytes of the storages that are alive before the first statement.
    """

    touches: tuple[tuple[int, ...], ...]
    touched: tuple[int, ...]
    bytes: tuple[int, ...]
    made: tuple[bool, ...]
    freed: tuple[bool, ...]
    transient_bytes: tuple[int, ...]
    start_bytes: int

    def step(self, statement: int, done: int) -> tuple[int, int]:
        """Return the bytes that a statement adds while it runs, and the change of the live bytes after the statement.

        `done` is the bit set of the statements that have run before.
        """
        inside, after = self.transient_bytes[statement], 0
        now = done | 1 << statement
        for storage in self.touches[statement]:
            touched = self.touched[storage]
            if self.made[storage] and not touched & done:
                inside += self.bytes[storage]
                after += self.bytes[storage]
            if self.freed[storage] and not touched & ~now:
                after -= self.bytes[storage]
        return inside, after

    def peak_bytes(self, order: Sequence[int]) -> int:
        """Return the most bytes alive at once under an order. Only storages that this side allocates or frees count."""
        live = most = self.start_bytes
        done = 0
        for statement in order:
            inside, after = self.step(statement, done)
            most = max(most, live + inside)
            live += after
            done |= 1 << statement
        return most


@dataclasses.dataclass(frozen=True)
class Ordered:
    """An order of all statements of a graph that are not members of fusions.

    Attributes
    ----------
    order : (statements,) intp
        Rows of the graph in their new order.
    stock_peak_bytes, peak_bytes : int
        Predicted peaks of the complete step, in the graph's own order and in the new order.
    moved : int
        Smallest number of statements that must be moved to get the new order.
    refused : bool
        True if the new order was not used because it has a higher peak memory. `order` is then the graph's own order.
    """

    order: NDArray[np.intp]
    stock_peak_bytes: int
    peak_bytes: int
    moved: int
    refused: bool = False


def order_constraints(graph: Graph, side: int) -> StatementReads:
    """Return the order constraints of one side of an execution graph."""
    statements, rows = graph.statements, rows_of_side(graph, side)
    clones = (statements.flags[rows] & StatementFlag.CLONE) != 0
    return StatementReads(
        rows=rows, before=_predecessor_bits(graph, rows, graph.values.storage.tolist()), clones=tuple(clones.tolist())
    )


def rows_of_side(graph: Graph, side: int) -> NDArray[np.intp]:
    """Return the rows of the statements of one side, without members of fusions."""
    top = top_rows(graph)
    found: NDArray[np.intp] = top[graph.statements.side[top] == side]
    return found


def first_successors(graph: Graph, side: int) -> NDArray[np.intp]:
    """Return, for each statement of a side, the first statement that must come after it.

    A statement is identified by its position. The result is the number of statements if no statement must come after.
    """
    statements, rows = graph.statements, rows_of_side(graph, side)
    flags, count = statements.flags[rows], len(rows)
    if (flags & _INPLACE).any():
        return np.asarray([min(after, default=count) for after in order_constraints(graph, side).successors], np.intp)
    maker, made = statements.outputs.pairs(rows)
    reader, read = statements.inputs.pairs(rows)
    maker_of = np.full(len(graph.values), count)
    np.minimum.at(maker_of, made, maker)
    later = maker_of[read] < reader
    # A barrier is the next statement that must come after each statement in front of it; see `_predecessor_bits`.
    makes = np.bincount(maker, minlength=count) > 0
    barriers = np.flatnonzero(~(makes & np.isin(statements.kind[rows], tuple(_MOVABLE))))
    first = np.append(barriers, count)[np.searchsorted(barriers, np.arange(count), side="right")]
    first[barriers] = barriers + 1
    np.minimum.at(first, maker_of[read[later]], reader[later])
    drawn = np.flatnonzero(flags & _RANDOM)
    first[drawn[:-1]] = np.minimum(first[drawn[:-1]], drawn[1:])
    return first


def half_step_of(graph: Graph, side: int) -> HalfStep:
    """Return the order constraints of one side of an execution graph, and each statement's effect on memory."""
    statements, values = graph.statements, graph.values
    held = order_constraints(graph, side)
    rows = held.rows
    index = {int(row): place for place, row in enumerate(rows)}
    storage = values.storage.tolist()
    touches = [sorted({storage[v] for v in (*statements.inputs[row], *statements.outputs[row])} - {-1}) for row in rows]
    touched: defaultdict[int, int] = defaultdict(int)
    for place, found in enumerate(touches):
        for one in found:
            touched[one] |= 1 << place
    made, freed, alive = _spans(graph, side, index)
    counted = sorted(one for one in touched if made[one] or freed[one])
    place_of = {one: place for place, one in enumerate(counted)}
    return HalfStep(
        rows=rows,
        before=held.before,
        clones=held.clones,
        touches=tuple(tuple(place_of[one] for one in found if one in place_of) for found in touches),
        touched=tuple(touched[one] for one in counted),
        bytes=tuple(int(graph.storages.bytes[one]) for one in counted),
        made=tuple(made[one] for one in counted),
        freed=tuple(freed[one] for one in counted),
        transient_bytes=tuple(int(b) for b in statements.transient_bytes[rows]),
        start_bytes=sum(int(graph.storages.bytes[one]) for one in counted if alive[one]),
    )


def _spans(graph: Graph, side: int, index: dict[int, int]) -> tuple[dict[int, bool], dict[int, bool], dict[int, bool]]:
    """Return three maps from storages: whether a side allocates the storage, frees it, and begins with it alive."""
    statements, values = graph.statements, graph.values
    top = statements.parent < 0
    producers: defaultdict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(top).tolist():
        for value in statements.outputs[row].tolist():
            producers[value].append(row)
    dropped: dict[int, int] = {}
    for row in range(len(statements)):
        for value in statements.frees[row].tolist():
            dropped[value] = row
    on: defaultdict[int, list[int]] = defaultdict(list)
    for value, at in enumerate(values.storage.tolist()):
        if at >= 0:
            on[at].append(value)
    made: dict[int, bool] = {}
    freed: dict[int, bool] = {}
    alive: dict[int, bool] = {}
    for at, held in on.items():
        flags = [int(values.flags[v]) for v in held]
        given = any(f & (ValueFlag.ARGUMENT | ValueFlag.COTANGENT) for f in flags)
        first = min((row for v in held for row in producers[v]), default=-1)
        made[at] = not given and first in index
        living = [v for v in held if producers[v] or values.flags[v] & (ValueFlag.ARGUMENT | ValueFlag.COTANGENT)]
        freed[at] = (
            bool(living)
            and not any(f & _HELD for f in flags)
            and all(v in dropped for v in living)
            and int(statements.side[max(dropped[v] for v in living)]) == side
        )
        alive[at] = not made[at]
    return made, freed, alive


def _predecessor_bits(graph: Graph, rows: NDArray[np.intp], storage: list[int]) -> tuple[int, ...]:
    statements = graph.statements
    before = [0] * len(rows)
    makers: dict[int, int] = {}
    writer: dict[int, int] = {}
    readers: defaultdict[int, int] = defaultdict(int)
    drawn = barrier = -1
    columns = (
        *(ragged.take_rows(rows).lists() for ragged in (statements.inputs, statements.outputs)),
        *(column[rows].tolist() for column in (statements.flags, statements.kind)),
    )
    for place, (reads, makes, flags, kind) in enumerate(zip(*columns, strict=True)):
        bit, fixed = 1 << place, kind not in _MOVABLE or not makes
        for value in reads:
            if value in makers:
                before[place] |= 1 << makers[value]
        # The graph does not say which inputs an in-place statement writes. Assume that it writes all of them.
        memory = {storage[value] for value in reads} - {-1}
        for one in memory:
            if one in writer:
                before[place] |= 1 << writer[one]
        if flags & _INPLACE:
            for one in memory:
                before[place] |= readers.pop(one, 0)
                writer[one] = place
        else:
            for one in memory:
                readers[one] |= bit
        if flags & _RANDOM:
            if drawn >= 0:
                before[place] |= 1 << drawn
            drawn = place
        if barrier >= 0:
            before[place] |= 1 << barrier
        if fixed:
            # This statement is a barrier: it comes after the last barrier, and after all statements between the two.
            before[place] |= bit - (1 << max(0, barrier))
            barrier = place
        for value in makes:
            makers.setdefault(value, place)
        before[place] &= ~bit
    return tuple(before)


def unchanged_order(half: StatementReads) -> list[int]:
    """Return the current order."""
    return list(range(len(half.rows)))


def just_in_time(half: StatementReads) -> list[int]:
    """Return the current order, but run each recomputation right before the first statement that needs it."""
    return order_late(half, unchanged_order(half), {place for place, clone in enumerate(half.clones) if clone})


def order_late(half: StatementReads, order: Sequence[int], members: Collection[int]) -> list[int]:
    """Return `order`, but run each statement in `members` right before the first statement that needs it."""
    return _pull_members(order[::-1], [len(after) for after in half.successors], half.predecessors, members)[::-1]


def are_already_late(first: Sequence[int] | NDArray[np.intp], members: Collection[int]) -> bool:
    """Return whether `order_late` would leave the current order unchanged. `first` is from `first_successors`."""
    before: defaultdict[int, list[int]] = defaultdict(list)
    for member in sorted(members):
        before[int(first[member])].append(member)
    before.pop(len(first), None)
    # Go through the same steps as `_pull_members`, but only from statements that a member comes right before.
    seen: set[int] = set()
    for reader in sorted(before, reverse=True):
        now, stack = reader, [] if reader in seen else [*before[reader]]
        while stack:
            if stack[-1] != now - 1:
                return False
            now = stack.pop()
            seen.add(now)
            stack += before.get(now, ())
    return True


def order_early(half: StatementReads, order: Sequence[int], members: Collection[int]) -> list[int]:
    """Return `order`, but run each statement in `members` right after the last statement that it needs."""
    return _pull_members(order, [len(before) for before in half.predecessors], half.successors, members)


def _pull_members(
    order: Sequence[int], missing: list[int], following: Sequence[list[int]], members: Collection[int]
) -> list[int]:
    """Return `order`, but run each statement in `members` right after the last statement that it needs.

    `order_late` calls this function in reverse, to run each statement right before the first statement that needs it.
    In this call, `order` goes from last to first, and `following` contains the statements that each statement needs.

    Parameters
    ----------
    order : sequence of int
    missing : list of int
        For each statement, the number of statements that it needs. This function changes the list.
    following : sequence of list of int
        For each statement, the statements that need it.
    members : collection of int
    """
    rank = {statement: at for at, statement in enumerate(order)}
    put: set[int] = set()
    found: list[int] = []
    for statement in order:
        stack = [] if statement in put else [statement]
        while stack:
            found.append(now := stack.pop())
            put.add(now)
            ready = []
            for one in following[now]:
                missing[one] -= 1
                if not missing[one] and one in members:
                    ready.append(one)
            # Finish one chain of statements before the next one, so that its temporary values are freed early.
            stack += sorted(ready, key=rank.__getitem__, reverse=True)
    return found


def least_peak(half: HalfStep) -> list[int]:
    """Search for the order with the least peak memory. Return the current order if no better order is found.

    If there are few enough sets for the exact search, no order has a lower peak memory than the result.
    """
    stock = unchanged_order(half)
    known = half.peak_bytes(stock)
    if known <= _bound(half):
        return stock
    found = _exact_order(half)
    if found is None:
        found = _beam_search(half)
    if half.peak_bytes(found) >= known:
        return stock
    return _settle_ends(half, found)


def reorder_sides(graph: Graph, arrange: Callable[[HalfStep], list[int]], sides: Sequence[int]) -> Ordered:
    """Reorder the statements of the forward, of the backward, or of both.

    Parameters
    ----------
    graph : Graph
        An execution graph.
    arrange : callable
        Returns the new order of a side, such as `least_peak` or `just_in_time`.
    sides : sequence of int
        The sides to reorder: `FORWARD`, `BACKWARD` or both.

    Returns
    -------
    Ordered
        The new order, or the current order if the new order has a higher peak memory.
    """
    stock_rows = top_rows(graph)
    stock_peak_bytes = timeline(graph).peak_bytes
    order, moved = stock_rows.copy(), 0
    for side in sides:
        half = half_step_of(graph, side)
        if not len(half.rows):
            continue
        found = arrange(half)
        start = int(np.searchsorted(stock_rows, half.rows[0]))
        order[start : start + len(found)] = half.rows[found]
        moved += len(found) - _longest_ascent(found)
    if not moved:
        return Ordered(stock_rows, stock_peak_bytes, stock_peak_bytes, 0)
    peak_bytes = timeline(reorder_graph(graph, with_members(graph, order))).peak_bytes
    if peak_bytes > stock_peak_bytes:
        return Ordered(stock_rows, stock_peak_bytes, stock_peak_bytes, 0, refused=True)
    return Ordered(order, stock_peak_bytes, peak_bytes, moved)


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _bound(half: HalfStep) -> int:
    """Return a lower bound on peak memory that holds for every order.

    The bound is the maximum of three figures: the live bytes before the first statement, the live bytes after the last
    statement, and the most bytes that a single statement needs.
    """
    least = half.start_bytes
    live = half.start_bytes + sum(
        (half.bytes[s] if half.made[s] else 0) - (half.bytes[s] if half.freed[s] else 0) for s in range(len(half.bytes))
    )
    least = max(least, live)
    for statement, touches in enumerate(half.touches):
        held = sum(half.bytes[s] for s in touches)
        least = max(least, held + half.transient_bytes[statement])
    return least


@dataclasses.dataclass(frozen=True)
class _SearchState:
    peak: int
    live: int
    done: int
    ready: tuple[int, ...]
    way: tuple[int, tuple[object, ...]] | None
    evaluated: int = 0
    """Number of statements that were evaluated to make this state from the state before."""

    def order(self) -> list[int]:
        found: list[int] = []
        at = self.way
        while at is not None:
            found.append(at[0])
            at = at[1]  # type: ignore[assignment]
        return found[::-1]


def _run(half: HalfStep, state: _SearchState, statement: int) -> _SearchState:
    """Run a statement, and then all ready statements that increase neither the peak memory nor the live bytes.

    Return the resulting state. To run such statements immediately is never worse than to run them later.
    """
    peak, live, done, way = state.peak, state.live, state.done, state.way
    ready = set(state.ready)
    pending = [statement]
    evaluated = 0
    while pending:
        now = pending.pop()
        inside, left = half.step(now, done)
        peak, live, done = max(peak, live + inside), live + left, done | 1 << now
        way = (now, way)  # type: ignore[assignment]
        ready.discard(now)
        ready.update(one for one in half.successors[now] if not half.before[one] & ~done)
        evaluated += 1
        for one in sorted(ready):
            evaluated += 1
            inside, left = half.step(one, done)
            if left <= 0 and live + inside <= peak:
                pending = [one]
                break
    return _SearchState(peak, live, done, tuple(sorted(ready)), way, evaluated)


def _start(half: HalfStep) -> _SearchState:
    ready = tuple(place for place, before in enumerate(half.before) if not before)
    return _SearchState(half.start_bytes, half.start_bytes, 0, ready, None)


def _exact_order(half: HalfStep) -> list[int] | None:
    """Return the order with the least possible peak memory; None if the search would examine too many sets."""
    everything = (1 << len(half.rows)) - 1
    queue = [(half.start_bytes, 0, 0, _start(half))]
    seen: set[int] = set()
    number = 0
    while queue:
        _, _, _, state = heapq.heappop(queue)
        if state.done == everything:
            return state.order()
        if state.done in seen:
            continue
        seen.add(state.done)
        if len(seen) > EXACT_STATES or number > 4 * EXACT_STATES:
            return None
        for statement in state.ready:
            further = _run(half, state, statement)
            if further.done not in seen:
                number += 1
                heapq.heappush(queue, (further.peak, -further.done.bit_count(), number, further))
    raise AssertionError("statements that wait for one another")


def _beam_search(half: HalfStep) -> list[int]:
    """Return the best order that a beam search finds. The width of the beam follows from `BEAM_STEPS`.

    The beam becomes narrower if its states have many ready statements, because each of these is evaluated.
    """
    count = len(half.rows)
    everything = (1 << count) - 1
    widest = max(1, min(WIDEST_BEAM, BEAM_STEPS // (count * 20)))
    examined = evaluated = 0
    by_size: defaultdict[int, dict[int, _SearchState]] = defaultdict(dict)
    by_size[0][0] = _start(half)
    for size in range(count):
        share = (BEAM_STEPS - evaluated) // (count - size)
        width = max(1, min(widest, share * examined // evaluated if evaluated else widest))
        states = heapq.nsmallest(width, by_size.pop(size, {}).values(), key=lambda s: (s.peak, s.live))
        for state in states:
            weighed = []
            for statement in state.ready:
                inside, left = half.step(statement, state.done)
                weighed.append((max(state.peak, state.live + inside), left, statement))
            examined += 1
            evaluated += len(weighed)
            # Examine only the ready statements that lead to the lowest peaks.
            for _, _, statement in heapq.nsmallest(max(2, width // 4), weighed):
                further = _run(half, state, statement)
                evaluated += further.evaluated
                there = by_size[further.done.bit_count()]
                if further.done not in there or further.peak < there[further.done].peak:
                    there[further.done] = further
    return by_size[count][everything].order()


def _settle_ends(half: HalfStep, order: list[int]) -> list[int]:
    """Undo moves at the beginning and at the end of `order`, as long as the peak memory does not rise."""
    count, most = len(order), half.peak_bytes(order)

    def with_beginning(length: int) -> list[int]:
        return [*range(length), *(s for s in order if s >= length)]

    def with_end(length: int) -> list[int]:
        return [*(s for s in order if s < count - length), *range(count - length, count)]

    for changed in (with_beginning, with_end):
        low, high = 0, count
        while low < high:
            middle = (low + high + 1) // 2
            if half.peak_bytes(changed(middle)) <= most:
                low = middle
            else:
                high = middle - 1
        order = changed(low)
    return order


def _longest_ascent(order: Sequence[int]) -> int:
    """Return the length of the longest ascending subsequence."""
    ends: list[int] = []
    for one in order:
        place = bisect_left(ends, one)
        ends[place : place + 1] = [one]
    return len(ends)
