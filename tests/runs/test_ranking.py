"""A ranking of variants reports if timing without synchronization ranks the slower variant first."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch

from workbench.programs.builtin.sequence_parallel import Deception, HostStream
from workbench.runs.measure.sync_ranking import rank


@pytest.fixture
def deception() -> Iterator[Deception]:
    made = Deception()
    yield made
    made.close()


def test_both_variants_compute_equal_results(deception: Deception) -> None:
    deception.whole()
    whole = deception.output.clone()
    deception.output.zero_()
    deception.chunked()
    deception.synchronize()
    assert torch.allclose(deception.output, whole, atol=1e-3)


def test_a_ranking_reports_that_timing_without_syncs_favours_the_slower_variant(deception: Deception) -> None:
    found = rank(deception.variants, deception.synchronize)
    assert found.names == ("whole", "chunked"), found
    assert found.unsynced == ("chunked", "whole"), found
    assert found.deceives
    assert "only issuing was timed" in found.words


def test_a_changed_ranking_within_the_noise_is_reported_as_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"a": [(1.0, s) for s in (1.0, 1.2, 1.05, 1.1)], "b": [(0.1, s) for s in (1.2, 1.0, 1.12, 1.1)]}
    monkeypatch.setattr("workbench.runs.measure.interleaved_timing.take_interleaved", lambda *_, **__: rows)
    found = rank({"a": lambda: None, "b": lambda: None}, lambda: None)
    assert found.deceives
    assert found.words.startswith("without syncs b seems 10 times as fast as a; its work takes 1.03 times as long (")
    assert found.words.endswith("), which is noise: only issuing was timed")


def test_work_done_at_return_has_the_same_rank_with_and_without_syncs() -> None:
    found = rank({"short": lambda: time.sleep(0.001), "long": lambda: time.sleep(0.004)}, lambda: None, samples=5)
    assert found.names == found.unsynced == ("short", "long")
    assert not found.deceives
    assert found.words == "short is the fastest, with syncs and without"


def test_a_stream_does_its_work_in_order() -> None:
    stream, done = HostStream(), []
    for i in range(100):
        stream.issue(lambda i=i: done.append(i))
    stream.synchronize()
    assert done == list(range(100))
    stream.close()
