"""`doctor`, `programs` and `lab`: check the environment, list built-in programs, open JupyterLab."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import typer

import workbench
from workbench.cli.options import JsonOption
from workbench.cli.output import add_row, new_table, print_json, print_table
from workbench.cli.statuses import DONE, FAILED, SIGNALLED
from workbench.errors import ConfigError
from workbench.util import paths

NOTEBOOK = "quickstart.ipynb"


def doctor(as_json: JsonOption = False) -> int:
    """List installed packages, attached devices, and what is missing."""
    from workbench.doctor import all_essential, examine

    checks = examine()
    ok = all_essential(checks)
    if as_json:
        print_json({"ok": ok, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        table = new_table("", "", "found", "note")
        for check in checks:
            sign = "✓" if check.ok else "✗" if check.essential else "–"
            add_row(table, sign, check.name, check.found, check.note)
        print_table(table)
    return DONE if ok else FAILED


def programs(as_json: JsonOption = False) -> int:
    """List the built-in programs and their settings."""
    from workbench.programs.registry import describe

    infos = describe()
    if as_json:
        print_json(
            {
                "programs": [
                    {
                        "name": info.name,
                        "summary": info.summary,
                        "settings": [
                            {
                                "name": setting.name,
                                "type": setting.type.__name__ if setting.type else None,
                                "default": setting.default,
                                "options": list(setting.options),
                                "required": setting.required,
                            }
                            for setting in info.settings
                        ],
                    }
                    for info in infos
                ]
            }
        )
        return DONE
    table = new_table("program", "what it is", "settings and their defaults")
    for info in infos:
        add_row(table, info.name, info.summary, " ".join(f"{s.name}={s.default}" for s in info.settings))
    print_table(table)
    return DONE


def lab(context: typer.Context) -> int:
    """Open JupyterLab on a copy of the quickstart notebook in this folder.

    Further arguments are passed to JupyterLab.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise ConfigError("JupyterLab is not installed; install it with pip install 'thunder-workbench[lab]'")
    here = Path(NOTEBOOK)
    if not here.exists():
        try:
            paths.write(here, _quickstart().read_bytes())
        except OSError as error:
            raise ConfigError(
                f"the quickstart notebook cannot be written into this folder: {paths.reason_of(error)}"
            ) from error
    # By default, Jupyter refuses to run as root, but in a container root is often the only user.
    root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    # The printed address also opens the notebook. The user's own arguments come later and take precedence.
    address = f"--LabApp.default_url=/lab/tree/{NOTEBOOK}"
    command = [sys.executable, "-m", "jupyterlab", str(here), *root, address, *context.args]
    servers: list[subprocess.Popen[bytes]] = []

    def pass_on(signum: int, _: FrameType | None) -> None:
        for server in servers:
            server.send_signal(signum)

    # Jupyter handles Ctrl-C itself: it asks whether to stop. Install a handler that does nothing, because child
    # processes would inherit an ignored signal.
    handlers = {signal.SIGINT: lambda *_: None, signal.SIGTERM: pass_on, signal.SIGHUP: pass_on}
    before = {signum: signal.signal(signum, handler) for signum, handler in handlers.items()}
    try:
        with subprocess.Popen(command) as server:
            servers.append(server)
            status = server.wait()
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    return status if status >= 0 else SIGNALLED - status


def _quickstart() -> Path:
    """Return the notebook in the installed package, or in the source folder of the package."""
    package = Path(workbench.__file__).parent
    for folder in (package, package.parent / "notebooks"):
        if (folder / NOTEBOOK).is_file():
            return folder / NOTEBOOK
    raise ConfigError(f"the quickstart notebook is missing: this installation does not contain {NOTEBOOK}")
