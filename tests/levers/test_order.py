"""Lever `order`: plans peak no higher than stock, run bit for bit like it, and replay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import workbench
from workbench.bench import Workbench
from workbench.errors import ChoiceError
from workbench.graph import StatementFlag

pytestmark = pytest.mark.slow


def branches(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Four wide values made first, and each summed up after: what frees memory can run earlier."""
    wide = [torch.outer(x * k, w) for k in (1.0, 2.0, 3.0, 4.0)]
    return torch.stack([torch.cos(one).sum() for one in wide]).sum()


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
def test_least_peak_lowers_a_peak_and_keeps_every_bit(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_draws_are_the_same_draws() -> None:
    bench = workbench.open("dropout_mlp", executor="torch")
    bench.choose({"order.statements": "least peak"})
    assert bench.plan.proof.proven


def test_what_is_recomputed_just_in_time_beside_the_choice_to_recompute() -> None:
    bench = workbench.open("mlp", layers=2, executor="torch")
    recomputed = {s.id: "recompute" for s in bench.sites("saved") if "recompute" in s.options and not s.illegal}
    bench.choose(recomputed)
    assert (bench.plan.graph.statements.flags & StatementFlag.CLONE).any()
    before_bytes = bench.plan.peak_bytes
    bench.choose({"order.statements": "recompute just in time"})
    assert bench.plan.peak_bytes <= before_bytes
    bench.choose({"order.statements": "least peak"})
    assert bench.plan.peak_bytes <= before_bytes


def test_beside_collectives_it_is_refused_with_the_reason() -> None:
    bench = workbench.open("ddp_llama", layers=1, executor="torch", ranks=2, device="cpu")
    with pytest.raises(ChoiceError, match="collectives"):
        bench.choose({"order.statements": "least peak"})


def test_the_site_shows_what_the_order_is_worth() -> None:
    bench = opened()
    bench.choose({"order.statements": "least peak"})
    (site,) = bench.sites("order")
    assert (site.id, site.choice) == ("order.statements", "least peak")
    effect = bench.effects(site.id)["stock"]
    assert effect.peak_bytes > 0 > effect.counts["moved_statements"]


def test_a_run_measures_the_peak_that_was_predicted() -> None:
    bench = workbench.open(f"{__file__}:factory", executor="torch", device="cpu")
    bench.choose({"order.statements": "least peak"})
    run = bench.run(wait=True)
    assert run.memory["measured_peak_bytes"] == bench.plan.peak_bytes == run.memory["predicted_peak_bytes"]
    assert run.accuracy.ok
    assert run.accuracy.bitwise
