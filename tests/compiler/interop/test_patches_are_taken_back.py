"""After use, Thunder and PyTorch have no patch of the workbench. Compilations in other threads never use a patch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import thunder
import torch
from thunder.core import symbol

from workbench.compiler.fastpath import install
from workbench.compiler.interop.thread_patches import (
    PatchTarget,
    ThreadPatches,
    replace_function,
    replace_in_module,
    wrap_function,
)
from workbench.compiler.lowering import patch_context

_SNAPSHOT = '''\
import functools, json, logging, sys, types, warnings

warnings.simplefilter("ignore")
import thunder, torch, torch._dynamo, torch._inductor.compile_fx, thunder.dynamo
import torch._dynamo.variables.torch, torch._subclasses.fake_tensor
from thunder.core import interpreter, transforms
from thunder.executors import torchex
from thunder import extend

def packages():
    return {name: module for name, module in tuple(sys.modules.items()) if name.split(".")[0] in ("thunder", "torch")}

def told(value):
    return isinstance(value, (types.ModuleType, classmethod, staticmethod, property)) or callable(value)

def snapshot():
    """Return every function, class and module by the place where it is found."""
    found, classes = {}, {}
    for name, module in packages().items():
        for attribute, value in tuple(getattr(module, "__dict__", {}).items()):
            if told(value):
                found[f"{name}.{attribute}"] = value
            if isinstance(value, type) and str(value.__module__).split(".")[0] in ("thunder", "torch"):
                classes[value] = f"{value.__module__}:{value.__qualname__}"
    for kind, name in classes.items():
        found.update({f"{name}.{attribute}": value for attribute, value in vars(kind).items() if told(value)})
    tables = {
        "opcode handlers": interpreter._default_opcode_handler_map,
        "executors": extend._executor_map,
        "gradients": transforms._grad_fn_map,
        "augmented forwards": getattr(transforms, "augmented_forward_impls", {}),
        "implementations": torchex.ex.implmap,
        "operators": torchex.ex.opmap,
        "functions": thunder.torch._torch_to_thunder_function_map,
        "Dynamo's handlers": torch._dynamo.variables.torch.TorchInGraphFunctionVariable._get_handlers(),
        "filters": dict(enumerate(logging.getLogger("torch._subclasses.fake_tensor").filters)),
        "default executors": dict(enumerate(extend.get_default_executors())),
        "always executors": dict(enumerate(extend.get_always_executors())),
    }
    for table, values in tables.items():
        found.update({f"table of {table}: {key}": value for key, value in tuple(values.items())})
    return found

def changed(before, after, modules):
    names = [name for name, value in before.items() if name not in after or after[name] is not value]
    for name, value in after.items():
        at = name.rpartition(".")[0]
        here = at in modules or name.startswith("table of ")
        if name not in before and not isinstance(value, types.ModuleType) and here:
            names.append(name)
    return sorted(names)

def ours(found):
    """Return the names of functions of the workbench, also of functions that dispatch and look like Thunder's."""
    import workbench
    home = workbench.__path__[0]
    def written(value):
        if str(type(value).__module__).startswith("workbench"):
            return True
        while value is not None and not isinstance(value, types.ModuleType):
            if isinstance(value, functools.partial):
                value = value.func
            value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            if isinstance(value, types.FunctionType) and value.__code__.co_filename.startswith(home):
                return True
            value = vars(value).get("__wrapped__") if isinstance(value, types.FunctionType) else None
        return False
    return sorted(name for name, value in found.items() if written(value))

def program(x, w, z):
    y = torch.einsum("ij,jk->ik", x, w).tanh() @ w
    return (y.softmax(-1) * (z * z).abs()).sum()

