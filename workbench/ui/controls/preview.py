"""The preview: the effect of the option under the pointer or in focus, in the status line."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.summary import ESTIMATED, human_bytes, human_seconds
from workbench.ui.controls.controls import StatusLine
from workbench.ui.graph.node_names import label_in_layers, short_label

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.bench.fit.choice_ranking import Gain
    from workbench.compiler.api import Plan
    from workbench.core.lever import Effect
    from workbench.ui.controls.choice_queue import ChoiceQueue
    from workbench.ui.controls.controls import Controls
    from workbench.ui.graph.graph_view import GraphView

_LOGGER = logging.getLogger(__name__)

type _Found = tuple[Effect | Gain, str]
"""The effect of choices, and the name of the panel that computed the effect."""

_LEAST_S = 1e-9
"""Least difference of step times that is shown. Smaller differences come from the order of summation."""


class Preview(StatusLine):
    """The status line, in which the preview appears.

    The preview shows effects that the inspector or *Single choices* has computed with a plan. If nothing is fused, it
    can estimate other effects. The preview itself never makes a plan, and therefore shows no other effects.

    Parameters
    ----------
    bench : Workbench
    graph : GraphView
    choosing : ChoiceQueue
    controls : Controls
    on_message : callable
    """

    def __init__(
        self,
        bench: Workbench,
        graph: GraphView,
        choosing: ChoiceQueue,
        controls: Controls,
        on_message: Callable[[dict[str, Any]], None],
    ) -> None:
        super().__init__(controls, on_message)
        self._bench, self._graph, self._choosing = bench, graph, choosing
        self._lock = threading.Lock()
        self._turn = 0
        self._pointed: dict[str, Any] = {}
        self._shown: tuple[dict[str, str], str] = ({}, "")
        self._found: tuple[Plan | None, dict[frozenset[tuple[str, str]], _Found]] = (None, {})

    def learn(self, plan: Plan, choices: Mapping[str, str], effect: Effect | Gain, source: str) -> None:
        """Store the effect of adding choices to `plan`, and the name of the panel that computed this effect.

        If the option under the pointer makes these choices, show the effect at once. When the plan changes, all stored
        effects are dropped.
        """
        with self._lock:
            if plan is not self._bench.plan:
                return
            if self._found[0] is not plan:
                self._found = plan, {}
            self._found[1][frozenset(choices.items())] = effect, source
            shown, what = self._shown
        if shown == choices:
            self._ask(shown, what)

    def point(self, message: Mapping[str, Any]) -> None:
        """Show the effect of the option under the pointer, or clear the line.

        Parameters
        ----------
        message : mapping
            The option under the pointer: the ``id`` and ``option`` of a site, or several ``choices``. Without
            ``option``, the preview shows the option that a double click would choose. If no site is named, the line is
            cleared.
        """
        if message.get("id") or message.get("choices"):
            self.pointed += 1
        self._point(message)

    def _point(self, message: Mapping[str, Any]) -> None:
        self._pointed = dict(message)
        choices = dict(message.get("choices") or {})
        site = self._bench.plan.site_of.get(message.get("id") or next(iter(choices), ""))
        if site is None:
            self._pointed = {}
            self._ask({}, "")
            return
        name = short_label(site)
        option = message.get("option") or choices.get(site.id) or self._choosing.next_requested(site)
        reason = site.illegal.get(option or "", "")
        if option is None or reason:
            self._set_content(self._next_turn(), {"what": self._choosing.say_why_fixed(site), "bad": True})
            return
        in_force = {id: known.choice for id, known in self._bench.plan.site_of.items()} | self._choosing.pending
        if all(in_force.get(id) == wanted for id, wanted in (choices or {site.id: option}).items()):
            self._set_content(self._next_turn(), {"what": f"{name} is {option} now", "how": "nothing would change"})
            return
        alike = self._graph.choices_at(site.id, option, message.get("scope"))
        noun = self._graph.kind_of_peers(site.id)
        peers = f" in {len(alike)} {noun}" if len(alike) > 1 else ""
        if peers and noun == "layers":
            name = label_in_layers(site)
        one_kind = not choices or choices == alike
        self._ask(choices or alike, f"{option} for {name}{peers}" if one_kind else f"{len(choices)} choices")

    def renew(self) -> None:
        """Compute and show the effect again, because there is a new plan."""
        if self._pointed:
            self._point(self._pointed)
        elif self.content:
            self._ask({}, "")

    def ask(self, choices: Mapping[str, str], label: str) -> None:
        """Show the effect of choices; clear the line if there are none."""
        self._pointed = {}
        self.pointed += bool(choices)
        self._ask(choices, label)

    def _ask(self, choices: Mapping[str, str], label: str) -> None:
        """Compute and show the effect of choices in a separate thread, so that the app still answers clicks."""
        turn = self._next_turn(choices, label)
        if not choices:
            self._set_content(turn, {})
            return
        work = threading.Thread(
            target=self._work, args=(turn, dict(choices), label), name="workbench-preview", daemon=True
        )
        work.start()

    def _next_turn(self, choices: Mapping[str, str] | None = None, label: str = "") -> int:
        with self._lock:
            self._turn += 1
            self._shown = dict(choices or {}), label
            return self._turn

    def _set_content(self, turn: int, content: dict[str, Any]) -> None:
        with self._lock:
            if turn == self._turn:
                self.content = content

    def _work(self, turn: int, choices: dict[str, str], label: str) -> None:
        try:
            self._set_content(turn, {"what": label, **self._changes(choices)})
        except Exception:
            _LOGGER.exception("what %s would change could not be estimated", choices)
            self._set_content(turn, {"what": label, "how": "the effect could not be estimated: choose it to see"})

    def _changes(self, choices: dict[str, str]) -> dict[str, Any]:
        plan, pending = self._bench.plan, self._choosing.pending
        known = self._found[1].get(frozenset(choices.items())) if self._found[0] is plan and not pending else None
        if known is not None:
            found, by = known
            figures = [_figure("peak", found.peak_bytes), _figure("saved", found.saved_bytes)]
            return {"figures": figures, "how": f"exact; see {by}"}
        # Subtract the effect of the choices that are still being planned.
        now, then = self._choosing.estimate(), self._choosing.weigh({**pending, **choices})
        if then is None or (pending and now is None):
            return {"how": self._why_unknown(plan, len(choices))}
        peak_bytes = then.peak_bytes - (now.peak_bytes if now is not None else 0)
        saved_bytes = then.saved_bytes - (now.saved_bytes if now is not None else 0)
        step_s = then.step_s - (now.step_s if now is not None else 0.0)
        about = ESTIMATED if then.estimated else ""
        figures = [_figure("peak", peak_bytes, about), _figure("saved", saved_bytes, about)]
        if abs(step_s) > _LEAST_S:
            text = f"{'+' if step_s > 0 else '−'}{human_seconds(abs(step_s))}"
            figures.append({"name": "step, predicted", "text": text, "tone": "bad" if step_s > 0 else "good"})
        how = "estimated; the plan may differ a little" if then.estimated else "exact"
        return {"figures": figures, "how": how}

    @staticmethod
    def _why_unknown(plan: Plan, count: int) -> str:
        if count > 1:
            return "no estimate for these choices together; Undo takes them back"
        if plan.census.count:
            return "no estimate: this choice changes the fusions; select it for its effect"
        return "no estimate without a plan; select it for its effect"


def _figure(name: str, change: int, about: str = "") -> dict[str, str]:
    if not change:
        return {"name": name, "text": "no change", "tone": ""}
    return {"name": name, "text": f"{about}{human_bytes(change, signed=True)}", "tone": "bad" if change > 0 else "good"}
