"""Refuse programs, or warn about programs, for which Thunder's own interpreter gives wrong results.

Programs that Dynamo captures need only `refuse_unread`.
"""

from __future__ import annotations

import contextlib
import random
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from workbench.compiler.frontend.differentiability import lost_conjugate
from workbench.compiler.frontend.trace_errors import DECIDES, UNREAD, remedy
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    NumberProxy,
    ProxyTag,
    TensorProxy,
    TraceCtx,
    dtypes,
    is_constant_for_vjp,
    prims,
)
from workbench.compiler.lowering.alias_writes import (
    KEEPS_STATISTICS,
    STATISTICS,
    UNDER_NO_GRAD,
    WRITTEN_INPUT,
    WRITTEN_LEAF,
    statistics_of,
)
from workbench.compiler.lowering.call_normalization import draws_again, has_boolean, refuse_lists
from workbench.compiler.lowering.interpolate import is_thunders
from workbench.compiler.lowering.zero_dim_tensors import BROADCAST
from workbench.compiler.trace.copy_sets import VIEWS, MemoryAliases, count_copies_and_fences, is_copy, leaves
from workbench.compiler.trace.stable_ids import class_of, line_prefix
from workbench.compiler.trace.validate import validate
from workbench.errors import PlanError, ProgramError


@contextlib.contextmanager
def refuse_outside_draws() -> Iterator[None]:
    """Refuse a program that draws random numbers from Python's or NumPy's generator while it is traced in this context.

    All calls of the compiled program would use the numbers of the first call.

    Raises
    ------
    ProgramError
        The message says how to change the program.
    """
    before = _refuse_draw()
    yield
    if _refuse_draw() != before:
        reason = "numbers that are drawn by Python's random or NumPy's random would be the same in each call"
        raise ProgramError(f"{reason}: {remedy(reason)}")


