"""The command `check` compares figures under a config with a baseline file, and prints a line for each figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from workbench import cli
from workbench.bench.report import regression_check
from workbench.bench.report.regression_check import FIGURES, CheckedFigure, Growth
from workbench.errors import ConfigError

Call = Callable[..., tuple[int, str, str]]

NET = """
import torch

def factory(width: int = 8):
    layer = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, width))
    return layer, (torch.ones(4, width),)
"""
CONFIG = """import workbench as wb

config = wb.Config(program="{program}", executor="torch", device="cpu", choices={choices})
"""
PEAK, SAVED, FUSIONS, INVERSIONS = FIGURES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that has a program. The tests add a config and a baseline."""
    folder = tmp_path_factory.mktemp("check")
    (folder / "net.py").write_text(NET)
    return folder


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        out, err = capfd.readouterr()
        return int(stop.value.code or 0), out, err

    yield run
    (folder / "net.py").write_text(NET)


@pytest.mark.slow
def test_a_program_that_grew_fails_with_a_line_for_each_figure(call: Call, folder: Path) -> None:
    assert call("plan", "net.py:factory", "--export", "choices.py")[0] == 0
    status, _, err = call("check", "choices.py")
    assert status == 2
    assert err == "thunder-workbench: there is no baseline choices.baseline.json; --write writes one\n"

    status, out, _ = call("check", "choices.py", "--write")
    assert status == 0
    assert out == (
        "kept  peak memory                1.50 KiB\n"
        "kept  saved for the backward     128 B\n"
        "kept  unique fusions             0\n"
        "kept  inversions of collectives  none\n"
        "baseline: choices.baseline.json\n"
    )
    status, out, _ = call("check", "choices.py")
    assert status == 0
    assert out == (
        "ok    peak memory                1.50 KiB, as in the baseline\n"
        "ok    saved for the backward     128 B, as in the baseline\n"
        "ok    unique fusions             0, as in the baseline\n"
        "ok    inversions of collectives  none, as in the baseline\n"
    )

    (folder / "net.py").write_text(NET.replace("width: int = 8", "width: int = 9"))
    status, out, _ = call("check", "choices.py", "--peak-growth", "25%")
    assert status == 1
    assert out == (
        "ok    peak memory                1.83 KiB, was 1.50 KiB: +336 B (+21.88%)\n"
        "GREW  saved for the backward     144 B, was 128 B: +16 B (+12.50%); allowed: 0%\n"
        "ok    unique fusions             0, as in the baseline\n"
        "ok    inversions of collectives  none, as in the baseline\n"
        "If this change is intended: thunder-workbench check choices.py --write\n"
    )
    status, out, _ = call("check", "choices.py", "--json", "--peak-growth", "1KiB", "--saved-growth", "16")
    told = json.loads(out)
    assert (status, told["ok"]) == (0, True)
    assert told["figures"][0] == {
        "name": "peak_bytes",
        "baseline": 1536,
        "now": 1872,
        "allowed_growth": "1KiB",
        "limit": 2560,
        "ok": True,
    }


@pytest.mark.slow
def test_choices_that_no_longer_fit_fail_the_check_and_make_no_baseline(call: Call, folder: Path) -> None:
    text = CONFIG.format(program="net.py:factory", choices={"saved:gone/sin": "recompute"})
    (folder / "stale.py").write_text(text)
    status, _, err = call("check", "stale.py", "--write")
    assert status == 2
    assert "saved:gone/sin no longer fits" in err
    (folder / "stale.baseline.json").write_text((folder / "choices.baseline.json").read_text())
    status, out, _ = call("check", "stale.py")
    assert status == 1
    assert "GONE  saved:gone/sin no longer fits" in out


@pytest.mark.slow
def test_a_file_that_is_not_a_baseline_is_neither_read_nor_replaced(call: Call, folder: Path) -> None:
    (folder / "other.py").write_text(CONFIG.format(program="mlp", choices={}))
    (folder / "notes.json").write_text('{"format": "notes"}')
    status, _, err = call("check", "other.py", "--baseline", "notes.json")
    assert (status, "notes.json is not a baseline of thunder-workbench" in err) == (2, True)
    status, _, err = call("check", "other.py", "--baseline", "notes.json", "--write")
    assert (status, "the file exists and is not a baseline" in err) == (2, True)
    assert (folder / "notes.json").read_text() == '{"format": "notes"}'


@pytest.mark.parametrize("lacks", ["peak_bytes", "saved_bytes", "fusions_unique"])
def test_a_file_that_lacks_a_figure_is_not_a_baseline(tmp_path: Path, lacks: str) -> None:
    figures = {"peak_bytes": 1, "saved_bytes": 1, "fusions_unique": 0, "inversions": None}
    path = tmp_path / "baseline.json"
    document = {"format": regression_check.FORMAT, "format_version": regression_check.FORMAT_VERSION}
    path.write_text(json.dumps({**document, "figures": figures}))
    assert regression_check.read_baseline(path)["figures"] == figures
    for partial in ({**figures, lacks: None}, {k: v for k, v in figures.items() if k != lacks}, {}):
        path.write_text(json.dumps({**document, "figures": partial}))
        with pytest.raises(ConfigError, match="is not a baseline"):
            regression_check.read_baseline(path)


@pytest.mark.parametrize(
    ("held", "line"),
    [
        (
            CheckedFigure(PEAK, 500, 505, Growth("1%", share=Fraction(1, 100))),
            "ok    peak memory                505 B, was 500 B: +5 B (+1.00%)",
        ),
        (
            CheckedFigure(PEAK, 2**20, 2**19, Growth("0%")),
            "ok    peak memory                512 KiB, was 1.00 MiB: −512 KiB (−50.00%)",
        ),
        (
            CheckedFigure(FUSIONS, 3, 65, Growth("0")),
            "GREW  unique fusions             65, was 3: +62 (+2066.67%); allowed: 0",
        ),
        (
            CheckedFigure(INVERSIONS, 0, 4, Growth("2", amount=2)),
            "GREW  inversions of collectives  4, was 0: +4; allowed: 2",
        ),
        (CheckedFigure(INVERSIONS, 4, None, Growth("0")), "ok    inversions of collectives  none, was 4"),
        (CheckedFigure(INVERSIONS, None, 4, Growth("0")), "ok    inversions of collectives  4, not in the baseline"),
    ],
)
def test_a_figure_is_shown_in_one_line(held: CheckedFigure, line: str) -> None:
    assert held.line() == line
    assert held.ok is line.startswith("ok")


def test_growth_is_a_share_or_an_amount() -> None:
    assert Growth.parse("1%", PEAK).limit(1000) == 1010
    # As floats, the shares of these are 28.999… and 56.999….
    assert Growth.parse("29%", PEAK).limit(100) == 129
    assert Growth.parse("57%", PEAK).limit(100) == 157
    assert Growth.parse("0.5%", PEAK).limit(999) == 1003
    assert Growth.parse("1.5 MiB", SAVED).limit(0) == 3 << 19
    assert Growth.parse("2", FUSIONS).limit(3) == 5
    with pytest.raises(ConfigError, match="unique fusions cannot be allowed to grow by '2MiB'; legal: 1% or a number"):
        Growth.parse("2MiB", FUSIONS)
    with pytest.raises(ConfigError, match="legal: 1%, 16MiB or a number of bytes"):
        Growth.parse("a little", PEAK)
