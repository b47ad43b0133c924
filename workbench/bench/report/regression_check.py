"""Regression check: compare the figures of a plan with a baseline. Each figure may grow by a given amount."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import Advice, ConfigError, one_line, short_repr
from workbench.summary import human_bytes
from workbench.util import paths

if TYPE_CHECKING:
    from workbench.bench.session.workbench import Workbench

FORMAT = "thunder-workbench baseline"
FORMAT_VERSION = 1
"""Version of the file format. Increase it with each change that makes an older version of the workbench misread a
baseline.
"""
MOST_BYTES = 1 << 20
"""Maximum size of a baseline file."""

_SUFFIXES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(%|[KMG]i?B|B)?")


@dataclasses.dataclass(frozen=True)
class CheckedKind:
    """Key (`name`), name for users (`title`) and unit of a checked figure.

    Attributes
    ----------
    name, title : str
        Key of the figure in a baseline, and its name for users.
    """

    name: str
    title: str

    @property
    def in_bytes(self) -> bool:
        """Whether the figure is a number of bytes."""
        return self.name.endswith("_bytes")

    def text(self, value: int) -> str:
        """Format a value for users."""
        return human_bytes(value) if self.in_bytes else str(value)

    def change(self, difference: int) -> str:
        """Format a difference for users, with its sign."""
        return (
            human_bytes(difference, signed=True)
            if self.in_bytes
            else f"{'+' if difference > 0 else '−'}{abs(difference)}"
        )


FIGURES = (
    CheckedKind("peak_bytes", "peak memory"),
    CheckedKind("saved_bytes", "saved for the backward"),
    CheckedKind("fusions_unique", "unique fusions"),
    CheckedKind("inversions", "inversions of collectives"),
)
"""The checked figures. All are predicted, so a program that is planned for a GPU has the same figures on any machine.

