"""Find, from the graph alone, the reasons why a fusion does not contain the statements next to it."""

from __future__ import annotations

import dataclasses

from workbench.core.graph import BACKWARD, Graph, Kind, StatementFlag


@dataclasses.dataclass(frozen=True)
class FusionBoundary:
    """A neighbour of a fusion: a statement that makes an input of the fusion, or reads an output of the fusion.

    Attributes
    ----------
    statement : int
        Row of the neighbour.
    before : bool
        True if the fusion reads outputs of the neighbour; False if the neighbour reads outputs of the fusion.
    reason : str
        Why the fusion does not contain the neighbour.
    """

    statement: int
    before: bool
    reason: str


def boundaries(graph: Graph, fusion: int) -> tuple[FusionBoundary, ...]:
    """Return the neighbours of a fusion in an execution graph, each with the reason why the fusion does not contain it.

    The statements that make the fusion's inputs come first, then the statements that read its outputs.

    Parameters
    ----------
    graph : Graph
    fusion : int
        Row of the fusion.
    """
    statements = graph.statements
    makers = _makers(graph)
    inputs, outputs = statements.inputs[fusion].tolist(), set(statements.outputs[fusion].tolist())
    before = dict.fromkeys(makers[value] for value in inputs if makers.get(value, fusion) != fusion)
    after = [
        row
        for row in _top(graph)
        if row != fusion and row not in before and outputs & set(statements.inputs[row].tolist())
    ]
    ends = [(row, True) for row in before] + [(row, False) for row in after]
    return tuple(FusionBoundary(row, first, _reason(graph, fusion, row, neighbor_first=first)) for row, first in ends)


def _top(graph: Graph) -> list[int]:
    statements = graph.statements
    without = (Kind.ARGUMENT, Kind.RETURN)
    return [row for row in range(len(statements)) if statements.parent[row] < 0 and statements.kind[row] not in without]


def _makers(graph: Graph) -> dict[int, int]:
    """Map each value to the row of the first statement that outputs the value.

    Members of fusions, arguments and returns do not count.
    """
    made: dict[int, int] = {}
    for row in _top(graph):
        for value in graph.statements.outputs[row].tolist():
            made.setdefault(value, row)
    return made


def _reason(graph: Graph, fusion: int, neighbor: int, *, neighbor_first: bool) -> str:
    statements = graph.statements
    kind, flags = statements.kind[neighbor], statements.flags[neighbor]
    if statements.side[neighbor] != statements.side[fusion]:
        side = "backward" if statements.side[neighbor] == BACKWARD else "forward"
        return f"it runs in the {side}, which is a separate trace"
    if kind == Kind.FUSION:
        first, last = (neighbor, fusion) if neighbor_first else (fusion, neighbor)
        between = _statement_between(graph, first, last)
        # If both were in one fusion, this fusion and the statement between them would need each other's outputs.
        if between >= 0:
            name, ends = statements.name[between].rpartition(".")[2], (statements.name[first], statements.name[last])
            path = f"{name} depends on {ends[0]} and feeds {ends[1]}"
            return f"another fusion: {path}, so fusing both creates a cycle"
        return "another fusion: nothing is between them, but Thunder's partition keeps them apart"
    named = {
        Kind.COLLECTIVE: "a collective: it is issued outside of kernels",
        Kind.WAIT: "the wait for a collective, which no kernel contains",
        Kind.OFFLOAD: "a transfer to the CPU",
        Kind.RELOAD: "a transfer from the CPU",
        Kind.COPY: "an in-place copy that runs by itself",
    }
    if kind in named:
        return named[kind]
    executor = statements.executor[neighbor] or "its executor"
    if flags & StatementFlag.RANDOM:
        return f"random numbers, which {executor} draws as unmodified PyTorch does"
    if flags & StatementFlag.MATMUL:
        return f"a matrix product, for which {executor} has a kernel of its own"
    if flags & StatementFlag.VIEW:
        return f"a view that {executor} makes, which starts no kernel"
    return f"{executor} runs it: the fusing executor does not accept this operator"


def _statement_between(graph: Graph, first: int, last: int) -> int:
    """Return the row of a statement that depends on `first` and whose outputs `last` reads; -1 if there is none."""
    statements = graph.statements
    reached = set(statements.outputs[first].tolist())
    reads = set(statements.inputs[last].tolist())
    path: list[int] = []
    for row in _top(graph):
        if first < row < last and reached & set(statements.inputs[row].tolist()):
            reached.update(statements.outputs[row].tolist())
            path.append(row)
    # It is enough to check the inputs of `last`, because every path from `first` to `last` ends in one of them.
    return next((row for row in reversed(path) if reads & set(statements.outputs[row].tolist())), -1)
