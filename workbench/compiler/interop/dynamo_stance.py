"""Ignore the user's `torch.compiler.set_stance` while the workbench compiles.

The workbench captures programs, and compiles a config's callable, without the stance. Outside, and afterwards, the
user's stance is in force.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from workbench.compiler.interop.shared_context import together
from workbench.interop.torch_private import eval_frame


def is_usual() -> bool:
    """Return whether Dynamo compiles with the given backend, as without a stance."""
    stance = eval_frame._stance
    return stance.stance == "default" and stance.backend is None


@together
def usual() -> Iterator[None]:
    """Make Dynamo compile as without a stance."""
    if is_usual():
        yield
        return
    before = eval_frame._set_stance(eval_frame.DynamoStance())
    try:
        yield
    finally:
        eval_frame._set_stance(before)


def ignored(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of `torch.compile` to ignore the user's stance.

    Parameters
    ----------
    compiled : callable
    """

    @functools.wraps(compiled)
    def call(*args: Any) -> Any:
        if is_usual():
            return compiled(*args)
        with usual():
            return compiled(*args)

    return call
