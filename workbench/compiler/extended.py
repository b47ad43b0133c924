"""A plan of few layers written on to all: tables and sites of the layers that were left out, without their traces.

The layers on both sides of the gap are held to each other, row by row of the tables: that each reads, makes and frees
of its own layer, of the one before, of the one after and of all else what the other does. Then so would those between,
and their rows are theirs, names and sites included. The traces are made once somebody asks for them. Where anything is
otherwise, all is planned.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from workbench.analysis.equivalence import fault
from workbench.compiler.chains import Chain, Numbering, Rows, inserted, known, number_of
from workbench.compiler.draws_once import differences
from workbench.compiler.extended_ends import EndsOfAll
from workbench.compiler.extended_names import fused_alike, states_of
from workbench.compiler.extended_sites import Sites
from workbench.compiler.hooks import Executed, Hooks, StageLog, executed, sites_under
from workbench.compiler.kept import Kept, made_names
from workbench.compiler.layers import OtherwiseError
from workbench.compiler.names import is_statement
from workbench.compiler.primitives import lost_in_tracing
from workbench.compiler.reader import IGNORED, read_execution
from workbench.compiler.stage import Stage
from workbench.compiler.thunder_api import BoundSymbol, TraceCtx
from workbench.compiler.unfolded import Unfolder
from workbench.compiler.validate import validate
from workbench.graph import Graph, Kind, Ragged, Statements, Storages, ValueFlag, Values
from workbench.lever import Site


@dataclasses.dataclass(frozen=True)
class Written:
    """The stock plan of few layers, and its tables and sites written on to all of them.

    Attributes
    ----------
    few : Stage
        Of the program without the layers that are left out.
    log : StageLog
    found : Executed
        What is executed of them.
    tables : Extended
    sites : tuple of Site
        Of the whole program.
    """

    few: Stage
    log: StageLog
    found: Executed
    tables: Extended
    sites: tuple[Site, ...]

    def ran(self) -> list[tuple[BoundSymbol, int]]:
        """The statements of few layers, and how many of the whole program each stands for."""
        statements = self.tables.few.statements
        times = np.bincount(self.tables.rows, minlength=len(statements))[statements.parent < 0].tolist()
        traces = (self.found.forward, self.found.backward)
        ran = (b for trace in traces if trace is not None for b in trace.bound_symbols if is_statement(b))
        return list(zip(ran, times, strict=True))

    def fusions(self, of_few: Sequence[BoundSymbol]) -> list[BoundSymbol]:
        """The fusions that all of the program's are as, in its order, by those of few layers."""
        of_row = dict(zip(np.flatnonzero(self.tables.few.statements.kind == Kind.FUSION).tolist(), of_few, strict=True))
        return [of_row[row] for row in self.tables.rows.tolist() if row in of_row]


def written_on(few: Stage, unfolder: Unfolder, executor: str, kept: Kept) -> Written:
    """The stock plan of few layers, written on to all of them.

    Raises
    ------
    OtherwiseError
        If the layers that stayed are not one as the other in it, or something is wrong with it.
    """
    # What needs no plan first: where it says no, none of few layers is made in vain.
    check_lies(unfolder, few.arguments)
    if few.caveats or lost_in_tracing(few):
        raise OtherwiseError
    log = StageLog()
    hooks = Hooks(executor, {}, log, kept=kept)
    found = executed(hooks, few)
    hooks.restart()
    validate(found.forward, found.backward)
    hooks.mark("after split")
    graph = read_execution(found.forward, found.backward, few)
    try:
        tables = Extended(graph, unfolder, few.arguments, hooks.made.partitioned)
        hooks.mark("read")
        sites = tables.sites(sites_under({}, few, dataclasses.replace(hooks.made, execution=tables.few)))
        hooks.mark("sites")
    except KeyError as error:  # a value that no layer that stayed has
        raise OtherwiseError from error
    if hooks.made.communication or fault(few.graph, graph) or differences(few, hooks.made):
        raise OtherwiseError
    hooks.mark("prove")
    return Written(few, log, found, tables, sites)


