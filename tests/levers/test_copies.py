"""In-place copies on a CPU: inside torch.compile's regions or outside, for all or for one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import workbench
from workbench.bench import Workbench
from workbench.errors import ChoiceError


def opened(name: str, **settings: Any) -> Workbench:
    return workbench.open(name, device="cpu", executor="torchcompile", **settings)


def writes_as_eager(bench: Workbench) -> bool:
    function, args, _ = bench.program.build()
    bench.config.jit(function)(*args)
    reference, expected, _ = bench.program.build()
    reference(*expected)
    flat = torch.utils._pytree.tree_leaves
    return all(torch.allclose(one, other) for one, other in zip(flat(args), flat(expected), strict=True))


@pytest.mark.usefixtures("no_compiler")
def test_copies_outside_split_an_optimizer_step_into_many_regions() -> None:
    bench = opened("adam", parameters=2, size=4)
    copies = bench.plan.counts["copies"]
    assert copies == 12
    assert bench.plan.census.count == 1
    assert writes_as_eager(bench)
    bench.choose({"copies.region": "out"})
    assert bench.plan.census.count > 4
    assert bench.plan.counts["copies"] == copies
    assert writes_as_eager(bench)
    bench.undo()
    assert bench.plan.census.count == 1


@pytest.mark.usefixtures("no_compiler")
def test_one_copy_can_be_taken_out() -> None:
    bench = opened("sgd", parameters=2, size=4)
    site = next(site for site in bench.sites("copies") if site.id.startswith("copies:"))
    assert (site.choice, site.illegal) == ("in", {})
    moved = bench.choose({site.id: "out"})
    assert site.id in moved.changed
    outside = [b.sym.name for b in bench.plan.split.forward.bound_symbols if not b.sym.is_fusion]
    assert sum("copy_" in name for name in outside) == 1
    assert writes_as_eager(bench)


def test_settings_of_other_executors_are_refused_with_the_reason() -> None:
    with pytest.raises(ChoiceError, match=r"torch\.compile puts no set before a copy"):
        opened("sgd").choose({"copies.policy": "never"})
    with pytest.raises(ChoiceError, match="the torch executor makes no fusions"):
        workbench.open("sgd", device="cpu", executor="torch").choose({"copies.region": "out"})
