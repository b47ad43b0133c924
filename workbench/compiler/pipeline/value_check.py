"""Compare the values of the joint trace with the values of the program's own trace, both decomposed to primitives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from workbench.analysis.equivalence.first_difference import first_difference
from workbench.analysis.equivalence.terms import Terms
from workbench.analysis.equivalence.value_numbering import ValueNumbering
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    BoundSymbolTag,
    Proxy,
    TraceCtx,
    from_trace,
    prims,
    tree_flatten,
    variableify,
)
from workbench.compiler.memory.graph_builder import read_joint
from workbench.compiler.trace.canonical_text import input_names, output_names, statement_computation
from workbench.compiler.trace.copy_sets import is_copy
from workbench.compiler.trace.proxy_traits import is_tensor, shape_of
from workbench.compiler.trace.stable_ids import is_statement, origin_of
from workbench.core.graph import Graph

if TYPE_CHECKING:
    from workbench.compiler.pipeline.lever_context import LeverContext

_COMPARED = ("draws", "written_forward", "outputs")
"""Attributes of the result of `ValueNumbering` that `lost_in_tracing` compares.

`written` is not compared, because `LeverContext.caveats` finds arguments whose writes are lost in the whole step. It
also finds random numbers that the backward draws again.
"""


def lost_in_tracing(context: LeverContext) -> str:
    """Return a message on the first value that differs between a joint trace's forward and the program's own trace.

    The message is empty if all outputs, writes and draws are equal.

    Both traces are decomposed to primitives. This is needed because Thunder's gradient rule of a composite (a statement
    with subsymbols) may contain other operators than the composite itself. A gradient rule may have replaced a
    composite by an operator of an executor. Then the same replacement is made in the program's trace if the inputs and
    outputs have equal shapes.

    Parameters
    ----------
    context : LeverContext
        Context whose `program` is not None.
    """
    assert context.program is not None
    if context.few is not None and not lost_in_tracing(context.few):
        return ""
    joint = context.joint
    forward = [bsym for bsym in joint.bound_symbols if BoundSymbolTag.BACKWARD not in bsym.tags]
    made = _live_statements(joint, list(primitives(forward)))
    program = list(primitives(context.program.bound_symbols, _composites(context.program.bound_symbols, made)))
    program = _live_statements(context.program, program)
    if _computations(context.program, program) == _computations(joint, made):
        return ""
    terms = Terms()
    before, after = _graph(context, context.program, program), _graph(context, joint, made)
    known, found = (ValueNumbering(terms, graph, drops_casts=False).result() for graph in (before, after))
    end = next((name for name in _COMPARED if getattr(known, name) != getattr(found, name)), None)
    if end is None:
        return ""
    _, source, words = first_difference(before, known, after, found, end)
    words = words.replace("the stock plan", "the program")
    return f"{source}: {words}" if source else words


def primitives(
    bsyms: Iterable[BoundSymbol], instead: dict[int, list[BoundSymbol]] | None = None
) -> Iterator[BoundSymbol]:
    """Yield the primitives to which statements are decomposed, in order.

    `instead` maps the `id` of a statement to other statements, which are yielded in place of its primitives.
    """
    for bsym in bsyms:
        if instead is not None and id(bsym) in instead:
            yield from instead[id(bsym)]
        elif bsym.subsymbols and not bsym.sym.is_prim and not is_copy(bsym):
            yield from primitives(bsym.subsymbols, instead)
        else:
            yield bsym


def _live_statements(trace: TraceCtx, bsyms: list[BoundSymbol]) -> list[BoundSymbol]:
    """Return the statements that write, and the statements on which these writes or the forward's outputs depend.

    Thunder removes all other statements as dead code, even random draws.
    """
    needed = set(_returned_names(trace))
    kept = []
    for bsym in reversed(bsyms):
        made = {proxy.name for proxy in bsym.flat_proxy_outs}
        if not is_statement(bsym) or is_copy(bsym) or made & needed:
            kept.append(bsym)
            if is_statement(bsym):
                needed.update(proxy.name for proxy in bsym.flat_proxy_args)
    return kept[::-1]


def _returned_names(trace: TraceCtx) -> list[str]:
    """Return the names of the values that the forward of a trace returns, in order."""
    returned = trace.bound_symbols[-1].args[0]
    outputs = returned.get("fw_flat_out", returned["output"]) if isinstance(returned, dict) else returned
    return [leaf.name for leaf in tree_flatten(outputs)[0] if isinstance(leaf, Proxy)]


def _computations(trace: TraceCtx, bsyms: Iterable[BoundSymbol]) -> list[Hashable]:
    """Return what each statement computes and from which values, in order, and the returned values.

    An argument is represented by its name, and any other value by its statement and its place among the outputs. If two
    traces have equal lists, the traces run the same operators on the same values in the same order. Then all results,
    writes and draws are equal, so no graph is needed.
    """
    values: dict[str, Hashable] = {}
    found: list[Hashable] = []
    for at, bsym in enumerate(filter(is_statement, bsyms)):
        (step,) = statement_computation(bsym, {}).steps
        found.append((step.call, step.operands, step.output_names, *[values.get(n, n) for n in input_names(bsym)]))
        values.update((out.name, (at, place)) for place, out in enumerate(output_names(bsym)))
    return [*found, *[values.get(name, name) for name in _returned_names(trace)]]


def _graph(context: LeverContext, trace: TraceCtx, bsyms: list[BoundSymbol]) -> Graph:
    apart = from_trace(trace)
    apart.names = set(trace.names)
    apart.bound_symbols = bsyms
    return read_joint(apart, context.origins, frozenset(), cache=context.cache, arguments=context.arguments)


def _composites(program: Iterable[BoundSymbol], joint: Iterable[BoundSymbol]) -> dict[int, list[BoundSymbol]]:
    """Map the `id` of a composite of the program to the operators that replace the composite in the joint trace.

    If operators replace only a subsymbol of the composite, the key is the `id` of this subsymbol. The inputs and
    outputs of the operators get the names of the replaced statement's inputs and outputs.
    """
    by_origin: defaultdict[int, list[BoundSymbol]] = defaultdict(list)
    for bsym in joint:
        if origin_of(bsym) >= 0 and not isinstance(bsym.sym.id, prims.PrimIDs) and bsym.sym.executor is not None:
            by_origin[origin_of(bsym)].append(bsym)
    found = {}
    for whole in program:
        ops = by_origin.get(origin_of(whole), [])
        if not ops:
            continue
        for bsym in (whole, *_implemented_parts(whole, ops[0].sym.executor.implmap)):
            # A PyTorch operator that Thunder does not decompose has no subsymbols and is not a primitive.
            apart = bool(bsym.subsymbols) or not isinstance(bsym.sym.id, prims.PrimIDs)
            if apart and (on := _operators_on(bsym, ops)) is not None:
                found[id(bsym)] = on
                break
    return found


def _implemented_parts(composite: BoundSymbol, implemented: Container[Any]) -> Iterator[BoundSymbol]:
    """Yield the subsymbols of a composite, at any depth, that an executor implements."""
    for bsym in composite.subsymbols:
        if bsym.sym.id in implemented:
            yield bsym
        yield from _implemented_parts(bsym, implemented)


def _input_tensors(op: BoundSymbol, makers: dict[str, BoundSymbol]) -> Iterator[Proxy]:
    """Yield the input tensors of an operator. For an input in `makers`, yield its maker's input tensors instead."""
    for arg in op.flat_args:
        if is_tensor(arg) and arg.name in makers:
            yield from _input_tensors(makers[arg.name], makers)
        elif is_tensor(arg):
            yield arg


def _operators_on(composite: BoundSymbol, ops: Sequence[BoundSymbol]) -> list[BoundSymbol] | None:
    """Return `ops` with the names of the inputs and outputs of `composite`; None if shapes differ.

    The first outputs of the last operator must be the composite's outputs. The inputs of the last operator must be the
    composite's inputs in order, or values that earlier operators compute from these inputs. The computed values keep
    their names.
    """
    given = list(_input_tensors(ops[-1], {out.name: op for op in ops for out in op.flat_proxy_outs}))
    pairs: list[tuple[Proxy, Proxy]] = []
    theirs = (given, list(ops[-1].flat_outs))
    for one, other in zip((composite.flat_args, composite.flat_outs), theirs, strict=True):
        ours, others = ([leaf for leaf in leaves if is_tensor(leaf)] for leaves in (one, other))
        if len(ours) > len(others) or [shape_of(p) for p in ours] != [shape_of(p) for p in others[: len(ours)]]:
            return None
        pairs.extend(zip(others, ours, strict=False))
    swap = {variableify(their): our for their, our in pairs}
    return [op.from_bsym_swap_proxies(swap) for op in ops]
