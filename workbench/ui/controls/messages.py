"""The app's one-line replies, such as the effect of a choice. The module also parses a limit that the user typed."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from workbench.bench.report import torch_file
from workbench.bench.report.open_saved_plan import read_saved_plan
from workbench.core.config import is_config, load
from workbench.core.graph import ValueFlag
from workbench.errors import ChoiceError, ConfigError, one_line
from workbench.summary import (
    count_name,
    human_bytes,
    human_change,
    human_count,
    human_seconds,
    human_shape,
    peak_text,
    text_summary,
)
from workbench.ui.graph.counterparts import counterpart_key
from workbench.ui.graph.node_names import short_label
from workbench.version import __version__

if TYPE_CHECKING:
    from workbench.analysis.memory.liveness import AliveValue
    from workbench.bench import PlanDiff, Workbench
    from workbench.core.lever import Site
    from workbench.levers.waits.order_search import Search
    from workbench.programs import Program

NO_TAB = (
    "This page has no tabs: the app stays in its cell. Full screen shows all of it. JupyterLab opens tabs if "
    "thunder-workbench is installed in the environment of JupyterLab."
)
"""Answer to *Open in a tab* on a page without tabs."""


def versions_differ(lab: str) -> str:
    """Return the message for a page whose JupyterLab has the version `lab` of the workbench, and not the kernel's."""
    return (
        f"JupyterLab has thunder-workbench {lab}, and this kernel has {__version__}: parts of the app may not work. "
        "Install the same version in both environments, start JupyterLab again, and reload the page."
    )


NOT_ATTACHED = "No GPU attached: plan only"
"""Reason why a program on the device ``planned`` cannot run."""


def why_not_run(program: Program) -> str:
    """Return why the program cannot run here, and how to run it on a different machine; empty if it can run here."""
    if program.device != "planned":
        return ""
    name, file = program.spec["name"], choices_file(program)
    if program.spec["kind"] == "pickle":
        how = f"workbench.open(model, *inputs, device='cuda', config={file!r}).run() runs it there"
    else:
        # Leave out the folder, because the file is in a different folder on the other machine.
        given = shlex.quote(Path(name).name if program.spec["kind"] == "file" else name)
        how = f"thunder-workbench run {given} --device cuda --config {shlex.quote(file)} runs it there"
    return f"{NOT_ATTACHED}. Export writes the choices to a file. Take this file to a machine with a GPU: {how}."


def choices_file(program: Program) -> str:
    """Return the default name of the file into which the app exports a program's choices."""
    # A program of several graphs has one file, so take the name from `spec`, which has no name of a part.
    name = re.sub(r'[\x00-\x1f\x7f<>:"|?*\\]', "_", Path(program.spec["name"]).name).strip(". ")
    # A file name has at most 255 bytes.
    return f"{name.encode(errors='replace')[:200].decode(errors='ignore') or 'program'}.choices.py"


def module_file(program: Program, ending: str) -> str:
    """Return the default name of a file for plain PyTorch: its stem is an identifier, so scripts can import it."""
    stem = re.sub(r"\W", "_", f"{choices_file(program).removesuffix('.choices.py')}_{ending}")
    return f"{'_' * stem[0].isdigit()}{stem}.py"


_SHORT_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}
_MOST_INPUTS = 3
_MOST_HELD = 3
_MOST_PLACES = 2
_COUNTS = {"blocks", "channels", "chunks", "experts", "heads", "layers", "parameters", "ranks", "rows", "steps"}
"""Settings that count things. Other names may end with an s, such as ``bias``."""


def size_words(program: Program) -> list[str]:
    """Return the settings of a program in words, such as ``32 layers`` and ``batch 8``."""

    def words(name: str, value: object) -> str:
        shown = name.replace("_", " ")
        if isinstance(value, int) and not isinstance(value, bool) and name in _COUNTS:
            return f"{value} {shown.removesuffix('s') if value == 1 else shown}"
        return f"{shown} {value}"

    return [words(name, value) for name, value in program.settings.items()]


def app_name(program: Program) -> str:
    """Return a name for the app of a program. The name contains sizes, because apps may differ in them."""
    return ", ".join([program.name, *size_words(program)])


