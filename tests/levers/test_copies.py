"""Lever `copies` puts all in-place copies, or a single copy, inside or outside of torch.compile's regions."""

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


@pytest.mark.slow
@pytest.mark.usefixtures("no_compiler")
def test_copies_outside_regions_split_an_optimizer_step_into_many_regions() -> None:
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


@pytest.mark.slow
@pytest.mark.usefixtures("no_compiler")
def test_a_single_copy_can_be_taken_out_of_its_region() -> None:
    bench = opened("sgd", parameters=2, size=4)
    site = next(site for site in bench.sites("copies") if site.id.startswith("copies:"))
    assert (site.choice, site.illegal) == ("in", {})
    moved = bench.choose({site.id: "out"})
    assert site.id in moved.changed
    outside = [b.sym.name for b in bench.plan.split.forward.bound_symbols if not b.sym.is_fusion]
    assert sum("copy_" in name for name in outside) == 1
    assert writes_as_eager(bench)


def test_a_setting_of_another_executor_is_refused_with_the_reason() -> None:
    with pytest.raises(ChoiceError, match=r"torch\.compile puts no set before a copy"):
        opened("sgd").choose({"copies.policy": "never"})
    with pytest.raises(ChoiceError, match="the torch executor makes no fusions"):
        workbench.open("sgd", device="cpu", executor="torch").choose({"copies.region": "out"})


