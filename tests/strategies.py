"""Hypothesis strategies: random programs that PyTorch can run and differentiate, and random choices for them.

A program is drawn line by line and run as it grows, so that every line fits what is there; what comes out is plain
source, kept with `linecache`, so that traces have source lines and a failing example can be read and copied.
"""

from __future__ import annotations

import dataclasses
import hashlib
import linecache
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st

from workbench.levers.base import Site

SIZES = (8, 16)
NAMESPACE = {"torch": torch, "F": F}
MOST_ELEMENTS = 4096


class _DrawsAsThunder:
    """`torch.nn.functional` with the dropout that Thunder makes of it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(F, name)

    @staticmethod
    def dropout(x: torch.Tensor, p: float) -> torch.Tensor:
        kept = torch.empty(x.shape, dtype=x.dtype).uniform_(0.0, 1.0) < 1 - p
        return x * kept * (1 / (1 - p))


@dataclasses.dataclass(frozen=True)
class Input:
    """One argument: float32 of a random normal, float64, int64 from 0 to 7, or bool."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    requires_grad: bool = False

    def make(self) -> torch.Tensor:
        if self.dtype == "int64":
            return torch.randint(0, 8, self.shape)
        if self.dtype == "bool":
            return torch.rand(self.shape) > 0.5
        return torch.randn(self.shape, dtype=getattr(torch, self.dtype), requires_grad=self.requires_grad)


@dataclasses.dataclass(frozen=True)
class RandomProgram:
    """A function as source, with what it takes.

    Attributes
    ----------
    inputs : tuple of Input
    lines : tuple of str
    returned : tuple of str
    shared : bool
        Whether the last input is the first one again, the same tensor.
    """

    inputs: tuple[Input, ...]
    lines: tuple[str, ...]
    returned: tuple[str, ...]
    shared: bool = False

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

    def build_eager(self) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...], dict[str, Any]]:
        """For eager PyTorch: dropout draws as Thunder's does, so that equal seeds give equal masks."""
        _, args, kwargs = self.build()
        return self._compiled({"torch": torch, "F": _DrawsAsThunder()}), args, kwargs

    def build(self) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...], dict[str, Any]]:
        """The function with fresh inputs, the same values each time."""
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(17)
            made = [input.make() for input in self.inputs]
        if self.shared:
            made[-1] = made[0]
        return self.function, tuple(made), {}

    def __repr__(self) -> str:
        takes = "".join(f"# {input}\n" for input in self.inputs)
        return f"\n{takes}{'# the last is the first' if self.shared else ''}\n{self.source}"


class _Growing:
    """A program being drawn, and the values of its names so far."""

    def __init__(self, draw: Callable[..., Any], inputs: Iterable[Input], values: Iterable[torch.Tensor]) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.values: dict[str, torch.Tensor] = {input.name: value for input, value in zip(inputs, values, strict=True)}
        self.outputs = 0

    def some(self, fits: Callable[[torch.Tensor], bool] = lambda _: True) -> str | None:
        """One of the names whose value fits, a young one most likely: what nothing reads is dead code."""
        names = [name for name, value in self.values.items() if fits(value)]
        if not names:
            return None
        young = names[:-4:-1]
        return self.draw(st.sampled_from(young) | st.sampled_from(young) | st.sampled_from(names[::-1]))

    def floating(self, fits: Callable[[torch.Tensor], bool] = lambda _: True) -> str | None:
        return self.some(lambda v: v.is_floating_point() and fits(v))

    def reads(self, name: str) -> bool:
        """Whether a line reads the name."""
        return any(
            re.search(rf"\b{name}\b", line.partition(" = ")[2] or line.partition("_(")[2]) for line in self.lines
        )

    def fresh(self, count: int = 1) -> list[str]:
        names = [f"v{self.outputs + i}" for i in range(count)]
        self.outputs += count
        return names

    def run(self, line: str) -> bool:
        """Run a line and keep it, unless PyTorch refuses it or it makes something large or not finite."""
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
    return not value.is_floating_point() or bool(value.detach().abs().max() < 1e4)


def _one(grow: _Growing, expression: str) -> None:
    grow.run(f"{grow.fresh()[0]} = {expression}")


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
    )
    if name := grow.floating():
        _one(grow, grow.draw(st.sampled_from(forms)).format(name))


def _binary(grow: _Growing) -> None:
    forms = (
        "{} + {}",
        "{} - {}",
        "{} * {}",
        "{} / ({} ** 2 + 1.0)",
        "torch.maximum({}, {})",
        "torch.where({0} > 0, {0}, {1})",
        "torch.add({}, {}, alpha=2)",
    )
    if (a := grow.floating()) is None:
        return
    shape = grow.values[a].shape
    b = grow.floating(lambda v: _broadcasts(v.shape, shape))
    _one(grow, grow.draw(st.sampled_from(forms)).format(a, b))


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
    )
    if name := grow.floating(lambda v: v.dim() > 0):
        dim = grow.draw(st.integers(0, grow.values[name].dim() - 1))
        _one(grow, grow.draw(st.sampled_from(forms)).format(name, dim))


