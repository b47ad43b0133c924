"""Lever `waits`: where a trace issues collectives, and where it waits for their results.

`lever` has the lever. `positions` computes positions from choices, `constraints` finds the legal positions, `bucketing`
merges collectives, `replanner` reorders an existing plan, and `order_search` finds the fastest order. Without choices,
the order is that of Thunder's `sort_waits`; `workbench.compiler.fastpath.wait_sorting` replaces this function by a
faster one.
"""

from workbench.levers.waits.lever import Waits as Waits
