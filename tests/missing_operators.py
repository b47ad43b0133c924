"""List functions of PyTorch that neither Thunder nor the workbench knows.

The command is ``python -m tests.missing_operators``. Use it to find an operator that needs a
decomposition. Some of the listed functions have no gradient in PyTorch, or do not compute tensors.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from workbench.compiler.interop.thunder_api import TensorProxy, thunder_functions
from workbench.compiler.lowering.call_normalization import IN_PLACE, out_of_place_name
from workbench.compiler.lowering.foreach import FOREACH
from workbench.compiler.lowering.overrides import LOWERED


def missing_operators() -> dict[str, list[str]]:
    """Return the sorted names of the missing functions of each module, and of the missing methods of tensors."""
    missing = {}
    for owner, functions in torch.overrides.get_overridable_functions().items():
        names = {getattr(function, "__name__", "_"): function for function in functions}
        found = [name for name, function in sorted(names.items()) if name[0] != "_" and not _is_known(name, function)]
        if found:
            missing[owner.__name__] = found
    return missing


def _is_known(name: str, function: Any) -> bool:
    if any(function in table for table in (LOWERED, FOREACH, IN_PLACE)) or thunder_functions.get(function):
        return True
    if function is not getattr(torch.Tensor, name, None):
        return False
    plain = out_of_place_name(name) or name
    same = getattr(torch.Tensor, plain, None), getattr(torch, plain, None)
    return hasattr(TensorProxy, plain) or any(each in LOWERED or thunder_functions.get(each) for each in same)


def main() -> int:
    """Write the missing functions to standard output, one line for each module."""
    for owner, names in missing_operators().items():
        sys.stdout.write(f"{owner}: {', '.join(names)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
