"""Find detached tensors that a program returns in addition to the original tensors."""

from __future__ import annotations

from workbench.compiler.interop.thunder_api import ProxyTag, TraceCtx
from workbench.compiler.trace.copy_sets import VIEWS, is_copy, is_fence, leaves

DETACH = "torch.detach"
"""Id of Thunder's `detach` symbol."""


def find_isolated_detaches(trace: TraceCtx) -> frozenset[str]:
    """Find results of `detach`, and views without gradients, that no fusion of torch.compile may compute.

    If a fusion returns a value and its detached version, as in ``return loss, loss.detach()``, Inductor returns one
    tensor for both. If a tensor is returned twice, autograd uses only its last position. Therefore the loss would have
    no gradient, like the detached value. This function can be deleted once Inductor's code returns two tensors.

    Parameters
    ----------
    trace : TraceCtx
        Trace before fusion.

    Returns
    -------
    frozenset of str
        Names of the results of `detach`, and of the views without gradients. For each of them, the program returns two
        values in the same memory: the first is computed from the result or view, and the second is not.
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
