"""`import workbench` is fast: heavy packages are imported only when they are first used."""

import importlib.metadata
import runpy
import subprocess
import sys

import pytest

import workbench as wb
from workbench import version

HEAVY = ("thunder", "torch", "numpy", "ipywidgets", "anywidget", "bokeh", "IPython", "nvfuser_direct", "typer")


def imported_by(code: str, *names: str) -> list[str]:
    """Run `code` in a new process. Return which of the packages `names` the process has imported."""
    code = f"import sys\n{code}\nprint(*[name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1].split()


def test_importing_imports_nothing_heavy() -> None:
    assert imported_by("import workbench", *HEAVY) == []


def test_configs_and_errors_need_neither_torch_nor_thunder() -> None:
    assert imported_by("import workbench as wb; wb.Config, wb.load, wb.ChoiceError, wb.Site", *HEAVY) == []


@pytest.mark.parametrize(
    ("typed", "status"),
    [
        pytest.param(typed, status, marks=[pytest.mark.slow] * (typed not in ("--help", "plan mlp --nonsense")))
        for typed, status in (
            ("", 2),
            ("--help", 0),
            ("plan --help", 0),
            ("programs", 0),
            ("programs --json", 0),
            ("doctor", 0),
            ("cache", 0),
            ("nonsense", 2),
            ("plan", 2),
            ("plan mlp --nonsense", 2),
            ("plan nosuchprogram", 2),
            ("plan mlp --set nosuchsetting=1", 2),
            ("fit mlp --peak 3parsecs", 2),
            ("fit mlp --curve 1", 2),
            ("fit mlp --peak 1GiB --machine nosuchmachine", 2),
            ("report nosuchprogram", 2),
            ("compare nosuchrun nosuchother", 2),
            ("plan nosuchfile.py:factory", 2),
            ("run nosuchfile.py:factory", 2),
            ("sweep nosuchprogram", 2),
            ("sweep mlp --set nosuchsetting=1,2", 2),
            ("sweep nosuchfile.py:factory", 2),
            ("check nosuchconfig.py", 2),
            ("check nosuchconfig.py --peak-growth 3parsecs", 2),
        )
    ],
)
def test_commands_that_need_no_pytorch_do_not_import_pytorch(typed: str, status: int) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "workbench.cli", *typed.split()]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    # The check includes the imports of the command's child process, which writes them to the same stream.
    imported = {
        line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines() if "import time:" in line
    }
    assert "workbench" in imported
    assert imported & {"torch", "thunder", "nvfuser_direct", "ipywidgets", "anywidget", "bokeh", "IPython"} == set()
    assert done.returncode == status, done.stderr[-300:]


@pytest.mark.slow
def test_opening_needs_no_widgets() -> None:
    assert imported_by("import workbench as wb; wb.open", "ipywidgets", "anywidget", "bokeh", "IPython") == []


@pytest.mark.parametrize("name", wb.__all__)
def test_every_listed_name_exists(name: str) -> None:
    assert getattr(wb, name).__module__.startswith("workbench.")
    assert name in dir(wb)


def test_the_version_is_that_of_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wb.__version__ == importlib.metadata.version("thunder-workbench")

    def not_installed(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", not_installed)
    assert runpy.run_path(version.__file__)["__version__"] == "0.0"


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'workbench' has no attribute 'close'"):
        wb.close  # noqa: B018  # the test reads an attribute, and does not use the value


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        ["--help"],
        ["plan", "--help"],
        ["programs", "--json"],
        ["doctor", "--json"],
        ["plna"],
        ["plan"],
        ["plan", "swap", "--device", "tpu"],
        ["plan", "swp"],
        ["run", "llama", "--set", "layer=2"],
        ["fit", "llama", "--set", "layers=many", "--peak", "1GiB"],
        ["doctor", "-x"],
    ],
)
def test_help_listings_and_bad_usage_import_nothing_heavy(given: list[str]) -> None:
    code = f"""
import contextlib, io
from workbench.cli import entry
with contextlib.redirect_stdout(io.StringIO()):
    entry.run({given})
"""
    assert imported_by(code, "torch", "thunder", "numpy", "nvfuser_direct", "bokeh") == []
