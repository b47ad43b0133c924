"""The picture of the README, made by the product: ``python docs/picture.py`` writes ``docs/picture.svg``."""

from pathlib import Path

import workbench as wb
from workbench.ui.graph import svg

PICTURE = Path(__file__).with_name("picture.svg")


def draw() -> str:
    """A block of an MLP with its gradient; two of the values that GELU needs are computed again instead of kept."""
    bench = wb.open("mlp", layers=1, device="cpu")
    bench.choose(dict.fromkeys(("saved:blocks.0/gelu>add", "saved:blocks.0/gelu>torch_div_prim_impl"), "recompute"))
    return svg.render(bench.plan.graph, bench.plan.sites, title=str(bench).splitlines()[0])


if __name__ == "__main__":
    PICTURE.write_text(draw())
