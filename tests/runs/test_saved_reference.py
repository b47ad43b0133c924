"""A step of unmodified Thunder, the reference of a program's runs, is computed once and saved for later runs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from workbench.runs.measure import accuracy
from workbench.runs.measure.accuracy import Accuracy, Stepper
from workbench.runs.measure.saved_reference import SavedReferences
from workbench.util.disk_cache import REFERENCES

SPEC = {"kind": "pickle", "name": "f", "device": "cpu", "seed": 0}


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(REFERENCES.variable, str(tmp_path / "references"))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "program.pkl").write_bytes(b"a program")
    return folder


def build(weight: float = 1.0) -> Callable[[], Any]:
    def parts() -> Any:
        x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
        return (lambda x: torch.tanh(x * weight).sum(0)), (x,), {}

    return parts


def check(run_dir: Path, made: Callable[[], Any], off: float = 0.0, **given: Any) -> Accuracy:
    original, args, kwargs = made()
    recorded = accuracy.first_step(Stepper(lambda x: original(x) + off, args, kwargs), 0)
    return accuracy.check_first_step(recorded, made, references=SavedReferences(run_dir, SPEC), **given)


def test_the_second_run_is_compared_with_the_reference_of_the_first_run(run_dir: Path) -> None:
    first, second = check(run_dir, build()), check(run_dir, build())
    assert (first.is_saved, second.is_saved) == (False, True)
    assert dataclasses.replace(second, is_saved=False) == first
    assert first.against == "thunder.jit and eager"


def test_a_wrong_step_differs_from_a_saved_reference(run_dir: Path) -> None:
    check(run_dir, build())
    wrong = check(run_dir, build(), off=1e-2)
    assert (wrong.is_saved, wrong.ok, wrong.bitwise) == (True, False, False)
    assert {error.against for error in wrong.tensors if not error.ok} >= {"thunder.jit", "eager"}


@pytest.mark.slow
def test_another_program_capture_or_source_needs_another_reference(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(run_dir, build())
    assert not check(run_dir, build(1.5)).is_saved
    assert not check(run_dir, build(), capture="dynamo").is_saved
    source = run_dir.parent / "model_of_a_person.py"
    source.write_text("WIDTH = 1\n")
    monkeypatch.syspath_prepend(str(run_dir.parent))
    monkeypatch.setitem(sys.modules, "model_of_a_person", __import__("model_of_a_person"))
    assert not check(run_dir, build()).is_saved
    assert check(run_dir, build()).is_saved
    source.write_text("WIDTH = 2\n")
    assert not check(run_dir, build()).is_saved
    (run_dir / "program.pkl").write_bytes(b"another program")
    assert not check(run_dir, build()).is_saved


def test_a_sparse_gradient_is_saved(run_dir: Path) -> None:
    def parts(scale: float = 1.0) -> Any:
        weight = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
        return (lambda w: functional.embedding(torch.tensor([1, 2, 1]), w, sparse=True).sin() * scale), (weight,), {}

    first, second = check(run_dir, parts), check(run_dir, parts)
    assert (first.ok, second.is_saved) == (True, True)
    assert dataclasses.replace(second, is_saved=False) == first
    assert not check(run_dir, lambda: parts(1.5)).is_saved


def test_a_damaged_reference_is_made_again(run_dir: Path) -> None:
    check(run_dir, build())
    (file,) = (run_dir.parent / "references").glob(f"*{REFERENCES.suffix}")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert not check(run_dir, build()).is_saved
    assert check(run_dir, build()).is_saved


@pytest.mark.slow
def test_no_reference_is_saved_if_saving_is_off_or_the_reference_is_too_large_or_the_disk_is_full(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(REFERENCES, "most_bytes", 64)
        assert not check(run_dir, build()).is_saved
        assert not (run_dir.parent / "references").exists()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("workbench.util.paths.write", full)
        assert check(run_dir, build()).ok
    monkeypatch.setenv(REFERENCES.variable, "off")
    assert not check(run_dir, build()).is_saved
    assert not check(run_dir, build()).is_saved


def test_the_reference_of_a_random_program_is_saved_too(run_dir: Path) -> None:
    def dropout() -> Any:
        return (lambda x: torch.nn.functional.dropout(x, 0.5)), (torch.ones(64, requires_grad=True),), {}

    original, args, kwargs = dropout()
    jitted = accuracy.compile_unmodified(original)
    recorded = accuracy.first_step(Stepper(original, args, kwargs, jitted), 0)
    first, second = (
        accuracy.check_first_step(recorded, dropout, references=SavedReferences(run_dir, SPEC)) for _ in range(2)
    )
    assert (first.ok, first.against, first.is_saved) == (True, "thunder.jit", False)
    assert dataclasses.replace(second, is_saved=False) == first
    assert second.is_saved
