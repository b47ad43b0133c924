"""`Sites`: a tuple of sites, displayed as a table at a prompt and in a notebook."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.core.lever import Site
from workbench.summary import html_columns, human_bytes, text_columns

MOST_SHOWN = 60
"""Maximum number of rows of a table. A line below the table gives the number of further sites."""
_HEADS = ("site", "size", "choice", "legal", "source", "refused", "notes")
_WIDEST = {"source": 60, "refused": 70, "notes": 80}


class Sites(tuple[Site, ...]):
    """Sites in the order of the program, shown as a table.

    Examples
    --------
    >>> len(Sites(()))
    0
    """

    def __repr__(self) -> str:
        if not self:
            return self._title
        return f"{self._title}\n{text_columns(_HEADS, [_shorten(row) for row in self._rows()])}{self._more()}"

    def _repr_html_(self) -> str:
        return f"<p>{self._title}</p>{html_columns(_HEADS, self._rows())}{self._more()}" if self else self._title

    @property
    def _title(self) -> str:
        settings = sum(site.is_setting for site in self)
        text = _count(len(self) - settings, "site") if self else "no sites"
        return f"{text} and {_count(settings, 'setting')}" if settings else text

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                site.id,
                human_bytes(site.bytes) if site.bytes else "",
                site.choice + (f" (now {site.outcome})" if site.outcome not in ("", site.choice) else ""),
                " ".join(option for option in site.options if option not in site.illegal),
                " ".join(site.source.split()),
                join_options(site.illegal),
                join_options(site.notes),
            )
            for site in self[:MOST_SHOWN]
        ]

    def _more(self) -> str:
        return f"\nand {len(self) - MOST_SHOWN} more" if len(self) > MOST_SHOWN else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def join_options(texts: Mapping[str, str]) -> str:
    """Join texts about options into one line."""
    return "; ".join(f"{option}: {text}" for option, text in texts.items())


def _shorten(row: tuple[str, ...]) -> tuple[str, ...]:
    widths = [_WIDEST.get(head, 0) for head in _HEADS]
    return tuple(
        f"{text[: wide - 1]}…" if wide and len(text) > wide else text for text, wide in zip(row, widths, strict=True)
    )
