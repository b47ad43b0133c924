"""Using a config gives one warning if the config was made with other versions or for another program."""

import dataclasses
import warnings
from collections.abc import Callable

import pytest
import torch

import workbench as wb
from workbench.core.config import Config, installed_versions


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2


def g(x: torch.Tensor) -> torch.Tensor:
    return torch.cos(x) * 2


@pytest.fixture(scope="module")
def config() -> Config:
    return wb.open(f, torch.ones(3)).config


def said(use: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        use()
    return [str(each.message) for each in caught if issubclass(each.category, wb.ConfigWarning)]


def test_an_unchanged_config_gives_no_warning(config: Config) -> None:
    assert config.versions == installed_versions()
    jitted = config.jit(f)
    assert said(lambda: wb.open(f, torch.ones(3), config=config)) == []
    assert said(lambda: jitted(torch.ones(3))) == []
    # Inputs of another size, or inputs that require gradients, do not change the program's fingerprint.
    assert said(lambda: jitted(torch.ones(5, requires_grad=True))) == []
    assert said(lambda: wb.open(f, torch.ones(5, requires_grad=True), config=config)) == []


def test_other_versions_give_one_warning(config: Config) -> None:
    older = dataclasses.replace(config, versions={**config.versions, "torch": "1.0", "lightning-thunder": "0.1"})
    here = installed_versions()
    message = (
        f"the config for 'f' was made with lightning-thunder 0.1, here {here['lightning-thunder']}; "
        f"made with torch 1.0, here {here['torch']}: its choices may have another effect here"
    )
    assert said(lambda: wb.open(f, torch.ones(3), config=older)) == [message]
    jitted = older.jit(f)
    assert said(lambda: jitted(torch.ones(3))) == [message]
    assert said(lambda: jitted(torch.ones(4))) == []


@pytest.mark.parametrize(
    ("version", "here", "same"),
    [
        ("0.1.0", "0.1.dev3000+gf123456", True),
        ("0.1.dev3000+gf123456", "0.1.dev3001+g0123456.d20261128", True),
        ("0.1.0", "0.1.1.dev1+gf123456", False),
        ("0.1.0", "0.0", False),
        ("not a version", "0.1.0", False),
    ],
)
def test_versions_of_the_workbench_between_two_tags_count_as_one(
    config: Config, monkeypatch: pytest.MonkeyPatch, version: str, here: str, same: bool
) -> None:
    made = dataclasses.replace(config, versions={**config.versions, "thunder-workbench": version})
    monkeypatch.setattr(
        "workbench.core.config.installed_versions", lambda: {**installed_versions(), "thunder-workbench": here}
    )
    assert (made.differences(config.fingerprint) == "") is same
    # Versions of Thunder between two releases are the ones that people install.
    of_thunder = dataclasses.replace(config, versions={**config.versions, "lightning-thunder": "0.2.7.dev20260101"})
    assert "made with lightning-thunder 0.2.7.dev20260101" in of_thunder.differences(config.fingerprint)


def test_another_program_gives_a_warning(config: Config) -> None:
    (message,) = said(lambda: wb.open(g, torch.ones(3), config=config))
    assert "the config for 'f' was made for a program with other statements: " in message
    assert config.fingerprint not in message
    assert said(lambda: config.jit(g)(torch.ones(3))) == [message]


def test_a_config_without_fingerprint_and_versions_fits_any_program(config: Config) -> None:
    plain = dataclasses.replace(config, fingerprint="", versions={})
    assert said(lambda: wb.open(g, torch.ones(3), config=plain)) == []


def test_many_differences_are_counted(config: Config) -> None:
    odd = dataclasses.replace(config, versions={f"p{n}": "1" for n in range(1000)})
    assert odd.differences(config.fingerprint).count("made with p") == 5
    assert " and 995 more: " in odd.differences(config.fingerprint)
