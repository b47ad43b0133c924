"""Number the values of a graph by their content. Each write makes a new version of a storage.

The method is described in `workbench.analysis.equivalence.prove`. A step is one call inside of a statement, such as a
member of a fusion; see `workbench.analysis.equivalence.terms`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from workbench.analysis.equivalence.rewrite_rules import RULES
from workbench.analysis.equivalence.terms import (
    ARRIVE,
    CAST,
    COPY,
    DRAW,
    FENCE,
    MOVE,
    PACK,
    PLAIN,
    RELOAD,
    SEND,
    SHALLOW,
    STORE,
    UNPACK,
    UNTOLD,
    WAIT,
    WRITES,
    Move,
    ParsedLine,
    Terms,
    equals_parts,
    in_place,
    is_float,
    is_wider,
    kind_of,
    may_write,
)
from workbench.core.graph import BACKWARD, BlockKey, Graph, Kind, StatementFlag, ValueFlag

# Convert flags to integers: `&` on members of an enumeration would take most of the time of value numbering.
_RANDOM, _INPLACE = int(StatementFlag.RANDOM), int(StatementFlag.INPLACE)
_ARGUMENT = int(ValueFlag.ARGUMENT)
_GET_GRAD, _FUSION = int(Kind.GET_GRAD), int(Kind.FUSION)


class _Node:
    """A value, with the number of its content when it was made or last read, and how to find its current content."""

    __slots__ = ("kind", "number", "parent", "storage", "version", "view")

    def __init__(
        self, number: int, kind: str, storage: int, version: int = 0, parent: _Node | None = None, view: Any = None
    ) -> None:
        self.number = number
        self.kind = kind
        self.storage = storage
        self.version = version
        self.parent = parent
        """Node of which this node is a view; None if this node has a storage of its own."""
        self.view = view
        """Term of the view, in which None stands for the number of the parent's content."""


@dataclasses.dataclass
class Numbered:
    """The numbers of a graph's values.

    Attributes
    ----------
    outputs, gradients : tuple of int
        Numbers of the outputs that are values of the graph, and of the gradients, in order; -1 for a gradient that does
        not exist.
    written, written_forward : dict of str to int
        Map the name of each written argument to the number of its content: `written` after the step, `written_forward`
        after the forward.
    draws : tuple of int
        Numbers of the random draws, in order.
    left : tuple of int
        Numbers of the collectives without a wait.
    rows : list of tuple of int
        For each statement, the numbers of its results.
    reads : list of tuple of int
        For each statement, the numbers of the values that it reads.
    writes : list of (int, int)
        For each write, the row of the statement, and the number of the storage's new content.
    applied : dict of str to set
        For each rule of `RULES`, the numbers of the terms to which it was applied.
    """

    outputs: tuple[int, ...]
    gradients: tuple[int, ...]
    written: dict[str, int]
    written_forward: dict[str, int]
    draws: tuple[int, ...]
    left: tuple[int, ...]
    rows: list[tuple[int, ...]]
    reads: list[tuple[int, ...]]
    writes: list[tuple[int, int]]
    applied: dict[str, set[Any]]

    def differing_result(self, rival: Numbered) -> str | None:
        """Return the name of the first attribute whose results differ in `rival`; None if all results are equal."""
        for name in ("draws", "written_forward", "written", "outputs", "gradients", "left"):
            if getattr(self, name) != getattr(rival, name):
                return name
        return None


_OUTSIDE = "values that are read from outside"


class _NumberedBlock(NamedTuple):
    """Results of numbering the rows of a block."""

    made: list[tuple[int, _Node]]
    """The nodes of the outputs of statements, each with its place among all outputs of the block's rows."""
    rows: list[tuple[int, ...]]
    reads: list[tuple[int, ...]]
    draws: list[int]
    collectives: list[tuple[int, bool]]
    """The numbers of the collectives that begin, with True, and that are waited for, with False, in order."""
    applied: dict[str, set[Any]]


