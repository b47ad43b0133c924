"""Format figures, plans, benches, runs and tables as text or plain HTML, without widgets."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.bench.report.open_saved_plan import SavedPlan
    from workbench.compiler.planner.plan import Plan
    from workbench.runs.log.events import PartTimes
    from workbench.runs.process.follow_run import Run

PHASES = {
    "build": "Building the program",
    "compile": "Compiling",
    "warmup": "Warming up",
    "memory": "Measuring memory",
    "time": "Timing steps",
    "clocks": "Timing statements",
    "accuracy": "Checking the results",
}
"""Names of a worker's phases for users; see `workbench.runs.log.events.Phase`."""

ESTIMATED = "≈\u00a0"
"""Sign before an estimated figure. No line break separates it from the figure."""
AT_LEAST = "at least "
"""Words before a predicted peak that is a lower bound, because a CPU kernel of the plan could not be measured."""
NO_BACKWARD = "no input or parameter requires a gradient, so there is no backward"

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def human_bytes(size: float, *, signed: bool = False) -> str:
    """Format a number of bytes with a binary unit, up to three digits, and the Unicode minus sign.

    Examples
    --------
    >>> human_bytes(1536)
    '1.50 KiB'
    >>> human_bytes(-3 * 1024**2, signed=True)
    '−3.00 MiB'
    """
    value, unit = abs(size), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    digits = 0 if unit == 0 or value >= 100 else 1 if value >= 10 else 2
    sign = "−" if size < 0 else "+" if signed and size > 0 else ""
    return f"{sign}{value:.{digits}f} {_UNITS[unit]}"


def peak_text(plan: Plan | SavedPlan) -> str:
    """Format the predicted peak memory of a plan, and say whether it is a lower bound."""
    return f"{AT_LEAST * plan.peak_at_least}{human_bytes(plan.peak_bytes)}"


def human_shape(shape: Sequence[int]) -> str:
    """Format a shape, such as ``2×128×256``. A shape without dimensions is ``scalar``."""
    return "×".join(map(str, shape)) if shape else "scalar"


def human_seconds(seconds: float) -> str:
    """Format a duration with a suitable unit.

    Examples
    --------
    >>> human_seconds(0.0123)
    '12.3 ms'
    >>> human_seconds(-2.5e-10)
    '−250 ps'
    """
    if seconds < 0:
        return f"−{human_seconds(-seconds)}"
    if 0 < seconds < 0.9995e-6:
        size, unit = (1e9, "ns") if seconds >= 0.9995e-9 else (1e12, "ps")
        return f"{size * seconds:.3g} {unit}"
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} µs"
    if seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.2f} s"


def human_share(share: float) -> str:
    """Format a relative error as a percentage with its sign.

    Examples
    --------
    >>> human_share(-0.439)
    '−43.9 %'
    """
    return f"{'−' if round(share, 3) < 0 else '+'}{100 * abs(share):.1f} %"


def human_count(count: int) -> str:
    """Format a large number, such as a number of operations, with an SI prefix.

    Examples
    --------
    >>> human_count(12_300_000)
    '12.3 M'
    """
    value, unit = float(count), ""
    for unit in ("", " k", " M", " G", " T", " P"):
        if abs(value) < 999.5 or unit == " P":
            break
        value /= 1000
    return f"{value:.3g}{unit}"


def count_name(name: str) -> str:
    """Return the name that users see for a count in `Plan.counts`. The name does not contain the unit of the value."""
    return "time to offload" if name == "offload_us" else name.removesuffix("_bytes").replace("_", " ")


def human_change(name: str, change: int) -> str:
    """Format the change of the count `name` in `Plan.counts`, with a sign. The suffix of `name` determines the unit.

    Examples
    --------
    >>> human_change("sets", -8), human_change("offloaded_bytes", 32768)
    ('−8', '+32.0 KiB')
    """
    sign = "+" if change > 0 else "−"
    if name.endswith("_bytes"):
        return human_bytes(change, signed=True)
    return f"{sign}{human_seconds(1e-6 * abs(change))}" if name.endswith("_us") else f"{sign}{abs(change)}"


def text_summary(bench: Workbench) -> str:
    """Return a few lines of text about a bench: program, predictions, choices, and the latest run."""
    plan, program = bench.plan, bench.program
    settings = ", ".join(f"{name}={value}" for name, value in program.settings.items())
    known = plan.site_of
    chosen = [f"{id}: {option}" for id, option in bench.choices.items() if id in known]
    rows = _rows_of_plan(plan, bench.stock_plan, chosen, f"by {bench.capture}: {bench.capture_reason}")
    if bench.runs:
        from workbench.runs.process.run_store import choices_of

        latest = bench.runs[-1]
        by_torch = latest.request.torch is not None
        other = "" if choices_of(latest) == bench.choices else ", under other choices"
        rows.append(("latest run", run_line(latest) + (", by plain torch.compile" if by_torch else other)))
    head = f"{program.name}{f'({settings})' if settings else ''} on {program.device}, {bench.executor} executor"
    return _indent_rows(head, rows)


