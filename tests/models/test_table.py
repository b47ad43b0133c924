"""The page of the models compares the rows of two versions of PyTorch."""

from __future__ import annotations

from typing import Any

from tests.models import table

RIGHT = {
    "kind": "text",
    "class": "transformers Some",
    "reason": "",
    "torch": "2.10.0",
    "parts": 1,
    "opaque": [],
    "capture": "dynamo",
    "statements": 7,
    "sites": 3,
    "open_s": 1.0,
    "choices": 2,
    "predicted_bytes": 1000,
    "measured_bytes": 1000,
    "at_least": False,
    "replayed": True,
    "accurate": True,
    "trained": "",
    "worst": "",
}


def rows(version: str, **changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a right row of each named model, with changes."""
    return {
        name: {**RIGHT, "model": name, "class": f"transformers {name}", "torch": version, **changed}
        for name, changed in changes.items()
    }


def last_cells(text: str) -> dict[str, str]:
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| transformers ")]
    return {line[0].removeprefix("transformers "): line[-1] for line in cells if len(line) > 2}


def test_a_second_pytorch_has_a_column_and_its_differences_have_a_list() -> None:
    first = rows("2.10.0", llama={}, qwen2={}, gemma={}, opt={}, bloom={}, phi={"accurate": False, "worst": "bad"})
    first |= rows("2.10.0", falcon={"reason": "/one/site-packages/some.py:3 fails"})
    second = rows(
        "2.12.1",
        llama={},
        qwen2={"statements": 9},
        gemma={"accurate": False, "worst": "output is off"},
        opt={"reason": "not installed: No module"},
        phi={"accurate": False, "worst": "bad"},
        falcon={"reason": "/two/site-packages/some.py:3 fails"},
    )
    text = table.page(list(first.values()), second)
    assert last_cells(text) == {
        "llama": "yes",
        "qwen2": "yes, other plan",
        "gemma": "no",
        "opt": "not tried",
        "bloom": "not tried",
        "phi": "no",
        "falcon": "no",
    }
    section = text.partition("## What differs on PyTorch 2.12.1")[2]
    assert "5 of the 7 models were tried on PyTorch 2.12.1. 2 are right. The plans of 1 of these" in section
    assert "2 fail for the same reason" in section
    assert "| transformers qwen2 | statements: 9 instead of 7 |" in section
    assert "| transformers gemma | not right: differs in the first step: output is off |" in section
    assert "| transformers llama |" not in section
    assert "| transformers phi |" not in section
    assert "| transformers falcon |" not in section


def test_a_page_of_one_pytorch_has_no_further_column() -> None:
    first = list(rows("2.10.0", llama={}).values())
    assert table.page(first) == table.page(first, {})
    assert "right on" not in table.page(first)


def test_a_model_whose_process_ended_without_a_result_is_not_right() -> None:
    first = rows("2.10.0", llama={})
    second = {"llama": {**table._empty_row("llama"), "torch": "2.12.1", "reason": "no result after 120 CPU seconds"}}
    text = table.page(list(first.values()), second)
    assert last_cells(text) == {"llama": "no"}
    assert "| llama | not right: no result after 120 CPU seconds |" in text


def test_the_coverage_of_models_in_parts_is_also_shown_separately() -> None:
    kept = rows(
        "2.10.0", llama={}, gemma={"parts": 2, "coverage": 0.95}, opt={"parts": 3, "coverage": 0.61}, phi={"parts": 2}
    )
    lines = table.page(list(kept.values())).splitlines()
    told = next(line for line in lines if line.startswith("In the median"))
    assert "In the median of 3 models, planned parts take 95 % of a step. 1 of these" in told
    assert "In the median of the 2 others, planned parts take 78 %. The coverage was not measured for 1 of the" in told
    assert "| at least 99 % | 1 | 0 |" in lines
    assert "| 50 to 90 % | 1 | 1 |" in lines
