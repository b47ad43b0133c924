"""A wheel installs the command, the app and the extensions, as a checkout does. Uninstalling removes all of them.

The tests install into a new environment, with packages from the registry. If the registry cannot be reached, they
are skipped, or fail in CI (CI=true).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.interop.private_api import installed_torch

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints" / f"torch-{installed_torch().rpartition('.')[0]}.txt"
START_S = 120

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def run(*command: str | Path, **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def new_environment(folder: Path) -> Path:
    """Make an environment that contains only pip, and return its folder of commands."""
    run(sys.executable, "-m", "venv", folder)
    return folder / "bin"


def install(commands: Path, *what: str) -> None:
    """Install packages in their tested versions. Use uv if there is one, because pip takes minutes to copy PyTorch."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    # Ask for the version, because a version manager has a command `uv` even if uv is not installed.
    if uv and subprocess.run([uv, "--version"], capture_output=True, check=False).returncode == 0:
        tool: list[str | Path] = [uv, "pip", "install", "--python", commands / "python"]
    else:
        tool = [commands / "python", "-m", "pip", "install"]
    run(*tool, "-q", "-c", CONSTRAINTS, *what)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and an sdist of the checkout, and a wheel of the sdist in the folder ``again``."""
    home = tmp_path_factory.mktemp("build")
    bin_dir = new_environment(home / "environment")
    assert CONSTRAINTS.exists()
    try:
        install(bin_dir, "hatchling", "hatch-vcs")
    except AssertionError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"hatchling cannot be installed: {error}")
    made = home / "dist"
    run(*hatchling(made), "build", "-t", "wheel", "-t", "sdist", "-d", made, cwd=ROOT)
    (sdist,) = made.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(home / "sdist", filter="data")
    (source,) = (home / "sdist").iterdir()
    run(*hatchling(made), "build", "-t", "wheel", "-d", made / "again", cwd=source)
    return made


def hatchling(dist: Path) -> tuple[str | Path, ...]:
    return dist.parent / "environment" / "bin" / "python", "-m", "hatchling"


@pytest.fixture(scope="module")
def bin_dir(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of a new environment, into which the wheel is installed with the extra ``[lab]``."""
    commands = new_environment(tmp_path_factory.mktemp("installed") / "environment")
    (wheel,) = dist.glob("*.whl")
    install(commands, f"{wheel}[lab]")
    return commands


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Options of `subprocess`: a working directory and a home directory, which are both empty at first."""
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("folder")
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")}
    return {"cwd": folder, "env": {**kept, "HOME": str(home)}}


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_sdist_makes_the_same_wheel(dist: Path) -> None:
    (wheel,), (again,) = dist.glob("*.whl"), (dist / "again").glob("*.whl")
    assert wheel.name == again.name
    assert contents(wheel) == contents(again)


def test_the_version_is_that_of_the_newest_tag(dist: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", clone)

    def version() -> str:
        return run(*hatchling(dist), "version", cwd=clone).strip()

    run("git", "clone", "-q", "--depth=1", "--no-tags", ROOT.as_uri(), clone)
    assert re.fullmatch(r"0\.1\.dev1\+g[0-9a-f]+", version())
    run(*git, "tag", "v3.2.1")
    assert version() == "3.2.1"
    run(*git, "commit", "-q", "--allow-empty", "-m", "later")
    assert re.fullmatch(r"3\.2\.2\.dev1\+g[0-9a-f]+", version())
    shutil.rmtree(clone / ".git")
    assert version() == "0.0"


def test_the_doctor_finds_everything_that_is_essential(bin_dir: Path, person: dict[str, Any]) -> None:
    found = json.loads(run(bin_dir / "thunder-workbench", "doctor", "--json", **person))
    assert found["ok"]
    checks = {check["name"]: check for check in found["checks"]}
    assert checks["PyTorch"]["found"].startswith(CONSTRAINTS.stem.removeprefix("torch-"))
    assert checks["JupyterLab"]["ok"]


@pytest.fixture(scope="module")
def lab(bin_dir: Path, person: dict[str, Any]) -> Iterator[str]:
    """Address and token of a JupyterLab that ``thunder-workbench lab`` has started."""
    token = secrets.token_hex(8)
    more = ("--no-browser", "--ip=127.0.0.1", "--port=0", f"--IdentityProvider.token={token}")
    log_path = Path(person["env"]["HOME"]) / "lab.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [bin_dir / "thunder-workbench", "lab", *more],
            **person, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        give_up, found = time.monotonic() + START_S, None
        while found is None and time.monotonic() < give_up and process.poll() is None:
            time.sleep(0.5)
            found = re.search(r"http://127\.0\.0\.1:\d+(?=/lab)", log_path.read_text())
        assert found is not None, log_path.read_text()[-4000:]
        yield f"{found[0]}/{{}}?token={token}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def asked(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return str(answer.read().decode())


def test_lab_opens_the_quickstart_with_both_extensions(lab: str, person: dict[str, Any]) -> None:
    notebook = json.loads(asked(lab.format("api/contents/quickstart.ipynb")))
    assert notebook["content"]["nbformat"] == 4
    page = re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', asked(lab.format("lab")), re.DOTALL)
    assert page is not None
    config = json.loads(page[1])
    names = {extension["name"] for extension in config["federated_extensions"]}
    assert {"thunder-workbench-trace-view", "thunder-workbench-runs-panel", "anywidget"} <= names
    for extension in config["federated_extensions"]:
        if extension["name"].startswith("thunder-workbench"):
            assert asked(lab.format(f"lab/extensions/{extension['name']}/{extension['load']}"))
    assert json.loads(asked(lab.format("thunder-workbench/runs")))["runs"] == []


def test_the_quickstart_runs(bin_dir: Path, lab: str, person: dict[str, Any]) -> None:
    run(bin_dir / "jupyter", "execute", "--inplace", "quickstart.ipynb", **person)
    cells = json.loads((person["cwd"] / "quickstart.ipynb").read_text())["cells"]
    shown = json.dumps([cell.get("outputs", []) for cell in cells])
    assert "application/vnd.jupyter.widget-view+json" in shown


def test_uninstalling_leaves_nothing_in_the_environment(bin_dir: Path, person: dict[str, Any]) -> None:
    environment = bin_dir.parent
    ours = [path for path in environment.rglob("*") if re.search(r"workbench", path.name, re.IGNORECASE)]
    assert {path.name for path in ours} >= {"workbench", "thunder-workbench", "thunder-workbench-runs-panel"}
    run(bin_dir / "python", "-m", "pip", "uninstall", "-y", "-q", "thunder-workbench", **person)
    assert [path for path in ours if path.exists()] == []
