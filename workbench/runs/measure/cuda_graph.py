"""A step as one CUDA graph. Its time excludes the host's kernel launches, because the host only starts the replay."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from workbench.errors import RunError
from workbench.runs.measure.accuracy import Stepper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAME = "CUDA graph"
"""Name of this variant in a run's step times."""

_WARM_UP = 3
"""Number of steps on a separate stream before the capture. PyTorch requires such steps to initialize libraries."""


class GraphedStepper(Stepper):
    """A `Stepper` that captures one step as a CUDA graph; each further step replays the graph.

    It has the parameters of `Stepper`. The gradients are in the graph's own memory, and each replay overwrites them.

    Raises
    ------
    RunError
        If the program is not on a CUDA device, or does something that cannot be captured, such as waiting for the
        device.
    """

    def __init__(
        self,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[..., Any] | None = None,
        *,
        seed: int = 0,
        modes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(original, args, kwargs, run, seed=seed, modes=modes)
        if self.device.type != "cuda":
            raise RunError(f"a CUDA graph is captured on a CUDA device; the program is on {self.device.type}")
        beside = torch.cuda.Stream(self.device)
        beside.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(beside):
            for _ in range(_WARM_UP):
                self.clear_grads()
                super().step()
        torch.cuda.current_stream(self.device).wait_stream(beside)
        self.clear_grads()
        self._graph = torch.cuda.CUDAGraph()
        try:
            # Autograd's thread creates a cuBLAS handle during the capture. Other capture modes would forbid this.
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._outputs = super().step()
        except RuntimeError as error:
            raise RunError(f"the step cannot be captured as a CUDA graph: {_first_reason(error)}") from error

    def step(self) -> Any:
        """Replay the step; return its outputs, which every replay writes to the same memory."""
        self._graph.replay()
        return self._outputs


def _first_reason(error: BaseException) -> str:
    """Return the first line of the error that started the chain of errors.

    The failure of the capture itself is only a consequence of that error.
    """
    while error.__context__ is not None:
        error = error.__context__
    return next(iter(str(error).splitlines()), type(error).__name__)
