"""`Lever`: the base class of levers, and their registry. Also `Site`, `Setting` and `Effect`.

A lever is one kind of decision. A new lever is one file in `workbench/levers/`. A lever defines the sites at which the
user makes this decision: `settings` for the complete program, `sites` for single places. A site has options. For each
illegal option, the site has the reason why the option is refused.

A lever can act at four points of Thunder's pipeline, which are extension points of `thunder.jit`:

- on the joint trace before fusion;
- through the options of the fusion executor;
- on the joint trace after fusion;
- on the forward and backward traces after the split.

Two methods of a lever save the time of a full plan: `replanner` returns an object that makes a plan from an earlier
plan, and `predict` only predicts memory. The compiler calls levers only by the methods in this file. Except for
`compiler.driver.torch_choices`, the compiler does not depend on the names of levers.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import pkgutil
import re
from collections.abc import Callable, Collection, Iterable, Mapping
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
    """Change of the plan's figures if an option is chosen: the new plan's figures minus the current plan's figures.

    Attributes
    ----------
    peak_bytes, saved_bytes, saved_tensors, flops : int
        Changes of these predicted figures. ``flops`` are the floating point operations of forward and backward.
    fusions, unique_fusions, largest_fusion : int
        Changes of the number of fusions, of unique fusions, and of statements in the largest fusion.
    counts : mapping of str to int
        Changes of the figures in `Plan.counts`.
    changed : tuple of str
        Ids of other sites whose outcome would change, too.
    overlap : OverlapChange or None
        Change of the simulated overlap of collectives; None if the program has no collectives.
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
    """A place in a program at which the user can choose an option of a lever.

    Attributes
    ----------
    id : str
        ``LEVER:PLACE``, or ``LEVER.SETTING`` for a setting. A site has the same id in all processes.
    lever, label : str
        Name of the lever, and a short text for the user.
    source : str
        File, line number and text of the user's source line, such as ``file.py:12  x = f(y)``; empty if unknown.
    options : tuple of str
        All options, legal and illegal. Repeated double clicks select the legal options in this order.
    choice, default : str
        The chosen option, and the option that applies without a choice.
    outcome : str
        The option in effect in the plan. It differs from `choice` if the choice, such as ``auto``, leaves the decision
        to the compiler, or if choices at other sites affect this site.
    cause : str
        A sentence on why `outcome` differs from `choice`; empty if the choice leaves the decision to the compiler.
    illegal : mapping of str to str
        Maps an illegal option to the reason why it is refused.
    notes : mapping of str to str
        Maps an option to a note on its meaning at this site, if its name does not say enough.
    values : tuple of str
        Names of the values that the site's choice affects, in the plan's graph.
    range : str
        Description of further legal options that `options` does not list, such as all numbers in a range.
    bytes : int
        Bytes of the storage, or of the collective's result, that the choice affects; 0 for sites of other kinds.
    effect : mapping of str to Effect
        Maps options to their effects on the plan. The sites of a plan have no entries; use `Workbench.effects`.
    """

    id: str
    lever: str
    label: str
    options: tuple[str, ...]
    choice: str
    default: str
    outcome: str = ""
    cause: str = ""
    source: str = ""
    illegal: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    values: tuple[str, ...] = ()
    range: str = ""
    bytes: int = 0
    effect: Mapping[str, Effect] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        """Return one line with the attributes that a user needs to make a choice."""
        legal = tuple(option for option in self.options if option not in self.illegal)
        size = f", bytes={self.bytes}" if self.bytes else ""
        source = f", source={' '.join(self.source.split())!r}" if self.source else ""
        return f"Site({self.id!r}, choice={self.choice!r}, legal={legal}{size}{source})"

    @property
    def is_setting(self) -> bool:
        """Whether this is the site of a setting, with an id ``LEVER.SETTING``."""
        return self.id.startswith(f"{self.lever}.")

    def under(self, choice: str, outcome: str, cause: str = "") -> Site:
        """Return this site with a choice and its outcome. Calls with equal arguments return the same object."""
        key = choice, outcome, cause
        found = self._variants.get(key)
        if found is None:
            found = self._variants[key] = dataclasses.replace(self, choice=choice, outcome=outcome, cause=cause)
        return found

    @cached_property
    def _variants(self) -> dict[tuple[str, str, str], Site]:
        return {}

    def check(self, option: str) -> str:
        """Return `option` if it is legal at this site.

        Raises
        ------
        ChoiceError
            If `option` is not legal. The message contains the legal options, or the reason for the refusal.
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
    """A decision of a lever for the complete program. Its site has the id ``LEVER.NAME``.

    Attributes
    ----------
    name, label, default : str
    options : tuple of str
        The options that the user sees.
    accepts : callable, optional
        Returns whether a text that is not in `options` is also a legal option.
    range : str
        Description of the texts that `accepts` accepts.
    applies : callable, optional
        Takes a `LeverContext`, and returns the reason why the setting has no effect; empty if it has an effect.
    """

    name: str
    label: str
    default: str
    options: tuple[str, ...]
    accepts: Callable[[str], bool] | None = None
    range: str = ""
    applies: Callable[[LeverContext], str] | None = None

    def site(self, lever: str, choices: Mapping[str, str], context: LeverContext) -> Site:
        """Return the site of the setting under `choices`. Its options include the choice if `accepts` accepts it."""
        id = f"{lever}.{self.name}"
        choice = choices.get(id, self.default)
        options = self.options
        if choice not in options and self.accepts is not None and self.accepts(choice):
            options = (*options, choice)
        why_not = self.applies(context) if self.applies is not None else ""
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
        """Add `option` to the options of the site if `accepts` accepts it. Return the resulting site."""
        if option not in site.options and self.accepts is not None and self.accepts(option):
            return dataclasses.replace(site, options=(*site.options, option))
        return site


class Replanner(Protocol):
    """An object that computes a new plan: it applies choices of one lever to the split traces of an earlier plan."""

    def plan(self, choices: Mapping[str, str], begun: float) -> Plan:
        """Return the plan under all `choices`. `begun` is the `time.perf_counter` at the start of planning.

        Raises
        ------
        ChoiceError
            If a choice is illegal.
        """


class Lever:
    """One kind of decision. To add a lever, define a subclass in a new file and decorate it with `register`.

    Attributes
    ----------
    name, title : str
        Name of the lever, as in the ids of its sites, and the heading that the app shows above its sites.
    meanings : mapping of str to str
        Maps an option to a sentence that explains it. Options with a clear name need no entry.
    only_with_backward : bool
        Whether the sites of the lever exist only in programs with a backward.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    meanings: ClassVar[Mapping[str, str]] = {}
    only_with_backward: ClassVar[bool] = False

    def settings(self) -> tuple[Setting, ...]:
        """Return the settings of the lever. Each setting applies to the complete program."""
        return ()

    def sites(self, context: LeverContext, choices: Mapping[str, str], outcome: LeverOutcome) -> list[Site]:
        """Return the sites of the lever at single places of the program, each with its choice and outcome."""
        return []

    def widen(self, site: Site, option: str) -> Site:
        """Add `option` to the options of the site if the lever accepts it. Return the resulting site."""
        return site

    def explain_outcome(self, site: Site) -> str:
        """Return a sentence for the user about a site whose outcome differs from its choice."""
        return " ".join(filter(None, (f"Set: {site.choice}. In effect: {site.outcome}.", site.cause)))

    def before_fusion(self, trace: Any, choices: Mapping[str, str], context: LeverContext) -> Any:
        """Apply the choices to the joint trace before fusion. Executors are already chosen for its statements."""
        return trace

    def unfused(self, choices: Mapping[str, str], context: LeverContext) -> Collection[str]:
        """Return names of outputs. The statements that make these outputs must stay outside of fusions."""
        return ()

    def fusion(
        self, options: FusionOptions, choices: Mapping[str, str], context: LeverContext, outcome: LeverOutcome
    ) -> FusionOptions:
        """Apply the choices to the options of the fusion executor, and return the new options."""
        return options

    def after_fusion(self, trace: Any, choices: Mapping[str, str], context: LeverContext, outcome: LeverOutcome) -> Any:
        """Apply the choices to the joint trace after fusion, and return the new trace."""
        return trace

    def after_split(
        self, trace: Any, choices: Mapping[str, str], context: LeverContext, outcome: LeverOutcome
    ) -> tuple[Any, LeverOutcome]:
        """Apply the choices to a split trace. Return the new trace and a `LeverOutcome` with the lever's results added.

        The first call is for the forward trace, and the second call is for the backward trace.
        """
        return trace, outcome

    def quick(self, choices: Mapping[str, str]) -> Collection[str]:
        """Return the ids of the choices that a replanner can apply later, to a plan that was made without them."""
        return ()

    def replanner(self, plan: Plan, context: LeverContext, outcome: LeverOutcome) -> Replanner:
        """Return a replanner that applies the choices of `quick` to `plan`. A plan's replanner is created only once.

        Parameters
        ----------
        plan : Plan
            A plan without the choices of `quick`.
        context : LeverContext
        outcome : LeverOutcome
            Results of the levers for `plan`.
        """
        raise NotImplementedError(f"{self.name}: no choice is quick")

    def predict(self, choices: Mapping[str, str], context: LeverContext) -> Prediction | None:
        """Predict the memory under `choices` of this lever without a plan, for a program without fusions.

        Returns
        -------
        Prediction or None
            None if the memory cannot be predicted without a plan.
        """
        return None


