"""A plan names only those corrections of Thunder's errors that change its program, with lines of the source."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

import workbench
from tests.trial_counts import beyond
from workbench.cli import main
from workbench.compiler.trace.corrections import DRAWS, KINDS
from workbench.core.executor import why_no_nvfuser
from workbench.ui.controls.figure_strip import Baseline, figures

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "corrections.md"

type Program = Callable[..., Any]


def real(*shape: int) -> torch.Tensor:
    return torch.rand(shape, requires_grad=True)


def pairs(*shape: int) -> torch.Tensor:
    return torch.rand(shape, dtype=torch.complex64, requires_grad=True)


def overwrites(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.mul_(y.sin())
    return y.sum()


def writes_before(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.add_(1)
    return y.sin().sum()


def writes_a_part(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[0].mul_(3)
    return y.sum()


def writes_all(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.mul_(3)
    return y.sum()


def writes_for_nothing(x: torch.Tensor) -> torch.Tensor:
    unused = torch.zeros(3)
    unused.add_(1)
    return x.sum()


def writes_and_reads(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    out.add_(x)
    return (x * 2 + y * 3).sum()


def rows() -> tuple[torch.Tensor, ...]:
    """Return two rows of one tensor, and another tensor."""
    first, second = torch.rand(2, 4).unbind()
    return first, second, torch.zeros(4)


def adds_noise(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    h = x @ w
    return ((h + scale * torch.randn_like(h)).tanh() @ w).sum()


def drops(x: torch.Tensor) -> torch.Tensor:
    return functional.dropout(x.sin(), 0.5)


def drops_again(x: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = checkpoint(drops, x, use_reentrant=False)
    return made.sum()


def computes_again(x: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = checkpoint(torch.sin, x, use_reentrant=False)
    return made.sum()


def two_draws(x: torch.Tensor) -> torch.Tensor:
    return (x * (torch.randn(3, 3, device=x.device) - torch.randn(3, 3, device=x.device))).sum()


def one_draw(x: torch.Tensor) -> torch.Tensor:
    return (x * torch.randn(3, 3, device=x.device)).sum()


def repeats_and_writes(x: torch.Tensor) -> torch.Tensor:
    y = x.repeat(1, 2)
    y += 1
    return y.sum()


TOUCHED: dict[str, tuple[Program, tuple[torch.Tensor, ...]]] = {
    "complex products": (lambda a, b: a * b, (pairs(3), pairs(3))),
    "complex views": (lambda a: torch.view_as_real(a).sum(), (pairs(3),)),
    "complex slices": (lambda a: a[1:], (pairs(3),)),
    "zeros without dimensions": (lambda x: torch.var_mean(x)[0], (real(3),)),
    "argmin": (lambda x: (x * x.argmin()).sum(), (real(3),)),
    "overwritten memory": (overwrites, (real(3),)),
    "writes by another name": (writes_a_part, (real(3, 3),)),
    "writes that nothing reads": (writes_for_nothing, (real(3),)),
    "results in memory of their own": (repeats_and_writes, (real(3, 1),)),
    "parts of one memory": (writes_and_reads, rows()),
    "operators": (lambda x: x.clamp(0, 1).sum(), (real(3),)),
    "decompositions": (lambda x: torch.flip(x, (0,)).sum(), (real(3),)),
    # Without a gradient, because PyTorch 2.11 and later refuse the backward on a CPU.
    "flex_attention": (lambda x: flex_attention(x, x, x).sum(), (real(2, 2, 4, 8).detach(),)),
    "random operators": (lambda x: functional.alpha_dropout(x, 0.5, True).sum(), (real(3),)),
    "checkpointed draws": (drops_again, (real(3),)),
    "draws in fusions": (adds_noise, (real(4, 6), real(6, 6), real())),
    "equal draws": (two_draws, (real(3, 3),)),
    "order of einsum": (lambda x, w: torch.einsum("ibh,hnd->ibnd", x, w).sum(), (real(2, 3, 4), real(4, 5, 6))),
}
NEIGHBOURS: dict[str, tuple[Program, tuple[torch.Tensor, ...]]] = {
    "complex products": (lambda a, b: (a * b).sum(), (real(3), real(3))),
    "complex views": (lambda a: torch.view_as_real(a).sum(), (pairs(3).detach(),)),
    "complex slices": (lambda a: a[1:], (real(3),)),
    "zeros without dimensions": (lambda x: torch.zeros(()) * x.sum(), (real(3),)),
    "argmin": (lambda x: (x * x.argmax()).sum(), (real(3),)),
    "overwritten memory": (writes_before, (real(3),)),
    "writes by another name": (writes_all, (real(3, 3),)),
    "writes that nothing reads": (writes_all, (real(3),)),
    "results in memory of their own": (repeats_and_writes, (real(3, 3),)),
    "parts of one memory": (writes_and_reads, (torch.rand(4), torch.rand(4), torch.zeros(4))),
    "operators": (lambda x: functional.scaled_dot_product_attention(x, x, x).sum(), (real(2, 2, 4, 8),)),
    "decompositions": (lambda x: x.clone().sum(), (real(3),)),
    "flex_attention": (lambda x: functional.scaled_dot_product_attention(x, x, x).sum(), (real(2, 2, 4, 8),)),
    "random operators": (lambda x: functional.alpha_dropout(x, 0.5, False).sum(), (real(3),)),
    "checkpointed draws": (computes_again, (real(3),)),
    "draws in fusions": (lambda x: (x @ x).sin().sum(), (real(3, 3),)),
    "equal draws": (one_draw, (real(3, 3),)),
    "order of einsum": (lambda x, w: torch.einsum("ij,jk->ik", x, w).sum(), (real(2, 3), real(3, 4))),
}
"""For each correction, a program without corrections that is similar to the program in `TOUCHED`."""


def opened(name: str, program: Program, given: tuple[torch.Tensor, ...], **options: Any) -> workbench.bench.Workbench:
    if name == "equal draws":
        if why := why_no_nvfuser():
            pytest.skip(why)
        return workbench.open(program, *given, device="planned", executor="nvfuser", **options)
    executor = "torchcompile" if name == "draws in fusions" else "torch"
    return workbench.open(program, *given, device="cpu", executor=executor, **options)


def test_the_page_of_corrections_equals_the_corrections_in_the_code() -> None:
    rows = [re.split(r" *\| *", line.strip("| ")) for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert {name: (alone, here) for name, _, alone, here in rows[1:]} == dict(KINDS)
    package = Path(workbench.__file__).parent / "compiler"
    assert all((package / file.strip("`")).exists() for _, file, _, _ in rows[1:])
    assert TOUCHED.keys() == NEIGHBOURS.keys() == KINDS.keys() > DRAWS


@pytest.mark.parametrize("name", beyond(1, TOUCHED, pytest.mark.slow))
def test_a_plan_names_the_correction_that_changes_its_program(name: str) -> None:
    bench = opened(name, *TOUCHED[name])
    (found,) = bench.plan.corrections
    assert found.name == name
    assert found.reason.startswith("The plan differs from unmodified Thunder here: Thunder ")
    assert all("test_plan_corrections.py:" in line for line in found.lines)
    assert found.lines
    for shown in (bench, bench.plan):
        printed = " ".join(repr(shown).split())
        assert f"correction {found.reason}" in printed
        assert " ".join(found.lines[0].split()) in printed
    assert bench.plan.to_json()["corrections"] == [{"name": name, "reason": found.reason, "lines": list(found.lines)}]


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_a_plan_names_no_correction_that_does_not_change_its_program(name: str) -> None:
    bench = opened(name, *NEIGHBOURS[name])
    assert bench.plan.corrections == ()
    assert "correction" not in repr(bench)


def test_a_correction_of_a_write_names_the_line_of_the_write() -> None:
    (found,) = opened("", *TOUCHED["writes that nothing reads"]).plan.corrections
    assert [line.partition("  ")[2] for line in found.lines] == ["unused.add_(1)"]
    (found,) = opened("", *TOUCHED["overwritten memory"]).plan.corrections
    assert [line.partition("  ")[2] for line in found.lines] == ["y.mul_(y.sin())"]


@pytest.mark.slow
def test_a_program_captured_by_the_interpreter_is_corrected_too() -> None:
    for name in ("argmin", "complex products", "order of einsum"):
        (found,) = opened(name, *TOUCHED[name], capture="interpreter").plan.corrections
        assert found.name == name


@pytest.mark.slow
def test_under_choices_and_from_disk_a_plan_names_the_same_corrections(tmp_path: Path) -> None:
    file = tmp_path / "clamped.py"
    file.write_text(
        "import torch\n\n\nclass Layer(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.linear = torch.nn.Linear(8, 8)\n\n    def forward(self, x):\n"
        "        return self.linear(x).clamp(-1, 1)\n\n\ndef build():\n"
        "    return torch.nn.Sequential(*[Layer() for _ in range(8)]), (torch.rand(2, 8),)\n"
    )
    for _ in range(2):
        bench = workbench.open(f"{file}:build", device="cpu", executor="torch")
        (found,) = bench.plan.corrections
        assert found.lines == ("clamped.py:10  return self.linear(x).clamp(-1, 1)",)
        site = next(site for site in bench.sites("saved") if "recompute" in site.options)
        bench.choose({site.id: "recompute"})
        assert bench.plan.corrections == (found,)


def test_reports_and_saved_plans_and_the_app_show_corrections(tmp_path: Path) -> None:
    bench = opened("operators", *TOUCHED["operators"])
    (found,) = bench.plan.corrections
    saved = json.loads(bench.save(tmp_path / "clamped.plan.json").read_text())
    assert saved["corrections"] == [str(found)]
    printed = [line.strip() for line in repr(bench).splitlines()]
    assert found.reason in " ".join(line.removeprefix("correction ").strip() for line in printed)
    assert found.lines[0] in printed
    assert max(map(len, printed[printed.index(found.lines[0]) - 2 :])) <= 120, "a notebook would cut the line"
    assert found.reason in bench.report(tmp_path / "page.html").read_text()
    kept = workbench.open(tmp_path / "clamped.plan.json")
    assert found.reason in kept.report(tmp_path / "kept.html").read_text()
    assert found.reason in json.dumps(
        figures(bench.plan, None, Baseline("stock", bench.stock_plan), same_choices=False)
    )


def test_the_command_line_shows_corrections(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "checkpoint_dropout", "--device", "cpu"])
    assert ended.value.code == 0
    assert "The plan differs from unmodified Thunder here" in capsys.readouterr().out
