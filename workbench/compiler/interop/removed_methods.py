"""Import Thunder with PyTorch 2.13 and later, which lack five methods that Thunder lists.

PyTorch 2.13 removed the methods of named tensors. Thunder's table of PyTorch operators contains them, so importing
Thunder raises an AttributeError. Remove this module when Thunder no longer lists them:
`tests/compiler/interop/test_removed_methods.py` then fails.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

REMOVED = ("align_as", "align_to", "has_names", "refine_names", "rename")
"""Methods of `torch.Tensor` that PyTorch 2.13 removed, and that Thunder lists."""


@contextlib.contextmanager
def importable_thunder() -> Iterator[None]:
    """In this context, importing Thunder works with a PyTorch without `REMOVED`.

    Until the end of the context, placeholders replace missing methods of `torch.Tensor`. Thunder keeps them in its
    table. They raise an error if a program reaches them, which no program can: a tensor has no such method.
    """
    missing = []
    if "thunder" not in sys.modules:
        import torch

        missing = [name for name in REMOVED if not hasattr(torch.Tensor, name)]
        for name in missing:
            setattr(torch.Tensor, name, _placeholder(name))
    try:
        yield
    finally:
        for name in missing:
            delattr(torch.Tensor, name)


def _placeholder(name: str) -> Callable[..., Any]:
    def removed(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"torch.Tensor.{name} does not exist in this PyTorch")

    removed.__name__ = name
    return removed
