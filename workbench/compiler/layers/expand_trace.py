"""Expand a trace that was made from a reduced program: add the statements of the layers that were left out.

The place of the missing layers is the gap. This module compares the two layers next to the gap in Thunder's trace,
statement by statement. The two statements of a pair must read corresponding values of their own layer, of the previous
layer and of the next layer. An argument that no other layer reads must also have a counterpart. All other values that
the two statements read must be the same. If the two layers pass this comparison, the missing layers have the same
statements, too. This module adds these statements with the names that Thunder would make. Thunder numbers names in the
order in which it makes them. Therefore the numbers of corresponding names in two neighboring layers differ by the count
of numbers that a layer uses.

If ranks share the program, Thunder gathers its arguments. The gathers, and the statements that scatter gradients, are
in the order of the arguments, and so are their names. This order may differ from the order of the layers.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from workbench.compiler.fastpath.bsym_templates import BsymTemplate, BsymTemplates, Mark, TemplateValues
from workbench.compiler.fastpath.call_memo import rename_proxy
from workbench.compiler.interop.thunder_api import BoundSymbolTag, PrimIDs, Proxy, TraceCtx, from_trace
from workbench.compiler.layers.name_sequences import Numbering, argument_phases, insertions, number_of
from workbench.compiler.layers.partition import (
    KEPT,
    GatherTag,
    LayerMismatch,
    ReducedTrace,
    difference,
    gathered_argument,
    is_like,
)
from workbench.compiler.trace.bsym_memo import MADE, NAMES, READ, identity, made_names, names_in, read_names
from workbench.compiler.trace.lazy_value import LazyValue
from workbench.compiler.trace.stable_ids import OriginTag, origin_of


@dataclasses.dataclass
class _LayerPair:
    """The two layers on both sides of the gap. In the reduced trace, the second layer follows the first.

    Attributes
    ----------
    rows : tuple of (list of int, list of int)
        Indices of the statements of each layer.
    pairs : dict of str to str
        Maps names of the first layer's results to names of the second layer's results.
    before : dict of str to str
        Maps names that the first layer reads from its predecessor to names that the second layer reads from the first.
    after : dict of str to str
        Maps names that the first layer reads from the second to names that the second layer reads from its successor.
    """

    rows: tuple[list[int], list[int]]
    pairs: dict[str, str]
    before: dict[str, str]
    after: dict[str, str]


class TraceExpander:
    """Adds the missing layers to a sequence of traces. Thunder makes each trace from the previous trace.

    Parameters
    ----------
    reduced : ReducedTrace
    """

    def __init__(self, reduced: ReducedTrace) -> None:
        run = reduced.run
        self._program, self._run, self._former = reduced.program, run, reduced.former
        self._gap = len(run.left_out)
        self._here, self._there = KEPT - 1, len(run.layers) - KEPT
        """Indices of the layers before and after the gap."""
        self._begun = origin_of(run.layers[0][0])
        self._length = sum(origin_of(bsym) >= 0 for bsym in run.layers[0])
        # Maps names in the reduced traces to names in the expanded traces. Names of the program stay the same. Values
        # that later passes make have numbered names, and the numbers are higher in a program with more layers.
        self._names = {name: name for bsym in reduced.program.bound_symbols for name in names_in(bsym)}
        self._moved = 0
        self._order = {arg.name: place for place, arg in enumerate(reduced.program.args)}
        self._remaining = [at for at in range(len(run.layers)) if at not in run.left_out]
        self._owner = {name: at for at, names in enumerate(run.private) for name in names}
        self._copies = [self._pairs_of(at) for at in run.left_out]
        self._places = {
            origin_of(bsym): (bsym.source_filename, bsym.source_positions)
            for bsym in reduced.program.bound_symbols
            if origin_of(bsym) >= 0
        }
        self._arguments = {
            out.name: out
            for bsym in reduced.program.bound_symbols
            if bsym.sym.id is PrimIDs.UNPACK_TRIVIAL
            for out in bsym.flat_proxy_outs
        }

    def _pairs_of(self, layer: int) -> dict[str, str]:
        """Map the names of values in the layer before the gap to the corresponding names in `layer`."""
        run = self._run
        pairs = dict(zip(run.private[self._here], run.private[layer], strict=True))
        for one, other in zip(run.layers[self._here], run.layers[layer], strict=True):
            given = {arg.name for arg in one.flat_proxy_args}
            pairs.update((x, y) for x, y in zip(names_in(one), names_in(other), strict=True) if x not in given)
        return pairs

    @property
    def program(self) -> TraceCtx:
        """The trace of the whole program, before differentiation."""
        return self._program

    def expand(self, trace: TraceCtx) -> TraceCtx:
        """Return the trace that Thunder would make from the whole program.

        Raises
        ------
        LayerMismatch
            If the remaining layers differ in this trace.
        """
        try:
            return self._prepare(trace)(range(1, self._gap + 1))
        except KeyError as error:
            raise LayerMismatch(_only_one(error)) from error

    def expand_later(self, trace: TraceCtx) -> LazyValue[TraceCtx]:
        """Return the result of `expand` as a value that is computed at its first use. Check the layers already now.

        Raises
        ------
        LayerMismatch
            If the remaining layers differ in this trace.
        """
        try:
            write = self._prepare(trace)
            write((1, self._gap))  # errors occur in the first or in the last missing layer, or in no layer
        except KeyError as error:
            raise LayerMismatch(_only_one(error)) from error
        return LazyValue(lambda: write(range(1, self._gap + 1)))

    def check(self, trace: TraceCtx) -> None:
        """Check that the layers on both sides of the gap are identical, without generating statements.

        Raises
        ------
        LayerMismatch
            If the layers differ in this trace.
        """
        self._layer_pair(trace, self._parts(trace))

    def _prepare(self, trace: TraceCtx) -> Callable[[Sequence[int]], TraceCtx]:
        """Return a function that generates the trace with the given missing layers.

        The function takes the numbers of the missing layers; the first missing layer has number 1.

        The time of the function is proportional to the number of layers that it adds.
        """
        if self._former is not None:
            self._number(*self._former)
            self._former = None
        both = self._layer_pair(trace, self._parts(trace))
        self._number(*self._names_of(trace, both))
        name_ctr = trace.name_ctr + self._moved
        # `expand_later` calls `write` twice. The second call reuses the flattened statements of the first call.
        books = _FlatStatements(), _FlatStatements()

        def write(left_out: Sequence[int]) -> TraceCtx:
            made = from_trace(trace)
            made.args, made._siginfo = self._program.args, self._program.siginfo()
            made.name_ctr = name_ctr
            made._provenance = trace._provenance
            body: list[Any] = []
            self._write(trace, both, left_out, books, body)
            made.bound_symbols = self._with_unpacks(trace, body)
            made.names = trace.names.union(*map(names_in, made.bound_symbols))
            return made

        return write

    def read_names(self, trace: TraceCtx) -> tuple[list[str], dict[str, str], dict[str, int]]:
        """Return the names in a trace, pairs of names of the two layers, and the arguments of gathered names.

        Raises
        ------
        LayerMismatch
            If the layers differ in this trace.
        """
        return self._names_of(trace, self._layer_pair(trace, self._parts(trace)))

    def _names_of(self, trace: TraceCtx, both: _LayerPair) -> tuple[list[str], dict[str, str], dict[str, int]]:
        names = dict.fromkeys(name for bsym in trace.bound_symbols for name in names_in(bsym))
        gathered = {
            name: self._order[argument]
            for bsym in trace.bound_symbols
            if (argument := gathered_argument(bsym)) is not None
            for name in set(names_in(bsym)).difference(read_names(bsym))
        }
        return list(names), both.pairs, gathered

    def _parts(self, trace: TraceCtx) -> list[int]:
        """Return, for each statement, the index of its layer in the run, or -1 if it belongs to no layer.

        A statement with a `GatherTag` belongs to the layer that reads the gathered argument. Another statement without
        origin, such as a sum of gradients, belongs to the layer that makes its latest input. A
        statement without origin and inputs, such as the initial zeros of a sum, belongs to the layer that first reads
        its result.
        """
        parts: list[int] = []
        made_at: dict[str, int] = {}
        of_nothing: dict[str, int] = {}
        for row, bsym in enumerate(trace.bound_symbols):
            origin, returns = origin_of(bsym), bsym.sym.id is PrimIDs.RETURN
            if (argument := gathered_argument(bsym)) is not None:
                parts.append(self._owner.get(argument, -1))
            elif origin >= 0:
                part = (origin - self._begun) // self._length
                parts.append(part if 0 <= part < len(self._run.layers) else -1)
            else:
                last = max((made_at[arg.name] for arg in bsym.flat_proxy_args if arg.name in made_at), default=-1)
                parts.append(parts[last] if last >= 0 and not returns else -1)
            for arg in bsym.flat_proxy_args:
                made = of_nothing.pop(arg.name, -1)
                if made >= 0:
                    parts[made] = parts[row]
            if bsym.sym.id is not PrimIDs.UNPACK_TRIVIAL:
                where = of_nothing if origin < 0 and not bsym.flat_proxy_args else made_at
                for out in bsym.flat_proxy_outs:
                    where.setdefault(out.name, row)
        return parts

    def _layer_pair(self, trace: TraceCtx, parts: Sequence[int]) -> _LayerPair:
        """Return the layers on both sides of the gap, after checking that they are identical.

        Raises
        ------
        LayerMismatch
            If the layers differ.
        """
        home = _homes(trace, parts)
        one, other = ([row for row, part in enumerate(parts) if part == at] for at in (self._here, self._there))
        if len(one) != len(other):
            raise LayerMismatch(f"one layer has {len(one)} statements and another layer has {len(other)}")
        both = _LayerPair((one, other), {}, {}, {})
        fixed: set[str] = set()
        for x, y in zip(one, other, strict=True):
            self._pair(trace.bound_symbols[x], trace.bound_symbols[y], home, both, fixed)
        made, others = both.pairs.keys(), set(both.pairs.values())
        if len(others) != len(made) or not (both.after.keys() <= others and made >= set(both.before.values())):
            raise LayerMismatch("a layer reads a value of another layer, but the layers between have no such value")
        if shared := fixed & (both.before.keys() | both.after.keys()):
            raise LayerMismatch(f"all layers read {min(shared)}, which one of them makes")
        self._check_readers(trace, parts, home)
        return both

    def _pair(self, a: Any, b: Any, home: Mapping[str, int], both: _LayerPair, fixed: set[str]) -> None:
        """Compare two statements, one of each layer: the values that they read and make must correspond.

        The names of corresponding values are added to `both`, and the names of values that both statements read to
        `fixed`.
        """
        here, there = self._here, self._there
        if not is_like(a, b):
            raise LayerMismatch(difference(a, b))
        private = dict(zip(self._run.private[here], self._run.private[there], strict=True))
        given = [arg.name for arg in a.flat_proxy_args]
        for x, y in zip(given, (arg.name for arg in b.flat_proxy_args), strict=True):
            at, to = home.get(x, -1), home.get(y, -1)
            if x == y:
                expected = at not in (here, there, there + 1)
                fixed.add(x)
            elif at == here:
                expected = both.pairs.get(x) == y
            elif at == here - 1:
                expected = to == here and both.before.setdefault(x, y) == y
            elif at == there:
                expected = to == there + 1 and both.after.setdefault(x, y) == y
            else:
                expected = x not in home and private.get(x) == y
            if not expected:
                raise LayerMismatch(f"{b.sym.name} reads {y} in place of {x}")
        for x, y in zip(names_in(a), names_in(b), strict=True):
            if x not in given and (x == y or both.pairs.setdefault(x, y) != y):
                raise LayerMismatch(f"{b.sym.name} makes {y} in place of {x}")

    def _check_readers(self, trace: TraceCtx, parts: Sequence[int], home: Mapping[str, int]) -> None:
        """Check that only a layer itself and its neighbors read its values.

        In the whole program, any other reader would also read values of the missing layers.
        """
        here, there = self._here, self._there
        for part, bsym in zip(parts, trace.bound_symbols, strict=True):
            if bsym.sym.id is PrimIDs.RETURN:
                continue
            read = {home.get(arg.name, -1) for arg in bsym.flat_proxy_args}
            if (here in read and part not in (here - 1, here, there)) or (
                there in read and part not in (here, there, there + 1)
            ):
                raise LayerMismatch(f"{bsym.sym.name} reads a value of a layer that is not a neighbor")

    def _missing_in(self, phase: Mapping[int, Any]) -> list[tuple[int, int, int]]:
        """Return where arguments of the missing layers belong in a phase of `argument_phases`.

        Returns
        -------
        list of (int, int, int)
            In the order of the phase, for each argument: the number of remaining arguments before it, the number of the
            missing layer, and the corresponding argument of the layer before the gap.

        Raises
        ------
        LayerMismatch
            If the phase has arguments of some remaining layers only.
        """
        private, known = self._run.private, list(phase)
        found: list[tuple[int, int, int]] = []
        for place, name in enumerate(private[self._here]):
            if len(here := {self._order[private[at][place]] in phase for at in self._remaining}) > 1:
                raise LayerMismatch(f"{name} is not gathered together with the arguments of other layers")
            if here.pop():
                others = (self._order[private[at][place]] for at in self._run.left_out)
                found.extend((other, number, self._order[name]) for number, other in enumerate(others, 1))
        sign = -1 if known[0] > known[-1] else 1
        ordered = [sign * argument for argument in known]
        return [
            (bisect.bisect(ordered, sign * argument), number, like)
            for argument, number, like in sorted(found, reverse=sign < 0)
        ]

    def _sizes(self, phase: Mapping[int, Sequence[tuple[int, str]]]) -> Mapping[int, int]:
        """Map each argument of a phase to the count of numbers that its names use.

        Raises
        ------
        LayerMismatch
            If corresponding arguments use different counts.
        """
        known = list(phase)
        sizes = {a: phase[b][0][0] - phase[a][0][0] for a, b in itertools.pairwise(known)}
        for names in zip(*(self._run.private[at] for at in self._remaining), strict=True):
            like = [self._order[name] for name in names]
            counts = {sizes[argument] for argument in like if argument in sizes}
            if len(counts) > 1:
                raise LayerMismatch(f"{names[0]} uses other numbers than the arguments of other layers")
            if known[-1] in like and counts:
                sizes[known[-1]] = counts.pop()
        return sizes

    def _number(self, names: Iterable[str], pairs: Mapping[str, str], gathered: Mapping[str, int]) -> None:
        """Find the names of values in the expanded trace, and store them in `_names` and `_copies`.

        A missing layer uses as many numbers as a remaining layer.

        Parameters
        ----------
        names : iterable of str
            All names in the reduced trace.
        pairs : mapping of str to str
            Maps results of the layer before the gap to results of the layer after the gap.
        gathered : mapping of str to int
            Maps names that statements with a `GatherTag` make to the index of the argument. Thunder numbers these names
            in the order of the arguments, which may differ from the order of the layers.

        Raises
        ------
        LayerMismatch
            If names are not numbered layer by layer.
        """
        numbered = {name: number_of(name) for name in dict.fromkeys(names) if name not in self._names}
        early = [
            name for name, (_, number) in numbered.items() if number < self._program.name_ctr and name not in gathered
        ]
        for name in early:
            # The value is in a checkpointed region, so its name was made when the whole program was traced. Therefore
            # the expanded trace uses the same name.
            self._names[name] = name
            prefix, one = numbered.pop(name)
            if name in pairs:
                step, rest = divmod(number_of(pairs[name])[1] - one, self._gap + 1)
                if rest:
                    raise LayerMismatch(f"{name} is not numbered layer by layer")
                for at, copy in enumerate(self._copies, 1):
                    copy[name] = f"{prefix}{one + at * step}"
        phases = argument_phases(
            (gathered.get(name), (number, name))
            for name, (_, number) in sorted(numbered.items(), key=lambda item: item[1][1])
        )
        added: list[tuple[int, int, int, list[tuple[int, str]]]] = []
        for phase in phases:
            if not (missing := self._missing_in(phase)):
                continue
            sizes, begun = self._sizes(phase), [named[0][0] for named in phase.values()]
            if missing[-1][0] == len(begun):
                # A KeyError here becomes a `LayerMismatch`: the end of the last argument's numbers is not known.
                begun.append(begun[-1] + sizes[next(reversed(phase))])
            added.extend((begun[place], sizes[like], number, phase[like]) for place, number, like in missing)
        layered = {x: y for x, y in pairs.items() if x in numbered and x not in gathered}
        numbering = Numbering.from_pairs(
            [(numbered[x][1], numbered[y][1]) for x, y in layered.items()],
            self._gap,
            ((end, size) for end, size, *_ in added),
        )
        later: Counter[int] = Counter()
        for end, size, missing_layer, named in reversed(added):
            later[end] += size
            moved = numbering.shift(end, self._moved) - later[end] - named[0][0]
            for number, name in named:
                self._copies[missing_layer - 1][name] = f"{numbered[name][0]}{number + moved}"
        for x, y in layered.items():
            (prefix, one), (_, other) = numbered[x], numbered[y]
            for copy, number in zip(
                self._copies, numbering.numbers_between(one, other, self._gap, self._moved), strict=True
            ):
                copy[x] = f"{prefix}{number}"
        for name, (prefix, number) in numbered.items():
            self._names[name] = f"{prefix}{numbering.shift(number, self._moved)}"
        self._moved += numbering.total_shift
        made = [copy[x] for copy in self._copies for x in (*numbered, *early) if x in copy]
        all_names = [*self._names.values(), *made]
        if len(set(all_names)) != len(all_names):
            raise LayerMismatch("two values would have one name")

    def _write(
        self,
        trace: TraceCtx,
        both: _LayerPair,
        left_out: Sequence[int],
        books: tuple[_FlatStatements, _FlatStatements],
        into: list[Any],
    ) -> None:
        """Append all statements of the expanded trace to `into`, except statements that unpack arguments."""
        bsyms = trace.bound_symbols
        back = {y: x for x, y in both.pairs.items()}
        values, (between, around) = dict(self._arguments), books
        chain = [self._names, *self._copies, {x: self._names[y] for x, y in both.pairs.items()}]
        copies = []
        for at in range(1, self._gap + 1):
            below = {x: chain[at - 1][y] for x, y in both.before.items()}
            above = {x: chain[at + 1][back[x]] for x in both.after}
            names = _NameMap(self._names, {**chain[at], **below, **above})
            copies.append(_StatementWriter(between, names, values, self._places, at * self._length))
        first, last = chain[1], chain[-2]
        stays = _StatementWriter(around, self._names, values)
        here = _StatementWriter(around, _NameMap(self._names, {x: first[back[x]] for x in both.after}), values)
        there = _StatementWriter(around, _NameMap(self._names, {y: last[y] for y in both.before.values()}), values)
        writers = dict.fromkeys(both.rows[0], here) | dict.fromkeys(both.rows[1], there)
        late, before, after = self._insertions(trace, both)
        writers.update(dict.fromkeys(late, copies[-1]))
        written = {0: here} | {at: copies[at - 1] for at in left_out}
        for row, bsym in enumerate(bsyms):
            if bsym.sym.id is PrimIDs.UNPACK_TRIVIAL:
                continue
            if bsym.sym.id is PrimIDs.RETURN:
                into.append(self._return_statement(bsym, stays, copies))
                continue
            into.extend(written[at].statement(bsyms[each]) for at, each in before.get(row, ()) if at in written)
            into.append(writers.get(row, stays).statement(bsym))
            into.extend(written[at].statement(bsyms[each]) for at, each in after.get(row, ()) if at in written)

    def _insertions(self, trace: TraceCtx, both: _LayerPair) -> tuple[list[int], _Insertions, _Insertions]:
        """Find where the statements of the missing layers are added.

        Returns
        -------
        list of int
            Rows of the layer before the gap that the last missing layer has in the expanded trace.
        dict, dict
            Statements that are added before, and after, a row. Each is a pair: the number of a missing layer, or 0 for
            the layer before the gap, and the row to copy.
        """
        before: _Insertions = defaultdict(list)
        after: _Insertions = defaultdict(list)
        numbers = range(1, self._gap + 1)
        in_order = self._add_gathers(trace, before, after)
        layered = [pair for pair in zip(*both.rows, strict=True) if pair[0] not in in_order]
        groups, windows = insertions(*np.array(layered, np.intp).reshape(-1, 2).T)
        for end, (backward, rows) in groups.items():
            order = reversed(numbers) if backward else numbers
            after[end].extend((number, row) for number in order for row in rows.tolist())
        late: list[int] = []
        own = {row for row, _ in layered}
        for begun, length in windows.items():
            window = range(begun, begun + length)
            those = [row for row in window if row in own]
            if not all(is_like(trace.bound_symbols[row - length], trace.bound_symbols[row]) for row in those):
                raise LayerMismatch("other statements lie between the statements of two layers")
            late += those
            for number in numbers:
                before[begun].extend((number - 1, row) if row in own else (number, row - length) for row in window)
        return late, before, after

    def _with_unpacks(self, trace: TraceCtx, body: Iterable[Any]) -> list[Any]:
        """Return the body with the statements that unpack arguments: at its beginning, or each before its gather."""
        unpacks = [bsym for bsym in self._program.bound_symbols if bsym.sym.id is PrimIDs.UNPACK_TRIVIAL]
        places = {bsym.flat_proxy_outs[0].name: place for place, bsym in enumerate(unpacks, 1)}
        kinds = [bsym.sym.id is PrimIDs.UNPACK_TRIVIAL for bsym in trace.bound_symbols]
        # Thunder's `sort_waits` moves each gather to the statement that unpacks its argument.
        is_sorted = not all(kinds[: sum(kinds)])
        made, begun = list[Any](), 0
        for bsym in body:
            if begun < len(unpacks):
                argument = gathered_argument(bsym) if is_sorted else None
                end = len(unpacks) if argument is None else places[argument]
                made.extend(unpacks[begun:end])
                begun = max(begun, end)
            made.append(bsym)
        return made

    def _add_gathers(self, trace: TraceCtx, before: _Insertions, after: _Insertions) -> set[int]:
        """Find where statements are added that are in the order of the gathered arguments, not in that of the layers.

        Return all rows that are in this order. The waits for gathered arguments are not.
        """
        rows: list[tuple[int | None, int]] = []
        for row, bsym in enumerate(trace.bound_symbols):
            argument = gathered_argument(bsym)
            if argument is not None and (
                BoundSymbolTag.BACKWARD in bsym.tags or all(name in self._arguments for name in read_names(bsym))
            ):
                rows.append((self._order[argument], row))
            elif bsym.sym.id is not PrimIDs.UNPACK_TRIVIAL:
                rows.append((None, row))
        for phase in argument_phases(rows):
            places = list(phase.values())
            for place, number, like in self._missing_in(phase):
                here = after[places[place - 1][-1]] if place else before[places[0][0]]
                here.extend((number, row) for row in phase[like])
        return {row for argument, row in rows if argument is not None}

    def _return_statement(self, bsym: Any, stays: _StatementWriter, copies: Sequence[_StatementWriter]) -> Any:
        """Generate the return statement, with the arguments of the missing layers and their gradients."""
        given = bsym.args[0]
        everything = next(b for b in reversed(self._program.bound_symbols) if b.sym.id is PrimIDs.RETURN)
        arguments = everything.args[0]["flat_args"]
        returned = {name: stays.tree(each) for name, each in given.items()}
        returned["flat_args"] = list(arguments)
        if "fw_flat_out" in given:
            # In a joint trace, `output` has one gradient for each argument.
            names = [getattr(arg, "name", None) for arg in given["flat_args"]]
            gradients = dict(zip(names, given["output"], strict=True))
            made = dict(zip(names, returned["output"], strict=True))
            mine = self._run.private[self._here]
            for at, writer in zip(self._run.left_out, copies, strict=True):
                theirs = self._run.private[at]
                made.update((y, writer.tree(gradients[x])) for x, y in zip(mine, theirs, strict=True))
            returned["output"] = tuple(made[getattr(arg, "name", None)] for arg in arguments)
        return bsym.from_bsym(args=(returned,))


def _only_one(error: KeyError) -> str:
    return f"{error.args[0]} has no counterpart in the other layers"


def _homes(trace: TraceCtx, parts: Sequence[int]) -> dict[str, int]:
    """Map the name of each value to the index of the layer that makes the value; -1 if no layer makes it."""
    home: dict[str, int] = {}
    for part, bsym in zip(parts, trace.bound_symbols, strict=True):
        if bsym.sym.id is not PrimIDs.UNPACK_TRIVIAL:
            for out in bsym.flat_proxy_outs:
                home.setdefault(out.name, part)
    return home


def _check_leaf(leaf: Any) -> None:
    if isinstance(leaf, Proxy):
        raise LayerMismatch(f"{leaf.name} is not a tensor")


class _NameMap(dict[str, str]):
    """A map of names that stores only the differences from `fallback`.

    Full maps for all layers would need memory that grows with the square of the number of layers.
    """

    def __init__(self, fallback: Mapping[str, str], own: Mapping[str, str]) -> None:
        super().__init__(own)
        self._others = fallback

    def __missing__(self, name: str) -> str:
        return self._others[name]


type _Insertions = defaultdict[int, list[tuple[int, int]]]
type _Get = Callable[[Any], tuple[str, ...]]
type _Tell = Callable[[Any, tuple[str, ...]], None]


class _FlatStatements:
    """Flattened statements of one trace, each flattened at its first use."""

    def __init__(self) -> None:
        self.recipes = BsymTemplates(_check_leaf)
        self._known: dict[int, tuple[BsymTemplate, _Get, _Tell]] = {}

    def lookup(self, bsym: Any) -> tuple[BsymTemplate, _Get, _Tell]:
        """Return a statement's template, and two functions for generated copies.

        The first function returns a copy's names from a map of names. The second function caches these names in the
        copy.
        """
        found = self._known.get(identity(bsym))
        if found is None:
            found = self.recipes.statement_template(bsym), _getter(names_in(bsym)), _name_cacher(bsym)
            self._known[identity(bsym)] = found
        return found


def _getter(keys: Sequence[Any]) -> _Get:
    """Return a function that returns a tuple of the values at `keys`, like `itemgetter`, for any number of keys."""
    if len(keys) > 1:
        return itemgetter(*keys)
    return lambda known: tuple([known[key] for key in keys])


def _name_cacher(bsym: Any) -> _Tell:
    """Return a function that caches the names in a generated copy of a statement.

    The returned function takes the copy, and all names in the copy in the order of `names_in`. The names that the copy
    reads and makes are at the same positions as in the statement.
    """
    at = {name: place for place, name in enumerate(names_in(bsym))}
    read, made = (_getter([at[name] for name in names(bsym)]) for names in (read_names, made_names))
    tell_inside = _inner_name_cacher(bsym)

    def tell(statement: Any, names: tuple[str, ...]) -> None:
        statement.__dict__[READ], statement.__dict__[MADE] = read(names), made(names)
        tell_inside(statement, names)

    return tell


def _inner_name_cacher(bsym: Any) -> _Tell:
    """Return a function that caches all names in a generated copy of a statement and in the copy's subsymbols."""
    at = {name: place for place, name in enumerate(names_in(bsym))}
    inside = [(_getter([at[name] for name in names_in(sub)]), _inner_name_cacher(sub)) for sub in bsym.subsymbols]

    def tell(statement: Any, names: tuple[str, ...]) -> None:
        statement.__dict__[NAMES] = statement.subsymbols, names
        for sub, (get, tell_sub) in zip(statement.subsymbols, inside, strict=True):
            tell_sub(sub, get(names))

    return tell