On a CPU, the predicted memory inside kernels may depend on the processor.
"""


@dataclasses.dataclass(frozen=True)
class Growth:
    """Maximum allowed growth of a figure.

    Attributes
    ----------
    text : str
        The user's text: ``1%``, ``16MiB``, ``2``.
    share, amount : Fraction, int
        Growth as a share of the baseline, or as an amount in the figure's unit. At least one of the two is 0.
    """

    text: str
    share: Fraction = Fraction(0)
    amount: int = 0

    @classmethod
    def parse(cls, text: str, figure: CheckedKind) -> Growth:
        """Parse ``1%``, a number, or ``16MiB`` for a figure in bytes.

        Raises
        ------
        ConfigError
            If the text has none of these forms.
        """
        found = _AMOUNT.fullmatch(text.strip())
        unit = (found[2] or "") if found else ""
        if found is None or (unit not in ("", "%") and not figure.in_bytes):
            legal = "1%, 16MiB or a number of bytes" if figure.in_bytes else "1% or a number"
            raise ConfigError(f"{figure.title} cannot be allowed to grow by {short_repr(text)}; legal: {legal}")
        if unit == "%":
            return cls(text.strip(), share=Fraction(found[1]) / 100)
        return cls(text.strip(), amount=math.floor(Fraction(found[1]) * _SUFFIXES[unit]))

    def limit(self, baseline: int) -> int:
        """Return the largest allowed value for a figure whose baseline value is `baseline`."""
        return baseline + self.amount + math.floor(baseline * self.share)


@dataclasses.dataclass(frozen=True)
class CheckedFigure:
    """One figure compared with its baseline.

    Attributes
    ----------
    figure : CheckedKind
    baseline, now : int or None
        None if the program has no such figure, such as inversions in a program without ranks.
    allowed : Growth
    """

    figure: CheckedKind
    baseline: int | None
    now: int | None
    allowed: Growth

    @property
    def ok(self) -> bool:
        """Whether the figure is within its limit. True if the figure is None now or in the baseline."""
        return self.baseline is None or self.now is None or self.now <= self.allowed.limit(self.baseline)

    def line(self) -> str:
        """Return one line for users, with both values and the limit."""
        head = f"{'ok  ' if self.ok else 'GREW'}  {self.figure.title:<25}  "
        if self.baseline is None or self.now is None:
            return head + ("none, as in the baseline" if self.baseline == self.now else self._one_sided())
        by = self.now - self.baseline
        if not by:
            return head + f"{self.figure.text(self.now)}, as in the baseline"
        percent = f" ({by / self.baseline:+.2%})".replace("-", "−") if self.baseline else ""
        over = "" if self.ok else f"; allowed: {self.allowed.text}"
        was = self.figure.text(self.baseline)
        return head + f"{self.figure.text(self.now)}, was {was}: {self.figure.change(by)}{percent}{over}"

    def _one_sided(self) -> str:
        if self.now is None:
            return f"none, was {self.figure.text(self.baseline or 0)}"
        return f"{self.figure.text(self.now)}, not in the baseline"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "name": self.figure.name,
            "baseline": self.baseline,
            "now": self.now,
            "allowed_growth": self.allowed.text,
            "limit": None if self.baseline is None else self.allowed.limit(self.baseline),
            "ok": self.ok,
        }


def figures_of_plan(bench: Workbench) -> dict[str, int | None]:
    """Return the checked figures of the current plan, by name."""
    plan, overlap = bench.plan, bench.overlap()
    return {
        "peak_bytes": plan.peak_bytes,
        "saved_bytes": plan.saved_bytes,
        "fusions_unique": plan.census.unique,
        "inversions": overlap.order.inversions if overlap is not None else None,
    }


def baseline_document(bench: Workbench) -> dict[str, Any]:
    """Return a baseline: the figures with their program, settings and versions."""
    config = bench.config
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "program": config.program,
        "device": config.device,
        "executor": config.executor,
        "settings": dict(config.settings),
        "ranks": config.ranks,
        "fingerprint": config.fingerprint,
        "versions": dict(config.versions),
        "figures": figures_of_plan(bench),
    }


def compare_with_baseline(
    bench: Workbench, baseline: Mapping[str, Any], allowed: Mapping[str, Growth]
) -> list[CheckedFigure]:
    """Compare each figure of a bench with a baseline."""
    kept, now = baseline["figures"], figures_of_plan(bench)
    return [CheckedFigure(figure, kept.get(figure.name), now[figure.name], allowed[figure.name]) for figure in FIGURES]


def differences(bench: Workbench, baseline: Mapping[str, Any]) -> list[str]:
    """Describe what changed in the program and its environment since the baseline, to explain changed figures."""
    here = baseline_document(bench)
    found = [
        f"{name} was {short_repr(baseline.get(name))}, is {short_repr(here[name])}"
        for name in ("device", "executor", "settings", "ranks")
        if baseline.get(name) != here[name]
    ]
    if baseline.get("fingerprint") != here["fingerprint"]:
        found.append("the program's statements have changed")
    versions = baseline.get("versions")
    for package, version in sorted((versions if isinstance(versions, dict) else {}).items()):
        if here["versions"].get(package) != version:
            found.append(f"{package} was {version}, is {here['versions'].get(package, 'not installed')}")
    return [one_line(text) for text in found]


def write_baseline(bench: Workbench, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write the figures of a bench to a file. A baseline is replaced; any other file is replaced only with `overwrite`.

    Raises
    ------
    ConfigError
        If the file cannot be written; the message has the reason.
    """

    def why_not(target: Path) -> str:
        return (
            ""
            if overwrite or _parse_baseline(target.read_bytes()[:MOST_BYTES])
            else "the file exists and is not a baseline"
        )

    try:
        text = json.dumps(baseline_document(bench), indent=2, ensure_ascii=False, sort_keys=True) + "\n"
        return paths.write(path, text.encode(errors="backslashreplace"), may_replace=why_not)
    except OSError as error:
        raise ConfigError(
            f"cannot write {one_line(str(path))}: {paths.reason_of(error)}; nothing was written",
            advice=Advice("give another name, or overwrite=True", "give another --baseline, or --force to replace it"),
        ) from error


def read_baseline(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the baseline in a file.

    Raises
    ------
    ConfigError
        If the file does not exist or is not a baseline.
    """
    named = one_line(str(path))
    try:
        content = paths.read(path, MOST_BYTES)
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no baseline {named}",
            advice=Advice("regression_check.write_baseline(bench, path) writes one", "--write writes one"),
        ) from error
    except OSError as error:
        raise ConfigError(f"the baseline {named} cannot be read: {paths.reason_of(error)}") from error
    found = _parse_baseline(content)
    if not found:
        raise ConfigError(f"{named} is not a baseline of thunder-workbench, or was written by another version")
    return found


def _parse_baseline(content: bytes) -> dict[str, Any]:
    """Return the baseline in a file's content; empty if the content is not a valid baseline."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict) or (found.get("format"), found.get("format_version")) != (FORMAT, FORMAT_VERSION):
        return {}
    kept = found.get("figures")
    # Only a program of ranks has inversions. A baseline that lacks another figure would accept any value of it.
    if not isinstance(kept, dict) or any(
        type(kept.get(figure.name)) is not int and (figure.name != "inversions" or kept.get(figure.name) is not None)
        for figure in FIGURES
    ):
        return {}
    return found
