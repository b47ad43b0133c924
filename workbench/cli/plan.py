"""`plan`: print the predicted figures of the plan that Thunder would execute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from workbench.cli.opening import check_lever, open_bench
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
    TargetOption,
)
from workbench.cli.output import add_row, new_table, print_json, print_line, print_table, rows_table, seconds_text
from workbench.cli.statuses import DONE
from workbench.errors import ChoiceError, PlanError

if TYPE_CHECKING:
    from workbench.bench import PartsBench


def plan(
    program: ProgramArgument,
    settings: SetOption = None,
    choices: ChooseOption = None,
    config: ConfigOption = None,
    device: DeviceOption = None,
    executor: ExecutorOption = None,
    ranks: RanksOption = None,
    parallel: ParallelOption = "",
    capture: CaptureOption = None,
    sites: Annotated[str | None, typer.Option("--sites", metavar="LEVER", help="Show one lever's sites.")] = None,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write the choices to this config file.")
    ] = None,
    target: TargetOption = Target.thunder,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Write the plan to NAME.plan.json, for viewing.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite also a file that is not a config or a saved plan.")
    ] = False,
    machine: Annotated[
        str, typer.Option("--machine", metavar="NAME", help="Machine on which ranks are simulated.")
    ] = "H100",
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Write the simulated step to this file, for Perfetto."),
    ] = None,
    search_waits: Annotated[
        bool, typer.Option("--search-waits", help="Choose the best order of collectives, by simulation.")
    ] = False,
    limit_bytes: Annotated[
        int | None,
        typer.Option("--limit-bytes", metavar="N", help="With --search-waits: most bytes in flight.", min=1),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Print the predicted figures of the plan that Thunder would execute. Nothing runs."""
    if sites is not None:
        check_lever(sites)
    if limit_bytes is not None and not search_waits:
        raise ChoiceError("--limit-bytes needs --search-waits")
    if target is not Target.thunder and export is None:
        raise ChoiceError(f"--target {target.value} needs --export FILE, the file to write")
    bench = open_bench(program, settings, choices, config, device, executor, ranks, parallel, machine, capture)
    from workbench.analysis.cost import chrome_trace
    from workbench.bench import PartsBench

    if isinstance(bench, PartsBench):
        if save is not None or trace is not None or search_waits:
            given = "--save" if save is not None else "--trace" if trace is not None else "--search-waits"
            raise ChoiceError(
                f"{given} needs a program with one plan; {bench.program.name} has {len(bench.parts)} parts"
            )
        return _plan_parts(bench, sites, export, target, force, as_json)
    found = bench.search_waits(limit_bytes=limit_bytes) if search_waits else None
    if found is not None:
        bench.choose(found.choices)
    overlap = bench.overlap()
    document = {**bench.plan.to_json(), "alive_at_peak": bench.plan.alive_at_peak()}
    if overlap is not None:
        document["overlap"] = overlap.to_json()
    if found is not None:
        document["search"] = found.to_json()
    if trace is not None:
        if overlap is None:
            raise PlanError(
                f"{bench.program.name} has no collectives, so no step is simulated and {trace} is not written"
            )
        document["trace"] = str(chrome_trace.write_trace(chrome_trace.simulated_step(bench.plan.graph, overlap), trace))
    if sites is not None:
        document["sites"] = [site for site in document["sites"] if site["lever"] == sites]
    if export is not None:
        document["exported"] = str(bench.export(export, target=target.value, overwrite=force))
    if save is not None:
        document["saved"] = str(bench.save(save, overwrite=force))
    if as_json:
        print_json(document)
        return DONE
    print_table(_plan_table(document))
    for correction in document["corrections"]:
        print_line(_correction_text(correction))
    for warning in document["warnings"]:
        print_line(f"warning: {warning}", style="yellow")
    if sites is not None:
        print_table(_sites_table(document["sites"]))
    else:
        counts = {lever: sum(s["lever"] == lever for s in document["sites"]) for lever in _levers(document)}
        text = ", ".join(f"{lever} {count}" for lever, count in counts.items())
        print_line(f"sites: {text or 'none'}; --sites LEVER shows the sites of one lever")
    if found is not None:
        made = ", ".join(f"{id}={option}" for id, option in found.choices.items())
        print_line(f"chosen: {made}; step {found.over_bound:.1%} above the lower bound of all orders")
    for name in ("exported", "saved", "trace"):
        if name in document:
            print_line(f"{name}: {document[name]}")
    return DONE


