"""`thunder-workbench`: the workbench on the command line, for people as tables and for programs as JSON.

Exit status: 0 done, 1 a run failed, 2 bad usage. Errors are one line on standard error, or with ``--json`` an object
with ``ok`` false and ``error`` on standard output.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from workbench.errors import (
    ChoiceError,
    ConfigError,
    ConfigWarning,
    DeviceError,
    PlanError,
    ProgramError,
    RunError,
    UnknownRunError,
    WorkbenchError,
)

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.config import Config
    from workbench.runs.jobs import Run
    from workbench.runs.sweep import Progress, SweepResult

DONE, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130

NOTEBOOK = "quickstart.ipynb"

_LARGEST = 3
"""Values named of those alive at a peak; ``--json`` has them all."""

app = typer.Typer(
    name="thunder-workbench",
    help="See what Thunder makes of a PyTorch program, change what the compiler decides, run it.",
    epilog="PROGRAM is a built-in name or file.py:factory. Exit status: 0 done, 1 the run failed, 2 bad usage.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Device(enum.StrEnum):
    """What a program is for."""

    CPU = "cpu"
    CUDA = "cuda"
    PLANNED = "planned"


class Executor(enum.StrEnum):
    """What fuses."""

    NVFUSER = "nvfuser"
    TORCHCOMPILE = "torchcompile"
    TORCH = "torch"


ProgramArgument = Annotated[str, typer.Argument(help="A built-in program's name, or file.py:factory.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the program; repeat for more.")
]
ChooseOption = Annotated[
    list[str] | None, typer.Option("--choose", metavar="ID=OPTION", help="A choice at a site; repeat for more.")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A config file: its choices, and its settings.")
]
DeviceOption = Annotated[
    Device | None, typer.Option("--device", help="What it is for; planned is a GPU that is not there: nothing runs.")
]
ExecutorOption = Annotated[Executor | None, typer.Option("--executor", help="What fuses.")]
RanksOption = Annotated[
    int | None, typer.Option("--ranks", metavar="N", help="Processes that share it; a plan is that of one of them.")
]
ParallelOption = Annotated[
    str, typer.Option("--parallel", metavar="HOW", help="How they share it: fsdp, fsdp_zero3, ddp or tensor.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def doctor(as_json: JsonOption = False) -> int:
    """Say what is installed and attached, and what is missing."""
    from workbench.doctor import all_essential, examine

    checks = examine()
    ok = all_essential(checks)
    if as_json:
        _print_json({"ok": ok, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        table = _table("", "", "found", "note")
        for check in checks:
            sign = "✓" if check.ok else "✗" if check.essential else "–"
            table.add_row(sign, check.name, check.found, check.note)
        _console().print(table)
    return DONE if ok else FAILED


@app.command()
def programs(as_json: JsonOption = False) -> int:
    """List the built-in programs and their settings."""
    from workbench.programs import describe

    infos = describe()
    if as_json:
        _print_json(
            {
                "programs": [
                    {
                        "name": info.name,
                        "summary": info.summary,
                        "settings": [
                            {
                                "name": setting.name,
                                "type": setting.type.__name__ if setting.type else None,
                                "default": setting.default,
                                "options": list(setting.options),
                                "required": setting.required,
                            }
                            for setting in info.settings
                        ],
                    }
                    for info in infos
                ]
            }
        )
        return DONE
    table = _table("program", "what it is", "settings and their defaults")
    for info in infos:
        table.add_row(info.name, info.summary, " ".join(f"{s.name}={s.default}" for s in info.settings))
    _console().print(table)
    return DONE


@app.command()
def plan(
    program: ProgramArgument,
    settings: SetOption = None,
    choices: ChooseOption = None,
    config: ConfigOption = None,
    device: DeviceOption = None,
    executor: ExecutorOption = None,
    ranks: RanksOption = None,
    parallel: ParallelOption = "",
    sites: Annotated[str | None, typer.Option("--sites", metavar="LEVER", help="Show one lever's sites.")] = None,
    export: Annotated[Path | None, typer.Option("--export", metavar="FILE", help="Write the choices there.")] = None,
    machine: Annotated[str, typer.Option("--machine", metavar="NAME", help="On which ranks are simulated.")] = "H100",
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write the simulated step there, for Perfetto.")
    ] = None,
    search_waits: Annotated[
        bool, typer.Option("--search-waits", help="Choose the best order of collectives, by simulation.")
    ] = False,
    limit_bytes: Annotated[
        int | None,
        typer.Option("--limit-bytes", metavar="N", help="At most so many in flight in the order searched for.", min=1),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Plan a program: what Thunder would execute, predicted. Nothing runs."""
    from workbench.analysis import chrome
    from workbench.bench import alive_at_peak

    if sites is not None:
        _check_lever(sites)
    if limit_bytes is not None and not search_waits:
        raise ChoiceError("--limit-bytes is for the search: give --search-waits, too")
    bench = _open(program, settings, choices, config, device, executor, ranks, parallel, machine)
    found = bench.search_waits(limit_bytes=limit_bytes) if search_waits else None
    if found is not None:
        bench.choose(found.choices)
    overlap = bench.overlap()
    document = {**bench.plan.to_json(), "alive_at_peak": alive_at_peak(bench.plan)}
    if overlap is not None:
        document["overlap"] = overlap.to_json()
    if found is not None:
        document["search"] = found.to_json()
    if trace is not None:
        if overlap is None:
            raise PlanError(f"{bench.program.name} has no collectives: no step is simulated, and {trace} not written")
        document["trace"] = str(chrome.write(chrome.simulated_step(bench.plan.graph, overlap), trace))
    if sites is not None:
        document["sites"] = [site for site in document["sites"] if site["lever"] == sites]
    if export is not None:
        document["exported"] = str(bench.export(export))
    if as_json:
        _print_json(document)
        return DONE
    console = _console()
    console.print(_plan_table(document))
    for warning in document["warnings"]:
        console.print(f"warning: {warning}", style="yellow", highlight=False, markup=False)
    if sites is not None:
        console.print(_sites_table(document["sites"]))
    else:
        counts = {lever: sum(s["lever"] == lever for s in document["sites"]) for lever in _levers(document)}
        text = ", ".join(f"{lever} {count}" for lever, count in counts.items())
        console.print(f"sites: {text or 'none'}; show a lever's with --sites LEVER", highlight=False)
    if found is not None:
        made = ", ".join(f"{id}={option}" for id, option in found.choices.items())
        console.print(f"chosen: {made}; {found.over_bound:.1%} above what no order beats", highlight=False)
    for name in ("exported", "trace"):
        if name in document:
            console.print(f"{name}: {document[name]}", highlight=False, soft_wrap=True)
    return DONE


