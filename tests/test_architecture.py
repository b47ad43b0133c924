"""Outside of functions, a package imports only from packages below it in `ORDER`, and imports have no cycles."""

import ast
import functools
import graphlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import workbench
from workbench.core.executor import executor_names
from workbench.core.lever import all_levers

ROOT = Path(workbench.__file__).parent

ORDER = [
    "version",
    "errors",
    "util",
    "interop",
    "core",
    "plain_torch",
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
    "levers/waits",
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
    "gpu_check/parts",
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
    "__main__",
]
"""Packages and single modules, sorted from the lowest. docs/architecture.md describes the packages."""

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
        ("workbench.bench.session.workbench", "workbench.bench.fit.torch_fit"),
    ),
    "a plan and a search print themselves with functions of the summary, which also has the texts of runs": (
        ("workbench.compiler.planner.plan", "workbench.summary"),
        ("workbench.levers.waits.order_search", "workbench.summary"),
    ),
    "`python -m workbench.doctor` prints what the command line prints": (("workbench.doctor", "workbench.cli"),),
    "a config replays itself": (("workbench.core.config", "workbench.compiler.api"),),
    "a record is read without PyTorch, except for the accuracy of its tensors": (
        ("workbench.runs.process.record", "workbench.runs.measure.accuracy"),
    ),
}
"""Imports inside functions that violate the order: for each reason, pairs of importing and imported module."""

NAMED: dict[str, dict[str, str]] = {
    "a fit chooses what to save, where to cut and how to order": {
        "workbench.bench.fit.choice_ranking": "saved",
        "workbench.bench.fit.cut_search": "remat sharing saved",
        "workbench.bench.fit.fitter": "order waits",
        "workbench.bench.fit.infeasible": "remat sharing",
        "workbench.bench.fit.make_chooser": "saved",
        "workbench.bench.fit.order_presets": "order sharing waits",
        "workbench.bench.session.fit_request": "order waits",
        "workbench.bench.session.workbench": "waits",
        "workbench.ui.controls.messages": "saved waits",
        "workbench.ui.tabs.fit_tab": "order",
    },
    "a saved plan is read without Thunder, and so without levers": {
        "workbench.bench.report.open_saved_plan": "order saved waits",
    },
    "plain PyTorch can follow choices of one lever only": {
        "workbench.bench.fit.torch_fit": "saved",
        "workbench.compiler.driver.torch_choices": "saved",
    },
    "the graph draws the sites of these levers as arcs, or in lanes": {
        "workbench.ui.graph.collective_lanes": "waits",
        "workbench.ui.graph.composite_rows": "waits",
        "workbench.ui.graph.site_anchors": "remat saved",
    },
    "a lesson or a check of a GPU chooses as a user does": {
        "workbench.gpu_check.parts.depth": "remat sharing",
        "workbench.gpu_check.parts.large_layers": "saved",
        "workbench.gpu_check.parts.main_job": "saved",
        "workbench.gpu_check.parts.on_ranks": "waits",
        "workbench.gpu_check.parts.optimizers": "copies",
        "workbench.gpu_check.parts.rates": "saved",
        "workbench.gpu_check.parts.runs": "nvfuser",
        "workbench.lessons.aliasing": "copies torchcompile",
        "workbench.lessons.fusing": "torchcompile",
        "workbench.lessons.min_cut": "remat torchcompile",
        "workbench.lessons.overlapping": "waits",
        "workbench.lessons.recomputing": "saved",
    },
    "nvFuser and torch.compile treat casts, draws, memory and sources differently": {
        "workbench.analysis.equivalence.prove": "nvfuser",
        "workbench.analysis.equivalence.value_numbering": "nvfuser",
        "workbench.compiler.fusion.executors": "nvfuser remat torchcompile",
        "workbench.compiler.fusion.fusion_source": "nvfuser",
        "workbench.compiler.memory.fake_execution": "torchcompile",
        "workbench.compiler.pipeline.repeated_draws": "nvfuser",
    },
    "the default executor of a GPU": {"workbench.compiler.interop.devices": "nvfuser"},
    "the word has another meaning: a figure, a pass, a package, a kind of row": {
        "workbench.bench.session.run_names": "saved",
        "workbench.analysis.memory.bytes_by_kind": "saved",
        "workbench.analysis.memory.incremental_liveness": "saved",
        "workbench.bench.session.plan_diff": "saved",
        "workbench.cli.check": "saved",
        "workbench.cli.plan": "saved",
        "workbench.compiler.pipeline.pass_log": "order remat",
        "workbench.compiler.planner.planner": "copies",
        "workbench.gpu_check.parts.part_list": "copies",
        "workbench.gpu_check.suite": "nvfuser",
        "workbench.programs.identity": "nvfuser",
        "workbench.summary": "copies saved",
        "workbench.ui.controls.choice_queue": "waits",
        "workbench.ui.controls.figure_strip": "copies saved",
        "workbench.ui.controls.inspector": "saved waits",
        "workbench.ui.controls.preview": "saved",
        "workbench.ui.graph.graph_view": "waits",
        "workbench.ui.graph.payload": "saved waits",
        "workbench.ui.graph.svg": "saved",
        "workbench.ui.html_pages.notebook_picture": "saved",
        "workbench.ui.widgets.plotting": "saved",
    },
}
"""Modules that name levers or executors in strings: for each reason, the modules and the names."""


