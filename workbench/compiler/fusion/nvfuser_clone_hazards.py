"""Find clones that must stay outside of nvFuser's fusions, because nvFuser returns a view instead of a clone."""

from __future__ import annotations

from workbench.compiler.interop.thunder_api import BoundSymbol, TensorProxy, TraceCtx, prims
from workbench.compiler.trace.bsym_memo import structure_of
from workbench.compiler.trace.copy_sets import VIEWS, is_copy, is_fence, leaves


class _EqualNames:
    """Groups of equal names (union-find). The first name of a group represents the group."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}

    def first(self, name: str) -> str:
        while name in self._of:
            name = self._of[name]
        return name

    def join(self, first: str, second: str) -> None:
        first, second = self.first(first), self.first(second)
        if first != second:
            self._of[second] = first


def has_clone(bsym: BoundSymbol) -> bool:
    """Return whether a statement or one of its subsymbols is a clone. The answer is cached in the structure."""
    return bool(structure_of(bsym).get_or_make("clones", lambda: any(map(_is_clone, leaves([bsym])))))


def _is_clone(leaf: BoundSymbol) -> bool:
    return leaf.sym.id is prims.PrimIDs.CLONE


def find_hazardous_outputs(trace: TraceCtx) -> frozenset[str]:
    """Return the output names of statements whose clones need their own memory.

    nvFuser treats a clone as a view (`workbench.compiler.memory.nvfuser_aliasing`). The result is wrong if the program
    writes into the original or the clone after it makes the clone. The result may also be wrong if the program returns
    both the original and the clone, because the caller may write into one of them.

    Parameters
    ----------
    trace : TraceCtx
        Trace before fusion.
    """
    if not any(map(has_clone, trace.bound_symbols)):
        return frozenset()
    memories, cloned = _EqualNames(), _EqualNames()
    clones: list[tuple[int, str, tuple[str, ...]]] = []
    written: list[tuple[int, str]] = []
    at = 0
    for statement in trace.bound_symbols[:-1]:
        for leaf in leaves([statement]):
            at += 1
            given = [proxy.name for proxy in leaf.flat_proxy_args if isinstance(proxy, TensorProxy)]
            made = [proxy.name for proxy in leaf.flat_proxy_outs if isinstance(proxy, TensorProxy)]
            if is_copy(leaf):
                written.append((at, given[-1]))
                pairs = [(given[-1], made[0])]
            elif is_fence(leaf):
                # All arguments of a fence may share one memory.
                pairs = [*((given[0], other) for other in given[1:]), *zip(given, made, strict=False)]
            elif leaf.sym.id in VIEWS and given:
                pairs = [(given[0], made[0])]
            elif _is_clone(leaf):
                clones.append((at, given[0], tuple(proxy.name for proxy in statement.flat_proxy_outs)))
                cloned.join(given[0], made[0])
                continue
            else:
                continue
            for one, other in pairs:
                memories.join(one, other)
                cloned.join(one, other)
    seen: dict[str, set[str]] = {}
    for end in (*trace.args, *trace.bound_symbols[-1].flat_proxy_args):
        seen.setdefault(cloned.first(end.name), set()).add(memories.first(end.name))
    shows = {group for group, several in seen.items() if len(several) > 1}
    begun: dict[str, int] = {}
    for index, source, _ in clones:
        begun.setdefault(cloned.first(source), index)
    shows |= {group for index, name in written if (group := cloned.first(name)) in begun and index > begun[group]}
    return frozenset(name for _, source, outputs in clones if cloned.first(source) in shows for name in outputs)
