"""Write the folder of a run from a bench: the program, its config, predicted figures and variants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.bench.session.run_names import unused_name
from workbench.bench.session.run_variants import variants_of
from workbench.errors import RunError, WorkbenchError, short_repr

if TYPE_CHECKING:
    from workbench.analysis.memory.multi_graph_memory import StepMemory
    from workbench.bench.session.workbench import Workbench
    from workbench.core.config import Config
    from workbench.plain_torch.operators import Key
    from workbench.runs.process.request import RunOptions


TARGETS = ("thunder", "torch")
"""Compilers that a run can use: Thunder, or plain `torch.compile`."""


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
    # Pass a lower bound only as `peak_bound_bytes`, because the run compares its measured peak memory with
    # `predicted_peak_bytes`.
    memory: StepMemory | None = getattr(bench, "memory", None)
    peak_bytes: int | None = None
    is_bound = False
    if plan is not None:
        peak_bytes, is_bound = plan.peak_bytes, plan.peak_at_least
    elif memory is not None:
        peak_bytes, is_bound = memory.peak_bytes, memory.at_least
    options = request.RunOptions() if options is None else options
    variants = variants_of(bench, against or {})
    request.check_options(options, bench.program.device, variants, ranks=bench.ranks)
    return request.prepare(
        Path(folder) if folder else run_store.new_folder(name or bench.program.name),
        bench.program,
        config_text=config.text(bench.notes()),
        name=name or unused_name(bench.name_of(bench.choices), _names(bench)),
        predicted_peak_bytes=None if is_bound else peak_bytes,
        peak_bound_bytes=peak_bytes if is_bound else None,
        predicted_alive=() if plan is None else plan.alive_at_peak(),
        variants=variants,
        options=options,
        ranks=bench.ranks,
        parallel=config.parallel,
        capture=bench.capture,
        draws_differ=() if plan is None else tuple(str(each) for each in plan.corrections if each.changes_draws),
    )


def check_target(target: str) -> None:
    """Refuse a compiler that cannot run a program here."""
    if target not in TARGETS:
        raise RunError(f"a run has no target {short_repr(target)}; legal: {', '.join(TARGETS)}")


def prepare_torch(
    bench: Workbench,
    choices: Mapping[Key, str],
    *,
    predicted_peak_bytes: int | None,
    chosen: str,
    budget: float | None = None,
    name: str = "",
    folder: str | Path | None = None,
    options: RunOptions | None = None,
    against: Mapping[str, Mapping[str, str] | Config | None] | None = None,
) -> Path:
    """Make the folder of a run of plain `torch.compile`.

    Parameters
    ----------
    bench : Workbench
    choices : mapping of Key to str
    predicted_peak_bytes : int or None
        None if the peak cannot be predicted, as for a GPU.
    chosen : str
        What was chosen, for the run's name.
    budget : float, optional
        PyTorch's `activation_memory_budget` for tensors without a choice.
    name, folder, options, against
        As in `Workbench.run`.
    """
    from workbench.runs.process import request, run_store

    options = request.RunOptions() if options is None else options
    variants = variants_of(bench, against or {})
    request.check_options(options, bench.program.device, variants)
    if options.cuda_graph:
        raise RunError("a run of torch.compile has no CUDA graph: run it without cuda_graph")
    return request.prepare(
        Path(folder) if folder else run_store.new_folder(name or bench.program.name),
        bench.program,
        name=name or unused_name(f"torch.compile, {chosen}", _names(bench)),
        predicted_peak_bytes=predicted_peak_bytes,
        variants=variants,
        options=options,
        capture=bench.capture,
        torch=request.TorchTarget.of(choices, budget),
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