class _Columns:
    """Columns of a graph's statements as lists, which are faster to index than arrays."""

    def __init__(self, graph: Graph) -> None:
        statements = graph.statements
        inputs, outputs = statements.inputs, statements.outputs
        self.in_from, self.in_items = inputs.offsets.tolist(), inputs.items.tolist()
        self.out_from, self.out_items = outputs.offsets.tolist(), outputs.items.tolist()
        self.kinds, self.sides = statements.kind.tolist(), statements.side.tolist()
        self.parents, self.flags = statements.parent.tolist(), statements.flags.tolist()

    def outside_reads(self, begin: int, end: int) -> list[int]:
        """Return the places of values that statements read before they make them, among all inputs of the rows."""
        found: list[int] = []
        seen: set[int] = set()
        start = self.in_from[begin]
        for row in range(begin, end):
            if self.parents[row] >= 0:
                continue
            for at in range(self.in_from[row], self.in_from[row + 1]):
                if self.in_items[at] not in seen:
                    seen.add(self.in_items[at])
                    found.append(at - start)
            seen.update(self.out_items[self.out_from[row] : self.out_from[row + 1]])
        return found

    def handed_out(self, begin: int, end: int) -> list[int]:
        """Return the places of the outputs of statements, without those of members, among all outputs of the rows."""
        start = self.out_from[begin]
        return [
            at - start
            for row in range(begin, end)
            if self.parents[row] < 0
            for at in range(self.out_from[row], self.out_from[row + 1])
        ]


