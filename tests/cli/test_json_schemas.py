"""The JSON output of the commands follows `docs/schemas`, and a program that searches for choices can use it."""

from __future__ import annotations

import functools
import importlib.util
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
import typer

from tests.cli.schemas import SCHEMAS, held, undescribed
from tests.gpu_check import trials
from tests.needs import needs_nvfuser
from tests.runs.sweep.test_compare import recorded
from workbench import cli
from workbench.cli import entry
from workbench.gpu_check import suite

ROOT = Path(__file__).parents[2]
PROGRAM = ("mlp", "--set", "layers=1", "--executor", "torch")

type Printed = Callable[..., Any]


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Printed:
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path))

    def command(*arguments: str) -> Any:
        with pytest.raises(SystemExit) as stop:
            cli.main([*arguments, "--json"])
        printed = json.loads(capfd.readouterr().out)
        assert bool(stop.value.code) is (printed.get("ok") is False)
        return printed

    return command


@pytest.mark.slow
def test_plan_fit_and_check_follow_their_schemas(printed: Printed, tmp_path: Path) -> None:
    config = str(tmp_path / "choices.py")
    plan = printed("plan", *PROGRAM, "--choose", "order.statements=least peak", "--export", config)
    held("plan", plan)
    fit = printed("fit", *PROGRAM, "--peak", "360KiB")
    held("fit", fit)
    assert fit["why"]
    curve = printed("fit", *PROGRAM, "--curve", "2", "--each", "--using", "recompute,order")
    held("fit", curve, 1)
    assert [line["using"] for line in curve["lines"]] == [["recompute"], ["recompute", "order"]]
    assert curve["points"] == curve["lines"][-1]["points"] != []
    held("check", printed("check", config, "--write"), 1)
    held("check", printed("check", config))
    held("report", printed("report", *PROGRAM[:3], "--config", config, "--out", str(tmp_path / "page.html")))


@pytest.mark.slow
def test_run_prints_figures_that_follow_its_schema(printed: Printed) -> None:
    run = printed("run", *PROGRAM, "--against", "stock", "--samples", "3")
    held("run", run)
    assert (run["ok"], run["error"]) == (True, None)
    assert run["compile_s"] > 0
    assert run["accuracy"]["ok"]
    assert run["accuracy"]["bitwise"] is True
    assert run["accuracy"]["words"] == "every bit equals unmodified Thunder's result"
    assert Path(run["run_dir"]).is_dir()


def test_doctor_cache_and_programs_follow_their_schemas(printed: Printed) -> None:
    held("doctor", printed("doctor"))
    held("cache", printed("cache"))
    programs = printed("programs")
    held("programs", programs)
    assert {setting["type"] for one in programs["programs"] for setting in one["settings"]} >= {"int", "bool"}


def test_single_runs_are_compared(printed: Printed, tmp_path: Path) -> None:
    runs = [str(recorded(tmp_path / name, [1.0, 1.1], peak_bytes=1024).run_dir) for name in ("first", "second")]
    held("compare", printed("compare", *runs), 1)
    held("compare", printed("compare", *runs, "--base", "second"))


def test_a_check_of_steps_follows_its_schema(printed: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / trials.PLAN).write_text(json.dumps([("a", "0"), ("b", "raise"), ("c", "wrong")]))
    monkeypatch.setattr(suite, "run_check", functools.partial(suite.run_check, parts=[trials.part()]))
    document = printed("gpu-check", "--rehearse", "--out", str(tmp_path))
    held("gpu-check", document)
    assert len(document["parts"][trials.NAME]["steps"]) == 3


@needs_nvfuser
@pytest.mark.slow
def test_cuts_and_a_fit_with_cuts_follow_their_schemas(printed: Printed) -> None:
    fused = ("mlp", "--set", "layers=1", "--device", "planned", "--executor", "nvfuser")
    table = printed("cuts", *fused)
    held("cuts", table)
    stock = table["stock"]
    assert table["cuts"]
    found = printed("fit", *fused, "--compilations", str(stock["compilations"]))
    held("fit", found)
    assert found["compilations"] <= stock["compilations"]
    assert "least number is" in printed("fit", *fused, "--compilations", "1")["error"]
    assert "whole number above zero" in printed("fit", *fused, "--compilations", "0")["error"]


def test_every_command_that_takes_json_has_a_schema() -> None:
    group = typer.main.get_command(entry.app)
    assert isinstance(group, typer.core.TyperGroup)
    taking = {name for name, one in group.commands.items() if any("--json" in option.opts for option in one.params)}
    assert taking == {path.name.removesuffix(".schema.json") for path in SCHEMAS.iterdir()}
    page = (SCHEMAS.parent / "reference" / "json.md").read_text()
    assert [name for name in taking if f"(../schemas/{name}.schema.json)" not in page] == []


def test_refusals_follow_each_schema(printed: Printed, tmp_path: Path) -> None:
    for command in ("plan", "run", "fit", "cuts", "report"):
        held(command, printed(command, "nothing"), -1)
    held("check", printed("check", "nothing.py"), -1)
    held("compare", printed("compare", "nothing.py"), -1)
    held("sweep", printed("sweep", "nothing", "--out", str(tmp_path)), -1)
    held("gpu-check", printed("gpu-check", "--only", "nothing"), -1)


def test_a_missing_key_is_noticed() -> None:
    with pytest.raises(jsonschema.ValidationError):
        held("check", {"ok": True, "baseline": "x"})


def test_an_undescribed_key_is_noticed() -> None:
    known = {"properties": {"a": {"items": {"properties": {"b": {}}}}}, "additionalProperties": {"properties": {}}}
    assert undescribed({"a": [{"b": {"any": 1}}, {"c": 1}], "d": {"e": 1}}, known) == [".a[].c", ".d.e"]


@pytest.fixture(scope="module")
def loop() -> ModuleType:
    path = ROOT / "examples" / "search_loop.py"
    spec = importlib.util.spec_from_file_location("search_loop", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_loop_proposes_nothing_twice_and_ends_after_all_proposals(loop: ModuleType) -> None:
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
        (True, "slower", 12000, True),
        (True, "noise", 9000, True),
        (True, "noise", 9999, False),
        (True, "noise", 10000, False),
        (True, "faster", 1, False),
        (False, "slower", 1, False),
    ],
)
def test_the_loop_keeps_bitwise_equal_proposals_that_are_faster_or_have_a_lower_peak(
    loop: ModuleType, bitwise: bool, other: str, peak_bytes: int, keep: bool
) -> None:
    run = {
        "ok": True,
        "error": None,
        "accuracy": {"bitwise": bitwise},
        "against": {"stock": {"verdict": other}},
        "memory": {"measured_peak_bytes": peak_bytes},
    }
    assert loop.verdict(run, 10000)[0] is keep
