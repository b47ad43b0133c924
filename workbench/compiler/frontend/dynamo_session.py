"""Compile with Dynamo under the PyTorch settings that the workbench needs.

Changing and restoring these settings takes longer than all other Python code in a call of a compiled program. Therefore
the settings apply only while Dynamo compiles. A call that matches compiled code sets only the flags that the guards of
this code check.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

import torch

from workbench.compiler.interop import dynamo_patches, dynamo_stance
from workbench.compiler.interop.dynamo_cleanup import callback_running, record_compiled
from workbench.compiler.interop.shared_context import shared_context
from workbench.compiler.interop.torch_versions import settings_context
from workbench.compiler.lowering import without_value_checks
from workbench.compiler.lowering.patch_context import compile_alone
from workbench.interop.torch_private import (
    ConvertFrameReturn,
    FrameAction,
    FrameExecStrategy,
    dynamo_config,
    engine_run_backward,
    eval_frame,
    kl,
)
from workbench.programs.modes import active_modes

RECOMPILE_LIMIT = 64
"""Largest number of graphs that Dynamo captures for one program. For example, calls with other shapes or other modes
need a new graph. PyTorch's default is 8.
"""


_NUMBERS = itertools.count(1)


def compile_with(
    program: Callable[..., Any],
    backend: Callable[..., Any],
    *,
    fullgraph: bool = True,
    breaks: bool = False,
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> Callable[..., Any]:
    """Compile a program with Dynamo, as `torch.compile` does.

    Parameters
    ----------
    program : callable
    backend : callable
        Dynamo's backend, which compiles a graph.
    fullgraph : bool, optional
        Whether the program must be one graph.
    breaks : bool, optional
        Whether the program is known to have a graph break. Dynamo then does not try to trace it as one graph.
    around : callable, optional
        Returns the context in which Dynamo compiles. A call that matches compiled code does not enter this context.
    """

    # Make a new function for each compilation, because Dynamo attaches compiled code to code objects. Compiled code on
    # the original code object would count against the limit of every other compilation of this program. Dynamo would
    # also keep this compiled code after the compiled program is deleted.
    def call(*args: Any, **kwargs: Any) -> Any:
        return program(*args, **kwargs)

    # An unused constant makes each code object unique, because Dynamo shares some data between equal code objects.
    constants = (*call.__code__.co_consts, next(_NUMBERS))
    code = call.__code__.replace(co_filename=dynamo_patches.PROGRAM_FILE, co_name="call", co_consts=constants)
    own = FunctionType(code, call.__globals__, "call", None, call.__closure__)
    if breaks:
        eval_frame.skip_code(code)
    context = eval_frame.optimize(backend, nopython=fullgraph, dynamic=False)
    if isinstance(context, eval_frame.OptimizeContext):
        context.callback = _callback_in_context(around, context.callback)
    compiled: Callable[..., Any] = context(own)
    return compiled


def _callback_in_context(
    around: Callable[[], contextlib.AbstractContextManager[None]], converts: Any
) -> Callable[..., Any]:
    """Wrap the function that Dynamo calls to compile a frame, so that the function runs in the context `around`.

    Hooks of the user run uncompiled during a backward. Dynamo would compile a hook once for each parameter that is the
    key of a dictionary.
    """

    # Copy the callback's attributes, because Dynamo identifies a callback's backend by these attributes.
    @functools.wraps(converts, updated=("__dict__",))
    def converted(*args: Any, **kwargs: Any) -> Any:
        if sys._getframe(1).f_code is _ENGINE and not args[0].f_code.co_filename.startswith(_TORCH):
            return ConvertFrameReturn(_UNCOMPILED, apply_to_code=False)
        with callback_running(), around():
            return converts(*args, **kwargs)

    return converted


_ENGINE = engine_run_backward.__code__
"""The function of PyTorch that runs a backward, and therefore the caller of each hook."""

_TORCH = os.path.dirname(inspect.getfile(torch)) + os.sep
"""Folder of PyTorch's own hooks, such as those of checkpoints. Dynamo compiles the code that these hooks call."""

_UNCOMPILED = FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP)
"""Tells Dynamo to run a frame uncompiled, with all frames that it calls."""


@contextlib.contextmanager
def allow_compilation(
    limit: int, codes: set[CodeType], numbers: dynamo_patches.NumbersOfCalls | None, *, in_parts: bool = False
) -> Iterator[None]:
    """In this context, Dynamo can compile one program up to `limit` times. Add the compiled code objects to `codes`.

    The context begins when no other thread traces or compiles, and the process has the modes that this thread needs.
    Dynamo passes changed numbers to a graph, unless `numbers` is None; see `dynamo_patches.changed_numbers_as_inputs`.
    With `in_parts`, Dynamo breaks graphs in loops, and runs a function uncompiled if it cannot compile the function.
    """
    with contextlib.ExitStack() as inside:
        inside.enter_context(compile_alone())
        inside.enter_context(active_modes({}))
        inside.enter_context(dynamo_settings(limit))
        if numbers is not None:
            inside.enter_context(dynamo_patches.changed_numbers_as_inputs(numbers))
        if in_parts:
            inside.enter_context(dynamo_patches.graph_breaks_in_loops())
            inside.enter_context(run_uncompiled_after_errors())
        else:
            _FRAMES.addFilter(_report)
            inside.callback(_FRAMES.removeFilter, _report)
        inside.enter_context(record_compiled(codes.add))
        yield


