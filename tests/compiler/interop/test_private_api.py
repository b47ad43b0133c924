"""The code uses Thunder, nvFuser, and private names of PyTorch only through tables. The tables list no unused name."""

import ast
import dataclasses
import functools
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import workbench
from workbench import doctor
from workbench.compiler.interop import check_versions, devices, nvfuser_api, thunder_api
from workbench.core.executor import why_no_nvfuser
from workbench.errors import SeamError
from workbench.interop import torch_private
from workbench.interop.private_api import TORCH_VERSIONS, PrivateApi

ROOT = Path(workbench.__file__).parent
SEAMS = {
    "workbench.interop.torch_private": torch_private,
    "workbench.compiler.interop.thunder_api": thunder_api,
    "workbench.compiler.interop.nvfuser_api": nvfuser_api,
}
FILES = sorted(ROOT.rglob("*.py"))
PRIVATE = re.compile(r"(thunder|nvfuser_direct)(\.|$)|torch\.(.*\.)?_")


@dataclasses.dataclass
class Source:
    """The imports and attribute accesses in a source file."""

    path: Path
    imports: list[ast.Import | ast.ImportFrom]
    attributes: list[ast.Attribute]

    @functools.cached_property
    def chains(self) -> tuple[str, ...]:
        """Attribute accesses on plain names, such as ``prims.PrimIDs.COPY_``, including their prefixes."""
        return tuple(text for text in map(dotted, self.attributes) if text)

    def imported(self) -> Iterator[tuple[str, str, str]]:
        """Yield a tuple for each name that the file imports from a table: table, name in table, name in file."""
        for node in self.imports:
            if isinstance(node, ast.ImportFrom) and node.module in SEAMS:
                yield from ((node.module, alias.name, alias.asname or alias.name) for alias in node.names)


@functools.cache
def sources() -> list[Source]:
    """Return all parsed source files of the workbench except the tables."""
    found = []
    for path in FILES:
        if path.name not in ("torch_private.py", "thunder_api.py", "nvfuser_api.py"):
            source = Source(path, [], [])
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute):
                    source.attributes.append(node)
                elif isinstance(node, ast.Import | ast.ImportFrom):
                    source.imports.append(node)
            found.append(source)
    return found


