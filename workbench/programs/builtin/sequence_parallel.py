"""`sequence_parallel`: gather a sequence's shards and multiply, as a whole or in chunks.

The program shows how a benchmark can mislead. With chunks, the multiplication of one shard can overlap the gathering of
the next shard. `Deception` runs the chunked variant on streams, so the call returns long before its work is done. A
benchmark without synchronization therefore shows this variant as fast.
"""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from workbench.programs.registry import at_least, program


@program
def sequence_parallel(
    *,
    chunks: int = 4,
    rows: int = 64,
    width: int = 64,
    hidden: int = 128,
    variant: Literal["whole", "chunked"] = "chunked",
) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """Linear layer on a sequence that is split into shards: gather all and multiply once, or copy and multiply each."""
    at_least(1, chunks=chunks, rows=rows, width=width, hidden=hidden)

    def whole(weight: Tensor, *shards: Tensor) -> Tensor:
        return torch.cat(shards) @ weight

    def chunked(weight: Tensor, *shards: Tensor) -> Tensor:
        return torch.cat([shard.clone() @ weight for shard in shards])

    weight = torch.randn(width, hidden, requires_grad=True)
    shards = [torch.randn(rows, width, requires_grad=True) for _ in range(chunks)]
    return (whole if variant == "whole" else chunked), (weight, *shards)


class HostStream:
    """A stream on a CPU: a thread that does the issued work in order, while the issuing thread continues."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="host-stream", daemon=True)
        self._thread.start()

    def issue(self, work: Callable[[], Any]) -> None:
        """Do `work` after all work that was issued before; return at once."""
        self._work.put(work)

    def synchronize(self) -> None:
        """Wait until all issued work is done."""
        done = threading.Event()
        self._work.put(done.set)
        done.wait()

    def close(self) -> None:
        """Wait until all issued work is done, and end the thread."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


class Deception:
    """Both variants on a CPU: ``whole`` computes on the caller's thread, ``chunked`` issues its work to streams.

    Parameters
    ----------
    chunks, rows, width, hidden : int
        As in `sequence_parallel`. The default chunks are small, so they add more time than the overlap saves.
    """

    def __init__(self, *, chunks: int = 64, rows: int = 8, width: int = 512, hidden: int = 512) -> None:
        self._weight = torch.randn(width, hidden)
        self._shards = torch.randn(chunks, rows, width)
        self._gathered = torch.empty(chunks, rows, width)
        self.output = torch.empty(chunks * rows, hidden)
        self._copies, self._products = HostStream(), HostStream()
        self.variants: dict[str, Callable[[], None]] = {"whole": self.whole, "chunked": self.chunked}

    def whole(self) -> None:
        """Gather, then compute one product; the work is done on return."""
        torch.matmul(torch.cat(tuple(self._shards)), self._weight, out=self.output)

    def chunked(self) -> None:
        """Copy each chunk on one stream and multiply it on another; return when all work is issued."""
        for at in range(len(self._shards)):
            copied = threading.Event()
            self._copies.issue(functools.partial(self._copy, at, copied))
            self._products.issue(functools.partial(self._multiply, at, copied))

    def synchronize(self) -> None:
        """Wait for both streams."""
        self._copies.synchronize()
        self._products.synchronize()

    def close(self) -> None:
        """End the streams."""
        self._copies.close()
        self._products.close()

    def _copy(self, chunk: int, copied: threading.Event) -> None:
        self._gathered[chunk].copy_(self._shards[chunk])
        copied.set()

    def _multiply(self, chunk: int, copied: threading.Event) -> None:
        copied.wait()
        rows = self._shards.shape[1]
        self.output[chunk * rows : (chunk + 1) * rows].copy_(self._gathered[chunk] @ self._weight)
