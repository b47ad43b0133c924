"""A single file can add an executor. Plans, replays and the command line can then use the new executor."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import workbench
from workbench.bench import Workbench
from workbench.cli import main
from workbench.core.executor import executor_names, unregister
from workbench.errors import ConfigError, DeviceError

TOY = '''
"""Executor `tanhs`: every tanh alone in a region of torch.compile, on a CPU."""

from workbench.core.executor import Executor, register


@register
class Tanhs(Executor):
    name = "tanhs"

    def why_not(self, device):
        return "" if device == "cpu" else "tanhs are fused on a CPU only"

    def executors(self, stock, control):
        from workbench.compiler.fusion.executors import RegionExecutor

        class Regions(RegionExecutor):
            def can_fuse(self, bsym):
                return bsym.sym.name == "tanh" and super().can_fuse(bsym)

        return [Regions(control), *stock]
'''


@pytest.fixture
def tanhs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Write a file that registers a new executor, and import it."""
    (tmp_path / "tanhs_executor.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("tanhs_executor")
    yield
    unregister("tanhs")
    del sys.modules["tanhs_executor"]


@pytest.fixture
def bench(tanhs: None) -> Workbench:
    return workbench.open("residual_chain", layers=2, grad=True, device="cpu", executor="tanhs")


def test_fusions_of_a_new_executor_are_planned_and_proven(bench: Workbench) -> None:
    assert "tanhs" in executor_names()
    assert bench.plan.census.count == list(bench.plan.graph.statements.name).count("tanh") == 4
    bench.choose({"sharing.identical": "shared"})
    assert bench.plan.counts["compilations"] == 1
    assert bench.plan.proof.proven
    assert not any(site.id.startswith("copies:") for site in bench.plan.sites)


def test_a_config_replays_with_the_new_executor(bench: Workbench, tmp_path: Path, no_compiler: None) -> None:
    bench.choose({site.id: "recompute" for site in bench.sites("saved") if ":" in site.id and not site.illegal})
    config = workbench.load(bench.export(tmp_path / "choices.py"))
    assert config.executor == "tanhs"
    function, args, _ = bench.program.build()
    jitted = config.jit(function)
    torch.testing.assert_close(jitted(*args), function(*args), rtol=0, atol=0)


def test_a_new_executor_reports_where_it_cannot_be_used(tanhs: None) -> None:
    with pytest.raises(DeviceError, match="on a CPU only"):
        workbench.open("residual_chain", device="planned", executor="tanhs")


def test_an_unknown_executor_is_refused_with_the_names_of_all_executors(tanhs: None) -> None:
    known = "nvfuser, torchcompile, torchcompile_aten, torch, tanhs"
    with pytest.raises(ConfigError, match=f"no executor 'xla'; legal: {known}"):
        workbench.Config(program="mlp", executor="xla", device="cpu")


def test_the_command_line_accepts_a_new_executor(tanhs: None, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "residual_chain", "--set", "layers=2", "--device", "cpu", "--executor", "tanhs", "--json"])
    assert ended.value.code == 0
    document = json.loads(capfd.readouterr().out)
    assert document["executor"] == "tanhs"
    assert document["fusions"]["count"] == 4
