"""Base classes of levers: `Site`, `Effect`, `Lever`, the registry. A new lever is one file in `workbench/levers/`.

A lever defines the sites at which it can be set: `settings` for the whole program, `sites` for single places. A site
has legal options, and reasons why other options are refused. A lever acts at up to four points of Thunder's pipeline,
which are all extension points of `thunder.jit`: on the joint trace before fusion, through the options of the fusion
executor, on the joint trace after fusion, and on the forward and backward traces after the split. Two methods avoid a
full plan: `replanner` starts from the traces after the split, and `predict` only predicts memory. The compiler calls
levers only through this file, and contains no lever's name.
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
    """Change of the whole plan under an option: figures of the new plan minus figures of the current plan.

    Attributes
    ----------
    peak_bytes, saved_bytes, saved_tensors, flops : int
        Changes of predicted figures. The change of ``flops`` is the number of recomputed operations.
    fusions, unique_fusions, largest_fusion : int
        Changes of the number of fusions, of different fusions, and of statements in the largest fusion.
    counts : mapping of str to int
        Changes of the figures in `Plan.counts`.
    changed : tuple of str
        Ids of other sites whose outcome would change, too.
    overlap : OverlapChange or None
        Change of simulated figures; None if the program has no collectives.
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
        ``LEVER:PLACE``, or ``LEVER.SETTING`` for a setting of the whole lever. The id is equal in all processes.
    lever, label : str
        Name of the lever, and a short text for the user.
    source : str
        The user's line, as ``file.py:12`` and its text; empty if unknown.
    options : tuple of str
        All options, legal or not, in the order in which clicks go through them.
    choice, default : str
        The chosen option, and the option that applies without a choice.
    outcome : str
        The option that the plan has. It differs from `choice` if the choice leaves the decision open, as ``auto``, or
        if other choices affect this site.
    illegal : mapping of str to str
        Maps an illegal option to the reason why it is refused.
    notes : mapping of str to str
        Maps an option to its meaning at this site, if the option's name does not say it.
    values : tuple of str
        Names of the affected values in the plan's graph.
    range : str
        Description of further legal options that are not in `options`, such as all numbers in a range.
    bytes : int
        Affected bytes; 0 if the site does not concern memory.
    effect : mapping of str to Effect
        Maps each legal option other than the current one to its effect on the plan. It is computed on request.
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
        """Return one line with the attributes that a user needs for a choice; `Sites` shows all attributes."""
        legal = tuple(option for option in self.options if option not in self.illegal)
        size = f", bytes={self.bytes}" if self.bytes else ""
        source = f", source={' '.join(self.source.split())!r}" if self.source else ""
        return f"Site({self.id!r}, choice={self.choice!r}, legal={legal}{size}{source})"

    @property
    def is_setting(self) -> bool:
        """Whether this is a setting of the whole lever, ``LEVER.SETTING``."""
        return self.id.startswith(f"{self.lever}.")

    def under(self, choice: str, outcome: str) -> Site:
        """Return the site with this choice and outcome. Equal arguments give the same object."""
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
            If `option` is not legal; the message contains the legal options or the reason for the refusal.
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
    """A choice for a whole lever. Its site has the id ``LEVER.NAME``.

    Attributes
    ----------
    name, label, default : str
    options : tuple of str
        Options that the user is offered.
    accepts : callable, optional
        Returns whether a text that is not in `options` is a legal option, too.
    range : str
        Description of the texts that `accepts` accepts.
    applies : callable, optional
        Returns the reason why the setting has no effect in a `LeverContext`; empty if it has an effect.
    """

    name: str
    label: str
    default: str
    options: tuple[str, ...]
    accepts: Callable[[str], bool] | None = None
    range: str = ""
    applies: Callable[[LeverContext], str] | None = None

    def site(self, lever: str, choices: Mapping[str, str], stage: LeverContext) -> Site:
        """Return the site of the setting under `choices`. If `accepts` accepts the choice, it is one of the options."""
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
    """Applies further choices of one lever to the split traces of a plan."""

    def plan(self, choices: Mapping[str, str], begun: float) -> Plan:
        """Return the plan under all `choices`. `begun` is the `time.perf_counter` at the start of planning.

        Raises
        ------
        ChoiceError
            If a choice is refused.
        """


