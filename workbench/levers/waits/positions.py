"""Compute the positions of collectives from choices, and describe the sites of collectives. For the lever `waits`.

A collective has two statements: the issue starts the collective, and after the wait the result can be read. The
collective is in flight from its issue to its wait. A bucket is a set of collectives that one collective with a larger
buffer replaces. The slot of a statement is the number of compute statements before the statement in its trace.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from workbench.compiler.pipeline.collective_schedule import (
    COMPUTE_TIE,
    Collective,
    CollectiveRole,
    CollectiveSchedule,
    Key,
)
from workbench.compiler.pipeline.lever_context import LeverContext
from workbench.core.lever import Setting, Site, refused_option_error
from workbench.levers.waits import bucketing

WAITS = "waits"
"""The lever's name."""

STOCK, EARLIEST, CONSUMER, JUST_IN_TIME = "stock", "earliest", "consumer", "just_in_time"
"""Options for the issue of a collective. `STOCK` is also an option for its wait."""
LATE, EARLY = "late", "early"
"""Options for the wait of a collective: right before the first use of the result, or right after the issue."""
POLICY = "policy"
"""Default option of a collective's site: the lever's setting decides."""
END = "end"
"""Name of the position after the last compute statement, in ``at(end)``."""
NONE, LAYER = "none", "layer"
"""Options of the setting `BUCKET`: no buckets, or a bucket for each layer. Other options are sizes; see `MIB`."""
BUCKET = "waits.bucket"
"""Id of the setting that decides which collectives are in one bucket."""
STAGE = "waits.stage"
"""Id of the setting that decides whether collectives move before or after fusion."""
AFTER_FUSION, BEFORE_FUSION = "after_fusion", "before_fusion"
"""Options of the setting `STAGE`."""
MIB = re.compile(r"([1-9]\d*)MiB")
"""An option of the setting `BUCKET`: the size of the full tensors in a bucket."""
IN_FLIGHT = re.compile(r"in_flight\(([1-9]\d*)(MiB)?\)")
"""An option for issues: the maximum number of collectives in flight, or the maximum of their bytes in MiB."""
AT = re.compile(r"at\((.+)\)")
"""An option for an issue or a wait: the position right before the named compute statement of the same trace."""
_FIRST, _BY_HAND, _AT_WAIT, _VIEW = 0, 1, 2, 3
"""Second parts of sort keys. They order the statements of one slot; the smallest part comes first.

`_FIRST` is for issues and for the statements that prepare their data, so that collectives start before the slot's waits
block. `_BY_HAND` is for issues that an option ``at(STATEMENT)`` places. `_AT_WAIT` is for waits, and for issues that
must not precede a wait. `_VIEW` is for views, which may read the result of a wait in the same slot. `COMPUTE_TIE` is
larger than all of these.
"""
ORDERING = _ISSUE, _WAIT, _GRADIENTS = tuple(f"{WAITS}.{name}" for name in ("issue", "wait", "gradients"))
"""Ids of the settings that only reorder collectives, if they act after fusion."""


def buckets_in(schedule: CollectiveSchedule, choices: Mapping[str, str]) -> list[list[Collective]]:
    """Return the collectives in each bucket under `choices`.

    A collective with a choice at one of its own sites is not in a bucket.
    """
    option = choices.get(f"{WAITS}.bucket", NONE)
    if option == NONE:
        return []
    size = MIB.fullmatch(option)
    rule = bucketing.BucketRule(limit_bytes=int(size[1]) * bucketing.MIB if size else 0, by_layer=option == LAYER)
    by_hand = {c.place for c in schedule.collectives if any(choices.get(i, POLICY) != POLICY for i in site_ids(c))}
    return bucketing.group_collectives(schedule, rule, by_hand)


def site_ids(collective: Collective) -> tuple[str, str]:
    """Return the ids of a collective's two sites: one for its issue, and one for its wait."""
    return _site_ids(collective.place)


@lru_cache(4096)
def _site_ids(issue: str) -> tuple[str, str]:
    id = f"{WAITS}:{issue}"
    return id, f"{id}!wait"


