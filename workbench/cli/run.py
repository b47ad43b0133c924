"""`run`: compile and run a program in separate processes."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from workbench.cli.opening import open_bench, parse_pairs, refuse_unwritable
from workbench.cli.options import (
    CaptureOption,
    ChooseOption,
    ConfigOption,
    DeviceOption,
    ExecutorOption,
    JsonOption,
    ParallelOption,
    ProgramArgument,
    RanksOption,
    SetOption,
    Target,
)
from workbench.cli.output import complain, print_json, print_line, print_table, rows_table, seconds_text
from workbench.cli.statuses import DONE, FAILED
from workbench.errors import ChoiceError, DeviceError, RunError, short_repr

if TYPE_CHECKING:
    from workbench.core.config import Config
    from workbench.runs.process.follow_run import Run

_LARGEST = 3
"""Number of values alive at a peak that are printed. The document of ``--json`` contains all of them."""


def run(
    program: ProgramArgument,
    settings: SetOption = None,
    choices: ChooseOption = None,
    config: ConfigOption = None,
    device: DeviceOption = None,
    executor: ExecutorOption = None,
    ranks: RanksOption = None,
    parallel: ParallelOption = "",
    capture: CaptureOption = None,
    target: Annotated[
        Target, typer.Option("--target", help="Compiler of the run: thunder, or torch for plain torch.compile.")
    ] = Target.thunder,
    submit: Annotated[
        int | None,
        typer.Option(
            "--submit", metavar="M", help="Start nothing; print the command to start on each of M machines.", min=1
        ),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="WHAT",
            help="Time the program interleaved with a variant: stock (without choices), thunder (unmodified "
            "thunder.jit), a config file, or ID=OPTION,ID=OPTION,…; repeat for more.",
        ),
    ] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", metavar="N", help="Number of steps to time.", min=1)
    ] = None,
    cuda_graph: Annotated[
        bool,
        typer.Option(
            "--cuda-graph", help="Time the step also as a CUDA graph, interleaved: without the host's launches."
        ),
    ] = False,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE.json", help="Write a trace to this file, for Perfetto.")
    ] = None,
    memory_snapshot: Annotated[
        Path | None,
        typer.Option(
            "--memory-snapshot", metavar="FILE.pickle", help="Write the allocations of one step, for memory_viz."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Compile and run a program in separate processes, and check its results against unmodified Thunder.

    With --target torch, plain torch.compile follows the choices; the results are checked against torch.compile without
    choices, and against eager PyTorch.
    """
    for path in (trace, memory_snapshot):
        refuse_unwritable(path)
    bench = open_bench(program, settings, choices, config, device, executor, ranks, parallel, capture=capture)
    from workbench.runs.process.request import RunOptions

    options = RunOptions(cuda_graph=cuda_graph, memory_snapshot=memory_snapshot is not None)
    if samples is not None:
        options = dataclasses.replace(options, samples=samples)
    if target is Target.torch_eager or (target is Target.torch and submit is not None):
        raise typer.BadParameter("--target of a run is thunder or torch, and torch does not go with --submit")
    if submit is not None and bench.program.device != "planned":
        for option, path in (("--trace", trace), ("--memory-snapshot", memory_snapshot)):
            if path is not None:
                raise typer.BadParameter(f"{option} reads a run that has ended: with --submit, leave it out")
        return _submit(bench.prepare(options=options, against=_variants(against)), submit, as_json)
    if bench.program.device == "planned":
        raise DeviceError(
            f"{bench.program.name} is planned for a GPU that is not attached: use the command plan, or --device cpu"
        )
    running = bench.run(options=options, against=_variants(against), target=target.value)
    try:
        if as_json:
            running.wait()
        else:
            with Console(stderr=True).status("starting") as status:
                running.observe(lambda _: status.update(running.state))
                running.wait()
    except KeyboardInterrupt:
        running.cancel()
        raise
    document = running.to_json()
    if running.state == "done":
        _write_records(running, trace, memory_snapshot)
    if as_json:
        print_json(document)
    else:
        print_table(_run_table(document))
        for warning in running.warnings:
            complain(f"warning: {warning}")
        if not document["ok"]:
            complain(f"the run failed: {document['error']}")
    return DONE if document["ok"] else FAILED


