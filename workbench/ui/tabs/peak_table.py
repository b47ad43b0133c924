"""Values alive at the predicted and the measured peak, beside the memory plot."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.analysis.memory.liveness import alive_storages, describe_storages
from workbench.summary import human_bytes, peak_text
from workbench.ui.graph.node_names import short_name
from workbench.ui.widgets.panel import Panel, esm

if TYPE_CHECKING:
    from workbench.analysis.memory.reserved_memory import ReservedMemory
    from workbench.bench import SavedPlan
    from workbench.compiler.api import Plan
    from workbench.runs.process.follow_run import Run

_MOST = 200

_AUTOGRAD = "autograd, between statements"
_BY_DYNAMO = re.compile("[Llg]_.*?(?P<modules>(?:_modules_.+?)*)_(?:parameters|buffers)_(?P<leaf>.+)_")
_NOT_IN_NAMES = re.compile("[^0-9A-Za-z]")


class Alive(Panel):
    """Lists of values, largest first. The keys of `content` are ``predicted measured eager plain``.

    ``measured`` is None before a run. ``eager`` says the peak of eager PyTorch; it is empty before a run. ``plain``
    says the peak of plain `torch.compile`; it is empty if there is no such peak, and None if it is not known yet.
    """

    _esm = esm("peak_table")


def predicted_content(
    plan: Plan | SavedPlan, ids: Sequence[str], reserved: ReservedMemory | None = None
) -> dict[str, Any]:
    """Return, as data for the page, the list of values alive at a plan's predicted peak.

    Parameters
    ----------
    plan : Plan or SavedPlan
    ids : sequence of str
        For each statement of the plan's graph, the id of its own node, even if the statement is in a folded layer.
    reserved : ReservedMemory, optional
        Prediction of the memory that the GPU's allocator reserves.
    """
    peak = plan.timeline.peak_statement
    if peak < 0:
        return {"head": "No statement takes memory.", "rows": []}
    alive = alive_storages(plan.graph, peak)
    total_bytes = int(plan.graph.storages.bytes[plan.graph.values.storage[alive]].sum())
    statements = plan.graph.statements
    after = peak == len(statements)
    place = {"id": "", "name": _AUTOGRAD} if after else {"id": ids[peak], "name": short_name(statements.name[peak])}
    scopes = sorted({origin.scope for origin in plan.graph.origins}, key=len, reverse=True)
    rows = [
        {
            "value": one.name if one.producer >= 0 else argument_path(one.name, scopes),
            "name": one.name,
            "statement": short_name(statements.name[one.producer]) if one.producer >= 0 else "argument",
            "scope": plan.graph.origins[one.origin].scope if one.origin >= 0 else "",
            "source": one.source,
            "bytes": human_bytes(one.bytes),
            "id": ids[one.producer] if one.producer >= 0 else "",
        }
        for one in describe_storages(plan.graph, alive[:_MOST])
    ]
    transient = plan.peak_bytes - total_bytes if after else int(statements.transient_bytes[peak])
    if transient:
        value = "copies of gradients" if after else "transient"
        rows.insert(0, _row(value, place["name"], "", transient, place["id"]))
    kept = f", of {human_bytes(reserved.reserved_bytes)} that the allocator reserves" if reserved is not None else ""
    more = f"; the largest {_MOST} are listed" if len(alive) > _MOST else ""
    return {
        "head": f"{len(alive)} storages, {peak_text(plan)} in all{kept}, predicted{more}",
        "peak": place,
        "rows": rows,
    }


@functools.lru_cache(10_000)
def _start_of_name(scope: str) -> str:
    """Return the beginning of the names that Thunder gives to the parameters of a module."""
    return f"t_{_NOT_IN_NAMES.sub('_', scope)}_"


def argument_path(name: str, scopes: Sequence[str]) -> str:
    """Return the path of a parameter or buffer as the program names it; `name` itself if it does not tell the path.

    Parameters
    ----------
    name : str
        Name in a trace. Dynamo separates the parts of a path by words of its own; Thunder only by underscores.
    scopes : sequence of str
        Paths of the program's modules, the longest first.

    Examples
    --------
    >>> argument_path("g_import_main_net_modules_up_parameters_weight_", [])
    'up.weight'
    >>> argument_path("l_program_closure_0_cell_contents_modules_0_modules_norm_parameters_weight_", [])
    '0.norm.weight'
    >>> argument_path("t_layers_0_up_weight", ["layers.0.up"])
    'layers.0.up.weight'
    >>> argument_path("t_emb", ["up"])
    't_emb'
    """
    if by_dynamo := _BY_DYNAMO.fullmatch(name):
        modules = [module for module in by_dynamo["modules"].split("_modules_") if module]
        return ".".join([*modules, by_dynamo["leaf"]])
    for scope in filter(None, scopes):
        start = _start_of_name(scope)
        # With an underscore, the rest may be the name of a further module and of its parameter.
        if name.startswith(start) and "_" not in (leaf := name.removeprefix(start)):
            return f"{scope}.{leaf}"
    return name


def measured_content(run: Run | None, named: Mapping[str, str]) -> dict[str, Any] | None:
    """Return, as data for the page, the values alive at a run's measured peak; None if the run measured no peak.

    Parameters
    ----------
    run : Run, optional
    named : mapping of str to str
        Node ids by the name of the value; empty if the shown plan is not the run's plan.
    """
    memory = run.memory if run is not None else {}
    peak_bytes, baseline_bytes = memory.get("measured_peak_bytes"), memory.get("baseline_bytes")
    if run is None or peak_bytes is None or baseline_bytes is None:
        return None
    facts = [f"{human_bytes(peak_bytes)} in all, measured" + ("" if named else " under other choices")]
    reserved, fragmented = memory.get("reserved_bytes"), memory.get("fragmented_bytes")
    if reserved is not None and fragmented is not None:
        facts.append(f"{human_bytes(reserved)} reserved, {human_bytes(fragmented)} of them in fragments")
    alive = run.alive_at_peak
    rows = [_row("", "parameters, buffers and inputs", "", baseline_bytes, "")]
    for one in alive:
        value, outputs = one.get("value", ""), one["outputs"]
        id = next((named[name] for name in (value, *outputs, one["name"]) if name in named), "")
        made_by = short_name(one["name"]) if one["name"] else _AUTOGRAD
        rows.append(_row(value or ("transient" if one["name"] else ""), made_by, one["source"], one["bytes"], id))
    unlisted = peak_bytes - baseline_bytes - sum(one["bytes"] for one in alive)
    if unlisted > 0:
        facts.append(f"{human_bytes(unlisted)} not listed")
    content: dict[str, Any] = {"head": "; ".join(facts), "rows": rows}
    at = run.peak_statement
    if at is not None:
        id = next((named[name] for name in (*at["outputs"], at["name"]) if name in named), "")
        content["peak"] = {"id": id, "name": short_name(at["name"]) if at["name"] else _AUTOGRAD}
    return content


def eager_peak(run: Run | None) -> str:
    """Say the peak of eager PyTorch, which no choice changes; empty if the run did not measure it."""
    if run is None or run.eager_peak_bytes is None:
        return ""
    return f"Eager PyTorch: {human_bytes(run.eager_peak_bytes)}, measured"


def _row(value: str, statement: str, source: str, nbytes: int, id: str) -> dict[str, Any]:
    return {"value": value, "statement": statement, "source": source, "bytes": human_bytes(nbytes), "id": id}
