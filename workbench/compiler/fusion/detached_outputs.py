"""Detached tensors that are returned together with the tensor that they were detached from."""

from __future__ import annotations

from workbench.compiler.interop.thunder_api import ProxyTag, TraceCtx
from workbench.compiler.trace.copy_sets import VIEWS, is_copy, is_fence, leaves

DETACH = "torch.detach"
"""Id of Thunder's `detach` symbol."""


def find_isolated_detaches(trace: TraceCtx) -> frozenset[str]:
    """Find results of `detach`, and views without gradients, that no region of torch.compile may compute.

    If a region returns a value and its detached version, ``return loss, loss.detach()``, Inductor returns one tensor
    for both. Autograd uses only the last position of a tensor that is returned twice. The loss would therefore have no
    gradient, like the detached value. This function can be deleted once Inductor's code returns two tensors.

    Parameters
    ----------
    trace : TraceCtx
        Trace before fusion.

    Returns
    -------
    frozenset of str
        Names of `detach` results and of views without gradients. Of the returned values that share one memory, some but
        not all are computed from such a value.
    """
    owner: dict[str, str] = {}
    passed: dict[str, frozenset[str]] = {}

    def follow(out: str, source: str, *cuts: str) -> None:
        owner[out] = owner.get(source, source)
        passed[out] = passed.get(source, frozenset()).union(cuts)

    for leaf in leaves(trace.bound_symbols[:-1]):
        given, made = leaf.flat_proxy_args, leaf.flat_proxy_outs
        if leaf.sym.id == DETACH:
            follow(made[0].name, given[0].name, made[0].name)
        elif is_fence(leaf):
            for out, one in zip(made, given, strict=False):
                follow(out.name, one.name)
        elif (is_copy(leaf) or leaf.sym.id in VIEWS) and given:
            for out in made:
                loose = ProxyTag.DETACHED_AUTOGRAD_GRAPH in out.tags  # made under `no_grad`
                follow(out.name, given[int(is_copy(leaf))].name, *([out.name] if loose else []))
    groups: dict[str, set[frozenset[str]]] = {}
    for proxy in trace.bound_symbols[-1].flat_proxy_args:
        groups.setdefault(owner.get(proxy.name, proxy.name), set()).add(passed.get(proxy.name, frozenset()))
    return frozenset[str]().union(*(one - other for cuts in groups.values() for one in cuts for other in cuts))
