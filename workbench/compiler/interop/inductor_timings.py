"""Seconds of each compiler in one torch.compile region, from PyTorch's own compile-time metrics."""

from __future__ import annotations

from workbench.interop.torch_private import dynamo_utils

_FRAME = "_compile.compile_inner"
_BACKEND = "OutputGraph.call_user_compiler"
_INDUCTOR = ("compile_fx.<locals>.fw_compiler_base", "AOTAutogradCache.inductor_load")
_KERNELS = "PyCodeCache.load_by_key_path"


class RegionTimes:
    """Times of PyTorch's compilers since this object was made.

    PyTorch's times are nested: the time of Dynamo includes the time of its backend AOTAutograd, this time includes the
    time of Inductor, and this time includes the time to compile and load kernels.
    """

    def __init__(self) -> None:
        self._before = {key: sum(seconds) for key, seconds in dynamo_utils.compilation_time_metrics.items()}
        self._hits_before = _hits()

    def parts(self) -> dict[str, float]:
        """Return each compiler's seconds since this object was made; empty if no compiler ran.

        The seconds of a compiler do not include the seconds of the compilers that it calls.
        """
        frame, backend, kernels = (self._spent(key) for key in (_FRAME, _BACKEND, _KERNELS))
        inductor = sum(self._spent(key) for key in _INDUCTOR)
        if not frame:
            return {}
        kernels = min(kernels, inductor)
        return {
            "Dynamo": max(0.0, frame - backend),
            "AOTAutograd": max(0.0, backend - inductor),
            "Inductor": inductor - kernels,
            "kernels": kernels,
        }

    def was_cached(self) -> bool:
        """Return whether AOTAutograd or Inductor found results in a cache since this object was made."""
        return _hits() > self._hits_before

    def _spent(self, key: str) -> float:
        now = sum(dynamo_utils.compilation_time_metrics.get(key, ()))
        return float(now - self._before.get(key, 0.0))


def _hits() -> int:
    counters = dynamo_utils.counters
    return int(counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"])
