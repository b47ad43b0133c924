"""In JupyterLab, the graph's search finds and shows statements of folded layers and hidden views."""

from __future__ import annotations

import pytest

from tests.browser.app import GRAPH, graph, open_program, open_tab
from tests.browser.harness import Lab

pytestmark = pytest.mark.browser


def test_search_unfolds_a_layer_and_finds_what_the_memory_list_names(lab: Lab) -> None:
    open_program(lab, "'llama', device='planned', layers=8, executor='torch'")
    found, field = lab.page.locator(f"{GRAPH} .wb-found"), lab.page.locator(f"{GRAPH} .wb-find input")

    def sections() -> list[str]:
        return [section["first"] for section in graph(lab, "state().sections")]

    assert "layers.5" not in sections()
    lab.page.locator(f"{GRAPH} canvas").first.focus()
    lab.page.keyboard.press("/")
    lab.page.keyboard.type("layers.5")
    lab.wait_until(lambda: found.inner_text().startswith("1 of "))
    lab.page.keyboard.press("Enter")
    lab.wait_until(lambda: "layers.5" in sections() and "layers.4" not in sections())
    lab.wait_until(lambda: graph(lab, "state().selected") == graph(lab, "state().current"))
    lab.wait_until(lambda: graph(lab, "view.index !== null"))  # then the count includes folded statements
    count = found.inner_text().removeprefix("1 of ")
    lab.page.keyboard.press("Enter")
    lab.wait_until(lambda: found.inner_text() == f"2 of {count}")
    lab.page.keyboard.press("Shift+Enter")
    lab.wait_until(lambda: found.inner_text() == f"1 of {count}")
    lab.screenshot("search")

    open_tab(lab, "Memory")
    rows = lab.page.locator(".wb-alive tbody tr.wb-can").all_inner_texts()
    hidden = [name for row in rows if f"t:{(name := row.split()[2])}" not in graph(lab, "state().ids")]
    assert hidden, "the list names no value that is folded or hidden"
    field.fill(hidden[0])
    lab.wait_until(lambda: found.inner_text() == "1 of 1")
    field.press("Enter")
    lab.wait_until(lambda: graph(lab, "state().selected") == f"t:{hidden[0]}")
    assert f"t:{hidden[0]}" in graph(lab, "state().ids")
