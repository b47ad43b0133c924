"""What Dynamo compiled for a program of ours on functions that are not: taken off them when the program is gone.

Of a program in parts Dynamo compiles each function that a graph break lies in, those of libraries too, such as the step
of an optimizer; what it compiled counts there against the limit of all who compile that function, and at the limit it
runs uncompiled for the rest of the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

from workbench.interop.torch_private import eval_frame, register_bytecode_hook


class Backend:
    """What Dynamo is given, and keeps for as long as the process lives: so it holds on to nothing.

    Parameters
    ----------
    act : callable
        Gives what acts on a graph; None once who asked for it is gone.
    """

    def __init__(self, act: Callable[[], Callable[..., Any] | None]) -> None:
        self._act = act

    @property
    def alive(self) -> bool:
        """Whether who asked for it is still there."""
        return self._act() is not None

    def __call__(self, graph: Any, inputs: Any) -> Any:
        """Act on a graph."""
        act = self._act()
        assert act is not None, "who asked for the compilation is gone"
        return act(graph, inputs)


@contextlib.contextmanager
def record_compiled(codes: set[CodeType]) -> Iterator[None]:
    """Inside, the functions that Dynamo compiles are added to some."""
    # Bytecode that a hook gives stands instead; this one gives none.
    hook = register_bytecode_hook(lambda code, _: codes.add(code))
    try:
        yield
    finally:
        hook.remove()


def forget(codes: Iterable[CodeType]) -> None:
    """Take off functions all that was compiled of them, where some of it is of programs of ours that are gone.

    Dynamo can take off all or nothing: what a person compiled of such a function is compiled again when it is called.
    Where a program of ours that is there is among it, it stays until that is gone.
    """
    for code in codes:
        entries = eval_frame._debug_get_cache_entry_list(code)
        ours = [backend for entry in entries if isinstance(backend := _backend_of(entry), Backend)]
        if ours and not any(backend.alive for backend in ours):
            eval_frame.reset_code(code)


def _backend_of(entry: Any) -> Any:
    """What `torch.compile` was given for a compilation; its own wrapper of that is a callable, too."""
    wrapper = eval_frame.innermost_fn(entry.backend)
    return getattr(wrapper, "compiler_fn", wrapper)