def reads_before_a_write_through_views(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    before = torch.cat((a,), 0)
    a.contiguous().view(-1).detach().mul_(0.5)
    return before * 0.5 + b


@pytest.mark.usefixtures("no_compiler")
def test_if_a_write_through_views_follows_a_read_the_read_value_is_not_recomputed_after_the_write() -> None:
    arguments = torch.rand(4, 4), torch.rand(4, 4)
    bench = workbench.open(reads_before_a_write_through_views, *arguments, device="cpu", executor="torchcompile")
    (site,) = bench.sites("copies")[-1:]
    assert site.illegal == {}
    bench.choose({site.id: "out"})
    assert bench.plan.proof.proven
    assert bench.plan.census.count == 2
    reference = [t.clone() for t in arguments]
    expected = reads_before_a_write_through_views(*reference)
    assert torch.equal(bench.config.jit(reads_before_a_write_through_views)(*arguments), expected)
    assert torch.equal(arguments[0], reference[0])


def writes_last(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x) * state.sum()
    part = state.view(-1)
    part.mul_(0.5)
    return y


def writes_last_without_gradients(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    # No value here needs a gradient, but Thunder finds this only after its passes that prepare for gradients.
    y = x.detach().sin() * state.sum()
    part = state.view(-1)
    part.mul_(0.5)
    return y


@pytest.mark.slow
@pytest.mark.parametrize("program", [writes_last, writes_last_without_gradients])
def test_a_copy_that_thunder_would_put_into_the_backward_stays_in_its_region(program: Any) -> None:
    arguments = torch.rand(4, 4, requires_grad=True), torch.rand(4, 4)
    bench = workbench.open(program, *arguments, device="cpu", executor="torchcompile", capture="interpreter")
    (site,) = [site for site in bench.sites("copies") if site.id.startswith("copies:")]
    assert list(site.illegal) == ["out"]
    assert (site.choice, site.outcome) == ("in", "in")
    with pytest.raises(ChoiceError, match="Thunder would move the copy into the backward"):
        bench.choose({site.id: "out"})
    bench.choose({"copies.region": "out"})
    assert bench.site(site.id).choice == "in"
    assert bench.plan.proof.proven


ARGUMENTS = "abcd"


def rotated(a: Any, b: Any, c: Any, d: Any) -> None:
    a.copy_(b)
    b.copy_(c)


def swapped_with_zeros(a: Any, b: Any, c: Any, d: Any) -> None:
    t = a + torch.zeros_like(a)
    a.copy_(b)
    b.copy_(t)


def swapped_with_ones(a: Any, b: Any, c: Any, d: Any) -> None:
    t = a * torch.ones_like(a)
    a.copy_(b)
    b.copy_(t)


def swapped_with_cat(a: Any, b: Any, c: Any, d: Any) -> None:
    t = torch.cat([a])
    a.copy_(b)
    b.copy_(t)


def swapped_through_a_view(a: Any, b: Any, c: Any, d: Any) -> None:
    t = a + torch.zeros_like(a)
    a.view(-1).copy_(b.view(-1))
    b.copy_(t)


def there_and_back(a: Any, b: Any, c: Any, d: Any) -> None:
    t = b.to(torch.float64).to(torch.float32)
    a.copy_(t)
    b.mul_(c)


def handed_on(a: Any, b: Any, c: Any, d: Any) -> None:
    a.copy_(b)
    b.copy_(c)
    d.copy_(a)


def in_a_ring(a: Any, b: Any, c: Any, d: Any) -> None:
    x, y, z = a.clone(), b.clone(), c.clone()
    a.copy_(y)
    b.copy_(z)
    c.copy_(x)


def shifted_in_place(a: Any, b: Any, c: Any, d: Any) -> None:
    a[1:].copy_(a[:-1].clone())


def partly_old(a: Any, b: Any, c: Any, d: Any) -> None:
    t = torch.where(c > 0, a, d)
    a.copy_(b)
    b.copy_(t)


def returned_old(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any]:
    t, s = a + torch.zeros_like(a), a * torch.ones_like(a)
    a.copy_(b)
    return t, s


def computed(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = torch.sin(a) * 2.0 + b
    a.copy_(b * 0.5)
    b.copy_(t)
    c.lerp_(b, 0.1)
    d.addcdiv_(c, a.sqrt() + 1e-8, value=-0.1)
    return a + t


def averaged_with_decay(a: Any, b: Any, c: Any, d: Any) -> None:
    gradient = b + 0.01 * a
    c.mul_(0.9).add_(gradient)
    a.add_(c, alpha=-0.1)
    d.copy_(torch.maximum(d, c))


WRITES = {
    rotated: ["copy_.1"],
    swapped_with_zeros: ["copy_.1"],
    swapped_with_ones: ["copy_.1"],
    swapped_with_cat: ["copy_.1"],
    swapped_through_a_view: ["copy_.1"],
    there_and_back: ["mul_"],
    handed_on: ["copy_.1"],
    in_a_ring: ["copy_.1"],
    shifted_in_place: ["copy_"],
    partly_old: ["copy_.1"],
    returned_old: [],
    computed: [],
    averaged_with_decay: [],
}
"""Programs that write in place. Each has the list of its copies that stay out of regions."""
COMPILED = (swapped_with_zeros, swapped_with_ones, swapped_with_cat, handed_on, shifted_in_place, returned_old)
"""Programs for which plain ``torch.compile`` gives wrong results, each for a different cause."""


def four(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(6, 6, generator=generator) for _ in ARGUMENTS]


@pytest.mark.parametrize("program", WRITES, ids=lambda program: program.__name__)
def test_only_copies_of_values_that_may_be_overwritten_stay_out_of_the_region(program: Any) -> None:
    bench = workbench.open(program, *four(0), device="cpu", executor="torchcompile")
    sites = [site for site in bench.sites("copies") if site.id.startswith("copies:")]
    assert [s.id.rpartition("/")[2] for s in sites if s.choice == "out"] == WRITES[program]
    for site in sites:
        assert list(site.illegal) == (["in"] if site.choice == "out" else [])
        if site.choice == "out":
            with pytest.raises(ChoiceError, match="inside one region, Inductor"):
                bench.choose({site.id: "in"})
    if not WRITES[program]:
        assert bench.plan.census.count == 1


@pytest.mark.slow
def test_default_regions_give_the_results_of_eager() -> None:
    def all_of_them(*tensors: torch.Tensor) -> list[Any]:
        return [program(*tensors[4 * i : 4 * i + 4]) for i, program in enumerate(COMPILED)]

    flat = torch.utils._pytree.tree_leaves
    eager, given = ([t for i in range(len(COMPILED)) for t in four(i)] for _ in range(2))
    expected = flat(all_of_them(*eager))
    config = workbench.open(all_of_them, *given, device="cpu", executor="torchcompile").config
    found = flat(config.jit(all_of_them)(*given))
    wrong = {
        program.__name__
        for i, program in enumerate(COMPILED)
        for one, other in zip(given[4 * i : 4 * i + 4], eager[4 * i : 4 * i + 4], strict=True)
        if not torch.allclose(one, other)
    }
    assert not wrong
    assert len(found) == len(expected)
    assert all(torch.allclose(one, other) for one, other in zip(found, expected, strict=True) if one is not None)
    # No two results or inputs share a storage.
    storages = [t.untyped_storage().data_ptr() for t in (*found, *given) if t is not None]
    assert len(storages) == len(set(storages))