@contextlib.contextmanager
def refuse_policies() -> Iterator[None]:
    """In this context, refuse selective checkpointing. Thunder's interpreter would only warn and ignore the policy."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=r"torch\.checkpoint: context_fn")
        yield


def reentrant_reason(error: BaseException) -> str:
    """Return the reason for an error of Thunder at a reentrant checkpoint; empty for any other error.

    Thunder's interpreter refuses `torch.utils.checkpoint` with ``use_reentrant=True`` by raising a string. Python
    refuses to raise a string, and raises a TypeError instead.
    """
    if "exceptions must derive from BaseException" not in str(error):
        return ""
    *_, last = traceback.extract_tb(error.__traceback__)
    if "checkpoint" not in f"{last.filename} {last.line}":
        return ""
    return f"Thunder has no torch.utils.checkpoint with use_reentrant=True, called in {last.name}"


def _refuse_draw() -> Any:
    # Read the state of the global generator that np.random.rand and similar functions use.
    _, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    return random.getstate(), np.asarray(keys).tobytes(), rest


def refuse_lost(trace: TraceCtx) -> None:
    """Refuse a program with an operator for which Thunder's interpreter computes wrong results or gradients.

    Parameters
    ----------
    trace : TraceCtx
        Trace from the interpreter.

    Raises
    ------
    ProgramError
        The message has the line of the user's code and a remedy.
    """
    for bsym in trace.bound_symbols:
        if _smooths(bsym):
            raise ProgramError(
                f"{_line(bsym)}Thunder's {bsym.sym.name} differs from PyTorch's: open the program with "
                "capture='auto', or omit label_smoothing (Thunder's mean counts ignored targets, and its sum has no "
                "gradient)"
            )
        if bsym.sym.name == "max_pool1d" and _pads(bsym):
            raise ProgramError(
                f"{_line(bsym)}Thunder's max_pool1d returns NaN for padding: open the program with capture='auto', or "
                "call max_pool2d on x.unsqueeze(-2)"
            )
        if bsym.sym.name == "instance_norm" and _keeps_statistics(bsym):
            raise ProgramError(
                f"{_line(bsym)}Thunder's instance_norm loses its running statistics: open the program with "
                "capture='auto', or without track_running_stats"
            )
        if bsym.sym.name == "interpolate" and not is_thunders(*bsym.args, **bsym.kwargs):
            raise ProgramError(
                f"{_line(bsym)}Thunder's interpolate selects other elements here than PyTorch's: open the program "
                "with capture='auto', or use an output size that is a multiple of the input size"
            )
        if bsym.sym.name == "getitem" and has_boolean(bsym.args[1]):
            raise ProgramError(
                f"{_line(bsym)}Thunder takes True and False in an index for the numbers 1 and 0: open the program with "
                "capture='auto'"
            )
        if class_of(bsym) and _hands_on(bsym):
            raise ProgramError(
                f"Thunder loses the gradient of the torch.autograd.Function {class_of(bsym)}, which returns its "
                "input: open the program with capture='auto'"
            )
    _refuse_decisions(trace)
    through = [bsym for bsym, _ in _differentiated_statements(trace)]
    _refuse_unseen(trace, through)
    _refuse_statistics(trace)
    for bsym in through:
        if _sums(bsym):
            raise ProgramError(
                f"{_line(bsym)}Thunder cannot differentiate the sum of losses of {bsym.sym.name}, which fails while "
                "it runs: open the program with capture='auto', or sum the result of reduction='none'"
            )
        if draws_again(bsym):
            raise ProgramError(
                f"{_line(bsym)}Thunder draws other numbers in the backward of {bsym.sym.name} than in its forward: "
                "open the program with capture='auto'"
            )
        try:
            refuse_lists(bsym.sym, bsym.args)
        except NotImplementedError as error:
            raise ProgramError(
                f"{_line(bsym)}Thunder cannot differentiate {bsym.sym.name}: open the program with capture='auto', or "
                f"write it without a list ({error})"
            ) from None
        if reason := lost_conjugate(bsym):
            raise ProgramError(
                f"{_line(bsym)}Thunder cannot differentiate {bsym.sym.name}: open the program with capture='auto', so "
                f"that PyTorch runs this, or compute with real and imaginary parts ({reason})"
            )


def refuse_written_leaves(trace: TraceCtx, arguments: Mapping[str, torch.Tensor]) -> None:
    """Refuse writes into leaves that require gradients, and writes after which other arguments have a gradient.

    Eager PyTorch also refuses a write into such a leaf. Thunder loses the gradient that flows through another written
    argument.

    Parameters
    ----------
    trace : TraceCtx
        Trace from the interpreter.
    arguments : mapping of str to Tensor
        Maps the names of the trace's arguments to tensors.

    Raises
    ------
    ProgramError
        The message has the line of the user's code and a remedy.
    """
    wanted = {name for name, tensor in arguments.items() if tensor.requires_grad}
    if not wanted or not torch.is_grad_enabled():
        return
    memory = MemoryAliases(trace.bound_symbols)
    names = set(wanted)
    first_names: dict[str, str] = {}
    for bsym in trace.bound_symbols:
        _note_write(bsym, first_names)
        flows = _flows(bsym, names)
        if flows:
            names.update(first_names[out.name] for out in bsym.flat_proxy_outs if out.name in first_names)
        # Norms write running statistics without a gradient.
        flows = flows and bsym.sym.name.endswith("_")
        for leaf in leaves([bsym]) if count_copies_and_fences(bsym)[0] else ():
            unseen = any(
                ProxyTag.DETACHED_AUTOGRAD_GRAPH in p.tags for p in (*leaf.flat_proxy_args, *leaf.flat_proxy_outs)
            )
            if not is_copy(leaf) or unseen or (written := memory.base(leaf.args[1].name)) not in arguments:
                continue
            if written in wanted and arguments[written].is_leaf:
                raise ProgramError(f"{_line(bsym)}{remedy(WRITTEN_LEAF)} ({WRITTEN_LEAF})")
            if written in wanted or flows:
                raise ProgramError(f"{_line(bsym)}{remedy(WRITTEN_INPUT)} ({WRITTEN_INPUT})")


def refuse_unsaved(trace: TraceCtx, forward: TraceCtx, backward: TraceCtx | None) -> None:
    """Refuse a `torch.autograd.Function` whose backward reads values that its forward did not save through autograd.

    Parameters
    ----------
    trace : TraceCtx
        Trace from the interpreter.
    forward, backward : TraceCtx
        Traces of the stock plan, which has no choices.

    Raises
    ------
    ProgramError
        The message says how to change the program.
    """
    bsym = next(filter(class_of, trace.bound_symbols), None)
    if bsym is None:
        return
    try:
        validate(forward, backward)
    except PlanError as error:
        raise ProgramError(
            f"Thunder cannot differentiate the torch.autograd.Function {class_of(bsym)}: open the program with "
            f"capture='auto', or save values for its backward by ctx.save_for_backward, not as attributes ({error})"
        ) from error


def refuse_unread(trace: TraceCtx, backward: TraceCtx | None) -> None:
    """Refuse a program with a `torch.autograd.Function` if the program's backward reads no incoming gradient.

    A call of such a backward fails an assertion in Thunder.

    Parameters
    ----------
    trace : TraceCtx
        Trace of the program, from Dynamo or from the interpreter.
    backward : TraceCtx or None
        Backward trace of the stock plan, which has no choices.

    Raises
    ------
    ProgramError
        The message has the line of the user's code and a remedy.
    """
    if backward is None or any(isinstance(each, TensorProxy) for each in backward.args[1]):
        return
    for bsym in trace.bound_symbols:
        if class_of(bsym) or bsym.sym.name == "autograd_function_apply":
            where = next(filter(None, map(_line, (bsym, *bsym.subsymbols))), "")
            raise ProgramError(f"{where}{remedy(UNREAD)} ({f'{UNREAD} {class_of(bsym)}'.strip()})")


def _refuse_decisions(trace: TraceCtx) -> None:
    """Refuse Python decisions that depend on a number in a tensor. Thunder would treat the unknown number as False."""
    for bsym in trace.bound_symbols:
        numbers = [proxy for proxy in bsym.flat_proxy_args if isinstance(proxy, NumberProxy) and proxy.value is None]
        if numbers and any(isinstance(out, NumberProxy) and out.value is not None for out in bsym.flat_proxy_outs):
            raise ProgramError(f"{_line(bsym)}{remedy(DECIDES)} ({DECIDES})")


def _hands_on(bsym: BoundSymbol) -> bool:
    same = {arg.name for arg in bsym.flat_proxy_args}
    for sub in bsym.subsymbols:
        if sub.sym.id is prims.PrimIDs.SHALLOW_COPY and sub.args[0].name in same:
            same.add(sub.output.name)
    return any(out.name in same for out in bsym.flat_proxy_outs)


def _smooths(bsym: BoundSymbol) -> bool:
    """Return whether a statement is a cross entropy of class indices with label smoothing."""
    if bsym.sym.name != "cross_entropy" or len(bsym.args) < 2 or bsym.args[0].shape == bsym.args[1].shape:
        return False
    return bool(bsym.kwargs.get("label_smoothing", bsym.args[7] if len(bsym.args) > 7 else 0.0))


def _sums(bsym: BoundSymbol) -> bool:
    """Return whether a statement is a cross entropy of class indices with the reduction ``sum``.

    For such a loss, Thunder's backward gets a weight of the wrong data type.
    """
    if bsym.sym.name != "cross_entropy" or len(bsym.args) < 2 or bsym.args[0].shape == bsym.args[1].shape:
        return False
    return bool(bsym.kwargs.get("reduction", bsym.args[6] if len(bsym.args) > 6 else "mean") == "sum")


def _keeps_statistics(bsym: BoundSymbol) -> bool:
    given = dict(enumerate(bsym.args)) | bsym.kwargs
    kept, counts = given.get("running_mean", given.get(1)), given.get("use_input_stats", given.get(5, True))
    return kept is not None and bool(counts)


def _pads(bsym: BoundSymbol) -> bool:
    padding = bsym.kwargs.get("padding", bsym.args[3] if len(bsym.args) > 3 else 0)
    return any(padding) if isinstance(padding, Sequence) else bool(padding)


def _refuse_unseen(trace: TraceCtx, through: Sequence[BoundSymbol]) -> None:
    """Refuse a program if a differentiated statement reads a value that was written in place under `no_grad`."""
    differentiated = set(map(id, through))
    first_names: dict[str, str] = {}
    unseen: dict[str, BoundSymbol] = {}
    for bsym in trace.bound_symbols:
        given = [first_names.get(arg.name, arg.name) for arg in bsym.flat_proxy_args]
        if bsym.sym.name.endswith("_") and given:
            first_names.update((out.name, given[0]) for out in bsym.flat_proxy_outs)
            if any(ProxyTag.DETACHED_AUTOGRAD_GRAPH in out.tags for out in bsym.flat_proxy_outs):
                unseen.setdefault(given[0], bsym)
                continue
        lost = next((unseen[name] for name in given if name in unseen), None)
        if lost is not None and id(bsym) in differentiated:
            raise ProgramError(
                f"{_line(lost)}Thunder cannot differentiate {lost.sym.name}: {remedy(UNDER_NO_GRAD)} ({UNDER_NO_GRAD})"
            )


def _refuse_statistics(trace: TraceCtx) -> None:
    """Refuse a normalization whose running statistics are views, if the program has gradients."""
    if not torch.is_grad_enabled() or not any(getattr(arg, "requires_grad", False) for arg in trace.args):
        return
    views: set[str] = set()
    for bsym in trace.bound_symbols:
        if bsym.sym.name in KEEPS_STATISTICS:
            kept = statistics_of(bsym.args, bsym.kwargs)
            if any(isinstance(each, TensorProxy) and each.name in views for each in kept):
                raise ProgramError(
                    f"{_line(bsym)}Thunder cannot trace {bsym.sym.name}: {remedy(STATISTICS)} ({STATISTICS})"
                )
        members = list(leaves([bsym]))
        if members and all(leaf.sym.id in VIEWS for leaf in members):
            views.update(out.name for out in bsym.flat_proxy_outs)


def doubts(trace: TraceCtx) -> Iterator[str]:
    """Yield a warning for each line of user code with a gradient that is probably wrong; see `zero_dim_tensors`.

    Parameters
    ----------
    trace : TraceCtx
        Trace from the interpreter.
    """
    told = set()
    for bsym, names in _differentiated_statements(trace):
        tensors = [arg for arg in bsym.flat_proxy_args if isinstance(arg, TensorProxy)]
        alone = [x for x in tensors if not x.ndim and x.name in names and x.device.type == "cpu"]
        if bsym.sym.name not in BROADCAST or not alone or all(not x.ndim for x in tensors):
            continue
        place = _line(bsym)
        if place not in told:
            told.add(place)
            yield (
                f"{place}{bsym.sym.name} of a tensor without dimensions: on a CPU Thunder's gradient of it is wrong. "
                "Open the program with capture='auto', or keep a dimension: x.sum(0, keepdim=True), or "
                "x.sum().reshape(1)"
            )


def _differentiated_statements(trace: TraceCtx) -> Iterator[tuple[BoundSymbol, set[str]]]:
    """Yield pairs: a statement through which a gradient flows, and the names of all values that have a gradient.

    This function computes the names, because Thunder does not record them before it differentiates the program.
    """
    if not torch.is_grad_enabled():
        return
    names: set[str] = set()
    wanted: set[str] = set()
    through = []
    written: dict[str, str] = {}
    for bsym in trace.bound_symbols:
        if bsym.sym.id is prims.PrimIDs.UNPACK_TRIVIAL:
            names.update(out.name for out in bsym.flat_proxy_outs if getattr(out, "requires_grad", False))
            continue
        if bsym.sym.id is prims.PrimIDs.RETURN:
            wanted = names.intersection(arg.name for arg in bsym.flat_proxy_args)
            continue
        _note_write(bsym, written)
        if _flows(bsym, names):
            through.append(bsym)
            names.update(written[out.name] for out in bsym.flat_proxy_outs if out.name in written)
    # Drop statements on which no returned value depends, because no gradient flows through them.
    kept = []
    for bsym in reversed(through):
        if not wanted.isdisjoint(name for out in bsym.flat_proxy_outs for name in (out.name, written.get(out.name))):
            wanted.update(names.intersection(arg.name for arg in bsym.flat_proxy_args))
            kept.append(bsym)
    yield from ((bsym, names) for bsym in reversed(kept))


def _note_write(bsym: BoundSymbol, first_names: dict[str, str]) -> None:
    """If a statement writes in place, map the names of its outputs to the first name of the value.

    Later statements read the value by its first name.
    """
    if bsym.sym.name.endswith("_") and bsym.flat_proxy_args:
        first = bsym.flat_proxy_args[0].name
        first_names.update((out.name, first_names.get(first, first)) for out in bsym.flat_proxy_outs)


def _flows(bsym: BoundSymbol, names: set[str]) -> bool:
    """Return whether a gradient flows through a statement. Add to `names` the names of outputs that have a gradient."""
    given = any(arg.name in names for arg in bsym.flat_proxy_args)
    if not given or bsym.sym.id in _WITHOUT_GRADIENT or is_constant_for_vjp(bsym):
        return False
    if bsym.subsymbols:
        for each in bsym.subsymbols:
            _flows(each, names)
        return any(out.name in names for out in bsym.flat_proxy_outs)
    made = [out.name for out in bsym.flat_proxy_outs if _is_inexact(out)]
    names.update(made)
    return bool(made)


_WITHOUT_GRADIENT = frozenset(("torch.detach", prims.PrimIDs.SIGN, prims.PrimIDs.ROUND, prims.PrimIDs.TRUNC))
"""Operators through which no gradient flows, although Thunder's `is_constant_for_vjp` does not list them."""


def _is_inexact(proxy: Any) -> bool:
    return isinstance(proxy, TensorProxy) and dtypes.is_inexact_dtype(proxy.dtype)


def _line(bsym: BoundSymbol) -> str:
    file: Any = bsym.source_filename
    line = getattr(file, "user_line", 0)
    return line_prefix(file.user_file, line) if line else ""
