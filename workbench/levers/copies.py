"""Lever `copies`: how in-place copies are compiled, and whether fences split fusions.

With nvFuser, each copy has an option that decides whether the fusion's definition contains a `set`, an explicit copy of
the value, before the in-place copy. A fence is Thunder's statement `update_aliases`. It splits fusions; each fence is
kept or dropped. With torch.compile, each copy runs inside or outside of a region, that is, a fusion of torch.compile.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

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
"""Values of `Executor.copies`. `SETS`: each copy is compiled with or without a `set`. `REGIONS`: each copy is inside or
outside of a region.
"""


def _subject_of(context: LeverContext) -> str:
    return executor_named(context.executor).copies


def _applies_to(about: str, reason: str) -> Any:
    def applies(context: LeverContext) -> str:
        return only_with_fusions(context) or ("" if _subject_of(context) == about else reason)

    return applies


def _copies(context: LeverContext) -> Sequence[tuple[str, BoundSymbol, BoundSymbol]]:
    """Return three items for each copy: the id of its site, the copy, and the statement that contains the copy."""
    return context.get_or_make("copies", lambda context: tuple(_find_copies(context)))


def _find_copies(context: LeverContext) -> Iterator[tuple[str, BoundSymbol, BoundSymbol]]:
    for bsym in context.claimed.bound_symbols:
        inside = [leaf for leaf in copy_sets.leaves([bsym]) if copy_sets.is_copy(leaf)]
        for i, leaf in enumerate(inside):
            place = context.value_id(bsym.flat_proxy_outs[0].name if bsym.flat_proxy_outs else leaf.output.name)
            yield f"copies:{place}" + (f".copy{i}" if i else ""), leaf, bsym


def _fences(context: LeverContext) -> Sequence[tuple[str, BoundSymbol]]:
    return context.get_or_make("fences", lambda context: tuple(_find_fences(context)))


def _find_fences(context: LeverContext) -> Iterator[tuple[str, BoundSymbol]]:
    for bsym in context.claimed.bound_symbols:
        if copy_sets.is_fence(bsym) and bsym.flat_proxy_outs:
            yield f"copies:{context.value_id(bsym.flat_proxy_outs[0].name)}", bsym


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


def _views_beside_fences(context: LeverContext) -> dict[str, tuple[str, str]]:
    """Find the fences with one argument that must stay, because without them a fusion could compute a view.

    Fences with several arguments are never dropped, so they divide the trace into sections. If the fences with one
    argument were dropped, all statements of a section could become one fusion. If a statement of a section makes a view
    of memory that has several names, the fences with one argument in this section must stay.

    Returns
    -------
    dict of str to (str, str)
        Maps the argument of each fence that must stay to the names of the view and of the viewed value.
    """
    together = [fence for _, fence in _fences(context) if len(fence.flat_proxy_args) > 1]
    if not together:
        return {}
    memory = copy_sets.MemoryAliases(context.claimed.bound_symbols)
    shared = {memory.base(fence.flat_proxy_args[0].name) for fence in together}
    found: dict[str, tuple[str, str]] = {}
    alone: list[str] = []
    views: list[tuple[str, str]] = []
    for bsym in context.claimed.bound_symbols:
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
    """Site of a copy that can be inside or outside of a region.

    A PyTorch function that computes and then writes in place, such as a batch norm, runs completely inside or outside
    of a region. All its copies have one site.

    Attributes
    ----------
    id : str
        Id of the site.
    names : tuple of str
        Names of the results of the copy or of the function.
    statement : BoundSymbol
        The statement that contains the copy or calls the function.
    why_not : dict of str to str
        Maps the option `IN` or `OUT` to the reason why it is illegal. At most one option is illegal.
    """

    id: str
    names: tuple[str, ...]
    statement: BoundSymbol
    why_not: dict[str, str]


def _placed_copies(context: LeverContext) -> Sequence[_CopySite]:
    return context.get_or_make("placed", lambda context: tuple(_find_placed_copies(context)))


def _find_placed_copies(context: LeverContext) -> Iterator[_CopySite]:
    why_not_in = {found.output: found.why for found in find_excluded_copies(context.claimed.bound_symbols)}
    put_off = _deferred_copies(context)
    # The copies in a statement such as a batch norm cannot be separated, so they get one site.
    for _, group in itertools.groupby(_copies(context), lambda copy: id(copy[2])):
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
    "no statement of the forward reads the copy's result: if the copy ran outside of a region, Thunder would move the "
    "copy into the backward, and the memory would be written too late"
)


def _deferred_copies(context: LeverContext) -> set[str]:
    returned = context.claimed.bound_symbols[-1].args[0]
    if "fw_flat_out" not in returned:
        # No value requires a gradient, so there is no backward into which a copy could move.
        return set()
    needed = [a.name for part in ("fw_flat_out", "flat_args") for a in returned[part] if isinstance(a, Proxy)]
    inside = {leaf.output.name for _, leaf, _ in _copies(context)}
    opened = [part for bsym in context.claimed.bound_symbols[:-1] for part in _open_statement(bsym, inside)]
    return copy_sets.deferred_results(opened, needed)


@register
class Copies(Lever):
    """Decides how in-place copies are compiled, and whether fences are kept."""

    name = "copies"
    title = "In-place copies"
    meanings: ClassVar[Mapping[str, str]] = {
        "in": "The copy runs inside a region and is compiled with it.",
        "out": "The copy runs by itself, between regions.",
        "keep": "The fence is kept. Fusions end there, so that memory with several names is written in order.",
        "drop": "The fence is dropped. Fusions may extend across it.",
        copy_sets.ALWAYS: "Each in-place copy gets a set, as in unmodified Thunder.",
        copy_sets.NEVER: "Only in-place copies that would be wrong without a set get one.",
        copy_sets.DIRECT_ONLY: "In-place copies of an input of the fusion get a set.",
        copy_sets.ALIAS_AWARE: "In-place copies of an input, a returned value or an already copied value get a set.",
    }

    def settings(self) -> tuple[Setting, ...]:
        """Return three settings: for the `set` of copies, for fences, and for copies inside or outside of regions."""
        nvfuser = _applies_to(SETS, "torch.compile puts no set before a copy and does not split at fences")
        return (
            Setting(
                name="policy",
                label="in-place copies that get a set, which is one more copy (stock: always)",
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
                applies=_applies_to(
                    REGIONS,
                    "nvFuser writes each copy as an output of a fusion, so the copy stays in the fusion: choose "
                    "copies.policy",
                ),
            ),
        )

    def sites(self, context: LeverContext, choices: Mapping[str, str], outcome: LeverOutcome) -> list[Site]:
        """Return the sites of copies and, with nvFuser, of fences.

        With torch.compile, the copies of a function such as a batch norm share one site.
        """
        if _subject_of(context) == REGIONS:
            return list(self._region_sites(context, choices))
        if _subject_of(context) == SETS:
            return [*self._set_sites(context, choices, outcome), *self._fence_sites(context, choices)]
        return []

    def _region_sites(self, context: LeverContext, choices: Mapping[str, str]) -> Iterator[Site]:
        for placed in _placed_copies(context):
            label, source = context.describe(placed.statement.flat_proxy_outs[0].name)
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

    def _set_sites(self, context: LeverContext, choices: Mapping[str, str], outcome: LeverOutcome) -> Iterator[Site]:
        default = choices.get("copies.policy", copy_sets.ALWAYS)
        facts = _copy_facts(outcome)
        for id, leaf, bsym in _copies(context):
            label, source = context.describe(bsym.flat_proxy_outs[0].name)
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

    def _fence_sites(self, context: LeverContext, choices: Mapping[str, str]) -> Iterator[Site]:
        beside = context.get_or_make("beside views", _views_beside_fences)
        for id, fence in _fences(context):
            label, source = context.describe(fence.flat_proxy_outs[0].name)
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

    def before_fusion(self, trace: TraceCtx, choices: Mapping[str, str], context: LeverContext) -> TraceCtx:
        """Return the joint trace without the dropped fences, or with copies moved out of torch.compile's regions."""
        if _subject_of(context) == SETS:
            return self._drop_fences(trace, choices, context)
        if _subject_of(context) == REGIONS:
            return self._copies_out(trace, choices, context)
        return trace

    def _drop_fences(self, trace: TraceCtx, choices: Mapping[str, str], context: LeverContext) -> TraceCtx:
        policy = choices.get("copies.fences", KEEP)
        dropped: set[str] = set()
        beside = context.get_or_make("beside views", _views_beside_fences)
        for id, fence in _fences(context):
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

    def unfused(self, choices: Mapping[str, str], context: LeverContext) -> set[str]:
        """Return the names of the results of all copies that run outside of regions under `choices`.

        Raises
        ------
        ChoiceError
            If a choice for a copy is illegal.
        """
        if _subject_of(context) != REGIONS:
            return set()
        policy = choices.get("copies.region", IN)
        out: set[str] = set()
        for placed in _placed_copies(context):
            choice = choices.get(placed.id, _legal(policy, placed.why_not))
            if choice in placed.why_not:
                raise refused_option_error(placed.id, choice, placed.why_not[choice])
            if choice == OUT:
                out.update(placed.names)
        return out

    def _copies_out(self, trace: TraceCtx, choices: Mapping[str, str], context: LeverContext) -> TraceCtx:
        out = self.unfused(choices, context)
        if not out:
            return trace
        edited = from_trace(trace)
        for bsym in trace.bound_symbols:
            edited.bound_symbols.extend(_open_statement(bsym, out))
        edited.set_provenance(TraceProvenance("Copies taken out of regions"))
        return edited

    def fusion(
        self, options: FusionOptions, choices: Mapping[str, str], context: LeverContext, outcome: LeverOutcome
    ) -> FusionOptions:
        """Return the options of the fusion executor, with the policies that decide which copies have a `set`."""
        if _subject_of(context) != SETS:
            return options
        single: dict[str, str] = {}
        facts = _copy_facts(outcome)
        for id, leaf, _ in _copies(context):
            if id in choices:
                fact = facts.get(leaf.output.name)
                if fact is not None and fact.needs_set and not copy_sets.has_set(choices[id], fact):
                    raise refused_option_error(id, choices[id], fact.needs_set)
                single[leaf.output.name] = choices[id]
        policy = choices.get("copies.policy", copy_sets.ALWAYS)
        return dataclasses.replace(options, set_policy=policy, set_policies=single)


def _legal(option: str, illegal: Mapping[str, str]) -> str:
    """Return `option`, which is `IN` or `OUT`, if it is legal. If it is illegal, return the other option."""
    return option if option not in illegal else IN if option == OUT else OUT


def _copy_facts(outcome: LeverOutcome) -> dict[str, copy_sets.CopyFact]:
    if outcome.partitioned is None:
        return {}
    return {
        fact.output: fact
        for bsym in outcome.partitioned.bound_symbols
        if bsym.sym.is_fusion
        for fact in copy_sets.copy_facts(bsym)
    }


def _open_statement(bsym: BoundSymbol, out: set[str]) -> Iterator[BoundSymbol]:
    """Yield a statement. If it contains a copy whose result is in `out`, yield the parts of the statement instead."""
    if not bsym.subsymbols or copy_sets.is_copy(bsym) or runs_whole(bsym):
        yield bsym
        return
    if not any(copy_sets.is_copy(leaf) and leaf.output.name in out for leaf in copy_sets.leaves([bsym])):
        yield bsym
        return
    for member in bsym.subsymbols:
        yield from _open_statement(member, out)
