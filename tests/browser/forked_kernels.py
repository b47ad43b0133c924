"""Fork kernels from one process that has imported the notebooks' libraries, because an import takes 5 s.

``python forked_kernels.py SOCKET`` starts the forking process. For each kernel, Jupyter starts a client: ``python
forked_kernels.py SOCKET CONNECTION_FILE``. The client requests a kernel, lives as long as the kernel, and forwards
signals to it.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

NAME = "forked"
"""Name of the kernel spec of forked kernels. Kernels of the spec `python3` are not forked."""


def write_spec(folder: Path, address: Path) -> None:
    """Write the kernel spec of forked kernels into `folder`. `address` is the socket of the forking process."""
    (folder / NAME).mkdir(parents=True)
    argv = [sys.executable, "-I", "-S", __file__, str(address), "{connection_file}"]
    spec = {"argv": argv, "display_name": "Python 3, forked", "language": "python", "interrupt_mode": "signal"}
    (folder / NAME / "kernel.json").write_text(json.dumps(spec))


@contextlib.contextmanager
def served(environment: dict[str, str]) -> Iterator[str]:
    """Run the forking process during the `with` block. Yield a folder for ``JUPYTER_PATH`` with the kernel spec."""
    with tempfile.TemporaryDirectory(prefix="kernels-") as folder:
        address = Path(folder) / "door"
        write_spec(Path(folder) / "kernels", address)
        # A process that forks may have only one thread. With this variable, NumPy starts no threads at its import.
        server = subprocess.Popen(
            [sys.executable, __file__, str(address)],
            env=environment | {"OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while not address.exists():
                assert server.poll() is None, "the forking process ended; its output says why"
                time.sleep(0.02)
            yield folder
        finally:
            server.kill()
            server.wait()


def ask(address: str, connection_file: str) -> None:
    """Request a forked kernel, and return when the kernel ends. If this process ends first, the kernel ends too."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(address)
        told = {"connection_file": connection_file, "environment": dict(os.environ), "folder": os.getcwd()}
        link.sendall(json.dumps(told).encode() + b"\n")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: link.send(bytes([number])))
        while link.recv(1):
            pass


def serve(address: str) -> None:
    """Fork a kernel for each request, forever."""
    import anywidget  # noqa: F401
    import bokeh.plotting  # noqa: F401
    import ipykernel.kernelapp  # noqa: F401
    import ipywidgets  # noqa: F401
    import thunder  # noqa: F401

    import workbench.ui.app.app  # noqa: F401

    def reap(*_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    signal.signal(signal.SIGCHLD, reap)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(address)
        door.listen()
        while True:
            link, _ = door.accept()
            threads = len(os.listdir("/proc/self/task"))
            assert threads == 1, f"{threads} threads: only one of them would be in the kernel"
            if os.fork() == 0:
                door.close()
                be_kernel(link)
            link.close()


def be_kernel(link: socket.socket) -> None:
    """Run a kernel until Jupyter shuts it down, or until the client that requested it has ended."""
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    told = json.loads(link.makefile("rb").readline())
    os.environ.clear()
    os.environ.update(told["environment"])
    os.chdir(told["folder"])
    sys.argv = ["ipykernel_launcher", "-f", told["connection_file"]]
    sys.path[0] = ""

    def obey() -> None:
        while number := link.recv(1):
            os.kill(os.getpid(), number[0])
        os._exit(1)

    threading.Thread(target=obey, daemon=True).start()
    IPKernelApp.launch_instance()
    os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        ask(*sys.argv[1:])