def _layer_norm(grow: _Growing) -> None:
    if name := grow.floating(lambda v: v.dim() > 0 and v.shape[-1] > 1):
        _one(grow, f"F.layer_norm({name}, ({grow.values[name].shape[-1]},))")


def _matmul(grow: _Growing) -> None:
    if (a := grow.floating(lambda v: v.dim() >= 2)) is None:
        return
    value = grow.values[a]
    plain = grow.floating(lambda v: v.dim() == 2 and v.dtype == value.dtype and v.shape[0] == value.shape[-1])
    across = grow.floating(lambda v: v.dim() == 2 and v.dtype == value.dtype and v.shape[1] == value.shape[-1])
    forms = []
    if plain:
        forms += [f"{a} @ {plain} * 0.25"]
    if across:
        forms += [f"F.linear({a}, {across}) * 0.25", f"{a} @ {across}.transpose(0, 1) * 0.25"]
    if forms:
        _one(grow, grow.draw(st.sampled_from(forms)))


def _view(grow: _Growing) -> None:
    if (name := grow.some(lambda v: v.dim() > 0)) is None:
        return
    shape = grow.values[name].shape
    forms = [
        "{}.reshape(-1)",
        "{}.unsqueeze(0)",
        "{}.transpose(0, -1)",
        "{}[..., :4]",
        "{}[1:]",
        "{}[0]",
        "{}[:, None]",
        "{}.flatten()",
        "{}.contiguous()",
    ]
    if len(shape) == 1:
        forms += ["{}.unsqueeze(0).expand(8, -1)"]
    if shape[0] == 1:
        forms += ["{}.squeeze(0)", "{}.expand(" + ", ".join(map(str, (8, *shape[1:]))) + ")"]
    if shape[0] % 2 == 0:
        forms += [f"{{}}.reshape(2, {shape[0] // 2}, *{tuple(shape[1:])})"]
    _one(grow, grow.draw(st.sampled_from(forms)).format(name))


def _several(grow: _Growing) -> None:
    forms = ("torch.chunk({}, 2, {})", "torch.split({}, 4, {})", "torch.var_mean({}, {})")
    if name := grow.floating(lambda v: v.dim() > 0 and 8 in v.shape):
        dim = list(grow.values[name].shape).index(8)
        first, second = grow.fresh(2)
        grow.run(f"{first}, {second} = {grow.draw(st.sampled_from(forms)).format(name, dim)}")


def _join(grow: _Growing) -> None:
    if (a := grow.floating(lambda v: v.dim() > 0)) is None:
        return
    value = grow.values[a]
    b = grow.floating(lambda v: v.shape == value.shape and v.dtype == value.dtype)
    _one(grow, grow.draw(st.sampled_from(("torch.cat(({}, {}), 0)", "torch.stack(({}, {}), 0)"))).format(a, b))


def _cast(grow: _Growing) -> None:
    forms = (
        "{}.to(torch.float64)",
        "{}.to(torch.float32)",
        "({} > 0)",
        "({} > 0).to(torch.float32)",
        "({} * 4).to(torch.int64)",
    )
    if name := grow.some():
        _one(grow, grow.draw(st.sampled_from(forms)).format(name))


def _whole(grow: _Growing) -> None:
    if a := grow.some(lambda v: not v.is_floating_point()):
        shape = grow.values[a].shape
        b = grow.floating(lambda v: _broadcasts(v.shape, shape))
        forms = ["{} + 1", "{0} * {0}", "{}.to(torch.float32)"]
        if b:
            forms += [f"{b} * {{}}"]
            if grow.values[a].dtype == torch.bool:
                forms += [f"torch.where({{}}, {b}, {b} * 0.5)"]
        _one(grow, grow.draw(st.sampled_from(forms)).format(a))


def _embed(grow: _Growing) -> None:
    indices = grow.some(lambda v: v.dtype == torch.int64 and 0 < v.dim() < 3 and v.min() >= 0 and v.max() < 8)
    table = grow.floating(lambda v: v.dim() == 2 and v.shape[0] >= 8)
    if indices and table:
        _one(grow, f"F.embedding({indices}, {table})")


def _detach(grow: _Growing) -> None:
    if name := grow.floating():
        _one(grow, grow.draw(st.sampled_from(("{}.detach()", "{}.clone()"))).format(name))


