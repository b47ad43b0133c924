"""HTTP handlers for the runs panel: list runs, read a run's log, and cancel a run. Jupyter's token protects them."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from workbench.errors import RunError
from workbench.server.listing import Listing
from workbench.server.run_folders import RunFolders
from workbench.server.run_status import log_text
from workbench.version import __version__

PATH = "thunder-workbench"
"""Path of the handlers, under the server's address."""

WAIT_S = 15.0
"""Maximum time that a request waits for changes. After this time, the server answers without changes."""
PAUSE_S = 0.05
"""Interval between checks for changes. A display can then change 20 times a second."""


def handlers(base_url: str, root: str) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return the handlers for Tornado, with their addresses below `PATH`."""
    given = {"listing": Listing(), "run_folders": RunFolders(Path(root).expanduser().absolute())}
    routes = {"runs": RunsHandler, "log": LogHandler, "cancel": CancelHandler}
    return [(url_path_join(base_url, PATH, name), handler, given) for name, handler in routes.items()]


class _Handler(APIHandler):
    auth_resource = PATH

    def initialize(self, listing: Listing, run_folders: RunFolders) -> None:
        self.listing, self.run_folders = listing, run_folders

    def refuse(self, error: RunError) -> None:
        """Answer a request with the reason for its refusal, in one line."""
        self.set_status(409)
        self.finish(json.dumps({"message": str(error)}))


class RunsHandler(_Handler):
    """Handle ``GET runs?since=VERSION``: answer with the changes after a version as soon as there are any."""

    _gone = False

    def on_connection_close(self) -> None:
        """Stop waiting for changes, because the page was closed."""
        self._gone = True

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with the result of `Listing.since` and the version of the workbench.

        After `WAIT_S` without changes, answer without any runs.
        """
        text = self.get_query_argument("since", "0")
        if not text.isdecimal():
            raise web.HTTPError(400, f"since={text!r} is not a version: give the version of an earlier answer, or 0")
        deadline = time.monotonic() + WAIT_S
        answer = None
        while not self._gone:
            # Use a thread, because disks may be slow and the server must also serve kernels.
            await asyncio.to_thread(self.listing.scan, await self._folders())
            answer = self.listing.since(int(text))
            if answer is not None or time.monotonic() > deadline:
                break
            await asyncio.sleep(PAUSE_S)
        if not self._gone:
            answer = answer or {"version": int(text), "runs": []}
            await self.finish(json.dumps({**answer, "workbench": __version__}))

    async def _folders(self) -> list[Path]:
        manager: Any = self.session_manager
        sessions = await ensure_async(manager.list_sessions())
        pids = []
        for id in self.kernel_manager.list_kernel_ids():
            process = getattr(getattr(self.kernel_manager.get_kernel(id), "provisioner", None), "process", None)
            if process is not None:
                pids.append(process.pid)
        return self.run_folders.update(sessions, pids)


class LogHandler(_Handler):
    """Handle ``GET log?id=ID``: answer with a run's log as text."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with ``{"text": ...}``."""
        try:
            run = await asyncio.to_thread(self.listing.run, self.get_query_argument("id", ""))
        except RunError as error:
            self.refuse(error)
            return
        await self.finish(json.dumps({"text": await asyncio.to_thread(log_text, run)}))


class CancelHandler(_Handler):
    """Handle ``POST cancel`` with ``{"id": ID}``: answer when the run's processes have ended."""

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """Cancel the run, and answer with its state. A run that had already ended does not change."""
        asked = self.get_json_body()
        id = asked.get("id") if isinstance(asked, dict) else None
        try:
            run = await asyncio.to_thread(self.listing.run, str(id))
            await asyncio.to_thread(run.cancel)
        except RunError as error:
            self.refuse(error)
            return
        await self.finish(json.dumps({"state": run.state}))