def sort_keys(schedule: CollectiveSchedule, choices: Mapping[str, str]) -> list[Key]:
    """Return the sort key of each statement of a schedule under `choices`.

    `CollectiveSchedule.arrange` sorts the statements by these keys.

    Raises
    ------
    ChoiceError
        If an option ``at(STATEMENT)`` names an unknown statement or a statement outside of the legal range, or puts a
        wait before the issue of its collective. Also if an option needs a statement that reads the result of a
        collective, and no statement reads it.
    """
    choices = choices_left(choices)
    found: list[Key] = [
        (high, _VIEW, i, 1.0, i)
        if role is CollectiveRole.VIEW
        else (slot, COMPUTE_TIE if role is CollectiveRole.COMPUTE else _FIRST, i, 1.0, i)
        for i, (role, slot, high) in enumerate(zip(schedule.roles, schedule.slot, schedule.high, strict=True))
    ]
    _check_pairs(schedule, choices)
    options = {c.issue: _options(c, choices) for c in schedule.collectives}
    waits = {c.issue: _wait_slot(schedule, c, options[c.issue][2]) for c in schedule.collectives}
    ordered = sorted(schedule.collectives, key=lambda c: (waits[c.issue], schedule.high[c.wait], c.issue))
    in_flight: list[Collective] = []
    for rank, collective in enumerate(ordered):
        issue, wait = collective.issue, collective.wait
        _, option, wait_option = options[issue]
        found[wait] = (waits[issue], _AT_WAIT, rank, 1.0, wait)
        first = (schedule.low[issue], _FIRST, issue, 1.0, issue)
        if option == EARLIEST:
            found[issue] = first
        elif option == CONSUMER:
            found[issue] = (schedule.low[issue], _FIRST, rank, 1.0, issue)
        elif option == JUST_IN_TIME:
            found[issue] = max(first, (waits[issue], _AT_WAIT, rank, 0.5, issue))
        elif limit := IN_FLIGHT.fullmatch(option):
            found[issue] = (schedule.low[issue], _FIRST, rank, 1.0, issue)
            beside = _in_flight_limit(collective, in_flight, int(limit[1]), in_bytes=bool(limit[2]))
            if beside < len(in_flight):
                slot, tie, at, part, _ = found[in_flight[-beside - 1].wait]
                found[issue] = max(found[issue], (slot, tie, at, part + 0.5, rank))
            in_flight.append(collective)
        elif AT.fullmatch(option):
            found[issue] = (_slot(schedule, collective, site_ids(collective)[0], option), _BY_HAND, issue, 1.0, issue)
        if wait_option == EARLY:
            slot, tie, at, part, _ = found[issue]
            found[wait] = (slot, tie, at, part + 0.25, wait)
        if option != STOCK:
            slot, tie, at, part, _ = found[issue]
            for producer in collective.producers:
                found[producer] = (slot, tie, at, part - 0.25, producer)
    return found


def _in_flight_limit(collective: Collective, in_flight: Sequence[Collective], limit: int, *, in_bytes: bool) -> int:
    """Return how many of the last collectives in `in_flight` may still be in flight when `collective` is issued."""
    if not in_bytes:
        return min(limit - 1, len(in_flight))
    room = limit * bucketing.MIB - collective.nbytes
    for count, other in enumerate(reversed(in_flight)):
        room -= other.nbytes
        if room < 0:
            return count
    return len(in_flight)


def choices_left(choices: Mapping[str, str]) -> Mapping[str, str]:
    """Return the choices that act after the split: all choices except settings that have acted before fusion."""
    if choices.get(STAGE) != BEFORE_FUSION:
        return choices
    return {id: option for id, option in choices.items() if id not in (STAGE, *ORDERING)}


def _options(collective: Collective, choices: Mapping[str, str]) -> tuple[str, str, str]:
    """Return three options of a collective: chosen for its issue, in effect for its issue, in effect for its wait."""
    issue_id, wait_id = site_ids(collective)
    own = choices.get(issue_id, POLICY)
    issue = choices.get(_ISSUE if collective.read else _GRADIENTS, STOCK) if own == POLICY else own
    wait = choices.get(wait_id, POLICY)
    if not collective.read and (own in (CONSUMER, JUST_IN_TIME)):
        raise refused_option_error(issue_id, own, _NOT_READ)
    return own, issue, choices.get(_WAIT, STOCK) if wait == POLICY else wait


