"""Write choices as a Python file for plain PyTorch: literals, and the code that applies them."""

from __future__ import annotations

import ast
import inspect
import keyword
import os
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from workbench.bench.report.saved_plan import write_document
from workbench.core.config import BEGIN_FOR_TORCH, comment_of, site_order
from workbench.errors import ConfigError, PlanError, one_line, short_repr
from workbench.interop.private_api import TORCH_VERSIONS
from workbench.summary import AT_LEAST

if TYPE_CHECKING:
    from workbench.bench.fit.torch_fit import TorchFit
    from workbench.bench.session.workbench import Workbench
    from workbench.compiler.api import TorchChoices

TARGETS = ("thunder", "torch", "torch_eager")
"""Compilers for which a file can be exported: Thunder, ``torch.compile``, or none."""

HELPER = "# The code that applies the choices begins here."
_ON = " on "
_OLDEST = (2, 10)
"""First version of PyTorch that the files support."""
_LONGEST_LINE = 10_000
"""Number of characters of a file's first line that are read."""
_USES = {
    "torch": "fast = {choices}.compile({model})  # torch.compile with these choices",
    "torch_eager": "{choices}.checkpoint({model})  # its backward recomputes the chosen tensors",
}


def check_target(target: str) -> None:
    """Refuse a target that does not exist."""
    if target not in TARGETS:
        raise ConfigError(f"there is no target {short_repr(target)}; legal: {', '.join(TARGETS)}")


def write(
    bench: Workbench, path: str | os.PathLike[str], target: str, *, overwrite: bool, fit: TorchFit | None = None
) -> Path:
    """Write the choices of a bench for a target other than ``thunder``; see `Workbench.export`.

    With `fit`, write the choices of the fit.
    """
    name = Path(path).name

    def text() -> str:
        return bench.export_text(name, target=target) if fit is None else fit_text(bench, fit, name)

    return write_document(
        path,
        text,
        begin=BEGIN_FOR_TORCH.encode(),
        kind="file of choices for PyTorch",
        overwrite=overwrite,
    )


def program_in(path: str | os.PathLike[str]) -> str:
    """Return the name of the program whose choices for PyTorch a file holds; empty if the file holds none."""
    try:
        with Path(path).open(errors="replace") as file:
            first = file.readline(_LONGEST_LINE)
    except OSError:
        return ""
    return first.removeprefix(BEGIN_FOR_TORCH).rpartition(_ON)[0] if first.startswith(BEGIN_FOR_TORCH) else ""


def can_import(path: str | os.PathLike[str]) -> bool:
    """Return whether Python can import a file with this name."""
    stem = Path(path).stem
    return stem.isidentifier() and not keyword.iskeyword(stem)


def fit_text(bench: Workbench, fit: TorchFit, name: str) -> str:
    """Return the text of the file for a fit."""
    from workbench.compiler.api import TorchChoices

    sites = dict.fromkeys(fit.choices, "") | dict(fit.sites)
    found = TorchChoices(dict(fit.choices), sites, dict(fit._left_out))
    bound = AT_LEAST * fit.peak_at_least
    predicted = [
        "",
        f"Fitted to a peak of {fit.limit_bytes:,} bytes. Predicted: torch.compile has a peak of",
        f"{bound}{fit.peak_bytes:,} bytes with these choices, {bound}{fit.before_peak_bytes:,} bytes before the fit.",
        f"The forward saves {fit.saved_bytes:,} bytes with these choices, {fit.before_saved_bytes:,} bytes before.",
        *map(docstring_text, fit.unapplied),
    ]
    return file_text(bench, found, "torch", name, predicted, fit._made, fit.budget)


def file_text(
    bench: Workbench,
    found: TorchChoices,
    target: str,
    name: str,
    predicted: Sequence[str] | None = None,
    made: Mapping[str, str] | None = None,
    budget: float | None = None,
) -> str:
    """Return the text of the file.

    `predicted` has the lines about predicted figures, if the caller has them already. `made` has the choices from which
    `found` was made; by default, these are the bench's present choices. `budget` is PyTorch's budget for all other
    tensors.
    """
    from workbench.plain_torch import compiled, eager, operators

    # The file's function `checkpoint` changes a module, and refuses a function.
    if target == "torch_eager" and bench.program.training is None:
        raise PlanError(
            f"this target changes a torch.nn.Module, but {bench.program.name} is a function: open the module itself, "
            "wb.open(model, ...), or export for torch.compile"
        )
    module = compiled if target == "torch" else eager
    imports, code = _joined(operators, module)
    notes, stem = bench.notes(), Path(name).stem
    lines = [
        f"{BEGIN_FOR_TORCH}{docstring_text(bench.program.name)}{_ON}{bench.program.device}, "
        "made with Thunder Workbench.",
        "",
        *(
            []
            if can_import(name)
            else [f"Rename this file first: Python cannot import the name {Path(name).stem}.", ""]
        ),
        f"    import {stem}",
        "",
        f"    {_USES[target].format(choices=stem, model=bench.program.name_in_script)}",
        "",
        *textwrap.wrap(
            f"This file needs nothing but PyTorch {TORCH_VERSIONS}. A choice names an operator by the path of its "
            "module, by its name, and by the number of operators of this name before it in this module. The "
            "operator's output is saved for the backward, recomputed by the backward, or offloaded: saved in the "
            "host's memory. PyTorch decides about all other tensors.",
            110,
        ),
        *(predicted or (_predicted_lines(bench) if target == "torch" else [])),
        *_left_out_lines(found.left_out, bench.choices if made is None else made),
        '"""',
        "",
        *_checked(imports),
        "",
        "CHOICES = {" + ("}" if not found.choices else ""),
    ]
    # A fit also has choices without a site; its choices are in the order of the program.
    sites = found.sites if predicted else dict(sorted(found.sites.items(), key=lambda item: site_order(item[1])))
    for key, site in sites.items():
        if note := comment_of(notes.get(site, ""), ""):
            lines.append(f"    # {note}")
        lines.append(f"    {_literal(key)}: {_literal(found.choices[key])},")
    lines += ["}"] if found.choices else []
    if target == "torch":
        why = "PyTorch's setting" if budget is None else "PyTorch's activation_memory_budget"
        lines += ["", f"# For tensors without a choice: {why}.", f"BUDGET = {budget}"]
    return "\n".join([*lines, "", HELPER, *code]) + "\n"


