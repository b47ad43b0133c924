"""Copy and pickle a user's optimizers completely. PyTorch leaves out attributes that a subclass adds."""

from __future__ import annotations

import copy
import copyreg
import functools
from typing import Any

import torch


@functools.cache
def _base() -> frozenset[str]:
    return frozenset(vars(torch.optim.Optimizer([torch.zeros(1)], {})))


def _added_attributes(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the attributes that a copy by PyTorch lacks, except for replaced methods, such as a scheduler's `step`."""
    known = _base().union(optimizer.__getstate__())
    own = vars(optimizer).items()
    return {name: value for name, value in own if name not in known and not hasattr(type(optimizer), name)}


def copy_added(optimizer: torch.optim.Optimizer, memo: dict[int, Any]) -> None:
    """Add the attributes that `copy.deepcopy` left out to the copy in `memo`."""
    vars(memo[id(optimizer)]).update(
        {name: copy.deepcopy(value, memo) for name, value in _added_attributes(optimizer).items()}
    )


def _restore(optimizer: torch.optim.Optimizer, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    known, added = state
    optimizer.__setstate__(known)
    vars(optimizer).update(added)


def reduce_optimizer(obj: Any) -> Any:
    """Return pickle's reduction of an optimizer with its additional attributes; None for any other object."""
    if isinstance(obj, torch.optim.Optimizer) and (added := _added_attributes(obj)):
        return copyreg.__newobj__, (type(obj),), (obj.__getstate__(), added), None, None, _restore  # type: ignore[attr-defined]
    return None