def check_choices(choices: Mapping[str, str], *known: Mapping[str, Site], legal: bool = True) -> None:
    """Raise an error for an id or option that is not a string, and for an option that its site lacks or refuses.

    Parameters
    ----------
    choices : mapping of str to str
    *known : mapping of str to Site
        Each argument maps ids to sites, for example the sites of the stock plan, and the sites under `choices`. One id
        may have several sites, because other choices can make an option legal. An option is legal if it is legal at one
        of these sites.
    legal : bool
        Whether options in `Site.illegal` are errors, too. If false, only check that a site has the option.

    Raises
    ------
    ChoiceError
        If a check fails. The message contains the legal options, or the reason for the refusal.
    """
    check_texts(choices)
    for id, option in choices.items():
        sites = [sites[id] for sites in known if id in sites]
        if any(option not in site.options for site in sites):
            sites = [widen_site(site, option) for site in sites]
        if sites and all(option not in site.options or (legal and option in site.illegal) for site in sites):
            sites[0].check(option)


def check_texts(choices: Mapping[str, str]) -> None:
    """Raise `ChoiceError` if `choices` is not a mapping from strings to strings."""
    if not isinstance(choices, Mapping):
        raise ChoiceError(
            f"choices are a dict of site ids to options, such as {{site.id: 'save'}}; given {short_repr(choices)}"
        )
    for id, option in choices.items():
        if not all(isinstance(given, str) for given in (id, option)):
            raise ChoiceError(
                f"a choice is a site id and an option, both texts; given {short_repr(id)}: {short_repr(option)}"
            )


