"""Refuse and record each connection beyond this machine, in the server, its kernels and their workers.

Python imports a module of this name at start if it is on the path; the harness adds this folder to PYTHONPATH. The file
named by `WORKBENCH_OUTSIDE` holds the attempts, one per line.
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
