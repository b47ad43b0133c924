"""Canonical text of a statement's computation. Two statements with equal texts compute equal outputs from equal inputs.

A text has one line for each step, that is, for each operator that the statement runs. If no executor has been assigned
to an operator, the text has the PyTorch function that would run. Therefore an operator has the same text inside and
outside of a fusion. A line has four or five fields, separated by tabs:

1. ``linear($, $, $)``: the symbol with its exact static arguments (floats in hexadecimal), and a ``$`` for each value.
2. ``0 1.2``: for each ``$``, the value. A single number is the position of an input of the statement. Two numbers with
   a dot are the number of an earlier step and the position of one of its outputs.
3. ``- 0 ~0``: for each output, the owner of its memory. ``-`` is the output itself, ``0`` is the first ``$``, and
   ``~0`` is the first output.
4. ``float32[4,4]@cpu``: for each output, its data type, shape and device.
5. ``4;4,4;0,1;0``, only for steps that just move elements: for each output, the shape of the first ``$``, the shape of
   the output, and the strides and the offset of the output's elements in the first ``$``. Strides and offset are those
   in a contiguous copy of the first ``$``.

The last line starts with ``=`` and lists the values that are the outputs of the statement.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from workbench.compiler.interop.thunder_api import FutureTensorProxy, NumberProxy, Proxy, TensorProxy

type Ref = tuple[int, int]
"""A value: the number of an earlier step and the position of its output. For an input of the statement, -1 and the
position of the input.
"""

FUSION = "fusion"
"""Symbol in the text of a fusion."""


@dataclasses.dataclass(frozen=True)
class TextLine:
    """One line of a canonical text."""

    call: str
    operands: tuple[Ref, ...]
    shares: tuple[str, ...]
    output_names: tuple[str, ...]
    moves: tuple[str, ...] = ()

    def __str__(self) -> str:
        fields = (map(_ref_text, self.operands), self.shares, self.output_names, *((self.moves,) if self.moves else ()))
        return "\t".join((self.call, *map(" ".join, fields)))


@dataclasses.dataclass(frozen=True)
class Computation:
    """Computation of one statement: its steps, and the values that are its outputs."""

    steps: tuple[TextLine, ...]
    outputs: tuple[Ref, ...]

    @cached_property
    def text(self) -> str:
        """Return the canonical text, which is stored in the graph."""
        return "\n".join((*map(str, self.steps), f"={' '.join(map(_ref_text, self.outputs))}"))


def _ref_text(ref: Ref) -> str:
    step, at = ref
    return str(at) if step < 0 else f"{step}.{at}"


def input_names(bsym: Any) -> list[str]:
    """Return the names of a statement's inputs, in the order of the graph."""
    return list(dict.fromkeys(arg.name for arg in bsym.flat_proxy_args))


def output_names(bsym: Any) -> list[Any]:
    """Return the proxies of a statement's outputs, without returned inputs, in the order of the graph."""
    taken = set(input_names(bsym))
    return list({out.name: out for out in bsym.flat_proxy_outs if out.name not in taken}.values())


def statement_computation(bsym: Any, sources: Mapping[str, str | int], moves: Sequence[str] = ()) -> Computation:
    """Return the computation of a statement as one step.

    Parameters
    ----------
    bsym : BoundSymbol
    sources : mapping of str to (str or int)
        Maps the name of an output to the owner of its memory: the name of an input, or a number. Outputs with equal
        numbers share memory.
    moves : sequence of str
        For a statement of `MOVING` that only moves elements: for each output, the `position_text` of its elements.
    """
    operands: list[str] = []
    inputs = {name: i for i, name in enumerate(input_names(bsym))}
    if bsym.sym.is_fusion:
        call, operands = FUSION, list(inputs)
    else:
        executor = bsym.sym.executor
        prefix = "" if executor is None or executor.name in ("torch", "python") else f"{executor.name}."
        arguments = [_argument_text(arg, operands) for arg in _arguments_with_shape(bsym)]
        # Omit PyTorch's default of `alpha`, because Thunder's primitives omit it too.
        given_too = ((key, arg) for key, arg in bsym.kwargs.items() if (key, arg) != ("alpha", 1))
        arguments += [f"{key}={_argument_text(arg, operands)}" for key, arg in given_too]
        symbol = _SAME.get(bsym.sym.name, bsym.sym.name)
        call = f"{prefix}{symbol}({', '.join(arguments)})"
        if _keeps_shape(bsym):
            call, moves = "shallow_copy($)", ()
    outputs = output_names(bsym)
    shares: list[str] = []
    first: dict[int, int] = {}
    for i, out in enumerate(outputs):
        source = sources.get(out.name)
        if isinstance(source, str) and source in operands:
            shares.append(str(operands.index(source)))
        elif isinstance(source, int) and first.setdefault(source, i) != i:
            shares.append(f"~{first[source]}")
        else:
            shares.append("-")
    step = TextLine(
        call,
        tuple((-1, inputs[name]) for name in operands),
        tuple(shares),
        tuple(_kind(out) for out in outputs),
        tuple(moves) if len(moves) == len(outputs) else (),
    )
    return Computation((step,), tuple((0, i) for i in range(len(outputs))))


