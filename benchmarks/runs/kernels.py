"""Run a real notebook kernel with a given version of ipykernel, and send cells and clicks to the kernel."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

ROOT = Path(__file__).parents[2]

ANSWER_S = 600.0

NUDGE_S = 5.0
"""Seconds after which another client connects, if the kernel has not begun a cell. See `Kernel.start`."""


def install(folder: Path, version: str) -> Path:
    """Install a version of ipykernel into a new folder, and leave the environment unchanged. Return the folder."""
    target = folder / f"ipykernel-{version}"
    wanted = ["--target", str(target), "--no-deps", f"ipykernel=={version}"]
    uv = shutil.which("uv")
    has_uv = uv is not None and subprocess.run([uv, "--version"], capture_output=True, check=False).returncode == 0
    command = [uv, "pip", "install", "--python"] if has_uv else []
    pip = [sys.executable, "-m", "pip", "install"]
    subprocess.run([*command, sys.executable, *wanted] if command else [*pip, *wanted], check=True, capture_output=True)
    return target


class Kernel:
    """A kernel, and a client that sends the same messages as JupyterLab.

    Parameters
    ----------
    folder : Path
        A new folder for the kernel's runs and temporary files.
    ipykernel : Path, optional
        A folder with a version of ipykernel, from `install`. By default the environment's version is used.
    """

    def __init__(self, folder: Path, ipykernel: Path | None = None) -> None:
        self.runs, self.temporary = folder / "runs", folder / "tmp"
        self.runs.mkdir(parents=True)
        self.temporary.mkdir()
        paths = [*([str(ipykernel)] if ipykernel is not None else []), str(ROOT)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "WORKBENCH_RUNS": str(self.runs),
            "TMPDIR": str(self.temporary),
            "IPYTHONDIR": str(folder / "ipython"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        }
        self._manager = KernelManager(connection_file=str(folder / "kernel.json"))
        self._manager._kernel_spec = KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        )
        self._manager.start_kernel(env=environment, cwd=str(folder))
        self.client: BlockingKernelClient = self._manager.blocking_client()
        self.client.start_channels()
        try:
            self.client.wait_for_ready(timeout=ANSWER_S)
        except BaseException:
            self.stop()
            raise
        self.pid: int = self._manager.provisioner.pid
        self.nudges = 0

    def stop(self) -> None:
        """End the kernel, even during a cell."""
        self.client.stop_channels()
        self._manager.shutdown_kernel(now=True)

    def start(self, code: str) -> str:
        """Start a cell, wait until it has begun, and return the id that `finish` needs.

        Before version 7.4, ipykernel may not read a request until another client connects (its pull request 1529). If a
        cell does not begin, this method connects another client, as reloading the page would. `nudges` counts these
        connections.
        """
        cell = self.client.execute(code, store_history=False)
        give_up = time.monotonic() + ANSWER_S
        while not self._begins(cell):
            assert time.monotonic() < give_up, f"a cell has not begun in {ANSWER_S:g} s and {self.nudges} nudges"
            self.nudges += 1
            another = self._manager.blocking_client()
            another.start_channels(shell=True, iopub=False, stdin=False, hb=False, control=False)
            another.kernel_info()
            another.stop_channels()
        return cell

    def _begins(self, cell: str) -> bool:
        give_up = time.monotonic() + NUDGE_S
        with contextlib.suppress(queue.Empty):
            while (left_s := give_up - time.monotonic()) > 0:
                message = self.client.get_iopub_msg(timeout=left_s)
                if message["msg_type"] == "status" and message["parent_header"].get("msg_id") == cell:
                    return True
        return False

    def finish(self, cell: str, timeout_s: float = ANSWER_S) -> str:
        """Wait until a cell has ended. Return its output."""
        printed = ""
        give_up = time.monotonic() + timeout_s
        while True:
            message = self.client.get_iopub_msg(timeout=max(0.01, give_up - time.monotonic()))
            if message["parent_header"].get("msg_id") != cell:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                printed += content["text"]
            elif kind == "error":
                raise AssertionError("\n".join(content["traceback"]))
            elif kind == "status" and content["execution_state"] == "idle":
                return printed

    def execute(self, code: str) -> str:
        """Run a cell to its end. Return its output."""
        return self.finish(self.start(code))

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the output messages that arrived since the last call."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self.client.get_iopub_msg(timeout=0)

    @staticmethod
    def told(printed: str) -> list[str]:
        """Return the words after ``told`` in the first line of a cell's output that begins with ``told``."""
        return next(line.split()[1:] for line in printed.splitlines() if line.startswith("told "))

    def subshell(self) -> str:
        """Create a subshell, as JupyterLab does for the messages of widgets. Return its id."""
        request = self.client.session.msg("create_subshell_request")
        self.client.control_channel.send(request)
        while True:
            reply = self.client.get_control_msg(timeout=ANSWER_S)
            if reply["parent_header"].get("msg_id") == request["header"]["msg_id"]:
                return reply["content"]["subshell_id"]

    def press(self, comm: str, subshell: str, message: dict[str, Any]) -> None:
        """Send the message that a panel of the app sends when a user clicks."""
        content = {"comm_id": comm, "data": {"method": "custom", "content": message}}
        request = self.client.session.msg("comm_msg", content)
        request["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(request)


@contextlib.contextmanager
def kernel(folder: Path, ipykernel: Path | None = None) -> Iterator[Kernel]:
    """Start a kernel and yield it. End the kernel when the `with` block ends."""
    made = Kernel(folder, ipykernel)
    try:
        yield made
    finally:
        made.stop()