def header_words(bench: Workbench) -> list[str]:
    """Describe the sizes, data type, device and machine of a bench, for the header.

    The first text has all of these. The others are shorter forms for narrow windows, the shortest last.
    """
    program, values = bench.program, bench.plan.graph.values
    arguments = np.flatnonzero(values.flags & ValueFlag.ARGUMENT != 0).tolist()
    of_dtype: Counter[str] = Counter()
    inputs = []
    for value in arguments:
        if values.dtype[value] in _SHORT_DTYPES:
            of_dtype[values.dtype[value]] += int(values.bytes[value])
        if not values.flags[value] & ValueFlag.REQUIRES_GRAD and values.shape[value]:
            inputs.append(human_shape(values.shape[value]))
    settings, shapes = size_words(program), _words_of_inputs(program, inputs)
    dtypes = [_SHORT_DTYPES[dtype] for dtype, _ in of_dtype.most_common(1)]
    machine, device = bench.machine.name, program.device.upper()
    place = {"planned": f"planned for {machine}", "cuda": f"GPU, {machine}'s rates"}.get(program.device, device)
    short = {"planned": machine, "cuda": "GPU"}.get(program.device, device)
    leading = (settings or shapes)[:1]
    forms = [
        ([*settings, *shapes, *dtypes], place),
        ([*settings, *dtypes] if settings else [*shapes, *dtypes], place),
        ([*settings[:1], *shapes, *dtypes], place),
        ([*leading, *dtypes], place),
        ([*leading, *dtypes], short),
        (leading, short),
    ]
    return list(dict.fromkeys(" · ".join(filter(None, (", ".join(words), end))) for words, end in forms))


def _words_of_inputs(program: Program, found: Sequence[str]) -> list[str]:
    """Return the shapes of a program's inputs in words; `found` has shapes of arguments of its trace."""
    given = [*program.args, *program.kwargs.values()]
    # Of nested inputs, only the trace has the shapes. Parameters and buffers may follow the first input.
    own = [human_shape(value.shape) for value in given if getattr(value, "shape", ())] or found[:1]
    shown = list(dict.fromkeys(own))
    if not shown:
        return []
    more = ["…"] if len(shown) > _MOST_INPUTS else []
    return [f"{'input' if len(shown) == 1 else 'inputs'} {' and '.join([*shown[:_MOST_INPUTS], *more])}"]


def other_choices_in(path: str, program: Program, fingerprint: str) -> str:
    """Describe another program's choices or saved plan in a file; return an empty text if the file has neither."""
    if for_torch := torch_file.program_in(path):
        same = for_torch == torch_file.docstring_text(program.name)
        return "" if same else f"the choices of {for_torch} for PyTorch"
    is_plan = path.endswith(".json")
    held = "the plan" if is_plan else "the choices"
    try:
        found = read_saved_plan(path).config if is_plan else load(path)
    except ConfigError:
        return "a config that cannot be read" if is_config(Path(path)) else ""
    # The same file may be named by different paths.
    if Path(found.program).name != Path(program.spec["name"]).name:
        return f"{held} of {one_line(found.program)}"
    if found.fingerprint and fingerprint and found.fingerprint != fingerprint:
        return f"{held} of another {one_line(found.program)}, with other statements"
    return ""


def title_of_picture(bench: Workbench) -> str:
    """Return the title of a saved picture: the program, its figures, and the number of choices."""
    plan, count = bench.plan, len(bench.choices)
    figures = f"peak {peak_text(plan)}, saved {human_bytes(plan.saved_bytes)}, predicted"
    chosen = f"{count} choice{'s' * (count != 1)}" if count else "no choices"
    return f"{text_summary(bench).splitlines()[0]}: {figures}; {chosen}"


def limit_bytes_of(text: str) -> int | None:
    """Return the bytes of a limit that the user typed in MiB; None if the text is empty."""
    if not text:
        return None
    try:
        limit = int(float(text) * (1 << 20))
    except (ValueError, OverflowError):
        limit = 0
    if limit < 1:
        raise ChoiceError(f"enter a number of MiB above 0, or nothing for no limit; given {text!r}")
    return limit