def dotted(node: ast.expr) -> str:
    """Return an attribute access as text, such as ``a.b.c``; empty if it does not begin with a plain name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def test_nothing_private_is_imported_outside_the_tables() -> None:
    for source in sources():
        path = source.path
        if path.parent.name == "plain_torch":
            continue  # code of this package is exported into files that import nothing of the workbench
        for node in source.imports:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                assert not PRIVATE.match(name), f"{path.name}:{node.lineno} imports {name}: add it to a table in SEAMS"
        taken = {here for _, _, here in source.imported()}
        for chain in source.chains:
            ours = chain.partition(".")[0] in taken
            assert ours or not PRIVATE.match(chain), f"{path.name} uses {chain}: add it to one of the tables in SEAMS"


def test_every_used_name_is_in_a_table_and_every_row_is_used() -> None:
    used: dict[str, set[str]] = defaultdict(set)
    for source in sources():
        path = source.path
        taken = {here: (seam, name) for seam, name, here in source.imported()}
        for seam, name in taken.values():
            table = SEAMS[seam]
            assert name in table.SEAM.names or hasattr(table, name), f"{path.name}: {name} is not in {seam}"
            used[seam].add(name)
        for chain in source.chains:
            here, _, attribute = chain.partition(".")
            if here in taken and here != "SEAM":
                seam, name = taken[here]
                members = SEAMS[seam].SEAM.members.get(name, ())
                known = any(member == attribute or member.startswith(f"{attribute}.") for member in members)
                beyond = any(attribute.startswith(f"{member}.") for member in members)
                assert known or beyond, (
                    f"{path.name} uses {chain}: add {attribute!r} to the members of {name} in {seam}"
                )
            if here == "thunder_api" and attribute.partition(".")[0] != "SEAM":
                used["workbench.compiler.interop.thunder_api"].add(attribute.partition(".")[0])
    for seam, table in SEAMS.items():
        assert set(table.SEAM.names) <= used[seam], f"{seam}: not used: {set(table.SEAM.names) - used[seam]}"
        assert set(table.SEAM.members) <= set(table.SEAM.names)


def test_the_installed_versions_have_all_listed_names() -> None:
    assert torch_private.SEAM.examine() == []
    assert thunder_api.SEAM.examine() == []
    if not why_no_nvfuser():
        devices.nvfuser_module()
        assert nvfuser_api.SEAM.examine() == []
    text, whole = check_versions.report()
    assert whole
    assert f"Thunder {thunder_api.SEAM.wanted}, made for {thunder_api.SEAM.wanted}" in text
    assert text.count(" 0 missing") + text.count("not looked at") == 3


def test_the_collectives_and_waits_that_the_workbench_names_exist_in_thunder() -> None:
    from thunder.distributed import prims
    from thunder.executors.torchex import ex

    theirs = {prim.name.lower() for prim in prims.PrimIDs} | set(ex._opmap)
    assert {*thunder_api.COLLECTIVES, *thunder_api.WAITS} <= theirs


def test_a_module_that_fails_to_import_counts_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_another_version").mkdir()
    (tmp_path / "of_another_version" / "__init__.py").touch()
    (tmp_path / "of_another_version" / "inner.py").write_text("None >= 1")
    monkeypatch.syspath_prepend(tmp_path)
    seam = PrivateApi("It", ("it",), "1", {"name": "of_another_version.inner:name"}, {})
    (missing,) = seam.examine()
    assert missing.reason.startswith("TypeError: ")
    with pytest.raises(SeamError, match=r"It, which is not installed, does not have of_another_version\.inner:name"):
        seam.get("name")


def test_a_package_that_fails_to_import_is_reported_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_another_torch").mkdir()
    (tmp_path / "of_another_torch" / "__init__.py").write_text("import torch; torch.Tensor.no_such_method")
    monkeypatch.syspath_prepend(tmp_path)
    seam = PrivateApi("Thunder", ("lightning-thunder",), "0.2.7", {"name": "of_another_torch.inner:name"}, {})
    with pytest.raises(SeamError) as refused:
        seam.get("name")
    assert str(refused.value) == (
        f"Thunder {seam.installed_version} cannot be imported with PyTorch {torch.__version__.partition('+')[0]}: "
        "AttributeError: type object 'Tensor' has no attribute 'no_such_method'. "
        f"The workbench is made for Thunder 0.2.7 and PyTorch {TORCH_VERSIONS}; see docs/upgrading.md"
    )


def test_if_a_package_fails_again_for_another_reason_the_first_reason_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Thunder does this: what its first import registers stays registered.
    (tmp_path / "twice_imported").mkdir()
    (tmp_path / "twice_imported" / "__init__.py").write_text(
        "import sys\nsys.modules.get('twice_imported.inner', sys).gone\n"
    )
    (tmp_path / "twice_imported" / "inner.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    seam = PrivateApi("Thunder", ("lightning-thunder",), "0.2.7", {"name": "twice_imported:name"}, {})
    for _ in range(2):
        with pytest.raises(SeamError, match="AttributeError: module 'sys' has no attribute 'gone'"):
            seam.get("name")
        monkeypatch.setitem(sys.modules, "twice_imported.inner", None)


def test_the_versions_of_pytorch_in_messages_are_the_required_versions() -> None:
    assert doctor.required_versions()["torch"] == TORCH_VERSIONS


def test_a_moved_name_is_reported_with_both_versions() -> None:
    moved = PrivateApi(
        package="Thunder",
        distributions=("lightning-thunder",),
        wanted="0.2.7",
        names={
            "trace": "thunder.core.trace",
            "gone": "thunder.core.trace:no_such_thing",
            "nowhere": "thunder.no_such_module",
        },
        members={"trace": ("TraceCtx", "Missing", "TraceCtx.gone")},
    )
    assert [each.name for each in moved.examine()] == [
        "thunder.core.trace:Missing",
        "thunder.core.trace:TraceCtx.gone",
        "thunder.core.trace:no_such_thing",
        "thunder.no_such_module",
    ]
    with pytest.raises(SeamError) as refused:
        moved.get("gone")
    assert str(refused.value) == (
        f"Thunder {moved.installed_version} does not have thunder.core.trace:no_such_thing, which the workbench uses; "
        "it is made for 0.2.7. Install that version, or follow docs/upgrading.md"
    )
    with pytest.raises(AttributeError, match="other"):
        moved.get("other")