def _submit(run_dir: Path, machines: int, as_json: bool) -> int:
    """Print the command that executes a run's folder on several machines."""
    from workbench.runs.process.follow_run import Run

    try:
        command = Run(run_dir).command(machines)
    except RunError:
        shutil.rmtree(run_dir)
        raise
    if as_json:
        print_json({"ok": True, "run_dir": str(run_dir), "command": command})
    else:
        print_line(
            f"start this command on each of {machines} machines with access to the folder; HEAD is the first machine:"
        )
        print_line(command)
    return DONE


def _variants(texts: list[str] | None) -> dict[str, dict[str, str] | Config | None]:
    """Return the choices or the config of each variant of ``--against``, by the variant's text.

    The value is None for unmodified Thunder.
    """
    import workbench as wb

    found: dict[str, dict[str, str] | Config | None] = {}
    for what in texts or []:
        if what in ("stock", "thunder"):
            found[what] = {} if what == "stock" else None
        elif what.endswith(".py"):
            found[what] = wb.load(what)
        elif "=" in what:
            found[what] = parse_pairs("--choose", what.split(","), ChoiceError)
        else:
            raise ChoiceError(
                f"--against {short_repr(what)[1:-1]}: legal: stock, thunder, a config file (.py), or choices as "
                "ID=OPTION,ID=OPTION"
            )
    return found


def _write_records(run: Run, trace: Path | None, memory_snapshot: Path | None) -> None:
    from workbench.runs.measure import memory_snapshot as snapshot
    from workbench.runs.measure import statement_times

    if trace is not None:
        statement_times.write_chrome_trace(run, trace)
    if memory_snapshot is not None:
        snapshot.write_snapshot(run, memory_snapshot)


def _run_table(document: dict[str, Any]) -> Table:
    from workbench.summary import AT_LEAST, coverage_words, human_bytes

    memory, accuracy = document["memory"] or {}, document["accuracy"]
    predicted, measured = memory.get("predicted_peak_bytes"), memory.get("measured_peak_bytes")
    at_least = memory.get("peak_bound_bytes")
    bound = f"{AT_LEAST}{human_bytes(at_least)}" if at_least is not None else ""
    rows = {
        "coverage": coverage_words(document.get("coverage")),
        "compile time": seconds_text(document["compile_s"]),
        "step time": ", ".join(filter(None, (seconds_text(document["step_s"]), document.get("beside_load", "")))),
        "peak memory, predicted": human_bytes(predicted) if predicted is not None else bound,
        "peak memory, measured": human_bytes(measured) if measured is not None else "",
        "run": str(document["run_dir"]),
    }
    for kind, alive in (("predicted", "predicted_alive_at_peak"), ("measured", "alive_at_peak")):
        largest = [f"{each['value'] or each['name']} {human_bytes(each['bytes'])}" for each in memory.get(alive) or []]
        rows[f"largest at the peak, {kind}"] = ", ".join(largest[:_LARGEST])
    for name, other in (document.get("against") or {}).items():
        rows[f"against {name}"] = _ratio_text(other)
    if accuracy is not None:
        verdict = "right" if accuracy["ok"] else "wrong"
        rows["results"] = f"{verdict}: largest error {accuracy['max_error']:.1e} against {accuracy['against']}"
        rows["bits"] = accuracy["words"]
    return rows_table("measured", {name: value for name, value in rows.items() if value})


def _ratio_text(variant: dict[str, Any]) -> str:
    times = f"{variant['ratio']:.3g} of this run's time ({variant['low']:.3g} to {variant['high']:.3g})"
    verdict = (
        "a difference within the noise" if variant["verdict"] == "noise" else f"{variant['verdict']} than this run"
    )
    return f"{seconds_text(variant['step_s'])}, {times}, interleaved: {verdict}"
