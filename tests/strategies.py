"""Draw random programs and choices, by a seed or by Hypothesis.

PyTorch can run all the programs, and differentiate those whose results need gradients.

A program is drawn line by line. Each line is run at once, so that later lines fit the values that exist. The program
is plain source. It is stored in `linecache`, so that traces have source lines. A failing example can be read and
copied. This module has more than 600 lines, because one generator must know all kinds of lines.

Use these programs to find rare faults. They depend only on a seed, so Hypothesis cannot shrink them line by line; it
can shrink the smaller programs of `tests/compiler/random_programs.py`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st

from workbench.core.lever import Site

NAMESPACE = {"torch": torch, "F": F}
MOST_ELEMENTS = 4096
LARGEST = 1e4
"""Largest absolute value in a program. Larger values could become infinite or NaN, which would hide differences."""
INPUT_SEED = 17
PLAIN, TRANSPOSED, EVERY_SECOND, OFFSET = "plain", "transposed", "every second", "offset"
LAYOUTS = (PLAIN, TRANSPOSED, EVERY_SECOND, OFFSET)
WIDE = ("float32", "float16", "bfloat16")
"""Floating-point types. To compute a reference in double precision, float64 replaces them."""


class Masks:
    """Dropout masks, which mark the elements to keep. They are drawn as Thunder draws them, or taken from `drawn`."""

    def __init__(self, drawn: Iterable[torch.Tensor] | None = None) -> None:
        self.drawn: list[torch.Tensor] = []
        self._again: Iterator[torch.Tensor] | None = None if drawn is None else iter(drawn)

    def next(self, x: torch.Tensor, p: float) -> torch.Tensor:
        if self._again is not None:
            return next(self._again)
        self.drawn.append(torch.empty(x.shape, dtype=x.dtype).uniform_(0.0, 1.0) < 1 - p)
        return self.drawn[-1]


class _DrawsAsThunder:
    """A stand-in for `torch.nn.functional` whose dropout draws as Thunder's dropout does."""

    def __init__(self, masks: Masks) -> None:
        self._masks = masks

    def __getattr__(self, name: str) -> Any:
        return getattr(F, name)

    def dropout(self, x: torch.Tensor, p: float) -> torch.Tensor:
        return x * self._masks.next(x, p) * (1 / (1 - p))


class _Doubles:
    """A stand-in for `torch` in which all floating data types are float64."""

    def __getattr__(self, name: str) -> Any:
        return torch.float64 if name in WIDE else getattr(torch, name)


