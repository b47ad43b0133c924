"""Configs of a run's variants. A run interleaves steps of its variants with steps under the current choices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from workbench.core.config import Config
from workbench.errors import ChoiceError, RunError, short_repr

if TYPE_CHECKING:
    from workbench.bench.session.workbench import Workbench


def variants_of(bench: Workbench, against: Mapping[str, Mapping[str, str] | Config | None]) -> dict[str, str | None]:
    """Return the config of each variant as text, or None for unmodified Thunder; see `Workbench.run`.

    Raises
    ------
    ChoiceError
        If the choices of a variant are refused.
    RunError
        If a variant has no name.
    """
    found: dict[str, str | None] = {}
    for name, way in against.items():
        if not name:
            raise RunError("each variant to compare with needs a name, as in against={'stock': {}}")
        if way is not None and not isinstance(way, Config | Mapping):
            raise RunError(
                f"{name}: a variant is a dict of choices, a Config, or None for unmodified Thunder; "
                f"given {short_repr(way)}"
            )
        if way is not None and not isinstance(way, Config):
            try:
                bench.check_choices(way)
            except ChoiceError as error:
                raise ChoiceError(f"{name}: {error}", error.site) from error
            way = dataclasses.replace(bench.config, choices=dict(way))
        found[name] = None if way is None else way.text()
    return found
