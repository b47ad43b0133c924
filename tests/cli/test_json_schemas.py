"""What the commands print for programs is what `docs/schemas` says, and what a search makes of it."""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest

from workbench import cli

ROOT = Path(__file__).parents[2]
PROGRAM = ("mlp", "--set", "layers=1", "--executor", "torch")

type Printed = Callable[..., Any]


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Printed:
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path))

    def command(*arguments: str) -> Any:
        with pytest.raises(SystemExit):
            cli.main([*arguments, "--json"])
        return json.loads(capfd.readouterr().out)

    return command


def schema(command: str) -> Any:
    return json.loads((ROOT / "docs" / "schemas" / f"{command}.schema.json").read_text())


def held(command: str, document: Any, way: int = 0) -> None:
    """Hold a document to one of the ways in which a command answers, by its place in the schema."""
    found = schema(command)
    jsonschema.Draft202012Validator.check_schema(found)
    jsonschema.validate(document, found)
    jsonschema.validate(document, found["anyOf"][way])


@pytest.mark.slow
def test_plan_fit_and_check(printed: Printed, tmp_path: Path) -> None:
    config = str(tmp_path / "choices.py")
    plan = printed("plan", *PROGRAM, "--choose", "order.statements=least peak", "--export", config)
    held("plan", plan)
    # Every key that is printed is described.
    assert plan.keys() <= schema("plan")["anyOf"][0]["properties"].keys()
    fit = printed("fit", *PROGRAM, "--peak", "360KiB")
    held("fit", fit)
    assert fit.keys() <= schema("fit")["anyOf"][0]["properties"].keys()
    assert fit["why"]
    held("check", printed("check", config, "--write"), 1)
    held("check", printed("check", config))


@pytest.mark.slow
def test_run(printed: Printed) -> None:
    run = printed("run", *PROGRAM, "--against", "stock", "--samples", "3")
    held("run", run)
    assert run.keys() <= schema("run")["anyOf"][0]["properties"].keys()


def test_what_is_refused_says_so_in_each_schema(printed: Printed) -> None:
    for command in ("plan", "run", "fit"):
        held(command, printed(command, "nothing"), -1)
    held("check", printed("check", "nothing.py"), -1)


def test_a_key_that_is_missing_is_noticed() -> None:
    with pytest.raises(jsonschema.ValidationError):
        held("check", {"ok": True, "baseline": "x"})


@pytest.fixture(scope="module")
def loop() -> ModuleType:
    path = ROOT / "examples" / "search_loop.py"
    spec = importlib.util.spec_from_file_location("search_loop", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_loop_proposes_nothing_twice_and_ends_once_all_was_tried(loop: ModuleType) -> None:
    sites = [
        {"id": "a", "options": ["save", "recompute", "offload"], "choice": "save", "illegal": {"offload": "no"}},
        {"id": "b", "options": ["save", "recompute"], "choice": "save", "illegal": {}},
    ]
    seen = set[str]()
    while (wanted := loop.proposal(sites, {}, seen, random.Random(0))) is not None:
        assert json.dumps(wanted, sort_keys=True) not in seen
        seen.add(json.dumps(wanted, sort_keys=True))
    assert len(seen) == 3
    assert loop.proposal([], {}, set(), random.Random(0)) is None


@pytest.mark.parametrize(
    ("bitwise", "other", "peak_bytes", "keep"),
    [
        (True, "slower", 12, True),
        (True, "noise", 9, True),
        (True, "noise", 10, False),
        (True, "faster", 1, False),
        (False, "slower", 1, False),
    ],
)
def test_the_loop_keeps_what_is_faster_or_lower_and_bitwise_equal(
    loop: ModuleType, bitwise: bool, other: str, peak_bytes: int, keep: bool
) -> None:
    run = {
        "ok": True,
        "error": None,
        "accuracy": {"bitwise": bitwise},
        "against": {"stock": {"verdict": other}},
        "memory": {"measured_peak_bytes": peak_bytes},
    }
    assert loop.verdict(run, 10)[0] is keep
