"""Regions whose later calls go straight to Inductor's code give what they give through `torch.compile`, bit for bit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from torch.utils._python_dispatch import TorchDispatchMode

import workbench
from tests.amount import amount
from tests.compiler.random_programs import RandomProgram, random_programs
from workbench.compiler import direct, fusion
from workbench.compiler.direct import Direct
from workbench.torch_api import CompiledFxGraph

pytestmark = pytest.mark.slow

type Tensors = list[torch.Tensor]


class Region:
    """A function as a region: through `torch.compile`, which counts its calls, and straight where that is right."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.guarded = torch.compile(function, fullgraph=True, dynamic=False)
        self.guarded_calls = 0
        self.direct = Direct(self._counted)

    def _counted(self, *args: Any) -> Any:
        self.guarded_calls += 1
        return self.guarded(*args)

    def __call__(self, *args: Any) -> Any:
        with torch.no_grad():
            return self.direct(*args)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def bits(one: Any, other: Any) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert (a.dtype, a.shape, a.stride(), a.storage_offset()) == (b.dtype, b.shape, b.stride(), b.storage_offset())
        assert (a.requires_grad, a.is_leaf, a._is_view()) == (b.requires_grad, b.is_leaf, b._is_view())
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def mixed(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    """A result, a view of an input, an input, and a view of a result."""
    made = torch.sin(x) + y
    return [made, x.transpose(0, 1), y, made.transpose(0, 1)]


@pytest.fixture
def region() -> Region:
    return Region(mixed)


def test_a_second_call_goes_straight_and_gives_the_same(region: Region) -> None:
    for seed in range(3):
        x, y = drawn(4, 6, seed=seed), drawn(4, 6, seed=seed + 9)
        found = region(x, y)
        with torch.no_grad():
            bits(found, region.guarded(x, y))
        assert found[2] is y
        # A view that autograd knows of: what is written to it is seen in what it is of, and in its version.
        before = x._version
        found[1].add_(1)
        assert x._version == before + 1
        torch.testing.assert_close(found[1].t(), x, rtol=0, atol=0)
    assert region.direct.ways == 1
    assert region.guarded_calls == 1


def test_inputs_that_lie_otherwise_are_seen(region: Region) -> None:
    region(drawn(4, 6), drawn(4, 6))
    calls, ways = region.guarded_calls, region.direct.ways
    x, y = drawn(6, 4).t(), drawn(4, 6)
    for _ in range(2):
        found = region(x, y)
        with torch.no_grad():
            bits(found, region.guarded(x, y))
        torch.testing.assert_close(found[0], torch.sin(x) + y, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found[1], x.t(), rtol=0, atol=0)
    assert region.guarded_calls == calls + 1
    assert region.direct.ways == ways + 1


@pytest.mark.parametrize(
    "given",
    [
        (drawn(5, 6), drawn(5, 6)),
        (drawn(4, 6).double(), drawn(4, 6).double()),
        (drawn(4, 6), torch.empty(4, 6, dtype=torch.float64).fill_(2.0)),
    ],
    ids=["shape", "data type", "data type of one"],
)
def test_other_shapes_and_types_go_through_the_guards(region: Region, given: tuple[torch.Tensor, ...]) -> None:
    region(drawn(4, 6), drawn(4, 6))
    calls = region.guarded_calls
    torch.testing.assert_close(region(*given)[0], torch.sin(given[0]) + given[1], rtol=1e-6, atol=1e-6)
    assert region.guarded_calls == calls + 1


def test_one_tensor_given_twice_goes_through_the_guards(region: Region) -> None:
    region(drawn(4, 6), drawn(4, 6))
    calls, x = region.guarded_calls, drawn(4, 6)
    for turn in range(1, 3):
        torch.testing.assert_close(region(x, x)[0], torch.sin(x) + x)
        assert region.guarded_calls == calls + turn


def test_another_global_state_goes_through_the_guards() -> None:
    region = Region(lambda x: [torch.cos(x)])
    x = drawn(4, 6)
    region(x)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        region(x)
        assert region.guarded_calls == 2
    finally:
        torch.set_num_threads(threads)
    region(x)
    assert region.guarded_calls == 2
    torch.testing.assert_close(region.direct(x)[0], torch.cos(x))
    assert region.guarded_calls == 3, "with gradients on, the guards of a call without them do not hold"


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def test_a_mode_that_sees_what_is_done_goes_through_the_guards() -> None:
    region = Region(lambda x: [torch.exp(x)])
    x = drawn(3, 5)
    region(x)
    with Watching():
        torch.testing.assert_close(region(x)[0], torch.exp(x))
    assert region.guarded_calls == 2
    with torch.device("cpu"):
        torch.testing.assert_close(region(x)[0], torch.exp(x))
    assert region.guarded_calls == 3


def test_a_region_that_writes_to_an_input_keeps_its_guards() -> None:
    def writes(x: torch.Tensor, y: torch.Tensor) -> Tensors:
        x.copy_(x * 2 + y)
        return [x + 1]

    region = Region(writes)
    x, y, known = drawn(4), drawn(4, seed=1), drawn(4)
    for _ in range(3):
        before = x._version
        (found,) = region(x, y)
        known = known * 2 + y
        torch.testing.assert_close(x, known)
        torch.testing.assert_close(found, known + 1)
        assert x._version > before
    assert region.direct.ways == 0
    assert region.guarded_calls == 3


def test_a_view_of_one_of_two_inputs_that_share_a_storage_keeps_its_guards() -> None:
    region = Region(lambda x, y: [x.transpose(0, 1), y * 2])
    shared, apart = drawn(2, 4, 6), drawn(2, 4, 6, seed=1)
    region(shared[0], shared[1])
    assert region.direct.ways == 0
    for x, y in ((apart[0].clone(), apart[1].clone()), (shared[0], shared[1]), (apart[1].clone(), shared[1])):
        found = region(x, y)
        torch.testing.assert_close(found[0], x.t(), rtol=0, atol=0)
        torch.testing.assert_close(found[1], y * 2, rtol=0, atol=0)


def test_a_view_is_taken_where_its_input_lies_now() -> None:
    region = Region(lambda x: [x[1:].transpose(0, 1), x.sum(0)])
    whole = drawn(3, 4, 6)
    for index in (0, 2, 1):
        bits(region(whole[index])[:1], [whole[index][1:].transpose(0, 1)])
    assert region.guarded_calls == 1


def test_views_alone_need_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    region = Region(lambda x, y: [y.transpose(0, 1), x.unsqueeze(0)])
    region(drawn(2, 3), drawn(4, 5))
    monkeypatch.setattr(CompiledFxGraph, "__call__", None)
    x, y = drawn(2, 3, seed=1), drawn(4, 5, seed=2)
    bits(region(x, y), [y.transpose(0, 1), x.unsqueeze(0)])
    assert region.guarded_calls == 1


def test_calls_of_other_threads_are_not_taken_for_a_region_s_own() -> None:
    first, second = Region(lambda x: [torch.tan(x)]), Region(lambda x: [torch.sinh(x), torch.cosh(x)])
    failed: list[BaseException] = []
    x = drawn(8, 8)

    def calls(region: Region, wanted: Tensors) -> None:
        try:
            for _ in range(50):
                for found, known in zip(region(x), wanted, strict=True):
                    torch.testing.assert_close(found, known)
        except BaseException as error:  # noqa: BLE001 - told in the main thread
            failed.append(error)

    threads = [
        threading.Thread(target=calls, args=(first, [torch.tan(x)])),
        threading.Thread(target=calls, args=(second, [torch.sinh(x), torch.cosh(x)])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    # Each thread has a state of its own, and so a kind of call; what is noted is over.
    assert first.direct.ways == second.direct.ways == 1
    assert CompiledFxGraph.__call__.__module__ == CompiledFxGraph.__module__


def test_kinds_of_calls_are_noted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "WAYS", 2)
    region = Region(lambda x: [x * 3])
    for rows in range(1, direct.WAYS + 3):
        for _ in range(2):
            torch.testing.assert_close(region(drawn(rows, 2))[0], drawn(rows, 2) * 3)
    assert region.direct.ways == direct.WAYS


@settings(
    max_examples=amount(2, 4, 60),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
)
@given(random_programs())
@pytest.mark.drawn
def test_random_programs_are_the_same_straight(program: RandomProgram) -> None:
    function, args = program.build()
    # All examples have the lambda's code in common, of which Dynamo would compile no more than a few.
    torch.compiler.reset()
    region = Region(lambda *given: list(function(*given)))
    region(*args)
    for seed in range(2):
        x = drawn(*args[0].shape, seed=seed)
        for given_ in ((x, *args[1:]), (x.t().contiguous().t(), *args[1:])):
            region(*given_)
            found = region(*given_)
            with torch.no_grad():
                known = region.guarded(*given_)
            bits(found, known)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Direct]:
    """All regions of the programs that are compiled inside."""
    made: list[Direct] = []

    class Kept(Direct):
        def __init__(self, guarded: Callable[..., Any]) -> None:
            super().__init__(guarded)
            made.append(self)

    monkeypatch.setattr(fusion, "Direct", Kept)
    return made


def trained(jitted: Any, model: torch.nn.Module, args: tuple[Any, ...], steps: int) -> Tensors:
    """Outputs of some steps, gradients added up, and an output without gradients in evaluation."""
    found = [jitted(*args) for _ in range(steps)]
    for loss in found:
        loss.backward()
    with torch.no_grad():
        quiet = jitted.eval()(*args)
    jitted.train()
    again = jitted(*args)
    again.backward()
    return [quiet, again.detach(), *(f.detach() for f in found), *(p.grad for p in model.parameters())]  # type: ignore[misc]


class Attending(torch.nn.Module):
    """With what a layer of a transformer has: a norm, views that are turned around, softmax, residuals, a loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale = torch.nn.Parameter(torch.rand(16))
        self.into, self.out = torch.nn.Linear(16, 48, bias=False), torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.scale
        q, k, v = (each.unflatten(-1, (2, 8)).transpose(1, 2) for each in self.into(normed).chunk(3, -1))
        attended = torch.softmax(q @ k.transpose(-2, -1) * 8**-0.5, -1) @ v
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return torch.nn.functional.silu(x).pow(2).mean()


def test_a_program_trains_the_same_bits_straight_as_through_the_guards(
    counted: list[Direct], monkeypatch: pytest.MonkeyPatch
) -> None:
    args = (drawn(2, 8, 16),)
    bench = workbench.open(Attending(), *args, device="cpu", executor="torchcompile")
    results = []
    for ways in (direct.WAYS, 0):
        monkeypatch.setattr(direct, "WAYS", ways)
        counted.clear()
        model = Attending()
        results.append(trained(bench.config.jit(model), model, args, steps=3))
        assert counted
        assert all(bool(region.ways) == bool(ways) for region in counted)
    for straight, guarded in zip(*results, strict=True):
        assert torch.equal(straight, guarded)