_SAME = {"torch_prims_reshape_impl": "reshape", "view": "reshape"}
"""Maps symbols of Thunder's PyTorch executor to a symbol with equal results; the owner of the memory may differ."""

MOVING = frozenset(
    (
        *("expand", "reshape", "view", "torch_prims_reshape_impl", "view_as", "reshape_as", "flatten", "squeeze"),
        *("unsqueeze", "permute", "transpose", "movedim", "swapaxes", "swapdims", "diagonal", "unbind", "select"),
        *("split", "chunk", "tensor_split", "narrow", "__getitem__", "torch_slice_prim_impl"),
    )
)
"""Symbols of Thunder's PyTorch executor that only move elements, if their results are views.

Inside an nvFuser fusion, Thunder decomposes these operators into primitives. Thunder does not decompose them outside of
fusions, and does not fuse them alone. The two forms read the same elements, so the text contains the elements'
positions.
"""

KEEPING = frozenset(("contiguous", "torch_stride_order_prim_impl"))
"""Symbols of Thunder's PyTorch executor that change strides, but not the position of an element in the tensor."""


def position_text(lengths: Sequence[int], shape: Sequence[int], strides: Sequence[int], offset: int) -> str:
    """Return the fifth field for one output: the positions of its elements in a contiguous source.

    Parameters
    ----------
    lengths : sequence of int
        Shape of the source.
    shape, strides : sequence of int
        Shape of the output, and its strides in the source.
    offset : int
        Position of the output's first element in the source.
    """
    return ";".join((*(",".join(map(str, each)) for each in (lengths, shape, strides)), str(offset)))


_SHAPED = ("expand", "reshape")
"""Symbols that take the output's shape, as one argument or as several arguments. One length may be -1."""


def _arguments_with_shape(bsym: Any) -> Sequence[Any]:
    """Return a statement's arguments. For a symbol of `_SHAPED`, they are the input and the complete output shape."""
    if _SAME.get(bsym.sym.name, bsym.sym.name) in _SHAPED:
        return (bsym.args[0], tuple(int(length) for length in bsym.output.shape))
    return tuple(bsym.args)


def _keeps_shape(bsym: Any) -> bool:
    """Return whether a symbol of `_SHAPED` requests the shape that its input already has.

    Such an operator returns its input, and a fusion omits the operator.
    """
    shaped = _SAME.get(bsym.sym.name, bsym.sym.name) in _SHAPED and isinstance(bsym.output, TensorProxy)
    return shaped and tuple(bsym.args[0].shape) == tuple(bsym.output.shape)


def composite_computation(bsym: Any, parts: Sequence[tuple[Any, Computation]]) -> Computation | None:
    """Join the computations of a statement's parts.

    Return None if a part reads a value that is neither an input of the statement nor an output of an earlier part. Also
    return None if an output of the statement is not an output of any part.
    """
    known: dict[str, Ref] = {name: (-1, i) for i, name in enumerate(input_names(bsym))}
    steps: list[TextLine] = []
    for part, computation in parts:
        inputs = input_names(part)
        if any(name not in known for name in inputs):
            return None
        base = len(steps)

        def shift_ref(ref: Ref, inputs: Sequence[str] = inputs, base: int = base) -> Ref:
            return known[inputs[ref[1]]] if ref[0] < 0 else (base + ref[0], ref[1])

        steps += [dataclasses.replace(s, operands=tuple(map(shift_ref, s.operands))) for s in computation.steps]
        found = [shift_ref(ref) for ref in computation.outputs]
        known.update(zip((out.name for out in output_names(part)), found, strict=True))
    outputs = output_names(bsym)
    if any(out.name not in known for out in outputs):
        return None
    return Computation(tuple(steps), tuple(known[out.name] for out in outputs))


def _kind(proxy: Any) -> str:
    if not isinstance(proxy, (TensorProxy, FutureTensorProxy)):
        return type(proxy).__name__
    shape = ",".join(str(int(length)) for length in proxy.shape)
    return f"{str(proxy.dtype).rsplit('.', 1)[-1]}[{shape}]@{proxy.device.device_str()}"


def _argument_text(tree: Any, operands: list[str]) -> str:
    """Return an argument as text, and append the values in it to `operands` in order."""
    if isinstance(tree, NumberProxy):
        operands.append(tree.name)
        return f"${type(tree).__name__}" + ("" if tree.value is None else f"={_argument_text(tree.value, operands)}")
    if isinstance(tree, Proxy):
        operands.append(tree.name)
        return "$"
    if isinstance(tree, (tuple, list)):
        return f"({', '.join(_argument_text(leaf, operands) for leaf in tree)})"
    if isinstance(tree, dict):
        return f"{{{', '.join(f'{key!r}: {_argument_text(leaf, operands)}' for key, leaf in tree.items())}}}"
    if isinstance(tree, float):
        return tree.hex()
    if isinstance(tree, torch.distributed.ProcessGroup):
        return f"group {tree.group_name}"
    return repr(tree) if isinstance(tree, (int, str, complex, type(None))) else str(tree)
