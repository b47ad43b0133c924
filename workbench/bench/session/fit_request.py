"""Check a fit's arguments (limits, points of a curve, kinds of choices) without an import of PyTorch."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence

from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE
from workbench.errors import ChoiceError, short_repr

CUTS, ORDER, WAITS = "cuts", "order", "waits"
USING = (RECOMPUTE, OFFLOAD, CUTS, ORDER, WAITS)
"""All kinds of choices that a fit may use, in the order in which a curve adds them."""
STORAGES = (RECOMPUTE, OFFLOAD)
"""Kinds of choices that are options of storages; see `default_using`."""
_UNITS = {"": 1, "b": 1, **{f"{p}b": 1000 ** (i + 1) for i, p in enumerate("kmgt")}}
_UNITS |= {f"{p}ib": 1024 ** (i + 1) for i, p in enumerate("kmgt")}
"""Bytes of each unit, by the unit in lower case. Users may write units in any case; a lower-case b also means bytes."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def check_peak(peak: int | str) -> int | str:
    """Check a limit on peak memory, and return the limit as it was given.

    Raises
    ------
    ChoiceError
        If `peak` is neither a size above zero, nor a share of the stock plan's peak memory above 0 % and up to 100 %.
    """
    if _percent(peak) is None:
        size_bytes(peak)
    return peak


def peak_bytes(peak: int | str, stock_bytes: Callable[[], int]) -> int:
    """Convert a limit on peak memory to bytes.

    Parameters
    ----------
    peak : int or str
        A size, or a share of the stock peak such as ``80%``.
    stock_bytes : callable
        Returns the stock plan's peak memory; called only for a share.

    Raises
    ------
    ChoiceError
        As in `check_peak`.
    """
    percent = _percent(peak)
    return size_bytes(peak) if percent is None else max(1, math.floor(stock_bytes() * percent / 100))


def _percent(peak: object) -> float | None:
    found = _SHARE.fullmatch(peak.strip()) if isinstance(peak, str) else None
    if found is None:
        return None
    percent = float(found[1])
    if not 0 < percent <= 100:
        why = "the stock plan already meets that peak" if percent else "every plan needs memory"
        raise ChoiceError(f"enter more than 0 % and at most 100 % of the stock peak; given {short_repr(peak)}: {why}")
    return percent


def size_bytes(size: int | str) -> int:
    """Convert a size to bytes. The size is a number of bytes, or a text such as ``24 GiB``.

    Raises
    ------
    ChoiceError
        If `size` is not a size above zero. Also if it is a text with a number up to 100 and without a unit, because the
        user probably means a percentage.
    """
    found = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if found is not None and not found[2] and 0 < float(found[1]) <= 100:
        raise ChoiceError(
            f"{short_repr(size)} has no unit, so it means bytes, which is too small for any program; did you mean "
            f"'{found[1]}%' of the stock peak, or '{found[1]} GiB'?"
        )
    if found is not None and found[2].lower() in _UNITS:
        size = round(float(found[1]) * _UNITS[found[2].lower()])
    if isinstance(size, bool) or not isinstance(size, int) or size <= 0:
        raise ChoiceError(
            "a peak is a number of bytes above zero, or a text such as '24 GiB', '512 MB', or '80%' of the stock "
            f"peak; given {short_repr(size)}"
        )
    return size


def step_seconds(value: object) -> float:
    """Convert a step time to a number of seconds. `value` is a number, or a text with a number.

    Raises
    ------
    ChoiceError
        If `value` is not a time above zero.
    """
    number: object = value
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            number = float(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
        raise ChoiceError(f"step_s is a number of seconds above zero; given {short_repr(number)}")
    return float(number)


def check_points(points: object) -> int:
    """Check the number of points of a curve and return it.

    Raises
    ------
    ChoiceError
        If `points` is not an integer of at least two. A curve needs its two ends.
    """
    if isinstance(points, bool) or not isinstance(points, int) or points < 2:
        raise ChoiceError(f"a curve has at least 2 points; given {short_repr(points)}")
    return points


def check_compilations(compilations: object) -> int:
    """Check a maximum number of compilations and return it.

    Raises
    ------
    ChoiceError
        If `compilations` is not an integer above zero.
    """
    if isinstance(compilations, bool) or not isinstance(compilations, int) or compilations < 1:
        raise ChoiceError(f"compilations is a whole number above zero; given {short_repr(compilations)}")
    return compilations


def check_reserved(peak: object, device: str, ranks: int) -> None:
    """Check that a fit can limit the predicted reserved memory.

    Raises
    ------
    ChoiceError
        If no limit on peak memory is given. Also for a program on a CPU or on several ranks, because its reserved
        memory is not predicted.
    """
    if peak is None:
        raise ChoiceError(
            "a fit of reserved memory needs a limit, such as '24 GiB'; a step time or a number of compilations alone "
            "limits no memory"
        )
    if device == "cpu":
        raise ChoiceError(
            "reserved memory is memory that PyTorch's allocator reserves on a GPU; on the device cpu PyTorch reserves "
            "nothing: open the program on the device planned or cuda"
        )
    if ranks > 1:
        raise ChoiceError(
            f"reserved memory is not predicted for a program on {ranks} ranks: collectives keep blocks on streams of "
            "their own, and the simulation of the allocator leaves these blocks out; limit the peak instead"
        )


def default_using(device: str) -> tuple[str, ...]:
    """Return the kinds of choices that a fit uses by default.

    On a CPU, offloading is left out: it only imitates offloading from a GPU, and does not free the host's memory.
    """
    return (RECOMPUTE,) if device == "cpu" else STORAGES


def check_using(using: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds of choices that a fit may use, each once, in the order of `USING`.

    Raises
    ------
    ChoiceError
        If `using` is empty, or contains a name that is not in `USING`.
    """
    names = (using,) if isinstance(using, str) else tuple(using)
    other = next((name for name in names if name not in USING), None)
    if other is not None or not names:
        given = short_repr(other) if names else "nothing"
        raise ChoiceError(f"a fit uses one or more of {', '.join(USING)}; given {given}")
    return tuple(name for name in USING if name in names)
