"""Import Thunder with PyTorch 2.13 and later, which lack methods that Thunder reads when it is imported.

PyTorch 2.13 removed the methods of named tensors, which Thunder lists in its table of PyTorch operators. Since PyTorch
2.14, `torch.autograd.Function.apply` is built in and has no `__func__`, for which Thunder's interpreter registers a
replacement. Remove this module when Thunder no longer reads them: `tests/compiler/interop/test_removed_methods.py` then
fails.
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
    """In this context, importing Thunder works with a PyTorch that lacks methods which Thunder reads.

    Until the end of the context, placeholders replace the missing methods. Thunder keeps them in its tables. They raise
    an error if a program reaches them, which no program can: it finds PyTorch's own attributes.
    """
    with contextlib.ExitStack() as placed:
        if "thunder" not in sys.modules:
            import torch

            for name in REMOVED:
                if not hasattr(torch.Tensor, name):
                    setattr(torch.Tensor, name, _placeholder(f"torch.Tensor.{name}"))
                    placed.callback(delattr, torch.Tensor, name)
            function: Any = torch.autograd.Function
            apply = vars(function)["apply"]
            if not hasattr(function.apply, "__func__"):
                function.apply = classmethod(_placeholder("torch.autograd.Function.apply.__func__"))
                placed.callback(setattr, function, "apply", apply)
        yield


def _placeholder(name: str) -> Callable[..., Any]:
    def removed(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{name} does not exist in this PyTorch")

    removed.__name__ = name.rpartition(".")[2]
    return removed
