"""The bench records whether the user or a search made each choice. Undo, redo and refusals keep this record right."""

from __future__ import annotations

import pytest

import workbench
from tests.needs import needs_nvfuser
from workbench.bench import Workbench
from workbench.errors import ChoiceError, PlanError


@pytest.fixture
def bench() -> Workbench:
    return workbench.open("mlp", layers=2, device="cpu", executor="torch")


def free_site(bench: Workbench) -> str:
    return next(site.id for site in bench.sites("saved") if site.bytes and "recompute" not in site.illegal)


def test_undo_returns_a_choice_to_the_search_that_made_it(bench: Workbench) -> None:
    id = free_site(bench)
    bench.choose_found({id: "recompute"})
    bench.choose({id: "save"})
    bench.undo()
    assert (bench.choices, bench.pinned) == ({id: "recompute"}, {})


def test_undo_returns_a_choice_to_the_user_who_made_it(bench: Workbench) -> None:
    id = free_site(bench)
    bench.choose({id: "recompute"})
    bench.choose({id: "save"})
    bench.choose_found({id: "recompute"})
    assert bench.pinned == {}
    bench.undo()
    bench.undo()
    assert (bench.choices, bench.pinned) == ({id: "recompute"}, {id: "recompute"})


def test_if_a_user_makes_the_choice_of_a_search_the_choice_is_pinned(bench: Workbench) -> None:
    id = free_site(bench)
    bench.choose_found({id: "recompute"})
    bench.choose({id: "recompute"})
    assert bench.pinned == {id: "recompute"}
    bench.undo()
    assert bench.choices == {}


def test_a_refused_choice_pins_nothing(bench: Workbench) -> None:
    id = free_site(bench)
    bench.choose_found({id: "recompute"})
    with pytest.raises(ChoiceError):
        bench.choose({id: "recompute", "saved:nothing/here": "save"})
    assert bench.pinned == {}
    with pytest.raises(ChoiceError):
        bench.choose({id: "sav"})
    assert bench.pinned == {}


@needs_nvfuser
def test_a_setting_and_the_old_default_of_a_site_can_be_chosen_together() -> None:
    bench = workbench.open("torch_sgd", device="planned", executor="nvfuser")
    site = next(site for site in bench.sites("copies") if site.id.startswith("copies:"))
    bench.choose({"copies.policy": "never", site.id: site.default})
    assert bench.choices == {"copies.policy": "never", site.id: site.default}
    assert bench.site(site.id).choice == site.default == "always"
    assert workbench.open("torch_sgd", config=bench.config).plan.sites == bench.plan.sites


def test_a_fit_keeps_a_default_option_that_the_user_chose(bench: Workbench) -> None:
    first = bench.fit("98%", using=["recompute"])
    id = next(iter(first.choices))
    bench.choose({id: "save"})
    assert id in bench.by_hand
    assert id not in bench.config.choices
    assert id not in bench.fit("98%", using=["recompute"]).choices
    while id not in bench.choices:
        bench.undo()
    assert id not in bench.by_hand
    assert id in bench.fit("98%", using=["recompute"]).choices


def test_redo_restores_a_default_option_that_the_user_chose(bench: Workbench) -> None:
    id = free_site(bench)
    bench.choose({id: "recompute"})
    bench.choose({id: "save"})
    bench.undo()
    bench.undo()
    assert bench.by_hand == frozenset()
    bench.redo()
    bench.redo()
    assert (bench.choices, bench.by_hand) == ({}, {id})
    bench.choose_found({id: "recompute"})
    assert bench.by_hand == frozenset()


def test_if_the_user_chose_the_stock_order_a_fit_tries_no_other_order(bench: Workbench) -> None:
    bench.choose({"order.statements": "stock"})
    assert "order.statements" not in bench.fit("93%", using=["recompute", "order"]).choices


def test_the_error_of_a_fit_counts_default_options_that_the_user_chose(bench: Workbench) -> None:
    bench.choose({free_site(bench): "save"})
    with pytest.raises(PlanError, match=r"keeping 1 choice made by hand"):
        bench.fit("10%", using=["recompute"])


def test_a_fit_may_change_an_option_that_the_user_released(bench: Workbench) -> None:
    id = next(iter(bench.fit("98%", using=["recompute"]).choices))
    bench.choose({id: "save"})
    bench.release([id])
    assert (id in bench.choices, bench.by_hand) == (False, frozenset())
    assert id in bench.fit("98%", using=["recompute"]).choices
    bench.choose({id: "recompute"})
    bench.release([id])
    assert (bench.choices[id], bench.pinned) == ("recompute", {})
    bench.undo()
    bench.choose({id: "recompute"}, by_hand=False)
    assert (bench.choices[id], bench.by_hand) == ("recompute", frozenset())
