"""The page on GPU checks and the durations of parts are generated from the stored results of checks."""

from __future__ import annotations

from benchmarks.gpu import page


def test_the_page_and_the_durations_of_parts_come_from_the_stored_checks() -> None:
    assert page.text() == page.PAGE.read_text(), "the page is outdated: run python -m benchmarks.gpu.page"
    assert page.elsewhere() == page.ELSEWHERE.read_text()


def test_a_check_on_a_gpu_replaces_the_note_that_no_check_was_run() -> None:
    on_gpus = [result for result in page.kept() if not result["rehearsal"]]
    assert ("No check on a GPU is kept yet" in page.text()) is (not on_gpus)
    for result in on_gpus:
        assert f"## {result['machine']} (GPU), {result['date']}" in page.text()
