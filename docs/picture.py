"""The pictures of README and pages, made by the product: ``python docs/picture.py [NAME ...]`` writes them.

Without a name it writes all. Each is SVG of the workbench's own graph or curve, of a program that is only planned: the
same on every machine.
"""

import sys
from pathlib import Path

import workbench as wb
from workbench.bench import Workbench
from workbench.compiler.api import Plan
from workbench.core.graph import BACKWARD
from workbench.summary import human_seconds
from workbench.ui.graph import svg
from workbench.ui.html_pages.notebook_picture import Head
from workbench.ui.tabs.memory_curve_svg import memory_picture

HERE = Path(__file__).parent
WIDTH = 720
"""About that of a page's text, so that letters keep their size."""


def readme() -> str:
    """A block of an MLP with its gradient; two of the values that GELU needs are computed again instead of kept."""
    bench = wb.open("mlp", layers=1, device="cpu")
    bench.choose(dict.fromkeys(("saved:blocks.0/gelu>add", "saved:blocks.0/gelu>torch_div_prim_impl"), "recompute"))
    return svg.render(bench.plan.graph, bench.plan.sites, title=str(bench).splitlines()[0])


def first_hour() -> str:
    """The beginning of the tutorial's program after its one choice."""
    bench = wb.open("mlp", batch=512, device="cpu", executor="torch")
    bench.choose({"saved:blocks.0/gelu>mul.1": "recompute"})
    return graph(bench, "saved", "recomputed", max_height=483)


def cut_a_peak() -> str:
    """Memory over a step, before and after a fit."""
    bench = wb.open("mlp", batch=512, device="planned", executor="torch")
    bench.fit("70%")
    statements = bench.plan.graph.statements
    return memory_picture(
        {"after the fit": inside(bench.plan), "before": inside(bench.stock_plan)},
        forward=int(((statements.parent < 0) & (statements.side != BACKWARD)).sum()),
        title='Memory inside each statement of mlp(batch=512), predicted; bench.fit("70%")',
        width=WIDTH,
    )


def inside(plan: Plan) -> list[int]:
    """Return the most bytes alive inside each statement."""
    curve: list[int] = plan.timeline.statement_peak_bytes[plan.graph.statements.parent < 0].tolist()
    return curve


def fusions() -> str:
    """Two blocks of an MLP, fused by nvFuser."""
    bench = wb.open("mlp", layers=2, device="planned", executor="nvfuser")
    return graph(bench, "saved", "recomputed", "fusion", "between")


def collectives() -> str:
    """One rank of eight with Thunder's order of collectives."""
    bench = sharded()
    return graph(bench, "saved", "collective", title=f"Thunder's order: {simulated(bench)}")


def collectives_ordered() -> str:
    """The same, with gathers ahead of what reads them, and gradients that are sent at once."""
    bench = sharded()
    bench.choose({"waits.issue": "in_flight(2)", "waits.wait": "late", "waits.gradients": "earliest"})
    return graph(bench, "saved", "collective", title=f"Ordered: {simulated(bench)}")


def simulated(bench: Workbench) -> str:
    """Return the figures of a rank's simulated step."""
    overlap = bench.overlap()
    assert overlap is not None
    step, waiting = (human_seconds(s) for s in (overlap.simulation.step_s, overlap.simulation.exposed_communication_s))
    return f"a step of {step}, {waiting} of it waiting for communication"


def sharded() -> Workbench:
    """A block of an MLP, sharded by eight ranks."""
    return wb.open("mlp", layers=1, device="planned", executor="torch", ranks=8, parallel="fsdp")


def graph(bench: Workbench, *legend: str, title: str = "", max_height: int = svg.MAX_HEIGHT) -> str:
    """Draw a bench's graph with a title and a legend, without views."""
    head = Head(WIDTH)
    head.legend(legend)
    plan = bench.plan
    return svg.render(
        plan.graph,
        plan.sites,
        title=title or str(bench).splitlines()[0],
        width=WIDTH,
        max_height=max_height,
        views=False,
        head=head.parts,
        room=head.y,
    )


PICTURES = {
    "picture.svg": readme,
    "tutorials/first_hour.svg": first_hour,
    "howto/cut_a_peak.svg": cut_a_peak,
    "howto/find_why_a_fusion_broke.svg": fusions,
    "howto/order_collectives_stock.svg": collectives,
    "howto/order_collectives.svg": collectives_ordered,
}


def drawn(names: list[str]) -> dict[str, str]:
    """Return pictures by their names, all without a name."""
    return {name: PICTURES[name]() for name in names or PICTURES}


if __name__ == "__main__":
    for name, picture in drawn(sys.argv[1:]).items():
        (HERE / name).write_text(picture)
