"""A curve with more points than pixels is thinned, which does not change its look. Zooming in shows all points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.ui.widgets.downsample import PER_PIXEL, SampledCurve, points_in_sight

STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50)), min_size=1, max_size=300)


def curve_of(steps: list[tuple[int, int]]) -> SampledCurve:
    along, heights = np.asarray(steps, np.int64).T
    return SampledCurve(np.cumsum(along), heights)


@given(STEPS, st.integers(1, 40))
def test_each_pixel_column_keeps_its_first_lowest_highest_and_last(steps, pixels):
    curve = curve_of(steps)
    start, end = 0.0, float(curve.x[-1]) + 1
    rows, whole = points_in_sight(curve, start, end, pixels)
    assert (np.diff(rows) > 0).all()
    if whole:
        assert rows.tolist() == list(range(len(curve)))
        return
    column = np.floor((curve.x - start) * (pixels / (end - start)))
    for one in np.unique(column):
        all_of, kept = np.flatnonzero(column == one), rows[column[rows] == one]
        assert len(kept) <= PER_PIXEL
        for measure in (min, max):
            assert measure(curve.y[all_of]) == measure(curve.y[kept])
        assert (kept[0], kept[-1]) == (all_of[0], all_of[-1])


@given(STEPS, st.floats(-5, 500), st.floats(0.5, 300), st.integers(1, 40))
def test_the_visible_part_has_its_points_and_one_further_point_on_each_side(steps, start, span, pixels):
    curve = curve_of(steps)
    rows, whole = points_in_sight(curve, start, start + span, pixels)
    inside = np.flatnonzero((curve.x >= start) & (curve.x <= start + span))
    if whole:
        assert set(inside) <= set(rows)
    before, after = np.flatnonzero(curve.x < start), np.flatnonzero(curve.x > start + span)
    assert not len(before) or before[-1] in rows
    assert not len(after) or after[0] in rows
    assert len(rows) <= PER_PIXEL * (pixels + 2) + 2


def test_a_million_points_are_reduced_to_the_number_of_pixels():
    curve = SampledCurve(np.arange(1_000_000), np.random.default_rng(1).integers(0, 1 << 40, 1_000_000))
    rows, whole = points_in_sight(curve, 0, 999_999, 1000)
    assert not whole
    assert len(rows) <= PER_PIXEL * 1001
    assert curve.y[rows].max() == curve.y.max()
    near, whole = points_in_sight(curve, 500_000.5, 500_900.5, 1000)
    assert whole
    assert near.tolist() == list(range(500_000, 500_902))


@pytest.mark.parametrize("points", [0, 1])
def test_a_few_points_are_all_kept(points):
    rows, whole = points_in_sight(SampledCurve(np.arange(points), np.zeros(points, np.int64)), 0, 1, 5)
    assert (rows.tolist(), whole) == (list(range(points)), True)