def _plan_parts(
    bench: PartsBench, lever: str | None, export: Path | None, target: Target, force: bool, as_json: bool
) -> int:
    """Plan a program of several graphs, part by part."""
    document = bench.to_json(lever)
    if export is not None:
        document["exported"] = str(bench.export(export, target=target.value, overwrite=force))
    if as_json:
        print_json(document)
        return DONE
    print_table(_parts_table(document))
    for part in document["parts"]:
        if part["opaque"]:
            print_line(f"{part['name']} is opaque, so PyTorch runs it: {part['refusal']}")
        elif part["cut"]:
            print_line(f"the graph is cut after {part['name']} at {part['cut']}")
        for correction in part.get("corrections", ()):
            print_line(f"{part['name']}: {_correction_text(correction)}")
        for warning in part.get("warnings", ()):
            print_line(f"warning: {part['name']}: {warning}", style="yellow")
    if lever is not None:
        print_table(_sites_table(document["sites"]))
    else:
        counts = {lever: sum(s["lever"] == lever for s in document["sites"]) for lever in _levers(document)}
        text = ", ".join(f"{lever} {count}" for lever, count in counts.items())
        print_line(f"sites: {text or 'none'}; --sites LEVER shows the sites of one lever")
    if "exported" in document:
        print_line(f"exported: {document['exported']}")
    return DONE


def _correction_text(correction: dict[str, Any]) -> str:
    from workbench.compiler.trace.corrections import Correction

    return str(Correction(correction["name"], correction["reason"], tuple(correction["lines"])))


def _parts_table(document: dict[str, Any]) -> Table:
    from workbench.summary import AT_LEAST, human_bytes, proof_text

    table = new_table("part", "lines", "statements", "this part's peak", "saved for backward", "proof", "runs")
    for part in document["parts"]:
        figures = ("opaque", "", "", "")
        if not part["opaque"]:
            saved = f"{human_bytes(part['saved_bytes'])} in {part['saved_tensors']} tensors"
            proof = proof_text(part["proven"], part["rules"], part["fault"])
            peak = f"{AT_LEAST * part['peak_is_lower_bound']}{human_bytes(part['peak_bytes'])}"
            figures = (str(part["statements"]), peak, saved, proof)
        add_row(table, part["name"], part["source"].rpartition("/")[2], *figures, str(part["calls"]))
    return table


def _levers(document: dict[str, Any]) -> list[str]:
    return sorted({site["lever"] for site in document["sites"]})


def _plan_table(document: dict[str, Any]) -> Table:
    from workbench.summary import AT_LEAST, human_bytes, proof_text

    fusions = document["fusions"]
    rows = {
        "program": document["program"],
        "device, executor": f"{document['device']}, {document['executor']}",
        "statements": str(document["statements"]),
        "peak memory": f"{AT_LEAST * document['peak_is_lower_bound']}{human_bytes(document['peak_bytes'])}",
        **_reserved_rows(document),
        "saved for backward": f"{human_bytes(document['saved_bytes'])} in {document['saved_tensors']} tensors",
        "fusions": f"{fusions['count']}, {fusions['unique']} unique, the largest of {fusions['largest']} operations",
        **_overlap_rows(document),
        "proof": proof_text(document["proven"], document["rules"], document["fault"]),
        "planned in": f"{sum(stage['seconds'] for stage in document['stages']):.2f} s",
    }
    return rows_table("predicted", rows)


def _reserved_rows(document: dict[str, Any]) -> dict[str, str]:
    from workbench.summary import reserved_text

    reserved = document.get("reserved")
    return {"reserved": reserved_text(reserved["reserved_bytes"], reserved["fragmented_bytes"])} if reserved else {}


def _overlap_rows(document: dict[str, Any]) -> dict[str, str]:
    from workbench.summary import human_bytes

    found = document.get("overlap")
    if found is None:
        return {}
    where = f"simulated on {found['machine']}"
    return {
        f"step, {where}": f"{seconds_text(found['step_s'])}, in any order at least "
        f"{seconds_text(found['lower_bound_s'])}",
        f"exposed communication, {where}": seconds_text(found["exposed_communication_s"]),
        f"bytes in flight, {where}": human_bytes(found["in_flight_peak_bytes"]),
        "collectives": f"{found['collectives']}, {found['inversions']} pairs issued in another order than used, "
        f"{found['without_compute']} without compute that overlaps",
    }


def _sites_table(sites: list[dict[str, Any]]) -> Table:
    from workbench.bench.session.site_table import join_options
    from workbench.summary import human_bytes

    table = new_table("site", "what", "size", "choice", "legal", "refused", "notes", "source")
    for site in sites:
        legal = " ".join(option for option in site["options"] if option not in site["illegal"])
        refused = join_options(site["illegal"])
        notes = join_options(site["notes"])
        label = site["label"] if site["label"] not in site["id"] else ""
        size = human_bytes(site["bytes"]) if site["bytes"] else ""
        add_row(table, site["id"], label, size, site["choice"], legal, refused, notes, site["source"])
    return table
