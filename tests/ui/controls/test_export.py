"""Export of the app: files for Thunder and for plain PyTorch, shown before they are written."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
import torch

import workbench as wb
from tests.ui.apps import shown, until
from workbench.errors import PlanError
from workbench.summary import human_bytes, human_seconds
from workbench.ui.app.app import App
from workbench.ui.controls.messages import module_file


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = torch.nn.Linear(8, 16), torch.nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(self.norm(torch.tanh(self.up(x)))).sum()


@pytest.fixture(scope="module")
def bench() -> wb.Workbench:
    opened = wb.open(Net(), torch.randn(4, 8), device="cpu", executor="torch")
    able = {site.id for site in opened.sites("saved") if site.values and "recompute" not in site.illegal}
    opened.choose(dict.fromkeys(sorted(able), "recompute"))
    return opened


@pytest.fixture
def app(bench):
    app = App(bench)
    yield app
    app.close()


def test_the_app_offers_a_file_for_each_target(app):
    assert {one["target"]: one["file"] for one in app.controls.targets} == {
        "thunder": "Net.choices.py",
        "torch": "Net_torch.py",
        "torch_eager": "Net_eager.py",
        "plan": "Net.plan.json",
        "report": "Net.html",
    }


# The prediction in a file for torch.compile needs Inductor.
@pytest.mark.parametrize("target", ["thunder", pytest.param("torch", marks=pytest.mark.slow), "torch_eager"])
def test_the_file_shown_is_the_file_written(app, bench, tmp_path, target):
    content = shown(app, target)
    path = tmp_path / "net_choices.py"
    app._on_message({"type": "export", "path": str(path), "target": target})
    until(path.exists)
    assert content["text"] + "\n" == path.read_text()
    assert content["count"] == len(bench.choices)
    until(lambda: "Written to" in app.controls.content["message"]["text"])


def test_a_file_name_that_python_cannot_import_is_pointed_out(app, tmp_path):
    path = tmp_path / "my-choices.py"
    app._on_message({"type": "export", "path": str(path), "target": "torch_eager"})
    until(path.exists)
    assert "Rename this file first: Python cannot import the name my-choices." in path.read_text()
    until(lambda: "which Python cannot import: rename it" in app.controls.content["message"]["text"])


def test_a_users_function_is_named_in_the_file_and_in_the_message(tmp_path):
    net = torch.nn.Linear(4, 4)

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        return net(x).sum()

    app = App(wb.open(loss_of, torch.randn(2, 4), device="cpu", executor="torch"))
    path = tmp_path / "loss_of.choices.py"
    app._on_message({"type": "export", "path": str(path), "target": "thunder"})
    assert app.controls.content["message"]["text"].endswith(f'In a script: fast = wb.load("{path}").jit(loss_of)')
    assert "    fast = config.jit(loss_of)  # thunder.jit with exactly these choices\n" in path.read_text()
    app.close()


def test_a_function_has_no_file_for_pytorch_without_a_compiler(tmp_path):
    net = torch.nn.Linear(4, 4)

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        return net(x).sum()

    bench = wb.open(loss_of, torch.randn(2, 4), device="cpu", executor="torch")
    path = tmp_path / "loss_of_eager.py"
    for refused in (bench.export, bench.export_text):
        with pytest.raises(
            PlanError, match=r"loss_of is a function: open the module itself, wb\.open\(model, \.\.\.\)"
        ):
            refused(path, target="torch_eager")
    app = App(bench)
    assert "loss_of is a function: open the module itself" in shown(app, "torch_eager")["refused"]
    app._on_message({"type": "export", "path": str(path), "target": "torch_eager"})
    until(lambda: "loss_of is a function" in app.controls.content["message"]["text"])
    assert not path.exists()
    app.close()


def test_a_plan_and_a_report_are_written_for_a_colleague(app, bench, tmp_path):
    for target, name in (("plan", "net.plan.json"), ("report", "net.html")):
        assert shown(app, target)["text"] == ""
        app._on_message({"type": "export", "path": str(tmp_path / name), "target": target})
        until(lambda name=name: str(tmp_path / name) in app.controls.content["message"]["text"])
        until((tmp_path / name).exists)
    assert wb.open(tmp_path / "net.plan.json").choices == bench.choices
    assert (tmp_path / "net.html").read_text().startswith("<!doctype html>")


@pytest.mark.slow
def test_choices_that_pytorch_cannot_follow_are_listed_with_the_reason(app, bench):
    assert shown(app, "thunder")["left_out"] == []
    left_out = shown(app, "torch")["left_out"]
    assert {row["id"]: row["reason"] for row in left_out} == bench.torch_choices().left_out
    assert any("layer_norm" in row["id"] and row["option"] == "recompute" for row in left_out)


@pytest.mark.slow
def test_choices_of_several_layers_that_are_left_out_are_one_entry():
    bench = wb.open("llama", layers=3, device="cpu", executor="torch")
    softmax = [site.id for site in bench.sites("saved") if site.id.endswith("attention>softmax")]
    bench.choose(dict.fromkeys(softmax, "recompute"))
    app = App(bench)
    content = shown(app, "torch_eager")
    app.close()
    assert content["left_out_count"] == len(softmax) == 3
    [row] = content["left_out"]
    assert (row["id"], row["count"]) == ("saved:layers.*.attention/scaled_dot_product_attention>softmax", 3)


def test_a_file_that_was_shown_is_dropped_when_the_choices_change(app, bench):
    shown(app, "thunder")
    bench.undo()
    assert app.controls.exported == {}
    assert shown(app, "thunder")["count"] == 0
    bench.redo()


@pytest.mark.slow
def test_a_file_for_pytorch_with_choices_of_another_program_is_replaced_only_at_the_second_press(app, bench, tmp_path):
    path = tmp_path / "net_choices.py"
    other = wb.open("mlp", device="cpu", executor="torch")
    other.export(path, target="torch_eager")
    theirs = path.read_text()

    def export() -> str:
        app._on_message({"type": "export", "path": str(path), "target": "torch_eager"})
        return app.controls.content["message"]["text"]

    assert export() == f"{path} exists and holds the choices of mlp for PyTorch: Export again to replace it"
    assert path.read_text() == theirs
    export()
    until(lambda: path.read_text() != theirs)
    until(lambda: "Net_choices" not in export() and "Written to" in app.controls.content["message"]["text"])


def test_a_saved_plan_of_another_program_is_replaced_only_at_the_second_press(app, bench, tmp_path):
    path = tmp_path / "net.plan.json"
    wb.open("mlp", device="cpu", executor="torch").save(path)
    theirs = path.read_text()
    write = {"type": "export", "path": str(path), "target": "plan"}
    app._on_message(write)
    question = app.controls.content["message"]["text"]
    assert question == f"{path} exists and holds the plan of mlp: Export again to replace it"
    assert path.read_text() == theirs
    app._on_message(write)
    until(lambda: path.read_text() != theirs)
    until(lambda: "Written to" in app.controls.content["message"]["text"])
    assert wb.open(path).document["program"] != "mlp"


def test_a_program_of_several_graphs_says_why_it_has_no_file_for_pytorch():
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        torch._dynamo.graph_break()
        return torch.cos(y).sum()

    bench = wb.open(broken, torch.randn(8, requires_grad=True), device="cpu", executor="torch", capture="parts")
    app = App(bench.benches[0])
    assert "graph" in shown(app, "torch")["refused"]
    assert shown(app, "thunder")["text"] == bench.export_text("net_choices.py").rstrip("\n")
    app.close()


@pytest.mark.parametrize(
    ("name", "file"), [("llama", "llama_torch.py"), ("/a/2-net.py:make", "_2_net_py_make_torch.py")]
)
def test_the_default_file_for_pytorch_can_be_imported(name, file):
    assert module_file(SimpleNamespace(spec={"name": name}), "torch") == file
    assert file.removesuffix(".py").isidentifier()


def test_a_fit_that_is_asked_for_twice_at_once_does_not_fail(app, bench, monkeypatch):
    at_once, most = [], []

    def slow(peak: str, **more: object) -> object:
        at_once.append(peak)
        most.append(len(at_once))
        time.sleep(0.3)
        at_once.pop()
        raise PlanError("no choices were found")

    monkeypatch.setattr(bench, "torch_fit", slow)
    for asked in ("first", "second", "third"):
        app._on_message({"type": "export_preview", "path": "n.py", "target": "torch", "peak": "99%", "asked": asked})
    until(lambda: app.controls.exported.get("asked") == "third")
    assert app.controls.exported["refused"] == "no choices were found"
    assert max(most) == 1
    assert len(most) < 3, "a request that nobody waits for was answered"


def test_a_fit_shows_its_progress_and_ends_when_it_is_cancelled(app, bench, monkeypatch):
    ended, begun = [], threading.Event()

    def endless(peak, *, go_on):
        try:
            while True:
                go_on(f"predicting a set for {peak}")
                begun.set()
                time.sleep(0.01)
        except Exception as error:
            ended.append(type(error).__name__)
            raise

    monkeypatch.setattr(bench, "torch_fit", endless)
    app._on_message({"type": "export_preview", "path": "n.py", "target": "torch", "peak": "80%", "asked": "long"})
    assert begun.wait(30)
    assert app.controls.exported == {"progress": "predicting a set for 80%"}
    app._on_message({"type": "export_cancel"})
    until(lambda: ended == ["_Newer"])
    assert app.controls.exported["asked"] == "long"
    assert app.controls.exported["refused"].startswith("The fit was cancelled.")
    app._on_message({"type": "export_cancel"})  # nothing waits: nothing changes
    assert app.controls.exported["asked"] == "long"
    app.exporter.forget()  # a run has ended: without an answer, the page would ask for the fit again
    assert app.controls.exported["asked"] == "long"


@pytest.mark.slow
def test_a_request_is_answered_if_choices_change_meanwhile(app, bench, monkeypatch):
    begun, go_on, choices = threading.Event(), threading.Event(), bench.torch_choices

    def held():
        begun.set()
        assert go_on.wait(30)
        return choices()

    monkeypatch.setattr(bench, "torch_choices", held)
    app.controls.exported = {}
    app._on_message({"type": "export_preview", "path": "n.py", "target": "torch_eager", "asked": "held"})
    assert begun.wait(30)
    app.exporter.forget()  # the page is not told, because it shows no file yet
    go_on.set()
    until(lambda: app.controls.exported.get("asked") == "held")


@pytest.mark.slow
def test_the_memory_tab_shows_the_peak_of_plain_torch_compile_on_request(app, bench):
    assert app.alive.content["plain"] is None
    app._on_message({"type": "plain_peak"})
    until(lambda: bool(app.alive.content["plain"]))
    peak = human_bytes(bench.torch_prediction(stock=True).peak_bytes)
    assert app.alive.content["plain"] == f"Plain torch.compile without choices: {peak}, predicted"


@pytest.mark.slow
def test_a_fit_for_torch_compile_is_shown_and_written(app, bench, tmp_path):
    limit = f"{bench.torch_prediction().peak_bytes} B"
    path = tmp_path / "net_choices.py"
    request = {"path": str(path), "target": "torch", "peak": limit}
    app._on_message({"type": "export_preview", "asked": "fit", **request})
    until(lambda: app.controls.exported.get("asked") == "fit")
    content = app.controls.exported
    fit = bench.torch_fit(limit)
    assert [(each["name"], each["value"], each["base"]) for each in content["figures"]][:3] == [
        (name, value, f"before the fit: {before}")
        for name, value, before in (
            ("Peak, predicted", human_bytes(fit.peak_bytes), human_bytes(fit.before_peak_bytes)),
            ("Saved for backward, predicted", human_bytes(fit.saved_bytes), human_bytes(fit.before_saved_bytes)),
            ("Step, predicted", human_seconds(fit.step_s + fit.added_s), human_seconds(fit.step_s)),
        )
    ]
    app._on_message({"type": "export", **request})
    until(path.exists)
    assert content["text"] + "\n" == path.read_text()
    assert "Fitted to a peak of" in content["text"]
    app._on_message({"type": "export_preview", "asked": "low", **request, "peak": "1%"})
    until(lambda: app.controls.exported.get("asked") == "low")
    assert "parameters, buffers and inputs alone have" in app.controls.exported["refused"]
