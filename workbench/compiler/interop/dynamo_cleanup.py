"""Remove the code that Dynamo compiled for a program that no longer exists, and retry functions that Dynamo skips.

If a program has graph breaks, Dynamo attaches compiled code to every function that contains a graph break. Such a
function may belong to a library, such as the step of an optimizer. Dynamo limits the number of compilations of a
function, for all callers together. When the limit is reached, the function runs uncompiled for the rest of the process.
Plain `torch.compile` also skips a function with a graph break in a loop, from the first call on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

from workbench.interop.torch_private import (
    FrameAction,
    FrameExecStrategy,
    compile_lock,
    dynamo_utils,
    eval_frame,
    input_codes,
    register_bytecode_hook,
)


class Backend:
    """A backend for Dynamo that refers only weakly to the function that compiles graphs.

    Dynamo keeps every backend until the process ends. A normal reference would therefore keep the program alive.

    Parameters
    ----------
    act : weakref.ref or weakref.WeakMethod
        Weak reference to the function that compiles a graph.
    """

    def __init__(self, act: Callable[[], Callable[..., Any] | None]) -> None:
        self._act = act

    @property
    def alive(self) -> bool:
        """True while the function that compiles graphs exists."""
        return self._act() is not None

    def __call__(self, graph: Any, inputs: Any) -> Any:
        """Compile a graph that Dynamo captured, and return the function that runs the graph."""
        act = self._act()
        assert act is not None, "the owner of the compiled function no longer exists"
        return act(graph, inputs)


@contextlib.contextmanager
def record_compiled(record: Callable[[CodeType], None]) -> Iterator[None]:
    """In this context, call `record` with a function's code object each time that Dynamo compiles the function."""
    # The hook returns None, because Dynamo would replace its bytecode by any other result.
    hook = register_bytecode_hook(lambda code, _: record(code))
    try:
        yield
    finally:
        hook.remove()


_waiting: set[CodeType] = set()
"""Functions whose compiled code could not be removed yet, because Dynamo was compiling."""

_callbacks: list[None] = []
"""One entry for each of the workbench's callbacks that Dynamo is calling, in all threads."""


@contextlib.contextmanager
def callback_running() -> Iterator[None]:
    """In this context, Dynamo is calling one of the workbench's callbacks, so no compiled code is removed."""
    _callbacks.append(None)
    try:
        yield
    finally:
        _callbacks.pop()


def forget(codes: Iterable[CodeType]) -> None:
    """Remove Dynamo's compiled code from each function, unless a program that uses this code still exists.

    Dynamo can remove the compiled code of a function only as a whole. If the user has also compiled the function,
    Dynamo compiles the function again at the user's next call.

    A garbage collection may call this function while Dynamo compiles. Dynamo then holds pointers to compiled code, and
    removing this code would crash the process. A later call of this function then removes it.
    """
    _waiting.update(codes)
    if not _waiting or _callbacks or compile_lock._is_owned() or not compile_lock.acquire(blocking=False):
        return
    try:
        while _waiting:
            _remove_compiled(_waiting.pop())
    finally:
        compile_lock.release()


def frames_seen() -> int:
    """Return the number of functions that Dynamo has tried to compile, for all programs of the process."""
    return int(dynamo_utils.counters["frames"]["total"])


_COMPILED = FrameExecStrategy(FrameAction.DEFAULT, FrameAction.DEFAULT)


def retry_skipped_functions() -> None:
    """Let Dynamo try again to compile each function that it skips.

    Dynamo skips a function for all programs of the process. Plain `torch.compile` can do this to a function that the
    workbench compiles: it has no graph breaks in loops, and a lower limit of compilations. Plain `torch.compile` then
    also tries again, once for each time that a call of the workbench's program comes between its calls.
    """
    for known in input_codes.seen:
        code = known()
        if code is not None:
            eval_frame.set_code_exec_strategy(code, _COMPILED)


def _remove_compiled(code: CodeType) -> None:
    """Remove the compiled code of a function, unless a program that uses this code still exists."""
    entries = eval_frame._debug_get_cache_entry_list(code)
    ours = [backend for entry in entries if isinstance(backend := _backend_of(entry), Backend)]
    if ours and not any(backend.alive for backend in ours):
        eval_frame.reset_code(code)


def _backend_of(entry: Any) -> Any:
    """Return the backend that was passed to Dynamo. A cache entry contains this backend inside of a wrapper."""
    wrapper = eval_frame.innermost_fn(entry.backend)
    return getattr(wrapper, "compiler_fn", wrapper)
