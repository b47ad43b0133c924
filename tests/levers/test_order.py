"""Lever `order`: a reordered plan has at most the peak memory of the stock plan, and bitwise equal results."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import thunder
import torch

import workbench
from workbench.bench import Part, PartsBench, Workbench
from workbench.core.graph import Kind, StatementFlag
from workbench.errors import ChoiceError
from workbench.runs.process.request import RunOptions

pytestmark = pytest.mark.slow


def branches(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Compute four wide values, then sum each. To sum each value right after it is made would lower the peak memory."""
    wide = [torch.outer(x * k, w) for k in (1.0, 2.0, 3.0, 4.0)]
    return torch.stack([torch.cos(one).sum() for one in wide]).sum()


def twice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Compute a wide value that both an early and a late statement of the backward read."""
    wide = torch.tanh(torch.outer(x, w))
    return (wide * torch.cos(wide * w)).sum() + torch.sin(wide).sum()


def given() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(64, requires_grad=True), torch.randn(64, requires_grad=True)


def opened(executor: str = "torch") -> Workbench:
    return workbench.open(branches, *given(), device="cpu", executor=executor, capture="interpreter")


def factory() -> tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]:
    return branches, given()


def gradients(function: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    x, w = given()
    out = function(x, w)
    out.backward()
    return [out.detach(), x.grad, w.grad]


@pytest.mark.parametrize("executor", ["torch", "torchcompile"])
def test_the_least_peak_order_lowers_a_peak_and_keeps_every_bit(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if executor == "torchcompile":
        monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    bench = opened(executor)
    stock_bytes, stock = bench.plan.peak_bytes, gradients(bench.config.jit(branches))
    diff = bench.choose({"order.statements": "least peak"})
    assert bench.plan.peak_bytes <= stock_bytes
    assert bench.plan.proof.proven
    if executor == "torch":
        assert diff.peak_bytes < 0 < bench.plan.counts["moved_statements"]
    for one, other in zip(gradients(bench.config.jit(branches)), stock, strict=True):
        assert torch.equal(one, other)


def test_reordering_keeps_the_random_draws() -> None:
    bench = workbench.open("dropout_mlp", executor="torch")
    bench.choose({"order.statements": "least peak"})
    assert bench.plan.proof.proven


def test_recomputing_just_in_time_never_raises_the_peak_of_choices_to_recompute() -> None:
    bench = workbench.open("mlp", layers=2, executor="torch")
    recomputed = {s.id: "recompute" for s in bench.sites("saved") if "recompute" in s.options and not s.illegal}
    bench.choose(recomputed)
    assert (bench.plan.graph.statements.flags & StatementFlag.CLONE).any()
    before_bytes = bench.plan.peak_bytes
    bench.choose({"order.statements": "recompute just in time"})
    assert bench.plan.peak_bytes <= before_bytes
    bench.choose({"order.statements": "least peak"})
    assert bench.plan.peak_bytes <= before_bytes


def test_forward_and_backward_have_separate_orders() -> None:
    bench = opened()
    moved, peaks = {}, {}
    for side in ("forward", "backward"):
        bench.choose({f"order.{side}": "least peak"})
        assert bench.plan.proof.proven
        moved[side], peaks[side] = bench.plan.counts["moved_statements"], bench.plan.peak_bytes
        bench.undo()
    bench.choose({"order.statements": "least peak"})
    assert bench.plan.counts["moved_statements"] == sum(moved.values()) > 0
    bench.choose({"order.forward": "stock"})
    assert bench.plan.counts["moved_statements"] == moved["backward"]
    assert bench.plan.peak_bytes == peaks["backward"]


def test_the_recomputed_part_of_a_layer_is_a_site_that_says_why_it_cannot_move() -> None:
    bench = workbench.open("mlp", layers=2, executor="torch", device="cpu")
    assert not bench.sites("order")[5:]
    again = {s.id: "recompute" for s in bench.sites("saved") if "recompute" in s.options and not s.illegal}
    bench.choose(again)
    sites = {site.id: site for site in bench.sites("order")[5:]}
    assert list(sites) == ["order:recomputed/blocks.0", "order:recomputed/blocks.1"]
    for id, site in sites.items():
        assert "already right before its first reader" in site.illegal["recompute just in time"]
        with pytest.raises(ChoiceError, match="first reader"):
            bench.choose({id: "recompute just in time"})
    bench.choose({"order.backward": "least peak"})
    site = bench.sites("order")[5]
    assert site.outcome == "least peak"
    assert "order.backward is least peak" in site.illegal["stock"]


def test_recomputing_just_in_time_keeps_every_bit_if_early_and_late_statements_read_a_value() -> None:
    bench = workbench.open(twice, *given(), device="cpu", executor="torch", capture="interpreter")
    stock = gradients(bench.config.jit(twice))
    bench.choose({s.id: "recompute" for s in bench.sites("saved") if "recompute" in {*s.options} - {*s.illegal}})
    bench.choose({"order.statements": "recompute just in time", "order.gradients": "at once"})
    assert bench.plan.proof.proven
    for one, other in zip(gradients(bench.config.jit(twice)), stock, strict=True):
        assert torch.equal(one, other)


def test_gradients_and_updates_run_at_once_in_programs_that_have_them() -> None:
    adam = workbench.open("torch_adam", executor="torch", device="cpu")
    stock_bytes = adam.plan.peak_bytes
    adam.choose({"order.updates": "at once"})
    assert adam.plan.counts["moved_statements"] > 0
    assert adam.plan.proof.proven
    assert adam.plan.peak_bytes <= stock_bytes
    with pytest.raises(ChoiceError, match="has no backward"):
        adam.choose({"order.gradients": "at once"})
    mlp = workbench.open("mlp", layers=2, executor="torch", device="cpu")
    stock_bytes = mlp.plan.peak_bytes
    mlp.choose({"order.gradients": "at once"})
    assert mlp.plan.counts["moved_statements"] > 0
    assert mlp.plan.proof.proven
    assert mlp.plan.peak_bytes <= stock_bytes
    with pytest.raises(ChoiceError, match="in a separate program"):
        mlp.choose({"order.updates": "at once"})


def test_the_optimizer_of_a_whole_step_updates_one_parameter_after_the_other() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Linear(32, 16))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bench = workbench.open(step, torch.randn(4, 16), capture="parts", device="cpu", executor="torch")
    assert isinstance(bench, PartsBench)
    updates = bench.parts[-1]
    assert isinstance(updates, Part)
    stock_bytes, peaks = updates.plan.peak_bytes, {}
    for choice in ({"order.updates": "at once"}, {"order.statements": "least peak"}):
        updates.choose(choice)
        assert updates.plan.proof.proven
        peaks[next(iter(choice))] = updates.plan.peak_bytes
        updates.undo()
    assert peaks["order.statements"] <= peaks["order.updates"] < stock_bytes


class Wide(torch.nn.Module):
    """A module that multiplies its input by a parameter and applies `branches`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.x, self.w = torch.nn.Parameter(torch.randn(32)), torch.nn.Parameter(torch.randn(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of `branches` for ``x`` of shape (32,)."""
        return branches(self.x * x, self.w)


@pytest.mark.long
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_reordering_keeps_collectives_and_every_bit_on_two_ranks(parallel: str, tmp_path: Path) -> None:
    bench = workbench.open(Wide(), torch.ones(32), ranks=2, parallel=parallel, device="cpu", executor="torch")
    stock_bytes, stock = bench.plan.peak_bytes, communication(bench)
    bench.choose({"order.statements": "least peak", "order.gradients": "at once"})
    assert bench.plan.counts["moved_statements"] > 0
    assert bench.plan.proof.proven
    assert bench.plan.peak_bytes < stock_bytes
    assert communication(bench) == stock
    bench.choose({"waits.gradients": "earliest"})
    assert bench.plan.proof.proven
    run = bench.run(folder=tmp_path / "run", options=RunOptions(samples=3, sampling_s=1.0), wait=True)
    assert run.ok, (run.error, run.detail, run.output)
    assert run.accuracy is not None
    assert run.accuracy.ok
    assert run.accuracy.bitwise


def communication(bench: Workbench) -> list[str]:
    """Return the names of collectives in the order of the plan."""
    statements = bench.plan.graph.statements
    return [name for name, kind in zip(statements.name, statements.kind, strict=True) if kind == Kind.COLLECTIVE]


def test_the_site_of_an_order_shows_what_the_stock_order_would_cost() -> None:
    bench = opened()
    bench.choose({"order.statements": "least peak"})
    site = bench.sites("order")[0]
    assert (site.id, site.choice) == ("order.statements", "least peak")
    effect = bench.effects(site.id)["stock"]
    assert effect.peak_bytes > 0 > effect.counts["moved_statements"]


@pytest.mark.long
def test_a_run_measures_the_predicted_peak(tmp_path: Path) -> None:
    bench = workbench.open(f"{__file__}:factory", executor="torch", device="cpu")
    bench.choose({"order.statements": "least peak"})
    run = bench.run(folder=tmp_path / "run", options=RunOptions(samples=0, clocks=False), wait=True)
    assert run.memory["measured_peak_bytes"] == bench.plan.peak_bytes == run.memory["predicted_peak_bytes"]
    assert run.accuracy.ok
    assert run.accuracy.bitwise


def test_for_a_non_contiguous_input_the_executed_order_equals_the_planned_order() -> None:
    """A matrix product copies a non-contiguous input. Because of this copy, another order has the least peak memory."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mean = x.view(-1).mean(0, keepdim=True)
        alone = mean.sum()
        return x @ x * 0.25, mean, torch.log1p(alone * alone)

    orders = []
    for x in (torch.randn(8, 16)[:, ::2], torch.randn(8, 8)):
        x.requires_grad_()
        bench = workbench.open(program, x, device="cpu", executor="torch")
        bench.choose({"order.forward": "least peak"})
        jitted = bench.config.jit(program)
        jitted(x)
        planned = list(map(str, bench.plan.split.forward.bound_symbols))
        assert list(map(str, thunder.last_traces(jitted)[-1].bound_symbols)) == planned
        orders.append([b.sym.name for b in bench.plan.split.forward.bound_symbols if b.sym.name != "python_del"])
    assert orders[0] != orders[1]
