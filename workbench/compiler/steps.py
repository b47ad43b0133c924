"""A compiled graph whose later calls take the shortest way that is right: what Thunder checks, PyTorch's guards check.

Thunder looks through its compilations at each call by a function in Python, which checks every input, and connects what
comes out to autograd by more Python. A call that Thunder answered from its cache is noted, with the compilation that
answered. A later one runs that compilation's traces where all that Thunder checks is the same, by PyTorch's own checks:
of each input its type, data type, device, sizes, strides, dispatch keys and whether it needs a gradient, that no two
are one object, which of them share memory, and the global state. Anything else goes through Thunder as before. The
traces are the ones that Thunder would run: outputs and gradients are the same, bit for bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from workbench.compiler.connect import Backward, connect
from workbench.compiler.copies import inside_of
from workbench.compiler.direct import Fits, same_kind, without_modes
from workbench.compiler.thunder_api import PrimIDs, TraceCtx
from workbench.programs.modes import restored

WAYS = 4
"""Kinds of calls that are noted of one graph, such as with other strides; further ones go through Thunder."""

_OWN_CONNECTION = ("is_differentiable_outputs", "thunderfx_disable_split_autograd", "skip_inplace_alias_updates")
"""Options of `thunder.jit` under which what stands around its traces is another."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Way:
    """How a kind of call is answered.

    Attributes
    ----------
    entry : CacheEntry
        Thunder's compilation.
    fits : callable
        Whether a call is of the kind.
    plain : tuple of int
        Places of the inputs that may share memory with others, as Thunder looks at them; none where nothing is written:
        Thunder makes the same traces then, whatever shares memory.
    shared : tuple of int
        Which of `plain` has the memory of each, the first of its kind.
    taken : tuple of int or None
        Places of what the traces are given; None for all, in order.
    kept : tuple of int
        Places of what the last trace is given beside results.
    epilogue : callable or None
        What is done with results; None where they are what is given back.
    """

    entry: Any
    fits: Fits
    plain: tuple[int, ...]
    shared: tuple[int, ...]
    taken: tuple[int, ...] | None
    kept: tuple[int, ...]
    epilogue: Callable[..., Any] | None


class Steps:
    """What `thunder.jit` made of a graph's function, called the shortest way that is right.

    Parameters
    ----------
    jitted : callable
        Of a graph by Dynamo: a function of tensors that reads nothing else, which Thunder would check, too.

    Attributes
    ----------
    straight : int
        Calls so far that Thunder did not look at.
    """

    def __init__(self, jitted: Any) -> None:
        self._jitted = jitted
        self._lc_cs, self._lc_cd = jitted._lc_cs, jitted._lc_cd
        self._ways: tuple[_Way, ...] = ()
        # Calls that are of no kind that can be noted, after which no further one is tried.
        self._tries = 0 if any(self._lc_cd.compile_options.get(name) for name in _OWN_CONNECTION) else WAYS
        self.straight = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph."""
        for way in self._ways:
            # Clocks put another compilation in the place of one.
            if not kwargs and way.fits(*args) and _alias(args, way.plain) == way.shared and self._there(way.entry):
                return self._run(way, args)
        if kwargs or self._tries <= 0 or not (_on_cpu(args) and without_modes(args)):
            return self._by_thunder(*args, **kwargs)
        return self._noted(args)

    def _by_thunder(self, *args: Any, **kwargs: Any) -> Any:
        # It may compile, and is not to do so while another thread has put the process into modes of another program.
        with restored({}):
            return self._jitted(*args, **kwargs)

    def _run(self, way: _Way, args: tuple[Any, ...]) -> Any:
        self.straight += 1
        entry, known = way.entry, self._lc_cs
        given = args if way.taken is None else [args[place] for place in way.taken]
        result = entry.computation_fn(*given)
        if entry.backward_fn is not None:
            data, (saved, others) = result
            backward: Backward = entry.backward_fn
            connect(backward, data["flat_args"], data["flat_output"], saved, others)
            result = tuple(data["output"])
        if way.epilogue is not None:
            result = way.epilogue(*(args[place] for place in way.kept), *result)
        # As Thunder counts what its cache answered.
        known.calls += 1
        known.cache_hits += 1
        known.last_traces, known.last_computation = entry.computation_traces, entry.computation_fn
        return result

    def _noted(self, args: tuple[Any, ...]) -> Any:
        known = self._lc_cs
        plain = tuple(place for place, arg in enumerate(args) if type(arg) is torch.Tensor)
        fits, shared, hits = same_kind(args), _alias(args, plain), known.cache_hits
        result = self._by_thunder(*args)
        self._ways = tuple(way for way in self._ways if self._there(way.entry))
        if known.cache_hits == hits + 1 and len(self._ways) < WAYS:
            way = self._way(args, fits, plain, shared)
            self._ways = self._ways if way is None else (*self._ways, way)
            self._tries -= way is None
        return result

    def _way(self, args: tuple[Any, ...], fits: Fits, plain: tuple[int, ...], shared: tuple[int, ...]) -> _Way | None:
        """How a call was answered; None where more was done than can be repeated."""
        known = self._lc_cs
        hits = known.cache_hits
        answer, inputs, kept = self._lc_cd.get_computation_and_inputs(*args)
        known.cache_hits = hits
        places = {id(arg): place for place, arg in enumerate(args)}
        taken, further = (tuple(places.get(id(each), -1) for each in some) for some in (inputs, kept))
        entry = next((each for each in known.interpreter_cache if each.prologue_fn is answer.prologue_fn), None)
        if entry is None or -1 in (*taken, *further) or entry.return_none_instead_of_grads:
            return None
        if not _writes(entry):
            plain = shared = ()
        return _Way(
            entry, fits, plain, shared,
            taken=None if taken == tuple(range(len(args))) else taken,
            kept=further,
            epilogue=None if _gives_all(entry.epilogue_traces[-1]) else entry.epilogue_fn,
        )  # fmt: skip

    def _there(self, entry: Any) -> bool:
        """Whether Thunder still has a compilation."""
        return id(entry) in map(id, self._lc_cs.interpreter_cache)


def _gives_all(trace: TraceCtx) -> bool:
    """Whether a trace does nothing but give back what it is given, in order, in a tuple."""
    gives = trace.bound_symbols[-1].args
    same = len(gives) == 1 and isinstance(gives[0], tuple) and [id(each) for each in gives[0]] == [*map(id, trace.args)]
    idle = {PrimIDs.UNPACK_TRIVIAL, PrimIDs.RETURN}
    return same and all(bsym.sym.id in idle for bsym in trace.bound_symbols)


def _writes(entry: Any) -> bool:
    """Whether a compilation writes in place."""
    of_each = (entry.computation_traces, entry.backward_traces, entry.epilogue_traces)
    ends = [trace for traces in of_each if traces for trace in (traces[0], traces[-1])]
    return any(any(inside_of(bsym)) for trace in ends if trace is not None for bsym in trace.bound_symbols)


def _on_cpu(args: Sequence[Any]) -> bool:
    """Whether all inputs are plain tensors there; on a GPU a step may be captured, which Thunder connects otherwise."""
    return all(
        isinstance(arg, torch.Tensor) and arg.device.type == "cpu" and arg.layout is torch.strided for arg in args
    )


def _alias(args: Sequence[Any], places: Sequence[int]) -> tuple[int, ...]:
    """The first of some inputs that has the memory of each."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(args[place].untyped_storage().data_ptr(), place) for place in places)