class _StatementWriter:
    """Generates copies of statements with other values.

    Parameters
    ----------
    book : _FlatStatements
    names : mapping of str to str
        Maps the name of each value to its name in the copies.
    values : dict of str to TensorProxy
        Maps new names to existing values. The writer adds the values that it makes.
    locations : mapping of int to (str, Positions), optional
        Source file and position of the statements of each origin.
    shift : int, optional
        Difference between the origin of a copy and the origin of its statement.
    """

    def __init__(
        self,
        book: _FlatStatements,
        names: Mapping[str, str],
        values: dict[str, Any],
        locations: Mapping[int, tuple[Any, Any]] | None = None,
        shift: int = 0,
    ) -> None:
        self._book, self._names, self._all, self._shift = book, names, values, shift
        self._places = locations or {}
        self._values = TemplateValues(book.recipes.leaves, self._value)
        self._marks: list[Mark] = []

    def statement(self, bsym: Any) -> Any:
        """Return the copy of a statement and its subsymbols, or the statement itself if nothing changes."""
        names = self._names
        if not self._shift and all(names[name] == name for name in names_in(bsym)):
            return bsym
        recipe, names_of, tell = self._book.lookup(bsym)
        if len(self._marks) < len(self._book.recipes.marks):
            self._marks.extend(map(self._mark, self._book.recipes.marks[len(self._marks) :]))
        made = recipe.instantiate(self._values, self._marks)
        tell(made, names_of(names))
        return made

    def _mark(self, mark: Mark) -> Mark:
        if not self._shift:
            return mark
        tags, filename, positions = mark
        moved = tags.copy()
        for gather in [tag for tag in tags if isinstance(tag, GatherTag)]:
            moved.remove(gather)
            moved.add(GatherTag(self._names[gather.argument]))
        for tag in [tag for tag in tags if isinstance(tag, OriginTag)]:
            moved.remove(tag)
            moved.add(OriginTag(tag.index + self._shift))
            if filename is self._places[tag.index][0]:
                filename, positions = self._places[tag.index + self._shift]
        return moved, filename, positions

    def _value(self, proxy: Any) -> Any:
        name = self._names[proxy.name]
        found = self._all.get(name)
        if found is None:
            if name != proxy.name and proxy.__dict__.get("_grad") is not None:
                raise LayerMismatch(f"{proxy.name} holds a gradient")
            found = self._all[name] = proxy if name == proxy.name else rename_proxy(proxy, name)
        return found

    def tree(self, tree: Any) -> Any:
        """Return arguments or results with their values replaced."""
        return self._book.recipes.tree_template(tree)(self._values)
