"""If a program uses objects of a notebook or script, they are sent to another process, or an error names the object and
says what to do.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

import workbench
from workbench.errors import ProgramError
from workbench.programs import pickling
from workbench.programs.tensors import find_tensors
from workbench.runs.measure import accuracy
from workbench.runs.process.request import RunOptions

_READER = """\
import json, pathlib, sys, cloudpickle, torch
found = {}
for path in pathlib.Path(sys.argv[1]).iterdir():
    function, args = cloudpickle.loads(path.read_bytes())
    try:
        found[path.name] = {"value": function(*args).tolist()}
    except AttributeError as error:
        found[path.name] = {"error": str(error)}
print(json.dumps(found))
"""

TRAVEL = [
    *("ops", "o", "aten", "packet", "overload", "F", "lock", "rlock", "event", "cond", "var", "var2", "var3", "log"),
    *("lam", "bound", "weak", "dead", "compiled", "cmod", "part", "thread", "generator", "cached", "special", "fft"),
    *("classes", "backends", "stdout", "stream", "scripted"),
]
REFUSED = {
    "gen": "<lambda>'s gen is a generator, which exists only in this process: use a list of the yielded values",
    "file": "<lambda>'s file is an open file: read the file outside of the function, or open it inside the function",
    "wfile": "<lambda>'s wfile is an open file: read the file outside of the function",
    "jitted": "<lambda>'s jitted is compiled by thunder.jit: use the original function or module",
    "custom": "<lambda>'s custom is an operator that is registered only in this process: register it in a module",
    "weakd": "<lambda>'s weakd, a WeakValueDictionary, cannot be pickled",
    "local": "<lambda>'s local, a _local, cannot be pickled (TypeError: cannot pickle '_thread._local' object): ",
    "held": "<lambda>'s held.deep['a'][0] is a generator",
}


NOT_STORED = {
    torch.bool,
    *(one for name, one in vars(torch).items() if isinstance(one, torch.dtype) and name.startswith(("q", "bits"))),
    *(getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in range(1, 8)),
}
"""Data types whose tensors have no values of their own, are quantized, or cannot hold any byte."""


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("sent")
    data = folder / "data"
    data.mkdir()
    outputs, holding = [], str(Path(__file__).with_name("holding.py"))
    for command in ([holding], ["-c", _READER]):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", *command, str(data)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        outputs.append(json.loads(done.stdout.splitlines()[-1]))
    return outputs[0], outputs[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAVEL)
@pytest.mark.long
def test_objects_that_a_function_of_a_notebook_uses_can_be_sent(
    sent: tuple[dict[str, Any], dict[str, Any]], name: str
) -> None:
    here, there = sent
    assert here[name] == there[name]
    assert "value" in there[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.long
def test_an_object_that_cannot_be_sent_is_refused_with_its_name(
    sent: tuple[dict[str, Any], dict[str, Any]], name: str
) -> None:
    refusal = sent[0][name]["refused"]
    assert refusal.startswith(f"{name} cannot be sent to another process: {REFUSED[name]}")


def travelled(objects: Any) -> Any:
    return cloudpickle.loads(pickling.dumps(objects))


def share(*tensors: torch.Tensor) -> bool:
    return len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 1


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_torchscript_module_is_sent_with_the_tensors_that_an_optimizer_shares() -> None:
    module = torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))).eval()
    there, optimizer = travelled((module, torch.optim.SGD(module.parameters(), lr=1.0)))
    assert torch.equal(there(torch.ones(2, 3)), module(torch.ones(2, 3)))
    sent = optimizer.param_groups[0]["params"]
    assert len(sent) == 4
    assert all(one is other for one, other in zip(sent, there.parameters(), strict=True))


def test_tensors_that_share_memory_still_share_memory_after_sending() -> None:
    base = torch.arange(24.0).reshape(4, 6)
    cases = {
        "view": (base, base[0]),
        "overlap": (base[:3], base[1:]),
        "transposed": (base, base.t()),
        "other dtype": (base, base.view(torch.int32)),
        "complex": (torch.view_as_complex(base.reshape(12, 2)), base),
        "parameter": (torch.nn.Parameter(base), base),
        "same": (base, base),
        "numpy": (torch.from_numpy(base.numpy()), base),
    }
    for name, (one, other) in cases.items():
        first, second = travelled((one, other))
        assert share(first, second), name
        for before, after in ((one, first), (other, second)):
            assert type(before) is type(after)
            assert (before.stride(), before.storage_offset()) == (after.stride(), after.storage_offset())
            assert before.requires_grad == after.requires_grad
            assert torch.equal(before, after)
        with torch.no_grad():
            second.zero_()
        assert not torch.equal(one, first), name
        assert first.untyped_storage().nbytes() == one.untyped_storage().nbytes()


def test_parameters_and_buffers_and_closures_share_memory_after_sending() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model[1].weight = model[0].weight
    model.register_buffer("all", torch.randn(6, 4))
    model.register_buffer("some", model.all[1:3])
    rows = model.all[4]
    sent_model, (x, function) = travelled((model, (model.all[0], lambda: rows)))
    assert sent_model[1].weight is sent_model[0].weight
    assert share(sent_model.all, sent_model.some, x, function())
    sent_model.all.zero_()
    assert not function().any()
    assert not sent_model.some.any()


_MODULE = """\
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
scale = 1.0


def helper(x):
    return net(x)


def double():
    global scale
    scale = 2.0


