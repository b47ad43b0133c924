"""If an argument has the wrong type or an illegal value, the error says what is legal, and nothing is left behind."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench as wb
from workbench.errors import ChoiceError, ConfigError, ConfigWarning, ProgramError, RunError, WorkbenchError
from workbench.runs.process.request import RunOptions

NET = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
X = torch.randn(2, 4)


@pytest.fixture(scope="module")
def bench() -> wb.Workbench:
    return wb.open(NET, X)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda bench: wb.open(NET, X, config={"a": "save"}), ConfigError, "config= is a wb.Config or the path"),
        (lambda bench: wb.load({"a": "save"}), ConfigError, "a config is read from a file: give its path; given {'a'"),
        (lambda bench: bench.choose("saved.ahead"), ChoiceError, "choices are a dict of site ids to options"),
        (lambda bench: bench.choose(["saved.ahead"]), ChoiceError, "given ['saved.ahead']"),
        (lambda bench: bench.run(options={"samples": 2}), RunError, "options are RunOptions, such as"),
        (lambda bench: bench.run(against={"x": "stock"}), RunError, "x: a variant is a dict of choices, a Config, or"),
        (lambda bench: wb.open(torch.nn.Linear, 8, 8), ProgramError, "Linear is a class of modules: create a module"),
        (lambda bench: bench.config.jit(torch.nn.Linear), ProgramError, "Linear is a class of modules"),
        (lambda bench: bench.config.jit(3), ProgramError, "int is not a program; legal: a function or module"),
        (lambda bench: bench.config.jit(NET, transfroms=[]), ConfigError, "did you mean transforms?"),
        (
            lambda bench: bench.config.jit(torch.nn.DataParallel(NET)),
            ProgramError,
            "wrap the compiled module, as in DataParallel(config.jit(model))",
        ),
    ],
)
def test_an_argument_of_the_wrong_kind_is_refused(
    bench: wb.Workbench, call: Callable[[wb.Workbench], Any], kind: type[WorkbenchError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        call(bench)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": "3"}, "samples: Input should be a valid integer"),
        ({"samples": -1}, "samples: Input should be greater than or equal to 0"),
        ({"threads": 0}, "threads: Input should be greater than or equal to 1"),
        ({"seed": 2**70}, "seed"),
        ({"timeout_s": -1}, "timeout_s: Input should be greater than or equal to 0"),
        ({"memory_interval_s": 0}, "memory_interval_s: Input should be greater than 0"),
        ({"clocks": torch.ones(1)}, "clocks: Input should be a valid boolean"),
    ],
)
def test_illegal_run_options_are_refused_before_a_folder_is_made(
    bench: wb.Workbench, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RunError) as caught:
        bench.run(folder=tmp_path / "run", options=RunOptions(**options))
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


def edited(bench: wb.Workbench, folder: Path, old: str, new: str) -> tuple[wb.Config, int]:
    """Export choices, change the file by hand, and return the config with the number of the changed line."""
    site = next(site for site in bench.sites("saved") if site.values and "recompute" in site.options)
    config = bench.config.with_choices({site.id: "recompute"})
    path = folder / "choices.py"
    text = config.text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    line = next(at for at, line in enumerate(path.read_text().splitlines(), 1) if new in line)
    return wb.load(path), line


def test_an_unknown_option_in_an_edited_file_is_reported_with_its_line(bench: wb.Workbench, tmp_path: Path) -> None:
    config, line = edited(bench, tmp_path, '"recompute"', '"recompte"')
    with pytest.raises(ChoiceError, match="'recompte' is not an option here; legal: save, recompute") as caught:
        config.jit(NET)(X)
    assert str(caught.value).startswith(f"{tmp_path / 'choices.py'}:{line}: ")


def test_an_unknown_lever_in_an_edited_file_is_reported_with_its_line(bench: wb.Workbench, tmp_path: Path) -> None:
    config, line = edited(bench, tmp_path, '"saved:', '"savd:')
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        config.jit(NET)(X)
    (found,) = [warning for warning in warned if issubclass(warning.category, ConfigWarning)]
    assert f"choices.py:{line}: savd:" in str(found.message)
    assert "there is no lever 'savd'; did you mean saved?" in str(found.message)
    assert found.filename == __file__


def test_a_config_of_another_program_says_so_once(bench: wb.Workbench) -> None:
    config = bench.config.with_choices({"saved:elsewhere/tanh": "recompute", "saved:elsewhere/exp": "recompute"})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        config.jit(NET)(X)
    (found,) = [str(warning.message) for warning in warned if issubclass(warning.category, ConfigWarning)]
    assert found.startswith(
        "none of the 2 choices fits this program, so it is compiled without choices: the config was"
    )


def test_a_config_of_another_program_gives_one_short_warning_when_it_is_opened(bench: wb.Workbench) -> None:
    choices = {f"saved:elsewhere.{i}/tanh": "recompute" for i in range(50)}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        wb.open(NET, X, device="cpu", executor="torch", config=bench.config.with_choices(choices))
    (found,) = [str(warning.message) for warning in warned if issubclass(warning.category, ConfigWarning)]
    assert found.startswith("50 of 50 choices do not fit ")
    assert found.endswith("saved:elsewhere.10/tanh and 47 more: no such site in this program")
    assert len(found) < 250
