"""Count clicks, keys and turns of the wheel that five tasks take in a tab of JupyterLab.

``python -m benchmarks.screen.inputs_per_task`` prints the counts. ``docs/explanation/screen.md`` has these counts, and
those of an earlier arrangement of the screen.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, sync_playwright

from tests.browser.app import figure
from tests.browser.harness import Lab, LabServer, launch_browser

WINDOW = {"width": 1440, "height": 900}
MODEL = """
import torch, workbench as wb
from transformers import LlamaConfig, LlamaForCausalLM

ids = torch.randint(0, 128, (4, 128))
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers={layers}, use_cache=False,
                     num_attention_heads=4, num_key_value_heads=2, vocab_size=128, attn_implementation="eager")
bench = wb.open(LlamaForCausalLM(config), input_ids=ids, labels=ids, device="cpu", executor="torch")
bench.show(tab=True)
"""
FUSED = """
import workbench as wb

bench = wb.open("llama", device="cpu", layers=2, executor="torchcompile")
bench.show(tab=True)
"""


class Hand:
    """Counts a user's inputs, and the seconds in which the user waits for the machine."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.clicks, self.keys, self.wheels, self.waiting_s = lab, 0, 0, 0, 0.0

    def click(self, what: Locator) -> None:
        """Click an element."""
        self.clicks += 1
        what.click()

    def press(self, keys: str) -> None:
        """Press a key or a combination of keys."""
        self.keys += 1
        self.lab.page.keyboard.press(keys)

    def type(self, text: str) -> None:
        """Type a text."""
        self.keys += len(text)
        self.lab.page.keyboard.type(text)

    def scroll_to(self, what: Locator, area: Locator) -> None:
        """Turn the wheel over an area until an element is in view."""
        outer = area.bounding_box()
        assert outer is not None
        self.lab.page.mouse.move(outer["x"] + 100, outer["y"] + 100)
        while (at := what.bounding_box()) is None or at["y"] > outer["y"] + outer["height"] - 60:
            self.wheels += 1
            self.lab.page.mouse.wheel(0, 100)
            self.lab.page.wait_for_timeout(150)

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait for an answer of the machine."""
        began = time.monotonic()
        self.lab.wait_until(until, timeout_s=600)
        self.waiting_s += time.monotonic() - began


def open_tab(lab: Lab, code: str) -> Locator:
    """Run a notebook that opens the app in a tab. Return the app."""
    lab.page.set_viewport_size(WINDOW)
    lab.write_notebook("app.ipynb", [code])
    lab.open_notebook("app.ipynb")
    lab.run_all()
    lab.page.wait_for_selector(".wb-tab .wb-graph canvas", timeout=600_000)
    lab.page.wait_for_timeout(2000)
    return lab.page.locator(".wb-tab .wb-app")


def undo(lab: Lab, app: Locator, peak: str) -> None:
    """Undo the last choice, and wait until the peak is as before."""
    app.get_by_role("button", name="Undo").click()
    lab.wait_until(lambda: figure(lab, "peak") == peak, timeout_s=600)


def to_a_config(hand: Hand, app: Locator) -> None:
    """From the open app to an exported config with the single choice that lowers the peak most."""
    best = app.locator(".wb-inspector .wb-best li button").first
    hand.wait(best.is_visible)
    hand.click(best)
    hand.wait(lambda: "−" in figure(hand.lab, "peak"))
    hand.click(app.get_by_role("button", name="Export", exact=True))
    hand.wait(lambda: "Written" in app.locator(".wb-status").inner_text())


def to_a_peak(hand: Hand, app: Locator) -> None:
    """Lower the peak of a model of Hugging Face by 30 %."""
    field = app.locator(".wb-peak input[type=text]")
    hand.click(app.locator("[data-figure=peak]"))
    hand.wait(lambda: bool(field.evaluate("field => field === document.activeElement")))
    hand.type("70")
    hand.press("Enter")
    hand.wait(lambda: "−" in figure(hand.lab, "peak"))


def to_a_softmax(hand: Hand, app: Locator, layers: int) -> None:
    """Find the softmax of a layer, and recompute it in all layers."""
    app.locator(".wb-graph canvas").first.focus()
    hand.press("/")
    hand.type(f"layers.{layers // 2 + 1} softmax")
    hand.press("Enter")
    hand.wait(lambda: "softmax" in app.locator(".wb-inspector").inner_text())
    every = app.locator(f".wb-inspector [title='Choose recompute in all {layers} layers']").first
    hand.wait(every.is_visible)
    hand.click(every)
    hand.wait(lambda: "−" in figure(hand.lab, "peak"))


def to_a_colleague(hand: Hand, app: Locator) -> None:
    """Write the plan into a file that a colleague can open without the model."""
    hand.click(app.get_by_role("button", name="Save plan"))
    hand.wait(lambda: "Written" in app.locator(".wb-status").inner_text())


def to_an_end(hand: Hand, app: Locator) -> None:
    """Read why the largest fusion ends where it ends."""
    hand.click(app.locator("[data-figure=fusions]"))
    inspector = app.locator(".wb-inspector")
    hand.wait(lambda: "Why it ends" in inspector.inner_text())
    hand.scroll_to(inspector.locator("h4", has_text="Why it ends"), inspector)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=32)
    layers = parser.parse_args().layers
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = LabServer(Path(folder) / "home")
        try:
            context = launch_browser(playwright, Path(folder) / "profile")

            def count(lab: Lab, name: str, task: Callable[[Hand], None]) -> None:
                hand = Hand(lab)
                task(hand)
                inputs = f"{hand.clicks} clicks, {hand.keys} keys, {hand.wheels} turns of the wheel"
                print(f"{name}: {inputs}; waited {hand.waiting_s:.1f} s", flush=True)

            lab = Lab(server, context, "model", Path(folder))
            app = open_tab(lab, MODEL.format(layers=layers))
            peak = figure(lab, "peak")
            count(lab, "an exported config", lambda hand: to_a_config(hand, app))
            undo(lab, app, peak)
            count(lab, "a softmax in all layers", lambda hand: to_a_softmax(hand, app, layers))
            count(lab, "a plan for a colleague", lambda hand: to_a_colleague(hand, app))
            undo(lab, app, peak)
            count(lab, "30 % less peak", lambda hand: to_a_peak(hand, app))
            lab.close()
            lab = Lab(server, context, "fusions", Path(folder))
            fused = open_tab(lab, FUSED)
            count(lab, "why a fusion ends", lambda hand: to_an_end(hand, fused))
            lab.close()
            context.close()
        finally:
            server.stop()


if __name__ == "__main__":
    main()
