"""Run a real JupyterLab in a real browser without a network. `LabServer` is JupyterLab; `Lab` is a browser tab."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page, Playwright, Request, WebSocket

from tests.browser import forked_kernels
from tests.browser.chromium import find_chromium

START_S = 90
STOP_S = 15
LEAST_OFTEN_MS = 250.0
"""Longest pause between two polls of the page, in ms. Pauses grow to this limit, because polls slow the page."""
SCREENSHOTS = "WORKBENCH_SCREENSHOTS"
"""The environment variable that names a folder for screenshots."""
VIEWPORT = {"width": 1600, "height": 1000}
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
OFFLINE = Path(__file__).parent / "offline"
EXTENSIONS = Path(__file__).parents[2] / "extensions"

# At its first start, JupyterLab would ask the user questions and load news. These settings prevent both.
LAB_SETTINGS = {
    "@jupyterlab/apputils-extension/notification.jupyterlab-settings": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
}


class LabServer:
    """A JupyterLab on a free port of 127.0.0.1. Its configuration, data and files are in `home`.

    Attributes
    ----------
    root : Path
        The root of JupyterLab's file browser.
    url : str
        Address of JupyterLab, without a slash at the end.
    outside_path : Path
        The file in which the server, its kernels and their workers record attempts to connect to other machines.
    """

    def __init__(self, home: Path) -> None:
        self.root = home / "root"
        self.outside_path = home / "outside.txt"
        self.log_path = home / "server.log"
        self.root.mkdir(parents=True)
        for name, settings in LAB_SETTINGS.items():
            path = home / "settings" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(settings))
        # Let JupyterLab load this checkout's extensions, even if other versions are installed.
        for bundle in EXTENSIONS.glob("*/labextension"):
            link = home / "share" / "labextensions" / json.loads((bundle / "package.json").read_text())["name"]
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(bundle, target_is_directory=True)
        config = home / "config" / "jupyter_server_config.d" / "thunder-workbench.json"
        config.parent.mkdir(parents=True)
        config.symlink_to(EXTENSIONS / "runs-panel" / "server.json")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        # A socket's path must be short, so it cannot be in `home`, whose path may be long.
        self._address = Path(tempfile.mkdtemp()) / "kernels"
        forked_kernels.write_spec(home / "share" / "kernels", self._address)
        environment = os.environ | {
            "JUPYTER_CONFIG_DIR": str(home / "config"),
            "JUPYTER_DATA_DIR": str(home / "data"),
            "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
            "IPYTHONDIR": str(home / "ipython"),
            "JUPYTER_PATH": str(home / "share"),
            "JUPYTER_PREFER_ENV_PATH": "1",
            "PYTHONPATH": os.pathsep.join([str(OFFLINE), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "WORKBENCH_OUTSIDE": str(self.outside_path),
        }
        command = [
            *(sys.executable, "-m", "jupyterlab", "--allow-root", "--no-browser", "--ip=127.0.0.1"),
            *(f"--port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={self.root}"),
            # Only the tests run JupyterLab without a token.
            *(
                "--IdentityProvider.token=",
                "--LabApp.expose_app_in_browser=True",
                "--LabApp.extension_manager=readonly",
            ),
            "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
        ]
        with self.log_path.open("wb") as log:

            def start(command: Sequence[str], **more: str) -> subprocess.Popen[bytes]:
                return subprocess.Popen(
                    command,
                    cwd=self.root,
                    env=environment | more,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )

            self.process = start(command)
            # A process that forks may have only one thread. With this variable, NumPy starts no threads at its import.
            self._kernels = start(
                [sys.executable, forked_kernels.__file__, str(self._address)], OPENBLAS_NUM_THREADS="1"
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self) -> None:
        give_up = time.monotonic() + START_S
        while time.monotonic() < give_up and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/api/status", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        ended = self.process.poll()
        state = f"did not answer in {START_S} s" if ended is None else f"ended with status {ended}"
        raise RuntimeError(f"JupyterLab {state}; the end of its log:\n{self.log_path.read_text()[-4000:]}")

    def outside(self) -> list[str]:
        """Return the addresses of other machines to which Python processes have tried to connect so far."""
        return self.outside_path.read_text().splitlines() if self.outside_path.exists() else []

    def stop(self) -> None:
        """End the forking process, then the server. If the server does not end in time, kill its process group."""
        self._kernels.kill()
        self._kernels.wait()
        shutil.rmtree(self._address.parent)
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


def launch_browser(playwright: Playwright, profile: Path) -> BrowserContext:
    """Start Chromium with the profile in the folder `profile`. This browser can connect only to this machine.

    A command-line argument blocks other addresses. Playwright's routes could block them too, but routes disable the
    browser's cache, so each page would compile JupyterLab's code again.
    """
    arguments = ["--disable-gpu", "--disable-quic", "--disable-dev-shm-usage"]
    arguments.append("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # as root, Chromium starts only with this flag
    return playwright.chromium.launch_persistent_context(
        profile, executable_path=find_chromium(), headless=True, args=arguments, viewport=VIEWPORT
    )


class Lab:
    """JupyterLab in one browser tab, as one test sees it.

    Attributes
    ----------
    page : playwright.sync_api.Page
    folder : Path
        The working directory of the test's kernels. It has a copy of the project's notebooks.
    outside : list of str
        Addresses of other machines that the page requested. The browser refused each request.
    console : list of str
        Warnings and errors in the browser's console, and the page's uncaught exceptions.
    """

    def __init__(self, server: LabServer, context: BrowserContext, name: str, screenshots: Path) -> None:
        self.server = server
        self.name = re.sub(r"\W+", "-", name).strip("-")
        self.folder = server.root / self.name
        if NOTEBOOKS.is_dir():
            shutil.copytree(NOTEBOOKS, self.folder, ignore=shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__"))
        self.folder.mkdir(exist_ok=True)
        self.screenshots = screenshots
        self.keeps_screenshots = SCREENSHOTS in os.environ
        self.outside: list[str] = []
        self.console: list[str] = []
        self._outside_before = len(server.outside())
        self.page: Page = context.new_page()
        self.page.set_default_timeout(90_000)
        self.page.on("request", self._see_request)
        self.page.on("websocket", self._see_websocket)
        self.page.on("console", self._see_console)
        self.page.on("pageerror", lambda error: self.console.append(f"uncaught: {error}"))

    def _is_local(self, url: str) -> bool:
        parts = urllib.parse.urlsplit(url)
        return parts.scheme in ("data", "blob", "about") or parts.hostname == "127.0.0.1"

    def _see_request(self, request: Request) -> None:
        if not self._is_local(request.url):
            self.outside.append(request.url)

    def _see_websocket(self, websocket: WebSocket) -> None:
        if not self._is_local(websocket.url):
            self.outside.append(websocket.url)

    def _see_console(self, message: ConsoleMessage) -> None:
        if message.type in ("warning", "error"):
            self.console.append(f"{message.type}: {message.text}")

    def write_notebook(self, name: str, cells: Sequence[str]) -> Path:
        """Write a notebook of these code cells into the test's folder. Its kernel will be forked. Return its path."""
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source) for source in cells],
            metadata={"kernelspec": {"name": forked_kernels.NAME, "display_name": "Python 3", "language": "python"}},
        )
        path = self.folder / name
        nbformat.write(notebook, path)
        return path

    def open_notebook(self, name: str, timeout_s: float = 90) -> None:
        """Open a notebook of the test's folder in an empty workspace of JupyterLab. Wait until its kernel is idle."""
        path = urllib.parse.quote(f"{self.name}/{name}")
        self.page.goto(f"{self.server.url}/lab/workspaces/{self.name}/tree/{path}?reset", timeout=timeout_s * 1000)
        self.page.wait_for_selector(
            '.jp-Notebook-ExecutionIndicator[data-status="idle"]', state="attached", timeout=timeout_s * 1000
        )
        self.page.evaluate("async () => { await jupyterapp.shell.currentWidget.sessionContext.ready; }")

    def open_file(self, name: str, timeout_s: float = 90) -> None:
        """Open a file of the test's folder with its default viewer, in an empty workspace of JupyterLab."""
        path = urllib.parse.quote(f"{self.name}/{name}")
        self.page.goto(f"{self.server.url}/lab/workspaces/{self.name}/tree/{path}?reset", timeout=timeout_s * 1000)
        self.page.wait_for_selector("#jupyterlab-splash", state="detached", timeout=timeout_s * 1000)

    def run_all(self) -> None:
        """Start all cells of the open notebook. `wait_marker` waits for the output of the last cell."""
        self.page.evaluate("() => { void jupyterapp.commands.execute('notebook:run-all-cells'); }")

    def run_cell(self, index: int) -> None:
        """Start one cell of the open notebook. `index` counts all cells, also text cells, from 0."""
        self.page.evaluate(
            """index => {
                jupyterapp.shell.currentWidget.content.activeCellIndex = index;
                void jupyterapp.commands.execute('notebook:run-cell');
            }""",
            index,
        )

    def outputs(self) -> list[dict[str, Any]]:
        """Return all outputs of the open notebook in nbformat's form, also outputs that are scrolled out of view."""
        outputs: list[dict[str, Any]] = self.page.evaluate(
            """() => Array.from(jupyterapp.shell.currentWidget.content.model.cells)
                .flatMap(cell => cell.outputs ? cell.outputs.toJSON() : [])"""
        )
        return outputs

    def text(self) -> str:
        """Return all text that the open notebook's cells have printed or shown, in order."""
        return "".join(_output_text(output) for output in self.outputs())

    def wait_marker(self, marker: str, timeout_s: float = 120) -> None:
        """Wait until a cell has printed `marker`. If a cell raises an error, fail at once with its traceback."""
        give_up, pause_ms = time.monotonic() + timeout_s, 50.0
        while True:
            outputs = self.outputs()
            text = "".join(_output_text(output) for output in outputs)
            failed = next((output for output in outputs if output["output_type"] == "error"), None)
            assert failed is None, f"a cell failed while waiting for {marker!r}:\n{_output_text(failed or {})}"
            if marker in text:
                return
            assert time.monotonic() < give_up, f"no {marker!r} in {timeout_s} s; printed so far:\n{text[-2000:]}"
            self.page.wait_for_timeout(pause_ms)
            pause_ms = min(1.1 * pause_ms, LEAST_OFTEN_MS)

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 60) -> None:
        """Wait until `condition()` is true, while the page keeps running."""
        give_up, pause_ms = time.monotonic() + timeout_s, 30.0
        while not condition():
            assert time.monotonic() < give_up, f"the condition did not become true in {timeout_s} s"
            self.page.wait_for_timeout(pause_ms)
            pause_ms = min(1.1 * pause_ms, LEAST_OFTEN_MS)

    def kernel_eval(self, code: str, timeout_s: float = 90) -> str:
        """Run code in the open notebook's kernel. Return its printed text, followed by its last expression as text.

        The notebook does not record the code. If a cell is running, the code runs after the cell. If the code raises an
        error, an `AssertionError` with the kernel's traceback is raised.
        """
        # If a cell fails, the kernel aborts the requests that arrived while it ran. Send an aborted request again.
        outputs = self.page.evaluate(
            """async ([code, timeout_ms]) => {
                const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
                const give_up = Date.now() + timeout_ms;
                for (;;) {
                    const future = kernel.requestExecute({code, store_history: false, stop_on_error: false});
                    const outputs = [];
                    future.onIOPub = message => {
                        const type = message.header.msg_type;
                        if (['stream', 'execute_result', 'error'].includes(type))
                            outputs.push({output_type: type, ...message.content});
                    };
                    let timer;
                    const late = new Promise((_, reject) => {
                        timer = setTimeout(
                            () => reject(new Error(`no answer in ${timeout_ms} ms`)), give_up - Date.now());
                    });
                    let reply;
                    try { reply = await Promise.race([future.done, late]); } finally { clearTimeout(timer); }
                    if (reply.content.status !== 'aborted') return outputs;
                }
            }""",
            [code, timeout_s * 1000],
        )
        text = "".join(_output_text(output) for output in outputs)
        assert not any(output["output_type"] == "error" for output in outputs), f"in the kernel, {code!r}:\n{text}"
        return text.removesuffix("\n")

    def click_canvas(self, x: float, y: float, canvas: str | Locator = ".jp-OutputArea canvas", **options: Any) -> None:
        """Click a position of a canvas, in CSS pixels from its upper left corner, after scrolling it into view.

        `canvas` is a locator, or a selector whose first match is used. `options` are passed to Playwright's `click`
        (`button`, `modifiers`, `click_count`).
        """
        locator = self.page.locator(canvas).first if isinstance(canvas, str) else canvas
        locator.click(position={"x": x, "y": y}, **options)

    def screenshot(self, name: str, of: str | Locator | None = None) -> None:
        """Save an image as `image` does, but only if the variable WORKBENCH_SCREENSHOTS names a folder for images."""
        if self.keeps_screenshots:
            self.image(name, of)

    def image(self, name: str, of: str | Locator | None = None) -> Path:
        """Save an image of the tab, or of the element `of` (selector or locator), as `NAME.png`. Return its path."""
        path = self.screenshots / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        if of is None:
            self.page.screenshot(path=path)
        else:
            locator = self.page.locator(of).first if isinstance(of, str) else of
            locator.screenshot(path=path)
        return path

    def asked_outside(self) -> list[str]:
        """Return the addresses of other machines that the page, the server and kernels requested during this test."""
        return self.outside + self.server.outside()[self._outside_before :]

    def forget_outside(self) -> None:
        """Remove the requests so far from `asked_outside`. A test calls this after requests on purpose."""
        self.outside.clear()
        self._outside_before = len(self.server.outside())

    def close(self) -> None:
        """End all kernels of the server. Close the tab without the browser's question whether to leave the page."""
        if not self.page.is_closed():
            if self.page.evaluate("typeof jupyterapp !== 'undefined'"):
                self.page.evaluate("async () => { await jupyterapp.serviceManager.sessions.shutdownAll(); }")
            self.page.close()


def _output_text(output: dict[str, Any]) -> str:
    kind = output.get("output_type")
    if kind == "stream":
        return _joined(output["text"])
    if kind == "error":
        # Remove colour codes, which make a traceback unreadable in a test report.
        return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output["traceback"])) + "\n"
    return _joined(output.get("data", {}).get("text/plain", "")) + "\n"


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
