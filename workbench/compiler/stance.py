"""What a person says to `torch.compile`, by `torch.compiler.set_stance`, is not said to what is compiled here.

A program is captured, and a config's callable compiled, as without it; outside, and after, the stance is as it was.
"""

from __future__ import annotations

from collections.abc import Iterator

from workbench.compiler.together import together
from workbench.torch_api import eval_frame


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
