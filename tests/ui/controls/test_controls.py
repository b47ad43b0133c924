"""If a fusion begins right after another has ended, the readout names the new fusion at the next memory sample."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.runs.log import events
from workbench.ui.controls import controls


class Told:
    """A stand-in for a run that compiles. The test passes events to its observers."""

    state, phase, stages, error = "compiling", "compile", (), ""

    def observe(self, callback: Callable[[events.Event], None]) -> None:
        self.deliver = callback


def test_a_fusion_that_begins_right_after_another_is_named_with_the_next_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = SimpleNamespace(monotonic=lambda: clock[0])
    clock = [100.0]
    monkeypatch.setattr(controls, "time", now)
    shown: list[dict[str, Any]] = []
    screen = SimpleNamespace(update=lambda run: shown.append(run))
    line = SimpleNamespace(samples=b"", send=lambda *message: None)
    run = Told()
    controls.Readout(screen, line, run, lambda run: None)  # type: ignore[arg-type]
    clock[0] += 1
    run.deliver(events.FusionEnd(t_s=1.0, name="first", index=0, count=2, seconds=1.0))
    clock[0] += 0.001
    run.deliver(events.FusionBegin(t_s=1.0, name="second", index=1, count=2))
    assert "second" not in shown[-1]["text"]
    clock[0] += controls.STATE_INTERVAL_S
    run.deliver(events.MemorySample(t_s=1.2, rss_bytes=1))
    assert "fusion 2 of 2: second" in shown[-1]["text"]
    clock[0] += 1
    run.deliver(events.Progress(t_s=1.25, done=120, count=700, left_s=90.2))
    assert shown[-1]["text"] == "Compiling, step 120 of 700, about 90 s left"
    told = len(shown)
    clock[0] += 1
    run.deliver(events.MemorySample(t_s=1.3, rss_bytes=1))
    assert len(shown) == told
