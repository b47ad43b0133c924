"""What follows from how a step's inputs lie is checked once: whatever differs from the call before is noticed."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import workbench
from workbench.compiler import inlined as inlining
from workbench.compiler.direct import Layout
from workbench.compiler.inlined import inlined, lies
from workbench.compiler.steps import Backward, Steps

pytestmark = pytest.mark.slow


class Block(nn.Module):
    """Products with regions between them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 6, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.last(torch.nn.functional.gelu(self.norm(self.first(x)))) * x.sigmoid()
        return made


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@dataclasses.dataclass
class Compiled:
    model: Block
    run: Any
    steps: list[Steps]
    looked_through: bool

    @property
    def backward(self) -> Backward:
        """Of the kind of call that was noted first."""
        found = self.steps[0]._ways[0].backward
        assert found is not None
        return found


def compiled(looked_through: bool) -> Compiled:
    """A block after some steps."""
    made: list[Steps] = []
    stock = Steps.__init__

    def noting(self: Steps, jitted: Any) -> None:
        stock(self, jitted)
        made.append(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Steps, "__init__", noting)
        model = Block()
        bench = workbench.open(model, drawn(2, 4, 6), device="cpu", executor="torchcompile_aten")
        run = bench.config.jit(model)
        made_of = Compiled(model, run, made, looked_through)
        for _ in range(4):
            step(made_of, drawn(2, 4, 6))
    return made_of


@pytest.fixture(scope="module")
def known() -> Compiled:
    return compiled(looked_through=True)


@pytest.fixture
def straight() -> Compiled:
    return compiled(looked_through=False)


type Around = Callable[[], AbstractContextManager[Any]]


def step(of: Compiled, x: torch.Tensor, cotangent: torch.Tensor | None = None, around: Around | None = None) -> Any:
    """Output and gradients of a step; where it is looked through, as unmodified Thunder runs its traces."""
    of.model.zero_grad()
    with pytest.MonkeyPatch.context() as patched, contextlib.nullcontext() if around is None else around():
        if of.looked_through:
            patched.setattr(Steps, "__call__", lambda self, *args: self._jitted(*args))
        out = of.run(x)
    out.backward(torch.ones_like(out) if cotangent is None else cotangent)
    return [out.detach(), *(p.grad for p in of.model.parameters())]


def same(one: Any, other: Any) -> None:
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a, b)
        assert a.stride() == b.stride()


def test_inputs_that_lie_otherwise_in_turn_are_the_same_bits(straight: Compiled, known: Compiled) -> None:
    before = straight.steps[0].straight
    assert before
    inputs = [drawn(2, 4, 6), drawn(4, 2, 6).transpose(0, 1), drawn(3, 4, 6), drawn(2, 4, 12)[..., ::2]]
    for _ in range(4):
        for x in inputs:
            same(step(straight, x), step(known, x))
    assert straight.steps[0].straight == before + 4


def test_cotangents_that_lie_otherwise_are_noticed(straight: Compiled, known: Compiled) -> None:
    assert straight.backward._straight is not None
    for cotangent in (drawn(2, 4, 6), drawn(6, 4, 2).permute(2, 1, 0), torch.ones(1, 1, 1).expand(2, 4, 6)):
        assert straight.backward._checking is None or not cotangent.is_contiguous()
        same(step(straight, drawn(2, 4, 6), cotangent), step(known, drawn(2, 4, 6), cotangent))
    assert straight.backward._checking is not None


