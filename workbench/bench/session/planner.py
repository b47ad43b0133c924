"""`Planner`: make one plan at a time, without holding the bench's lock. A newer choice stops the current planning."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from workbench.core.lever import no_site_reason, widen_site
from workbench.errors import ChoiceError, WorkbenchError

if TYPE_CHECKING:
    from workbench.bench.session.plan_diff import PlanDiff
    from workbench.compiler.api import Capture, Plan

PLANS_KEPT = 16
"""Number of cached plans. With a cached plan, undo, redo and comparisons of effects need no planning."""


@dataclasses.dataclass(eq=False)
class ChoiceRequest:
    """Requested choices, and their result when it is known.

    Attributes
    ----------
    choices : mapping of str to str
    found : bool
        Whether a search, and not the user, requested the choices.
    done : PlanDiff or None
        The effect on the plan, after the choices were made.
    error : WorkbenchError or None
        The reason why the choices were refused.
    """

    choices: Mapping[str, str]
    found: bool = False
    done: PlanDiff | None = None
    error: WorkbenchError | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the result is known."""
        return self.done is not None or self.error is not None

    @property
    def result(self) -> PlanDiff:
        """Effect of the choices on the plan.

        Raises
        ------
        WorkbenchError
            The reason why the choices were refused.
        """
        if self.error is not None:
            raise self.error
        assert self.done is not None
        return self.done


class Planner:
    """Makes the plans of one program, and caches the last few plans.

    Parameters
    ----------
    captured : Capture
    """

    def __init__(self, captured: Capture) -> None:
        self._captured = captured
        self._plans: OrderedDict[tuple[tuple[str, str], ...], Plan] = OrderedDict()
        self._waiting: list[ChoiceRequest] = []
        self._unanswered = 0
        """Number of requests that wait or are being planned."""
        self._changed = threading.Condition()
        self._one_at_a_time = threading.RLock()

    def plan(self, choices: Mapping[str, str], *, keep: bool = True) -> Plan:
        """Return the plan under `choices`. If the user makes a choice during planning, that choice is planned first.

        `keep` says whether to cache the plan.

        Raises
        ------
        ChoiceError, PlanError
            As in `workbench.compiler.api.plan`.
        """
        from workbench.util.planning_lock import Superseded

        while True:
            try:
                return self.plan_unless_newer(choices, keep=keep)
            except Superseded:
                with self._changed:
                    self._changed.wait_for(lambda: not self._waiting)

    def plan_unless_newer(self, choices: Mapping[str, str], *, keep: bool = True) -> Plan:
        """Return the plan under `choices`, unless the user makes another choice during planning.

        `keep` says whether to cache the plan. A plan that will not be needed again should not be cached.

        Raises
        ------
        Superseded
            If the user made another choice during planning.
        ChoiceError, PlanError
            As in `workbench.compiler.api.plan`.
        """
        from workbench.compiler import api

        key = tuple(sorted(choices.items()))
        if (known := self._cached_plan(key)) is not None:
            return known
        with self._one_at_a_time:
            if (known := self._cached_plan(key)) is not None:
                return known
            made = api.plan(self._captured, choices, lambda: bool(self._waiting))
        if not keep:
            return made
        with self._changed:
            self._plans[key] = made
            if len(self._plans) > PLANS_KEPT:
                del self._plans[next(kept for kept in self._plans if kept)]
        return made

    def split_by_fit(self, choices: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the choices that fit the program, and a map from the site of each other choice to the reason.

        Choices of default options fit, but are left out, as in `Workbench.choices`.
        """
        fitting, unmatched = dict(choices), {}
        known = self.plan({}).site_of
        for id, option in choices.items():
            try:
                if id in known:
                    widen_site(known[id], option).check(option)
            except ChoiceError as error:
                unmatched[id] = str(error)
                del fitting[id]
        while fitting:
            try:
                gone = {id: no_site_reason(id) for id in self.plan(fitting).unmatched}
            except ChoiceError as error:
                gone = {error.site: str(error)}
            if not gone:
                break
            for id, reason in gone.items():
                unmatched[id] = reason
                del fitting[id]
        # The default of a site can follow from the choice of a setting, so take it from the plan under all choices.
        sites = self.plan(fitting).site_of
        return {id: option for id, option in fitting.items() if option != sites[id].default}, unmatched

    def _cached_plan(self, key: tuple[tuple[str, str], ...]) -> Plan | None:
        with self._changed:
            if key in self._plans:
                self._plans.move_to_end(key)
            return self._plans.get(key)

    def ask(
        self, choices: Mapping[str, str], make: Callable[[list[ChoiceRequest]], None], *, found: bool = False
    ) -> tuple[PlanDiff, bool]:
        """Request choices, and wait until they are made or refused.

        If a newer request arrives during planning, planning stops, and both requests are planned together. Without this
        stop, the newer request would wait for an outdated plan.

        Parameters
        ----------
        choices : mapping of str to str
        make : callable
            Makes the choices of all given requests in one plan, and sets `ChoiceRequest.done` of each. May raise
            `Superseded`.
        found : bool
            Whether a search, and not the user, requested the choices.

        Returns
        -------
        PlanDiff
            Effect on the plan. It includes the effect of other requests that were planned together with this request.
        bool
            Whether this call made choices, either its own or choices of other requests.

        Raises
        ------
        WorkbenchError
            The reason why the choices were refused.
        """
        request, made_here = ChoiceRequest(dict(choices), found), False
        with self._changed:
            self._waiting.append(request)
            self._unanswered += 1
        try:
            while not request.is_answered:
                with self._one_at_a_time:
                    made_here = self._take_turn(request, make) or made_here
        finally:
            with self._changed:
                self._unanswered -= 1
                self._changed.notify_all()
        return request.result, made_here

    @property
    def is_asked(self) -> bool:
        """Whether a request waits or is being planned."""
        with self._changed:
            return self._unanswered > 0

    def wait_until_answered(self) -> None:
        """Wait until no request waits or is being planned."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unanswered)

    def _take_turn(self, own: ChoiceRequest, make: Callable[[list[ChoiceRequest]], None]) -> bool:
        """Make the choices of all waiting requests, unless another thread has already answered `own`.

        Return whether this call made choices.
        """
        from workbench.util.planning_lock import Superseded

        if own.is_answered:
            return False
        with self._changed:
            taken, self._waiting = self._waiting, []
            self._changed.notify_all()
        try:
            return self._serve(taken, make)
        except Superseded:
            return False
        except BaseException:
            taken.remove(own)
            raise
        finally:
            with self._changed:
                self._waiting[:0] = [each for each in taken if not each.is_answered]

    def _serve(self, requests: list[ChoiceRequest], make: Callable[[list[ChoiceRequest]], None]) -> bool:
        """Make the choices of all requests together. If one of the choices is refused, make them request by request.

        Return whether this call made choices.
        """
        if len(requests) > 1:
            try:
                make(requests)
            except WorkbenchError:
                pass
            else:
                return True
        for request in requests:
            try:
                make([request])
            except WorkbenchError as error:
                request.error = error
        return any(request.done is not None for request in requests)