@dataclasses.dataclass(frozen=True)
class _Pairs:
    """Rows and values of the two layers that the others belong between.

    Attributes
    ----------
    here, there : array
        Their rows, those at one place being alike.
    made : dict of int to int
        What the first made, and what the other did.
    before : dict of int to int
        What the first reads of the layer before it, and the other of the first.
    after : dict of int to int
        What the other reads of the layer after it, by what the first reads of the other.
    """

    here: Rows
    there: Rows
    made: dict[int, int]
    before: dict[int, int]
    after: dict[int, int]


class Extended:
    """Tables of few layers, written on.

    Parameters
    ----------
    graph : Graph
        The execution traces of the program without the layers that are left out.
    unfolder : Unfolder
        That wrote the traces which these were made of.
    arguments : mapping of str to Tensor
        Those of the whole program.
    partitioned : TraceCtx or None
        What fusions were made of first.

    Attributes
    ----------
    few, graph : Graph
        Of the program without those layers, and of the whole program.
    rows : array
        The row of few layers that each of the whole program's is as.
    values, shifts : array
        The value of few layers that each of the whole program's is as, and how many layers further on it is.

    Raises
    ------
    OtherwiseError
        If the layers that stayed are not one as the other in these tables.
    """

    def __init__(
        self,
        graph: Graph,
        unfolder: Unfolder,
        arguments: Mapping[str, torch.Tensor],
        partitioned: TraceCtx | None,
    ) -> None:
        self.few, self.unfolder, self._gap = graph, unfolder, unfolder.gap
        self._tensors, self._partitioned = arguments, partitioned
        self._top = np.where(graph.statements.parent < 0, np.arange(len(graph.statements)), graph.statements.parent)
        self._part = self._parts()[self._top]
        """The layer of each row."""
        producer = graph.values.producer
        self._home = np.where(producer >= 0, self._part[producer], -1)
        """The layer that makes each value."""
        self._private = self._privates()
        self._pairs = self._paired()
        self._keys = self._tables()
        self.fusions = self._numbered()
        self.rows, self._row_shifts = self._sequence()
        self.graph = self._extended()

    def _parts(self) -> Rows:
        """Of each row the layer of the run that it belongs to, -1 for none; as `Unfolder` has it for statements."""
        statements = self.few.statements
        tops = np.flatnonzero(statements.parent < 0)
        parts = np.full(len(statements), -1, np.intp)
        inputs, outputs = statements.inputs, statements.outputs
        # What is fused of one layer and the next belongs to the next.
        latest = np.full(len(statements), -1, np.intp)
        of = [self.unfolder.layer_of(origin) if origin >= 0 else -1 for origin in statements.origin.tolist()]
        np.maximum.at(latest, self._top, of)
        made_at: dict[int, int] = {}
        of_nothing: dict[int, int] = {}
        # Of numbers, as the state that random numbers are drawn from is made of the one before, nothing is made here.
        tensor = (self.few.values.flags & ValueFlag.TENSOR) != 0
        for row in tops.tolist():
            origin, read = int(statements.origin[row]), inputs[row]
            read = (read[tensor[read]] if statements.origin[row] < 0 else read).tolist()
            if origin >= 0:
                parts[row] = latest[row]
            else:
                last = max((made_at[value] for value in read if value in made_at), default=-1)
                parts[row] = parts[last] if last >= 0 else -1
            for value in read:
                made = of_nothing.pop(value, -1)
                if made >= 0:
                    parts[made] = parts[row]
            where = of_nothing if origin < 0 and not read else made_at
            for value in outputs[row].tolist():
                where.setdefault(value, row)
        return parts

    def _privates(self) -> list[list[int]]:
        """Arguments that the layers that stayed have for themselves, which belong to them.

        Raises
        ------
        OtherwiseError
            If some are read in one layer alone.
        """
        index = self.few.value_index
        found = [[index[name] for name in names if name in index] for names in self.unfolder.private]
        if len({len(values) for values in found}) != 1:
            raise OtherwiseError
        for at, values in enumerate(found):
            self._home[values] = at
        return found

    def _paired(self) -> _Pairs:
        """The layers on both sides of the gap, one as the other."""
        graph, statements = self.few, self.few.statements
        one, other = self.unfolder.ends
        here, there = np.flatnonzero(self._part == one), np.flatnonzero(self._part == other)
        if not len(here) or len(here) != len(there):
            raise OtherwiseError
        for column in ("executor", "kind", "side", "flags", "transient_bytes", "flops", "group", "computes"):
            values = getattr(statements, column)
            if isinstance(values, tuple):
                if any(values[x] != values[y] for x, y in zip(here.tolist(), there.tolist(), strict=True)):
                    raise OtherwiseError
            elif (values[here] != values[there]).any():
                raise OtherwiseError
        if (self._top[here] - here != self._top[there] - there).any():
            raise OtherwiseError
        found = _Pairs(here, there, dict(zip(self._private[one], self._private[other], strict=True)), {}, {})
        fixed: set[int] = set()
        home = self._home.tolist()

        def pair(both: Iterable[tuple[int, int]]) -> None:
            for x, y in both:
                at, to = home[x], home[y]
                if x == y:
                    expected = at not in (one, other, other + 1)
                    fixed.add(x)
                elif at == one:
                    expected = to == other and found.made.setdefault(x, y) == y
                elif at == one - 1 and at >= 0:
                    expected = to == one and found.before.setdefault(x, y) == y
                elif at == other:
                    expected = to == other + 1 and found.after.setdefault(x, y) == y
                else:
                    expected = False
                if not expected:
                    raise OtherwiseError

        for ragged in (statements.outputs, statements.inputs, statements.frees):
            xs, ys = ragged.taken(here), ragged.taken(there)
            if (xs.offsets != ys.offsets).any():
                raise OtherwiseError
            pair(zip(xs.items.tolist(), ys.items.tolist(), strict=True))
        # A view may lie in what no statement of its layer reads.
        storage, root = graph.values.storage.tolist(), graph.storages.root.tolist()
        pair([(root[storage[x]], root[storage[y]]) for x, y in found.made.items() if min(storage[x], storage[y]) >= 0])
        made, others = found.made.keys(), set(found.made.values())
        if len(others) != len(made) or not (found.after.keys() <= others and made >= set(found.before.values())):
            raise OtherwiseError
        if fixed & (found.before.keys() | found.after.keys()):
            raise OtherwiseError
        self._let_alone(one, other)
        values = graph.values
        for attribute in (values.shape, values.dtype, values.device):
            if any(attribute[x] != attribute[y] for x, y in found.made.items()):
                raise OtherwiseError
        one_of, other_of = list(found.made), list(found.made.values())
        if any((column[one_of] != column[other_of]).any() for column in (values.bytes, values.flags)):
            raise OtherwiseError
        return found

    def _let_alone(self, one: int, other: int) -> None:
        """Nothing but its neighbours reads or frees what a layer makes: what else did would, of those between, too."""
        statements = self.few.statements
        for column in (statements.inputs, statements.outputs, statements.frees):
            rows = np.repeat(np.arange(len(statements)), np.diff(column.offsets))
            homes, parts = self._home[column.items], self._part[rows]
            if ((homes == one) & ~np.isin(parts, (one - 1, one, other))).any():
                raise OtherwiseError
            if ((homes == other) & ~np.isin(parts, (one, other, other + 1))).any():
                raise OtherwiseError

    # A value of the whole program is told by its key: the value of the few layers that it stands for, and how many
    # layers further on it is; 0 for what stays.

    def _key(self, value: int, further: int) -> int:
        return value * (self._gap + 1) + further

    def _tables(self) -> Rows:
        """The key of each value as the first of both layers reads it, those left out, the other, and all else."""
        count, gap, pairs = len(self.few.values), self._gap, self._pairs
        own = np.arange(count) * (gap + 1)
        keys = np.tile(own, (gap + 3, 1))
        inner = keys[: gap + 1]
        further = np.arange(gap + 1)
        for x in pairs.made:
            inner[:, x] = self._key(x, 0) + further
        for x, y in pairs.before.items():
            inner[1:, x] = self._key(y, 0) + further[:-1]
        back = {y: x for x, y in pairs.made.items()}
        for x in pairs.after:
            inner[:-1, x] = self._key(back[x], 0) + further[1:]
        for y in pairs.before.values():
            keys[gap + 1, y] = self._key(y, gap)
        return keys

    def _numbered(self) -> Chain:
        """What fusions are called; some are gone once cuts are made, and still told of."""
        statements, (one, other) = self.few.statements, self.unfolder.ends
        rows = np.flatnonzero(statements.kind == Kind.FUSION).tolist()
        in_plan = {statements.name[row]: int(self._part[row]) for row in rows}
        made_in = dict(in_plan)
        for bsym in self._partitioned.bound_symbols if self._partitioned is not None else ():
            if bsym.sym.is_fusion and bsym.sym.name not in in_plan:
                home = self.unfolder.chain.made_in
                made_in[bsym.sym.name] = next(
                    (home[name] for sub in bsym.subsymbols for name in made_names(sub) if name in home), -1
                )
        numbers = {fusion: number_of(fusion) for fusion in made_in}

        def of(part: int, *, gone: bool = False) -> list[str]:
            found = [f for f, at in made_in.items() if at == part and not (gone and f in in_plan)]
            return sorted(found, key=numbers.__getitem__)

        def alike(these: Sequence[str], those: Sequence[str]) -> dict[str, str]:
            return dict(zip(these, those, strict=True)) if len(these) == len(those) else {}

        both = alike(of(one, gone=True), of(other, gone=True))
        name = statements.name
        for x, y in zip(self._pairs.here.tolist(), self._pairs.there.tolist(), strict=True):
            if name[x] in in_plan and name[y] in in_plan and numbers[name[x]][0] == numbers[name[y]][0]:
                both[name[x]] = name[y]
            elif name[x] != name[y]:
                raise OtherwiseError
        numbering = Numbering.of((numbers[x][1], numbers[y][1]) for x, y in both.items())
        copies: list[dict[str, str]] = [{} for _ in range(self._gap)]
        for x, y in both.items():
            between = numbering.between(numbers[x][1], numbers[y][1], self._gap)
            for copy, number in zip(copies, between, strict=True):
                copy[x] = f"{numbers[x][0]}{number}"
        stay = {fusion: f"{stem}{numbering.moved(number, self._gap)}" for fusion, (stem, number) in numbers.items()}
        names = [*stay.values(), *(fusion for copy in copies for fusion in copy.values())]
        if len(set(names)) != len(names):
            raise OtherwiseError

        graph, parts, earlier = self.few, self._part, self.unfolder.chain
        # The backward of the last layer often begins with what is after it: other fusions may still be as the others.
        before = alike(of(one - 1), of(one)) or fused_alike(graph, parts, (one - 1, one), earlier.before)
        after = alike(of(other), of(other + 1)) or fused_alike(
            graph, parts, (other, other + 1), self.unfolder.chain.after
        )
        return Chain(one, made_in, stay, copies, both, before, after)

    def _sequence(self) -> tuple[Rows, Rows]:
        """The rows of the whole program: of each which of the few it is, and how many layers further on."""
        added = inserted(self._pairs.here, self._pairs.there)
        rows: list[Rows] = []
        shifts: list[Rows] = []
        begun = 0
        for after in sorted(added):
            backward, copied = added[after]
            rows.append(np.arange(begun, after + 1))
            shifts.append(np.zeros(after + 1 - begun, np.intp))
            further = np.arange(1, self._gap + 1)
            rows.append(np.tile(copied, self._gap))
            shifts.append(np.repeat(further[::-1] if backward else further, len(copied)))
            begun = after + 1
        rows.append(np.arange(begun, len(self.few.statements)))
        shifts.append(np.zeros(len(rows[-1]), np.intp))
        return np.concatenate(rows), np.concatenate(shifts)

    def _extended(self) -> Graph:
        few, statements, values = self.few, self.few.statements, self.few.values
        gap, rows, shifts = self._gap, self.rows, self._row_shifts
        other = self.unfolder.ends[1]
        # Which table of keys each row reads by.
        table = np.where(self._part[rows] == other, gap + 1, gap + 2)
        table = np.where(self._part[rows] == self.unfolder.ends[0], shifts, table)
        columns = {name: getattr(statements, name).taken(rows) for name in ("inputs", "outputs", "frees")}
        keyed = {
            name: self._keys[np.repeat(table, np.diff(column.offsets)), column.items]
            for name, column in columns.items()
        }
        order = self._order(columns, keyed)
        place = np.full(len(values) * (gap + 1), -1, np.intp)
        place[order] = np.arange(len(order))
        row_of = np.full((len(statements), gap + 1), -1, np.intp)
        row_of[rows, shifts] = np.arange(len(rows))
        value, further = self.values, self.shifts = np.divmod(order, gap + 1)
        producer = np.where(values.producer[value] >= 0, row_of[values.producer[value], further], -1)
        parent = np.where(statements.parent[rows] >= 0, row_of[statements.parent[rows], shifts], -1)
        storage, roots = self._storages(value, further, place)
        taken = self._names_of(value.tolist(), further.tolist())
        value_list = value.tolist()
        row_list = rows.tolist()
        graph = Graph(
            stage=few.stage,
            statements=Statements(
                name=self._row_names(row_list, shifts.tolist()),
                executor=_taken(statements.executor, row_list),
                kind=statements.kind[rows],
                side=statements.side[rows],
                parent=parent.astype(np.int32),
                origin=self._origins(),
                flags=statements.flags[rows],
                transient_bytes=statements.transient_bytes[rows],
                flops=statements.flops[rows],
                inputs=Ragged(columns["inputs"].offsets, place[keyed["inputs"]].astype(np.int32)),
                outputs=Ragged(columns["outputs"].offsets, place[keyed["outputs"]].astype(np.int32)),
                frees=Ragged(columns["frees"].offsets, place[keyed["frees"]].astype(np.int32)),
                group=statements.group[rows],
                computes=_taken(statements.computes, row_list),
            ),
            values=Values(
                name=taken,
                shape=_taken(values.shape, value_list),
                dtype=_taken(values.dtype, value_list),
                device=_taken(values.device, value_list),
                storage=storage.astype(np.int32),
                producer=producer.astype(np.int32),
                bytes=values.bytes[value],
                flags=values.flags[value],
            ),
            storages=Storages(bytes=few.storages.bytes[values.storage[value[roots]]], root=roots.astype(np.int32)),
            origins=few.origins,
            groups=few.groups,
        )
        ends = EndsOfAll(few, self.unfolder, self._tensors, self._home, self._pairs.made, place)
        return dataclasses.replace(graph, ends=ends.of(graph))

    def _arguments(self) -> list[int]:
        """The keys of all arguments, in the order in which the whole program has them."""
        index, here = self.few.value_index, self.unfolder.private[self.unfolder.ends[0]]
        key_of = {
            name: self._key(index[x], further)
            for further, names in enumerate(self.unfolder.private_between, 1)
            for name, x in zip(names, here, strict=True)
            if x in index
        }
        whole, few = self.unfolder.arguments
        if few != list(self.few.values.name[: len(few)]):
            raise OtherwiseError
        return [key_of[name] if name in key_of else self._key(index[name], 0) for name in whole]

    def _order(self, columns: Mapping[str, Ragged], keyed: Mapping[str, Any]) -> Rows:
        """The keys of all values, in the order in which they are met."""
        few, step = self.few, self._gap + 1
        statements = few.statements
        own = np.arange(len(few.values)) * step
        of_few = {name: own[getattr(statements, name).items] for name in ("inputs", "outputs")}
        first = np.arange(len(self.unfolder.arguments[1])) * step
        in_few = {name: getattr(statements, name) for name in ("inputs", "outputs")}
        if (self._met(first, in_few, of_few, statements.side) != own).any():
            raise OtherwiseError
        return self._met(np.asarray(self._arguments(), np.intp), columns, keyed, statements.side[self.rows])

    def _met(self, first: Rows, columns: Mapping[str, Ragged], keyed: Mapping[str, Any], side: Any) -> Rows:
        lengths = [np.diff(columns[name].offsets) for name in ("inputs", "outputs")]
        rows = [np.repeat(np.arange(len(length)), length) for length in lengths]
        placed = np.argsort(np.concatenate((2 * rows[0], 2 * rows[1] + 1)), kind="stable")
        items = np.concatenate((keyed["inputs"], keyed["outputs"]))[placed]
        forward = int((lengths[0] + lengths[1])[side == 0].sum())
        cotangents = np.asarray(sorted(v for v in self.few.ends.cotangents if v >= 0), np.intp) * (self._gap + 1)
        rest = np.arange(len(self.few.values)) * (self._gap + 1)
        met = np.concatenate((first, items[:forward], cotangents, items[forward:], rest))
        keys, at = np.unique(met, return_index=True)
        ordered: Rows = keys[np.argsort(at)]
        return ordered

    def _origins(self) -> NDArray[np.int32]:
        """Of each row where it comes from."""
        origins = self.few.statements.origin.astype(np.intp)
        return self._further(origins[self.rows], self._part[self.rows], self._row_shifts)

    def origins_of(self, origins: Rows) -> NDArray[np.int32]:
        """Of each value of the whole program its origin, by those of few layers; -1 for none."""
        return self._further(origins[self.values], self._home[self.values], self.shifts)

    def _further(self, origin: Rows, part: Rows, shifts: Rows) -> NDArray[np.int32]:
        """Origins so many layers on: what a fusion holds may be of the layer before it or after it."""
        (one, other), gap = self.unfolder.ends, self._gap
        of = np.asarray([self.unfolder.layer_of(index) if index >= 0 else -1 for index in origin.tolist()])
        by = np.zeros(len(origin), np.intp)
        by = np.where((part == one) & (of >= 0) & (of <= one), shifts, by)
        by = np.where((part == one) & (of == other), shifts - gap, by)
        by = np.where((part == other) & (of == one), gap, by)
        if ((part == one) & (of > other)).any() or ((part == other) & (of >= 0) & (of < one)).any():
            raise OtherwiseError
        found: NDArray[np.int32] = (origin + by * self.unfolder.length).astype(np.int32)
        return found

    def _storages(self, value: Rows, further: Rows, place: Rows) -> tuple[Rows, Rows]:
        """Of each value the storage that it lies in, and of each storage the value that it began as."""
        few, gap = self.few, self._gap
        ones = np.zeros(len(few.values), bool)
        ones[list(self._pairs.made)] = True
        table = np.where(self._home[value] == self.unfolder.ends[1], gap + 1, gap + 2)
        table = np.where(ones[value], further, table)
        storage = few.values.storage[value]
        root = np.where(storage >= 0, place[self._keys[table, few.storages.root[storage]]], -1)
        if (np.diff(few.storages.root) <= 0).any() or ((root < 0) & (storage >= 0)).any():
            raise OtherwiseError
        roots = np.unique(root[root >= 0])
        return np.where(root >= 0, np.searchsorted(roots, root), -1), roots

    def _names_of(self, value: Sequence[int], further: Sequence[int]) -> tuple[str, ...]:
        """What values are called."""
        few, unfolder, made = self.few, self.unfolder, self._pairs.made
        names = few.values.name
        states = states_of(few, self._partitioned, self._home)
        first = states.pairs(*unfolder.ends)
        unfolder.numbered(states.made_in, first)
        unfolder.numbered(
            (name for name, row in zip(names, few.values.producer.tolist(), strict=True) if row >= 0),
            {names[x]: names[y] for x, y in made.items()},
        )
        one, producer, home = unfolder.ends[0], few.values.producer.tolist(), self._home.tolist()
        # What later passes made is the layer's whose statement makes it.
        earlier, other = unfolder.chain, unfolder.ends[1]
        new = {names[x]: names[y] for x, y in made.items() if names[x] not in earlier.made_in}
        chain = self.chain = dataclasses.replace(
            earlier,
            made_in={**states.made_in, **dict(zip(names, home, strict=True)), **earlier.made_in},
            pairs={**first, **new, **earlier.pairs},
            before={**states.pairs(one - 1, one), **earlier.before},
            after={**states.pairs(other, other + 1), **earlier.after},
        )
        called = {x: known(chain.named(names[x], one)[: self._gap + 1]) for x in made}
        own = [
            names[v] if row < 0 and names[v] not in chain.stay else known(chain.named(names[v], home[v])[:1])[0]
            for v, row in enumerate(producer)
        ]
        for v, name in enumerate(names):
            if name.endswith(IGNORED):
                own[v] = chain.stay[name.removesuffix(IGNORED)] + IGNORED
        found = [called[v][s] if v in called else own[v] for v, s in zip(value, further, strict=True)]
        if len(set(found)) != len(found):
            raise OtherwiseError
        return tuple(found)

    def _row_names(self, rows: Sequence[int], shifts: Sequence[int]) -> tuple[str, ...]:
        names, tables = self.few.statements.name, [self.fusions.stay, *self.fusions.copies]
        return tuple([tables[s].get(name := names[row], name) for row, s in zip(rows, shifts, strict=True)])

    def sites(self, sites: Sequence[Site]) -> tuple[Site, ...]:
        """Sites of the whole program, by those of few layers.

        Raises
        ------
        OtherwiseError
            If those of the layers that stayed are not one as the other.
        """
        return Sites(self, sites).written_on()


def check_lies(unfolder: Unfolder, tensors: Mapping[str, torch.Tensor]) -> None:
    """What layers have for themselves has to lie alike, in memory of its own.

    Raises
    ------
    OtherwiseError
        If it does not.
    """
    layers = (*unfolder.private, *unfolder.private_between)
    if any(name not in tensors for names in layers for name in names):
        raise OtherwiseError
    storages = Counter(tensor.untyped_storage()._cdata for tensor in tensors.values())
    how = [_lies(tensors[name]) for name in layers[0]]
    for names in layers:
        if [_lies(tensors[name]) for name in names] != how:
            raise OtherwiseError
        if any(storages[tensors[name].untyped_storage()._cdata] > 1 for name in names):
            raise OtherwiseError


def _lies(tensor: torch.Tensor) -> tuple[Any, ...]:
    """How a tensor lies in memory, and what autograd makes of it."""
    lies = (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.untyped_storage().nbytes())
    return *lies, tensor.dtype, tensor.device, tensor.requires_grad, tensor.is_leaf


def _taken(column: Sequence[Any], rows: Sequence[int]) -> tuple[Any, ...]:
    return tuple([column[row] for row in rows])