def plan_text(plan: Plan) -> str:
    """Return a few lines of text about a plan: program, predictions and choices."""
    chosen = [f"{site.id}: {site.choice}" for site in plan.sites if site.choice != site.default]
    head = f"plan of {plan.program} on {plan.device}, {plan.executor} executor"
    return _indent_rows(head, _rows_of_plan(plan, plan, chosen, f"by {plan.capture}: {plan.capture_reason}"))


def _indent_rows(head: str, rows: Sequence[tuple[str, str]]) -> str:
    wide = max(len(name) for name, _ in rows)
    return "\n".join([head, *(f"  {name:<{wide}}  {text}" for name, text in rows)])


def _saved_text(plan: Plan, stock: Plan) -> str:
    if not plan.graph.has_backward:
        return f"nothing: {NO_BACKWARD}"
    return f"{with_stock_difference(plan.saved_bytes, stock.saved_bytes)} in {plan.saved_tensors} tensors, predicted"


def _rows_of_plan(plan: Plan, stock: Plan, chosen: Sequence[str], capture: str) -> list[tuple[str, str]]:
    bound = AT_LEAST * plan.peak_at_least
    rows = [
        ("statements", f"{plan.statements}"),
        ("peak memory", f"{bound}{with_stock_difference(plan.peak_bytes, stock.peak_bytes)}, predicted"),
        *_reserved_rows(plan),
        ("saved", _saved_text(plan, stock)),
    ]
    rows.append(("capture", capture))
    if plan.census.count:
        largest = f"the largest of {plan.census.largest} ops"
        rows.append(("fusions", f"{plan.census.unique} unique of {plan.census.count}, {largest}, predicted"))
    if counted := [
        f"{by} {name}" for name in ("compilations", "copies", "sets", "fences", "buckets") if (by := plan.counts[name])
    ]:
        rows.append(("counts", f"{', '.join(counted)}, predicted"))
    # Do not count settings, because a setting is not a place in the program.
    counts = Counter(site.lever for site in plan.sites if not site.id.startswith(f"{site.lever}."))
    rows.append(("sites", ", ".join(f"{lever}: {count}" for lever, count in sorted(counts.items())) or "none"))
    rows.append(("choices", chosen_text(chosen)))
    rows.append(("proof", proof_text(plan.proof.proven, plan.proof.rules, plan.proof.fault)))
    for correction in plan.corrections:
        rows.extend(_wrapped("correction", correction.reason))
        rows.extend(("", line) for line in correction.lines[:_MOST_LINES])
        if (more := len(correction.lines) - _MOST_LINES) > 0:
            rows.append(("", f"{more} more lines"))
    for warning in plan.warnings:
        rows.extend(_wrapped("warning", warning))
    return rows


def _wrapped(name: str, text: str) -> list[tuple[str, str]]:
    """Return rows with a long text, which a notebook would cut at the end of the line. Paths are not broken."""
    lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [(name if not at else "", line) for at, line in enumerate(lines)]


def _reserved_rows(plan: Plan) -> list[tuple[str, str]]:
    if plan.reserved is None:
        return []
    return [("reserved", reserved_text(plan.reserved.reserved_bytes, plan.reserved.fragmented_bytes) + ", predicted")]


def reserved_text(reserved_bytes: int, fragmented_bytes: int) -> str:
    """Describe how many bytes PyTorch's allocator reserves, and how many of them no tensor uses at the peak."""
    return f"{human_bytes(reserved_bytes)} by the allocator, {human_bytes(fragmented_bytes)} unused at the peak"


def text_table(rows: Sequence[tuple[str, str]]) -> str:
    """Format rows of two columns as aligned text."""
    wide = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:<{wide}}  {text}" for name, text in rows)


def html_table(heads: tuple[str, str], rows: Sequence[tuple[str, str]]) -> str:
    """Format rows of two columns as an HTML table with headings."""
    return html_columns(heads, rows)