@app.command()
def run(
    program: ProgramArgument,
    settings: SetOption = None,
    choices: ChooseOption = None,
    config: ConfigOption = None,
    device: DeviceOption = None,
    executor: ExecutorOption = None,
    ranks: RanksOption = None,
    parallel: ParallelOption = "",
    submit: Annotated[
        int | None,
        typer.Option("--submit", metavar="M", help="Start nothing: say what to start on each of M machines.", min=1),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="WHAT",
            help="Time it in turns with another way to run it: stock (without choices), thunder (thunder.jit as it "
            "comes), a config file, or ID=OPTION,ID=OPTION,…; repeat for more.",
        ),
    ] = None,
    samples: Annotated[int | None, typer.Option("--samples", metavar="N", help="Steps to time.", min=1)] = None,
    cuda_graph: Annotated[
        bool, typer.Option("--cuda-graph", help="Time it as a CUDA graph, too, in turns: without the host's launches.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE.json", help="Write a trace for Perfetto there.")
    ] = None,
    memory_snapshot: Annotated[
        Path | None,
        typer.Option("--memory-snapshot", metavar="FILE.pickle", help="Write a step's allocations for memory_viz."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Compile a program and run it in processes of its own, checked against unmodified Thunder."""
    from workbench.runs.request import RunOptions

    bench = _open(program, settings, choices, config, device, executor, ranks, parallel)
    for path in (trace, memory_snapshot):
        if path is not None and not path.expanduser().parent.is_dir():
            raise RunError(f"{path} cannot be written: there is no folder {path.parent}")
    options = RunOptions(cuda_graph=cuda_graph, memory_snapshot=memory_snapshot is not None)
    if samples is not None:
        options = dataclasses.replace(options, samples=samples)
    if submit is not None:
        return _submit(bench.prepare(options=options, against=_ways(against)), submit, as_json)
    if bench.program.device == "planned":
        raise DeviceError(
            f"{bench.program.name} is planned for a GPU that is not there: plan it, or run it with --device cpu"
        )
    running = bench.run(options=options, against=_ways(against))
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
        _print_json(document)
    else:
        _console().print(_run_table(document))
        if not document["ok"]:
            _complain(f"the run failed: {document['error']}")
    return DONE if document["ok"] else FAILED


def _submit(run_dir: Path, machines: int, as_json: bool) -> int:
    """Tell the command that carries a run's folder out on several machines."""
    from workbench.runs.jobs import Run

    try:
        command = Run(run_dir).command(machines)
    except RunError:
        shutil.rmtree(run_dir)
        raise
    if as_json:
        _print_json({"ok": True, "run_dir": str(run_dir), "command": command})
    else:
        console = _console()
        console.print(
            f"start this on each of {machines} machines that reach the folder, HEAD being the first of them:",
            highlight=False,
        )
        console.print(command, highlight=False, soft_wrap=True, markup=False)
    return DONE


def _ways(given: list[str] | None) -> dict[str, dict[str, str] | Config | None]:
    """What ``--against`` names, each under the name that it was given."""
    import workbench as wb

    found: dict[str, dict[str, str] | Config | None] = {}
    for what in given or []:
        if what in ("stock", "thunder"):
            found[what] = {} if what == "stock" else None
        elif "=" in what:
            found[what] = _pairs("--choose", what.split(","), ChoiceError)
        elif what.endswith(".py"):
            found[what] = wb.load(what)
        else:
            raise ChoiceError(
                f"--against {what}: legal: stock, thunder, a config file (.py), or choices as ID=OPTION,ID=OPTION"
            )
    return found


def _write_records(run: Run, trace: Path | None, memory_snapshot: Path | None) -> None:
    from workbench.runs import clocks, snapshot

    if trace is not None:
        clocks.write_chrome_trace(run, trace)
    if memory_snapshot is not None:
        snapshot.write(run, memory_snapshot)


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(help="Run folders, or names of runs; the first is compared with.")],
    as_json: JsonOption = False,
) -> int:
    """Compare runs with the first: each difference with its interval, and which of them are noise."""
    from workbench.runs import store
    from workbench.runs.compare import compare as compare_runs
    from workbench.summary import human_bytes

    found = compare_runs(*(store.open(run) for run in runs))
    if as_json:
        _print_json(found.to_json())
        return DONE
    table = _table("run", "figure", "value", f"of {found.base}", "ratio", "95 % interval", "verdict")
    for each in found.differences:
        show = human_bytes if each.figure.endswith("_bytes") else _seconds
        interval = f"{each.low:.3f} to {each.high:.3f}" if each.low is not None and each.low != each.high else ""
        table.add_row(
            Text(each.run),
            each.figure,
            show(each.value) if each.value is not None else "",
            show(each.base) if each.base is not None else "",
            f"{each.ratio:.3f}" if each.ratio is not None else "",
            interval,
            each.verdict,
        )
    console = _console()
    console.print(table)
    console.print(f"the machine's own speed varied by {found.noise:.1%} meanwhile", highlight=False)
    for warning in found.warnings:
        _complain(f"warning: {warning}")
    return DONE


