"""Lever `sharing`: compile equal fusions only once, or each fusion separately, as Thunder does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from workbench.compiler.fusion.executors import FusionOptions
from workbench.compiler.pipeline.lever_context import LeverContext, LeverOutcome
from workbench.core.lever import Lever, Setting, only_with_fusions, register

SEPARATE, SHARED = "separate", "shared"


@register
class Sharing(Lever):
    """Decides whether equal fusions are compiled only once."""

    name = "sharing"
    title = "Identical fusions"

    def settings(self) -> tuple[Setting, ...]:
        """Return the lever's only setting, which applies to all equal fusions."""
        return (
            Setting(
                name="identical",
                label="equal fusions: each is compiled, or one is compiled and shared",
                default=SEPARATE,
                options=(SEPARATE, SHARED),
                applies=only_with_fusions,
            ),
        )

    def fusion(
        self, options: FusionOptions, choices: Mapping[str, str], context: LeverContext, outcome: LeverOutcome
    ) -> FusionOptions:
        """Return the options of the fusion executor with `share` set to the choice."""
        return dataclasses.replace(options, share=choices.get("sharing.identical", SEPARATE) == SHARED)
