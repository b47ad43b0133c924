"""`resolve` makes programs from objects and names, and refuses all other objects and names with the reason."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from workbench.errors import DeviceError, ProgramError
from workbench.programs import Program, build, describe, resolve

FILE = """
import torch

def double(x):
    return x * 2

def with_args(size: int = 4):
    return double, (torch.ones(size),)

def with_kwargs(size: int = 4, scale: float = 1.0, name: str = "a", fast: bool = False):
    return double, (), {"x": torch.full((size,), scale)}

def needs(size: int):
    return double, (torch.ones(size),)

def untyped(size=4, **others):
    return double, (torch.ones(size), others)

def helper():
    return torch.ones(2) @ torch.ones(3)

def raises():
    return double, (helper(),)

def lazy():
    layers = torch.nn.LazyLinear(3), torch.nn.LazyBatchNorm1d(), torch.nn.Dropout()
    return torch.nn.Sequential(*layers), (torch.ones(4, 2),)

def number():
    return 5

def one():
    return (double,)

def no_callable():
    return 5, ()

def no_args():
    return double, 5

def no_kwargs():
    return double, (), 5

LIMIT = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def message(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(ProgramError) as error:
        resolve(*args, device="cpu", **kwargs)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_factory_in_a_file_is_found(file: Path) -> None:
    program = resolve(f"{file}:with_args", device="cpu", settings={"size": "3"})
    assert program.callable(*program.args).tolist() == [2, 2, 2]
    assert program.settings == {"size": 3}
    assert program.name == f"{file}:with_args"


def test_a_factory_may_return_keywords(file: Path) -> None:
    program = resolve(f"{file}:with_kwargs", device="cpu", settings={"scale": "2"})
    assert program.callable(**program.kwargs).tolist() == [4, 4, 4, 4]


def test_a_factory_with_keyword_arguments_accepts_settings_of_any_name(file: Path) -> None:
    program = resolve(f"{file}:untyped", device="cpu", settings={"size": "2", "depth": "3", "name": "x", "on": "true"})
    assert program.args[1] == {"depth": 3, "name": "x", "on": True}


def test_a_file_is_read_again_each_time(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    resolve(f"{file}:with_args", device="cpu")
    before = file.stat()
    file.write_text(FILE.replace("x * 2", "x * 3"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # so the file has the same size and time as before
    program = resolve(f"{file}:with_args", device="cpu")
    assert program.callable(*program.args)[0] == 3


def test_a_file_may_import_its_neighbours(file: Path) -> None:
    (file.parent / "workbench_test_neighbour.py").write_text("SIZE = 7\n")
    file.write_text("from workbench_test_neighbour import SIZE\n" + FILE.replace("size: int = 4", "size: int = SIZE"))
    assert len(resolve(f"{file}:with_args", device="cpu").args[0]) == 7


def test_a_relative_file_is_found_from_another_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    program = resolve("mine.py:with_args", device="cpu")
    monkeypatch.chdir("/")
    assert program.name == "mine.py:with_args"
    assert build(json.loads(json.dumps(program.spec)))[1][0].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("name", "settings", "parts"),
    [
        ("mpl", {}, ["no program 'mpl'", "residual_chain", "file.py:factory", "did you mean mlp?"]),
        ("", {}, ["no program ''", "mlp"]),
        ("mlp", {"layer": 1}, ["mlp has no setting 'layer'", "legal: layers, width", "did you mean layers?"]),
        ("mlp", {"layers": "two"}, ["mlp: layers must be a whole number, given 'two'"]),
        ("mlp", {"layers": 1.5}, ["layers must be a whole number, given 1.5"]),
        ("mlp", {"layers": True}, ["layers must be a whole number, given True"]),
        ("mlp", {"layers": [1]}, ["layers must be a whole number, given [1]"]),
        ("mlp", {"layers": 0}, ["mlp: layers must be at least 1, given 0"]),
        ("residual_chain", {"grad": "maybe"}, ["grad must be true or false, given 'maybe'"]),
        ("llama", {"dtype": "int8"}, ["dtype must be one of float32, bfloat16, given 'int8'"]),
        ("llama", {"dim": 10, "heads": 4}, ["llama: dim must be an even multiple of heads", "dim 10 and heads 4"]),
        ("llama", {"kv_heads": 3}, ["heads must be a multiple of kv_heads"]),
        ("dropout_mlp", {"p": "1"}, ["p must be at least 0 and less than 1, given 1.0"]),
        ("batch_norm", {"batch": 1}, ["batch must be at least 2, given 1"]),
    ],
)
def test_a_wrong_builtin_name_or_setting_is_explained(name: str, settings: dict[str, Any], parts: list[str]) -> None:
    given = message(name, settings=settings)
    for part in parts:
        assert part in given


@pytest.mark.parametrize(
    ("factory", "settings", "parts"),
    [
        ("gone", {}, ["mine.py has no 'gone'", "it has double, with_args"]),
        ("LIMIT", {}, ["mine.py has int, not a function, under 'LIMIT'"]),
        ("", {}, ["name the factory in the file, as in mine.py:factory", "mine.py has double"]),
        ("needs", {}, ["mine.py:needs needs a value for size (a whole number)"]),
        ("with_args", {"size": "many"}, ["mine.py:with_args: size must be a whole number, given 'many'"]),
        (
            "raises",
            {},
            [
                "the factory of mine.py:raises failed at mine.py:20 (return torch.ones(2) @ torch.ones(3))",
                "RuntimeError",
            ],
        ),
        ("number", {}, ["the factory of mine.py:number returned int; legal: (callable, args)"]),
        ("one", {}, ["returned 1 values; legal: (callable, args) or (callable, args, kwargs)"]),
        ("no_callable", {}, ["returned int first"]),
        ("no_args", {}, ["returned int as args"]),
        ("no_kwargs", {}, ["returned int as kwargs"]),
    ],
)
def test_a_wrong_factory_is_explained(file: Path, factory: str, settings: dict[str, Any], parts: list[str]) -> None:
    given = message(f"{file}:{factory}", settings=settings)
    for part in parts:
        assert part in given


def test_a_file_without_a_named_factory_is_refused(file: Path) -> None:
    assert "name the factory in the file" in message(str(file))
    assert "name the factory in the file" in message(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "there is no such file" in message(f"{tmp_path}/gone.py:f")
    assert "it is a folder" in message(f"{tmp_path}/:f")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("x = 1\ndef f(:\n", "running mine.py failed at mine.py:2: SyntaxError"),
        ("import json\n\njson.loads('{')\n", "running mine.py failed at mine.py:3 (json.loads('{')): JSONDecodeError"),
        ("import sys\nsys.exit(3)\n", "running mine.py failed at mine.py:2 (sys.exit(3)): SystemExit: 3"),
        ("x = 1\0\n", "running mine.py failed"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused(file: Path, text: str, part: str) -> None:
    file.write_text(text)
    assert part in message(f"{file}:f")


def test_a_builtin_name_with_inputs_is_refused() -> None:
    assert "mlp makes its own inputs" in message("mlp", torch.ones(3))


def test_an_object_that_is_not_a_program_is_refused() -> None:
    assert "int is not a program" in message(5)
    assert "settings are for named programs; Linear is a callable" in message(nn.Linear(1, 1), settings={"layers": 1})


def test_devices_are_checked_and_chosen() -> None:
    with pytest.raises(DeviceError, match="no device 'tpu'; legal: cpu, cuda, planned"):
        resolve("mlp", device="tpu")
    if not torch.cuda.is_available():
        assert resolve("swap").device == "cpu"
        with pytest.raises(DeviceError, match="no CUDA device is attached"):
            resolve("swap", device="cuda")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(tokens) * self.scale)


def test_given_objects_are_used_without_a_copy() -> None:
    model, x = nn.Linear(3, 3), torch.ones(2, 3)
    program = resolve(model, x)
    assert program.callable is model
    assert program.args[0] is x
    assert (program.name, program.device, program.spec["kind"]) == ("Linear", "cpu", "pickle")


def test_planned_objects_are_fake_copies_that_share_memory_as_before() -> None:
    model, tokens = Tied(), torch.tensor([[1, 2]])
    program = resolve(model, tokens, device="planned")
    planned: Any = program.callable
    assert planned.head.weight is planned.embedding.weight
    assert isinstance(planned.head.weight, nn.Parameter)
    assert {str(t.device) for t in (planned.head.weight, planned.scale, *program.args)} == {"cuda:0"}
    assert model.head.weight.device.type == "cpu"


def test_given_objects_can_be_sent_to_another_process(tmp_path: Path) -> None:
    scale = 3

    def scaled(x: torch.Tensor, *, bias: float) -> torch.Tensor:
        return x * scale + bias

    program = resolve(scaled, torch.ones(2), bias=0.5)
    spec = json.loads(json.dumps(program.dump(tmp_path)))
    callable_, args, kwargs = build(spec, folder=tmp_path)
    assert callable_(*args, **kwargs).tolist() == [3.5, 3.5]
    with pytest.raises(ProgramError, match=r"program\.pkl is needed"):
        build(spec)


def test_given_objects_that_cannot_be_sent_are_refused(tmp_path: Path) -> None:
    generator = (each for each in ())
    program = resolve(lambda x: (x, generator), torch.ones(1))
    with pytest.raises(ProgramError, match="cannot be sent to another process"):
        program.dump(tmp_path)


def test_building_a_program_does_not_change_the_random_state() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    resolve("mlp", device="cpu")
    assert torch.equal(torch.rand(3), expected)


def test_building_a_program_again_gives_unchanged_inputs() -> None:
    program: Program = resolve("swap", device="cpu")
    program.callable(*program.args)
    again = program.build()
    assert torch.equal(again[1][0], program.args[1])


def test_all_programs_are_described() -> None:
    infos = {info.name: info for info in describe()}
    assert {"mlp", "residual_chain", "llama", "adam", "sgd", "batch_norm", "swap", "dropout_mlp"} <= set(infos)
    for info in infos.values():
        assert info.summary.endswith(".")
        assert all(setting.default is not None and setting.type is not None for setting in info.settings)
    dtype = next(setting for setting in infos["llama"].settings if setting.name == "dtype")
    assert (dtype.type, dtype.default, dtype.options) == (str, "float32", ("float32", "bfloat16"))


def test_lazy_parameters_of_a_factory_have_the_same_values_in_each_build(file: Path) -> None:
    program = resolve(f"{file}:lazy", device="cpu")
    module = program.callable
    assert isinstance(module, nn.Module)
    assert all(each.training for each in module.modules())
    first, second = module.state_dict(), program.build()[0].state_dict()
    assert {name: tuple(value.shape) for name, value in first.items()}["0.weight"] == (3, 2)
    assert first["1.num_batches_tracked"] == 0
    torch.testing.assert_close(first, second, rtol=0, atol=0)