def text_columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format rows of any number of columns as aligned text with headings. Columns without text are left out.

    Examples
    --------
    >>> print(text_columns(("site", "size", "refused"), [("saved:mlp/silu", "16 KiB", "")]))
    site            size
    saved:mlp/silu  16 KiB
    """
    used = [at for at in range(len(heads)) if any(row[at] for row in rows)]
    wide = [max(len(row[at]) for row in [heads, *rows]) for at in used]
    lines = ["  ".join(f"{row[at]:<{width}}" for at, width in zip(used, wide, strict=True)) for row in [heads, *rows]]
    return "\n".join(line.rstrip() for line in lines)


def html_columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format rows of any number of columns as an HTML table with headings."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def place_text(source: str, calls: int) -> str:
    """Return the beginning of a line about a part of a program: its place in the source, and its number of calls.

    The number is the number of calls in a step. It is left out if it is 1. With 0 calls, the part runs in the first
    step alone. The file is shown without its folder.

    Examples
    --------
    >>> place_text("/home/me/model.py:7-9", 3)
    'model.py:7-9: runs 3 times, '
    """
    lines = f"{source.rpartition('/')[2]}: " if source else ""
    return f"{lines}{'' if calls == 1 else f'runs {calls} times, ' if calls else 'runs in the first step alone, '}"


_MOST_LINES = 8
"""Largest number of lines of the program that are printed for a correction."""
_WIDTH = 100
"""Largest number of characters of a row's text. With more characters, the line would break in a notebook that is 1440
pixels wide.
"""


def chosen_text(chosen: Sequence[str]) -> str:
    """Return the first choices as one line, and the number of the remaining choices; ``none`` if there are no choices.

    The line has at most four choices. It has at least one, even if this choice is too long for the line.
    """
    ends = accumulate(len(each) + len("; ") for each in chosen[:4])
    fit = max(1, sum(end <= _WIDTH for end in ends))
    return "; ".join(chosen[:fit]) + (f"; {len(chosen) - fit} more" if len(chosen) > fit else "") or "none"


def proof_text(proven: bool, rules: Sequence[str], fault: str = "") -> str:
    """Return a sentence on whether, and by which rules, a plan is proven equal to the stock plan.

    Examples
    --------
    >>> proof_text(False, ())
    'not proven yet'
    >>> proof_text(True, ("bucket",))
    'proven equal to the stock plan, by the rule: bucket'
    """
    if fault:
        return f"not proven: the plan equals the stock plan, which differs from Thunder's trace: {fault}"
    if not proven:
        return "not proven yet"
    by = f", by the rule{'s' if len(rules) > 1 else ''}: {', '.join(rules)}" if rules else ""
    return f"proven equal to the stock plan{by}"


def with_stock_difference(nbytes: int, stock_bytes: int) -> str:
    """Format a number of bytes, followed by the difference from `stock_bytes` if it is not zero."""
    change = f" ({human_bytes(nbytes - stock_bytes, signed=True)})" if nbytes != stock_bytes else ""
    return f"{human_bytes(nbytes)}{change}"


def coverage_words(coverage: Mapping[str, float | None] | None) -> str:
    """Return which shares of a step and of its measured peak the plans of a program's parts cover, in words.

    Empty if the shares were not measured.
    """
    if not coverage:
        return ""
    peak = coverage["peak"]
    predicted = f"; the predicted peak is {100 * peak:.0f} % of the measured peak" if peak is not None else ""
    return f"{100 * (coverage['step'] or 0):.0f} % of the step is in planned parts (measured){predicted}"


def part_time_words(times: PartTimes | None, name: str) -> str:
    """Return how long a part takes in a step, in words; empty if it was not measured."""
    if times is None or name not in times.names or times.step_s <= 0:
        return ""
    at = times.names.index(name)
    forward_s, backward_s = times.forward_s[at], times.backward_s[at]
    share = f"{100 * (forward_s + backward_s) / times.step_s:.0f} %"
    backward = f" and backward {human_seconds(backward_s)}" if backward_s else ""
    return f"forward {human_seconds(forward_s)}{backward}: {share} of a step, measured"


def run_line(run: Run) -> str:
    """Return one line about a run: its state and its measured figures."""
    parts: list[str] = [run.state]
    if run.compile_s is not None:
        parts.append(f"compiled in {human_seconds(run.compile_s)}")
    if run.step_s is not None:
        parts.append(f"step {human_seconds(run.step_s)}" + (f" ({run.beside_load})" if run.beside_load else ""))
    if (peak := run.memory["measured_peak_bytes"]) is not None:
        parts.append(f"peak {human_bytes(peak)}")
    if run.accuracy is not None:
        parts.append("accurate" if run.accuracy.ok else f"inaccurate: {run.error}")
    return ", ".join(parts) + (", measured" if len(parts) > 1 else "")
