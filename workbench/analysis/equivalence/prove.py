"""Prove that a plan computes the same results as the stock plan, by value numbering over versions of memory.

The method is translation validation: it compares two finished graphs, and does not depend on how the plan was made. It
visits both graphs statement by statement. Each value gets a number for its content. The number stands for a term. A
term consists of the symbol that computed the value, the static arguments, and the numbers of the inputs at that moment.
Equal terms have equal numbers. A term contains neither the names of values nor the positions of statements. Therefore,
a recomputed value has the same number as the original.

A write makes a new version of a storage. The number of a later read, also through an alias or a view, depends on this
version. The term of a random draw contains its position among all draws. The term of a collective contains its process
group. The result of a collective has one number before its wait, and a different number after it.

Two graphs compute the same results if three conditions hold. Outputs, gradients and the contents of written arguments
have equal numbers. Both graphs draw the same random numbers in the same order. The same collectives lack a wait in
both graphs. `RULES` lists the rewrites by which the graphs may still differ. A proof names the rules that it has used.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from workbench.analysis.equivalence.first_difference import first_difference
from workbench.analysis.equivalence.rewrite_rules import RULES
from workbench.analysis.equivalence.terms import Terms, may_write
from workbench.analysis.equivalence.value_numbering import Numbered, ValueNumbering
from workbench.core.graph import Graph, StatementFlag


@dataclasses.dataclass(frozen=True)
class Proof:
    """Result of an attempt to prove that a plan equals the stock plan.

    Attributes
    ----------
    proven : bool
    rules : tuple of str
        Names of the rules in `RULES` that apply to different terms in the two plans.
    statement : int
        Row of the first statement of the plan that differs. -1 if no statement of the plan differs, for example if the
        plan only lacks a statement.
    source : str
        The line of the user's code with the difference, such as ``model.py:12 x = torch.tanh(x)``; empty if unknown.
    difference : str
        Description of the difference; empty if the results are equal.
    fault : str
        Description of a difference between the stock plan and Thunder's trace, with the user's line; empty if they do
        not differ.
    """

    proven: bool
    rules: tuple[str, ...] = ()
    statement: int = -1
    source: str = ""
    difference: str = ""
    fault: str = ""

    @property
    def message(self) -> str:
        """The user's line and the description of the first difference, as one line."""
        return f"{self.source}: {self.difference}" if self.source else self.difference

    def with_stock_fault(self, fault: str) -> Proof:
        """Return this proof with a fault of the stock plan. With a fault, the returned proof is not proven."""
        return dataclasses.replace(self, proven=False, fault=fault) if fault else self


def prove(stock: Graph, plan: Graph) -> Proof:
    """Prove that a plan computes the same results as the stock plan.

    Parameters
    ----------
    stock, plan : Graph
        Execution graphs of one program under one executor. `stock` may also be the program's joint graph.

    Returns
    -------
    Proof
    """
    return Prover(stock).prove(plan)


def fault(joint: Graph, stock: Graph) -> str:
    """Describe in one line how a stock plan differs from its joint graph; empty if the results are equal.

    For nvFuser, only two facts are compared: the number of random draws, and the set of arguments that are written. The
    set of written arguments is compared at the end of the forward, and at the end of the step. Values are not compared,
    because nvFuser's fusions consist of primitives and have their own random generator.

    Parameters
    ----------
    joint, stock : Graph
        The joint graph after executors were chosen for its statements, and the execution graph of the stock plan.
    """
    if not any("nvfuser" in name.lower() for name in stock.statements.executor):
        return prove(joint, stock).message
    drawn, drawn_by_stock = _draws(joint), _draws(stock)
    if drawn != drawn_by_stock:
        return f"random numbers are drawn {drawn} times, but {drawn_by_stock} times in the stock plan"
    terms = Terms()
    if not may_write(joint, terms):
        return ""
    before, after = (ValueNumbering(terms, graph, drops_casts=True).result() for graph in (joint, stock))
    for one, other, when in (
        (before.written_forward, after.written_forward, "by the end of the forward"),
        (before.written, after.written, "by the end of the step"),
    ):
        for name in one:
            if name not in other:
                return f"the program writes into {name}, but {when} no statement of the stock plan does"
    return ""


def _draws(graph: Graph) -> int:
    """Return the number of random draws. Repeated draws from the same generator state count once."""
    statements, values, states, others = graph.statements, graph.values.name, set(), 0
    inside = set(statements.parent.tolist())
    for row in np.flatnonzero(statements.flags & StatementFlag.RANDOM).tolist():
        if "philox" in statements.name[row]:
            states.add(tuple(values[value] for value in statements.inputs[row].tolist()))
        elif row not in inside:
            others += 1
    return len(states) + others


class Prover:
    """Proves that plans compute the same results as one stock plan. The stock plan's values are numbered only once.

    Parameters
    ----------
    stock : Graph
        The execution graph of the stock plan, or the joint graph of the program.
    """

    def __init__(self, stock: Graph) -> None:
        self.stock = stock
        self._terms = Terms()
        self._drops_casts = any("nvfuser" in name.lower() for name in stock.statements.executor)
        self._known = self._number_graph(stock)

    def _number_graph(self, graph: Graph) -> Numbered:
        return ValueNumbering(self._terms, graph, drops_casts=self._drops_casts).result()

    def prove(self, plan: Graph) -> Proof:
        """Prove that a plan computes the same results as the stock plan."""
        known, found = self._known, self._number_graph(plan)
        difference = known.differing_result(found)
        if difference is None:
            return Proof(True, tuple(name for name in RULES if known.applied[name] != found.applied[name]))
        statement, source, words = first_difference(self.stock, known, plan, found, difference)
        return Proof(False, statement=statement, source=source, difference=words)

    def of_stock(self, fault: str) -> Proof:
        """Return the proof of the stock plan itself: it is proven if `fault` is empty.

        Parameters
        ----------
        fault : str
            Difference between the stock plan and Thunder's trace; empty if they do not differ.
        """
        return Proof(True).with_stock_fault(fault)