class Lever:
    """One kind of decision. To add one, define a subclass in a new file and decorate it with `register`."""

    name: ClassVar[str]
    title: ClassVar[str]

    def settings(self) -> tuple[Setting, ...]:
        """Return the settings, which are choices for the whole program."""
        return ()

    def sites(self, stage: LeverContext, choices: Mapping[str, str], result: LeverOutcome) -> list[Site]:
        """Return the sites of single places at which the lever can be set in this program, under `choices`."""
        return []

    def widen(self, site: Site, option: str) -> Site:
        """Return the site with `option` among its options, if the lever accepts an option that is not listed."""
        return site

    def before_fusion(self, trace: Any, choices: Mapping[str, str], stage: LeverContext) -> Any:
        """Return the claimed joint trace with the choices applied, before fusion."""
        return trace

    def unfused(self, choices: Mapping[str, str], stage: LeverContext) -> Collection[str]:
        """Return the names of outputs of statements that no fusion may contain."""
        return ()

    def fusion(
        self, options: FusionOptions, choices: Mapping[str, str], stage: LeverContext, result: LeverOutcome
    ) -> FusionOptions:
        """Return the options of the fusion executor with the choices of this lever applied."""
        return options

    def after_fusion(self, trace: Any, choices: Mapping[str, str], stage: LeverContext, result: LeverOutcome) -> Any:
        """Return the fused joint trace with the choices applied."""
        return trace

    def after_split(
        self, trace: Any, choices: Mapping[str, str], stage: LeverContext, result: LeverOutcome
    ) -> tuple[Any, LeverOutcome]:
        """Return a split trace with the choices applied, and `result`, to which the lever may add data.

        The first call is for the forward trace, and the second call is for the backward trace.
        """
        return trace, result

    def quick(self, choices: Mapping[str, str]) -> Collection[str]:
        """Return the ids of the choices that a `replanner` can apply to a plan that was made without them."""
        return ()

    def replanner(self, plan: Plan, stage: LeverContext, result: LeverOutcome) -> Replanner:
        """Return a replanner that applies `quick` choices to `plan`. It is called once for each plan.

        Parameters
        ----------
        plan : Plan
            A plan without `quick` choices.
        stage : LeverContext
        result : LeverOutcome
            Result of the choices of `plan`.
        """
        raise NotImplementedError(f"{self.name}: no choice is quick")

    def predict(self, choices: Mapping[str, str], stage: LeverContext) -> Prediction | None:
        """Predict the memory of a program without fusions under `choices` of this lever, without a plan.

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
        Each maps ids to sites, for example without choices and under `choices`. An option is legal if it is legal at
        one of the sites with its id, because other choices can make it legal.
    legal : bool
        Whether to refuse illegal options, too. If false, only options that a site lacks are refused.

    Raises
    ------
    ChoiceError
        If a choice is refused; the message contains the legal options or the reason for the refusal.
    """
    check_texts(choices)
    for id, option in choices.items():
        sites = [sites[id] for sites in known if id in sites]
        if any(option not in site.options for site in sites):
            sites = [widen_site(site, option) for site in sites]
        if sites and all(option not in site.options or (legal and option in site.illegal) for site in sites):
            sites[0].check(option)


def check_texts(choices: Mapping[str, str]) -> None:
    """Refuse choices whose id or option is not a text."""
    for id, option in choices.items():
        if not all(isinstance(given, str) for given in (id, option)):
            raise ChoiceError(
                f"a choice is a site id and an option, both texts; given {short_repr(id)}: {short_repr(option)}"
            )


def unknown_site_error(program: str, id: str, site_ids: Collection[str]) -> ChoiceError:
    """Return the error for an id that no site of a program has. The message contains the most similar ids."""
    return ChoiceError(
        f"{program} has no site {short_repr(id)}{suggest_names(id, list(site_ids))}",
        id,
        advice=Advice("bench.sites() lists all sites", "plan --sites LEVER lists a lever's sites"),
    )


def only_with_fusions(stage: LeverContext) -> str:
    """Return why a setting on fusions has no effect if the executor makes none; a value for `Setting.applies`."""
    return "" if stage.fuses else f"the {stage.executor} executor makes no fusions"


def lever_of(id: str) -> str:
    """Return the name of the lever in the id of a site."""
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
    """Remove the lever `name` from the registry."""
    _REGISTRY.pop(name, None)


def lever_named(name: str) -> Lever:
    """Return the lever with this name."""
    return next(lever for lever in all_levers() if lever.name == name)


def all_levers() -> tuple[Lever, ...]:
    """Import every file in `workbench/levers/`, and return all levers, sorted by name."""
    folders = importlib.import_module("workbench.levers").__path__
    _import_levers(tuple([(folder, os.stat(folder).st_mtime_ns) for folder in folders]))
    return tuple([_REGISTRY[name] for name in sorted(_REGISTRY)])


@functools.lru_cache(maxsize=1)
def _import_levers(folders: tuple[tuple[str, int], ...]) -> None:
    # Import only after a change of the folder, because each plan looks up the levers some ten times.
    for module in pkgutil.iter_modules([folder for folder, _ in folders]):
        importlib.import_module(f"workbench.levers.{module.name}")


def widen_site(site: Site, option: str) -> Site:
    """Return a site with `option` among its options, if its lever accepts it, such as a number that is not listed."""
    for lever in all_levers():
        for setting in lever.settings():
            if f"{lever.name}.{setting.name}" == site.id:
                return setting.widen(site, option)
        if lever.name == site.lever:
            return lever.widen(site, option)
    return site
