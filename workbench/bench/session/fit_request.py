"""Validation of a fit's arguments: a peak, a step, points of a curve, and kinds of choices. Runs without PyTorch."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence

from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE
from workbench.errors import ChoiceError, shown

CUTS, ORDER, WAITS = "cuts", "order", "waits"
USING = (RECOMPUTE, OFFLOAD, CUTS, ORDER, WAITS)
"""All means that a fit may use, in the order in which a curve adds them."""
STORAGES = (RECOMPUTE, OFFLOAD)
"""Options of storages; see `used_on`."""
_UNITS = {"": 1, "b": 1, **{f"{p}b": 1000 ** (i + 1) for i, p in enumerate("kmgt")}}
_UNITS |= {f"{p}ib": 1024 ** (i + 1) for i, p in enumerate("kmgt")}
"""In lower case, whatever the case of the input; nobody means bits by a small b."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def checked_peak(given: int | str) -> int | str:
    """Check a peak and return it as it was given.

    Raises
    ------
    ChoiceError
        If it is neither a size above zero nor a share above zero of the stock peak.
    """
    if _percent(given) is None:
        size_bytes(given)
    return given


def peak_bytes(given: int | str, stock_bytes: Callable[[], int]) -> int:
    """Bytes of a peak.

    Parameters
    ----------
    given : int or str
        A size, or a share of the stock peak such as ``80%``.
    stock_bytes : callable
        Returns the stock peak; called only for a share.

    Raises
    ------
    ChoiceError
        As `checked_peak`.
    """
    percent = _percent(given)
    return size_bytes(given) if percent is None else max(1, math.floor(stock_bytes() * percent / 100))


def _percent(given: object) -> float | None:
    found = _SHARE.fullmatch(given.strip()) if isinstance(given, str) else None
    if found is None:
        return None
    percent = float(found[1])
    if not 0 < percent <= 100:
        why = "stock itself is within that: there is nothing to choose" if percent else "no plan takes nothing"
        raise ChoiceError(f"enter more than 0 % and at most 100 % of stock's peak; given {shown(given)}: {why}")
    return percent


def size_bytes(given: int | str) -> int:
    """Return bytes from a number, or from a text such as ``24 GiB``.

    Raises
    ------
    ChoiceError
        If it is not a size above zero.
    """
    found = _SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
    if found is not None and found[2].lower() in _UNITS:
        given = round(float(found[1]) * _UNITS[found[2].lower()])
    if isinstance(given, bool) or not isinstance(given, int) or given <= 0:
        raise ChoiceError(
            "a peak is a number of bytes above zero, or a text such as '24 GiB', '512 MB', or '80%' of stock's; given "
            f"{shown(given)}"
        )
    return given


def seconds(given: object) -> float:
    """Return seconds of a step from a number, or from a text with a number.

    Raises
    ------
    ChoiceError
        If it is not a time above zero.
    """
    number: object = given
    if isinstance(given, str):
        with contextlib.suppress(ValueError):
            number = float(given)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
        raise ChoiceError(f"step_s is a number of seconds above zero; given {shown(number)}")
    return float(number)


def points_of(given: object) -> int:
    """Points of a curve.

    Raises
    ------
    ChoiceError
        If there are fewer than the two ends.
    """
    if isinstance(given, bool) or not isinstance(given, int) or given < 2:
        raise ChoiceError(f"a curve has at least 2 points; given {shown(given)}")
    return given


def compilations_of(given: object) -> int:
    """The most compilations.

    Raises
    ------
    ChoiceError
        If it is not an integer above zero.
    """
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ChoiceError(f"compilations is a whole number above zero; given {shown(given)}")
    return given


def used_on(device: str) -> tuple[str, ...]:
    """Return the default kinds of choices.

    On a CPU, offloading only imitates a GPU's and frees no memory of the machine.
    """
    return (RECOMPUTE,) if device == "cpu" else STORAGES


def uses(using: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds of choices that a fit may use, each once, in the order of `USING`.

    Raises
    ------
    ChoiceError
        If it is empty, or contains anything else.
    """
    names = (using,) if isinstance(using, str) else tuple(using)
    other = next((name for name in names if name not in USING), None)
    if other is not None or not names:
        given = shown(other) if names else "nothing"
        raise ChoiceError(f"a fit uses one or more of {', '.join(USING)}; given {given}")
    return tuple(name for name in USING if name in names)
