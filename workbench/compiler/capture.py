"""A program traced once, nothing executed, and its joint trace kept: `Capture`."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from workbench.analysis.equivalence import Prover
from workbench.compiler import devices, dynamo, parallel, patches, thunder_api
from workbench.compiler.causes import remedy
from workbench.compiler.hooks import Hooks, StageLog, StageTime, fingerprint
from workbench.compiler.stage import Stage
from workbench.compiler.thunder_api import (
    PrimIDs,
    TraceCtx,
    compile_data,
    langctxs,
)
from workbench.errors import ProgramError, WorkbenchError, shown
from workbench.programs import Program, modes
from workbench.programs.files import what
from workbench.programs.tensors import held, state_of

if TYPE_CHECKING:
    from workbench.compiler.replan import Base


@dataclasses.dataclass
class Capture:
    """A program traced once, and the joint trace kept.

    Attributes
    ----------
    program : Program
    executor : str
    stage : Stage
        Of the unmodified joint trace.
    stages : tuple of StageTime
        What the first trace cost.
    ranks : Ranks or None
    way : {'dynamo', 'interpreter'}
        How it was traced.
    why : str
        The reason why that way was taken.
    """

    program: Program
    executor: str
    stage: Stage
    stages: tuple[StageTime, ...]
    ranks: parallel.Ranks | None
    _compile_data: Any
    _compile_stats: Any
    _cache_info: dict[str, Any]
    way: str = "interpreter"
    why: str = ""
    _prover: Prover | None = None
    """Of the stock plan."""
    bases: OrderedDict[tuple[tuple[str, str], ...], Base] = dataclasses.field(default_factory=OrderedDict)
    """Plans that levers plan on from, by the choices made in them."""

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Thunder's state as it was while the program was traced."""
        token = thunder_api._cache_info_ctx.set(dict(self._cache_info))
        try:
            with (
                modes.restored(self.program.modes),
                patches.found_on_meta() if self.program.fake_mode is not None else nullcontext(),
                langctxs.langctx(self._compile_data.langctx),
                compile_data.compile_data_and_stats(self._compile_data, self._compile_stats),
            ):
                yield
        finally:
            thunder_api._cache_info_ctx.reset(token)

    @property
    def initial(self) -> TraceCtx:
        """The trace of the program as Thunder interpreted it, before anything is done to it."""
        first: TraceCtx = self._compile_stats.last_traces[0]
        return first

    @cached_property
    def fingerprint(self) -> str:
        """`fingerprint` of the program."""
        return fingerprint(self.stage.origins)


def capture(program: Program, executor: str, ranks: parallel.Ranks | None = None, way: str = "interpreter") -> Capture:
    """Trace a program once, execute nothing, keep the joint trace.

    Parameters
    ----------
    program : Program
    executor : str
    ranks : Ranks, optional
        Trace it as rank 0 of so many, the others not being there.
    way : {'auto', 'dynamo', 'interpreter'}
        How it is traced; see `workbench.open`.

    Raises
    ------
    ProgramError
        If it cannot be traced that way; the message holds the reason.
    """
    if way == "interpreter":
        return _capture(program, executor, ranks, way, "asked for")
    if ranks is not None:
        if way == "dynamo":
            raise ProgramError(
                "capture='dynamo' is for programs of one process; ranks share a program by its parameters, which "
                "Thunder's interpreter knows: use capture='interpreter'"
            )
        return _capture(program, executor, ranks, "interpreter", "ranks share the program")
    if way == "dynamo":
        return _capture(program, executor, ranks, way, "asked for")
    if program.spec["kind"] == "builtin":
        return _capture(program, executor, ranks, "interpreter", "built-in programs are read whole by it")
    try:
        return _capture(program, executor, ranks, "dynamo", "Dynamo gives the whole program as one graph")
    except ProgramError as first:
        try:
            return _capture(program, executor, ranks, "interpreter", f"not by Dynamo: {first}")
        except ProgramError as second:
            if remedy(str(first)) or remedy(str(second)):
                raise first from second
            raise ProgramError(f"{first}\nThunder's interpreter cannot trace it either: {second}") from first


def _capture(program: Program, executor: str, ranks: parallel.Ranks | None, way: str, why: str) -> Capture:
    log = StageLog()
    hooks = Hooks(executor, {}, log, ranks.parallel if ranks is not None else "")
    try:
        with ExitStack() as inside:
            if program.fake_mode is not None:
                inside.enter_context(devices.planned_gpu(program.fake_mode))
            transforms = hooks.transforms()
            if ranks is not None:
                transforms[1:1] = inside.enter_context(parallel.fake_group(ranks, program.callable, program.device))
            function, args, kwargs = program.callable, program.args, program.kwargs
            if way == "dynamo":
                hooks.restart()
                whole = dynamo.whole_graph(function, args, kwargs)
                function, args, kwargs = whole.function, whole.inputs, {}
                hooks.mark("capture")
            jitted = thunder_api.jit(function, executors=hooks.executors(), transforms=transforms)
            hooks.restart()
            entry, inputs, _ = jitted._lc_cd.get_computation_and_inputs(*args, **kwargs)
            unread = _unread(program, jitted, inputs)
    except WorkbenchError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the program's own code may raise anything, and exit
        reason = what(error)
        advice = remedy(reason)
        told = f"{advice} ({reason})" if advice else reason
        raise ProgramError(f"Thunder cannot trace {shown(program.name)}: {told}") from error
    stage = hooks.stage
    assert stage is not None
    names = [
        out.name
        for b in entry.computation_traces[0].bound_symbols
        if b.sym.id is PrimIDs.UNPACK_TRIVIAL
        for out in b.flat_proxy_outs
    ]
    arguments = {n: t for n, t in zip(names, inputs, strict=True) if isinstance(t, torch.Tensor)}
    stage = dataclasses.replace(stage, arguments=arguments, unread=unread)
    return Capture(
        program, executor, stage, tuple(log.times), ranks, jitted._lc_cd, jitted._lc_cs, hooks.cache_info, way, why
    )


def _unread(program: Program, compiled: Any, inputs: Sequence[Any]) -> dict[str, torch.Tensor]:
    """What the program and its inputs hold beside the inputs of its trace: one tensor of each storage."""
    given = {**held(program.args, "args").tensors, **held(program.kwargs, "kwargs").tensors}
    known = {tensor.untyped_storage()._cdata for tensor in inputs if isinstance(tensor, torch.Tensor)}
    found: dict[str, torch.Tensor] = {}
    for name, tensor in {**state_of(program.callable, compiled), **given}.items():
        storage = tensor.untyped_storage()
        if storage._cdata not in known and storage.nbytes():
            known.add(storage._cdata)
            found[name] = tensor
    return found
