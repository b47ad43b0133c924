"""Write a plan as one JSON document, ``*.plan.json``, for `Workbench.save`. `extensions/trace-view` shows it.

The document contains the graph, sites, choices, figures and the canvas's layout, but no weights and no data of a run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import Advice, ConfigError, one_line
from workbench.util import paths

if TYPE_CHECKING:
    from workbench.bench.session.workbench import Workbench

MIME_TYPE = "application/vnd.thunder-workbench.plan+json"
"""MIME type of a saved plan in a notebook's output."""
FORMAT = "thunder-workbench plan"
FORMAT_VERSION = 1
"""Version of the file format. Increase it with each change that makes an older workbench misread a new document.
"""

_BEGIN = f'{{"format": {json.dumps(FORMAT)}'.encode()
"""First bytes of every saved plan."""


def plan_document(bench: Workbench) -> dict[str, Any]:
    """Return the current plan as plain data for JSON.

    Returns
    -------
    dict
        ``format``, ``format_version``; ``program``, ``device``, ``executor``, ``capture``, ``fingerprint``,
        ``settings``, ``modes``, ``ranks``, ``parallel``, ``versions``, ``choices`` as in a config; ``figures``, all
        predicted, with units in their names; ``stock``, the figures of the plan without choices; ``warnings``;
        ``corrections``; ``sites`` with the reasons for illegal options; ``graph``, for `Graph.from_json`; ``view``, the
        strip of figures and the drawn graph; ``overlap``, if the plan has collectives; ``joint``, the joint graph, if
        the program has a backward, nothing is fused, and there is one rank. `SavedPlan` uses the joint graph to predict
        the effect of further options of storages.
    """
    from workbench.ui.html_pages import saved_view

    config, plan, stock = bench.config, bench.plan, bench.stock_plan
    planned, unchanged = plan.to_json(), stock.to_json()
    for site, each in zip(planned["sites"], plan.sites, strict=True):
        site |= {"default": each.default, "outcome": each.outcome, "values": list(each.values), "bytes": each.bytes}
    overlap = bench.overlap(plan)
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "program": config.program,
        "device": config.device,
        "executor": config.executor,
        "capture": bench.capture,
        "fingerprint": config.fingerprint,
        "settings": dict(config.settings),
        "modes": dict(config.modes),
        "ranks": config.ranks,
        "parallel": config.parallel,
        "versions": dict(config.versions),
        "choices": dict(config.choices),
        "figures": _figures(planned),
        "stock": _figures(unchanged),
        **({"overlap": overlap.to_json()} if overlap is not None else {}),
        "warnings": planned["warnings"],
        "corrections": [str(each) for each in plan.corrections],
        "sites": planned["sites"],
        "graph": json.loads(plan.graph.to_json()),
        "view": saved_view.view_content(plan, stock, bench.machine),
        **_joint(bench),
    }


def _joint(bench: Workbench) -> dict[str, Any]:
    """Return the entry ``joint``; an empty dict if the plan's memory cannot be computed from the joint graph."""
    context = bench.context
    if context.fuses or not context.has_backward or bench.ranks > 1:
        return {}
    return {"joint": json.loads(context.graph.to_json())}


def _figures(plan_record: dict[str, Any]) -> dict[str, Any]:
    of_proof = ("proven", "rules", "fault")
    names = ("statements", "peak_bytes", "saved_bytes", "saved_tensors", "fusions", "counts", *of_proof)
    return {name: plan_record[name] for name in names}


def write_plan(bench: Workbench, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write `plan_document` to `path` completely or not at all; see `Workbench.save`.

    Raises
    ------
    ConfigError
        If the file cannot be written; the message has the reason, and the old content stays.
    """
    return write_document(
        path,
        lambda: json.dumps(plan_document(bench), allow_nan=False, ensure_ascii=False),
        begin=_BEGIN,
        kind="saved plan",
        overwrite=overwrite,
    )


def write_document(
    path: str | os.PathLike[str], text: Callable[[], str], *, begin: bytes, kind: str, overwrite: bool
) -> Path:
    """Write a document. Without `overwrite`, replace an existing file only if it is a document of the same kind.

    Parameters
    ----------
    path : path
    text : callable
        Makes the document; called only if `path` can be written.
    begin : bytes
        First bytes of every document of this kind.
    kind : str
        The kind of document in words, for messages.
    overwrite : bool
        Whether to replace a file of a different kind, too.

    Raises
    ------
    ConfigError
        If the file cannot be written; the message has the reason, and the old content stays.
    """

    def why_not(target: Path) -> str:
        if overwrite:
            return ""
        with target.open("rb") as file:
            found = file.read(len(begin))
        return "" if found in (b"", begin) else f"the file exists and is not a {kind}"

    failed = f"cannot write {one_line(str(path))}"
    try:
        # Check the path before the text is computed, because the computation may take long.
        paths.check_writable(path)
        # A program's name may contain half of a surrogate pair, which UTF-8 cannot encode.
        return paths.write(path, text().encode(errors="backslashreplace"), may_replace=why_not)
    except FileExistsError as error:
        raise ConfigError(
            f"{failed}: {paths.reason_of(error)}; nothing was written",
            advice=Advice(
                "give another name, or overwrite=True to replace it", "give another name, or --force to replace it"
            ),
        ) from error
    except OSError as error:
        raise ConfigError(f"{failed}: {paths.reason_of(error)}; nothing was written") from error
