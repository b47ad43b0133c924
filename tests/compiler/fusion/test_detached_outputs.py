"""If a detached output shares memory with another output, gradients equal eager PyTorch's.

A write through a detached alias reaches all aliases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import workbench
from tests.trial_counts import beyond
from workbench.errors import ProgramError

type Outputs = tuple[torch.Tensor, ...]


def logged(x: torch.Tensor) -> Outputs:
    loss = x.sin().sum()
    return loss, loss.detach()


def logged_as_a_view(x: torch.Tensor) -> Outputs:
    y = x.sin()
    return y.detach().view(-1), y, y.view(-1)


def cast_to_what_it_is(x: torch.Tensor) -> Outputs:
    loss = x.sin().sum()
    return loss, loss.float()


def cast_without_gradients(x: torch.Tensor) -> Outputs:
    y = x.sin()
    with torch.no_grad():
        copied = y.float()
    return y, copied.contiguous(), copied * 2.0


def seen_without_gradients(x: torch.Tensor) -> Outputs:
    y = x.sin()
    with torch.no_grad():
        seen = y.view(y.shape)
    return y, (y * 2.0).sum(), seen


HANDED_OUT = (logged, logged_as_a_view, cast_to_what_it_is, cast_without_gradients, seen_without_gradients)


def given() -> torch.Tensor:
    return torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_()


def gradients(program: Callable[..., Any], place: int) -> tuple[list[bool], torch.Tensor]:
    """Run a backward from an output. Return whether each output requires a gradient, and the gradient of `x`."""
    x = given()
    outputs = program(x)
    wanted = [output for output in outputs if output.requires_grad]
    wanted[place % len(wanted)].sum().backward()
    assert x.grad is not None
    return [output.requires_grad for output in outputs], x.grad


@pytest.mark.parametrize("executor", ["torch", pytest.param("torchcompile", marks=pytest.mark.slow)])
@pytest.mark.parametrize("program", HANDED_OUT)
def test_each_output_has_the_gradient_of_eager(program: Callable[..., Outputs], executor: str) -> None:
    bench = workbench.open(program, given(), device="cpu", executor=executor, capture="dynamo")
    jitted = bench.config.jit(program)
    for place in (0, 1, 0, 1):  # later calls take another code path than the first
        found, expected = gradients(jitted, place), gradients(program, place)
        assert found[0] == expected[0]
        torch.testing.assert_close(found[1], expected[1])


def cleared(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.detach().zero_()
    return y


def cleared_and_returned(x: torch.Tensor) -> Outputs:
    y = x * 2
    bare = y.detach()
    bare.zero_()
    return y, bare


def clamped_between(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    before = y * 3
    bare = y.detach()
    bare.view(-1).clamp_(max=1.0)
    return (y.tanh() * x).sum() + before.sum()


def row_scaled(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[1:].detach().mul_(3)
    return (y * x).sum()


WRITTEN = (cleared, cleared_and_returned, clamped_between, row_scaled)


@pytest.mark.parametrize("program", beyond(1, WRITTEN, pytest.mark.slow))
def test_writes_through_a_detached_alias_reach_all_aliases(program: Callable[..., Any]) -> None:
    bench = workbench.open(program, given(), device="cpu", executor="torch")
    assert "Dynamo gives the whole program as one graph" in bench.capture_reason
    assert bench.plan.proof.proven
    jitted = bench.config.jit(program)
    found, expected = given(), given()
    outcomes = []
    for run, x in ((jitted, found), (program, expected)):
        outputs = run(x)
        first = outputs[0] if isinstance(outputs, tuple) else outputs
        first.sum().backward()
        outcomes.append([output.detach() for output in (outputs if isinstance(outputs, tuple) else (outputs,))])
    torch.testing.assert_close(*outcomes)
    torch.testing.assert_close(found.grad, expected.grad)


def normalized(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, state[0], state[1], training=True) * 2


@pytest.mark.parametrize("capture", ["dynamo", "interpreter"])
def test_running_statistics_that_are_views_are_refused_with_the_line(capture: str) -> None:
    with pytest.raises(
        ProgramError, match=r"test_detached_outputs\.py:\d+ .*store the mean and the variance in two separate tensors"
    ):
        workbench.open(normalized, given(), torch.ones(2, 4), device="cpu", executor="torch", capture=capture)


@pytest.mark.slow
def test_running_statistics_that_are_views_are_run_by_pytorch() -> None:
    states = torch.ones(2, 4), torch.ones(2, 4)
    bench = workbench.open(normalized, given(), states[0], device="cpu", executor="torch")
    assert "store the mean and the variance in two separate tensors" in bench.capture_reason
    x, y = given(), given()
    found, expected = bench.config.jit(normalized)(x, states[0]), normalized(y, states[1])
    torch.testing.assert_close([found, states[0]], [expected, states[1]])
    found.sin().sum().backward()
    expected.sin().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    quiet = given().detach()
    within = workbench.open(normalized, quiet, torch.ones(2, 4), device="cpu", executor="torch")
    assert "Dynamo gives the whole program as one graph" in within.capture_reason
