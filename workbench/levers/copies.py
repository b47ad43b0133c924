"""Lever `copies`: how in-place copies are compiled, and whether fences split fusions.

With nvFuser, each copy has a policy for its `set`. Each fence, which is Thunder's `update_aliases`, is kept or dropped;
a fence splits fusions. With torch.compile, a copy runs inside of a region or outside.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.compiler.fusion.executors import FusionOptions
from workbench.compiler.fusion.inductor_write_hazards import find_excluded_copies
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    PrimIDs,
    Proxy,
    TraceCtx,
    TraceProvenance,
    Variable,
    from_trace,
    variableify,
)
from workbench.compiler.memory.fake_execution import runs_whole
from workbench.compiler.pipeline.lever_context import LeverContext, LeverOutcome
from workbench.compiler.trace import copy_sets
from workbench.core.executor import executor_named
from workbench.core.lever import Lever, Setting, Site, only_with_fusions, refused_option_error, register

KEEP, DROP = "keep", "drop"
IN, OUT = "in", "out"


SETS, REGIONS = "sets", "regions"
"""Values of `Executor.copies`: copies have a policy for their `set`, or are inside or outside of regions."""


def _subject_of(stage: LeverContext) -> str:
    return executor_named(stage.executor).copies


def _applies_to(about: str, reason: str) -> Any:
    def applies(stage: LeverContext) -> str:
        return only_with_fusions(stage) or ("" if _subject_of(stage) == about else reason)

    return applies


def _copies(stage: LeverContext) -> Sequence[tuple[str, BoundSymbol, BoundSymbol]]:
    """Return, for each copy, the id of its site, the copy, and the claimed statement that contains it."""
    return stage.get_or_make("copies", lambda stage: tuple(_find_copies(stage)))


def _find_copies(stage: LeverContext) -> Iterator[tuple[str, BoundSymbol, BoundSymbol]]:
    for bsym in stage.claimed.bound_symbols:
        inside = [leaf for leaf in copy_sets.leaves([bsym]) if copy_sets.is_copy(leaf)]
        for i, leaf in enumerate(inside):
            place = stage.value_id(bsym.flat_proxy_outs[0].name if bsym.flat_proxy_outs else leaf.output.name)
            yield f"copies:{place}" + (f".copy{i}" if i else ""), leaf, bsym


def _fences(stage: LeverContext) -> Sequence[tuple[str, BoundSymbol]]:
    return stage.get_or_make("fences", lambda stage: tuple(_find_fences(stage)))


def _find_fences(stage: LeverContext) -> Iterator[tuple[str, BoundSymbol]]:
    for bsym in stage.claimed.bound_symbols:
        if copy_sets.is_fence(bsym) and bsym.flat_proxy_outs:
            yield f"copies:{stage.value_id(bsym.flat_proxy_outs[0].name)}", bsym


def _why_no_drop(fence: BoundSymbol, views: Mapping[str, tuple[str, str]]) -> str:
    members = [a.name for a in fence.flat_proxy_args]
    if len(members) > 1:
        return (
            f"{', '.join(members)} share memory: a write through one must be visible through the others, and only the "
            "fence ensures that"
        )
    if members[0] in views:
        view, whole = views[members[0]]
        return (
            f"{view} is a view of {whole}: without the fence, a fusion may compute the view, and nvFuser would give it "
            "separate memory, so that a write through one would not be visible through the other"
        )
    return ""


def _views_beside_fences(stage: LeverContext) -> dict[str, tuple[str, str]]:
    """Find fences of a single value that must stay, because a fusion could otherwise compute a view.

    Returns
    -------
    dict of str to (str, str)
        Maps the value of such a fence to the view and to the value of which it is a view. The view is between the same
        two fences of several values as the fence. Fences of several values are never dropped, and everything between
        two of them could become one fusion.
    """
    together = [fence for _, fence in _fences(stage) if len(fence.flat_proxy_args) > 1]
    if not together:
        return {}
    memory = copy_sets.MemoryAliases(stage.claimed.bound_symbols)
    shared = {memory.base(fence.flat_proxy_args[0].name) for fence in together}
    found: dict[str, tuple[str, str]] = {}
    alone: list[str] = []
    views: list[tuple[str, str]] = []
    for bsym in stage.claimed.bound_symbols:
        given, made = bsym.flat_proxy_args, bsym.flat_proxy_outs
        if (copy_sets.is_fence(bsym) and len(given) > 1) or bsym.sym.id is PrimIDs.RETURN:
            found.update(dict.fromkeys(alone, views[0]) if views else {})
            alone, views = [], []
        elif copy_sets.is_fence(bsym):
            alone += [a.name for a in given]
        elif not copy_sets.count_copies_and_fences(bsym)[0]:
            pairs = [(out.name, a.name) for out in made for a in given if memory.base(a.name) in shared]
            views += [(view, whole) for view, whole in pairs if memory.base(view) == memory.base(whole)]
    return found


@dataclasses.dataclass(frozen=True)
class _CopySite:
    """A site of a copy that can be inside or outside of a region, or of a PyTorch function that computes and writes.

    Attributes
    ----------
    id : str
        Id of the site.
    names : tuple of str
        Names of the results of the copy or of the function.
    statement : BoundSymbol
        The claimed statement that contains the copy or calls the function.
    why_not : dict of str to str
        Maps the option `IN` or `OUT` to the reason why it is illegal. At most one option is illegal.
    """

    id: str
    names: tuple[str, ...]
    statement: BoundSymbol
    why_not: dict[str, str]


def _placed_copies(stage: LeverContext) -> Sequence[_CopySite]:
    return stage.get_or_make("placed", lambda stage: tuple(_find_placed_copies(stage)))


def _find_placed_copies(stage: LeverContext) -> Iterator[_CopySite]:
    why_not_in = {found.output: found.why for found in find_excluded_copies(stage.claimed.bound_symbols)}
    put_off = _deferred_copies(stage)
    # A statement may contain several copies that cannot be separated, such as a batch norm.
    for _, group in itertools.groupby(_copies(stage), lambda copy: id(copy[2])):
        found = list(group)
        bsym = found[0][2]
        copied = [(place, leaf.output.name) for place, leaf, _ in found]
        placed = [(place, (name,), (name,)) for place, name in copied]
        if runs_whole(bsym):
            names = tuple(out.name for out in bsym.flat_proxy_outs)
            placed = [(copied[0][0], names, tuple(name for _, name in copied))]
        for place, names, results in placed:
            reason = next((why_not_in[name] for name in results if name in why_not_in), "")
            why_not = {IN: reason} if reason else {OUT: _PUT_OFF} if put_off.intersection(names) else {}
            yield _CopySite(place, names, bsym, why_not)


_PUT_OFF = (
    "no statement of the forward reads the copy's result: outside of a region, Thunder would move the copy into the "
    "backward, and the memory would be written too late"
)


def _deferred_copies(stage: LeverContext) -> set[str]:
    returned = stage.claimed.bound_symbols[-1].args[0]
    if "fw_flat_out" not in returned:
        # Nothing requires a gradient, so there is no split.
        return set()
    needed = [a.name for part in ("fw_flat_out", "flat_args") for a in returned[part] if isinstance(a, Proxy)]
    inside = {leaf.output.name for _, leaf, _ in _copies(stage)}
    opened = [part for bsym in stage.claimed.bound_symbols[:-1] for part in _open_statement(bsym, inside)]
    return copy_sets.deferred_results(opened, needed)


@register
class Copies(Lever):
    """How in-place copies are compiled."""

    name = "copies"
    title = "In-place copies"

    def settings(self) -> tuple[Setting, ...]:
        """Return the settings for all copies and for all fences."""
        nvfuser = _applies_to(SETS, "torch.compile puts no set before a copy and does not split at fences")
        return (
            Setting(
                name="policy",
                label="whether nvFuser puts a set before a copy, where both are safe (stock: always)",
                default=copy_sets.ALWAYS,
                options=copy_sets.POLICIES,
                applies=nvfuser,
            ),
            Setting(
                name="fences",
                label="alias fences, which split fusions: kept, or dropped if the memory has no other alias",
                default=KEEP,
                options=(KEEP, DROP),
                applies=nvfuser,
            ),
            Setting(
                name="region",
                label="copies inside torch.compile's regions or outside",
                default=IN,
                options=(IN, OUT),
                applies=_applies_to(REGIONS, "nvFuser's copies are aliases of its outputs: choose copies.policy"),
            ),
        )

    def sites(self, stage: LeverContext, choices: Mapping[str, str], result: LeverOutcome) -> list[Site]:
        """Return one site for each copy and, with nvFuser, one site for each fence."""
        if _subject_of(stage) == REGIONS:
            return list(self._region_sites(stage, choices))
        if _subject_of(stage) == SETS:
            return [*self._set_sites(stage, choices, result), *self._fence_sites(stage, choices)]
        return []

    def _region_sites(self, stage: LeverContext, choices: Mapping[str, str]) -> Iterator[Site]:
        for placed in _placed_copies(stage):
            label, source = stage.describe(placed.statement.flat_proxy_outs[0].name)
            default = _legal(choices.get("copies.region", IN), placed.why_not)
            yield Site(
                id=placed.id,
                lever=self.name,
                label=label,
                source=source,
                options=(IN, OUT),
                choice=choices.get(placed.id, default),
                outcome=choices.get(placed.id, default),
                default=default,
                illegal=placed.why_not,
                values=placed.names,
            )

    def _set_sites(self, stage: LeverContext, choices: Mapping[str, str], result: LeverOutcome) -> Iterator[Site]:
        default = choices.get("copies.policy", copy_sets.ALWAYS)
        facts = _copy_facts(result)
        for id, leaf, bsym in _copies(stage):
            label, source = stage.describe(bsym.flat_proxy_outs[0].name)
            fact = facts.get(leaf.output.name)
            illegal = {}
            if fact is not None and fact.needs_set:
                illegal = {p: fact.needs_set for p in copy_sets.POLICIES if not copy_sets.has_set(p, fact)}
            choice = choices.get(id, default)
            yield Site(
                id=id,
                lever=self.name,
                label=label,
                source=source,
                options=copy_sets.POLICIES,
                choice=choice,
                outcome=""
                if fact is None
                else ("set" if fact.needs_set or copy_sets.has_set(choice, fact) else "no set"),
                default=default,
                illegal={p: reason for p, reason in illegal.items() if p != choice},
                values=(leaf.output.name,),
            )

    def _fence_sites(self, stage: LeverContext, choices: Mapping[str, str]) -> Iterator[Site]:
        beside = stage.get_or_make("beside views", _views_beside_fences)
        for id, fence in _fences(stage):
            label, source = stage.describe(fence.flat_proxy_outs[0].name)
            reason = _why_no_drop(fence, beside)
            default = KEEP if reason else choices.get("copies.fences", KEEP)
            yield Site(
                id=id,
                lever=self.name,
                label=label,
                source=source,
                options=(KEEP, DROP),
                choice=choices.get(id, default),
                outcome=choices.get(id, default),
                default=default,
                illegal={DROP: reason} if reason else {},
                values=tuple(a.name for a in fence.flat_proxy_args),
            )

    def before_fusion(self, trace: TraceCtx, choices: Mapping[str, str], stage: LeverContext) -> TraceCtx:
        """Drop fences (nvFuser), or take copies out of regions (torch.compile)."""
        if _subject_of(stage) == SETS:
            return self._drop_fences(trace, choices, stage)
        if _subject_of(stage) == REGIONS:
            return self._copies_out(trace, choices, stage)
        return trace

    def _drop_fences(self, trace: TraceCtx, choices: Mapping[str, str], stage: LeverContext) -> TraceCtx:
        policy = choices.get("copies.fences", KEEP)
        dropped: set[str] = set()
        beside = stage.get_or_make("beside views", _views_beside_fences)
        for id, fence in _fences(stage):
            reason = _why_no_drop(fence, beside)
            if reason and choices.get(id) == DROP:
                raise refused_option_error(id, DROP, reason)
            if not reason and choices.get(id, policy) == DROP:
                dropped.add(fence.flat_proxy_outs[0].name)
        if not dropped:
            return trace
        edited = from_trace(trace)
        swap: dict[Variable, Proxy] = {}
        for bsym in trace.bound_symbols:
            if copy_sets.is_fence(bsym) and bsym.flat_proxy_outs and bsym.flat_proxy_outs[0].name in dropped:
                given = bsym.flat_proxy_args[0]
                swap[variableify(bsym.flat_proxy_outs[0])] = swap.get(variableify(given), given)
            else:
                edited.bound_symbols.append(bsym.from_bsym_swap_proxies(swap) if swap else bsym)
        edited.set_provenance(TraceProvenance("Alias fences dropped"))
        return edited

    def unfused(self, choices: Mapping[str, str], stage: LeverContext) -> set[str]:
        """Return the names of the results of copies that must be outside of regions.

        Raises
        ------
        ChoiceError
            If a choice for a copy is illegal.
        """
        if _subject_of(stage) != REGIONS:
            return set()
        policy = choices.get("copies.region", IN)
        out: set[str] = set()
        for placed in _placed_copies(stage):
            choice = choices.get(placed.id, _legal(policy, placed.why_not))
            if choice in placed.why_not:
                raise refused_option_error(placed.id, choice, placed.why_not[choice])
            if choice == OUT:
                out.update(placed.names)
        return out

    def _copies_out(self, trace: TraceCtx, choices: Mapping[str, str], stage: LeverContext) -> TraceCtx:
        out = self.unfused(choices, stage)
        if not out:
            return trace
        edited = from_trace(trace)
        for bsym in trace.bound_symbols:
            edited.bound_symbols.extend(_open_statement(bsym, out))
        edited.set_provenance(TraceProvenance("Copies taken out of regions"))
        return edited

    def fusion(
        self, options: FusionOptions, choices: Mapping[str, str], stage: LeverContext, result: LeverOutcome
    ) -> FusionOptions:
        """Set the policies for the `set` of each copy."""
        if _subject_of(stage) != SETS:
            return options
        single: dict[str, str] = {}
        facts = _copy_facts(result)
        for id, leaf, _ in _copies(stage):
            if id in choices:
                fact = facts.get(leaf.output.name)
                if fact is not None and fact.needs_set and not copy_sets.has_set(choices[id], fact):
                    raise refused_option_error(id, choices[id], fact.needs_set)
                single[leaf.output.name] = choices[id]
        policy = choices.get("copies.policy", copy_sets.ALWAYS)
        return dataclasses.replace(options, set_policy=policy, set_policies=single)


def _legal(option: str, illegal: Mapping[str, str]) -> str:
    """Return `option` if it is legal, else the other one of `IN` and `OUT`."""
    return option if option not in illegal else IN if option == OUT else OUT


def _copy_facts(result: LeverOutcome) -> dict[str, copy_sets.CopyFact]:
    if result.partitioned is None:
        return {}
    return {
        fact.output: fact
        for bsym in result.partitioned.bound_symbols
        if bsym.sym.is_fusion
        for fact in copy_sets.copy_facts(bsym)
    }


def _open_statement(bsym: BoundSymbol, out: set[str]) -> Iterator[BoundSymbol]:
    """Yield a statement, or its parts if it contains a copy to a value in `out` that can be separated."""
    if not bsym.subsymbols or copy_sets.is_copy(bsym) or runs_whole(bsym):
        yield bsym
        return
    if not any(copy_sets.is_copy(leaf) and leaf.output.name in out for leaf in copy_sets.leaves([bsym])):
        yield bsym
        return
    for member in bsym.subsymbols:
        yield from _open_statement(member, out)
