"""Refuse and record each connection to another machine, in the server, its kernels and their workers.

The harness adds this folder to PYTHONPATH. Python imports a module of this name at its start if the module is on the
path. The attempts are written to the file that `WORKBENCH_OUTSIDE` names, one on each line.
"""

import ipaddress
import os
import socket
import sys

LOCAL_NAMES = {None, "", "localhost", socket.gethostname()}


def is_local(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode()
    if host in LOCAL_NAMES:
        return True
    try:
        address = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def refuse_outside(event: str, args: tuple[object, ...]) -> None:
    if event == "socket.getaddrinfo":
        host = args[0]
    elif event in ("socket.connect", "socket.sendto") and isinstance(args[1], tuple):
        host = args[1][0]
    else:
        return
    if is_local(host):
        return
    with open(os.environ["WORKBENCH_OUTSIDE"], "a") as file:
        file.write(f"{event} {host} from {sys.argv[:3]}\n")
    raise ConnectionRefusedError(f"the tests have no network, and {event} asked for {host!r}")


if "WORKBENCH_OUTSIDE" in os.environ:
    sys.addaudithook(refuse_outside)
