"""A program that was opened before is read from the cache on disk, unless something that tracing reads has changed.

Its plan equals the plan of the traced program.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import gc
import importlib.util
import os
import random
import shutil
import stat
import subprocess
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import workbench
from tests.models import zoo
from tests.needs import needs_nvfuser
from tests.trial_counts import beyond
from workbench.compiler.driver import capture_cache, open_cached
from workbench.compiler.frontend import interpreter_checks
from workbench.compiler.trace.bsym_memo import structure_of
from workbench.errors import ChoiceError
from workbench.interop.torch_private import FakeTensorMode
from workbench.programs import identity
from workbench.util import paths
from workbench.util.disk_cache import CAPTURES

pytestmark = pytest.mark.slow


PROGRAMS: dict[str, dict[str, Any]] = {
    "mlp": {"layers": 2},
    "llama": {"layers": 1, "executor": "torchcompile"},
    "llama, attending": {"layers": 1, "executor": "torchcompile_aten"},
    "residual_chain": {"layers": 2, "executor": "nvfuser", "device": "planned", "grad": True},
    "adam": {"executor": "nvfuser", "device": "planned"},
    "dropout_mlp": {},
    "batch_norm": {"executor": "torchcompile"},
    "fsdp_llama": {"layers": 1, "ranks": 2, "executor": "torch"},
    "tensor_parallel_mlp": {"layers": 1, "ranks": 2},
}

SOURCE = """
import functools
import torch

SCALE = 2.0
WIDTHS = [1, 2]

class Table:
    def __init__(self):
        self.entries = {"a": 1.0}

TABLE = Table()

class Settings:
    steps = 1