@app.command()
def sweep(
    program: ProgramArgument,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=V1,V2,…", help="Values of a setting; repeat for more.")
    ] = None,
    choices: Annotated[
        list[str] | None, typer.Option("--choose", metavar="ID=O1,O2,…", help="Options of a site; repeat for more.")
    ] = None,
    device: DeviceOption = None,
    executor: ExecutorOption = None,
    timeout_s: Annotated[float, typer.Option("--timeout", metavar="S", help="Of one point.", min=1.0)] = 3600.0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where outcomes are kept; a sweep goes on from there.")
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the table there.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE.html", help="Draw compile time there.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Compile and run a program over values of settings and choices, each point in a cold process."""
    from workbench.compiler import devices
    from workbench.runs import store
    from workbench.runs import sweep as sweeps

    device_name = device.value if device else "cpu"
    if device_name == "planned":
        raise DeviceError("a planned device is not there to run on; legal: cpu, or cuda where one is attached")
    wanted = sweeps.Sweep(
        program=program,
        settings=_lists("--set", settings, ProgramError),
        choices=_lists("--choose", choices, ChoiceError),
        device=device_name,
        executor=executor.value if executor else devices.default_executor(device_name),
        timeout_s=timeout_s,
    )
    sweeps.check(wanted)
    folder = out or store.new_folder(f"sweep-{program}")
    with Console(stderr=True).status("starting") as status:
        found = sweeps.run(wanted, folder, on_progress=lambda progress: status.update(_progress_text(progress)))
    if csv is not None:
        try:
            csv.write_text(found.csv())
        except OSError as error:
            raise RunError(f"the table {csv} cannot be written: {error.strerror}") from error
    if plot is not None:
        from workbench.ui import sweep_plot

        sweep_plot.write(found, plot)
    document = {**found.to_json(), "out": str(folder)}
    if as_json:
        _print_json(document)
    else:
        _print_sweep(found, folder)
    return DONE if document["ok"] else FAILED


def _lists(option: str, given: list[str] | None, error: type[WorkbenchError]) -> dict[str, list[str]]:
    pairs = _pairs(option, given, error)
    found = {name: [value for value in values.split(",") if value] for name, values in pairs.items()}
    empty = next((name for name, values in found.items() if not values), None)
    if empty is not None:
        raise error(f"{option} {empty}=: no value is given; the form is {option} {empty}=ONE,ANOTHER")
    return found


def _progress_text(progress: Progress) -> str:
    left = f", {progress.left_s:.0f} s left" if progress.left_s is not None else ""
    return f"{progress.done} of {progress.count} points done{left}"


def _print_sweep(found: SweepResult, folder: Path) -> None:
    rows = found.rows()
    table = _table(*(rows[0] if rows else ()))
    for row in rows:
        table.add_row(*("" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
                        for value in row.values()))  # fmt: skip
    console = _console()
    console.print(table)
    for label, exponent in found.exponents().items():
        console.print(f"compile time grows with exponent {exponent:.2f}: {label}", highlight=False)
    console.print(f"sweep: {folder}", highlight=False, soft_wrap=True)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(context: typer.Context) -> int:
    """Open JupyterLab on a copy of the quickstart notebook here. What follows is passed to JupyterLab."""
    here = Path(NOTEBOOK)
    if not here.exists():
        shutil.copyfile(_quickstart(), here)
    # Jupyter refuses root without being told; in a container there is often nobody else.
    root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    command = [sys.executable, "-m", "jupyterlab", str(here), *root, *context.args]
    return subprocess.run(command, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    status: int
    with _short_warnings(), _only_json() if as_json else contextlib.nullcontext():
        try:
            status = app(given, standalone_mode=False) or DONE
        except WorkbenchError as error:
            # A plan that would be wrong, or a run that cannot be started, is no mistake in what was typed.
            failed = isinstance(error, PlanError | RunError) and not isinstance(error, UnknownRunError)
            status = FAILED if failed else BAD_USAGE
            _report(str(error), as_json)
        except typer.TyperException as error:
            status = error.exit_code
            # Without a command the help was printed, and there is nothing to add.
            if given:
                _report(error.format_message(), as_json)
        except (typer.Abort, KeyboardInterrupt):
            status = INTERRUPTED
            _report("interrupted", as_json)
    sys.exit(status)


def _open(
    program: str,
    settings: list[str] | None,
    choices: list[str] | None,
    config_path: Path | None,
    device: Device | None,
    executor: Executor | None,
    ranks: int | None = None,
    parallel: str = "",
    machine: str = "H100",
) -> Workbench:
    import workbench as wb

    config = wb.load(config_path) if config_path is not None else None
    bench = wb.open(
        program,
        device=device.value if device else None,
        executor=executor.value if executor else None,
        config=config,
        ranks=ranks,
        parallel=parallel,
        machine=machine,
        settings=_pairs("--set", settings, ProgramError),
    )
    if choices:
        bench.choose(_pairs("--choose", choices, ChoiceError))
    return bench


def _pairs(option: str, given: list[str] | None, error: type[WorkbenchError]) -> dict[str, str]:
    """``NAME=VALUE`` of a repeated option as a dict. A site's id may hold ``=``, and an option never does."""
    pairs: dict[str, str] = {}
    for pair in given or []:
        name, equals, value = pair.rpartition("=") if option == "--choose" else pair.partition("=")
        if not equals or not name:
            form = "ID=OPTION" if option == "--choose" else "NAME=VALUE"
            raise error(f"{option} {pair}: the form is {option} {form}")
        if name in pairs:
            raise error(f"{option} {pair}: {name} is given twice")
        pairs[name] = value
    return pairs