args = (
    torch.randn(8, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True),
    torch.randn(8, 4, dtype=torch.complex64, requires_grad=True),
)
before, modules = snapshot(), set(packages())
'''

_USED = """\
import workbench
def real(x, w):
    return (torch.einsum("ij,jk->ik", x, w).tanh() @ w).softmax(-1).square().sum()
for function, given in ((program, args), (real, args[:2])):
    for capture in ("dynamo", "interpreter"):
        bench = workbench.open(function, *given, device="cpu", executor=EXECUTOR, capture=capture)
        site = next(s for s in bench.sites("saved") if s.values and "recompute" not in s.illegal)
        bench.choose({site.id: "recompute"})
        bench.config.jit(function)(*given).backward()
"""

_PLAIN = """\
def real(x, w):
    return (torch.einsum("ij,jk->ik", x, w).tanh() @ w).softmax(-1).square().sum()
thunder.jit(program)(*args).backward()
thunder.jit(real)(*args[:2]).backward()
torch.compile(real)(*args[:2]).backward()
"""

_TOLD = """
after = snapshot()
print(json.dumps({"changed": changed(before, after, modules), "ours": OURS}))
"""


def _run(body: str, tmp_path: Path, *given: str) -> Any:
    script = tmp_path / "script.py"
    script.write_text(body)
    done = subprocess.run(
        [sys.executable, str(script), *given],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=tmp_path,
        # Fix the hash seed: it determines the order of sets of names, and this order changes the text of traces.
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def by_themselves(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the attributes that change even without the workbench, such as methods that Dynamo disables."""
    folder = tmp_path_factory.mktemp("plain")
    return set(_run(_SNAPSHOT + _PLAIN + _TOLD.replace("OURS", "[]"), folder)["changed"])


_IMPORTED = """\
import importlib, pkgutil
import workbench
imported = 0
for module in pkgutil.walk_packages(workbench.__path__, "workbench."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        imported += 1
after = snapshot()
# An import of a module of Thunder or PyTorch sets the attribute of its package. That is not a patch.
names = [name for name in changed(before, after, modules) if name not in sys.modules]
print(json.dumps({"changed": names, "ours": ours(after), "imported": imported}))
"""


@pytest.mark.slow
def test_importing_every_module_of_the_workbench_changes_nothing(tmp_path: Path) -> None:
    found = _run(_SNAPSHOT + _IMPORTED, tmp_path)
    assert found["imported"] > 300
    assert (found["changed"], found["ours"]) == ([], [])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("executor", ["torch", "torchcompile"])
def test_every_function_of_thunder_and_pytorch_is_restored(
    executor: str, by_themselves: set[str], tmp_path: Path
) -> None:
    own = _run(_SNAPSHOT + _USED.replace("EXECUTOR", repr(executor)) + _TOLD.replace("OURS", "ours(after)"), tmp_path)
    assert own["ours"] == []
    assert sorted(set(own["changed"]) - by_themselves) == []


_BESIDE = """\
import hashlib, json, re, sys, threading, warnings
import thunder, torch

warnings.simplefilter("ignore")
torch.set_num_threads(1)
TIMES = 4

def users(z, x):
    y = torch.einsum("ij,kj->ik", x, x)
    return ((z * z * z).abs() * 2).sum() + y.tanh().sum()

def chosen(x, w):
    return (torch.einsum("ij,jk->ik", x, w).tanh() @ w).softmax(-1).square().sum()

def bits(*tensors):
    return hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest()

def drawn(*shapes, dtype=None):
    chance = torch.Generator().manual_seed(1)
    return [torch.randn(s, generator=chance, dtype=d).requires_grad_() for s, d in shapes]

def by_thunder():
    z, x = drawn(((3, 3), torch.complex64), ((3, 4), torch.float32))
    jitted = thunder.jit(users)
    jitted(z, x).backward()
    traces = [*thunder.last_traces(jitted), *thunder.last_backward_traces(jitted)]
    text = [re.sub(r"took \\d+ \\w+", "", str(trace)) for trace in traces]
    again = [t.detach().requires_grad_() for t in (z, x)]
    jitted(*again).backward()
    return {"text": text, "bits": bits(z.grad, x.grad), "again": bits(*(t.grad for t in again))}

def by_workbench():
    import workbench
    x, w = drawn(((8, 4), torch.float32), ((4, 4), torch.float32))
    bench = workbench.open(chosen, x, w, device="cpu", executor="torch", capture=CAPTURES.pop())
    site = next(s for s in bench.sites("saved") if s.values and "recompute" not in s.illegal)
    bench.choose({site.id: "recompute"})
    bench.config.jit(chosen)(x, w).backward()
    return {"text": bench.plan.text(), "bits": bits(x.grad, w.grad)}

CAPTURES = ["dynamo", "interpreter"] * (TIMES // 2)
found = {"thunder": [], "workbench": []}

def several(name, act):
    def work():
        for _ in range(TIMES):
            found[name].append(act())
    return threading.Thread(target=work)

threads = {"thunder": several("thunder", by_thunder), "workbench": several("workbench", by_workbench)}
mode = sys.argv[1].split("+")
for name in mode:
    threads[name].start()
for name in mode:
    threads[name].join()
if mode == ["thunder", "workbench"]:
    from workbench.compiler.lowering import patch_context
    with patch_context.install_patches():  # hold the patches while the other thread compiles
        thread = several("thunder", by_thunder)
        thread.start()
        thread.join()
    found["thunder"].append(by_thunder())
print(json.dumps(found))
"""


@pytest.mark.long
@pytest.mark.slow
def test_thunder_compiles_a_function_the_same_if_another_thread_uses_the_workbench(tmp_path: Path) -> None:
    (alone, *others) = _run(_BESIDE, tmp_path, "thunder")["thunder"]
    assert any("mul" in text for text in alone["text"])
    assert all(other == alone for other in others)
    planned = _run(_BESIDE, tmp_path, "workbench")["workbench"]
    both = _run(_BESIDE, tmp_path, "thunder+workbench")
    assert len(both["thunder"]) == 9
    assert all(found == alone for found in both["thunder"])
    assert both["workbench"] == planned


class Owner:
    def named(self, value: int) -> tuple[str | int, ...]:
        return "stock", value

    @staticmethod
    def alone(value: int) -> tuple[str, int]:
        return "stock", value


def _patches() -> ThreadPatches:
    made = ThreadPatches(
        "tried",
        lambda: [
            wrap_function(Owner, "named", lambda stock, self, value: ("ours", *stock(self, value))),
            replace_function(symbol, "tree_flatten", lambda tree: "ours", everywhere=True),
            replace_in_module(symbol, "inspect", signature=lambda function: "ours"),
        ],
    )
    ThreadPatches.sets.remove(made)
    return made


@pytest.fixture
def tried() -> Iterator[ThreadPatches]:
    before = dict(vars(Owner)), dict(vars(symbol)), thunder.core.pytree.tree_flatten
    yield _patches()
    assert (dict(vars(Owner)), dict(vars(symbol)), thunder.core.pytree.tree_flatten) == before


def _in_a_thread(act: Any) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(act()))
    thread.start()
    thread.join()
    return found[0]


def test_a_patch_holds_only_for_the_threads_inside_it(tried: ThreadPatches) -> None:
    with tried():
        assert Owner().named(1) == ("ours", "stock", 1)
        assert symbol.tree_flatten([1]) == symbol.inspect.signature(print) == "ours"
        assert _in_a_thread(lambda: Owner().named(1)) == ("stock", 1)
        assert _in_a_thread(lambda: symbol.tree_flatten([1]))[0] == [1]
        with tried():
            pass
        assert Owner().named(1) == ("ours", "stock", 1)
    assert Owner().named(1) == ("stock", 1)


def test_a_patch_stays_until_the_last_thread_has_left(tried: ThreadPatches) -> None:
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with tried():
            entered.set()
            leave.wait()
            assert Owner().named(1) == ("ours", "stock", 1)

    thread = threading.Thread(target=stay)
    with tried():
        thread.start()
        entered.wait()
    assert vars(Owner)["named"].__wrapped__(Owner(), 1) == Owner().named(1) == ("stock", 1)
    leave.set()
    thread.join()


def test_a_patch_that_other_code_puts_over_a_patch_stays(tried: ThreadPatches) -> None:
    stock = Owner.named
    with tried():
        beneath = Owner.named
        Owner.named = lambda self, value: ("theirs", *beneath(self, value))  # type: ignore[method-assign]
        assert Owner().named(1) == ("theirs", "ours", "stock", 1)
    assert Owner().named(1) == ("theirs", "stock", 1)
    Owner.named = stock  # type: ignore[method-assign]


def test_if_one_patch_of_a_group_fails_the_group_is_undone(tried: ThreadPatches) -> None:
    def fails(*_: Any) -> Any:
        raise LookupError

    broken = ThreadPatches("broken", lambda: [*tried._targets(), PatchTarget(Owner, "alone", fails)])
    ThreadPatches.sets.remove(broken)
    with pytest.raises(LookupError), broken():
        pass
    assert Owner().named(1) == ("stock", 1)
    assert broken.value is None


class Searched(ModuleType):
    """A module that counts how often its attributes are listed."""

    times = 0

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        self.times += 1
        return {}


def test_a_module_is_searched_once_for_names_to_patch(tried: ThreadPatches, monkeypatch: pytest.MonkeyPatch) -> None:
    with tried():
        pass
    searched = Searched("searched")
    monkeypatch.setitem(sys.modules, "workbench.searched", searched)
    for number in range(3):
        imported = ModuleType("imported")
        imported.tree_flatten = symbol.tree_flatten  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, f"workbench.imported{number}", imported)
        with tried():
            assert imported.tree_flatten([1]) == "ours"
            late = ModuleType("late")
            late.tree_flatten = symbol.tree_flatten  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, f"workbench.late{number}", late)
        assert late.tree_flatten is imported.tree_flatten is symbol.tree_flatten
    assert searched.times == 1


def test_a_module_that_is_still_being_imported_is_searched_again(
    tried: ThreadPatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = ModuleType("imported")
    imported.__spec__ = ModuleSpec("workbench.imported", None)
    monkeypatch.setattr(imported.__spec__, "_initializing", True, raising=False)
    monkeypatch.setitem(sys.modules, "workbench.imported", imported)
    with tried():
        pass
    imported.tree_flatten = symbol.tree_flatten  # type: ignore[attr-defined]
    imported.__spec__._initializing = False  # type: ignore[attr-defined]
    with tried():
        assert imported.tree_flatten([1]) == "ours"


def test_dynamo_traces_a_patched_function_only_inside_the_patch() -> None:
    def get_answer() -> int:
        return 1

    holder = SimpleNamespace(get_answer=get_answer)
    patches = ThreadPatches("traced", lambda: [replace_function(holder, "get_answer", lambda: 2, traced=True)])
    ThreadPatches.sets.remove(patches)

    def compiled() -> float:
        torch._dynamo.reset()
        asked = holder.get_answer
        return float(torch.compile(lambda x: x * asked(), backend="eager", fullgraph=True)(torch.ones(())))

    with patches():
        assert (compiled(), _in_a_thread(compiled)) == (2.0, 1.0)
    assert compiled() == 1.0


def test_no_patch_is_installed_outside_of_a_compilation() -> None:
    assert not install.is_fast()
    with patch_context.install_patches():
        assert install.is_fast()
    assert [each.name for each in ThreadPatches.sets if each._undo] == []
