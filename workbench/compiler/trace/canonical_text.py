"""Canonical text of a statement's computation. In any trace, equal texts give equal outputs on equal inputs.

A text has one line per step. Unclaimed statements are written as the PyTorch functions that would run for them, so an
operator has the same text inside and outside of a fusion. A line has four or five fields, separated by tabs:

``linear($, $, $)``: the symbol with its static arguments, exactly (floats in hexadecimal), and a ``$`` for each value.
``0 1.2``: the value behind each ``$``, which is an input of the statement, or the number of an earlier step with its
output after a dot. ``- 0 ~0``: for each output, the owner of its memory, which is itself, the ``$`` of that number, or
another output. ``float32[4,4]@cpu``: for each output, its data type, shape and device. ``4;4,4;0,1;0``, only for steps
that just move elements: for each output, the shape of the first ``$`` and its own shape, then the strides and the
offset of its elements in the first ``$``, as if that were contiguous.

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
"""Number of an earlier step and of its output; for an input, -1 and the input's position."""

FUSION = "fusion"
"""Symbol of a statement that consists only of its members."""


@dataclasses.dataclass(frozen=True)
class TextLine:
    """One line of a text."""

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
    """Computation of one statement."""

    steps: tuple[TextLine, ...]
    outputs: tuple[Ref, ...]

    @cached_property
    def text(self) -> str:
        """Return the text that is stored in the graph."""
        return "\n".join((*map(str, self.steps), f"={' '.join(map(_ref_text, self.outputs))}"))


def _ref_text(ref: Ref) -> str:
    step, at = ref
    return str(at) if step < 0 else f"{step}.{at}"


def input_names(bsym: Any) -> list[str]:
    """Return the names of a statement's inputs, in the order of the graph."""
    return list(dict.fromkeys(arg.name for arg in bsym.flat_proxy_args))


def output_names(bsym: Any) -> list[Any]:
    """Return a statement's outputs, in the order of the graph."""
    taken = set(input_names(bsym))
    return list({out.name: out for out in bsym.flat_proxy_outs if out.name not in taken}.values())


def statement_computation(bsym: Any, sources: Mapping[str, str | int], moves: Sequence[str] = ()) -> Computation:
    """Return the computation of a statement as one step.

    Parameters
    ----------
    bsym : BoundSymbol
    sources : mapping of str to (str or int)
        For an output in an input's memory, the name of that input; for other outputs a number, which is equal for
        outputs that share memory.
    moves : sequence of str
        For a symbol of `MOVING`, the source of each output's elements, if the statement only moves them.
    """
    operands: list[str] = []
    inputs = {name: i for i, name in enumerate(input_names(bsym))}
    if bsym.sym.is_fusion:
        call, operands = FUSION, list(inputs)
    else:
        executor = bsym.sym.executor
        prefix = "" if executor is None or executor.name in ("torch", "python") else f"{executor.name}."
        arguments = [_argument_text(arg, operands) for arg in _arguments_with_shape(bsym)]
        # PyTorch's default is left out, as Thunder's primitives leave it out.
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
"""Symbols of Thunder's PyTorch executor that compute the same as another symbol; their memory is a separate field."""

MOVING = frozenset(
    (
        *("expand", "reshape", "view", "torch_prims_reshape_impl", "view_as", "reshape_as", "flatten", "squeeze"),
        *("unsqueeze", "permute", "transpose", "movedim", "swapaxes", "swapdims", "diagonal", "unbind", "select"),
        *("split", "chunk", "tensor_split", "narrow", "__getitem__", "torch_slice_prim_impl"),
    )
)
"""Symbols of Thunder's PyTorch executor that only move elements, if their results are views.

Thunder keeps such an operator out of nvFuser's fusions, undecomposed, if the fusion would contain no other operator.
Inside a fusion, Thunder decomposes it into primitives. Both read the same elements.
"""

KEEPING = frozenset(("contiguous", "torch_stride_order_prim_impl"))
"""Symbols of Thunder's PyTorch executor that change strides, but not the position of an element in the tensor."""


def position_text(lengths: Sequence[int], shape: Sequence[int], strides: Sequence[int], offset: int) -> str:
    """Return the source positions of an output's elements, as if the source were contiguous."""
    return ";".join((*(",".join(map(str, each)) for each in (lengths, shape, strides)), str(offset)))


_SHAPED = ("expand", "reshape")
"""Symbols that take the shape of their output: as one argument, as several, or with one open length."""


def _arguments_with_shape(bsym: Any) -> Sequence[Any]:
    """Return a statement's arguments, in which the output's shape replaces the requested shape."""
    if _SAME.get(bsym.sym.name, bsym.sym.name) in _SHAPED:
        return (bsym.args[0], tuple(int(length) for length in bsym.output.shape))
    return tuple(bsym.args)


def _keeps_shape(bsym: Any) -> bool:
    """Return whether the requested shape is the input's.

    Then the operator returns its input, and fusions leave it out.
    """
    shaped = _SAME.get(bsym.sym.name, bsym.sym.name) in _SHAPED and isinstance(bsym.output, TensorProxy)
    return shaped and tuple(bsym.args[0].shape) == tuple(bsym.output.shape)


def composite_computation(bsym: Any, parts: Sequence[tuple[Any, Computation]]) -> Computation | None:
    """Return the computation of a composite statement; None if its parts do not make all of its outputs."""
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
