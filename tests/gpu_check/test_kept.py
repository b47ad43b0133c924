"""What is said of GPUs is what was measured: the page is that of the kept results."""

from __future__ import annotations

from benchmarks import gpu_page


def test_the_page_and_the_times_elsewhere_are_those_of_the_kept_checks() -> None:
    assert gpu_page.text() == gpu_page.PAGE.read_text(), "python -m benchmarks.gpu_page makes it anew"
    assert gpu_page.elsewhere() == gpu_page.ELSEWHERE.read_text()


def test_a_check_on_a_gpu_takes_the_place_of_the_words_that_none_was_run() -> None:
    on_gpus = [result for result in gpu_page.kept() if not result["rehearsal"]]
    assert ("No check on a GPU is kept yet" in gpu_page.text()) is (not on_gpus)
    for result in on_gpus:
        assert f"## {result['machine']} (GPU), {result['date']}" in gpu_page.text()