@dataclasses.dataclass(frozen=True)
class Input:
    """An argument of a program: normal random numbers, integers from 0 to 7, or bools, in a given memory layout."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    requires_grad: bool = False
    layout: str = PLAIN

    def make(self, *, double: bool = False) -> torch.Tensor:
        shape = self.shape
        if self.layout == TRANSPOSED:
            shape = shape[::-1]
        elif self.layout == EVERY_SECOND:
            shape = (*shape[:-1], 2 * shape[-1])
        elif self.layout == OFFSET:
            shape = (shape[0] + 1, *shape[1:])
        if self.dtype in ("int64", "int32"):
            held = torch.randint(0, 8, shape, dtype=getattr(torch, self.dtype))
        elif self.dtype == "bool":
            held = torch.rand(shape) > 0.5
        else:
            held = torch.randn(shape).to(getattr(torch, self.dtype))
            held = held.double() if double else held
        if self.layout == TRANSPOSED:
            held = held.permute(*range(held.dim())[::-1])
        elif self.layout == EVERY_SECOND:
            held = held[..., ::2]
        elif self.layout == OFFSET:
            held = held[1:]
        return held.detach().requires_grad_(self.requires_grad)


@dataclasses.dataclass(frozen=True)
class RandomProgram:
    """The source of a function, and its inputs.

    Attributes
    ----------
    inputs : tuple of Input
    lines : tuple of str
    returned : tuple of str
    shared : str
        The last input: the first input again (``same``), the first row of the first input (``row``), or a tensor with a
        storage of its own (empty).
    input_seed : int
        Seed of the inputs' values.
    """

    inputs: tuple[Input, ...]
    lines: tuple[str, ...]
    returned: tuple[str, ...]
    shared: str = ""
    input_seed: int = INPUT_SEED

    @property
    def source(self) -> str:
        body = (*self.lines, f"return {', '.join(self.returned)}")
        arguments = ", ".join(input.name for input in self.inputs)
        return f"def drawn({arguments}):\n" + "".join(f"    {line}\n" for line in body)

    @property
    def random(self) -> bool:
        return any("dropout" in line for line in self.lines)

    @property
    def function(self) -> Callable[..., Any]:
        return self._compiled(NAMESPACE)

    def _compiled(self, namespace: Mapping[str, Any]) -> Callable[..., Any]:
        digest = hashlib.sha256(self.source.encode()).hexdigest()[:12]
        file = f"drawn_{digest}.py"
        linecache.cache[file] = (len(self.source), None, self.source.splitlines(keepends=True), file)
        made: dict[str, Any] = dict(namespace)
        exec(compile(self.source, file, "exec"), made)
        function: Callable[..., Any] = made["drawn"]
        return function

    def build_eager(self, masks: Masks | None = None) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...], dict]:
        """Return function and inputs for eager PyTorch. With equal seeds, dropout has the same masks as in Thunder."""
        return self._compiled({"torch": torch, "F": _DrawsAsThunder(masks or Masks())}), self.arguments(), {}

    def build_double(self, masks: Masks) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...], dict[str, Any]]:
        """Return function and inputs for double precision. Inputs have the same values, and dropout uses `masks`."""
        return self._compiled({"torch": _Doubles(), "F": _DrawsAsThunder(masks)}), self.arguments(double=True), {}

    def build(self) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...], dict[str, Any]]:
        """Return the function and new input tensors, which have the same values at each call."""
        return self.function, self.arguments(), {}

    def arguments(self, *, double: bool = False) -> tuple[torch.Tensor, ...]:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(self.input_seed)
            made = [input.make(double=double) for input in self.inputs]
        if self.shared:
            made[-1] = made[0] if self.shared == "same" else made[0][0]
        return tuple(made)

    def __repr__(self) -> str:
        takes = "".join(f"# {input}\n" for input in self.inputs)
        shared = f"# the last is {'the first' if self.shared == 'same' else 'a row of the first'}\n"
        seed = f"# values of seed {self.input_seed}\n" if self.input_seed != INPUT_SEED else ""
        return f"\n{takes}{shared if self.shared else ''}{seed}{self.source}"


class _Growing:
    """An unfinished program, and the value of each of its names after the last line."""

    def __init__(self, random: Random, inputs: Iterable[Input], values: Iterable[torch.Tensor]) -> None:
        self.random = random
        self.lines: list[str] = []
        self.values: dict[str, torch.Tensor] = {input.name: value for input, value in zip(inputs, values, strict=True)}
        self.outputs = 0

    def one_of(self, options: Iterable[Any]) -> Any:
        return self.random.choice(list(options))

    def some(self, fits: Callable[[torch.Tensor], bool] = lambda _: True) -> str | None:
        """Return a random name whose value fits. Recent names are more likely, so that few values stay unread."""
        names = [name for name, value in self.values.items() if fits(value)]
        if not names:
            return None
        return self.one_of(names[:-4:-1] if self.random.random() < 2 / 3 else names)

    def floating(self, fits: Callable[[torch.Tensor], bool] = lambda _: True) -> str | None:
        return self.some(lambda v: v.is_floating_point() and fits(v))

    def reads(self, name: str) -> bool:
        """Return whether at least one line reads the name."""
        return any(
            re.search(rf"\b{name}\b", line.partition(" = ")[2] or line.partition("_(")[2]) for line in self.lines
        )

    def fresh(self, count: int = 1) -> list[str]:
        names = [f"v{self.outputs + i}" for i in range(count)]
        self.outputs += count
        return names

    def run(self, line: str) -> bool:
        """Run a line. Add it unless PyTorch refuses it, or it makes a value that is empty, too large or not finite.

        Return whether the line was added.
        """
        scope: dict[str, Any] = {**NAMESPACE, **self.values}
        try:
            exec(line, scope)
        except (RuntimeError, IndexError, TypeError, ValueError, UserWarning):
            return False
        made = {name: scope[name] for name in scope if name not in NAMESPACE and isinstance(scope[name], torch.Tensor)}
        if any(v.numel() > MOST_ELEMENTS or v.numel() == 0 or not _finite(v) for v in made.values()):
            return False
        self.values = made
        self.lines.append(line)
        return True


def _finite(value: torch.Tensor) -> bool:
    return not value.is_floating_point() or bool(value.detach().abs().max() < LARGEST)


def _one(grow: _Growing, expression: str) -> str | None:
    """Run a line that assigns an expression to a new name. Return the name, or None if the line was not added."""
    (name,) = grow.fresh()
    return name if grow.run(f"{name} = {expression}") else None


def _unary(grow: _Growing) -> None:
    forms = (
        "torch.tanh({})",
        "torch.sigmoid({})",
        "torch.relu({})",
        "torch.sin({})",
        "torch.cos({})",
        "-{}",
        "{} * 0.5",
        "{} + 1.0",
        "2 - {}",
        "torch.exp(torch.tanh({}))",
        "F.gelu({})",
        "F.silu({})",
        "{} ** 2",
        "torch.rsqrt({0} * {0} + 1.0)",
        "torch.clamp({}, min=-1.0, max=1.0)",
        "torch.erf({})",
        "torch.abs({})",
        "F.softplus({})",
        "torch.log1p({0} * {0})",
    )
    if name := grow.floating():
        _one(grow, grow.one_of(forms).format(name))


def _binary(grow: _Growing) -> None:
    forms = (
        "{} + {}",
        "{} - {}",
        "{} * {}",
        "{} / ({} ** 2 + 1.0)",
        "torch.maximum({}, {})",
        "torch.where({0} > 0, {0}, {1})",
        "torch.add({}, {}, alpha=2)",
        "torch.addcmul({0}, {0}, {1}, value=0.5)",
        "torch.lerp({}, {}, 0.25)",
    )
    if (a := grow.floating()) is None:
        return
    shape = grow.values[a].shape
    b = grow.floating(lambda v: _broadcasts(v.shape, shape))
    _one(grow, grow.one_of(forms).format(a, b))


def _broadcasts(one: torch.Size, other: torch.Size) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(one), reversed(other), strict=False))


def _reduction(grow: _Growing) -> None:
    forms = (
        "{}.sum()",
        "{}.mean()",
        "{}.sum({})",
        "{}.mean({}, keepdim=True)",
        "torch.amax({}, {}, keepdim=True)",
        "torch.softmax({}, {})",
        "torch.log_softmax({}, {})",
        "torch.var({}, {}, keepdim=True)",
        "torch.cumsum({}, {})",
    )
    if name := grow.floating(lambda v: v.dim() > 0):
        dim = grow.random.randrange(grow.values[name].dim())
        _one(grow, grow.one_of(forms).format(name, dim))


def _norm(grow: _Growing) -> None:
    if name := grow.floating(lambda v: v.dim() > 0 and v.shape[-1] > 1):
        width = grow.values[name].shape[-1]
        dtype = grow.values[name].dtype
        scale = grow.floating(lambda v: tuple(v.shape) == (width,) and v.dtype == dtype)
        end = f", {scale}" if scale and grow.random.random() < 0.5 else ""
        _one(grow, f"F.layer_norm({name}, ({width},){end})")


def _batch_norm(grow: _Growing) -> None:
    """Try to add a batch norm, or another line that writes running statistics in place."""
    if (name := grow.floating(lambda v: v.dim() == 2 and min(v.shape) > 1)) is None:
        return
    value = grow.values[name]
    buffers = [
        other
        for other, held in grow.values.items()
        if tuple(held.shape) == (value.shape[1],) and held.dtype == value.dtype and not held.requires_grad
    ]
    if len(buffers) > 1 and grow.random.random() < 0.6:
        mean, var = grow.random.sample(buffers, 2)
        _one(grow, f"F.batch_norm({name}, {mean}, {var}, training=True, momentum=0.1)")
    elif buffers:
        mean = grow.one_of(buffers)
        form = grow.one_of(("{0}.mul_(0.9).add_({1}.detach().mean(0) * 0.1)", "{0}.copy_({0} * 0.9 + {1}.mean(0))"))
        grow.run(form.format(mean, name))


def _matmul(grow: _Growing) -> None:
    if (a := grow.floating(lambda v: v.dim() >= 2)) is None:
        return
    value = grow.values[a]
    plain = grow.floating(lambda v: v.dim() == 2 and v.dtype == value.dtype and v.shape[0] == value.shape[-1])
    across = grow.floating(lambda v: v.dim() == 2 and v.dtype == value.dtype and v.shape[1] == value.shape[-1])
    row = grow.floating(lambda v: v.dim() == 1 and v.dtype == value.dtype and v.shape[0] == value.shape[-1])
    forms = []
    if plain:
        forms += [f"{a} @ {plain} * 0.25"]
        if value.dim() == 2:
            forms += [
                # The batch dimension has stride 0 in both operands. Results of batched kernels may depend on this
                # stride.
                f"torch.bmm({a}.unsqueeze(0).expand(4, -1, -1), {plain}.unsqueeze(0).expand(4, -1, -1)) * 0.25",
                f"torch.matmul({a}.reshape(2, -1, {value.shape[1]}), {plain}.expand(2, -1, -1)) * 0.25",
                f"torch.baddbmm(({a} @ {plain})[None], {a}[None], {plain}[None]) * 0.25",
            ]
    if across:
        forms += [f"F.linear({a}, {across}) * 0.25", f"{a} @ {across}.transpose(0, 1) * 0.25"]
        bias = grow.floating(
            lambda v: v.dtype == value.dtype and tuple(v.shape) == (grow.values[across].shape[0],) and v.dim() == 1
        )
        forms += [f"F.linear({a}, {across}, {bias}) * 0.25"] if bias else []
    if row:
        forms += [f"torch.matmul({a}, {row}) * 0.25"]
    if forms:
        _one(grow, grow.one_of(forms))


VIEWS = (
    "{}.reshape(-1)",
    "{}.unsqueeze(0)",
    "{}.transpose(0, -1)",
    "{}[..., :4]",
    "{}[1:]",
    "{}[0]",
    "{}[:, None]",
    "{}.flatten()",
    "{}[..., ::2]",
    "{}.view(-1)",
)


def _view_of(grow: _Growing, name: str) -> str:
    """Return a random expression that usually is a view of `name`."""
    shape = grow.values[name].shape
    forms = list(VIEWS)
    if len(shape) == 1:
        forms += ["{}.unsqueeze(0).expand(8, -1)"]
    if len(shape) and shape[0] == 1:
        forms += ["{}.squeeze(0)", "{}.expand(" + ", ".join(map(str, (8, *shape[1:]))) + ")"]
    if len(shape) and shape[0] % 2 == 0:
        forms += [f"{{}}.reshape(2, {shape[0] // 2}, *{tuple(shape[1:])})"]
    return str(grow.one_of(forms)).format(name)


def _view(grow: _Growing) -> None:
    if name := grow.some(lambda v: v.dim() > 0):
        _one(grow, _view_of(grow, name) if grow.random.random() < 0.9 else f"{name}.contiguous()")


def _several(grow: _Growing) -> None:
    forms = ("torch.chunk({}, 2, {})", "torch.split({}, 4, {})", "torch.var_mean({}, {})")
    if name := grow.floating(lambda v: v.dim() > 0 and 8 in v.shape):
        dim = list(grow.values[name].shape).index(8)
        first, second = grow.fresh(2)
        grow.run(f"{first}, {second} = {grow.one_of(forms).format(name, dim)}")


def _join(grow: _Growing) -> None:
    if (a := grow.floating(lambda v: v.dim() > 0)) is None:
        return
    value = grow.values[a]
    b = grow.floating(lambda v: v.shape == value.shape and v.dtype == value.dtype)
    _one(grow, grow.one_of(("torch.cat(({}, {}), 0)", "torch.stack(({}, {}), 0)", "torch.cat(({0},), 0)")).format(a, b))


def _cast(grow: _Growing) -> None:
    forms = (
        "{}.to(torch.float64)",
        "{}.to(torch.float32)",
        "{}.to(torch.bfloat16)",
        "({} > 0)",
        "({} > 0).to(torch.float32)",
        "({} * 4).to(torch.int64)",
    )
    if name := grow.some():
        _one(grow, grow.one_of(forms).format(name))


def _whole(grow: _Growing) -> None:
    if a := grow.some(lambda v: not v.is_floating_point()):
        shape = grow.values[a].shape
        b = grow.floating(lambda v: _broadcasts(v.shape, shape))
        forms = ["{} + 1", "{0} * {0}", "{}.to(torch.float32)"]
        if b:
            forms += [f"{b} * {{}}"]
            if grow.values[a].dtype == torch.bool:
                forms += [f"torch.where({{}}, {b}, {b} * 0.5)", f"{b}.masked_fill({{}}, 0.5)"]
        _one(grow, grow.one_of(forms).format(a))


def _index(grow: _Growing) -> None:
    """Try to add a line that reads, gathers or adds to rows by index."""
    indices = grow.some(lambda v: v.dtype == torch.int64 and 0 < v.dim() < 3 and v.min() >= 0 and v.max() < 8)
    table = grow.floating(lambda v: v.dim() == 2 and v.shape[0] >= 8)
    if not indices or not table:
        return
    forms = ["F.embedding({0}, {1})"]
    if grow.values[indices].dim() == 1:
        forms += [
            "{1}[{0}]",
            "torch.index_select({1}, 0, {0})",
            "torch.gather({1}, 0, {0}[:, None])",
            "torch.index_add({1}, 0, {0}, torch.index_select({1}, 0, {0}))",
            "torch.scatter_add({1}, 0, {0}[:, None], {1}[:8])",
            "torch.take_along_dim({1}, {0}[:, None], 0)",
        ]
    _one(grow, grow.one_of(forms).format(indices, table))


def _detach(grow: _Growing) -> None:
    if name := grow.floating():
        _one(grow, grow.one_of(("{}.detach()", "{}.clone()")).format(name))


def _dropout(grow: _Growing) -> None:
    if name := grow.floating():
        _one(grow, f"F.dropout({name}, 0.5)")


def _writable(value: torch.Tensor) -> bool:
    """Return whether autograd allows in-place writes to a value, and no two of its elements share memory."""
    strides = (stride for stride, size in zip(value.stride(), value.shape, strict=True) if size > 1)
    return not (value.is_leaf and value.requires_grad) and 0 not in strides


def _write(grow: _Growing) -> None:
    """Try to add a line that writes in place to a value, or through a new view of the value."""
    forms = ("{}.add_({})", "{}.copy_({})", "{}.mul_({})", "{}.add_(1.0)", "{}.mul_(0.5)", "{}.copy_({} * 2.0)")
    if (a := grow.floating(lambda v: _writable(v))) is None:
        return
    if grow.values[a].dim() > 0 and grow.random.random() < 0.35:
        view = _one(grow, _view_of(grow, a))
        a = view if view and _writable(grow.values[view]) else a
    shape, dtype = grow.values[a].shape, grow.values[a].dtype
    b = grow.floating(lambda v: v.shape == shape and v.dtype == dtype)
    grow.run(grow.one_of(forms).format(a, b))


def _writes(grow: _Growing) -> None:
    """Try to add lines that compute a tensor from a value, and then overwrite this value and a second value."""
    if (a := grow.floating(lambda v: _writable(v))) is None:
        return
    shape, dtype = grow.values[a].shape, grow.values[a].dtype
    b = grow.floating(lambda v: v.shape == shape and v.dtype == dtype and _writable(v))
    if b == a:
        return
    kept = ("{}.clone()", "{} + 0.0", "{} * 1.0", "torch.cat([{}])", "{}.detach()", "torch.tanh({})", "-{}")
    if (t := _one(grow, grow.one_of(kept).format(a))) is None:
        return
    for form in grow.one_of((("{0}.copy_({1})", "{1}.copy_({2})"), ("{1}.copy_({2})", "{0}.copy_({2})"))):
        grow.run(form.format(a, b, t))


def _scalar(grow: _Growing) -> None:
    """Try to add a line that combines a zero-dimensional value, with or without a gradient, with another value."""
    forms = (
        *("{0} * {1}", "{1} * {0}", "{0} + {1}", "{1} - {0}", "{0} / ({1} ** 2 + 1.0)", "{1} / ({0} ** 2 + 1.0)"),
        *("torch.where({0} > {1}, {0}, {1})", "torch.where({1} > 0, {0}, {0} * 0.5)", "torch.maximum({0}, {1})"),
        *("{0} * {1}.detach()", "torch.add({0}, {1}, alpha=2)", "torch.lerp({0}, {1}, 0.25)", "torch.atan2({0}, {1})"),
        *("F.mse_loss({0}, {1}.expand_as({0}))", "{0}.clamp(max={1})", "torch.addcmul({0}, {0}, {1})"),
        *("torch.stack([{1}, {1} * 2]).sum() * {0}", "{0} - {1}.reshape(1)", "{0}.masked_fill({0} > 0, {1})"),
        *("torch.full_like({0}, 0.5) * {1}", "torch.hypot({1}, {0} ** 2 + 1.0)", "{0} ** ({1} * 0 + 2.0)"),
    )
    if (a := grow.floating(lambda v: v.dim() > 0)) is None:
        return
    alone = grow.floating(lambda v: v.dim() == 0) if grow.random.random() < 0.6 else None
    if alone is None:
        made = grow.one_of(("{}.sum() * 0.1", "{}.mean()", "torch.amax({})", "{}.reshape(-1)[1]", "{}.norm()"))
        alone = _one(grow, made.format(grow.floating(lambda v: v.dim() > 0)))
    if alone:
        _one(grow, grow.one_of(forms).format(a, alone))


def _complex(grow: _Growing) -> None:
    """Try to add a line that creates a complex value, or that uses or decomposes an existing one."""
    if (z := grow.some(lambda v: v.is_complex())) is None or grow.random.random() < 0.3:
        a = grow.floating(lambda v: v.dim() > 0 and v.dtype in (torch.float32, torch.float64))
        if a is None:
            return
        shape, dtype = grow.values[a].shape, grow.values[a].dtype
        b = grow.floating(lambda v: v.shape == shape and v.dtype == dtype)
        forms = (
            *(
                "torch.complex({0}, {1})",
                "torch.polar({0}.abs() + 0.5, {1})",
                "torch.fft.rfft({0})",
                "torch.fft.fft({0})",
            ),
            "torch.view_as_complex(torch.stack([{0}, {1}], -1))",
        )
        _one(grow, grow.one_of(forms).format(a, b))
        return
    shape, dtype = grow.values[z].shape, grow.values[z].dtype
    other = grow.some(lambda v: v.shape == shape and v.dtype == dtype)
    forms = (
        *(
            "{0} * {1}",
            "{0} + {1}",
            "{0} * 0.5",
            "{0}.conj() * {1}",
            "torch.view_as_real({0})",
            "{0}.abs()",
            "{0} - {1}",
        ),
        *("{0}.real", "{0}.imag", "torch.real({0}) * 2", "torch.exp({0} * 0.1)", "{0}.sum()", "torch.fft.ifft({0})"),
        *("torch.angle({0})", "{0}.reshape(-1)", "{0} * 1j", "{0} / ({1}.abs() + 1.0)"),
    )
    _one(grow, grow.one_of(forms).format(z, other))


def _set_apart(grow: _Growing) -> None:
    """Try to add a line under ``no_grad``, or a matrix product in lower precision."""
    a, b = grow.floating(), grow.floating()
    forms = (
        *("with torch.no_grad(): {2} = torch.sin({0})", "with torch.no_grad(): {2} = {0} + {1}"),
        "with torch.autocast('cpu', torch.bfloat16): {2} = {0} @ {0}.t()",
    )
    if a is not None:
        grow.run(grow.one_of(forms).format(a, b, *grow.fresh()))


PURE = (
    *(_unary,) * 4,
    *(_binary,) * 5,
    *(_reduction,) * 2,
    _norm,
    *(_matmul,) * 3,
    *(_view,) * 3,
    _several,
    _join,
    _cast,
    _whole,
    _index,
    _detach,
)
INPUTS = [
    *(
        (shape, dtype, grad)
        for shape in ((8, 16), (16, 8), (8, 8), (16,), (8,), (1, 8))
        for dtype, grad in (
            *((("float32", True),) * 4),
            ("float32", False),
            ("float32", False),
            ("float64", True),
            ("bfloat16", True),
        )
    ),
    ((8,), "int64", False),
    ((8,), "int64", False),
    ((8, 8), "int32", False),
    ((8, 8), "bool", False),
    ((), "float32", True),
]


def drawn(
    random: Random,
    *,
    draws: bool = False,
    writes: bool = False,
    most_lines: int = 14,
    layouts: bool = True,
    rare: bool = False,
) -> RandomProgram:
    """Draw a program. By default, its operations have no side effects.

    With `draws`, it may have dropout; with `writes`, in-place writes; with `rare`, zero-dimensional tensors, complex
    numbers, and lines under ``no_grad`` and ``autocast``.
    """
    inputs = [_input(f"x{i}", random, layouts=layouts) for i in range(random.randint(1, 4))]
    if not any(input.requires_grad for input in inputs):
        inputs[0] = Input("x0", (8, 8), "float32", True)
    if writes and random.random() < 0.3:
        # Add two inputs for state that the program updates, such as the running statistics of a batch norm.
        width = inputs[0].shape[-1:] or (8,)
        inputs += [Input(f"x{len(inputs) + i}", width, inputs[0].dtype) for i in range(2)]
    shared = ""
    if len(inputs) > 1 and random.random() < 0.1:
        first = dataclasses.replace(inputs[0], layout=PLAIN)
        shared = "same"
        if writes and first.dtype.startswith("float") and len(first.shape) == 2 and random.random() < 0.5:
            shared, first = "row", dataclasses.replace(first, requires_grad=False)
        shape = first.shape[1:] if shared == "row" else first.shape
        inputs[0], inputs[-1] = first, dataclasses.replace(first, name=inputs[-1].name, shape=shape)
    start = RandomProgram(tuple(inputs), (), ("x0",), shared)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(INPUT_SEED)
        grow = _Growing(random, inputs, start.arguments())
        kinds = (
            *PURE,
            *((_dropout,) * 3 if draws else ()),
            *((*(_scalar,) * 8, *(_complex,) * 8, *(_set_apart,) * 6) if rare else ()),
            *((*(_write,) * 4, _writes, _writes, _batch_norm, _batch_norm) if writes else ()),
        )
        for _ in range(random.randint(4, most_lines)):
            grow.one_of(kinds)(grow)
        arguments = {input.name for input in inputs}
        if not any(v.is_floating_point() for name, v in grow.values.items() if name not in arguments):
            _one(grow, f"{grow.floating()} * 2.0")
        # The program returns most of its unread values, and sometimes intermediate values and inputs.
        ends = [name for name in grow.values if name not in arguments and not grow.reads(name)]
        unused = random.sample(ends, random.randint(0, min(2, len(ends) - 1))) if len(ends) > 1 else []
        others = random.sample(list(grow.values), min(random.randint(0, 2), len(grow.values)))
    kept = [name for name in ends if name not in unused] or ends[-1:]
    returned = tuple(dict.fromkeys((*kept, *others)))
    return dataclasses.replace(start, lines=tuple(grow.lines), returned=returned)


def _input(name: str, random: Random, *, layouts: bool) -> Input:
    shape, dtype, grad = random.choice(INPUTS)
    layout = random.choice(LAYOUTS) if layouts and shape and random.random() < 0.3 else PLAIN
    return Input(name, shape, dtype, grad, layout)


def legal_options(site: Site) -> list[str]:
    """Return the legal options of a site."""
    return [option for option in site.options if option not in site.illegal]


def choices_for(random: Random, sites: Iterable[Site], *, most: int = 10) -> dict[str, str]:
    """Return random choices for sites and settings. Each is legal alone; together they may be illegal."""
    free = [site for site in sites if len(legal_options(site)) > 1]
    settings = [site for site in free if "." in site.id.partition(":")[0]]
    places = [site for site in free if site not in settings]
    chosen = {site.id: random.choice(legal_options(site)) for site in settings if random.random() < 0.25}
    # In half of the calls, draw an option for all sites, because many faults need several choices together.
    count = len(places) if random.random() < 0.5 else random.randint(0, min(most, len(places)))
    for site in random.sample(places, count):
        # Draw the present option least often, because it changes nothing.
        options = [option for option in legal_options(site) if option != site.choice]
        chosen[site.id] = random.choice([*options, *options, site.choice])
    return chosen


SEEDS = st.integers(0, 2**32 - 1)


def programs(*, random: bool = False, writes: bool = False, rare: bool = False) -> st.SearchStrategy[RandomProgram]:
    """Return a Hypothesis strategy whose examples are programs of `drawn`."""
    return SEEDS.map(lambda seed: drawn(Random(seed), draws=random, writes=writes, rare=rare))


def choice_sets(sites: tuple[Site, ...]) -> st.SearchStrategy[dict[str, str]]:
    """Return a Hypothesis strategy whose examples are results of `choices_for`."""
    return SEEDS.map(lambda seed: choices_for(Random(seed), sites))


def refused_choices(sites: Iterable[Site]) -> list[tuple[str, str, str]]:
    """Return a tuple for each illegal option of each site: the site's id, the option, and the reason."""
    return [(site.id, option, reason) for site in sites for option, reason in site.illegal.items()]