class _ErrorLog(logging.Filter):
    """Drops log entries that contain an exception.

    The user does not need such an entry: PyTorch also raises the exception, or runs the failing code uncompiled.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.exc_info


class _ScalarAdvice(logging.Filter):
    """Drops Dynamo's advice to set `capture_scalar_outputs`. The workbench does not use this setting."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "capture_scalar_outputs" not in str(record.msg)


class _LimitReport(logging.Filter):
    """Drops Dynamo's report that a program was captured too often. A warning of the workbench gives the cause."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "hit config." not in str(record.msg)


_raised = _ErrorLog()
_advice = _ScalarAdvice()
_report = _LimitReport()
_FAKES = logging.getLogger("torch._subclasses.fake_tensor")
_FRAMES = logging.getLogger("torch._dynamo.convert_frame")
_SCALARS = logging.getLogger("torch._dynamo.variables.tensor")


@contextlib.contextmanager
def dynamo_settings(limit: int = RECOMPILE_LIMIT) -> Iterator[None]:
    """In this context, Dynamo has the workbench's settings, and can compile a program up to `limit` times.

    If several of these contexts are active, the highest limit applies. Since PyTorch 2.12, each thread has its own
    settings: a thread gets the highest limit of the contexts that are active when the thread enters.
    """
    # `kl_divergence` searches for its formula when a process first needs the formula for two classes, and Dynamo cannot
    # trace the search. For the classes of a registered formula, the search finds this formula.
    for classes, formula in kl._KL_REGISTRY.items():
        kl._KL_MEMOIZE.setdefault(classes, formula)
    with (
        _our_options(),
        _our_flags(),
        dynamo_patches.global_names_of_functions(),
        dynamo_patches.settings_told_without_functions(),
        dynamo_patches.hooks_installed_when_traced(),
        dynamo_patches.own_generators_uncompiled(),
        dynamo_patches.torchscript_called(),
        dynamo_patches.products_not_rounded(),
        dynamo_patches.same_objects_guarded(),
        dynamo_patches.written_tensors_kept(),
        dynamo_patches.checkpoints_traced(),
        without_value_checks.traced(),
    ):
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


@settings_context
def _our_options() -> Iterator[None]:
    """In this context, Dynamo has the options that the workbench needs."""
    before = {name: getattr(dynamo_config, name) for name in _SETTINGS}
    try:
        # Let Dynamo record each recurrent network as one operator. `fx_to_thunder` decomposes this operator later.
        dynamo_config.allow_rnn = True
        # Let NumPy draw its random numbers between graphs. PyTorch's draws in a graph would differ from NumPy's.
        dynamo_config.use_numpy_random_stream = True
        # Check every parameter in each call. Otherwise Dynamo skips the parameters of a module whose dictionaries have
        # not changed, although the program may have changed which of them require gradients.
        dynamo_config.use_recursive_dict_tags_for_guards = False
        # Ignore log calls, because they are not part of a program's computation.
        dynamo_config.ignore_logger_methods = before["ignore_logger_methods"] | _methods_of(
            *vars(logging.Logger).items()
        )
        yield
    finally:
        for name, value in before.items():
            setattr(dynamo_config, name, value)


@shared_context
def _our_flags() -> Iterator[None]:
    """In this context, Dynamo has the stance, the flags and the filters of messages that the workbench needs."""
    _FAKES.addFilter(_raised)
    _SCALARS.addFilter(_advice)
    try:
        with dynamo_stance.default_stance(), decompose_layers():
            yield
    finally:
        _FAKES.removeFilter(_raised)
        _SCALARS.removeFilter(_advice)


@shared_context
def decompose_layers() -> Iterator[None]:
    """In this context, PyTorch's transformer layers compute with several operators.

    Outside of this context, each layer in eval mode without gradients is one operator. Thunder does not support this
    operator. The context sets a flag of PyTorch. Dynamo's guards check this flag, so the context must also be active in
    each call.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def asks_for_layers(traced: Sequence[CodeType] | None) -> bool:
    """Return whether traced functions, and therefore guards, read the flag that `decompose_layers` sets.

    If the functions are unknown (None), return True.
    """
    asked = torch.backends.mha.get_fastpath_enabled
    return traced is None or asked.__code__ in traced


_SETTINGS = (
    *("recompile_limit", "accumulated_recompile_limit"),
    *("allow_rnn", "use_numpy_random_stream", "ignore_logger_methods", "use_recursive_dict_tags_for_guards"),
)


@contextlib.contextmanager
def run_uncompiled_after_errors() -> Iterator[None]:
    """In this context, Dynamo runs an operator or a function uncompiled if its compilation fails.

    Programs in parts are compiled in this context. They are also captured in this context if their tensors have values.
    """
    with _suppressed_errors(), _quiet_failures(), dynamo_patches.graph_breaks_at_failures():
        yield


@settings_context
def _suppressed_errors() -> Iterator[None]:
    before = dynamo_config.suppress_errors
    dynamo_config.suppress_errors = True
    try:
        yield
    finally:
        dynamo_config.suppress_errors = before


@shared_context
def _quiet_failures() -> Iterator[None]:
    _FRAMES.addFilter(_raised)
    try:
        yield
    finally:
        _FRAMES.removeFilter(_raised)


@settings_context
def no_collections() -> Iterator[None]:
    """In this context, Dynamo leaves out the garbage collection after each compilation.

    A collection would visit all traces in memory, including traces of programs that were opened earlier. Such
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

    The attributes are the key of the cache, because a library may add methods to the class when it is imported.
    """
    return frozenset(method for name, method in attributes if callable(method) and not name.startswith("_"))
