"""Extension of Jupyter Server for the runs panel. It needs only the runs' folders, so the panel needs no kernel."""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": "workbench.server"}]


def _load_jupyter_server_extension(app: Any) -> None:
    from workbench.server.handlers import handlers

    app.web_app.add_handlers(".*$", handlers(app.web_app.settings["base_url"], app.root_dir))