def loss_of(x):
    double()
    return (helper(x) * scale).sin().square().mean()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fn = helper

    def forward(self, x):
        return (self.fn(x) if self.fn is helper else x) + net[0].weight
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    name = f"imported_by_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(name)
    del sys.modules[name]


def test_each_copy_of_an_imported_function_begins_with_the_present_values(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.no_grad():
        module.net[0].weight.fill_(3)
    data = pickling.dumps((module.loss_of, (torch.ones(2, 4),)))
    present = {name: tensor.detach().clone() for name, tensor in find_tensors(module.loss_of).tensors.items()}
    module.loss_of(torch.randn(3, 4)).backward()
    module.net[0].weight.data.fill_(5)
    assert cloudpickle.loads(data)[0] is module.loss_of
    assert module.net[0].weight.data[0, 0] == 5, "the tensors of the sending process are in use"
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as in the process of a run
    for _ in range(2):
        loaded = cloudpickle.loads(data)[0]
        own = find_tensors(loaded).tensors
        assert own.keys() == present.keys()
        assert all(torch.equal(own[name], present[name]) for name in own)
        assert all(tensor.grad is None for tensor in own.values())
        loaded(torch.randn(3, 4)).backward()


def test_a_module_of_functions_classes_and_globals_stays_one_module(module: Any) -> None:
    model = module.Net()
    x = torch.randn(4, 4)
    eager = torch.autograd.grad(model(x).sum(), module.net[0].weight)[0]
    loss, net = cloudpickle.loads(pickling.dumps((module.loss_of, model)))
    assert torch.equal(torch.autograd.grad(net(x).sum(), module.net[0].weight)[0], eager)
    module.net.eval()
    assert torch.equal(loss(x), (module.helper(x) * 2).sin().square().mean())


def test_a_wrong_gradient_of_an_imported_function_is_found(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    data = pickling.dumps((module.loss_of, (x,), {}))
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as in the process of a run

    def build() -> Any:
        return cloudpickle.loads(data)

    recorded = accuracy.first_step(accuracy.Stepper(*build()), 0)
    found = accuracy.check_first_step(recorded, build)
    assert found.ok
    assert not found.unstable
    (name,) = [name for name in recorded if name.endswith("net.0.weight)")]
    recorded[name].value.mul_(1.01)
    assert not accuracy.check_first_step(recorded, build).ok


@pytest.mark.parametrize("tensor", [torch.empty(0), torch.empty(3, 0), torch.ones(3, dtype=torch.bfloat16)[1:]])
def test_empty_tensors_and_tensors_with_an_offset_can_be_sent(tensor: torch.Tensor) -> None:
    (sent,) = travelled((tensor,))
    assert torch.equal(sent, tensor)
    assert sent.dtype == tensor.dtype


@pytest.mark.parametrize(
    "dtype",
    sorted({one for one in vars(torch).values() if isinstance(one, torch.dtype)} - NOT_STORED, key=str),
    ids=str,
)
def test_tensors_of_each_data_type_can_be_sent(dtype: torch.dtype) -> None:
    whole = torch.arange(96, dtype=torch.uint8).view(dtype)
    part, parameter = whole[1:4], torch.nn.Parameter(whole[:2], requires_grad=False)
    sent = travelled((whole, part, parameter))
    assert share(*sent)
    for before, after in zip((whole, part, parameter), sent, strict=True):
        assert type(after) is type(before)
        assert (after.dtype, after.shape, after.storage_offset()) == (dtype, before.shape, before.storage_offset())
        assert torch.equal(after.view(torch.uint8), before.view(torch.uint8))


@pytest.mark.parametrize("parametrize", [weight_norm, spectral_norm, orthogonal])
def test_a_parametrized_module_can_be_sent(parametrize: Callable[[torch.nn.Module], torch.nn.Module]) -> None:
    net = torch.nn.Sequential(parametrize(torch.nn.Linear(4, 4)), torch.nn.GELU()).eval()
    (sent,) = travelled((net,))
    inputs = torch.randn(2, 4)
    assert torch.equal(sent(inputs), net(inputs))
    assert sent.state_dict().keys() == net.state_dict().keys()
    before = net(inputs)
    with torch.no_grad():
        for parameter in sent.parameters():
            parameter.zero_()
    assert torch.equal(net(inputs), before)
    torch.nn.utils.parametrize.remove_parametrizations(sent[0], "weight")
    assert type(sent[0]) is torch.nn.Linear


def test_an_operator_that_the_other_process_lacks_is_reported() -> None:
    with pytest.raises(ProgramError, match=r"torch\.ops\.mine\.no_such is not registered in the process of the run"):
        pickling._operator("mine.no_such")


def written_through_a_view(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y.add_(1.0)
    return (torch.sin(x) + 1).sum()


@pytest.mark.slow
def test_for_inputs_that_share_memory_a_run_measures_the_predicted_peak(tmp_path: Path) -> None:
    x = torch.randn(3, 256, 256)
    bench = workbench.open(written_through_a_view, x, x[0], device="cpu", executor="torch", capture="interpreter")
    run = bench.run(wait=True, folder=tmp_path / "run", options=RunOptions(samples=1, clocks=False))
    assert run.state == "done"
    measured = run.memory["measured_peak_bytes"]
    assert measured is not None
    # The measured peak also includes two tensors of 8 and 4 bytes, which PyTorch makes for the number in an addition.
    assert 0 <= measured - bench.plan.peak_bytes < 64
