"""Plan the user's choices on worker threads. If nothing is fused, show estimated figures until the plan is ready."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from workbench.bench.session.plan_diff import diff as diff_of
from workbench.bench.session.plan_diff import newly_held
from workbench.core.lever import Site
from workbench.errors import ChoiceError
from workbench.ui.controls.messages import words_of_change, words_of_held, words_of_step
from workbench.ui.graph.node_names import label_in_layers, next_option, short_label
from workbench.ui.graph.site_anchors import CROSSING
from workbench.util.gc_pause import paused_gc

if TYPE_CHECKING:
    from workbench.bench import PlanDiff, Workbench
    from workbench.bench.fit.choice_ranking import Gain, Worth
    from workbench.compiler.api import Plan
    from workbench.ui.graph.graph_view import GraphView


class _ShowMessage(Protocol):
    def __call__(self, text: str | None, *, bad: bool = False) -> None: ...


@dataclasses.dataclass(frozen=True)
class _Named:
    """A choice in words: the option and the sites."""

    id: str
    label: str
    option: str
    """Empty for choices of several kinds of sites."""
    peers: str
    """Kind of the sites: layers, repeats, waits or sites."""
    alike: int
    """Number of layers that were shown as one before the choice."""


class ChoiceQueue:
    """The choices that the user has requested and that no shown plan contains yet.

    Parameters
    ----------
    bench : Workbench
    graph : GraphView
    act : callable
        Calls a function and returns its result; on failure, shows a message and returns None.
    say : callable
        Shows a line of text.
    show : callable
        Called when a request is added, and when it was planned or refused.
    """

    def __init__(
        self,
        bench: Workbench,
        graph: GraphView,
        *,
        act: Callable[[Callable[[], Any]], Any],
        say: _ShowMessage,
        show: Callable[[], None],
    ) -> None:
        self._bench, self._graph = bench, graph
        self._act, self._say, self._show = act, say, show
        self._changed = threading.Condition()
        self._asked: dict[int, dict[str, str]] = {}
        self._working: set[int] = set()
        self._undoing: set[int] = set()
        self._numbers = itertools.count()
        self._weigher: tuple[Plan, Worth] | None = None
        self._weighed: tuple[Plan | None, dict[str, str], Gain | None] = (None, {}, None)

    def turn(self, sites: Sequence[Site]) -> None:
        """Choose the next option of a site, or of the sites of folded layers."""
        if not sites:
            return
        option = self.next_requested(sites[0])
        if option is None:
            self._say(self.say_why_fixed(sites[0]), bad=True)
            return
        self.choose(self._graph.choices_at(sites[0].id, option))

    def next_requested(self, site: Site) -> str | None:
        """Return the option that a double click would choose: the next after the last request, even a pending one."""
        return next_option(dataclasses.replace(site, choice=self.pending.get(site.id, site.choice)))

    @staticmethod
    def say_why_fixed(site: Site) -> str:
        """Describe why a site has no other legal option."""
        reasons = "; ".join(f"{option} is refused: {why}" for option, why in site.illegal.items())
        return f"{short_label(site)} stays {site.choice}. {reasons}".strip()

    def choose(self, choices: Mapping[str, str], *, release: bool = False) -> None:
        """Request choices for one or more sites, and plan them in a separate thread.

        With `release`, searches may change them, as if the user had not chosen them.
        """
        if not choices:
            return
        with self._changed:
            number = next(self._numbers)
            self._asked[number] = dict(choices)
            self._working.add(number)
            undos = set(self._undoing)
        named = self._name_choices(choices)
        asking = threading.Thread(
            target=self._make, args=(number, named, undos, release), name="workbench-choosing", daemon=True
        )
        # Show the message before the thread starts, because planning keeps the interpreter busy.
        self._say(f"Planning {named.label}{named.option and f': {named.option}'}…")
        self._show()
        asking.start()

    def _name_choices(self, choices: Mapping[str, str]) -> _Named:
        id, option = next(iter(choices.items()))
        first, alike = self._bench.plan.site_of.get(id), len(self._graph.peers(id))
        same = {site.id for site in self._graph.sites_turned(id, "all")}
        if not choices.keys() <= same or len({*choices.values()}) > 1:
            return _Named(id, f"{len(choices)} choices", "", "sites", alike)
        peers = self._graph.kind_of_peers(id)
        if first is None:
            return _Named(id, id, option, peers, alike)
        label = label_in_layers(first) if len(choices) > 1 and peers == "layers" else short_label(first)
        return _Named(id, label, option, peers, alike)

    def _make(self, number: int, named: _Named, undos: set[int], release: bool) -> None:
        choices = self._asked[number]
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._undoing & undos)
            with paused_gc():
                before = self._bench.plan
                # Release in the same step, so that a choice that the user makes right after it stays the user's.
                diff = self._act(lambda: self._bench.choose(choices, by_hand=not release))
                if diff is not None:
                    self._say(self._describe_effect(choices, named, diff, before))
        finally:
            self._forget({number})
            # Redraw, so that a refused choice does not look like a current choice.
            self._act(self._show)
            with self._changed:
                self._working.remove(number)
                self._changed.notify_all()

    def _describe_effect(self, choices: Mapping[str, str], named: _Named, diff: PlanDiff, before: Plan) -> str:
        """Describe the effect of choices.

        If the peak stays, also name its statement and the values alive there. If the peak rises, name the storages that
        come to be alive there.
        """
        bench = self._bench
        of_memory = {site.lever for id in choices if (site := bench.plan.site_of.get(id))} & {*CROSSING}
        why = bench.worth().why_peak(choices) if of_memory and not diff.peak_bytes else ""
        told = words_of_change(named.label, named.option, choices, named.peers, diff, bench.machine.name, why)
        if diff.peak_bytes > 0:
            told = f"{told} {words_of_held(newly_held(before, bench.plan))}".strip()
        return f"{told} {self._describe_split(named)}".strip() if len(choices) == 1 and named.peers != "waits" else told

    def go(self, *, back: bool) -> None:
        """Undo or redo the last change of choices and describe the effect.

        If choices are being planned, another thread does this after them. Choices that are planned together are one
        change.
        """
        with self._changed:
            earlier = set(self._working)
            number = next(self._numbers)
            waits = bool(earlier) or self._bench.is_choosing
            if waits:
                self._working.add(number)
                self._undoing.add(number)
        if not waits:
            self._go(back=back)
            return

        def go_later() -> None:
            try:
                with self._changed:
                    self._changed.wait_for(lambda: not self._working & earlier)
                # Other tabs, such as Fit, make choices without this queue.
                self._bench.wait_until_chosen()
                self._go(back=back)
            finally:
                with self._changed:
                    self._working.remove(number)
                    self._undoing.remove(number)
                    self._changed.notify_all()

        self._say(f"Planning, then {'undo' if back else 'redo'}…")
        threading.Thread(target=go_later, name="workbench-undoing", daemon=True).start()

    def _go(self, *, back: bool) -> None:
        bench = self._bench
        before, was = bench.plan, dict(bench.choices)
        self._act(bench.undo if back else bench.redo)
        after, chosen = bench.plan, dict(bench.choices)
        moved = [id for id in sorted(was.keys() | chosen.keys()) if was.get(id) != chosen.get(id)]
        # The new plan may lack a site of the earlier plan.
        sites = [
            dataclasses.replace(site, choice=chosen.get(id, site.default))
            for id in moved
            if (site := after.site_of.get(id) or before.site_of.get(id))
        ]
        if sites:
            change = diff_of(before, after, bench.machine)
            self._say(words_of_step("Undid" if back else "Redid", sites, change, bench.machine.name))

    def _describe_split(self, named: _Named) -> str:
        """Describe whether a choice for one layer split this layer from identical layers, or joined it to them."""
        alike = len(self._graph.peers(named.id))
        if alike < named.alike:
            return f"It now differs from the other {named.alike - 1} {named.peers}, and is shown separately."
        return f"It is identical to {alike - 1} other {named.peers} again." if alike > named.alike else ""

    @property
    def pending(self) -> dict[str, str]:
        """Requested option of each site, in the order of the clicks."""
        with self._changed:
            return {id: option for choices in self._asked.values() for id, option in choices.items()}

    def drop_planned(self, plan: Plan) -> None:
        """Remove the requests whose choices `plan` has."""
        known = plan.site_of
        with self._changed:
            asked = list(self._asked.items())
        self._forget(
            {
                number
                for number, choices in asked
                if all(id in known and known[id].choice == option for id, option in choices.items())
            }
        )

    def _forget(self, numbers: set[int]) -> None:
        with self._changed:
            self._asked = {number: choices for number, choices in self._asked.items() if number not in numbers}

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until every request is planned or refused; return False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._working, timeout_s)

    def estimate(self) -> Gain | None:
        """Return the estimated effect of pending requests; None if there are none, or if an estimate needs a plan."""
        pending = self.pending
        return self.weigh(pending) if pending else None

    def weigh(self, choices: Mapping[str, str]) -> Gain | None:
        """Estimate the effect of further choices, in milliseconds and without a plan; None if this is impossible.

        With fusions, it is impossible: a choice changes the fusions, and even an estimate's sign could be wrong.
        """
        plan = self._bench.plan
        if plan.census.count:
            return None
        weigher = self._weigher
        if weigher is None or weigher[0] is not plan:
            self._weigher = weigher = plan, self._bench.worth()
        weighed = self._weighed
        if weighed[0] is not plan or weighed[1] != choices:
            try:
                gain = weigher[1].quick(choices)
            except ChoiceError:
                # Give no estimate: the bench will refuse the choice and give the reason.
                gain = None
            self._weighed = weighed = plan, dict(choices), gain
        return weighed[2]
