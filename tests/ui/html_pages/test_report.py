"""Tables are printed as text and Markdown. Charts draw lines through their points, and labels without overlaps."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest

from workbench.ui.html_pages.notebook_tables import LinePlot, Table

SVG = "{http://www.w3.org/2000/svg}"


def texts(chart: LinePlot) -> dict[str, tuple[float, float]]:
    root = ElementTree.fromstring(chart._repr_svg_())
    return {node.text or "": (float(node.attrib["x"]), float(node.attrib["y"])) for node in root.iter(f"{SVG}text")}


def test_a_table_is_text_and_markdown() -> None:
    table = Table([{"variant": "a|b", "MB": 1.5}, {"variant": "c", "MB": 20}])
    assert repr(table) == "variant   MB\na|b      1.5\nc         20"
    assert table._repr_markdown_() == "| variant | MB |\n| --- | --: |\n| a\\|b | 1.5 |\n| c | 20 |"
    with pytest.raises(ValueError, match="a row has the columns MB; the first has variant, MB"):
        Table([{"variant": "a", "MB": 1}, {"MB": 1}])


def test_a_plotted_line_passes_through_its_figures() -> None:
    chart = LinePlot({"stock": {1: 10, 2: 20}}, title="Peak", x="layers", y="GB", limits={"card": 40})
    assert repr(chart) == "Peak (layers, GB)\nstock: 1 10, 2 20"
    picture = chart._repr_svg_()
    first, last = (tuple(map(float, point)) for point in re.findall(r'circle cx="([\d.]+)" cy="([\d.]+)"', picture))
    drawn = texts(chart)
    assert (first[0], last[0]) == (drawn["1"][0], drawn["2"][0])
    # The axis begins at 0, so the point of value 20 is half as high as 40.
    assert drawn["0"][1] - last[1] == pytest.approx((drawn["0"][1] - drawn["40"][1]) / 2, abs=5)
    assert "stroke-dasharray" in picture


def test_labels_do_not_overlap_and_stay_inside() -> None:
    chart = LinePlot({f"line {i}": {1: 1, 2: 100 + i} for i in range(8)}, title="Close", x="x", y="y")
    heights = sorted(y for text, (_, y) in texts(chart).items() if text.startswith("line"))
    assert min(b - a for a, b in itertools.pairwise(heights)) >= 14.9
    assert heights[0] > 0
    assert heights[-1] < 340


def test_a_logarithmic_axis_shows_decades_and_refuses_zero() -> None:
    chart = LinePlot({"t": {1: 0.3, 128: 1393}}, title="Time", x="layers", y="s", log=True)
    assert {"0.1", "1", "10", "100", "1000", "10000"} <= set(texts(chart))
    with pytest.raises(ValueError, match="a point at 0 or below"):
        LinePlot({"t": {1: 0}}, title="Time", x="layers", y="s", log=True)
    with pytest.raises(ValueError, match="no point to draw"):
        LinePlot({}, title="None", x="x", y="y")
