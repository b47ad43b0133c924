"""Levers' base classes: `Site`, `Effect`, `Lever`, the registry. A new lever is one file in `workbench/levers/`.

A lever defines the sites at which it can be set (`settings` for the whole program, `sites` for single places) and the
legal options there, with reasons for refusals. It acts at up to four points of Thunder's pipeline, which are all
extension points of `thunder.jit`: on the joint trace before fusion, through the options of the fusion executor, on the
joint trace after fusion, and on the forward and backward traces after the split. To avoid a full plan, `quick` and
`replanner` start from the traces after the split, and `predict` only uses arithmetic. The compiler calls levers only
through this file and knows none of them by name.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import pkgutil
import re
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from workbench.errors import Advice, ChoiceError, short_repr, suggest_names

if TYPE_CHECKING:
    from workbench.analysis.cost.collective_overlap import OverlapChange
    from workbench.analysis.memory.liveness import Prediction
    from workbench.compiler.fusion.executors import FusionOptions
    from workbench.compiler.pipeline.lever_context import LeverContext, LeverOutcome
    from workbench.compiler.planner.plan import Plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effect:
    """Change of the whole plan under an option: differences from the current plan.

    Attributes
    ----------
    peak_bytes, saved_bytes, saved_tensors, flops : int
        Predicted differences; ``flops`` counts recomputed operations.
    fusions, unique_fusions, largest_fusion : int
        Change of the number of fusions, and of the number of operations in the largest one.
    counts : mapping of str to int
        Changes of the plan's counts (compilations, copies, sets, fences), by name.
    changed : tuple of str
        Ids of the other sites whose outcome would also change.
    overlap : OverlapChange or None
        Simulated; None if no ranks share the program.
    """

    peak_bytes: int
    saved_bytes: int
    saved_tensors: int
    flops: int = 0
    fusions: int = 0
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    changed: tuple[str, ...] = ()
    overlap: OverlapChange | None = None
    unique_fusions: int = 0
    largest_fusion: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Site:
    """One place where a lever can be set.

    Attributes
    ----------
    id : str
        ``LEVER:PLACE``, or ``LEVER.SETTING`` for a setting of the whole lever. Stable across processes.
    lever, label : str
        The lever's name, and a short text for the user.
    source : str
        ``file.py:12`` and the line's text, if known.
    options : tuple of str
        All options, legal or not, in the order in which clicks go through them.
    choice, default : str
        The current option, and the one of unmodified Thunder.
    outcome : str
        Option that is effective in the plan. It differs from `choice` for ``auto``, or if other choices move the site.
    illegal : mapping of str to str
        Maps an option to the reason why it is refused.
    notes : mapping of str to str
        Maps an option to its meaning at this site, if its name does not say it.
    values : tuple of str
        Names of the affected values in the plan's graph.
    range : str
        Describes further legal values, if any number in a range is legal besides `options`.
    bytes : int
        Affected bytes; 0 if the site does not concern memory.
    effect : mapping of str to Effect
        Effect on the whole plan for each legal option other than the current one; computed on request.
    """

    id: str
    lever: str
    label: str
    options: tuple[str, ...]
    choice: str
    default: str
    outcome: str = ""
    source: str = ""
    illegal: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    values: tuple[str, ...] = ()
    range: str = ""
    bytes: int = 0
    effect: Mapping[str, Effect] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        """Return what a user chooses by, on one line; `Sites` shows all of it as a table."""
        legal = tuple(option for option in self.options if option not in self.illegal)
        size = f", bytes={self.bytes}" if self.bytes else ""
        source = f", source={' '.join(self.source.split())!r}" if self.source else ""
        return f"Site({self.id!r}, choice={self.choice!r}, legal={legal}{size}{source})"

    @property
    def is_setting(self) -> bool:
        """Whether this is a setting of the whole lever, ``LEVER.SETTING``."""
        return self.id.startswith(f"{self.lever}.")

    def under(self, choice: str, outcome: str) -> Site:
        """Return the site with another choice and outcome; the same arguments give the same object."""
        found = self._variants.get((choice, outcome))
        if found is None:
            found = self._variants[choice, outcome] = dataclasses.replace(self, choice=choice, outcome=outcome)
        return found

    @cached_property
    def _variants(self) -> dict[tuple[str, str], Site]:
        return {}

    def check(self, option: str) -> str:
        """Return `option` if it is legal here.

        Raises
        ------
        ChoiceError
            With the given option, the legal ones, and the reason for a refusal.
        """
        if option in self.illegal:
            raise refused_option_error(self.id, option, self.illegal[option])
        if option not in self.options:
            legal = ", ".join(o for o in self.options if o not in self.illegal)
            also = f" or {self.range}" if self.range else ""
            raise ChoiceError(f"{self.id}: {short_repr(option)} is not an option here; legal: {legal}{also}", self.id)
        return option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """A choice for a whole lever; becomes the site ``LEVER.NAME``.

    Attributes
    ----------
    name, label, default : str
    options : tuple of str
        Options to offer.
    accepts : callable, optional
        Returns whether a text that is not in `options` is also legal.
    range : str
        Description of the texts that `accepts` allows.
    applies : callable, optional
        Returns the reason why the setting has no meaning in a context; empty if it has one.
    """

    name: str
    label: str
    default: str
    options: tuple[str, ...]
    accepts: Callable[[str], bool] | None = None
    range: str = ""
    applies: Callable[[LeverContext], str] | None = None

    def site(self, lever: str, choices: Mapping[str, str], stage: LeverContext) -> Site:
        """Return the setting as a site under `choices`; a legal value outside of its options is added to them."""
        id = f"{lever}.{self.name}"
        choice = choices.get(id, self.default)
        options = self.options
        if choice not in options and self.accepts is not None and self.accepts(choice):
            options = (*options, choice)
        why_not = self.applies(stage) if self.applies is not None else ""
        return Site(
            id=id,
            lever=lever,
            label=self.label,
            options=options,
            choice=choice,
            outcome=choice,
            default=self.default,
            range=self.range,
            illegal={o: why_not for o in options if o != self.default} if why_not else {},
        )

    def widen(self, site: Site, option: str) -> Site:
        """Return the site with `option` among its options, if the setting accepts it."""
        if option not in site.options and self.accepts is not None and self.accepts(option):
            return dataclasses.replace(site, options=(*site.options, option))
        return site


class Replanner(Protocol):
    """Puts a plan under further choices of one lever, starting from the split traces."""

    def plan(self, choices: Mapping[str, str], begun: float) -> Plan:
        """Return the plan under all `choices`; planning began at `begun`, by `time.perf_counter`.

        Raises
        ------
        ChoiceError
            If a choice is refused.
        """


class Lever:
    """One kind of decision. Subclass in a new file and decorate with `register`."""

    name: ClassVar[str]
    title: ClassVar[str]

    def settings(self) -> tuple[Setting, ...]:
        """Return the settings: choices for the whole lever."""
        return ()

    def sites(self, stage: LeverContext, choices: Mapping[str, str], result: LeverOutcome) -> list[Site]:
        """Return the single places at which the lever can be set in this program, under the current choices."""
        return []

    def widen(self, site: Site, option: str) -> Site:
        """Return the site with `option` among its options, if a site accepts more than it lists."""
        return site

    def before_fusion(self, trace: Any, choices: Mapping[str, str], stage: LeverContext) -> Any:
        """Edit the joint trace after operator executors have claimed it, before fusion."""
        return trace

    def unfused(self, choices: Mapping[str, str], stage: LeverContext) -> Collection[str]:
        """Return the names of outputs of statements that no fusion may contain."""
        return ()

    def fusion(
        self, options: FusionOptions, choices: Mapping[str, str], stage: LeverContext, result: LeverOutcome
    ) -> FusionOptions:
        """Return the options of the fusion executor, with this lever's options replaced."""
        return options

    def after_fusion(self, trace: Any, choices: Mapping[str, str], stage: LeverContext, result: LeverOutcome) -> Any:
        """Edit the joint trace after fusion."""
        return trace

    def after_split(
        self, trace: Any, choices: Mapping[str, str], stage: LeverContext, result: LeverOutcome
    ) -> tuple[Any, LeverOutcome]:
        """Edit the forward trace and, in a second call, the backward trace.

        Return it with `result`, possibly extended.
        """
        return trace, result

    def quick(self, choices: Mapping[str, str]) -> Collection[str]:
        """Return the ids in `choices` that `replanner` can add to a plan that was made without them."""
        return ()

    def replanner(self, plan: Plan, stage: LeverContext, result: LeverOutcome) -> Replanner:
        """Return the replanner that puts `plan` under its `quick` choices; called once for each plan.

        Parameters
        ----------
        plan : Plan
            Made without them.
        stage : LeverContext
        result : LeverOutcome
            Result of the plan's choices.
        """
        raise NotImplementedError(f"{self.name}: no choice is quick")

    def predict(self, choices: Mapping[str, str], stage: LeverContext) -> Prediction | None:
        """Return memory under `choices` of this lever, for a program without fusions, by arithmetic.

        Returns
        -------
        Prediction or None
            None if this needs a plan.
        """
        return None


