"""Under each policy, a program's nvFuser definitions have a known number of `set` nodes, which copy a tensor."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import workbench
from tests.nvfuser.replays import count_sets, fusions
from tests.trial_counts import beyond, combined
from workbench.bench import Workbench
from workbench.compiler.fusion.fusion_source import definition
from workbench.errors import ChoiceError, PlanError

POLICIES = ("always", "never", "direct_only", "alias_aware")


def add(a: torch.Tensor, b: torch.Tensor) -> None:
    a.add_(b)


def add_cast(a: torch.Tensor, b: torch.Tensor) -> None:
    a.add_(b.to(torch.float32))


def chain(a: torch.Tensor, b: torch.Tensor) -> None:
    a.add_(b)
    b.copy_(a)


def same_type(a: torch.Tensor, b: torch.Tensor) -> None:
    a.copy_(b.to(torch.float32))


def expanded(a: torch.Tensor, b: torch.Tensor) -> None:
    a.copy_(b.expand(4, 4))


def norm(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.batch_norm(x, mean, var, training=True)


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


CASES: dict[str, tuple[Any, tuple[torch.Tensor, ...], dict[str, Any]]] = {
    "add": (add, (ones(4, 4), ones(4, 4)), {}),
    "add, cast": (add_cast, (ones(4, 4), ones(4, 4, dtype=torch.bfloat16)), {}),
    "add, bf16": (add, (ones(4, 4, dtype=torch.bfloat16), ones(4, 4, dtype=torch.bfloat16)), {}),
    "batch norm": (norm, (ones(4, 4), ones(4), ones(4)), {}),
    "batch norm that counts its batches": ("batch_norm", (), {}),
    "two destinations": ("two_destinations", (), {}),
    "return and copy": ("return_source", (), {}),
    "swap": ("swap", (), {}),
    "chain": (chain, (ones(4, 4), ones(4, 4)), {}),
    "copy of a cast to the same type": (same_type, (ones(4, 4), ones(4, 4)), {}),
    "Adam, 3 parameters": ("torch_adam", (), {"parameters": 3}),
    "Adam, 2 parameters": ("torch_adam", (), {"parameters": 2}),
    "SGD, 2 parameters": ("torch_sgd", (), {"parameters": 2}),
    "functional Adam, 2 parameters": ("adam", (), {"parameters": 2}),
    "functional SGD, 2 parameters": ("sgd", (), {"parameters": 2}),
}


@functools.cache
def opened(case: str) -> Workbench:
    program, args, settings = CASES[case]
    return workbench.open(program, *args, device="planned", executor="nvfuser", **settings)


def planned(case: str, policy: str, fences: str) -> Workbench:
    bench = opened(case)
    bench.choose({"copies.policy": policy, "copies.fences": fences})
    return bench


def sets(bench: Workbench, policy: str | None = None) -> int:
    """Return the number of `set` nodes in the plan's fusions.

    The fusions follow the plan's own policies. If `policy` is given, they follow `policy` for every copy instead, even
    where it gives wrong results.
    """
    return sum(count_sets(fusion, policy) for fusion in fusions(bench))


def outputs(math: str) -> set[str]:
    """Return the values that a fusion writes to memory, from the text that nvFuser's `print_math` prints for it."""
    return set(math.partition("Outputs:")[2].partition("%kernel_math")[0].split())


# Columns: case, option for fences, number of fusions, and number of sets under each policy for every copy.
TABLE: list[tuple[str, str, int, tuple[int, int, int, int]]] = [
    ("add", "keep", 1, (1, 0, 0, 0)),
    ("add, cast", "keep", 1, (1, 0, 0, 0)),
    ("add, bf16", "keep", 1, (1, 0, 0, 0)),
    ("batch norm", "drop", 1, (2, 0, 0, 0)),
    # The second fusion is in the backward.
    ("batch norm that counts its batches", "drop", 2, (3, 0, 0, 0)),
    ("two destinations", "drop", 1, (2, 0, 0, 1)),
    ("return and copy", "drop", 1, (1, 0, 0, 1)),
    # PyTorch runs the program's clone, so the fusion copies one of its inputs into another. For such a copy, nvFuser
    # itself inserts a set.
    ("swap", "drop", 1, (2, 2, 2, 2)),
    ("chain", "drop", 1, (2, 0, 0, 1)),
    ("copy of a cast to the same type", "drop", 1, (1, 1, 1, 1)),
    ("Adam, 3 parameters", "keep", 21, (18, 0, 0, 0)),
    ("Adam, 2 parameters", "drop", 1, (8, 0, 0, 0)),
    ("SGD, 2 parameters", "drop", 1, (4, 0, 0, 0)),
    ("functional Adam, 2 parameters", "drop", 1, (8, 0, 0, 0)),
    ("functional SGD, 2 parameters", "drop", 1, (4, 0, 0, 0)),
]


@pytest.mark.parametrize(
    ("case", "fences", "count", "expected"),
    beyond(2, TABLE, pytest.mark.slow, rows=True),
    ids=[row[0] for row in TABLE],
)
def test_the_number_of_sets_equals_the_table(case: str, fences: str, count: int, expected: tuple[int, ...]) -> None:
    bench = planned(case, "always", fences)
    assert len(fusions(bench)) == count
    assert tuple(sets(bench, policy) for policy in POLICIES) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("case", "policy", "fences"), combined(CASES, POLICIES, ["keep", "drop"]))
