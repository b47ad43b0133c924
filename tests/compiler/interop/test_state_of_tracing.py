"""Tracing state belongs to one thread or to one interpretation of a program, and is dropped after use."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
import torch

import workbench
from workbench.compiler.fastpath import call_memo, install
from workbench.compiler.interop import fake_gpu, thunder_patches
from workbench.compiler.interop.devices import planned_gpu
from workbench.compiler.interop.thunder_api import (
    TensorProxy,
    TraceCtx,
    devices,
    dtypes,
    interpreter,
    passes,
    symbol,
    thunder,
    torch_executor,
    tracectx,
)
from workbench.compiler.lowering import patch_context
from workbench.interop.torch_private import FakeTensorMode


def first() -> None:
    """A function that a program calls."""


def second() -> None:
    """Another function that a program calls."""


def in_turn(one: Callable[[Callable[[], None]], None], other: Callable[[], None]) -> None:
    """Call `one(let_go)`. A call of `let_go` runs `other` in a second thread, and returns when `other` has returned."""
    begun, left = threading.Event(), threading.Event()

    def run() -> None:
        begun.wait(60)
        other()
        left.set()

    thread = threading.Thread(target=run)
    thread.start()

    def let_go() -> None:
        begun.set()
        assert left.wait(60)

    one(let_go)
    thread.join()


def test_if_two_threads_overlap_each_thread_records_its_own_functions_and_the_interpreter_is_restored() -> None:
    stock = interpreter.extract_code
    entered, may_leave = threading.Event(), threading.Event()
    seen: dict[str, set[FunctionType]] = {}

    def other() -> None:
        with patch_context.install_patches(), thunder_patches.record_functions() as functions:
            entered.set()
            may_leave.wait(60)
            interpreter.extract_code(second)
            seen["other"] = functions

    thread = threading.Thread(target=other)
    with patch_context.install_patches(), thunder_patches.record_functions() as functions:
        thread.start()
        assert entered.wait(60)
        interpreter.extract_code(first)
        seen["one"] = functions
    assert interpreter.extract_code is not stock
    may_leave.set()
    thread.join()
    assert seen == {"one": {first}, "other": {second}}
    assert interpreter.extract_code is stock


class Doubled(torch.nn.Module):
    """A module with two statements."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * 2)


def headed(head: torch.nn.Module) -> torch.nn.Sequential:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    model.add_module("head", head)
    return model


@pytest.mark.slow
def test_a_module_that_was_replaced_between_two_traces_has_a_path() -> None:
    given = torch.randn(2, 3)
    model = headed(torch.nn.Tanh())
    workbench.open(model, given, device="cpu", executor="torch", capture="interpreter")
    for _ in range(3):
        # The new module may get the address, and so the id, of the old module.
        model.head = Doubled()
        again = workbench.open(model, given, device="cpu", executor="torch", capture="interpreter")
        fresh = workbench.open(headed(Doubled()), given, device="cpu", executor="torch", capture="interpreter")
        assert [site.id for site in again.sites()] == [site.id for site in fresh.sites()]
        assert any("head/tanh" in site.id for site in again.sites())


def test_while_one_thread_plans_for_an_absent_gpu_other_threads_see_no_gpu() -> None:
    functions = (
        lambda: torch.cuda.is_available(),
        lambda: str(thunder.torch._get_fake_arg(torch.device("cuda"))),
    )
    before = [function() for function in functions]
    found: list[Any] = []

    def plan(let_go: Callable[[], None]) -> None:
        with planned_gpu(FakeTensorMode()), fake_gpu.says_there_is_a_gpu():
            assert torch.cuda.get_device_capability() == (9, 0)
            assert torch.cuda.is_available()
            let_go()

    def ask() -> None:
        found.extend(function() for function in functions)
        try:
            found.append(torch.cuda.get_device_capability())
        except (AssertionError, RuntimeError):
            found.append(None)

    in_turn(plan, ask)
    real = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    assert found == [*before, real]


@pytest.mark.parametrize("fails", [False, True])
def test_layouts_of_arguments_are_dropped_when_a_graph_is_compiled_or_refused(fails: bool) -> None:
    seen: list[Any] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 2

    def noted(found: Any) -> Any:
        seen.append(dict(thunder_patches.argument_layouts()))
        if fails:
            raise NotImplementedError
        return found

    thunder_patches.trace_with(program, thunder_patches.TraceSource(noted))
    compiled = patch_context.jit(program)
    with pytest.raises(NotImplementedError) if fails else torch.no_grad():
        compiled(torch.randn(4, 3).t())
    assert [list(names) for names in seen] == [["x"]]
    assert thunder_patches.argument_layouts() == {}


def test_a_sorted_set_stays_sorted_under_every_set_operation() -> None:
    one, other = thunder_patches._SortedSet("dbca"), frozenset("cfae")
    made = {
        "and": one & other, "or": one | other, "sub": one - other, "xor": one ^ other,
        "rand": other & one, "ror": other | one, "rsub": other - one, "rxor": other ^ one,
        "union": one.union(other), "intersection": one.intersection(other), "difference": one.difference(other),
        "symmetric_difference": one.symmetric_difference(other), "copy": one.copy(),
    }  # fmt: skip
    # Check the order only for operators whose left operand is the sorted set.
    left = {name: each for name, each in made.items() if name not in ("rand", "ror", "rsub", "rxor")}
    assert all(type(each) is thunder_patches._SortedSet for each in left.values())
    assert all(list(each) == sorted(each) for each in left.values())
    assert made["and"] == frozenset("ac")
    assert made["xor"] == made["rxor"] == frozenset("bdef")


def test_the_cache_of_signatures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_MOST_SYMBOLS", 10)
    monkeypatch.setattr(install, "_of_symbols", {})
    for at in range(100):
        assert list(install._signature(symbol.Symbol(f"s{at}", meta=lambda x: x)).parameters)
        assert len(install._of_symbols) <= 10


IMPORTED = """
import torch
before = torch._C._ensureCUDADeviceGuardSet
import workbench
bench = workbench.open("mlp", device="cpu", executor="torch")
bench.plan
assert torch._C._ensureCUDADeviceGuardSet is before
"""


@pytest.mark.slow
def test_importing_and_opening_do_not_change_the_check_of_pytorch_for_a_gpu() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_pass_also_runs_for_a_caller_with_the_name_of_thunders_own_function() -> None:
    traces = thunder.jit(lambda x: torch.tanh(x) * 2)
    traces(torch.ones(3))
    trace = thunder.last_traces(traces)[0]

    def apply_transforms_and_build_cache_entry() -> Any:
        return passes._transform_for_operator_executor_execution(trace, [torch_executor])

    with patch_context.install_patches():
        claimed = apply_transforms_and_build_cache_entry()
    assert claimed is not trace
    assert torch_executor in [bsym.sym.executor for bsym in claimed.bound_symbols]


def test_a_call_with_a_proxy_of_unknown_attributes_is_not_replayed() -> None:
    traced = TraceCtx()
    with tracectx(traced):
        proxy = TensorProxy(shape=(3,), device=devices.cpu, dtype=dtypes.float32)
        given: dict[str, Any] = {}
        assert call_memo._argument_key(proxy, given, [])
        proxy.__dict__["_new_in_thunder"] = 1
        with pytest.raises(call_memo._NotTemplatableError):
            call_memo._argument_key(proxy, given, [])
