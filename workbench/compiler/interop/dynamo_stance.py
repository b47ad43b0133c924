"""Ignore the user's `torch.compiler.set_stance` while the workbench compiles.

The workbench ignores the stance when it captures a program, and in calls of a program that `Config.jit` compiled. In
all other code, the user's stance applies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from workbench.compiler.interop.shared_context import shared_context
from workbench.interop.torch_private import eval_frame


def is_default_stance() -> bool:
    """Return whether Dynamo currently compiles as if the user had set no stance."""
    stance = eval_frame._stance
    return stance.stance == "default" and stance.backend is None


@shared_context
def default_stance() -> Iterator[None]:
    """In this context, set the default stance, under which Dynamo compiles as if the user had set no stance."""
    if is_default_stance():
        yield
        return
    before = eval_frame._set_stance(eval_frame.DynamoStance())
    try:
        yield
    finally:
        eval_frame._set_stance(before)


def ignore_stance(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `compiled` as if the user had set no stance.

    Parameters
    ----------
    compiled : callable
        Result of `torch.compile`.
    """

    @functools.wraps(compiled)
    def call(*args: Any) -> Any:
        if is_default_stance():
            return compiled(*args)
        with default_stance():
            return compiled(*args)

    return call
