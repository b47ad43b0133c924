"""What Dynamo compiles for us, and PyTorch's settings while it does.

To put the settings in force and back takes longer than all else that a call of a compiled program does in Python. So
they are in force where Dynamo compiles, and in calls that fit what it compiled before only what its guards ask for.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

import torch

from workbench.compiler.interop import dynamo_patches, dynamo_stance
from workbench.compiler.interop.dynamo_cleanup import record_compiled
from workbench.compiler.interop.shared_context import together
from workbench.compiler.lowering import without_value_checks
from workbench.compiler.lowering.patch_context import compiled_alone
from workbench.interop.torch_private import dynamo_config, eval_frame
from workbench.programs.modes import restored

RECOMPILE_LIMIT = 64
"""Ways to call a program, each captured on its own: shapes, modes, train or eval. PyTorch's own limit is 8."""


_NUMBERS = itertools.count(1)


def compiled_by(
    program: Callable[..., Any],
    backend: Callable[..., Any],
    *,
    whole: bool = True,
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> Callable[..., Any]:
    """What `torch.compile` makes of a program.

    Parameters
    ----------
    program, backend : callable
    whole : bool, optional
        Whether it has to be one graph.
    around : callable, optional
        Gives what is in force while Dynamo compiles, and not in calls that fit what it compiled before.
    """

    # A function of its own for each: what Dynamo compiles hangs on code objects, where it would count against the limit
    # of every other compilation of this program, and outlive this one.
    def call(*args: Any, **kwargs: Any) -> Any:
        return program(*args, **kwargs)

    # Dynamo keeps some of what it knows by code that is equal: a constant that nothing reads tells each from the rest.
    constants = (*call.__code__.co_consts, next(_NUMBERS))
    code = call.__code__.replace(co_filename="<workbench>", co_name="call", co_consts=constants)
    own = FunctionType(code, call.__globals__, "call", None, call.__closure__)
    context = eval_frame.optimize(backend, nopython=whole, dynamic=False)
    if isinstance(context, eval_frame.OptimizeContext):
        context.callback = _inside(around, context.callback)
    compiled: Callable[..., Any] = context(own)
    return compiled


def _inside(around: Callable[[], contextlib.AbstractContextManager[None]], converts: Any) -> Callable[..., Any]:
    """What Dynamo calls for a frame that fits nothing compiled, with something in force around it."""

    # Dynamo finds the backend by what the one it wraps has for attributes.
    @functools.wraps(converts, updated=("__dict__",))
    def converted(*args: Any, **kwargs: Any) -> Any:
        with around():
            return converts(*args, **kwargs)

    return converted


@contextlib.contextmanager
def compiling(limit: int, codes: set[CodeType]) -> Iterator[None]:
    """Inside, Dynamo compiles for one program: with its limit, and what it compiles is noted.

    What other threads have put the process into, for programs of other modes, is waited for, and so is what plans.
    """
    with compiled_alone(), restored({}), settings(limit), record_compiled(codes):
        yield


class _ErrorLog(logging.Filter):
    """Keeps what PyTorch logs of an error, and raises as well, to who asks for it: the error is told once."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.exc_info


_raised = _ErrorLog()
_FAKES = logging.getLogger("torch._subclasses.fake_tensor")


@contextlib.contextmanager
def settings(limit: int = RECOMPILE_LIMIT) -> Iterator[None]:
    """Inside, Dynamo compiles as often as there are ways to call a program, up to a limit; of several the highest."""
    with _ours(), without_value_checks.traced():
        _keep_to(_limits.append, limit)
        try:
            yield
        finally:
            _keep_to(_limits.remove, limit)


_limits: list[int] = []
_LIMITING = threading.Lock()


def _keep_to(change: Callable[[int], None], limit: int) -> None:
    with _LIMITING:
        change(limit)
        highest = max(_limits, default=RECOMPILE_LIMIT)
        dynamo_config.recompile_limit, dynamo_config.accumulated_recompile_limit = highest, highest * 8


@together
def _ours() -> Iterator[None]:
    """Inside, Dynamo is set as programs of ours need it."""
    before = {name: getattr(dynamo_config, name) for name in _SETTINGS}
    _FAKES.addFilter(_raised)
    try:
        # As one operator each, which is written out where a graph is traced.
        dynamo_config.allow_rnn = True
        # What a program logs is no part of what it computes.
        dynamo_config.ignore_logger_methods = before["ignore_logger_methods"] | _methods_of(
            *vars(logging.Logger).items()
        )
        told = dynamo_patches.settings_told_without_functions()
        with dynamo_stance.usual(), layers_read_through(), dynamo_patches.global_names_of_functions(), told:
            yield
    finally:
        for name, value in before.items():
            setattr(dynamo_config, name, value)
        _FAKES.removeFilter(_raised)


@together
def layers_read_through() -> Iterator[None]:
    """Inside, PyTorch's transformer layers are operator by operator; Dynamo's guards ask for it in each call, too.

    In eval() without gradients they would be one operator each, which Thunder does not know.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def asks_for_layers(traced: Sequence[CodeType] | None) -> bool:
    """Whether functions that Dynamo traced read what `layers_read_through` sets, and guards of them do in each call."""
    asked = torch.backends.mha.get_fastpath_enabled
    return traced is None or asked.__code__ in traced


_SETTINGS = ("recompile_limit", "accumulated_recompile_limit", "allow_rnn", "ignore_logger_methods")


@together
def no_collections() -> Iterator[None]:
    """Inside, Dynamo looks for no cycles each time it has compiled.

    It would look through all traces made since, those of programs opened before included, which was up to a third of
    what a small program took to open.
    """
    before = dynamo_config.run_gc_after_compile
    dynamo_config.run_gc_after_compile = False
    try:
        yield
    finally:
        dynamo_config.run_gc_after_compile = before


@functools.lru_cache(8)
def _methods_of(*attributes: tuple[str, Any]) -> frozenset[Any]:
    """The public methods among a class's attributes. Libraries add some to loggers when they are imported."""
    return frozenset(method for name, method in attributes if callable(method) and not name.startswith("_"))
