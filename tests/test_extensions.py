"""The JupyterLab extension as it is shipped: made of the present sources, and installed where JupyterLab looks."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from workbench.bench import saving

ROOT = Path(__file__).parents[1]
EXTENSION = ROOT / "extensions" / "trace-view"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_trace_view", EXTENSION / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_bundle_is_made_of_the_present_sources(build: ModuleType) -> None:
    made, now = json.loads(build.RECORD.read_text()), build.record()
    assert made["sources"] == now["sources"], "the graph view or the extension changed: `make extensions`, and commit"
    assert made["bundle"] == now["bundle"], "the bundle was changed by hand, or not committed whole: `make extensions`"


def test_one_changed_letter_is_another_source(build: ModuleType) -> None:
    files = {"a.ts": b"one", "b.ts": b"two"}
    others = [{**files, "b.ts": b"twO"}, {"a.ts": b"onetwo", "b.ts": b""}, {"a.ts": b"one", "c.ts": b"two"}]
    assert build.digest(files) not in {build.digest(other) for other in others}


def test_it_is_installed_where_jupyterlab_looks() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    package = json.loads((EXTENSION / "labextension" / "package.json").read_text())
    there = f"share/jupyter/labextensions/{package['name']}"
    assert data["shared-data"] == {
        "extensions/trace-view/labextension": there,
        "extensions/trace-view/install.json": f"{there}/install.json",
    }
    assert (EXTENSION / "labextension" / package["jupyterlab"]["_build"]["load"]).is_file()
    assert json.loads((EXTENSION / "install.json").read_text())["packageName"] == "thunder-workbench"


def test_the_page_and_python_mean_the_same_documents() -> None:
    said = dict(re.findall(r"export const (\w+) = (.+);", (EXTENSION / "src" / "plan.ts").read_text()))
    assert {name: json.loads(value) for name, value in said.items()} == {
        "MIME_TYPE": saving.MIME_TYPE,
        "FORMAT": saving.FORMAT,
        "FORMAT_VERSION": saving.FORMAT_VERSION,
    }


def test_the_lock_file_names_no_place_to_download_from() -> None:
    lock = json.loads((EXTENSION / "package-lock.json").read_text())
    assert len(lock["packages"]) > 1
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
