"""Names of runs: what was chosen, such as ``fit 70 %: 34 recomputed``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping

from workbench.summary import human_bytes

_DONE = {"recompute": "recomputed", "offload": "offloaded", "save": "saved"}
_LONGEST = 60
"""Largest number of characters of a single choice in a name."""


def name_of_choices(choices: Mapping[str, str], search: str = "") -> str:
    """Return a name for a run under choices.

    Parameters
    ----------
    choices : mapping of str to str
    search : str
        The search that found the choices, such as ``fit 70 %``; empty if the user made the choices.

    Examples
    --------
    >>> name_of_choices({"saved:layers.0.mlp/silu": "recompute", "saved:layers.1.mlp/silu": "recompute"})
    '2 recomputed'
    """
    counts = Counter(_DONE[option] for option in choices.values() if option in _DONE)
    others = [f"{id} {option}" for id, option in choices.items() if option not in _DONE]
    parts = [f"{count} {word}" for word, count in counts.items()]
    if len(others) == 1 and len(others[0]) <= _LONGEST:
        parts += others
    elif others:
        parts.append(f"{len(others)} other choice{'s' * (len(others) > 1)}")
    named = ", ".join(parts) or "no choices"
    return f"{search}: {named}" if search else named


def name_of_fit(asked: int | str | None, limit_bytes: int) -> str:
    """Return the name of a fit, such as ``fit 70 %`` or ``fit 24.0 GiB``; ``fit`` without a limit on peak memory.

    Parameters
    ----------
    asked : int, str or None
        The stated peak; None if the fit had another limit.
    limit_bytes : int
        The stated peak in bytes.
    """
    if asked is None:
        return "fit"
    if isinstance(asked, str) and asked.strip().endswith("%"):
        return f"fit {re.sub(r'\s*%$', ' %', asked.strip())}"
    return f"fit {human_bytes(limit_bytes)}"


def unused_name(name: str, used: Collection[str]) -> str:
    """Return `name`, followed by a number if it is in `used`."""
    number, found = 1, name
    while found in used:
        number += 1
        found = f"{name} ({number})"
    return found
