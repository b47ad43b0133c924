"""Write the folder of a run from a bench: the program, its config, predicted figures and variants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.bench.session.run_names import unused_name
from workbench.bench.session.run_variants import variants_of
from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from workbench.analysis.memory.multi_graph_memory import StepMemory
    from workbench.bench.session.workbench import Workbench
    from workbench.core.config import Config
    from workbench.runs.process.request import RunOptions


def prepare(
    bench: Workbench,
    *,
    name: str,
    folder: str | Path | None,
    options: RunOptions | None,
    against: Mapping[str, Mapping[str, str] | Config | None] | None,
) -> Path:
    """Make the folder of a run under the current choices; see `Workbench.prepare` for the parameters."""
    from workbench.runs.process import request, run_store

    plan, config = None if bench.parts else bench.plan, bench.config
    # The predicted peak memory of a program in parts can be a lower bound. Pass a bound only as `peak_bound_bytes`,
    # because the run compares its measured peak memory with `predicted_peak_bytes`.
    memory: StepMemory | None = getattr(bench, "memory", None)
    bound_bytes = memory.peak_bytes if memory is not None else None
    peak_bytes = memory.peak_bytes if memory is not None and not memory.at_least else None
    options = request.RunOptions() if options is None else options
    variants = variants_of(bench, against or {})
    request.check_options(options, bench.program.device, variants, ranks=bench.ranks)
    return request.prepare(
        Path(folder) if folder else run_store.new_folder(name or bench.program.name),
        bench.program,
        config_text=config.text(bench.notes()),
        name=name or unused_name(bench.name_of(bench.choices), _names(bench)),
        predicted_peak_bytes=peak_bytes if plan is None else plan.peak_bytes,
        peak_bound_bytes=bound_bytes,
        predicted_alive=() if plan is None else plan.alive_at_peak(),
        variants=variants,
        options=options,
        ranks=bench.ranks,
        parallel=config.parallel,
        capture=bench.capture,
        draws_differ=() if plan is None else tuple(str(each) for each in plan.corrections if each.changes_draws),
    )


def _names(bench: Workbench) -> set[str]:
    """Return the names of the program's runs on disk."""
    from workbench.runs.process import request, run_store

    found = set()
    for folder in run_store.folders():
        try:
            asked = request.read_request(folder)
        except (OSError, WorkbenchError):
            continue
        if asked.program.get("name") == bench.program.name:
            found.add(asked.name)
    return found
