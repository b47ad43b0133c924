"""Measure the planning time of programs of real size: Llama with the shapes of a 7B model, for a GPU with nvFuser.

Times are CPU seconds. Each measurement runs in a new process. For comparison, unmodified ``thunder.jit`` traces the
same program on the same machine. Times are compared as ratios, which do not depend on the machine's load.

``python -m pytest benchmarks/opening/test_real_size.py -s``
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
AT_LEAST = {"open": 20.0, "choice": 40.0, "from disk": 60.0}
"""Required speeds with 32 layers, as multiples of the speed of ``thunder.jit``.

They are the speeds of opening, of a choice, and of reading from disk.
"""


def measured(layers: int, what: str, kept: Path | None = None) -> dict[str, Any]:
    """Measure a program in a new process. If `kept` is given, captured programs are cached in this folder."""
    command = [sys.executable, "-m", "benchmarks.opening.real_size_point", str(layers), what]
    environment = {**os.environ, "THUNDER_WORKBENCH_CACHE": str(kept or "off")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("layers", [2, 8, 32])
def test_a_7b_model_opens_in_two_gigabytes_and_much_faster_than_with_thunder_jit(
    benchmark: Any, layers: int, tmp_path: Path
) -> None:
    ours = benchmark.pedantic(measured, args=(layers, "workbench", tmp_path), rounds=1)
    again = measured(layers, "workbench", tmp_path)
    assert (ours["on_disk"], again["on_disk"]) == ("written to disk", "from disk")
    stock = measured(layers, "stock")
    took = {"open": ours["open_s"], "choice": ours["choice_s"], "from disk": again["open_s"]}
    ratios = {what: stock["open_s"] / seconds for what, seconds in took.items()}
    benchmark.extra_info.update(ours=ours, again=again, stock=stock, ratios=ratios)
    print(
        f"\n{layers} layers, {ours['statements']} statements: thunder.jit {stock['open_s']:.1f} s; opened "
        f"{ours['open_s']:.1f} s ({ratios['open']:.1f} times as fast), from disk {again['open_s']:.2f} s "
        f"({ratios['from disk']:.0f} times), one choice {ours['choice_s']:.2f} s ({ratios['choice']:.0f} times), "
        f"the first after opening from disk {again['choices_s'][0]:.2f} s, peak {ours['peak_rss_bytes'] / 1e9:.2f} GB\n"
        f"{json.dumps(ours['opening'])} {json.dumps(ours['stages'])}"
    )
    if layers == 32:
        assert all(ratios[what] > least for what, least in AT_LEAST.items()), ratios
    assert ours["peak_rss_bytes"] <= 2e9


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("what", "layers"), [("huggingface", 32), ("ranks", 32), ("workbench", 64), ("workbench", 128)]
)
def test_other_large_programs_open_in_two_gigabytes_and_faster_from_disk(
    benchmark: Any, what: str, layers: int, tmp_path: Path
) -> None:
    ours = benchmark.pedantic(measured, args=(layers, what, tmp_path), rounds=1)
    again = measured(layers, what, tmp_path)
    assert (ours["on_disk"], again["on_disk"]) == ("written to disk", "from disk")
    benchmark.extra_info.update(ours=ours, again=again)
    print(
        f"\n{what}, {layers} layers, {ours['statements']} statements: opened {ours['open_s']:.1f} s, from disk "
        f"{again['open_s']:.2f} s, one choice {ours['choice_s']:.2f} s, the first after opening from disk "
        f"{again['choices_s'][0]:.2f} s, peak {ours['peak_rss_bytes'] / 1e9:.2f} GB\n{json.dumps(ours['opening'])}"
    )
    assert again["open_s"] < ours["open_s"]
    assert ours["peak_rss_bytes"] <= 2e9
