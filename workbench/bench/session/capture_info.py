"""Capture method and cache status of a bench."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.compiler.api import Capture


class WayIn:
    """The part of a `Workbench` that knows how its program came in."""

    _captured: Capture

    @property
    def capture(self) -> str:
        """Capture method: ``dynamo``, ``interpreter`` or ``parts``."""
        return self._captured.way

    @property
    def capture_reason(self) -> str:
        """Why it came in that way."""
        return self._captured.why

    @property
    def on_disk(self) -> str:
        """``from disk`` where tracing was spared; else whether it is kept there for the next opening, or why not."""
        return self._captured.planned.on_disk
