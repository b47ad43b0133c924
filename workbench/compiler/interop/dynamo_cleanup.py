"""After a program is gone, remove the code that Dynamo compiled for it from functions of the user and of libraries.

For a program in parts, Dynamo compiles every function with a graph break, including library functions such as the step
of an optimizer. Dynamo limits the number of compilations of a function, for all callers together. When the limit is
reached, the function runs uncompiled for the rest of the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

from workbench.interop.torch_private import eval_frame, register_bytecode_hook


class Backend:
    """A backend for Dynamo. It keeps no other object alive, because Dynamo keeps backends until the process ends.

    Parameters
    ----------
    act : callable
        Returns the function that handles a graph. After the owner of this function is gone, returns None.
    """

    def __init__(self, act: Callable[[], Callable[..., Any] | None]) -> None:
        self._act = act

    @property
    def alive(self) -> bool:
        """Whether the owner of the function that handles graphs still exists."""
        return self._act() is not None

    def __call__(self, graph: Any, inputs: Any) -> Any:
        """Handle a graph."""
        act = self._act()
        assert act is not None, "the owner of the compiled function no longer exists"
        return act(graph, inputs)


@contextlib.contextmanager
def record_compiled(codes: set[CodeType]) -> Iterator[None]:
    """Add the functions that Dynamo compiles in this context to `codes`."""
    # Dynamo replaces bytecode by the result of a hook unless the result is None, as here.
    hook = register_bytecode_hook(lambda code, _: codes.add(code))
    try:
        yield
    finally:
        hook.remove()


def forget(codes: Iterable[CodeType]) -> None:
    """Remove the compiled code of functions if it belongs to programs of the workbench that are gone.

    Dynamo can only remove all compiled code of a function at once. If a user has compiled the function too, Dynamo
    compiles it again at the user's next call. If a program of the workbench still uses compiled code of the function,
    no code is removed until this program is gone.
    """
    for code in codes:
        entries = eval_frame._debug_get_cache_entry_list(code)
        ours = [backend for entry in entries if isinstance(backend := _backend_of(entry), Backend)]
        if ours and not any(backend.alive for backend in ours):
            eval_frame.reset_code(code)


def _backend_of(entry: Any) -> Any:
    """Return the backend that was passed to `torch.compile`; a cache entry contains this backend in a wrapper."""
    wrapper = eval_frame.innermost_fn(entry.backend)
    return getattr(wrapper, "compiler_fn", wrapper)