def _dropout(grow: _Growing) -> None:
    if name := grow.floating():
        _one(grow, f"F.dropout({name}, 0.5)")


def _write(grow: _Growing) -> None:
    forms = ("{}.add_({})", "{}.copy_({})", "{}.mul_({})", "{}.add_(1.0)", "{}.mul_(0.5)")
    if (a := grow.floating(lambda v: not (v.is_leaf and v.requires_grad))) is None:
        return
    shape, dtype = grow.values[a].shape, grow.values[a].dtype
    b = grow.floating(lambda v: v.shape == shape and v.dtype == dtype)
    grow.run(grow.draw(st.sampled_from(forms)).format(a, b))


PURE = (
    *(_unary,) * 4,
    *(_binary,) * 5,
    *(_reduction,) * 2,
    _layer_norm,
    *(_matmul,) * 3,
    *(_view,) * 3,
    _several,
    _join,
    _cast,
    _whole,
    _embed,
    _detach,
)
INPUTS = st.sampled_from(
    [
        (shape, dtype, grad)
        for shape in ((8, 16), (16, 8), (8, 8), (16,), (1, 8))
        for dtype, grad in (("float32", True), ("float32", True), ("float32", False), ("float64", True))
    ]
    + [((8,), "int64", False), ((8, 8), "bool", False), ((), "float32", True)]
)


@st.composite
def programs(
    draw: Callable[..., Any], *, random: bool = False, writes: bool = False, most_lines: int = 14
) -> RandomProgram:
    """Programs of pure operations; with `random` dropout too, with `writes` in-place writes too."""
    drawn = draw(st.lists(INPUTS, min_size=1, max_size=4))
    inputs = [Input(f"x{i}", *drawn[i]) for i in range(len(drawn))]
    if not any(input.dtype.startswith("float") for input in inputs):
        inputs[0] = Input("x0", (8, 8), "float32", True)
    shared = len(inputs) > 1 and draw(st.integers(0, 9)) == 9
    if shared:
        inputs[-1] = dataclasses.replace(inputs[0], name=inputs[-1].name)
    start = RandomProgram(tuple(inputs), (), ("x0",), shared)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(17)
        grow = _Growing(draw, inputs, start.build()[1])
        kinds = (*PURE, *((_dropout,) * 3 if random else ()), *((_write,) * 4 if writes else ()))
        for kind in draw(st.lists(st.sampled_from(kinds), min_size=4, max_size=most_lines)):
            kind(grow)
        arguments = {input.name for input in inputs}
        if not any(v.is_floating_point() for name, v in grow.values.items() if name not in arguments):
            _one(grow, f"{grow.floating()} * 2.0")
        # All that nothing reads but for a few unused, and sometimes what was made on the way, and inputs themselves.
        ends = [name for name in grow.values if name not in arguments and not grow.reads(name)]
        unused = draw(st.lists(st.sampled_from(ends), max_size=2)) if len(ends) > 1 else []
        others = draw(st.lists(st.sampled_from(list(grow.values)), max_size=2, unique=True))
    kept = [name for name in ends if name not in unused] or ends[-1:]
    returned = tuple(dict.fromkeys((*kept, *others)))
    return dataclasses.replace(start, lines=tuple(grow.lines), returned=returned)


def legal_options(site: Site) -> list[str]:
    """The options of a site that are not refused."""
    return [option for option in site.options if option not in site.illegal]


@st.composite
def choice_sets(draw: Callable[..., Any], sites: tuple[Site, ...], *, most: int = 10) -> dict[str, str]:
    """Choices that are legal one by one under what is chosen now, settings included."""
    free = [site for site in sites if len(legal_options(site)) > 1]
    if not free:
        return {}
    settings = [site for site in free if "." in site.id.partition(":")[0]]
    places = [site for site in free if site not in settings]
    chosen: dict[str, str] = {}
    for site in settings:
        if draw(st.integers(0, 3)) == 3:
            chosen[site.id] = draw(st.sampled_from(legal_options(site)))
    # One bit decides whether nearly all places are turned, for that is where choices meet.
    many = draw(st.booleans())
    few = draw(st.sets(st.sampled_from(range(len(places))), max_size=most)) if places and not many else set()
    for i, site in enumerate(places):
        if many or i in few:
            # What is in force most rarely: it changes nothing.
            options = [option for option in legal_options(site) if option != site.choice]
            chosen[site.id] = draw(st.sampled_from([*options[::-1], *options, site.choice]))
    return chosen


def refused_choices(sites: Iterable[Site]) -> list[tuple[str, str, str]]:
    """Every illegal option: site, option and the reason."""
    return [(site.id, option, reason) for site in sites for option, reason in site.illegal.items()]
