"""Calls may overlap under choices of `saved`, `remat`, `sharing` and `copies`, and may change shapes and strides.

Calls overlap if several forwards run before a backward, or if a backward runs twice. Each call gives the results of
eager PyTorch and of unmodified Thunder, or raises an error with the reason.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import thunder
import torch
from torch.autograd import forward_ad

import workbench
from tests.trial_counts import beyond
from workbench.core.config import Config
from workbench.errors import ConfigWarning, GradientError

type Call = Callable[..., torch.Tensor]
type Outcome = list[torch.Tensor]


def branches(x: torch.Tensor, w: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Save a value and its reshape, and write `seen` in place. The strides of `x` decide whether the reshape copies."""
    seen.mul_(0.5).add_(x.detach().sum())
    t = torch.tanh(torch.sin(x))
    flat = t.reshape(-1)
    return ((t @ w) * w).sum() + (flat * torch.exp(flat)).sum()


def argument(seed: int, *shape: int, transposed: bool = False, requires_grad: bool = True) -> torch.Tensor:
    made = torch.randn(*(shape or (6, 6)), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (made.t().contiguous().t() if transposed else made).requires_grad_(requires_grad)


def gradients(*tensors: torch.Tensor) -> Outcome:
    return [torch.zeros(()) if t.grad is None else t.grad for t in tensors]


def two_in_flight(call: Call) -> Outcome:
    first, second, w = argument(1), argument(2, transposed=True), argument(3)
    one, other = call(first, w), call(second, w)
    one.backward()
    other.backward()
    return [one.detach(), other.detach(), *gradients(first, second, w)]


def two_in_flight_last_first(call: Call) -> Outcome:
    first, second, w = argument(1, transposed=True), argument(2), argument(3)
    one, other = call(first, w), call(second, w)
    other.backward()
    one.backward()
    return [one.detach(), other.detach(), *gradients(first, second, w)]


def accumulated(call: Call) -> Outcome:
    x, w = argument(1), argument(3)
    for factor in (1.0, 2.0, 3.0):
        (call(x, w) * factor).backward()
    return gradients(x, w)


def one_sum_of_two(call: Call) -> Outcome:
    first, second, w = argument(1, transposed=True), argument(2), argument(3)
    (call(first, w) * call(second, w)).backward()
    return gradients(first, second, w)


def backward_twice(call: Call) -> Outcome:
    x, w = argument(1), argument(3)
    out = call(x, w)
    out.backward(retain_graph=True)
    first = [g.clone() for g in gradients(x, w)]
    call(argument(2, transposed=True), w).backward()
    out.backward()
    return [*first, *gradients(x, w)]


def without_gradients_between(call: Call) -> Outcome:
    x, other, w = argument(1), argument(2, transposed=True), argument(3)
    out = call(x, w)
    with torch.no_grad():
        between = call(other, w)
    out.backward()
    call(other, w).backward()
    return [between, *gradients(x, other, w)]


def other_strides(call: Call) -> Outcome:
    found = []
    for seed, transposed in ((1, False), (2, True), (4, False)):
        x, w = argument(seed, transposed=transposed), argument(3, transposed=transposed)
        out = call(x, w)
        out.backward()
        found += [out.detach(), *gradients(x, w)]
    return found


def other_requirements(call: Call) -> Outcome:
    found = []
    for of_x, of_w in ((True, True), (False, True), (True, True)):
        x, w = argument(1, requires_grad=of_x), argument(3, requires_grad=of_w)
        out = call(x, w)
        out.backward()
        found += [out.detach(), *gradients(x, w)]
    return found


def other_shapes(call: Call) -> Outcome:
    """Call with other shapes before the backward of the first call. At the end, call with the first shapes again."""
    first, w = argument(1), argument(3)
    larger, v = argument(2, 8, 8, transposed=True), argument(4, 8, 8)
    one, other = call(first, w), call(larger, v)
    one.backward()
    other.backward()
    again = call(first, w)
    again.backward()
    return [one.detach(), other.detach(), again.detach(), *gradients(first, w, larger, v)]


def in_threads(call: Call) -> Outcome:
    """Run a first step, which compiles. Then run six steps in each of three threads."""
    call(argument(1), argument(3)).backward()
    found: dict[int, Outcome] = {}

    def steps(number: int) -> None:
        done: Outcome = []
        for step in range(6):
            x, w = argument(10 * number + step, transposed=bool((number + step) % 2)), argument(3)
            out = call(x, w)
            out.backward()
            done += [out.detach(), *gradients(x, w)]
        found[number] = done

    threads = [threading.Thread(target=steps, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [tensor for number in range(3) for tensor in found[number]]


SEQUENCES = (
    two_in_flight,
    two_in_flight_last_first,
    accumulated,
    one_sum_of_two,
    backward_twice,
    without_gradients_between,
    other_strides,
    other_requirements,
    other_shapes,
    in_threads,
)


def every(lever: str, option: str, bench: Any) -> dict[str, str]:
    """Return choices that give an option to every site of a lever for which the option is legal, except settings."""
    return {s.id: option for s in bench.sites(lever) if "." not in s.id.partition(":")[0] and option not in s.illegal}


def saved_mixed(bench: Any) -> dict[str, str]:
    """Return choices for all storages that can be offloaded: recompute every second one if legal, offload the rest."""
    ids = list(every("saved", "offload", bench))
    again = every("saved", "recompute", bench)
    return {id: "recompute" if at % 2 and id in again else "offload" for at, id in enumerate(ids)}


LEVERS: dict[str, Callable[[Any], dict[str, str]]] = {
    "recompute": functools.partial(every, "saved", "recompute"),
    "offload": functools.partial(every, "saved", "offload"),
    "mixed": saved_mixed,
    "recompute after fusion": lambda bench: {"saved.stage": "after_fusion", **every("saved", "recompute", bench)},
    "weight 0": lambda _: {"remat.weight": "0.0"},
    "every second fusion": lambda _: {"remat.preset": "every=2"},
    "cuts": lambda bench: every("remat", "recompute", bench),
    "shared, offloaded": lambda bench: {"sharing.identical": "shared", **every("saved", "offload", bench)},
    "copies out": lambda _: {"copies.region": "out"},
}
CASES = [
    *(("torch", lever) for lever in ("recompute", "offload", "mixed")),
    *(("torchcompile", lever) for lever in LEVERS if lever not in ("recompute", "offload")),
]


@functools.cache
def opened(executor: str) -> Any:
    args = argument(1), argument(3), argument(5, requires_grad=False)
    return workbench.open(branches, *args, device="cpu", executor=executor)


@functools.cache
def config(executor: str, lever: str) -> Config:
    bench = opened(executor)
    choices = LEVERS[lever](bench)
    assert choices
    bench.choose(choices)
    assert bench.choices == choices
    made: Config = bench.config
    bench.undo()
    return made


def outcome(sequence: Callable[[Call], Outcome], call: Call) -> Outcome:
    """Run a sequence of calls. Return its results and the buffers that the calls write in place."""
    seen: dict[tuple[int, ...], torch.Tensor] = {}
    guard = threading.Lock()

    def with_buffer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with guard:
            buffer = seen.setdefault(tuple(x.shape), argument(5, *x.shape, requires_grad=False))
        return call(x, w, torch.zeros_like(buffer) if sequence is in_threads else buffer)

    return [*sequence(with_buffer), *seen.values()]


@functools.cache
def expected() -> dict[str, Outcome]:
    """Return the results of eager PyTorch for each sequence. Assert that unmodified Thunder gives equal results."""
    stock = thunder.jit(branches, executors=[thunder.pytorch_executor])
    known = {sequence.__name__: outcome(sequence, branches) for sequence in SEQUENCES}
    for sequence in SEQUENCES:
        assert_equal(outcome(sequence, stock), known[sequence.__name__], sequence.__name__)
    return known


def assert_equal(found: Outcome, known: Outcome, name: str) -> None:
    assert len(found) == len(known)
    for at, (one, other) in enumerate(zip(found, known, strict=True)):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12, msg=lambda m, at=at: f"{name}, {at}: {m}")


@pytest.mark.slow
@pytest.mark.parametrize(("executor", "lever"), beyond(5, CASES, rows=True))
@pytest.mark.usefixtures("no_compiler")
def test_overlapping_calls_give_right_results(executor: str, lever: str) -> None:
    jitted = config(executor, lever).jit(branches)
    for sequence in SEQUENCES:
        assert_equal(outcome(sequence, jitted), expected()[sequence.__name__], sequence.__name__)


def in_the_store() -> int:
    return sum(type(each) is torch.Tensor and each.dtype == torch.uint8 for each in gc.get_objects())


@pytest.mark.slow
def test_if_a_backward_never_runs_its_offloaded_storages_are_freed() -> None:
    jitted = config("torch", "offload").jit(branches)
    gc.collect()
    before = in_the_store()
    args = argument(1), argument(3), argument(5, requires_grad=False)
    outs = [jitted(*args) for _ in range(3)]
    assert in_the_store() - before == 3 * len(config("torch", "offload").choices)
    del outs
    gc.collect()
    assert in_the_store() == before


def penalty(x: torch.Tensor, w: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Return a value with a second derivative: its gradient by `x` depends on `x`."""
    return (torch.sin(x) * x * w).sum() + (seen * x).sum()


def compiled(way: str) -> Call:
    call: Call
    if way == "dynamo":
        call = Config(program="penalty", executor="torch", device="cpu", choices={}, capture="dynamo").jit(penalty)
        return call
    executor, _, lever = way.partition(", ")
    args = argument(1), argument(3), argument(5, requires_grad=False)
    bench = workbench.open(penalty, *args, device="cpu", executor=executor, capture="interpreter")
    bench.choose(LEVERS[lever](bench) if lever else {})
    call = bench.config.jit(penalty)
    return call


@pytest.mark.parametrize(
    "way",
    [
        *("dynamo", "torch", "torch, recompute", "torch, offload", "torchcompile, weight 0"),
        *("torchcompile, every second fusion", "torchcompile, shared, offloaded"),
    ],
)
def test_a_second_derivative_is_refused_because_terms_would_be_lost(way: str, request: pytest.FixtureRequest) -> None:
    if way.startswith("torchcompile"):
        request.getfixturevalue("no_compiler")
    call, known = compiled(way), argument(1)
    x, w, seen = argument(1), argument(3), argument(5, requires_grad=False)
    out = call(x, w, seen)
    (gradient,) = torch.autograd.grad(out, x, create_graph=True)
    (expected,) = torch.autograd.grad(penalty(known, w, seen), known)
    torch.testing.assert_close(gradient.detach(), expected)
    # Autograd treats Thunder's gradient as a constant, so it would lose the derivative of `gradient.square()`.
    loss = gradient.square().sum() + x.square().sum()
    with pytest.raises(GradientError, match="call the original function") as refusal:
        loss.backward()
    assert "\n" not in str(refusal.value)
    (again,) = torch.autograd.grad(call(x, w, seen), x)
    torch.testing.assert_close(again, expected)


@pytest.mark.parametrize("way", ["dynamo", "torch", "torch, recompute"])
def test_a_forward_mode_derivative_is_refused_with_what_to_do(way: str) -> None:
    call, (x, w, seen) = compiled(way), (argument(1), argument(3), argument(5, requires_grad=False))
    with pytest.raises(GradientError, match="call the original function") as refusal, forward_ad.dual_level():
        call(forward_ad.make_dual(x, torch.ones_like(x)), w, seen)
    assert "\n" not in str(refusal.value)
    (again,) = torch.autograd.grad(call(x, w, seen), x)
    (expected,) = torch.autograd.grad(penalty(x, w, seen), x)
    torch.testing.assert_close(again, expected)


@pytest.mark.slow
def test_if_choices_fit_the_program_calls_with_fewer_gradients_give_no_warning() -> None:
    jitted = config("torch", "recompute").jit(branches)
    args = argument(1), argument(3), argument(5, requires_grad=False)
    with torch.no_grad():
        jitted(*args)
    jitted(*args)
    jitted(args[0].detach(), *args[1:])
    jitted(*(a.detach() for a in args))


@pytest.mark.slow
def test_a_choice_without_a_site_gives_one_warning_for_all_calls() -> None:
    made = config("torch", "recompute")
    jitted = dataclasses.replace(made, choices={**made.choices, "saved:nowhere/sin": "recompute"}).jit(branches)
    args = argument(1), argument(3), argument(5, requires_grad=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConfigWarning)
        jitted(*args)
        jitted(args[0].detach(), *args[1:])
    (warned,) = [each for each in caught if issubclass(each.category, ConfigWarning)]
    assert f"1 of {len(made.choices) + 1} choices have no effect" in str(warned.message)
    assert "saved:nowhere/sin" in str(warned.message)


class Counted:
    """An observer of compilations. For each compiled fusion, it records its index and the number of fusions."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int]] = []

    def stage(self, name: str, seconds: float) -> None:
        """Ignore the event."""

    def fusion_begin(self, name: str, index: int, count: int) -> None:
        self.begun.append((index, count))

    def fusion_end(
        self, name: str, index: int, count: int, seconds: float, parts: Mapping[str, float], cached: bool
    ) -> None:
        """Ignore the event."""


@pytest.mark.slow
@pytest.mark.usefixtures("no_compiler")
def test_fusions_of_concurrent_compilations_are_counted_separately() -> None:
    counted = Counted()
    jitted = Config(program="branches", executor="torchcompile", device="cpu", choices={}).jit(
        branches, observer=counted
    )
    first = jitted(argument(1), argument(3), argument(5, requires_grad=False))
    second = jitted(*(argument(seed, 8, 8, requires_grad=seed < 5) for seed in (1, 3, 5)))
    first.backward()
    second.backward()
    (count,) = {count for _, count in counted.begun}
    assert sorted(index for index, _ in counted.begun) == sorted([*range(count)] * 2)
