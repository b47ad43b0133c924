"""Train on 2 and 4 gloo ranks under all policies, with buckets, and under 200 random legal placements of collectives.

The first test of `tests/levers/waits/test_gloo.py` trains under a sample of these orders, and in fewer parallel modes.

`python -m pytest benchmarks/collectives/bench_gloo_training.py -s` prints the results. GLOO_POLICIES and
GLOO_PLACEMENTS set the numbers of policies and placements.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from tests.levers.waits import forked, orders_on_ranks

POLICIES = int(os.environ.get("GLOO_POLICIES", orders_on_ranks.POLICIES))
PLACEMENTS = int(os.environ.get("GLOO_PLACEMENTS", "200"))
SEED = int(os.environ.get("GLOO_SEED", "1"))


@pytest.mark.timeout(7200)
def test_training_is_right_under_random_placements(tmp_path: Path) -> None:
    drawn = (orders_on_ranks.KINDS, orders_on_ranks.KINDS, POLICIES, PLACEMENTS, SEED)
    told = forked.run(tmp_path, 4, Path(orders_on_ranks.__file__), *drawn, timeout_s=7000)
    orders = [order for rank in told for order in rank["orders"] if order["order"] != orders_on_ranks.ALONE]
    print(f"\n{told[0]['seconds']:.0f} s")
    for count, kind in itertools.product((2, 4), orders_on_ranks.KINDS.split(",")):
        own = [order for order in orders if (order["ranks"], order["kind"]) == (count, kind)]
        worst = max(own, key=lambda order: order["error"] / order["tolerance"])
        by_hand = sum(order["order"].startswith("by hand") for order in own)
        print(
            f"{count} ranks, {kind}: {len(own) // count} orders, {by_hand // count} by hand; "
            f"{sum(not order['ok'] for order in own)} wrong; nearest to its tolerance: {worst['worst']}, "
            f"{worst['error']:.2g} of {worst['tolerance']:.2g}"
        )
        assert by_hand == count * PLACEMENTS
    assert all(order["ok"] for order in orders)
