"""Remove code that Dynamo compiled for the workbench from functions of other code when a program is gone.

For a program in parts, Dynamo compiles every function with a graph break, including library functions such as the step
of an optimizer. The compiled code counts against the function's limit, whoever calls the function. At the limit, the
function runs uncompiled for the rest of the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

from workbench.interop.torch_private import eval_frame, register_bytecode_hook


class Backend:
    """A backend for Dynamo, which keeps it as long as the process lives, so it must not keep other objects alive.

    Parameters
    ----------
    act : callable
        Returns the function that handles a graph; None after the function's owner is gone.
    """

    def __init__(self, act: Callable[[], Callable[..., Any] | None]) -> None:
        self._act = act

    @property
    def alive(self) -> bool:
        """True while the owner exists."""
        return self._act() is not None

    def __call__(self, graph: Any, inputs: Any) -> Any:
        """Handle a graph."""
        act = self._act()
        assert act is not None, "the owner of the compiled function no longer exists"
        return act(graph, inputs)


@contextlib.contextmanager
def record_compiled(codes: set[CodeType]) -> Iterator[None]:
    """Add the functions that Dynamo compiles in this context to `codes`."""
    # Dynamo replaces its bytecode by the result of a hook; this one returns none.
    hook = register_bytecode_hook(lambda code, _: codes.add(code))
    try:
        yield
    finally:
        hook.remove()


def forget(codes: Iterable[CodeType]) -> None:
    """Remove all compiled code from functions, if some of it belongs to programs of the workbench that are gone.

    Dynamo can remove only all of it. Compiled code of a user for such a function is compiled again at the next call. If
    some belongs to a living program of the workbench, all of it stays until that program is gone.
    """
    for code in codes:
        entries = eval_frame._debug_get_cache_entry_list(code)
        ours = [backend for entry in entries if isinstance(backend := _backend_of(entry), Backend)]
        if ours and not any(backend.alive for backend in ours):
            eval_frame.reset_code(code)


def _backend_of(entry: Any) -> Any:
    """Return the backend that `torch.compile` got for a compilation. The entry wraps it in another callable."""
    wrapper = eval_frame.innermost_fn(entry.backend)
    return getattr(wrapper, "compiler_fn", wrapper)
