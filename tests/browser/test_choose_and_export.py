"""Choices for all layers, and their files for Thunder and for plain PyTorch, made by clicks."""

from __future__ import annotations

import pytest

from tests.browser.app import click, open_program
from tests.browser.harness import Lab
from workbench.core.config import is_config

pytestmark = pytest.mark.browser

SITE = "saved:blocks.1/gelu>mul.1"
CHOSEN = "print(sorted({*bench.choices.values()}), len(bench.choices))"


def places(lab: Lab) -> list[dict[str, float]]:
    """Return the boxes of the app's parts on the page."""
    found: list[dict[str, float]] = lab.page.locator(".wb-app").evaluate(
        "app => [...app.children].map(part => part.getBoundingClientRect().toJSON())"
    )
    return found


def test_a_choice_for_all_layers_is_exported_for_pytorch(lab: Lab) -> None:
    open_program(lab, "'mlp', device='cpu', executor='torch', layers=5")

    # Three of the five layers are shown as one. One more click chooses for all five.
    click(lab, SITE)
    scopes = lab.page.get_by_role("group", name="What a choice holds for")
    scopes.get_by_role("button", name="all 5 layers").click()
    scopes.get_by_role("button", name="all 5 layers", pressed=True).wait_for()
    option = lab.page.locator(".wb-inspector .wb-option").filter(has=lab.page.get_by_role("button", name="recompute"))
    lab.wait_until(lambda: option.locator(".wb-groups tbody tr").count() == 4)
    assert option.locator(".wb-groups tbody td:first-child").all_inner_texts() == [
        "all 5 layers",
        "layer 0",
        "layers 1–3",
        "layer 4",
    ]
    lab.screenshot("all-layers")
    option.get_by_role("button", name="recompute").click()
    lab.wait_until(lambda: lab.kernel_eval(CHOSEN) == "['recompute'] 5")
    scopes.get_by_role("button", name="this layer alone").click()
    lab.page.keyboard.press("Escape")
    # All five layers now lie alike, and the menu of their arc has one more entry for each option, in each scope.
    lab.kernel_eval("_ = bench.choose({'saved:blocks.3/gelu>mul.1': 'save'})")
    click(lab, SITE, button="right")
    lab.screenshot("all-layers-menu")
    lab.page.get_by_role("menuitem", name="Choose offload in all 5 layers").click()
    lab.wait_until(lambda: lab.kernel_eval(CHOSEN) == "['offload'] 5")

    before = places(lab)
    lab.page.get_by_role("button", name="What the file is for").click()
    box = lab.page.get_by_role("dialog", name="Export")
    assert "config = wb.Config(" in box.get_by_label("The file").inner_text()
    box.get_by_role("button", name="torch.compile").click()
    lab.wait_until(lambda: "plain PyTorch saves or recomputes here" in box.inner_text())
    assert "def compile(" in box.get_by_label("The file").inner_text()
    assert places(lab) == before, "the box moved parts of the app"
    lab.screenshot("export-torch")
    box.get_by_role("button", name="Export to mlp_choices.py").click()
    lab.wait_until((lab.folder / "mlp_choices.py").exists)
    assert "PyTorch cannot follow these choices" in (lab.folder / "mlp_choices.py").read_text()
    box.get_by_role("button", name="Thunder").click()
    lab.page.keyboard.press("Escape")
    assert not box.is_visible()
    lab.page.locator(".wb-controls").get_by_role("button", name="Export").click()
    lab.wait_until((lab.folder / "mlp.choices.py").exists)
    assert is_config(lab.folder / "mlp.choices.py")
