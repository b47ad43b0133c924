"""The picture of a memory curve has a title, a legend and its own colours. Its ticks are round numbers."""

import re
from xml.etree import ElementTree

import pytest

from workbench.ui.tabs.memory_curve_svg import memory_curves, memory_picture

CURVES = {"now <1>": [1 << 20, 3 << 20, 2 << 20], "before": [2 << 20, 5 << 20, 9 << 20, 1 << 20], "none": []}


def words(picture: str) -> list[str]:
    return [text for element in ElementTree.fromstring(picture).iter() if (text := (element.text or "").strip())]


def test_a_picture_has_its_title_legend_and_colours() -> None:
    picture = memory_picture(CURVES, forward=1, title="Memory of f & g")
    said = words(picture)
    assert {"Memory of f & g", "now <1>, at most 3.00 MiB", "before, at most 9.00 MiB", "forward", "backward"} <= set(
        said
    )
    assert {name for name in re.findall(r"var\((--[\w-]+)\)", picture) if f"{name}:#" not in picture} == set()
    assert not any("none" in text for text in said[1:])


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (9 << 20, ["0 B", "2.00 MiB", "4.00 MiB", "6.00 MiB", "8.00 MiB"]),
        (1 << 20, ["0 B", "256 KiB", "512 KiB", "768 KiB", "1.00 MiB"]),
        (999 << 30, ["0 B", "200 GiB", "400 GiB", "600 GiB", "800 GiB"]),
        (3, ["0 B", "1 B", "2 B", "3 B"]),
        (0, ["0 B", "1 B"]),
    ],
)
def test_ticks_are_round(most: int, ticks: list[str]) -> None:
    assert re.findall(r'text-anchor="end">([\d.]+ \w*B)<', memory_curves({"a": [most]}, forward=0)) == ticks