_NOT_READ = "no statement of this trace reads the result; the trace returns it"


def _wait_slot(schedule: CollectiveSchedule, collective: Collective, option: str) -> int:
    if option in (STOCK, LATE, EARLY):
        return schedule.slot[collective.wait] if option == STOCK else schedule.high[collective.wait]
    if AT.fullmatch(option):
        return _slot(schedule, collective, site_ids(collective)[1], option)
    return schedule.high[collective.wait]


def _slot(schedule: CollectiveSchedule, collective: Collective, id: str, option: str) -> int:
    """Return the slot of the statement in an option ``at(STATEMENT)``. Raise `ChoiceError` if it is not legal."""
    match = AT.fullmatch(option)
    assert match is not None
    names = (*schedule.names, END)
    if match[1] not in names:
        legal = legal_range(schedule, collective)
        raise refused_option_error(id, option, f"{match[1]!r} is not a statement of the same trace; legal: {legal}")
    slot = names.index(match[1])
    low, high = schedule.low[collective.issue], schedule.high[collective.wait]
    if slot < low:
        raise refused_option_error(
            id, option, f"it needs the result of {names[low - 1]}; the earliest position is at({names[low]})"
        )
    if slot > high:
        raise refused_option_error(
            id, option, f"{names[high]} reads or changes its memory; the latest position is at({names[high]})"
        )
    return slot


def _check_pairs(schedule: CollectiveSchedule, choices: Mapping[str, str]) -> None:
    """Raise `ChoiceError` if two options ``at(STATEMENT)`` put a wait before the issue of the same collective."""
    for collective in schedule.collectives:
        issue_id, wait_id = site_ids(collective)
        issue, wait = choices.get(issue_id), choices.get(wait_id)
        if issue is None or wait is None:
            continue
        if AT.fullmatch(issue) and AT.fullmatch(wait):
            least = _slot(schedule, collective, issue_id, issue)
            if _slot(schedule, collective, wait_id, wait) < least:
                raise refused_option_error(
                    wait_id, wait, f"the collective is issued at {issue}; its wait must be later"
                )


def legal_range(schedule: CollectiveSchedule, collective: Collective) -> str:
    """Return a text with the first and the last legal option ``at(STATEMENT)`` of a collective's issue and wait."""
    low, high = schedule.low[collective.issue], schedule.high[collective.wait]
    return f"at(STATEMENT) from at({_name(schedule, low)}) to at({_name(schedule, high)})"


def _name(schedule: CollectiveSchedule, slot: int) -> str:
    """Return the name of the position in `slot`."""
    return schedule.names[slot] if slot < len(schedule.names) else END


def sites_of(
    schedule: CollectiveSchedule, collective: Collective, choices: Mapping[str, str], context: LeverContext
) -> list[Site]:
    """Return a collective's two sites: one for its issue, and one for its wait."""
    issue_id, wait_id = site_ids(collective)
    _, issue, wait = _options(collective, choices)
    first = _name(schedule, schedule.high[collective.wait])
    source = context.describe(schedule.outputs[schedule.high[collective.wait]])[1] if collective.read else ""
    label = f"{collective.place}, first read by {first}" if collective.read else f"{collective.place}, returned"
    shown = (POLICY, STOCK, EARLIEST, CONSUMER, JUST_IN_TIME)
    range_text, found = legal_range(schedule, collective), []
    for id, options, chosen, outcome in (
        (issue_id, shown, choices.get(issue_id, POLICY), issue),
        (wait_id, (POLICY, STOCK, LATE, EARLY), choices.get(wait_id, POLICY), wait),
    ):
        found.append(
            Site(
                id=id,
                lever=WAITS,
                label=label,
                source=source,
                options=options if chosen in options else (*options, chosen),
                choice=chosen,
                default=POLICY,
                outcome=outcome,
                illegal=dict.fromkeys((CONSUMER, JUST_IN_TIME), _NOT_READ)
                if id == issue_id and not collective.read
                else {},
                values=(collective.result,),
                range=range_text,
                bytes=collective.nbytes,
            )
        )
    return found


