"""Write the pictures of the README and of pages as SVG files: ``python docs/picture.py [NAME ...]``.

Without a name, all pictures are written. A picture shows the graph or the memory curve of a planned program, as the
workbench draws them. No program runs, so every machine writes the same pictures.
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
"""Width of a picture, in pixels. A page's text has about this width, so the page does not scale the letters."""


def readme() -> str:
    """Draw a block of an MLP with its backward. Two of the values that GELU's backward reads are recomputed."""
    bench = wb.open("mlp", layers=1, device="cpu")
    bench.choose(dict.fromkeys(("saved:blocks.0/gelu>add", "saved:blocks.0/gelu>div"), "recompute"))
    return svg.render(bench.plan.graph, bench.plan.sites, title=str(bench).splitlines()[0])


def first_hour() -> str:
    """Draw the beginning of the tutorial's program, after the tutorial's first choice."""
    bench = wb.open("mlp", batch=512, device="cpu", executor="torch")
    bench.choose({"saved:blocks.0/gelu>mul.1": "recompute"})
    return graph(bench, "saved", "recomputed", max_height=483)


def cut_a_peak() -> str:
    """Draw the memory during a step, before and after a fit."""
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
    """Return the peak inside each statement, in bytes. Statements inside of fusions are left out."""
    curve: list[int] = plan.timeline.statement_peak_bytes[plan.graph.statements.parent < 0].tolist()
    return curve


def fusions() -> str:
    """Draw two blocks of an MLP, fused by nvFuser."""
    bench = wb.open("mlp", layers=2, device="planned", executor="nvfuser")
    return graph(bench, "saved", "recomputed", "fusion", "between")


def collectives() -> str:
    """Draw one rank of eight, with Thunder's order of collectives."""
    bench = sharded()
    return graph(bench, "saved", "collective", title=f"Thunder's order: {simulated(bench)}")


def collectives_ordered() -> str:
    """Draw one rank of eight. Gathers are issued early, and gradients are sent as soon as they are computed."""
    bench = sharded()
    bench.choose({"waits.issue": "in_flight(2)", "waits.wait": "late", "waits.gradients": "earliest"})
    return graph(bench, "saved", "collective", title=f"Ordered: {simulated(bench)}")


def simulated(bench: Workbench) -> str:
    """Return the simulated time of a rank's step, and the part of it that waits for communication, as a text."""
    overlap = bench.overlap()
    assert overlap is not None
    step, waiting = (human_seconds(s) for s in (overlap.simulation.step_s, overlap.simulation.exposed_communication_s))
    return f"a step of {step}, {waiting} of it waiting for communication"


def sharded() -> Workbench:
    """Open a block of an MLP that eight ranks shard."""
    return wb.open("mlp", layers=1, device="planned", executor="torch", ranks=8, parallel="fsdp")


def graph(bench: Workbench, *legend: str, title: str = "", max_height: int = svg.MAX_HEIGHT) -> str:
    """Draw the graph of a bench's plan, with a title and a legend, without views."""
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
    """Draw the pictures with these names, or all pictures if `names` is empty. Return each SVG by its name."""
    return {name: PICTURES[name]() for name in names or PICTURES}


if __name__ == "__main__":
    for name, picture in drawn(sys.argv[1:]).items():
        (HERE / name).write_text(picture)