def words_of_search(search: Search) -> str:
    """Describe the result of a search in one line."""
    best = search.best
    chosen = ", ".join(f"{id}: {option}" for id, option in search.best.choices.items() if id.startswith("waits."))
    now, then, bound = (human_seconds(s) for s in (search.now.step_s, best.step_s, search.lower_bound_s))
    reached = "the lower bound" if then == bound else f"lower bound {bound}"
    return (
        f"Best of {len(search.tried)} orders, simulated on {search.machine.name}: step {now} → {then}, {reached}; "
        f"at most {human_bytes(best.in_flight_peak_bytes)} in flight. Chosen: {chosen}."
    )


def words_of_change(
    label: str, option: str, chosen: Collection[str], peers: str, diff: PlanDiff, machine: str, why: str = ""
) -> str:
    """Describe the effect of choices at the sites `chosen` in one line.

    If `option` is empty, `label` describes choices of many kinds.
    """
    where = f"{label} in {len(chosen)} {peers}" if len(chosen) > 1 else label
    made = f"{where} set to {option}" if option else f"{label} made"
    stays = f" {why}" if why and not diff.peak_bytes else ""
    return f"{made}: {_changes(chosen, diff, machine)}.{stays}"


def words_of_held(held: Sequence[AliveValue]) -> str:
    """Describe the storages that come to be alive at the peak, for a choice that raises it; empty if there are none."""
    if not held:
        return ""
    named = [f"{one.name} {human_bytes(one.bytes)}{f' ({one.source})' * bool(one.source)}" for one in held[:_MOST_HELD]]
    rest = held[_MOST_HELD:]
    more = f" and {len(rest)} more, {human_bytes(sum(one.bytes for one in rest))}" if rest else ""
    return f"Held at the peak now, and not before: {', '.join(named)}{more}."


def words_of_step(word: str, sites: Sequence[Site], diff: PlanDiff, machine: str) -> str:
    """Describe the effect of an undo or redo in one line."""
    changes = _changes([site.id for site in sites], diff, machine)
    if len(sites) == 1:
        return f"{word}: {short_label(sites[0])} is back at {sites[0].choice}: {changes}."
    return f"{word} {len(sites)} choices: {changes}."


def _changes(chosen: Collection[str], diff: PlanDiff, machine: str) -> str:
    named: Sequence[tuple[str, int, Callable[[int], str]]] = (
        ("predicted peak", diff.peak_bytes, human_bytes),
        ("saved", diff.saved_bytes, human_bytes),
        ("operations", diff.flops, human_count),
        ("fusions", diff.fusions, str),
        ("unique fusions", diff.unique_fusions, str),
        ("operations in the largest fusion", diff.largest_fusion, str),
    )
    changes = [f"{name} {'+' if by > 0 else '−'}{write(abs(by))}" for name, by, write in named if by]
    changes += [f"{count_name(name)} {human_change(name, by)}" for name, by in diff.counts.items()]
    if diff.overlap is not None:
        moved = {"step": diff.overlap.step_s, "exposed communication": diff.overlap.exposed_communication_s}
        simulated = [
            f"{name} {'+' if by > 0 else '−'}{human_seconds(abs(by))}" for name, by in moved.items() if round(by, 9)
        ]
        if simulated:
            changes.append(f"simulated on {machine} {' and '.join(simulated)}")
    others = [id for id in diff.changed if id not in chosen]
    if others:
        changes.append(f"{len(others)} other site{'s' * (len(others) != 1)} changed too ({_places(others)})")
    return ", ".join(changes) if changes else "no figure changes"


def _places(ids: Sequence[str]) -> str:
    """Name the sites, the most frequent places first. Sites at the same place of several layers are named once."""
    counts = Counter((counterpart_key(id) or id).partition(":")[2] or id for id in ids).most_common()
    named = [f"{place} × {count}" if count > 1 else place for place, count in counts[:_MOST_PLACES]]
    return ", ".join([*named, *(["…"] if len(counts) > _MOST_PLACES else [])])
