"""The lines that describe a fit."""

from __future__ import annotations

import dataclasses

import workbench as wb


def test_no_source_line_and_no_value_is_repeated():
    found = wb.open("llama", device="planned", layers=4, batch=4, executor="torch").fit("80%")
    place, _, text = found.binding.partition("  ")
    assert text
    told = "\n".join(found.lines)
    assert text not in told
    assert told.count(place) == 1
    # A value that is alive twice is named once.
    twice = dataclasses.replace(found, held=("48.0 KiB matmul llama.py:45", "48.0 KiB matmul llama.py:45", "8 B x"))
    assert twice.lines[-1] == "alive at the peak: 2 × 48.0 KiB matmul llama.py:45; 8 B x"
