"""The header shows the open program's sizes, data type, device and executor, and the machine of the rates."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
import torch

import workbench as wb
from tests.ui.apps import figure, until
from workbench.ui.app.app import App
from workbench.ui.controls.messages import app_name, header_words, size_words


def test_the_header_names_sizes_dtype_device_and_machine():
    planned = wb.open("mlp", device="planned", layers=3, executor="torch")
    assert header_words(planned)[0] == "3 layers, input 32×64, fp32 · planned for H100"
    planned.machine = "A100"
    assert header_words(planned)[0] == "3 layers, input 32×64, fp32 · planned for A100"
    model = torch.nn.Linear(8, 4).bfloat16()
    own = wb.open(model, torch.randn(3, 8, dtype=torch.bfloat16), device="cpu", executor="torch")
    assert header_words(own) == ["input 3×8, bf16 · CPU", "input 3×8 · CPU"]


def test_shorter_forms_of_the_header_keep_the_first_size_and_the_machine():
    planned = wb.open("mlp", device="planned", layers=3, executor="torch")
    whole, *shorter = header_words(planned)
    assert shorter == ["3 layers, fp32 · planned for H100", "3 layers, fp32 · H100", "3 layers · H100"]
    lengths = [len(words) for words in (whole, *shorter)]
    assert lengths == sorted(lengths, reverse=True)
    # Many settings are too long for the header; the shape of the input then still has room.
    many = wb.open("llama", device="planned", layers=1, dim=32, heads=2, hidden=64, vocab=64, executor="torch")
    assert header_words(many)[2] == "1 layer, input 2×32, fp32 · planned for H100"


def test_the_header_follows_the_machine():
    bench = wb.open("mlp", device="planned", executor="torch")
    app = App(bench)
    assert app.controls.content["executor"] == "torch"
    assert "planned for H100" in app.controls.content["place"][0]
    bench.machine = "A100"
    assert "planned for A100" in app.controls.content["place"][0]
    app.close()


def test_apps_of_one_program_have_names_with_their_sizes():
    names = [app_name(wb.open("mlp", device="planned", layers=layers, executor="torch").program) for layers in (1, 2)]
    assert names == ["mlp, 1 layer", "mlp, 2 layers"]


def test_a_count_of_one_is_singular_and_other_settings_keep_their_names():
    program = wb.open("mlp", device="planned", executor="torch").program
    named = dataclasses.replace(program, settings={"heads": 1, "experts": 8, "bias": 1, "batch": 4})
    assert size_words(named) == ["1 head", "8 experts", "bias 1", "batch 4"]


@pytest.mark.slow
@pytest.mark.parametrize("program", ["mlp", "fsdp_llama"])
def test_a_planned_program_shows_its_predicted_step(program):
    bench = wb.open(program, layers=1, device="planned", executor="torch")
    app = App(bench)
    step = figure(app, "step")
    assert step["kind"] == "predicted"
    assert step["text"].startswith("≈\u00a0")
    assert "delta" not in step
    assert "from the rates of H100" in step["tip"]
    bench.choose({site.id: "offload" for site in bench.sites("saved") if site.values and "offload" not in site.illegal})
    assert figure(app, "step")["delta"].startswith("+")
    app.close()


def test_a_program_on_the_cpu_shows_its_predicted_step_when_the_rates_are_measured():
    bench = wb.open("mlp", device="cpu", executor="torch")
    app = App(bench)
    until(lambda: figure(app, "step")["kind"] == "predicted")
    assert "from the rates of this CPU" in figure(app, "step")["tip"]
    assert app._step_s(bench.plan) == bench.worth()._plan_s
    app.close()


@pytest.mark.slow
def test_a_process_that_ends_while_the_rates_are_measured_ends_normally():
    code = "import workbench as wb\nfrom workbench.ui.app.app import App\nApp(wb.open('mlp', device='cpu', layers=1))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_header_names_each_input_once():
    net = torch.nn.Linear(8, 5)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(net(x), y)

    own = wb.open(loss_of, torch.randn(3, 8), torch.zeros(3, dtype=torch.int64), device="cpu", executor="torch")
    assert header_words(own)[0] == "inputs 3×8 and 3, fp32 · CPU"
    added = wb.open(torch.add, torch.randn(3, 8), torch.randn(3, 8), device="cpu", executor="torch")
    assert header_words(added)[0] == "input 3×8, fp32 · CPU"


def test_the_predicted_step_time_equals_the_prediction_of_worth():
    bench = wb.open("mlp", device="planned", layers=1, executor="torch")
    app, worth = App(bench), bench.worth()
    assert app._step_s(bench.plan) == worth._plan_s
    choices = {site.id: "offload" for site in bench.sites("saved") if site.values and "offload" not in site.illegal}
    assert app._step_s(bench.plan_with(choices)) > app._step_s(bench.plan)
    app.close()
