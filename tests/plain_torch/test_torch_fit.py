"""A fit for plain `torch.compile` meets its limit, as measured, and a lower limit never gives a shorter step."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import workbench as wb
from tests.cli.schemas import held
from workbench import cli
from workbench.analysis.cost.machines import H100
from workbench.compiler.driver import inductor_memory
from workbench.errors import ChoiceError, PlanError
from workbench.runs.measure import accuracy, memory_meter
from workbench.util.planning_lock import PLANNING

pytestmark = pytest.mark.slow


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(32), torch.nn.Linear(32, 128), torch.nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.down(F.gelu(self.up(self.norm(x))))
        return x + hidden


class Blocks(torch.nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.blocks, self.head = torch.nn.ModuleList(Block() for _ in range(count)), torch.nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        loss: torch.Tensor = self.head(x).square().mean()
        return loss


def made(blocks: int = 4) -> tuple[Blocks, torch.Tensor]:
    torch.manual_seed(0)
    return Blocks(blocks), torch.randn(256, 32)


@pytest.fixture(scope="module")
def bench() -> wb.Workbench:
    model, x = made()
    return wb.open(model, x, device="cpu")


def measured(call: Any, model: Blocks, x: torch.Tensor) -> int:
    stepper = accuracy.Stepper(model, (x,), {}, call)
    stepper.step()
    stepper.step()
    return memory_meter.measure_peak(stepper).measured_peak_bytes


@pytest.mark.long
def test_fits_are_monotone_and_meet_their_limits(bench: wb.Workbench, tmp_path: Path) -> None:
    fits = [bench.torch_fit(peak, machine=H100) for peak in ("70%", "100%", "80%", "90%")]
    assert all(fit.peak_bytes <= fit.limit_bytes for fit in fits)
    by_limit = sorted(fits, key=lambda fit: fit.limit_bytes)
    assert [fit.added_s for fit in by_limit] == sorted((fit.added_s for fit in fits), reverse=True)
    assert fits[1].choices == {}
    assert fits[0].unapplied == ()
    torch._dynamo.reset()
    model, x = made()
    assert measured(fits[0].compile(model), model, x) == pytest.approx(fits[0].peak_bytes, rel=0.03)
    text = fits[0].export(tmp_path / "choices.py").read_text()
    assert f"{fits[0].peak_bytes:,} bytes with these choices" in text
    assert text.count('): "recompute",') + text.count('): "save",') == len(fits[0].choices)
    assert f"BUDGET = {fits[0].budget}" in text
    torch._dynamo.reset()


@pytest.mark.long
def test_choices_of_the_bench_are_part_of_the_fit(tmp_path: Path) -> None:
    model, x = made()
    bench = wb.open(model, x, device="cpu")
    bench.choose({"saved:blocks.3/gelu>mul.1": "recompute"})
    fit = bench.torch_fit("80%", machine=H100)
    assert fit.choices["blocks.3", "gelu", 0] == "recompute"
    assert fit.budget is not None
    assert fit.peak_bytes <= fit.limit_bytes
    # Later choices of the bench are not part of the fit, and the file does not list them as left out.
    file = tmp_path / "choices.py"
    text = fit.export(file).read_text()
    bench.choose({"saved:blocks.2/gelu>mul.1": "offload"})
    assert fit.export(file).read_text() == text


def test_a_limit_that_is_too_low_names_the_least_peak_and_its_largest_tensors() -> None:
    torch.manual_seed(0)
    head, x = torch.nn.Linear(16, 4096), torch.randn(64, 16)

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(head(x), torch.zeros(64, dtype=torch.long))

    opened = wb.open(loss_of, x, device="cpu")
    with pytest.raises(ChoiceError, match="a peak is a number of bytes above zero"):
        opened.torch_fit("much")
    tensors = r"largest tensors at this peak are [12] x float32 \[64, 4096\] \(1\.00 MiB each\)"
    with pytest.raises(PlanError, match=rf"or less; the lowest peak found is .*{tensors}"):
        opened.torch_fit("40%", machine=H100)


class _StopError(Exception):
    """Stands for a user who cancels."""


def small() -> wb.Workbench:
    torch.manual_seed(0)
    head, x = torch.nn.Linear(16, 64), torch.randn(256, 16)

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = F.gelu(head(x)).square().mean()
        return loss

    return wb.open(loss_of, x, device="cpu")


def test_a_fit_can_be_interrupted_and_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = made(blocks=2)
    bench = wb.open(model, x, device="cpu")

    def lines_until(last: str) -> list[str]:
        lines = list[str]()

        def go_on(line: str) -> None:
            lines.append(line.partition(" of at most ")[0])
            if lines[-1] == last:
                raise _StopError

        with pytest.raises(_StopError):
            bench.torch_fit("80%", machine=H100, go_on=go_on)
        return lines

    assert lines_until("predicting set 1") == ["predicting torch.compile without the fit", "predicting set 1"]

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(inductor_memory.InductorCode, "compile", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bench.torch_fit("80%", machine=H100)
    assert lines_until("predicting set 2") == ["predicting set 1", "predicting set 2"]


def test_a_limit_below_what_every_step_needs_is_refused_at_once() -> None:
    bench, predicted = small(), list[str]()
    held_bytes = 4 * (16 * 64 + 64 + 256 * 16)
    with pytest.raises(PlanError, match=rf": parameters, buffers and inputs alone have {held_bytes:,} bytes"):
        bench.torch_fit(held_bytes - 1, go_on=predicted.append)
    assert predicted == []
    end_bytes = held_bytes + 4 * (16 * 64 + 64 + 1)
    for peak in ("27%", end_bytes - 1):
        with pytest.raises(PlanError, match=rf"outputs and gradients alone have {end_bytes:,} bytes"):
            bench.torch_fit(peak, go_on=predicted.append)
    assert predicted == ["predicting torch.compile without the fit"]
    assert bench.torch_fit("100%", go_on=predicted.append).choices == {}
    assert len(predicted) == 1


def test_two_threads_that_fit_at_once_get_one_result() -> None:
    bench = small()
    predicted, found = list[str](), list[str]()

    def fit() -> None:
        try:
            bench.torch_fit(40_000, machine=H100, go_on=predicted.append)
        except PlanError as error:
            found.append(str(error))

    threads = [threading.Thread(target=fit) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert found[0] == found[1]
    made_once = [line for line in predicted if line.startswith("predicting")]
    assert len(made_once) == len(set(made_once)) > 1


def test_other_planning_does_not_wait_for_the_end_of_a_fit() -> None:
    model, x = made()
    bench = wb.open(model, x, device="cpu")
    happened = list[str]()

    def plan() -> None:
        with PLANNING:
            happened.append("other planning")

    other = threading.Thread(target=plan)

    def go_on(line: str) -> None:
        happened.append(line.partition(" of at most ")[0])
        if happened[-1] == "predicting set 1":
            other.start()
            while not PLANNING.is_wanted:
                time.sleep(0.01)
        if happened[-1] == "predicting set 3":
            raise _StopError

    with pytest.raises(_StopError):
        bench.torch_fit("80%", machine=H100, go_on=go_on)
    other.join()
    assert happened == [
        "predicting torch.compile without the fit",
        "predicting set 1",
        "other planning",
        "predicting set 2",
        "predicting set 3",
    ]


def test_a_program_with_a_constant_of_numpy_is_fitted() -> None:
    head, x = torch.nn.Linear(16, 64), torch.randn(256, 16)

    def scaled(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = F.gelu(head(x / np.sqrt(8.0))).square().mean()
        return loss

    # The fit has predicted its sets, although none lowers the peak of so small a program.
    with pytest.raises(PlanError, match="the lowest peak found is"):
        wb.open(scaled, x, device="cpu").torch_fit("80%")


def test_a_program_of_several_graphs_is_refused() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        first = x.sin()
        torch._dynamo.graph_break()
        return first.cos().sum()

    parts = wb.open(broken, torch.randn(8, requires_grad=True), device="cpu", capture="parts")
    with pytest.raises(PlanError, match="choices for plain PyTorch need a program of one graph"):
        parts.torch_fit("80%")


def test_the_command_line_fits_and_exports(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "choices.py"
    asked = ["fit", "mlp", "--target", "torch", "--export", str(file), "--machine", "H100", "--device", "cpu"]
    with pytest.raises(SystemExit, match="0"):
        cli.main([*asked, "--peak", "100%", "--json"])
    document = json.loads(capfd.readouterr().out)
    held("fit", document, 2)
    assert document["peak_bytes"] <= document["limit_bytes"]
    assert "def compile(" in file.read_text()
    with pytest.raises(SystemExit, match="2"):
        cli.main([*asked, "--step", "1"])
    assert "--target torch takes --peak SIZE, the peak of torch.compile" in capfd.readouterr().err
