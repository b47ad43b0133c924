"""`Selection`: the inspector's content for what is selected in the graph, and the effects of a selected site's options.

While nothing is selected, the inspector shows the best single choices. A thread computes the effects, because each of
them may need a plan.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workbench.bench.fit.choice_ranking import options_of
from workbench.bench.session.plan_diff import newly_held
from workbench.core.graph import Kind
from workbench.core.lever import Effect, Site
from workbench.errors import WorkbenchError
from workbench.ui.controls import inspector
from workbench.ui.controls.messages import words_of_held
from workbench.ui.controls.preview import Preview
from workbench.ui.graph.graph_view import GraphView

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.bench.fit.choice_ranking import Gain

_LOGGER = logging.getLogger(__name__)

_MOST_BEST = 3
"""Number of choices that are shown while nothing is selected."""
_PROGRESS_S = 1.0
"""Seconds between two texts about the progress. For hundreds of saved tensors, ranking can take more than a minute."""


class Selection:
    """Shows in the inspector what is selected in the graph.

    Parameters
    ----------
    bench : Workbench
    graph : GraphView
    panel : Inspector
    preview : Preview
        Learns the effects.
    report : callable
        Shows an error as one line in the app.
    lock : RLock
        The app's lock, which a thread holds while it draws.
    """

    def __init__(
        self,
        bench: Workbench,
        graph: GraphView,
        panel: inspector.Inspector,
        preview: Preview,
        report: Callable[[str], None],
        lock: threading.RLock,
    ) -> None:
        self._bench, self._graph, self._panel, self._preview = bench, graph, panel, preview
        self._report, self._lock = report, lock
        self._questions: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        """Selected sites, an empty text for the best single choices, and None at the end."""
        self._wants_best = False

    def start(self) -> None:
        """Start the thread that computes effects. It runs until `close`."""
        threading.Thread(target=self._answer, name="workbench-effects", daemon=True).start()

    def close(self) -> None:
        """End the thread that computes effects."""
        self._questions.put(None)

    def show(self) -> None:
        """Show what is selected now. If it is a site, the effects of its options follow when they are known."""
        selected = self._graph.selected
        sites = self._sites_of(selected)
        statement = None if sites else self._graph.statement_of(selected)
        if sites:
            self._show_sites(sites, {})
            self._questions.put(selected)
        elif (composite := self._graph.composite_of(selected)) is not None and (shown := self._graph.shown) is not None:
            self._panel.content = inspector.composite_content(
                shown.graph, shown.layout, composite, self._bench.plan.sites
            )
        elif statement is not None and statement >= 0:
            self._panel.content = self._statement_content(statement)
        elif (module := self._graph.module_of(selected)) is not None:
            self._panel.content = inspector.module_content(module)
        else:
            # Keep the earlier choices in grey until the new ones are known, so that nothing below them moves.
            best = self._panel.content.get("best", [])
            self._panel.content = {**inspector.empty_content(), "best": best, "waiting": self._can_rank}
            if self._wants_best:
                self._questions.put("")

    @property
    def _can_rank(self) -> bool:
        """Whether the effects of choices are known without plans."""
        plan = self._bench.plan
        return plan.graph.has_backward and not plan.census.count and self._bench.ranks == 1

    def ask_best(self) -> None:
        """Compute the best single choices, now and after each change of the plan, because a page shows them."""
        self._wants_best = True
        self._questions.put("")

    def show_code(self, fusion: str) -> None:
        """Add the source code of a fusion to the inspector, if the fusion is still selected."""
        code = self._bench.plan.code(fusion)
        if self._panel.content.get("fusion") == fusion:
            self._panel.content = {**self._panel.content, "code": {"kind": code.kind, "text": code.text}}

    def _statement_content(self, statement: int) -> dict[str, Any]:
        """Return the inspector's data for a statement, with its sites as links."""
        shown = self._graph.shown
        assert shown is not None
        content = inspector.statement_content(shown.graph, shown.layout, statement, shown.node_ids)
        return {**content, "here": inspector.sites_of_statement(shown.graph, self._bench.plan.sites, statement)}

    def _only_site(self, id: str) -> list[Site]:
        """Return the site of the values that a statement makes; empty if there are no or several such sites.

        The inspector then shows the site's options with the statement. For a fusion, it shows links.
        """
        statement, shown = self._graph.statement_of(id), self._graph.shown
        if statement is None or statement < 0 or shown is None or self._graph.composite_of(id) is not None:
            return []
        if shown.graph.statements.kind[statement] == Kind.FUSION:
            return []
        here = inspector.sites_of_statement(shown.graph, self._bench.plan.sites, statement)
        made = [one["id"] for one in here if one["what"] == "made"]
        return [self._bench.plan.site_of[made[0]]] if len(made) == 1 else []

    def _sites_of(self, id: str) -> list[Site]:
        """Return the selected site and the sites that share its arc, or the only site of a selected statement."""
        sites = self._bench.plan.sites
        numbers = self._graph.arc_sites(id)
        found = [sites[number] for number in numbers] or [site for site in sites if site.id == id]
        return sorted(found, key=lambda site: site.id != id) or self._only_site(id)

    def _show_sites(
        self,
        sites: list[Site],
        effects: dict[str, dict[str, Effect]],
        by_layers: inspector.ByLayers | None = None,
        reasons: dict[str, dict[str, str]] | None = None,
    ) -> None:
        labels = {site.id: site.label for site in self._bench.plan.sites}
        id = sites[0].id
        peers = self._graph.kind_of_peers(id)
        count, layers = len(self._graph.peers(id)), len(self._graph.everywhere(id)) if peers == "layers" else 1
        turned = {site.id: self._graph.sites_turned(site.id) for site in sites}
        content = inspector.site_content(
            sites,
            effects,
            labels,
            inspector.ScopeOfChoices(peers, count, layers, self._graph.scope),
            self._bench.machine.name,
            {id: Counter(one.choice for one in of_scope) for id, of_scope in turned.items()},
            by_layers,
            reasons,
        )
        statement = self._graph.statement_of(self._graph.selected)
        if statement is not None and statement >= 0:
            # Add the statement's own data, without a link to the site whose options are shown already.
            own = self._statement_content(statement)
            content |= {**own, "here": [one for one in own["here"] if one["id"] != id]}
        self._panel.content = content

    def _answer(self) -> None:
        """Show the effects of a site's options after each selection. This loop runs in its own thread until `close`."""
        while (id := self._questions.get()) is not None:
            try:
                self._show_effects(id) if id else self._show_best()
            except WorkbenchError as error:
                self._report(str(error))
            except Exception as error:
                _LOGGER.exception("the effects of %s could not be computed", id)
                self._report(f"{type(error).__name__}: {error}")

    def _show_best(self) -> None:
        """Show the choices that lower the peak most, if nothing is fused, so that no plan is needed to find them."""
        plan, shown = self._bench.plan, self._graph.shown
        found: list[tuple[list[Site], Gain]] = []
        if shown is None or shown.graph is not plan.graph or not self._panel.content.get("waiting"):
            return
        worth = self._bench.worth()
        if worth.plan is not plan:
            return
        asked = [
            (sites, choices)
            for sites in self._graph.groups()
            if not sites[0].is_setting
            for choices in options_of(sites)
        ]
        told_s = time.monotonic()
        for number, (sites, choices) in enumerate(asked):
            if not self._questions.empty() or self._bench.plan is not plan:
                return
            if time.monotonic() - told_s > _PROGRESS_S:
                told_s = time.monotonic()
                with self._lock:
                    if self._questions.empty() and self._panel.content.get("waiting"):
                        self._panel.content = {**self._panel.content, "progress": f"{number} of {len(asked)}"}
            gain = worth.quick(choices)
            if gain is not None and not gain.estimated and gain.peak_bytes < 0:
                found.append((sites, gain))
        found.sort(key=lambda one: (one[1].peak_bytes, one[1].saved_bytes, one[1].step_s))
        with self._lock:
            if self._questions.empty() and self._bench.plan is plan and self._panel.content.get("waiting"):
                self._panel.content = inspector.best_content(found[:_MOST_BEST])

    def _show_effects(self, id: str) -> None:
        """Show each option's effect as soon as it is known. If statements are fused, all effects together take long."""
        plan, machine = self._bench.plan, self._bench.machine

        def current() -> bool:
            return self._bench.plan is plan and self._bench.machine == machine

        effects: dict[str, dict[str, Effect]] = {}
        by_layers: inspector.ByLayers = {}
        reasons: dict[str, dict[str, str]] = {}
        sites = self._sites_of(id)
        # A choice applies to all sites that a double click would change, such as those of folded layers.
        todo = [
            (site, option)
            for site in sites
            for option in site.options
            if option not in site.illegal and any(one.choice != option for one in self._graph.sites_turned(site.id))
        ]

        def show() -> None:
            with self._lock:
                if self._graph.selected == id and current():
                    self._show_sites(sites, effects, by_layers, reasons)

        for site, option in todo:
            if not self._questions.empty() or not current():
                return
            choices = self._graph.choices_at(site.id, option)
            effect = self._bench.effect(choices)
            effects.setdefault(site.id, {})[option] = effect
            self._preview.learn(plan, choices, effect, "the inspector")
            show()
        for site, option in todo:
            if effects[site.id][option].peak_bytes <= 0:
                continue
            if not self._questions.empty() or not current():
                return
            # Only a plan says which storages are alive at the higher peak.
            then = self._bench.plan_with({**self._bench.choices, **self._graph.choices_at(site.id, option)}, keep=False)
            reasons.setdefault(site.id, {})[option] = words_of_held(newly_held(plan, then))
            show()
        for site, option in todo:
            for name, choices in self._graph.groups_of_layers(site.id, option).items():
                if not self._questions.empty() or not current():
                    return
                effect = self._bench.effect(choices)
                by_layers.setdefault(site.id, {}).setdefault(option, []).append(
                    inspector.EffectInLayers(name, choices, effect)
                )
                self._preview.learn(plan, choices, effect, "the inspector")
                show()