def check_choices(choices: Mapping[str, str], *known: Mapping[str, Site], legal: bool = True) -> None:
    """Refuse choices that are not texts, and options that a site lacks or refuses.

    Parameters
    ----------
    choices : mapping of str to str
    *known : mapping of str to Site
        Sites by id, without the choices or under them. If one of them refuses an option and another accepts it, the
        option is legal, because other choices can make it so.
    legal : bool
        If it is missing, only options that a site lacks are refused.

    Raises
    ------
    ChoiceError
        With the given choices and the legal ones.
    """
    check_texts(choices)
    for id, option in choices.items():
        sites = [sites[id] for sites in known if id in sites]
        if any(option not in site.options for site in sites):
            sites = [widen_site(site, option) for site in sites]
        if sites and all(option not in site.options or (legal and option in site.illegal) for site in sites):
            sites[0].check(option)


def check_texts(choices: Mapping[str, str]) -> None:
    """Refuse choices that are not texts."""
    for id, option in choices.items():
        if not all(isinstance(given, str) for given in (id, option)):
            raise ChoiceError(
                f"a choice is a site id and an option, both texts; given {short_repr(id)}: {short_repr(option)}"
            )


def unknown_site_error(program: str, id: str, site_ids: Collection[str]) -> ChoiceError:
    """Return the error for an id that no site of a program has; it names the closest ids."""
    return ChoiceError(
        f"{program} has no site {short_repr(id)}{suggest_names(id, list(site_ids))}",
        id,
        advice=Advice("bench.sites() lists all sites", "plan --sites LEVER lists a lever's sites"),
    )