def _checked(imports: Sequence[str]) -> list[str]:
    """Return imports that say which PyTorch the file needs, if the installed one is too old or lacks a name."""
    needs = f"this file needs PyTorch {TORCH_VERSIONS}, but PyTorch {{torch.__version__}} is installed"
    return [
        "import torch",
        "",
        f'if tuple(map(int, torch.__version__.split(".")[:2])) < {_OLDEST}:',
        f'    raise ImportError(f"{needs}")',
        "try:",
        *(f"    {line}" for line in imports if line != "import torch"),
        "except ImportError as error:",
        f'    raise ImportError(f"{needs}: {{error}}") from error',
    ]


def _predicted_lines(bench: Workbench) -> list[str]:
    try:
        with_choices, without = bench.torch_prediction(), bench.torch_prediction(stock=True)
    except PlanError as error:
        return ["", f"The memory of torch.compile is not predicted: {docstring_text(str(error))}"]
    bound = AT_LEAST * (with_choices.peak_at_least or without.peak_at_least)
    return [
        "",
        "Predicted for a step on the CPU that computes its loss in the program: torch.compile has a peak of",
        f"{bound}{with_choices.peak_bytes:,} bytes with these choices, {bound}{without.peak_bytes:,} bytes without.",
        "The forward saves",
        f"{with_choices.saved_bytes:,} bytes with these choices, {without.saved_bytes:,} bytes without.",
        *(docstring_text(told) for told in with_choices.unapplied),
    ]


def _left_out_lines(left_out: Mapping[str, str], choices: Mapping[str, str]) -> list[str]:
    if not left_out:
        return []
    lines = ["", "PyTorch cannot follow these choices, so they are left out:", ""]
    for id, reason in left_out.items():
        text = docstring_text(f"{id}={choices[id]}: {reason}")
        lines += textwrap.wrap(text, 108, initial_indent="- ", subsequent_indent="  ", break_long_words=False)
    return lines


def _joined(*modules: ModuleType) -> tuple[list[str], list[str]]:
    """Join modules: their imports from other packages, and their code without docstrings and imports."""
    plain: set[str] = set()
    names: defaultdict[str, set[str]] = defaultdict(set)
    code: list[str] = []
    for module in modules:
        text = inspect.getsource(module)
        lines, end = text.splitlines(), 0
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.Import):
                plain |= {alias.name for alias in statement.names}
            elif isinstance(statement, ast.ImportFrom) and not (statement.module or "").startswith("workbench"):
                names[statement.module or ""] |= {alias.name for alias in statement.names}
            elif isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) in ("CHOICES", "BUDGET"):
                pass
            elif not isinstance(statement, ast.ImportFrom | ast.Expr):
                continue
            # Blank the statement's lines, so that the rest of the code keeps its comments.
            end = statement.end_lineno or 0
            lines[statement.lineno - 1 : end] = [""] * (end - statement.lineno + 1)
        code += ["", "", *"\n".join(lines).strip("\n").split("\n")]
    from_lines = [f"from {package} import {', '.join(sorted(names[package]))}" for package in sorted(names)]
    return [*(f"import {name}" for name in sorted(plain)), *from_lines], _without_long_gaps(code)


def _without_long_gaps(lines: list[str]) -> list[str]:
    """Return lines with at most one empty line in a row, and none at the beginning."""
    return [line for before, line in zip(["", *lines], lines, strict=False) if line or before]


def _literal(value: object) -> str:
    text = repr(value)
    return text if '"' in text else text.replace("'", '"')


def docstring_text(text: str) -> str:
    """Return a text as it stands in the docstring of a file: one line, without quotes and backslashes."""
    return one_line(text).replace("\\", "/").replace('"', "'")
