"""Captures, plans and calls change global state in contexts. The last thread to leave a context restores the state."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.trial_counts import beyond
from workbench.compiler.frontend import dynamo_session
from workbench.compiler.interop import dynamo_patches, dynamo_stance, fake_gpu
from workbench.compiler.interop.thread_patches import ThreadPatches
from workbench.compiler.interop.thunder_api import sdpaex, thunder
from workbench.compiler.interop.torch_versions import SETTINGS_PER_THREAD
from workbench.interop.torch_private import (
    InliningInstructionTranslator,
    InstructionTranslatorBase,
    TorchInGraphFunctionVariable,
    dynamo_config,
    eval_frame,
)

Context = Callable[[], contextlib.AbstractContextManager[None]]
CONTEXTS: dict[str, Context] = {
    "settings": dynamo_session.dynamo_settings,
    "stance": dynamo_stance.default_stance,
    "layers": dynamo_session.decompose_layers,
    "collections": dynamo_session.no_collections,
    "meta": fake_gpu.found_on_meta,
    "a gpu": fake_gpu.says_there_is_a_gpu,
    "a recent gpu": fake_gpu.recent_gpu,
    "loops": dynamo_patches.graph_breaks_in_loops,
    "names": dynamo_patches.global_names_of_functions,
}


@pytest.fixture
def of_a_person() -> Iterator[None]:
    with torch.compiler.set_stance("force_eager"), setting_of_a_person():
        yield


def setting_of_a_person() -> contextlib.AbstractContextManager[None]:
    setting: contextlib.AbstractContextManager[None] = dynamo_config.patch(run_gc_after_compile=True)
    return setting


def changed() -> list[Any]:
    """Return the global state of Dynamo, Thunder and PyTorch that a capture, a plan or a call changes."""
    settings = [getattr(dynamo_config, name) for name in dynamo_session._SETTINGS]
    of_thunder = [sdpaex._fused_sdp_choice, thunder.torch._get_fake_arg, thunder.torch._fake_type_to_thunder]
    of_dynamo = [
        InliningInstructionTranslator.get_globals_source_and_value,
        InstructionTranslatorBase.maybe_has_backedge,
    ]
    of_torch = [torch.cuda.is_available, torch.cuda.get_device_capability, torch.backends.mha.get_fastpath_enabled()]
    settings.append(dynamo_config.run_gc_after_compile)
    return [*settings, *of_thunder, *of_dynamo, *of_torch, eval_frame._stance]


@pytest.mark.usefixtures("of_a_person")
@pytest.mark.parametrize("name", CONTEXTS)
def test_all_state_is_restored_when_the_last_thread_leaves(name: str) -> None:
    before = changed()
    entered, left = threading.Event(), threading.Event()
    inside: list[list[Any]] = []
    after: list[list[Any]] = []

    def other() -> None:
        with setting_of_a_person() if SETTINGS_PER_THREAD else contextlib.nullcontext():
            with CONTEXTS[name]():
                entered.set()
                left.wait(60)
                inside.append(changed())
            after.append(changed())

    thread = threading.Thread(target=other)
    with CONTEXTS[name]():
        inside.append(changed())
        thread.start()
        assert entered.wait(60)
    left.set()
    thread.join()
    assert inside[0] == inside[1] != before, "the change must last while a thread is in the context"
    assert [changed()] == after == [before]


@pytest.mark.parametrize("change", [dynamo_session.dynamo_settings, dynamo_session.run_uncompiled_after_errors])
def test_each_thread_in_a_context_has_the_settings_of_the_workbench(change: Context) -> None:
    """Since PyTorch 2.12, a thread does not see another thread's settings, so each must make the settings itself."""

    def settings() -> list[Any]:
        return [getattr(dynamo_config, name) for name in (*dynamo_session._SETTINGS, "suppress_errors")]

    def other() -> None:
        with change():
            inside.append(settings())

    inside: list[list[Any]] = []
    before = settings()
    with change():
        inside.append(settings())
        for _ in range(2):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
    assert inside == [inside[0]] * 3
    assert inside[0] != before == settings()


@pytest.mark.parametrize(
    ("change", "patches"),
    [
        (
            dynamo_session.dynamo_settings,
            (dynamo_patches.global_names_of_functions, dynamo_patches.settings_told_without_functions),
        ),
        (dynamo_session.run_uncompiled_after_errors, (dynamo_patches.graph_breaks_at_failures,)),
    ],
)
def test_each_thread_in_a_context_has_the_patches_of_the_workbench(
    change: Context, patches: tuple[ThreadPatches, ...]
) -> None:
    """Without this, the second of two simultaneous captures would be traced without these patches."""

    def values() -> set[Any]:
        return {each.value for each in patches}

    def other() -> None:
        with change():
            inside.append(values())
            entered.set()
            assert left.wait(60)
        inside.append(values())

    inside: list[set[Any]] = []
    entered, left = threading.Event(), threading.Event()
    thread = threading.Thread(target=other)
    with change():
        thread.start()
        assert entered.wait(60)
        assert values() == {True}
    left.set()
    thread.join()
    assert inside == [{True}, {None}]
    assert values() == {None}


def test_other_threads_compile_with_value_checks() -> None:
    """The workbench removes PyTorch's checks of values only while it traces programs itself."""

    def loss(x: torch.Tensor) -> torch.Tensor:
        return functional.gaussian_nll_loss(x, x.cos(), x.square())

    with dynamo_session.dynamo_settings():
        assert TorchInGraphFunctionVariable._get_handlers()[functional.gaussian_nll_loss]
        raised: list[str] = []

        def compile_it() -> None:
            try:
                torch.compile(loss, backend="eager", fullgraph=True)(torch.randn(4, 6))
            except RuntimeError as error:
                raised.append(str(error))

        thread = threading.Thread(target=compile_it)
        thread.start()
        thread.join()
    assert raised
    assert "data-dependent" in raised[0].lower()


IN_A_THREAD = """
import sys, threading
import torch, workbench

def open_one():
    bench = workbench.open(torch.nn.Linear(3, 4), torch.randn(2, 3), device=sys.argv[1], executor="torch")
    print(bench.plan.peak_bytes)

for _ in range(2):
    thread = threading.Thread(target=open_one)
    thread.start()
    thread.join()
open_one()
"""


@pytest.mark.slow
@pytest.mark.parametrize("device", beyond(1, ["planned", "cpu"]))
def test_programs_open_after_the_thread_that_opened_the_first_program_has_ended(device: str) -> None:
    """Without `fake_gpu._keep_missing_gpu`, a process with a CUDA build of PyTorch and no GPU crashes here."""
    command = [sys.executable, "-c", IN_A_THREAD, device]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert len(set(ended.stdout.split())) == 1
