"""Find out whether a statement has a tag, and whether it runs PyTorch's autograd."""

from __future__ import annotations

from workbench.compiler.interop.thunder_api import BoundSymbol, _vjp_impl, prims


def has_tag(bsym: BoundSymbol, tag: prims.OpTags) -> bool:
    """Return whether a statement, its symbol or one of its subsymbols has `tag`."""
    if tag in (bsym.sym.tags or ()) or tag in bsym.tags:
        return True
    return any(has_tag(sub, tag) for sub in bsym.subsymbols)


def differentiates(bsym: BoundSymbol) -> bool:
    """Return whether a statement or one of its subsymbols runs PyTorch's autograd.

    If Thunder has no gradient rule for an operator, it calls autograd. Dynamo does not trace calls of autograd, so
    torch.compile could not compile a fusion with such a statement. An example is the gradient of ``x.detach()``.
    """
    called = (bsym._call_ctx or {}).values()
    return any(getattr(function, "func", None) is _vjp_impl for function in called) or any(
        map(differentiates, bsym.subsymbols)
    )
