"""What a person says to `torch.compile`, by `torch.compiler.set_stance`, is not said to what is compiled here.

A program is captured, and a config's callable compiled, as without it; outside, and after, the stance is as it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from workbench.compiler.interop.shared_context import together
from workbench.interop.torch_private import eval_frame


def is_usual() -> bool:
    """Whether Dynamo compiles what it is given, with the backend that it is given."""
    stance = eval_frame._stance
    return stance.stance == "default" and stance.backend is None


@together
def usual() -> Iterator[None]:
    """Inside, it does."""
    if is_usual():
        yield
        return
    before = eval_frame._set_stance(eval_frame.DynamoStance())
    try:
        yield
    finally:
        eval_frame._set_stance(before)


def ignored(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of `torch.compile`, called without the stance that the user has set.

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