def check_ids(sites: Iterable[str]) -> frozenset[str]:
    """Return ids of sites as a set. Raise `ChoiceError` if `sites` is a single text, or has anything but texts."""
    found = [sites] if isinstance(sites, str) or not isinstance(sites, Iterable) else [*sites]
    if isinstance(sites, str) or not all(isinstance(id, str) for id in found):
        raise ChoiceError(f"sites are a list of site ids, such as [site.id]; given {short_repr(sites)}")
    return frozenset(found)


def unknown_site_error(program: str, id: str, site_ids: Collection[str]) -> ChoiceError:
    """Return the error for an id without a site. The message contains the most similar ids."""
    return ChoiceError(
        f"{program} has no site {short_repr(id)}{suggest_names(id, list(site_ids))}",
        id,
        advice=Advice("bench.sites() lists all sites", "plan --sites LEVER lists a lever's sites"),
    )


def no_site_reason(id: str) -> str:
    """Return why a program has no site of this id: the lever does not exist, or the program has no such statement.

    The reason suggests no other site: ids in configs have no typing errors, and the site of another module is no
    replacement for that of a module which is now frozen.
    """
    name, known = lever_of(id), [lever.name for lever in all_levers()]
    if name not in known:
        return f"there is no lever {short_repr(name)}{suggest_names(name, known)}"
    return "no such site in this program"


def only_with_fusions(context: LeverContext) -> str:
    """Return why a setting for fusions has no effect; empty if the executor fuses. For `Setting.applies`."""
    return "" if context.fuses else f"the {context.executor} executor makes no fusions"


def lever_of(id: str) -> str:
    """Return the name of the lever in the id of a site: the text before the first ``:`` or ``.``."""
    return re.split(r"[.:]", id, maxsplit=1)[0]


def refused_option_error(id: str, option: str, reason: str) -> ChoiceError:
    """Return the error for an option that is illegal at a site."""
    return ChoiceError(f"{id}: {short_repr(option)} is refused: {reason}", id)


_REGISTRY: dict[str, Lever] = {}


def register(cls: type[Lever]) -> type[Lever]:
    """Register a lever under its `name`. Use this function as a class decorator."""
    _REGISTRY[cls.name] = cls()
    return cls


def unregister(name: str) -> None:
    """Remove the lever `name` from the registry."""
    _REGISTRY.pop(name, None)


def lever_named(name: str) -> Lever:
    """Return the lever `name`."""
    return next(lever for lever in all_levers() if lever.name == name)


def all_levers() -> tuple[Lever, ...]:
    """Import every file and package in `workbench/levers/`, and return all levers, sorted by name."""
    folders = importlib.import_module("workbench.levers").__path__
    _import_levers(tuple([(folder, os.stat(folder).st_mtime_ns) for folder in folders]))
    return tuple([_REGISTRY[name] for name in sorted(_REGISTRY)])


@functools.lru_cache(maxsize=1)
def _import_levers(folders: tuple[tuple[str, int], ...]) -> None:
    # The result is cached, because each plan looks up the levers about ten times. If a folder has
    # changed, new files in it are imported.
    for module in pkgutil.iter_modules([folder for folder, _ in folders]):
        importlib.import_module(f"workbench.levers.{module.name}")


def widen_site(site: Site, option: str) -> Site:
    """Add `option` to the options of `site` if its lever accepts it. Return the resulting site.

    For example, a setting may accept numbers that are not listed in its options.
    """
    for lever in all_levers():
        for setting in lever.settings():
            if f"{lever.name}.{setting.name}" == site.id:
                return setting.widen(site, option)
        if lever.name == site.lever:
            return lever.widen(site, option)
    return site
