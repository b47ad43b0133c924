"""Read from PyTorch's metrics how long each of PyTorch's compilers took to compile a fusion of torch.compile."""

from __future__ import annotations

from workbench.interop.torch_private import dynamo_utils

_FRAME = "_compile.compile_inner"
_BACKEND = "OutputGraph.call_user_compiler"
_INDUCTOR = ("compile_fx.<locals>.fw_compiler_base", "AOTAutogradCache.inductor_load")
_KERNELS = "PyCodeCache.load_by_key_path"


class RegionTimes:
    """Times of PyTorch's compilers since this object was made.

    PyTorch's metrics are nested. Dynamo's time includes AOTAutograd's time. AOTAutograd's time includes Inductor's
    time. Inductor's time includes the time to compile and load kernels.
    """

    def __init__(self) -> None:
        self._before = {key: sum(seconds) for key, seconds in dynamo_utils.compilation_time_metrics.items()}
        self._hits_before = _hits()

    def parts(self) -> dict[str, float]:
        """Return seconds by compiler (Dynamo, AOTAutograd, Inductor, kernels) since this object was made.

        The seconds of a compiler do not include the seconds of the compilers that it calls. The result is empty if no
        compiler ran.
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
