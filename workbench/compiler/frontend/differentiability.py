"""Check whether Thunder can differentiate a statement.

If Thunder refuses a program as one graph, the graph is cut at each operator that cannot be traced or fails this check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    Proxy,
    ProxyTag,
    TensorProxy,
    TraceCtx,
    _get_gradfn_and_executor,
    augmented_forward_impls,
    backward_impls,
    dtypes,
    get_tracectx,
    is_constant_for_vjp,
    prims,
)
from workbench.compiler.trace.bsym_memo import structure_of
from workbench.interop.torch_private import tree_iter


def why_no_gradient(bsym: BoundSymbol) -> str:
    """Return why Thunder cannot differentiate a statement of the current trace, or an empty text if it can.

    To find this out, the gradient rule runs in a new scope of the trace. The statements in this scope are then dropped.
    """
    if is_constant_for_vjp(bsym):
        return ""
    rule = _rule(bsym)
    if rule is None:
        if bsym.sym.is_prim:
            return f"Thunder has no gradient of {bsym.sym.id if isinstance(bsym.sym.id, str) else bsym.sym.name}"
        return next(filter(None, map(why_no_gradient, bsym.subsymbols)), "")
    trace = get_tracectx()
    assert trace is not None
    scopes = list(trace.scopes)
    trace.push_scope([])
    try:
        rule(*bsym.args, **bsym.kwargs)
    except Exception as error:  # noqa: BLE001  # a rule may raise anything
        return f"its gradient: {str(error).strip().partition(chr(10))[0] or type(error).__name__}"
    finally:
        trace.scopes = scopes
    return ""


def lost_conjugate(bsym: BoundSymbol) -> str:
    """Return why Thunder's gradient of a statement on complex numbers is wrong, or an empty text if it is right.

    PyTorch's gradient uses the conjugate of the derivative. Thunder applies the rules of real numbers. The two
    gradients are equal only if the computation is linear with real factors, or if Thunder leaves the gradient to
    PyTorch.
    """
    found: str = structure_of(bsym).get_or_make("lost conjugate", lambda: _lost_conjugate(bsym))
    return found


def _lost_conjugate(bsym: BoundSymbol) -> str:
    if bsym.subsymbols:
        return next(filter(None, map(_lost_conjugate, bsym.subsymbols)), "")
    made = [out for out in bsym.flat_proxy_outs if isinstance(out, TensorProxy) and dtypes.is_complex_dtype(out.dtype)]
    if not made or isinstance(bsym.sym.id, str) or bsym.sym.name in _LINEAR or not bsym.flat_proxy_args:
        return ""
    factors = bsym.args[1:] if bsym.sym.name == "div" else ()
    if any(isinstance(factor, int | float | complex) and not complex(factor).imag for factor in factors):
        return ""
    return f"its gradient of complex numbers lacks a conjugate in {bsym.sym.name}"


_LINEAR = frozenset(
    (
        # For products, see `thunder_fixes`.
        *(
            "add",
            "sub",
            "mul",
            "neg",
            "sum",
            "cumsum",
            "where",
            "convert_element_type",
            "shallow_copy",
            "copy_",
            "clone",
        ),
        *("reshape", "transpose", "squeeze", "broadcast_in_dim", "slice_prim", "cat", "flip", "pad", "take", "gather"),
        *(
            "take_along_axis",
            "index_put",
            "index_copy",
            "scatter",
            "scatter_add",
            "index_add",
            "stride_order",
            "unfold",
        ),
        *("device_put", "python_return", "synchronize", "wait", "all_gather", "all_reduce", "reduce_scatter"),
    )
)
"""Thunder's primitives with a correct gradient for complex numbers."""


def _rule(bsym: BoundSymbol) -> Callable[..., Any] | None:
    rule: Callable[..., Any] | None = _get_gradfn_and_executor(bsym)[0]
    forward = augmented_forward_impls.get(bsym.sym.id)
    if rule is not None or forward is None:
        return rule
    backward = backward_impls[bsym.sym.id]

    def both(*args: Any, **kwargs: Any) -> None:
        made, saved = forward(*args, **kwargs)
        given = [prims.get_grad(out) for out in tree_iter(made) if isinstance(out, TensorProxy)]
        found = backward(*saved, *given)
        wanted = sum(isinstance(arg, TensorProxy) for arg in args)
        count = 1 if isinstance(found, Proxy) else len(found)
        if count < wanted:
            raise ValueError(f"{count} gradients for {wanted} tensors")

    return both


def cut_off_whole_numbers(trace: TraceCtx) -> None:
    """If a statement computes a returned value of integer or boolean type, stop gradients at this statement.

    For a cast to an integer or boolean type, Thunder's rule gives a gradient of zeros. If a program returned only such
    values, Thunder would make a backward that autograd never calls.

    Parameters
    ----------
    trace : TraceCtx
        Trace from the interpreter.
    """
    returned = {proxy.name for proxy in trace.bound_symbols[-1].flat_proxy_args}
    for bsym in trace.bound_symbols:
        made = [out for out in bsym.flat_proxy_outs if isinstance(out, TensorProxy)]
        if not any(out.name in returned for out in made) or bsym.sym.id is prims.PrimIDs.UNPACK_TRIVIAL:
            continue
        if not any(dtypes.is_inexact_dtype(out.dtype) for out in made):
            for out in made:
                out.tags.add(ProxyTag.DETACHED_AUTOGRAD_GRAPH)