def only_with_fusions(stage: LeverContext) -> str:
    """Return why a setting on fusions has no meaning here, for `Setting.applies`."""
    return "" if stage.fuses else f"the {stage.executor} executor makes no fusions"


def lever_of(id: str) -> str:
    """Return the name of the lever to which a site belongs, from the site's id."""
    return re.split(r"[.:]", id, maxsplit=1)[0]


def refused_option_error(id: str, option: str, reason: str) -> ChoiceError:
    """Return the error for an option that is illegal at a site."""
    return ChoiceError(f"{id}: {short_repr(option)} is refused: {reason}", id)


_REGISTRY: dict[str, Lever] = {}


def register(cls: type[Lever]) -> type[Lever]:
    """Register a lever under its `name`; a class decorator."""
    _REGISTRY[cls.name] = cls()
    return cls


def unregister(name: str) -> None:
    """Forget a lever."""
    _REGISTRY.pop(name, None)


def lever_named(name: str) -> Lever:
    """A lever by its name."""
    return next(lever for lever in all_levers() if lever.name == name)


def all_levers() -> tuple[Lever, ...]:
    """Return all levers, sorted by name; first import every file in `workbench/levers/`."""
    folders = importlib.import_module("workbench.levers").__path__
    _import_levers(tuple([(folder, os.stat(folder).st_mtime_ns) for folder in folders]))
    return tuple([_REGISTRY[name] for name in sorted(_REGISTRY)])


@functools.lru_cache(maxsize=1)
def _import_levers(folders: tuple[tuple[str, int], ...]) -> None:
    # Cached, because each plan looks up the levers some ten times.
    for module in pkgutil.iter_modules([folder for folder, _ in folders]):
        importlib.import_module(f"workbench.levers.{module.name}")


def widen_site(site: Site, option: str) -> Site:
    """Return a site with one more option if its lever accepts the option, for example a number that is not listed."""
    for lever in all_levers():
        for setting in lever.settings():
            if f"{lever.name}.{setting.name}" == site.id:
                return setting.widen(site, option)
        if lever.name == site.lever:
            return lever.widen(site, option)
    return site
