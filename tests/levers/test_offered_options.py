"""Options that a lever offers as legal give proven plans, for programs in which random tests once found faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import workbench
from tests.trial_counts import beyond
from workbench.bench import Workbench


def opened(function: Callable[..., Any], *args: torch.Tensor, executor: str = "torchcompile") -> Workbench:
    return workbench.open(function, *args, device="cpu", executor=executor, capture="interpreter")


def squared_then_normalized(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Compute a batch norm that updates its statistics. Only the copies into the statistics read the new values."""
    x.mul_(x)
    return F.batch_norm(torch.stack((x, x + 1.0)), mean, var, training=True) * w


@pytest.mark.usefixtures("no_compiler")
def test_a_value_that_only_a_copy_reads_is_an_output_of_its_region() -> None:
    def given() -> tuple[torch.Tensor, ...]:
        return torch.linspace(0.5, 2, 4), torch.zeros(4), torch.ones(4), torch.rand(4, requires_grad=True)

    bench = opened(squared_then_normalized, *given())
    outside = next(site for site in bench.sites("copies") if site.id.endswith("/batch_norm>copy_"))
    assert outside.illegal == {}
    bench.choose({outside.id: "out"})
    assert bench.plan.proof.proven
    found, expected = given(), given()
    bench.config.jit(squared_then_normalized)(*found)
    squared_then_normalized(*expected)
    for one, other in zip(found[:3], expected[:3], strict=True):
        torch.testing.assert_close(one, other)


def normalized_twice(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    """Compute two batch norms. Only the copies into the running statistics read the results of the second."""
    first = F.batch_norm(x, mean, var, training=True)
    F.batch_norm(x, mean, var, training=True)
    return first


@pytest.mark.usefixtures("no_compiler")
def test_a_region_needed_only_for_its_copies_stays_in_the_forward() -> None:
    def given() -> tuple[torch.Tensor, ...]:
        return torch.arange(8.0).reshape(2, 4).requires_grad_(), torch.zeros(4), torch.ones(4)

    bench = opened(normalized_twice, *given())
    outside = next(site for site in bench.sites("copies") if site.id.endswith("/batch_norm.1>copy_"))
    assert outside.illegal == {}
    bench.choose({outside.id: "out"})
    assert bench.plan.proof.proven
    found, expected = given(), given()
    bench.config.jit(normalized_twice)(*found)
    normalized_twice(*expected)
    for one, other in zip(found[1:], expected[1:], strict=True):
        torch.testing.assert_close(one, other)


def mean_written(x: torch.Tensor) -> torch.Tensor:
    variance, mean = torch.var_mean(x, 0)
    mean.copy_(mean * 2.0)
    return variance


@pytest.mark.parametrize("executor", ["torch", "torchcompile"])
def test_a_value_written_after_its_computation_is_not_recomputed(executor: str) -> None:
    bench = opened(mean_written, torch.rand(4, 4, requires_grad=True), executor=executor)
    sites = [site for site in bench.sites("saved") if site.id.startswith("saved:mean_written/var_mean")]
    assert sites
    for site in sites:
        assert "it is written in place: the backward reads the new content" in site.illegal["recompute"]
        assert "it is written in place" in site.illegal["offload"]


def around_a_product(x: torch.Tensor, w: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scaled = torch.tanh(x) * w
    active = F.gelu(scaled)
    return torch.amax(scaled, 0, keepdim=True), active * (m @ m)


@pytest.mark.usefixtures("no_compiler")
def test_a_value_recomputed_in_a_region_does_not_replace_the_offloaded_value() -> None:
    vector, matrix = torch.linspace(1, 2, 8, requires_grad=True), torch.eye(8, requires_grad=True)
    bench = opened(around_a_product, torch.linspace(-1, 2, 8), vector, matrix)
    gelu = [site for site in bench.sites("remat") if site.id.startswith("remat:around_a_product/gelu")]
    assert len(gelu) >= 3
    choices = {site.id: "recompute" for site in gelu}
    choices |= {"remat:around_a_product/amax>shallow_copy": "save", "saved:around_a_product/mul": "offload"}
    bench.choose(choices)
    assert bench.plan.proof.proven


def normalized_beside(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    """Compute a batch norm that needs no gradients. Even a region runs it as a single PyTorch function."""
    both = torch.cat((mean, var))
    cubed = torch.addcmul(both, both, both, value=0.5)
    F.batch_norm(x, mean, var, training=True)
    return cubed


@pytest.mark.slow
@pytest.mark.usefixtures("no_compiler")
def test_a_single_pytorch_function_that_writes_can_leave_its_region() -> None:
    def given() -> tuple[torch.Tensor, ...]:
        return torch.arange(12.0).reshape(4, 3) / 7, torch.zeros(3), torch.ones(3)

    bench = opened(normalized_beside, *given())
    (normalization,) = [site for site in bench.sites("copies") if site.id.startswith("copies:")]
    assert normalization.illegal == {}
    bench.choose({normalization.id: "out"})
    assert bench.plan.proof.proven
    found, expected = given(), given()
    torch.testing.assert_close(bench.config.jit(normalized_beside)(*found), normalized_beside(*expected))
    # The region runs the same PyTorch function as `normalized_beside`, so results are bitwise equal.
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def normalized_after_an_update(
    x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copy `var` into `mean`, and compute two batch norms, which overwrite `var`.

    If one region contains the copy and both batch norms, Inductor may copy the new content of `var`.
    """
    kept = mean.exp() * w
    mean.copy_(var)
    F.batch_norm(x, mean, var, training=True)
    return kept, F.batch_norm(x, mean, var, training=True)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("differentiated", beyond(1, ["nothing", "beside", "all"], pytest.mark.slow))
def test_every_option_offered_for_a_copy_gives_a_plan(differentiated: str) -> None:
    def given() -> tuple[torch.Tensor, ...]:
        x = torch.arange(12.0).reshape(4, 3) / 7
        w = torch.ones(3, requires_grad=differentiated == "beside")
        return x.requires_grad_(differentiated == "all"), torch.zeros(3), torch.ones(3), w

    bench = opened(normalized_after_an_update, *given())
    assert bench.plan.proof.proven
    sites = bench.sites("copies")
    tried = [(site.id, option) for site in sites for option in site.options if option not in site.illegal]
    assert len(tried) > len(sites)
    for id, option in [*tried, ("copies.region", "out")]:
        bench.choose({id: option})
        assert bench.plan.proof.proven
        bench.undo()
    bench.choose({"copies.region": "out"})
    found, expected = given(), given()
    outputs = bench.config.jit(normalized_after_an_update)(*found), normalized_after_an_update(*expected)
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(found[1:3], expected[1:3])
