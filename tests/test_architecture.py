"""A package imports only from packages below it, and no module imports itself through others."""

import ast
import functools
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import workbench

ROOT = Path(workbench.__file__).parent

ORDER = [
    "errors",
    "util",
    "interop",
    "core",
    "analysis/cost",
    "analysis/equivalence",
    "analysis/memory",
    "analysis/graphs",
    "analysis/fit",
    "analysis/order",
    "programs",
    "programs/builtin",
    "compiler/interop",
    "compiler/trace",
    "compiler/fastpath",
    "compiler/layers",
    "compiler/memory",
    "compiler/lowering",
    "compiler/fusion",
    "compiler/frontend",
    "compiler/pipeline",
    "compiler/planner",
    "compiler/driver",
    "compiler",
    "executors",
    "levers",
    "runs/log",
    "runs/process",
    "runs/measure",
    "runs/worker",
    "runs/sweep",
    "summary",
    "bench/report",
    "bench/session",
    "bench/fit",
    "bench",
    "doctor",
    "gpu_check",
    "ui/widgets",
    "ui/graph",
    "ui/controls",
    "ui/tabs",
    "ui/app",
    "ui/html_pages",
    "lessons",
    "server",
    "cli",
]
"""Packages from the lowest up. docs/architecture.md describes each."""

DEFERRED: dict[str, tuple[tuple[str, str], ...]] = {
    "a bench shows itself, and writes pages": (
        ("workbench.bench.report.comparison", "workbench.ui.tabs.compared_page"),
        ("workbench.bench.report.html_report", "workbench.ui.html_pages.report_page"),
        ("workbench.bench.report.open_saved_plan", "workbench.ui.html_pages.report_page"),
        ("workbench.bench.report.saved_plan", "workbench.ui.html_pages.saved_view"),
        ("workbench.bench.session.multi_graph", "workbench.ui.app.parts_selector"),
        ("workbench.bench.session.workbench", "workbench.ui.app.app"),
        ("workbench.bench.session.workbench", "workbench.ui.html_pages.notebook_picture"),
    ),
    "solvers are imported when a method of the bench first needs them": (
        ("workbench.bench.session.workbench", "workbench.bench.fit.choice_ranking"),
        ("workbench.bench.session.workbench", "workbench.bench.fit.cut_search"),
        ("workbench.bench.session.workbench", "workbench.bench.fit.cut_search_task"),
        ("workbench.bench.session.workbench", "workbench.bench.fit.fit_with_cuts"),
        ("workbench.bench.session.workbench", "workbench.bench.fit.pareto_curve"),
    ),
    "a plan prints itself in the words of the summary, which has those of runs, too": (
        ("workbench.compiler.planner.plan", "workbench.summary"),
    ),
    "a config replays itself": (("workbench.core.config", "workbench.compiler.api"),),
    "a record is read without PyTorch, but for the table of tensors": (
        ("workbench.runs.process.record", "workbench.runs.measure.accuracy"),
    ),
}
"""Imports inside functions that violate the order. Each reason has pairs of the importing and the imported module."""


def package_of(path: Path) -> str:
    """Return the package of a file, as in `ORDER`. A file directly in `workbench` counts as a package."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:-1]) if len(parts) > 1 else parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield each import of a file, and whether it is inside a function. Imports for type checkers do not count."""

    def inside(node: ast.AST, deferred: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.Import):
                yield from ((alias.name, deferred) for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                yield from ((f"{child.module}.{alias.name}", deferred) for alias in child.names)
            yield from inside(child, deferred or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    yield from inside(ast.parse(path.read_text()), deferred=False)


MODULES = {module_of(path): path for path in sorted(ROOT.rglob("*.py"))}


@functools.cache
def own_imports(name: str) -> tuple[tuple[str, bool], ...]:
    """Return the workbench modules that a module imports, and whether each import is inside a function."""
    found = []
    for imported, deferred in imports(MODULES[name]):
        module = imported if imported in MODULES else imported.rpartition(".")[0]
        if module in MODULES and module not in ("workbench", name):
            found.append((module, deferred))
    return tuple(found)


def rank(name: str) -> int:
    return ORDER.index(package_of(MODULES[name]))


def test_every_package_is_in_the_order() -> None:
    assert {package_of(path) for name, path in MODULES.items() if path.name != "__init__.py"} == set(ORDER)


@pytest.mark.parametrize("name", [name for name, path in MODULES.items() if path.name != "__init__.py"])
def test_a_module_imports_only_from_packages_below(name: str) -> None:
    above = {module for module, deferred in own_imports(name) if not deferred and rank(module) > rank(name)}
    assert not above


def test_imports_against_the_order_are_listed_with_a_reason() -> None:
    found = {
        (name, module)
        for name, path in MODULES.items()
        for module, deferred in own_imports(name)
        if deferred and path.name != "__init__.py" and rank(module) > rank(name)
    }
    assert found == {pair for pairs in DEFERRED.values() for pair in pairs}


def test_no_module_imports_itself_through_others() -> None:
    graph = {name: {module for module, deferred in own_imports(name) if not deferred} for name in MODULES}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(MODULES)


def test_no_folder_has_more_than_twenty_modules() -> None:
    assert not [folder for folder in ROOT.rglob("*") if len(list(folder.glob("*.py"))) > 20]


def test_only_the_ui_imports_widgets() -> None:
    for name, path in MODULES.items():
        packages = {module.partition(".")[0] for module, _ in imports(path)}
        assert packages.isdisjoint({"ipywidgets", "anywidget", "bokeh"}) or name.startswith("workbench.ui"), name


@pytest.mark.parametrize("path", sorted((ROOT / "compiler").rglob("*.py")), ids=lambda path: path.name)
def test_the_compiler_names_no_lever_and_no_executor(path: Path) -> None:
    assert "workbench.levers" not in path.read_text()
    assert "workbench.executors" not in path.read_text()


def test_only_thread_patches_replace_functions_of_other_packages() -> None:
    assert not [name for name, path in MODULES.items() if any(n.startswith("unittest") for n, _ in imports(path))]
    makers = {path.name for path in MODULES.values() if "= ThreadPatches(" in path.read_text()}
    patches = {"dynamo_patches.py", "fake_gpu.py", "inductor_patches.py"}
    assert makers == patches | {"copy_sets.py", "install.py", "patch_context.py", "without_value_checks.py"}
