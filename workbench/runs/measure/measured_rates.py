"""Machines by name: machines with published rates, and this machine, whose rates are measured at first use."""

from __future__ import annotations

import dataclasses
import functools
import platform
import socket
import threading
import time
from collections.abc import Callable

from workbench.analysis.cost.machines import MACHINES, Machine
from workbench.errors import ConfigError, suggest_names

THIS_CPU = "this CPU"
THIS_GPU = "this GPU"
"""Name of the first attached GPU. It is not in `MACHINE_NAMES`, because most machines have no GPU."""
MACHINE_NAMES = (*MACHINES, THIS_CPU)

_ROUNDS = 3
"""Number of rounds per rate. The fastest round counts, because other work on the machine only slows rounds down."""
_WIDTHS = {"float32": 1024, "bfloat16": 256, "float16": 256}
"""Rows and columns of the matrices for each dtype.

Half precision has smaller matrices, because a CPU without instructions for half precision takes a hundred times as
long.
"""
_GPU_WIDTH = 8192
_GPU_COPIED = 1 << 30
_COPIED = 1 << 26
_SENT = 1 << 25
_ECHOES = 200
_LAUNCHES = 2000


def machine_by_name(name: str, ranks: int = 1) -> Machine:
    """Return a machine by its name.

    Parameters
    ----------
    name : str
        One of `MACHINE_NAMES`, or `THIS_GPU`.
    ranks : int
        Number of processes on the machine. Processes on a CPU share the CPU; on GPUs, each process has its own GPU.

    Raises
    ------
    ConfigError
        If no machine has that name.
    DeviceError
        If the name is `THIS_GPU` and no GPU is attached.
    """
    check_machine(name)
    if name == THIS_CPU:
        with _MEASURING:
            whole = _this_cpu()
        return dataclasses.replace(
            whole,
            flops_per_s={dtype: rate / ranks for dtype, rate in whole.flops_per_s.items()},
            bytes_per_s=whole.bytes_per_s / ranks,
            link_bytes_per_s=whole.link_bytes_per_s / ranks,
        )
    if name == THIS_GPU:
        with _MEASURING:
            return _this_gpu()
    return MACHINES[name]


_MEASURING = threading.Lock()
"""Held while rates are measured, so that several apps measure them once, and not at the same time."""


def check_machine(name: str) -> None:
    """Refuse an unknown machine name before anything is measured.

    Raises
    ------
    ConfigError
        If no machine has that name.
    """
    legal = [*MACHINE_NAMES, THIS_GPU]
    if name not in legal:
        raise ConfigError(f"there is no machine {name!r}; legal: {', '.join(legal)}{suggest_names(str(name), legal)}")


@functools.cache
def _this_cpu() -> Machine:
    """Measure the rates of this CPU, in about a second.

    The measurement runs matmuls, a copy and a small operator. It also sends bytes through the loopback, which gloo uses
    between ranks on one machine.
    """
    import torch

    flops = {}
    for dtype, width in _WIDTHS.items():
        left, right = (torch.ones(width, width, dtype=getattr(torch, dtype)) for _ in range(2))
        flops[dtype] = 2 * width**3 / _best(functools.partial(torch.mm, left, right))
    source, target = (torch.ones(_COPIED, dtype=torch.uint8) for _ in range(2))
    one = torch.ones(1)

    def launches() -> None:
        for _ in range(_LAUNCHES):
            torch.add(one, one)

    sending_s, echo_s = _loopback()
    return Machine(
        name=THIS_CPU,
        source=f"measured here, {torch.get_num_threads()} threads on {platform.machine()}: matmuls, a copy, "
        "small ops, and a socket on the loopback; shared evenly among the ranks",
        flops_per_s=flops,
        bytes_per_s=2 * _COPIED / _best(functools.partial(target.copy_, source)),
        link_bytes_per_s=_SENT / sending_s,
        launch_s=_best(launches) / _LAUNCHES,
        latency_s=echo_s,
    )


@functools.cache
def _this_gpu() -> Machine:
    """Measure the rates of this GPU, in a few seconds.

    The measurement runs matmuls, a copy, small operators, and copies to the next GPU or, with one GPU, to the host.
    """
    import torch

    from workbench.errors import DeviceError

    if not torch.cuda.is_available():
        raise DeviceError("no CUDA device is attached, so its rates cannot be measured")

    def synchronized(act: Callable[[], object]) -> Callable[[], None]:
        def act_and_wait() -> None:
            act()
            torch.cuda.synchronize()

        return act_and_wait

    flops = {}
    for dtype in _WIDTHS:
        left, right = (torch.ones(_GPU_WIDTH, _GPU_WIDTH, dtype=getattr(torch, dtype), device="cuda") for _ in range(2))
        flops[dtype] = 2 * _GPU_WIDTH**3 / _best(synchronized(functools.partial(torch.mm, left, right)))
    source, target = (torch.ones(_GPU_COPIED, dtype=torch.uint8, device="cuda") for _ in range(2))
    alone = torch.cuda.device_count() < 2
    beside = (
        torch.empty_like(source, device="cpu", pin_memory=True) if alone else torch.empty_like(source, device="cuda:1")
    )
    one = torch.ones(1, device="cuda")

    def launches() -> None:
        for _ in range(_LAUNCHES):
            torch.add(one, one)

    launching_s = _best(launches) / _LAUNCHES
    torch.cuda.synchronize()
    return Machine(
        name=THIS_GPU,
        source=f"measured here on {torch.cuda.get_device_name()}: matmuls, a copy, small ops, and copies to "
        + ("the host" if alone else "the next GPU"),
        flops_per_s=flops,
        bytes_per_s=2 * _GPU_COPIED / _best(synchronized(functools.partial(target.copy_, source))),
        link_bytes_per_s=_GPU_COPIED / _best(synchronized(functools.partial(beside.copy_, source))),
        launch_s=launching_s,
    )


def _best(act: Callable[[], object]) -> float:
    """Call `act` once to warm up, then `_ROUNDS` times; return the seconds of the fastest call."""
    act()
    taken = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        act()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def _loopback() -> tuple[float, float]:
    """Return the seconds to send `_SENT` bytes through a loopback socket, and to send one byte back and forth."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
    with here, there:
        for end in (here, there):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = bytes(_SENT)
        rounds = _ROUNDS + 1

        def answer() -> None:
            taken = bytearray(1 << 20)
            for _ in range(rounds):
                left = _SENT
                while left:
                    left -= there.recv_into(taken, min(left, len(taken)))
                there.sendall(b"!")
            for _ in range(rounds * _ECHOES):
                there.sendall(there.recv(1))

        def send() -> None:
            here.sendall(sent)
            here.recv(1)

        def echo() -> None:
            for _ in range(_ECHOES):
                here.sendall(b"!")
                here.recv(1)

        thread = threading.Thread(target=answer, name="workbench-loopback", daemon=True)
        thread.start()
        found = _best(send), _best(echo) / _ECHOES
        thread.join()
    return found
