"""Every policy and 200 random legal placements by hand, trained on 2 and 4 gloo ranks.

It is the first test of `tests/waits/test_gloo.py`, in full.

`python -m pytest benchmarks/bench_gloo.py -s` prints what came of it; GLOO_PLACEMENTS takes another number.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.waits import orders_on_ranks
from tests.waits.torchrun import torchrun

PLACEMENTS = int(os.environ.get("GLOO_PLACEMENTS", "200"))
SEED = int(os.environ.get("GLOO_SEED", "1"))


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("count", [2, 4])
def test_placements(count: int, tmp_path: Path) -> None:
    told = torchrun(tmp_path, count, Path(orders_on_ranks.__file__), PLACEMENTS, SEED, timeout_s=7000)
    orders = [order for rank in told for order in rank["orders"] if order["order"] != orders_on_ranks.ALONE]
    by_hand = sum(order["order"].startswith("by hand") for order in told[0]["orders"])
    worst = max(orders, key=lambda order: order["error"] / order["tolerance"])
    print(
        f"\n{count} ranks: {len(told[0]['orders']) - 2} orders in {told[0]['seconds']:.0f} s, {by_hand} by hand; "
        f"{sum(not order['ok'] for order in orders)} wrong; nearest to its tolerance: {worst['worst']}, "
        f"{worst['error']:.2g} of {worst['tolerance']:.2g}"
    )
    assert all(order["ok"] for order in orders)
