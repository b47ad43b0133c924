"""If a random mutant of a plan has other results than the plan, the proof refuses the mutant."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import settings as hypothesis_settings

import workbench
from tests.analysis.equivalence.mutants import MUTATIONS, Step, mutants, run, same
from workbench.analysis.equivalence.prove import Prover
from workbench.bench import Workbench

FULL = hypothesis_settings.default.max_examples > 100
SEED = 5


def writes(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Read tensors and draw random numbers; in between, write in place and through views."""
    old = a.clone()
    a[0].add_(w.detach())
    a.mul_(b)
    b.copy_(old)
    kept = F.dropout(torch.tanh(a) * w, 0.5)
    a.view(-1).mul_(0.5)
    return kept * torch.sin(b) + F.dropout(old, 0.25), a + w


def draws(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Draw random numbers twice, and compute several tensors of equal shape that the backward needs."""
    one = F.dropout(torch.tanh(x * w), 0.5)
    other = F.dropout(torch.sigmoid(one - w), 0.25)
    return torch.sin(one) * other - torch.exp(-other) * 0.5


def written() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    return writes, (torch.randn(4, 4), torch.randn(4, 4), torch.randn(4, requires_grad=True))


def drawn() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    return draws, (torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True))


BUILT_IN: dict[str, dict[str, Any]] = {
    "batch_norm": {"channels": 4, "batch": 4, "size": 4},
    "dropout_mlp": {"width": 8, "batch": 8},
    "mlp": {"layers": 2},
    "residual_chain": {"layers": 2, "grad": True},
    "swap": {},
    "adam": {},
}
OWN = {"writes": written, "draws": drawn}


@dataclasses.dataclass(frozen=True)
class Case:
    """A program, its executor, and an option, which `bench` chooses at each site where the option is legal."""

    program: str
    executor: str
    option: str = ""

    def bench(self) -> Workbench:
        if self.program in OWN:
            function, args = OWN[self.program]()
            bench = workbench.open(function, *args, executor=self.executor)
        else:
            settings = BUILT_IN[self.program]
            bench = workbench.open(self.program, device="cpu", executor=self.executor, settings=settings)
        lever = "copies" if self.option == "out" else "saved"
        fitting = [s for s in bench.sites(lever) if self.option in s.options and self.option not in s.illegal]
        if self.option:
            bench.choose({site.id: self.option for site in fitting})
        return bench


QUICK = (Case("writes", "torch"), Case("draws", "torch", "recompute"))
ALL = (
    *QUICK,
    Case("draws", "torch", "offload"),
    Case("draws", "torchcompile", "recompute"),
    Case("draws", "torchcompile", "offload"),
    Case("writes", "torchcompile"),
    Case("batch_norm", "torch", "recompute"),
    Case("batch_norm", "torchcompile"),
    Case("batch_norm", "torchcompile", "out"),
    Case("dropout_mlp", "torch", "recompute"),
    Case("dropout_mlp", "torchcompile", "offload"),
    Case("mlp", "torch", "recompute"),
    Case("residual_chain", "torchcompile", "recompute"),
    Case("swap", "torch"),
    Case("adam", "torchcompile"),
)
EACH = 160 if FULL else 25


def test_nan_and_infinity_differ_from_each_other_and_from_numbers() -> None:
    numbers = [torch.tensor([number]) for number in (float("nan"), float("inf"), torch.finfo(torch.float32).max, 0.0)]
    for at, one in enumerate(numbers):
        assert [same([one], [other]) for other in numbers] == [at == place for place in range(len(numbers))]


def outcomes(case: Case, count: int) -> Counter[tuple[str, str, str]]:
    """Count mutants by mutation, by the outcome of a run, and by whether the prover accepted the mutant."""
    bench = case.bench()
    step, prover = Step.of(bench), Prover(bench.stock_plan.graph)
    known = bench._captured.context.arguments
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(SEED)
        arguments = {
            name: torch.randn(t.shape, dtype=t.dtype) if t.is_floating_point() else torch.zeros(t.shape, dtype=t.dtype)
            for name, t in known.items()
        }
        expected = run(step, arguments, SEED)
        assert same(expected, run(step, arguments, SEED))
        assert prover.prove(step.graph(bench)).proven
        found: Counter[tuple[str, str, str]] = Counter()
        for name, changed in mutants(step, random.Random(SEED), count):
            proven = "proven" if prover.prove(changed.graph(bench)).proven else "refused"
            try:
                left = run(changed, arguments, SEED)
            except Exception:  # noqa: BLE001 - a mutant may raise any error; an error is not a wrong result
                found[name, "fails", proven] += 1
                continue
            found[name, "harmless" if same(expected, left) else "changes", proven] += 1
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600 if FULL else 300)
@pytest.mark.parametrize("case", ALL if FULL else QUICK, ids=str)
def test_mutants_with_other_results_are_refused(case: Case) -> None:
    found = outcomes(case, EACH)
    print(case, sorted(found.items()))
    passed = {key: count for key, count in found.items() if key[1:] == ("changes", "proven")}
    assert not passed
    changing = sum(count for (_, what, _), count in found.items() if what == "changes")
    assert changing >= EACH // 4
    assert sum(found.values()) == EACH


def test_the_list_of_mutations_is_complete() -> None:
    tried = {mutation.__name__ for mutation in MUTATIONS}
    assert tried == {
        "other_operand",
        "swapped_operands",
        "other_constant",
        "moved",
        "dropped",
        "drawn_again",
        "other_ends",
    }