def _check_lever(name: str) -> None:
    from workbench.errors import nearest
    from workbench.levers.base import all_levers

    known = [lever.name for lever in all_levers()]
    if name not in known:
        raise ChoiceError(f"--sites {name}: there is no such lever; legal: {', '.join(known)}{nearest(name, known)}")


def _levers(document: dict[str, Any]) -> list[str]:
    return sorted({site["lever"] for site in document["sites"]})


def _plan_table(document: dict[str, Any]) -> Table:
    from workbench.summary import human_bytes

    fusions = document["fusions"]
    rows = {
        "program": document["program"],
        "device, executor": f"{document['device']}, {document['executor']}",
        "statements": str(document["statements"]),
        "peak memory": human_bytes(document["peak_bytes"]),
        "saved for backward": f"{human_bytes(document['saved_bytes'])} in {document['saved_tensors']} tensors",
        "fusions": f"{fusions['count']}, {fusions['unique']} unique, the largest of {fusions['largest']} operations",
        **_overlap_rows(document),
        "planned in": f"{sum(stage['seconds'] for stage in document['stages']):.2f} s",
    }
    return _rows_table("predicted", rows)


def _overlap_rows(document: dict[str, Any]) -> dict[str, str]:
    from workbench.summary import human_bytes

    found = document.get("overlap")
    if found is None:
        return {}
    where = f"simulated on {found['machine']}"
    return {
        f"step, {where}": f"{_seconds(found['step_s'])}, no order less than {_seconds(found['lower_bound_s'])}",
        f"exposed communication, {where}": _seconds(found["exposed_communication_s"]),
        f"bytes in flight, {where}": human_bytes(found["in_flight_peak_bytes"]),
        "collectives": f"{found['collectives']}, {found['inversions']} pairs issued in another order than used, "
        f"{found['without_compute']} with nothing to hide behind",
    }


