"""The built widgets and JupyterLab extensions match the present sources, and the wheel installs the extensions."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from workbench import ui
from workbench.bench.report import saved_plan

ROOT = Path(__file__).parents[1]
EXTENSIONS = sorted(path.parent for path in (ROOT / "extensions").glob("*/package.json"))
TRACE_VIEW = ROOT / "extensions" / "trace-view"


def loaded(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("folder", [ROOT / "extensions" / "widgets", *EXTENSIONS], ids=lambda folder: folder.name)
def test_the_bundle_is_built_from_the_present_sources(folder: Path) -> None:
    extension = loaded(folder / "build.py", f"build_{folder.name}").EXTENSION
    made, now = json.loads(extension.record_path.read_text()), extension.record()
    assert made["sources"] == now["sources"], "a widget or an extension changed: run `make extensions` and commit"
    assert made["bundle"] == now["bundle"], "the bundle was changed by hand or committed in part: `make extensions`"


def test_the_module_of_each_widget_imports_nothing_and_has_one_default_export() -> None:
    built = sorted((Path(ui.__file__).parent / "frontend" / "built").glob("*.js"))
    assert len(built) > 20
    for path in built:
        text = path.read_text()
        assert not re.search(r"^import\b|\bimport\(", text, re.MULTILINE), path.name
        assert len(re.findall(r"^export default ", text, re.MULTILINE)) == (path.stem != "report_page"), path.name


def test_one_changed_letter_changes_the_digest() -> None:
    digest = loaded(ROOT / "extensions" / "building.py", "building").digest
    files = {"a.ts": b"one", "b.ts": b"two"}
    others = [{**files, "b.ts": b"twO"}, {"a.ts": b"onetwo", "b.ts": b""}, {"a.ts": b"one", "c.ts": b"two"}]
    assert digest(files) not in {digest(other) for other in others}


def test_each_extension_is_installed_where_jupyterlab_looks() -> None:
    assert len(EXTENSIONS) == 2
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    expected = {"extensions/runs-panel/server.json": "etc/jupyter/jupyter_server_config.d/thunder-workbench.json"}
    for folder in EXTENSIONS:
        package = json.loads((folder / "labextension" / "package.json").read_text())
        there = f"share/jupyter/labextensions/{package['name']}"
        expected[f"extensions/{folder.name}/labextension"] = there
        expected[f"extensions/{folder.name}/install.json"] = f"{there}/install.json"
        assert (folder / "labextension" / package["jupyterlab"]["_build"]["load"]).is_file()
        assert json.loads((folder / "install.json").read_text())["packageName"] == "thunder-workbench"
    assert data["shared-data"] == expected


def test_the_page_and_python_agree_on_documents() -> None:
    said = dict(re.findall(r"export const (\w+) = (.+);", (TRACE_VIEW / "src" / "plan.ts").read_text()))
    assert {name: json.loads(value) for name, value in said.items()} == {
        "MIME_TYPE": saved_plan.MIME_TYPE,
        "FORMAT": saved_plan.FORMAT,
        "FORMAT_VERSION": saved_plan.FORMAT_VERSION,
    }


def test_the_app_and_the_extension_agree_on_events() -> None:
    names = re.compile(r'^const \w+ = "(thunder-workbench:[a-z-]+)"', re.MULTILINE)
    controls = Path(ui.__file__).parent / "frontend" / "controls"
    app = [name for file in ("controls.js", "status_line.js") for name in names.findall((controls / file).read_text())]
    extension = names.findall((ROOT / "extensions" / "runs-panel" / "src" / "tab.ts").read_text())
    assert len(app) == 4
    assert sorted(app) == sorted(extension)


def test_styles_of_an_extension_share_no_class_with_the_app() -> None:
    # JupyterLab loads the styles of an extension into each page. Such a style once changed how the app drew lines.
    sources = [path.read_text() for pattern in ("*.js", "*.css") for path in Path(ui.__file__).parent.rglob(pattern)]
    in_app = set(re.findall(r"(?<![\w-])wb-[\w-]+", "".join(sources)))
    styled = {
        name
        for folder in EXTENSIONS
        for path in folder.glob("style/*.css")
        for name in re.findall(r"(?:^|[},])\s*\.(wb-[\w-]+)", path.read_text())
    }
    assert "wb-kernel-gone" in styled
    assert styled & in_app <= {"wb-tab"}


@pytest.mark.parametrize("folder", EXTENSIONS, ids=lambda folder: folder.name)
def test_the_lock_file_names_no_download_host(folder: Path) -> None:
    lock = json.loads((folder / "package-lock.json").read_text())
    assert len(lock["packages"]) > 1
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
