"""A room imports only from those above it, no module itself through others; for Thunder see compiler/test_seams.py."""

import ast
import functools
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import workbench

ROOT = Path(workbench.__file__).parent
ORDER = [
    "lazy",
    "errors",
    "paths",
    "stored",
    "seams",
    "remembered",
    "torch_api",
    "allocators",
    "graph",
    "cuda_driver",
    "executor",
    "config",
    "analysis",
    "programs",
    "lever",
    "compiler",
    "executors",
    "levers",
    "runs",
    "summary",
    "limits",
    "bench",
    "doctor",
    "gpu_check",
    "lessons",
    "ui",
    "server",
    "cli",
]
"""From the ground up, as in docs/architecture.md."""

UPWARD = {
    # A config replays itself, when called.
    ("config", "compiler"),
    # Each registry imports every file of the room in which levers or executors are, by its name.
    ("lever", "levers"),
    ("executor", "executors"),
    # A plan shows itself in a few lines.
    ("compiler", "summary"),
    # The bench shows itself as the app in a notebook.
    ("bench", "ui"),
    # A prediction shows itself as a widget in a notebook.
    ("lessons", "ui"),
}

WHEN_CALLED = {
    # A config replays itself through the compiler, which reads configs.
    ("workbench.config", "workbench.compiler.pipeline"),
    # A plan shows itself in the words of the summary, which tells of runs, too.
    ("workbench.compiler.plan", "workbench.summary"),
}
"""The imports inside a function that close a circle of modules; none at module level does."""


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Everything but what only a type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from nodes(node)


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    found: list[str] = []
    for node in nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and name_of(node.func).endswith("import_module"):
            found.append(ast.unparse(node.args[0]).lstrip("f").strip("\"'"))
    return tuple(found)


def name_of(function: ast.expr) -> str:
    """The last part of what is called, where it has a name."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


MODULES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_from_above(path: Path) -> None:
    room = room_of(path)
    for name in imports(path):
        if name.startswith("workbench.") and (other := name.split(".")[1]) in ORDER:
            above = ORDER.index(other) <= ORDER.index(room)
            assert above or (room, other) in UPWARD, f"{path.name} imports {name}, which is below it"
        if name.split(".")[0] in ("ipywidgets", "anywidget", "bokeh"):
            assert room == "ui", f"{path.name} imports {name}: only ui/ may"


@pytest.mark.parametrize("path", sorted((ROOT / "compiler").rglob("*.py")), ids=lambda path: path.name)
def test_the_compiler_knows_no_lever_and_no_executor(path: Path) -> None:
    """Neither in a function, nor for a type checker, nor by name."""
    assert "workbench.levers" not in path.read_text()
    assert "workbench.executors" not in path.read_text()


def test_what_is_not_ours_is_patched_in_one_place() -> None:
    patching = [path.relative_to(ROOT) for path in MODULES if "unittest.mock" in imports(path)]
    assert patching == [Path("compiler/patches.py")]


def test_every_room_is_in_the_order() -> None:
    assert {room_of(path) for path in MODULES} == set(ORDER)


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_module_imports_itself_through_others() -> None:
    modules = {module_of(path) for path in MODULES}
    imported: dict[str, set[str]] = {}
    for path in MODULES:
        names = (name if name in modules else name.rpartition(".")[0] for name in imports(path))
        imported[module_of(path)] = {name for name in names if name in modules} - {module_of(path)}
    for importer, name in WHEN_CALLED:
        imported[importer].remove(name)
    order = list(graphlib.TopologicalSorter(imported).static_order())
    assert len(order) == len(modules)
    for importer, name in WHEN_CALLED:
        assert order.index(importer) < order.index(name), f"{importer} and {name} make no circle any more"