def otherwise(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, with other strides."""
    if tensor.ndim < 2:
        return torch.stack([tensor, tensor], -1)[..., 0]
    return tensor.detach().transpose(0, -1).contiguous().transpose(0, -1)


@pytest.mark.parametrize("unpacks", [torch.clone, otherwise])
def test_what_hooks_unpack_of_saved_tensors_is_checked(unpacks: Any, straight: Compiled, known: Compiled) -> None:
    x = drawn(2, 4, 6)

    def around() -> AbstractContextManager[Any]:
        return saved_tensors_hooks(lambda tensor: tensor, unpacks)

    same(step(straight, x, around=around), step(known, x, around=around))
    # Back to what was noted.
    same(step(straight, x), step(known, x))


def test_one_tensor_in_two_places_is_checked_by_the_regions(straight: Compiled) -> None:
    given: list[Any] = []
    stock = straight.backward._function

    def noting(saved: list[Any], cotangents: list[Any]) -> Any:
        given[:] = [list(saved[0]), list(cotangents)]
        return stock(saved, cotangents)

    straight.backward._function, straight.backward._same_state = noting, None
    wanted = step(straight, drawn(2, 4, 6))[1:]
    saved, cotangents = given
    assert len({id(each) for each in saved}) == len(saved)
    twice = Backward(stock)
    twins = [at for at, one in enumerate(saved) for other in saved[:at] if Layout.of(one) == Layout.of(other)]
    assert twins, "two of the saved tensors lie alike"
    for _ in range(2):
        own = list(saved)
        first = next(at for at, one in enumerate(own) if Layout.of(one) == Layout.of(own[twins[0]]))
        own[twins[0]] = own[first]
        found = twice([own, ()], list(cotangents))
    assert twice._straight is None
    assert len([each for each in found if each is not None]) == len(wanted)


def test_after_an_error_autograd_records_as_before(straight: Compiled) -> None:
    def fails(*_: Any) -> Any:
        assert not torch.is_grad_enabled()
        raise MemoryError

    (way,) = straight.steps[0]._ways
    straight.steps[0]._ways = (dataclasses.replace(way, forward=fails),)
    with pytest.raises(MemoryError):
        straight.run(drawn(2, 4, 6))
    assert torch.is_grad_enabled()
    with torch.no_grad():
        assert not straight.run(drawn(2, 4, 6)).requires_grad
        assert not torch.is_grad_enabled()


def test_autocast_around_a_step_is_no_part_of_it(straight: Compiled, known: Compiled) -> None:
    def around() -> AbstractContextManager[Any]:
        return torch.autocast("cpu", torch.bfloat16)

    x = drawn(2, 4, 6)
    for _ in range(3):
        same(step(straight, x, around=around), step(known, x, around=around))
        assert not torch.is_autocast_enabled("cpu")
    same(step(straight, x), step(known, x))


def test_a_region_that_reads_what_an_unknown_statement_gives_is_checked(
    straight: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []

    def keeping(tree: ast.AST, *rest: Any) -> Any:
        texts.append(ast.unparse(tree))
        return compile(tree, *rest)  # type: ignore[call-overload]

    monkeypatch.setattr(inlining, "compile", keeping, raising=False)
    (way,) = straight.steps[0]._ways
    x = drawn(2, 4, 6)
    given = [lies(each) for each in ran_with(straight, x)]
    inlined(way.entry.computation_fn, given)
    inlined(way.entry.computation_fn)
    monkeypatch.setattr(inlining, "_MAKES_NEW", ())
    made = inlined(way.entry.computation_fn, given)
    known, unknown, none_made = (text.count("_fits(") for text in texts)
    assert known == 0
    assert 0 < none_made <= unknown
    assert "wb_mm(" in texts[0]
    assert "wb_addmm(" in texts[0]
    assert "wb_mm(" not in texts[1] + texts[2]
    args = ran_with(straight, x)
    with torch.no_grad():
        results = made(*args)[0]["output"]
    assert torch.equal(results[0], straight.run(x))


def ran_with(of: Compiled, x: torch.Tensor) -> tuple[Any, ...]:
    """What the forward of a step is given."""
    found: list[Any] = []
    stock = Steps._run

    def noting(self: Steps, way: Any, args: tuple[Any, ...]) -> Any:
        found[:] = args if way.taken is None else [args[place] for place in way.taken]
        return stock(self, way, args)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Steps, "_run", noting)
        of.run(x)
    return tuple(found)
