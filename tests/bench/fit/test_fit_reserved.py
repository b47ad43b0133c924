"""`fit(reserved=True)` limits the memory that the CUDA allocator reserves, or refuses with the reason."""

from __future__ import annotations

import itertools
import json
from random import Random

import pytest
import torch

import workbench
from tests.trial_counts import beyond
from workbench import Workbench, cli
from workbench.analysis.memory.reserved_memory import predict_reserved
from workbench.errors import ChoiceError, PlanError

MIB = 1 << 20


def widening(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    """Save storages of different sizes, so that freed storages leave holes in the allocator's segments."""
    for w in weights:
        x = torch.tanh(torch.nn.functional.silu(x @ w) * 2)
    return x.exp().sum()


def opened(seed: int, executor: str = "torch") -> Workbench:
    random = Random(seed)
    widths = [random.choice((96, 160, 256, 416)) for _ in range(random.randint(3, 6))]
    weights = [torch.randn(a, b, requires_grad=True) for a, b in itertools.pairwise(widths)]
    x = torch.randn(random.choice((9000, 20000, 40000)), widths[0], requires_grad=True)
    return workbench.open(widening, x, *weights, device="planned", executor=executor, capture="interpreter")


def reserved_bytes(bench: Workbench) -> int:
    assert bench.plan.reserved is not None
    return bench.plan.reserved.reserved_bytes


@pytest.mark.slow
@pytest.mark.parametrize("seed", beyond(4, range(20)))
def test_reserved_memory_of_the_plan_found_is_within_the_limit(seed: int) -> None:
    bench = opened(seed)
    stock, refused = reserved_bytes(bench), []
    for share in (100, 95, 80, 65, 50):
        limit = stock * share // 100
        try:
            found = bench.fit(limit, reserved=True)
        except PlanError as error:
            refused.append(str(error))
            continue
        assert reserved_bytes(bench) == found.reserved_bytes <= limit
        assert found.peak_bytes == bench.plan.peak_bytes <= found.reserved_bytes
        assert (found.limits_reserved, found.limit_bytes, found.before_reserved_bytes) == (True, limit, stock)
        # The simulated allocator does not run out of memory on a device with `limit` bytes.
        assert predict_reserved(bench.plan.graph, limit).fits
        within = bench.fit(limit)
        assert within.peak_bytes <= limit
        assert not within.limits_reserved
        assert within.reserved_bytes == reserved_bytes(bench)
    assert len(refused) < 5
    assert all("no plan of widening with reserved memory of" in message for message in refused)


@pytest.mark.slow
def test_a_limit_on_the_peak_does_not_limit_reserved_memory() -> None:
    """Reserved memory may exceed peak memory: an offloaded storage returns into the copy stream's own memory pool."""
    bench = opened(1)
    limit = reserved_bytes(bench) * 95 // 100
    within = bench.fit(limit)
    assert within.peak_bytes <= limit < reserved_bytes(bench)
    found = bench.fit(limit, reserved=True)
    assert reserved_bytes(bench) <= limit
    assert found.using == within.using == ("recompute", "offload")


@pytest.mark.slow
def test_a_fit_meets_the_least_reserved_memory_that_a_refusal_names() -> None:
    bench = opened(0)
    with pytest.raises(PlanError) as refused:
        bench.fit(MIB, reserved=True)
    least = int(str(refused.value).partition("The least reserved memory found is ")[2].partition("(")[2].split()[0])
    found = bench.fit(least, reserved=True)
    assert found.reserved_bytes == least


def test_a_percentage_is_relative_to_the_reserved_memory_of_the_stock_plan() -> None:
    bench = opened(4)
    found = bench.fit("90%", reserved=True)
    assert found.limit_bytes == reserved_bytes_of_stock(bench) * 9 // 10


def reserved_bytes_of_stock(bench: Workbench) -> int:
    assert bench.stock_plan.reserved is not None
    return bench.stock_plan.reserved.reserved_bytes


def test_the_result_shows_reserved_beside_allocated() -> None:
    bench = opened(4)
    found = bench.fit("90%", reserved=True)
    peak, reserved = found.lines[:2]
    assert peak.startswith("Peak ")
    assert "limit" not in peak
    assert reserved.startswith("Reserved by the allocator ")
    assert "(limit " in reserved
    peak, reserved = bench.fit("80%").lines[:2]
    assert "(limit " in peak
    assert "limit" not in reserved


def test_a_program_on_a_cpu_has_no_reserved_memory_to_limit() -> None:
    bench = workbench.open("mlp", device="cpu", executor="torch", layers=1)
    with pytest.raises(ChoiceError, match="on the device cpu PyTorch reserves nothing: open the program on the device"):
        bench.fit("90%", reserved=True)
    found = bench.fit("90%")
    assert found.reserved_bytes is None
    assert "Reserved" not in repr(found)


@pytest.mark.slow
def test_programs_of_ranks_are_refused_because_the_simulation_leaves_collectives_out() -> None:
    bench = workbench.open("fsdp_llama", device="planned", executor="torch", ranks=2, layers=1)
    with pytest.raises(ChoiceError, match="reserved memory is not predicted for a program on 2 ranks"):
        bench.fit("90%", reserved=True)


def test_reserved_memory_is_limited_only_with_a_peak() -> None:
    bench = workbench.open("mlp", device="planned", executor="torch", layers=1)
    for asked in ({"step_s": 1.0}, {"compilations": 3}):
        with pytest.raises(ChoiceError, match="a fit of reserved memory needs a limit"):
            bench.fit(reserved=True, **asked)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_command_limits_reserved_memory(capfd: pytest.CaptureFixture[str]) -> None:
    fit = ("fit", "mlp", "--set", "batch=4096", "--device", "planned", "--executor", "torch", "--reserved")

    def call(*more: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main((*fit, *more))
        return int(stop.value.code or 0), *capfd.readouterr()

    status, out, _ = call("--peak", "80%", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["limits_reserved"]
    assert found["peak_bytes"] <= found["reserved_bytes"] <= found["limit_bytes"] < found["before_reserved_bytes"]
    status, _, wrote = call("--step", "1")
    assert status == 2
    assert "--reserved needs --peak SIZE" in wrote


@pytest.mark.slow
def test_reserved_memory_is_limited_with_fusions_too() -> None:
    bench = workbench.open("llama", device="planned", executor="nvfuser", layers=1, dim=512, heads=8, sequence=512)
    stock = reserved_bytes(bench)
    found = bench.fit(stock * 85 // 100, reserved=True)
    assert reserved_bytes(bench) == found.reserved_bytes <= stock * 85 // 100
