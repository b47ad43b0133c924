"""What a plan comes to in memory, without all else that a plan says: for estimates, in less time than a plan takes.

The statements are those of the plan, made by the same passes. It is not proven, nothing is counted in it, and its sites
are found once somebody asks for them: nothing of it is run, and whoever chooses what was estimated by it gets a plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property

from workbench.analysis.memory import Timeline, timeline
from workbench.compiler.capture import Capture
from workbench.compiler.cycles import few_collections
from workbench.compiler.hooks import Executed, Hooks, StageLog, executed, sites_under
from workbench.compiler.reader import read_execution
from workbench.compiler.stage import Made
from workbench.graph import Graph
from workbench.lever import Site, lever_of


@dataclasses.dataclass(frozen=True, eq=False)
class Sketch:
    """What a plan comes to in memory."""

    _executed: Executed
    _captured: Capture
    _choices: Mapping[str, str]

    @cached_property
    def graph(self) -> Graph:
        """The execution traces, forward then backward."""
        return self._read(members=True)

    @cached_property
    def on_top(self) -> tuple[Graph, Timeline]:
        """Graph and timeline without what is inside fusions, which takes less time; with it where it is there."""
        if "graph" in self.__dict__:
            return self.graph, self.timeline
        graph = self._read(members=False)
        return graph, timeline(graph)

    @cached_property
    def timeline(self) -> Timeline:
        """One row per statement of `graph`."""
        return timeline(self.graph)

    @cached_property
    def saved_bytes(self) -> int:
        """As of a plan."""
        return self.on_top[0].saved_bytes

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """All sites under the choices."""
        with self._captured.planning, self._captured.inside():
            return sites_under(self._choices, self._captured.stage, self._made(self.graph))

    @cached_property
    def site_of(self) -> Mapping[str, Site]:
        """The sites by their ids."""
        return {site.id: site for site in self.sites}

    @property
    def unmatched(self) -> tuple[str, ...]:
        """Ids of choices that fit no site."""
        levers = {lever_of(id) for id in self._choices}
        with self._captured.planning, self._captured.inside():
            sites = sites_under(self._choices, self._captured.stage, self._made(self.on_top[0]), levers)
        return tuple(sorted(self._choices.keys() - {site.id for site in sites}))

    def _read(self, *, members: bool) -> Graph:
        with self._captured.planning, self._captured.inside():
            made = self._executed
            return read_execution(made.forward, made.backward, self._captured.stage, members=members)

    def _made(self, graph: Graph) -> Made:
        return dataclasses.replace(self._executed.hooks.made, execution=graph)


@few_collections()
def sketch(captured: Capture, choices: Mapping[str, str], newer: Callable[[], bool] | None = None) -> Sketch:
    """What a plan under choices comes to in memory.

    Parameters
    ----------
    captured : Capture
    choices : mapping of str to str
    newer : callable, optional
        Asked after each stage whether something newer is to be found.

    Raises
    ------
    ChoiceError
        If a choice is refused.
    PlanError
        If a pass cannot make what was chosen.
    Superseded
        If something newer is to be found.
    """
    with captured.planning:
        captured.kept.begin()
        with captured.inside():
            hooks = Hooks(captured.executor, choices, StageLog(newer), kept=captured.kept)
            found = executed(hooks, captured.stage)
        hooks.mark("after split")
        return Sketch(found, captured, dict(choices))