def test_a_plan_counts_the_sets_of_its_definitions(case: str, policy: str, fences: str) -> None:
    bench = planned(case, policy, fences)
    assert bench.plan.counts["sets"] == sets(bench)


@pytest.mark.parametrize("policy", ["never", "direct_only"])
@pytest.mark.parametrize(
    ("case", "reason", "kept"),
    [
        ("two destinations", "is already written into", 1),
        ("return and copy", "the fusion also returns", 1),
        ("swap", "is an input of the fusion", 2),
        ("chain", "is already written into", 1),
        ("copy of a cast to the same type", "is an input of the fusion", 1),
    ],
)
def test_a_needed_set_stays_and_its_removal_is_refused_with_the_reason(
    case: str, reason: str, kept: int, policy: str
) -> None:
    assert sets(planned(case, policy, "drop")) == kept
    bench = planned(case, "always", "drop")
    needing = [site for site in bench.sites("copies") if any(reason in why for why in site.illegal.values())]
    assert len(needing) == kept
    for site in needing:
        with pytest.raises(ChoiceError, match=reason):
            bench.choose({site.id: "never"})


def test_the_second_destination_of_a_value_would_be_lost_without_a_set() -> None:
    (fusion,) = fusions(planned("two destinations", "always", "drop"))
    assert len(outputs(definition(fusion, "alias_aware"))) == 2
    assert len(outputs(definition(fusion, "never"))) == 1


def through_a_view(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    sums = a + b
    total = sums.sum(1, keepdim=True)
    flat = total.view(-1)
    flat.mul_(0.5)
    return total


def test_a_fence_before_a_written_view_stays_and_its_removal_is_refused() -> None:
    bench = workbench.open(through_a_view, ones(4, 4), ones(4, 4), device="planned", executor="nvfuser")
    bench.choose({"copies.fences": "drop"})
    fences = [site for site in bench.sites("copies") if site.id.endswith("!fence")]
    alone = [site for site in fences if len(site.values) == 1]
    assert alone
    for site in alone:
        with pytest.raises(ChoiceError, match=r"is a view of .* nvFuser would give it separate memory"):
            bench.choose({site.id: "drop"})
    assert bench.plan.proof.proven
    assert bench.plan.counts["fences"] == len(fences)


def beside_a_view(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    view = b.t()
    a.mul_(0.5)
    b.mul_(2.0)
    return view + 1.0


def test_a_fence_that_keeps_a_view_out_of_a_fusion_stays() -> None:
    bench = workbench.open(beside_a_view, ones(4, 4), ones(4, 4), device="planned", executor="nvfuser")
    bench.choose({"copies.fences": "drop"})
    assert bench.plan.proof.proven
    assert any("is a view of" in reason for site in bench.sites("copies") for reason in site.illegal.values())


def test_policies_of_two_programs_do_not_mix() -> None:
    """A definition is built at its first use. It must follow the policy of its own plan, not of the latest plan."""
    one = workbench.open(add, ones(4, 4), ones(4, 4), device="planned", executor="nvfuser")
    other = workbench.open(add, ones(4, 4), ones(4, 4), device="planned", executor="nvfuser")
    one.choose({"copies.policy": "never"})
    before, after = one.plan, other.plan
    (first,), (second,) = fusions(one), fusions(other)
    assert (before.counts["sets"], after.counts["sets"]) == (0, 1)
    assert [count_sets(fusion) for fusion in (second, first, second)] == [1, 0, 1]


@pytest.mark.slow
def test_shared_fusions_keep_a_policy_that_is_chosen_for_a_single_copy() -> None:
    bench = opened("Adam, 3 parameters")
    bench.choose({"copies.policy": "always", "copies.fences": "keep", "sharing.identical": "shared"})
    changed = next(site for site in bench.sites("copies") if "never" in site.options and ":" in site.id)
    bench.choose({changed.id: "never"})
    try:
        assert bench.plan.counts["sets"] == sets(bench) == 17
        assert bench.plan.counts["compilations"] < 21
    finally:
        bench.choose({changed.id: "always", "sharing.identical": "separate"})


def test_a_refusal_by_nvfuser_is_reported_in_one_line_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    bench = workbench.open(expanded, ones(4, 4), ones(4), device="planned", executor="nvfuser")
    bench.choose({"copies.fences": "drop"})
    with pytest.raises(PlanError, match="nvFuser refuses nvFusion0") as refusal:
        sets(bench)
    assert "\n" not in str(refusal.value)
    assert capfd.readouterr() == ("", "")


def test_a_config_keeps_a_choice_of_the_stock_option_if_a_setting_selects_another() -> None:
    bench = workbench.open(add, ones(4, 4), ones(4, 4), device="planned", executor="nvfuser")
    (site,) = [site for site in bench.sites("copies") if site.default == "always" and not site.is_setting]
    choices = {"copies.policy": "never", site.id: "always"}
    bench.choose({"copies.policy": "never"})
    bench.choose({site.id: "always"})
    assert bench.choices == choices
    opened_again = workbench.open(
        add, ones(4, 4), ones(4, 4), device="planned", executor="nvfuser", config=bench.config
    )
    assert opened_again.choices == choices
