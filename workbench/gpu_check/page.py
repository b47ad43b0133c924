"""The results of a check as a Markdown page. In each part, errors come before the figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from workbench.gpu_check.log import is_right
from workbench.gpu_check.parts.check_part import WRONG
from workbench.gpu_check.parts.part_list import QUESTIONS, SLOT
from workbench.summary import human_bytes, human_seconds

COMMAND = "thunder-workbench gpu-check"
_MOST_CELL = 160
_RATE = "_per_s"


def results_page(results: Sequence[Mapping[str, Any]]) -> str:
    """Return all results as Markdown, each under the name of its machine.

    Parameters
    ----------
    results : sequence of mapping
        Results that `workbench.gpu_check.suite.run_check` returned.
    """
    lines: list[str] = []
    for result in results:
        kind = "rehearsal, no GPU" if result["rehearsal"] else "GPU"
        lines += [f"## {result['machine']} ({kind}), {result['date']}", ""]
        versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
        lines += [f"`{command_of(result)}`, executor {result['executor']}; {versions}.", ""]
        lines += [*_overview(result), ""]
        if "spent" in result:
            lines += [spent_text(result), ""]
        for outcome in result["parts"].values():
            if outcome["steps"]:
                lines += [*_part(outcome), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def count_by_question(result: Mapping[str, Any]) -> Iterator[tuple[str, int, int, int]]:
    """Yield each question of a slot with three counts of its steps: answered, wrong, and left."""
    outcome = result["parts"][SLOT.name]
    for number, question in QUESTIONS.items():
        lines = [line for line in outcome["steps"] if line["step"].startswith(f"{number}: ")]
        left = sum(step.startswith(f"{number}: ") for step in outcome["left"])
        yield f"{number}. {question}", len(lines), sum(not is_right(line) for line in lines), left


def spent_text(result: Mapping[str, Any]) -> str:
    """Return a sentence that says where the time of a check went."""
    parts = ", ".join(f"{kind} {human_seconds(seconds)}" for kind, seconds in result["spent"].items())
    return f"Where the time went: {human_seconds(result['prepared_s'])} before the first process; steps: {parts}."


def command_of(result: Mapping[str, Any]) -> str:
    """Return the command that made a result."""
    return COMMAND + " --slot MINUTES" * (SLOT.name in result["parts"]) + " --rehearse" * bool(result["rehearsal"])


def _overview(result: Mapping[str, Any]) -> Iterable[str]:
    if SLOT.name in result["parts"]:
        yield from questions_table(result)
        return
    yield "| part | state | took | steps | not right |"
    yield "|---|---|---|---|---|"
    for outcome in result["parts"].values():
        wrong = sum(not is_right(line) for line in outcome["steps"])
        seconds = human_seconds(outcome["seconds"]) if outcome["steps"] else ""
        yield f"| {outcome['title']} | {outcome['state']} | {seconds} | {len(outcome['steps'])} | {wrong} |"


def questions_table(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table with a row for each question of a slot."""
    yield "| question | steps answered | not right | left |"
    yield "|---|---|---|---|"
    for question, *counts in count_by_question(result):
        yield f"| {question} | " + " | ".join(map(str, counts)) + " |"


def _part(outcome: Mapping[str, Any]) -> Iterable[str]:
    yield f"### {outcome['title']}"
    yield ""
    yield outcome["does"]
    if not all(map(is_right, outcome["steps"])):
        yield ""
    for line in outcome["steps"]:
        if not is_right(line):
            yield f"- **{line['step']}**: {line['error'] or line['figures'][WRONG]}"
    plain = [line for line in outcome["steps"] if not line["error"]]
    for columns, group in _tables(plain):
        yield ""
        yield "| step | " + " | ".join(_heading(name) for name in columns) + " |"
        yield "|---" * (len(columns) + 1) + "|"
        for line in group:
            cells = (_cell(name, line["figures"].get(name)) for name in columns)
            yield f"| {line['step']} | " + " | ".join(cells) + " |"


def _tables(lines: Sequence[Mapping[str, Any]]) -> Iterable[tuple[list[str], list[Mapping[str, Any]]]]:
    """Yield tables, each with its columns and lines. Consecutive steps with the same names of figures share a table."""
    group: list[Mapping[str, Any]] = []
    columns: list[str] = []
    for line in lines:
        mine = [name for name in line["figures"] if name != WRONG]
        if group and mine != columns:
            yield columns, group
            group = []
        columns = mine
        group.append(line)
    if group and columns:
        yield columns, group


def _heading(name: str) -> str:
    if not name.endswith(_RATE):
        for unit in ("_bytes", "_s", "_share"):
            name = name.removesuffix(unit)
    return name.replace("_", " ")


def _cell(name: str, value: Any) -> str:
    text = _text(name, value)
    text = text if len(text) <= _MOST_CELL else text[: _MOST_CELL - 1] + "…"
    return text.replace("|", "\\|").replace("\n", " ")


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.endswith("_bytes"):
            return human_bytes(value)
        if name.endswith(_RATE):
            return f"{value:.3g}"
        if name.endswith("_s"):
            return human_seconds(value)
        if name.endswith("_share"):
            return f"{value:+.2%}" if name.startswith("off") else f"{value:.2%}"
        return f"{value:.4g}" if isinstance(value, float) else str(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(name, each)}" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(_text(name, each) for each in value)
    return str(value)
