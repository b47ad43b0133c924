"""A run is named after what was chosen, unless the user named it."""

from __future__ import annotations

import dataclasses

import pytest

import workbench as wb
from workbench.bench.session.run_names import name_of_choices, name_of_fit, unused_name
from workbench.runs.process import request, run_store


def test_a_name_counts_what_was_chosen():
    saved = {f"saved:layers.{layer}.mlp/silu": "recompute" for layer in range(3)}
    assert name_of_choices({}) == "no choices"
    assert name_of_choices(saved) == "3 recomputed"
    assert name_of_choices(saved, "fit 70 %") == "fit 70 %: 3 recomputed"
    assert name_of_choices({**saved, "saved:embedding": "offload"}) == "3 recomputed, 1 offloaded"
    assert name_of_choices({"remat.weight": "0.0"}) == "remat.weight 0.0"
    assert name_of_choices({**saved, "remat.weight": "0.0", "order.statements": "x"}) == "3 recomputed, 2 other choices"
    assert name_of_choices({"waits:x": "y" * 80}) == "1 other choice"


def test_a_fit_is_named_after_its_limit():
    assert [name_of_fit(asked, 3 << 20) for asked in ("70%", " 70 % ", "3 MiB", 3 << 20, None)] == [
        *("fit 70 %", "fit 70 %", "fit 3.00 MiB", "fit 3.00 MiB", "fit")
    ]


def test_equal_names_are_numbered():
    assert unused_name("stock", {"3 recomputed"}) == "stock"
    assert unused_name("stock", {"stock", "stock (2)"}) == "stock (3)"


@pytest.fixture
def bench(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return wb.open("mlp", device="cpu", executor="torch")


def name(bench: wb.Workbench, **given: str) -> str:
    return request.read_request(bench.prepare(**given)).name


def test_a_run_is_named_after_its_choices_and_its_folder_after_the_program(bench):
    assert name(bench) == "no choices"
    assert name(bench) == "no choices (2)"
    assert all("-mlp" in folder.name for folder in run_store.folders())
    bench.fit("97.5%")
    count = len(bench.choices)
    assert count > 0
    assert name(bench) == f"fit 97.5 %: {count} recomputed"
    site = next(s for s in bench.sites("saved") if s.values and s.choice == "save" and "recompute" not in s.illegal)
    bench.choose({site.id: "recompute"})
    assert name(bench) == f"{count + 1} recomputed"
    bench.undo()
    assert name(bench) == f"fit 97.5 %: {count} recomputed (2)"
    assert name(bench, name="mine") == "mine"


def test_a_run_without_choices_is_named_so_even_after_a_search_removed_all_choices(bench):
    (site, *_) = [site for site in bench.sites("saved") if site.values and "recompute" not in site.illegal]
    bench.choose_found({site.id: "recompute"}, "fit 70 %")
    assert bench.name_of(bench.choices) == "fit 70 %: 1 recomputed"
    bench.choose_found({}, "fit 100 %")
    assert bench.name_of(bench.choices) == "no choices"


@pytest.mark.slow
def test_a_config_that_names_a_default_opens_without_this_choice(bench):
    """`choose` removes a choice of the default option. If a config kept it, equal plans would have different names."""
    site = next(site for site in bench.sites("saved") if site.values and "recompute" not in site.illegal)
    config = dataclasses.replace(bench.config, choices={site.id: site.default, "remat.weight": "0.5"})
    opened = wb.open("mlp", device="cpu", executor="torch", config=config)
    assert (opened.choices, opened.unmatched) == ({}, {})
    assert name(opened) == "no choices"
    config = dataclasses.replace(bench.config, choices={site.id: "recompute"})
    assert wb.open("mlp", device="cpu", executor="torch", config=config).choices == {site.id: "recompute"}
