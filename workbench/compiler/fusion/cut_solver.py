"""Find minimum cuts of the network of variables between two fusions.

The source of the network is the producer, and the sink is the consumer. A network may have several minimum cuts. This
module finds two of them: the cut nearest to the sink, and the cut nearest to the source. Thunder's NetworkX call
returns the cut nearest to the sink. If variables without cost separate the source from the sink, two graph searches
find both cuts. If not, SciPy's maximum flow finds both cuts. Networks that differ only in names share one cached result
of the flow.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

INFINITE = 1 << 30
"""Capacity of an edge that no minimum cut may contain."""


class Network:
    """Network of the variables between two fusions: the source is the producer, and the sink is the consumer.

    Parameters
    ----------
    capacity : mapping of str to int
        Capacity of every variable: the cost of passing it to the consumer.
    edges : collection of pairs of str
        Pairs of a variable and another variable that is computed from it. The second variable is not in `fed`.
    fed, drained : set of str
        Variables with an edge from the source, and variables with an edge to the sink.
    order : mapping of str to int
        Position of each variable in the producer. The variables are numbered in this order, so that networks that
        differ only in names share one cached result.
    """

    def __init__(
        self,
        capacity: Mapping[str, int],
        edges: Collection[tuple[str, str]],
        fed: set[str],
        drained: set[str],
        order: Mapping[str, int],
    ) -> None:
        self.capacity = capacity
        self.edges = edges
        self.fed = fed
        self.drained = drained
        self.order = order

    def cuts(self) -> tuple[set[str], set[str]]:
        """Return the variables of the minimum cut nearest to the sink, and of the minimum cut nearest to the source."""
        users, sources = defaultdict(list), defaultdict(list)
        for start, end in self.edges:
            users[start].append(end)
            sources[end].append(start)
        # A variable with an edge from the source and an edge to the sink is in both cuts, whatever its cost.
        alone = self.fed & self.drained
        near_source, reached = self._until_stopped(self.fed - alone, users)
        if reached.isdisjoint(self.drained):
            near_sink, _ = self._until_stopped(self.drained - alone, sources)
        else:
            near_sink, near_source = self._flow(alone)
        return alone | near_sink, alone | near_source

    def _until_stopped(self, starts: Iterable[str], following: Mapping[str, list[str]]) -> tuple[set[str], set[str]]:
        """Return the first variable of zero capacity on each path from `starts`, and all variables before these."""
        queue = list(starts)
        seen = set(queue)
        stopped = set()
        while queue:
            name = queue.pop()
            if not self.capacity[name]:
                stopped.add(name)
                continue
            for other in following.get(name, ()):
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
        return stopped, seen - stopped

    def _flow(self, alone: set[str]) -> tuple[set[str], set[str]]:
        names = sorted(self.capacity.keys() - alone, key=lambda name: (self.order.get(name, -1), name))
        index = {name: i for i, name in enumerate(names)}
        near_sink, near_source = least_cuts(
            tuple(self.capacity[name] for name in names),
            frozenset((index[a], index[b]) for a, b in self.edges if a in index and b in index),
            frozenset(index[name] for name in self.fed - alone),
            frozenset(index[name] for name in self.drained - alone),
        )
        return {names[i] for i in near_sink}, {names[i] for i in near_source}


@functools.lru_cache(maxsize=4096)
def least_cuts(
    capacities: tuple[int, ...], edges: frozenset[tuple[int, int]], fed: frozenset[int], drained: frozenset[int]
) -> tuple[frozenset[int], frozenset[int]]:
    """Return the indices of the variables in the minimum cuts nearest to the sink and to the source; see `Network`."""
    # Node 0 is the source. Node 1 is the sink. Nodes 2 i + 2 and 2 i + 3 stand for variable i. The edge between them
    # has the variable's capacity.
    limits = {(2 * i + 2, 2 * i + 3): capacity for i, capacity in enumerate(capacities)}
    infinite = [(0, 2 * i + 2) for i in fed] + [(2 * i + 3, 1) for i in drained]
    limits |= dict.fromkeys(infinite + [(2 * i + 3, 2 * j + 2) for i, j in edges], INFINITE)
    rows, columns = np.array(list(limits), np.int32).T
    size = 2 * len(capacities) + 2
    matrix = csr_array((np.array(list(limits.values()), np.int32), (rows, columns)), shape=(size, size))
    flow = maximum_flow(matrix, 0, 1).flow.tocoo()
    used = dict(zip(zip(*(nodes.tolist() for nodes in flow.coords), strict=True), flow.data.tolist(), strict=True))
    onward, back = defaultdict(list), defaultdict(list)
    for (start, end), limit in limits.items():
        flowing = used.get((start, end), 0)
        if flowing < limit:
            onward[start].append(end)
            back[end].append(start)
        if flowing > 0:
            onward[end].append(start)
            back[start].append(end)
    sink_side, source_side = _find_reachable(1, back), _find_reachable(0, onward)
    variables = range(len(capacities))
    return (
        frozenset(i for i in variables if 2 * i + 2 not in sink_side and 2 * i + 3 in sink_side),
        frozenset(i for i in variables if 2 * i + 2 in source_side and 2 * i + 3 not in source_side),
    )


def _find_reachable(start: int, following: Mapping[int, list[int]]) -> set[int]:
    queue, seen = [start], {start}
    while queue:
        for node in following.get(queue.pop(), ()):
            if node not in seen:
                seen.add(node)
                queue.append(node)
    return seen