def package_of(path: Path) -> str:
    """Return a file's package in the form of `ORDER`. For a file directly in `workbench`, return the file's name."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:-1]) if len(parts) > 1 else parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """Return each import of a file, and whether it is inside a function. Leave out imports for type checkers."""

    def inside(node: ast.AST, deferred: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.Import):
                yield from ((alias.name, deferred) for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                yield from ((f"{child.module}.{alias.name}", deferred) for alias in child.names)
            yield from inside(child, deferred or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    return tuple(inside(ast.parse(path.read_text()), deferred=False))


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


def test_no_folder_has_more_than_twenty_source_files() -> None:
    files = [path for name in ("workbench", "tests", "benchmarks") for path in (ROOT.parent / name).rglob("*.*")]
    # The bundler writes a file for each widget into `built`; nobody edits them.
    counts = Counter(p.parent for p in files if p.suffix in (".py", ".js", ".css") and p.parent.name != "built")
    assert counts[ROOT / "ui/frontend/tabs"] > 10
    assert not [folder for folder, count in counts.items() if count > 20]


def test_only_the_ui_imports_widgets() -> None:
    for name, path in MODULES.items():
        packages = {module.partition(".")[0] for module, _ in imports(path)}
        assert packages.isdisjoint({"ipywidgets", "anywidget", "bokeh"}) or name.startswith("workbench.ui"), name


@pytest.mark.parametrize("path", sorted((ROOT / "compiler").rglob("*.py")), ids=lambda path: path.name)
def test_the_compiler_names_no_lever_and_no_executor(path: Path) -> None:
    assert "workbench.levers" not in path.read_text()
    assert "workbench.executors" not in path.read_text()


def names_in(path: Path, names: str) -> set[str]:
    """Return the names of which a file has a string: the name alone, or an id that begins with it. Skip docstrings."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings]
    found = [re.fullmatch(rf"({names})([.:]\S*)?", text) for text in texts if isinstance(text, str)]
    return {match[1] for match in found if match}


def test_other_files_name_a_lever_or_executor_only_with_a_reason() -> None:
    # Leave out the executor `torch`, because many files name the package `torch`.
    names = "|".join([*(lever.name for lever in all_levers()), *(set(executor_names()) - {"torch"})])
    own = ("levers", "executors")
    named = {name: names_in(path, names) for name, path in MODULES.items() if package_of(path).split("/")[0] not in own}
    listed = {module: set(words.split()) for modules in NAMED.values() for module, words in modules.items()}
    assert {name: words for name, words in named.items() if words} == listed


def test_only_thread_patches_replace_functions_of_other_packages() -> None:
    assert not [name for name, path in MODULES.items() if any(n.startswith("unittest") for n, _ in imports(path))]
    makers = {path.name for path in MODULES.values() if "= ThreadPatches(" in path.read_text()}
    patches = {"backward_without_gpu.py", "dynamo_patches.py", "fake_gpu.py", "inductor_patches.py"}
    others = {"copy_sets.py", "install.py", "patch_context.py", "without_value_checks.py"}
    assert makers == patches | others
