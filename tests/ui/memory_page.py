"""Show the top-level tab Memory on a page without JupyterLab. Python code of the test answers the page's requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.ui.page import page as page_text
from workbench.ui.tabs.fit_tab import CurvePlot
from workbench.ui.tabs.memory_tab import MemoryTab
from workbench.ui.widgets.plotting import LIBRARY


class Shown:
    """A page with the Memory tab, and a stand-in for the kernel that answers the page's requests."""

    def __init__(self, page: Page, tab: MemoryTab | CurvePlot, folder: Path) -> None:
        self.page, self.tab = page, tab
        self.sent_bytes: list[int] = []
        answers: list[Any] = []
        tab.send = lambda content, buffers=None: answers.append(content)  # type: ignore[method-assign]

        def to_kernel(message: dict[str, Any]) -> list[Any]:
            if message["type"] == "library":
                return []
            answers.clear()
            tab._answer(message)
            self.sent_bytes.extend(len(json.dumps(answer)) for answer in answers)
            return list(answers)

        page.expose_function("toKernel", to_kernel)
        state = {"plot": tab.plot, "content": tab.content, "chosen": [], "marked": []}
        text = page_text("plot", state, width=900).replace(
            "window.messages = [];",
            """window.messages = [];
            const answer = async (message) => {
              for (const one of await toKernel(message)) window.emit("msg:custom", one);
            };""",
        )
        text = text.replace(
            '(message.type === "preview" ? window.previews : window.messages).push(message)',
            "{ window.messages.push(message); void answer(message); }",
        )
        library = LIBRARY.read_text().replace("</script", "<\\/script")
        (folder / "bokeh.js").write_text(library)
        file = folder / "view.html"
        file.write_text(text.replace("<script type", '<script src="bokeh.js"></script><script type', 1))
        page.goto(file.as_uri())
        page.wait_for_function("window.ready && [...Bokeh.index.roots][0]?.has_finished()")

    def painted_ms(self) -> float:
        """Add a second plot to the loaded page. Return the milliseconds until it is drawn."""
        took: float = self.page.evaluate(
            """async () => {
              const el = document.createElement("div"), before = new Set(Bokeh.index.roots);
              el.style.width = "900px";
              document.body.append(el);
              const began = performance.now(), give_up = began + 20000;
              const fresh = () => [...Bokeh.index.roots].find((root) => !before.has(root));
              const stop = window.mount(el);
              while (!fresh()?.has_finished() && performance.now() < give_up) await new Promise(requestAnimationFrame);
              await new Promise((r) => setTimeout(r));
              const took = performance.now() - began;
              (await stop)?.();
              el.remove();
              return took;
            }"""
        )
        return took

    def drawn(self, axis: str, name: str) -> dict[str, Any]:
        """Return the start and end of the visible range of an axis, and the points of a curve in this range."""
        found: dict[str, Any] = self.page.evaluate(
            """([axis, name]) => {
              const { document } = [...Bokeh.index.roots][0].model, { start, end } = document.get_model_by_name(axis);
              const { x, y } = document.get_model_by_name(name).data;
              return { start, end, points: x.flatMap((at, i) => (at >= start && at <= end ? [[at, y[i]]] : [])) };
            }""",
            [axis, name],
        )
        return found

    def look(self, axis: str, start: float, end: float) -> None:
        """Show the range from `start` to `end` of an axis, as zooming with the wheel does."""
        self.page.evaluate(
            """([axis, start, end]) =>
              [...Bokeh.index.roots][0].model.document.get_model_by_name(axis).setv({ start, end })""",
            [axis, start, end],
        )
