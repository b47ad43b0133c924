"""Compile with Dynamo under the PyTorch settings that the workbench needs.

Setting and restoring these settings takes longer than all other Python code in a call of a compiled program. Therefore
the settings apply only while Dynamo compiles. A call that matches compiled code sets only the flags that its guards
check.
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
from workbench.compiler.interop.shared_context import shared_context
from workbench.compiler.lowering import without_value_checks
from workbench.compiler.lowering.patch_context import compile_alone
from workbench.interop.torch_private import dynamo_config, eval_frame
from workbench.programs.modes import active_modes

RECOMPILE_LIMIT = 64
"""Largest number of kinds of calls that are captured for one program. Calls may differ in shapes, modes, and train or
eval. PyTorch's limit is 8.
"""


_NUMBERS = itertools.count(1)


def compile_with(
    program: Callable[..., Any],
    backend: Callable[..., Any],
    *,
    fullgraph: bool = True,
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> Callable[..., Any]:
    """Compile a program with `torch.compile`.

    Parameters
    ----------
    program, backend : callable
    fullgraph : bool, optional
        Whether the program must be one graph.
    around : callable, optional
        Context in which Dynamo compiles. A call that matches compiled code does not enter this context.
    """

    # Make a new function for each compilation, because Dynamo attaches compiled code to code objects. Compiled code on
    # the original code object would count against the limit of every other compilation of this program. It would also
    # outlive this compilation.
    def call(*args: Any, **kwargs: Any) -> Any:
        return program(*args, **kwargs)

    # An unused constant makes each code object unique, because Dynamo shares some data between equal code objects.
    constants = (*call.__code__.co_consts, next(_NUMBERS))
    code = call.__code__.replace(co_filename="<workbench>", co_name="call", co_consts=constants)
    own = FunctionType(code, call.__globals__, "call", None, call.__closure__)
    context = eval_frame.optimize(backend, nopython=fullgraph, dynamic=False)
    if isinstance(context, eval_frame.OptimizeContext):
        context.callback = _callback_in_context(around, context.callback)
    compiled: Callable[..., Any] = context(own)
    return compiled


def _callback_in_context(
    around: Callable[[], contextlib.AbstractContextManager[None]], converts: Any
) -> Callable[..., Any]:
    """Return Dynamo's callback for frames without matching compiled code, wrapped in a context."""

    # Copy the callback's attributes, because Dynamo identifies the backend of a callback by its attributes.
    @functools.wraps(converts, updated=("__dict__",))
    def converted(*args: Any, **kwargs: Any) -> Any:
        with around():
            return converts(*args, **kwargs)

    return converted


@contextlib.contextmanager
def allow_compilation(limit: int, codes: set[CodeType]) -> Iterator[None]:
    """Let Dynamo compile one program up to `limit` times; add the compiled code objects to `codes`.

    Wait until no other thread is planning or has set process-wide modes for its program.
    """
    with compile_alone(), active_modes({}), dynamo_settings(limit), record_compiled(codes):
        yield


class _ErrorLog(logging.Filter):
    """Drops the log entries of errors that PyTorch also raises, so that the user sees each error once."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.exc_info


_raised = _ErrorLog()
_FAKES = logging.getLogger("torch._subclasses.fake_tensor")


@contextlib.contextmanager
def dynamo_settings(limit: int = RECOMPILE_LIMIT) -> Iterator[None]:
    """Let Dynamo compile a program up to `limit` times. If calls are nested, the highest limit applies."""
    with _our_options(), without_value_checks.traced():
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


@shared_context
def _our_options() -> Iterator[None]:
    """Set Dynamo's options as the workbench needs them."""
    before = {name: getattr(dynamo_config, name) for name in _SETTINGS}
    _FAKES.addFilter(_raised)
    try:
        # Let Dynamo record each recurrent network as one operator, which is decomposed when a graph is traced.
        dynamo_config.allow_rnn = True
        # Ignore log calls, which are not part of a program's computation.
        dynamo_config.ignore_logger_methods = before["ignore_logger_methods"] | _methods_of(
            *vars(logging.Logger).items()
        )
        told = dynamo_patches.settings_told_without_functions()
        with dynamo_stance.default_stance(), decompose_layers(), dynamo_patches.global_names_of_functions(), told:
            yield
    finally:
        for name, value in before.items():
            setattr(dynamo_config, name, value)
        _FAKES.removeFilter(_raised)


@shared_context
def decompose_layers() -> Iterator[None]:
    """Set a flag with which PyTorch's transformer layers compute with several operators.

    In eval mode without gradients, each layer would otherwise be one operator, which Thunder does not know. Dynamo's
    guards check the flag, so it must also be set in each call.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def asks_for_layers(traced: Sequence[CodeType] | None) -> bool:
    """Return whether traced functions, and therefore guards, read the flag that `decompose_layers` sets."""
    asked = torch.backends.mha.get_fastpath_enabled
    return traced is None or asked.__code__ in traced


_SETTINGS = ("recompile_limit", "accumulated_recompile_limit", "allow_rnn", "ignore_logger_methods")


@shared_context
def no_collections() -> Iterator[None]:
    """Prevent garbage collection by Dynamo after each compilation.

    A garbage collection would visit all traces made so far, including traces of programs that were opened earlier. Such
    collections took up to a third of the time to open a small program.
    """
    before = dynamo_config.run_gc_after_compile
    dynamo_config.run_gc_after_compile = False
    try:
        yield
    finally:
        dynamo_config.run_gc_after_compile = before


@functools.lru_cache(8)
def _methods_of(*attributes: tuple[str, Any]) -> frozenset[Any]:
    """Return the public methods among attributes of a class.

    The attributes are the key of the cache, because libraries may add methods to loggers when they are imported.
    """
    return frozenset(method for name, method in attributes if callable(method) and not name.startswith("_"))