def _sites_table(sites: list[dict[str, Any]]) -> Table:
    table = _table("site", "what", "choice", "legal", "refused", "source")
    for site in sites:
        legal = " ".join(option for option in site["options"] if option not in site["illegal"])
        refused = "; ".join(f"{option}: {reason}" for option, reason in site["illegal"].items())
        label = site["label"] if site["label"] not in site["id"] else ""
        table.add_row(*map(Text, (site["id"], label, site["choice"], legal, refused, site["source"])))
    return table


def _run_table(document: dict[str, Any]) -> Table:
    from workbench.summary import human_bytes

    memory, accuracy = document["memory"] or {}, document["accuracy"]
    predicted, measured = memory.get("predicted_peak_bytes"), memory.get("measured_peak_bytes")
    rows = {
        "compile time": _seconds(document["compile_s"]),
        "step time": _seconds(document["step_s"]),
        "peak memory, predicted": human_bytes(predicted) if predicted is not None else "",
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
        rows["results"] = f"{verdict}: largest error {accuracy['max_error']} against {accuracy['against']}"
    return _rows_table("measured", {name: value for name, value in rows.items() if value})


def _ratio_text(other: dict[str, Any]) -> str:
    times = f"it takes {other['ratio']:.3g} times as long ({other['low']:.3g} to {other['high']:.3g})"
    verdict = "a difference within the noise" if other["verdict"] == "noise" else f"it is {other['verdict']}"
    return f"{_seconds(other['step_s'])}: {times}, {verdict}"


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def _rows_table(title: str, rows: dict[str, str]) -> Table:
    table = _table("", title)
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _console() -> Console:
    # A pipe has no width of its own: lines are kept whole, for grep.
    return Console(width=None if sys.stdout.isatty() else 200)


def _quickstart() -> Path:
    """The notebook in the installed package, or in the folder that the package is developed in."""
    package = Path(__file__).parent
    for folder in (package, package.parent / "notebooks"):
        if (folder / NOTEBOOK).is_file():
            return folder / NOTEBOOK
    raise ConfigError(f"the quickstart notebook is missing: no {NOTEBOOK} comes with this installation")


@contextlib.contextmanager
def _short_warnings() -> Iterator[None]:
    """Inside, warnings are one line each, and those that other packages raise about themselves are not shown."""
    with warnings.catch_warnings():
        warnings.showwarning = _warn
        warnings.filterwarnings("ignore", module=r"(thunder|torch|nvfuser_direct)\b")
        warnings.simplefilter("always", ConfigWarning)
        yield


@contextlib.contextmanager
def _only_json() -> Iterator[None]:
    """Inside, only `_print_json` writes to standard output: what programs and nvFuser print goes to standard error."""
    global _json_stream
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stream:
        os.dup2(2, 1)
        _json_stream = stream
        try:
            with contextlib.redirect_stdout(sys.stderr):
                yield
        finally:
            sys.stdout.flush()
            stream.flush()
            os.dup2(stream.fileno(), 1)
            _json_stream = None


_json_stream: TextIO | None = None


def _print_json(document: dict[str, Any]) -> None:
    stream = _json_stream or sys.stdout
    stream.write(json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n")


def _report(message: str, as_json: bool) -> None:
    if as_json:
        _print_json({"ok": False, "error": message})
    else:
        _complain(message)


def _complain(message: str) -> None:
    sys.stderr.write(f"thunder-workbench: {' '.join(message.split())}\n")


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    _complain(f"warning: {message}")


if __name__ == "__main__":
    main()