def kept(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper

def helper(x):
    return x.sin()

def silent():
    return 3.0

class Model(torch.nn.Module):
    factor = 4.0
    weights = [1.0]

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.power = 1.0

    @kept
    def forward(self, x):
        for _ in range(Settings.steps):
            x = x * self.weights[0]
        return (helper(self.linear(x)) * SCALE * self.factor * silent() * TABLE.entries["a"] + self.power).sum()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CAPTURES.variable, str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the source file that tests edit."""
    return tmp_path_factory.mktemp("edited") / "edited_model.py"


@pytest.fixture(scope="module")
def kept_of_source(edited: Path) -> Path:
    """Open the model of `SOURCE`, so that it is cached. Return the cache's folder."""
    folder = edited.with_name("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CAPTURES.variable, str(folder))
        module = imported_as_edited(SOURCE, edited, patch)
        assert workbench.open(module.Model(), torch.ones(2, 3)).on_disk == "written to disk"
    return folder


def described(bench: Any) -> Any:
    plan = bench.plan.to_json()
    return {name: value for name, value in plan.items() if name != "stages"}, bench.plan.text(), bench.config


def chosen_alike(first: Any, second: Any, seed: int) -> int:
    """Make the same random choices in both benches. Assert that plans and refusals are equal.

    Return how many of the four sets of choices were accepted.
    """
    draw, legal = random.Random(seed), 0
    able = [site for site in first.sites() if len(site.options) > len(site.illegal)]
    for _ in range(4):
        choices = {site.id: draw.choice(site.options) for site in draw.sample(able, min(3, len(able)))}
        refusals = []
        for bench in (first, second):
            try:
                bench.choose(choices)
                refusals.append("")
            except ChoiceError as error:
                refusals.append(str(error))
        assert refusals[0] == refusals[1]
        assert described(first) == described(second)
        legal += not refusals[0]
    return legal


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[
                *([needs_nvfuser] * (settings.get("executor") == "nvfuser")),
                *([pytest.mark.slow] * ("llama" in name or "ranks" in settings)),
            ],
        )
        for name, settings in PROGRAMS.items()
    ],
)
def test_a_program_from_disk_equals_the_traced_program(name: str, folder: Path) -> None:
    program = name.partition(",")[0]
    first = workbench.open(program, **PROGRAMS[name])
    assert first.on_disk == "written to disk"
    second = workbench.open(program, **PROGRAMS[name])
    assert second.on_disk == "from disk"
    assert [stage.name for stage in second.plan.opening] == ["read from disk"]
    assert second.plan.graph.to_json() == first.plan.graph.to_json()
    assert second.plan.sites == first.plan.sites
    assert (second.plan.timeline.peak_bytes, second.plan.proof) == (first.plan.timeline.peak_bytes, first.plan.proof)
    assert described(second) == described(first)
    assert [each.name for each in second.plan.passes] == [each.name for each in first.plan.passes]
    assert chosen_alike(first, second, seed=1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_program_from_disk_repeats_its_warnings_without_checking_the_trace(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scaled(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (x * scale).sum()

    given = scaled, torch.ones(3, requires_grad=True), torch.ones((), requires_grad=True)
    with pytest.warns(UserWarning, match="Thunder's gradient of it is wrong"):
        first = workbench.open(*given, capture="interpreter")
    monkeypatch.setattr(interpreter_checks, "doubts", lambda trace: pytest.fail("the trace was checked"))
    with pytest.warns(UserWarning, match="Thunder's gradient of it is wrong"):
        second = workbench.open(*given, capture="interpreter")
    assert (first.on_disk, second.on_disk) == ("written to disk", "from disk")


OPENED = """
import workbench
bench = workbench.open({given})
print(bench.on_disk, bench.plan.peak_bytes)
"""


@pytest.mark.parametrize("of_library", beyond(1, [False, True]), ids=["own", "of a library"])
def test_another_process_finds_the_cached_program(of_library: bool, folder: Path, tmp_path: Path) -> None:
    """In another process, an unchanged program has the same cache key, and its functions have the same digests.

    In the case "of a library", this process first opens another model of the library. The library's decorators and
    registries then have more entries in this process than in the other process.
    """
    model = tmp_path / "model.py"
    model.write_text(SOURCE + "\ndef program():\n    return Model(), (torch.ones(2, 3),)\n")
    code, first = OPENED.format(given=repr(f"{model}:program")), [workbench.open(f"{model}:program")]
    if of_library:
        before, args, kwargs = zoo.build("gemma")
        assert workbench.open(before, *args, device="cpu", **kwargs).on_disk == "written to disk"
        code += "from tests.models import zoo\nmodule, args, kwargs = zoo.build('qwen3')"
        code += OPENED.format(given="module, *args, device='cpu', **kwargs")
        module, args, kwargs = zoo.build("qwen3")
        first.append(workbench.open(module, *args, device="cpu", **kwargs))
    assert {bench.on_disk for bench in first} == {"written to disk"}
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    again = workbench_process(code, {**os.environ, "PYTHONHASHSEED": seed, CAPTURES.variable: str(folder)})
    assert again.splitlines() == [f"from disk {bench.plan.peak_bytes}" for bench in first]


def workbench_process(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def written(edited: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return a function that writes a source text to `edited` and imports it, always under the same module name."""

    return functools.partial(imported_as_edited, path=edited, patch=monkeypatch)


def imported_as_edited(source: str, path: Path, patch: pytest.MonkeyPatch) -> ModuleType:
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("edited_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, "edited_model", module)
    exec(compile(source, str(path), "exec"), vars(module))
    return module


CHANGES: dict[str, Callable[[Any, ModuleType], None]] = {
    "a global number": lambda _, module: setattr(module, "SCALE", 3.0),
    "an entry of a global object": lambda _, module: module.TABLE.entries.update(a=5.0),
    "a helper function": lambda _, module: setattr(
        module, "helper", eval("lambda x: x.cos()", {"__name__": "edited_model"})
    ),
    "a method": lambda model, module: setattr(
        type(model), "forward", module.kept(lambda self, x: self.linear(x).sum())
    ),
    "an attribute of the class": lambda model, _: setattr(type(model), "factor", 5.0),
    "an entry of a list of the class": lambda model, _: setattr(type(model), "weights", [2.0]),
    "an attribute of another class": lambda _, module: setattr(module.Settings, "steps", 2),
    "an attribute of the module": lambda model, _: setattr(model, "power", 2.0),
    "a forward set on the instance": lambda model, _: setattr(model, "forward", lambda x: x.sum()),
    "a hook": lambda model, _: model.linear.register_forward_hook(lambda module, args, output: output * 2),
    "requires_grad of a parameter": lambda model, _: model.linear.weight.requires_grad_(False),
    "a shape": lambda model, _: setattr(model, "linear", nn.Linear(3, 4)),
    "a shared parameter": lambda model, _: model.register_parameter("twin", model.linear.weight),
    "eval": lambda model, _: model.eval(),
}


@pytest.mark.parametrize("what", beyond(8, CHANGES))
def test_after_a_change_of_what_tracing_reads_a_program_is_not_read_from_disk(
    what: str, folder: Path, kept_of_source: Path, written: Any
) -> None:
    shutil.copytree(kept_of_source, folder)
    module = written(SOURCE)
    assert workbench.open(module.Model(), torch.ones(2, 3)).on_disk == "from disk"
    model = module.Model()
    CHANGES[what](model, module)
    assert workbench.open(model, torch.ones(2, 3)).on_disk != "from disk"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return x.sin()", "return x.cos()"),
        ("return 3.0", "return 4.0"),
        ("SCALE = 2.0", "SCALE = 2.5"),
        ("return function(*args)", "return function(*args) * 2"),
        ("def helper(x):", "\ndef helper(x):"),  # moves lines, and the cached sites have line numbers
    ],
)
def test_a_program_in_an_edited_file_is_traced_again(
    before: str, after: str, folder: Path, kept_of_source: Path, written: Any
) -> None:
    shutil.copytree(kept_of_source, folder)
    assert SOURCE.count(before) == 1
    assert workbench.open(written(SOURCE.replace(before, after)).Model(), torch.ones(2, 3)).on_disk == "written to disk"
    assert workbench.open(written(SOURCE).Model(), torch.ones(2, 3)).on_disk == "from disk"


def test_inputs_and_settings_and_modes_are_part_of_the_program(folder: Path) -> None:
    def opened(**options: Any) -> str:
        found: str = workbench.open("mlp", **({"layers": 1, "executor": "torch"} | options)).on_disk
        return found

    assert opened() == "written to disk"
    for other in ({"layers": 2}, {"batch": 3}, {"executor": "torchcompile"}, {"capture": "interpreter"}):
        assert opened(**other) == "written to disk"
    with torch.no_grad():
        assert opened() == "written to disk"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert opened() == "written to disk"
    assert opened() == "from disk"


def test_values_in_a_closure_are_part_of_the_program(folder: Path) -> None:
    def made(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: (x * factor).sum()

    x = torch.ones(3, requires_grad=True)
    assert workbench.open(made(2.0), x).on_disk == "written to disk"
    assert workbench.open(made(2.0), x).on_disk == "from disk"
    assert workbench.open(made(3.0), x).on_disk == "written to disk"


@pytest.mark.long
def test_a_registry_of_a_library_counts_only_with_its_entries_for_the_programs_classes(folder: Path) -> None:
    from transformers.utils import output_capturing

    module, args, kwargs = zoo.build("gemma")
    noted = output_capturing._CAN_RECORD_REGISTRY

    def opened() -> str:
        found: str = workbench.open(module, *args, device="cpu", **kwargs).on_disk
        return found

    before = dict(noted)
    try:
        assert opened() == "written to disk"
        noted.update({"<class 'transformers.models.of.another.Model'>": {"hidden_states": 1}})
        assert opened() == "from disk"
        noted[module.model] = {"hidden_states": 1}
        assert opened() != "from disk"
        noted.update({str(type(module.model)): before[str(type(module.model))], "by another name": {}})
        assert opened() != "from disk"
    finally:
        noted.clear()
        noted.update(before)
    assert opened() == "from disk"


def test_a_change_of_a_users_table_of_library_classes_is_noticed(
    folder: Path, written: Callable[[str], ModuleType]
) -> None:
    source = """
import torch
from torch import nn

SCALES = {nn.Conv2d: 2.0, str(nn.Conv1d): 3.0}
KNOWN = {nn.Conv2d}


class Model(nn.Module):
    def forward(self, x):
        return (x * SCALES[nn.Conv2d] * SCALES[str(nn.Conv1d)] * (2 if nn.Conv3d in KNOWN else 1)).sum()
"""
    module, x = written(source), torch.ones(3, requires_grad=True)

    def opened() -> str:
        found: str = workbench.open(module.Model(), x, device="cpu").on_disk
        return found

    assert (opened(), opened()) == ("written to disk", "from disk")
    module.SCALES[nn.Conv2d] = 4.0
    assert (opened(), opened()) == ("written to disk", "from disk")
    module.SCALES[str(nn.Conv1d)] = 5.0
    assert (opened(), opened()) == ("written to disk", "from disk")
    module.KNOWN.add(nn.Conv3d)
    assert (opened(), opened()) == ("written to disk", "from disk")


def test_a_frozen_function_is_found_by_its_name(folder: Path, written: Callable[[str], ModuleType]) -> None:
    """For frozen objects, Python reports no referrers. Servers freeze objects by `gc.freeze` after their imports."""
    module = written(SOURCE.replace("@kept", ""))
    gc.freeze()
    try:
        opened = workbench.open(module.Model(), torch.ones(2, 3))
    finally:
        gc.unfreeze()  # let Python report referrers again
    assert opened.on_disk == "written to disk"


def test_a_program_with_an_unknown_object_is_traced_each_time(folder: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.stream = iter([1])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x).sum()

    bench = workbench.open(Odd(), torch.ones(1, 2))
    assert bench.on_disk == "not written to disk: it contains a builtins.list_iterator"
    assert bench.plan.peak_bytes
    assert not folder.exists()


def test_if_a_cached_file_is_damaged_the_program_is_traced_and_this_is_reported_once(folder: Path) -> None:
    first = workbench.open("mlp", layers=1)
    (kept,) = folder.iterdir()
    content = kept.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    for broken in (b"", content[: len(content) // 2], b"no pickle", bytes(flipped)):
        kept.write_bytes(broken)
        again = workbench.open("mlp", layers=1)
        told = f"written to disk; the old file could not be read: {kept}: its content has changed since it was written"
        assert again.on_disk == told
        assert described(again) == described(first)
        assert workbench.open("mlp", layers=1).on_disk == "from disk"


def test_if_a_cached_file_is_not_a_pickle_the_program_is_traced_and_this_is_reported_once(folder: Path) -> None:
    workbench.open("mlp", layers=1)
    (kept,) = folder.iterdir()
    key, part = kept.name.removesuffix(CAPTURES.suffix).split("-")
    CAPTURES.store(key, part, b"no pickle")
    assert "could not be read" in workbench.open("mlp", layers=1).on_disk
    assert workbench.open("mlp", layers=1).on_disk == "from disk"


def test_a_cached_file_that_others_may_write_is_not_read(folder: Path) -> None:
    """A cached file is a pickle, and reading a pickle can run code from the file."""
    mask = os.umask(0o002)
    try:
        workbench.open("mlp", layers=1)
    finally:
        os.umask(mask)
    (kept,) = folder.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.chmod(0o620)
    assert "other users may write into it" in workbench.open("mlp", layers=1).on_disk
    assert workbench.open("mlp", layers=1).on_disk == "from disk"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    elsewhere = folder.parent / "elsewhere"
    kept.rename(elsewhere)
    kept.symlink_to(elsewhere)
    assert "other users may write into it" in workbench.open("mlp", layers=1).on_disk
    assert not kept.is_symlink()
    assert workbench.open("mlp", layers=1).on_disk == "from disk"


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_cached_file_of_another_user_is_not_read(folder: Path) -> None:
    workbench.open("mlp", layers=1)
    (kept,) = folder.iterdir()
    os.chown(kept, 12345, -1)
    assert "it belongs to another user" in workbench.open("mlp", layers=1).on_disk
    os.chown(folder, 12345, -1)
    assert "belongs to another user" in workbench.open("mlp", layers=1).on_disk


def test_the_cache_can_be_read_from_a_read_only_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workbench.open("mlp", layers=1)
    (kept,) = folder.iterdir()

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "utime", refused)
    monkeypatch.setattr(Path, "unlink", refused)
    monkeypatch.setattr(paths, "write", refused)
    assert workbench.open("mlp", layers=1).on_disk == "from disk"
    kept.write_bytes(b"broken")
    again = workbench.open("mlp", layers=1)
    assert again.on_disk == f"not written to disk: {folder}: read-only file system"
    assert again.plan.peak_bytes


@pytest.mark.parametrize("package", ["thunder", "workbench"])
def test_an_edited_file_of_thunder_or_the_workbench_counts_as_another_version(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package in development may change without a new version number, so files of the package are compared."""
    source, real = Path(str(sys.modules[package].__file__)).parent / "__init__.py", Path.stat
    there = source.stat()

    def edited(path: Path, **options: Any) -> Any:
        newer = types.SimpleNamespace(st_mtime_ns=there.st_mtime_ns + 1, st_size=there.st_size, st_mode=there.st_mode)
        return newer if path == source else real(path, **options)

    before = capture_cache.versions.__wrapped__()
    assert capture_cache.versions.__wrapped__() == before
    monkeypatch.setattr(Path, "stat", edited)
    assert capture_cache.versions.__wrapped__() != before


AT_ONCE = """
import os
import thunder
import workbench
from tests.levers.waits.forked import be_ranks

def be(rank):
    bench = workbench.open("mlp", layers=2)
    os.write(1, f"{bench.on_disk} {bench.plan.peak_bytes}\\n".encode())

be_ranks(2, be)
be(2)
"""


@pytest.mark.long
def test_two_processes_may_open_a_program_at_the_same_time(folder: Path) -> None:
    environment = {**os.environ, CAPTURES.variable: str(folder), "OMP_NUM_THREADS": "1"}
    *both, after = workbench_process(AT_ONCE, environment).splitlines()
    peak = after.rpartition(" ")[2]
    assert after == f"from disk {peak}"
    assert len(both) == 2
    assert set(both) <= {f"written to disk {peak}", f"from disk {peak}"}, both
    assert len(list(folder.iterdir())) == 1


def test_old_unfinished_files_are_removed(folder: Path) -> None:
    CAPTURES.store("a", "0", b"content")
    new, old = (folder / f".workbench-{name}{paths.UNFINISHED}" for name in ("new", "old"))
    for path in (new, old):
        path.write_bytes(bytes(10))
    os.utime(old, (0, 0))
    CAPTURES.store("b", "0", b"content")
    assert (new.exists(), old.exists()) == (True, False)
    CAPTURES.clear()
    assert list(folder.iterdir()) == []


def test_a_full_disk_or_a_folder_that_others_may_write_disables_only_the_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(paths, "write", full)
        bench = workbench.open("mlp", layers=1)
        assert bench.on_disk == f"not written to disk: {folder}: no space left on device"
        assert bench.plan.peak_bytes
    assert workbench.open("mlp", layers=1).on_disk == "written to disk"
    folder.chmod(stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)
    again = workbench.open("mlp", layers=1)
    assert "other users may write into it" in again.on_disk


def test_the_value_off_disables_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CAPTURES.variable, "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert workbench.open("mlp", layers=1).on_disk == f"not written to disk: {CAPTURES.variable} is off"
    assert not (tmp_path / "cache").exists()


def test_the_least_recently_used_files_are_removed_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CAPTURES, "most_bytes", 33)
    for at, key in enumerate("abc"):
        CAPTURES.store(key, "0", bytes(10))
        os.utime(folder / f"{key}-0{CAPTURES.suffix}", (at, at))
    assert [path.name[0] for path in sorted(folder.iterdir())] == ["b", "c"]
    CAPTURES.read(folder / f"b-0{CAPTURES.suffix}")
    CAPTURES.store("d", "0", bytes(10))
    assert [path.name[0] for path in sorted(folder.iterdir())] == ["b", "d"]
    assert dataclasses.astuple(CAPTURES.contents()) == (folder, 2, 28)
    assert CAPTURES.clear().files == 2
    assert dataclasses.astuple(CAPTURES.contents()) == (folder, 0, 0)


def test_a_witness_holds_until_a_global_of_its_function_changes_or_its_module_is_gone(written: Any) -> None:
    module = written(SOURCE)
    inner = module.Model.forward.__wrapped__
    seen = identity.witnesses([inner.__code__, module.helper.__code__], [], frozenset(), frozenset())
    assert {(each.module, each.name) for each in seen} == {
        ("edited_model", "Model.forward"),
        ("edited_model", "helper"),
    }
    assert all(each.holds(frozenset()) for each in seen)
    module.SCALE = 7.0
    assert [each.holds(frozenset()) for each in sorted(seen, key=lambda each: each.name)] == [False, True]
    del sys.modules["edited_model"]
    assert not any(each.holds(frozenset()) for each in seen)


@pytest.mark.parametrize(
    "name",
    [
        "qwen3",
        pytest.param("vit", marks=pytest.mark.long),
        pytest.param("t5", marks=pytest.mark.long),
        pytest.param("mamba2", marks=pytest.mark.long),
        pytest.param("segformer", marks=pytest.mark.long),
        pytest.param("efficientnet", marks=pytest.mark.long),
    ],
)
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")
def test_a_users_own_model_is_read_from_disk(name: str, folder: Path) -> None:
    opened = []
    for _ in range(2):
        module, args, kwargs = zoo.build(name)
        opened.append(workbench.open(module, *args, device="cpu", **kwargs))
    first, second = opened
    assert (first.on_disk, second.on_disk) == ("written to disk", "from disk")
    assert described(second) == described(first)
    assert chosen_alike(first, second, seed=2)


def test_data_for_choices_is_computed_once_at_the_first_choice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    replan = open_cached.replan
    monkeypatch.setattr(open_cached, "replan", lambda *given: (made.append(given[1]), replan(*given))[1])
    workbench.open("mlp", layers=1)
    bench = workbench.open("mlp", layers=1)
    assert (bench.on_disk, made) == ("from disk", [])
    assert bench.plan.text().startswith("import torch")
    assert bench.plan.passes
    bench.choose({next(site.id for site in bench.sites("saved") if "offload" in site.options): "offload"})
    assert made == [{}]


def test_isomorphic_layers_are_recognized_after_reading_from_disk(folder: Path) -> None:
    opened = [workbench.open("llama", layers=7) for _ in range(2)]
    assert opened[1].on_disk == "from disk"
    alike = [_numbered(map(structure_of, bench._captured.context.claimed.bound_symbols)) for bench in opened]
    assert alike[0] == alike[1]
    assert len(set(alike[1])) < 0.75 * len(alike[1])


def _numbered(objects: Iterable[object]) -> list[int]:
    """Return a number for each object. Equal numbers mean the same object."""
    first: dict[int, int] = {}
    return [first.setdefault(id(each), len(first)) for each in objects]


def test_tensors_keep_their_layout() -> None:
    mode = FakeTensorMode()
    with mode:
        whole = torch.empty(4, 6)
        leaf = torch.nn.Parameter(torch.empty(3, 5, dtype=torch.bfloat16))
        tables = [
            {
                "alone": torch.empty(2, 3),
                "turned": torch.empty(2, 3, device="cuda").t(),
                "spread": torch.empty(3, 1).expand(3, 4),
                "gaps": torch.empty(6, 4)[::2],
                "behind": torch.empty(8)[3:],
                "empty": torch.empty(0, 3),
                "number": torch.empty((), dtype=torch.int64),
                "leaf": leaf,
                "whole": whole,
            },
            {"part": whole[1:], "bits": torch.empty(8, dtype=torch.int32).view(torch.float32), "made": leaf * 2},
        ]
    made = capture_cache.tensors_of(capture_cache._tensor_layouts(*tables), mode)
    assert capture_cache._tensor_layouts(*made) == capture_cache._tensor_layouts(*tables)
    assert made[0]["whole"].untyped_storage()._cdata == made[1]["part"].untyped_storage()._cdata
