"""A program that samples the memory of a worker that uses a GPU, even while nvFuser blocks the worker's Python threads.

nvFuser holds the worker's interpreter lock while it compiles a fusion, for up to several seconds. During 20 s of
compilation on an H100, a sampling thread took no samples while a fusion compiled, and one sample between two fusions.
This program starts in a thirtieth of a second, because it needs only the standard library.

This program has four arguments: the log's descriptor, the worker's process id, the time at which the log was opened,
and the interval in seconds. The time is a reading of `time.perf_counter`, because all processes of a machine share this
clock. The worker writes the figures of the device's allocator to this program's standard input, one JSON object per
line. An empty line ends the program.
"""

from __future__ import annotations

import json
import os
import resource
import select
import sys
import time


def main(log: int, pid: int, start_s: float, interval_s: float) -> None:
    """Write samples into the log until the worker ends or sends an empty line."""
    statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
    os.set_blocking(0, False)
    device = {"allocated_bytes": None, "reserved_bytes": None, "fragmented_bytes": None}
    told = b""
    due_s = time.perf_counter() + interval_s
    while True:
        if select.select([0], [], [], max(0.0, due_s - time.perf_counter()))[0]:
            some = os.read(0, 1 << 16)
            if not some:
                return
            *lines, told = (told + some).split(b"\n")
            if b"" in lines:
                return
            device = json.loads(lines[-1]) if lines else device
            continue
        # Check the parent, too: a forked copy of the worker may still hold the pipe open.
        if os.getppid() != pid:
            return
        pages = os.pread(statm, 128, 0).split()[1]
        now_s = time.perf_counter()
        sample = {
            "type": "memory_sample",
            "t_s": now_s - start_s,
            "rss_bytes": int(pages) * resource.getpagesize(),
            **device,
        }
        os.write(log, json.dumps(sample, separators=(",", ":")).encode() + b"\n")
        due_s = max(due_s + interval_s, now_s)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
