"""Functions with which tests without a browser page act on the app, as a user would."""

from __future__ import annotations

import time
from collections.abc import Callable

import workbench as wb
from workbench.ui.app.app import App


def legal(bench) -> wb.Site:
    return next(s for s in bench.sites("saved") if s.values and "recompute" not in s.illegal)


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def strip(app: App, key: str) -> list[dict]:
    return next(f for f in app.strip.content["figures"] if f["key"] == key)["values"]


def figure(app: App, key: str) -> dict:
    return strip(app, key)[0]


def look(app: App, title: str) -> None:
    """Open a tab or a top-level tab, as a click on its name does."""
    app.places.open(title)


def settled(app: App) -> None:
    """Wait until another thread has made the plan for all clicks."""
    assert app.choosing.settle(120)


def turn(app: App, id: str) -> None:
    """Do what a double click on an arc or a mark of the graph does, and wait for the plan."""
    app.graph._receive(None, {"type": "turn", "id": id}, [])
    settled(app)


def choose(app: App, id: str, option: str) -> None:
    """Do what a click on an option of a site does, and wait for the plan."""
    app._on_message({"type": "choose", "id": id, "option": option})
    settled(app)


def shown(app: App, target: str) -> dict:
    """Open the box of Export for a target, and return what the box shows."""
    app._on_message({"type": "export_preview", "path": "net_choices.py", "target": target, "asked": target})
    until(lambda: app.controls.exported.get("asked") == target)
    return app.controls.exported
