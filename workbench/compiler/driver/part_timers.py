"""Measure the time of each part of a program: the calls of the part, and the backwards that Thunder compiled."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from workbench.compiler.frontend.graph_breaks import CompiledParts
from workbench.compiler.interop.double_backward import ThunderFunction

FORWARD, BACKWARD = "forward", "backward"

type Interval = tuple[Any, Any]


class PartTimers:
    """Timers around the parts of a compiled program.

    On a GPU, CUDA events measure the times. On a CPU, the times are wall times. The backward of an opaque part has no
    timer, because it is not one function: PyTorch runs it operator by operator.

    Parameters
    ----------
    parts : CompiledParts
    device_type : str
        ``cpu`` or ``cuda``.
    """

    def __init__(self, parts: CompiledParts, device_type: str) -> None:
        self._parts = parts
        self._on_gpu = device_type == "cuda"
        self._intervals: defaultdict[tuple[str, str], list[Interval]] = defaultdict(list)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Time all parts that run inside of this context."""
        self._parts.timer = self._call
        try:
            yield
        finally:
            self._parts.timer = None

    def take(self) -> dict[tuple[str, str], float]:
        """Return the seconds of each part's forward and backward since the last call of this method.

        A key of the result is a pair of a part's key and ``forward`` or ``backward``. Synchronize the device before
        this call.
        """
        taken = {which: sum(map(self._seconds, found)) for which, found in self._intervals.items()}
        self._intervals.clear()
        return taken

    def _seconds(self, interval: Interval) -> float:
        begin, end = interval
        seconds: float = begin.elapsed_time(end) / 1e3 if self._on_gpu else (end - begin) / 1e9
        return seconds

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _call(self, key: str, run: Callable[..., Any], given: Sequence[Any]) -> Any:
        begin = self._now()
        results = run(*given)
        self._intervals[key, FORWARD].append((begin, self._now()))
        values = results if isinstance(results, tuple | list) else (results,)
        found = {value.grad_fn for value in values if isinstance(value, torch.Tensor)}
        for node in _compiled_backwards(found):
            self._time_backward(key, node)
        return results

    def _time_backward(self, key: str, node: Any) -> None:
        begins: list[Any] = []
        node.register_prehook(lambda _: begins.append(self._now()))
        node.register_hook(lambda *_: self._intervals[key, BACKWARD].append((begins.pop(), self._now())))


def _compiled_backwards(nodes: set[Any]) -> set[Any]:
    """Return the autograd nodes that run a backward compiled by Thunder, given the autograd nodes of a part's results.

    Thunder creates two autograd nodes for a part. The node of the results only passes gradients to the other node, and
    the other node runs the backward.
    """
    near = nodes | {above for node in nodes if node is not None for above, _ in node.next_functions}
    return {node for node in near if isinstance(node, ThunderFunction._backward_cls)}