class ValueNumbering:
    """Numbers the values of a graph, from the first statement to the last.

    Parameters
    ----------
    terms : Terms
    graph : Graph
    drops_casts : bool
        Whether the rule ``cast on the way`` applies.
    """

    def __init__(self, terms: Terms, graph: Graph, *, drops_casts: bool) -> None:
        self.terms = terms
        self.number = terms.number
        self.structure = terms.structure
        self.drops_casts = drops_casts
        self.graph = graph
        self.version: dict[int, list[int]] = {}
        """Maps each written storage to two numbers: how often it was written, and the number of its current content."""
        self.storages = 0
        self.nodes: dict[int, _Node] = {}
        self.applied: dict[str, set[Any]] = {name: set() for name in RULES}
        self.draws: list[int] = []
        self.under_way: dict[int, tuple[int, _Node | None]] = {}
        """Collectives without a wait so far. Maps the number of a result to the sent content's number and node.

        If the collective overwrites the sent tensor, the entry is -1 and None instead.
        """
        self.collectives: list[tuple[int, bool]] = []
        """The begins and waits of collectives so far, as in `_NumberedBlock`."""
        self.rows: list[tuple[int, ...]] = []
        self.reads: list[tuple[int, ...]] = []
        self.writes: list[tuple[int, int]] = []
        self.written_forward: dict[str, int] = {}
        self.outputs: tuple[int, ...] = ()
        self.deferred: list[tuple[_Node, int, _Node]] | None = None
        """In-place copies of the current fusion of nvFuser, to be applied at its end. None outside of such a fusion.

        Each entry is the destination, the number of the new content, and the node of the copy's result.
        """
        self.row = -1
        self.unknown = 0
        """Count of values of which nothing is known."""
        self.arguments = self._arguments()
        self._run()

    def result(self) -> Numbered:
        """Return the numbers of the graph's values."""
        gradients = tuple(self._end(v) for v in self.graph.ends.gradients)
        if not any(number >= 0 for number in gradients):
            # A graph without a backward has no gradients.
            gradients = ()
        return Numbered(
            self.outputs,
            gradients,
            self._written_arguments(),
            self.written_forward,
            tuple(self.draws),
            tuple(self.under_way),
            self.rows,
            self.reads,
            self.writes,
            self.applied,
        )

    def _arguments(self) -> dict[str, _Node]:
        values = self.graph.values
        found: dict[str, _Node] = {}
        by_storage: dict[int, _Node] = {}
        rows = [
            v
            for v, (flags, producer) in enumerate(zip(values.flags.tolist(), values.producer.tolist(), strict=True))
            if flags & _ARGUMENT and producer < 0
        ]
        for value in rows:
            name, storage = values.name[value], int(values.storage[value])
            number, kind = self.number(("argument", name)), kind_of(self.graph, value)
            whole = by_storage.get(storage)
            if whole is None:
                node = self._new_node(number, kind)
                if storage >= 0:
                    by_storage[storage] = node
            elif whole.kind == kind:
                # Two arguments are the same tensor, so they have the same content.
                node = _Node(number, kind, whole.storage, 0, whole, (("argument",), (None,), 0))
            else:
                node = _Node(number, kind, whole.storage, 0, whole, (("argument", name), (None,), 0))
            found[name] = self.nodes[value] = node
        return found

    def _run(self) -> None:
        graph = self.graph
        rows = self.columns = _Columns(graph)
        self.split = bool(graph.ends.cotangents) or graph.stage != "joint"
        self.forward, self.asked = True, dict.fromkeys(graph.ends.outputs, 0)
        begin, blocks = 0, self._blocks()
        for key, length in blocks:
            end = begin + length
            if length and self.split and self.forward and rows.sides[begin] == BACKWARD:
                self._end_forward()
            if length:
                self._number_block(key, begin, end)
            begin = end
        self._number_rows(begin, len(rows.kinds))
        if not self.split or self.forward:
            self._end_forward()

    def _blocks(self) -> Sequence[tuple[BlockKey, int]]:
        """Return the graph's blocks; none if a result of a block may depend on more than the numbers of its inputs."""
        blocks = self.graph.blocks
        if blocks is None or blocks.statements is not self.graph.statements or may_write(self.graph, self.terms):
            return ()
        return blocks.lengths

    def _number_block(self, key: BlockKey, begin: int, end: int) -> None:
        """Number the rows of a block; reuse the results of a graph with an equal block and equal numbers before it.

        No statement of the graph writes. Therefore the results depend only on the rows, the number and the kind of each
        value that they read from outside, and the number of random draws before them. A block with a value of unknown
        content is not reused, because such a value has another number in each graph.
        """
        rows = self.columns
        taken = rows.in_items[rows.in_from[begin] : rows.in_from[end]]
        given = rows.out_items[rows.out_from[begin] : rows.out_from[end]]
        known = self.terms.blocks.setdefault(key, {})
        if _OUTSIDE not in known:
            known[_OUTSIDE] = rows.outside_reads(begin, end)
        nodes = [self.nodes.get(taken[at]) for at in known[_OUTSIDE]]
        before, begun = (len(self.rows), len(self.draws), self.unknown), len(self.collectives)
        # The number of a gradient in a joint graph also depends on the outputs of the program.
        if None in nodes or _GET_GRAD in rows.kinds[begin:end]:
            self._number_rows(begin, end)
            return
        inputs = (before[1], self.drops_casts, *[(node.number, node.kind) for node in nodes if node is not None])
        found: _NumberedBlock | None = known.get(inputs)
        if found is not None:
            for at, node in found.made:
                self.nodes[given[at]] = node
            self.rows += found.rows
            self.reads += found.reads
            self.draws += found.draws
            for number, begins in found.collectives:
                if begins:
                    # Nothing can overwrite what is sent.
                    self._begin_collective(number, -1, None)
                else:
                    self._end_collective(number)
            for rule, numbers in found.applied.items():
                self.applied[rule] |= numbers
            return
        applied, self.applied = self.applied, {name: set() for name in RULES}
        self._number_rows(begin, end)
        if self.unknown == before[2]:
            known[inputs] = _NumberedBlock(
                [(at, self.nodes[given[at]]) for at in rows.handed_out(begin, end)],
                self.rows[before[0] :],
                self.reads[before[0] :],
                self.draws[before[1] :],
                self.collectives[begun:],
                {rule: numbers for rule, numbers in self.applied.items() if numbers},
            )
        for rule, numbers in self.applied.items():
            applied[rule] |= numbers
        self.applied = applied

    def _number_rows(self, begin: int, end: int) -> None:
        graph, columns = self.graph, self.columns
        in_from, in_items, out_from, out_items = columns.in_from, columns.in_items, columns.out_from, columns.out_items
        kinds, sides, parents, flags = columns.kinds, columns.sides, columns.parents, columns.flags
        statements, computes = graph.statements, graph.statements.computes
        local: dict[int, _Node] = {}
        fused = -1
        special = _RANDOM | _INPLACE
        for row in range(begin, end):
            text = computes[row]
            parent = parents[row]
            if parent < 0 and fused >= 0:
                self._end_fusion(fused, local, out_items[out_from[fused] : out_from[fused + 1]])
                fused = -1
            if self.split and self.forward and sides[row] == BACKWARD:
                self._end_forward()
            self.row = row
            taken = in_items[in_from[row] : in_from[row + 1]]
            given = out_items[out_from[row] : out_from[row + 1]]
            if kinds[row] == _GET_GRAD:
                self._number_cotangent(taken, given, self.asked)
                continue
            if kinds[row] == _FUSION:
                fused, local = row, {value: self._node(value, self.nodes) for value in taken}
                for node in local.values():
                    self.content_of(node)
                self.deferred = [] if "nvfuser" in statements.executor[row].lower() else None
                self.rows.append(())
                self.reads.append(())
                continue
            scope = self.nodes if parent < 0 else local
            if not text:
                # No text says what the statement computes, so give its outputs numbers that no other value has.
                for value in given:
                    scope[value] = self._new_node(self._unknown_number(), kind_of(graph, value))
                self.rows.append(tuple(scope[value].number for value in given))
                self.reads.append(())
                continue
            steps, gives = self.terms.steps(text)
            nodes = [scope.get(value) or self._node(value, scope) for value in taken]
            flag = flags[row] & special
            made = self._statement(steps, nodes, flag)
            numbers = []
            for value, (step, at) in zip(given, gives, strict=True):
                node = scope[value] = nodes[at] if step < 0 else made[step][at]
                numbers.append(node.number)
            self.rows.append(tuple(numbers))
        if fused >= 0:
            self._end_fusion(fused, local, out_items[out_from[fused] : out_from[fused + 1]])

    def _unknown_number(self) -> int:
        """Return a number that no other value has, for a value of which nothing is known."""
        self.unknown += 1
        return self.number(object())

    def _node(self, value: int, scope: dict[int, _Node]) -> _Node:
        """Return the node of a value that a statement reads. If `scope` has no node for the value, add a node."""
        node = scope.get(value)
        if node is None:
            values = self.graph.values
            made = values.producer[value] >= 0 or values.flags[value] & ValueFlag.TENSOR
            name = values.name[value]
            number = self._unknown_number() if made else self.number(("number", name))
            node = scope[value] = self._new_node(number, kind_of(self.graph, value))
        return node

    def _new_node(self, number: int, kind: str) -> _Node:
        self.storages += 1
        return _Node(number, kind, self.storages)

    def _end_forward(self) -> None:
        """At the end of the forward, record its outputs and writes, and forget values that the backward cannot read."""
        self.forward = False
        ends = self.graph.ends
        self.outputs = tuple(self._end(v) for v in ends.outputs if v >= 0)
        self.written_forward = self._written_arguments()
        if self.graph.stage == "joint":
            return
        received: dict[int, _Node] = {}
        for given, taken in zip(ends.given, ends.received, strict=True):
            if given >= 0 and taken >= 0:
                received[taken] = self._node(given, self.nodes)
        for i, value in enumerate(ends.cotangents):
            if value >= 0:
                received[value] = self._new_node(self.number(("cotangent", i)), kind_of(self.graph, value))
        self.nodes = received

    def _number_cotangent(self, inputs: Sequence[int], results: Sequence[int], request_counts: dict[int, int]) -> None:
        """Number the result of `get_grad`. In a joint graph, this result is the gradient of an output of the program.

        If the program returns a value several times, the first `get_grad` of this value is the gradient of the first
        return, and so on.
        """
        output, outputs = inputs[0], self.graph.ends.outputs
        places = [i for i, value in enumerate(outputs) if value == output]
        place = places[min(request_counts.get(output, 0), len(places) - 1)] if places else -1
        request_counts[output] = request_counts.get(output, 0) + 1
        number = self.number(("cotangent", place))
        for value in results:
            self.nodes[value] = self._new_node(number, kind_of(self.graph, value))
        self.rows.append((number,))
        self.reads.append(())

    def _end(self, value: int) -> int:
        return -1 if value < 0 else self.content_of(self._node(value, self.nodes))

    def _written_arguments(self) -> dict[str, int]:
        return {
            name: self.content_of(node)
            for name, node in self.arguments.items()
            if node.storage in self.version and self.content_of(node) != self.number(("argument", name))
        }

    def _end_fusion(self, row: int, local: dict[int, _Node], outputs: Sequence[int]) -> None:
        """At the end of a fusion, apply its in-place copies, and add nodes for its outputs.

        The fusion's text says which outputs share memory with which operands.
        """
        deferred, self.deferred = self.deferred, None
        self.row = row
        ((step,), _) = self.terms.steps(self.graph.statements.computes[row])
        for destination, number, _ in deferred or ():
            self._write(destination, number)
        copied = {id(result): destination for destination, _, result in deferred or ()}
        for value, share in zip(outputs, step.shares, strict=True):
            node = self._node(value, local)
            if deferred is not None:
                # An output is a new tensor, except for the result of an in-place copy and an input that is returned.
                node = copied.get(id(node), node) if share >= 0 else self._new_node(node.number, node.kind)
            self.nodes[value] = node
        self.rows[row] = tuple(self.nodes[value].number for value in outputs)

    def content_of(self, node: _Node) -> int:
        """Return the number of a value's current content."""
        state = self.version.get(node.storage)
        if state is None or state[0] == node.version or self.deferred is not None:
            return node.number
        if node.parent is None:
            node.number = state[1]
        else:
            node.number = self._content_of_view(node.view, self.content_of(node.parent))
        node.version = state[0]
        return node.number

    def _content_of_view(self, view: Any, content: int) -> int:
        """Return the number of a view's content, if its base has the content with the number `content`."""
        call, numbers, place = view
        last = self.structure.get(content)
        if call == ("argument",):
            return content
        if last is not None and last[0] == "write" and last[1] == view:
            return int(last[3])
        if isinstance(call, Move):
            return self._moved_number(content, call)
        base = self.number((call, *(content if number is None else number for number in numbers)))
        return self.number(("output", base, place)) if place else base

    def _write(self, node: _Node, content: int) -> None:
        """Record that the memory of a value now has the content with the number `content`."""
        state = self.version.setdefault(node.storage, [0, -1])
        whole, at = content, node
        while at.parent is not None:
            if at.view[0] != ("argument",) and not (isinstance(at.view[0], Move) and at.view[0].is_identity):
                before = self.content_of(at.parent)
                term = ("write", at.view, before, whole)
                whole = self.number(term)
                self.structure[whole] = term
            at = at.parent
        state[0] += 1
        state[1] = whole
        node.number, node.version = content, state[0]
        self.writes.append((self.row, whole))

    def _statement(self, steps: Sequence[ParsedLine], nodes: list[_Node], flag: int) -> list[list[_Node]]:
        made: list[list[_Node]] = []
        read, version, ids = self.content_of, self.version, self.terms.ids
        reads: list[int] = []
        if flag & _RANDOM and any(step.action == DRAW for step in steps):
            flag &= ~_RANDOM
        if flag & _INPLACE and not any(step.action in (COPY, WRITES) for step in steps):
            flag |= UNTOLD
        for step in steps:
            operands = [nodes[at] if before < 0 else made[before][at] for before, at in step.operands]
            numbers = [read(node) for node in operands] if version else [node.number for node in operands]
            reads += numbers
            action = step.action
            if action == PLAIN and not flag & (_RANDOM | UNTOLD):
                # Handle the most frequent action here, because a function call for each step would take too much time.
                term = (step.call, *numbers)
                number = ids.get(term)
                if number is None:
                    number = ids[term] = len(ids)
                if step.shares == (-1,):
                    self.storages += 1
                    made.append([_Node(number, step.made[0], self.storages)])
                else:
                    made.append(self._outputs(step, operands, numbers, number))
                continue
            made.append(self._special(step, operands, numbers, flag))
        self.reads.append(tuple(reads))
        return made

    def _outputs(self, step: ParsedLine, operands: list[_Node], numbers: list[int], number: int) -> list[_Node]:
        """Return the nodes of a step's outputs; `number` is the number of the first output."""
        found: list[_Node] = []
        for i, share in enumerate(step.shares):
            own = number if i == 0 else self.number(("output", number, i))
            if share == -1:
                found.append(self._new_node(own, step.made[i]))
                continue
            if share < 0:
                parent = found[-2 - share]
                terms: tuple[int | None, ...] = (None,)
                call: Any = ("beside", number)
            else:
                parent, call = operands[share], step.call
                terms = tuple(None if at == share else n for at, n in enumerate(numbers))
            state = self.version.get(parent.storage)
            found.append(
                _Node(own, step.made[i], parent.storage, 0 if state is None else state[0], parent, (call, terms, i))
            )
        return found

    def _alias_or_copy(self, step: ParsedLine, i: int, node: _Node, number: int) -> _Node:
        """Return the node of an output that equals an operand: the operand's node, or a node with new memory."""
        return node if step.shares[i] >= 0 else self._new_node(number, step.made[i])

    def _apply(self, rule: str, number: int) -> None:
        self.applied[rule].add(number)

    def _special(self, step: ParsedLine, operands: list[_Node], numbers: list[int], flag: int) -> list[_Node]:
        action = step.action
        if action in (FENCE, SHALLOW) and len(operands) == len(step.shares):
            for number in numbers:
                self._apply("fence" if action == FENCE else "shallow copy", number)
            return [self._alias_or_copy(step, i, node, numbers[i]) for i, node in enumerate(operands)]
        if action == COPY and len(operands) == 2:
            return self._copy(step, operands, numbers)
        if action == CAST and len(operands) == 1:
            return self._cast(step, operands, numbers)
        if action == SEND and operands:
            return self._send(step, operands, numbers)
        if action == WAIT and len(operands) == 1:
            return self._wait(step, operands, numbers)
        if action == MOVE and not flag & (_RANDOM | UNTOLD) and all(share in (-1, 0) for share in step.shares):
            return self._move(step, operands[0], numbers[0])
        if action in _STRUCTURED:
            return _STRUCTURED[action](self, step, operands, numbers)
        term: tuple[Any, ...] = (step.call, *numbers)
        # Philox is not a draw from a generator: its seed and offset are inputs of the step.
        draws = (action == DRAW or flag & _RANDOM) and "philox" not in step.symbol
        if draws:
            term = ("draw", len(self.draws), *term)
        number = self.number(term)
        if draws:
            self.draws.append(number)
        found = self._outputs(step, operands, numbers, number)
        if action == WRITES or flag & UNTOLD:
            # If it is unknown which operands the step writes, assume that it writes all of them.
            for i, node in enumerate(operands[:1] if action == WRITES else operands):
                self._write(node, self.number(("written by", number, i)))
        return found

    def _move(self, step: ParsedLine, node: _Node, number: int) -> list[_Node]:
        """Return the nodes of a step's outputs if the step only selects elements of an operand.

        Equal selections get equal numbers, even if different operators select the elements.
        """
        found = []
        state = self.version.get(node.storage)
        for move, share, kind in zip(step.moves, step.shares, step.made, strict=True):
            made = self._moved_number(number, move)
            if self.structure.get(made) != ("moved", move, number):
                self._apply("moved elements", made)
            if share != 0:
                found.append(self._new_node(made, kind))
                continue
            parent, view = node, move
            while parent.parent is not None and isinstance(parent.view[0], Move):
                through = parent.view[0].compose(view)
                if through is None:
                    break
                parent, view = parent.parent, through
            version = 0 if state is None else state[0]
            found.append(_Node(made, kind, node.storage, version, parent, (view, (None,), 0)))
        return found

    def _moved_number(self, number: int, move: Move) -> int:
        """Return the number of the elements that `move` takes from the value with `number`."""
        term = (move, number)
        found = self.terms.ids.get(term)
        if found is not None:
            return found
        known = self.structure.get(number)
        if move.is_identity:
            made = number
        elif known is not None and known[0] == "moved" and (through := known[1].compose(move)) is not None:
            made = self._moved_number(known[2], through)
        else:
            made = self.number(term)
            self.structure[made] = ("moved", move, number)
            return made
        self.terms.ids[term] = made
        return made

    def _copy(self, step: ParsedLine, operands: list[_Node], numbers: list[int]) -> list[_Node]:
        source, destination = operands
        number = numbers[0]
        if source.kind != destination.kind:
            number = self.number(("copy_", destination.kind, number))
        if self.deferred is not None:
            # Apply the copy at the end of the fusion, because an nvFuser fusion reads all inputs before it writes.
            earlier = (to for to, _, result in self.deferred if result is destination)
            result = self._new_node(number, destination.kind)
            self.deferred.append((next(earlier, destination), number, result))
            return [result]
        self._write(destination, number)
        return [destination]

    def _cast(self, step: ParsedLine, operands: list[_Node], numbers: list[int]) -> list[_Node]:
        (node,), (number,) = operands, numbers
        before, after = node.kind, step.made[0]
        if before == after:
            self._apply("redundant cast", number)
            return [self._alias_or_copy(step, 0, node, number)]
        known = self.structure.get(number)
        if known is not None and known[0] == "cast" and is_float(before) and is_float(after):
            _, source, kind = known
            if kind == after and is_wider(before, kind):
                self._apply("cast there and back", number)
                return [self._new_node(source, after)]
            if self.drops_casts and is_float(kind):
                self._apply("cast on the way", number)
                number, before = source, kind
                if before == after:
                    return [self._new_node(number, after)]
        # The number depends only on the data type and device, because a cast has several equivalent forms.
        made = self.number(("cast", after.partition("[")[0], after.rpartition("@")[2], number))
        self.structure.setdefault(made, ("cast", number, before))
        return self._outputs(step, operands, numbers, made)

    def _send(self, step: ParsedLine, operands: list[_Node], numbers: list[int]) -> list[_Node]:
        call, overwrites = in_place(step)
        number = self.number((call, *numbers))
        if overwrites:
            self._apply("reduction in place", numbers[0])
        packed = self.structure.get(numbers[0])
        if packed is not None and packed[0] == "packed":
            self.structure.setdefault(number, ("sent", call, packed))
        if step.shares[0] >= 0:
            self._write(operands[step.shares[0]], number)
            self._begin_collective(number, -1, None)
        else:
            self._begin_collective(number, numbers[0], operands[0])
        return self._outputs(step, operands, numbers, number)

    def _begin_collective(self, number: int, sent: int, source: _Node | None) -> None:
        self.under_way[number] = (sent, source)
        self.collectives.append((number, True))

    def _end_collective(self, number: int) -> tuple[int, _Node | None]:
        self.collectives.append((number, False))
        return self.under_way.pop(number, (-1, None))

    def _wait(self, step: ParsedLine, operands: list[_Node], numbers: list[int]) -> list[_Node]:
        (node,), (number,) = operands, numbers
        sent, source = self._end_collective(number)
        if source is not None and self.content_of(source) != sent:
            number = self.number(("overwritten while it is sent", number, self.content_of(source)))
        waited = self.number(("wait", number))
        known = self.structure.get(number)
        if known is not None and known[0] == "sent":
            self.structure.setdefault(waited, ("arrived", *known[1:]))
        if step.shares[0] >= 0 and node.storage in self.version:
            self._write(node, waited)
            return [node]
        return self._outputs(step, operands, [number], waited)

    def _pack(self, step: ParsedLine, operands: list[_Node], numbers: list[int]) -> list[_Node]:
        number = self.number((step.call, *numbers))
        kinds = tuple(node.kind for node in operands)
        self.structure.setdefault(number, ("packed", "scatter" in step.symbol, tuple(numbers), kinds))
        return self._outputs(step, operands, numbers, number)

    def _unpack(self, step: ParsedLine, operands: list[_Node], numbers: list[int]) -> list[_Node]:
        known = self.structure.get(numbers[0])
        found = self._outputs(step, operands, numbers, self.number((step.call, *numbers)))
        if known is None or known[0] != "arrived":
            return found
        _, call, (_, scatter, parts, kinds) = known
        if not equals_parts(call, scatter, "gather" in step.symbol, kinds, step.made):
            return found
        for node, part in zip(found, parts, strict=True):
            node.number = self.number(("wait", self.number((call, part))))
            self._apply("bucket", node.number)
        return found

    def _store(self, step: ParsedLine, operands: list[_Node], numbers: list[int]) -> list[_Node]:
        number = self.number(("in the store", *numbers))
        self.structure.setdefault(number, ("stored", tuple(numbers), tuple(node.kind for node in operands)))
        return self._outputs(step, operands, numbers, number)

    def _reload(self, step: ParsedLine, operands: list[_Node], numbers: list[int]) -> list[_Node]:
        known = self.structure.get(numbers[0])
        found = self._outputs(step, operands, numbers, self.number((step.call, *numbers)))
        if known is None or known[0] != "stored" or known[2] != step.made:
            return found
        for at, node in enumerate(found):
            node.number = self.number(("on its way", numbers[0], at))
            self.structure.setdefault(node.number, ("coming", numbers[0], at, known[1][at]))
        return found

    def _arrive(self, step: ParsedLine, operands: list[_Node], numbers: list[int]) -> list[_Node]:
        found = self._outputs(step, operands, numbers, self.number((step.call, *numbers)))
        coming = [self.structure.get(number, ("",)) for number in numbers]
        # Tensors that are reloaded together share one CUDA event. Only the first of them has the event, so it must be
        # the first operand.
        if len(found) != len(numbers) or coming[0][0] != "coming" or coming[0][2] != 0:
            return found
        for node, known in zip(found, coming, strict=True):
            if known[:2] == coming[0][:2]:
                node.number = known[3]
                self._apply("offload", known[3])
        return found


_STRUCTURED: dict[int, Callable[[ValueNumbering, ParsedLine, list[_Node], list[int]], list[_Node]]] = {
    PACK: ValueNumbering._pack,
    UNPACK: ValueNumbering._unpack,
    STORE: ValueNumbering._store,
    RELOAD: ValueNumbering._reload,
    ARRIVE: ValueNumbering._arrive,
}