def only_orders(id: str, choices: Mapping[str, str]) -> bool:
    """Return whether a choice at the site `id` only reorders statements, so that all statements stay the same."""
    if id in ORDERING:
        return choices.get(STAGE) != BEFORE_FUSION
    # With buckets, a choice for a single collective also removes the collective from its bucket.
    return id.startswith(f"{WAITS}:") and choices.get(BUCKET, NONE) == NONE


def orders_to_try(limit_bytes: int | None) -> tuple[dict[str, str], ...]:
    """Return the orders of collectives that a search tries. Each order is a set of choices for settings.

    Collectives are issued right before their waits, or in the order in which their results are first read. In the
    second case, the collectives in flight are not limited, or limited by number or by bytes. Each of these orders is
    tried twice: reductions of gradients are issued early, or in stock order.

    Parameters
    ----------
    limit_bytes : int, optional
        Limit of the bytes in flight. Options ``in_flight(NMiB)`` with a higher limit are not tried. The option with
        this limit, rounded down to MiB, is tried, too.
    """
    sizes = [1 << power for power in range(6, 15)]
    if limit_bytes is not None:
        sizes = [size for size in sizes if size * bucketing.MIB < limit_bytes]
        sizes += [limit_bytes // bucketing.MIB] if limit_bytes >= bucketing.MIB else []
    issues = [CONSUMER, *(f"in_flight({k})" for k in (*range(1, 9), 12, 16, 24, 32))]
    issues += [f"in_flight({size}MiB)" for size in sizes]
    settings = ({"issue": JUST_IN_TIME}, *({"issue": issue} for issue in issues))
    return tuple(
        {f"{WAITS}.{name}": option for name, option in {**setting, "wait": LATE, "gradients": gradients}.items()}
        for setting in settings
        for gradients in (EARLIEST, STOCK)
    )


def drop_order(choices: Mapping[str, str]) -> dict[str, str]:
    """Remove the choices that only reorder collectives, and return the remaining choices."""
    return {id: option for id, option in choices.items() if not only_orders(id, choices)}


def sites_under(
    sites: Sequence[Site],
    communication: Mapping[str, CollectiveSchedule],
    choices: Mapping[str, str],
    settings: Sequence[Setting],
) -> tuple[Site, ...]:
    """Return the sites of a plan after its collectives were reordered.

    Parameters
    ----------
    sites : sequence of Site
        All sites of the plan before the reordering.
    communication : mapping of str to CollectiveSchedule
        The schedules of this plan.
    choices : mapping of str to str
        All choices, including those that reorder collectives.
    settings : sequence of Setting
        The settings of the lever `waits`.

    Raises
    ------
    ChoiceError
        If a choice is not an option of its setting, if the setting does not apply to the program, or if a collective
        refuses the option of its site.
    """
    moved: dict[str, tuple[str, str]] = {id: (option, option) for id, option in choices.items() if id in ORDERING}
    for schedule in communication.values():
        for collective in schedule.collectives:
            _, issue, wait = _options(collective, choices)
            for id, outcome in zip(site_ids(collective), (issue, wait), strict=True):
                moved[id] = (choices.get(id, POLICY), outcome)
    known = {f"{WAITS}.{setting.name}": setting for setting in settings}
    found = []
    for site in sites:
        choice, outcome = moved.get(site.id, (site.choice, site.outcome))
        if site.id in known and choice != site.default:
            if site.illegal:
                raise refused_option_error(site.id, choice, next(iter(site.illegal.values())))
            known[site.id].widen(site, choice).check(choice)
        if (choice, outcome) != (site.choice, site.outcome):
            options = site.options if choice in site.options else (*site.options, choice)
            site = dataclasses.replace(site, choice=choice, outcome=outcome, options=options)
        found.append(site)
    return tuple(found)
