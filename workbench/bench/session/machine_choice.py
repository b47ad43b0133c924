"""Selection of the machine model for time estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.analysis.cost.machines import Machine

if TYPE_CHECKING:
    from workbench.bench.session.workbench import Workbench


def resolve_machine(machine: str | Machine, ranks: int) -> Machine:
    """Return `machine` itself, or the machine of that name.

    See `workbench.runs.measure.measured_rates.machine_by_name`.

    Raises
    ------
    ConfigError
        If no machine has that name.
    """
    if isinstance(machine, Machine):
        return machine
    from workbench.runs.measure import measured_rates

    return measured_rates.machine_by_name(machine, ranks)


def of_device(bench: Workbench, machine: str | Machine | None = None) -> Machine:
    """Return the machine model for time estimates of a bench.

    If `machine` is None, return the model of this computer's CPU for a CPU program, and `Workbench.machine` for other
    programs.

    Raises
    ------
    ConfigError
        If no machine has that name.
    """
    if machine is None:
        machine = "this CPU" if bench.program.device == "cpu" else bench.machine
    return resolve_machine(machine, bench.ranks)
