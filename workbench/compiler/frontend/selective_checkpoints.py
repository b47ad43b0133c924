"""Apply the policy of `create_selective_checkpoint_contexts` to the nodes of a checkpointed region.

A policy chooses for each ATen operator whether to save its result, but a Dynamo graph contains `torch` operators. The
region therefore runs once on fake tensors, operator by operator. The policy receives the calls in the order of eager
PyTorch, because some policies count calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext, noop_context_fn

from workbench.interop.torch_private import SAC_IGNORED_OPS, TorchDispatchMode, _CachingTorchDispatchMode
from workbench.interop.torch_private import _pytree as pytree

CONTEXTS = (
    "context_fn of torch.utils.checkpoint returns contexts that do not come from create_selective_checkpoint_contexts"
)
"""Reason why a checkpoint is refused if its contexts do not come from a policy."""

_SAVE = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE, True)
_RECOMPUTE = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE, False)


@contextlib.contextmanager
def _errors_of_the_user() -> Iterator[None]:
    """In this context, replace an error of the user's functions by an error that names ``context_fn``.

    Without this name in the error, the message to the user would blame an operator that Thunder does not support.
    """
    try:
        yield
    except Exception as error:
        text = f"context_fn of torch.utils.checkpoint raises {type(error).__name__}: {error}"
        raise NotImplementedError(text) from error


class _PolicyMode(TorchDispatchMode):
    """Calls a policy for each operator, and collects the results that the policy saves."""

    def __init__(self, policy: Callable[..., Any]) -> None:
        super().__init__()
        self.policy = policy
        self.saved: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in SAC_IGNORED_OPS:
            return func(*args, **kwargs)
        with _errors_of_the_user():
            decided = self.policy(SelectiveCheckpointContext(is_recompute=False), func, *args, **kwargs)
        made = func(*args, **kwargs)
        if decided in _SAVE:
            self.saved.extend(leaf for leaf in pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor))
        elif decided not in _RECOMPUTE:
            raise NotImplementedError(f"the policy of the checkpoint returns {decided!r} for {func}")
        return made


class _PolicyInterpreter(fx.Interpreter):
    """Runs a region, and finds each node during which the policy saves a result in the storage of the node's result."""

    def __init__(self, region: fx.GraphModule, asking: _PolicyMode) -> None:
        super().__init__(region, garbage_collect_values=False)
        self.extra_traceback = False
        self.asking = asking
        self.found: set[fx.Node] = set()

    def run_node(self, n: fx.Node) -> Any:
        before = len(self.asking.saved)
        made = super().run_node(n)
        kept = {tensor.untyped_storage()._cdata for tensor in self.asking.saved[before:]}
        leaves = [leaf for leaf in pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]
        if n.op in ("call_function", "call_method") and any(t.untyped_storage()._cdata in kept for t in leaves):
            self.found.add(n)
        return made


def saved_nodes(region: fx.GraphModule) -> frozenset[fx.Node]:
    """Return the nodes of a checkpointed region whose results the region's policy saves; empty without a policy.

    Parameters
    ----------
    region : GraphModule
        Region from Dynamo, with a fake tensor for each node.

    Raises
    ------
    NotImplementedError
        If the contexts do not come from a policy. Also if ``context_fn`` or the policy raises an error, or if the
        policy returns an unknown decision.
    """
    make = region.meta.get("_checkpoint_context_fn")
    if make is None or make is noop_context_fn:
        return frozenset()
    with _errors_of_the_user():
        first, *_ = make()
    if not isinstance(first, _CachingTorchDispatchMode):
        raise NotImplementedError(CONTEXTS)
    given: Sequence[Any] = [n.meta["example_value"] for n in region.graph.find_nodes(op="placeholder")]
    modes = {leaf.fake_mode for leaf in given if hasattr(leaf, "fake_mode")}
    asking = _PolicyMode(first.policy_fn)
    asked = _PolicyInterpreter(region, asking)
    with next(iter(modes)), torch.enable_grad(), asking:
        asked.run(*given)
    return frozenset(asked.found)
