"""Minimum cuts of the network of variables between two fusions.

Two of all minimum cuts are found: the one nearest to the sink, which Thunder's NetworkX call returns, and the one
nearest to the source. A search from the source and a search from the sink stop at variables without cost. SciPy's
maximum flow runs only if the first search reaches the sink, and only once for networks of the same shape.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

INFINITE = 1 << 30
"""Capacity of an edge that no cut contains."""


class Network:
    """Network between two fusions: variables with capacities; the source feeds some, the sink drains some.

    Parameters
    ----------
    capacity : mapping of str to int
        Capacity of every variable.
    edges : collection of pairs of str
        Pairs of a variable and a variable that is computed from it and that the source does not feed.
    fed, drained : set of str
        Variables that the source feeds, and variables that the sink drains.
    order : mapping of str to int
        Positions of variables in the program. Networks of the same shape are solved once.
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
        # Both cuts contain every variable that the source feeds and the sink drains, whatever the variable costs.
        alone = self.fed & self.drained
        near_source, reached = self._until_stopped(self.fed - alone, users)
        if reached.isdisjoint(self.drained):
            near_sink, _ = self._until_stopped(self.drained - alone, sources)
        else:
            near_sink, near_source = self._flow(alone)
        return alone | near_sink, alone | near_source

    def _until_stopped(self, starts: Iterable[str], following: Mapping[str, list[str]]) -> tuple[set[str], set[str]]:
        """Return the first variable without capacity on each path from `starts`, and the variables before these."""
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
    """Return the minimum cuts nearest to the sink and nearest to the source, as variable numbers: see `Network`."""
    # Node 0 is the source. Node 1 is the sink. Nodes 2 i + 2 and 2 i + 3 are the two halves of variable i.
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
