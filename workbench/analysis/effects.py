"""What a program draws and writes against what Thunder made of it: the check of the stock plan itself."""

from __future__ import annotations

import dataclasses
from collections import Counter

from workbench.analysis.numbering import Walk
from workbench.analysis.terms import DRAW, Terms
from workbench.graph import Graph, StatementFlag


@dataclasses.dataclass(frozen=True)
class Effects:
    """How what was made of a program differs from it, as far as anyone else could tell.

    Attributes
    ----------
    drawn_again : tuple of int
        Origins that draw random numbers more often than the program does.
    lost : tuple of str
        Arguments that the program writes into and that nothing writes into any more.
    """

    drawn_again: tuple[int, ...]
    lost: tuple[str, ...]


def compared(program: Graph, made: Graph) -> Effects:
    """Compare the effects of a program's own trace with those of what was made of it.

    What values are is not compared: gradient rules and executors take composite ops apart in ways of their own.

    Parameters
    ----------
    program : Graph
        Of the trace as interpreted, before anything was done to it.
    made : Graph
        The joint graph, or an execution graph, of the same origins.
    """
    terms = Terms()
    before, after = _draws(program, terms), _draws(made, terms)
    written = [Walk(terms, _told(graph), drops_casts=False).result().written for graph in (program, made)]
    return Effects(
        drawn_again=tuple(sorted(o for o, count in after.items() if o >= 0 and count > before[o])),
        lost=tuple(name for name in written[0] if name not in written[1]),
    )


def _told(graph: Graph) -> Graph:
    """The graph without writes of which no step says where they go: an op taken whole may write into any input."""
    statements = dataclasses.replace(graph.statements, flags=graph.statements.flags & ~StatementFlag.INPLACE)
    return dataclasses.replace(graph, statements=statements)


def _draws(graph: Graph, terms: Terms) -> Counter[int]:
    found: Counter[int] = Counter()
    for text, origin in zip(graph.statements.computes, graph.statements.origin.tolist(), strict=True):
        if text:
            steps, _ = terms.steps(text)
            found[origin] += sum(step.action == DRAW for step in steps)
    return found
