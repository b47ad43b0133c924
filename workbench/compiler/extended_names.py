"""Names that only what is planned on the way has, and fusions of one layer beside those of the next."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from workbench.compiler.chains import Rows
from workbench.compiler.layers import OtherwiseError
from workbench.compiler.thunder_api import PrimIDs, TraceCtx
from workbench.graph import Graph, Kind


@dataclasses.dataclass(frozen=True)
class States:
    """States that numbers are drawn from.

    Attributes
    ----------
    made_in : dict of str to int
        The layer of each, by name.
    """

    made_in: dict[str, int]

    def pairs(self, one: int, other: int) -> dict[str, str]:
        """Those of one layer, and of another what stands for them; none if it has as many less or more."""
        of = [[name for name, at in self.made_in.items() if at == layer] for layer in (one, other)]
        return dict(zip(*of, strict=True)) if len(of[0]) == len(of[1]) else {}


def states_of(few: Graph, partitioned: TraceCtx | None, home: Rows) -> States:
    """The states that numbers are drawn from, as they are called before later passes name them anew.

    Parameters
    ----------
    few : Graph
        As they are executed.
    partitioned : TraceCtx or None
        What fusions were made of first.
    home : array
        The layer that makes each value.

    Raises
    ------
    OtherwiseError
        If some of them are gone.
    """
    names = [
        out.name
        for bsym in (partitioned.bound_symbols if partitioned is not None else ())
        if bsym.sym.id is PrimIDs.GET_AND_UPDATE_RNG_STATE
        for out in bsym.flat_proxy_outs
    ]
    statements = few.statements
    rows = [row for row, name in enumerate(statements.name) if name == "get_and_update_rng_state_impl"]
    values = statements.outputs.taken(np.asarray(rows, np.intp)).items
    if len(values) != len(names):
        raise OtherwiseError
    return States(dict(zip(names, home[values].tolist(), strict=True)))


def fused_alike(few: Graph, part: Rows, layers: tuple[int, int], of_other: Mapping[str, str]) -> dict[str, str]:
    """Fusions of two layers that make the same, forward or backward, as far as that is known.

    Parameters
    ----------
    few : Graph
    part : array
        The layer of each row.
    layers : tuple of (int, int)
    of_other : mapping of str to str
        What stands in the second for names of the first.
    """
    statements, values, (one, other) = few.statements, few.values, layers
    maker = dict(zip(values.name, values.producer.tolist(), strict=True))
    found: dict[str, str] = {}
    for row in np.flatnonzero((statements.kind == Kind.FUSION) & (part == one)).tolist():
        made = {maker.get(of_other.get(values.name[out], ""), -1) for out in statements.outputs[row].tolist()}
        if len(made := made - {-1}) == 1 and part[there := made.pop()] == other:
            found[statements.name[row]] = statements.name[there]
    return found if len(set(found.values())) == len(found) else {}
